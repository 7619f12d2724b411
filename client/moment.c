/* The clock, and waiting by it.
 *
 * Waits go through a timerfd and not through poll's own time-out, since that one stands still while the machine is suspended: a lease that
 * ended during the suspend would be noticed late.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "client/moment.h"

#include <errno.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <time.h>

int64_t moment_now_us(void)
{
    struct timespec now;

    if (clock_gettime(CLOCK_BOOTTIME, &now) != 0)
        return 0; /* only a kernel older than timerfd */
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

int64_t moment_after(int64_t at_us, int64_t ms)
{
    if (ms > (MOMENT_MAX - at_us) / 1000)
        return MOMENT_MAX;
    return at_us + ms * 1000;
}

int moment_timer(void)
{
    return timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
}

void moment_set(int timer, int64_t at_us)
{
    struct itimerspec when = {{0, 0}, {0, 0}};

    if (at_us != MOMENT_MAX) {
        when.it_value.tv_sec = (time_t)(at_us / 1000000);
        when.it_value.tv_nsec = at_us % 1000000 * 1000;
        if (at_us <= 0)
            when.it_value.tv_nsec = 1; /* zero would switch it off */
    }
    (void)timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL); /* its arguments can't be wrong */
}

bool moment_pause(int timer, int64_t at_us, int fd_a, int fd_b)
{
    struct pollfd polled[3] = {{.fd = timer, .events = POLLIN}, {.fd = fd_a, .events = POLLIN}, {.fd = fd_b, .events = POLLIN}};

    moment_set(timer, at_us);
    while (poll(polled, 3, -1) < 0 && errno == EINTR)
        continue;
    return polled[1].revents || polled[2].revents;
}

int64_t moment_random(int64_t below)
{
    uint64_t bits;

    if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) != (ssize_t)sizeof(bits))
        bits = (uint64_t)moment_now_us(); /* right after boot: better than in step */
    return (int64_t)(bits % (uint64_t)below);
}

int64_t moment_back_off_ms(unsigned failures, int64_t first_ms, int64_t cap_ms)
{
    int64_t whole = first_ms;

    while (failures-- > 1 && whole < cap_ms)
        whole *= 2;
    if (whole > cap_ms)
        whole = cap_ms;
    return whole - moment_random(whole / 2 + 1);
}
