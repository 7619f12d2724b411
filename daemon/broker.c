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
 * PUTTING stands beside these: a request that no client made, for one lease of the table. After every attach to a life of the data that this node
 * did not know, or whose window is open, each lease it vouches for, and each delay that stands after one, is put back (or, once the window is
 * closed, looked for). It is put back under the number that it had: should its grant turn out to be one that nobody could be told of, the cancel, which the store gets later, finds it.
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

#include "daemon/log.h"

enum { NEW, CALLING, PARKED, ENDING, ANSWERED, LEAVING, CLEANING, OWED, PUTTING, LISTING };

#define SPARE_MAX       256
#define OWED_MAX        20000
#define OWED_RETRY_US   1000000
#define SOON_US         250000 /* free, but an earlier waiter's turn: it may be dead; or the store failed: look again soon */
#define TRIES_AT_ONCE   64     /* of waiters that all must ask again */
#define TRIES_OPEN_MAX  256
#define LIST_STEPS_MAX  200
#define LIST_LOOK_MIN   10 /* keys a step of a list looks at */
#define LIST_LOOK_MAX   1000
#define LISTS_AT_ONCE   4        /* steps of lists in the store: the others take turns, so that many long lists hold up no other call */
#define LIST_WAIT_US    10000000 /* then a list ends with what it has */
#define PUTTING_MAX     128      /* leases being put back at one time */
#define PUT_AGAIN_US    100000   /* after the store failed to */
#define SWEEP           256      /* places that a look at the queue examines for waiters of dead nodes */
#define EXPIRED_AT_ONCE 1000
#define SWEEP_RATE      512 /* of such places a second, over all locks */

struct request_list {
    struct broker_request *first, *last;
    size_t count;
};

struct broker {
    const struct clock *clock;
    struct broker_config config;
    struct broker_host host;
    struct metrics *metrics;
    struct store *store;
    struct lease_table *leases;
    struct lease_table
        *delays; /* leases that ended, and not by a release: each until its delay is over. One that was broken has no lease id */
    struct wait_queue *waiters;
    struct heap ends;
    struct request_list again; /* parked ones that must ask again */
    struct request_list owed;
    struct request_list lists; /* whose turn has not come */
    size_t lists_open;
    struct broker_request *spare;
    size_t spare_count, open;
    int64_t tries_open, putting;
    int64_t put_again_us; /* INT64_MAX: no need */
    struct log_gate gone_gate;
    int64_t sweep_left, sweep_us; /* places that may be examined, as of then */
    uint64_t confirms;
    unsigned jitter;
    bool attached, recovering, draining, tries_only; /* tries_only: while draining, acquires that don't wait are served */
};

static void call_done(struct store_call *call);
static void try_again(struct broker_request *r);
static void clean(struct broker_request *r);
static void expire_leases(struct broker *b, int64_t now);

int64_t broker_now_us(const struct broker *b)
{
    return clock_now_us(b->clock);
}

int64_t broker_left_ms(const struct broker *b, int64_t until_us)
{
    int64_t left = until_us - broker_now_us(b);

    return left > 0 ? left / 1000 : 0;
}

/* ---- lists and timers ---- */

static void list_add(struct request_list *list, struct broker_request *r)
{
    if (r->listed)
        return;
    r->listed = true;
    r->next = NULL;
    r->previous = list->last;
    if (list->last)
        list->last->next = r;
    else
        list->first = r;
    list->last = r;
    list->count++;
}

