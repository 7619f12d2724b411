/* An acquire, from the first time it asks to what its client is told; and with it the life of a request, of which every other call lives a part.
 *
 *        submit
 *          |
 *          v      held, not free, recovering, or the store failed; time left
 *       CALLING -------------------------------------------------------------> PARKED
 *        |  |  ^                                                               | | |
 *        |  |  '--- woken, the holder's lease over, attached, a release's rider' | |
 *        |  |                                                                    | |
 *        |  '--- answered ---> ANSWERED <--- answered --- ENDING <-- wait over --' |
 *        |                        |                         |        or drain      |
 *        | client gone            | nobody could be told,   | client gone          | client gone
 *        v                        v or unknown outcome      v                      v
 *     LEAVING ------------------------------------------> CLEANING <---------------'
 *        | nothing to take back       granted, or a place   |   ^ |
 *        '--> freed                                         |   | '--> freed
 *                                              store failed v   | attached, or a second later
 *                                                          OWED-'
 *
 *   state     in the store's hands        the client   what ends it
 *   CALLING   acquire (or the one call)   waits        the store's answer; client gone -> LEAVING
 *   PARKED    nothing                     waits        as drawn
 *   ENDING    cancel                      waits        the store's answer -> ANSWERED (if its lease id holds by another call: CALLING once more)
 *   ANSWERED  nothing                     is told      free; undelivered, or an unknown outcome -> CLEANING
 *   LEAVING   acquire (or the one call)   has left     the store's answer: a grant or a place -> CLEANING, else freed
 *   CLEANING  cancel                      has left     the store's answer -> freed; the store failed -> OWED
 *   OWED      nothing                     has left     as drawn; freed when all it could owe is over by itself
 *   LISTING   nothing                     waits        a list alone: its turn comes -> CALLING, for one step; client gone -> freed
 *
 * PUTTING stands beside these: a request that no client made, for one lease that is put back after a loss (broker_vouch.c).
 *
 * A rider: a release carries the acquire of this node's first waiter, which is granted in the same step if it is the queue's head. The waiter is
 * CALLING meanwhile, as if it had asked by itself.
 *
 * Rules that keep grants safe:
 *  - A lease is granted by the store's answer to an acquire and in no other way; a wake-up only makes the waiter ask again.
 *  - Every request has one confirm number for all its tries. A cancel undoes a grant only under that number, so it can't touch a lease
 *    that another call with the same lease id was told it holds.
 *  - An answer `repeated` is never undone: an earlier call may have been told. Each try has one more number, under which it takes a lease that is
 *    there already; no cancel carries it.
 *  - A grant whose time is up before it can be told is given back, not told.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/broker_acquire.h"

#include <string.h>

#include "daemon/broker_lines.h"
#include "daemon/broker_news.h"
#include "daemon/broker_request.h"
#include "daemon/broker_state.h"
#include "daemon/broker_time.h"
#include "daemon/broker_vouch.h"
#include "daemon/log.h"

#define TRIES_AT_ONCE 64 /* of waiters that all must ask again */

/* ---- asking ---- */

/* Makes the request's call an acquire; the caller sends it. */
static void prepare_acquire(struct broker_request *r)
{
    struct broker *b = r->broker;

    r->state = CALLING;
    r->poked = false;
    r->call.op = STORE_ACQUIRE;
    if (r->call.confirm == 0)
        r->call.confirm = ++b->confirms;
    r->call.queue = r->wait_ms > 0 && !b->draining;
    r->call.comes_back = r->own_lease_id;
    r->call.contended = wait_queue_line(b->waiters, r->name, r->name_len) != NULL;
    r->call.hurry = r->woken_us != 0;
    r->call.ticket = r->waiter.ticket;
    r->call.max_waiters = b->config.max_waiters_per_lock;
    r->call.sweep_from = r->sweep ? lines_sweep_from(r) : 0;
    r->sweep = false;
    r->call.repeat_confirm = ++b->confirms;
    r->carrier = NULL;
    b->tries_open += r->wait_ms > 0;
    r->call.done = b->answered;
    r->call.arg = r;
}

static void try_acquire(struct broker_request *r)
{
    prepare_acquire(r);
    request_send(r);
}

static void try_again(struct broker_request *r)
{
    if (r->state == CALLING) {
        r->poked = true;
        return;
    }
    if (r->state != PARKED)
        return;
    request_list_remove(&r->broker->again, r);
    try_acquire(r);
}

