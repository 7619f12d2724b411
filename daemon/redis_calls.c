/* A call on its way:
 *
 *     redis_calls_take ──► send, or in a batch of this turn ──► in flight ── answered ──► done
 *                    │              ▲                             │  │
 *                    │              │ its turn, and there is room  │  └── its time is over ──► failed; the answer to come is nobody's, or done_late
 *                    └──► waiting ──┘◄── lost, or another life ────┘
 *                            └──► failed ──► done, at the end of the turn
 *
 * Under way is a call from its turn until it is done, also while it waits to be sent again; of one lease there is one at most. Whoever's turn comes meanwhile
 * stands behind it, and has its turn as soon as that one is done.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_calls.h"

#include <stdlib.h>

#include <hiredis/hiredis.h>

#include "daemon/lease_calls.h"
#include "daemon/redis_backlog.h"
#include "daemon/redis_flight.h"
#include "daemon/redis_question.h"

#define RERUNS_MAX 16
#define LOOK_PART  64 /* between two looks at all that waits there is at least this part of the time-out */

struct redis_calls {
    struct redis_link *link;
    struct busy_poll *busy_poll;
    struct redis_life *life;
    struct redis_complaints *complaints;
    struct redis_calls_callbacks callbacks;
    int64_t timeout_us;
    int64_t look_us; /* before then nothing that waits is too late */
    bool going;      /* calls may be sent, as far as there is room */
    bool leading;    /* what comes is what the node owes */
    bool stopped;
    struct redis_backlog waiting;
    struct lease_calls under_way;             /* those about a lease */
    size_t open;                              /* taken and not done */
    struct store_call *failed, **failed_last; /* to be answered at the end of the turn */
    struct store_call *batch, **batch_last;   /* plain calls of this turn, not sent yet */
    size_t batch_count;
    struct redis_flight flight; /* what was sent */
    uint64_t unsent;
};

static void send_call(struct redis_calls *c, struct store_call *call, bool whole_script);
static void conclude(struct redis_calls *c, struct store_call *call);

static const char too_many[] = "too many calls wait for Redis", stopping[] = "this node is stopping";

/* Something waits, and is too late then. */
static void look_then(struct redis_calls *c, int64_t due_us)
{
    if (due_us < c->look_us)
        c->look_us = due_us;
    c->callbacks.alarm(c->callbacks.arg, due_us);
}

/* ---- one after the other ---- */

/* Those whose order matters: what they write says which of them was the last. */
static bool is_about_lease(const struct store_call *call)
{
    return call->op == STORE_ACQUIRE || call->op == STORE_RENEW || call->op == STORE_RELEASE || call->op == STORE_CANCEL;
}

/* False: another one about its lease is. */
static bool get_under_way(struct redis_calls *c, struct store_call *call)
{
    return lease_calls_has(call) || !is_about_lease(call) || lease_calls_add_first(&c->under_way, call);
}

static void wait_behind(struct redis_calls *c, struct store_call *call)
{
    if (c->stopped) {
        redis_calls_fail(c, call, stopping);
    } else if (!redis_backlog_add_behind(&c->waiting, call)) {
        c->unsent++;
        redis_calls_fail(c, call, too_many);
    } else {
        look_then(c, redis_backlog_due_us(BACKLOG_OTHERS, call, c->going));
    }
}

/* The one that stood behind it has its turn; those for which it is too late are told. */
static void let_next_go(struct redis_calls *c, const struct store_call *first)
{
    struct store_call *next;

    while ((next = redis_backlog_take_behind(&c->waiting, first)) != NULL) {
        if (!c->stopped && redis_backlog_due_us(BACKLOG_OTHERS, next, c->going) > clock_now_us(c->life->clock)) {
            lease_calls_add(&c->under_way, next);
            redis_backlog_add_next(&c->waiting, next);
            redis_link_turn(c->link);
            return;
        }
        c->unsent += !c->stopped && c->going;
        redis_calls_fail(c, next, c->stopped ? stopping : too_many);
    }
}

static void end_way(struct redis_calls *c, struct store_call *call)
{
    if (!lease_calls_has(call))
        return;
    lease_calls_remove(call);
    let_next_go(c, call);
}

/* ---- finishing ---- */

