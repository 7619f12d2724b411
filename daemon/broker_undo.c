/* What nobody was told of is taken back: a grant that stands in the store, or a place in its queue, when the client has left or has an answer that does not
 * tell of it. It is done by the request's own cancel (CLEANING), which undoes a grant only under the request's confirm number. While the store can't be
 * asked, the cancel is owed (OWED): tried again a second later and at each attach, until it is done or the grant, if there was one, is over by itself.
 * A place is not over by itself, so a place is owed for ever; but no more are owed than a bound, and then the oldest is dropped. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/broker_undo.h"

#include "daemon/broker_acquire.h"
#include "daemon/broker_lines.h"
#include "daemon/broker_news.h"
#include "daemon/broker_request.h"
#include "daemon/broker_state.h"
#include "daemon/broker_time.h"
#include "daemon/broker_vouch.h"
#include "daemon/log.h"

#define OWED_MAX      20000
#define OWED_RETRY_US 1000000

/* The client is gone or has its answer: take back what nobody knows of. */
static void clean(struct broker_request *r)
{
    struct broker *b = r->broker;

    wait_queue_remove(b->waiters, &r->waiter);
    heap_remove(&b->ends, &r->end);
    request_list_remove(&b->again, r);
    vouch_forget_grant(r);
    r->state = CLEANING;
    acquire_cancel(r);
}

void undo_rest(struct broker_request *r)
{
    if (r->unsettled || r->queued)
        clean(r);
    else
        request_let_go(r);
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

void undo_settle(struct broker_request *r)
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
    acquire_cancel(r);
}

void undo_settle_all(struct broker *b)
{
    struct broker_request *next;

    for (struct broker_request *r = b->owed.first; r; r = next) {
        next = r->next;
        undo_settle(r);
    }
}

void undo_answered(struct broker_request *r)
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
    acquire_wake_of_answer(r);
    request_let_go(r);
}

void undo_close(struct broker *b)
{
    while (b->owed.first)
        request_let_go(b->owed.first);
}
