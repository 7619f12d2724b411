/* Leases with terms, on a real Redis: the delay after a lease that was not released (P10), and the bound on how long a lease is held (P11). Through several
 * nodes, waiters, breaks, losses of the data; and that a lease without terms pays nothing for any of it. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/store/rig.h"

#define DELAY_MS 1800
#define SHORT_MS 600 /* of a lease whose end a test waits for; what has to be asked before that has as long on a busy machine */

static struct node *one, *two;

static void start(void)
{
    rig_start();
    one = rig_ready_node();
    two = rig_ready_node();
}

static struct asked *with_terms(struct node *node, const char *name, char id, int64_t ttl_ms, int64_t delay_ms, int64_t most_ms)
{
    struct asked *asked = ask(node, STORE_ACQUIRE, name, id);

    asked->call.ttl_ms = ttl_ms;
    asked->call.delay_ms = delay_ms;
    asked->call.most_ms = most_ms;
    return EXPECT(submit(asked), STORE_DONE);
}

static bool is_free(const char *name)
{
    return redis_server_int(&redis, "EXISTS %s", key("lock", name)) == 0;
}

/* Waits until the lease is over and its delay is not. */
static void wait_for_the_delay(const char *name, int64_t delay_ms)
{
    RUN_UNTIL(lock_pttl(name) < delay_ms, 20000);
    ck_assert_int_gt(lock_pttl(name), 0);
}

/* Asks until it is granted; returns how many times it was told to wait for the delay. */
static int acquire_until_granted(struct node *node, const char *name, char id, struct asked **ret)
{
    int delayed = 0;

    for (int64_t end = now_us() + 10 * 1000000;; turn()) {
        struct asked *asked = acquire(node, name, id);
        if (asked->call.result == STORE_DONE) {
            *ret = asked;
            return delayed;
        }
        ck_assert_int_eq(asked->call.result, STORE_DELAYED);
        ck_assert_int_lt(now_us(), end);
        delayed++;
        forget_asked();
    }
}

/* ---- the delay ---- */

START_TEST(P10_after_an_expiry_nobody_is_granted_for_the_delay)
{
    struct asked *a = with_terms(one, "L", 'a', SHORT_MS, DELAY_MS, 0), *b, *c;
    int64_t sent_us = a->call.sent_us, token = a->call.ret_token;

    ck_assert_int_eq(a->call.ret_ttl_ms, SHORT_MS);
    b = EXPECT(acquire(two, "L", 'b'), STORE_HELD);
    ck_assert_int_le(b->call.holder.ttl_ms, SHORT_MS); /* what is left of the lease, not of the key */
    ck_assert_int_eq(b->call.holder.delay_ms, DELAY_MS);
    wait_for_the_delay("L", DELAY_MS);
    b = EXPECT(acquire(two, "L", 'b'), STORE_DELAYED);
    ck_assert_int_eq(b->call.holder.token, 0);
    ck_assert_int_gt(b->call.holder.delay_ms, 0);
    ck_assert_int_le(b->call.holder.delay_ms, DELAY_MS);
    EXPECT(acquire(one, "L", 'a'), STORE_DELAYED); /* the old holder neither */
    ck_assert_int_gt(acquire_until_granted(two, "L", 'c', &c), 0);
    ck_assert_int_ge(now_us(), sent_us + (SHORT_MS + DELAY_MS) * 1000);
    ck_assert_int_gt(c->call.ret_token, token);
}
END_TEST

START_TEST(P10_in_the_delay_the_lease_is_over_for_its_holder_too)
{
    struct asked *a = with_terms(one, "L", 'a', SHORT_MS, 20000, 0), *seen;

    wait_for_the_delay("L", 20000);
    for (int i = 0; i < 2; i++) {
        EXPECT(renew(i ? two : one, "L", 'a', TTL_MS), STORE_LOST);
        EXPECT(release(i ? two : one, "L", 'a'), STORE_LOST);
        EXPECT(check(i ? two : one, "L", a->call.ret_token), STORE_LOST);
        EXPECT(break_lock(i ? two : one, "L"), STORE_LOST);
    }
    seen = EXPECT(inspect(two, "L", '\0'), STORE_DONE);
    ck_assert_int_eq(seen->call.holder.token, 0);
    ck_assert_int_gt(seen->call.holder.delay_ms, 10000);
    ck_assert_int_eq(EXPECT(list(two, ""), STORE_DONE)->listed_count, 0);
    EXPECT(acquire(two, "L", 'b'), STORE_DELAYED); /* none of these has ended it */
}
END_TEST

