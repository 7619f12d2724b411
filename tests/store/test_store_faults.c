/* The store when Redis is away, silent, full, somebody else's, or forgets: every call has one answer within its deadline (P9), says honestly whether it
 * may have run (P7), and nothing is left behind that nobody was told of (P8). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/lib/dice.h"
#include "tests/store/rig.h"

static struct node *one, *two;

static void start(void)
{
    rig_start();
    one = rig_ready_node();
    two = rig_ready_node();
}

static void written(void) /* what was submitted is in Redis' socket */
{
    for (int i = 0; i < 3; i++)
        turn();
}

/* Has every script loaded, so that none costs a second round trip. */
static void warm_up(void)
{
    struct asked *a = take(one, "warm", 'a');

    EXPECT(renew(one, "warm", 'a', TTL_MS), STORE_DONE);
    EXPECT(check(one, "warm", a->call.ret_token), STORE_DONE);
    EXPECT(inspect(one, "warm", 'a'), STORE_DONE);
    EXPECT(list(one, "warm"), STORE_DONE);
    EXPECT(break_lock(one, "warm"), STORE_DONE);
    EXPECT(cancel(one, a), STORE_DONE);
    EXPECT(release(one, "warm", 'a'), STORE_LOST);
}

/* What is written while Redis is frozen is read in the order of writing, but for a connection that it had just read from and has not found empty yet, which
 * comes first. So the one that is to be first is used last; and a beat of the node has just been, which would count as a use. */
static void freeze_before(bool ours_is_first)
{
    RUN_UNTIL(redis_server_int(&redis, "PTTL %s{0}:node:%s", PREFIX, redis_store_node(one->redis)) > 3900, 10000);
    if (!ours_is_first)
        EXPECT(inspect(one, "warm", 'a'), STORE_DONE);
    redis_server_freeze(&redis);
}

static void ready_again(struct node *node)
{
    RUN_UNTIL(node_is_ready(node), 15000);
}

static struct asked *asked_to_queue(struct node *node, const char *name, char id)
{
    struct asked *asked = ask(node, STORE_ACQUIRE, name, id);

    asked->call.queue = true;
    return asked;
}

static void late_by_no_more_than_slack(const struct asked *asked)
{
    ck_assert_int_le(asked->answered_us, asked->call.deadline_us + SLACK_MS * 1000);
}

/* ---- C23: Redis says nothing ---- */

START_TEST(P9_C23_a_frozen_redis_leaves_no_call_unanswered_beyond_its_deadline)
{
    struct asked *all[STORE_CANCEL + 1], *granted = take(one, "L", 'a');

    redis_server_freeze(&redis);
    for (int op = 0; op <= STORE_CANCEL; op++)
        all[op] =
            submit(ask(one, (enum store_op)op, op == STORE_ACQUIRE ? "new" : "L", (char)('0' + op))); /* of one lease there would be one */
    for (int op = 0; op <= STORE_CANCEL; op++) {
        EXPECT(all[op], STORE_UNKNOWN); /* sent, no answer: each may have run */
        late_by_no_more_than_slack(all[op]);
    }
    /* the connection's silence counts from when the calls were sent, theirs from when they were asked */
    RUN_UNTIL(!node_is_ready(one), 10000);
    ck_assert_int_ge(one->detached, 1);
    for (int i = 0; i < 100; i++) { /* now it is known to be away: at once, and nothing was done */
        struct asked *next = acquire(one, "new", 'b');

        EXPECT(next, STORE_UNAVAILABLE);
        late_by_no_more_than_slack(next);
    }
    ck_assert_uint_eq(node_pending(one), 0);
    redis_server_thaw(&redis);
    ready_again(one);
    ready_again(two);
    EXPECT(cancel(one, all[STORE_ACQUIRE]), STORE_DONE);
    EXPECT(cancel(one, granted), STORE_DONE);
    ck_assert_int_eq(lock_pttl("new"), -2);
    take(two, "new", 'c');
}
END_TEST

START_TEST(P9_a_call_is_answered_by_its_own_deadline_also_when_it_is_a_short_one)
{
    struct asked *soon, *later;

    redis_server_freeze(&redis);
    soon = ask(one, STORE_ACQUIRE, "L", 'a');
    later = ask(one, STORE_ACQUIRE, "M", 'a');
    soon->call.deadline_us = now_us() + 150000;
    later->call.deadline_us = now_us() + 600000;
    submit(later);
    submit(soon);
    EXPECT(soon, STORE_UNKNOWN);
    late_by_no_more_than_slack(soon);
    EXPECT(later, STORE_UNKNOWN);
    late_by_no_more_than_slack(later);
}
END_TEST

/* H13: what was sent before may sit in the socket and be run long after the caller gave up. */
START_TEST(P7_P8_H13_an_acquire_that_was_answered_unknown_leaves_nothing_once_it_is_cancelled)
{
    for (int i = 0; i < 4; i++) {
        struct asked *a, *w, *c;

        take(two, "M", 'f');
        redis_server_freeze(&redis);
        a = submit(ask(one, STORE_ACQUIRE, "L", 'a'));
        w = submit(asked_to_queue(one, "M", 'b'));
        a->call.deadline_us = w->call.deadline_us = now_us() + 100000 * (i + 1);
        EXPECT(a, STORE_UNKNOWN);
        EXPECT(w, STORE_UNKNOWN);
        if (i % 2)
            redis_server_thaw(&redis);
        c = cancel(one, a); /* the caller tries until the store is back, as the broker does */
        while (c->call.result == STORE_UNAVAILABLE || c->call.result == STORE_UNKNOWN) {
            if (redis.frozen)
                redis_server_thaw(&redis);
            turn();
            c = cancel(one, a);
        }
        EXPECT(c, STORE_DONE);
        EXPECT(cancel(one, w), STORE_DONE);
        ready_again(two);
        /* every connection's bytes have been read: one of our own, opened last, is served after them */
        redis_server_ok(&redis, "PING");
        ck_assert_int_eq(lock_pttl("L"), -2);
        ck_assert_int_eq(redis_server_int(&redis, "EXISTS %s %s", key("queue", "M"), key("waiters", "M")), 0);
        EXPECT(break_lock(two, "M"), STORE_DONE);
        ck_assert_str_eq(keys_left(), "fence incarnation node node");
    }
}
END_TEST

/* ---- H13 with the very bytes ---- */

static redisContext *monitor;

static void monitor_start(void)
{
    struct timeval patience = {.tv_sec = 10};

    monitor = redisConnectUnix(redis.socket);
    ck_assert(monitor && !monitor->err);
    ck_assert_int_eq(redisSetTimeout(monitor, patience), REDIS_OK);
    freeReplyObject(redisCommand(monitor, "MONITOR"));
}

/* One quoted word of a MONITOR line; returns what follows it. */
static const char *unquote(const char *at, char *out, size_t *ret_len)
{
    size_t len = 0;

    ck_assert_int_eq(*at, '"');
    for (at++; *at != '"'; at++) {
        unsigned byte = (unsigned char)*at;
        if (*at == '\\') {
            at++;
            byte = (unsigned char)*at;
            if (*at == 'n')
                byte = '\n';
            else if (*at == 'r')
                byte = '\r';
            else if (*at == 'x' && sscanf(at + 1, "%2x", &byte) == 1)
                at += 2;
        }
        out[len++] = (char)byte;
    }
    *ret_len = len;
    return at + 1;
}

struct recorded {
    char bytes[16384];
    const char *argv[32];
    size_t lens[32];
    int argc;
};

/* The next script call that Redis got with this word in it. */
static void record(struct recorded *r, const char *word)
{
    for (;;) {
        redisReply *line;
        const char *at;
        char *out = r->bytes;

        ck_assert_int_eq(redisGetReply(monitor, (void **)&line), REDIS_OK);
        at = strstr(line->str, "\"EVAL");
        if (!at || !strstr(at, word)) {
            freeReplyObject(line);
            continue;
        }
        for (r->argc = 0; *at == '"'; r->argc++) {
            ck_assert_int_lt(r->argc, 32);
            r->argv[r->argc] = out;
            at = unquote(at, out, &r->lens[r->argc]);
            out += r->lens[r->argc];
            at += *at == ' ';
        }
        freeReplyObject(line);
        return;
    }
}

static void replay(const struct recorded *r, char *ret_status, size_t cap)
{
    redisReply *reply = redisCommandArgv(redis.context, r->argc, (const char **)(uintptr_t)r->argv, r->lens);

    ck_assert_ptr_nonnull(reply);
    ck_assert_msg(reply->type == REDIS_REPLY_ARRAY, "%s", reply->str);
    snprintf(ret_status, cap, "%s", reply->element[0]->str);
    freeReplyObject(reply);
}

START_TEST(P7_H13_a_script_of_an_earlier_connection_does_nothing)
{
    static struct recorded granted, queued, renewed, cancelled;
    struct asked *a;
    char status[32];
    int first = one->attached;

    warm_up();
    monitor_start();
    a = take(one, "L", 'a');
    record(&granted, a->call.lease_id.text);
    EXPECT(renew(one, "L", 'a', 90000), STORE_DONE);
    record(&renewed, a->call.lease_id.text);
    EXPECT(cancel(one, a), STORE_DONE);
    record(&cancelled, a->call.lease_id.text);
    EXPECT(queue_up(one, "L", 'b'), STORE_HELD);
    record(&queued, id_of('b').text);
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    EXPECT(leave(one, "L", 'b'), STORE_DONE);
    replay(&granted, status, sizeof(status)); /* as long as the connection is the node's own it counts */
    ck_assert_str_eq(status, "granted");
    replay(&cancelled, status, sizeof(status));
    ck_assert_int_eq(lock_pttl("L"), -2);

    redis_server_ok(&redis, "CLIENT KILL TYPE normal");
    RUN_UNTIL(one->attached > first, 10000);
    replay(&granted, status, sizeof(status));
    ck_assert_str_eq(status, "differs");
    ck_assert_int_eq(lock_pttl("L"), -2);
    a = take(one, "L", 'a');
    replay(&renewed, status, sizeof(status));
    ck_assert_str_eq(status, "differs");
    ck_assert_int_le(lock_pttl("L"), TTL_MS);
    replay(&queued, status, sizeof(status));
    ck_assert_str_eq(status, "differs");
    ck_assert_int_eq(redis_server_int(&redis, "EXISTS %s", key("queue", "L")), 0);
    replay(&cancelled, status, sizeof(status));
    ck_assert_str_eq(status, "differs");
    EXPECT(check(one, "L", a->call.ret_token), STORE_DONE);
    redisFree(monitor);
}
END_TEST