static void try_twin(const struct broker_request *r)
{
    struct broker_request *twin = lines_twin(r);

    if (twin)
        try_again(twin); /* will be told the same */
}

void acquire_ask_again(struct broker *b)
{
    for (int i = 0; i < TRIES_AT_ONCE && b->again.first && b->attached && b->tries_open < TRIES_OPEN_MAX; i++)
        try_again(b->again.first);
}

void acquire_cancel(struct broker_request *r)
{
    r->call.op = STORE_CANCEL;
    r->call.queue = r->queued;
    r->call.comes_back = r->own_lease_id && (r->state == CLEANING || r->broker->draining);
    request_send(r);
}

/* ---- waking ---- */

/* A message for a waiter that is not here: its place is nobody's. */
static void drop_place(struct broker *b, const struct lease_id *id, const char *name, size_t name_len)
{
    struct broker_request *r = broker_request_new(b);

    if (!r)
        return;
    r->op = STORE_CANCEL;
    memcpy(r->name, name, name_len);
    r->name_len = name_len;
    r->lease_id = *id;
    r->submitted_us = broker_now_us(b);
    r->queued = true;
    r->call.name = r->name;
    r->call.name_len = name_len;
    r->call.lease_id = *id;
    r->state = CLEANING;
    acquire_cancel(r);
}

/* It may be this waiter's turn, since something happened at since_us. One that is not here has left a place behind: it is nobody's. */
void acquire_wake(struct broker *b, const struct lease_id *id, const char *name, size_t name_len, int64_t since_us)
{
    struct wait_line *line = wait_queue_line(b->waiters, name, name_len);
    struct waiter *waiter = line ? wait_line_find(line, id, NULL) : NULL;

    if (!waiter) {
        drop_place(b, id, name, name_len);
        return;
    }
    request_of(waiter)->woken_us = since_us;
    try_again(request_of(waiter));
}

void acquire_wake_of_answer(struct broker_request *r)
{
    if (r->call.ret_woken.text[0])
        acquire_wake(r->broker, &r->call.ret_woken, r->name, r->name_len, r->call.sent_us);
}

/* ---- answered ---- */

static void granted(struct broker_request *r)
{
    struct broker *b = r->broker;
    bool fresh = r->call.result == STORE_DONE;

    r->queued = false;
    r->unsettled = false;
    r->ret_token = r->call.ret_token;
    request_take_ends(r);
    if (broker_left_ms(b, r->lease_until_us) < 1) {
        r->unsettled = fresh;
        if (!fresh)
            vouch_remember(r); /* its delay is this node's matter, since the lease was */
        request_answer(r, PAWL_E_STORE_UNAVAILABLE, "the grant came too late to be of use and is given back");
        return;
    }
    metrics_add(b->metrics, fresh ? METRIC_GRANTS : METRIC_REGRANTS, 1);
    if (r->wait_ms > 0)
        metrics_observe(b->metrics, HISTOGRAM_WAIT, broker_now_us(b) - r->submitted_us);
    if (r->woken_us)
        metrics_observe(b->metrics, HISTOGRAM_HANDOVER, broker_now_us(b) - r->woken_us);
    vouch_remember(r);
    try_twin(r);
    wait_queue_remove(b->waiters, &r->waiter);
    lines_after_lease(b, r);
    tell_granted(r, fresh);
    request_answer(r, PAWL_OK, NULL);
}

/* Granted, but too few replicas have it: given back, unless it is a lease that an earlier call may have been told of. That one stays as it is, and stays this
 * node's matter. */
static void not_replicated(struct broker_request *r)
{
    bool fresh = r->call.ret_fresh;

    r->queued = false;
    r->unsettled = fresh;
    metrics_add(r->broker->metrics, METRIC_NOT_REPLICATED, 1);
    if (!fresh) {
        request_take_ends(r);
        vouch_remember(r);
    }
    request_answer(r, PAWL_E_NOT_REPLICATED, fresh ? "too few replicas confirmed the grant in time, and it is given back" : NULL);
}

