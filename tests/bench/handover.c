/* Hand-over: how long a lock lies idle between the holder who gives it up and the waiter who gets it, as both see it from outside.
 *
 * N waiters and a holder, N + 1 connections, in waves:
 *
 *     gathering   the holder holds; the others send an acquire that waits; a control connection asks for the lock's waiters until all N
 *                 are queued
 *     passing     the holder releases; once somebody is granted, and the release is answered, that one releases, N grants in a chain; the
 *                 last one keeps the lock and is the next wave's holder
 *
 * Where nobody can wait (retry_ms), waves mean nothing: each tries until it was refused once, and then the lock is passed on and on, whoever
 * gave it up being one who tries again, so that always N try.
 *
 * A hand-over is from just before the write of the release to just after the read of the grant. Gathering first makes each of them one: no
 * acquire is still on its way when the lock falls free. The load handles grants one by one, so its own part in the figure is two system
 * calls and a wake-up, as in a PUBLISH trip.
 *
 * With --trips a PUBLISH trip is measured between any two hand-overs, so that both begin alike: the load was just woken by an answer, the others
 * sleep. On which cores it finds the servers is the scheduler's matter (docs/benchmarks.md); with all on one core the two can be compared as they are.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/modes.h"
#include "tests/bench/report.h"
#include "tests/bench/trip.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_MAX 256
#define NS_PER_MS  UINT64_C(1000000)
#define WAIT_NS    (10000 * NS_PER_MS)

enum place { RESTING, WAITING, HOLDING, RELEASING };

struct client {
    struct wire wire;
    enum place place;
    bool asking;     /* its acquire is under way; else it is refused and tries again at due_ns */
    bool refused;    /* at least once since it began to wait */
    uint64_t due_ns; /* UINT64_MAX: never */
    struct words words;
};

struct run {
    const struct plan *plan;
    struct dialect *dialect;
    struct client *clients;
    size_t client_count;
    struct wire control;
    struct trip trip;
    int epoll;
    struct client *holder; /* NULL while the lock is between two */
    size_t waiting;
    size_t releasing;
    size_t unrefused;
    bool passing;
    bool ending;          /* nobody tries again */
    uint64_t released_ns; /* when the release under way was sent */
    int64_t token;
    uint64_t random;
    uint64_t waves;
    uint64_t inspections;
    uint64_t tries;
    uint64_t begun_ns;
    uint64_t cpu_ns[MODES_PIDS_MAX];
    uint64_t own_cpu_ns;
    struct faults faults;
    struct hist passes;
    struct hist trips;
};

static uint64_t next_random(struct run *r)
{
    r->random ^= r->random >> 12;
    r->random ^= r->random << 25;
    r->random ^= r->random >> 27;
    return r->random * UINT64_C(2685821657736338717);
}

/* ---- what clients send */

static void send_frame(struct run *r, struct client *c, struct frame *f)
{
    frame_fill(f, &c->words);
    if (wire_send(&c->wire, f->bytes, f->len) != 0)
        faults_add(&r->faults, "sending: %s", strerror(errno));
}

static void send_acquire(struct run *r, struct client *c)
{
    c->asking = true;
    c->due_ns = UINT64_MAX;
    r->tries++;
    send_frame(r, c, &r->dialect->acquire);
}

/* Whoever tries again and again begins at a random time, else all would try at once for ever. */
static void begin_waiting(struct run *r, struct client *c)
{
    c->place = WAITING;
    c->refused = false;
    c->asking = false;
    r->waiting++;
    r->unrefused++;
    if (r->dialect->retry_ms == 0)
        send_acquire(r, c);
    else
        c->due_ns = report_now_ns() + next_random(r) % (r->dialect->retry_ms * NS_PER_MS);
}

static void send_release(struct run *r)
{
    struct client *c = r->holder;

    c->place = RELEASING;
    r->holder = NULL;
    r->releasing++;
    r->released_ns = report_now_ns();
    send_frame(r, c, &r->dialect->release);
}

