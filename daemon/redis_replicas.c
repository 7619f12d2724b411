/* See redis_replicas.h. At most one round is on its way: its two commands, and the calls it covers. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_replicas.h"

#include <stdlib.h>

#include <hiredis/hiredis.h>

#include "daemon/log.h"
#include "daemon/redis_link.h"

#define CONNECT_MS   500
#define MAX_DELAY_MS 250

struct calls { /* a chain by `next`, oldest first */
    struct store_call *first, **last;
};

struct redis_replicas {
    const struct clock *clock;
    struct redis_replicas_config config;
    struct redis_replicas_callbacks callbacks;
    struct redis_link *link;
    struct redis_command mark, wait;
    int open; /* of the two, without an answer yet */
    enum replica_mark marked;
    bool again;
    struct calls waiting, proving;
    struct log_gate gate;
};

/* ---- chains ---- */

static void clear(struct calls *calls)
{
    calls->first = NULL;
    calls->last = &calls->first;
}

static void append(struct calls *calls, struct store_call *call)
{
    call->next = NULL;
    *calls->last = call;
    calls->last = &call->next;
}

/* The calls of the round go before those that came after it. */
static void put_proving_back(struct redis_replicas *r)
{
    if (!r->proving.first)
        return;
    *r->proving.last = r->waiting.first;
    if (r->waiting.first)
        r->proving.last = r->waiting.last;
    r->waiting.first = r->proving.first;
    r->waiting.last = r->proving.last;
    clear(&r->proving);
}

/* ---- a round ---- */

static void begin_round(struct redis_replicas *r)
{
    int64_t deadline_us = clock_now_us(r->clock) + (r->config.timeout_ms + r->config.command_timeout_ms) * 1000;

    if (r->open > 0 || !r->waiting.first || !redis_link_can_send(r->link))
        return;
    r->proving = r->waiting;
    clear(&r->waiting);
    r->callbacks.mark(r->callbacks.arg, r->link, r->again);
    redis_link_send(r->link, &r->mark, deadline_us);
    redis_link_begin(r->link, 3);
    redis_link_arg_str(r->link, "WAIT");
    redis_link_arg_int(r->link, r->config.min);
    redis_link_arg_int(r->link, r->config.timeout_ms);
    redis_link_send(r->link, &r->wait, deadline_us);
    r->open = 2;
}

static void mark_answered(struct redis_command *command, const redisReply *reply)
{
    struct redis_replicas *r = (struct redis_replicas *)((char *)command - offsetof(struct redis_replicas, mark));

    r->open--;
    r->marked = reply ? r->callbacks.marked(r->callbacks.arg, reply) : REPLICA_MARK_FAILED;
}

static void tell(struct redis_replicas *r, int64_t replicas)
{
    struct store_call *call = r->proving.first;
    uint64_t left_out;

    if (replicas < r->config.min && log_gate_pass(&r->gate, clock_now_us(r->clock), &left_out))
        log_warn("too_few_replicas", LOG_INT("confirmed", replicas), LOG_INT("wanted", r->config.min), LOG_INT("suppressed", left_out));
    clear(&r->proving);
    while (call) {
        struct store_call *next = call->next;
        r->callbacks.proved(r->callbacks.arg, call, replicas);
        call = next;
    }
}

static void wait_answered(struct redis_command *command, const redisReply *reply)
{
    struct redis_replicas *r = (struct redis_replicas *)((char *)command - offsetof(struct redis_replicas, wait));

    r->open--;
    if (!r->proving.first)
        return; /* the end came first */
    if (!reply || (r->marked == REPLICA_MARK_AGAIN && !r->again)) {
        put_proving_back(r);
        r->again = reply != NULL;
    } else if (r->marked == REPLICA_MARK_DIFFERS) {
        put_proving_back(r);
        r->callbacks.differs(r->callbacks.arg);
    } else {
        r->again = false;
        tell(r, r->marked == REPLICA_MARK_DONE && reply->type == REDIS_REPLY_INTEGER ? (int64_t)reply->integer : 0);
    }
    if (reply)
        begin_round(r);
}

/* ---- events ---- */

static void on_turn(void *arg)
{
    begin_round(arg);
}

/* Looks at the calls that wait without a connection. */
static void on_alarm(void *arg)
{
    struct redis_replicas *r = arg;
    int64_t now = clock_now_us(r->clock);
    struct calls late;

    if (redis_link_is_open(r->link)) /* a round is out, and has a deadline; or begins now */
        begin_round(r);
    if (r->open > 0 || !r->waiting.first)
        return;
    clear(&late);
    while (r->waiting.first && r->waiting.first->prove_by_us <= now) {
        struct store_call *call = r->waiting.first;
        r->waiting.first = call->next;
        append(&late, call);
    }
    if (!r->waiting.first)
        clear(&r->waiting);
    else
        redis_link_alarm(r->link, r->waiting.first->prove_by_us);
    if (!late.first)
        return;
    r->proving = late;
    tell(r, 0);
}

static void on_up(void *arg)
{
    struct redis_replicas *r = arg;

    redis_link_turn(r->link);
}

static void on_down(void *arg, const char *problem, bool was_up)
{
    struct redis_replicas *r = arg;

    (void)problem;
    (void)was_up;
    if (r->waiting.first)
        redis_link_alarm(r->link, r->waiting.first->prove_by_us);
}

/* ---- the rest of the contract ---- */

struct redis_replicas *redis_replicas_new(struct event_base *base, const struct clock *clock, const struct redis_replicas_config *config,
                                          const struct redis_replicas_callbacks *callbacks)
{
    struct redis_replicas *r = calloc(1, sizeof(*r));
    struct redis_link_config link = {.url = config->url, .label = "replicas", .max_delay_ms = MAX_DELAY_MS, .tls = config->tls};
    struct redis_link_callbacks events = {.arg = r, .up = on_up, .down = on_down, .alarm = on_alarm, .turn = on_turn};

    if (!r)
        return NULL;
    r->clock = clock;
    r->config = *config;
    r->callbacks = *callbacks;
    r->mark.done = mark_answered;
    r->wait.done = wait_answered;
    clear(&r->waiting);
    clear(&r->proving);
    link.connect_timeout_ms = config->command_timeout_ms < CONNECT_MS ? config->command_timeout_ms : CONNECT_MS;
    r->link = redis_link_new(base, clock, &link, &events);
    if (!r->link) {
        free(r);
        return NULL;
    }
    return r;
}

void redis_replicas_free(struct redis_replicas *r)
{
    if (!r)
        return;
    redis_link_free(r->link);
    free(r);
}

void redis_replicas_set_address(struct redis_replicas *r, const char *host, int port)
{
    redis_link_set_address(r->link, host, port);
}

void redis_replicas_begin(struct redis_replicas *r)
{
    redis_link_start(r->link);
}

struct store_call *redis_replicas_end(struct redis_replicas *r)
{
    struct store_call *calls;

    redis_link_stop(r->link);
    redis_link_alarm(r->link, INT64_MAX);
    put_proving_back(r);
    calls = r->waiting.first;
    clear(&r->waiting);
    return calls;
}

void redis_replicas_add(struct redis_replicas *r, struct store_call *call)
{
    call->prove_by_us = clock_now_us(r->clock) + r->config.timeout_ms * 1000;
    if (!r->waiting.first)
        redis_link_alarm(r->link, call->prove_by_us);
    append(&r->waiting, call);
    if (r->open == 0 && redis_link_is_open(r->link))
        redis_link_turn(r->link);
}

uint64_t redis_replicas_connects(const struct redis_replicas *r)
{
    return redis_link_connects(r->link);
}
