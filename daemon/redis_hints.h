/* The messages between nodes: this node's own channel, on a connection that is for nothing else. They are hints; one that is lost is made good by
 * time, and that some may have been lost is told (`missed`).
 *
 * The connection is judged by this node's own beats, which come back through it. */
#ifndef PAWL_REDIS_HINTS_H
#define PAWL_REDIS_HINTS_H

#include <stdint.h>

#include "daemon/redis_answer.h"
#include "daemon/redis_life.h"
#include "daemon/redis_link.h"
#include "daemon/store.h"

struct event_base;
struct redis_hints;

/* Tells `missed`, `wake`, `forget` and `broken` of the events, which are copied; `life` and `complaints` must outlive it, and the label of the config.
 * NULL without memory. */
struct redis_hints *redis_hints_new(struct event_base *base, const struct redis_link_config *config, const struct redis_life *life,
                                    struct redis_complaints *complaints, const struct store_events *events);
void redis_hints_free(struct redis_hints *h); /* takes NULL */
void redis_hints_start(struct redis_hints *h);
void redis_hints_stop(struct redis_hints *h);
void redis_hints_set_address(struct redis_hints *h, const char *host, int port);
void redis_hints_check(struct redis_hints *h, int64_t now_us,
                       int64_t silence_ms); /* a connection that said nothing for that long is dropped */
uint64_t redis_hints_connects(const struct redis_hints *h);

#endif
