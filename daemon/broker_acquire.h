/* Asking for a lock: the first time, again when something may have changed, and no more when the wait is over. The picture and the rules that keep grants safe
 * are in broker_acquire.c. A request that is answered in one of these may be gone when it returns, except where it says otherwise. */
#ifndef PAWL_BROKER_ACQUIRE_H
#define PAWL_BROKER_ACQUIRE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/lease_id.h"

struct broker;
struct broker_request;

/* The first time. Refused for the drain, or for want of room among the waiters, it is answered in the next tick: `done` is never called in here. */
void acquire_submit(struct broker_request *r);

/* The store's answer is there: to an acquire that was CALLING; to the cancel of one that was ENDING; to the acquire of one whose client has left. That one is
 * not answered and stays: `queued` and `unsettled` say what there is to take back. */
void acquire_answered(struct broker_request *r);
void acquire_ended(struct broker_request *r);
void acquire_left(struct broker_request *r);

/* Sends the request's cancel: gives up its place if it is `queued`, and undoes a grant under its confirm number. Its state is the caller's matter. */
void acquire_cancel(struct broker_request *r);

/* It may be this waiter's turn, since something happened at since_us: it asks again. One that is not here has left a place behind, which is given up. */
void acquire_wake(struct broker *b, const struct lease_id *id, const char *name, size_t name_len, int64_t since_us);
void acquire_wake_of_answer(
    struct broker_request *r); /* the one that the store's answer to this request named, if any; the request stays */

/* Those that are marked ask again, as many at once as may. */
void acquire_ask_again(struct broker *b);
/* The time of this waiter, or of one that was refused at its submitting, has come (it is taken out of broker.ends): its wait is over, or it looks for itself. */
void acquire_time_up(struct broker_request *r, int64_t now);
/* The waits of all that are marked end now. */
void acquire_drain(struct broker *b);

/* Before a release is sent: the first waiter's acquire rides on it, if it may. */
void acquire_take_rider(struct broker_request *release);
/* Before anything else is done about an answer: a rider and its release, whichever this is, know each other no more, since the one may be freed before the
 * other is answered. */
void acquire_part_rider(struct broker_request *r);

#endif
