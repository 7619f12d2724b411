/* The waiters of one node: in the order of their tickets, those without one last and in the order they came (P6); a line is there as long as it has
 * waiters (P8); each line has one time to look at it. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/wait_queue.h"
#include "tests/lib/dice.h"

static struct wait_queue *queue;
static struct waiter a, b, c, d;

static struct lease_id id_of(char digit)
{
    struct lease_id id;
    char text[PAWL_LEASE_ID_LEN + 1];

    snprintf(text, sizeof(text), "%c0000000-0000-4000-8000-000000000000", digit);
    ck_assert_int_eq(lease_id_parse(text, PAWL_LEASE_ID_LEN, &id), 0);
    return id;
}

static void start(void)
{
    queue = wait_queue_new();
    ck_assert_ptr_nonnull(queue);
    a = (struct waiter){.id = id_of('a')};
    b = (struct waiter){.id = id_of('b')};
    c = (struct waiter){.id = id_of('c')};
    d = (struct waiter){.id = id_of('d')};
}

static void stop(void)
{
    wait_queue_free(queue);
}

static void add(struct waiter *waiter, const char *name, int64_t ticket)
{
    waiter->ticket = ticket;
    ck_assert_int_eq(wait_queue_add(queue, waiter, name, strlen(name)), 0);
}

static struct wait_line *line_of(const char *name)
{
    return wait_queue_line(queue, name, strlen(name));
}

/* The lease ids of a line, by their first digits. */
static const char *order(const char *name)
{
    static char digits[64];
    size_t n = 0;
    struct wait_line *line = line_of(name);

    for (struct waiter *w = line ? wait_line_first(line) : NULL; w && n < sizeof(digits) - 1; w = w->later) {
        ck_assert_ptr_eq(w->line, line);
        ck_assert(w->later == NULL || w->later->earlier == w);
        digits[n++] = w->id.text[0];
    }
    digits[n] = '\0';
    return digits;
}

START_TEST(P6_tickets_order_a_line_and_those_without_stand_last)
{
    add(&b, "L", 20);
    add(&a, "L", 10);
    add(&d, "L", 0);
    add(&c, "L", 15);
    ck_assert_str_eq(order("L"), "acbd");
    ck_assert_uint_eq(wait_queue_count(queue), 4);
    ck_assert_ptr_eq(wait_line_first(line_of("L")), &a);
}
END_TEST

START_TEST(P6_a_ticket_moves_its_waiter_to_its_place)
{
    add(&a, "L", 0);
    add(&b, "L", 0);
    add(&c, "L", 0);
    ck_assert_str_eq(order("L"), "abc");
    wait_queue_set_ticket(&b, 7);
    ck_assert_str_eq(order("L"), "bac");
    wait_queue_set_ticket(&c, 5);
    ck_assert_str_eq(order("L"), "cba");
    wait_queue_set_ticket(&c, 5);
    wait_queue_set_ticket(&a, 6);
    ck_assert_str_eq(order("L"), "cab");
    wait_queue_set_ticket(&d, 3); /* of one that does not wait: kept for later */
    ck_assert_int_eq(d.ticket, 3);
    ck_assert_str_eq(order("L"), "cab");
}
END_TEST

/* How long a crowd takes to come and to be given its tickets, in clocks of the processor. */
static clock_t time_of_crowd(unsigned count)
{
    struct waiter *crowd = calloc(count, sizeof(*crowd)), *at;
    clock_t began = clock(), took;

    ck_assert_ptr_nonnull(crowd);
    for (unsigned i = 0; i < count; i++) {
        snprintf(crowd[i].id.text, sizeof(crowd[i].id.text), "%08x-0000-4000-8000-000000000000", i);
        add(&crowd[i], "L", 0);
    }
    for (unsigned i = 0; i < count; i++)
        wait_queue_set_ticket(&crowd[i], i + 1);
    took = clock() - began;
    at = wait_line_first(line_of("L"));
    for (unsigned i = 0; i < count; i++, at = at->later)
        ck_assert_ptr_eq(at, &crowd[i]);
    ck_assert_ptr_null(at);
    for (unsigned i = 0; i < count; i++)
        wait_queue_remove(queue, &crowd[i]);
    free(crowd);
    return took;
}

/* Broken: who gets a ticket is looked for a place from the end of the line on, past all who have none yet. A crowd that comes at one moment then keeps the
 * only thread for seconds: sixteen times as many take 256 times as long. */
START_TEST(P9_a_crowd_gets_its_tickets_without_a_walk_through_the_line)
{
    clock_t few = time_of_crowd(6250), many = time_of_crowd(100000);

    ck_assert_msg(many < 100 * few + CLOCKS_PER_SEC / 10, "%ld and %ld clocks", (long)few, (long)many);
}
END_TEST

