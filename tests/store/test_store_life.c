/* The lives of the data: what opens a new one, that tokens rise across all of them (P2), what holds while leases are being put back (P3), and that the
 * window lapses by ticks and not by the clock. H1 to H17 are the holes of docs/model that the rules were made to close. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/store/rig.h"

enum { JUMP = 1000000 }; /* how far above all that was seen a new life begins at least */

static struct node *one, *two;

static void start(void)
{
    rig_start();
    one = rig_ready_node();
    two = rig_ready_node();
}

static void reattached(struct node *node, int before)
{
    RUN_UNTIL(node->attached > before && node_is_ready(node), 15000);
}

/* Ends the server; another begins with what was saved last, if anything was. */
static void restart(void)
{
    int first = one->missed, second = two->missed;

    redis_server_kill(&redis);
    rig_restart_redis();
    RUN_UNTIL(one->missed > first && two->missed > second, 15000); /* attached, and hears messages */
}

static int64_t redis_clock_us(void)
{
    return redis_server_int(&redis, "EVAL %s 0", "local t = redis.call('TIME') return t[1] * 1000000 + t[2]");
}

/* The base of the life: the fence it was opened with. */
static int64_t base_of_life(void)
{
    const char *incarnation = redis_server_text(&redis, "GET %s{0}:incarnation", PREFIX);
    int64_t base = 0;

    ck_assert_msg(sscanf(incarnation, "%*s %*s %*s %" SCNd64, &base) == 1, "%s", incarnation);
    return base;
}

/* ---- what opens a life, and with which fence ---- */

START_TEST(P2_the_first_life_begins_at_the_clock)
{
    int64_t base = base_of_life();

    ck_assert_int_le(base, redis_clock_us());
    ck_assert_int_gt(base, redis_clock_us() - 60 * INT64_C(1000000));
    ck_assert(one->new_life && one->window_open);
    ck_assert(two->new_life);
    ck_assert_int_eq(one->attached, 1);
}
END_TEST

START_TEST(P2_C10_tokens_rise_through_flushall)
{
    int64_t before = take(one, "L", 'a')->call.ret_token;

    lose_everything();
    ck_assert(one->new_life && one->window_open);
    ck_assert_int_ge(stored_fence(), before + JUMP); /* at the latest when the node that granted it has joined */
    close_window();
    ck_assert_int_gt(take(two, "L", 'b')->call.ret_token, before + JUMP);
}
END_TEST

START_TEST(P2_C10_tokens_rise_through_a_restart_without_data)
{
    int64_t before = take(one, "L", 'a')->call.ret_token;

    restart();
    ck_assert(one->new_life);
    close_window();
    ck_assert_int_gt(take(two, "L", 'b')->call.ret_token, before);
}
END_TEST

START_TEST(P2_P3_a_restart_with_all_data_is_a_new_life_that_keeps_the_leases)
{
    struct asked *a = take(one, "L", 'a');

    redis_server_ok(&redis, "SAVE");
    restart();
    ck_assert(one->new_life);
    hold_window_open();
    EXPECT(acquire(two, "L", 'b'), STORE_RECOVERING);
    EXPECT(renew_known(one, a, TTL_MS), STORE_DONE);
    close_window();
    EXPECT(acquire(two, "L", 'b'), STORE_HELD);
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    ck_assert_int_gt(take(two, "L", 'b')->call.ret_token, a->call.ret_token + JUMP);
}
END_TEST

/* Failover to a replica that lags: the copy lacks the latest grants and has another identity. */
START_TEST(P2_P3_C10_tokens_rise_and_leases_return_after_a_stale_copy_took_over)
{
    struct asked *old = take(one, "L", 'a'), *held;

    redis_server_ok(&redis, "SAVE");
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    for (int i = 0; i < 50; i++)
        take(one, "other", 'e'), release(one, "other", 'e');
    held = take(two, "L", 'b');
    restart();
    hold_window_open();
    ck_assert_int_eq(EXPECT(inspect(one, "L", '\0'), STORE_DONE)->call.holder.token, old->call.ret_token); /* the copy still shows it */
    EXPECT(acquire(one, "L", 'a'), STORE_RECOVERING); /* H5: and yet this is no answer */
    EXPECT(renew_known(two, held, TTL_MS), STORE_DONE);
    close_window();
    EXPECT(renew(one, "L", 'a', TTL_MS), STORE_LOST);
    EXPECT(check(one, "L", held->call.ret_token), STORE_DONE);
    EXPECT(release(two, "L", 'b'), STORE_DONE);
    ck_assert_int_gt(take(one, "L", 'c')->call.ret_token, held->call.ret_token + JUMP);
}
END_TEST

/* H9: the clock is behind everything that was handed out. */
START_TEST(H9_a_new_life_begins_above_all_that_was_seen_when_the_clock_is_behind)
{
    int64_t ahead = redis_clock_us() + INT64_C(10000000000);
    int64_t before;

    redis_server_ok(&redis, "SET %s{0}:fence %s", PREFIX, "1"); /* lower than seen: the next call opens a life */
    EXPECT(inspect(one, "L", '\0'), STORE_DONE);
    close_window();
    RUN_UNTIL(two->attached == 2, 10000);
    {
        char text[32];
        snprintf(text, sizeof(text), "%" PRId64, ahead);
        redis_server_ok(&redis, "SET %s{0}:fence %s", PREFIX, text);
    }
    before = take(one, "L", 'a')->call.ret_token;
    ck_assert_int_gt(before, ahead);
    lose_everything();
    close_window();
    ck_assert_int_gt(take(two, "L", 'b')->call.ret_token, before + JUMP);
}
END_TEST

START_TEST(H9_a_node_that_joins_a_life_it_does_not_know_lifts_the_fence)
{
    int64_t seen = take(two, "L", 'a')->call.ret_token;

    lose_everything(); /* one of the two opened it, the other joined */
    ck_assert_int_ge(stored_fence(), base_of_life());
    ck_assert_int_ge(stored_fence(), seen + JUMP);
    ck_assert(one->new_life && two->new_life);
}
END_TEST

