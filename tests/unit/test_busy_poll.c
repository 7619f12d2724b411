/* The loop that stays awake for a moment: it turns without sleeping, lets everything else go on, and sleeps again when its time is over or what it
 * waited for has come. The clock is virtual, so that a busy machine ends no moment early. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

#include <event2/event.h>

#include "daemon/busy_poll.h"

#define MOST_US 200

static struct event_base *base;
static struct busy_poll *poll;
static int64_t now;

static int64_t virtual_now_us(void *arg)
{
    (void)arg;
    return now;
}
static const struct clock virtual_clock = {virtual_now_us, NULL};

static void start(void)
{
    now = 1000;
    base = event_base_new();
    ck_assert_ptr_nonnull(base);
    poll = busy_poll_new(base, &virtual_clock, MOST_US);
    ck_assert_ptr_nonnull(poll);
}

static void stop(void)
{
    busy_poll_free(poll);
    event_base_free(base);
}

static void turn(void)
{
    (void)event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
}

/* Nothing is left that the loop would wait or wake for: it can sleep. */
static bool may_sleep(void)
{
    return event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK) == 1;
}

/* Begins one that must not be left out. */
static uint64_t begin(void)
{
    uint64_t number = busy_poll_begin(poll);

    ck_assert_uint_gt(number, 0);
    return number;
}

/* A microsecond before its time is over it is awake, then it sleeps; nothing that it was begun for has come. */
static void expect_end(uint64_t begun)
{
    turn();
    ck_assert(!may_sleep());
    now += 1;
    turn();
    ck_assert(may_sleep());
    ck_assert_uint_eq(busy_poll_counts(poll).begun, begun);
    ck_assert_uint_eq(busy_poll_counts(poll).vain, begun);
}

START_TEST(stays_awake_until_its_time_is_over)
{
    (void)begin();
    for (int i = 0; i < 100; i++)
        ck_assert(!may_sleep());
    ck_assert_uint_eq(busy_poll_counts(poll).vain, 0);
    now += MOST_US - 1;
    expect_end(1);
}
END_TEST

START_TEST(sleeps_when_what_it_waits_for_has_come)
{
    uint64_t number = begin();

    turn();
    busy_poll_end(poll, number);
    ck_assert(may_sleep());
    busy_poll_end(poll, number);
    now += 2 * MOST_US;
    ck_assert(may_sleep());
    ck_assert_uint_eq(busy_poll_counts(poll).begun, 1);
    ck_assert_uint_eq(busy_poll_counts(poll).vain, 0);
}
END_TEST

START_TEST(what_comes_too_late_was_waited_for_in_vain)
{
    uint64_t number = begin();

    now += MOST_US; /* somebody else had the core */
    busy_poll_end(poll, number);
    ck_assert(may_sleep());
    ck_assert_uint_eq(busy_poll_counts(poll).vain, 1);
    ck_assert_uint_eq(busy_poll_begin(poll), 0);
    ck_assert(may_sleep());
    ck_assert_uint_eq(busy_poll_counts(poll).begun, 1);
}
END_TEST

START_TEST(begun_again_it_runs_from_then_on)
{
    uint64_t number = begin();

    now += MOST_US - 1;
    ck_assert_uint_eq(begin(), number);
    now += MOST_US - 1;
    expect_end(2);
}
END_TEST

START_TEST(sleeps_when_all_have_come_and_counts_those_that_have_not)
{
    uint64_t number = begin();

    ck_assert_uint_eq(begin(), number);
    busy_poll_end(poll, number);
    ck_assert(!may_sleep());
    busy_poll_end(poll, number);
    ck_assert(may_sleep());
    ck_assert_uint_eq(busy_poll_counts(poll).vain, 0);
    number = begin();
    (void)begin();
    (void)begin();
    busy_poll_end(poll, number);
    now += MOST_US;
    turn();
    ck_assert(may_sleep());
    ck_assert_uint_eq(busy_poll_counts(poll).begun, 5);
    ck_assert_uint_eq(busy_poll_counts(poll).vain, 2);
}
END_TEST