START_TEST(P10_a_release_leaves_no_delay)
{
    with_terms(one, "L", 'a', TTL_MS, 20000, 0);
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    ck_assert(is_free("L"));
    with_terms(one, "L", 'a', TTL_MS, 20000, 60000);
    EXPECT(queue_up(two, "L", 'b'), STORE_HELD);
    EXPECT(release(two, "L", 'a'), STORE_DONE); /* by way of another node, with a waiter */
    EXPECT(queue_up(two, "L", 'b'), STORE_DONE);
}
END_TEST

START_TEST(P10_a_release_in_one_run_with_others_is_no_exception)
{
    struct asked *calls[4];

    with_terms(one, "L0", 'a', SHORT_MS, 20000, 0);
    with_terms(one, "L1", 'a', TTL_MS, 20000, 0);
    wait_for_the_delay("L0", 20000);
    for (int i = 0; i < 4; i++) { /* in one turn: they leave as one run of `plain` */
        char name[4] = {'L', (char)('0' + i), '\0'};
        calls[i] = submit(ask(one, i < 2 ? STORE_RELEASE : STORE_ACQUIRE, name, 'a'));
    }
    EXPECT(calls[0], STORE_LOST);
    EXPECT(calls[1], STORE_DONE);
    EXPECT(calls[2], STORE_DONE);
    EXPECT(calls[3], STORE_DONE);
    ck_assert_int_gt(lock_pttl("L0"), 10000);
    ck_assert(is_free("L1"));
}
END_TEST

START_TEST(P10_after_a_break_nobody_is_granted_for_the_delay)
{
    struct asked *a = with_terms(one, "L", 'a', TTL_MS, DELAY_MS, 0), *broken, *c;
    int64_t asked_us;

    EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    asked_us = now_us();
    broken = EXPECT(break_lock(two, "L"), STORE_DONE);
    ck_assert_int_eq(broken->call.holder.token, a->call.ret_token);
    ck_assert_int_eq(broken->call.holder.delay_ms, DELAY_MS);
    ck_assert_int_gt(broken->call.holder.ttl_ms, TTL_MS - 5000);
    ck_assert_int_le(lock_pttl("L"), DELAY_MS);
    ck_assert(node_took(one, 'b', 'a', "L"));
    ck_assert(node_took(one, 'w', 'b', "L")); /* so that it knows until when it has to wait now */
    EXPECT(queue_up(one, "L", 'b'), STORE_DELAYED);
    EXPECT(renew(one, "L", 'a', TTL_MS), STORE_LOST);
    EXPECT(release(one, "L", 'a'), STORE_LOST);
    EXPECT(break_lock(two, "L"), STORE_LOST);
    EXPECT(acquire(two, "L", 'a'), STORE_DELAYED);
    leave(one, "L", 'b');
    ck_assert_int_gt(acquire_until_granted(two, "L", 'c', &c), 0);
    ck_assert_int_ge(now_us(), asked_us + DELAY_MS * 1000);
    ck_assert_int_eq(c->call.holder.delay_ms, 0); /* the delay was that of the lease that ended */
}
END_TEST