/* ---- what they are told */

static void on_grant(struct run *r, struct client *c, const struct reply *reply, uint64_t now)
{
    if (r->holder != NULL || (r->dialect->rising && reply->token <= r->token))
        faults_add(&r->faults, "token %lld was granted after %lld%s", (long long)reply->token, (long long)r->token,
                   r->holder != NULL ? ", and while that was held" : "");
    r->token = reply->token;
    memcpy(c->words.lease, reply->lease, sizeof c->words.lease);
    r->waiting--;
    r->unrefused -= !c->refused;
    c->place = HOLDING;
    r->holder = c;
    if (r->passing)
        hist_add(&r->passes, now - r->released_ns);
}

static void on_refusal(struct run *r, struct client *c, uint64_t now)
{
    r->unrefused -= !c->refused;
    c->refused = true;
    c->due_ns = r->ending ? UINT64_MAX : now + r->dialect->retry_ms * NS_PER_MS;
}

static void on_readable(struct run *r, struct client *c)
{
    struct reply reply = {0};
    int came = wire_read(&c->wire);
    uint64_t now = report_now_ns();
    enum reading got;

    if (came < 0)
        faults_add(&r->faults, "a connection ended: %s", strerror(errno));
    if (came <= 0)
        return;
    memcpy(reply.lease, c->words.lease, sizeof reply.lease);
    got = (c->place == RELEASING ? r->dialect->read_release : r->dialect->read_acquire)(r->dialect, &c->words, c->wire.in, c->wire.in_len,
                                                                                        &reply);
    if (got == READING_MORE)
        return;
    if (got == READING_BAD || (c->place == WAITING ? !c->asking : c->place != RELEASING)) {
        faults_add(&r->faults, "not a reply that was asked for: %.*s", (int)(c->wire.in_len < 250 ? c->wire.in_len : 250), c->wire.in);
        return;
    }
    c->asking = false;
    if (got == READING_REFUSED) {
        on_refusal(r, c, now);
    } else if (c->place == WAITING) {
        on_grant(r, c, &reply, now);
    } else {
        c->place = RESTING;
        r->releasing--;
    }
    wire_drop(&c->wire, reply.len);
    if (c->place == RESTING && r->dialect->retry_ms > 0 && !r->ending)
        begin_waiting(r, c);
}

/* ---- the loop */

/* Sends what is due; returns when the next one is, or until if that is sooner. */
static uint64_t send_due(struct run *r, uint64_t until)
{
    uint64_t now = report_now_ns();
    size_t i;

    for (i = 0; i < r->client_count && r->dialect->retry_ms > 0; i++) {
        if (r->clients[i].due_ns <= now)
            send_acquire(r, &r->clients[i]);
        else if (r->clients[i].due_ns < until)
            until = r->clients[i].due_ns;
    }
    return until;
}

/* Handles what comes until then at the latest; false after a fault. */
static bool turn(struct run *r, uint64_t until)
{
    struct epoll_event events[EVENTS_MAX];
    struct pollfd ready = {.fd = r->epoll, .events = POLLIN};
    uint64_t next = send_due(r, until);
    uint64_t now = report_now_ns();
    uint64_t rest = next > now ? next - now : 0;
    struct timespec ts = {.tv_sec = (time_t)(rest / 1000000000U), .tv_nsec = (long)(rest % 1000000000U)};
    int i, n;

    if (ppoll(&ready, 1, &ts, NULL) < 0)
        faults_add(&r->faults, "poll: %s", strerror(errno));
    n = epoll_wait(r->epoll, events, EVENTS_MAX, 0);
    for (i = 0; i < n && r->faults.count == 0; i++)
        on_readable(r, events[i].data.ptr);
    return r->faults.count == 0;
}

/* Until somebody holds the lock and no release is under way. */
static bool settle(struct run *r)
{
    uint64_t end = report_now_ns() + WAIT_NS;

    while (r->holder == NULL || r->releasing > 0) {
        if (report_now_ns() >= end)
            faults_add(&r->faults, "nobody got the lock for 10 s, with %zu waiting", r->waiting);
        if (!turn(r, end))
            return false;
    }
    return true;
}