static void list_remove(struct request_list *list, struct broker_request *r)
{
    if (!r->listed)
        return;
    if (r->previous)
        r->previous->next = r->next;
    else
        list->first = r->next;
    if (r->next)
        r->next->previous = r->previous;
    else
        list->last = r->previous;
    r->listed = false;
    list->count--;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void set_alarm(struct broker *b)
{
    int64_t at = earlier(heap_next_us(&b->ends), earlier(wait_queue_next_us(b->waiters), lease_table_next_us(b->leases)));

    at = earlier(at, earlier(b->put_again_us, lease_table_next_us(b->delays)));
    if (b->again.first && b->attached && b->tries_open < TRIES_OPEN_MAX)
        at = 0;
    b->host.alarm(b->host.arg, at);
}

static unsigned draw(struct broker *b)
{
    b->jitter = b->jitter * 1103515245u + 12345u;
    return b->jitter >> 16;
}

static int64_t poll_us(struct broker *b)
{
    return b->config.poll_ms * (900 + (int64_t)(draw(b) % 200)); /* 0.9 to 1.1 of it */
}

/* Sees to the alarm itself, so that no look is set that nobody comes to. */
static void look_at(struct broker *b, struct wait_line *line, int64_t at_us)
{
    if (wait_line_look_at(b->waiters, line, at_us) != 0)
        log_error("out_of_memory", LOG_STR("what", "wait line"));
    set_alarm(b);
}

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

static struct broker_request *request_of(struct waiter *waiter)
{
    return (struct broker_request *)((char *)waiter - offsetof(struct broker_request, waiter));
}

/* Another request of this node that waits with the same lease id, and means to go on: it is to be told the same. */
static struct broker_request *twin(const struct broker_request *r)
{
    const struct wait_line *line = wait_queue_line(r->broker->waiters, r->name, r->name_len);
    struct waiter *waiter = line ? wait_line_find(line, &r->lease_id, NULL) : NULL;

    for (; waiter; waiter = wait_line_find(line, &r->lease_id, waiter)) {
        struct broker_request *other = request_of(waiter);
        if (other != r && (other->state == CALLING || other->state == PARKED))
            return other;
    }
    return NULL;
}

static void let_go(struct broker_request *r)
{
    struct broker *b = r->broker;

    wait_queue_remove(b->waiters, &r->waiter);
    heap_remove(&b->ends, &r->end);
    list_remove(r->state == OWED ? &b->owed : &b->again, r);
    b->open--;
    if (b->spare_count >= SPARE_MAX) {
        free(r);
        return;
    }
    r->next = b->spare;
    b->spare = r;
    b->spare_count++;
}

void broker_free(struct broker *b)
{
    if (!b)
        return;
    while (b->owed.first)
        let_go(b->owed.first);
    while (b->spare) {
        struct broker_request *next = b->spare->next;
        free(b->spare);
        b->spare = next;
    }
    lease_table_free(b->leases);
    lease_table_free(b->delays);
    wait_queue_free(b->waiters);
    heap_close(&b->ends);
    free(b);
}

struct broker_request *broker_request_new(struct broker *b)
{
    struct broker_request *r = b->spare;

    if (r) {
        b->spare = r->next;
        b->spare_count--;
        memset(r, 0, sizeof(*r));
    } else {
        r = calloc(1, sizeof(*r));
        if (!r)
            return NULL;
    }
    r->broker = b;
    b->open++;
    return r;
}

/* ---- answering ---- */

static void answer(struct broker_request *r, enum pawl_error error, const char *problem)
{
    struct broker *b = r->broker;

    r->error = error;
    r->problem = problem && problem[0] ? problem : NULL;
    r->waited_ms = (broker_now_us(b) - r->submitted_us) / 1000;
    r->state = ANSWERED;
    wait_queue_remove(b->waiters, &r->waiter);
    heap_remove(&b->ends, &r->end);
    list_remove(&b->again, r);
    r->done(r);
}

void broker_request_free(struct broker_request *r)
{
    if (r->state == ANSWERED && (r->unsettled || r->queued))
        clean(r);
    else
        let_go(r);
}

void broker_request_undelivered(struct broker_request *r)
{
    if (r->op == STORE_ACQUIRE && r->error == PAWL_OK && r->call.result == STORE_DONE)
        r->unsettled = true;
    broker_request_free(r);
}

/* ---- store calls ---- */

static void submit_call(struct broker_request *r)
{
    struct broker *b = r->broker;

    r->call.deadline_us = broker_now_us(b) + b->config.call_timeout_ms * 1000;
    r->call.done = call_done;
    r->call.arg = r;
    store_submit(b->store, &r->call);
}

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
    r->call.sweep_from = r->sweep ? 1 + (r->call.ret_waiters > SWEEP ? draw(b) % r->call.ret_waiters : 0) : 0;
    r->sweep = false;
    r->call.repeat_confirm = ++b->confirms;
    r->carrier = NULL;
    b->tries_open += r->wait_ms > 0;
    r->call.done = call_done;
    r->call.arg = r;
}

static void try_acquire(struct broker_request *r)
{
    prepare_acquire(r);
    submit_call(r);
}

static void try_again(struct broker_request *r)
{
    if (r->state == CALLING) {
        r->poked = true;
        return;
    }
    if (r->state != PARKED)
        return;
    list_remove(&r->broker->again, r);
    try_acquire(r);
}

static void submit_cancel(struct broker_request *r)
{
    r->call.op = STORE_CANCEL;
    r->call.queue = r->queued;
    r->call.comes_back = r->own_lease_id && (r->state == CLEANING || r->broker->draining);
    submit_call(r);
}

static void forget_grant_in(struct lease_table *table, const struct broker_request *r)
{
    const struct lease *lease = lease_table_find(table, r->name, r->name_len, &r->lease_id, 0);

    if (lease && lease->confirm == r->call.confirm)
        lease_table_drop(table, r->name, r->name_len, &r->lease_id);
}

/* Nobody was told of this grant: this node does not vouch for it. Unless another call with the lease id was told since. */
static void forget_grant(struct broker_request *r)
{
    forget_grant_in(r->broker->leases, r);
    forget_grant_in(r->broker->delays, r);
}

/* The client is gone or has its answer: take back what nobody knows of. */
static void clean(struct broker_request *r)
{
    struct broker *b = r->broker;

    wait_queue_remove(b->waiters, &r->waiter);
    heap_remove(&b->ends, &r->end);
    list_remove(&b->again, r);
    forget_grant(r);
    r->state = CLEANING;
    submit_cancel(r);
}

/* The store could not be asked to clean up: keep it until the store is back, or the grant is over by itself. */
static void owe(struct broker_request *r)
{
    struct broker *b = r->broker;

    if (b->owed.count >= OWED_MAX) {
        log_warn("undo_dropped", LOG_TEXT("name", r->name, r->name_len), LOG_ID("lease", r->lease_id.text));
        let_go(b->owed.first);
    }
    r->state = OWED;
    list_add(&b->owed, r);
    if (heap_set(&b->ends, &r->end, broker_now_us(b) + OWED_RETRY_US) != 0)
        log_error("out_of_memory", LOG_STR("what", "undo")); /* the next attach will do it */
    set_alarm(b);
}