/* Of a node that dies before its first beat, too. */
START_TEST(P8_the_key_of_a_node_ends_by_itself_from_the_first)
{
    static struct recorded attach;
    struct node *fresh;
    char status[32];

    monitor_start();
    fresh = rig_node(WINDOW_MS);
    RUN_UNTIL(fresh->attached, 10000);
    record(&attach, redis_store_node(fresh->redis));
    redis_server_ok(&redis, "DEL %s{0}:node:%s", PREFIX, redis_store_node(fresh->redis));
    replay(&attach, status, sizeof(status)); /* no beat comes until the loop turns */
    ck_assert_str_eq(status, "attached");
    ck_assert_int_gt(redis_server_int(&redis, "PTTL %s{0}:node:%s", PREFIX, redis_store_node(fresh->redis)), 0);
    redisFree(monitor);
}
END_TEST

/* ---- C24: the connection goes with calls in flight ---- */

struct flight {
    struct asked *granted, *acquire, *queue, *renew, *release, *check, *breaking, *inspect, *list, *cancel;
};

/* Has every operation on its way to a Redis that does not read yet. */
static void take_off(struct flight *f, bool cut_first)
{
    warm_up();
    take(one, "held", 'a');
    take(one, "mine", 'b');
    take(one, "broken", 'c');
    take(one, "renewed", 'e');
    f->granted = take(one, "undone", 'd');
    freeze_before(cut_first);
    if (cut_first)
        redis_server_write(&redis, "CLIENT KILL TYPE normal"); /* read before what comes now, which is lost unread */
    f->acquire = ask(one, STORE_ACQUIRE, "new", 'f');
    f->queue = asked_to_queue(one, "held", 'f');
    f->renew = ask(one, STORE_RENEW, "renewed", 'e');
    f->renew->call.ttl_ms = 90000;
    f->release = ask(one, STORE_RELEASE, "mine", 'b');
    f->check = ask(one, STORE_CHECK, "undone", '\0');
    f->check->call.token = f->granted->call.ret_token;
    f->breaking = ask(one, STORE_BREAK, "broken", '\0');
    f->inspect = ask(one, STORE_INSPECT, "held", '\0');
    f->list = ask(one, STORE_LIST, "", '\0');
    f->list->call.prefix = "held";
    f->list->call.prefix_len = 4;
    f->cancel = ask(one, STORE_CANCEL, "undone", 'd');
    f->cancel->call.confirm = f->granted->call.confirm;
    submit(f->acquire);
    submit(f->queue);
    submit(f->renew);
    submit(f->release);
    submit(f->check);
    submit(f->breaking);
    submit(f->inspect);
    submit(f->list);
    submit(f->cancel);
    written();
    if (!cut_first)
        redis_server_write(&redis, "CLIENT KILL TYPE normal"); /* they will have run, and their answers go with the connection */
    redis_server_thaw(&redis);
    redis_server_answer(&redis);
}

static void landed(const struct flight *f)
{
    EXPECT(f->acquire, STORE_DONE);
    EXPECT(f->queue, STORE_HELD);
    ck_assert_int_gt(f->queue->call.ret_ticket, 0);
    EXPECT(f->renew, STORE_DONE);
    EXPECT(f->release, STORE_UNKNOWN);
    EXPECT(f->breaking, STORE_UNKNOWN);
    EXPECT(f->inspect, STORE_DONE);
    EXPECT(f->list, STORE_DONE);
    ck_assert_int_eq(f->list->listed_count, 1);
    EXPECT(f->cancel, STORE_DONE);
    EXPECT(check(one, "new", f->acquire->call.ret_token), STORE_DONE);
    ck_assert_int_gt(lock_pttl("renewed"), 80000);
    ck_assert_int_eq(lock_pttl("undone"), -2);
    ck_assert_int_eq(EXPECT(inspect(one, "held", 'f'), STORE_DONE)->call.ret_position, 1);
}

START_TEST(P7_C24_calls_lost_before_they_ran_are_run_again)
{
    struct flight f;

    take_off(&f, true);
    landed(&f);
    EXPECT(f.check, STORE_DONE);            /* its first run, in order: before the cancel */
    ck_assert_int_gt(lock_pttl("mine"), 0); /* release and break did not run, and are not run behind the caller's back */
    ck_assert_int_gt(lock_pttl("broken"), 0);
}
END_TEST

START_TEST(P7_C24_calls_that_ran_and_whose_answers_were_lost_are_run_again_to_the_same_effect)
{
    struct flight f;

    take_off(&f, false);
    landed(&f);
    EXPECT(f.check, STORE_LOST); /* its second run, after the cancel's first */
    ck_assert_int_eq(lock_pttl("mine"), -2);
    ck_assert_int_eq(lock_pttl("broken"), -2);
    ck_assert_int_ge(one->detached, 1);
}
END_TEST

START_TEST(P7_a_grant_that_was_run_twice_is_one_grant)
{
    struct asked *a;

    warm_up();
    redis_server_freeze(&redis);
    a = submit(ask(one, STORE_ACQUIRE, "L", 'a'));
    written();
    redis_server_write(&redis, "CLIENT KILL TYPE normal");
    redis_server_thaw(&redis);
    redis_server_answer(&redis);
    EXPECT(a, STORE_DONE); /* not REPEATED: nobody had been told before, so it is the caller's to undo */
    ready_again(two);
    EXPECT(check(two, "L", a->call.ret_token), STORE_DONE);
    ck_assert(EXPECT(cancel(one, a), STORE_DONE)->call.ret_undone);
    ck_assert_int_eq(lock_pttl("L"), -2);
}
END_TEST

/* ---- many calls in one turn, a release with a rider: what goes wrong goes wrong for all of them, and each is told the truth ---- */

enum { MANY = 12 };
struct crowd { /* acquires and releases by turns, all of one turn of the loop */
    struct asked *acquired[MANY], *released[MANY];
    int64_t before; /* the greatest token until then */
};

static void hold_many(struct crowd *c)
{
    char name[24];

    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "old-%d", i);
        c->before = take(one, name, 'a')->call.ret_token;
    }
}

static void crowd_in(struct crowd *c)
{
    char name[24];

    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "new-%d", i);
        c->acquired[i] = submit(ask(one, STORE_ACQUIRE, name, 'b'));
        snprintf(name, sizeof(name), "old-%d", i);
        c->released[i] = submit(ask(one, STORE_RELEASE, name, 'a'));
    }
}

/* All of it reaches a frozen Redis behind this command (no % in it): what the command left is what the calls find. */
static void crowd_in_behind(struct crowd *c, const char *command)
{
    warm_up();
    hold_many(c);
    freeze_before(true);
    redis_server_write(&redis, command);
    crowd_in(c);
    written();
    redis_server_thaw(&redis);
    redis_server_answer(&redis);
}

/* All acquires were granted, in order, and stand. */
static void crowd_granted(const struct crowd *c)
{
    int64_t last = c->before;

    for (int i = 0; i < MANY; i++) {
        EXPECT(c->acquired[i], STORE_DONE);
        ck_assert_int_gt(c->acquired[i]->call.ret_token, last);
        last = c->acquired[i]->call.ret_token;
        EXPECT(check(one, c->acquired[i]->name, last), STORE_DONE);
    }
}

static void crowd_released(const struct crowd *c, enum store_result wanted, bool gone)
{
    for (int i = 0; i < MANY; i++) {
        EXPECT(c->released[i], wanted);
        ck_assert_int_eq(lock_pttl(c->released[i]->name) == -2, gone);
    }
}

START_TEST(P7_C24_many_calls_of_one_turn_lost_before_they_ran)
{
    struct crowd c;

    crowd_in_behind(&c, "CLIENT KILL TYPE normal"); /* read first: what comes after it is lost unread */
    crowd_granted(&c);
    crowd_released(&c, STORE_UNKNOWN,
                   lock_pttl("old-0") == -2); /* all or none: with a beat before them they may have been read all the same */
}
END_TEST

START_TEST(P7_C24_many_calls_of_one_turn_that_ran_and_whose_answers_were_lost)
{
    struct crowd c;

    warm_up();
    hold_many(&c);
    redis_server_freeze(&redis);
    crowd_in(&c);
    written();
    redis_server_write(&redis, "CLIENT KILL TYPE normal");
    redis_server_thaw(&redis);
    redis_server_answer(&redis);
    crowd_granted(&c);
    crowd_released(&c, STORE_UNKNOWN, true);
    for (int i = 0; i < MANY; i++) /* one grant each, and the caller's to undo */
        ck_assert(EXPECT(cancel(one, c.acquired[i]), STORE_DONE)->call.ret_undone);
}
END_TEST

START_TEST(C25_many_calls_of_one_turn_find_the_script_cache_lost)
{
    struct crowd c;

    crowd_in_behind(&c, "SCRIPT FLUSH");
    crowd_granted(&c);
    crowd_released(&c, STORE_DONE, true);
    ck_assert_int_eq(one->attached, 1);
}
END_TEST

START_TEST(P3_many_calls_of_one_turn_find_another_life)
{
    struct crowd c;

    crowd_in_behind(&c, "FLUSHALL");
    for (int i = 0; i < MANY; i++) { /* the window of the new life is open, and no release is told that its lease is lost */
        EXPECT(c.acquired[i], STORE_RECOVERING);
        EXPECT(c.released[i], STORE_RECOVERING);
    }
    ck_assert_int_ge(one->attached, 2);
    ck_assert_int_eq(one->detached, one->attached - 1);
}
END_TEST

/* The fence fell behind what the node saw, by a digit or by one: these must not be granted below tokens that were handed out. */
START_TEST(P2_H3_many_calls_of_one_turn_meet_a_fence_that_fell)
{
    struct crowd c;
    char command[128];

    snprintf(command, sizeof(command), "%s %s{0}:fence%s", _i ? "DECR" : "SET", PREFIX, _i ? "" : " 7");
    crowd_in_behind(&c, command);
    for (int i = 0; i < MANY; i++) {
        EXPECT(c.acquired[i], STORE_RECOVERING);
        EXPECT(c.released[i], STORE_DONE); /* the leases are still there, and whose they are is no matter of the fence */
    }
    ck_assert_int_ge(one->attached, 2);
    close_window();
    ck_assert_int_gt(take(one, "L", 'a')->call.ret_token, c.before);
}
END_TEST

