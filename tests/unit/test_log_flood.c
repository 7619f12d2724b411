/* Sums of lines, in virtual time: nothing is written twice in a second, nothing is left out untold, and memory is bounded (P9). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/log_flood.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/check_main.h"
#include "tests/lib/dice.h"

#define SECOND 1000000

static struct log_flood flood;
static int64_t now;

static void reset(void)
{
    memset(&flood, 0, sizeof(flood));
    now = 5 * SECOND;
}

static bool pass(const char *event, uint64_t hash, uint64_t *ret_lines)
{
    struct log_flood_sum sum = {0};
    bool passed = log_flood_pass(&flood, now, event, 2, hash, false, &sum);

    *ret_lines = sum.lines;
    if (sum.lines > 0)
        ck_assert_str_eq(sum.event, event);
    return passed;
}

START_TEST(equal_lines_are_summed)
{
    uint64_t lines;
    struct log_flood_sum sum;

    reset();
    for (int i = 0; i < LOG_FLOOD_LINES; i++)
        ck_assert(pass("lost", 7, &lines));
    for (int i = 0; i < 1000; i++)
        ck_assert(!pass("lost", 7, &lines));
    ck_assert(pass("other", 7, &lines)); /* another event has a window of its own */
    now += SECOND - 1;
    ck_assert(!log_flood_settle(&flood, now, &sum));
    now++;
    ck_assert(log_flood_settle(&flood, now, &sum));
    ck_assert_str_eq(sum.event, "lost");
    ck_assert_int_eq(sum.level, 2);
    ck_assert_uint_eq(sum.lines, 1000);
    ck_assert(!log_flood_settle(&flood, now, &sum));
    ck_assert(pass("lost", 7, &lines)); /* a new window */
    ck_assert_uint_eq(lines, 0);
}
END_TEST

START_TEST(unlike_lines_are_summed_beyond_a_number)
{
    uint64_t lines, written = 0;

    reset();
    for (uint64_t i = 0; i < 5000; i++)
        written += pass("expired", i, &lines);
    ck_assert_uint_eq(written, LOG_FLOOD_LINES);
    now += 3 * SECOND;
    ck_assert(pass("expired", 9999, &lines));
    ck_assert_uint_eq(lines, 5000 - LOG_FLOOD_LINES); /* told before the line that begins the next window */
}
END_TEST

START_TEST(with_all_unlike_only_equal_ones_are)
{
    struct log_flood_sum sum;
    int written = 0;

    reset();
    for (uint64_t i = 0; i < 5000; i++)
        written += log_flood_pass(&flood, now, "granted", 3, i, true, &sum);
    ck_assert_int_eq(written, 5000);
    ck_assert(!log_flood_pass(&flood, now, "granted", 3, 4999, true, &sum));
}
END_TEST

START_TEST(at_the_end_open_windows_are_told)
{
    struct log_flood_sum sum;
    uint64_t lines;

    reset();
    for (int i = 0; i < LOG_FLOOD_LINES; i++)
        ck_assert(pass("a", 1, &lines));
    ck_assert(!pass("a", 1, &lines));
    ck_assert(!log_flood_settle(&flood, now, &sum));
    ck_assert(log_flood_settle(&flood, INT64_MAX, &sum));
    ck_assert_uint_eq(sum.lines, 1);
    ck_assert(!log_flood_settle(&flood, INT64_MAX, &sum));
}
END_TEST

START_TEST(P9_more_events_than_slots_are_written)
{
    static char names[LOG_FLOOD_SLOTS + 20][16];
    uint64_t lines;

    reset();
    for (size_t i = 0; i < LOG_FLOOD_SLOTS + 20; i++) {
        snprintf(names[i], sizeof(names[i]), "event%zu", i);
        for (int line = 0; line < LOG_FLOOD_LINES; line++)
            ck_assert(pass(names[i], 1, &lines));
        ck_assert(pass(names[i], 1, &lines) == (i >= LOG_FLOOD_SLOTS));
    }
}
END_TEST

/* Whatever comes: every line is either written or in exactly one sum. */
START_TEST(no_line_is_lost_or_told_twice)
{
    static const char *const events[] = {"a", "b", "c"};
    struct dice dice;
    uint64_t came[3] = {0}, told[3] = {0};
    struct log_flood_sum sum;

    reset();
    dice_init(&dice);
    for (unsigned step = 0; step < 100000; step++) {
        unsigned which = dice_roll(&dice, 3);

        now += (int64_t)dice_roll(&dice, 2) * (int64_t)dice_roll(&dice, 30000);
        if (dice_roll(&dice, 50) == 0) {
            while (log_flood_settle(&flood, now, &sum))
                told[sum.event[0] - 'a'] += sum.lines;
            continue;
        }
        came[which]++;
        told[which] += log_flood_pass(&flood, now, events[which], 2, dice_roll(&dice, which == 0 ? 3 : 5000), false, &sum);
        told[which] += sum.lines;
    }
    while (log_flood_settle(&flood, INT64_MAX, &sum))
        told[sum.event[0] - 'a'] += sum.lines;
    for (int i = 0; i < 3; i++)
        DICE_ASSERT(&dice, i, came[i] == told[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log_flood");
    TCase *tcase = tcase_create("sums");

    tcase_add_test(tcase, equal_lines_are_summed);
    tcase_add_test(tcase, unlike_lines_are_summed_beyond_a_number);
    tcase_add_test(tcase, with_all_unlike_only_equal_ones_are);
    tcase_add_test(tcase, at_the_end_open_windows_are_told);
    tcase_add_test(tcase, P9_more_events_than_slots_are_written);
    tcase_add_test(tcase, no_line_is_lost_or_told_twice);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