static void settle(struct broker_request *r)
{
    struct broker *b = r->broker;
    int64_t over_us = r->submitted_us + (r->ttl_ms + r->delay_ms + r->wait_ms + 2 * b->config.call_timeout_ms) * 1000;

    heap_remove(&b->ends, &r->end);
    if (over_us < broker_now_us(b) && !r->queued) { /* a grant ends by itself, and so does the delay after it; a place does not */
        let_go(r);
        return;
    }
    list_remove(&b->owed, r);
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

/* ---- what happened to a lease: here it is told, to the log (granted, renewed, released at debug; how it ends otherwise at info) and to who listens ---- */

static void happened(const struct broker *b, const struct lease_event *event)
{
    if (b->host.happened)
        b->host.happened(b->host.arg, event);
}

/* What the request, its owner apart, says of the lease. */
static struct lease_event event_of(const struct broker_request *r, enum lease_event_kind kind, int64_t token)
{
    return (struct lease_event){.kind = kind,
                                .name = r->name,
                                .name_len = r->name_len,
                                .lease_id = r->lease_id.text,
                                .token = token,
                                .waited_ms = -1,
                                .held_ms = -1};
}

static void set_reason(struct lease_event *event, const char *reason)
{
    event->reason = reason;
    event->reason_len = strlen(reason);
}

static void tell_granted(const struct broker_request *r, bool fresh)
{
    const struct broker *b = r->broker;
    struct lease_event event = event_of(r, EVENT_GRANT, r->ret_token);

    log_debug(fresh ? "granted" : "granted_again", LOG_TEXT("name", r->name, r->name_len), LOG_INT("token", r->ret_token),
              LOG_ID("lease", r->lease_id.text), LOG_TEXT("owner", r->call.holder.owner, r->call.holder.owner_len),
              LOG_INT("ttl_ms", r->call.ret_ttl_ms), LOG_INT("waited_ms", (broker_now_us(b) - r->submitted_us) / 1000),
              LOG_STR("caller", r->caller), LOG_STR("peer", r->peer));
    if (!fresh)
        return;
    event.owner = r->owner;
    event.owner_len = r->owner_len;
    event.waited_ms = (broker_now_us(b) - r->submitted_us) / 1000;
    happened(b, &event);
}

/* No event: there would be little else. */
static void tell_renewed(const struct broker_request *r)
{
    log_debug("renewed", LOG_TEXT("name", r->name, r->name_len), LOG_INT("token", r->ret_token), LOG_ID("lease", r->lease_id.text),
              LOG_TEXT("owner", r->call.holder.owner, r->call.holder.owner_len), LOG_INT("ttl_ms", r->call.ret_ttl_ms),
              LOG_INT("held_ms", r->held_ms), LOG_STR("peer", r->peer));
}

static void tell_released(struct broker_request *r)
{
    struct lease_event event = event_of(r, EVENT_RELEASE, r->call.ret_token);

    if (r->told_released)
        return;
    r->told_released = true;
    log_debug("released", LOG_TEXT("name", r->name, r->name_len), LOG_INT("token", r->call.ret_token), LOG_ID("lease", r->lease_id.text),
              LOG_TEXT("owner", r->owner, r->owner_len), LOG_INT("held_ms", r->held_ms), LOG_STR("peer", r->peer));
    event.owner = r->owner;
    event.owner_len = r->owner_len;
    event.held_ms = r->held_ms;
    happened(r->broker, &event);
}

static void tell_broken(const struct broker_request *r)
{
    const struct store_holder *holder = &r->call.holder;
    const struct lease *known = lease_table_at(r->broker->leases, r->name, r->name_len);
    struct lease_event event = event_of(r, EVENT_BREAK, holder->token);

    event.lease_id = known && known->token == holder->token ? known->id.text : NULL;
    event.owner = holder->owner;
    event.owner_len = holder->owner_len;
    event.held_ms = holder->held_ms;
    if (r->reason) {
        event.reason = r->reason;
        event.reason_len = r->reason_len;
    }
    happened(r->broker, &event);
}

static void tell_undone(const struct broker_request *r)
{
    struct lease_event event = event_of(r, EVENT_UNDONE, r->call.ret_token);

    log_debug("undone", LOG_TEXT("name", r->name, r->name_len), LOG_ID("lease", r->lease_id.text),
              LOG_TEXT("owner", r->owner, r->owner_len));
    event.owner = r->owner;
    event.owner_len = r->owner_len;
    happened(r->broker, &event);
}

/* A lease that this node vouched for until it was renewed or released is over; of any other it knows no more than its caller. */
static void tell_vouched_lost(const struct broker_request *r, const char *reason)
{
    struct lease_event event = event_of(r, EVENT_LOST, r->call.token);

    if (r->call.token <= 0)
        return;
    event.owner = r->owner;
    event.owner_len = r->owner_len;
    event.held_ms = r->held_ms;
    set_reason(&event, reason);
    happened(r->broker, &event);
}

static void tell_lost(const struct broker_request *r)
{
    bool renewal = r->op == STORE_RENEW;

    if (r->op == STORE_CHECK) {
        log_debug("token_refused", LOG_TEXT("name", r->name, r->name_len), LOG_INT("token", r->token), LOG_STR("peer", r->peer));
        return;
    }
    log_info("lease_lost", LOG_TEXT("name", r->name, r->name_len), LOG_ID("lease", r->lease_id.text),
             LOG_TEXT("owner", r->owner, r->owner_len), LOG_STR("call", renewal ? "renew" : "release"), LOG_INT("held_ms", r->held_ms),
             LOG_STR("peer", r->peer));
    tell_vouched_lost(r, renewal ? "it was over when it was to be renewed" : "it was over when it was to be released");
}

static void tell_put_back(const struct broker_request *r, bool stands)
{
    struct lease_event event = event_of(r, stands ? EVENT_RECOVERED : EVENT_LOST, r->call.token);

    event.owner = r->owner;
    event.owner_len = r->owner_len;
    if (!stands)
        set_reason(&event, "gone when the data began a new life");
    happened(r->broker, &event);
}

/* A lease of the table ends, by its time or (with a reason) before. */
static void tell_ended(const struct broker *b, const struct lease *lease, const char *reason)
{
    struct lease_event event = {.kind = reason ? EVENT_LOST : EVENT_EXPIRE,
                                .name = lease->name,
                                .name_len = lease->name_len,
                                .owner = lease->owner,
                                .owner_len = lease->owner_len,
                                .lease_id = lease->id.text,
                                .token = lease->token,
                                .waited_ms = -1,
                                .held_ms = (broker_now_us(b) - lease->granted_us) / 1000};

    if (reason)
        set_reason(&event, reason);
    happened(b, &event);
}

static void tell_expired(const struct broker *b, const struct lease *lease)
{
    log_info("expired", LOG_TEXT("name", lease->name, lease->name_len), LOG_INT("token", lease->token), LOG_ID("lease", lease->id.text),
             LOG_TEXT("owner", lease->owner, lease->owner_len), LOG_INT("held_ms", (broker_now_us(b) - lease->granted_us) / 1000));
    metrics_add(b->metrics, METRIC_EXPIRED, 1);
    tell_ended(b, lease, NULL);
}

static void tell_store(const struct broker *b, enum lease_event_kind kind, const char *reason)
{
    struct lease_event event = {.kind = kind, .waited_ms = -1, .held_ms = -1};

    if (reason)
        set_reason(&event, reason);
    happened(b, &event);
}

/* A greater token was seen at this lock, that of `holder` (NULL: a stranger): the lease in the table, if it is another's, is over. Its deadline comes no later
 * than its end in the store; so if it has not come, something else ended it. */
static void tell_outlived(const struct broker *b, const char *name, size_t name_len, int64_t token, const struct lease_id *holder)
{
    const struct lease *lease = lease_table_at(b->leases, name, name_len);

    if (!lease || lease->token >= token || (holder && strcmp(holder->text, lease->id.text) == 0))
        return;
    if (lease->deadline_us <= broker_now_us(b))
        tell_expired(b, lease);
    else
        tell_ended(b, lease, "another lease holds the lock");
}

/* ---- acquire ---- */

static int64_t end_us(const struct broker_request *r)
{
    return r->submitted_us + r->wait_ms * 1000;
}

/* How long this lease lasts by the store's answer, and may last at most. */
static void take_ends(struct broker_request *r)
{
    r->lease_until_us = r->call.sent_us + r->call.ret_ttl_ms * 1000;
    r->most_until_us = r->call.holder.most_ms > 0 ? r->call.sent_us + r->call.holder.most_ms * 1000 : INT64_MAX;
}

static void remember_lease(struct broker_request *r)
{
    const struct store_call *call = &r->call;
    struct lease lease = {.id = r->lease_id,
                          .token = call->ret_token,
                          .deadline_us = r->lease_until_us,
                          .granted_ms = call->ret_granted_ms,
                          .granted_us = broker_now_us(r->broker),
                          .confirm = call->ret_confirm,
                          .delay_ms = call->holder.delay_ms,
                          .most_us = r->most_until_us,
                          .caller = r->caller,
                          .caller_len = strlen(r->caller),
                          .name = r->name,
                          .name_len = r->name_len,
                          .owner = call->holder.owner,
                          .owner_len = call->holder.owner_len};

    tell_outlived(r->broker, r->name, r->name_len, lease.token, &lease.id);
    if (lease_table_put(r->broker->leases, &lease) != 0)
        log_error("out_of_memory", LOG_STR("what", "lease table"));
    lease_table_see(r->broker->delays, r->name, r->name_len, call->ret_token);
    set_alarm(r->broker);
}

/* A lease ended otherwise than by its release: nobody is granted the lock until then. */
static void remember_delay(struct broker *b, const struct lease *ended, int64_t until_us)
{
    struct lease delay = *ended;

    delay.deadline_us = until_us;
    if (delay.delay_ms > 0 && until_us > broker_now_us(b) && lease_table_put(b->delays, &delay) != 0)
        log_error("out_of_memory", LOG_STR("what", "lease table"));
}

/* The others of this line look again when the lease that was just granted would end; but grants that follow each other must not put the slow poll off for ever,
 * since it is also what keeps the queue alive in the store. */
static void next_look(struct broker *b, const struct broker_request *r)
{
    struct wait_line *line = wait_queue_line(b->waiters, r->name, r->name_len);
    int64_t now = broker_now_us(b), at = earlier(now + poll_us(b), r->lease_until_us + r->call.holder.delay_ms * 1000 + 1000);

    if (line)
        look_at(b, line, wait_line_look_us(line) > now ? earlier(at, wait_line_look_us(line)) : at);
}

static void granted(struct broker_request *r)
{
    struct broker *b = r->broker;
    bool fresh = r->call.result == STORE_DONE;

    r->queued = false;
    r->unsettled = false;
    r->ret_token = r->call.ret_token;
    take_ends(r);
    if (broker_left_ms(b, r->lease_until_us) < 1) {
        r->unsettled = fresh;
        if (!fresh)
            remember_lease(r); /* its delay is this node's matter, since the lease was */
        answer(r, PAWL_E_STORE_UNAVAILABLE, "the grant came too late to be of use and is given back");
        return;
    }
    metrics_add(b->metrics, fresh ? METRIC_GRANTS : METRIC_REGRANTS, 1);
    if (r->wait_ms > 0)
        metrics_observe(b->metrics, HISTOGRAM_WAIT, broker_now_us(b) - r->submitted_us);
    if (r->woken_us)
        metrics_observe(b->metrics, HISTOGRAM_HANDOVER, broker_now_us(b) - r->woken_us);
    remember_lease(r);
    if (twin(r))
        try_again(twin(r)); /* will be told the same */
    wait_queue_remove(b->waiters, &r->waiter);
    next_look(b, r);
    tell_granted(r, fresh);
    answer(r, PAWL_OK, NULL);
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
        take_ends(r);
        remember_lease(r);
    }
    answer(r, PAWL_E_NOT_REPLICATED, fresh ? "too few replicas confirmed the grant in time, and it is given back" : NULL);
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
        answer(r, PAWL_E_HELD,
               r->wait_ms > 0 ? "the wait is over and the lock was not free"
               : r->call.holder.token == 0 && r->call.holder.delay_ms > 0
                   ? "nobody holds this lock, but its delay after the last lease is not over"
                   : NULL);
        return;
    case STORE_FULL:
        answer(r, PAWL_E_TOO_MANY_WAITERS, problem);
        return;
    case STORE_RECOVERING:
        answer(r, PAWL_E_RECOVERING, NULL);
        return;
    case STORE_UNKNOWN:
        metrics_add(b->metrics, METRIC_UNKNOWN, 1);
        answer(r, PAWL_E_STORE_UNAVAILABLE, "the outcome is not known: repeat the call with this lease_id, or release it");
        return;
    default:
        metrics_add(b->metrics, METRIC_STORE_ERRORS, 1);
        answer(r, PAWL_E_STORE_UNAVAILABLE, problem);
    }
}