START_TEST(P2_many_calls_of_one_turn_after_a_new_attach_run_in_that)
{
    struct crowd c;
    char command[128];

    snprintf(command, sizeof(command), "SET %s{0}:node:%s 999 PX 60000", PREFIX, redis_store_node(one->redis));
    crowd_in_behind(&c, command); /* as if attached anew by a later connection */
    crowd_granted(&c);
    crowd_released(&c, STORE_DONE, true);
    ck_assert_int_eq(one->attached, 2);
}
END_TEST

START_TEST(C21_a_full_redis_grants_nothing_of_one_turn_and_lets_go)
{
    struct crowd c;

    warm_up();
    hold_many(&c);
    redis_server_ok(&redis, "CONFIG SET maxmemory 1");
    crowd_in(&c);
    for (int i = 0; i < MANY; i++) { /* once something was freed in the run, Redis may let the rest of it pass */
        EXPECT(c.released[i], STORE_DONE);
        ck_assert_int_eq(lock_pttl(c.released[i]->name), -2);
        if (answer(c.acquired[i]) == STORE_DONE) {
            ck_assert_int_gt(i, 0);
            ck_assert_int_gt(c.acquired[i]->call.ret_token, c.before);
            EXPECT(check(one, c.acquired[i]->name, c.acquired[i]->call.ret_token), STORE_DONE);
            continue;
        }
        EXPECT(c.acquired[i], STORE_UNAVAILABLE);
        ck_assert_ptr_nonnull(strstr(c.acquired[i]->call.problem, "OOM"));
        ck_assert_int_eq(lock_pttl(c.acquired[i]->name), -2);
    }
    EXPECT(c.acquired[0], STORE_UNAVAILABLE);
    redis_server_ok(&redis, "CONFIG SET maxmemory 0");
    ck_assert_int_eq(one->attached, 1);
}
END_TEST

START_TEST(P7_C24_a_release_and_its_rider_share_an_unknown_end)
{
    struct asked *a, *b, *r, *rider;

    for (int cut_first = 0; cut_first < 2; cut_first++) {
        bool ran;

        warm_up();
        a = take(one, "L", 'a');
        b = EXPECT(submit(asked_to_queue(one, "L", 'b')), STORE_HELD);
        rider = asked_to_queue(one, "L", 'b');
        rider->call.confirm = b->call.confirm;
        rider->call.ticket = b->call.ret_ticket;
        rider->submitted_us = now_us();
        r = ask(one, STORE_RELEASE, "L", 'a');
        r->call.contended = true;
        r->call.rider = &rider->call;
        freeze_before(cut_first);
        if (cut_first)
            redis_server_write(&redis, "CLIENT KILL TYPE normal");
        submit(r);
        written();
        if (!cut_first)
            redis_server_write(&redis, "CLIENT KILL TYPE normal");
        redis_server_thaw(&redis);
        redis_server_answer(&redis);
        EXPECT(r, STORE_UNKNOWN);
        EXPECT(rider, STORE_UNKNOWN);
        ready_again(one);
        ran = check(one, "L", a->call.ret_token)->call.result == STORE_LOST;
        ck_assert(ran || cut_first);
        if (ran) { /* the release and the grant: asked again, it is the same grant */
            EXPECT(submit(ask(two, STORE_ACQUIRE, "L", 'c')), STORE_HELD);
            rider = asked_to_queue(one, "L", 'b');
            rider->call.confirm = b->call.confirm;
            EXPECT(submit(rider), STORE_DONE);
            EXPECT(release(one, "L", 'b'), STORE_DONE);
        } else {
            EXPECT(check(one, "L", a->call.ret_token), STORE_DONE);
            ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_position, 1);
            EXPECT(release(one, "L", 'a'), STORE_DONE);
            EXPECT(cancel(one, b), STORE_DONE);
        }
        ck_assert_int_eq(lock_pttl("L"), -2);
        ready_again(two);
    }
}
END_TEST

START_TEST(C24_calls_made_while_the_connection_comes_back_are_held)
{
    struct asked *in_event = ask(one, STORE_ACQUIRE, "L", 'a'), *after = ask(one, STORE_ACQUIRE, "M", 'a');
    int first = one->detached;
    int64_t begun = now_us();

    RUN_UNTIL(now_us() > begun + 1200000, 3000); /* an old, steady connection */
    one->on_detached = in_event;
    redis_server_ok(&redis, "CLIENT KILL TYPE normal");
    RUN_UNTIL(one->detached > first, 20000);
    submit(after);
    EXPECT(after, STORE_DONE);
    EXPECT(in_event, STORE_DONE);
}
END_TEST

START_TEST(C26_while_redis_is_gone_calls_fail_at_once_and_it_is_found_again)
{
    struct asked *a, *b;
    int first = one->attached;
    int64_t begun;

    redis_server_freeze(&redis);
    a = submit(ask(one, STORE_ACQUIRE, "L", 'a'));
    b = submit(ask(one, STORE_RELEASE, "L", 'b'));
    written();
    redis_server_kill(&redis);
    begun = now_us();
    EXPECT(a, STORE_UNKNOWN); /* sent, and its answer died with the server */
    EXPECT(b, STORE_UNKNOWN);
    ck_assert_int_lt(now_us() - begun, 700000); /* not held until the deadline */
    for (int i = 0; i < 20; i++) {
        b = EXPECT(acquire(one, "L", 'a'), STORE_UNAVAILABLE);
        ck_assert_int_lt(b->answered_us - b->submitted_us, TIMEOUT_MS * 1000 / 2); /* at once, and not at its deadline */
    }
    ck_assert(!node_is_ready(one));
    ck_assert_str_ne(node_problem(one), "");
    rig_restart_redis();
    RUN_UNTIL(one->attached > first && two->attached > 1, 10000);
    close_window();
    take(one, "L", 'a');
}
END_TEST

struct attempts { /* of a node to connect, and when they were seen */
    uint64_t connects;
    int count;
    int64_t at_us[32];
};

static void note_attempt(struct node *node, struct attempts *a)
{
    struct store_status status;

    store_get_status(node->store, &status);
    if (status.connects != a->connects && a->count < 32)
        a->at_us[a->count++] = now_us();
    a->connects = status.connects;
}

/* Two nodes that lost their Redis at the same moment don't come back at the same moments, for ever in step. */
static void not_in_step(const struct attempts *a, const struct attempts *b)
{
    int64_t apart = 0;

    for (int i = 0; i < a->count && i < b->count; i++)
        if (llabs(a->at_us[i] - b->at_us[i]) > apart)
            apart = llabs(a->at_us[i] - b->at_us[i]);
    ck_assert_int_gt(apart, 10000);
}

START_TEST(C27_a_redis_that_is_away_is_not_stormed)
{
    struct store_status before, after;
    struct attempts of_one = {0}, of_two = {0};
    int64_t begun;

    redis_server_kill(&redis);
    RUN_UNTIL(one->detached && two->detached, 20000);
    store_get_status(one->store, &before);
    begun = now_us();
    while (now_us() < begun + 1500000) {
        EXPECT(acquire(one, "L", 'a'), STORE_UNAVAILABLE);
        forget_asked();
        note_attempt(one, &of_one);
        note_attempt(two, &of_two);
    }
    not_in_step(&of_one, &of_two);
    store_get_status(one->store, &after);
    ck_assert_uint_ge(after.connects - before.connects, 3);
    ck_assert_uint_le(after.connects - before.connects, 20);
    rig_restart_redis();
    ready_again(one);
}
END_TEST

START_TEST(P6_lost_messages_are_told_and_come_through_again)
{
    int before = two->missed;

    redis_server_ok(&redis, "CLIENT KILL TYPE pubsub");
    RUN_UNTIL(two->missed > before, 10000);
    ck_assert(node_is_ready(two));
    take(one, "L", 'a');
    EXPECT(queue_up(two, "L", 'b'), STORE_HELD);
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    ck_assert(node_took(two, 'w', 'b', "L"));
}
END_TEST

START_TEST(P6_a_beat_keeps_the_nodes_key_alive)
{
    char node_key[64];

    snprintf(node_key, sizeof(node_key), "%s{0}:node:%s", PREFIX, redis_store_node(one->redis));
    redis_server_ok(&redis, "PEXPIRE %s 1500", node_key);
    RUN_UNTIL(redis_server_int(&redis, "PTTL %s", node_key) > 2000, 20000);
    ck_assert_int_eq(one->attached, 1);
}
END_TEST

START_TEST(P9_stop_answers_what_is_open)
{
    struct asked *sent, *held;

    redis_server_freeze(&redis);
    sent = submit(ask(one, STORE_ACQUIRE, "L", 'a'));
    written();
    redis_store_stop(one->redis);
    held = submit(ask(one, STORE_ACQUIRE, "M", 'a'));
    turn(); /* the next one, after which the store may be freed */
    ck_assert_int_eq(sent->answers, 1);
    ck_assert_int_eq(held->answers, 1);
    EXPECT(sent, STORE_UNKNOWN);
    EXPECT(held, STORE_UNAVAILABLE);
    redis_store_free(one->redis);
    one->redis = NULL;
}
END_TEST

/* ---- C25: the script cache ---- */

START_TEST(C25_a_lost_script_cache_with_calls_in_flight_fails_nothing_and_keeps_their_order)
{
    struct asked *on_one[10], *others[20];
    char name[24];

    freeze_before(true);
    redis_server_write(&redis, "SCRIPT FLUSH");
    for (int i = 0; i < 10; i++)
        on_one[i] = submit(asked_to_queue(one, "L", "0123456789"[i]));
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "lock-%d", i);
        others[i] = submit(ask(i % 2 ? one : two, STORE_ACQUIRE, name, 'a'));
    }
    written();
    redis_server_thaw(&redis);
    redis_server_answer(&redis);
    EXPECT(on_one[0], STORE_DONE);
    for (int i = 1; i < 10; i++) {
        EXPECT(on_one[i], STORE_HELD);
        ck_assert_int_eq(EXPECT(inspect(two, "L", "0123456789"[i]), STORE_DONE)->call.ret_position, i);
    }
    for (int i = 0; i < 20; i++)
        EXPECT(others[i], STORE_DONE);
    ck_assert_int_eq(one->attached + two->attached, 2);
    ck_assert_int_eq(one->detached + two->detached, 0);
}
END_TEST

