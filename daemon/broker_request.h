/* A request as a thing, for the broker's files: lists of them, its sending, its answer, its end. broker_request_new of broker.h is here too.
 * Nothing here looks at what a request is about or says what comes next. */
#ifndef PAWL_BROKER_REQUEST_H
#define PAWL_BROKER_REQUEST_H

#include <stddef.h>

#include "daemon/broker.h"

struct request_list;

static inline struct broker_request *request_of(struct waiter *waiter)
{
    return (struct broker_request *)((char *)waiter - offsetof(struct broker_request, waiter));
}

/* When it stops waiting, by the broker's clock. */
static inline int64_t request_wait_end_us(const struct broker_request *r)
{
    return r->submitted_us + r->wait_ms * 1000;
}

/* At the end; one that stands in a list already stays where it is. */
void request_list_add(struct request_list *list, struct broker_request *r);
/* The list must be the one that it stands in; of one that stands in none: nothing. */
void request_list_remove(struct request_list *list, struct broker_request *r);

/* Hands `call`, filled but for its deadline, to the store. Every answer comes in by broker.answered, and never before this has returned. */
void request_send(struct broker_request *r);

/* Tells the caller, by `done`, before it returns: takes it out of all it waits in, and it is ANSWERED. The caller may have freed it by then, so that nothing
 * may touch it afterwards. `problem` is borrowed until `done` has returned; NULL or "": nothing beyond the error's own sentence. */
void request_answer(struct broker_request *r, enum pawl_error error, const char *problem);

/* How long the lease lasts by the store's answer, and may last at most: lease_until_us and most_until_us. */
void request_take_ends(struct broker_request *r);

/* The end of any request: takes it out of all it stands in but the lists whose turn has not come, and it is no more. Nothing of it may be with the store. */
void request_let_go(struct broker_request *r);
void request_free_spare(struct broker *b);

#endif
