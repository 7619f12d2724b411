/* The domain: what happens to a request between the client's asking and its answer.
 *
 * The broker knows leases, waiters and time; it does not know HTTP (the api above does) or Redis (the store below does), and it is given a
 * clock and a way to be called back, so that tests run it on virtual time.
 *
 * A request is made by broker_request_new, filled, and submitted. Then exactly one of these happens:
 *   done(request)             the answer is in it; the caller hands it back by broker_request_free, or by broker_request_undelivered
 *                             when nobody could be told (a grant in it is given back at once)
 *   broker_request_abandon    the client has gone: `done` is never called, the request is the broker's
 * `done` is never called from inside broker_submit.
 */
#ifndef PAWL_BROKER_H
#define PAWL_BROKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/clock.h"
#include "daemon/heap.h"
#include "daemon/lease_event.h"
#include "daemon/lease_table.h"
#include "daemon/metrics.h"
#include "daemon/store.h"
#include "daemon/wait_queue.h"
#include "proto/errors.h"

struct broker;

struct broker_config {
    int64_t call_timeout_ms; /* of one store call */
    int64_t max_waiters, max_waiters_per_lock;
    int64_t poll_ms; /* how often a line of waiters looks though nothing told it to */
};

struct broker_request {
    /* the question: filled by the caller */
    enum store_op op; /* all but STORE_CANCEL */
    size_t name_len;
    char name[PAWL_NAME_MAX + 1];
    struct lease_id lease_id;
    size_t owner_len;
    char owner[PAWL_OWNER_MAX + 1];
    int64_t ttl_ms, wait_ms;
    int64_t delay_ms, most_ms;        /* acquire: store_call has the meaning; ttl_ms is not above most_ms. 0: none */
    char caller[PAWL_CALLER_MAX + 1]; /* acquire, renew: the name of who asks, for the log and the lease table; "": nobody knows */
    int64_t token;                    /* check */
    size_t reason_len;                /* break: why; for whoever listens to events */
    const char *reason;               /* the caller's, until `done` or abandon */
    bool own_lease_id;                /* acquire: the caller chose the lease id, so it may ask again under it */
    size_t prefix_len;
    char prefix[PAWL_NAME_MAX + 1]; /* list, with store_call.cursor in `call` */
    int64_t limit;
    void (*on_lock)(struct broker_request *r, const struct store_lock *lock); /* list: ttl_ms already what is left */
    void (*done)(struct broker_request *r);
    void *arg;
    const char *peer; /* who asks, for the log; valid until done or abandon. NULL: unknown */

    /* the answer */
    enum pawl_error error; /* PAWL_OK: it did what was asked */
    const char *problem;   /* more than the error's own sentence, or NULL */
    int64_t ret_token;
    int64_t lease_until_us; /* acquire, renew, check: on the broker's clock; see broker_left_ms */
    int64_t most_until_us;  /* acquire, renew: however it is renewed; INT64_MAX: no bound */
    int64_t waited_ms;
    struct store_call call; /* holder, waiters, position, recovering, cursor of the answer are in here */

    /* the broker's own */
    struct broker *broker;
    int state;
    struct waiter waiter;
    struct heap_node end; /* when the wait is over */
    struct broker_request *next, *previous;
    struct broker_request *carrier; /* acquire: the release that its call rides on; NULL: none, or it has been answered */
    int64_t submitted_us;
    int64_t held_ms; /* renew, release: how long this node has known the lease; -1: it doesn't */
    int64_t found;   /* list: locks told so far */
    int steps;
    int64_t woken_us; /* by the release that it may now be granted after; 0: nothing woke it */
    bool poked;       /* woken while a try was in flight */
    bool queued;      /* has, or may have, a place in the store's queue */
    bool unsettled;   /* a grant may stand in the store that nobody was told of */
    bool sweep;       /* the next try looks for waiters of dead nodes too */
    bool listed;
    bool told_released; /* release: by its rider, which is answered first */
    bool over;          /* put back: a lease that has ended, whose delay has not */
};

struct broker_host {
    void *arg;
    void (*alarm)(void *arg, int64_t at_us); /* call broker_tick at or after this; INT64_MAX: no need. Replaces the time set before. */
    void (*happened)(void *arg, const struct lease_event *event); /* may be NULL; must not call the broker. From anywhere in it */
};

/* All pointers must outlive the broker; `store` is set afterwards (it needs the broker's events). NULL without memory. */
struct broker *broker_new(const struct clock *clock, const struct broker_config *config, const struct broker_host *host,
                          struct metrics *metrics);
void broker_set_store(struct broker *b, struct store *store);
struct store_events broker_store_events(struct broker *b);
void broker_free(struct broker *b); /* when the store answers no more; takes NULL */

/* All zero but the broker's own; NULL without memory. */
struct broker_request *broker_request_new(struct broker *b);
void broker_submit(struct broker_request *r);
void broker_request_abandon(struct broker_request *r);
void broker_request_undelivered(struct broker_request *r);
void broker_request_free(struct broker_request *r);

void broker_tick(struct broker *b);

/* What is left of a lease now, in whole ms, never more than the store would say; below 1 there is nothing left. */
int64_t broker_left_ms(const struct broker *b, int64_t until_us);

/* From now on acquires are refused and waiters told `draining`; every other call goes on working. `successor`: another pawld serves already, and
 * acquires that don't wait go on working too. */
void broker_drain(struct broker *b, bool successor);
bool broker_is_idle(const struct broker *b); /* no request open, nothing owed to the store */

/* Calls `visit` for every lease that this node vouches for, also those whose deadline has just passed; it must not call the broker. A non-zero answer ends the
 * walk. */
void broker_each_lease(const struct broker *b, int (*visit)(void *arg, const struct lease *lease), void *arg);
size_t broker_leases(const struct broker *b);
size_t broker_waiters(const struct broker *b);
int64_t broker_now_us(const struct broker *b);

#endif
