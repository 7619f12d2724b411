/* When an alarm rings. Times are looked at from below only: a busy machine may be late, but never early. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/alarm.h"

#include <stdbool.h>
#include <stddef.h>

#include <event2/event.h>

#include "daemon/clock.h"
#include "tests/lib/check_main.h"

#define EARLY_US 1500 /* the loop counts in milliseconds, on another clock */

static struct event_base *base;
static struct alarm alarm_;
static int rings, closes_at;
static int64_t rang_us, began_us;

static int64_t now_us(void)
{
    return clock_now_us(&clock_boottime);
}

static void ring(void *arg)
{
    ck_assert_ptr_eq(arg, &rings);
    rang_us = now_us();
    if (++rings == closes_at)
        alarm_close(&alarm_);
}

static void start(void)
{
    rings = closes_at = 0;
    base = event_base_new();
    ck_assert_ptr_nonnull(base);
    ck_assert_int_eq(alarm_open(&alarm_, base, ring, &rings), 0);
    began_us = now_us();
}

static void stop(void)
{
    alarm_close(&alarm_);
    alarm_close(&alarm_);
    event_base_free(base);
}

static void run_until(int wanted)
{
    while (rings < wanted)
        ck_assert_int_eq(event_base_loop(base, EVLOOP_ONCE), 0);
}

static void rang_after(int64_t wait_us)
{
    ck_assert_int_ge(rang_us - began_us, wait_us - EARLY_US);
}

START_TEST(one_that_is_not_set_keeps_no_loop_alive)
{
    ck_assert_int_eq(event_base_loop(base, 0), 1); /* nothing to wait for */
    ck_assert_int_eq(rings, 0);
}
END_TEST

START_TEST(it_rings_once_and_not_before_its_time)
{
    alarm_in(&alarm_, 20000);
    run_until(1);
    rang_after(20000);
    ck_assert_int_eq(event_base_loop(base, 0), 1);
    ck_assert_int_eq(rings, 1);
}
END_TEST

START_TEST(a_moment_that_has_passed_rings_in_the_next_turn)
{
    alarm_at(&alarm_, began_us - 1000000);
    ck_assert_int_eq(rings, 0);
    run_until(1);
}
END_TEST

START_TEST(what_is_set_anew_takes_the_place_of_what_was)
{
    alarm_in(&alarm_, 1000);
    alarm_in(&alarm_, 30000);
    run_until(1);
    rang_after(30000);
    ck_assert_int_eq(event_base_loop(base, 0), 1);
}
END_TEST

START_TEST(no_later_leaves_an_earlier_one_alone)
{
    alarm_no_later(&alarm_, began_us + 30000);
    alarm_no_later(&alarm_, began_us + INT64_C(3600000000));
    run_until(1); /* an hour would be over the test's time */
    rang_after(30000);
    alarm_no_later(&alarm_, began_us + 60000); /* and nothing is left of what rang */
    run_until(2);
    rang_after(60000);
}
END_TEST

START_TEST(no_later_comes_before_a_later_one)
{
    alarm_no_later(&alarm_, began_us + INT64_C(3600000000));
    alarm_no_later(&alarm_, began_us + 10000);
    run_until(1);
    rang_after(10000);
}
END_TEST

START_TEST(it_rings_again_and_again_until_it_is_closed_by_whoever_it_rings_for)
{
    closes_at = 3;
    alarm_every(&alarm_, 10000);
    run_until(1);
    rang_after(10000);
    run_until(3);
    ck_assert_int_eq(event_base_loop(base, 0), 1);
    ck_assert_int_eq(rings, 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("alarm");
    TCase *tcase = tcase_create("alarm");

    tcase_add_checked_fixture(tcase, start, stop);
    tcase_add_test(tcase, one_that_is_not_set_keeps_no_loop_alive);
    tcase_add_test(tcase, it_rings_once_and_not_before_its_time);
    tcase_add_test(tcase, a_moment_that_has_passed_rings_in_the_next_turn);
    tcase_add_test(tcase, what_is_set_anew_takes_the_place_of_what_was);
    tcase_add_test(tcase, no_later_leaves_an_earlier_one_alone);
    tcase_add_test(tcase, no_later_comes_before_a_later_one);
    tcase_add_test(tcase, it_rings_again_and_again_until_it_is_closed_by_whoever_it_rings_for);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