START_TEST(C25_every_call_attach_and_beat_survives_a_lost_script_cache)
{
    struct asked *a;
    int first = one->attached;
    char node_key[64];

    snprintf(node_key, sizeof(node_key), "%s{0}:node:%s", PREFIX, redis_store_node(one->redis));
    for (int i = 0; i < 2; i++) {
        redis_server_ok(&redis, "SCRIPT FLUSH");
        a = take(one, "L", 'a');
        redis_server_ok(&redis, "SCRIPT FLUSH");
        EXPECT(renew(one, "L", 'a', TTL_MS), STORE_DONE);
        redis_server_ok(&redis, "SCRIPT FLUSH");
        EXPECT(check(one, "L", a->call.ret_token), STORE_DONE);
        redis_server_ok(&redis, "SCRIPT FLUSH");
        EXPECT(inspect(one, "L", '\0'), STORE_DONE);
        redis_server_ok(&redis, "SCRIPT FLUSH");
        EXPECT(list(one, ""), STORE_DONE);
        redis_server_ok(&redis, "SCRIPT FLUSH");
        EXPECT(i ? release(one, "L", 'a') : break_lock(one, "L"), STORE_DONE);
        a = take(one, "L", 'a');
        redis_server_ok(&redis, "SCRIPT FLUSH");
        EXPECT(cancel(one, a), STORE_DONE);
    }
    redis_server_ok(&redis, "SCRIPT FLUSH");
    redis_server_ok(&redis, "PEXPIRE %s 1500", node_key);
    RUN_UNTIL(redis_server_int(&redis, "PTTL %s", node_key) > 2000, 20000);
    redis_server_ok(&redis, "SCRIPT FLUSH");
    redis_server_ok(&redis, "CLIENT KILL TYPE normal");
    RUN_UNTIL(one->attached > first, 10000);
}
END_TEST

/* ---- C09: what pawl did not write ---- */

static void everything_minds_the_foreign_key(const char *type)
{
    struct asked *a = ask(one, STORE_CANCEL, "L", 'a');
    struct asked known = {.call = {.lease_id = id_of('a'), .ret_token = node_fence(one), .ret_granted_ms = 1}, .name = "L"};

    EXPECT(acquire(one, "L", 'a'), STORE_UNAVAILABLE);
    EXPECT(queue_up(one, "L", 'b'), STORE_UNAVAILABLE);
    EXPECT(renew(one, "L", 'a', TTL_MS), STORE_LOST);
    EXPECT(release(one, "L", 'a'), STORE_LOST);
    EXPECT(check(one, "L", 5), STORE_LOST);
    EXPECT(inspect(one, "L", '\0'), STORE_UNAVAILABLE);
    ck_assert(break_lock(one, "L")->call.result != STORE_DONE);
    ck_assert_int_eq(EXPECT(list(one, ""), STORE_DONE)->listed_count, 0);
    a->call.confirm = 1;
    a->call.queue = true;
    EXPECT(submit(a), STORE_DONE);
    ck_assert(!a->call.ret_undone);
    ck_assert_str_eq(redis_server_text(&redis, "TYPE %s", key("lock", "L")), type);
    hold_window_open();
    EXPECT(acquire(one, "L", 'a'), STORE_RECOVERING);
    ck_assert(renew_known(one, &known, TTL_MS)->call.result != STORE_DONE);
    ck_assert_str_eq(redis_server_text(&redis, "TYPE %s", key("lock", "L")), type);
    ck_assert(put_back(one, &known, TTL_MS)->call.result != STORE_DONE);
    ck_assert_str_eq(redis_server_text(&redis, "TYPE %s", key("lock", "L")), type);
    ck_assert(release_known(one, &known)->call.result != STORE_DONE);
    ck_assert(break_lock(one, "L")->call.result != STORE_DONE);
    EXPECT(submit(ask(one, STORE_CANCEL, "L", 'a')), STORE_DONE);
    ck_assert_str_eq(redis_server_text(&redis, "TYPE %s", key("lock", "L")), type);
    close_window();
}

START_TEST(C09_a_foreign_string_at_a_lock_is_neither_granted_nor_touched)
{
    static const char *const values[] = {"",
                                         "mine",
                                         "released",
                                         "released x",
                                         "11111111-1111-4111-8111-111111111111 5",
                                         "11111111-1111-4111-8111-111111111111 x 0123456789abcdef 1 1 owner"};

    lock_is_foreign();
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        redis_server_ok(&redis, "SET %s %s", key("lock", "L"), values[i]);
        everything_minds_the_foreign_key("string");
        ck_assert_str_eq(redis_server_text(&redis, "GET %s", key("lock", "L")), values[i]);
    }
    redis_server_ok(&redis, "DEL %s", key("lock", "L"));
    take(one, "L", 'a');
}
END_TEST

START_TEST(C09_a_foreign_key_of_another_type_at_a_lock_is_neither_granted_nor_touched)
{
    lock_is_foreign();
    redis_server_ok(&redis, "RPUSH %s x", key("lock", "L"));
    everything_minds_the_foreign_key("list");
    redis_server_ok(&redis, "DEL %s", key("lock", "L"));
    redis_server_ok(&redis, "HSET %s x y", key("lock", "L"));
    everything_minds_the_foreign_key("hash");
    redis_server_ok(&redis, "DEL %s", key("lock", "L"));
    take(one, "L", 'a');
}
END_TEST

START_TEST(C09_a_queue_of_another_type_is_an_error_and_no_grant)
{
    take(one, "L", 'a');
    redis_server_ok(&redis, "SET %s x", key("queue", "L"));
    redis_server_ok(&redis, "SET %s x", key("queue", "M"));
    EXPECT(queue_up(two, "L", 'b'), STORE_UNAVAILABLE);
    EXPECT(acquire(two, "M", 'b'), STORE_UNAVAILABLE);
    ck_assert_int_eq(lock_pttl("M"), -2);
    ck_assert_int_eq(one->attached + two->attached, 2); /* the connection is none the worse */
    redis_server_ok(&redis, "DEL %s %s", key("queue", "M"), key("queue", "L"));
    take(two, "M", 'b');
    EXPECT(queue_up(two, "L", 'b'), STORE_HELD);
}
END_TEST

/* ---- fence and incarnation damaged ---- */

static void nothing_is_granted(void)
{
    struct asked *a = acquire(one, "L", 'a');

    ck_assert_msg(a->call.result == STORE_UNAVAILABLE || a->call.result == STORE_UNKNOWN, "%s", result_name(a->call.result));
    ck_assert_int_eq(lock_pttl("L"), -2);
}

START_TEST(H16_C10_a_damaged_fence_is_refused_and_nothing_granted)
{
    static const char *const fences[] = {"", "x", "12x", "-5", "007", "1.5", "4503599627370496", " 1795976402352474"};

    for (size_t i = 0; i < sizeof(fences) / sizeof(fences[0]); i++) {
        int before = one->attached;

        redis_server_ok(&redis, "SET %s{0}:fence %s", PREFIX, fences[i]);
        redis_server_ok(&redis, "DEL %s{0}:incarnation", PREFIX);
        nothing_is_granted();
        ck_assert_msg(!node_is_ready(one), "'%s' was accepted", fences[i]);
        ck_assert_ptr_nonnull(strstr(node_problem(one), "fence"));
        ck_assert_str_eq(redis_server_text(&redis, "GET %s{0}:fence", PREFIX), fences[i]); /* left for the operator to see */
        redis_server_ok(&redis, "DEL %s{0}:fence", PREFIX);
        RUN_UNTIL(one->attached > before, 10000);
        ck_assert(one->new_life);
        close_window();
        EXPECT(release(one, "L", 'a'), STORE_LOST);
    }
}
END_TEST

/* Lua reads more as a number than Redis counts on from. */
START_TEST(H16_a_fence_that_only_lua_takes_for_a_number_grants_nothing)
{
    static const char *const fences[] = {"9e15", "0x10000000000000", "5000000000000000.0", " 5000000000000000"};

    for (size_t i = 0; i < sizeof(fences) / sizeof(fences[0]); i++) {
        redis_server_ok(&redis, "SET %s{0}:fence %s", PREFIX, fences[i]);
        nothing_is_granted();
        ck_assert_str_eq(redis_server_text(&redis, "GET %s{0}:fence", PREFIX), fences[i]);
    }
}
END_TEST

START_TEST(H16_a_fence_or_incarnation_of_another_type_is_refused)
{
    static const char *const keys[] = {"fence", "incarnation"};

    for (int i = 0; i < 2; i++) {
        int before = one->attached;

        redis_server_ok(&redis, "DEL %s{0}:%s", PREFIX, keys[i]);
        redis_server_ok(&redis, "RPUSH %s{0}:%s x", PREFIX, keys[i]);
        nothing_is_granted();
        ck_assert(!node_is_ready(one));
        ck_assert_str_eq(redis_server_text(&redis, "TYPE %s{0}:%s", PREFIX, keys[i]), "list");
        redis_server_ok(&redis, "DEL %s{0}:%s", PREFIX, keys[i]);
        RUN_UNTIL(one->attached > before && node_is_ready(one), 10000);
        close_window();
    }
    take(one, "L", 'a');
}
END_TEST

START_TEST(H16_tokens_end_below_2_to_the_53_and_never_repeat)
{
    struct asked *a = take(one, "old", 'a'), *b;

    EXPECT(queue_up(two, "old", 'b'), STORE_HELD);
    redis_server_ok(&redis, "SET %s{0}:fence 9007199254740989", PREFIX);
    b = take(one, "L", 'a');
    ck_assert_int_eq(b->call.ret_token, INT64_C(9007199254740990)); /* the last: exact in every client */
    EXPECT(check(one, "L", b->call.ret_token), STORE_DONE);
    EXPECT(check(one, "L", b->call.ret_token - 1), STORE_LOST);
    for (int i = 0; i < 3; i++) {
        static const char *const fences[] = {"9007199254740990", "9007199254740993", "9223372036854775807"};

        redis_server_ok(&redis, "SET %s{0}:fence %s", PREFIX, fences[i]);
        b = EXPECT(acquire(i ? two : one, "M", 'a'), STORE_UNAVAILABLE);
        ck_assert_ptr_nonnull(strstr(b->call.problem, "exhausted"));
        EXPECT(queue_up(one, "L", 'c'), STORE_UNAVAILABLE); /* tickets come from there, too */
        ck_assert_int_eq(lock_pttl("M"), -2);
        EXPECT(check(one, "old", a->call.ret_token), STORE_DONE); /* what is held goes on */
        EXPECT(renew(one, "old", 'a', TTL_MS), STORE_DONE);
    }
    EXPECT(release(one, "old", 'a'), STORE_DONE);
}
END_TEST

