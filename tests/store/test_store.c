/* The contract of daemon/store.h in fair weather, on a real Redis: what each call answers, who is told what, what stays behind; at the end thousands of
 * random calls through two nodes against a model that fits on a page. Losses and recovery: test_store_life.c; faults: test_store_faults.c. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/dice.h"
#include "tests/store/rig.h"

static struct node *one, *two; /* nodes */

static void start(void)
{
    rig_start();
    one = rig_ready_node();
    two = rig_ready_node();
}

/* ---- acquire ---- */

START_TEST(P1_a_lock_has_one_holder_and_tells_who_it_is)
{
    struct asked *a = take(one, "L", 'a'), *b;

    b = EXPECT(acquire(two, "L", 'b'), STORE_HELD);
    ck_assert_int_eq(b->call.holder.token, a->call.ret_token);
    ck_assert_str_eq(b->call.holder.owner, "owner a");
    ck_assert_int_gt(b->call.holder.ttl_ms, TTL_MS - 5000);
    ck_assert_int_le(b->call.holder.ttl_ms, TTL_MS);
    ck_assert_int_ge(b->call.holder.held_ms, 0);
    ck_assert_int_lt(b->call.holder.held_ms, 5000);
    ck_assert_int_eq(b->call.ret_ticket, 0);
    ck_assert_int_eq(b->call.ret_waiters, 0);
    take(two, "M", 'b'); /* other locks are other locks */
}
END_TEST

START_TEST(P5_a_lease_lasts_at_least_as_long_as_its_answer_says)
{
    struct asked *a = take(one, "L", 'a');
    int64_t asked_us = now_us(), left_ms = lock_pttl("L");

    ck_assert_int_eq(a->call.ret_ttl_ms, TTL_MS);
    ck_assert_int_ge(a->call.sent_us, a->submitted_us);
    ck_assert_int_le(a->call.sent_us, a->answered_us);
    ck_assert_int_le(a->call.sent_us + a->call.ret_ttl_ms * 1000, asked_us + (left_ms + 1) * 1000 + (now_us() - asked_us));
    a = EXPECT(renew(one, "L", 'a', 7000), STORE_DONE);
    asked_us = now_us();
    left_ms = lock_pttl("L");
    ck_assert_int_eq(a->call.ret_ttl_ms, 7000);
    ck_assert_int_le(a->call.sent_us + a->call.ret_ttl_ms * 1000, asked_us + (left_ms + 1) * 1000 + (now_us() - asked_us));
}
END_TEST

START_TEST(P7_C05_a_repeated_acquire_finds_its_own_lease)
{
    struct asked *a = take(one, "L", 'a'), *again;

    for (int i = 0; i < 2; i++) {
        again = EXPECT(acquire(i ? two : one, "L", 'a'), STORE_REPEATED);
        ck_assert_int_eq(again->call.ret_token, a->call.ret_token);
        ck_assert_int_eq(again->call.ret_granted_ms, a->call.ret_granted_ms);
        ck_assert_int_eq(again->call.ret_ttl_ms, TTL_MS);
    }
    EXPECT(acquire(one, "L", 'b'), STORE_HELD); /* with another id it is refused */
}
END_TEST

START_TEST(P7_a_repeated_acquire_gets_the_longer_of_the_ttl_asked_and_left)
{
    struct asked *again;

    take(one, "L", 'a');
    again = ask(one, STORE_ACQUIRE, "L", 'a');
    again->call.ttl_ms = 1000;
    EXPECT(submit(again), STORE_REPEATED);
    ck_assert_int_gt(again->call.ret_ttl_ms, 20000);
    ck_assert_int_le(again->call.ret_ttl_ms, TTL_MS);
    ck_assert_int_gt(lock_pttl("L"), 20000);
    again = ask(one, STORE_ACQUIRE, "L", 'a');
    again->call.ttl_ms = 90000;
    EXPECT(submit(again), STORE_REPEATED);
    ck_assert_int_eq(again->call.ret_ttl_ms, 90000);
    ck_assert_int_gt(lock_pttl("L"), 80000);
}
END_TEST

START_TEST(P7_a_repeated_acquire_keeps_the_owner_that_was_granted)
{
    struct asked *again = ask(two, STORE_ACQUIRE, "L", 'a');

    take(one, "L", 'a');
    again->call.owner = "impostor";
    again->call.owner_len = 8;
    EXPECT(submit(again), STORE_REPEATED);
    ck_assert_str_eq(again->call.holder.owner, "owner a");
}
END_TEST

START_TEST(C47_an_owner_is_a_label_and_any_bytes)
{
    static const char *const owners[] = {"", " ", "1 2 3", "released 5", "\xc3\xa4 \xe2\x82\xac", "line\nbreak", "%s%n{0}"};
    char longest[PAWL_OWNER_MAX + 1];
    struct asked *a, *b;

    memset(longest, 'o', PAWL_OWNER_MAX);
    longest[PAWL_OWNER_MAX] = '\0';
    for (size_t i = 0; i <= sizeof(owners) / sizeof(owners[0]); i++) {
        const char *owner = i < sizeof(owners) / sizeof(owners[0]) ? owners[i] : longest;
        char name[8];

        snprintf(name, sizeof(name), "L%zu", i);
        a = ask(one, STORE_ACQUIRE, name, 'a');
        a->call.owner = owner;
        a->call.owner_len = strlen(owner);
        EXPECT(submit(a), STORE_DONE);
        ck_assert_str_eq(a->call.holder.owner, owner);
        ck_assert_uint_eq(a->call.holder.owner_len, strlen(owner));
        b = EXPECT(acquire(two, name, 'b'), STORE_HELD);
        ck_assert_str_eq(b->call.holder.owner, owner);
        a = EXPECT(renew(two, name, 'a', TTL_MS), STORE_DONE);
        ck_assert_str_eq(a->call.holder.owner, owner);
    }
}
END_TEST

START_TEST(C42_long_names_and_those_like_pawls_own_keys_are_locks_of_their_own)
{
    static const char *const names[] = {"fence", "x", "x:fence", "x:queue", "queue:x", "node:1", "x/y", "x/", "{0}", "*", "[x]"};
    enum { COUNT = sizeof(names) / sizeof(names[0]) };
    char longest[PAWL_NAME_MAX + 1];
    int64_t tokens[COUNT + 2];

    memset(longest, 'n', PAWL_NAME_MAX);
    longest[PAWL_NAME_MAX] = '\0';
    for (size_t i = 0; i < COUNT; i++)
        tokens[i] = take(one, names[i], 'a')->call.ret_token;
    tokens[COUNT] = take(one, longest, 'a')->call.ret_token;
    tokens[COUNT + 1] = take(one, longest + 1, 'a')->call.ret_token;
    for (size_t i = 0; i < COUNT + 2; i++) {
        const char *name = i < COUNT ? names[i] : i == COUNT ? longest : longest + 1;
        EXPECT(check(two, name, tokens[i]), STORE_DONE);
        EXPECT(queue_up(two, name, 'b'), STORE_HELD);
    }
    for (size_t i = 0; i < COUNT + 2; i++) {
        const char *name = i < COUNT ? names[i] : i == COUNT ? longest : longest + 1;
        EXPECT(release(one, name, 'a'), STORE_DONE);
        ck_assert(node_took(two, 'w', 'b', name));
        EXPECT(queue_up(two, name, 'b'), STORE_DONE);
    }
}
END_TEST

START_TEST(C07_large_ttls_neither_wrap_nor_shrink)
{
    static const int64_t ttls[] = {1, INT64_C(2147483647), INT64_C(2147483648), INT64_C(4294967297), INT64_C(315360000000)};

    for (size_t i = 0; i < sizeof(ttls) / sizeof(ttls[0]); i++) {
        struct asked *a = ask(one, STORE_ACQUIRE, "L", 'a');
        int64_t left;

        a->call.ttl_ms = ttls[i];
        EXPECT(submit(a), STORE_DONE);
        ck_assert_int_eq(a->call.ret_ttl_ms, ttls[i]);
        if (ttls[i] == 1) {
            RUN_UNTIL(lock_pttl("L") == -2, 20000);
            continue;
        }
        left = lock_pttl("L");
        ck_assert(left <= ttls[i] && left > ttls[i] - 5000);
        EXPECT(renew(one, "L", 'a', ttls[i] - 1), STORE_DONE);
        left = lock_pttl("L");
        ck_assert(left < ttls[i] && left > ttls[i] - 5000);
        EXPECT(acquire(one, "L", 'a'), STORE_REPEATED);
        left = lock_pttl("L");
        ck_assert(left < ttls[i] && left > ttls[i] - 5000);
        EXPECT(release(one, "L", 'a'), STORE_DONE);
    }
}
END_TEST

/* ---- P2 in fair weather ---- */

START_TEST(P2_C10_tokens_rise_through_release_expiry_break_and_a_lost_script_cache)
{
    int64_t last = 0;
    struct asked *a;

    for (int i = 0; i < 12; i++) {
        struct node *node = i % 2 ? one : two;

        a = ask(node, STORE_ACQUIRE, "L", "abc"[i % 3]);
        a->call.ttl_ms = i % 4 == 1 ? 20 : TTL_MS;
        EXPECT(submit(a), STORE_DONE);
        ck_assert_int_gt(a->call.ret_token, last);
        ck_assert_int_le(a->call.ret_token, PAWL_TOKEN_MAX);
        last = a->call.ret_token;
        switch (i % 4) {
        case 0:
            EXPECT(release(node, "L", "abc"[i % 3]), STORE_DONE);
            break;
        case 1:
            RUN_UNTIL(lock_pttl("L") == -2, 20000);
            break;
        case 2:
            EXPECT(break_lock(two, "L"), STORE_DONE);
            break;
        default:
            redis_server_ok(&redis, "SCRIPT FLUSH");
            EXPECT(cancel(node, a), STORE_DONE);
            break;
        }
    }
    ck_assert_int_ge(node_fence(one), last - 1);
}
END_TEST