/* H2: demoted and promoted again; run_id, data and connections stay as they were. */
START_TEST(H2_a_master_that_was_demoted_and_promoted_again_is_another_life)
{
    int64_t before = take(one, "L", 'a')->call.ret_token;
    int first = one->attached, second = two->attached;

    redis_server_ok(&redis, "REPLICAOF 127.0.0.1 1");
    redis_server_ok(&redis, "REPLICAOF NO ONE");
    reattached(one, first);
    reattached(two, second);
    ck_assert(one->new_life && two->new_life);
    close_window();
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    ck_assert_int_gt(take(two, "L", 'b')->call.ret_token, before + JUMP);
}
END_TEST

/* H3: an older state under a server that goes on running. */
START_TEST(H3_data_rolled_back_under_a_running_server_is_another_life)
{
    int64_t before;
    int first = one->attached;

    redis_server_ok(&redis, "SAVE");
    before = take(one, "L", 'a')->call.ret_token;
    redis_server_ok(&redis, "DEBUG RELOAD NOSAVE");
    ck_assert_int_lt(stored_fence(), before);
    EXPECT(acquire(one, "L", 'b'), STORE_RECOVERING);
    ck_assert_int_eq(one->attached, first + 1);
    ck_assert(one->new_life && one->window_open);
    close_window();
    ck_assert_int_gt(take(one, "L", 'b')->call.ret_token, before + JUMP);
}
END_TEST

START_TEST(P2_a_lost_connection_alone_is_no_new_life)
{
    int64_t before = take(one, "L", 'a')->call.ret_token;
    int first = one->attached;
    int64_t base = base_of_life(), fence = stored_fence();

    redis_server_ok(&redis, "CLIENT KILL TYPE normal");
    reattached(one, first);
    ck_assert(!one->new_life);
    ck_assert(!one->window_open);
    ck_assert_int_eq(base_of_life(), base);
    ck_assert_int_eq(stored_fence(), fence);
    ck_assert_int_ge(one->detached, 1);
    ck_assert_int_gt(take(one, "M", 'a')->call.ret_token, before);
}
END_TEST

START_TEST(H3_a_lost_fence_or_incarnation_is_a_new_life)
{
    static const char *const keys[] = {"fence", "incarnation"};

    for (int i = 0; i < 2; i++) {
        int64_t before = take(one, "L", 'a')->call.ret_token;
        int first = one->attached;

        redis_server_ok(&redis, "DEL %s{0}:%s", PREFIX, keys[i]);
        EXPECT(acquire(one, "M", 'a'), STORE_RECOVERING);
        ck_assert_int_eq(one->attached, first + 1);
        ck_assert(one->new_life && one->window_open);
        close_window();
        ck_assert_int_gt(take(one, "M", 'a')->call.ret_token, before + JUMP);
        EXPECT(release(one, "M", 'a'), STORE_DONE);
        EXPECT(release(one, "L", 'a'), STORE_DONE);
        RUN_UNTIL(two->attached == 2 + i, 10000);
    }
}
END_TEST

START_TEST(H3_a_damaged_incarnation_is_a_new_life)
{
    int64_t before = take(one, "L", 'a')->call.ret_token;

    redis_server_ok(&redis, "SET %s{0}:incarnation %s", PREFIX, "rubbish");
    EXPECT(acquire(one, "M", 'a'), STORE_RECOVERING);
    close_window();
    ck_assert_int_gt(take(one, "M", 'a')->call.ret_token, before + JUMP);
}
END_TEST

/* ---- H17: who opens decides the window ---- */

START_TEST(H17_a_node_without_a_window_opens_no_life_among_others)
{
    struct node *bold = rig_node(0);

    RUN_UNTIL(node_is_ready(bold), 10000);
    node_stop(one);
    node_stop(two);
    redis_server_ok(&redis, "DEL %s{0}:incarnation", PREFIX);
    EXPECT(acquire(bold, "L", 'a'), STORE_UNAVAILABLE);
    ck_assert(!node_is_ready(bold));
    ck_assert_ptr_nonnull(strstr(node_problem(bold), "--recovery-window"));
    ck_assert_int_eq(redis_server_int(&redis, "EXISTS %s{0}:incarnation", PREFIX), 0);
    RUN_UNTIL(node_is_ready(bold), 10000); /* when the others' keys have run out it is alone */
    take(bold, "L", 'a');
}
END_TEST

START_TEST(H17_a_lone_node_without_a_window_grants_at_once)
{
    struct node *alone;

    node_stop(one);
    node_stop(two);
    redis_server_ok(&redis, "FLUSHALL");
    alone = rig_node(0);
    RUN_UNTIL(alone->attached, 10000);
    ck_assert(!alone->window_open);
    take(alone, "L", 'a');
    ck_assert_str_eq(keys_left(), "fence incarnation lock:L node");
}
END_TEST

START_TEST(H17_a_node_with_a_longer_window_extends_the_one_it_finds_open)
{
    struct node *longer;
    int64_t begun = now_us();

    node_stop(one);
    node_stop(two);
    redis_server_ok(&redis, "FLUSHALL");
    one = rig_node(600);
    RUN_UNTIL(one->attached, 10000);
    longer = rig_node(6000);
    RUN_UNTIL(longer->attached, 10000);
    ck_assert(longer->window_open);
    RUN_UNTIL(now_us() > begun + 1500000 || one->closed, 5000);
    ck_assert_int_eq(one->closed, 0);
    EXPECT(acquire(one, "L", 'a'), STORE_RECOVERING);
}
END_TEST

/* ---- the window: ticks ---- */

static void fresh_with_window(int64_t window_ms, int nodes)
{
    node_stop(one);
    node_stop(two);
    redis_server_ok(&redis, "FLUSHALL");
    one = rig_node(window_ms);
    RUN_UNTIL(one->attached, 10000);
    two = nodes > 1 ? rig_node(window_ms) : NULL;
    if (two)
        RUN_UNTIL(two->attached, 10000);
}

START_TEST(P3_the_window_closes_by_itself_after_its_time_and_says_so)
{
    int64_t begun = now_us();

    fresh_with_window(600, 2);
    ck_assert(one->window_open && two->window_open);
    EXPECT(acquire(two, "L", 'a'), STORE_RECOVERING);
    RUN_UNTIL(one->closed && two->closed, 10000);
    ck_assert_int_ge(now_us() - begun, 500000); /* all but a tick; two nodes that beat don't make it shorter */
    ck_assert_int_le(now_us() - begun, 600000 + 1000000 + SLACK_MS * 1000);
    ck_assert_int_eq(one->closed, 1);
    ck_assert(!node_sees_window(one));
    take(two, "L", 'a');
    ck_assert_str_eq(keys_left(), "fence incarnation lock:L node node");
}
END_TEST