START_TEST(H16_attach_refuses_a_node_that_saw_a_fence_out_of_range)
{
    redis_server_ok(&redis, "SET %s{0}:fence 5000000000000000", PREFIX);
    take(one, "L", 'a');
    redis_server_ok(&redis, "FLUSHALL");
    nothing_is_granted();
    ck_assert(!node_is_ready(one));
    ck_assert_ptr_nonnull(strstr(node_problem(one), "fence"));
}
END_TEST

/* ---- what attach refuses ---- */

START_TEST(C19_a_replica_is_refused_and_a_promoted_one_found_again)
{
    struct node *fresh;
    int before = one->detached;

    take(one, "L", 'a');
    redis_server_ok(&redis, "REPLICAOF 127.0.0.1 1");
    EXPECT(acquire(one, "M", 'a'), STORE_UNAVAILABLE);
    for (int i = 0; i < 5 && one->detached == before; i++)
        turn();
    ck_assert_int_gt(one->detached, before); /* READONLY is enough: it does not wait for a beat */
    EXPECT(renew(two, "L", 'a', TTL_MS), STORE_UNAVAILABLE);
    RUN_UNTIL(!node_is_ready(one) && !node_is_ready(two), 20000);
    fresh = rig_node(WINDOW_MS);
    RUN_UNTIL(strstr(node_problem(fresh), "not a master") && strstr(node_problem(one), "not a master"), 20000);
    ck_assert_str_eq(node_role(fresh), "replica");
    ck_assert_int_eq(fresh->attached, 0);
    EXPECT(release(one, "L", 'a'), STORE_UNAVAILABLE);
    redis_server_ok(&redis, "REPLICAOF NO ONE");
    RUN_UNTIL(node_is_ready(one) && node_is_ready(two) && node_is_ready(fresh), 10000);
    ck_assert_str_eq(node_role(one), "master");
    ck_assert_str_eq(node_problem(one), "");
}
END_TEST

/* A beat finds out also when nobody calls. */
START_TEST(C19_an_idle_node_notices_that_its_master_was_demoted)
{
    redis_server_ok(&redis, "REPLICAOF 127.0.0.1 1");
    RUN_UNTIL(!node_is_ready(one), 20000);
}
END_TEST

START_TEST(C22_a_server_that_may_evict_is_refused_unless_it_is_allowed)
{
    struct node *fresh = rig_node(WINDOW_MS);

    redis_server_ok(&redis, "CONFIG SET maxmemory-policy allkeys-lru");
    RUN_UNTIL(node_is_ready(fresh), 10000); /* without a limit nothing is evicted */
    redis_server_ok(&redis, "CONFIG SET maxmemory 500mb");
    fresh = rig_node(WINDOW_MS);
    RUN_UNTIL(strstr(node_problem(fresh), "allkeys-lru"), 10000);
    ck_assert_ptr_nonnull(strstr(node_problem(fresh), "--allow-eviction"));
    EXPECT(acquire(fresh, "L", 'a'), STORE_UNAVAILABLE);
    redis_server_ok(&redis, "CONFIG SET maxmemory-policy noeviction");
    RUN_UNTIL(node_is_ready(fresh), 10000);
    take(fresh, "L", 'a');
    redis_server_ok(&redis, "CONFIG SET maxmemory-policy volatile-ttl");
    node_stop(fresh);
    rig_allow_eviction = true;
    fresh = rig_node(WINDOW_MS);
    RUN_UNTIL(node_is_ready(fresh), 10000);
}
END_TEST

START_TEST(C20_a_redis_that_is_loading_is_waited_for)
{
    static const char *const slow[] = {"--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024", NULL};
    int first = one->attached;
    bool loading = false;

    redis_server_ok(&redis, "DEBUG POPULATE 800 filler 200");
    redis_server_ok(&redis, "SAVE");
    redis_server_kill(&redis);
    rig_redis_options = slow;
    rig_restart_redis();
    while (one->attached == first) {
        struct asked *a = acquire(one, "L", 'a');

        ck_assert_int_le(a->answered_us, a->call.deadline_us + SLACK_MS * 1000);
        loading = loading || (a->call.result == STORE_UNAVAILABLE && strstr(a->call.problem, "loading"));
        ck_assert_int_ne(a->call.result, STORE_DONE);
        forget_asked();
        turn();
    }
    ck_assert(loading);
    ready_again(one);
    close_window();
    take(one, "L", 'a');
}
END_TEST

START_TEST(C26_a_node_may_start_before_its_redis)
{
    struct node *early;
    struct asked *a;

    node_stop(one);
    node_stop(two);
    redis_server_kill(&redis);
    early = rig_node(WINDOW_MS);
    a = submit(ask(early, STORE_ACQUIRE, "L", 'a')); /* before the first attempt: held until it has failed */
    EXPECT(a, STORE_UNAVAILABLE);
    ck_assert_int_lt(a->answered_us, a->submitted_us + 500000);
    ck_assert(!node_is_ready(early));
    rig_restart_redis();
    RUN_UNTIL(early->attached, 20000);
    close_window();
    take(early, "L", 'a');
}
END_TEST

/* ---- C21 and other refusals of Redis ---- */

START_TEST(C21_a_full_redis_grants_nothing_and_lets_go)
{
    struct asked *a = take(one, "L", 'a'), *r;
    int64_t left;

    EXPECT(queue_up(two, "L", 'b'), STORE_HELD);
    redis_server_ok(&redis, "CONFIG SET maxmemory 1");
    left = lock_pttl("L");
    r = EXPECT(acquire(one, "M", 'c'), STORE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(r->call.problem, "OOM"));
    ck_assert_int_eq(lock_pttl("M"), -2);
    EXPECT(queue_up(one, "L", 'c'), STORE_UNAVAILABLE);
    ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_waiters, 1);
    r = renew(one, "L", 'a', 90000);
    if (r->call.result != STORE_DONE) {
        EXPECT(r, STORE_UNAVAILABLE);
        ck_assert_int_le(lock_pttl("L"), left);
    }
    EXPECT(check(one, "L", a->call.ret_token), STORE_DONE);
    EXPECT(release(one, "L", 'a'), STORE_DONE);
    ck_assert_int_eq(lock_pttl("L"), -2);
    r = queue_up(two, "L", 'b'); /* granted, or its place is kept */
    if (r->call.result != STORE_DONE) {
        EXPECT(r, STORE_UNAVAILABLE);
        ck_assert_int_eq(EXPECT(inspect(one, "L", 'b'), STORE_DONE)->call.ret_position, 1);
    }
    redis_server_ok(&redis, "CONFIG SET maxmemory 0");
    take(one, "M", 'c');
    ck_assert(queue_up(two, "L", 'b')->call.result <= STORE_REPEATED);
    ck_assert_int_eq(one->attached + two->attached, 2);
}
END_TEST

START_TEST(C09_a_lock_has_its_end_also_where_expire_is_forbidden)
{
    redis_server_ok(&redis, "ACL SETUSER default -expire -pexpire");
    take(one, "L", 'a');
    ck_assert_int_gt(lock_pttl("L"), 20000);
    EXPECT(renew(one, "L", 'a', 60000), STORE_DONE);
    ck_assert_int_gt(lock_pttl("L"), 50000);
    redis_server_ok(&redis, "ACL SETUSER default -set");
    ck_assert_int_ge(acquire(one, "M", 'a')->call.result, STORE_UNAVAILABLE);
    ck_assert_int_eq(lock_pttl("M"), -2);
    redis_server_ok(&redis, "ACL SETUSER default +@all");
    ready_again(one);
    take(one, "M", 'a');
}
END_TEST

START_TEST(P9_a_redis_busy_with_a_script_is_an_error_and_nothing_was_done)
{
    struct asked *a;

    redis_server_ok(&redis, "CONFIG SET busy-reply-threshold 20");
    redis_server_write(&redis, "EVAL %s 0",
                       "local t = redis.call('TIME') local now repeat now = redis.call('TIME') until "
                       "(now[1] - t[1]) * 1000000 + now[2] - t[2] > 500000 return 1");
    a = acquire(one, "L", 'a');
    redis_server_answer(&redis);
    ck_assert_msg(a->call.result == STORE_UNAVAILABLE || a->call.result == STORE_DONE, "%s", result_name(a->call.result));
    if (a->call.result == STORE_UNAVAILABLE)
        ck_assert_int_eq(lock_pttl("L"), -2);
    late_by_no_more_than_slack(a);
}
END_TEST

/* ---- all of it at random ---- */

enum { LOCKS = 4, ROUNDS = 250 };

static void mischief(struct dice *dice)
{
    switch (dice_roll(dice, 10)) {
    case 0:
        redis_server_write(&redis, "CLIENT KILL TYPE normal");
        break;
    case 1:
        redis_server_write(&redis, "CLIENT KILL TYPE pubsub");
        break;
    case 2:
        redis_server_write(&redis, "SCRIPT FLUSH");
        break;
    case 3:
        redis_server_write(&redis, "DEL %s{0}:node:%s", PREFIX, redis_store_node(dice_roll(dice, 2) ? one->redis : two->redis));
        break;
    default:
        redis_server_write(&redis, "PING");
        break;
    }
}

/* Gives up whatever this acquire may have done, as the broker would. */
static void settle(struct asked *a)
{
    for (;;) {
        struct asked *c = cancel(a->node, a);
        if (c->call.result == STORE_DONE)
            return;
        ck_assert_int_ge(c->call.result, STORE_UNAVAILABLE);
        turn();
    }
}

/* Without an outcome, which nothing but the time that a busy machine took excuses: what was asked before is answered with one, whatever becomes of the
 * connection. */
static bool came_too_late(const struct dice *dice, int round, const struct asked *a)
{
    bool late = a->answered_us - a->submitted_us >= TIMEOUT_MS * 1000 / 2;

    DICE_ASSERT(dice, round, a->call.result < STORE_UNAVAILABLE || late);
    return a->call.result >= STORE_UNAVAILABLE;
}

/* Each round every lock is asked for through both nodes at once while something happens to Redis. One of them holds it, with a greater token than ever
 * before; then everything is given up, and nothing is left. */
