/* What is in flight to Redis: how many calls there may be (P9), whatever Redis's pace is, and that a call whose time is over is taken back once. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <string.h>

#include "daemon/redis_flight.h"

enum { CALLS = 1000, TIMEOUT_US = 8000 * 1000, LATE_US = TIMEOUT_US / 8 };

static struct redis_flight flight;
static struct store_call calls[CALLS];
static size_t made;
static int64_t now;

static void start(void)
{
    redis_flight_init(&flight, TIMEOUT_US);
    memset(calls, 0, sizeof(calls));
    made = 0;
    now = 1000000;
}

static void end(void)
{
    redis_flight_close(&flight);
}

/* A run of new calls departs now; their deadline is `due_us` from now. */
static struct redis_run *send_due(size_t count, int64_t due_us)
{
    struct redis_run *run = redis_flight_take(&flight);

    ck_assert_ptr_nonnull(run);
    ck_assert_uint_le(made + count, CALLS);
    run->count = count;
    for (size_t i = 0; i < count; i++) {
        run->of[i] = &calls[made++];
        run->of[i]->deadline_us = now + due_us;
        run->of[i]->next = run->of[i]; /* whatever it was chained to before */
    }
    redis_flight_depart(&flight, run);
    run->command.sent_us = now;
    return run;
}

static struct redis_run *send_run(size_t count)
{
    return send_due(count, TIMEOUT_US);
}

static void land(struct redis_run *run, bool answered)
{
    redis_flight_land(&flight, run, answered, now - run->command.sent_us);
    redis_flight_give(&flight, run);
}

/* How many more there is room for. */
static size_t room(void)
{
    size_t n = 0;

    while (redis_flight_has_room(&flight, n))
        n++;
    return n;
}

/* Until something was answered nothing is known of the way to Redis, and nothing is late. */
static void see_a_short_way(void)
{
    struct redis_run *run = send_run(1);

    now += 10;
    land(run, true);
    redis_flight_see_pace(&flight, now, false);
}

/* Halves the window: a run stays out too long, and is answered then. */
static void be_slow(void)
{
    struct redis_run *run;

    now++;
    run = send_run(1);
    now += TIMEOUT_US;
    redis_flight_see_pace(&flight, now, true);
    land(run, true);
}

START_TEST(P9_only_so_many_calls_are_in_flight)
{
    struct redis_run *a, *b;

    ck_assert_uint_eq(room(), REDIS_FLIGHT_MOST);
    a = send_run(REDIS_RUN_MAX);
    b = send_run(1);
    ck_assert_uint_eq(room(), REDIS_FLIGHT_MOST - REDIS_RUN_MAX - 1);
    ck_assert(!redis_flight_has_room(&flight, REDIS_FLIGHT_MOST - REDIS_RUN_MAX - 1));
    land(a, true);
    ck_assert_uint_eq(room(), REDIS_FLIGHT_MOST - 1);
    land(b, false);
    ck_assert_uint_eq(room(), REDIS_FLIGHT_MOST);
}
END_TEST

START_TEST(P9_a_late_answer_halves_the_window_once_for_all_that_were_in_flight_together)
{
    struct redis_run *a, *b, *c;

    see_a_short_way();
    a = send_run(1);
    now += LATE_US / 2;
    b = send_run(1);
    now += LATE_US / 2;
    redis_flight_see_pace(&flight, now, false);
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_MOST); /* not later than it may be */
    now++;
    redis_flight_see_pace(&flight, now, false);
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_MOST / 2);
    now++;
    c = send_run(1);
    now += LATE_US;
    redis_flight_see_pace(&flight, now, false);
    land(a, true);
    redis_flight_see_pace(&flight, now, false);
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_MOST / 2); /* b was in flight when a was late */
    land(b, true);
    now++;
    redis_flight_see_pace(&flight, now, false);
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_MOST / 4); /* c was sent after that */
    land(c, true);
}
END_TEST

START_TEST(P9_the_window_is_never_closed)
{
    see_a_short_way();
    for (int i = 0; i < 20; i++)
        be_slow();
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_LEAST);
    ck_assert_uint_eq(room(), REDIS_FLIGHT_LEAST);
}
END_TEST

START_TEST(a_long_way_to_redis_is_not_a_slow_redis)
{
    struct redis_run *run = send_run(1);

    now += 2 * LATE_US;
    land(run, true); /* the shortest way there is seen to be two such parts long */
    redis_flight_see_pace(&flight, now, false);
    run = send_run(1);
    now += 4 * LATE_US;
    redis_flight_see_pace(&flight, now, false);
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_MOST);
    now++;
    redis_flight_see_pace(&flight, now, false);
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_MOST / 2);
    land(run, false);
}
END_TEST

START_TEST(a_lost_run_tells_nothing_of_the_way_to_redis)
{
    struct redis_run *run = send_run(3);

    now += 1;
    land(run, false);
    ck_assert_uint_eq(flight.landed, 0);
    ck_assert_int_eq(flight.least_us, TIMEOUT_US);
}
END_TEST