START_TEST(P2_tokens_order_grants_of_different_locks_as_well)
{
    int64_t first = take(one, "L", 'a')->call.ret_token;

    ck_assert_int_gt(take(two, "M", 'b')->call.ret_token, first);
}
END_TEST

/* ---- renew, release, check, break ---- */

START_TEST(P4_only_the_lease_id_renews_and_releases)
{
    struct asked *a = take(one, "L", 'a'), *r;
    int64_t left;

    EXPECT(renew(one, "L", 'b', 60000), STORE_LOST);
    EXPECT(renew(two, "M", 'a', 60000), STORE_LOST);
    EXPECT(release(two, "L", 'b'), STORE_LOST);
    EXPECT(release(two, "M", 'a'), STORE_LOST);
    left = lock_pttl("L");
    ck_assert(left > 0 && left <= TTL_MS);
    ck_assert_int_eq(lock_pttl("M"), -2);
    r = EXPECT(renew(one, "L", 'a', 60000), STORE_DONE);
    ck_assert_int_eq(r->call.ret_token, a->call.ret_token);
    ck_assert_int_eq(r->call.ret_ttl_ms, 60000);
    ck_assert_int_eq(r->call.ret_granted_ms, a->call.ret_granted_ms);
    ck_assert_int_gt(lock_pttl("L"), 50000);
    EXPECT(renew(one, "L", 'a', 5000), STORE_DONE); /* shorter, too */
    ck_assert_int_le(lock_pttl("L"), 5000);
    r = EXPECT(release(one, "L", 'a'), STORE_DONE);
    ck_assert_int_eq(r->call.ret_token, a->call.ret_token);
    EXPECT(release(one, "L", 'a'), STORE_LOST);
}
END_TEST

START_TEST(C41_a_renewal_never_makes_a_lease)
{
    struct asked *a = ask(one, STORE_ACQUIRE, "L", 'a'), *b;

    a->call.ttl_ms = 20;
    EXPECT(submit(a), STORE_DONE);
    RUN_UNTIL(lock_pttl("L") == -2, 20000);
    EXPECT(renew(one, "L", 'a', 5000), STORE_LOST);
    EXPECT(renew_known(one, a, 5000), STORE_LOST); /* the window is closed: the table can't bring it back */
    ck_assert_int_eq(lock_pttl("L"), -2);
    b = take(two, "L", 'b');
    EXPECT(renew_known(one, a, 90000), STORE_LOST);
    ck_assert_int_le(lock_pttl("L"), TTL_MS);
    EXPECT(check(one, "L", b->call.ret_token), STORE_DONE);
    EXPECT(renew(one, "never", 'a', 5000), STORE_LOST);
    ck_assert_int_eq(lock_pttl("never"), -2);
}
END_TEST

START_TEST(C40_a_late_release_does_not_free_the_next_holder)
{
    struct asked *a = take(one, "L", 'a'), *b;

    EXPECT(break_lock(one, "L"), STORE_DONE);
    b = take(two, "L", 'b');
    EXPECT(release(one, "L", 'a'), STORE_LOST);
    EXPECT(release_known(one, a), STORE_LOST);
    EXPECT(check(one, "L", b->call.ret_token), STORE_DONE);
}
END_TEST

START_TEST(P4_check_knows_the_holders_token_alone)
{
    struct asked *a = take(one, "L", 'a'), *c;

    c = EXPECT(check(two, "L", a->call.ret_token), STORE_DONE);
    ck_assert(c->call.ret_ttl_ms > 20000 && c->call.ret_ttl_ms <= TTL_MS);
    EXPECT(check(two, "L", a->call.ret_token - 1), STORE_LOST);
    EXPECT(check(two, "L", a->call.ret_token + 1), STORE_LOST);
    EXPECT(check(two, "M", a->call.ret_token), STORE_LOST);
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    EXPECT(check(two, "L", a->call.ret_token), STORE_LOST);
}
END_TEST

START_TEST(C38_break_ends_any_lease_and_tells_whose)
{
    struct asked *a = take(one, "L", 'a'), *b;

    b = EXPECT(break_lock(two, "L"), STORE_DONE);
    ck_assert_int_eq(b->call.holder.token, a->call.ret_token);
    ck_assert_str_eq(b->call.holder.owner, "owner a");
    ck_assert_int_gt(b->call.holder.ttl_ms, 20000);
    EXPECT(break_lock(two, "L"), STORE_LOST);
    EXPECT(renew(one, "L", 'a', TTL_MS), STORE_LOST);
    EXPECT(break_lock(one, "never"), STORE_LOST);
}
END_TEST

/* ---- inspect, list ---- */

START_TEST(P6_inspect_shows_holder_waiters_and_place)
{
    struct asked *a, *i;

    i = EXPECT(inspect(one, "L", '\0'), STORE_DONE);
    ck_assert_int_eq(i->call.holder.token, 0);
    ck_assert_int_eq(i->call.ret_waiters, 0);
    ck_assert(!i->call.ret_recovering);
    a = take(one, "L", 'a');
    EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    EXPECT(queue_up(two, "L", 'c'), STORE_HELD);
    i = EXPECT(inspect(two, "L", 'c'), STORE_DONE);
    ck_assert_int_eq(i->call.holder.token, a->call.ret_token);
    ck_assert_str_eq(i->call.holder.owner, "owner a");
    ck_assert_int_gt(i->call.holder.ttl_ms, 20000);
    ck_assert_int_eq(i->call.ret_waiters, 2);
    ck_assert_int_eq(i->call.ret_position, 2);
    ck_assert_int_eq(EXPECT(inspect(two, "L", 'b'), STORE_DONE)->call.ret_position, 1);
    ck_assert_int_eq(EXPECT(inspect(two, "L", 'd'), STORE_DONE)->call.ret_position, 0);
    ck_assert_int_eq(EXPECT(inspect(two, "L", '\0'), STORE_DONE)->call.ret_position, 0);
}
END_TEST

START_TEST(C46_list_shows_each_held_lock_once_whichever_node_holds_it)
{
    enum { LOCKS = 60 };
    char name[32], wanted[96];
    struct asked *l;
    int64_t tokens[LOCKS];
    int steps = 0;
    static char all[16384];

    for (int i = 0; i < LOCKS; i++) {
        snprintf(name, sizeof(name), "deploy/%02d", i);
        tokens[i] = take(i % 2 ? one : two, name, 'a')->call.ret_token;
    }
    take(one, "deployer", 'a');
    take(one, "other", 'a');
    EXPECT(queue_up(two, "deploy/07", 'b'), STORE_HELD);
    EXPECT(release(two, "deploy/00", 'a'), STORE_DONE);
    l = ask(two, STORE_LIST, "", '\0');
    l->call.look_at = 10;
    l->call.prefix = "deploy/";
    l->call.prefix_len = 7;
    all[0] = '\0';
    for (;;) {
        EXPECT(submit(l), STORE_DONE);
        ck_assert(!l->call.ret_recovering);
        snprintf(all + strlen(all), sizeof(all) - strlen(all), "%s", l->listed);
        if (strcmp(l->call.cursor, "0") == 0)
            break;
        steps++;
        l->answers = 0;
        l->listed[0] = '\0';
        l->call.deadline_us = 0;
    }
    for (int i = 1; i < LOCKS; i++) {
        snprintf(wanted, sizeof(wanted), "deploy/%02d:owner a:%" PRId64 ":%d ", i, tokens[i], i == 7);
        ck_assert_msg(strstr(all, wanted) != NULL, "%s is missing", wanted);
    }
    ck_assert_int_eq(l->listed_count, LOCKS - 1);
    ck_assert(steps >= 2 && steps < 20);
}
END_TEST

START_TEST(C42_list_takes_every_character_of_a_prefix_for_itself)
{
    take(one, "a.b", 'a');
    take(one, "axb", 'a');
    take(one, "a-b/~=+@,:", 'a');
    ck_assert_int_eq(EXPECT(list(one, ""), STORE_DONE)->listed_count, 3);
    ck_assert_int_eq(EXPECT(list(one, "a."), STORE_DONE)->listed_count, 1);
    ck_assert_int_eq(EXPECT(list(one, "a-b/~=+@,:"), STORE_DONE)->listed_count, 1);
    ck_assert_int_eq(EXPECT(list(one, "b"), STORE_DONE)->listed_count, 0);
}
END_TEST

/* ---- waiting ---- */

START_TEST(P6_waiters_are_granted_in_the_order_they_came_across_nodes)
{
    static const char order[] = "bcdef";
    int64_t last = 0;

    take(one, "L", 'a');
    for (const char *id = order; *id; id++) {
        struct asked *w = EXPECT(queue_up(*id % 2 ? one : two, "L", *id), STORE_HELD);
        ck_assert_int_gt(w->call.ret_ticket, last);
        ck_assert_int_eq(w->call.ret_waiters, id - order + 1);
        last = w->call.ret_ticket;
    }
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    for (const char *id = order; *id; id++) {
        for (const char *later = id + 1; *later; later++)
            EXPECT(queue_up(*later % 2 ? one : two, "L", *later), STORE_TURN); /* all try, as after a lost message */
        EXPECT(acquire(one, "L", '9'), STORE_TURN);                            /* and nobody barges past them */
        EXPECT(queue_up(*id % 2 ? one : two, "L", *id), STORE_DONE);
        EXPECT(release(two, "L", *id), STORE_DONE);
    }
    take(one, "L", '9');
}
END_TEST

