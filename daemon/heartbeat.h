/* What pawld does each second whatever happens: it tells the service manager how it is and that its loop turns, and the log what it summed up.
 *
 * Embedded in its owner; runs on the loop.
 */
#ifndef PAWL_HEARTBEAT_H
#define PAWL_HEARTBEAT_H

#include "daemon/alarm.h"

struct drain;
struct store;
struct systemd;
struct takeover;

struct heartbeat_parts { /* borrowed */
    struct systemd *manager;
    const struct store *store;
    const struct takeover *takeover;
    const struct drain *drain;
};

struct heartbeat { /* zeroed: closed */
    struct heartbeat_parts parts;
    struct alarm second, watchdog;
    char status[512]; /* last told to the manager */
};

/* Begins at once. Returns 0, or -1 without memory; heartbeat_close then too. */
int heartbeat_open(struct heartbeat *h, struct event_base *base, const struct heartbeat_parts *parts) __attribute__((warn_unused_result));
void heartbeat_close(struct heartbeat *h); /* also one that is closed */

#endif