static void end_wait(struct broker_request *r)
{
    struct broker *b = r->broker;

    list_remove(&b->again, r);
    heap_remove(&b->ends, &r->end);
    if (!r->queued && !r->unsettled) {
        if (b->draining)
            answer(r, PAWL_E_DRAINING, NULL);
        else
            refuse(r, r->call.result, r->call.problem);
        return;
    }
    r->state = ENDING;
    submit_cancel(r);
}

/* When the lock is free, by an answer that told of a holder or a delay, if nothing happens before. */
static int64_t free_us(const struct broker_request *r)
{
    const struct store_holder *holder = &r->call.holder;

    return r->call.sent_us + ((holder->token > 0 ? holder->ttl_ms : 0) + holder->delay_ms) * 1000;
}

/* When this line should look again, after an answer that told it how things stand. */
static void look_again(struct broker_request *r)
{
    struct broker *b = r->broker;
    int64_t now = broker_now_us(b), at = now + poll_us(b);

    if (!r->waiter.line)
        return;
    if (r->call.result == STORE_HELD || r->call.result == STORE_DELAYED)
        at = earlier(at, free_us(r) + 1000);
    else if (r->call.result != STORE_RECOVERING)
        at = now + SOON_US;
    if (wait_line_first(r->waiter.line) != &r->waiter) /* the look is the first one's: others may only bring it forward */
        at = earlier(at, wait_line_look_us(r->waiter.line));
    if (at < now + 1000) /* as good as over: not in this very millisecond again */
        at = now + 1000;
    look_at(b, r->waiter.line, at);
}