START_TEST(P1_P2_P8_C24_C25_random_mischief_breaks_no_promise)
{
    struct dice dice;
    int64_t greatest[LOCKS] = {0};
    struct asked *asked[LOCKS][2];

    dice_init(&dice);
    for (int round = 0; round < ROUNDS; round++) {
        unsigned before = dice_roll(&dice, 2);

        redis_server_freeze(&redis);
        if (before)
            mischief(&dice);
        for (int lock = 0; lock < LOCKS; lock++) {
            char name[2] = {(char)('K' + lock), '\0'};
            for (int n = 0; n < 2; n++) {
                asked[lock][n] = ask(n ? two : one, STORE_ACQUIRE, name, n ? 'b' : 'a');
                asked[lock][n]->call.queue = dice_roll(&dice, 2);
                submit(asked[lock][n]);
            }
        }
        turn();
        if (!before)
            mischief(&dice);
        redis_server_thaw(&redis);
        redis_server_answer(&redis);
        for (int lock = 0; lock < LOCKS; lock++) {
            int holders = 0, unknown = 0;
            for (int n = 0; n < 2; n++) {
                if (answer(asked[lock][n]) != STORE_DONE) {
                    DICE_ASSERT(&dice, round, asked[lock][n]->call.result != STORE_REPEATED);
                    unknown += came_too_late(&dice, round, asked[lock][n]);
                    continue;
                }
                holders++;
                DICE_ASSERT(&dice, round, asked[lock][n]->call.ret_token > greatest[lock]);
                greatest[lock] = asked[lock][n]->call.ret_token;
            }
            ck_assert_msg(holders == 1 || (holders == 0 && unknown > 0), "%d hold %c: %s and %s (TEST_SEED=%llu, round %d)", holders,
                          'K' + lock, result_name(asked[lock][0]->call.result), result_name(asked[lock][1]->call.result),
                          (unsigned long long)dice.seed, round);
        }
        for (int lock = 0; lock < LOCKS; lock++) {
            settle(asked[lock][0]);
            settle(asked[lock][1]);
        }
        ready_again(one);
        ready_again(two);
        DICE_ASSERT(&dice, round, strcmp(keys_left(), "fence incarnation node node") == 0);
        forget_asked();
        one->note_count = two->note_count = 0;
    }
}
END_TEST

/* ---- bursts: more calls than may be on their way at one time ---- */

enum { BURST = 450, FLIGHT = 256 /* of them are sent at once by a node that has just attached; the others wait */ };
static struct asked *burst[BURST];

/* The i-th, of a lock of its own. By turns plain ones, which leave many in one run, and others, which leave alone. */
static struct asked *nth_acquire(int i)
{
    char name[24];
    struct asked *asked;

    snprintf(name, sizeof(name), "burst-%d", i);
    asked = ask(one, STORE_ACQUIRE, name, 'd');
    snprintf(asked->call.lease_id.text, sizeof(asked->call.lease_id.text), "%08x-0000-4000-8000-000000000001", (unsigned)i);
    asked->call.queue = i % 3 == 0;
    return asked;
}

static void burst_out(int count)
{
    for (int i = 0; i < count; i++)
        burst[i] = submit(nth_acquire(i));
}

static size_t waiting(void)
{
    struct store_status status = {0};

    store_get_status(one->store, &status);
    return status.waiting;
}

static uint64_t unsent(void)
{
    struct store_status status = {0};

    store_get_status(one->store, &status);
    return status.unsent;
}

static void burst_granted_in_order(void)
{
    for (int i = 0; i < BURST; i++) {
        EXPECT(burst[i], STORE_DONE);
        if (i > 0)
            ck_assert_int_gt(burst[i]->call.ret_token, burst[i - 1]->call.ret_token);
    }
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_uint_eq(unsent(), 0);
}

START_TEST(P6_P9_a_burst_leaves_in_the_order_in_which_it_came)
{
    warm_up();
    redis_server_freeze(&redis);
    burst_out(BURST);
    written();
    ck_assert_uint_eq(waiting(), BURST - FLIGHT);
    redis_server_thaw(&redis);
    burst_granted_in_order();
    ck_assert_int_eq(one->detached, 0);
}
END_TEST

static struct asked *newcomer;
static void (*tell_answer)(struct store_call *call);

static void answer_and_ask(struct store_call *call)
{
    if (newcomer->submitted_us == 0)
        submit(newcomer);
    tell_answer(call);
}

START_TEST(P6_who_comes_while_others_wait_and_there_is_room_comes_behind_them)
{
    warm_up();
    redis_server_freeze(&redis);
    for (int i = 0; i < BURST; i++) {
        burst[i] = nth_acquire(i);
        if (i == 0) {
            tell_answer = burst[i]->call.done;
            burst[i]->call.done = answer_and_ask;
        }
        submit(burst[i]);
    }
    newcomer = nth_acquire(BURST);
    redis_server_thaw(&redis);
    burst_granted_in_order();
    EXPECT(newcomer, STORE_DONE);
    ck_assert_int_gt(newcomer->call.ret_token, burst[BURST - 1]->call.ret_token);
}
END_TEST

START_TEST(P6_waiters_that_come_in_a_burst_have_their_places_in_order)
{
    take(one, "L", 'a');
    redis_server_freeze(&redis);
    for (int i = 0; i < BURST; i++) {
        burst[i] = asked_to_queue(one, "L", 'b');
        snprintf(burst[i]->call.lease_id.text, sizeof(burst[i]->call.lease_id.text), "%08x-0000-4000-8000-000000000001", (unsigned)i);
        burst[i]->call.contended = i > 0;
        submit(burst[i]);
    }
    redis_server_thaw(&redis);
    for (int i = 0; i < BURST; i++) {
        EXPECT(burst[i], STORE_HELD);
        ck_assert_int_eq(burst[i]->call.ret_waiters, i + 1);
    }
}
END_TEST

START_TEST(P7_P9_what_had_no_turn_in_its_time_was_surely_not_done)
{
    enum { COUNT = 320 };

    warm_up();
    redis_server_freeze(&redis);
    burst_out(COUNT);
    for (int i = 0; i < COUNT; i++) {
        EXPECT(burst[i], i < FLIGHT ? STORE_UNKNOWN : STORE_UNAVAILABLE);
        late_by_no_more_than_slack(burst[i]);
    }
    ck_assert_uint_eq(unsent(), COUNT - FLIGHT);
    ck_assert_uint_eq(node_pending(one), 0);
    redis_server_thaw(&redis);
    ready_again(one);
    redis_server_ok(&redis, "PING");
    for (int i = FLIGHT; i < COUNT; i++)
        ck_assert_int_eq(lock_pttl(burst[i]->name), -2);
    for (int i = 0; i < FLIGHT; i++) {
        EXPECT(cancel(one, burst[i]), STORE_DONE);
        ck_assert_int_eq(lock_pttl(burst[i]->name), -2);
    }
}
END_TEST

/* The deadline of a call is its own: others in flight, and the connection, have nothing to do with it. */
START_TEST(P7_P8_P9_a_call_whose_time_is_over_leaves_the_connection_up)
{
    struct asked *soon[3], *later;

    warm_up();
    take(one, "M", 'f');
    redis_server_freeze(&redis);
    soon[0] = ask(one, STORE_ACQUIRE, "L", 'a');
    soon[1] = ask(one, STORE_ACQUIRE, "K", 'a');
    soon[2] = asked_to_queue(one, "M", 'a');
    for (int i = 0; i < 3; i++) {
        soon[i]->call.deadline_us = now_us() + 100000;
        submit(soon[i]);
    }
    later = ask(one, STORE_ACQUIRE, "N", 'b'); /* in one run with the first two */
    later->call.deadline_us = now_us() + 5000000;
    submit(later);
    for (int i = 0; i < 3; i++)
        EXPECT(soon[i], STORE_UNKNOWN);
    ck_assert_int_eq(later->answers, 0);
    redis_server_thaw(&redis);
    EXPECT(later, STORE_DONE);
    ck_assert_int_eq(one->detached, 0);
    for (int i = 0; i < 3; i++)
        EXPECT(cancel(one, soon[i]), STORE_DONE);
    EXPECT(release(one, "M", 'f'), STORE_DONE);
    EXPECT(release(one, "N", 'b'), STORE_DONE);
    ck_assert_str_eq(keys_left(), "fence incarnation node node");
}
END_TEST

START_TEST(P3_P9_holders_and_what_is_put_back_go_before_acquires_that_wait)
{
    struct asked *renewed = take(one, "mine", 'a'), *back = take(one, "back", 'c'), *r[3];

    take(one, "other", 'b');
    redis_server_freeze(&redis);
    burst_out(BURST);
    r[0] = submit(ask(one, STORE_RENEW, "mine", 'a'));
    r[1] = submit(ask(one, STORE_RELEASE, "other", 'b'));
    r[2] = ask(one, STORE_PUT_BACK, "back", 'c');
    r[2]->call.token = back->call.ret_token;
    r[2]->call.granted_ms = back->call.ret_granted_ms;
    r[2]->call.confirm = back->call.ret_confirm;
    submit(r[2]);
    redis_server_thaw(&redis);
    burst_granted_in_order();
    for (int i = 0; i < 3; i++) {
        EXPECT(r[i], STORE_DONE);
        ck_assert_int_lt(r[i]->place, burst[BURST - 1]->place);
    }
    ck_assert_int_lt(r[2]->place, r[0]->place);
    ck_assert_int_lt(r[0]->place, r[1]->place);
    EXPECT(check(one, "mine", renewed->call.ret_token), STORE_DONE);
}
END_TEST

/* A node's numbers for a lease rise in the order in which they are written. */
START_TEST(P4_P6_of_one_lease_all_leaves_in_the_order_in_which_it_came)
{
    struct asked *a, *b, *c, *d;

    warm_up();
    redis_server_freeze(&redis);
    burst_out(BURST);
    a = submit(ask(one, STORE_ACQUIRE, "L", 'a'));
    b = submit(ask(one, STORE_RENEW, "L", 'a'));
    c = submit(ask(one, STORE_RELEASE, "L", 'a'));
    d = submit(ask(one, STORE_RENEW, "L", 'a'));
    redis_server_thaw(&redis);
    EXPECT(a, STORE_DONE);
    EXPECT(b, STORE_DONE);
    EXPECT(c, STORE_DONE);
    EXPECT(d, STORE_LOST);
    ck_assert_int_eq(lock_pttl("L"), -2);
}
END_TEST

