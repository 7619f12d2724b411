/* The keep-alive: a thread that renews one lease.
 *
 *      start --> asleep --at a third--> renewing --good--> asleep     (RENEWED)
 *                  ^                       |--bad--> asleep, shorter  (MAYBE_LOST)
 *                  +-----------------------+
 *      asleep or renewing --deadline minus margin--> LOST, ended
 *      renewing --pawld says lease_lost--> LOST, ended
 *      at the end of what may be held: asleep until the deadline minus margin --> LOST, ended
 *      any --stop--> ended, without a word
 *
 * The clock is looked at first after every sleep. So a process that was stopped for too long sends no renewal, and its owner hears of the loss
 * before anything else.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/lease.h"
#include "client/moment.h"
#include "client/why_lost.h"

#define BACK_OFF_FIRST_MS 50
#define BACK_OFF_CAP_MS   1000
#define TRY_LEAST_MS      100 /* a try gets at least so long, while there is time */

struct keep_alive {
    struct pawl_lease *lease;
    struct pawl_keep_alive_options options;
    pthread_t thread;
    int stop_fd, timer;
};

static void tell(struct keep_alive *k, enum pawl_event event, const struct pawl_problem *problem)
{
    if (k->options.on_event)
        k->options.on_event(k->options.arg, k->lease, event, problem);
}

/* A third of the ttl after the renewal that the deadline comes from, less up to a thirtieth at random. */
static int64_t next_renewal_us(const struct keep_alive *k)
{
    int64_t ttl_us = pawl_lease_ttl_ms(k->lease) * 1000;

    if (pawl_lease_is_at_bound(k->lease))
        return MOMENT_MAX;
    return pawl_lease_deadline_us(k->lease) - ttl_us / 3 * 2 - moment_random(ttl_us / 30 + 1);
}

/* The end by our clock; 0 when the lease is known to be over. */
static int64_t end_us(const struct keep_alive *k)
{
    int64_t deadline_us = pawl_lease_deadline_us(k->lease);

    return deadline_us > 0 ? deadline_us - k->options.margin_ms * 1000 : 0;
}

/* One try. It may use a third of the time that is left, so that one answer that never comes does not use up all of it. */
static int renew(struct keep_alive *k, int64_t end, struct pawl_problem *problem)
{
    struct call call = lease_renewal(k->lease, k->options.ttl_ms > 0 ? k->options.ttl_ms : pawl_lease_ttl_ms(k->lease));
    int64_t third_ms = (end - moment_now_us()) / 3000;

    call.timeout_ms = third_ms < k->lease->client->timeout_ms ? third_ms : k->lease->client->timeout_ms;
    if (call.timeout_ms < TRY_LEAST_MS)
        call.timeout_ms = TRY_LEAST_MS;
    call.budget_ms = 0;
    call.give_up_us = end;
    call.cancel_fd = -1;
    call.stop_fd = k->stop_fd;
    return lease_renew(k->lease, &call, problem);
}

static void say_lost(struct keep_alive *k, struct pawl_problem *problem)
{
    lease_forget(k->lease);
    tell(k, PAWL_EVENT_LOST, problem);
}

static void *run(void *arg)
{
    struct keep_alive *k = arg;
    struct pawl_problem problem;
    unsigned failures = 0;
    int64_t again_us = next_renewal_us(k), end;

    for (;;) {
        int code;

        end = end_us(k);
        if (moment_pause(k->timer, again_us < end ? again_us : end, k->stop_fd, -1))
            return NULL;
        end = end_us(k); /* a renewal by hand may have moved it */
        if (moment_now_us() >= end) {
            (void)call_problem(&problem, PAWL_ERR_LOST, "%s", why_lost_at_end(pawl_lease_is_at_bound(k->lease)));
            say_lost(k, &problem);
            return NULL;
        }
        if (moment_now_us() < again_us)
            continue;
        code = renew(k, end, &problem);
        if (code == 0) {
            failures = 0;
            again_us = next_renewal_us(k);
            tell(k, PAWL_EVENT_RENEWED, NULL);
        } else if (code == PAWL_ERR_LOST) {
            say_lost(k, &problem);
            return NULL;
        } else if (code != PAWL_ERR_CANCELLED) { /* that is a stop: seen by the next pause */
            again_us = moment_after(moment_now_us(), moment_back_off_ms(++failures, BACK_OFF_FIRST_MS, BACK_OFF_CAP_MS));
            if (again_us < end) /* else LOST says it all */
                tell(k, PAWL_EVENT_MAYBE_LOST, &problem);
        }
    }
}

static void keep_alive_free(struct keep_alive *k)
{
    if (k->stop_fd >= 0)
        close(k->stop_fd);
    if (k->timer >= 0)
        close(k->timer);
    free(k);
}

/* Signals are for the threads of the program. */
static int start_thread(struct keep_alive *k)
{
    sigset_t all, before;
    int result;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    result = pthread_create(&k->thread, NULL, run, k);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return result;
}

static int64_t margin_of(int64_t ttl_ms)
{
    return ttl_ms / 10 < 2000 ? ttl_ms / 10 : 2000;
}

int pawl_keep_alive(struct pawl_lease *lease, const struct pawl_keep_alive_options *options, struct pawl_problem *ret_problem)
{
    struct keep_alive *k;
    int64_t ttl_ms = options && options->ttl_ms > 0 ? options->ttl_ms : pawl_lease_ttl_ms(lease);

    if (lease->keep_alive)
        return call_problem(ret_problem, PAWL_ERR_ARGUMENT, "the lease is kept alive already");
    if (pawl_lease_deadline_us(lease) == 0)
        return call_problem(ret_problem, PAWL_ERR_ARGUMENT, "the lease has no deadline: renew it first, unless it is over");
    if (options && (options->ttl_ms < 0 || options->ttl_ms > CALL_MS_MAX || options->margin_ms < 0 || options->margin_ms >= ttl_ms))
        return call_problem(ret_problem, PAWL_ERR_ARGUMENT, "ttl_ms or margin_ms is out of range");
    k = calloc(1, sizeof(*k));
    if (!k)
        return call_problem(ret_problem, PAWL_ERR_MEMORY, "out of memory");
    if (options)
        k->options = *options;
    if (k->options.margin_ms == 0)
        k->options.margin_ms = margin_of(ttl_ms);
    k->lease = lease;
    k->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    k->timer = moment_timer();
    if (k->stop_fd < 0 || k->timer < 0 || start_thread(k) != 0) {
        keep_alive_free(k);
        return call_problem(ret_problem, PAWL_ERR_MEMORY, "no thread or descriptor for the keep-alive");
    }
    lease->keep_alive = k;
    return 0;
}

void pawl_keep_alive_stop(struct pawl_lease *lease)
{
    struct keep_alive *k = lease->keep_alive;
    uint64_t one = 1;

    if (!k)
        return;
    while (write(k->stop_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        continue;
    pthread_join(k->thread, NULL);
    lease->keep_alive = NULL;
    keep_alive_free(k);
}
