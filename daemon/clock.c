/* The clock that deadlines live by. CLOCK_BOOTTIME and not CLOCK_MONOTONIC: a lease in Redis runs out while this machine is suspended, so our
 * idea of time has to go on as well. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <time.h>

#include "daemon/clock.h"

static int64_t boottime_us(void *arg)
{
    struct timespec now;

    (void)arg;
    if (clock_gettime(CLOCK_BOOTTIME, &now) != 0) {
        return 0; /* only a kernel without this clock: none that accept4 or epoll run on */
    }
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

const struct clock clock_boottime = {boottime_us, NULL};
