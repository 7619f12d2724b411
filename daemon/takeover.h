/* Which pawld accepts: this one, the predecessor whose place it takes, or the successor that takes its.
 *
 * What this is: what the conversation of handover.h means for the daemon. At the start, sockets are opened or taken from a predecessor, and then nobody is
 * accepted until this node can grant; later, sockets are there for a successor, and when that one serves, the drain begins. What it is not: without --handover
 * it opens the sockets, and that is all. Embedded in its owner; runs on the loop, but for takeover_open.
 */
#ifndef PAWL_TAKEOVER_H
#define PAWL_TAKEOVER_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/alarm.h"

struct drain;
struct handover;
struct http_front;
struct options;
struct store;
struct systemd;

struct takeover_parts { /* borrowed */
    const struct options *options;
    struct http_front *front;
    struct store *store; /* says when this node can grant */
    const char *node;
    struct systemd *manager; /* is told READY=1 when this node accepts */
    struct drain *drain;     /* begins when a successor serves */
};

struct takeover { /* zeroed: closed */
    struct takeover_parts parts;
    struct handover *handover; /* NULL without --handover, and once pawld ends */
    struct alarm look;
    bool waiting; /* a predecessor accepts for us, until this node can grant */
};

/* Opens all addresses of the options, with the predecessor's sockets if there is one. Returns 0, or -1 with a sentence; takeover_close then too. */
int takeover_open(struct takeover *t, struct event_base *base, const struct takeover_parts *parts, char *problem, size_t cap)
    __attribute__((warn_unused_result));
/* A predecessor or a successor that waits takes that as the end of this process, and goes on alone. Also one that is closed. */
void takeover_close(struct takeover *t);

/* For when everything has started: accepts, or begins to wait for the moment when this node can. */
void takeover_begin(struct takeover *t);

/* Somebody has our sockets and waits until we let go. */
bool takeover_has_successor(const struct takeover *t);

#endif