/* By then the clock has gone on by more than the window, and both nodes are late. */
START_TEST(H8_a_server_that_stalls_does_not_lose_its_window_meanwhile)
{
    int64_t begun;
    int first;

    fresh_with_window(600, 1);
    first = one->attached;
    redis_server_freeze(&redis);
    begun = now_us();
    RUN_UNTIL(now_us() > begun + 1500000, 5000);
    redis_server_thaw(&redis);
    reattached(one, first);
    EXPECT(acquire(one, "L", 'a'), STORE_RECOVERING);
    RUN_UNTIL(one->closed, 10000);
}
END_TEST

START_TEST(H8_a_clock_that_went_back_costs_one_tick_and_hangs_nothing)
{
    int64_t now_ms = redis_clock_us() / 1000;
    char value[64];
    const char *left;

    fresh_with_window(WINDOW_MS, 1);
    snprintf(value, sizeof(value), "4 %" PRId64 " 2 500", now_ms + 3600000); /* last ticked an hour in the future */
    redis_server_ok(&redis, "SET %s{0}:recovery %s", PREFIX, value);
    RUN_UNTIL(strncmp(left = redis_server_text(&redis, "GET %s{0}:recovery", PREFIX), "3 ", 2) == 0, 10000);
    ck_assert_msg(llabs(strtoll(left + 2, NULL, 10) - redis_clock_us() / 1000) < 2000, "%s", left);
    EXPECT(acquire(one, "L", 'a'), STORE_RECOVERING);
}
END_TEST

START_TEST(H8_a_clock_that_went_ahead_costs_one_tick)
{
    fresh_with_window(WINDOW_MS, 1);
    redis_server_ok(&redis, "SET %s{0}:recovery %s", PREFIX, "4 1000 2 500"); /* 1970 */
    RUN_UNTIL(strncmp(redis_server_text(&redis, "GET %s{0}:recovery", PREFIX), "4 ", 2) != 0, 10000);
    ck_assert_int_eq(strncmp(redis_server_text(&redis, "GET %s{0}:recovery", PREFIX), "3 ", 2), 0);
}
END_TEST

START_TEST(H8_attaching_again_and_again_does_not_lapse_the_window)
{
    fresh_with_window(WINDOW_MS, 1);
    for (int i = 0; i < 12; i++) {
        int first = one->attached;

        redis_server_ok(&redis, "DEL %s{0}:node:%s", PREFIX, redis_store_node(one->redis)); /* differs: it attaches */
        EXPECT(acquire(one, "L", 'a'), STORE_RECOVERING);
        ck_assert_int_eq(one->attached, first + 1);
        ck_assert(!one->new_life);
    }
}
END_TEST

START_TEST(P3_a_node_that_joins_sees_the_open_window)
{
    hold_window_open();
    ck_assert(rig_ready_node()->window_open);
}
END_TEST

/* ---- while it is open: each call ---- */

START_TEST(P3_H5_nothing_is_granted_while_leases_may_return)
{
    struct asked *a = take(one, "L", 'a'), *w;

    hold_window_open();
    EXPECT(acquire(one, "free", 'b'), STORE_RECOVERING);
    EXPECT(acquire(one, "L", 'b'), STORE_RECOVERING);
    EXPECT(acquire(one, "L", 'a'), STORE_RECOVERING); /* its own, too */
    w = EXPECT(queue_up(two, "L", 'b'), STORE_RECOVERING);
    ck_assert_int_gt(w->call.ret_ticket, a->call.ret_token);
    ck_assert_int_eq(EXPECT(queue_up(two, "L", 'b'), STORE_RECOVERING)->call.ret_ticket, w->call.ret_ticket);
    ck_assert_int_eq(EXPECT(acquire(two, "L", 'c'), STORE_RECOVERING)->call.ret_ticket, 0);
    close_window();
    EXPECT(acquire(one, "free", 'b'), STORE_DONE);
    EXPECT(queue_up(two, "L", 'b'), STORE_HELD);
    EXPECT(acquire(one, "L", 'a'), STORE_REPEATED);
}
END_TEST

START_TEST(P9_a_full_queue_is_full_in_the_window_too)
{
    struct asked *w = ask(one, STORE_ACQUIRE, "L", 'c');

    hold_window_open();
    EXPECT(queue_up(one, "L", 'b'), STORE_RECOVERING);
    w->call.queue = true;
    w->call.max_waiters = 1;
    EXPECT(submit(w), STORE_FULL);
}
END_TEST

START_TEST(H6_only_a_lease_of_ones_own_table_is_renewed_in_the_window)
{
    struct asked *a = take(one, "L", 'a'), *r;

    hold_window_open();
    EXPECT(renew(two, "L", 'a', 90000), STORE_RECOVERING); /* it may be a broken one that a stale copy still shows */
    ck_assert_int_le(lock_pttl("L"), TTL_MS);
    EXPECT(renew(two, "absent", 'a', 90000), STORE_RECOVERING);
    r = EXPECT(renew_known(one, a, 90000), STORE_DONE);
    ck_assert_int_eq(r->call.ret_token, a->call.ret_token);
    ck_assert_int_gt(lock_pttl("L"), 80000);
}
END_TEST

START_TEST(P3_a_renewal_puts_back_a_lease_that_the_table_vouches_for)
{
    struct asked *a = ask(one, STORE_ACQUIRE, "L", 'a'), *r;

    a->call.owner = "the  owner 7";
    a->call.owner_len = 12;
    EXPECT(submit(a), STORE_DONE);
    lose_everything();
    r = EXPECT(renew_known(one, a, 20000), STORE_DONE);
    ck_assert_int_eq(r->call.ret_token, a->call.ret_token);
    ck_assert_int_eq(r->call.ret_ttl_ms, 20000);
    ck_assert_int_eq(r->call.ret_granted_ms, a->call.ret_granted_ms);
    ck_assert_str_eq(r->call.holder.owner, "the  owner 7");
    close_window();
    r = EXPECT(acquire(two, "L", 'b'), STORE_HELD);
    ck_assert_int_eq(r->call.holder.token, a->call.ret_token);
    ck_assert_str_eq(r->call.holder.owner, "the  owner 7");
    EXPECT(renew(one, "L", 'a', TTL_MS), STORE_DONE);
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    ck_assert_str_eq(keys_left(), "fence incarnation node node");
}
END_TEST

