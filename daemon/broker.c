/* The life of a request.
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

#include "daemon/broker.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/broker_lines.h"
#include "daemon/broker_news.h"
#include "daemon/broker_request.h"
#include "daemon/broker_state.h"
#include "daemon/broker_time.h"
#include "daemon/broker_vouch.h"
#include "daemon/log.h"

#define OWED_MAX       20000
#define OWED_RETRY_US  1000000
#define TRIES_AT_ONCE  64 /* of waiters that all must ask again */
#define LIST_STEPS_MAX 200
#define LIST_LOOK_MIN  10 /* keys a step of a list looks at */
#define LIST_LOOK_MAX  1000
#define LISTS_AT_ONCE  4        /* steps of lists in the store: the others take turns, so that many long lists hold up no other call */
#define LIST_WAIT_US   10000000 /* then a list ends with what it has */

static void call_done(struct store_call *call);
static void try_again(struct broker_request *r);
static void clean(struct broker_request *r);

/* ---- making and freeing ---- */

struct broker *broker_new(const struct clock *clock, const struct broker_config *config, const struct broker_host *host,
                          struct metrics *metrics)
{
    struct broker *b = calloc(1, sizeof(*b));

    if (!b)
        return NULL;
    b->clock = clock;
    b->config = *config;
    b->host = *host;
    b->metrics = metrics;
    b->leases = lease_table_new();
    b->delays = lease_table_new();
    b->waiters = wait_queue_new();
    b->jitter = (unsigned)clock_now_us(clock);
    b->put_again_us = INT64_MAX;
    b->answered = call_done;
    if (!b->leases || !b->delays || !b->waiters) {
        broker_free(b);
        return NULL;
    }
    return b;
}

void broker_set_store(struct broker *b, struct store *store)
{
    b->store = store;
}

void broker_free(struct broker *b)
{
    if (!b)
        return;
    while (b->owed.first)
        request_let_go(b->owed.first);
    request_free_spare(b);
    lease_table_free(b->leases);
    lease_table_free(b->delays);
    wait_queue_free(b->waiters);
    heap_close(&b->ends);
    free(b);
}

/* ---- answering ---- */

void broker_request_free(struct broker_request *r)
{
    if (r->state == ANSWERED && (r->unsettled || r->queued))
        clean(r);
    else
        request_let_go(r);
}

void broker_request_undelivered(struct broker_request *r)
{
    if (r->op == STORE_ACQUIRE && r->error == PAWL_OK && r->call.result == STORE_DONE)
        r->unsettled = true;
    broker_request_free(r);
}

/* ---- store calls ---- */

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

static void submit_cancel(struct broker_request *r)
{
    r->call.op = STORE_CANCEL;
    r->call.queue = r->queued;
    r->call.comes_back = r->own_lease_id && (r->state == CLEANING || r->broker->draining);
    request_send(r);
}

/* The client is gone or has its answer: take back what nobody knows of. */
static void clean(struct broker_request *r)
{
    struct broker *b = r->broker;

    wait_queue_remove(b->waiters, &r->waiter);
    heap_remove(&b->ends, &r->end);
    request_list_remove(&b->again, r);
    vouch_forget_grant(r);
    r->state = CLEANING;
    submit_cancel(r);
}

/* The store could not be asked to clean up: keep it until the store is back, or the grant is over by itself. */
static void owe(struct broker_request *r)
{
    struct broker *b = r->broker;

    if (b->owed.count >= OWED_MAX) {
        log_warn("undo_dropped", LOG_TEXT("name", r->name, r->name_len), LOG_ID("lease", r->lease_id.text));
        request_let_go(b->owed.first);
    }
    r->state = OWED;
    request_list_add(&b->owed, r);
    if (heap_set(&b->ends, &r->end, broker_now_us(b) + OWED_RETRY_US) != 0)
        log_error("out_of_memory", LOG_STR("what", "undo")); /* the next attach will do it */
    broker_set_alarm(b);
}