START_TEST(P6_P10_waiters_keep_their_order_through_the_delay)
{
    struct asked *wait;

    with_terms(one, "L", 'a', SHORT_MS, DELAY_MS, 0);
    EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    wait_for_the_delay("L", DELAY_MS);
    wait = EXPECT(queue_up(two, "L", 'c'), STORE_DELAYED);
    ck_assert_int_gt(wait->call.ret_ticket, 0);
    ck_assert_int_eq(wait->call.ret_waiters, 2);
    EXPECT(queue_up(one, "L", 'b'), STORE_DELAYED);
    RUN_UNTIL(is_free("L"), 20000);
    EXPECT(acquire(two, "L", 'd'), STORE_TURN);
    EXPECT(queue_up(two, "L", 'c'), STORE_TURN);
    EXPECT(queue_up(one, "L", 'b'), STORE_DONE);
    EXPECT(release(one, "L", 'b'), STORE_DONE);
    EXPECT(queue_up(two, "L", 'c'), STORE_DONE);
}
END_TEST

START_TEST(P10_the_end_of_a_wait_tells_of_the_delay)
{
    struct asked *wait, *over;

    with_terms(one, "L", 'a', SHORT_MS, 20000, 0);
    wait = EXPECT(queue_up(two, "L", 'b'), STORE_HELD);
    over = EXPECT(cancel(two, wait), STORE_DONE);
    ck_assert_int_gt(over->call.holder.token, 0);
    ck_assert_int_eq(over->call.holder.delay_ms, 20000);
    wait_for_the_delay("L", 20000);
    wait = EXPECT(queue_up(two, "L", 'b'), STORE_DELAYED);
    over = EXPECT(cancel(two, wait), STORE_DONE);
    ck_assert_int_eq(over->call.holder.token, 0);
    ck_assert_int_gt(over->call.holder.delay_ms, 10000);
}
END_TEST

START_TEST(P8_P10_a_grant_that_is_undone_leaves_no_delay)
{
    struct asked *a = with_terms(one, "L", 'a', TTL_MS, 20000, 0);

    ck_assert(EXPECT(cancel(one, a), STORE_DONE)->call.ret_undone);
    ck_assert(is_free("L"));
    a = with_terms(one, "L", 'a', SHORT_MS, 20000, 0);
    wait_for_the_delay("L", 20000);
    ck_assert(EXPECT(cancel(one, a), STORE_DONE)->call.ret_undone); /* also when it was over before anybody learned of it */
    ck_assert(is_free("L"));
}
END_TEST

/* The answer to a call was lost, and when the call is run again its grant is over: nobody was told of it, and nobody has to wait for it. */
START_TEST(P8_P10_a_grant_that_was_over_before_its_call_was_run_again_leaves_no_delay)
{
    struct asked *a = with_terms(one, "L", 'a', SHORT_MS, 20000, 0), *again;

    wait_for_the_delay("L", 20000);
    EXPECT(acquire(one, "L", 'a'), STORE_DELAYED); /* another call with its lease id is no run of it */
    EXPECT(acquire(two, "L", 'b'), STORE_DELAYED);
    again = ask(one, STORE_ACQUIRE, "L", 'a');
    again->call.confirm = a->call.confirm;
    again->call.delay_ms = 20000;
    EXPECT(submit(again), STORE_DONE);
    ck_assert_int_gt(again->call.ret_token, a->call.ret_token);
    EXPECT(acquire(two, "L", 'b'), STORE_HELD);
}
END_TEST

START_TEST(P7_P10_a_repeated_acquire_and_a_renewal_keep_the_terms)
{
    struct asked *again;

    with_terms(one, "L", 'a', 5000, 20000, 60000);
    again = ask(two, STORE_ACQUIRE, "L", 'a');
    again->call.ttl_ms = 6000;
    EXPECT(submit(again), STORE_REPEATED);
    ck_assert_int_eq(again->call.ret_ttl_ms, 6000);
    ck_assert_int_eq(again->call.holder.delay_ms, 20000);
    ck_assert_int_gt(again->call.holder.most_ms, 50000);
    ck_assert_int_gt(lock_pttl("L"), 20000 + 1000);
    again = EXPECT(renew(one, "L", 'a', 200), STORE_DONE);
    ck_assert_int_eq(again->call.ret_ttl_ms, 200);
    ck_assert_int_eq(again->call.holder.delay_ms, 20000);
    wait_for_the_delay("L", 20000);
    EXPECT(acquire(two, "L", 'b'), STORE_DELAYED);
}
END_TEST