START_TEST(P1_P3_what_was_not_put_back_in_time_is_lost)
{
    struct asked *a = take(one, "L", 'a'), *b;

    lose_everything();
    close_window();
    EXPECT(renew_known(one, a, TTL_MS), STORE_LOST);
    b = take(two, "L", 'b');
    EXPECT(renew_known(one, a, TTL_MS), STORE_LOST);
    EXPECT(check(one, "L", b->call.ret_token), STORE_DONE);
}
END_TEST

START_TEST(H15_of_two_leases_put_back_the_greater_token_stays_in_either_order)
{
    for (int order = 0; order < 2; order++) {
        struct asked *older = take(one, "L", 'a'), *newer;

        EXPECT(release(one, "L", 'a'), STORE_DONE);
        newer = take(two, "L", 'b');
        lose_everything();
        if (order == 0)
            EXPECT(renew_known(one, older, TTL_MS), STORE_DONE);
        EXPECT(renew_known(two, newer, TTL_MS), STORE_DONE);
        EXPECT(renew_known(one, older, TTL_MS), STORE_LOST);
        close_window();
        EXPECT(check(one, "L", newer->call.ret_token), STORE_DONE);
        EXPECT(release(two, "L", 'b'), STORE_DONE);
    }
}
END_TEST

/* H15: "the same lease" is the same id and the same token. A stale copy can show the id with a token from before. */
START_TEST(H15_a_stale_token_of_the_same_lease_id_gives_way_to_the_one_handed_out)
{
    struct asked *a = take(one, "L", 'a'), *newer, *r;
    char *stale = strdup(redis_server_text(&redis, "GET %s", key("lock", "L")));

    EXPECT(release(one, "L", 'a'), STORE_DONE);
    newer = take(one, "L", 'a');
    ck_assert_int_gt(newer->call.ret_token, a->call.ret_token);
    hold_window_open();
    redis_server_ok(&redis, "SET %s %s PX %d", key("lock", "L"), stale, TTL_MS);
    free(stale);
    r = EXPECT(renew_known(one, newer, TTL_MS), STORE_DONE);
    ck_assert_int_eq(r->call.ret_token, newer->call.ret_token);
    EXPECT(check(two, "L", newer->call.ret_token), STORE_DONE);
    r = EXPECT(release_known(one, newer), STORE_DONE);
    ck_assert_int_eq(r->call.ret_token, newer->call.ret_token);
    EXPECT(renew_known(one, newer, TTL_MS), STORE_LOST); /* the tombstone is of that token */
}
END_TEST

START_TEST(H15_a_put_back_lifts_the_fence_to_its_token)
{
    struct asked far = *take(one, "L", 'a');

    lose_everything();
    far.call.ret_token = stored_fence() + 5000; /* of a life whose fence was further on */
    EXPECT(renew_known(one, &far, TTL_MS), STORE_DONE);
    ck_assert_int_ge(stored_fence(), far.call.ret_token);
    ck_assert_int_ge(node_fence(one), far.call.ret_token);
    close_window();
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    ck_assert_int_gt(take(two, "L", 'b')->call.ret_token, far.call.ret_token);
}
END_TEST

START_TEST(H7_what_is_released_in_the_window_does_not_come_back)
{
    struct asked *a = take(one, "L", 'a'), *b = take(two, "M", 'b'), *r;

    lose_everything();
    EXPECT(release(two, "L", 'a'), STORE_RECOVERING); /* not in this node's table: it may yet be put back */
    r = EXPECT(release_known(one, a), STORE_DONE);    /* not there yet, but known */
    ck_assert_int_eq(r->call.ret_token, a->call.ret_token);
    EXPECT(renew_known(one, a, TTL_MS), STORE_LOST);
    EXPECT(renew_known(two, b, TTL_MS), STORE_DONE); /* put back, then released */
    EXPECT(release(one, "M", 'b'), STORE_DONE);
    ck_assert(node_took(two, 'f', 'b', "M"));
    EXPECT(renew_known(two, b, TTL_MS), STORE_LOST);
    EXPECT(release_known(two, b), STORE_DONE); /* a second release of a known lease finds it ended */
    ck_assert_int_eq(EXPECT(inspect(one, "L", '\0'), STORE_DONE)->call.holder.token, 0);
    ck_assert_int_eq(EXPECT(list(one, ""), STORE_DONE)->listed_count, 0);
    close_window();
    take(two, "L", 'c');
    take(one, "M", 'c');
}
END_TEST

START_TEST(H7_an_older_lease_cannot_pass_a_tombstone_and_a_newer_one_can)
{
    struct asked *older = take(one, "L", 'a'), *middle, *newer;

    EXPECT(release(one, "L", 'a'), STORE_DONE);
    middle = take(one, "L", 'b');
    EXPECT(release(one, "L", 'b'), STORE_DONE);
    newer = take(two, "L", 'c');
    lose_everything();
    EXPECT(release_known(one, middle), STORE_DONE);
    EXPECT(renew_known(one, older, TTL_MS), STORE_LOST);
    EXPECT(release_known(one, older), STORE_LOST);
    EXPECT(renew_known(two, newer, TTL_MS), STORE_DONE);
    EXPECT(release_known(one, middle), STORE_LOST); /* and is not buried by the older one */
    close_window();
    EXPECT(check(one, "L", newer->call.ret_token), STORE_DONE);
}
END_TEST

START_TEST(P8_tombstones_are_gone_when_the_window_has_ended)
{
    fresh_with_window(600, 1);
    RUN_UNTIL(one->closed, 10000);
    {
        struct asked *a = take(one, "L", 'a');

        redis_server_ok(&redis, "FLUSHALL");
        EXPECT(release_known(one, a), STORE_DONE);
    }
    ck_assert_int_gt(lock_pttl("L"), 0); /* never without an end (C09) */
    RUN_UNTIL(one->closed == 2, 10000);
    RUN_UNTIL(strcmp(keys_left(), "fence incarnation node") == 0, 20000);
}
END_TEST