static const char *number_in_redis(const char *name)
{
    static char number[32];

    ck_assert_int_eq(sscanf(redis_server_text(&redis, "GET %s", key("lock", name)), "%*s %*s %*s %31s", number), 1);
    return number;
}

static const char *digits(uint64_t number)
{
    static char text[32];

    snprintf(text, sizeof(text), "%" PRIu64, number);
    return text;
}

/* A repeat among plain calls: it turns out not to be plain, and is sent once more by itself. */
static struct asked *repeat_among_plain_ones(char id)
{
    struct asked *repeat = submit(ask(one, STORE_ACQUIRE, "L", id));

    submit(ask(one, STORE_ACQUIRE, "plain", 'p'));
    return repeat;
}

/* Else the lease would stand under a lesser number than one that this node has told already: a message of another node that is about the greater one would
 * make this node forget what is its own matter. */
START_TEST(P3_what_is_sent_again_is_not_passed_by_a_renewal_of_its_lease)
{
    struct asked *grant = take(one, "L", 'a'), *repeat, *renewal;

    warm_up();
    for (int same_turn = 0; same_turn < 2; same_turn++) {
        redis_server_freeze(&redis);
        repeat = repeat_among_plain_ones('a');
        if (!same_turn)
            written();
        renewal = submit(ask(one, STORE_RENEW, "L", 'a'));
        redis_server_thaw(&redis);
        ck_assert_int_eq(EXPECT(repeat, STORE_REPEATED)->call.ret_token, grant->call.ret_token);
        EXPECT(renewal, STORE_DONE);
        ck_assert_int_lt(repeat->place, renewal->place);
        ck_assert_uint_gt(renewal->call.confirm, repeat->call.ret_confirm);
        ck_assert_str_eq(number_in_redis("L"), digits(renewal->call.confirm));
        EXPECT(release(one, "plain", 'p'), STORE_DONE);
    }
}
END_TEST

/* Else the release would end the lease that the repeat was about to be told of, and the repeat take a new one that this node does not vouch for. */
START_TEST(P3_P7_what_is_sent_again_is_not_passed_by_a_release_of_its_lease)
{
    struct asked *grant, *repeat, *freed;

    warm_up();
    for (int same_turn = 0; same_turn < 2; same_turn++) {
        grant = take(one, "L", 'a');
        redis_server_freeze(&redis);
        repeat = repeat_among_plain_ones('a');
        if (!same_turn)
            written();
        freed = submit(ask(one, STORE_RELEASE, "L", 'a'));
        redis_server_thaw(&redis);
        ck_assert_int_eq(EXPECT(repeat, STORE_REPEATED)->call.ret_token, grant->call.ret_token);
        EXPECT(freed, STORE_DONE);
        ck_assert_int_eq(lock_pttl("L"), -2);
        EXPECT(release(one, "plain", 'p'), STORE_DONE);
    }
}
END_TEST

/* Many stand behind one: each has its turn, in order, whatever becomes of those before it. */
START_TEST(P4_P9_calls_about_one_lease_go_one_after_the_other)
{
    enum { COUNT = 100 };
    struct asked *asked[COUNT];

    warm_up();
    take(one, "L", 'a');
    redis_server_freeze(&redis);
    for (int i = 0; i < COUNT; i++) {
        asked[i] = ask(one, i == COUNT - 2 ? STORE_RELEASE : STORE_RENEW, "L", 'a');
        if (i == 20 || i == 40)
            asked[i]->call.deadline_us = now_us() + 50000;
        submit(asked[i]);
    }
    ck_assert_uint_eq(waiting(), COUNT - 1);
    EXPECT(asked[20], STORE_UNAVAILABLE);
    EXPECT(asked[40], STORE_UNAVAILABLE);
    redis_server_thaw(&redis);
    for (int i = 0; i < COUNT; i++)
        if (i != 20 && i != 40)
            EXPECT(asked[i], i == COUNT - 1 ? STORE_LOST : STORE_DONE);
    for (int i = 1; i < COUNT; i++)
        ck_assert(i == 20 || i == 21 || i == 40 || i == 41 || asked[i]->place > asked[i - 1]->place);
    ck_assert_uint_eq(waiting(), 0);
    ck_assert_uint_eq(node_pending(one), 0);
}
END_TEST

/* Its time is over, its command is not: what stood behind it goes on. So it does behind one whose outcome is not known since the connection broke. */
START_TEST(P4_P9_what_stands_behind_a_call_whose_time_is_over_has_its_turn)
{
    struct asked *first, *second;

    warm_up();
    take(one, "L", 'a');
    redis_server_freeze(&redis);
    first = ask(one, STORE_RENEW, "L", 'a');
    first->call.deadline_us = now_us() + 50000;
    submit(first);
    second = ask(one, STORE_RENEW, "L", 'a');
    second->call.deadline_us = now_us() + 5000000;
    submit(second);
    EXPECT(first, STORE_UNKNOWN);
    written();
    ck_assert_uint_eq(waiting(), 0);
    redis_server_thaw(&redis);
    EXPECT(second, STORE_DONE);

    freeze_before(true);
    redis_server_write(&redis, "CLIENT KILL TYPE normal");
    first = submit(ask(one, STORE_RELEASE, "L", 'a'));
    second = submit(ask(one, STORE_RENEW, "L", 'a'));
    written();
    redis_server_thaw(&redis);
    redis_server_answer(&redis);
    EXPECT(first, STORE_UNKNOWN);
    EXPECT(second, STORE_DONE); /* the connection was closed before it was read */
}
END_TEST

/* A lease made up, and not the only one. */
static struct asked *bogus_renewal(int lease)
{
    struct asked *asked = ask(one, STORE_RENEW, "bogus", 'd');

    snprintf(asked->call.lease_id.text, sizeof(asked->call.lease_id.text), "%08x-0000-4000-8000-000000000002", (unsigned)lease);
    return submit(asked);
}

/* As many leases as nearly fill what may be on its way, and each asked about again and again: those stand behind others, and not before a holder. */
START_TEST(P9_a_flood_about_few_leases_keeps_no_holder_waiting)
{
    enum { LEASES = FLIGHT - 6, TIMES = 3 };
    struct asked *flood[TIMES][LEASES], *grant, *renewal;

    warm_up();
    grant = take(one, "mine", 'a');
    redis_server_freeze(&redis);
    for (int round = 0; round < TIMES; round++)
        for (int i = 0; i < LEASES; i++)
            flood[round][i] = bogus_renewal(i);
    for (int i = LEASES; i < FLIGHT; i++)
        (void)bogus_renewal(i);
    ck_assert_uint_eq(waiting(), (TIMES - 1) * LEASES);
    renewal = ask(one, STORE_RENEW, "mine", 'a');
    renewal->call.token = grant->call.ret_token;
    renewal->call.granted_ms = grant->call.ret_granted_ms;
    submit(renewal);
    ck_assert_uint_eq(waiting(), (TIMES - 1) * LEASES + 1);
    redis_server_thaw(&redis);
    EXPECT(renewal, STORE_DONE);
    for (int round = 0; round < TIMES; round++)
        for (int i = 0; i < LEASES; i++)
            EXPECT(flood[round][i], STORE_LOST);
    for (int i = 0; i < LEASES; i++)
        ck_assert_int_lt(renewal->place, flood[1][i]->place);
}
END_TEST

static int renewals_open;

static void renewal_done(struct store_call *call)
{
    ck_assert_int_eq(call->result, STORE_DONE);
    renewals_open--;
}

/* The processor's time that so many renewals of one lease, asked for at once, take. */
static int64_t renewals_cost_us(struct store_call *calls, int count)
{
    struct rusage before, after;
    struct asked *form = ask(one, STORE_RENEW, "L", 'a');

    form->answers = 1; /* not submitted itself */
    getrusage(RUSAGE_SELF, &before);
    for (renewals_open = 0; renewals_open < count; renewals_open++) {
        struct store_call *call = &calls[renewals_open];
        *call = form->call;
        call->done = renewal_done;
        call->deadline_us = now_us() + INT64_C(200000000);
        store_submit(one->store, call);
    }
    RUN_UNTIL(renewals_open == 0, 200000);
    getrusage(RUSAGE_SELF, &after);
    return (after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) * INT64_C(1000000) +
           after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec;
}

/* Each answer lets one more go; it does not look at all that wait. */
START_TEST(P9_what_a_call_costs_does_not_grow_with_how_many_stand_behind_it)
{
    enum { PARTS = 8, PART = 1000 };
    struct store_call *calls = calloc((size_t)PARTS * PART, sizeof(*calls));
    int64_t apart_us = 0, together_us;

    ck_assert_ptr_nonnull(calls);
    warm_up();
    take(one, "L", 'a');
    for (int i = 0; i < PARTS; i++)
        apart_us += renewals_cost_us(calls, PART);
    together_us = renewals_cost_us(calls, PARTS * PART);
    ck_assert_msg(2 * together_us < 5 * apart_us, "%" PRId64 " us together, %" PRId64 " us apart", together_us, apart_us);
    free(calls);
}
END_TEST

/* ---- many calls about few leases, whatever happens ---- */

enum { FEW = 4, FEW_AT_ONCE = 400, FEW_ROUNDS = 24 };

struct one_call { /* freed when it is answered, as a broker's may be */
    struct store_call call;
    int number; /* in the order in which they were submitted */
};

static struct dice few_dice;
static int few_open, few_made, few_round, few_more, few_last[FEW];

static void few_answered(struct store_call *call);

/* About one of few leases, which are two ids on two locks; once in a while with little time. */
static void submit_one_of_few(unsigned lease)
{
    static const enum store_op ops[] = {STORE_ACQUIRE, STORE_RENEW, STORE_RENEW, STORE_RELEASE, STORE_CANCEL};
    struct one_call *mine = malloc(sizeof(*mine));
    struct asked *form = ask(one, ops[dice_roll(&few_dice, 5)], lease % 2 ? "K" : "L", lease / 2 ? 'a' : 'b');

    ck_assert_ptr_nonnull(mine);
    mine->call = form->call;
    mine->call.name = lease % 2 ? "K" : "L";
    mine->call.owner = "few";
    mine->call.owner_len = 3;
    mine->call.arg = mine;
    mine->call.done = few_answered;
    mine->call.queue = mine->call.op == STORE_ACQUIRE && dice_roll(&few_dice, 4) == 0;
    mine->call.deadline_us = now_us() + (dice_roll(&few_dice, 8) == 0 ? 1 + (int)dice_roll(&few_dice, 60000) : TIMEOUT_MS * 1000);
    mine->number = ++few_made;
    form->answers = 1; /* not submitted itself */
    forget_asked();
    few_open++;
    store_submit(one->store, &mine->call);
}