START_TEST(P10_a_rider_has_terms_of_its_own)
{
    struct asked *a = with_terms(one, "L", 'a', TTL_MS, 20000, 0), *wait, *rider, *gone;

    wait = ask(one, STORE_ACQUIRE, "L", 'b');
    wait->call.queue = true;
    EXPECT(submit(wait), STORE_HELD);
    rider = ask(one, STORE_ACQUIRE, "L", 'b');
    rider->call.queue = true;
    rider->call.confirm = wait->call.confirm;
    rider->call.ticket = wait->call.ret_ticket;
    rider->call.ttl_ms = SHORT_MS;
    rider->call.delay_ms = 10000;
    rider->call.most_ms = 2 * SHORT_MS;
    gone = ask(one, STORE_RELEASE, "L", 'a');
    gone->call.token = a->call.ret_token;
    gone->call.rider = &rider->call;
    submit(gone);
    RUN_UNTIL(gone->answers == 1 && rider->answers == 1, 20000);
    ck_assert_int_eq(rider->call.result, STORE_DONE);
    ck_assert_int_eq(rider->call.holder.delay_ms, 10000);
    ck_assert_int_eq(EXPECT(renew(two, "L", 'b', TTL_MS), STORE_DONE)->call.ret_ttl_ms <= 2 * SHORT_MS, 1);
    wait_for_the_delay("L", 10000);
    EXPECT(acquire(two, "L", 'c'), STORE_DELAYED);
}
END_TEST

/* ---- the bound ---- */

START_TEST(P11_renewals_do_not_push_a_lease_past_its_bound)
{
    struct asked *a = with_terms(one, "L", 'a', SHORT_MS, 0, 2400), *r;
    int64_t begun_us = now_us(), most_ms = 2400;
    int renewals = 0;

    ck_assert_int_eq(a->call.holder.most_ms, 2400);
    for (;;) { /* by turns through two nodes, longer and shorter */
        int64_t wanted_ms = renewals % 3 == 2 ? TTL_MS : SHORT_MS;
        int64_t pause_us = now_us() + 40000;
        r = renew(renewals % 2 ? two : one, "L", 'a', wanted_ms);
        if (r->call.result == STORE_LOST)
            break;
        while (now_us() < pause_us)
            turn();
        ck_assert_int_eq(r->call.result, STORE_DONE);
        ck_assert_int_le(r->call.holder.most_ms, most_ms);
        ck_assert_int_le(r->call.ret_ttl_ms, r->call.holder.most_ms);
        ck_assert_int_eq(r->call.ret_ttl_ms, wanted_ms < r->call.holder.most_ms ? wanted_ms : r->call.holder.most_ms);
        most_ms = r->call.holder.most_ms;
        renewals++;
        forget_asked();
    }
    ck_assert_int_gt(renewals, 5);
    ck_assert_int_ge(now_us() - begun_us, (2400 - 100) * 1000);
    ck_assert_int_le(now_us() - begun_us, (2400 + SLACK_MS) * 1000);
    RUN_UNTIL(is_free("L"), 20000);
    take(two, "L", 'b');
}
END_TEST

START_TEST(P4_P11_up_to_its_last_millisecond_a_lease_is_renewed_and_then_lost)
{
    for (int round = 0; round < 60; round++) {
        struct asked *a = with_terms(one, "L", 'a', 4, 0, 4), *r;
        int64_t told_us = a->call.sent_us + a->call.ret_ttl_ms * 1000, asked_us;

        do {
            asked_us = now_us();
            r = renew(one, "L", 'a', 1 + round % 9);
            ck_assert_msg(r->call.result == STORE_DONE || r->call.result == STORE_LOST, "%s: %s", result_name(r->call.result),
                          r->call.problem); /* Redis takes no lease of 0 ms */
            if (r->call.result == STORE_LOST && r->answered_us < told_us)
                ck_abort_msg("it is lost %" PRId64 " us before the end that was told", told_us - r->answered_us);
            if (r->call.result == STORE_DONE)
                told_us = r->call.sent_us + r->call.ret_ttl_ms * 1000;
            ck_assert_int_lt(asked_us - a->answered_us, 4000 + SLACK_MS * 1000);
        } while (r->call.result == STORE_DONE);
        RUN_UNTIL(is_free("L"), 20000);
        forget_asked();
    }
}
END_TEST

