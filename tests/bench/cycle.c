/* Lock cycles: N connections on one epoll, each with one request under way.
 *
 *     acquire sent --> granted, release sent --> released, next acquire sent --> ...
 *
 * A dialect that needs a session asks for it before: once, or in every cycle, as a part of it.
 *
 * The run goes through three stages: warming (nothing counts), measuring (a cycle counts if it ends in here), stopping (each connection
 * ends the cycle it is in, so that no lock stays behind). A reply that isn't the expected one is a fault and ends its connection: a
 * benchmark of errors would be fast.
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

#define EVENTS_MAX 256
#define STALL_NS   (UINT64_C(10) * 1000000000U) /* nothing came for so long: the run ends with a fault */

enum stage { WARMING, MEASURING, STOPPING };
enum phase { OPENING, ACQUIRING, RELEASING, ENDED };

struct conn {
    struct wire wire;
    enum phase phase;
    uint32_t number;
    uint32_t cycle;
    int64_t token;
    uint64_t cycle_begun_ns;
    uint64_t acquire_sent_ns;
    uint64_t release_sent_ns;
    struct words words;
};

struct run {
    const struct plan *plan;
    struct dialect *dialect;
    struct conn *conns;
    int epoll;
    size_t live;
    enum stage stage;
    uint64_t begun_ns;
    uint64_t ended_ns;
    uint64_t started; /* cycles begun while measuring */
    uint64_t cpu_ns[MODES_PIDS_MAX];
    uint64_t own_cpu_ns;
    uint64_t random;
    char last_name[FRAME_NAME_LEN + 1];
    char last_lease[FRAME_LEASE_LEN + 1];
    struct faults faults;
    struct hist acquire, release, cycle;
};

static void end_conn(struct run *r, struct conn *c)
{
    if (c->phase == ENDED)
        return;
    c->phase = ENDED;
    wire_close(&c->wire);
    r->live--;
}

static void fail_conn(struct run *r, struct conn *c, const char *what)
{
    static const char *const doing[] = {"opening", "acquire", "release", "nothing"};

    faults_add(&r->faults, "%s, in %s of %s: %.*s", what, doing[c->phase], c->words.name,
               (int)(c->wire.in_len < 250 ? c->wire.in_len : 250), c->wire.in != NULL ? c->wire.in : "");
    end_conn(r, c);
}

/* xorshift64*: lease ids must differ, nobody guesses them here. */
static uint64_t next_random(struct run *r)
{
    r->random ^= r->random >> 12;
    r->random ^= r->random << 25;
    r->random ^= r->random >> 27;
    return r->random * UINT64_C(2685821657736338717);
}

static void put_hex(char *out, uint64_t value, size_t digits)
{
    size_t i;

    for (i = digits; i-- > 0; value >>= 4)
        out[i] = "0123456789abcdef"[value & 15];
}

/* The id of a lease in etcd: 19 digits, and 16 in hexadecimal. */
static void make_session(struct run *r, char session[FRAME_SESSION_LEN + 1])
{
    uint64_t id = UINT64_C(1) << 60 | next_random(r) >> 4;

    (void)snprintf(session, FRAME_SESSION_LEN + 1, "%llu", (unsigned long long)id);
}

/* A UUID of version 4. */
static void make_lease(struct run *r, char lease[FRAME_LEASE_LEN + 1])
{
    uint64_t a = next_random(r);
    uint64_t b = next_random(r);

    memcpy(lease, "........-....-4...-8...-............", FRAME_LEASE_LEN + 1);
    put_hex(lease, a, 8);
    put_hex(lease + 9, a >> 32, 4);
    put_hex(lease + 15, a >> 48, 3);
    put_hex(lease + 20, b, 3);
    put_hex(lease + 24, b >> 16, 12);
}

static void send_frame(struct run *r, struct conn *c, struct frame *f)
{
    frame_fill(f, &c->words);
    if (wire_send(&c->wire, f->bytes, f->len) != 0)
        fail_conn(r, c, strerror(errno));
}

static void send_acquire(struct run *r, struct conn *c)
{
    c->phase = ACQUIRING;
    c->acquire_sent_ns = report_now_ns();
    send_frame(r, c, &r->dialect->acquire);
}

