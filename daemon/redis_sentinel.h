/* Which Redis is the master, as sentinels tell it.
 *
 * Each sentinel is asked several times a second where the master is and in which epoch of its configuration it became that; on a second connection it tells
 * of switches, which brings the next question forward. The address with the greatest epoch counts, and among equals the one that most sentinels name: a
 * sentinel that was cut off still names the old master, but with an older epoch. What is told here is an address to try, never the truth: whoever connects
 * there checks that it is a master, and says so when it is not (redis_sentinel_refused).
 *
 *     none known ── any answer ──► following ── a greater epoch ──► following the new one
 *                                      │
 *                                      └── not attached there, and: it said that it is no master, or the epoch is the same, or more than half of the
 *                                          sentinels name the other ──► following the other
 *
 * Everything runs from the loop; `address` is never called from inside a function of this file. */
#ifndef PAWL_REDIS_SENTINEL_H
#define PAWL_REDIS_SENTINEL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/clock.h"
#include "daemon/redis_url.h"

struct event_base;
struct redis_sentinel;
struct tls_config;

#define REDIS_SENTINEL_LEARN_MS 500 /* by then a switch that a sentinel knows of is known here: two rounds of questions */

struct redis_sentinel_config {
    struct redis_url url;         /* with sentinel_count > 0; its user and password are not for the sentinels */
    const char *user, *password;  /* for the sentinels, NULL: none; borrowed during redis_sentinel_new */
    const struct tls_config *tls; /* of a URL that asks for TLS; borrowed */
    int64_t timeout_ms;           /* of an answer, and at most of a connection attempt */
};

/* `address` is called with each new address to follow; the host is borrowed for the call. NULL without memory. */
struct redis_sentinel *redis_sentinel_new(struct event_base *base, const struct clock *clock, const struct redis_sentinel_config *config,
                                          void (*address)(void *arg, const char *host, int port), void *arg);
void redis_sentinel_start(struct redis_sentinel *s);
void redis_sentinel_stop(struct redis_sentinel *s);
void redis_sentinel_free(struct redis_sentinel *s); /* after the stop and one more turn of the loop; takes NULL */

/* Whether the address that is followed is in use. */
void redis_sentinel_settled(struct redis_sentinel *s, bool settled);
/* The server at the address that is followed said that it is no master. */
void redis_sentinel_refused(struct redis_sentinel *s);

/* Attempts to connect to sentinels so far. */
uint64_t redis_sentinel_connects(const struct redis_sentinel *s);

#endif