START_TEST(P6_a_place_is_kept_when_asked_for_again)
{
    struct asked *b, *again;

    take(one, "L", 'a');
    b = EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    EXPECT(queue_up(one, "L", 'c'), STORE_HELD);
    again = EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    ck_assert_int_eq(again->call.ret_ticket, b->call.ret_ticket);
    ck_assert_int_eq(again->call.ret_waiters, 2);
    EXPECT(queue_up(two, "L", 'b'), STORE_HELD); /* the same lease id by way of another node: the same place */
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_position, 1);
}
END_TEST

START_TEST(P6_an_old_ticket_brings_back_the_old_place)
{
    struct asked *b, *again;

    take(one, "L", 'a');
    b = EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    EXPECT(queue_up(two, "L", 'c'), STORE_HELD);
    redis_server_ok(&redis, "ZREM %s %s", key("queue", "L"), b->call.lease_id.text);
    redis_server_ok(&redis, "HDEL %s %s", key("waiters", "L"), b->call.lease_id.text);
    again = ask(one, STORE_ACQUIRE, "L", 'b');
    again->call.queue = true;
    again->call.ticket = b->call.ret_ticket;
    EXPECT(submit(again), STORE_HELD);
    ck_assert_int_eq(again->call.ret_ticket, b->call.ret_ticket);
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_position, 1);
}
END_TEST

START_TEST(P6_P7_a_client_that_comes_back_within_seconds_finds_its_place)
{
    struct asked *b, *c, *back;

    take(one, "L", 'a');
    b = EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    EXPECT(queue_up(two, "L", 'd'), STORE_HELD);
    c = ask(one, STORE_CANCEL, "L", 'b'); /* its connection broke */
    c->call.queue = c->call.comes_back = true;
    ck_assert_int_eq(EXPECT(submit(c), STORE_DONE)->call.ret_waiters, 1);
    back = ask(two, STORE_ACQUIRE, "L", 'b');
    back->call.queue = back->call.comes_back = true;
    ck_assert_int_eq(EXPECT(submit(back), STORE_HELD)->call.ret_ticket, b->call.ret_ticket);
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_position, 1);
    EXPECT(leave(two, "L", 'b'), STORE_DONE); /* gone for good: a later one of this id stands last */
    ck_assert_int_gt(EXPECT(queue_up(two, "L", 'b'), STORE_HELD)->call.ret_ticket, b->call.ret_ticket);
    EXPECT(leave(two, "L", 'b'), STORE_DONE);
    EXPECT(leave(two, "L", 'd'), STORE_DONE);
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    RUN_UNTIL(strcmp(keys_left(), "fence incarnation node node") == 0, 20000); /* P8: what was remembered ends by itself */
}
END_TEST

START_TEST(P9_a_full_queue_says_so_and_keeps_those_in_it)
{
    struct asked *full = ask(one, STORE_ACQUIRE, "L", 'd'), *again = ask(one, STORE_ACQUIRE, "L", 'c');

    take(one, "L", 'a');
    EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    EXPECT(queue_up(two, "L", 'c'), STORE_HELD);
    full->call.queue = again->call.queue = true;
    full->call.max_waiters = again->call.max_waiters = 2;
    EXPECT(submit(full), STORE_FULL);
    EXPECT(submit(again), STORE_HELD);
    EXPECT(acquire(one, "L", 'd'), STORE_HELD); /* a try needs no place */
    ck_assert_int_eq(EXPECT(inspect(one, "L", '\0'), STORE_DONE)->call.ret_waiters, 2);
}
END_TEST

START_TEST(C06_a_release_names_the_waiter_of_its_own_node_and_sends_no_message)
{
    struct asked *r;

    take(one, "L", 'a');
    EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    r = EXPECT(release(one, "L", 'a'), STORE_DONE);
    ck_assert_str_eq(r->call.ret_woken.text, id_of('b').text);
    ck_assert(node_heard_nothing(one));
    ck_assert(node_heard_nothing(two));
}
END_TEST

START_TEST(C46_release_break_and_cancel_wake_the_first_waiter_on_another_node)
{
    struct asked *a, *r;

    for (int how = 0; how < 3; how++) {
        a = take(one, "L", 'a');
        EXPECT(queue_up(two, "L", 'b'), STORE_HELD);
        EXPECT(queue_up(one, "L", 'c'), STORE_HELD);
        r = how == 0 ? release(one, "L", 'a') : how == 1 ? break_lock(one, "L") : cancel(one, a);
        EXPECT(r, STORE_DONE);
        ck_assert_str_eq(r->call.ret_woken.text, "");
        ck_assert(node_took(two, 'w', 'b', "L"));
        ck_assert(node_heard_nothing(two) && node_heard_nothing(one));
        EXPECT(queue_up(two, "L", 'b'), STORE_DONE);
        EXPECT(release(two, "L", 'b'), STORE_DONE);
        ck_assert(node_took(one, 'w', 'c', "L"));
        EXPECT(leave(one, "L", 'c'), STORE_DONE);
    }
}
END_TEST

START_TEST(C06_a_turn_that_is_not_ones_own_wakes_the_waiter_whose_it_is)
{
    take(one, "L", 'a');
    EXPECT(queue_up(two, "L", 'b'), STORE_HELD);
    redis_server_ok(&redis, "DEL %s", key("lock", "L")); /* as when it expires: nobody is told */
    EXPECT(acquire(one, "L", 'c'), STORE_TURN);
    ck_assert(node_took(two, 'w', 'b', "L"));
}
END_TEST

START_TEST(P8_a_waiter_that_leaves_is_out_of_the_queue_and_the_next_is_woken)
{
    struct asked *c;

    take(one, "L", 'a');
    EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    EXPECT(queue_up(two, "L", 'c'), STORE_HELD);
    c = EXPECT(leave(two, "L", 'c'), STORE_DONE);
    ck_assert_int_eq(c->call.ret_waiters, 1);
    ck_assert(!c->call.ret_undone);
    ck_assert_str_eq(c->call.holder.owner, "owner a");
    EXPECT(queue_up(two, "L", 'd'), STORE_HELD);
    redis_server_ok(&redis, "DEL %s", key("lock", "L"));
    c = EXPECT(leave(one, "L", 'b'), STORE_DONE); /* the head of a free lock's queue: its turn passes on */
    ck_assert_int_eq(c->call.holder.token, 0);
    ck_assert(node_took(two, 'w', 'd', "L"));
    EXPECT(leave(one, "L", 'b'), STORE_DONE); /* again: nothing */
    ck_assert(node_heard_nothing(two));
    EXPECT(queue_up(two, "L", 'd'), STORE_DONE);
    EXPECT(release(two, "L", 'd'), STORE_DONE);
    ck_assert_str_eq(keys_left(), "fence incarnation node node");
}
END_TEST

START_TEST(P6_leaving_from_the_middle_wakes_nobody)
{
    take(one, "L", 'a');
    EXPECT(queue_up(two, "L", 'b'), STORE_HELD);
    EXPECT(queue_up(one, "L", 'c'), STORE_HELD);
    EXPECT(leave(one, "L", 'c'), STORE_DONE);
    ck_assert(node_heard_nothing(one) && node_heard_nothing(two));
    EXPECT(leave(two, "L", 'b'), STORE_DONE); /* the head, but the lock is held */
    ck_assert(node_heard_nothing(one) && node_heard_nothing(two));
}
END_TEST

START_TEST(P7_a_place_that_went_to_another_node_is_not_given_up_by_the_first)
{
    take(one, "L", 'a');
    EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    EXPECT(queue_up(two, "L", 'b'), STORE_HELD); /* the client tried again elsewhere */
    EXPECT(leave(one, "L", 'b'), STORE_DONE);
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_position, 1);
    EXPECT(leave(two, "L", 'b'), STORE_DONE);
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_position, 0);
}
END_TEST

/* Two requests under one lease id, a client that came back while its old connection lasts: whichever leaves first, the other keeps the place. */
START_TEST(P6_P7_a_place_is_given_up_with_the_last_of_its_requests)
{
    struct asked *b[2], *c;

    take(one, "L", 'a');
    for (int how = 0; how < 4; how++) { /* bit 0: the newer one leaves first; bit 1: both are at one node */
        struct node *node[2] = {one, how & 2 ? one : two};
        int first = how & 1, other = !first;

        b[0] = EXPECT(queue_up_anew(node[0], "L", 'b'), STORE_HELD);
        EXPECT(queue_up(two, "L", 'c'), STORE_HELD);
        b[1] = EXPECT(queue_up_anew(node[1], "L", 'b'), STORE_HELD);
        ck_assert_int_eq(b[1]->call.ret_ticket, b[0]->call.ret_ticket);
        ck_assert_int_eq(b[1]->call.ret_waiters, 2);
        c = EXPECT(cancel(node[first], b[first]), STORE_DONE);
        ck_assert_int_eq(c->call.ret_waiters, 2);
        EXPECT(cancel(node[first], b[first]), STORE_DONE); /* again: nothing */
        ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_position, 1);
        c = EXPECT(cancel(node[other], b[other]), STORE_DONE);
        ck_assert_int_eq(c->call.ret_waiters, 1);
        ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_position, 0);
        EXPECT(leave(two, "L", 'c'), STORE_DONE);
    }
    ck_assert(node_heard_nothing(one) && node_heard_nothing(two));
}
END_TEST

