/* Connections that do nothing, to be weighed: each had one request served, so that pawld has given it whatever a connection gets; with
 * --park each then has an acquire waiting on one lock that a first connection holds. With --leases one connection takes that many locks. The
 * JSON line says that all are there; they stay until standard input ends.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/http.h"
#include "tests/bench/modes.h"
#include "tests/bench/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOCK "/v1/locks/bench/parked"

static const char served_request[] = "GET /healthz HTTP/1.1\r\nHost: bench\r\n\r\n";
static const char take_request[] = "POST " LOCK "/acquire?ttl=10m HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n\r\n";
static const char park_request[] = "POST " LOCK "/acquire?wait=10m HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n\r\n";
static const char inspect_request[] = "GET " LOCK " HTTP/1.1\r\nHost: bench\r\n\r\n";

static bool ask(struct wire *w, const char *request, struct faults *faults)
{
    struct http_reply reply;

    if (!http_ask(w, request, 200, &reply)) {
        faults_add(faults, "%.40s: %s", request, strerror(errno));
        return false;
    }
    wire_drop(w, reply.len);
    wire_shrink(w);
    return true;
}

static bool open_all(const struct plan *p, struct wire *wires, struct faults *faults)
{
    size_t i;

    for (i = 0; i < p->connections; i++) {
        if (wire_open(&wires[i], &p->to[0]) != 0) {
            faults_add(faults, "connection %zu: %s", i, strerror(errno));
            return false;
        }
        if (!ask(&wires[i], served_request, faults))
            return false;
    }
    return true;
}

/* Returns when pawld counts all of them as waiters. */
static bool park_all(const struct plan *p, struct wire *wires, struct wire *holder, struct faults *faults)
{
    uint64_t begun = report_now_ns();
    struct http_reply reply;
    int64_t waiters = 0;
    size_t i;

    for (i = 0; i < p->connections; i++) {
        if (wire_send(&wires[i], park_request, sizeof park_request - 1) != 0) {
            faults_add(faults, "parking %zu: %s", i, strerror(errno));
            return false;
        }
    }
    while (waiters != (int64_t)p->connections) {
        if (!http_ask(holder, inspect_request, 200, &reply) || !http_reply_number(&reply, "waiters", &waiters)) {
            faults_add(faults, "asking for the waiters: %s", strerror(errno));
            return false;
        }
        wire_drop(holder, reply.len);
        if (report_now_ns() - begun > UINT64_C(30000000000)) {
            faults_add(faults, "%lld waiters instead of %zu after 30 s", (long long)waiters, p->connections);
            return false;
        }
    }
    return true;
}

/* On a connection that is there already, so that only leases grow. */
static bool take_leases(const struct plan *p, struct wire *w, struct faults *faults)
{
    char request[200];
    uint64_t i;

    for (i = 0; i < p->leases; i++) {
        (void)snprintf(request, sizeof request,
                       "POST /v1/locks/bench/held/%08llu/acquire?ttl=10m&owner=bench HTTP/1.1\r\nHost: bench\r\nContent-Length: 0\r\n\r\n",
                       (unsigned long long)i);
        if (!ask(w, request, faults))
            return false;
    }
    return true;
}

static void hold(void)
{
    char byte;

    while (read(STDIN_FILENO, &byte, 1) > 0)
        ;
}

bool mode_idle(const struct plan *p)
{
    struct wire *wires = calloc(p->connections, sizeof *wires);
    struct wire holder = {.fd = -1};
    struct faults faults = {0};
    bool ok;
    size_t i;

    if (wires == NULL) {
        (void)fprintf(stderr, "load: out of memory\n");
        return false;
    }
    for (i = 0; i < p->connections; i++)
        wires[i].fd = -1;
    if (p->park && (wire_open(&holder, &p->to[0]) != 0 || !ask(&holder, take_request, &faults)))
        faults_add(&faults, "holding the lock: %s", strerror(errno));
    ok = faults.count == 0 && open_all(p, wires, &faults) && (!p->park || park_all(p, wires, &holder, &faults)) &&
         take_leases(p, &wires[0], &faults);
    (void)printf("{\"mode\": \"%s\", \"connections\": %zu", p->park ? "parked" : "idle", p->connections);
    report_faults(stdout, &faults);
    (void)printf("}\n");
    (void)fflush(stdout);
    if (ok)
        hold();
    for (i = 0; i < p->connections; i++)
        wire_close(&wires[i]);
    wire_close(&holder);
    free(wires);
    return ok;
}