START_TEST(H14_check_in_the_window_says_what_may_yet_come)
{
    struct asked *a = take(one, "L", 'a');

    hold_window_open();
    EXPECT(check(two, "L", a->call.ret_token), STORE_DONE);
    EXPECT(check(two, "L", a->call.ret_token + 1), STORE_RECOVERING);
    EXPECT(check(two, "L", a->call.ret_token - 1), STORE_LOST); /* a greater one is there: over in any case */
    EXPECT(check(two, "absent", 5), STORE_RECOVERING);
    EXPECT(release_known(one, a), STORE_DONE);
    EXPECT(check(two, "L", a->call.ret_token), STORE_LOST); /* a tombstone */
    EXPECT(check(two, "L", a->call.ret_token + 1), STORE_RECOVERING);
}
END_TEST

START_TEST(H14_break_in_the_window_ends_what_is_there_and_never_says_that_nothing_is)
{
    struct asked *a = take(one, "L", 'a'), *b;

    hold_window_open();
    b = EXPECT(break_lock(two, "L"), STORE_DONE);
    ck_assert_int_eq(b->call.holder.token, a->call.ret_token);
    ck_assert(node_took(one, 'b', 'a', "L"));
    EXPECT(renew_known(one, a, TTL_MS), STORE_LOST);
    EXPECT(break_lock(two, "L"), STORE_RECOVERING);
    EXPECT(break_lock(two, "absent"), STORE_RECOVERING);
}
END_TEST

START_TEST(H14_inspect_and_list_say_that_they_may_be_incomplete)
{
    struct asked *a = take(one, "L", 'a'), *i;

    hold_window_open();
    i = EXPECT(inspect(two, "L", '\0'), STORE_DONE);
    ck_assert(i->call.ret_recovering);
    ck_assert_int_eq(i->call.holder.token, a->call.ret_token);
    i = EXPECT(inspect(two, "absent", '\0'), STORE_DONE);
    ck_assert(i->call.ret_recovering);
    i = EXPECT(list(two, ""), STORE_DONE);
    ck_assert(i->call.ret_recovering);
    ck_assert_int_eq(i->listed_count, 1);
    close_window();
    ck_assert(!EXPECT(inspect(two, "L", '\0'), STORE_DONE)->call.ret_recovering);
    ck_assert(!EXPECT(list(two, ""), STORE_DONE)->call.ret_recovering);
}
END_TEST

START_TEST(P8_cancel_works_in_the_window)
{
    struct asked *a = take(one, "L", 'a'), *c;

    hold_window_open();
    EXPECT(queue_up(one, "L", 'b'), STORE_RECOVERING);
    EXPECT(queue_up(two, "L", 'c'), STORE_RECOVERING);
    EXPECT(leave(one, "L", 'b'), STORE_DONE);
    c = EXPECT(cancel(one, a), STORE_DONE);
    ck_assert(c->call.ret_undone);
    ck_assert_str_eq(c->call.ret_woken.text, ""); /* nobody can be granted yet */
    ck_assert_int_eq(c->call.ret_waiters, 1);
    close_window();
    EXPECT(queue_up(two, "L", 'c'), STORE_DONE);
}
END_TEST

START_TEST(C40_a_release_in_the_window_waits_for_nobody_and_wakes_nobody)
{
    struct asked *a = take(one, "L", 'a'), *r;

    EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    EXPECT(queue_up(two, "L", 'c'), STORE_HELD);
    hold_window_open();
    r = EXPECT(release_known(one, a), STORE_DONE);
    ck_assert_str_eq(r->call.ret_woken.text, "");
    ck_assert(node_heard_nothing(two));
    close_window();
    EXPECT(queue_up(two, "L", 'c'), STORE_TURN);
    EXPECT(queue_up(one, "L", 'b'), STORE_DONE);
}
END_TEST

/* ---- put back ---- */

START_TEST(P3_a_lease_is_put_back_whole_and_holds_again)
{
    struct asked *a = ask(one, STORE_ACQUIRE, "L", 'a'), *i;

    a->call.owner = "the  owner 7";
    a->call.owner_len = 12;
    EXPECT(submit(a), STORE_DONE);
    lose_everything();
    EXPECT(put_back(one, a, 20000), STORE_DONE);
    ck_assert(lock_pttl("L") <= 20000 && lock_pttl("L") > 10000);
    close_window();
    i = EXPECT(acquire(two, "L", 'b'), STORE_HELD);
    ck_assert_int_eq(i->call.holder.token, a->call.ret_token);
    ck_assert_str_eq(i->call.holder.owner, "the  owner 7");
    ck_assert_int_eq(EXPECT(renew(one, "L", 'a', TTL_MS), STORE_DONE)->call.ret_granted_ms, a->call.ret_granted_ms);
    EXPECT(release(two, "L", 'a'), STORE_DONE);
    ck_assert(node_took(one, 'f', 'a', "L")); /* it is the matter of the node that put it back */
    ck_assert_str_eq(keys_left(), "fence incarnation node node");
}
END_TEST

START_TEST(H15_put_back_in_either_order_the_greater_token_stays)
{
    for (int order = 0; order < 2; order++) {
        struct asked *older = take(one, "L", 'a'), *newer;

        EXPECT(release(one, "L", 'a'), STORE_DONE);
        newer = take(two, "L", 'b');
        lose_everything();
        if (order == 0)
            EXPECT(put_back(one, older, TTL_MS), STORE_DONE);
        EXPECT(put_back(two, newer, TTL_MS), STORE_DONE);
        EXPECT(put_back(one, older, TTL_MS), STORE_LOST);
        EXPECT(check(one, "L", newer->call.ret_token), STORE_DONE);
        EXPECT(release_known(two, newer), STORE_DONE);
        EXPECT(put_back(one, older, TTL_MS), STORE_LOST); /* nor over the tombstone */
        EXPECT(put_back(two, newer, TTL_MS), STORE_LOST);
        close_window();
    }
}
END_TEST

START_TEST(H15_put_back_of_the_same_lease_only_ever_lengthens_it)
{
    struct asked *a = take(one, "L", 'a');

    hold_window_open();
    EXPECT(put_back(one, a, 5000), STORE_DONE);
    ck_assert_int_gt(lock_pttl("L"), 20000);
    EXPECT(put_back(one, a, 90000), STORE_DONE);
    ck_assert_int_gt(lock_pttl("L"), 80000);
}
END_TEST

