/* A call on its way:
 *
 *     redis_calls_take ──► send, or in a batch of this turn ──► in flight ── answered ──► done
 *                    │                                        │    ▲
 *                    └──► held ◄── lost, or another life ─────┘    │
 *                          │└──────────── redis_calls_send_held ───┘
 *                          └──► failed ──► done, at the end of the turn
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_calls.h"

#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "daemon/redis_question.h"

#define HELD_MAX       65536
#define RERUNS_MAX     16
#define SPARE_RUNS_MAX 256
#define BATCH_MAX      64 /* plain calls in one run of a script */

struct run { /* one command on its way */
    struct redis_command command;
    struct redis_calls *calls;
    struct store_call *call; /* of a batch: the first of the chain by `next` */
    size_t count;            /* 0: not a batch */
    struct run *spare;
    bool whole_script; /* EVAL, after the server said NOSCRIPT */
};

struct redis_calls {
    struct redis_link *link;
    struct redis_life *life;
    struct redis_complaints *complaints;
    struct redis_calls_callbacks callbacks;
    bool stopped;
    struct store_call *held, **held_last;
    size_t held_count;
    size_t open;                              /* taken and not done */
    struct store_call *failed, **failed_last; /* to be answered at the end of the turn */
    struct store_call *batch, **batch_last;   /* plain calls of this turn, not sent yet */
    size_t batch_count;
    struct run *spare;
    size_t spare_count;
};

static void send_call(struct redis_calls *c, struct store_call *call, bool whole_script);
static void conclude(struct redis_calls *c, struct store_call *call);

/* ---- finishing ---- */

/* A rider that was granted hears of it before the release does: everybody is waiting for it, and nobody for the release. */
void redis_calls_done(struct redis_calls *c, struct store_call *call)
{
    struct store_call *rider = call->rider;

    if (rider) { /* a release that did its work has answered it; else it shares the release's fate */
        rider->sent_us = call->sent_us;
        rider->deadline_us = call->deadline_us;
        rider->reruns = 0;
        rider->may_have_run = false;
        if (call->result != STORE_DONE) {
            rider->result = call->result == STORE_UNKNOWN || call->result == STORE_UNAVAILABLE ? call->result : STORE_TURN;
            rider->problem = call->problem;
            rider->ret_ticket = rider->ticket;
            rider->ret_woken.text[0] = '\0';
        }
        c->open++; /* from here on a call like any other */
        if (rider->result == STORE_DONE) {
            conclude(c, rider);
            rider = NULL;
        }
    }
    c->open--;
    call->done(call);
    if (rider)
        conclude(c, rider);
}

/* Answers without anything having been done, at the end of the turn. */
void redis_calls_fail(struct redis_calls *c, struct store_call *call, const char *problem)
{
    call->result = call->may_have_run ? STORE_UNKNOWN : STORE_UNAVAILABLE;
    call->problem = problem;
    call->next = NULL;
    *c->failed_last = call;
    c->failed_last = &call->next;
    c->callbacks.alarm(c->callbacks.arg, clock_now_us(c->life->clock));
}

static void answer_failed(struct redis_calls *c)
{
    struct store_call *call = c->failed;

    c->failed = NULL;
    c->failed_last = &c->failed;
    while (call) {
        struct store_call *next = call->next;
        redis_calls_done(c, call);
        call = next;
    }
}

/* ---- held ---- */

void redis_calls_hold(struct redis_calls *c, struct store_call *call)
{
    if (c->held_count >= HELD_MAX || c->stopped) {
        redis_calls_fail(c, call, c->stopped ? "this node is stopping" : "too many calls wait for Redis");
        return;
    }
    call->next = NULL;
    *c->held_last = call;
    c->held_last = &call->next;
    c->held_count++;
    c->callbacks.alarm(c->callbacks.arg, call->deadline_us);
}

static struct store_call *take_held(struct redis_calls *c)
{
    struct store_call *call = c->held;

    c->held = NULL;
    c->held_last = &c->held;
    c->held_count = 0;
    return call;
}

