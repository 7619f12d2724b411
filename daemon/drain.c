#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/drain.h"

#include <inttypes.h>
#include <stdio.h>

#include "daemon/broker.h"
#include "daemon/clock.h"
#include "daemon/event_streams.h"
#include "daemon/http_front.h"
#include "daemon/log.h"
#include "daemon/systemd.h"

#define LAST_REPLIES_US 2000000 /* for what is in progress when it comes to closing */
#define LOOK_US         20000
#define STOP_MARGIN_US  5000000 /* beside the drain, before the service manager loses patience */

static int64_t now_us(void)
{
    return clock_now_us(&clock_boottime);
}

static void on_connections_gone(void *arg)
{
    ((struct drain *)arg)->connections_gone = true;
}

static void begin_closing(struct drain *d)
{
    d->phase = CLOSING;
    d->phase_ends_us = now_us() + LAST_REPLIES_US;
    http_front_drain(d->parts.front, on_connections_gone, d);
}

/* With a successor, connections go one by one, after their next replies; without, there is nothing to wait for once nobody here holds a lease. */
static bool is_drained(const struct drain *d)
{
    return http_front_counts(d->parts.front).connections == 0 || (!d->successor && broker_leases(d->parts.broker) == 0);
}

static void on_look(void *arg)
{
    struct drain *d = arg;
    bool late = now_us() >= d->phase_ends_us;

    if (d->phase == DRAINING && (late || is_drained(d)))
        begin_closing(d);
    else if (d->phase == CLOSING && (late || (d->connections_gone && broker_is_idle(d->parts.broker))))
        drain_finish(d);
    if (d->phase != OVER)
        alarm_in(&d->look, LOOK_US);
}

int drain_open(struct drain *d, struct event_base *base, const struct drain_parts *parts)
{
    *d = (struct drain){.parts = *parts, .phase = SERVING};
    return alarm_open(&d->look, base, on_look, d);
}

void drain_close(struct drain *d)
{
    alarm_close(&d->look);
}

static void tell_stopping(const struct drain *d)
{
    char message[96];

    snprintf(message, sizeof(message), "STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=%" PRId64,
             d->parts.timeout_ms * 1000 + LAST_REPLIES_US + STOP_MARGIN_US);
    (void)systemd_tell(d->parts.manager, message);
}

void drain_begin(struct drain *d, int signal_number, bool successor)
{
    struct broker *broker = d->parts.broker;

    log_info("draining", LOG_INT("signal", signal_number), LOG_INT("leases", broker_leases(broker)),
             LOG_INT("waiters", broker_waiters(broker)), LOG_STR("successor", successor ? "yes" : "no"));
    tell_stopping(d);
    d->phase = DRAINING;
    d->successor = successor;
    d->phase_ends_us = now_us() + d->parts.timeout_ms * 1000;
    d->parts.begun(d->parts.arg);
    if (successor) {
        http_front_share(d->parts.front);
        http_front_see_off(d->parts.front);
    }
    http_front_stop_accepting(d->parts.front);
    event_streams_drain(d->parts.streams);
    broker_drain(broker, successor);
    alarm_in(&d->look, 0);
}

void drain_finish(struct drain *d)
{
    d->phase = OVER;
    d->parts.over(d->parts.arg);
}