/* The cancel of a request that was over before it had a place, sent again and so arriving behind its successor's acquire. */
START_TEST(P6_a_cancel_that_comes_late_leaves_the_newer_requests_place)
{
    struct asked *old = ask(one, STORE_ACQUIRE, "L", 'b'), *newer;

    take(one, "L", 'a');
    old->call.queue = true;
    newer = EXPECT(queue_up_anew(one, "L", 'b'), STORE_HELD);
    EXPECT(cancel(one, old), STORE_DONE);
    EXPECT(cancel(two, old), STORE_DONE);
    EXPECT(cancel(two, newer), STORE_DONE); /* that number of another node is another request */
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_position, 1);
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    EXPECT(queue_up(one, "L", 'b'), STORE_DONE);
}
END_TEST

START_TEST(P6_the_oldest_of_more_than_four_requests_is_forgotten_and_no_other)
{
    struct asked *b[6];

    take(one, "L", 'a');
    for (int i = 0; i < 6; i++)
        b[i] = EXPECT(queue_up_anew(i % 2 ? one : two, "L", 'b'), STORE_HELD);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_position, 1);
        EXPECT(cancel(i % 2 ? one : two, b[i]), STORE_DONE);
    }
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_position, 0);
    ck_assert_int_eq(redis_server_int(&redis, "EXISTS %s", key("waiters", "L")), 0);
}
END_TEST

START_TEST(P7_all_who_wait_under_one_lease_id_are_told_and_no_one_is_granted_past_them)
{
    struct asked *b, *twin, *c;

    take(one, "L", 'a');
    EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    EXPECT(queue_up(two, "L", 'b'), STORE_HELD);
    EXPECT(queue_up(one, "L", 'c'), STORE_HELD);
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    ck_assert(node_took(two, 'w', 'b', "L")); /* the newer request is woken */
    b = EXPECT(queue_up(one, "L", 'b'), STORE_DONE);
    ck_assert(node_took(two, 'w', 'b', "L")); /* granted here: the other is to look */
    c = EXPECT(cancel(one, b), STORE_DONE);   /* nobody could be told: the place is still the twin's */
    ck_assert(c->call.ret_undone);
    ck_assert(node_took(two, 'w', 'b', "L"));
    EXPECT(queue_up(one, "L", 'c'), STORE_TURN);
    twin = EXPECT(queue_up(two, "L", 'b'), STORE_DONE);
    b = EXPECT(queue_up_anew(one, "L", 'b'), STORE_REPEATED);
    ck_assert_int_eq(b->call.ret_token, twin->call.ret_token);
    EXPECT(release(two, "L", 'b'), STORE_DONE);
    EXPECT(queue_up(one, "L", 'c'), STORE_DONE);
}
END_TEST

START_TEST(P6_C35_waiters_of_a_dead_node_hold_nobody_up)
{
    struct node *dead = rig_ready_node();
    char node_key[64];

    snprintf(node_key, sizeof(node_key), "%s{0}:node:%s", PREFIX, redis_store_node(dead->redis));
    take(one, "L", 'a');
    for (int i = 0; i < 150; i++) { /* more than one run of a script drops */
        struct asked *w = ask(dead, STORE_ACQUIRE, "L", 'd');
        snprintf(w->call.lease_id.text + 24, 13, "%012d", i);
        w->call.queue = true;
        EXPECT(submit(w), STORE_HELD);
    }
    EXPECT(queue_up(two, "L", 'b'), STORE_HELD);
    node_stop(dead);
    ck_assert_int_le(redis_server_int(&redis, "PTTL %s", node_key), 5000);
    redis_server_ok(&redis, "PEXPIRE %s 1", node_key); /* its heartbeat's time-out */
    RUN_UNTIL(redis_server_int(&redis, "EXISTS %s", node_key) == 0, 20000);
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    EXPECT(queue_up(one, "L", 'c'), STORE_TURN);
    EXPECT(queue_up(two, "L", 'b'), STORE_DONE);
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'c'), STORE_DONE)->call.ret_waiters, 1);
}
END_TEST

START_TEST(P6_a_dead_nodes_waiters_take_no_place_from_the_living)
{
    struct node *dead = rig_ready_node();
    struct asked *w = ask(two, STORE_ACQUIRE, "L", 'd');
    char node_key[64];

    snprintf(node_key, sizeof(node_key), "%s{0}:node:%s", PREFIX, redis_store_node(dead->redis));
    take(one, "L", 'a');
    EXPECT(queue_up(dead, "L", 'b'), STORE_HELD);
    EXPECT(queue_up(dead, "L", 'c'), STORE_HELD);
    node_stop(dead);
    redis_server_ok(&redis, "DEL %s", node_key); /* its heartbeat's time-out */
    w->call.queue = true;
    w->call.max_waiters = 2;
    w->call.sweep_from = 1; /* as a node that waits asks for now and then */
    EXPECT(submit(w), STORE_HELD);
    ck_assert_int_eq(w->call.ret_waiters, 1);
}
END_TEST

START_TEST(P6_a_sweep_takes_the_dead_from_the_middle_and_leaves_the_living)
{
    struct node *dead = rig_ready_node();
    struct asked *w = ask(one, STORE_ACQUIRE, "L", 'e');
    char node_key[64];

    snprintf(node_key, sizeof(node_key), "%s{0}:node:%s", PREFIX, redis_store_node(dead->redis));
    take(one, "L", 'a');
    EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    EXPECT(queue_up(dead, "L", 'c'), STORE_HELD);
    EXPECT(queue_up(two, "L", 'd'), STORE_HELD);
    EXPECT(queue_up(dead, "L", 'f'), STORE_HELD);
    node_stop(dead);
    redis_server_ok(&redis, "DEL %s", node_key);
    w->call.queue = true;
    w->call.sweep_from = 3; /* from the third place on */
    EXPECT(submit(w), STORE_HELD);
    ck_assert_int_eq(w->call.ret_waiters, 4);
    w = ask(one, STORE_ACQUIRE, "L", 'e');
    w->call.queue = true;
    w->call.sweep_from = 1;
    EXPECT(submit(w), STORE_HELD);
    ck_assert_int_eq(w->call.ret_waiters, 3);
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_position, 1);
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'd'), STORE_DONE)->call.ret_position, 2);
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'e'), STORE_DONE)->call.ret_position, 3);
}
END_TEST

START_TEST(P8_a_queue_ends_by_itself_when_none_of_its_nodes_looks_any_more)
{
    take(one, "L", 'a');
    EXPECT(queue_up(two, "L", 'b'), STORE_HELD);
    for (int i = 0; i < 2; i++) {
        const char *const keys[] = {key("queue", "L"), key("waiters", "L")};

        for (int k = 0; k < 2; k++) {
            int64_t left = redis_server_int(&redis, "PTTL %s", keys[k]);
            ck_assert_msg(left > 8000 && left <= 60000, "%s: %" PRId64, keys[k], left); /* many looks of a waiter's node long */
            redis_server_ok(&redis, "PEXPIRE %s 5000", keys[k]);
        }
        EXPECT(queue_up(two, "L", 'b'), STORE_HELD); /* a look keeps it up */
    }
}
END_TEST

START_TEST(C46_when_the_first_waiters_node_does_not_listen_the_next_is_woken_too)
{
    struct node *deaf = rig_ready_node();

    take(one, "L", 'a');
    EXPECT(queue_up(deaf, "L", 'b'), STORE_HELD);
    EXPECT(queue_up(two, "L", 'c'), STORE_HELD);
    node_stop(deaf); /* its key lives on for a while */
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    ck_assert(node_took(two, 'w', 'c', "L"));
    EXPECT(queue_up(two, "L", 'c'), STORE_TURN); /* until the heartbeat is over it is still the other's turn */
}
END_TEST

START_TEST(C36_a_release_costs_the_same_however_many_wait)
{
    static const int crowds[] = {2, 200};
    int64_t cost[2];

    for (int i = 0; i < 2; i++) {
        int64_t before;

        take(one, "L", 'a');
        for (int n = 0; n < crowds[i]; n++) {
            struct asked *w = ask(two, STORE_ACQUIRE, "L", 'd');
            snprintf(w->call.lease_id.text + 24, 13, "%012d", n);
            w->call.queue = true;
            EXPECT(submit(w), STORE_HELD);
        }
        redis_server_ok(&redis, "CONFIG RESETSTAT");
        before = now_us();
        EXPECT(release(one, "L", 'a'), STORE_DONE);
        ck_assert_int_lt(now_us() - before, TIMEOUT_MS * 1000);
        cost[i] = redis_server_int(&redis, "EVAL %s 0",
                                   "local n = 0 for c in string.gmatch(redis.call('INFO', 'commandstats'), 'cmdstat_z%w+:calls=(%d+)') do "
                                   "n = n + c end return n");
        redis_server_ok(&redis, "DEL %s %s", key("queue", "L"), key("waiters", "L"));
        forget_asked();
    }
    ck_assert_int_eq(cost[0], cost[1]);
}
END_TEST

/* ---- cancel: undoing ---- */

START_TEST(P8_an_undone_grant_leaves_nothing)
{
    struct asked *a = take(one, "L", 'a'), *c;

    c = EXPECT(cancel(one, a), STORE_DONE);
    ck_assert(c->call.ret_undone);
    ck_assert_int_eq(c->call.holder.token, 0);
    ck_assert_str_eq(keys_left(), "fence incarnation node node");
    c = EXPECT(cancel(one, a), STORE_DONE);
    ck_assert(!c->call.ret_undone);
    ck_assert_int_gt(take(two, "L", 'a')->call.ret_token, a->call.ret_token);
}
END_TEST