static void park(struct broker_request *r)
{
    struct broker *b = r->broker;

    r->state = PARKED;
    if (b->draining || broker_now_us(b) >= end_us(r)) {
        end_wait(r);
        return;
    }
    if (r->poked && b->attached) {
        try_acquire(r);
        return;
    }
    look_again(r);
    if (r->call.result == STORE_UNAVAILABLE || r->call.result == STORE_UNKNOWN) {
        /* It may have no place, and stand behind others here: it looks for itself. */
        if (heap_set(&b->ends, &r->end, earlier(end_us(r), broker_now_us(b) + SOON_US)) != 0)
            log_error("out_of_memory", LOG_STR("what", "wait"));
    }
    set_alarm(b);
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
            tell_outlived(b, r->name, r->name_len, call->holder.token, NULL);
            lease_table_see(b->leases, r->name, r->name_len, call->holder.token);
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
    take_ends(r);
    remember_lease(r);
    next_look(r->broker, r);
}

static void renew_answered(struct broker_request *r)
{
    renewed(r);
    tell_renewed(r);
    if (broker_left_ms(r->broker, r->lease_until_us) < 1) {
        answer(r, PAWL_E_STORE_UNAVAILABLE, "the answer came too late: the lease may be over");
        return;
    }
    metrics_add(r->broker->metrics, METRIC_RENEWALS, 1);
    answer(r, PAWL_OK, NULL);
}

static void release_answered(struct broker_request *r)
{
    r->ret_token = r->call.ret_token;
    metrics_add(r->broker->metrics, METRIC_RELEASES, 1);
    tell_released(r);
    wake_of_answer(r);
    answer(r, PAWL_OK, NULL);
}

/* Before each step, so that a long list lets the others go before its next one. */
static void line_up(struct broker_request *r)
{
    r->state = LISTING;
    list_add(&r->broker->lists, r);
}

static void begin_lists(struct broker *b)
{
    struct broker_request *r;

    while (b->lists_open < LISTS_AT_ONCE && (r = b->lists.first) != NULL) {
        list_remove(&b->lists, r);
        r->state = CALLING;
        b->lists_open++;
        submit_call(r);
    }
}