START_TEST(P11_a_repeated_acquire_does_not_push_it_either)
{
    struct asked *again;

    with_terms(one, "L", 'a', SHORT_MS, 0, 800);
    for (int i = 0; i < 3; i++) {
        again = ask(i % 2 ? one : two, STORE_ACQUIRE, "L", 'a');
        again->call.most_ms = 100000; /* its terms were settled by the first call */
        EXPECT(submit(again), STORE_REPEATED);
        ck_assert_int_le(again->call.ret_ttl_ms, 800);
        ck_assert_int_le(lock_pttl("L"), 800);
    }
}
END_TEST

START_TEST(P10_P11_a_lease_at_its_bound_ends_with_the_delay)
{
    struct asked *r;

    with_terms(one, "L", 'a', SHORT_MS, 20000, SHORT_MS);
    r = EXPECT(renew(two, "L", 'a', TTL_MS), STORE_DONE);
    ck_assert_int_le(r->call.ret_ttl_ms, SHORT_MS);
    ck_assert_int_le(lock_pttl("L"), SHORT_MS + 20000);
    wait_for_the_delay("L", 20000);
    EXPECT(renew(two, "L", 'a', TTL_MS), STORE_LOST);
    EXPECT(acquire(two, "L", 'b'), STORE_DELAYED);
}
END_TEST

START_TEST(P11_a_look_at_the_lock_tells_the_terms)
{
    struct asked *seen;

    with_terms(one, "L", 'a', 5000, 7000, 60000);
    seen = EXPECT(inspect(two, "L", '\0'), STORE_DONE);
    ck_assert_int_eq(seen->call.holder.delay_ms, 7000);
    ck_assert_int_gt(seen->call.holder.most_ms, 50000);
    ck_assert_int_le(seen->call.holder.most_ms, 60000);
    ck_assert_int_le(seen->call.holder.ttl_ms, 5000);
    ck_assert_int_eq(EXPECT(list(two, ""), STORE_DONE)->listed_count, 1);
    take(one, "M", 'a');
    seen = EXPECT(inspect(two, "M", '\0'), STORE_DONE);
    ck_assert_int_eq(seen->call.holder.delay_ms, 0);
    ck_assert_int_eq(seen->call.holder.most_ms, 0);
}
END_TEST

/* ---- losses ---- */

START_TEST(P3_P10_P11_a_lease_is_put_back_with_its_terms)
{
    struct asked *a = with_terms(one, "L", 'a', 5000, 20000, 8000), *r;

    lose_everything();
    EXPECT(put_back(one, a, 4000), STORE_DONE);
    ck_assert_int_le(lock_pttl("L"), 24000);
    ck_assert_int_gt(lock_pttl("L"), 20000);
    close_window();
    r = EXPECT(renew(two, "L", 'a', TTL_MS), STORE_DONE);
    ck_assert_int_le(r->call.ret_ttl_ms, 8000);
    ck_assert_int_gt(r->call.ret_ttl_ms, 5000);
    ck_assert_int_eq(r->call.holder.delay_ms, 20000);
    EXPECT(renew(two, "L", 'a', 50), STORE_DONE);
    wait_for_the_delay("L", 20000);
    EXPECT(acquire(one, "L", 'b'), STORE_DELAYED);
}
END_TEST

START_TEST(P3_P11_a_renewal_in_the_window_puts_it_back_with_its_terms)
{
    struct asked *a = with_terms(one, "L", 'a', 5000, 20000, 8000), *r;

    lose_everything();
    r = EXPECT(renew_known(one, a, TTL_MS), STORE_DONE);
    ck_assert_int_le(r->call.ret_ttl_ms, 8000);
    ck_assert_int_eq(r->call.holder.delay_ms, 20000);
    ck_assert_int_le(r->call.holder.most_ms, 8000);
    ck_assert_int_le(lock_pttl("L"), 28000);
    ck_assert_int_gt(lock_pttl("L"), 20000);
}
END_TEST