/* Grant, reply late, undo queued; the client repeats the call and is told that it holds; the undo arrives. */
START_TEST(H1_an_undo_does_not_kill_a_lease_that_a_retry_was_told_it_holds)
{
    for (int how = 0; how < 4; how++) {
        struct asked *a = take(one, "L", 'a'), *c;

        if (how == 0)
            EXPECT(acquire(two, "L", 'a'), STORE_REPEATED); /* through another node */
        else if (how == 1)
            EXPECT(acquire(one, "L", 'a'), STORE_REPEATED);
        else if (how == 2)
            EXPECT(renew(one, "L", 'a', TTL_MS), STORE_DONE);
        else
            EXPECT(renew(two, "L", 'a', TTL_MS), STORE_DONE);
        c = EXPECT(cancel(one, a), STORE_DONE);
        ck_assert(!c->call.ret_undone);
        ck_assert(c->call.ret_own); /* it holds: by the other call */
        ck_assert_int_eq(c->call.holder.token, a->call.ret_token);
        ck_assert(!EXPECT(leave(one, "L", 'b'), STORE_DONE)->call.ret_own);
        EXPECT(acquire(one, "L", 'b'), STORE_HELD);
        EXPECT(release(one, "L", 'a'), STORE_DONE);
    }
}
END_TEST

/* The repeated call's client leaves before it is told: its undo must not end what the first call's client was told (P1). */
START_TEST(P1_H1_the_undo_of_a_repeated_acquire_leaves_the_lease_to_whom_it_was_told)
{
    for (int how = 0; how < 4; how++) {
        struct node *other = how & 1 ? one : two;
        struct asked *a = take(one, "L", 'a'), *again, *c;

        again = how & 2 ? queue_up_anew(other, "L", 'a') : acquire(other, "L", 'a');
        EXPECT(again, STORE_REPEATED);
        c = EXPECT(cancel(other, again), STORE_DONE);
        ck_assert(!c->call.ret_undone);
        ck_assert(c->call.ret_own);
        EXPECT(acquire(two, "L", 'b'), STORE_HELD);
        EXPECT(check(one, "L", a->call.ret_token), STORE_DONE);
        EXPECT(cancel(one, a), STORE_DONE); /* nor can the first call's own any more: the repeat may have been told */
        ck_assert_int_eq(EXPECT(renew(one, "L", 'a', TTL_MS), STORE_DONE)->call.ret_token, a->call.ret_token);
        EXPECT(release(one, "L", 'a'), STORE_DONE);
    }
}
END_TEST

START_TEST(P7_an_acquire_that_is_run_again_is_no_repeat_and_can_be_undone)
{
    struct asked *a = take(one, "L", 'a'), *again = ask(one, STORE_ACQUIRE, "L", 'a');

    again->call.confirm = a->call.confirm;
    ck_assert_int_eq(EXPECT(submit(again), STORE_DONE)->call.ret_token, a->call.ret_token);
    ck_assert(EXPECT(cancel(one, again), STORE_DONE)->call.ret_undone);
    ck_assert_str_eq(keys_left(), "fence incarnation node node");
}
END_TEST

START_TEST(H1_the_same_confirm_number_of_another_node_is_another_number)
{
    struct asked *a = take(one, "L", 'a'), *c = ask(two, STORE_CANCEL, "L", 'a');

    c->call.confirm = a->call.confirm;
    EXPECT(submit(c), STORE_DONE);
    ck_assert(!c->call.ret_undone);
    c = ask(one, STORE_CANCEL, "L", 'b');
    c->call.confirm = a->call.confirm;
    EXPECT(submit(c), STORE_DONE);
    ck_assert(!c->call.ret_undone);
    c = ask(one, STORE_CANCEL, "L", 'a'); /* 0: undo nothing */
    EXPECT(submit(c), STORE_DONE);
    ck_assert(!c->call.ret_undone);
    EXPECT(check(one, "L", a->call.ret_token), STORE_DONE);
}
END_TEST

START_TEST(P8_an_undone_grant_is_the_next_waiters)
{
    struct asked *a = take(one, "L", 'a'), *c;

    EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    c = EXPECT(cancel(one, a), STORE_DONE);
    ck_assert(c->call.ret_undone);
    ck_assert_str_eq(c->call.ret_woken.text, id_of('b').text);
    ck_assert_int_eq(c->call.ret_waiters, 1);
    EXPECT(queue_up(one, "L", 'b'), STORE_DONE);
}
END_TEST

/* ---- whose matter a lease is ---- */

START_TEST(H7_the_node_that_vouched_is_told_when_another_takes_over)
{
    for (int how = 0; how < 4; how++) {
        struct asked *a = take(one, "L", 'a'), *last;
        if (how == 0)
            EXPECT(release(two, "L", 'a'), STORE_DONE);
        else if (how == 1)
            EXPECT(break_lock(two, "L"), STORE_DONE);
        else if (how == 2)
            EXPECT(renew(two, "L", 'a', TTL_MS), STORE_DONE);
        else
            EXPECT(acquire(two, "L", 'a'), STORE_REPEATED);
        ck_assert((how == 1 ? node_took_broken : node_forgot)(one, 'a', "L", a->call.ret_confirm));
        ck_assert(node_heard_nothing(one) && node_heard_nothing(two));
        if (how < 2)
            continue;
        last = EXPECT(renew(two, "L", 'a', TTL_MS), STORE_DONE); /* from now on it is the other's own */
        ck_assert(node_heard_nothing(one) && node_heard_nothing(two));
        EXPECT(release(one, "L", 'a'), STORE_DONE);
        ck_assert(node_forgot(two, 'a', "L", last->call.ret_confirm));
    }
}
END_TEST

/* By its number a node knows which of its confirmations a message is about: of a node's numbers for a lease the later is the greater. */
START_TEST(H7_each_confirmation_has_a_number_of_its_own)
{
    struct asked *a = take(one, "L", 'a'), *b, *c;

    b = EXPECT(acquire(two, "L", 'a'), STORE_REPEATED);
    ck_assert(node_forgot(one, 'a', "L", a->call.confirm));
    ck_assert(b->call.ret_confirm != b->call.confirm); /* else its undo would end what others were told (P1, H1) */
    c = EXPECT(acquire(one, "L", 'a'), STORE_REPEATED);
    ck_assert(node_forgot(two, 'a', "L", b->call.ret_confirm));
    ck_assert_uint_gt(c->call.ret_confirm, a->call.ret_confirm);
    a = EXPECT(renew(one, "L", 'a', TTL_MS), STORE_DONE);
    ck_assert_uint_gt(a->call.ret_confirm, c->call.ret_confirm);
    EXPECT(break_lock(two, "L"), STORE_DONE);
    ck_assert(node_took_broken(one, 'a', "L", a->call.ret_confirm));
    ck_assert(node_heard_nothing(one) && node_heard_nothing(two));
}
END_TEST

START_TEST(H7_a_nodes_own_calls_send_no_message)
{
    take(one, "L", 'a');
    EXPECT(renew(one, "L", 'a', TTL_MS), STORE_DONE);
    EXPECT(acquire(one, "L", 'a'), STORE_REPEATED);
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    take(one, "L", 'a');
    EXPECT(break_lock(one, "L"), STORE_DONE);
    ck_assert(node_heard_nothing(one) && node_heard_nothing(two));
}
END_TEST

/* ---- P8: what stays behind ---- */

START_TEST(P8_C37_a_free_lock_without_waiters_leaves_nothing_in_the_store)
{
    char name[24];
    struct asked *a;

    for (int i = 0; i < 40; i++) {
        struct asked *short_lived = ask(two, STORE_ACQUIRE, "brief", 'e');

        snprintf(name, sizeof(name), "lock-%d", i);
        a = take(one, name, 'a');
        EXPECT(queue_up(two, name, 'b'), STORE_HELD);
        EXPECT(acquire(two, name, 'c'), STORE_HELD);
        EXPECT(leave(two, name, 'b'), STORE_DONE);
        EXPECT(i % 3 == 0 ? release(two, name, 'a') : i % 3 == 1 ? break_lock(one, name) : cancel(one, a), STORE_DONE);
        EXPECT(inspect(one, name, 'b'), STORE_DONE);
        EXPECT(check(one, name, 5), STORE_LOST);
        EXPECT(renew(one, name, 'a', 5), STORE_LOST);
        short_lived->call.ttl_ms = 1;
        EXPECT(submit(short_lived), STORE_DONE);
        RUN_UNTIL(lock_pttl("brief") == -2, 20000);
    }
    ck_assert_str_eq(keys_left(), "fence incarnation node node");
    node_stop(two);
    ck_assert_int_gt(redis_server_int(&redis, "DBSIZE"), 3);
    RUN_UNTIL(redis_server_int(&redis, "DBSIZE") == 3, 20000); /* and a node that has gone leaves nothing either */
}
END_TEST

/* ---- many calls in one turn of the loop ---- */

static struct asked *in_turn(struct node *node, enum store_op op, const char *name, char id)
{
    return submit(ask(node, op, name, id));
}

static int64_t scripts_run(void)
{
    return redis_server_int(&redis, "EVAL %s 0",
                            "return tonumber(string.match(redis.call('INFO', 'commandstats'), 'cmdstat_evalsha:calls=(%d+)') or 0)");
}

