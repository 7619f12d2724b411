/* The orderly end of a pawld that serves:
 *
 *     SERVING ── drain_begin ──► DRAINING ──► CLOSING ──► OVER
 *        └────────────── drain_finish ──────────┴──────────┘
 *
 *     DRAINING  nothing new is accepted, acquires and waiters are told `draining`, the rest goes on working on the connections that are open: until this node
 *               has no live lease or no connection left, at most --drain-timeout. With a successor connections go one by one, after their next replies.
 *     CLOSING   what is in progress is answered and the connections are closed, for at most two seconds
 *     OVER      the owner has been told to stop
 *
 * What this is: that order, in one place. What it is not: each part knows by itself what draining means for it. Embedded in its owner; runs on the loop.
 */
#ifndef PAWL_DRAIN_H
#define PAWL_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/alarm.h"

struct broker;
struct event_streams;
struct http_front;
struct systemd;

enum drain_phase { SERVING, DRAINING, CLOSING, OVER };

struct drain_parts { /* borrowed, for as long as a drain may begin or is under way */
    int64_t timeout_ms;
    struct http_front *front;
    struct broker *broker;
    struct event_streams *streams;
    struct systemd *manager; /* is told STOPPING=1, and how long it may take */
    void (*begun)(void *arg);
    void (*over)(void *arg); /* once; nothing more happens here */
    void *arg;
};

struct drain { /* zeroed: serving, and nothing to drain yet */
    struct drain_parts parts;
    struct alarm look;
    enum drain_phase phase;
    int64_t phase_ends_us;
    bool successor; /* another accepts for us */
    bool connections_gone;
};

/* Returns 0, or -1 without memory. */
int drain_open(struct drain *d, struct event_base *base, const struct drain_parts *parts) __attribute__((warn_unused_result));
void drain_close(struct drain *d); /* also one that was never opened */

/* `signal_number`: what asked for it, 0 when a successor did. Only once. */
void drain_begin(struct drain *d, int signal_number, bool successor);

/* Over, from whatever phase. */
void drain_finish(struct drain *d);

static inline bool drain_has_begun(const struct drain *d)
{
    return d->phase != SERVING;
}

#endif
