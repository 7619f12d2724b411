/* A request as a thing: made, sent to the store, answered, let go. What it is about, and what an answer of the store means for it, is for the files above.
 *
 * Requests that were let go are kept for the next ones, up to a number, since a request is large and comes and goes with each call. A request stands in at
 * most one list, and `listed` says whether it does; which one follows from its state. Whoever changes the state of a listed one takes it out first. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/broker_request.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/broker_state.h"

#define SPARE_MAX 256

void request_list_add(struct request_list *list, struct broker_request *r)
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

void request_list_remove(struct request_list *list, struct broker_request *r)
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

void request_let_go(struct broker_request *r)
{
    struct broker *b = r->broker;

    wait_queue_remove(b->waiters, &r->waiter);
    heap_remove(&b->ends, &r->end);
    request_list_remove(r->state == OWED ? &b->owed : &b->again, r);
    b->open--;
    if (b->spare_count >= SPARE_MAX) {
        free(r);
        return;
    }
    r->next = b->spare;
    b->spare = r;
    b->spare_count++;
}

void request_free_spare(struct broker *b)
{
    while (b->spare) {
        struct broker_request *next = b->spare->next;
        free(b->spare);
        b->spare = next;
    }
}

void request_send(struct broker_request *r)
{
    struct broker *b = r->broker;

    r->call.deadline_us = broker_now_us(b) + b->config.call_timeout_ms * 1000;
    r->call.done = b->answered;
    r->call.arg = r;
    store_submit(b->store, &r->call);
}

void request_answer(struct broker_request *r, enum pawl_error error, const char *problem)
{
    struct broker *b = r->broker;

    r->error = error;
    r->problem = problem && problem[0] ? problem : NULL;
    r->waited_ms = (broker_now_us(b) - r->submitted_us) / 1000;
    r->state = ANSWERED;
    wait_queue_remove(b->waiters, &r->waiter);
    heap_remove(&b->ends, &r->end);
    request_list_remove(&b->again, r);
    r->done(r);
}

void request_take_ends(struct broker_request *r)
{
    r->lease_until_us = r->call.sent_us + r->call.ret_ttl_ms * 1000;
    r->most_until_us = r->call.holder.most_ms > 0 ? r->call.sent_us + r->call.holder.most_ms * 1000 : INT64_MAX;
}