START_TEST(P3_P10_the_delay_of_a_lease_that_had_ended_is_put_back)
{
    struct asked *a = with_terms(one, "L", 'a', SHORT_MS, 20000, 0), *seen;

    wait_for_the_delay("L", 20000);
    lose_everything();
    EXPECT(put_back(one, a, -5000), STORE_DONE); /* it was over five seconds ago */
    ck_assert_int_le(lock_pttl("L"), 15000);
    ck_assert_int_gt(lock_pttl("L"), 10000);
    EXPECT(acquire(two, "L", 'b'), STORE_RECOVERING);
    close_window();
    EXPECT(acquire(two, "L", 'b'), STORE_DELAYED);
    EXPECT(renew_known(one, a, TTL_MS), STORE_LOST);
    seen = EXPECT(inspect(two, "L", '\0'), STORE_DONE);
    ck_assert_int_gt(seen->call.holder.delay_ms, 10000);
    EXPECT(put_back(one, a, -6000), STORE_LOST); /* after the window it is only asked for, and no lease */
}
END_TEST

static struct asked *put_back_delay(struct node *node, const char *name, int64_t token, int64_t left_ms)
{
    struct asked *asked = ask(node, STORE_PUT_BACK, name, 'f');

    asked->call.broken = true;
    asked->call.token = token;
    asked->call.ttl_ms = left_ms;
    return submit(asked);
}

START_TEST(P3_P10_the_delay_of_a_lease_that_was_broken_is_put_back)
{
    struct asked *a = with_terms(one, "L", 'a', TTL_MS, 20000, 0);
    int64_t token = a->call.ret_token;

    EXPECT(break_lock(two, "L"), STORE_DONE);
    lose_everything();
    EXPECT(put_back_delay(two, "L", token, 15000), STORE_DONE);
    EXPECT(put_back(one, a, 20000), STORE_LOST); /* its node missed the message: the lease does not come back */
    EXPECT(release_known(one, a), STORE_LOST);
    EXPECT(renew_known(one, a, TTL_MS), STORE_LOST);
    close_window();
    EXPECT(acquire(one, "L", 'b'), STORE_DELAYED);
    EXPECT(put_back_delay(two, "L", token, 15000), STORE_LOST); /* too late */
}
END_TEST

START_TEST(P3_P10_a_break_wins_over_an_older_copy_in_either_order)
{
    struct asked *a = with_terms(one, "L", 'a', TTL_MS, 20000, 0), *b;
    int64_t token = a->call.ret_token;

    lose_everything();
    EXPECT(put_back(one, a, 20000), STORE_DONE);
    EXPECT(put_back_delay(two, "L", token, 15000), STORE_DONE);
    ck_assert_int_le(lock_pttl("L"), 15000);
    EXPECT(check(one, "L", token), STORE_LOST);
    EXPECT(put_back_delay(two, "L", token, 5000), STORE_DONE); /* only ever longer */
    ck_assert_int_gt(lock_pttl("L"), 10000);
    close_window();
    redis_server_ok(&redis, "DEL %s", key("lock", "L"));
    b = take(two, "L", 'b');
    hold_window_open();
    EXPECT(put_back_delay(two, "L", token, 15000), STORE_LOST); /* of a lease before the one that stands */
    EXPECT(check(one, "L", b->call.ret_token), STORE_DONE);
}
END_TEST

START_TEST(P3_P10_a_later_lease_wins_over_a_delay_that_was_put_back)
{
    struct asked *a = with_terms(one, "L", 'a', TTL_MS, 20000, 0), *b;
    int64_t token = a->call.ret_token;

    EXPECT(release(one, "L", 'a'), STORE_DONE);
    b = take(two, "L", 'b');
    lose_everything();
    EXPECT(put_back_delay(one, "L", token, 15000), STORE_DONE); /* such as by a node that missed a message */
    EXPECT(put_back(two, b, 20000), STORE_DONE);
    close_window();
    EXPECT(check(one, "L", b->call.ret_token), STORE_DONE);
}
END_TEST