START_TEST(H15_put_back_replaces_a_stale_token_of_the_same_lease_id)
{
    struct asked *stale = take(one, "L", 'a'), *newer;

    EXPECT(release(one, "L", 'a'), STORE_DONE);
    newer = take(one, "L", 'a');
    lose_everything();
    EXPECT(put_back(two, stale, TTL_MS), STORE_DONE);
    EXPECT(put_back(one, newer, TTL_MS), STORE_DONE);
    EXPECT(check(two, "L", newer->call.ret_token), STORE_DONE);
    EXPECT(put_back(two, stale, TTL_MS), STORE_LOST);
}
END_TEST

START_TEST(H15_a_lease_that_is_over_is_not_put_back)
{
    struct asked *a = take(one, "L", 'a');

    lose_everything();
    EXPECT(put_back(one, a, 0), STORE_LOST);
    EXPECT(put_back(one, a, -5), STORE_LOST);
    ck_assert_int_eq(lock_pttl("L"), -2);
}
END_TEST

START_TEST(H15_put_back_lifts_the_fence)
{
    struct asked far = *take(one, "L", 'a');

    lose_everything();
    far.call.ret_token = stored_fence() + 5000;
    EXPECT(put_back(one, &far, TTL_MS), STORE_DONE);
    ck_assert_int_ge(stored_fence(), far.call.ret_token);
    ck_assert_int_ge(node_fence(one), far.call.ret_token);
}
END_TEST

START_TEST(H15_what_was_put_back_once_is_put_back_again_after_a_second_loss)
{
    struct asked *a = take(one, "L", 'a');

    for (int i = 0; i < 2; i++) {
        lose_everything();
        EXPECT(put_back(one, a, TTL_MS), STORE_DONE);
    }
    close_window();
    EXPECT(acquire(two, "L", 'b'), STORE_HELD);
}
END_TEST

START_TEST(P1_put_back_after_the_window_only_asks)
{
    struct asked *gone = take(one, "L", 'a'), *there;

    EXPECT(release(one, "L", 'a'), STORE_DONE);
    there = take(one, "M", 'a');
    EXPECT(put_back(one, gone, TTL_MS), STORE_LOST);
    ck_assert_int_eq(lock_pttl("L"), -2);
    EXPECT(put_back(one, there, 90000), STORE_DONE);
    ck_assert_int_le(lock_pttl("M"), TTL_MS);
    take(two, "L", 'b');
    EXPECT(put_back(one, gone, TTL_MS), STORE_LOST);
    EXPECT(renew(two, "L", 'b', TTL_MS), STORE_DONE);
}
END_TEST

/* Its client turns out not to have got the answer, while the lease is being put back or after. */
START_TEST(P8_an_undo_finds_the_grant_that_was_put_back)
{
    struct asked *a = take(one, "L", 'a'), *c;

    lose_everything();
    EXPECT(put_back(one, a, TTL_MS), STORE_DONE);
    ck_assert_int_gt(EXPECT(inspect(one, "L", '\0'), STORE_DONE)->call.holder.token, 0);
    c = EXPECT(cancel(one, a), STORE_DONE);
    ck_assert(c->call.ret_undone);
    close_window();
    take(two, "L", 'b');
}
END_TEST

/* What a repeat or a renewal was told is put back under their number: the undo of the first call does not hit it. */
START_TEST(P1_H1_an_undo_does_not_hit_what_others_were_told_and_was_put_back)
{
    for (int how = 0; how < 2; how++) {
        struct asked *a = take(one, "L", 'a'), *later;

        later = how ? renew(one, "L", 'a', TTL_MS) : acquire(one, "L", 'a');
        lose_everything();
        EXPECT(put_back(one, later, TTL_MS), STORE_DONE);
        ck_assert(!EXPECT(cancel(one, a), STORE_DONE)->call.ret_undone);
        EXPECT(check(one, "L", a->call.ret_token), STORE_DONE);
        close_window();
        EXPECT(release(one, "L", 'a'), STORE_DONE);
    }
}
END_TEST

/* An older copy shows the lease as it was before a repeat, by this node or the other, was told that it holds. */
START_TEST(P1_H1_a_put_back_takes_an_older_copy_of_the_lease_away_from_its_undo)
{
    for (int how = 0; how < 2; how++) {
        struct node *repeating = how ? two : one;
        struct asked *a = take(one, "L", 'a'), *again;

        redis_server_ok(&redis, "SAVE");
        again = EXPECT(acquire(repeating, "L", 'a'), STORE_REPEATED);
        restart();
        hold_window_open();
        EXPECT(put_back(repeating, again, TTL_MS), STORE_DONE);
        ck_assert(!EXPECT(cancel(one, a), STORE_DONE)->call.ret_undone);
        EXPECT(check(one, "L", a->call.ret_token), STORE_DONE);
        close_window();
        EXPECT(release(one, "L", 'a'), STORE_DONE);
    }
}
END_TEST

/* The same, and the undo comes first. Lesser tokens stay out all the same. */
START_TEST(P1_H1_an_undo_in_the_window_leaves_the_lease_to_another_node_that_vouches_for_it)
{
    struct asked *older = take(two, "L", 'b'), *a, *again;

    EXPECT(release(two, "L", 'b'), STORE_DONE);
    a = take(one, "L", 'a');
    redis_server_ok(&redis, "SAVE");
    again = EXPECT(acquire(two, "L", 'a'), STORE_REPEATED);
    restart();
    hold_window_open();
    ck_assert(EXPECT(cancel(one, a), STORE_DONE)->call.ret_undone);
    EXPECT(put_back(one, older, TTL_MS), STORE_LOST);
    EXPECT(put_back(two, again, TTL_MS), STORE_DONE);
    close_window();
    EXPECT(acquire(one, "L", 'c'), STORE_HELD);
    EXPECT(check(one, "L", a->call.ret_token), STORE_DONE);
}
END_TEST