START_TEST(P2_plain_calls_of_one_turn_share_runs_and_get_each_its_own_answer)
{
    enum { COUNT = 150 };
    struct asked *taken[COUNT], *released[COUNT];
    char name[24];

    take(one, "warm", 'a');
    EXPECT(release(one, "warm", 'a'), STORE_DONE);
    redis_server_ok(&redis, "CONFIG RESETSTAT");
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "lock-%d", i);
        taken[i] = in_turn(one, STORE_ACQUIRE, name, "abcd"[i % 4]);
    }
    for (int i = 0; i < COUNT; i++) {
        EXPECT(taken[i], STORE_DONE);
        ck_assert_int_eq(taken[i]->call.ret_ttl_ms, TTL_MS);
        ck_assert_str_eq(taken[i]->call.holder.owner, taken[i]->owner);
        ck_assert(i == 0 || taken[i]->call.ret_token > taken[i - 1]->call.ret_token);
    }
    ck_assert_int_ge(node_fence(one), taken[COUNT - 1]->call.ret_token);
    for (int i = 0; i < COUNT; i += 10) {
        snprintf(name, sizeof(name), "lock-%d", i);
        EXPECT(check(two, name, taken[i]->call.ret_token), STORE_DONE);
        ck_assert_int_gt(lock_pttl(name), TTL_MS - 5000);
    }
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "lock-%d", i);
        released[i] = in_turn(one, STORE_RELEASE, name, "abcd"[i % 4]);
    }
    for (int i = 0; i < COUNT; i++) {
        EXPECT(released[i], STORE_DONE);
        ck_assert_int_eq(released[i]->call.ret_token, taken[i]->call.ret_token);
        ck_assert_str_eq(released[i]->call.ret_woken.text, "");
    }
    ck_assert_int_lt(scripts_run(), COUNT); /* of 300 calls and some beats */
    ck_assert_str_eq(keys_left(), "fence incarnation node node");
}
END_TEST

START_TEST(P1_one_lock_several_times_in_one_turn_has_one_holder)
{
    struct asked *l[3], *m[2], *n[3];

    for (int i = 0; i < 3; i++)
        l[i] = in_turn(one, STORE_ACQUIRE, "L", "abc"[i]);
    for (int i = 0; i < 2; i++)
        m[i] = in_turn(one, STORE_ACQUIRE, "M", 'd');
    n[0] = in_turn(one, STORE_ACQUIRE, "N", 'a'); /* taken and given back in one turn */
    n[1] = in_turn(one, STORE_RELEASE, "N", 'a');
    n[2] = in_turn(one, STORE_RELEASE, "N", 'a');
    EXPECT(l[0], STORE_DONE);
    for (int i = 1; i < 3; i++) {
        EXPECT(l[i], STORE_HELD);
        ck_assert_int_eq(l[i]->call.holder.token, l[0]->call.ret_token);
        ck_assert_str_eq(l[i]->call.holder.owner, "owner a");
    }
    EXPECT(m[0], STORE_DONE);
    ck_assert_int_eq(EXPECT(m[1], STORE_REPEATED)->call.ret_token, m[0]->call.ret_token);
    EXPECT(n[0], STORE_DONE);
    ck_assert_int_eq(EXPECT(n[1], STORE_DONE)->call.ret_token, n[0]->call.ret_token);
    EXPECT(n[2], STORE_LOST);
    ck_assert_int_eq(lock_pttl("N"), -2);
}
END_TEST

START_TEST(P2_a_lock_released_and_taken_in_one_turn_changes_hands)
{
    struct asked *a = take(one, "L", 'a'), *first, *other, *r[2];

    first = in_turn(one, STORE_RELEASE, "L", 'a');
    r[0] = in_turn(one, STORE_ACQUIRE, "L", 'b');
    other = in_turn(one, STORE_RELEASE, "L", 'a'); /* a stranger by then, whenever it is looked at */
    r[1] = in_turn(one, STORE_ACQUIRE, "L", 'c');
    ck_assert_int_eq(EXPECT(first, STORE_DONE)->call.ret_token, a->call.ret_token);
    ck_assert_int_gt(EXPECT(r[0], STORE_DONE)->call.ret_token, a->call.ret_token);
    EXPECT(other, STORE_LOST);
    EXPECT(r[1], STORE_HELD);
    EXPECT(check(two, "L", r[0]->call.ret_token), STORE_DONE);
}
END_TEST

START_TEST(P4_strangers_among_the_releases_of_one_turn_free_nothing)
{
    struct asked *held = take(one, "L", 'a'), *mine, *other, *near;

    take(one, "M", 'a');
    other = in_turn(one, STORE_RELEASE, "L", 'b');
    near = ask(one, STORE_RELEASE, "L", 'a');
    near->call.lease_id.text[PAWL_LEASE_ID_LEN - 1] = 'b'; /* the last digit is as much of the key to a lease as the first */
    submit(near);
    mine = in_turn(one, STORE_RELEASE, "M", 'a');
    EXPECT(other, STORE_LOST);
    EXPECT(near, STORE_LOST);
    EXPECT(mine, STORE_DONE);
    EXPECT(check(two, "L", held->call.ret_token), STORE_DONE);
}
END_TEST

START_TEST(P4_P6_what_is_not_plain_among_plain_calls_is_looked_at_by_itself)
{
    struct asked *held, *turn_of, *foreign, *hash, *handed, *elsewhere, *lost, *plain, *x;

    x = take(two, "held", 'a');
    take(one, "waited", 'a');
    EXPECT(queue_up(two, "waited", 'b'), STORE_HELD);
    take(one, "free", 'a');
    EXPECT(queue_up(two, "free", 'b'), STORE_HELD);
    redis_server_ok(&redis, "DEL %s", key("lock", "free")); /* as when it expires: it is b's turn */
    take(two, "other", 'c');
    lock_is_foreign();
    redis_server_ok(&redis, "SET %s not-ours", key("lock", "foreign"));
    redis_server_ok(&redis, "HSET %s a b", key("lock", "hash"));

    held = in_turn(one, STORE_ACQUIRE, "held", 'd');
    turn_of = in_turn(one, STORE_ACQUIRE, "free", 'd');
    foreign = in_turn(one, STORE_ACQUIRE, "foreign", 'd');
    hash = in_turn(one, STORE_ACQUIRE, "hash", 'd');
    handed = in_turn(one, STORE_RELEASE, "waited", 'a');
    elsewhere = in_turn(one, STORE_RELEASE, "other", 'c');
    lost = in_turn(one, STORE_RELEASE, "held", 'd');
    plain = in_turn(one, STORE_ACQUIRE, "plain", 'd');
    ck_assert_int_eq(EXPECT(held, STORE_HELD)->call.holder.token, x->call.ret_token);
    EXPECT(turn_of, STORE_TURN);
    EXPECT(foreign, STORE_UNAVAILABLE);
    EXPECT(hash, STORE_UNAVAILABLE);
    EXPECT(handed, STORE_DONE);
    EXPECT(elsewhere, STORE_DONE);
    EXPECT(lost, STORE_LOST);
    EXPECT(plain, STORE_DONE);
    ck_assert(node_took(two, 'w', 'b', "free"));
    ck_assert(node_took(two, 'w', 'b', "waited"));
    ck_assert(node_took(two, 'f', 'c', "other"));
    ck_assert_str_eq(redis_server_text(&redis, "GET %s", key("lock", "foreign")), "not-ours");
    ck_assert_int_eq(redis_server_int(&redis, "HLEN %s", key("lock", "hash")), 1);
    EXPECT(check(two, "plain", plain->call.ret_token), STORE_DONE);
    EXPECT(queue_up(two, "waited", 'b'), STORE_DONE);
}
END_TEST

START_TEST(P3_nothing_is_granted_in_one_turn_while_leases_may_return)
{
    struct asked *a = take(one, "L", 'a'), *known, *unknown, *taken[2];

    hold_window_open();
    known = ask(one, STORE_RELEASE, "L", 'a');
    known->call.token = a->call.ret_token;
    taken[0] = in_turn(one, STORE_ACQUIRE, "M", 'b');
    submit(known);
    unknown = in_turn(one, STORE_RELEASE, "N", 'b');
    taken[1] = in_turn(one, STORE_ACQUIRE, "O", 'b');
    EXPECT(taken[0], STORE_RECOVERING);
    EXPECT(taken[1], STORE_RECOVERING);
    EXPECT(known, STORE_DONE);
    EXPECT(unknown, STORE_RECOVERING);
    ck_assert_int_eq(strncmp(redis_server_text(&redis, "GET %s", key("lock", "L")), "released ", 9), 0);
    ck_assert_int_eq(redis_server_int(&redis, "EXISTS %s %s", key("lock", "M"), key("lock", "O")), 0);
    close_window();
}
END_TEST

/* ---- riders ---- */

static struct asked *release_with(struct node *node, const char *name, char id, struct asked *rider)
{
    struct asked *r = ask(node, STORE_RELEASE, name, id);

    r->call.rider = &rider->call;
    r->call.contended = true;
    rider->submitted_us = now_us();
    rider->call.queue = true;
    submit(r);
    (void)answer(r);
    ck_assert_int_eq(rider->answers, 1);
    ck_assert_int_eq(rider->place, rider->call.result == STORE_DONE ? r->place - 1 : r->place + 1); /* who was granted hears it first */
    return r;
}

static struct asked *rider_of(const struct asked *waiter)
{
    struct asked *rider = ask(waiter->node, STORE_ACQUIRE, waiter->name, 'f');

    rider->call.lease_id = waiter->call.lease_id;
    rider->call.confirm = waiter->call.confirm;
    rider->call.ticket = waiter->call.ret_ticket;
    rider->call.owner = waiter->call.owner;
    rider->call.owner_len = waiter->call.owner_len;
    return rider;
}