START_TEST(answers_make_room_while_others_wait)
{
    struct redis_run *a, *b;

    see_a_short_way();
    for (int i = 0; i < 20; i++)
        be_slow();
    redis_flight_see_pace(&flight, now, false); /* what was answered before is of no account */
    a = send_run(12);
    b = send_run(4);
    land(a, true);
    redis_flight_see_pace(&flight, now, false);
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_LEAST); /* nobody waits */
    land(b, true);
    a = send_run(9);
    b = send_run(7);
    redis_flight_see_pace(&flight, now, true);
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_LEAST + 1); /* of four: an eighth, and not none */
    land(a, true);
    redis_flight_see_pace(&flight, now, true);
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_LEAST + 1 + 2);
    land(b, true);
    redis_flight_see_pace(&flight, now, true);
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_LEAST + 1 + 2 + 7); /* nothing is left there to do: as many again */
    redis_flight_see_pace(&flight, now, true);
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_LEAST + 1 + 2 + 7); /* each answer counts once */
}
END_TEST

START_TEST(P9_the_window_is_never_wider_than_it_was_at_first)
{
    see_a_short_way();
    be_slow();
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_MOST / 2);
    for (int i = 0; i < 10; i++) {
        land(send_run(REDIS_RUN_MAX), true);
        redis_flight_see_pace(&flight, now, true);
    }
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_MOST);
}
END_TEST

START_TEST(a_new_connection_begins_with_a_window_of_its_own)
{
    struct redis_run *run;

    see_a_short_way();
    be_slow();
    ck_assert_uint_eq(room(), REDIS_FLIGHT_MOST / 2);
    redis_flight_forget_pace(&flight);
    ck_assert_uint_eq(room(), REDIS_FLIGHT_MOST);
    run = send_run(1);
    now += 2 * LATE_US; /* late, if the way there is as short as it was on the old one */
    redis_flight_see_pace(&flight, now, false);
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_MOST);
    land(run, true);
}
END_TEST

START_TEST(P9_a_call_whose_time_is_over_is_taken_back_once_and_its_run_stays)
{
    struct redis_run *a = send_due(3, 100), *b = send_due(2, 300);
    struct store_call *due;
    int64_t next_us;

    a->of[1]->deadline_us = now + 200;
    ck_assert_ptr_null(redis_flight_take_due(&flight, now + 99, &next_us));
    ck_assert_int_eq(next_us, now + 100);
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_MOST);

    due = redis_flight_take_due(&flight, now + 100, &next_us);
    ck_assert_ptr_eq(due, &calls[0]);
    ck_assert_ptr_eq(due->next, &calls[2]);
    ck_assert_ptr_null(due->next->next);
    ck_assert_int_eq(next_us, now + 200);
    ck_assert_ptr_null(a->of[0]);
    ck_assert_ptr_eq(a->of[1], &calls[1]);
    ck_assert_ptr_null(a->of[2]);
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_MOST / 2); /* however short its time was */
    ck_assert_uint_eq(flight.in_flight, 5);

    due = redis_flight_take_due(&flight, now + 300, &next_us);
    ck_assert_ptr_eq(due, &calls[1]);
    ck_assert_ptr_eq(due->next, &calls[3]);
    ck_assert_ptr_eq(due->next->next, &calls[4]);
    ck_assert_ptr_null(due->next->next->next);
    ck_assert_int_eq(next_us, INT64_MAX);
    ck_assert_uint_eq(flight.most, REDIS_FLIGHT_MOST / 2); /* once for all that were in flight together */
    ck_assert_ptr_null(redis_flight_take_due(&flight, INT64_MAX, &next_us));

    land(a, true); /* its place is free when its answer comes */
    ck_assert_uint_eq(flight.in_flight, 2);
    land(b, true);
    ck_assert_uint_eq(flight.in_flight, 0);
}
END_TEST

START_TEST(runs_are_kept_for_the_next)
{
    struct redis_run *run = send_run(1);

    land(run, true);
    ck_assert_ptr_eq(redis_flight_take(&flight), run);
    redis_flight_give(&flight, run);
    for (int i = 0; i < 300; i++) /* more than are kept: the rest is freed, which the leak check sees */
        send_run(1);
    while (flight.sent)
        land(flight.sent, true);
    ck_assert_uint_lt(flight.spare_count, 300);
    send_run(1); /* and one that is still out at the end */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_flight");
    TCase *tcase = tcase_create("window");

    tcase_add_checked_fixture(tcase, start, end);
    tcase_add_test(tcase, P9_only_so_many_calls_are_in_flight);
    tcase_add_test(tcase, P9_a_late_answer_halves_the_window_once_for_all_that_were_in_flight_together);
    tcase_add_test(tcase, P9_the_window_is_never_closed);
    tcase_add_test(tcase, a_long_way_to_redis_is_not_a_slow_redis);
    tcase_add_test(tcase, a_lost_run_tells_nothing_of_the_way_to_redis);
    tcase_add_test(tcase, answers_make_room_while_others_wait);
    tcase_add_test(tcase, P9_the_window_is_never_wider_than_it_was_at_first);
    tcase_add_test(tcase, a_new_connection_begins_with_a_window_of_its_own);
    tcase_add_test(tcase, P9_a_call_whose_time_is_over_is_taken_back_once_and_its_run_stays);
    tcase_add_test(tcase, runs_are_kept_for_the_next);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