void redis_calls_fail_held(struct redis_calls *c, const char *problem)
{
    struct store_call *call = take_held(c);

    while (call) {
        struct store_call *next = call->next;
        redis_calls_fail(c, call, problem);
        call = next;
    }
}

void redis_calls_send_held(struct redis_calls *c)
{
    struct store_call *call = take_held(c);

    while (call) {
        struct store_call *next = call->next;
        send_call(c, call, false);
        call = next;
    }
}

/* Fails the held calls whose time is over. */
static void expire_held(struct redis_calls *c, int64_t now, const char *problem)
{
    struct store_call *call = take_held(c);

    while (call) {
        struct store_call *next = call->next;
        if (call->deadline_us <= now)
            redis_calls_fail(c, call, problem);
        else
            redis_calls_hold(c, call);
        call = next;
    }
}

/* ---- answers ---- */

/* The answer is none that this call is made of: whether it ran is not known. */
static void finish_error(struct redis_calls *c, struct store_call *call, const redisReply *reply)
{
    bool drop;
    const char *text = reply->type == REDIS_REPLY_ERROR ? reply->str : "not an array";
    const char *problem = reply->type == REDIS_REPLY_ERROR ? redis_answer_problem(text, &drop) : "Redis gave an odd answer";

    redis_complain(c->complaints, "store_error", problem, text);
    if (reply->type == REDIS_REPLY_ERROR && drop)
        redis_link_drop(c->link, problem);
    /* Redis refuses before a script's first write, or a write of it; the one that makes a lease is the last. A sentence unknown to the
     * table is no proof of that. */
    call->result =
        call->may_have_run || reply->type != REDIS_REPLY_ERROR || problem == redis_answer_refused ? STORE_UNKNOWN : STORE_UNAVAILABLE;
    call->problem = problem;
    redis_calls_done(c, call);
}

static void rerun(struct redis_calls *c, struct store_call *call)
{
    if (++call->reruns > RERUNS_MAX) {
        redis_calls_fail(c, call, "Redis changed too often during the call");
        return;
    }
    redis_calls_hold(c, call);
}

/* A call that is told "you hold it" may first have to be proved. */
static void conclude(struct redis_calls *c, struct store_call *call)
{
    bool holds = (call->op == STORE_ACQUIRE && (call->result == STORE_DONE || call->result == STORE_REPEATED)) ||
                 (call->op == STORE_RENEW && call->result == STORE_DONE);

    call->ret_replicas = 0;
    call->ret_fresh = false;
    if (!holds || !c->callbacks.prove(c->callbacks.arg, call))
        redis_calls_done(c, call);
}

static void finish(struct redis_calls *c, struct store_call *call, const redisReply *reply)
{
    static const char foreign[] = "a key that pawl did not write stands at this lock's name";

    redis_life_see_fence(c->life, redis_answer_number(reply, 1));
    call->problem = "";
    if (redis_answer_is(reply, "recovering")) {
        call->ret_ticket = redis_answer_number(reply, 2);
        call->result = STORE_RECOVERING;
    } else if (redis_answer_is(reply, "lost")) {
        call->result = STORE_LOST;
    } else if (redis_answer_is(reply, "foreign")) {
        redis_complain(c->complaints, "store_error", foreign, call->name);
        call->result = STORE_UNAVAILABLE;
        call->problem = foreign;
    } else if (redis_answer_is(reply, "exhausted")) {
        redis_complain(c->complaints, "store_error", "the fence is exhausted", "");
        call->result = STORE_UNAVAILABLE;
        call->problem = "the fence is exhausted";
    } else {
        call->result = redis_answer_read(call, reply);
        if (call->result == STORE_UNKNOWN) {
            call->problem = "Redis gave an odd answer";
            redis_complain(c->complaints, "store_error", call->problem, redis_question_name(call));
        }
    }
    conclude(c, call);
}

void redis_calls_lost(struct redis_calls *c, struct store_call *call)
{
    call->may_have_run = true;
    if (redis_question_may_repeat(call))
        rerun(c, call);
    else
        redis_calls_fail(c, call, "the connection to Redis was lost");
}