START_TEST(P3_P10_a_break_in_the_window_delays_after_it)
{
    struct asked *a = with_terms(one, "L", 'a', TTL_MS, 20000, 0), *b = with_terms(one, "M", 'b', TTL_MS, 1, 0);
    struct node *three;

    lose_everything();
    EXPECT(put_back(one, a, 20000), STORE_DONE);
    EXPECT(put_back(one, b, 20000), STORE_DONE);
    ck_assert_int_eq(EXPECT(break_lock(two, "L"), STORE_DONE)->call.holder.delay_ms, 20000);
    EXPECT(break_lock(two, "M"), STORE_DONE);
    EXPECT(put_back(one, a, 20000), STORE_LOST); /* a tombstone as any */
    EXPECT(put_back_delay(two, "L", a->call.ret_token, 5000), STORE_DONE);
    redis_server_ok(&redis, "SET %s{0}:recovery %s", PREFIX, "1 0 0 1"); /* the next beat closes it */
    RUN_UNTIL(redis_server_int(&redis, "EXISTS %s{0}:recovery", PREFIX) == 0, 20000);
    ck_assert_int_gt(lock_pttl("L"), 10000);
    ck_assert_int_le(lock_pttl("L"), 20000);
    ck_assert(is_free("M"));
    EXPECT(acquire(two, "L", 'c'), STORE_DELAYED);
    three = rig_ready_node();
    EXPECT(acquire(three, "L", 'c'), STORE_DELAYED);
    ck_assert_int_eq(redis_server_int(&redis, "EXISTS %s{0}:tombstones", PREFIX), 0);
}
END_TEST

START_TEST(P3_P10_an_older_copy_that_shows_the_lease_as_over_gives_way_to_its_node)
{
    struct asked *a = with_terms(one, "L", 'a', SHORT_MS, 20000, 0), *r;

    /* As after a failover to a replica that did not see the last renewal. */
    wait_for_the_delay("L", 20000);
    hold_window_open();
    EXPECT(check(one, "L", a->call.ret_token), STORE_RECOVERING);
    EXPECT(renew(two, "L", 'a', TTL_MS), STORE_RECOVERING); /* it is not in that node's table */
    r = EXPECT(renew_known(one, a, 6000), STORE_DONE);
    ck_assert_int_eq(r->call.ret_token, a->call.ret_token);
    ck_assert_int_gt(lock_pttl("L"), 20000);
    EXPECT(check(one, "L", a->call.ret_token), STORE_DONE);
    EXPECT(renew(one, "L", 'a', 50), STORE_RECOVERING);
    renew_known(one, a, 50);
    wait_for_the_delay("L", 20000);
    EXPECT(put_back(one, a, 9000), STORE_DONE);
    EXPECT(check(one, "L", a->call.ret_token), STORE_DONE);
    renew_known(one, a, 50);
    wait_for_the_delay("L", 20000);
    EXPECT(release_known(one, a), STORE_DONE);
    EXPECT(put_back(one, a, 9000), STORE_LOST);
}
END_TEST

START_TEST(P11_putting_back_and_renewing_again_and_again_does_not_push_the_bound)
{
    struct asked *a = with_terms(one, "L", 'a', 1000, 0, 4000), *r;

    for (int i = 0; i < 5; i++) {
        hold_window_open();
        EXPECT(put_back(one, a, 1000), STORE_DONE); /* with a bound that the node knows as 4000 ms from now on: what stands is nearer */
        r = EXPECT(renew_known(i % 2 ? one : two, a, TTL_MS), STORE_DONE);
        /* less room than SLACK_MS: it is how far 5 rounds would push it */
        ck_assert_int_le(r->call.holder.most_ms, 4000 - (now_us() - a->answered_us) / 1000 + 400);
        close_window();
        for (int64_t end = now_us() + 100000; now_us() < end;)
            turn();
    }
    ck_assert_int_le(lock_pttl("L"), 4000 - 400);
}
END_TEST

/* ---- the price ---- */