/* Only attaching has to be in time, not the last of many put-backs. */
START_TEST(P3_each_put_back_keeps_the_window_open_for_three_ticks_but_not_for_ever)
{
    static const struct {
        const char *left, *used, *after;
    } rows[] = {
        {"1", "3", "3 "}, {"4", "3", "4 "}, {"1", "24", "1 "}, /* four times its length are over */
    };
    struct asked *a = take(one, "L", 'a');

    lose_everything();
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char value[64];

        snprintf(value, sizeof(value), "%s %" PRId64 " %s 3600000", rows[i].left, redis_clock_us() / 1000, rows[i].used);
        redis_server_ok(&redis, "SET %s{0}:recovery %s", PREFIX, value);
        redis_server_ok(&redis, "DEL %s", key("lock", "L"));
        EXPECT(put_back(one, a, TTL_MS), STORE_DONE);
        ck_assert_msg(strncmp(redis_server_text(&redis, "GET %s{0}:recovery", PREFIX), rows[i].after, 2) == 0, "row %zu: %s", i,
                      redis_server_text(&redis, "GET %s{0}:recovery", PREFIX));
    }
}
END_TEST

/* ---- after it closed ---- */

START_TEST(H5_a_repeated_acquire_of_a_lease_from_before_this_life_gets_a_new_token)
{
    struct asked *a = take(one, "L", 'a'), *again;

    redis_server_ok(&redis, "SAVE");
    restart();
    close_window();
    again = EXPECT(acquire(two, "L", 'a'), STORE_REPEATED);
    ck_assert_int_gt(again->call.ret_token, base_of_life());
    ck_assert_int_eq(again->call.ret_granted_ms, a->call.ret_granted_ms);
    ck_assert_str_eq(again->call.holder.owner, "owner a");
    ck_assert(node_forgot(one, 'a', "L", a->call.ret_confirm)); /* else the older node could put it back after a release (H7) */
    EXPECT(check(one, "L", a->call.ret_token), STORE_LOST);
    EXPECT(check(one, "L", again->call.ret_token), STORE_DONE);
    ck_assert(!EXPECT(cancel(two, again), STORE_DONE)->call.ret_undone); /* the holder was told before, by the first call (P1) */
    ck_assert_int_eq(EXPECT(acquire(one, "L", 'a'), STORE_REPEATED)->call.ret_token, again->call.ret_token);
}
END_TEST

/* The same call run again is no repeat: nobody was told, so it stays undoable. Its token is of the new life all the same. */
START_TEST(P7_H5_a_call_that_is_run_again_in_a_later_life_has_a_new_token_and_can_be_undone)
{
    struct asked *a = take(one, "L", 'a'), *again;

    redis_server_ok(&redis, "SAVE");
    restart();
    close_window();
    again = ask(one, STORE_ACQUIRE, "L", 'a');
    again->call.confirm = a->call.confirm;
    EXPECT(submit(again), STORE_DONE);
    ck_assert_int_gt(again->call.ret_token, base_of_life());
    EXPECT(check(one, "L", again->call.ret_token), STORE_DONE);
    ck_assert(EXPECT(cancel(one, again), STORE_DONE)->call.ret_undone);
    ck_assert_int_eq(lock_pttl("L"), -2);
}
END_TEST

START_TEST(P3_a_lease_that_was_put_back_and_is_repeated_keeps_its_holder)
{
    struct asked *a = take(one, "L", 'a');

    lose_everything();
    EXPECT(renew_known(one, a, TTL_MS), STORE_DONE);
    close_window();
    EXPECT(acquire(two, "L", 'b'), STORE_HELD);
    EXPECT(acquire(one, "L", 'a'), STORE_REPEATED);
    EXPECT(acquire(two, "L", 'b'), STORE_HELD);
    EXPECT(renew(one, "L", 'a', TTL_MS), STORE_DONE);
}
END_TEST

START_TEST(H11_waiters_of_an_earlier_life_hold_nobody_up_and_those_who_came_back_keep_their_order)
{
    struct asked *b, *c, *again;

    take(one, "L", 'a');
    EXPECT(queue_up(one, "L", 'd'), STORE_HELD); /* will be gone, its node lives */
    b = EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    c = EXPECT(queue_up(two, "L", 'c'), STORE_HELD);
    redis_server_ok(&redis, "SAVE");
    restart();
    hold_window_open();
    again = ask(two, STORE_ACQUIRE, "L", 'c');
    again->call.queue = true;
    again->call.confirm = c->call.confirm;
    again->call.ticket = c->call.ret_ticket;
    ck_assert_int_eq(EXPECT(submit(again), STORE_RECOVERING)->call.ret_ticket, c->call.ret_ticket);
    again = ask(one, STORE_ACQUIRE, "L", 'b');
    again->call.queue = true;
    again->call.confirm = b->call.confirm;
    again->call.ticket = b->call.ret_ticket;
    ck_assert_int_eq(EXPECT(submit(again), STORE_RECOVERING)->call.ret_ticket, b->call.ret_ticket);
    close_window();
    redis_server_ok(&redis, "DEL %s", key("lock", "L"));
    EXPECT(queue_up(two, "L", 'c'), STORE_TURN);
    EXPECT(queue_up(one, "L", 'b'), STORE_DONE);
    EXPECT(release(one, "L", 'b'), STORE_DONE);
    EXPECT(queue_up(two, "L", 'c'), STORE_DONE);
    EXPECT(release(two, "L", 'c'), STORE_DONE);
    ck_assert_str_eq(keys_left(), "fence incarnation node node");
}
END_TEST

START_TEST(H11_waiters_of_a_lost_queue_come_back_in_their_order)
{
    struct asked *b, *c, *again;

    take(one, "L", 'a');
    b = EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    c = EXPECT(queue_up(two, "L", 'c'), STORE_HELD);
    lose_everything();
    EXPECT(queue_up(one, "L", 'e'), STORE_RECOVERING); /* a newcomer is first to come back */
    again = ask(two, STORE_ACQUIRE, "L", 'c');
    again->call.queue = true;
    again->call.ticket = c->call.ret_ticket;
    EXPECT(submit(again), STORE_RECOVERING);
    again = ask(one, STORE_ACQUIRE, "L", 'b');
    again->call.queue = true;
    again->call.ticket = b->call.ret_ticket;
    EXPECT(submit(again), STORE_RECOVERING);
    close_window();
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_position, 1);
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'c'), STORE_DONE)->call.ret_position, 2);
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'e'), STORE_DONE)->call.ret_position, 3);
}
END_TEST