START_TEST(P6_a_release_grants_its_nodes_waiter_if_that_is_the_head)
{
    struct asked *a = take(two, "L", 'a'), *b = EXPECT(queue_up(one, "L", 'b'), STORE_HELD), *rider = rider_of(b), *r;

    EXPECT(queue_up(two, "L", 'c'), STORE_HELD);
    r = EXPECT(release_with(one, "L", 'a', rider), STORE_DONE);
    ck_assert_str_eq(r->call.ret_woken.text, "");
    ck_assert_int_eq(r->call.ret_token, a->call.ret_token);
    EXPECT(rider, STORE_DONE);
    ck_assert_int_gt(rider->call.ret_token, a->call.ret_token);
    ck_assert_int_eq(rider->call.ret_ttl_ms, TTL_MS);
    ck_assert_int_ge(node_fence(one), rider->call.ret_token);
    ck_assert(node_took(two, 'f', 'a', "L"));
    ck_assert(node_heard_nothing(two));
    EXPECT(check(two, "L", rider->call.ret_token), STORE_DONE);
    ck_assert_int_gt(lock_pttl("L"), TTL_MS - 5000);
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_position, 0);
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'c'), STORE_DONE)->call.ret_position, 1);
    ck_assert(EXPECT(cancel(one, rider), STORE_DONE)->call.ret_undone); /* it is a grant like any other */
    EXPECT(queue_up(two, "L", 'c'), STORE_DONE);
}
END_TEST

START_TEST(P6_a_rider_passes_nobody)
{
    struct node *deaf;
    struct asked *c, *rider;

    take(one, "L", 'a');
    EXPECT(queue_up(two, "L", 'b'), STORE_HELD);
    c = EXPECT(queue_up(one, "L", 'c'), STORE_HELD);
    rider = rider_of(c);
    EXPECT(release_with(one, "L", 'a', rider), STORE_DONE);
    ck_assert_int_eq(EXPECT(rider, STORE_TURN)->call.ret_ticket, c->call.ret_ticket);
    ck_assert(node_took(two, 'w', 'b', "L"));
    EXPECT(queue_up(two, "L", 'b'), STORE_DONE);
    rider = rider_of(c); /* nor with a release that finds nothing to release */
    EXPECT(release_with(one, "L", 'a', rider), STORE_LOST);
    EXPECT(rider, STORE_TURN);
    EXPECT(release(two, "L", 'b'), STORE_DONE);
    EXPECT(queue_up(one, "L", 'c'), STORE_DONE);

    deaf = rig_ready_node(); /* the head's node does not listen just now, so the next is to be woken: to look, no more */
    EXPECT(queue_up(deaf, "L", 'd'), STORE_HELD);
    c = EXPECT(queue_up(one, "L", 'e'), STORE_HELD);
    node_stop(deaf);
    rider = rider_of(c);
    ck_assert_str_eq(EXPECT(release_with(one, "L", 'c', rider), STORE_DONE)->call.ret_woken.text, id_of('e').text);
    EXPECT(rider, STORE_TURN);
    ck_assert_int_eq(lock_pttl("L"), -2);
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'e'), STORE_DONE)->call.ret_position, 2);
}
END_TEST

/* ---- against a model ---- */

enum { LOCKS = 3, IDS = 5, CLAIMS = 4, STEPS = 3000 };
struct model_place {
    int id, count;
    struct model_claim {
        int node;
        uint64_t confirm;
    } claims[CLAIMS]; /* the newest first */
};
struct model_lock {
    int holder, holder_node; /* -1: free */
    uint64_t confirm;        /* that it stands under */
    int64_t token;
    struct model_place places[IDS];
    int waiting;
    uint64_t last[IDS][2]; /* the latest acquire of this lease id at this node */
};
static struct model_lock model[LOCKS];
static const char model_ids[] = "abcde";

static int model_position(const struct model_lock *m, int id) /* from 1 */
{
    for (int i = 0; i < m->waiting; i++)
        if (m->places[i].id == id)
            return i + 1;
    return 0;
}

/* Takes away one request's claim to the place, or (confirm 0) each that the node has, and with the last the place. False: there was none. */
static bool model_leave(struct model_lock *m, int id, int node, uint64_t confirm)
{
    int at = model_position(m, id) - 1, kept = 0, count;
    struct model_place *place;

    if (at < 0)
        return false;
    place = &m->places[at];
    count = place->count;
    for (int i = 0; i < count; i++)
        if (place->claims[i].node != node || (confirm && place->claims[i].confirm != confirm))
            place->claims[kept++] = place->claims[i];
    place->count = kept;
    if (kept == 0) {
        m->waiting--;
        memmove(place, place + 1, sizeof(*place) * (size_t)(m->waiting - at));
    }
    return kept < count;
}

static void model_enter(struct model_lock *m, int id, int node, uint64_t confirm)
{
    int at = model_position(m, id) - 1, kept = 1;
    struct model_claim claims[CLAIMS + 1] = {{node, confirm}};

    if (at < 0)
        m->places[at = m->waiting++] = (struct model_place){.id = id};
    for (int i = 0; i < m->places[at].count; i++)
        if (m->places[at].claims[i].node != node || m->places[at].claims[i].confirm != confirm)
            claims[kept++] = m->places[at].claims[i];
    m->places[at].count = kept < CLAIMS ? kept : CLAIMS;
    memcpy(m->places[at].claims, claims, sizeof(m->places[at].claims));
}

/* Who is woken without a message when the lock becomes free: the first waiter, if its newest request is at this node. */
static const char *model_woken(const struct model_lock *m, int node)
{
    static struct lease_id id;

    if (m->waiting == 0 || m->places[0].claims[0].node != node)
        return "";
    id = id_of(model_ids[m->places[0].id]);
    return id.text;
}

static void model_grant(struct model_lock *m, int id, int node, const struct asked *a)
{
    (void)model_leave(m, id, node, a->call.confirm);
    m->holder = id;
    m->holder_node = node;
    m->confirm = a->call.confirm;
    m->token = a->call.ret_token;
}

static void model_acquire(struct dice *dice, int step, struct model_lock *m, int id, int node, const char *name, bool queue,
                          int64_t *greatest)
{
    struct asked *a = ask(node ? two : one, STORE_ACQUIRE, name, model_ids[id]);
    bool mine;

    if (dice_roll(dice, 3) && m->last[id][node])
        a->call.confirm = m->last[id][node]; /* the same request asks again */
    m->last[id][node] = a->call.confirm;
    a->call.queue = queue;
    (void)answer(submit(a));
    if (m->holder == id) {
        mine = m->holder_node == node && m->confirm == a->call.confirm;
        DICE_ASSERT(dice, step, a->call.result == (mine ? STORE_DONE : STORE_REPEATED) && a->call.ret_token == m->token);
        model_grant(m, id, node, a);
        m->confirm = mine ? a->call.confirm : a->call.repeat_confirm;
    } else if (m->holder < 0 && (m->waiting == 0 || m->places[0].id == id)) {
        DICE_ASSERT(dice, step, a->call.result == STORE_DONE && a->call.ret_token > *greatest);
        *greatest = a->call.ret_token;
        model_grant(m, id, node, a);
    } else {
        DICE_ASSERT(dice, step, a->call.result == (m->holder < 0 ? STORE_TURN : STORE_HELD));
        DICE_ASSERT(dice, step,
                    m->holder < 0 ? strcmp(a->call.ret_woken.text, model_woken(m, node)) == 0 : a->call.holder.token == m->token);
        if (queue)
            model_enter(m, id, node, a->call.confirm);
        DICE_ASSERT(dice, step, (a->call.ret_ticket > 0) == queue && a->call.ret_waiters == m->waiting);
    }
}

/* One of this node's waiters, whose acquire may ride on a release; NULL: none. */
static struct asked *model_rider(struct dice *dice, const struct model_lock *m, int node, const char *name, int *ret_id)
{
    const struct model_place *place = m->waiting > 0 ? &m->places[dice_roll(dice, (unsigned)m->waiting)] : NULL;
    struct asked *rider;

    for (int i = 0; place && i < place->count; i++) {
        if (place->claims[i].node != node)
            continue;
        *ret_id = place->id;
        rider = ask(node ? two : one, STORE_ACQUIRE, name, model_ids[place->id]);
        rider->call.confirm = place->claims[i].confirm;
        rider->call.ticket = 1;
        return rider;
    }
    return NULL;
}

static void model_release(struct dice *dice, int step, struct model_lock *m, int id, int node, const char *name, int64_t *greatest)
{
    int rider_id = -1;
    struct node *n = node ? two : one;
    struct asked *rider = dice_roll(dice, 2) ? model_rider(dice, m, node, name, &rider_id) : NULL;
    struct asked *a = rider ? release_with(n, name, model_ids[id], rider) : release(n, name, model_ids[id]);
    bool rides = rider && m->holder == id && strcmp(model_woken(m, node), rider->call.lease_id.text) == 0;

    DICE_ASSERT(dice, step, a->call.result == (m->holder == id ? STORE_DONE : STORE_LOST));
    DICE_ASSERT(dice, step, !rider || rider->call.result == (rides ? STORE_DONE : STORE_TURN));
    if (m->holder != id)
        return;
    DICE_ASSERT(dice, step, a->call.ret_token == m->token && strcmp(a->call.ret_woken.text, rides ? "" : model_woken(m, node)) == 0);
    m->holder = -1;
    if (rides) {
        DICE_ASSERT(dice, step, rider->call.ret_token > *greatest);
        *greatest = rider->call.ret_token;
        model_grant(m, rider_id, node, rider);
    }
}

static void model_cancel(struct dice *dice, int step, struct model_lock *m, int id, int node, const char *name)
{
    struct asked *a = ask(node ? two : one, STORE_CANCEL, name, model_ids[id]);
    bool undone, wakes;

    a->call.confirm = (const uint64_t[]){0, m->confirm, m->last[id][node]}[dice_roll(dice, 3)];
    a->call.queue = dice_roll(dice, 2);
    EXPECT(submit(a), STORE_DONE);
    undone = a->call.confirm && m->holder == id && m->holder_node == node && m->confirm == a->call.confirm;
    DICE_ASSERT(dice, step, a->call.ret_undone == undone);
    if (undone)
        m->holder = -1;
    wakes = undone || (m->holder < 0 && a->call.queue && model_position(m, id) == 1);
    if (a->call.queue && !model_leave(m, id, node, a->call.confirm))
        wakes = undone;
    DICE_ASSERT(dice, step, strcmp(a->call.ret_woken.text, wakes ? model_woken(m, node) : "") == 0);
    DICE_ASSERT(dice, step, a->call.ret_waiters == m->waiting && a->call.holder.token == (m->holder < 0 ? 0 : m->token));
    DICE_ASSERT(dice, step, a->call.ret_own == (m->holder == id));
}

