/* The lines of waiters (wait_queue.h): who stands in them, and when each looks again.
 *
 * What makes waiting safe is that messages between nodes are hints and no more. A line looks by itself when the holder's lease would end, and at the
 * slow poll in any case: then its first waiter is marked, which means that it must ask the store again. Marks are the list `again`; broker_acquire works
 * it off. Nothing here asks the store or answers anybody, so whoever calls may go on as if nothing had happened.
 *
 * The time to look is one for the line, set by whichever answer was the last to tell how things stand: what the first waiter heard counts, what another
 * heard may only bring it forward. Its poll is jittered, so that nodes which began to wait together don't ask together for ever. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/broker_lines.h"

#include "daemon/broker_request.h"
#include "daemon/broker_state.h"
#include "daemon/broker_time.h"
#include "daemon/log.h"

#define SWEEP      256 /* places that a look at the queue examines for waiters of dead nodes */
#define SWEEP_RATE 512 /* of such places a second, over all locks */

/* ---- who stands in them ---- */

bool lines_join(struct broker_request *r)
{
    struct broker *b = r->broker;

    r->waiter.id = r->lease_id;
    if (wait_queue_count(b->waiters) >= (size_t)b->config.max_waiters)
        return false;
    if (heap_set(&b->ends, &r->end, request_wait_end_us(r)) != 0)
        return false;
    if (wait_queue_add(b->waiters, &r->waiter, r->name, r->name_len) != 0) {
        heap_remove(&b->ends, &r->end);
        return false;
    }
    return true;
}

/* Another request of this node that waits with the same lease id, and means to go on: it is to be told the same. */
struct broker_request *lines_twin(const struct broker_request *r)
{
    const struct wait_line *line = wait_queue_line(r->broker->waiters, r->name, r->name_len);
    struct waiter *waiter = line ? wait_line_find(line, &r->lease_id, NULL) : NULL;

    for (; waiter; waiter = wait_line_find(line, &r->lease_id, waiter)) {
        struct broker_request *other = request_of(waiter);
        if (other != r && (other->state == CALLING || other->state == PARKED))
            return other;
    }
    return NULL;
}

static void mark_again(struct waiter *waiter, void *arg)
{
    struct broker_request *r = request_of(waiter);

    if (r->state == PARKED)
        request_list_add(&((struct broker *)arg)->again, r);
    else if (r->state == CALLING)
        r->poked = true;
}

static void mark_first(struct waiter *waiter, void *arg)
{
    if (wait_line_first(waiter->line) == waiter)
        mark_again(waiter, arg);
}

void lines_mark_all(struct broker *b)
{
    wait_queue_each(b->waiters, mark_again, b);
}

void lines_mark_first(struct broker *b)
{
    wait_queue_each(b->waiters, mark_first, b);
}

/* ---- when they look ---- */

static unsigned draw(struct broker *b)
{
    b->jitter = b->jitter * 1103515245u + 12345u;
    return b->jitter >> 16;
}

static int64_t poll_us(struct broker *b)
{
    return b->config.poll_ms * (900 + (int64_t)(draw(b) % 200)); /* 0.9 to 1.1 of it */
}

/* Sees to the alarm itself, so that no look is set that nobody comes to. */
static void look_at(struct broker *b, struct wait_line *line, int64_t at_us)
{
    if (wait_line_look_at(b->waiters, line, at_us) != 0)
        log_error("out_of_memory", LOG_STR("what", "wait line"));
    broker_set_alarm(b);
}

/* The others of this line look again when the lease that was just granted would end; but grants that follow each other must not put the slow poll off for
 * ever, since it is also what keeps the queue alive in the store. */
void lines_after_lease(struct broker *b, const struct broker_request *r)
{
    struct wait_line *line = wait_queue_line(b->waiters, r->name, r->name_len);
    int64_t now = broker_now_us(b), at = earlier(now + poll_us(b), r->lease_until_us + r->call.holder.delay_ms * 1000 + 1000);

    if (line)
        look_at(b, line, wait_line_look_us(line) > now ? earlier(at, wait_line_look_us(line)) : at);
}

/* When the lock is free, by an answer that told of a holder or a delay, if nothing happens before. */
static int64_t free_us(const struct broker_request *r)
{
    const struct store_holder *holder = &r->call.holder;

    return r->call.sent_us + ((holder->token > 0 ? holder->ttl_ms : 0) + holder->delay_ms) * 1000;
}

/* When this line should look again, after an answer that told it how things stand. */
void lines_after_answer(struct broker_request *r)
{
    struct broker *b = r->broker;
    int64_t now = broker_now_us(b), at = now + poll_us(b);

    if (!r->waiter.line)
        return;
    if (r->call.result == STORE_HELD || r->call.result == STORE_DELAYED)
        at = earlier(at, free_us(r) + 1000);
    else if (r->call.result != STORE_RECOVERING)
        at = now + LINES_SOON_US;
    if (wait_line_first(r->waiter.line) != &r->waiter) /* the look is the first one's: others may only bring it forward */
        at = earlier(at, wait_line_look_us(r->waiter.line));
    if (at < now + 1000) /* as good as over: not in this very millisecond again */
        at = now + 1000;
    look_at(b, r->waiter.line, at);
}

/* The grant was over before it could be taken back, so nobody was woken: the line here may have put off its look to the end of an earlier lease. */
void lines_look_soon(struct broker_request *r)
{
    struct broker *b = r->broker;
    struct wait_line *line = wait_queue_line(b->waiters, r->name, r->name_len);

    if (line)
        look_at(b, line, earlier(wait_line_look_us(line), broker_now_us(b) + 1000));
}

/* It may have been the one that watched for the end of the holder's lease: the line looks then, whoever is first in it. */
void lines_after_end(struct broker_request *r)
{
    struct broker *b = r->broker;
    int64_t now = broker_now_us(b), end = free_us(r) + 1000;

    if (r->waiter.line)
        look_at(b, r->waiter.line, earlier(now + poll_us(b), end > now ? end : now + 1000));
}

/* ---- they look ---- */

/* Examining places costs Redis a command each: a steady trickle for all locks together. */
static bool may_sweep(struct broker *b, const struct broker_request *r, int64_t now)
{
    int64_t places = r->call.ret_waiters < SWEEP ? r->call.ret_waiters : SWEEP;

    b->sweep_left = earlier(SWEEP_RATE, b->sweep_left + (now - b->sweep_us) * SWEEP_RATE / 1000000);
    b->sweep_us = now;
    if (b->sweep_left < places)
        return false;
    b->sweep_left -= places + 1;
    return true;
}

int64_t lines_sweep_from(struct broker_request *r)
{
    return 1 + (r->call.ret_waiters > SWEEP ? draw(r->broker) % r->call.ret_waiters : 0);
}

void lines_look(struct broker *b, int64_t now)
{
    struct wait_line *line;

    while ((line = wait_queue_due(b->waiters, now)) != NULL) {
        struct waiter *waiter = wait_line_first(line);

        look_at(b, line, now + poll_us(b));
        while (waiter && (request_of(waiter)->state == ENDING || request_of(waiter)->carrier)) /* who rides on a release asks nothing */
            waiter = waiter->later;
        if (b->attached && waiter && request_of(waiter)->state == PARKED) {
            request_of(waiter)->sweep = may_sweep(b, request_of(waiter), now);
            request_list_add(&b->again, request_of(waiter));
        }
    }
}