/* Those of one lease that have an outcome have it in their order. An answer may bring another call about the lease. */
static void few_answered(struct store_call *call)
{
    struct one_call *mine = call->arg;
    unsigned lease = (call->name[0] == 'K') + 2U * (call->lease_id.text[0] == 'a');
    bool late = now_us() > call->deadline_us + SLACK_MS * 1000;

    DICE_ASSERT(&few_dice, few_round, !late);
    if (call->result < STORE_UNAVAILABLE) {
        DICE_ASSERT(&few_dice, few_round, mine->number > few_last[lease]);
        few_last[lease] = mine->number;
    }
    memset(mine, 0xee, sizeof(*mine));
    free(mine);
    few_open--;
    if (few_more > 0 && dice_roll(&few_dice, 3) == 0) {
        few_more--;
        submit_one_of_few(lease);
    }
}

START_TEST(P4_P7_P9_whatever_becomes_of_calls_about_few_leases_each_is_answered_and_in_order)
{
    dice_init(&few_dice);
    warm_up();
    for (few_round = 0; few_round < FEW_ROUNDS; few_round++) {
        unsigned count = 1 + dice_roll(&few_dice, FEW_AT_ONCE), frozen = dice_roll(&few_dice, 4);

        few_more = 100;
        if (frozen)
            redis_server_freeze(&redis);
        for (unsigned i = 0; i < count; i++) {
            submit_one_of_few(dice_roll(&few_dice, FEW));
            if (dice_roll(&few_dice, 100) == 0)
                turn();
            if (i == count / 2)
                mischief(&few_dice);
        }
        if (frozen == 1) /* some are too late meanwhile */
            RUN_UNTIL(few_open < (int)count / 2 || dice_roll(&few_dice, 20) == 0, 10000);
        if (frozen)
            redis_server_thaw(&redis);
        redis_server_answer(&redis);
        RUN_UNTIL(few_open == 0, 20000);
        ck_assert_uint_eq(waiting(), 0);
        ready_again(one);
    }
    RUN_UNTIL(node_pending(one) == 0, 10000);
}
END_TEST

START_TEST(P6_P7_C24_a_burst_keeps_its_order_through_a_lost_connection)
{
    warm_up();
    freeze_before(true);
    redis_server_write(&redis, "CLIENT KILL TYPE normal");
    burst_out(BURST);
    written();
    redis_server_thaw(&redis);
    redis_server_answer(&redis);
    burst_granted_in_order();
    ck_assert_int_eq(one->attached, 2);
}
END_TEST

START_TEST(P3_a_burst_finds_another_life)
{
    warm_up();
    freeze_before(true);
    redis_server_write(&redis, "FLUSHALL");
    burst_out(BURST);
    written();
    redis_server_thaw(&redis);
    redis_server_answer(&redis);
    for (int i = 0; i < BURST; i++)
        EXPECT(burst[i], STORE_RECOVERING);
    ck_assert_int_eq(one->attached, 2);
}
END_TEST

START_TEST(P7_P9_stop_answers_a_burst)
{
    redis_server_freeze(&redis);
    burst_out(BURST);
    written();
    redis_store_stop(one->redis);
    for (int i = 0; i < BURST; i++)
        EXPECT(burst[i], i < FLIGHT ? STORE_UNKNOWN : STORE_UNAVAILABLE);
    redis_server_thaw(&redis);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("store_faults");
    TCase *silence = tcase_create("silence"), *flight = tcase_create("flight"), *damage = tcase_create("damage"),
          *refusals = tcase_create("refusals"), *random = tcase_create("mischief"), *bursts = tcase_create("bursts");
    TCase *const all[] = {silence, flight, damage, refusals, random, bursts};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        tcase_add_unchecked_fixture(all[i], rig_make_folder, rig_remove_folder);
        tcase_add_checked_fixture(all[i], start, rig_stop);
        suite_add_tcase(suite, all[i]);
    }
    tcase_add_test(silence, P9_C23_a_frozen_redis_leaves_no_call_unanswered_beyond_its_deadline);
    tcase_add_test(silence, P9_a_call_is_answered_by_its_own_deadline_also_when_it_is_a_short_one);
    tcase_add_test(silence, P7_P8_H13_an_acquire_that_was_answered_unknown_leaves_nothing_once_it_is_cancelled);
    tcase_add_test(silence, P7_H13_a_script_of_an_earlier_connection_does_nothing);
    tcase_add_test(silence, P8_the_key_of_a_node_ends_by_itself_from_the_first);
    tcase_add_test(flight, P7_C24_calls_lost_before_they_ran_are_run_again);
    tcase_add_test(flight, P7_C24_calls_that_ran_and_whose_answers_were_lost_are_run_again_to_the_same_effect);
    tcase_add_test(flight, P7_a_grant_that_was_run_twice_is_one_grant);
    tcase_add_test(flight, P7_C24_many_calls_of_one_turn_lost_before_they_ran);
    tcase_add_test(flight, P7_C24_many_calls_of_one_turn_that_ran_and_whose_answers_were_lost);
    tcase_add_test(flight, C25_many_calls_of_one_turn_find_the_script_cache_lost);
    tcase_add_test(flight, P3_many_calls_of_one_turn_find_another_life);
    tcase_add_loop_test(flight, P2_H3_many_calls_of_one_turn_meet_a_fence_that_fell, 0, 2);
    tcase_add_test(flight, P2_many_calls_of_one_turn_after_a_new_attach_run_in_that);
    tcase_add_test(flight, P7_C24_a_release_and_its_rider_share_an_unknown_end);
    tcase_add_test(flight, C24_calls_made_while_the_connection_comes_back_are_held);
    tcase_add_test(flight, C26_while_redis_is_gone_calls_fail_at_once_and_it_is_found_again);
    tcase_add_test(flight, C27_a_redis_that_is_away_is_not_stormed);
    tcase_add_test(flight, P6_lost_messages_are_told_and_come_through_again);
    tcase_add_test(flight, P6_a_beat_keeps_the_nodes_key_alive);
    tcase_add_test(flight, P9_stop_answers_what_is_open);
    tcase_add_test(flight, C25_a_lost_script_cache_with_calls_in_flight_fails_nothing_and_keeps_their_order);
    tcase_add_test(flight, C25_every_call_attach_and_beat_survives_a_lost_script_cache);
    tcase_add_test(damage, C09_a_foreign_string_at_a_lock_is_neither_granted_nor_touched);
    tcase_add_test(damage, C09_a_foreign_key_of_another_type_at_a_lock_is_neither_granted_nor_touched);
    tcase_add_test(damage, C09_a_queue_of_another_type_is_an_error_and_no_grant);
    tcase_add_test(damage, H16_C10_a_damaged_fence_is_refused_and_nothing_granted);
    tcase_add_test(damage, H16_a_fence_that_only_lua_takes_for_a_number_grants_nothing);
    tcase_add_test(damage, H16_a_fence_or_incarnation_of_another_type_is_refused);
    tcase_add_test(damage, H16_tokens_end_below_2_to_the_53_and_never_repeat);
    tcase_add_test(damage, H16_attach_refuses_a_node_that_saw_a_fence_out_of_range);
    tcase_add_test(refusals, C19_a_replica_is_refused_and_a_promoted_one_found_again);
    tcase_add_test(refusals, C19_an_idle_node_notices_that_its_master_was_demoted);
    tcase_add_test(refusals, C22_a_server_that_may_evict_is_refused_unless_it_is_allowed);
    tcase_add_test(refusals, C20_a_redis_that_is_loading_is_waited_for);
    tcase_add_test(refusals, C26_a_node_may_start_before_its_redis);
    tcase_add_test(refusals, C21_a_full_redis_grants_nothing_and_lets_go);
    tcase_add_test(refusals, C21_a_full_redis_grants_nothing_of_one_turn_and_lets_go);
    tcase_add_test(refusals, C09_a_lock_has_its_end_also_where_expire_is_forbidden);
    tcase_add_test(refusals, P9_a_redis_busy_with_a_script_is_an_error_and_nothing_was_done);
    tcase_add_test(random, P1_P2_P8_C24_C25_random_mischief_breaks_no_promise);
    tcase_add_test(bursts, P6_P9_a_burst_leaves_in_the_order_in_which_it_came);
    tcase_add_test(bursts, P6_who_comes_while_others_wait_and_there_is_room_comes_behind_them);
    tcase_add_test(bursts, P6_waiters_that_come_in_a_burst_have_their_places_in_order);
    tcase_add_test(bursts, P7_P9_what_had_no_turn_in_its_time_was_surely_not_done);
    tcase_add_test(bursts, P7_P8_P9_a_call_whose_time_is_over_leaves_the_connection_up);
    tcase_add_test(bursts, P3_P9_holders_and_what_is_put_back_go_before_acquires_that_wait);
    tcase_add_test(bursts, P4_P6_of_one_lease_all_leaves_in_the_order_in_which_it_came);
    tcase_add_test(bursts, P3_what_is_sent_again_is_not_passed_by_a_renewal_of_its_lease);
    tcase_add_test(bursts, P3_P7_what_is_sent_again_is_not_passed_by_a_release_of_its_lease);
    tcase_add_test(bursts, P4_P9_calls_about_one_lease_go_one_after_the_other);
    tcase_add_test(bursts, P4_P9_what_stands_behind_a_call_whose_time_is_over_has_its_turn);
    tcase_add_test(bursts, P4_P7_P9_whatever_becomes_of_calls_about_few_leases_each_is_answered_and_in_order);
    tcase_add_test(bursts, P9_a_flood_about_few_leases_keeps_no_holder_waiting);
    tcase_add_test(bursts, P9_what_a_call_costs_does_not_grow_with_how_many_stand_behind_it);
    tcase_add_test(bursts, P6_P7_C24_a_burst_keeps_its_order_through_a_lost_connection);
    tcase_add_test(bursts, P3_a_burst_finds_another_life);
    tcase_add_test(bursts, P7_P9_stop_answers_a_burst);
    return check_main(suite);
}