/* The node that granted it forgets it; the delay is this one's to vouch for. It is counted from now: the break may have run at any moment before. */
static void broken(struct broker_request *r)
{
    const struct store_holder *holder = &r->call.holder;
    struct broker *b = r->broker;
    const struct lease lease = {.token = holder->token,
                                .delay_ms = holder->delay_ms,
                                .most_us = INT64_MAX,
                                .name = r->name,
                                .name_len = r->name_len,
                                .owner = "",
                                .caller = ""};

    tell_broken(r);
    if (r->call.ret_broken.text[0]) /* also what a call confirms that ran before, and whose answer waits for replicas */
        lease_table_give_up(b->leases, r->name, r->name_len, &r->call.ret_broken, r->call.ret_confirm);
    lease_table_see(b->leases, r->name, r->name_len, holder->token + 1);
    remember_delay(b, &lease, broker_now_us(b) + holder->delay_ms * 1000);
    set_alarm(b);
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
    answer(r, PAWL_OK, NULL);
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
        answer(r, PAWL_OK, NULL);
        return;
    case STORE_CHECK:
        r->lease_until_us = r->call.sent_us + r->call.ret_ttl_ms * 1000;
        answer(r, PAWL_OK, NULL);
        return;
    default:
        answer(r, PAWL_OK, NULL);
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
            answer(r, PAWL_E_NOT_HELD, NULL);
            return;
        }
        if (r->op == STORE_RENEW)
            lease_table_drop(b->leases, r->name, r->name_len, &r->lease_id);
        metrics_add(b->metrics, METRIC_LOST, 1);
        tell_lost(r);
        answer(r, PAWL_E_LEASE_LOST, NULL);
        return;
    case STORE_RECOVERING:
        answer(r, PAWL_E_RECOVERING, NULL);
        return;
    case STORE_NOT_REPLICATED: /* a renewal: it stands */
        renewed(r);
        metrics_add(b->metrics, METRIC_NOT_REPLICATED, 1);
        answer(r, PAWL_E_NOT_REPLICATED, "too few replicas confirmed the renewal in time: repeat it");
        return;
    case STORE_UNKNOWN:
        metrics_add(b->metrics, METRIC_UNKNOWN, 1);
        tell_release_failed(r);
        answer(r, PAWL_E_STORE_UNAVAILABLE, r->call.problem);
        return;
    default:
        metrics_add(b->metrics, METRIC_STORE_ERRORS, 1);
        tell_release_failed(r);
        answer(r, PAWL_E_STORE_UNAVAILABLE, r->call.problem);
    }
}

/* A repeat took the lease from the node that vouched for it, which was told to forget it; and its client has left. Whoever was told by an earlier call
 * holds it all the same, so somebody has to vouch for it. */
static void taken_over(struct broker_request *r)
{
    take_ends(r);
    remember_lease(r);
    next_look(r->broker, r);
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
        let_go(r);
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
    if (call->result == STORE_REPEATED && twin(r))
        try_again(twin(r)); /* will be told the same */
    if (r->unsettled || r->queued)
        clean(r);
    else
        let_go(r);
}

/* The grant was over before it could be taken back, so nobody was woken: the line here may have put off its look to the end of an earlier lease. */
static void look_soon(struct broker_request *r)
{
    struct broker *b = r->broker;
    struct wait_line *line = wait_queue_line(b->waiters, r->name, r->name_len);

    if (line)
        look_at(b, line, earlier(wait_line_look_us(line), broker_now_us(b) + 1000));
}

static void cleaned(struct broker_request *r)
{
    const struct store_call *call = &r->call;
    struct broker *b = r->broker;

    if (call->result != STORE_DONE &&
        r->op == STORE_CANCEL) { /* a place of nobody's here: found again if it still is, and by then perhaps somebody's */
        let_go(r);
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
        look_soon(r);
    }
    wake_of_answer(r);
    let_go(r);
}

/* It may have been the one that watched for the end of the holder's lease: the line looks then, whoever is first in it. */
static void look_at_holders_end(struct broker_request *r)
{
    struct broker *b = r->broker;
    int64_t now = broker_now_us(b), end = free_us(r) + 1000;

    if (r->waiter.line)
        look_at(b, r->waiter.line, earlier(now + poll_us(b), end > now ? end : now + 1000));
}

