/* Hand-over: how long a lock lies idle between the holder who gives it up and the waiter who gets it, as both see it from outside. It needs
 * a pawld that can wait.
 *
 * N waiters and a holder, N + 1 connections, in waves:
 *
 *     gathering   the holder holds; the others send an acquire that waits; a control connection asks for the lock's waiters until all N
 *                 are queued
 *     passing     the holder releases; whoever is granted releases at once, N grants in a chain; the last one keeps the lock and is the
 *                 next wave's holder
 *
 * A hand-over is from just before the write of the release to just after the read of the grant. Gathering first makes each of them one: no
 * acquire is still on its way when the lock falls free. The load handles grants one by one, so its own part in the figure is two system
 * calls and a wake-up, as in mode_publish.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/modes.h"
#include "tests/bench/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define LOCK       "/v1/locks/bench/handover"
#define EVENTS_MAX 256
#define WAIT_MS    10000

static const char acquire_request[] = "POST " LOCK "/acquire?wait=60s&ttl=30s HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n\r\n";
static const char inspect_request[] = "GET " LOCK " HTTP/1.1\r\nHost: bench\r\n\r\n";
static const char release_format[] = "POST " LOCK "/release HTTP/1.1\r\nHost: bench\r\nContent-Length: 52\r\n\r\n{\"lease_id\": \"%s\"}";

enum place { RESTING, WAITING, HOLDING, RELEASING };

struct client {
    struct wire wire;
    enum place place;
    char lease[FRAME_LEASE_LEN + 1];
};

struct run {
    const struct plan *plan;
    struct client *clients;
    size_t client_count;
    struct wire control;
    int epoll;
    struct client *holder; /* the one who keeps the lock while a wave gathers */
    size_t waiting;
    size_t releasing;
    bool passing;
    uint64_t released_ns; /* when the release under way was sent */
    int64_t token;
    uint64_t waves;
    uint64_t inspections;
    uint64_t begun_ns;
    uint64_t cpu_ns[MODES_PIDS_MAX];
    struct faults faults;
    struct hist passes;
};

static void send_acquire(struct run *r, struct client *c)
{
    if (wire_send(&c->wire, acquire_request, sizeof acquire_request - 1) != 0)
        faults_add(&r->faults, "acquire: %s", strerror(errno));
    c->place = WAITING;
    r->waiting++;
}

static void send_release(struct run *r, struct client *c)
{
    char request[sizeof release_format + FRAME_LEASE_LEN];
    int len = snprintf(request, sizeof request, release_format, c->lease);

    c->place = RELEASING;
    r->releasing++;
    r->released_ns = report_now_ns();
    if (wire_send(&c->wire, request, (size_t)len) != 0)
        faults_add(&r->faults, "release: %s", strerror(errno));
}

static void on_grant(struct run *r, struct client *c, const struct http_reply *reply, uint64_t now)
{
    int64_t token;

    if (reply->status != 200 || !http_reply_number(reply, "token", &token) || !http_reply_lease(reply, c->lease)) {
        faults_add(&r->faults, "a waiter got %d: %.*s", reply->status, (int)(reply->body_len < 160 ? reply->body_len : 160), reply->body);
        return;
    }
    if (token <= r->token || (r->holder != NULL && !r->passing))
        faults_add(&r->faults, "token %lld was granted after %lld%s", (long long)token, (long long)r->token,
                   r->passing ? "" : ", and while that was held");
    r->token = token;
    r->waiting--;
    c->place = HOLDING;
    if (r->passing)
        hist_add(&r->passes, now - r->released_ns);
    if (r->passing && r->waiting > 0)
        send_release(r, c);
    else
        r->holder = c;
}

static void on_release(struct run *r, struct client *c, const struct http_reply *reply)
{
    if (reply->status != 200)
        faults_add(&r->faults, "a release got %d: %.*s", reply->status, (int)(reply->body_len < 160 ? reply->body_len : 160), reply->body);
    c->place = RESTING;
    r->releasing--;
}

static void on_readable(struct run *r, struct client *c)
{
    struct http_reply reply;
    int came = wire_read(&c->wire);
    uint64_t now = report_now_ns();
    enum reading got;

    if (came < 0)
        faults_add(&r->faults, "a connection ended: %s", strerror(errno));
    if (came <= 0)
        return;
    got = http_reply_read(&reply, c->wire.in, c->wire.in_len);
    if (got == READING_MORE)
        return;
    if (got == READING_BAD || (c->place != WAITING && c->place != RELEASING)) {
        faults_add(&r->faults, "not a reply that was asked for: %.*s", (int)(c->wire.in_len < 160 ? c->wire.in_len : 160), c->wire.in);
        return;
    }
    if (c->place == WAITING)
        on_grant(r, c, &reply, now);
    else
        on_release(r, c, &reply);
    wire_drop(&c->wire, reply.len);
}

