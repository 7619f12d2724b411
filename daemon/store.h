/* The seam between the broker and whatever keeps the leases: requests, results, and who owns what. No word of Redis in it.
 *
 * A store keeps leases, tokens and the order of waiters; it alone decides expiry. The broker hands it calls. Everything runs on one
 * thread, and no function here calls back before it has returned.
 *
 * The life of the data. A store attaches to one unbroken life of its data and says so (store_events.attached). Until then, and while it
 * can't be reached, calls are answered STORE_UNAVAILABLE. After a loss a recovery window is open, in which nothing is granted.
 */
#ifndef PAWL_STORE_H
#define PAWL_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/lease_id.h"
#include "proto/limits.h"

enum store_op {
    STORE_ACQUIRE, /* take the lock, or a place in its queue */
    STORE_RENEW,
    STORE_RELEASE,
    STORE_CHECK, /* is `token` the holder's? */
    STORE_BREAK,
    STORE_INSPECT,
    STORE_LIST,
    STORE_PUT_BACK, /* after a loss: this lease is to stand again; DONE: it does, LOST: it is over */
    STORE_CANCEL,   /* give up a place in the queue, undo a grant that nobody learned of, or both */
};

enum store_result {
    STORE_DONE,           /* it did what it is for; for an acquire: granted, with a new token */
    STORE_REPEATED,       /* acquire: this lease id holds the lock already; same token */
    STORE_HELD,           /* acquire: another lease holds it */
    STORE_TURN,           /* acquire: free, but it is an earlier waiter's turn */
    STORE_DELAYED,        /* acquire: free, but the lease that ended had a delay; holder.delay_ms is left of it */
    STORE_FULL,           /* acquire: the lock's queue is full */
    STORE_LOST,           /* renew, release, check: not the holder; break: nobody holds it */
    STORE_RECOVERING,     /* the window is open and the answer depends on what may yet be put back */
    STORE_UNAVAILABLE,    /* nothing was done; `problem` says why */
    STORE_UNKNOWN,        /* it was sent and no answer came: it may have been done */
    STORE_NOT_REPLICATED, /* acquire, renew: done, but too few copies of the data have it */
};

struct store_holder { /* who holds a lock; token 0: nobody, or not known */
    int64_t token, ttl_ms, held_ms;
    int64_t delay_ms; /* for so long nobody is granted the lock once this lease has ended; token 0: from now on */
    int64_t most_ms;  /* renewals can't make it last longer, from now on; 0: no bound */
    size_t owner_len;
    char owner[PAWL_OWNER_MAX + 1];
};

struct store_lock { /* one of a list's locks; borrowed by the page callback */
    const char *name;
    size_t name_len;
    const char *owner;
    size_t owner_len;
    int64_t token, ttl_ms, held_ms, waiters;
};

struct store_link {
    struct store_link *next, *previous;
};

/* One call. The caller owns it, fills the first part, and keeps it alive and in place until `done`; then it is the caller's again. `name`,
 * `owner` and `caller` are borrowed for as long. */
struct store_call {
    enum store_op op;
    const char *name;
    size_t name_len;
    struct lease_id lease_id;
    const char *owner; /* acquire, put back, and renew when `token` is given */
    size_t owner_len;
    const char *caller; /* acquire, renew: who asks, for done_late to tell; borrowed too. NULL: nobody to tell of */
    int64_t ttl_ms;     /* acquire, renew; put back: what is left; below 1 when only some of the delay is */
    /* acquire, put back, and renew when `token` is given: after the lease, unless it is released, nobody is granted the lock for so long. 0: no delay */
    int64_t delay_ms;
    int64_t most_ms; /* the same three: however it is renewed, it is not held for longer than this from now on. 0: no bound */
    int64_t
        known_us; /* put back, and renew when `token` is given: when what is left (a put back's ttl_ms, most_ms) was true, on the store's clock. The store
                         takes off what has passed when it sends the call, as often as it does */
    bool broken;   /* put back: only the delay of a lease that was broken; it has no lease id */
    int64_t token; /* check: the token asked about; renew, release, put back: what the lease table has for this lease id, 0: not there */
    int64_t granted_ms; /* renew, put back: from the lease table too (store time, opaque) */
    int64_t
        deadline_us; /* the store calls `done` by then (on its clock), whatever happens; a lease that is made and must be copied takes longer */
    uint64_t
        confirm; /* acquire, renew: this call's own number, unique in the node; put back: the lease's; cancel: the number to undo, 0 none */
    uint64_t repeat_confirm; /* acquire, put back: another number, for a lease that is there already; unique too, and no cancel's */
    bool queue;              /* acquire: take a place when it is not free; cancel: give the place up */
    bool contended;          /* acquire, release: others are known to wait for this lock (a hint, for speed only) */
    bool hurry;              /* acquire, release: the lock may lie idle between two holders until this is answered (another hint) */
    bool comes_back;         /* acquire: this lease id may have had a place before; cancel: it may want it back, within seconds */
    int64_t ticket;          /* acquire: the place held before, 0 none */
    int64_t max_waiters;     /* acquire: the most this lock's queue may hold */
    int64_t sweep_from;      /* acquire: also look for waiters of dead nodes, a few hundred from this place on (1 = the first); 0 no */
    int64_t look_at;         /* list: about how many keys to look at */
    const char *prefix;      /* list */
    size_t prefix_len;
    char cursor[PAWL_CURSOR_MAX + 1];                                        /* list: in and out; "0" starts and ends */
    void (*on_lock)(struct store_call *call, const struct store_lock *lock); /* list: once a lock, before done */

