/* The set of prefixes behind every access rule: it begins the names that one of its prefixes begins, and no other, so a rule gives a right on just those (P4, P9:
 * in a time that hardly grows with their number). The random test holds it against the plain way: comparing with each prefix that was added. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/prefix_set.h"

#include <string.h>

#include "tests/lib/check_main.h"
#include "tests/lib/dice.h"

static struct prefix_set set;

static void stop(void)
{
    prefix_set_close(&set);
}

static void add(const char *text)
{
    ck_assert_int_eq(prefix_set_add(&set, text, strlen(text)), 0);
}

static bool begins(const char *name)
{
    return prefix_set_begins(&set, name, strlen(name));
}

static bool meets(const char *prefix)
{
    return prefix_set_meets(&set, prefix, strlen(prefix));
}

START_TEST(an_empty_set_begins_nothing)
{
    prefix_set_settle(&set);
    ck_assert(!begins("a"));
    ck_assert(!begins(""));
    ck_assert(!meets("a"));
    ck_assert(!meets(""));
}
END_TEST

START_TEST(the_empty_prefix_begins_everything_and_is_all_that_stays)
{
    add("b");
    add("");
    add("a/");
    prefix_set_settle(&set);
    ck_assert_uint_eq(set.count, 1);
    ck_assert(begins("a"));
    ck_assert(begins("zzz"));
    ck_assert(begins(""));
    ck_assert(meets("q"));
}
END_TEST

START_TEST(P4_what_another_begins_is_dropped_and_changes_no_answer)
{
    add("job/2");
    add("job/");
    add("job/1");
    add("jobs");
    prefix_set_settle(&set);
    ck_assert_uint_eq(set.count, 2);
    ck_assert(begins("job/1"));
    ck_assert(begins("job/3"));
    ck_assert(begins("job/"));
    ck_assert(begins("jobs/1"));
    ck_assert(!begins("job"));
    ck_assert(!begins("job0")); /* behind job/, before jobs */
    ck_assert(!begins("jobt"));
}
END_TEST

START_TEST(a_prefix_that_is_there_is_not_added_again)
{
    add("a");
    ck_assert(prefix_set_has(&set, "a", 1));
    ck_assert(!prefix_set_has(&set, "ab", 2));
    ck_assert(!prefix_set_has(&set, "", 0));
    add("a");
    ck_assert_uint_eq(set.count, 1);
    add("ab"); /* told apart until the set is settled, though "a" begins it */
    ck_assert(prefix_set_has(&set, "ab", 2));
    ck_assert_uint_eq(set.count, 2);
}
END_TEST

START_TEST(a_name_can_begin_with_both)
{
    add("a/");
    add("b/only");
    prefix_set_settle(&set);
    ck_assert(meets("") && meets("a") && meets("a/") && meets("a/1") && meets("b") && meets("b/only") && meets("b/only/x"));
    ck_assert(!meets("b/x") && !meets("c") && !meets("aa") && !meets("a0") && !meets("A"));
}
END_TEST

START_TEST(bytes_above_127_come_last)
{
    add("\x80");
    add("z");
    add("\xff\xff");
    prefix_set_settle(&set);
    ck_assert(begins("\x80\x80") && begins("zz") && begins("\xff\xff"));
    ck_assert(!begins("\xff") && !begins("\xff\xfe") && !begins("y"));
}
END_TEST

/* ---------------------------------------------------------------- against the plain way */

#define PREFIXES_MAX 40
#define LEN_MAX      6

struct word {
    size_t len;
    char text[LEN_MAX];
};

/* Few letters, so that many begin one another; one of them is below all that a name has, one above. */
static struct word draw(struct dice *dice)
{
    static const char letters[] = {'a', 'b', '/', '\x01', '\xff'};
    struct word word = {.len = dice_roll(dice, LEN_MAX + 1)};

    for (size_t i = 0; i < word.len; i++)
        word.text[i] = letters[dice_roll(dice, dice_roll(dice, 4) == 0 ? sizeof(letters) : 2)];
    return word;
}

static bool plain_begins(const struct word *prefix, const struct word *name)
{
    return prefix->len <= name->len && memcmp(prefix->text, name->text, prefix->len) == 0;
}

START_TEST(P4_it_answers_as_comparing_with_each_does)
{
    struct dice dice;
    size_t yes = 0, no = 0;

    dice_init(&dice);
    for (int step = 0; step < 4000; step++) {
        struct word added[PREFIXES_MAX];
        size_t count = dice_roll(&dice, PREFIXES_MAX + 1);

        for (size_t i = 0; i < count; i++) {
            bool there = false;

            added[i] = draw(&dice);
            for (size_t j = 0; j < i; j++)
                there = there || (added[j].len == added[i].len && plain_begins(&added[j], &added[i]));
            DICE_ASSERT(&dice, step, prefix_set_has(&set, added[i].text, added[i].len) == there);
            DICE_ASSERT(&dice, step, prefix_set_add(&set, added[i].text, added[i].len) == 0);
        }
        prefix_set_settle(&set);
        for (int question = 0; question < 50; question++) {
            const struct word asked = draw(&dice);
            bool begun = false, met = false;

            for (size_t i = 0; i < count; i++) {
                begun = begun || plain_begins(&added[i], &asked);
                met = met || plain_begins(&added[i], &asked) || plain_begins(&asked, &added[i]);
            }
            DICE_ASSERT(&dice, step, prefix_set_begins(&set, asked.text, asked.len) == begun);
            DICE_ASSERT(&dice, step, prefix_set_meets(&set, asked.text, asked.len) == met);
            yes += begun;
            no += !begun;
        }
        prefix_set_close(&set);
    }
    ck_assert_uint_gt(yes, 1000);
    ck_assert_uint_gt(no, 1000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("prefix_set");
    TCase *tcase = tcase_create("set");

    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, NULL, stop);
    tcase_add_test(tcase, an_empty_set_begins_nothing);
    tcase_add_test(tcase, the_empty_prefix_begins_everything_and_is_all_that_stays);
    tcase_add_test(tcase, P4_what_another_begins_is_dropped_and_changes_no_answer);
    tcase_add_test(tcase, a_prefix_that_is_there_is_not_added_again);
    tcase_add_test(tcase, a_name_can_begin_with_both);
    tcase_add_test(tcase, bytes_above_127_come_last);
    tcase_add_test(tcase, P4_it_answers_as_comparing_with_each_does);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
