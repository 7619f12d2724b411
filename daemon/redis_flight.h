/* What was sent to Redis and has not come back, and how much of it there may be: runs, each one command for one call or for many, in the order in which they
 * were sent, which is the order in which they are answered or lost.
 *
 *     redis_flight_take ──► (its command is written) ──► redis_flight_depart ──► in flight ──► redis_flight_land ──► redis_flight_give
 *
 * How many calls may be in flight (the window) follows how fast Redis answers. When all that has arrived was read and the oldest run is still out for a good
 * part of the time-out, and for longer than the way there takes, more are on their way than Redis can run soon: there may be half as many. While others
 * wait, answers make room for more. (How long an answer took says less: it may have lain here unread, since this very process was busy.) A connection is
 * lost only when a command has had the whole time-out since it was sent, so it is Redis that is slow then and not the queue before it.
 *
 * What this is: an account of runs, in time that it is told. What it is not: it writes and reads nothing, and knows nothing of what a call is for; that is
 * redis_calls'. Nothing here calls back.
 */
#ifndef PAWL_REDIS_FLIGHT_H
#define PAWL_REDIS_FLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/redis_link.h"
#include "daemon/store.h"

#define REDIS_RUN_MAX      64  /* calls of one run */
#define REDIS_FLIGHT_MOST  256 /* calls in flight: the window is never wider ... */
#define REDIS_FLIGHT_LEAST 16  /* ... nor made narrower */

struct redis_late { /* a copy of a call that was taken back */
    struct store_call call;
    char name[PAWL_NAME_MAX], owner[PAWL_OWNER_MAX], caller[PAWL_CALLER_MAX + 1]; /* what the call borrows */
};

struct redis_run {
    struct redis_command command; /* the first field. `done` is the sender's to set, `sent_us` is set by the link */
    void *arg;                    /* the sender's */
    struct redis_run *next;       /* sent after this one; of the spare ones the next */
    size_t count;
    bool whole_script;                    /* EVAL, after the server said NOSCRIPT */
    struct store_call *of[REDIS_RUN_MAX]; /* borrowed; NULL: its time was over, and it has been taken back */
    uint64_t awake;                       /* the sender's: the number of the time awake (busy_poll.h) that its answer ends; 0: none */
    bool keeps_late;                      /* the sender's: should of[0] be taken back, a copy of it is wanted */
    struct redis_late *late; /* that copy, goes with the run unless it is taken out; NULL without memory, as if the answer were lost */
};

/* Embedded in its owner, who may read it. */
struct redis_flight {
    int64_t timeout_us;
    struct redis_run *sent, **sent_last; /* oldest first */
    size_t in_flight, most;              /* calls; `most` is the window */
    size_t landed;                       /* calls answered since redis_flight_see_pace was last called */
    int64_t least_us;    /* the shortest round trip on this connection: the way to Redis, which fewer calls do not shorten */
    int64_t narrowed_us; /* when `most` was last made less: what was sent before says no more */
    struct redis_run *spare;
    size_t spare_count;
};

/* `timeout_us`: how long Redis may take for one answer. Closing frees the runs, in flight or spare, whose calls hear nothing of it. */
void redis_flight_init(struct redis_flight *f, int64_t timeout_us);
void redis_flight_close(struct redis_flight *f);

/* The window is as wide as can be, and nothing is known of the way to Redis: for a new connection. */
void redis_flight_forget_pace(struct redis_flight *f);

/* A run to be filled by the caller: command.done, arg, count, whole_script and of. NULL without memory. What is taken is given back, or departs and is given
 * back when it has landed; a few of those given are kept, so that in the usual case nothing is allocated. */
struct redis_run *redis_flight_take(struct redis_flight *f);
void redis_flight_give(struct redis_flight *f, struct redis_run *run);

/* May a call more be sent, when `leaving` others are about to be? */
bool redis_flight_has_room(const struct redis_flight *f, size_t leaving);

/* It is in flight from now on; its redis_link_send follows. */
void redis_flight_depart(struct redis_flight *f, struct redis_run *run);
/* The oldest in flight was answered, `took_us` after it was sent, or else was lost. It is the caller's until it is given back. */
void redis_flight_land(struct redis_flight *f, struct redis_run *run, bool answered, int64_t took_us);

/* For when all that came in this turn of the loop has been read. `others_wait`: for want of room. */
void redis_flight_see_pace(struct redis_flight *f, int64_t now_us, bool others_wait);

/* Takes those calls out of their runs whose deadline has come, chained by `next`, oldest first; the runs stay in flight, and what the answer says is no
 * longer theirs. *ret_next_us: the deadline of the next, INT64_MAX without any. */
struct store_call *redis_flight_take_due(struct redis_flight *f, int64_t now_us, int64_t *ret_next_us);

#endif
