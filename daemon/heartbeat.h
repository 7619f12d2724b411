/* What pawld does each second whatever happens: it tells the service manager how it is and that its loop turns, and the log what it summed up; and it sees
 * whether a burst has left memory to give back.
 *
 * Embedded in its owner; runs on the loop.
 */
#ifndef PAWL_HEARTBEAT_H
#define PAWL_HEARTBEAT_H

#include "daemon/alarm.h"
#include "daemon/ebb.h"

struct broker;
struct clock;
struct drain;
struct http_front;
struct store;
struct systemd;
struct takeover;

struct heartbeat_parts { /* borrowed */
    const struct clock *clock;
    const struct broker *broker;
    struct http_front *front;
    struct systemd *manager;
    const struct store *store;
    const struct takeover *takeover;
    const struct drain *drain;
};

struct heartbeat { /* zeroed: closed */
    struct heartbeat_parts parts;
    struct alarm second, watchdog;
    struct ebb ebb;
    char status[512]; /* last told to the manager */
};

/* Begins at once. Returns 0, or -1 without memory; heartbeat_close then too. */
int heartbeat_open(struct heartbeat *h, struct event_base *base, const struct heartbeat_parts *parts) __attribute__((warn_unused_result));
void heartbeat_close(struct heartbeat *h); /* also one that is closed */

#endif