static void model_step(struct dice *dice, int step, int64_t *greatest)
{
    unsigned lock = dice_roll(dice, LOCKS), what = dice_roll(dice, 12);
    int id = (int)dice_roll(dice, IDS), node = (int)dice_roll(dice, 2);
    struct model_lock *m = &model[lock];
    struct node *n = node ? two : one;
    char name[2] = {(char)('K' + lock), '\0'};
    struct asked *a;

    switch (what) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
        model_acquire(dice, step, m, id, node, name, what > 2, greatest);
        break;
    case 6:
        a = renew(n, name, model_ids[id], TTL_MS);
        DICE_ASSERT(dice, step, a->call.result == (m->holder == id ? STORE_DONE : STORE_LOST));
        if (m->holder == id) {
            DICE_ASSERT(dice, step, a->call.ret_token == m->token);
            m->holder_node = node;
            m->confirm = a->call.confirm;
        }
        break;
    case 7: /* else releases rarely hit */
        model_release(dice, step, m, m->holder >= 0 ? m->holder : id, node, name, greatest);
        break;
    case 8:
        model_release(dice, step, m, id, node, name, greatest);
        break;
    case 9:
        model_cancel(dice, step, m, id, node, name);
        break;
    case 10:
        if (dice_roll(dice, 4))
            break;
        a = break_lock(n, name);
        DICE_ASSERT(dice, step, a->call.result == (m->holder >= 0 ? STORE_DONE : STORE_LOST));
        DICE_ASSERT(dice, step,
                    m->holder < 0 || (a->call.holder.token == m->token && strcmp(a->call.ret_woken.text, model_woken(m, node)) == 0));
        m->holder = -1;
        break;
    default:
        a = inspect(n, name, model_ids[id]);
        DICE_ASSERT(dice, step, a->call.result == STORE_DONE && a->call.holder.token == (m->holder < 0 ? 0 : m->token));
        DICE_ASSERT(dice, step, a->call.ret_waiters == m->waiting && a->call.ret_position == model_position(m, id));
        a = check(n, name, m->token);
        DICE_ASSERT(dice, step, a->call.result == (m->holder >= 0 ? STORE_DONE : STORE_LOST));
        break;
    }
}

START_TEST(P1_P2_P4_P6_random_calls_through_two_nodes_agree_with_a_model)
{
    struct dice dice;
    int64_t greatest = 0;

    dice_init(&dice);
    memset(model, 0, sizeof(model));
    for (int i = 0; i < LOCKS; i++)
        model[i].holder = -1;
    for (int step = 0; step < STEPS; step++) {
        model_step(&dice, step, &greatest);
        forget_asked();
        one->note_count = two->note_count = 0;
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store");
    TCase *calls = tcase_create("calls"), *waiting = tcase_create("waiting"), *undo = tcase_create("undo"), *turns = tcase_create("turns");
    TCase *random = tcase_create("model"), *const all[] = {calls, waiting, undo, turns, random};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        tcase_add_unchecked_fixture(all[i], rig_make_folder, rig_remove_folder);
        tcase_add_checked_fixture(all[i], start, rig_stop);
        suite_add_tcase(suite, all[i]);
    }
    tcase_add_test(calls, P1_a_lock_has_one_holder_and_tells_who_it_is);
    tcase_add_test(calls, P5_a_lease_lasts_at_least_as_long_as_its_answer_says);
    tcase_add_test(calls, P7_C05_a_repeated_acquire_finds_its_own_lease);
    tcase_add_test(calls, P7_a_repeated_acquire_gets_the_longer_of_the_ttl_asked_and_left);
    tcase_add_test(calls, P7_a_repeated_acquire_keeps_the_owner_that_was_granted);
    tcase_add_test(calls, C47_an_owner_is_a_label_and_any_bytes);
    tcase_add_test(calls, C42_long_names_and_those_like_pawls_own_keys_are_locks_of_their_own);
    tcase_add_test(calls, C07_large_ttls_neither_wrap_nor_shrink);
    tcase_add_test(calls, P2_C10_tokens_rise_through_release_expiry_break_and_a_lost_script_cache);
    tcase_add_test(calls, P2_tokens_order_grants_of_different_locks_as_well);
    tcase_add_test(calls, P4_only_the_lease_id_renews_and_releases);
    tcase_add_test(calls, C41_a_renewal_never_makes_a_lease);
    tcase_add_test(calls, C40_a_late_release_does_not_free_the_next_holder);
    tcase_add_test(calls, P4_check_knows_the_holders_token_alone);
    tcase_add_test(calls, C38_break_ends_any_lease_and_tells_whose);
    tcase_add_test(calls, P6_inspect_shows_holder_waiters_and_place);
    tcase_add_test(calls, C46_list_shows_each_held_lock_once_whichever_node_holds_it);
    tcase_add_test(calls, C42_list_takes_every_character_of_a_prefix_for_itself);
    tcase_add_test(waiting, P6_waiters_are_granted_in_the_order_they_came_across_nodes);
    tcase_add_test(waiting, P6_a_place_is_kept_when_asked_for_again);
    tcase_add_test(waiting, P6_an_old_ticket_brings_back_the_old_place);
    tcase_add_test(waiting, P6_P7_a_client_that_comes_back_within_seconds_finds_its_place);
    tcase_add_test(waiting, P9_a_full_queue_says_so_and_keeps_those_in_it);
    tcase_add_test(waiting, C06_a_release_names_the_waiter_of_its_own_node_and_sends_no_message);
    tcase_add_test(waiting, C46_release_break_and_cancel_wake_the_first_waiter_on_another_node);
    tcase_add_test(waiting, C06_a_turn_that_is_not_ones_own_wakes_the_waiter_whose_it_is);
    tcase_add_test(waiting, P8_a_waiter_that_leaves_is_out_of_the_queue_and_the_next_is_woken);
    tcase_add_test(waiting, P6_leaving_from_the_middle_wakes_nobody);
    tcase_add_test(waiting, P7_a_place_that_went_to_another_node_is_not_given_up_by_the_first);
    tcase_add_test(waiting, P6_P7_a_place_is_given_up_with_the_last_of_its_requests);
    tcase_add_test(waiting, P6_a_cancel_that_comes_late_leaves_the_newer_requests_place);
    tcase_add_test(waiting, P6_the_oldest_of_more_than_four_requests_is_forgotten_and_no_other);
    tcase_add_test(waiting, P7_all_who_wait_under_one_lease_id_are_told_and_no_one_is_granted_past_them);
    tcase_add_test(waiting, P6_C35_waiters_of_a_dead_node_hold_nobody_up);
    tcase_add_test(waiting, P6_a_dead_nodes_waiters_take_no_place_from_the_living);
    tcase_add_test(waiting, P6_a_sweep_takes_the_dead_from_the_middle_and_leaves_the_living);
    tcase_add_test(waiting, P8_a_queue_ends_by_itself_when_none_of_its_nodes_looks_any_more);
    tcase_add_test(waiting, C46_when_the_first_waiters_node_does_not_listen_the_next_is_woken_too);
    tcase_add_test(waiting, C36_a_release_costs_the_same_however_many_wait);
    tcase_add_test(undo, P8_an_undone_grant_leaves_nothing);
    tcase_add_test(undo, H1_an_undo_does_not_kill_a_lease_that_a_retry_was_told_it_holds);
    tcase_add_test(undo, P1_H1_the_undo_of_a_repeated_acquire_leaves_the_lease_to_whom_it_was_told);
    tcase_add_test(undo, P7_an_acquire_that_is_run_again_is_no_repeat_and_can_be_undone);
    tcase_add_test(undo, H1_the_same_confirm_number_of_another_node_is_another_number);
    tcase_add_test(undo, P8_an_undone_grant_is_the_next_waiters);
    tcase_add_test(undo, H7_the_node_that_vouched_is_told_when_another_takes_over);
    tcase_add_test(undo, H7_each_confirmation_has_a_number_of_its_own);
    tcase_add_test(undo, H7_a_nodes_own_calls_send_no_message);
    tcase_add_test(undo, P8_C37_a_free_lock_without_waiters_leaves_nothing_in_the_store);
    tcase_add_test(turns, P2_plain_calls_of_one_turn_share_runs_and_get_each_its_own_answer);
    tcase_add_test(turns, P1_one_lock_several_times_in_one_turn_has_one_holder);
    tcase_add_test(turns, P2_a_lock_released_and_taken_in_one_turn_changes_hands);
    tcase_add_test(turns, P4_strangers_among_the_releases_of_one_turn_free_nothing);
    tcase_add_test(turns, P4_P6_what_is_not_plain_among_plain_calls_is_looked_at_by_itself);
    tcase_add_test(turns, P3_nothing_is_granted_in_one_turn_while_leases_may_return);
    tcase_add_test(turns, P6_a_release_grants_its_nodes_waiter_if_that_is_the_head);
    tcase_add_test(turns, P6_a_rider_passes_nobody);
    tcase_add_test(random, P1_P2_P4_P6_random_calls_through_two_nodes_agree_with_a_model);
    return check_main(suite);
}
