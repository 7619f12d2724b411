/* How a lock is taken and given back in one of several languages: HTTP to pawld, the same node's scripts straight to Redis, etcd's JSON
 * gateway, or tries again and again on Redis. What the load does with it (cycle.c, handover.c) is the same code for all.
 *
 * A dialect gives the requests as frames and reads the replies, strictly: a grant counts only with the right status and a token, a release
 * only if it says so.
 */
#ifndef PAWL_BENCH_DIALECT_H
#define PAWL_BENCH_DIALECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/bench/frame.h"
#include "tests/bench/wire.h"

/* REFUSED: somebody else holds the lock; only of dialects that try again. */
enum reading { READING_MORE, READING_OK, READING_REFUSED, READING_BAD };

struct reply {
    size_t len;                      /* of its bytes, to be dropped from the wire; set when READING_OK or READING_REFUSED */
    int64_t token;                   /* of a grant; of a release if release_tells_token; of a count: the waiters */
    char lease[FRAME_LEASE_LEN + 1]; /* untouched if the dialect lets the client choose it */
};

struct dialect;
typedef enum reading (*dialect_reader)(const struct dialect *d, const struct words *w, const char *in, size_t len, struct reply *ret);

struct dialect {
    const char *title;
    struct frame open; /* to be asked once on each connection, before all else; empty: nothing */
    struct frame acquire;
    struct frame release;
    struct frame count;               /* how many wait for the lock; empty: it can't be told */
    bool open_each;                   /* open belongs to each cycle, not to the connection */
    bool client_names_lease;          /* a fresh lease id goes into the acquire; else the reply brings it */
    bool release_tells_token;         /* and it must be that of the grant */
    bool rising;                      /* each grant's token is greater than the one before */
    unsigned retry_ms;                /* after a refusal; 0: whoever waits is answered when it is its turn */
    unsigned rest_ms;                 /* how long a waiter that is counted may still take until it really waits */
    void (*prepare)(struct words *w); /* makes the words that follow from others; may be NULL */
    dialect_reader read_open;
    dialect_reader read_acquire;
    dialect_reader read_release;
    dialect_reader read_count;
    /* Redis alone: the first element that a reply must have, and where the token is in a grant. */
    char granted[32];
    char released[32];
    size_t token_at;
};

/* HTTP: POST .../acquire {"ttl_ms", "owner"} and POST .../release {"lease_id"}; to_wait: with "wait_ms", on the one name of handover.c. */
bool dialect_http(struct dialect *d, bool to_wait);

/* Redis: the commands that pawld itself was seen to send for one such cycle, from a file of lines (tests/bench/capture.py writes it):
 *     acquire | release              the command that the lines after it belong to
 *     arg TEXT                       one argument; \xHH is a byte, \\ a backslash, \N the lock's name, \L the lease id
 *     status TEXT                    the reply's first element
 *     token INDEX                    the place of the token in the reply to acquire
 * False with a sentence in problem. */
bool dialect_redis(struct dialect *d, const char *path, char *problem, size_t cap);

/* etcd 3.4: POST /v3/lock/lock and /v3/lock/unlock under a lease of the connection's own, made once by /v3/lease/grant, as etcd's own
 * library does it; lease_each: a lease for each cycle, ended with it by /v3/lease/revoke. */
bool dialect_etcd(struct dialect *d, bool lease_each);

/* The usual lock on Redis without waiting: SET NX PX, again every 50 ms while refused; given back by compare and delete. */
bool dialect_poll(struct dialect *d);

/* One question on a connection that nothing else is under way on: sends the frame, waits for the reply (10 s at most) and takes it off the
 * wire. False with errno, EPROTO being a reply that isn't the expected one. */
bool dialect_ask(const struct dialect *d, struct wire *w, struct frame *f, const struct words *words, dialect_reader read,
                 struct reply *ret);

/* The name that all who wait for one lock use. */
#define DIALECT_ONE_NAME "bench/000000/handover"

#endif
