/* A timer that is due at once makes libevent look for events without waiting for them, and fires after those were handled; it is set again until the
 * time is over. (An event made active by hand would run again in the same turn, and keep all others from theirs.) */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/busy_poll.h"

#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>

#include <event2/event.h>

struct busy_poll {
    const struct clock *clock;
    struct event *turn;
    int64_t most_us, until_us;
    uint64_t number, open;    /* of this time awake, or of the last one; answers that it is for and that have not come */
    unsigned leave_out, left; /* between two tries; of these, still to come */
    struct busy_poll_counts counts;
};

static void turn_at_once(struct busy_poll *poll)
{
    static const struct timeval at_once = {0, 0};

    (void)evtimer_add(poll->turn, &at_once);
}

static bool is_running(const struct busy_poll *poll)
{
    return evtimer_pending(poll->turn, NULL);
}

static void was_vain(struct busy_poll *poll)
{
    poll->counts.vain += poll->open;
    poll->leave_out = 2 * poll->leave_out + BUSY_POLL_LEFT_OUT_FIRST;
    if (poll->leave_out > BUSY_POLL_LEFT_OUT_MOST)
        poll->leave_out = BUSY_POLL_LEFT_OUT_MOST;
    poll->left = poll->leave_out;
}

static void on_turn(evutil_socket_t fd, short events, void *arg)
{
    struct busy_poll *poll = arg;

    (void)fd;
    (void)events;
    if (clock_now_us(poll->clock) < poll->until_us) {
        (void)sched_yield();
        turn_at_once(poll);
    } else {
        was_vain(poll);
    }
}

struct busy_poll *busy_poll_new(struct event_base *base, const struct clock *clock, int64_t most_us)
{
    struct busy_poll *poll = calloc(1, sizeof(*poll));

    if (!poll)
        return NULL;
    poll->clock = clock;
    poll->most_us = most_us;
    poll->turn = evtimer_new(base, on_turn, poll);
    if (!poll->turn) {
        free(poll);
        return NULL;
    }
    return poll;
}

void busy_poll_free(struct busy_poll *poll)
{
    if (!poll)
        return;
    event_free(poll->turn);
    free(poll);
}

int64_t busy_poll_most_us(const struct busy_poll *poll)
{
    return poll->most_us;
}

uint64_t busy_poll_begin(struct busy_poll *poll)
{
    if (poll->most_us == 0)
        return 0;
    if (!is_running(poll)) {
        if (poll->left > 0) {
            poll->left--;
            return 0;
        }
        poll->number++;
        poll->open = 0;
        turn_at_once(poll);
    }
    poll->open++;
    poll->counts.begun++;
    poll->until_us = clock_now_us(poll->clock) + poll->most_us;
    return poll->number;
}

void busy_poll_end(struct busy_poll *poll, uint64_t number)
{
    if (!is_running(poll) || number != poll->number)
        return;
    if (clock_now_us(poll->clock) >= poll->until_us) {
        (void)event_del(poll->turn);
        was_vain(poll);
        return;
    }
    if (--poll->open > 0)
        return;
    (void)event_del(poll->turn);
    poll->leave_out /= 2;
    poll->left = poll->leave_out;
}

struct busy_poll_counts busy_poll_counts(const struct busy_poll *poll)
{
    return poll->counts;
}
