/* When memory is given back after a burst, on virtual time; and that it is, by this process' own pages. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ebb.h"

#define SECOND_US INT64_C(1000000)

static struct ebb ebb;
static int64_t now;

static void start(void)
{
    memset(&ebb, 0, sizeof(ebb));
    now = 1000 * SECOND_US;
}

/* A look each second. How often memory was given back. */
static int looks(int count, size_t things)
{
    int given = 0;

    for (int i = 0; i < count; i++) {
        now += SECOND_US;
        given += ebb_look(&ebb, now, things, things);
    }
    return given;
}

START_TEST(a_burst_that_has_ebbed_is_given_back_once)
{
    ck_assert_int_eq(looks(100, 20), 0);
    ck_assert_int_eq(looks(10, 20020), 0);
    ck_assert_int_eq(looks(5, 20), 0);
    ck_assert_int_eq(looks(1, 20), 1);
    ck_assert_int_eq(looks(10000, 20), 0);
    ck_assert_int_eq(looks(10, 20020), 0);
    ck_assert_int_eq(looks(6, 20), 1);
}
END_TEST

START_TEST(a_burst_that_goes_on_is_left_alone)
{
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(looks(4, 20000), 0);
        ck_assert_int_eq(looks(4, 20), 0);
    }
    ck_assert_int_eq(looks(2, 20), 1);
}
END_TEST

START_TEST(bursts_one_after_the_other_cost_a_pause_a_minute_at_most)
{
    int given = 0;

    for (int i = 0; i < 60; i++) {
        given += looks(4, 20000);
        given += looks(6, 20);
    }
    ck_assert_int_ge(given, 9);
    ck_assert_int_le(given, 10);
}
END_TEST

START_TEST(a_burst_between_two_looks_is_seen)
{
    ck_assert_int_eq(looks(10, 20), 0);
    ck_assert(!ebb_look(&ebb, now += SECOND_US, 20, 3020));
    ck_assert_int_eq(looks(4, 20), 0);
    ck_assert_int_eq(looks(1000, 20), 1);
}
END_TEST

START_TEST(what_is_little_is_left_alone)
{
    ck_assert_int_eq(looks(10, 1019), 0);
    ck_assert_int_eq(looks(1000, 20), 0);
    ck_assert_int_eq(looks(1, 1020), 0);
    ck_assert_int_eq(looks(6, 20), 1);
    ck_assert_int_eq(looks(10, 100000), 0);
    ck_assert_int_eq(looks(1000, 67000), 0); /* many, and a small part of what there is */
}
END_TEST

/* Parked waiters that are answered and leave their connections behind, and those that leave bit by bit. */
START_TEST(half_is_enough_and_the_rest_is_given_back_later)
{
    ck_assert_int_eq(looks(10, 20001), 0);
    ck_assert_int_eq(looks(6, 10002), 1);
    ck_assert_int_eq(looks(40, 5000), 0);
    ck_assert_int_eq(looks(30, 5000), 1);
    ck_assert_int_eq(looks(100, 1), 1);
}
END_TEST

/* ---- the memory itself ---- */

#if defined(HAVE_MALLOC_TRIM) && !defined(__SANITIZE_ADDRESS__)
static size_t resident(void)
{
    unsigned long all = 0, here = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(fscanf(f, "%lu %lu", &all, &here), 2);
    (void)fclose(f);
    return (size_t)here * (size_t)sysconf(_SC_PAGESIZE);
}

#define CROWD 10000
#define LARGE 2500

START_TEST(pages_among_what_stays_are_given_back)
{
    void **crowd, *stays[CROWD / 100];
    size_t peak;

    if (getenv("LD_PRELOAD")) /* valgrind's, say: another malloc stands in the place of the one that this is about */
        return;
    crowd = calloc(CROWD, sizeof(*crowd));
    ck_assert_ptr_nonnull(crowd);
    for (size_t i = 0; i < CROWD; i++) {
        crowd[i] = malloc(LARGE);
        ck_assert_ptr_nonnull(crowd[i]);
        memset(crowd[i], 1, LARGE);
        if (i % 100 == 99)
            stays[i / 100] = malloc(40);
    }
    peak = resident();
    for (size_t i = 0; i < CROWD; i++)
        free(crowd[i]);
    ck_assert_uint_gt(resident() + CROWD * LARGE / 10, peak); /* by itself it does not */
    ck_assert(ebb_give_back());
    ck_assert_uint_lt(resident() + CROWD * LARGE * 8 / 10, peak);
    for (size_t i = 0; i < CROWD / 100; i++)
        free(stays[i]);
    free(crowd);
}
END_TEST
#endif

int main(void)
{
    Suite *suite = suite_create("ebb");
    TCase *tc = tcase_create("ebb");

    tcase_add_checked_fixture(tc, start, NULL);
    tcase_add_test(tc, a_burst_that_has_ebbed_is_given_back_once);
    tcase_add_test(tc, a_burst_that_goes_on_is_left_alone);
    tcase_add_test(tc, bursts_one_after_the_other_cost_a_pause_a_minute_at_most);
    tcase_add_test(tc, a_burst_between_two_looks_is_seen);
    tcase_add_test(tc, what_is_little_is_left_alone);
    tcase_add_test(tc, half_is_enough_and_the_rest_is_given_back_later);
#if defined(HAVE_MALLOC_TRIM) && !defined(__SANITIZE_ADDRESS__)
    tcase_add_test(tc, pages_among_what_stays_are_given_back);
#endif
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