static void begin_cycle(struct run *r, struct conn *c)
{
    struct dialect *d = r->dialect;
    bool opens = d->open.len > 0 && (d->open_each || c->cycle == 0);

    if (r->stage == STOPPING || (r->stage == MEASURING && r->plan->count > 0 && r->started == r->plan->count)) {
        end_conn(r, c);
        return;
    }
    r->started += r->stage == MEASURING;
    put_hex(c->words.name + 13, c->cycle++, 8);
    if (d->client_names_lease)
        make_lease(r, c->words.lease);
    if (opens)
        make_session(r, c->words.session);
    if (d->prepare != NULL)
        d->prepare(&c->words);
    c->cycle_begun_ns = report_now_ns();
    if (!opens) {
        send_acquire(r, c);
        return;
    }
    c->phase = OPENING;
    send_frame(r, c, &d->open);
}

static void on_opened(struct run *r, struct conn *c, const struct reply *reply)
{
    wire_drop(&c->wire, reply->len);
    if (!r->dialect->open_each)
        c->cycle_begun_ns = report_now_ns();
    send_acquire(r, c);
}

static void on_granted(struct run *r, struct conn *c, const struct reply *reply)
{
    if (r->dialect->rising && reply->token <= c->token) {
        fail_conn(r, c, "a token did not rise");
        return;
    }
    c->token = reply->token;
    memcpy(c->words.lease, reply->lease, sizeof c->words.lease);
    wire_drop(&c->wire, reply->len);
    c->release_sent_ns = report_now_ns();
    if (r->stage == MEASURING)
        hist_add(&r->acquire, c->release_sent_ns - c->acquire_sent_ns);
    c->phase = RELEASING;
    send_frame(r, c, &r->dialect->release);
}

static void on_released(struct run *r, struct conn *c, const struct reply *reply)
{
    uint64_t now = report_now_ns();

    if (r->dialect->release_tells_token && reply->token != c->token) {
        fail_conn(r, c, "the release tells another token than the grant");
        return;
    }
    wire_drop(&c->wire, reply->len);
    if (r->stage == MEASURING) {
        hist_add(&r->release, now - c->release_sent_ns);
        hist_add(&r->cycle, now - c->cycle_begun_ns);
    }
    memcpy(r->last_name, c->words.name, sizeof r->last_name);
    memcpy(r->last_lease, c->words.lease, sizeof r->last_lease);
    begin_cycle(r, c);
}

static dialect_reader reader_of(const struct run *r, enum phase phase)
{
    if (phase == OPENING)
        return r->dialect->read_open;
    return phase == ACQUIRING ? r->dialect->read_acquire : r->dialect->read_release;
}

static void on_readable(struct run *r, struct conn *c)
{
    struct reply reply;
    enum reading got;
    int came;

    if (c->phase == ENDED)
        return;
    came = wire_read(&c->wire);
    if (came < 0)
        fail_conn(r, c, strerror(errno));
    if (came <= 0)
        return;
    memset(&reply, 0, sizeof reply);
    memcpy(reply.lease, c->words.lease, sizeof reply.lease);
    got = reader_of(r, c->phase)(r->dialect, &c->words, c->wire.in, c->wire.in_len, &reply);
    if (got == READING_MORE)
        return;
    if (got != READING_OK)
        fail_conn(r, c, "not the expected reply");
    else if (c->phase == OPENING)
        on_opened(r, c, &reply);
    else if (c->phase == ACQUIRING)
        on_granted(r, c, &reply);
    else
        on_released(r, c, &reply);
}

/* Turns "so far" into "since the last call" for each process that is watched. */
static void take_cpu(struct run *r)
{
    size_t i;

    for (i = 0; i < r->plan->cpu_pid_count; i++)
        r->cpu_ns[i] = report_cpu_ns(r->plan->cpu_pids[i]) - r->cpu_ns[i];
    r->own_cpu_ns = report_cpu_ns(0) - r->own_cpu_ns;
}

static void begin_measuring(struct run *r)
{
    r->stage = MEASURING;
    take_cpu(r);
    r->begun_ns = report_now_ns();
}

static void end_measuring(struct run *r)
{
    r->ended_ns = report_now_ns();
    take_cpu(r);
    r->stage = STOPPING;
}

