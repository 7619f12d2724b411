/* Keeps the event loop awake for a moment, so that an answer which is about to come finds it running.
 *
 * Who sleeps has to be woken: on a virtual machine, whose idle core goes back to the host, that takes some tens of microseconds, as much as all that a
 * hand-over computes. So where somebody waits for the very next answer, and it should be here sooner than the loop could sleep and wake, the loop
 * turns without sleeping, until all such answers are here. All else goes on meanwhile: each turn looks at every descriptor and timer, and gives the core to
 * whoever else is ready to run on it, which may be the one who is to answer.
 *
 * That is for a machine with time to spare. On a busy one the core may not come back soon, or the one who is to answer isn't given it. So each time that was
 * over before the answer came makes the number of those that are left out from then on twice as great and more, and each that was not halves it: on a busy
 * machine hardly one in a hundred is tried, and hardly one in a thousand on one that is always busy.
 *
 * The idea is that of busy polling of sockets in the Linux kernel (SO_BUSY_POLL) and of its idle polling in guests (haltpoll), with its bound of
 * 200 microseconds, its growing and its shrinking.
 */
#ifndef PAWL_BUSY_POLL_H
#define PAWL_BUSY_POLL_H

#include <stdint.h>

#include "daemon/clock.h"

#define BUSY_POLL_LEFT_OUT_FIRST 63 /* between two tries */
#define BUSY_POLL_LEFT_OUT_MOST  1023

struct event_base;
struct busy_poll;

struct busy_poll_counts { /* of answers */
    uint64_t begun;
    uint64_t vain; /* of these, how many had not come in time */
};

/* For at most `most_us` microseconds each time; 0: never. `base` and `clock` must outlive it. NULL without memory. */
struct busy_poll *busy_poll_new(struct event_base *base, const struct clock *clock, int64_t most_us);
void busy_poll_free(struct busy_poll *poll); /* takes NULL */
int64_t busy_poll_most_us(const struct busy_poll *poll);

/* From now on the loop stays awake for one answer, if this one is not left out; where it is awake already, it is so for that long from now. Returns the number
 * of the time awake that this became part of, 0: left out. */
uint64_t busy_poll_begin(struct busy_poll *poll);
/* One answer has come that a begin gave this number for. Of a time awake that is over, as of 0, nothing is done. */
void busy_poll_end(struct busy_poll *poll, uint64_t number);

struct busy_poll_counts busy_poll_counts(const struct busy_poll *poll);

#endif
