/* The broker's state, which its files share and nobody else sees: the fields, and whose they are.
 *
 * The files, from below to above. Each knows those before it, and none knows one after it (tests/static/check-includes.sh); what is declared in broker.h is
 * in the file whose matter it is.
 *   broker_time     now, and the one alarm
 *   broker_news     what happened to a lease, told to the log and to whoever listens
 *   broker_request  a request as a thing: made, sent, answered, let go
 *   broker_vouch    the leases that this node vouches for, put back after a loss
 *   broker_lines    the lines of waiters: who stands in them, and when each looks again
 *   broker_acquire  asking for a lock, and waiting for it; the picture of a request's states
 *   broker_listing  lists of locks, and their turns
 *   broker_calls    the calls that ask once: renew, release, check, break, inspect
 *   broker_undo     what nobody was told of is taken back
 *   broker          the way in: of requests, of the store's answers and events, of time
 */
#ifndef PAWL_BROKER_STATE_H
#define PAWL_BROKER_STATE_H

#include "daemon/broker.h"
#include "daemon/log.h"

/* The picture is in broker_acquire.c. */
enum request_state { NEW, CALLING, PARKED, ENDING, ANSWERED, LEAVING, CLEANING, OWED, PUTTING, LISTING };

#define TRIES_OPEN_MAX 256

struct request_list {
    struct broker_request *first, *last;
    size_t count;
};

struct broker {
    /* set once, by broker */
    const struct clock *clock;
    struct broker_config config;
    struct broker_host host;
    struct metrics *metrics;
    struct store *store;
    void (*answered)(struct store_call *call); /* where every answer of the store comes in */

    /* broker alone changes them */
    bool attached, recovering, draining, tries_only; /* tries_only: while draining, acquires that don't wait are served */

    /* the last number given to a call: whoever makes a call that wants one takes the next */
    uint64_t confirms;

    /* where requests wait: put there by broker_lines, broker_acquire and (ends) broker_undo, taken out by whoever ends the wait */
    struct wait_queue *waiters;
    struct request_list again; /* parked ones that must ask again */
    struct heap ends;          /* broker_request.end */

    /* broker_request */
    struct broker_request *spare;
    size_t spare_count, open;

    /* broker_vouch; broker_news looks at the leases */
    struct lease_table *leases;
    struct lease_table
        *delays; /* leases that ended, and not by a release: each until its delay is over. One that was broken has no lease id */
    int64_t putting;
    int64_t put_again_us; /* INT64_MAX: no need */
    struct log_gate gone_gate;

    /* broker_lines */
    int64_t sweep_left, sweep_us; /* places that may be examined, as of then */
    unsigned jitter;

    /* broker_acquire */
    int64_t tries_open; /* of waiters, with the store; TRIES_OPEN_MAX and no new ones are begun for those that are marked */

    /* broker_listing */
    struct request_list lists; /* whose turn has not come */
    size_t lists_open;

    /* broker_undo */
    struct request_list owed;
};

#endif