/* ---- on their way ---- */

static struct run *take_run(struct redis_calls *c)
{
    struct run *run = c->spare;

    if (!run)
        return calloc(1, sizeof(*run));
    c->spare = run->spare;
    c->spare_count--;
    return run;
}

static void give_run(struct redis_calls *c, struct run *run)
{
    if (c->spare_count >= SPARE_RUNS_MAX) {
        free(run);
        return;
    }
    run->spare = c->spare;
    c->spare = run;
    c->spare_count++;
}

static void call_answered(struct redis_command *command, const redisReply *reply)
{
    struct run *run = (struct run *)command;
    struct redis_calls *c = run->calls;
    struct store_call *call = run->call;
    bool whole = run->whole_script;

    call->sent_us = command->sent_us;
    give_run(c, run);
    if (!reply) {
        redis_calls_lost(c, call);
        return;
    }
    c->callbacks.answered(c->callbacks.arg, clock_now_us(c->life->clock) - call->sent_us);
    if (!whole && redis_answer_lacks_script(reply) && redis_link_can_send(c->link)) {
        send_call(c, call, true);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2) {
        finish_error(c, call, reply);
        return;
    }
    if (redis_answer_is(reply, "differs")) {
        rerun(c, call);
        c->callbacks.differs(c->callbacks.arg);
        return;
    }
    if (redis_answer_is(reply, "more")) {
        redis_life_see_fence(c->life, redis_answer_number(reply, 1));
        if (++call->reruns <= RERUNS_MAX * 64 && redis_link_can_send(c->link))
            send_call(c, call, false);
        else
            redis_calls_fail(c, call, "the lock's queue is full of waiters that are gone");
        return;
    }
    finish(c, call, reply);
}

static void send_call(struct redis_calls *c, struct store_call *call, bool whole_script)
{
    struct run *run;

    if (!redis_link_can_send(c->link)) {
        redis_calls_hold(c, call);
        return;
    }
    run = take_run(c);
    if (!run) {
        redis_calls_fail(c, call, "out of memory");
        return;
    }
    run->calls = c;
    run->call = call;
    run->count = 0;
    run->whole_script = whole_script;
    run->command.done = call_answered;
    redis_question_write(c->life, c->link, call, whole_script);
    redis_link_send(c->link, &run->command, call->deadline_us);
}

/* ---- plain calls, many at a time ---- */

static void send_batch(struct redis_calls *c, struct store_call *calls, size_t count, bool whole_script);

static void finish_plain(struct redis_calls *c, struct store_call *call, int64_t token)
{
    redis_answer_as_asked(call, token);
    if (call->op == STORE_RELEASE)
        call->ret_woken.text[0] = '\0';
    else
        redis_life_see_fence(c->life, token);
    conclude(c, call);
}

/* The run of the whole batch failed, or says that the life of the data is another. */
static void batch_failed(struct redis_calls *c, struct store_call *calls, const redisReply *reply)
{
    bool differs = reply && reply->type == REDIS_REPLY_ARRAY && redis_answer_is(reply, "differs");

    for (struct store_call *call = calls, *next; call; call = next) {
        next = call->next;
        if (!reply)
            redis_calls_lost(c, call);
        else if (differs)
            rerun(c, call);
        else
            finish_error(c, call, reply);
    }
    if (differs)
        c->callbacks.differs(c->callbacks.arg);
}