START_TEST(a_lease_without_terms_is_stored_and_asked_as_before)
{
    const char *value;
    redisReply *reply;
    int64_t before;

    take(one, "L", 'a');
    reply = redis_server_do(&redis, "GET %s", key("lock", "L"));
    value = reply->str;
    ck_assert_ptr_null(strchr(value, '+'));
    freeReplyObject(reply);
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    redis_server_ok(&redis, "CONFIG RESETSTAT");
    before = redis_server_int(&redis, "EVAL %s 0",
                              "return tonumber(string.match(redis.call('INFO', 'commandstats'), 'cmdstat_pttl:calls=(%d+)') or '0')");
    ck_assert_int_eq(before, 0);
    take(one, "L", 'a');
    EXPECT(renew(one, "L", 'a', TTL_MS), STORE_DONE);
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    ck_assert_int_eq(
        redis_server_int(&redis, "EVAL %s 0",
                         "return tonumber(string.match(redis.call('INFO', 'commandstats'), 'cmdstat_pttl:calls=(%d+)') or '0')"),
        0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store_terms");
    TCase *delay = tcase_create("delay"), *bound = tcase_create("bound"), *losses = tcase_create("losses"), *price = tcase_create("price");
    TCase *all[] = {delay, bound, losses, price};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        tcase_add_unchecked_fixture(all[i], rig_make_folder, rig_remove_folder);
        tcase_add_checked_fixture(all[i], start, rig_stop);
        suite_add_tcase(suite, all[i]);
    }
    tcase_add_test(delay, P10_after_an_expiry_nobody_is_granted_for_the_delay);
    tcase_add_test(delay, P10_in_the_delay_the_lease_is_over_for_its_holder_too);
    tcase_add_test(delay, P10_a_release_leaves_no_delay);
    tcase_add_test(delay, P10_a_release_in_one_run_with_others_is_no_exception);
    tcase_add_test(delay, P10_after_a_break_nobody_is_granted_for_the_delay);
    tcase_add_test(delay, P6_P10_waiters_keep_their_order_through_the_delay);
    tcase_add_test(delay, P10_the_end_of_a_wait_tells_of_the_delay);
    tcase_add_test(delay, P8_P10_a_grant_that_is_undone_leaves_no_delay);
    tcase_add_test(delay, P8_P10_a_grant_that_was_over_before_its_call_was_run_again_leaves_no_delay);
    tcase_add_test(delay, P7_P10_a_repeated_acquire_and_a_renewal_keep_the_terms);
    tcase_add_test(delay, P10_a_rider_has_terms_of_its_own);
    tcase_add_test(bound, P11_renewals_do_not_push_a_lease_past_its_bound);
    tcase_add_test(bound, P4_P11_up_to_its_last_millisecond_a_lease_is_renewed_and_then_lost);
    tcase_add_test(bound, P11_a_repeated_acquire_does_not_push_it_either);
    tcase_add_test(bound, P10_P11_a_lease_at_its_bound_ends_with_the_delay);
    tcase_add_test(bound, P11_a_look_at_the_lock_tells_the_terms);
    tcase_add_test(losses, P3_P10_P11_a_lease_is_put_back_with_its_terms);
    tcase_add_test(losses, P3_P11_a_renewal_in_the_window_puts_it_back_with_its_terms);
    tcase_add_test(losses, P3_P10_the_delay_of_a_lease_that_had_ended_is_put_back);
    tcase_add_test(losses, P3_P10_the_delay_of_a_lease_that_was_broken_is_put_back);
    tcase_add_test(losses, P3_P10_a_break_wins_over_an_older_copy_in_either_order);
    tcase_add_test(losses, P3_P10_a_later_lease_wins_over_a_delay_that_was_put_back);
    tcase_add_test(losses, P3_P10_a_break_in_the_window_delays_after_it);
    tcase_add_test(losses, P3_P10_an_older_copy_that_shows_the_lease_as_over_gives_way_to_its_node);
    tcase_add_test(losses, P11_putting_back_and_renewing_again_and_again_does_not_push_the_bound);
    tcase_add_test(price, a_lease_without_terms_is_stored_and_asked_as_before);
    return check_main(suite);
}