/* Why an acquire that did not get the lock got none. */
static void refuse(struct broker_request *r, enum store_result result, const char *problem)
{
    struct broker *b = r->broker;

    switch (result) {
    case STORE_HELD:
    case STORE_DELAYED:
    case STORE_TURN:
    case STORE_DONE: /* the cancel at the end of a wait */
        metrics_add(b->metrics, METRIC_REFUSALS, 1);
        request_answer(r, PAWL_E_HELD,
                       r->wait_ms > 0 ? "the wait is over and the lock was not free"
                       : r->call.holder.token == 0 && r->call.holder.delay_ms > 0
                           ? "nobody holds this lock, but its delay after the last lease is not over"
                           : NULL);
        return;
    case STORE_FULL:
        request_answer(r, PAWL_E_TOO_MANY_WAITERS, problem);
        return;
    case STORE_RECOVERING:
        request_answer(r, PAWL_E_RECOVERING, NULL);
        return;
    case STORE_UNKNOWN:
        metrics_add(b->metrics, METRIC_UNKNOWN, 1);
        request_answer(r, PAWL_E_STORE_UNAVAILABLE, "the outcome is not known: repeat the call with this lease_id, or release it");
        return;
    default:
        metrics_add(b->metrics, METRIC_STORE_ERRORS, 1);
        request_answer(r, PAWL_E_STORE_UNAVAILABLE, problem);
    }
}

static void end_wait(struct broker_request *r)
{
    struct broker *b = r->broker;

    request_list_remove(&b->again, r);
    heap_remove(&b->ends, &r->end);
    if (!r->queued && !r->unsettled) {
        if (b->draining)
            request_answer(r, PAWL_E_DRAINING, NULL);
        else
            refuse(r, r->call.result, r->call.problem);
        return;
    }
    r->state = ENDING;
    acquire_cancel(r);
}

static void park(struct broker_request *r)
{
    struct broker *b = r->broker;

    r->state = PARKED;
    if (b->draining || broker_now_us(b) >= request_wait_end_us(r)) {
        end_wait(r);
        return;
    }
    if (r->poked && b->attached) {
        try_acquire(r);
        return;
    }
    lines_after_answer(r);
    if (r->call.result == STORE_UNAVAILABLE || r->call.result == STORE_UNKNOWN) {
        /* It may have no place, and stand behind others here: it looks for itself. */
        if (heap_set(&b->ends, &r->end, earlier(request_wait_end_us(r), broker_now_us(b) + LINES_SOON_US)) != 0)
            log_error("out_of_memory", LOG_STR("what", "wait"));
    }
    broker_set_alarm(b);
}

void acquire_answered(struct broker_request *r)
{
    struct store_call *call = &r->call;
    struct broker *b = r->broker;

    b->tries_open -= r->wait_ms > 0;
    if (call->result == STORE_DONE || call->result == STORE_REPEATED) {
        granted(r);
        return;
    }
    if (call->result == STORE_NOT_REPLICATED) {
        not_replicated(r);
        return;
    }
    if (r->woken_us && !r->poked) {
        metrics_add(b->metrics, METRIC_WAKE_MISSES, 1);
        r->woken_us = 0;
    }
    if (call->result == STORE_UNKNOWN) {
        r->unsettled = true;
        r->queued = r->queued || call->queue;
    } else if (call->result == STORE_HELD || call->result == STORE_DELAYED || call->result == STORE_TURN ||
               call->result == STORE_RECOVERING) {
        /* The answer to a later run settles the earlier ones; but in the window the store does not say who holds the lock. */
        r->unsettled = call->result == STORE_RECOVERING && (r->unsettled || call->may_have_run);
        r->queued = call->ret_ticket > 0;
        if (call->result == STORE_HELD)
            vouch_see_holder(r);
        if (call->result == STORE_TURN)
            acquire_wake_of_answer(r);
        if (r->queued)
            wait_queue_set_ticket(&r->waiter, call->ret_ticket);
    }
    if (r->wait_ms > 0 && call->result != STORE_FULL)
        park(r);
    else
        refuse(r, call->result, call->result == STORE_FULL ? "this lock has as many waiters as it may have" : call->problem);
}

void acquire_ended(struct broker_request *r)
{
    struct store_call *call = &r->call;
    struct broker *b = r->broker;

    if (call->result == STORE_DONE) {
        r->queued = r->unsettled = false;
        acquire_wake_of_answer(r);
        lines_after_end(r);
    }
    if (b->draining) {
        request_answer(r, PAWL_E_DRAINING, NULL);
        return;
    }
    if (call->result == STORE_DONE && call->ret_own) { /* another call with this lease id was granted: this one is told the same */
        r->wait_ms = 0;
        try_acquire(r);
        return;
    }
    if (call->result == STORE_DONE) {
        struct store_status status;
        store_get_status(b->store, &status);
        refuse(r, status.window_open ? STORE_RECOVERING : STORE_DONE, NULL);
        return;
    }
    refuse(r, STORE_UNAVAILABLE, call->problem);
}