static void settle(struct broker_request *r)
{
    struct broker *b = r->broker;
    int64_t over_us = r->submitted_us + (r->ttl_ms + r->delay_ms + r->wait_ms + 2 * b->config.call_timeout_ms) * 1000;

    heap_remove(&b->ends, &r->end);
    if (over_us < broker_now_us(b) && !r->queued) { /* a grant ends by itself, and so does the delay after it; a place does not */
        request_let_go(r);
        return;
    }
    request_list_remove(&b->owed, r);
    if (!b->attached) {
        owe(r);
        return;
    }
    r->state = CLEANING;
    submit_cancel(r);
}

static void settle_all(struct broker *b)
{
    struct broker_request *next;

    for (struct broker_request *r = b->owed.first; r; r = next) {
        next = r->next;
        settle(r);
    }
}

static void drop_place(struct broker *b, const struct lease_id *id, const char *name, size_t name_len);

/* It may be this waiter's turn, since something happened at since_us. One that is not here has left a place behind: it is nobody's. */
static void wake(struct broker *b, const struct lease_id *id, const char *name, size_t name_len, int64_t since_us)
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

static void wake_of_answer(struct broker_request *r)
{
    if (r->call.ret_woken.text[0])
        wake(r->broker, &r->call.ret_woken, r->name, r->name_len, r->call.sent_us);
}

/* ---- acquire ---- */

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
    if (lines_twin(r))
        try_again(lines_twin(r)); /* will be told the same */
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
    submit_cancel(r);
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

static void acquire_answered(struct broker_request *r)
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
        if (call->result == STORE_HELD) {
            vouch_see_holder(r);
        }
        if (call->result == STORE_TURN)
            wake_of_answer(r);
        if (r->queued)
            wait_queue_set_ticket(&r->waiter, call->ret_ticket);
    }
    if (r->wait_ms > 0 && call->result != STORE_FULL)
        park(r);
    else
        refuse(r, call->result, call->result == STORE_FULL ? "this lock has as many waiters as it may have" : call->problem);
}

/* ---- the other calls ---- */

/* The lease is this node's to vouch for, also when its client has left. A shorter one is waited for anew. */
static void renewed(struct broker_request *r)
{
    r->ret_token = r->call.ret_token;
    request_take_ends(r);
    vouch_remember(r);
    lines_after_lease(r->broker, r);
}

static void renew_answered(struct broker_request *r)
{
    renewed(r);
    tell_renewed(r);
    if (broker_left_ms(r->broker, r->lease_until_us) < 1) {
        request_answer(r, PAWL_E_STORE_UNAVAILABLE, "the answer came too late: the lease may be over");
        return;
    }
    metrics_add(r->broker->metrics, METRIC_RENEWALS, 1);
    request_answer(r, PAWL_OK, NULL);
}

static void release_answered(struct broker_request *r)
{
    r->ret_token = r->call.ret_token;
    metrics_add(r->broker->metrics, METRIC_RELEASES, 1);
    tell_released(r);
    wake_of_answer(r);
    request_answer(r, PAWL_OK, NULL);
}

/* Before each step, so that a long list lets the others go before its next one. */
static void line_up(struct broker_request *r)
{
    r->state = LISTING;
    request_list_add(&r->broker->lists, r);
}

static void begin_lists(struct broker *b)
{
    struct broker_request *r;

    while (b->lists_open < LISTS_AT_ONCE && (r = b->lists.first) != NULL) {
        request_list_remove(&b->lists, r);
        r->state = CALLING;
        b->lists_open++;
        request_send(r);
    }
}

static void broken(struct broker_request *r)
{
    vouch_broken(r);
    wake_of_answer(r);
}

static void list_answered(struct broker_request *r)
{
    if (strcmp(r->call.cursor, "0") != 0 && r->found < r->limit && ++r->steps < LIST_STEPS_MAX &&
        broker_now_us(r->broker) - r->submitted_us < LIST_WAIT_US) {
        r->call.look_at = earlier(2 * r->call.look_at, LIST_LOOK_MAX);
        if (r->found > 0)
            r->call.look_at = earlier(r->call.look_at, r->limit - r->found + LIST_LOOK_MIN);
        line_up(r);
        return;
    }
    request_answer(r, PAWL_OK, NULL);
}