/* A rider that was granted hears of it before the release does: everybody is waiting for it, and nobody for the release. */
void redis_calls_done(struct redis_calls *c, struct store_call *call)
{
    struct store_call *rider = call->rider;

    if (rider) { /* a release that did its work has answered it; else it shares the release's fate */
        rider->sent_us = call->sent_us;
        rider->deadline_us = rider->send_by_us = call->deadline_us; /* it was sent */
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
    end_way(c, call);
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

/* ---- waiting ---- */

static void wait_for_turn(struct redis_calls *c, enum backlog_lane lane, struct store_call *call)
{
    if (c->stopped) {
        redis_calls_fail(c, call, stopping);
    } else if (!redis_backlog_add(&c->waiting, lane, call)) {
        c->unsent++;
        redis_calls_fail(c, call, too_many);
    } else {
        look_then(c, redis_backlog_due_us(lane, call, c->going));
    }
}

void redis_calls_fail_waiting(struct redis_calls *c, const char *problem)
{
    int64_t next_us;

    for (struct store_call *call = redis_backlog_take_due(&c->waiting, INT64_MAX, false, &next_us), *next; call; call = next) {
        next = call->next;
        redis_calls_fail(c, call, problem);
    }
}

/* Fails those whose time is over. While calls are sent that is when so little is left that an answer could hardly come in time. */
static void look_at_waiting(struct redis_calls *c, int64_t now, const char *problem)
{
    int64_t next_us,
        soonest_us = now + c->timeout_us / LOOK_PART; /* a burst's time is over nearly at once: not a look for each of its calls */
    struct store_call *call = redis_backlog_take_due(&c->waiting, now, c->going, &next_us);

    c->look_us = INT64_MAX;
    while (call) {
        struct store_call *next = call->next;
        c->unsent += c->going;
        redis_calls_fail(c, call, c->going ? too_many : problem);
        call = next;
    }
    if (next_us != INT64_MAX)
        look_then(c, next_us > soonest_us ? next_us : soonest_us);
}

/* Alarms are many, and a look is at all that waits. */
static void expire_waiting(struct redis_calls *c, int64_t now, const char *problem)
{
    if (now >= c->look_us)
        look_at_waiting(c, now, problem);
    else if (c->look_us != INT64_MAX)
        look_then(c, c->look_us);
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
    wait_for_turn(c, BACKLOG_AGAIN, call);
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

/* ---- in flight ---- */

static bool has_room(const struct redis_calls *c)
{
    return redis_link_can_send(c->link) && redis_flight_has_room(&c->flight, c->batch_count);
}

/* Its command was written; `of` and `count` are set. */
static void send_run(struct redis_calls *c, struct redis_run *run)
{
    run->arg = c;
    redis_flight_depart(&c->flight, run);
    for (size_t i = 0; i < run->count; i++)
        c->callbacks.alarm(c->callbacks.arg, run->of[i]->deadline_us);
    redis_link_send(c->link, &run->command, clock_now_us(c->life->clock) + c->timeout_us);
}

/* Answered, or lost. */
static void land(struct redis_calls *c, struct redis_run *run, const redisReply *reply)
{
    int64_t took_us = clock_now_us(c->life->clock) - run->command.sent_us;

    for (size_t i = 0; i < run->count; i++) {
        if (run->of[i])
            run->of[i]->sent_us = run->command.sent_us;
        if (reply)
            c->callbacks.answered(c->callbacks.arg, took_us);
    }
    if (reply && c->flight.landed == 0)
        redis_link_turn(c->link);
    redis_flight_land(&c->flight, run, reply != NULL, took_us);
    busy_poll_end(c->busy_poll, run->awake);
}

/* What they did will be undone by who asked: behind them, on the same connection. */
static void expire_sent(struct redis_calls *c, int64_t now)
{
    int64_t next_us;
    struct store_call *call = redis_flight_take_due(&c->flight, now, &next_us);

    while (call) {
        struct store_call *next = call->next;
        call->may_have_run = true;
        redis_calls_fail(c, call, "Redis did not answer in time");
        call = next;
    }
    if (next_us != INT64_MAX)
        c->callbacks.alarm(c->callbacks.arg, next_us);
}

/* ---- one call ---- */

static void take_answer(struct redis_calls *c, struct store_call *call, const redisReply *reply, bool whole)
{
    if (!whole && redis_answer_lacks_script(reply) && redis_link_can_send(c->link)) {
        send_call(c, call, true);
    } else if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2) {
        finish_error(c, call, reply);
    } else if (redis_answer_is(reply, "differs")) {
        rerun(c, call);
        c->callbacks.differs(c->callbacks.arg);
    } else if (redis_answer_is(reply, "more")) {
        redis_life_see_fence(c->life, redis_answer_number(reply, 1));
        if (++call->reruns <= RERUNS_MAX * 64 && redis_link_can_send(c->link))
            send_call(c, call, false);
        else
            redis_calls_fail(c, call, "the lock's queue is full of waiters that are gone");
    } else {
        finish(c, call, reply);
    }
}

static void tell_late(struct redis_calls *c, struct store_call *call, const redisReply *reply)
{
    call->result = redis_answer_read(call, reply);
    if (call->result == (call->op == STORE_RENEW ? STORE_DONE : STORE_REPEATED))
        c->callbacks.done_late(c->callbacks.arg, call);
}

/* Nobody waits for it any more, but it tells what it tells of the data, and of a lease. */
static void take_late_answer(struct redis_calls *c, struct redis_late *late, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2)
        return;
    if (redis_answer_is(reply, "differs")) {
        c->callbacks.differs(c->callbacks.arg);
        return;
    }
    redis_life_see_fence(c->life, redis_answer_number(reply, 1));
    if (late)
        tell_late(c, &late->call, reply);
}

static void call_answered(struct redis_command *command, const redisReply *reply)
{
    struct redis_run *run = (struct redis_run *)command;
    struct redis_calls *c = run->arg;
    struct store_call *call = run->of[0];
    bool whole = run->whole_script;
    struct redis_late *late = run->late;

    land(c, run, reply);
    if (late)
        late->call.sent_us = command->sent_us;
    run->late = NULL;
    redis_flight_give(&c->flight, run);
    if (call && reply)
        take_answer(c, call, reply, whole);
    else if (call)
        redis_calls_lost(c, call);
    else if (reply)
        take_late_answer(c, late, reply);
    free(late);
}

/* An answer can be here before the loop would have slept and woken. */
static bool is_near(const struct redis_calls *c)
{
    return 2 * c->flight.least_us <= busy_poll_most_us(c->busy_poll);
}

static void send_call(struct redis_calls *c, struct store_call *call, bool whole_script)
{
    struct redis_run *run;

    if (!c->going || !redis_link_can_send(c->link)) {
        wait_for_turn(c, BACKLOG_AGAIN, call);
        return;
    }
    run = redis_flight_take(&c->flight);
    if (!run) {
        redis_calls_fail(c, call, "out of memory");
        return;
    }
    run->of[0] = call;
    run->count = 1;
    run->whole_script = whole_script;
    /* These may find a lease there, and make it this node's matter. A new grant is not meant: who asked has it taken back. */
    run->keeps_late = call->op == STORE_RENEW || (call->op == STORE_ACQUIRE && call->comes_back);
    run->command.done = call_answered;
    redis_question_write(c->life, c->link, call, whole_script);
    run->awake = call->hurry && is_near(c) ? busy_poll_begin(c->busy_poll) : 0;
    send_run(c, run);
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
static void batch_failed(struct redis_calls *c, const struct redis_run *run, const redisReply *reply)
{
    bool differs = reply && reply->type == REDIS_REPLY_ARRAY && redis_answer_is(reply, "differs");

    for (size_t i = 0; i < run->count; i++) {
        if (!run->of[i])
            continue;
        if (!reply)
            redis_calls_lost(c, run->of[i]);
        else if (differs)
            rerun(c, run->of[i]);
        else
            finish_error(c, run->of[i], reply);
    }
    if (differs)
        c->callbacks.differs(c->callbacks.arg);
}

static void send_batch_whole(struct redis_calls *c, const struct redis_run *run)
{
    struct store_call *calls = NULL, **last = &calls;
    size_t count = 0;

    for (size_t i = 0; i < run->count; i++) {
        if (!run->of[i])
            continue;
        *last = run->of[i];
        last = &run->of[i]->next;
        count++;
    }
    *last = NULL;
    if (count > 0)
        send_batch(c, calls, count, true);
}

static void take_batch_answer(struct redis_calls *c, const struct redis_run *run, const redisReply *reply)
{
    redis_life_see_fence(c->life, redis_answer_number(reply, 1));
    for (size_t i = 0; i < run->count; i++) {
        int64_t token = redis_answer_number(reply, i + 2);
        if (!run->of[i])
            redis_life_see_fence(c->life, token);
        else if (token > 0)
            finish_plain(c, run->of[i], token);
        else
            send_call(c, run->of[i], false);
    }
}

static void batch_answered(struct redis_command *command, const redisReply *reply)
{
    struct redis_run *run = (struct redis_run *)command;
    struct redis_calls *c = run->arg;

    land(c, run, reply);
    if (reply && !run->whole_script && redis_answer_lacks_script(reply) && redis_link_can_send(c->link))
        send_batch_whole(c, run);
    else if (!reply || reply->type != REDIS_REPLY_ARRAY || !redis_answer_is(reply, "plain") || reply->elements != run->count + 2)
        batch_failed(c, run, reply);
    else
        take_batch_answer(c, run, reply);
    redis_flight_give(&c->flight, run); /* not before: what is sent meanwhile must not be written into it */
}

static void send_batch(struct redis_calls *c, struct store_call *calls, size_t count, bool whole_script)
{
    struct redis_run *run = redis_flight_take(&c->flight);

    if (!run) {
        for (struct store_call *call = calls, *next; call; call = next) {
            next = call->next;
            redis_calls_fail(c, call, "out of memory");
        }
        return;
    }
    run->count = 0;
    for (struct store_call *call = calls; call; call = call->next)
        run->of[run->count++] = call;
    run->whole_script = whole_script;
    run->awake = 0;
    run->command.done = batch_answered;
    redis_question_write_plain(c->life, c->link, calls, count, whole_script);
    send_run(c, run);
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

static void flush(struct redis_calls *c)
{
    size_t count;
    struct store_call *calls = take_batch(c, &count);

    if (count == 1)
        send_call(c, calls, false);
    else if (count > 1)
        send_batch(c, calls, count, false);
}

static void add_to_batch(struct redis_calls *c, struct store_call *call)
{
    call->next = NULL;
    *c->batch_last = call;
    c->batch_last = &call->next;
    if (c->batch_count++ == 0)
        redis_link_turn(c->link);
    if (c->batch_count == REDIS_RUN_MAX)
        flush(c);
}

/* ---- whose turn it is ---- */

static void send_now(struct redis_calls *c, struct store_call *call)
{
    if (redis_question_is_plain(call)) {
        add_to_batch(c, call);
        return;
    }
    flush(c);
    send_call(c, call, false);
}

static void take_turn(struct redis_calls *c, struct store_call *call)
{
    if (get_under_way(c, call))
        send_now(c, call);
    else
        wait_behind(c, call);
}

static void send_waiting(struct redis_calls *c)
{
    enum backlog_lane lane;
    struct store_call *call;

    while (c->going && redis_backlog_wants_turns(&c->waiting) && has_room(c)) {
        call = redis_backlog_take(&c->waiting, &lane);
        if (redis_backlog_due_us(lane, call, true) > clock_now_us(c->life->clock)) {
            take_turn(c, call);
        } else {
            c->unsent++;
            redis_calls_fail(c, call, too_many);
        }
    }
}

/* ---- from outside ---- */

void redis_calls_take(struct redis_calls *c, struct store_call *call)
{
    int64_t now = clock_now_us(c->life->clock);

    call->reruns = 0;
    call->may_have_run = false;
    call->beside = (struct store_link){NULL, NULL};
    call->send_by_us = call->deadline_us - (call->deadline_us - now) / 4;
    c->open++;
}

void redis_calls_send(struct redis_calls *c, struct store_call *call)
{
    if (c->going && !redis_backlog_wants_turns(&c->waiting) && has_room(c))
        take_turn(c, call);
    else
        wait_for_turn(c, c->leading && call->op != STORE_PUT_BACK ? BACKLOG_OWED : redis_backlog_lane(&c->waiting, call), call);
}

void redis_calls_turn(struct redis_calls *c)
{
    if (c->flight.landed > 0)
        redis_flight_see_pace(&c->flight, clock_now_us(c->life->clock), redis_backlog_wants_turns(&c->waiting));
    send_waiting(c);
    flush(c);
}

void redis_calls_lead(struct redis_calls *c, bool leading)
{
    c->leading = leading;
}

void redis_calls_go(struct redis_calls *c)
{
    c->going = true;
    redis_flight_forget_pace(&c->flight);
    send_waiting(c);
    look_at_waiting(c, clock_now_us(c->life->clock), too_many); /* they are too late sooner */
}

void redis_calls_halt(struct redis_calls *c)
{
    size_t count;

    c->going = false;
    for (struct store_call *call = take_batch(c, &count), *next; call; call = next) {
        next = call->next;
        wait_for_turn(c, BACKLOG_UNSENT, call);
    }
}

void redis_calls_alarm(struct redis_calls *c, int64_t now_us, const char *problem)
{
    expire_sent(c, now_us);
    expire_waiting(c, now_us, problem);
    send_waiting(c);
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

size_t redis_calls_waiting(const struct redis_calls *c)
{
    return c->waiting.count;
}

uint64_t redis_calls_unsent(const struct redis_calls *c)
{
    return c->unsent;
}

struct redis_calls *redis_calls_new(struct redis_link *link, struct busy_poll *busy_poll, struct redis_life *life,
                                    struct redis_complaints *complaints, int64_t timeout_ms, const struct redis_calls_callbacks *callbacks)
{
    struct redis_calls *c = calloc(1, sizeof(*c));

    if (!c)
        return NULL;
    c->link = link;
    c->busy_poll = busy_poll;
    c->life = life;
    c->complaints = complaints;
    c->callbacks = *callbacks;
    c->timeout_us = timeout_ms * 1000;
    c->look_us = INT64_MAX;
    redis_flight_init(&c->flight, c->timeout_us);
    redis_backlog_init(&c->waiting);
    lease_calls_init(&c->under_way);
    c->failed_last = &c->failed;
    c->batch_last = &c->batch;
    return c;
}

void redis_calls_free(struct redis_calls *c)
{
    if (!c)
        return;
    redis_flight_close(&c->flight);
    free(c);
}