static void ended(struct broker_request *r)
{
    struct store_call *call = &r->call;
    struct broker *b = r->broker;

    if (call->result == STORE_DONE) {
        r->queued = r->unsettled = false;
        wake_of_answer(r);
        look_at_holders_end(r);
    }
    if (b->draining) {
        answer(r, PAWL_E_DRAINING, NULL);
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

/* ---- leases put back ---- */

/* What may be held of it from now on, for the store; 0: no bound. */
static int64_t known_most_ms(const struct broker *b, const struct lease *lease)
{
    int64_t left_ms = (lease->most_us - broker_now_us(b)) / 1000;

    return lease->most_us == INT64_MAX ? 0 : left_ms > 1 ? left_ms : 1;
}

/* `over`: the lease has ended, and its deadline is that of its delay. False without memory. */
static bool put_back(struct broker *b, const struct lease *lease, bool over)
{
    int64_t now = broker_now_us(b), until_us = lease->deadline_us + (over ? 0 : lease->delay_ms * 1000);
    struct broker_request *r = until_us - now >= 1000 ? broker_request_new(b) : NULL;

    if (!r)
        return until_us - now < 1000;
    r->op = STORE_PUT_BACK;
    r->state = PUTTING;
    r->over = over;
    r->lease_id = lease->id;
    r->name_len = lease->name_len;
    r->owner_len = lease->owner_len;
    memcpy(r->name, lease->name, lease->name_len);
    memcpy(r->owner, lease->owner, lease->owner_len);
    r->call = (struct store_call){.op = STORE_PUT_BACK,
                                  .name = r->name,
                                  .name_len = r->name_len,
                                  .owner = r->owner,
                                  .owner_len = r->owner_len,
                                  .lease_id = lease->id,
                                  .token = lease->token,
                                  .granted_ms = lease->granted_ms,
                                  .ttl_ms = (until_us - now) / 1000,
                                  .known_us = now,
                                  .confirm = lease->confirm,
                                  .repeat_confirm = ++b->confirms};
    r->call.broken = lease->id.text[0] == '\0';
    if (!r->call.broken) {
        r->call.delay_ms = lease->delay_ms;
        r->call.ttl_ms -= lease->delay_ms;
        r->call.most_ms = known_most_ms(b, lease);
    }
    b->putting++;
    submit_call(r);
    return true;
}

static void put_back_from(struct broker *b, struct lease_table *table)
{
    const struct lease *lease;

    while (b->attached && b->putting < PUTTING_MAX && (lease = lease_table_take(table)) != NULL) {
        if (put_back(b, lease, table == b->delays))
            continue;
        lease_table_take_again(table, lease->name, lease->name_len, &lease->id);
        b->put_again_us = broker_now_us(b) + PUT_AGAIN_US;
        return;
    }
}

static void put_back_more(struct broker *b)
{
    put_back_from(b, b->leases);
    put_back_from(b, b->delays);
}

static void lease_gone(struct broker_request *r)
{
    struct broker *b = r->broker;
    uint64_t left_out;

    lease_table_drop(b->leases, r->name, r->name_len, &r->lease_id);
    metrics_add(b->metrics, METRIC_GONE, 1);
    tell_put_back(r, false);
    if (log_gate_pass(&b->gone_gate, broker_now_us(b), &left_out))
        log_warn("lease_gone", LOG_TEXT("name", r->name, r->name_len), LOG_INT("token", r->call.token),
                 LOG_TEXT("owner", r->owner, r->owner_len), LOG_ID("lease", r->lease_id.text), LOG_INT("suppressed", left_out));
}

static void put_back_answered(struct broker_request *r)
{
    struct broker *b = r->broker;
    bool lives = !r->over && r->call.ttl_ms >= 1;

    b->putting--;
    if (r->call.result == STORE_DONE) {
        metrics_add(b->metrics, METRIC_PUT_BACK, lives);
        if (lives)
            tell_put_back(r, true);
    } else if (r->call.result == STORE_LOST && lives) {
        lease_gone(r);
    } else if (r->call.result != STORE_LOST) {
        /* the next attach begins again; a store that failed for another reason is asked again soon. The lease may have ended meanwhile: then for its delay */
        lease_table_take_again(b->leases, r->name, r->name_len, &r->lease_id);
        lease_table_take_again(b->delays, r->name, r->name_len, &r->lease_id);
        b->put_again_us = broker_now_us(b) + PUT_AGAIN_US;
    }
    let_go(r);
    if (b->put_again_us == INT64_MAX)
        put_back_more(b);
    set_alarm(b);
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
        put_back_answered(r);
        break;
    default:
        cleaned(r);
        break;
    }
    if (list)
        begin_lists(b);
    if (b->again.first)
        set_alarm(b);
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

/* Also what a renewal confirms whose answer is still on its way. Should a request wait here under this very lease id, it is older than this call, and its
 * grant to come is not meant. */
static void give_up(struct broker_request *release)
{
    struct broker *b = release->broker;
    const struct wait_line *line = wait_queue_line(b->waiters, release->name, release->name_len);

    if (line && wait_line_find(line, &release->lease_id, NULL))
        lease_table_drop(b->leases, release->name, release->name_len, &release->lease_id);
    else
        lease_table_give_up(b->leases, release->name, release->name_len, &release->lease_id, release->call.confirm);
}

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
    if (r->op == STORE_RELEASE)
        expire_leases(b, broker_now_us(b)); /* should it be over, that is told, since nobody will see its end afterwards */
    if (r->op == STORE_RENEW || r->op == STORE_RELEASE) {
        const struct lease *known = lease_table_find(b->leases, r->name, r->name_len, &r->lease_id, broker_now_us(b));
        call->token = known ? known->token : 0;
        call->granted_ms = known ? known->granted_ms : 0;
        call->delay_ms = known ? known->delay_ms : 0;
        call->most_ms = known ? known_most_ms(b, known) : 0;
        call->known_us = broker_now_us(b);
        call->confirm = ++b->confirms;
        r->held_ms = known ? (broker_now_us(b) - known->granted_us) / 1000 : -1;
        if (known && known->owner_len <= PAWL_OWNER_MAX) {
            memcpy(r->owner, known->owner, known->owner_len);
            r->owner_len = call->owner_len = known->owner_len;
        }
        if (known && r->op == STORE_RELEASE)
            metrics_observe(b->metrics, HISTOGRAM_HOLD, broker_now_us(b) - known->granted_us);
    }
    if (r->op == STORE_RELEASE)
        give_up(r);
    call->contended = wait_queue_line(b->waiters, r->name, r->name_len) != NULL;
}

static bool start_wait(struct broker_request *r)
{
    struct broker *b = r->broker;

    r->waiter.id = r->lease_id;
    if (wait_queue_count(b->waiters) >= (size_t)b->config.max_waiters)
        return false;
    if (heap_set(&b->ends, &r->end, end_us(r)) != 0)
        return false;
    if (wait_queue_add(b->waiters, &r->waiter, r->name, r->name_len) != 0) {
        heap_remove(&b->ends, &r->end);
        return false;
    }
    return true;
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
    list_remove(&b->again, first);
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
        submit_call(r);
    } else if ((b->draining && (r->wait_ms > 0 || !b->tries_only)) || (r->wait_ms > 0 && !start_wait(r))) {
        submit_refused(r);
    } else {
        try_acquire(r);
        set_alarm(b);
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
    set_alarm(b);
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
        list_remove(&b->lists, r);
        let_go(r);
        break;
    default:
        if (r->queued || r->unsettled)
            clean(r);
        else
            let_go(r);
        break;
    }
}