static void plain_answered(struct broker_request *r)
{
    switch (r->op) {
    case STORE_RENEW:
        renew_answered(r);
        return;
    case STORE_RELEASE:
        release_answered(r);
        return;
    case STORE_LIST:
        list_answered(r);
        return;
    case STORE_BREAK:
        metrics_add(r->broker->metrics, METRIC_BREAKS, 1);
        broken(r);
        request_answer(r, PAWL_OK, NULL);
        return;
    case STORE_CHECK:
        r->lease_until_us = r->call.sent_us + r->call.ret_ttl_ms * 1000;
        request_answer(r, PAWL_OK, NULL);
        return;
    default:
        request_answer(r, PAWL_OK, NULL);
    }
}

/* The table has forgotten the lease when its release was sent, and nobody will see it end. */
static void tell_release_failed(const struct broker_request *r)
{
    if (r->op == STORE_RELEASE)
        tell_vouched_lost(r, "its release failed: it ends by its time, if not by then");
}

static void call_refused(struct broker_request *r)
{
    struct broker *b = r->broker;

    switch (r->call.result) {
    case STORE_LOST:
        if (r->op == STORE_BREAK) {
            request_answer(r, PAWL_E_NOT_HELD, NULL);
            return;
        }
        if (r->op == STORE_RENEW)
            vouch_drop(r);
        metrics_add(b->metrics, METRIC_LOST, 1);
        tell_lost(r);
        request_answer(r, PAWL_E_LEASE_LOST, NULL);
        return;
    case STORE_RECOVERING:
        request_answer(r, PAWL_E_RECOVERING, NULL);
        return;
    case STORE_NOT_REPLICATED: /* a renewal: it stands */
        renewed(r);
        metrics_add(b->metrics, METRIC_NOT_REPLICATED, 1);
        request_answer(r, PAWL_E_NOT_REPLICATED, "too few replicas confirmed the renewal in time: repeat it");
        return;
    case STORE_UNKNOWN:
        metrics_add(b->metrics, METRIC_UNKNOWN, 1);
        tell_release_failed(r);
        request_answer(r, PAWL_E_STORE_UNAVAILABLE, r->call.problem);
        return;
    default:
        metrics_add(b->metrics, METRIC_STORE_ERRORS, 1);
        tell_release_failed(r);
        request_answer(r, PAWL_E_STORE_UNAVAILABLE, r->call.problem);
    }
}

/* A repeat took the lease from the node that vouched for it, which was told to forget it; and its client has left. Whoever was told by an earlier call
 * holds it all the same, so somebody has to vouch for it. */
static void taken_over(struct broker_request *r)
{
    request_take_ends(r);
    vouch_remember(r);
    lines_after_lease(r->broker, r);
}

/* ---- every answer of the store comes in here ---- */

/* The client left while the store was busy. */
static void left_answered(struct broker_request *r)
{
    const struct store_call *call = &r->call;

    if (r->op != STORE_ACQUIRE) {
        if (call->result == STORE_DONE && r->op == STORE_RELEASE) {
            tell_released(r);
            wake_of_answer(r);
        } else {
            tell_release_failed(r);
        }
        if (call->result == STORE_DONE && r->op == STORE_BREAK)
            broken(r);
        if ((call->result == STORE_DONE || call->result == STORE_NOT_REPLICATED) && r->op == STORE_RENEW)
            renewed(r);
        request_let_go(r);
        return;
    }
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
    if (call->result == STORE_REPEATED && lines_twin(r))
        try_again(lines_twin(r)); /* will be told the same */
    if (r->unsettled || r->queued)
        clean(r);
    else
        request_let_go(r);
}

static void cleaned(struct broker_request *r)
{
    const struct store_call *call = &r->call;
    struct broker *b = r->broker;

    if (call->result != STORE_DONE &&
        r->op == STORE_CANCEL) { /* a place of nobody's here: found again if it still is, and by then perhaps somebody's */
        request_let_go(r);
        return;
    }
    if (call->result != STORE_DONE) {
        owe(r);
        return;
    }
    if (call->ret_undone) {
        metrics_add(b->metrics, METRIC_UNDONE, 1);
        tell_undone(r);
    } else if (call->holder.token == 0 && r->op == STORE_ACQUIRE) {
        lines_look_soon(r);
    }
    wake_of_answer(r);
    request_let_go(r);
}

