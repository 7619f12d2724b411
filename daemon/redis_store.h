/* The store on Redis: calls to scripts, replies to results; attach, beat, messages. See store.h for the contract and scripts/ for what runs
 * inside Redis. One connection carries every call, in order, so a reply is never read after the node has moved to another life of the
 * data; a second one listens for messages, which are hints only. Where the master is, sentinels may tell (redis_sentinel.h); that replicas have a lease
 * is learned on a connection of its own (redis_replicas.h). */
#ifndef PAWL_REDIS_STORE_H
#define PAWL_REDIS_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/clock.h"
#include "daemon/redis_url.h"
#include "daemon/store.h"

struct event_base;
struct redis_store;

struct redis_store_config {
    struct redis_url url;
    const char *key_prefix; /* borrowed during redis_store_new */
    int64_t timeout_ms;     /* of a command, and at most of a connection attempt */
    int64_t window_ms;      /* 0: no recovery window */
    bool allow_eviction;
    const char *sentinel_user, *sentinel_password; /* NULL: none; borrowed during redis_store_new */
    int64_t min_replicas;                          /* 0: replicas are not waited for */
    int64_t replica_timeout_ms;
    int64_t busy_poll_us;         /* how long the loop may stay awake for an answer that a lock lies idle for; 0: not at all */
    const struct tls_config *tls; /* of a URL that asks for TLS, NULL otherwise; must outlive the store, may be reloaded */
};

/* Starts to connect as soon as the loop runs. NULL without memory. `base` and `clock` must outlive the store. */
struct redis_store *redis_store_new(struct event_base *base, const struct clock *clock, const struct redis_store_config *config,
                                    const struct store_events *events);
struct store *redis_store_seam(struct redis_store *s);

/* Calls still open are answered STORE_UNAVAILABLE or STORE_UNKNOWN in the next turn of the loop; nothing reconnects. */
void redis_store_stop(struct redis_store *s);
/* After redis_store_stop and one more turn of the loop. Takes NULL. */
void redis_store_free(struct redis_store *s);

/* The shortest window that is safe with this timeout: within it, each tick left out, a node must notice the loss, learn of a new master if sentinels tell
 * of it, reach Redis again and put its leases back (the sum is in the .c file). */
int64_t redis_store_min_window_ms(int64_t timeout_ms, bool sentinels);

/* This node's id: 16 hex digits, new for each process. */
const char *redis_store_node(const struct redis_store *s);

#endif