START_TEST(an_answer_that_comes_too_late_does_not_end_the_next_time)
{
    uint64_t number = begin();

    now += MOST_US;
    turn();
    for (unsigned i = 0; i < BUSY_POLL_LEFT_OUT_FIRST; i++)
        ck_assert_uint_eq(busy_poll_begin(poll), 0);
    ck_assert_uint_ne(begin(), number);
    busy_poll_end(poll, number);
    busy_poll_end(poll, 0);
    ck_assert(!may_sleep());
    ck_assert_uint_eq(busy_poll_counts(poll).vain, 1);
}
END_TEST

static void on_bytes(evutil_socket_t fd, short events, void *arg)
{
    char byte;

    (void)events;
    ck_assert_int_eq(read(fd, &byte, 1), 1);
    (*(int *)arg)++;
}

START_TEST(P9_descriptors_and_timers_have_their_turn_meanwhile)
{
    int ends[2], came = 0;
    struct event *bytes;

    ck_assert_int_eq(pipe(ends), 0);
    bytes = event_new(base, ends[0], EV_READ | EV_PERSIST, on_bytes, &came);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_int_eq(event_add(bytes, NULL), 0);
    (void)begin();
    for (int i = 1; i <= 10; i++) {
        ck_assert_int_eq(write(ends[1], "x", 1), 1);
        turn();
        ck_assert_int_eq(came, i);
    }
    ck_assert_uint_eq(busy_poll_counts(poll).vain, 0);
    event_free(bytes);
    close(ends[0]);
    close(ends[1]);
}
END_TEST

START_TEST(with_no_time_it_never_stays_awake)
{
    struct busy_poll *never = busy_poll_new(base, &virtual_clock, 0);

    ck_assert_ptr_nonnull(never);
    ck_assert_uint_eq(busy_poll_begin(never), 0);
    ck_assert(may_sleep());
    busy_poll_end(never, 0);
    ck_assert_uint_eq(busy_poll_counts(never).begun, 0);
    ck_assert_int_eq(busy_poll_most_us(never), 0);
    busy_poll_free(never);
}
END_TEST

/* How many in a row are left out before the next one begins, whose number is in `number`. */
static unsigned left_out(uint64_t *number)
{
    unsigned n = 0;

    while ((*number = busy_poll_begin(poll)) == 0) {
        ck_assert(may_sleep());
        n++;
    }
    return n;
}

START_TEST(what_was_in_vain_is_left_out_more_and_more_often)
{
    unsigned expected = 0;
    uint64_t number;

    for (int i = 0; i < 7; i++) {
        ck_assert_uint_eq(left_out(&number), expected);
        now += MOST_US;
        turn();
        expected = 2 * expected + BUSY_POLL_LEFT_OUT_FIRST;
        if (expected > BUSY_POLL_LEFT_OUT_MOST)
            expected = BUSY_POLL_LEFT_OUT_MOST;
    }
    ck_assert_uint_eq(expected, BUSY_POLL_LEFT_OUT_MOST);
    for (; expected > 0; expected /= 2) { /* what it waits for comes again */
        ck_assert_uint_eq(left_out(&number), expected);
        busy_poll_end(poll, number);
    }
    ck_assert_uint_eq(left_out(&number), 0);
    busy_poll_end(poll, number);
    ck_assert_uint_eq(left_out(&number), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("busy_poll");
    TCase *tcase = tcase_create("moments");

    tcase_add_checked_fixture(tcase, start, stop);
    tcase_add_test(tcase, stays_awake_until_its_time_is_over);
    tcase_add_test(tcase, sleeps_when_what_it_waits_for_has_come);
    tcase_add_test(tcase, what_comes_too_late_was_waited_for_in_vain);
    tcase_add_test(tcase, begun_again_it_runs_from_then_on);
    tcase_add_test(tcase, sleeps_when_all_have_come_and_counts_those_that_have_not);
    tcase_add_test(tcase, an_answer_that_comes_too_late_does_not_end_the_next_time);
    tcase_add_test(tcase, P9_descriptors_and_timers_have_their_turn_meanwhile);
    tcase_add_test(tcase, what_was_in_vain_is_left_out_more_and_more_often);
    tcase_add_test(tcase, with_no_time_it_never_stays_awake);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