static void batch_answered(struct redis_command *command, const redisReply *reply)
{
    struct run *run = (struct run *)command;
    struct redis_calls *c = run->calls;
    struct store_call *calls = run->call;
    size_t count = run->count, i = 2;
    int64_t rtt_us = clock_now_us(c->life->clock) - command->sent_us;
    bool whole = run->whole_script;

    for (struct store_call *call = calls; call; call = call->next)
        call->sent_us = command->sent_us;
    give_run(c, run);
    if (reply && !whole && redis_answer_lacks_script(reply) && redis_link_can_send(c->link)) {
        send_batch(c, calls, count, true);
        return;
    }
    if (!reply || reply->type != REDIS_REPLY_ARRAY || !redis_answer_is(reply, "plain") || reply->elements != count + 2) {
        batch_failed(c, calls, reply);
        return;
    }
    redis_life_see_fence(c->life, redis_answer_number(reply, 1));
    for (struct store_call *call = calls, *next; call; call = next, i++) {
        int64_t token = redis_answer_number(reply, i);
        next = call->next;
        c->callbacks.answered(c->callbacks.arg, rtt_us);
        if (token > 0)
            finish_plain(c, call, token);
        else
            send_call(c, call, false);
    }
}

static void send_batch(struct redis_calls *c, struct store_call *calls, size_t count, bool whole_script)
{
    struct run *run = take_run(c);
    int64_t deadline_us = INT64_MAX;

    if (!run) {
        for (struct store_call *call = calls, *next; call; call = next) {
            next = call->next;
            redis_calls_fail(c, call, "out of memory");
        }
        return;
    }
    run->calls = c;
    run->call = calls;
    run->count = count;
    run->whole_script = whole_script;
    run->command.done = batch_answered;
    redis_question_write_plain(c->life, c->link, calls, count, whole_script);
    for (const struct store_call *call = calls; call; call = call->next)
        deadline_us = call->deadline_us < deadline_us ? call->deadline_us : deadline_us;
    redis_link_send(c->link, &run->command, deadline_us);
}

static struct store_call *take_batch(struct redis_calls *c, size_t *ret_count)
{
    struct store_call *calls = c->batch;

    *ret_count = c->batch_count;
    c->batch = NULL;
    c->batch_last = &c->batch;
    c->batch_count = 0;
    return calls;
}

void redis_calls_flush(struct redis_calls *c)
{
    size_t count;
    struct store_call *calls = take_batch(c, &count);

    if (count == 1)
        send_call(c, calls, false);
    else if (count > 1)
        send_batch(c, calls, count, false);
}

/* The connection or the life of the data ended before they were sent. */
void redis_calls_hold_batch(struct redis_calls *c)
{
    size_t count;

    for (struct store_call *call = take_batch(c, &count), *next; call; call = next) {
        next = call->next;
        redis_calls_hold(c, call);
    }
}

static void add_to_batch(struct redis_calls *c, struct store_call *call)
{
    call->next = NULL;
    *c->batch_last = call;
    c->batch_last = &call->next;
    if (c->batch_count++ == 0)
        redis_link_turn(c->link);
    if (c->batch_count == BATCH_MAX)
        redis_calls_flush(c);
}

/* ---- from outside ---- */

void redis_calls_take(struct redis_calls *c, struct store_call *call)
{
    call->reruns = 0;
    call->may_have_run = false;
    c->open++;
}

void redis_calls_send(struct redis_calls *c, struct store_call *call)
{
    if (redis_question_is_plain(call)) {
        add_to_batch(c, call);
        return;
    }
    redis_calls_flush(c);
    send_call(c, call, false);
}

void redis_calls_alarm(struct redis_calls *c, int64_t now_us, const char *problem)
{
    if (c->held)
        expire_held(c, now_us, problem);
    answer_failed(c);
}

void redis_calls_stop(struct redis_calls *c)
{
    c->stopped = true;
}

size_t redis_calls_pending(const struct redis_calls *c)
{
    return c->open;
}

struct redis_calls *redis_calls_new(struct redis_link *link, struct redis_life *life, struct redis_complaints *complaints,
                                    const struct redis_calls_callbacks *callbacks)
{
    struct redis_calls *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->link = link;
    c->life = life;
    c->complaints = complaints;
    c->callbacks = *callbacks;
    c->held_last = &c->held;
    c->failed_last = &c->failed;
    c->batch_last = &c->batch;
    return c;
}

void redis_calls_free(struct redis_calls *c)
{
    if (!c)
        return;
    while (c->spare) {
        struct run *next = c->spare->spare;
        free(c->spare);
        c->spare = next;
    }
    free(c);
}