static void step_stage(struct run *r, uint64_t first_ns)
{
    uint64_t now = report_now_ns();

    if (r->stage == WARMING && now - first_ns >= (uint64_t)(r->plan->warm_up * 1e9))
        begin_measuring(r);
    else if (r->stage == MEASURING && r->plan->seconds > 0 && now - r->begun_ns >= (uint64_t)(r->plan->seconds * 1e9))
        end_measuring(r);
}

static bool open_conns(struct run *r)
{
    struct epoll_event ev = {.events = EPOLLIN};
    struct conn *c;
    size_t i;

    for (i = 0; i < r->plan->connections; i++) {
        c = &r->conns[i];
        c->number = (uint32_t)i;
        memcpy(c->words.name, "bench/CCCCCC/SSSSSSSS", FRAME_NAME_LEN + 1);
        put_hex(c->words.name + 6, c->number, 6);
        ev.data.ptr = c;
        if (wire_open(&c->wire, &r->plan->to[i % r->plan->to_count]) != 0 || epoll_ctl(r->epoll, EPOLL_CTL_ADD, c->wire.fd, &ev) != 0) {
            faults_add(&r->faults, "connection %zu: %s", i, strerror(errno));
            return false;
        }
    }
    return true;
}

static void loop(struct run *r)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t first_ns = report_now_ns();
    uint64_t last_ns = first_ns;
    int i, n;

    while (r->live > 0) {
        n = epoll_wait(r->epoll, events, EVENTS_MAX, 100);
        step_stage(r, first_ns);
        for (i = 0; i < n; i++)
            on_readable(r, events[i].data.ptr);
        if (n > 0) {
            last_ns = report_now_ns();
        } else if (report_now_ns() - last_ns > STALL_NS) {
            faults_add(&r->faults, "nothing came for 10 s, with %zu connections waiting", r->live);
            break;
        }
    }
    if (r->stage == MEASURING)
        end_measuring(r);
}

static void print(const struct run *r)
{
    double seconds = (double)(r->ended_ns - r->begun_ns) / 1e9;
    size_t i;

    (void)printf("{\"mode\": \"%s\", \"connections\": %zu, \"seconds\": %.6f, \"cycles\": %llu, \"rate\": %.1f", r->dialect->title,
                 r->plan->connections, seconds, (unsigned long long)r->cycle.count, seconds > 0 ? (double)r->cycle.count / seconds : 0.0);
    report_hist(stdout, "cycle_us", &r->cycle);
    report_hist(stdout, "acquire_us", &r->acquire);
    report_hist(stdout, "release_us", &r->release);
    (void)printf(", \"cpu_us\": [");
    for (i = 0; i < r->plan->cpu_pid_count; i++)
        (void)printf("%s%.1f", i > 0 ? ", " : "", (double)r->cpu_ns[i] / 1000.0);
    (void)printf("], \"own_cpu_us\": %.1f, \"last_name\": \"%s\", \"last_lease\": \"%s\"", (double)r->own_cpu_ns / 1000.0, r->last_name,
                 r->last_lease);
    report_faults(stdout, &r->faults);
    (void)printf("}\n");
}

static void run_all(struct run *r)
{
    size_t i;

    for (i = 0; i < r->plan->connections; i++)
        r->conns[i].wire.fd = -1;
    r->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (r->epoll < 0) {
        faults_add(&r->faults, "epoll: %s", strerror(errno));
        return;
    }
    if (open_conns(r)) {
        if (r->plan->warm_up <= 0 || r->plan->seconds <= 0)
            begin_measuring(r);
        r->live = r->plan->connections;
        for (i = 0; i < r->plan->connections; i++)
            begin_cycle(r, &r->conns[i]);
        loop(r);
    }
    for (i = 0; i < r->plan->connections; i++)
        wire_close(&r->conns[i].wire);
    (void)close(r->epoll);
}

bool mode_cycle(const struct plan *p, struct dialect *d)
{
    struct run *r = calloc(1, sizeof *r);
    bool ok;

    if (r == NULL || (r->conns = calloc(p->connections, sizeof *r->conns)) == NULL) {
        (void)fprintf(stderr, "load: out of memory\n");
        free(r);
        return false;
    }
    r->plan = p;
    r->dialect = d;
    r->random = report_now_ns() | 1;
    run_all(r);
    print(r);
    ok = r->faults.count == 0;
    free(r->conns);
    free(r);
    return ok;
}