START_TEST(P3_the_window_that_ends_is_told_once_and_then_grants_are_made)
{
    lose_everything();
    RUN_UNTIL(node_sees_window(one) && node_sees_window(two), 10000);
    one->closed = two->closed = 0;
    close_window();
    RUN_UNTIL(one->closed && two->closed, 10000);
    take(one, "L", 'a');
    EXPECT(inspect(two, "L", '\0'), STORE_DONE);
    ck_assert(one->closed == 1 && two->closed == 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store_life");
    TCase *lives = tcase_create("lives"), *ticks = tcase_create("ticks"), *open = tcase_create("open"), *back = tcase_create("put_back"),
          *after = tcase_create("after");
    TCase *const all[] = {lives, ticks, open, back, after};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        tcase_add_unchecked_fixture(all[i], rig_make_folder, rig_remove_folder);
        tcase_add_checked_fixture(all[i], start, rig_stop);
        suite_add_tcase(suite, all[i]);
    }
    tcase_add_test(lives, P2_the_first_life_begins_at_the_clock);
    tcase_add_test(lives, P2_C10_tokens_rise_through_flushall);
    tcase_add_test(lives, P2_C10_tokens_rise_through_a_restart_without_data);
    tcase_add_test(lives, P2_P3_a_restart_with_all_data_is_a_new_life_that_keeps_the_leases);
    tcase_add_test(lives, P2_P3_C10_tokens_rise_and_leases_return_after_a_stale_copy_took_over);
    tcase_add_test(lives, H9_a_new_life_begins_above_all_that_was_seen_when_the_clock_is_behind);
    tcase_add_test(lives, H9_a_node_that_joins_a_life_it_does_not_know_lifts_the_fence);
    tcase_add_test(lives, H2_a_master_that_was_demoted_and_promoted_again_is_another_life);
    tcase_add_test(lives, H3_data_rolled_back_under_a_running_server_is_another_life);
    tcase_add_test(lives, P2_a_lost_connection_alone_is_no_new_life);
    tcase_add_test(lives, H3_a_lost_fence_or_incarnation_is_a_new_life);
    tcase_add_test(lives, H3_a_damaged_incarnation_is_a_new_life);
    tcase_add_test(lives, H17_a_node_without_a_window_opens_no_life_among_others);
    tcase_add_test(lives, H17_a_lone_node_without_a_window_grants_at_once);
    tcase_add_test(lives, H17_a_node_with_a_longer_window_extends_the_one_it_finds_open);
    tcase_add_test(ticks, P3_the_window_closes_by_itself_after_its_time_and_says_so);
    tcase_add_test(ticks, H8_a_server_that_stalls_does_not_lose_its_window_meanwhile);
    tcase_add_test(ticks, H8_a_clock_that_went_back_costs_one_tick_and_hangs_nothing);
    tcase_add_test(ticks, H8_a_clock_that_went_ahead_costs_one_tick);
    tcase_add_test(ticks, H8_attaching_again_and_again_does_not_lapse_the_window);
    tcase_add_test(ticks, P3_a_node_that_joins_sees_the_open_window);
    tcase_add_test(open, P3_H5_nothing_is_granted_while_leases_may_return);
    tcase_add_test(open, P9_a_full_queue_is_full_in_the_window_too);
    tcase_add_test(open, H6_only_a_lease_of_ones_own_table_is_renewed_in_the_window);
    tcase_add_test(open, P3_a_renewal_puts_back_a_lease_that_the_table_vouches_for);
    tcase_add_test(open, P1_P3_what_was_not_put_back_in_time_is_lost);
    tcase_add_test(open, H15_of_two_leases_put_back_the_greater_token_stays_in_either_order);
    tcase_add_test(open, H15_a_stale_token_of_the_same_lease_id_gives_way_to_the_one_handed_out);
    tcase_add_test(open, H15_a_put_back_lifts_the_fence_to_its_token);
    tcase_add_test(open, H7_what_is_released_in_the_window_does_not_come_back);
    tcase_add_test(open, H7_an_older_lease_cannot_pass_a_tombstone_and_a_newer_one_can);
    tcase_add_test(open, P8_tombstones_are_gone_when_the_window_has_ended);
    tcase_add_test(open, H14_check_in_the_window_says_what_may_yet_come);
    tcase_add_test(open, H14_break_in_the_window_ends_what_is_there_and_never_says_that_nothing_is);
    tcase_add_test(open, H14_inspect_and_list_say_that_they_may_be_incomplete);
    tcase_add_test(open, P8_cancel_works_in_the_window);
    tcase_add_test(open, C40_a_release_in_the_window_waits_for_nobody_and_wakes_nobody);
    tcase_add_test(back, P3_a_lease_is_put_back_whole_and_holds_again);
    tcase_add_test(back, H15_put_back_in_either_order_the_greater_token_stays);
    tcase_add_test(back, H15_put_back_of_the_same_lease_only_ever_lengthens_it);
    tcase_add_test(back, H15_put_back_replaces_a_stale_token_of_the_same_lease_id);
    tcase_add_test(back, H15_a_lease_that_is_over_is_not_put_back);
    tcase_add_test(back, H15_put_back_lifts_the_fence);
    tcase_add_test(back, H15_what_was_put_back_once_is_put_back_again_after_a_second_loss);
    tcase_add_test(back, P1_put_back_after_the_window_only_asks);
    tcase_add_test(back, P8_an_undo_finds_the_grant_that_was_put_back);
    tcase_add_test(back, P1_H1_an_undo_does_not_hit_what_others_were_told_and_was_put_back);
    tcase_add_test(back, P1_H1_a_put_back_takes_an_older_copy_of_the_lease_away_from_its_undo);
    tcase_add_test(back, P1_H1_an_undo_in_the_window_leaves_the_lease_to_another_node_that_vouches_for_it);
    tcase_add_test(back, P3_each_put_back_keeps_the_window_open_for_three_ticks_but_not_for_ever);
    tcase_add_test(after, H5_a_repeated_acquire_of_a_lease_from_before_this_life_gets_a_new_token);
    tcase_add_test(after, P7_H5_a_call_that_is_run_again_in_a_later_life_has_a_new_token_and_can_be_undone);
    tcase_add_test(after, P3_a_lease_that_was_put_back_and_is_repeated_keeps_its_holder);
    tcase_add_test(after, H11_waiters_of_an_earlier_life_hold_nobody_up_and_those_who_came_back_keep_their_order);
    tcase_add_test(after, H11_waiters_of_a_lost_queue_come_back_in_their_order);
    tcase_add_test(after, P3_the_window_that_ends_is_told_once_and_then_grants_are_made);
    return check_main(suite);
}