static void ended(struct broker_request *r)
{
    struct store_call *call = &r->call;
    struct broker *b = r->broker;

    if (call->result == STORE_DONE) {
        r->queued = r->unsettled = false;
        wake_of_answer(r);
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

/* A rider that is granted is answered before its release, but what happened to the lock is told in the order in which it happened. Whichever of the two is
 * answered first lets go of the other, which may be gone afterwards. */
static void part_rider(struct broker_request *r)
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

static void call_done(struct store_call *call)
{
    struct broker_request *r = call->arg;
    struct broker *b = r->broker;
    bool list = r->op == STORE_LIST;

    part_rider(r);
    b->lists_open -= list;
    switch (r->state) {
    case CALLING:
        if (r->op == STORE_ACQUIRE)
            acquire_answered(r);
        else if (call->result == STORE_DONE)
            plain_answered(r);
        else
            call_refused(r);
        break;
    case ENDING:
        ended(r);
        break;
    case LEAVING:
        left_answered(r);
        break;
    case PUTTING:
        vouch_put_back_answered(r);
        break;
    default:
        cleaned(r);
        break;
    }
    if (list)
        begin_lists(b);
    if (b->again.first)
        broker_set_alarm(b);
}

static void pass_lock(struct store_call *call, const struct store_lock *lock)
{
    struct broker_request *r = call->arg;
    struct store_lock shown = *lock;

    if (r->state != CALLING)
        return;
    r->found++;
    shown.ttl_ms = broker_left_ms(r->broker, call->sent_us + lock->ttl_ms * 1000);
    r->on_lock(r, &shown);
}

/* ---- submit, abandon ---- */

/* Refusals that need no store come by the same way as all answers: later, as a failed call. */
static void submit_refused(struct broker_request *r);

static void fill_call(struct broker_request *r)
{
    struct broker *b = r->broker;
    struct store_call *call = &r->call;

    call->op = r->op;
    call->name = r->name;
    call->name_len = r->name_len;
    call->lease_id = r->lease_id;
    call->owner = r->owner;
    call->owner_len = r->owner_len;
    call->ttl_ms = r->ttl_ms;
    call->delay_ms = r->delay_ms;
    call->most_ms = r->most_ms;
    call->token = r->token;
    call->prefix = r->prefix;
    call->prefix_len = r->prefix_len;
    call->look_at = earlier(r->limit + LIST_LOOK_MIN, LIST_LOOK_MAX);
    call->on_lock = pass_lock;
    if (r->op == STORE_RENEW || r->op == STORE_RELEASE)
        vouch_fill_call(r);
    call->contended = wait_queue_line(b->waiters, r->name, r->name_len) != NULL;
}

/* The first waiter here may be granted in the very step that frees the lock: its acquire rides on the release. */
static void take_rider(struct broker_request *release)
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
}

void broker_submit(struct broker_request *r)
{
    struct broker *b = r->broker;

    r->submitted_us = broker_now_us(b);
    fill_call(r);
    if (r->op == STORE_RELEASE)
        take_rider(r);
    if (r->op == STORE_LIST) {
        line_up(r);
        begin_lists(b);
    } else if (r->op != STORE_ACQUIRE) {
        r->state = CALLING;
        request_send(r);
    } else if ((b->draining && (r->wait_ms > 0 || !b->tries_only)) || (r->wait_ms > 0 && !lines_join(r))) {
        submit_refused(r);
    } else {
        try_acquire(r);
        broker_set_alarm(b);
    }
}

/* Goes to the end of the loop turn by way of the heap of ends: `done` must not be called from inside submit. */
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

void broker_request_abandon(struct broker_request *r)
{
    struct broker *b = r->broker;

    r->done = NULL;
    r->on_lock = NULL;
    r->peer = NULL;
    r->reason = NULL;
    switch (r->state) {
    case CALLING:
        wait_queue_remove(b->waiters, &r->waiter);
        heap_remove(&b->ends, &r->end);
        r->state = LEAVING;
        break;
    case ENDING:
        r->state = CLEANING;
        break;
    case LISTING:
        request_list_remove(&b->lists, r);
        request_let_go(r);
        break;
    default:
        if (r->queued || r->unsettled)
            clean(r);
        else
            request_let_go(r);
        break;
    }
}

/* ---- time ---- */

/* A waiter whose last try failed asks again without waiting for its turn to look. */
static void look_for_itself(struct broker_request *r)
{
    struct broker *b = r->broker;

    if (heap_set(&b->ends, &r->end, request_wait_end_us(r)) != 0)
        log_error("out_of_memory", LOG_STR("what", "wait"));
    if (r->state == PARKED && b->attached)
        request_list_add(&b->again, r);
}

static void end_waits(struct broker *b, int64_t now)
{
    while (heap_next_us(&b->ends) <= now) {
        struct broker_request *r = (struct broker_request *)((char *)heap_first(&b->ends) - offsetof(struct broker_request, end));

        heap_remove(&b->ends, &r->end);
        if (r->state == OWED)
            settle(r);
        else if (r->wait_ms > 0 && now < request_wait_end_us(r))
            look_for_itself(r);
        else if (r->state == PARKED)
            end_wait(r);
        /* CALLING: its answer, which comes within the call's deadline, finds the wait over */
    }
}

static void ask_again(struct broker *b)
{
    for (int i = 0; i < TRIES_AT_ONCE && b->again.first && b->attached && b->tries_open < TRIES_OPEN_MAX; i++)
        try_again(b->again.first);
}

void broker_tick(struct broker *b)
{
    int64_t now = broker_now_us(b);

    end_waits(b, now);
    lines_look(b, now);
    ask_again(b);
    vouch_put_back_due(b, now);
    vouch_expire(b, now);
    broker_set_alarm(b);
}

/* ---- what the store tells ---- */

static void on_attached(void *arg, bool new_life, bool window_open)
{
    struct broker *b = arg;

    b->attached = true;
    b->recovering = window_open;
    tell_store(b, EVENT_ATTACHED, new_life ? "a new life of the data" : "the data are those known before");
    if (new_life || window_open) {
        vouch_begin_putting_back(b);
    }
    settle_all(b);
    lines_mark_all(b);
    broker_set_alarm(b);
}

static void on_detached(void *arg)
{
    struct broker *b = arg;

    if (b->attached)
        tell_store(b, EVENT_DETACHED, NULL);
    b->attached = b->recovering = false;
    vouch_answers_lost(b);
}

static void on_look(void *arg)
{
    struct broker *b = arg;

    lines_mark_first(b);
    broker_set_alarm(b);
}

static void on_window_closed(void *arg)
{
    ((struct broker *)arg)->recovering = false;
    tell_store(arg, EVENT_WINDOW_CLOSED, NULL);
    on_look(arg);
}

static void on_answered(void *arg, int64_t us)
{
    metrics_observe(((struct broker *)arg)->metrics, HISTOGRAM_STORE_RTT, us);
}

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
    submit_cancel(r);
}

