/* The kinds of work that the load can do. Each runs to its end, prints one JSON object and a newline on standard output, and returns true
 * if there was no fault. */
#ifndef PAWL_BENCH_MODES_H
#define PAWL_BENCH_MODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tests/bench/dialect.h"
#include "tests/bench/wire.h"

#define MODES_PIDS_MAX 8
#define MODES_TO_MAX   8

struct plan {
    struct address to[MODES_TO_MAX]; /* at least one; only cycles use more than the first, in turns */
    size_t to_count;
    struct address trips; /* handover: the Redis whose PUBLISH trips are measured between hand-overs; len 0: none */
    size_t connections;
    double seconds;                 /* how long is measured; 0: until count */
    double warm_up;                 /* seconds of the same work before, unmeasured; only with seconds */
    uint64_t count;                 /* stop after so many cycles or hand-overs; 0: no such end */
    pid_t cpu_pids[MODES_PIDS_MAX]; /* whose CPU time is taken over the measured time */
    size_t cpu_pid_count;
    bool park;       /* idle: leave an acquire waiting on each connection */
    uint64_t leases; /* idle: hold so many leases besides */
};

/* Lock cycles: each connection acquires and releases a lock of its own, a new name each time, one request at a time. */
bool mode_cycle(const struct plan *p, struct dialect *d);
/* p->connections waiters on one lock: from a release's sending to the next waiter's grant. */
bool mode_handover(const struct plan *p, struct dialect *d);
/* PUBLISH to a subscriber of the same process: from its sending to the message's arrival. */
bool mode_publish(const struct plan *p);
/* Opens p->connections, has one request served on each, tells that by its JSON line, and holds them until standard input ends. */
bool mode_idle(const struct plan *p);

#endif
