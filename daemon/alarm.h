/* A moment at which the loop calls back: once, or again and again.
 *
 * What this is: a timer of the event loop in microseconds of clock_boottime, for those parts of the daemon that need no more of the loop than that. What it is
 * not: no request has one (see heap.h and http_conns.c for how deadlines without number cost one timer). Embedded in its owner; one that is all zeroes is
 * closed. Runs on the loop's thread.
 */
#ifndef PAWL_ALARM_H
#define PAWL_ALARM_H

#include <stdint.h>

struct event;
struct event_base;

struct alarm {
    struct event *event; /* NULL: closed */
    void (*ring)(void *arg);
    void *arg;
    int64_t at_us;    /* when it will ring; INT64_MAX: it is not set */
    int64_t every_us; /* 0: once */
};

/* Not set yet. Returns 0, or -1 without memory. `ring` may set it anew, and may close it. */
int alarm_open(struct alarm *a, struct event_base *base, void (*ring)(void *arg), void *arg) __attribute__((warn_unused_result));
void alarm_close(struct alarm *a); /* also one that is closed */

/* Each takes the place of what was set before. A moment that has passed rings in the next turn of the loop. */
void alarm_at(struct alarm *a, int64_t at_us);
void alarm_in(struct alarm *a, int64_t wait_us);
void alarm_every(struct alarm *a, int64_t interval_us); /* for the first time after one interval */

/* As alarm_at, but one that is set already and comes earlier is left alone: whoever it rings for finds nothing due, and sets the next. */
void alarm_no_later(struct alarm *a, int64_t at_us);

#endif
