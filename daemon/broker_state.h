/* The broker's state, which its files share and nobody else sees: the fields, and whose they are.
 *
 * From below to above; each file knows those before it, and none knows one after it (tests/static/check-includes.sh):
 *   broker_time     now, and the one alarm
 *   broker_news     what happened to a lease, told to the log and to whoever listens
 *   broker_request  a request as a thing: made, sent, answered, let go
 *   broker_vouch    the leases that this node vouches for, put back after a loss
 *   broker_lines    the lines of waiters: who stands in them, and when each looks again
 *   broker_acquire  asking for a lock, and waiting for it; the picture of a request's states
 *   broker_listing  lists of locks, and their turns
 *   broker_calls    the calls that ask once: renew, release, check, break, inspect
 *   broker          the rest: see broker.c
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
    const struct clock *clock;
    struct broker_config config;
    struct broker_host host;
    struct metrics *metrics;
    struct store *store;
    void (*answered)(struct store_call *call); /* where every answer of the store comes in: broker's, set once */
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

#endif