START_TEST(P6_equal_tickets_stand_in_the_order_they_came)
{
    add(&a, "L", 4);
    add(&b, "L", 4);
    add(&c, "L", 4);
    ck_assert_str_eq(order("L"), "abc");
}
END_TEST

START_TEST(P8_the_last_waiter_takes_the_line_with_it)
{
    add(&a, "L", 1);
    add(&b, "L", 2);
    add(&c, "M", 3);
    ck_assert_int_eq(wait_line_look_at(queue, line_of("L"), 50), 0);
    wait_queue_remove(queue, &a);
    wait_queue_remove(queue, &a);
    ck_assert_str_eq(order("L"), "b");
    ck_assert_ptr_null(a.line);
    wait_queue_remove(queue, &b);
    ck_assert_ptr_null(line_of("L"));
    ck_assert(wait_queue_next_us(queue) == INT64_MAX);
    ck_assert_ptr_null(wait_queue_due(queue, INT64_MAX));
    ck_assert_uint_eq(wait_queue_count(queue), 1);
    ck_assert_str_eq(order("M"), "c");
    add(&a, "L", 9); /* and can wait again */
    ck_assert(wait_line_look_us(line_of("L")) == INT64_MAX);
}
END_TEST

START_TEST(a_waiter_is_found_by_its_lease_id)
{
    struct lease_id wanted = id_of('b'), none = id_of('e');

    add(&a, "L", 1);
    add(&b, "L", 2);
    add(&c, "M", 4);
    ck_assert_ptr_eq(wait_line_find(line_of("L"), &wanted, NULL), &b);
    ck_assert_ptr_null(wait_line_find(line_of("L"), &wanted, &b));
    ck_assert_ptr_null(wait_line_find(line_of("L"), &none, NULL));
    ck_assert_ptr_null(wait_line_find(line_of("M"), &wanted, NULL));
    wait_queue_remove(queue, &b);
    ck_assert_ptr_null(wait_line_find(line_of("L"), &wanted, NULL));
}
END_TEST

/* Two requests with one lease id (P7) have one place and one ticket. */
START_TEST(P7_twins_stand_side_by_side_and_move_together)
{
    struct lease_id wanted = id_of('b');
    struct waiter twin = {.id = wanted, .ticket = 9}, third = {.id = wanted}, elsewhere = {.id = wanted};

    add(&a, "L", 1);
    add(&b, "L", 2);
    add(&c, "L", 3);
    add(&twin, "L", 9);
    add(&third, "L", 0);
    add(&elsewhere, "M", 7); /* of another lock: no twin */
    ck_assert_str_eq(order("L"), "abbbc");
    ck_assert_int_eq(twin.ticket, 2);
    ck_assert_int_eq(third.ticket, 2);
    ck_assert_int_eq(elsewhere.ticket, 7);
    ck_assert_ptr_eq(wait_line_find(line_of("L"), &wanted, NULL), &b);
    ck_assert_ptr_eq(wait_line_find(line_of("L"), &wanted, &b), &twin);
    ck_assert_ptr_eq(wait_line_find(line_of("L"), &wanted, &twin), &third);
    ck_assert_ptr_null(wait_line_find(line_of("L"), &wanted, &third));
    wait_queue_set_ticket(&twin, 8);
    ck_assert_str_eq(order("L"), "acbbb");
    ck_assert_int_eq(b.ticket, 8);
    ck_assert_ptr_eq(wait_line_find(line_of("L"), &wanted, &b), &twin);
    ck_assert_int_eq(elsewhere.ticket, 7);
    wait_queue_remove(queue, &b); /* the one that the others were found by */
    ck_assert_ptr_eq(wait_line_find(line_of("L"), &wanted, NULL), &twin);
    wait_queue_remove(queue, &third);
    wait_queue_remove(queue, &twin);
    ck_assert_ptr_null(wait_line_find(line_of("L"), &wanted, NULL));
    ck_assert_str_eq(order("L"), "ac");
    wait_queue_remove(queue, &elsewhere);
    ck_assert_uint_eq(wait_queue_count(queue), 2);
}
END_TEST

