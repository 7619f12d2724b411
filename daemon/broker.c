/* The broker as its callers see it: a request is submitted, answered, abandoned or freed here, the store's answers and events come in here, and so does time.
 * Each is passed on to the file whose matter it is, by what the request is for and by its state; the picture of the states is in broker_acquire.c. What the
 * files share, and the order among them, is in broker_state.h. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/broker.h"

#include <stdlib.h>

#include "daemon/broker_acquire.h"
#include "daemon/broker_calls.h"
#include "daemon/broker_lines.h"
#include "daemon/broker_listing.h"
#include "daemon/broker_news.h"
#include "daemon/broker_request.h"
#include "daemon/broker_state.h"
#include "daemon/broker_time.h"
#include "daemon/broker_undo.h"
#include "daemon/broker_vouch.h"

static void call_done(struct store_call *call);

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
    undo_close(b);
    request_free_spare(b);
    lease_table_free(b->leases);
    lease_table_free(b->delays);
    wait_queue_free(b->waiters);
    heap_close(&b->ends);
    free(b);
}

/* ---- submitted, abandoned, handed back ---- */

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
    call->caller = r->caller;
    call->ttl_ms = r->ttl_ms;
    call->delay_ms = r->delay_ms;
    call->most_ms = r->most_ms;
    call->token = r->token;
    call->prefix = r->prefix;
    call->prefix_len = r->prefix_len;
    if (r->op == STORE_RENEW || r->op == STORE_RELEASE)
        vouch_fill_call(r);
    call->contended = wait_queue_line(b->waiters, r->name, r->name_len) != NULL;
}

void broker_submit(struct broker_request *r)
{
    struct broker *b = r->broker;

    r->submitted_us = broker_now_us(b);
    fill_call(r);
    if (r->op == STORE_RELEASE)
        acquire_take_rider(r);
    if (r->op == STORE_LIST) {
        listing_submit(r);
    } else if (r->op != STORE_ACQUIRE) {
        r->state = CALLING;
        request_send(r);
    } else {
        acquire_submit(r);
    }
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
        listing_abandon(r);
        break;
    default:
        undo_rest(r);
        break;
    }
}

void broker_request_free(struct broker_request *r)
{
    if (r->state == ANSWERED)
        undo_rest(r);
    else
        request_let_go(r);
}

void broker_request_undelivered(struct broker_request *r)
{
    if (r->op == STORE_ACQUIRE && r->error == PAWL_OK && r->call.result == STORE_DONE)
        r->unsettled = true;
    broker_request_free(r);
}

/* ---- every answer of the store comes in here ---- */

/* The client left while the store was busy. */
static void left_answered(struct broker_request *r)
{
    if (r->op == STORE_ACQUIRE)
        acquire_left(r);
    else
        calls_left(r);
    undo_rest(r);
}

static void call_done(struct store_call *call)
{
    struct broker_request *r = call->arg;
    struct broker *b = r->broker;
    bool list = r->op == STORE_LIST;

    acquire_part_rider(r);
    if (list)
        listing_step_over(b);
    switch (r->state) {
    case CALLING:
        if (r->op == STORE_ACQUIRE)
            acquire_answered(r);
        else
            calls_answered(r);
        break;
    case ENDING:
        acquire_ended(r);
        break;
    case LEAVING:
        left_answered(r);
        break;
    case PUTTING:
        vouch_put_back_answered(r);
        break;
    default:
        undo_answered(r);
        break;
    }
    if (list)
        listing_next(b);
    if (b->again.first)
        broker_set_alarm(b);
}

/* ---- time ---- */

static void end_waits(struct broker *b, int64_t now)
{
    while (heap_next_us(&b->ends) <= now) {
        struct broker_request *r = (struct broker_request *)((char *)heap_first(&b->ends) - offsetof(struct broker_request, end));

        heap_remove(&b->ends, &r->end);
        if (r->state == OWED)
            undo_settle(r);
        else
            acquire_time_up(r, now);
    }
}

void broker_tick(struct broker *b)
{
    int64_t now = broker_now_us(b);

    end_waits(b, now);
    lines_look(b, now);
    acquire_ask_again(b);
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
    if (new_life || window_open)
        vouch_begin_putting_back(b);
    undo_settle_all(b);
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

static void on_done_late(void *arg, const struct store_call *call)
{
    vouch_done_late(arg, call);
}

static void on_wake(void *arg, const struct lease_id *id, const char *name, size_t name_len)
{
    if (name_len <= PAWL_NAME_MAX)
        acquire_wake(arg, id, name, name_len, broker_now_us(arg));
}

static void on_forget(void *arg, const struct lease_id *id, uint64_t confirm, const char *name, size_t name_len)
{
    vouch_forget(arg, id, confirm, name, name_len);
}

static void on_broken(void *arg, const struct lease_id *id, uint64_t confirm, const char *name, size_t name_len)
{
    vouch_broken_elsewhere(arg, id, confirm, name, name_len);
}

struct store_events broker_store_events(struct broker *b)
{
    return (struct store_events){.arg = b,
                                 .attached = on_attached,
                                 .detached = on_detached,
                                 .window_closed = on_window_closed,
                                 .missed = on_look,
                                 .answered = on_answered,
                                 .done_late = on_done_late,
                                 .wake = on_wake,
                                 .forget = on_forget,
                                 .broken = on_broken};
}

/* ---- drain, numbers ---- */

void broker_drain(struct broker *b, bool successor)
{
    b->draining = true;
    b->tries_only = successor;
    lines_mark_all(b);
    acquire_drain(b); /* those with a try in flight find the drain when it is answered */
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