    /* Release: the acquire of this node's first waiter for the same lock, filled as for submit. If that waiter is the queue's head, it is granted
     * in the same step; else it is answered STORE_TURN. Answered by its own `done`: when granted, right before the release's, since it is the one
     * that is waited for; else right after it. NULL: none. */
    struct store_call *rider;

    void (*done)(struct store_call *call);
    void *arg;

    enum store_result result;
    const char *problem; /* UNAVAILABLE, UNKNOWN: a sentence, borrowed until `done` returns */
    int64_t sent_us;     /* when the command that was answered left: a lease lasts at least until sent_us + ttl */
    int64_t ret_token;   /* acquire, renew, release */
    int64_t ret_ttl_ms;  /* acquire, renew: from sent_us; check: left when answered */
    int64_t ret_granted_ms;
    uint64_t
        ret_confirm; /* acquire, renew: the number that the lease stands under now; of a node's numbers for a lease the later is the greater. Break: the one that
                        it stood under, with ret_broken */
    int64_t ret_replicas;       /* acquire, renew: copies that have it, where that is waited for */
    bool ret_fresh;             /* acquire: NOT_REPLICATED: granted by this very call, so it can be undone */
    int64_t ret_ticket;         /* acquire that did not get it: the place taken, 0 none */
    int64_t ret_waiters;        /* acquire that did not get it, inspect, cancel */
    int64_t ret_position;       /* inspect with a lease id: 1 = first, 0 = not waiting */
    bool ret_undone;            /* cancel: a grant was taken back */
    bool ret_own;               /* cancel: this lease id holds the lock, by another call */
    bool ret_recovering;        /* inspect, list */
    struct lease_id ret_broken; /* break: the lease's, if it stood under a number of this node's, which is told by this alone; "" else */
    struct lease_id ret_woken;  /* acquire: TURN; release, break, cancel: the waiter of this node whose turn it is, "" none */
    struct store_holder holder; /* acquire: HELD, DELAYED; break, inspect, cancel; renew, acquire: the lease's owner, delay and bound */

    /* the store's own, valid between submit and done */
    struct store_call *next, **at;
    struct store_link beside; /* lease_calls.h */
    int reruns;
    int64_t prove_by_us;
    int64_t send_by_us;
    bool may_have_run;
};

/* What a store tells unasked. Called from the event loop, never from inside a submit. */
struct store_events {
    void *arg;
    void (*attached)(void *arg, bool new_life, bool window_open); /* calls work from now on; new_life: not the life known before */
    void (*detached)(void *arg);                                  /* calls fail from now on */
    void (*window_closed)(void *arg);                             /* grants can be made */
    void (*missed)(void *arg);                                    /* messages may have been lost: look at every waiter again */
    void (*answered)(void *arg, int64_t us);                      /* a call's round trip, for the histogram */
    /* A lease was renewed, or granted again (RENEW: DONE, ACQUIRE: REPEATED), by a call that had been answered UNKNOWN before: its answer came too late for it. It
     * may have been another node's matter, and is this one's now. The call is a copy, gone afterwards. May be NULL. */
    void (*done_late)(void *arg, const struct store_call *call);
    void (*wake)(void *arg, const struct lease_id *lease_id, const char *name, size_t len); /* a waiter's turn may have come */
    /* This lease, which stood under this number of the node's, is over or another node's matter now. May come before the answer to the call that had that
     * number, and after the answer to one with a greater number, which it is not about. */
    void (*forget)(void *arg, const struct lease_id *lease_id, uint64_t confirm, const char *name, size_t len);
    /* The same: it was broken, through another node, which may never learn that it did. So its delay is this node's matter as well. */
    void (*broken)(void *arg, const struct lease_id *lease_id, uint64_t confirm, const char *name, size_t len);
};

struct store_status { /* strings are borrowed until the next turn */
    bool ready;       /* attached */
    bool window_open;
    const char *problem; /* why not ready, "" otherwise */
    const char *address, *role, *incarnation;
    int64_t fence;   /* the greatest seen */
    size_t pending;  /* calls without an answer yet */
    size_t waiting;  /* of these, those that wait to be sent because many are on their way */
    uint64_t unsent; /* calls answered UNAVAILABLE because they would have had to wait for too long */
    uint64_t busy_polls,
        vain_busy_polls; /* calls whose answer was waited for awake, and of these those for which it did not come in time */
    uint64_t connects, attaches, openings, fence_raises, errors;
};

struct store {
    const struct store_ops *ops;
};
struct store_ops {
    bool takes_riders;
    void (*submit)(struct store *s, struct store_call *call);
    void (*status)(const struct store *s, struct store_status *ret_status);
};

static inline void store_submit(struct store *s, struct store_call *call)
{
    s->ops->submit(s, call);
}
static inline void store_get_status(const struct store *s, struct store_status *ret_status)
{
    s->ops->status(s, ret_status);
}

#endif