static bool all_wait(struct run *r)
{
    struct reply reply = {0};

    if (r->dialect->count.len == 0)
        return r->unrefused == 0;
    r->inspections++;
    if (!dialect_ask(r->dialect, &r->control, &r->dialect->count, &r->clients[0].words, r->dialect->read_count, &reply))
        faults_add(&r->faults, "asking for the waiters: %s", strerror(errno));
    return reply.token == (int64_t)r->waiting;
}

static bool rest(struct run *r)
{
    uint64_t end = report_now_ns() + r->dialect->rest_ms * NS_PER_MS;

    while (report_now_ns() < end) {
        if (!turn(r, end))
            return false;
    }
    return true;
}

/* Everybody but the holder queues; returns when all of them are counted. */
static bool gather(struct run *r)
{
    uint64_t end = report_now_ns() + WAIT_NS;
    size_t i;

    for (i = 0; i < r->client_count; i++) {
        if (&r->clients[i] != r->holder)
            begin_waiting(r, &r->clients[i]);
    }
    /* Nobody is granted while the holder holds: a turn finds what should not have been said. */
    while (turn(r, report_now_ns() + NS_PER_MS) && !all_wait(r)) {
        if (report_now_ns() > end)
            faults_add(&r->faults, "not all of %zu waiters are there after 10 s", r->waiting);
    }
    return r->faults.count == 0 && rest(r);
}

static bool measure_trip(struct run *r)
{
    uint64_t ns;

    if (r->plan->trips.len == 0)
        return true;
    if (trip_once(&r->trip, &ns) != 0) {
        faults_add(&r->faults, "a PUBLISH trip: %s", strerror(errno));
        return false;
    }
    hist_add(&r->trips, ns);
    return true;
}

static bool is_over(const struct run *r)
{
    const struct plan *p = r->plan;

    return (p->count > 0 && r->passes.count >= p->count) ||
           (p->seconds > 0 && report_now_ns() - r->begun_ns >= (uint64_t)(p->seconds * 1e9));
}

static bool pass(struct run *r)
{
    r->passing = true;
    while (r->waiting > 0 && !(r->dialect->retry_ms > 0 && is_over(r))) {
        if (!measure_trip(r))
            return false;
        send_release(r);
        if (!settle(r))
            return false;
    }
    r->passing = false;
    r->waves++;
    return true;
}

static void take_cpu(struct run *r)
{
    size_t i;

    for (i = 0; i < r->plan->cpu_pid_count; i++)
        r->cpu_ns[i] = report_cpu_ns(r->plan->cpu_pids[i]) - r->cpu_ns[i];
    r->own_cpu_ns = report_cpu_ns(0) - r->own_cpu_ns;
}

/* The holder gives the lock back when nobody is about to take it. */
static void finish(struct run *r)
{
    uint64_t end = report_now_ns() + WAIT_NS;
    bool sent = false;
    size_t asking;
    size_t i;

    r->ending = true;
    for (i = 0; i < r->client_count; i++)
        r->clients[i].due_ns = UINT64_MAX;
    while (!sent || r->releasing > 0) {
        for (i = 0, asking = 0; i < r->client_count; i++)
            asking += r->clients[i].asking;
        if (!sent && asking == 0) {
            send_release(r);
            sent = true;
        }
        if (report_now_ns() > end)
            faults_add(&r->faults, "the last release was not answered");
        if (!turn(r, end))
            return;
    }
}

static void run_waves(struct run *r)
{
    begin_waiting(r, &r->clients[0]);
    if (!settle(r))
        return;
    take_cpu(r);
    r->tries = 0;
    r->begun_ns = report_now_ns();
    while (!is_over(r)) {
        if (!gather(r) || !pass(r))
            return;
    }
    take_cpu(r);
    finish(r);
}