/* ---- time ---- */

/* A waiter whose last try failed asks again without waiting for its turn to look. */
static void look_for_itself(struct broker_request *r)
{
    struct broker *b = r->broker;

    if (heap_set(&b->ends, &r->end, end_us(r)) != 0)
        log_error("out_of_memory", LOG_STR("what", "wait"));
    if (r->state == PARKED && b->attached)
        list_add(&b->again, r);
}

static void end_waits(struct broker *b, int64_t now)
{
    while (heap_next_us(&b->ends) <= now) {
        struct broker_request *r = (struct broker_request *)((char *)heap_first(&b->ends) - offsetof(struct broker_request, end));

        heap_remove(&b->ends, &r->end);
        if (r->state == OWED)
            settle(r);
        else if (r->wait_ms > 0 && now < end_us(r))
            look_for_itself(r);
        else if (r->state == PARKED)
            end_wait(r);
        /* CALLING: its answer, which comes within the call's deadline, finds the wait over */
    }
}

/* Examining places costs Redis a command each: a steady trickle for all locks together. */
static bool may_sweep(struct broker *b, const struct broker_request *r, int64_t now)
{
    int64_t places = r->call.ret_waiters < SWEEP ? r->call.ret_waiters : SWEEP;

    b->sweep_left = earlier(SWEEP_RATE, b->sweep_left + (now - b->sweep_us) * SWEEP_RATE / 1000000);
    b->sweep_us = now;
    if (b->sweep_left < places)
        return false;
    b->sweep_left -= places + 1;
    return true;
}

static void look_at_lines(struct broker *b, int64_t now)
{
    struct wait_line *line;

    while ((line = wait_queue_due(b->waiters, now)) != NULL) {
        struct waiter *waiter = wait_line_first(line);

        look_at(b, line, now + poll_us(b));
        while (waiter && (request_of(waiter)->state == ENDING || request_of(waiter)->carrier)) /* who rides on a release asks nothing */
            waiter = waiter->later;
        if (b->attached && waiter && request_of(waiter)->state == PARKED) {
            request_of(waiter)->sweep = may_sweep(b, request_of(waiter), now);
            list_add(&b->again, request_of(waiter));
        }
    }
}

static void ask_again(struct broker *b)
{
    for (int i = 0; i < TRIES_AT_ONCE && b->again.first && b->attached && b->tries_open < TRIES_OPEN_MAX; i++)
        try_again(b->again.first);
}

/* As far as this node knows: one that was renewed through another is that node's matter, whose message of it may have been missed. */
static void expire_leases(struct broker *b, int64_t now)
{
    const struct lease *lease;

    for (int i = 0; i < EXPIRED_AT_ONCE && (lease = lease_table_due(b->leases, now)) != NULL; i++) {
        tell_expired(b, lease);
        remember_delay(b, lease, lease->deadline_us + lease->delay_ms * 1000);
        if (b->recovering && lease->delay_ms > 0) { /* it may not have been put back yet: the round goes on with what is left of it */
            lease_table_take_again(b->delays, lease->name, lease->name_len, &lease->id);
            b->put_again_us = earlier(b->put_again_us, now);
        }
        (void)lease_table_expire(b->leases, now, 1);
    }
    (void)lease_table_expire(b->delays, now, EXPIRED_AT_ONCE);
}

void broker_tick(struct broker *b)
{
    int64_t now = broker_now_us(b);

    end_waits(b, now);
    look_at_lines(b, now);
    ask_again(b);
    if (b->put_again_us <= now) {
        b->put_again_us = INT64_MAX;
        put_back_more(b);
    }
    expire_leases(b, now);
    set_alarm(b);
}

/* ---- what the store tells ---- */

static void mark_again(struct waiter *waiter, void *arg)
{
    struct broker_request *r = request_of(waiter);

    if (r->state == PARKED)
        list_add(&((struct broker *)arg)->again, r);
    else if (r->state == CALLING)
        r->poked = true;
}

static void mark_first(struct waiter *waiter, void *arg)
{
    if (wait_line_first(waiter->line) == waiter)
        mark_again(waiter, arg);
}

static void on_attached(void *arg, bool new_life, bool window_open)
{
    struct broker *b = arg;

    b->attached = true;
    b->recovering = window_open;
    tell_store(b, EVENT_ATTACHED, new_life ? "a new life of the data" : "the data are those known before");
    if (new_life || window_open) {
        lease_table_begin_round(b->leases);
        lease_table_begin_round(b->delays);
        put_back_more(b);
    }
    settle_all(b);
    wait_queue_each(b->waiters, mark_again, b);
    set_alarm(b);
}

static void on_detached(void *arg)
{
    struct broker *b = arg;

    if (b->attached)
        tell_store(b, EVENT_DETACHED, NULL);
    b->attached = b->recovering = false;
    lease_table_answers_lost(b->leases);
    lease_table_answers_lost(b->delays);
}

static void on_look(void *arg)
{
    struct broker *b = arg;

    wait_queue_each(b->waiters, mark_first, b);
    set_alarm(b);
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
    struct broker *b = arg;

    lease_table_give_up(b->leases, name, name_len, id, confirm);
    lease_table_give_up(b->delays, name, name_len, id, confirm); /* it was renewed elsewhere just before it ended here */
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
    wait_queue_each(b->waiters, mark_again, b);
    while (b->again.first)
        end_wait(b->again.first); /* those with a try in flight find the drain when it is answered */
    set_alarm(b);
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
