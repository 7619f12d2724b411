#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/heartbeat.h"

#include <stdio.h>
#include <string.h>

#include "daemon/broker.h"
#include "daemon/clock.h"
#include "daemon/drain.h"
#include "daemon/http_front.h"
#include "daemon/log.h"
#include "daemon/store.h"
#include "daemon/systemd.h"
#include "daemon/takeover.h"

#define SECOND_US 1000000

static void on_watchdog(void *arg)
{
    (void)systemd_mention(((struct heartbeat *)arg)->parts.manager, "WATCHDOG=1"); /* the loop turns: that is all it says */
}

static void describe(const struct heartbeat *h, char *out, size_t cap)
{
    struct store_status store;

    store_get_status(h->parts.store, &store);
    if (h->parts.takeover->waiting)
        snprintf(out, cap, "STATUS=waiting to take over from a predecessor");
    else if (!store.ready)
        snprintf(out, cap, "STATUS=no grants: not attached to Redis");
    else
        snprintf(out, cap, "STATUS=%s %.200s", store.window_open ? "recovering, attached to" : "serving, attached to", store.address);
}

/* Connections, waiters and leases are all that memory is kept for and that comes in crowds; and no crowd comes without connections. */
static void look_for_ebb(struct heartbeat *h)
{
    int64_t now = clock_now_us(h->parts.clock);
    size_t others = broker_waiters(h->parts.broker) + broker_leases(h->parts.broker);
    size_t connections = http_front_counts(h->parts.front).connections, most = http_front_take_most(h->parts.front);

    if (ebb_look(&h->ebb, now, others + connections, others + most) && ebb_give_back())
        log_info("memory_given_back", LOG_INT("took_us", clock_now_us(h->parts.clock) - now));
}

static void on_second(void *arg)
{
    struct heartbeat *h = arg;
    char status[sizeof(h->status)];

    log_settle(false);
    look_for_ebb(h);
    systemd_tell_again(h->parts.manager);
    if (!systemd_listens(h->parts.manager) || drain_has_begun(h->parts.drain))
        return;
    describe(h, status, sizeof(status));
    if (strcmp(status, h->status) != 0 && systemd_mention(h->parts.manager, status))
        memcpy(h->status, status, sizeof(status));
}

int heartbeat_open(struct heartbeat *h, struct event_base *base, const struct heartbeat_parts *parts)
{
    const int64_t half = parts->manager->watchdog_us / 2;

    *h = (struct heartbeat){.parts = *parts};
    if (alarm_open(&h->second, base, on_second, h) != 0 || alarm_open(&h->watchdog, base, on_watchdog, h) != 0)
        return -1;
    alarm_every(&h->second, SECOND_US);
    if (half > 0)
        alarm_every(&h->watchdog, half);
    return 0;
}

void heartbeat_close(struct heartbeat *h)
{
    alarm_close(&h->second);
    alarm_close(&h->watchdog);
}
