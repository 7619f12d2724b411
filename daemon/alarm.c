#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/alarm.h"

#include <stddef.h>

#include <event2/event.h>

#include "daemon/clock.h"

static int64_t now_us(void)
{
    return clock_now_us(&clock_boottime);
}

static void set(struct alarm *a, int64_t at_us, int64_t wait_us)
{
    struct timeval tv = {.tv_sec = (time_t)(wait_us / 1000000), .tv_usec = (suseconds_t)(wait_us % 1000000)};

    a->at_us = at_us;
    (void)evtimer_add(a->event, &tv);
}

/* From the moment that it was meant for, so that it does not go later and later; a moment that was slept through is not made up for. */
static void set_next(struct alarm *a)
{
    int64_t now = now_us(), next = a->at_us + a->every_us;

    if (next <= now)
        next = now + a->every_us;
    set(a, next, next - now);
}

static void on_event(evutil_socket_t fd, short events, void *arg)
{
    struct alarm *a = arg;

    (void)fd;
    (void)events;
    if (a->every_us > 0)
        set_next(a);
    else
        a->at_us = INT64_MAX;
    a->ring(a->arg);
}

int alarm_open(struct alarm *a, struct event_base *base, void (*ring)(void *arg), void *arg)
{
    *a = (struct alarm){.event = evtimer_new(base, on_event, a), .ring = ring, .arg = arg, .at_us = INT64_MAX};
    return a->event ? 0 : -1;
}

void alarm_close(struct alarm *a)
{
    if (a->event)
        event_free(a->event);
    a->event = NULL;
}

void alarm_at(struct alarm *a, int64_t at_us)
{
    int64_t now = now_us();

    set(a, at_us, at_us > now ? at_us - now : 0);
}

void alarm_in(struct alarm *a, int64_t wait_us)
{
    set(a, now_us() + wait_us, wait_us);
}

void alarm_every(struct alarm *a, int64_t interval_us)
{
    a->every_us = interval_us;
    alarm_in(a, interval_us);
}

void alarm_no_later(struct alarm *a, int64_t at_us)
{
    if (at_us < a->at_us)
        alarm_at(a, at_us);
}