/* Handles what came; false after a fault. */
static bool turn(struct run *r, int timeout_ms)
{
    struct epoll_event events[EVENTS_MAX];
    int i;
    int n = epoll_wait(r->epoll, events, EVENTS_MAX, timeout_ms);

    if (n == 0 && timeout_ms > 0)
        faults_add(&r->faults, "nothing came for 10 s, with %zu waiting", r->waiting);
    for (i = 0; i < n && r->faults.count == 0; i++)
        on_readable(r, events[i].data.ptr);
    return r->faults.count == 0;
}

/* Everybody but the holder queues; returns when pawld counts all of them. */
static bool gather(struct run *r)
{
    uint64_t begun = report_now_ns();
    struct http_reply reply;
    int64_t waiters = 0;
    size_t i;

    for (i = 0; i < r->client_count; i++) {
        if (&r->clients[i] != r->holder)
            send_acquire(r, &r->clients[i]);
    }
    /* Nobody is answered while the holder holds: a turn finds what pawld should not have said. */
    while (turn(r, 0) && waiters != (int64_t)r->waiting) {
        r->inspections++;
        if (!http_ask(&r->control, inspect_request, 200, &reply) || !http_reply_number(&reply, "waiters", &waiters))
            faults_add(&r->faults, "asking for the waiters: %s", strerror(errno));
        else
            wire_drop(&r->control, reply.len);
        if (report_now_ns() - begun > UINT64_C(1000000) * WAIT_MS)
            faults_add(&r->faults, "%lld waiters instead of %zu after 10 s", (long long)waiters, r->waiting);
    }
    return r->faults.count == 0;
}

static bool pass(struct run *r)
{
    struct client *first = r->holder;

    r->holder = NULL;
    r->passing = true;
    send_release(r, first);
    while (r->holder == NULL || r->releasing > 0) {
        if (!turn(r, WAIT_MS))
            return false;
    }
    r->passing = false;
    r->waves++;
    return true;
}

static bool is_over(const struct run *r)
{
    const struct plan *p = r->plan;

    return (p->count > 0 && r->passes.count >= p->count) ||
           (p->seconds > 0 && report_now_ns() - r->begun_ns >= (uint64_t)(p->seconds * 1e9));
}

static void take_cpu(struct run *r)
{
    size_t i;

    for (i = 0; i < r->plan->cpu_pid_count; i++)
        r->cpu_ns[i] = report_cpu_ns(r->plan->cpu_pids[i]) - r->cpu_ns[i];
}

static void run_waves(struct run *r)
{
    send_acquire(r, &r->clients[0]);
    while (r->holder == NULL) {
        if (!turn(r, WAIT_MS))
            return;
    }
    take_cpu(r);
    r->begun_ns = report_now_ns();
    while (!is_over(r)) {
        if (!gather(r) || !pass(r))
            return;
    }
    take_cpu(r);
    send_release(r, r->holder);
    while (r->releasing > 0) {
        if (!turn(r, WAIT_MS))
            return;
    }
}

static bool open_all(struct run *r)
{
    struct epoll_event ev = {.events = EPOLLIN};
    size_t i;

    for (i = 0; i < r->client_count; i++) {
        ev.data.ptr = &r->clients[i];
        if (wire_open(&r->clients[i].wire, &r->plan->to) != 0 || epoll_ctl(r->epoll, EPOLL_CTL_ADD, r->clients[i].wire.fd, &ev) != 0)
            return false;
    }
    return wire_open(&r->control, &r->plan->to) == 0;
}

static void print(const struct run *r)
{
    size_t i;

    (void)printf("{\"mode\": \"handover\", \"waiters\": %zu, \"handovers\": %llu, \"waves\": %llu, \"inspections\": %llu",
                 r->plan->connections, (unsigned long long)r->passes.count, (unsigned long long)r->waves,
                 (unsigned long long)r->inspections);
    report_hist(stdout, "handover_us", &r->passes);
    (void)printf(", \"cpu_us\": [");
    for (i = 0; i < r->plan->cpu_pid_count; i++)
        (void)printf("%s%.1f", i > 0 ? ", " : "", (double)r->cpu_ns[i] / 1000.0);
    (void)printf("]");
    report_faults(stdout, &r->faults);
    (void)printf("}\n");
}

bool mode_handover(const struct plan *p)
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
    r->client_count = p->connections + 1;
    r->control.fd = -1;
    for (i = 0; i < r->client_count; i++)
        r->clients[i].wire.fd = -1;
    r->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (r->epoll < 0 || !open_all(r))
        faults_add(&r->faults, "connecting: %s", strerror(errno));
    else
        run_waves(r);
    for (i = 0; i < r->client_count; i++)
        wire_close(&r->clients[i].wire);
    wire_close(&r->control);
    if (r->epoll >= 0)
        (void)close(r->epoll);
    print(r);
    ok = r->faults.count == 0;
    free(r->clients);
    free(r);
    return ok;
}
