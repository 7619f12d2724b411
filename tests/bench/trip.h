/* The yardstick of hand-over: how long a message needs from PUBLISH to a subscriber on this Redis, on this machine, right now. Two
 * connections of one process, and one message under way at a time.
 *
 * The figure swings with the machine: a core that has to be woken costs several times what one that is awake costs. So it means something
 * only beside a hand-over that was measured in the same moment: handover.c measures a trip between any two hand-overs.
 */
#ifndef PAWL_BENCH_TRIP_H
#define PAWL_BENCH_TRIP_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/bench/wire.h"

struct trip {
    struct wire pub;
    struct wire sub;
};

/* Connects and subscribes. 0, or -1 with errno; to be closed in either case, or after TRIP_CLOSED. */
#define TRIP_CLOSED                                                                                                                        \
    {                                                                                                                                      \
        .pub = {.fd = -1}, .sub = {.fd = -1 }                                                                                              \
    }
int trip_open(struct trip *t, const struct address *redis);
void trip_close(struct trip *t);
/* One message. The time ends when the subscriber's read returns, whether or not PUBLISH's own reply is there yet; both are read before this
 * returns. 0, or -1 with errno. */
int trip_once(struct trip *t, uint64_t *ret_ns);

#endif