/* A repeat took the lease from the node that vouched for it, which was told to forget it; and its client has left. Whoever was told by an earlier call
 * holds it all the same, so somebody has to vouch for it. */
static void taken_over(struct broker_request *r)
{
    request_take_ends(r);
    vouch_remember(r);
    lines_after_lease(r->broker, r);
}

void acquire_left(struct broker_request *r)
{
    const struct store_call *call = &r->call;

    r->broker->tries_open -= r->wait_ms > 0;
    if (call->result == STORE_DONE || call->result == STORE_UNKNOWN || (call->result == STORE_NOT_REPLICATED && call->ret_fresh) ||
        (call->result == STORE_RECOVERING && call->may_have_run))
        r->unsettled = true;
    if (call->result == STORE_UNKNOWN && call->queue)
        r->queued = true;
    if (call->result == STORE_HELD || call->result == STORE_DELAYED || call->result == STORE_TURN || call->result == STORE_RECOVERING)
        r->queued = call->ret_ticket > 0;
    if (call->result == STORE_DONE || call->result == STORE_REPEATED || call->result == STORE_NOT_REPLICATED)
        r->queued = false;
    if (call->result == STORE_REPEATED || (call->result == STORE_NOT_REPLICATED && !call->ret_fresh))
        taken_over(r);
    if (call->result == STORE_REPEATED)
        try_twin(r);
}

/* ---- in the same step as a release ---- */

/* The first waiter here may be granted in the very step that frees the lock: its acquire rides on the release. */
void acquire_take_rider(struct broker_request *release)
{
    struct broker *b = release->broker;
    struct wait_line *line = wait_queue_line(b->waiters, release->name, release->name_len);
    struct broker_request *first = line ? request_of(wait_line_first(line)) : NULL;

    if (!first || first->state != PARKED || first->unsettled || first->waiter.ticket == 0 || b->draining || !b->attached ||
        !b->store->ops->takes_riders)
        return;
    request_list_remove(&b->again, first);
    prepare_acquire(first);
    first->woken_us = release->submitted_us;
    first->call.sweep_from = 0;
    first->carrier = release;
    release->call.rider = &first->call;
    release->call.hurry = true;
}

/* A rider that is granted is answered before its release, but what happened to the lock is told in the order in which it happened. Whichever of the two is
 * answered first lets go of the other, which may be gone afterwards. */
void acquire_part_rider(struct broker_request *r)
{
    struct broker_request *release = r->carrier;

    if (release) {
        if (r->call.result == STORE_DONE)
            tell_released(release);
        release->call.rider = NULL;
        r->carrier = NULL;
    }
    if (r->call.rider)
        ((struct broker_request *)r->call.rider->arg)->carrier = NULL;
}

/* ---- begun, and ended by time ---- */

/* A refusal that needs no store is told later, as all answers are, since `done` must not be called from inside submit: it goes to the next tick by way of the
 * heap of ends. */
static void submit_refused(struct broker_request *r)
{
    struct broker *b = r->broker;

    r->state = PARKED;
    r->call.result = STORE_FULL;
    r->call.problem = "this node has as many waiters as it may have";
    r->wait_ms = 0;
    if (heap_set(&b->ends, &r->end, r->submitted_us) != 0)
        log_error("out_of_memory", LOG_STR("what", "request"));
    broker_set_alarm(b);
}

void acquire_submit(struct broker_request *r)
{
    struct broker *b = r->broker;

    if ((b->draining && (r->wait_ms > 0 || !b->tries_only)) || (r->wait_ms > 0 && !lines_join(r))) {
        submit_refused(r);
        return;
    }
    try_acquire(r);
    broker_set_alarm(b);
}

/* A waiter whose last try failed asks again without waiting for its turn to look. */
static void look_for_itself(struct broker_request *r)
{
    struct broker *b = r->broker;

    if (heap_set(&b->ends, &r->end, request_wait_end_us(r)) != 0)
        log_error("out_of_memory", LOG_STR("what", "wait"));
    if (r->state == PARKED && b->attached)
        request_list_add(&b->again, r);
}

void acquire_time_up(struct broker_request *r, int64_t now)
{
    if (r->wait_ms > 0 && now < request_wait_end_us(r))
        look_for_itself(r);
    else if (r->state == PARKED)
        end_wait(r);
    /* CALLING: its answer, which comes within the call's deadline, finds the wait over */
}

void acquire_drain(struct broker *b)
{
    while (b->again.first)
        end_wait(b->again.first);
}