START_TEST(C13_lines_fall_due_one_by_one_at_their_time)
{
    add(&a, "L", 1);
    add(&b, "M", 2);
    add(&c, "N", 3);
    ck_assert_int_eq(wait_line_look_at(queue, line_of("L"), 50), 0);
    ck_assert_int_eq(wait_line_look_at(queue, line_of("M"), 10), 0);
    ck_assert_int_eq(wait_line_look_at(queue, line_of("M"), 60), 0); /* moved */
    ck_assert_int_eq(wait_queue_next_us(queue), 50);
    ck_assert_int_eq(wait_line_look_us(line_of("M")), 60);
    ck_assert_ptr_null(wait_queue_due(queue, 49));
    ck_assert_ptr_eq(wait_queue_due(queue, 100), line_of("L"));
    ck_assert(wait_line_look_us(line_of("L")) == INT64_MAX);
    ck_assert_ptr_eq(wait_queue_due(queue, 100), line_of("M"));
    ck_assert_ptr_null(wait_queue_due(queue, 100));
}
END_TEST

static void count_one(struct waiter *waiter, void *arg)
{
    char *seen = arg;

    seen[waiter->id.text[0] - 'a']++;
}

START_TEST(each_is_called_once_for_each_waiter)
{
    char seen[4] = {0};

    add(&a, "L", 1);
    add(&b, "L", 2);
    add(&c, "M", 0);
    wait_queue_each(queue, count_one, seen);
    ck_assert_mem_eq(seen, "\1\1\1\0", 4);
}
END_TEST

START_TEST(C42_a_name_that_begins_with_another_is_another_line)
{
    add(&a, "x", 1);
    add(&b, "x:queue", 2);
    ck_assert_str_eq(order("x"), "a");
    ck_assert_str_eq(order("x:queue"), "b");
    ck_assert_ptr_null(line_of("x:"));
}
END_TEST

/* ---- against an array ---- */

enum { WAITERS = 200, LINES = 8, STEPS = 20000 };
struct place {
    bool waits;
    unsigned line;
    int64_t ticket;
    int came;   /* the order of coming; of a new ticket too: it goes behind its equals */
    int behind; /* its place among twins */
};
static struct waiter waiters[WAITERS];
static struct place model[WAITERS];
static int64_t look_at[LINES]; /* INT64_MAX: never */

static bool stands_before(const struct place *one, const struct place *other)
{
    int64_t x = one->ticket ? one->ticket : INT64_MAX, y = other->ticket ? other->ticket : INT64_MAX;

    if (x != y)
        return x < y;
    return one->came != other->came ? one->came < other->came : one->behind < other->behind;
}

/* The model's next one in line after `after` (NULL: its first). */
static const struct place *next_in(unsigned line, const struct place *after)
{
    const struct place *best = NULL;

    for (int i = 0; i < WAITERS; i++) {
        const struct place *p = &model[i];
        if (p->waits && p->line == line && p != after && (!after || stands_before(after, p)) && (!best || stands_before(p, best)))
            best = p;
    }
    return best;
}

static void name_line(unsigned line, char *out, size_t cap)
{
    snprintf(out, cap, "line %u", line);
}

static void compare(const struct dice *dice, int step)
{
    size_t count = 0;
    int64_t next = INT64_MAX;
    char name[16];

    for (unsigned line = 0; line < LINES; line++) {
        const struct place *expected = next_in(line, NULL);
        const struct waiter *last = NULL;
        struct wait_line *there;

        name_line(line, name, sizeof(name));
        there = line_of(name);
        DICE_ASSERT(dice, step, (there != NULL) == (expected != NULL));
        if (!there)
            continue;
        DICE_ASSERT(dice, step, wait_line_look_us(there) == look_at[line]);
        if (look_at[line] < next)
            next = look_at[line];
        for (const struct waiter *w = wait_line_first(there); w; last = w, w = w->later, count++) {
            DICE_ASSERT(dice, step, expected && w - waiters == expected - model && w->earlier == last && w->line == there);
            expected = next_in(line, expected);
        }
        DICE_ASSERT(dice, step, expected == NULL);
    }
    DICE_ASSERT(dice, step, wait_queue_count(queue) == count);
    DICE_ASSERT(dice, step, wait_queue_next_us(queue) == next);
}

static void step_due(const struct dice *dice, int step, int64_t now_us)
{
    struct wait_line *due = wait_queue_due(queue, now_us);
    int64_t first = INT64_MAX;
    unsigned line;

    for (unsigned i = 0; i < LINES; i++)
        if (look_at[i] < first)
            first = look_at[i];
    DICE_ASSERT(dice, step, (due != NULL) == (first <= now_us));
    if (!due)
        return;
    line = model[wait_line_first(due) - waiters].line;
    DICE_ASSERT(dice, step, look_at[line] == first);
    look_at[line] = INT64_MAX;
}

/* Waiters are twins in pairs. */
static struct place *twin_of(unsigned i)
{
    struct place *twin = &model[i ^ 1];

    return twin->waits && model[i].line == twin->line ? twin : NULL;
}

