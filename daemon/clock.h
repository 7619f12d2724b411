/* Time for deadlines: CLOCK_BOOTTIME in microseconds, monotonic and going on through suspend. The wall clock is only for showing. */
#ifndef PAWL_CLOCK_H
#define PAWL_CLOCK_H

#include <stdint.h>

struct clock { /* tests give a virtual one */
    int64_t (*now_us)(void *arg);
    void *arg;
};

static inline int64_t clock_now_us(const struct clock *clock)
{
    return clock->now_us(clock->arg);
}

/* The real one: one system call a read. */
extern const struct clock clock_boottime;

#endif
