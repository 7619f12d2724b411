/* Whether enough replicas have what was just written: calls go in when their script has been answered, and come out with how many confirmed.
 *
 * WAIT tells how many replicas have everything up to the last write of its own connection. So a connection for nothing else makes a small write of its own
 * (which Redis carries out after all that was answered before) and then waits: one WAIT covers every call that came in before that write, and what comes in
 * meanwhile goes with the next. The commands' connection never blocks.
 *
 *     redis_replicas_add ──► waiting ── write and WAIT ──► proving ── answered ──► proved
 *                               ▲                              │
 *                               └───── connection lost ────────┘      waiting without a connection for `timeout_ms` ──► proved, by none
 *
 * The connection lives as long as one attachment: redis_replicas_begin to redis_replicas_end, which hands back whatever is still in here. */
#ifndef PAWL_REDIS_REPLICAS_H
#define PAWL_REDIS_REPLICAS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/clock.h"
#include "daemon/redis_url.h"
#include "daemon/store.h"

struct event_base;
struct redis_link;
struct redisReply;
struct redis_replicas;

enum replica_mark { REPLICA_MARK_DONE, REPLICA_MARK_AGAIN, REPLICA_MARK_DIFFERS, REPLICA_MARK_FAILED };

struct redis_replicas_callbacks {
    void *arg;
    /* Writes one command that writes, without sending it. It is told when the one before was answered AGAIN. */
    void (*mark)(void *arg, struct redis_link *link, bool again);
    /* What became of it. AGAIN: it did nothing, another is made. */
    enum replica_mark (*marked)(void *arg, const struct redisReply *reply);
    /* The data are not those that the node attached to: redis_replicas_end must follow. */
    void (*differs)(void *arg);
    /* The call is the caller's again. */
    void (*proved)(void *arg, struct store_call *call, int64_t replicas);
};

struct redis_replicas_config {
    struct redis_url url;
    int64_t min;        /* replicas that are waited for */
    int64_t timeout_ms; /* how long */
    int64_t command_timeout_ms;
    const struct tls_config *tls; /* of a URL that asks for TLS; borrowed */
};

/* NULL without memory. */
struct redis_replicas *redis_replicas_new(struct event_base *base, const struct clock *clock, const struct redis_replicas_config *config,
                                          const struct redis_replicas_callbacks *callbacks);
void redis_replicas_free(struct redis_replicas *r); /* takes NULL */
void redis_replicas_set_address(struct redis_replicas *r, const char *host, int port);
void redis_replicas_begin(struct redis_replicas *r);
/* Returns the calls without a proof, chained by `next`, oldest first. */
struct store_call *redis_replicas_end(struct redis_replicas *r);

/* Between begin and end. `proved` is called within twice the two timeouts, unless the end comes first. */
void redis_replicas_add(struct redis_replicas *r, struct store_call *call);

uint64_t redis_replicas_connects(const struct redis_replicas *r);

#endif