static void step_add(struct dice *dice, int step, unsigned i)
{
    struct place *p = &model[i];
    const struct place *twin;
    char name[16];

    *p = (struct place){true, dice_roll(dice, LINES), dice_roll(dice, 60), step, 0};
    name_line(p->line, name, sizeof(name));
    snprintf(waiters[i].id.text, sizeof(waiters[i].id.text), "%08u-0000-4000-8000-000000000000", i / 2);
    add(&waiters[i], name, p->ticket);
    twin = twin_of(i);
    if (twin) {
        p->ticket = twin->ticket;
        p->came = twin->came;
        p->behind = twin->behind + 1;
    }
}

static void step_move(struct dice *dice, int step, unsigned i)
{
    struct place *p = &model[i], *twin = twin_of(i);

    if (p->ticket != 0 && dice_roll(dice, 2)) {
        wait_queue_set_ticket(&waiters[i], p->ticket); /* the one it has: no move */
        return;
    }
    p->came = step;
    p->ticket = 60 + step; /* a new one: never one that is there */
    if (twin) {
        twin->came = step;
        twin->ticket = p->ticket;
    }
    wait_queue_set_ticket(&waiters[i], p->ticket);
}

static void step_on(struct dice *dice, int step, unsigned i)
{
    struct place *p = &model[i];
    unsigned what = dice_roll(dice, 5);

    if (!p->waits) {
        if (what < 2)
            step_add(dice, step, i);
        else
            wait_queue_remove(queue, &waiters[i]); /* nothing */
    } else if (what < 2) {
        wait_queue_remove(queue, &waiters[i]);
        p->waits = false;
        if (!next_in(p->line, NULL))
            look_at[p->line] = INT64_MAX;
    } else if (what == 2) {
        step_move(dice, step, i);
    } else {
        look_at[p->line] = (int64_t)step * 10 + (int64_t)dice_roll(dice, 4000) * 10 + p->line; /* no two alike */
        ck_assert_int_eq(wait_line_look_at(queue, waiters[i].line, look_at[p->line]), 0);
    }
}

START_TEST(random_steps_agree_with_an_array)
{
    struct dice dice;

    dice_init(&dice);
    memset(model, 0, sizeof(model));
    memset(waiters, 0, sizeof(waiters));
    for (unsigned i = 0; i < LINES; i++)
        look_at[i] = INT64_MAX;
    for (int step = 0; step < STEPS; step++) {
        if (dice_roll(&dice, 10) == 0)
            step_due(&dice, step, step * 10);
        else
            step_on(&dice, step, dice_roll(&dice, dice_roll(&dice, 50) == 0 ? WAITERS : 30));
        if (step % 100 == 0)
            compare(&dice, step);
    }
    compare(&dice, STEPS);
}
END_TEST

START_TEST(P8_free_takes_null_leaves_the_waiters_and_leaks_nothing)
{
    struct wait_queue *other = wait_queue_new();
    struct waiter *waiter = calloc(1, sizeof(*waiter));

    ck_assert(other && waiter);
    waiter->id = id_of('a');
    ck_assert_int_eq(wait_queue_add(other, waiter, "L", 1), 0);
    ck_assert_int_eq(wait_line_look_at(other, wait_queue_line(other, "L", 1), 50), 0);
    wait_queue_free(other);
    free(waiter); /* its owner's; with it goes the last trace of what the queue kept in it */
    wait_queue_free(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("wait_queue");
    TCase *tcase = tcase_create("waiters");

    tcase_add_checked_fixture(tcase, start, stop);
    tcase_add_test(tcase, P6_tickets_order_a_line_and_those_without_stand_last);
    tcase_add_test(tcase, P6_a_ticket_moves_its_waiter_to_its_place);
    tcase_add_test(tcase, P9_a_crowd_gets_its_tickets_without_a_walk_through_the_line);
    tcase_add_test(tcase, P6_equal_tickets_stand_in_the_order_they_came);
    tcase_add_test(tcase, P8_the_last_waiter_takes_the_line_with_it);
    tcase_add_test(tcase, a_waiter_is_found_by_its_lease_id);
    tcase_add_test(tcase, P7_twins_stand_side_by_side_and_move_together);
    tcase_add_test(tcase, C13_lines_fall_due_one_by_one_at_their_time);
    tcase_add_test(tcase, each_is_called_once_for_each_waiter);
    tcase_add_test(tcase, C42_a_name_that_begins_with_another_is_another_line);
    tcase_add_test(tcase, random_steps_agree_with_an_array);
    tcase_add_test(tcase, P8_free_takes_null_leaves_the_waiters_and_leaks_nothing);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