/* ---- beginning and end */

/* A client's words, and its session where the dialect has them; the session's id is 2^60 and some, so that it has 19 digits. */
static bool open_client(struct run *r, struct client *c, size_t number)
{
    struct reply reply = {0};

    c->due_ns = UINT64_MAX;
    memcpy(c->words.name, DIALECT_ONE_NAME, sizeof c->words.name);
    (void)snprintf(c->words.lease, sizeof c->words.lease, "%08x-0000-4000-8000-%012x", (unsigned)number & 0xffffffffU, 0U);
    (void)snprintf(c->words.session, sizeof c->words.session, "%llu", (unsigned long long)(UINT64_C(1) << 60 | next_random(r) >> 4));
    if (r->dialect->prepare != NULL)
        r->dialect->prepare(&c->words);
    if (wire_open(&c->wire, &r->plan->to[0]) != 0)
        return false;
    return r->dialect->open.len == 0 || dialect_ask(r->dialect, &c->wire, &r->dialect->open, &c->words, r->dialect->read_open, &reply);
}

static bool open_all(struct run *r)
{
    struct epoll_event ev = {.events = EPOLLIN};
    size_t i;

    for (i = 0; i < r->client_count; i++) {
        ev.data.ptr = &r->clients[i];
        if (!open_client(r, &r->clients[i], i) || epoll_ctl(r->epoll, EPOLL_CTL_ADD, r->clients[i].wire.fd, &ev) != 0)
            return false;
    }
    if (r->plan->trips.len > 0 && trip_open(&r->trip, &r->plan->trips) != 0)
        return false;
    return wire_open(&r->control, &r->plan->to[0]) == 0;
}

static void close_all(struct run *r)
{
    size_t i;

    for (i = 0; i < r->client_count; i++)
        wire_close(&r->clients[i].wire);
    wire_close(&r->control);
    trip_close(&r->trip);
    if (r->epoll >= 0)
        (void)close(r->epoll);
}

static void print(const struct run *r)
{
    size_t i;

    (void)printf("{\"mode\": \"handover\", \"by\": \"%s\", \"waiters\": %zu, \"handovers\": %llu, \"waves\": %llu, \"inspections\": %llu, "
                 "\"tries\": %llu",
                 r->dialect->title, r->plan->connections, (unsigned long long)r->passes.count, (unsigned long long)r->waves,
                 (unsigned long long)r->inspections, (unsigned long long)r->tries);
    report_hist(stdout, "handover_us", &r->passes);
    report_hist(stdout, "trip_us", &r->trips);
    (void)printf(", \"cpu_us\": [");
    for (i = 0; i < r->plan->cpu_pid_count; i++)
        (void)printf("%s%.1f", i > 0 ? ", " : "", (double)r->cpu_ns[i] / 1000.0);
    (void)printf("], \"own_cpu_us\": %.1f", (double)r->own_cpu_ns / 1000.0);
    report_faults(stdout, &r->faults);
    (void)printf("}\n");
}

bool mode_handover(const struct plan *p, struct dialect *d)
{
    struct run *r = calloc(1, sizeof *r);
    size_t i;
    bool ok;

    if (r == NULL || (r->clients = calloc(p->connections + 1, sizeof *r->clients)) == NULL) {
        (void)fprintf(stderr, "load: out of memory\n");
        free(r);
        return false;
    }
    r->plan = p;
    r->dialect = d;
    r->random = report_now_ns() | 1;
    r->client_count = p->connections + 1;
    r->control.fd = -1;
    r->trip = (struct trip)TRIP_CLOSED;
    for (i = 0; i < r->client_count; i++)
        r->clients[i].wire.fd = -1;
    r->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (r->epoll < 0 || !open_all(r))
        faults_add(&r->faults, "connecting: %s", strerror(errno));
    else
        run_waves(r);
    close_all(r);
    print(r);
    ok = r->faults.count == 0;
    free(r->clients);
    free(r);
    return ok;
}