static void on_wake(void *arg, const struct lease_id *id, const char *name, size_t name_len)
{
    if (name_len <= PAWL_NAME_MAX)
        wake(arg, id, name, name_len, broker_now_us(arg));
}

static void on_forget(void *arg, const struct lease_id *id, uint64_t confirm, const char *name, size_t name_len)
{
    vouch_forget(arg, id, confirm, name, name_len);
}

struct store_events broker_store_events(struct broker *b)
{
    return (struct store_events){.arg = b,
                                 .attached = on_attached,
                                 .detached = on_detached,
                                 .window_closed = on_window_closed,
                                 .missed = on_look,
                                 .answered = on_answered,
                                 .wake = on_wake,
                                 .forget = on_forget};
}

/* ---- drain, numbers ---- */

void broker_drain(struct broker *b, bool successor)
{
    b->draining = true;
    b->tries_only = successor;
    lines_mark_all(b);
    while (b->again.first)
        end_wait(b->again.first); /* those with a try in flight find the drain when it is answered */
    broker_set_alarm(b);
}

bool broker_is_idle(const struct broker *b)
{
    return b->open == 0;
}

void broker_each_lease(const struct broker *b, int (*visit)(void *arg, const struct lease *lease), void *arg)
{
    lease_table_each(b->leases, visit, arg);
}

size_t broker_leases(const struct broker *b)
{
    return lease_table_count(b->leases);
}

size_t broker_waiters(const struct broker *b)
{
    return wait_queue_count(b->waiters);
}
