/* The life of the attachment:
 *
 *                       link up                      'attached'
 *     DETACHED ───────────────────► ATTACHING ─────────────────────► READY
 *         ▲                          │  ▲                             │
 *         │ refused, or link down    │  └───────── 'differs' ─────────┤
 *         └──────────────────────────┴────────────── link down ───────┘
 *
 * READY      calls are sent at once.
 * ATTACHING  calls are held, in order, until their deadline. After a 'differs' the attach goes out on the same connection, behind what is
 *            in flight there: those answers come first, so none is read in another life than the one it was sent in.
 * DETACHED   right after a connection that worked was lost, calls are held too, until the next attempt ends; after a failed attempt they
 *            fail at once, so that nobody hangs while Redis is away.
 *
 * Calls of the plain kind (an acquire that does not wait, a release nobody waits for) that come in one turn of the loop leave as one run of
 * one script: most of what a script costs Redis is not its work. What turns out not to be plain comes back undone and is sent by itself.
 *
 * A call that was sent when its connection broke may have run. Those that may be run twice (all but release and break) are held and run
 * again under the same confirm number: attaching has raised the node's generation by then, so the first copy, should it still sit in
 * a socket buffer of Redis, does nothing when it is read.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <hiredis/hiredis.h>

#include "daemon/log.h"
#include "daemon/redis_link.h"
#include "daemon/redis_replicas.h"
#include "daemon/redis_script.h"
#include "daemon/redis_sentinel.h"
#include "proto/text.h"

#define BEAT_MS        500
#define LAST_BEAT_MS   100 /* while one tick is left of the window: whoever waits for its end should learn of it soon, at every node */
#define CONNECT_MS     500
#define MAX_DELAY_MS   250
#define ATTACH_MS      200 /* attaching and putting back */
#define NODE_KEY_MS    4000
#define JUMP           1000000
#define HELD_MAX       65536
#define RERUNS_MAX     16
#define SPARE_RUNS_MAX 256
#define RIDER_ARGS     3
#define TAIL_MAX       (96 + PAWL_OWNER_MAX)
#define BATCH_MAX      64 /* plain calls in one run of a script */
#define KEY_HEAD_MAX   96

enum attachment { DETACHED, ATTACHING, READY };

struct run { /* one command on its way */
    struct redis_command command;
    struct redis_store *store;
    struct store_call *call; /* of a batch: the first of the chain by `next` */
    size_t count;            /* 0: not a batch */
    struct run *spare;
    bool whole_script; /* EVAL, after the server said NOSCRIPT */
};

struct redis_store {
    struct store seam;
    const struct clock *clock;
    struct redis_store_config config;
    struct store_events events;
    struct redis_link *link, *messages;
    struct redis_sentinel *sentinel; /* NULL: the Redis itself is named */
    struct redis_replicas *replicas; /* NULL: replicas are not waited for */

    char node[17];
    char key_incarnation[KEY_HEAD_MAX], key_fence[KEY_HEAD_MAX], key_node[KEY_HEAD_MAX], key_recovery[KEY_HEAD_MAX];
    char head_lock[KEY_HEAD_MAX], head_queue[KEY_HEAD_MAX], pattern_head[2 * KEY_HEAD_MAX];

    enum attachment attachment;
    bool stopped;
    bool failing; /* the last attempt to connect failed; right after a good connection was lost it is not yet known */
    char incarnation[256], identity[128];
    char fence_text[24], generation_text[24];
    int64_t ahead_ms; /* of the server's wall clock over our own clock: grants carry the server's time without asking it */
    int64_t fence;    /* g: the greatest ever seen in an answer */
    int64_t generation;
    bool window_open, last_tick; /* the second: one is left */
    const char *role;
    char refusal[160];

    struct redis_command attach, beat, loads[SCRIPT_COUNT];
    bool attach_sent, attach_whole, beat_sent, beat_whole;
    int64_t beat_at_us, heard_us, alarm_us;

    struct store_call *held, **held_last;
    size_t held_count;
    size_t calls_open;                        /* submitted and not done */
    struct store_call *failed, **failed_last; /* to be answered at the end of the turn */
    struct store_call *batch, **batch_last;   /* plain calls of this turn, not sent yet */
    size_t batch_count;
    struct run *spare;
    size_t spare_count;
    uint64_t attaches, openings, fence_raises, errors;
    struct log_gate gate;
};

static void send_call(struct redis_store *s, struct store_call *call, bool whole_script);
static void begin_attach(struct redis_store *s);

/* W - W/6 must exceed: a beat, the deadline of a beat in flight on a dead connection, a connection attempt, the longest delay between
 * attempts, attaching and putting back. With sentinels also how late this node learns what another may know already. */
int64_t redis_store_min_window_ms(int64_t timeout_ms, bool sentinels)
{
    int64_t sum = BEAT_MS + timeout_ms + (sentinels ? REDIS_SENTINEL_LEARN_MS : 0) + CONNECT_MS + MAX_DELAY_MS + ATTACH_MS;

    return sum * 6 / 5 + 1;
}

/* ---- what errors mean ---- */

static const struct {
    const char *code;
    const char *problem;
    bool drop; /* the connection is of no use any more */
} redis_errors[] = {
    {"NOSCRIPT", "Redis lost a script twice", false},
    {"LOADING", "Redis is loading its data", true},
    {"READONLY", "Redis is a read-only replica", true},
    {"MASTERDOWN", "Redis is a replica without its master", true},
    {"MISCONF", "Redis refuses writes: it cannot save to disk (MISCONF)", false},
    {"OOM", "Redis is out of memory (OOM)", false},
    {"NOAUTH", "Redis asks for a password (NOAUTH)", true},
    {"WRONGPASS", "Redis refused user or password (WRONGPASS)", true},
    {"The user executing the script can't", "Redis forbids this user a command or key (NOPERM)", false},
    {"NOPERM", "Redis forbids this user a command or key (NOPERM)", false},
    {"BUSY", "Redis is busy with a script (BUSY)", false},
    {"CLUSTERDOWN", "the Redis cluster is down (CLUSTERDOWN)", false},
    {"MOVED", "this Redis Cluster node does not hold pawl's keys (MOVED)", false},
    {"NOREPLICAS", "Redis has too few replicas (NOREPLICAS)", false},
    {"WRONGTYPE", "a key of pawl's holds a value of another type (WRONGTYPE)", false},
    {"max number of clients", "Redis accepts no more clients", true},
};

static const char *error_problem(const char *text, bool *ret_drop)
{
    size_t rows = sizeof(redis_errors) / sizeof(redis_errors[0]);

    *ret_drop = false;
    for (int anywhere = 0; anywhere < 2; anywhere++) { /* Redis before 7 wraps an error of a script in another */
        for (size_t i = 0; i < rows; i++) {
            size_t len = strlen(redis_errors[i].code);
            if (anywhere ? strstr(text, redis_errors[i].code) != NULL : strncmp(text, redis_errors[i].code, len) == 0) {
                *ret_drop = redis_errors[i].drop;
                return redis_errors[i].problem;
            }
        }
    }
    return "Redis refused the call";
}

static void complain(struct redis_store *s, const char *event, const char *problem, const char *answer)
{
    uint64_t left_out;

    s->errors++;
    if (log_gate_pass(&s->gate, clock_now_us(s->clock), &left_out))
        log_warn(event, LOG_STR("problem", problem), LOG_STR("answer", answer), LOG_INT("suppressed", left_out));
}

/* ---- finishing calls ---- */

static void set_alarm(struct redis_store *s, int64_t at_us)
{
    if (at_us < s->alarm_us) {
        s->alarm_us = at_us;
        redis_link_alarm(s->link, at_us);
    }
}

static void conclude(struct redis_store *s, struct store_call *call);

/* A rider that was granted hears of it before the release does: everybody is waiting for it, and nobody for the release. */
static void done(struct redis_store *s, struct store_call *call)
{
    struct store_call *rider = call->rider;

    if (rider) { /* a release that did its work has answered it; else it shares the release's fate */
        rider->sent_us = call->sent_us;
        rider->deadline_us = call->deadline_us;
        rider->reruns = 0;
        rider->may_have_run = false;
        if (call->result != STORE_DONE) {
            rider->result = call->result == STORE_UNKNOWN || call->result == STORE_UNAVAILABLE ? call->result : STORE_TURN;
            rider->problem = call->problem;
            rider->ret_ticket = rider->ticket;
            rider->ret_woken.text[0] = '\0';
        }
        s->calls_open++; /* from here on a call like any other */
        if (rider->result == STORE_DONE) {
            conclude(s, rider);
            rider = NULL;
        }
    }
    s->calls_open--;
    call->done(call);
    if (rider)
        conclude(s, rider);
}

/* Answers without anything having been done, at the end of the turn. */
static void fail_later(struct redis_store *s, struct store_call *call, const char *problem)
{
    call->result = call->may_have_run ? STORE_UNKNOWN : STORE_UNAVAILABLE;
    call->problem = problem;
    call->next = NULL;
    *s->failed_last = call;
    s->failed_last = &call->next;
    set_alarm(s, clock_now_us(s->clock));
}

static void answer_failed(struct redis_store *s)
{
    struct store_call *call = s->failed;

    s->failed = NULL;
    s->failed_last = &s->failed;
    while (call) {
        struct store_call *next = call->next;
        done(s, call);
        call = next;
    }
}

static void hold(struct redis_store *s, struct store_call *call)
{
    if (s->held_count >= HELD_MAX || s->stopped) {
        fail_later(s, call, s->stopped ? "this node is stopping" : "too many calls wait for Redis");
        return;
    }
    call->next = NULL;
    *s->held_last = call;
    s->held_last = &call->next;
    s->held_count++;
    set_alarm(s, call->deadline_us);
}

static struct store_call *take_held(struct redis_store *s)
{
    struct store_call *call = s->held;

    s->held = NULL;
    s->held_last = &s->held;
    s->held_count = 0;
    return call;
}

static void fail_held(struct redis_store *s, const char *problem)
{
    struct store_call *call = take_held(s);

    while (call) {
        struct store_call *next = call->next;
        fail_later(s, call, problem);
        call = next;
    }
}

static void send_held(struct redis_store *s)
{
    struct store_call *call = take_held(s);

    while (call) {
        struct store_call *next = call->next;
        send_call(s, call, false);
        call = next;
    }
}

/* Fails the held calls whose time is over. */
static void expire_held(struct redis_store *s, int64_t now)
{
    struct store_call *call = take_held(s);

    while (call) {
        struct store_call *next = call->next;
        if (call->deadline_us <= now)
            fail_later(s, call, s->attachment == ATTACHING ? "Redis did not answer in time" : redis_link_problem(s->link));
        else
            hold(s, call);
        call = next;
    }
}

/* ---- reading answers ---- */

/* An integer, or one that a script passed on as the text it is stored in; 0 for anything else. */
static int64_t number_at(const redisReply *reply, size_t i)
{
    const redisReply *element = i < reply->elements ? reply->element[i] : NULL;
    int64_t n = 0;

    if (element && element->type == REDIS_REPLY_INTEGER)
        return (int64_t)element->integer;
    if (!element || element->type != REDIS_REPLY_STRING || element->len == 0 || element->len > 16)
        return 0;
    for (size_t k = 0; k < (size_t)element->len; k++) {
        if (element->str[k] < '0' || element->str[k] > '9')
            return 0;
        n = n * 10 + (element->str[k] - '0');
    }
    return n;
}

/* Remaining times: a key that ends this very millisecond, or (never ours) has no end, has nothing left. */
static int64_t left_at(const redisReply *reply, size_t i)
{
    int64_t left = number_at(reply, i);

    return left < 0 ? 0 : left;
}

static const char *string_at(const redisReply *reply, size_t i, size_t *ret_len)
{
    if (i >= reply->elements || reply->element[i]->type != REDIS_REPLY_STRING) {
        *ret_len = 0;
        return "";
    }
    *ret_len = (size_t)reply->element[i]->len;
    return reply->element[i]->str;
}

static bool status_is(const redisReply *reply, const char *status)
{
    size_t len;
    const char *text = string_at(reply, 0, &len);

    return len == strlen(status) && memcmp(text, status, len) == 0;
}

static void read_owner(struct store_holder *holder, const redisReply *reply, size_t i)
{
    size_t len;
    const char *owner = string_at(reply, i, &len);

    holder->owner_len = len < PAWL_OWNER_MAX ? len : PAWL_OWNER_MAX;
    memcpy(holder->owner, owner, holder->owner_len);
    holder->owner[holder->owner_len] = '\0';
}

static void read_holder(struct store_holder *holder, const redisReply *reply, size_t i)
{
    holder->token = number_at(reply, i);
    holder->ttl_ms = left_at(reply, i + 1);
    holder->held_ms = left_at(reply, i + 2);
    read_owner(holder, reply, i + 3);
}

static void read_woken(struct store_call *call, const redisReply *reply, size_t i)
{
    size_t len;
    const char *id = string_at(reply, i, &len);

    call->ret_woken.text[0] = '\0';
    if (len == PAWL_LEASE_ID_LEN) {
        memcpy(call->ret_woken.text, id, len);
        call->ret_woken.text[len] = '\0';
    }
}

static void granted_as_asked(struct store_call *call, int64_t token)
{
    call->result = STORE_DONE;
    call->problem = "";
    call->ret_token = token;
    call->ret_confirm = call->confirm;
    call->ret_ttl_ms = call->ttl_ms;
    call->holder.owner_len = call->owner_len;
    memcpy(call->holder.owner, call->owner, call->owner_len);
}

/* A short answer means: as asked. */
static void read_lease(struct store_call *call, const redisReply *reply)
{
    if (reply->elements == 2) {
        granted_as_asked(call, number_at(reply, 1));
        return;
    }
    call->ret_token = number_at(reply, 2);
    call->ret_confirm = call->confirm;
    call->ret_ttl_ms = left_at(reply, 3);
    call->ret_granted_ms = number_at(reply, 4);
    read_owner(&call->holder, reply, 5);
}

static enum store_result read_acquire(struct store_call *call, const redisReply *reply)
{
    if (status_is(reply, "granted") || status_is(reply, "repeated")) {
        bool repeated = status_is(reply, "repeated");
        read_lease(call, reply);
        if (repeated)
            call->ret_confirm = call->repeat_confirm;
        return repeated ? STORE_REPEATED : STORE_DONE;
    }
    call->ret_ticket = number_at(reply, 2);
    call->ret_waiters = number_at(reply, 3);
    call->ret_woken.text[0] = '\0';
    if (status_is(reply, "held")) {
        read_holder(&call->holder, reply, 4);
        return STORE_HELD;
    }
    if (status_is(reply, "turn")) {
        read_woken(call, reply, 4);
        return STORE_TURN;
    }
    return status_is(reply, "full") ? STORE_FULL : STORE_UNKNOWN;
}

static enum store_result read_renew(struct store_call *call, const redisReply *reply)
{
    if (!status_is(reply, "renewed"))
        return STORE_UNKNOWN;
    read_lease(call, reply);
    return STORE_DONE;
}

static enum store_result read_release(struct store_call *call, const redisReply *reply)
{
    if (!status_is(reply, "released"))
        return STORE_UNKNOWN;
    call->ret_token = number_at(reply, 2);
    read_woken(call, reply, 3);
    if (call->rider) {
        call->rider->result = STORE_TURN;
        call->rider->ret_ticket = call->rider->ticket;
        call->rider->ret_woken.text[0] = '\0';
        if (number_at(reply, 4) > 0)
            granted_as_asked(call->rider, number_at(reply, 4));
    }
    return STORE_DONE;
}

static enum store_result read_check(struct store_call *call, const redisReply *reply)
{
    if (!status_is(reply, "held"))
        return STORE_UNKNOWN;
    call->ret_ttl_ms = left_at(reply, 2);
    return STORE_DONE;
}

static enum store_result read_break(struct store_call *call, const redisReply *reply)
{
    if (status_is(reply, "free"))
        return STORE_LOST;
    if (!status_is(reply, "broken"))
        return STORE_UNKNOWN;
    read_holder(&call->holder, reply, 2);
    read_woken(call, reply, 6);
    return STORE_DONE;
}

static enum store_result read_inspect(struct store_call *call, const redisReply *reply)
{
    if (!status_is(reply, "held") && !status_is(reply, "free"))
        return STORE_UNKNOWN;
    call->ret_recovering = number_at(reply, 2) != 0;
    call->ret_waiters = number_at(reply, 3);
    call->ret_position = number_at(reply, 4);
    read_holder(&call->holder, reply, 5);
    return STORE_DONE;
}

static enum store_result read_list(struct store_call *call, const redisReply *reply)
{
    size_t len;
    const char *cursor = string_at(reply, 2, &len);

    if (!status_is(reply, "page") || len == 0 || len > PAWL_CURSOR_MAX)
        return STORE_UNKNOWN;
    memcpy(call->cursor, cursor, len);
    call->cursor[len] = '\0';
    call->ret_recovering = number_at(reply, 3) != 0;
    for (size_t i = 4; i + 6 <= reply->elements; i += 6) {
        struct store_lock lock = {.token = number_at(reply, i + 1),
                                  .ttl_ms = left_at(reply, i + 2),
                                  .held_ms = left_at(reply, i + 3),
                                  .waiters = number_at(reply, i + 5)};
        lock.name = string_at(reply, i, &lock.name_len);
        lock.owner = string_at(reply, i + 4, &lock.owner_len);
        call->on_lock(call, &lock);
    }
    return STORE_DONE;
}

static enum store_result read_cancel(struct store_call *call, const redisReply *reply)
{
    if (!status_is(reply, "cancelled"))
        return STORE_UNKNOWN;
    call->ret_undone = number_at(reply, 2) != 0;
    read_woken(call, reply, 3);
    call->ret_waiters = number_at(reply, 4);
    read_holder(&call->holder, reply, 5);
    call->ret_own = number_at(reply, 9) != 0;
    return STORE_DONE;
}

static enum store_result read_put_back(struct store_call *call, const redisReply *reply)
{
    (void)call;
    return status_is(reply, "there") ? STORE_DONE : STORE_UNKNOWN;
}

/* ---- sending calls: one row an operation ---- */

static void add_int(struct redis_store *s, int64_t n)
{
    redis_link_arg_int(s->link, n);
}

static void add_str(struct redis_store *s, const char *text)
{
    redis_link_arg_str(s->link, text);
}

static int queue_word(const struct store_call *call)
{
    return !call->queue ? 0 : call->comes_back ? 2 : 1;
}

/* What the plain case asks of Redis is made here, where it is cheap: one string for the end of the lock's value. */
static size_t make_tail(struct redis_store *s, struct store_call *call, char *out, size_t cap)
{
    struct text tail;

    call->ret_granted_ms = clock_now_us(s->clock) / 1000 + s->ahead_ms;
    text_init(&tail, out, cap, cap);
    text_str(&tail, s->node);
    text_add(&tail, " ", 1);
    text_int(&tail, (int64_t)call->confirm);
    text_add(&tail, " ", 1);
    text_int(&tail, call->ret_granted_ms);
    text_add(&tail, " ", 1);
    text_add(&tail, call->owner, call->owner_len);
    return tail.len;
}

static void args_acquire(struct redis_store *s, struct store_call *call)
{
    char tail[TAIL_MAX], block[112];
    struct text place;

    add_str(s, call->lease_id.text);
    add_int(s, call->ttl_ms);
    redis_link_arg(s->link, tail, make_tail(s, call, tail, sizeof(tail)));
    text_init(&place, block, sizeof(block), sizeof(block));
    text_int(&place, queue_word(call));
    text_add(&place, " ", 1);
    text_int(&place, call->ticket);
    text_add(&place, " ", 1);
    text_int(&place, call->max_waiters);
    text_add(&place, " ", 1);
    text_int(&place, call->sweep_from);
    text_add(&place, " ", 1);
    text_int(&place, (int64_t)call->repeat_confirm);
    redis_link_arg(s->link, block, place.len);
}

/* What the lease table knows of a lease, for putting it back: "granted_ms owner". */
static void add_known_lease(struct redis_store *s, const struct store_call *call)
{
    char lease[32 + PAWL_OWNER_MAX];
    int len = snprintf(lease, sizeof(lease), "%" PRId64 " %.*s", call->granted_ms, (int)call->owner_len, call->owner);

    redis_link_arg(s->link, lease, (size_t)len);
}

static void args_renew(struct redis_store *s, struct store_call *call)
{
    add_str(s, call->lease_id.text);
    add_int(s, call->ttl_ms);
    add_str(s, s->node);
    add_int(s, (int64_t)call->confirm);
    add_int(s, call->token);
    add_known_lease(s, call);
}

static void args_release(struct redis_store *s, struct store_call *call)
{
    char tail[TAIL_MAX];

    add_str(s, call->lease_id.text);
    add_str(s, s->node);
    add_int(s, call->token);
    if (call->rider) {
        add_str(s, call->rider->lease_id.text);
        add_int(s, call->rider->ttl_ms);
        redis_link_arg(s->link, tail, make_tail(s, call->rider, tail, sizeof(tail)));
    }
}

static void args_check(struct redis_store *s, struct store_call *call)
{
    add_int(s, call->token);
}

static void args_break(struct redis_store *s, struct store_call *call)
{
    (void)call;
    add_str(s, s->node);
}

static void args_inspect(struct redis_store *s, struct store_call *call)
{
    add_str(s, call->lease_id.text);
}

static void args_list(struct redis_store *s, struct store_call *call)
{
    char pattern[2 * KEY_HEAD_MAX + PAWL_NAME_MAX + 2];
    int len = snprintf(pattern, sizeof(pattern), "%s%.*s*", s->pattern_head, (int)call->prefix_len, call->prefix);

    add_str(s, call->cursor);
    redis_link_arg(s->link, pattern, (size_t)len);
    add_int(s, call->look_at);
}

static void args_cancel(struct redis_store *s, struct store_call *call)
{
    add_str(s, call->lease_id.text);
    add_str(s, s->node);
    add_int(s, (int64_t)call->confirm);
    add_int(s, queue_word(call));
}

static void args_put_back(struct redis_store *s, struct store_call *call)
{
    add_str(s, call->lease_id.text);
    add_int(s, call->token);
    add_int(s, call->ttl_ms);
    add_str(s, s->node);
    add_int(s, (int64_t)call->confirm);
    add_known_lease(s, call);
    add_int(s, (int64_t)call->repeat_confirm);
}

static const struct call_row {
    enum redis_script_id script;
    size_t args; /* beside the three that every script gets */
    bool on_lock;
    bool repeatable; /* may be run twice */
    void (*write)(struct redis_store *s, struct store_call *call);
    enum store_result (*read)(struct store_call *call, const redisReply *reply);
} call_rows[] = {
    [STORE_ACQUIRE] = {SCRIPT_ACQUIRE, 4, true, true, args_acquire, read_acquire},
    [STORE_RENEW] = {SCRIPT_RENEW, 6, true, true, args_renew, read_renew},
    [STORE_RELEASE] = {SCRIPT_RELEASE, 3, true, false, args_release, read_release},
    [STORE_CHECK] = {SCRIPT_CHECK, 1, true, true, args_check, read_check},
    [STORE_BREAK] = {SCRIPT_BREAK, 1, true, false, args_break, read_break},
    [STORE_INSPECT] = {SCRIPT_INSPECT, 1, true, true, args_inspect, read_inspect},
    [STORE_LIST] = {SCRIPT_LIST, 3, false, true, args_list, read_list},
    [STORE_PUT_BACK] = {SCRIPT_PUT_BACK, 7, true, true, args_put_back, read_put_back},
    [STORE_CANCEL] = {SCRIPT_CANCEL, 4, true, true, args_cancel, read_cancel},
};

/* EVALSHA (or EVAL), the four common keys and, for a lock, its two; then the three common arguments. */
static void begin_script(struct redis_store *s, enum redis_script_id id, bool whole, size_t keys, size_t args)
{
    redis_link_begin(s->link, 3 + keys + args);
    add_str(s, whole ? "EVAL" : "EVALSHA");
    if (whole)
        redis_link_arg(s->link, redis_scripts[id].body, redis_scripts[id].body_len);
    else
        redis_link_arg(s->link, redis_scripts[id].sha1, 40);
    add_int(s, (int64_t)keys);
    add_str(s, s->key_incarnation);
    add_str(s, s->key_fence);
    add_str(s, s->key_node);
    add_str(s, s->key_recovery);
}

static void add_lock_key(struct redis_store *s, const char *head, const struct store_call *call)
{
    char key[KEY_HEAD_MAX + PAWL_NAME_MAX];
    size_t len = strlen(head);

    memcpy(key, head, len);
    memcpy(key + len, call->name, call->name_len);
    redis_link_arg(s->link, key, len + call->name_len);
}

static void add_attachment(struct redis_store *s)
{
    add_str(s, s->incarnation);
    add_str(s, s->fence_text);
    add_str(s, s->generation_text);
}

static struct run *take_run(struct redis_store *s)
{
    struct run *run = s->spare;

    if (!run)
        return calloc(1, sizeof(*run));
    s->spare = run->spare;
    s->spare_count--;
    return run;
}

static void give_run(struct redis_store *s, struct run *run)
{
    if (s->spare_count >= SPARE_RUNS_MAX) {
        free(run);
        return;
    }
    run->spare = s->spare;
    s->spare = run;
    s->spare_count++;
}

static void see_fence(struct redis_store *s, int64_t fence)
{
    struct text text;

    if (fence > s->fence && fence <= PAWL_TOKEN_MAX) {
        s->fence = fence;
        text_init(&text, s->fence_text, sizeof(s->fence_text) - 1, sizeof(s->fence_text) - 1);
        text_int(&text, fence);
        s->fence_text[text.len] = '\0';
    }
}

static void see_window(struct redis_store *s, int64_t ticks_left)
{
    s->window_open = ticks_left > 0;
    s->last_tick = ticks_left == 1;
}

/* The answer is none that this call is made of: whether it ran is not known. */
static void finish_error(struct redis_store *s, struct store_call *call, const redisReply *reply)
{
    bool drop;
    const char *text = reply->type == REDIS_REPLY_ERROR ? reply->str : "not an array";
    const char *problem = reply->type == REDIS_REPLY_ERROR ? error_problem(text, &drop) : "Redis gave an odd answer";

    complain(s, "store_error", problem, text);
    if (reply->type == REDIS_REPLY_ERROR && drop)
        redis_link_drop(s->link, problem);
    /* Redis refuses before a script's first write, or a write of it; the one that makes a lease is the last. A sentence unknown to the
     * table is no proof of that. */
    call->result = call->may_have_run || reply->type != REDIS_REPLY_ERROR || strcmp(problem, "Redis refused the call") == 0
                       ? STORE_UNKNOWN
                       : STORE_UNAVAILABLE;
    call->problem = problem;
    done(s, call);
}

static void rerun(struct redis_store *s, struct store_call *call)
{
    if (++call->reruns > RERUNS_MAX) {
        fail_later(s, call, "Redis changed too often during the call");
        return;
    }
    hold(s, call);
}

static void call_lost(struct redis_store *s, struct store_call *call);

/* A call that is told "you hold it" may first have to be in replicas. An answer read while this node attaches anew cannot be proved any more: it is run again
 * in the life to come. */
static void conclude(struct redis_store *s, struct store_call *call)
{
    bool holds = (call->op == STORE_ACQUIRE && (call->result == STORE_DONE || call->result == STORE_REPEATED)) ||
                 (call->op == STORE_RENEW && call->result == STORE_DONE);

    call->ret_replicas = 0;
    call->ret_fresh = false;
    if (!s->replicas || !holds)
        done(s, call);
    else if (s->attachment == READY)
        redis_replicas_add(s->replicas, call);
    else
        call_lost(s, call);
}

static void finish(struct redis_store *s, struct store_call *call, const redisReply *reply)
{
    static const char foreign[] = "a key that pawl did not write stands at this lock's name";

    see_fence(s, number_at(reply, 1));
    call->problem = "";
    if (status_is(reply, "recovering")) {
        call->ret_ticket = number_at(reply, 2);
        call->result = STORE_RECOVERING;
    } else if (status_is(reply, "lost")) {
        call->result = STORE_LOST;
    } else if (status_is(reply, "foreign")) {
        complain(s, "store_error", foreign, call->name);
        call->result = STORE_UNAVAILABLE;
        call->problem = foreign;
    } else if (status_is(reply, "exhausted")) {
        complain(s, "store_error", "the fence is exhausted", "");
        call->result = STORE_UNAVAILABLE;
        call->problem = "the fence is exhausted";
    } else {
        call->result = call_rows[call->op].read(call, reply);
        if (call->result == STORE_UNKNOWN) {
            call->problem = "Redis gave an odd answer";
            complain(s, "store_error", call->problem,
                     call_rows[call->op].script < SCRIPT_COUNT ? redis_scripts[call_rows[call->op].script].name : "");
        }
    }
    conclude(s, call);
}

static void call_lost(struct redis_store *s, struct store_call *call)
{
    call->may_have_run = true;
    if (call_rows[call->op].repeatable)
        rerun(s, call);
    else
        fail_later(s, call, "the connection to Redis was lost");
}

static void call_answered(struct redis_command *command, const redisReply *reply)
{
    struct run *run = (struct run *)command;
    struct redis_store *s = run->store;
    struct store_call *call = run->call;
    bool whole = run->whole_script;

    call->sent_us = command->sent_us;
    give_run(s, run);
    if (!reply) {
        call_lost(s, call);
        return;
    }
    if (s->events.answered)
        s->events.answered(s->events.arg, clock_now_us(s->clock) - call->sent_us);
    if (reply->type == REDIS_REPLY_ERROR && !whole && strncmp(reply->str, "NOSCRIPT", 8) == 0 && redis_link_can_send(s->link)) {
        send_call(s, call, true);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2) {
        finish_error(s, call, reply);
        return;
    }
    if (status_is(reply, "differs")) {
        rerun(s, call);
        begin_attach(s);
        return;
    }
    if (status_is(reply, "more")) {
        see_fence(s, number_at(reply, 1));
        if (++call->reruns <= RERUNS_MAX * 64 && redis_link_can_send(s->link))
            send_call(s, call, false);
        else
            fail_later(s, call, "the lock's queue is full of waiters that are gone");
        return;
    }
    finish(s, call, reply);
}

static void send_call(struct redis_store *s, struct store_call *call, bool whole_script)
{
    const struct call_row *row = &call_rows[call->op];
    struct run *run;

    if (!redis_link_can_send(s->link)) {
        hold(s, call);
        return;
    }
    run = take_run(s);
    if (!run) {
        fail_later(s, call, "out of memory");
        return;
    }
    run->store = s;
    run->call = call;
    run->count = 0;
    run->whole_script = whole_script;
    run->command.done = call_answered;
    begin_script(s, row->script, whole_script, row->on_lock ? 6 : 4, 3 + row->args + (call->rider ? RIDER_ARGS : 0));
    if (row->on_lock) {
        add_lock_key(s, s->head_lock, call);
        add_lock_key(s, s->head_queue, call);
    }
    add_attachment(s);
    row->write(s, call);
    redis_link_send(s->link, &run->command, call->deadline_us);
}

/* ---- plain calls, many at a time ---- */

static bool is_plain(const struct store_call *call)
{
    return (call->op == STORE_ACQUIRE && !call->queue && call->ticket == 0 && !call->contended) ||
           (call->op == STORE_RELEASE && !call->contended);
}

static void finish_plain(struct redis_store *s, struct store_call *call, int64_t token)
{
    granted_as_asked(call, token);
    if (call->op == STORE_RELEASE)
        call->ret_woken.text[0] = '\0';
    else
        see_fence(s, token);
    conclude(s, call);
}

static void send_batch(struct redis_store *s, struct store_call *calls, size_t count, bool whole_script);

/* The run of the whole batch failed, or says that the life of the data is another. */
static void batch_failed(struct redis_store *s, struct store_call *calls, const redisReply *reply)
{
    bool differs = reply && reply->type == REDIS_REPLY_ARRAY && status_is(reply, "differs");

    for (struct store_call *call = calls, *next; call; call = next) {
        next = call->next;
        if (!reply)
            call_lost(s, call);
        else if (differs)
            rerun(s, call);
        else
            finish_error(s, call, reply);
    }
    if (differs)
        begin_attach(s);
}

static void batch_answered(struct redis_command *command, const redisReply *reply)
{
    struct run *run = (struct run *)command;
    struct redis_store *s = run->store;
    struct store_call *calls = run->call;
    size_t count = run->count, i = 2;
    int64_t rtt_us = clock_now_us(s->clock) - command->sent_us;
    bool whole = run->whole_script;

    for (struct store_call *call = calls; call; call = call->next)
        call->sent_us = command->sent_us;
    give_run(s, run);
    if (reply && reply->type == REDIS_REPLY_ERROR && !whole && strncmp(reply->str, "NOSCRIPT", 8) == 0 && redis_link_can_send(s->link)) {
        send_batch(s, calls, count, true);
        return;
    }
    if (!reply || reply->type != REDIS_REPLY_ARRAY || !status_is(reply, "plain") || reply->elements != count + 2) {
        batch_failed(s, calls, reply);
        return;
    }
    see_fence(s, number_at(reply, 1));
    for (struct store_call *call = calls, *next; call; call = next, i++) {
        int64_t token = number_at(reply, i);
        next = call->next;
        if (s->events.answered)
            s->events.answered(s->events.arg, rtt_us);
        if (token > 0)
            finish_plain(s, call, token);
        else
            send_call(s, call, false);
    }
}

static void add_plain_args(struct redis_store *s, struct store_call *call)
{
    char tail[TAIL_MAX];

    add_str(s, call->lease_id.text);
    if (call->op == STORE_RELEASE) {
        add_str(s, "");
        add_str(s, s->node);
        return;
    }
    add_int(s, call->ttl_ms);
    redis_link_arg(s->link, tail, make_tail(s, call, tail, sizeof(tail)));
}

static void send_batch(struct redis_store *s, struct store_call *calls, size_t count, bool whole_script)
{
    struct run *run = take_run(s);
    int64_t deadline_us = INT64_MAX;

    if (!run) {
        for (struct store_call *call = calls, *next; call; call = next) {
            next = call->next;
            fail_later(s, call, "out of memory");
        }
        return;
    }
    run->store = s;
    run->call = calls;
    run->count = count;
    run->whole_script = whole_script;
    run->command.done = batch_answered;
    begin_script(s, SCRIPT_PLAIN, whole_script, 4 + 2 * count, 3 + 3 * count);
    for (struct store_call *call = calls; call; call = call->next)
        add_lock_key(s, s->head_lock, call);
    for (struct store_call *call = calls; call; call = call->next)
        add_lock_key(s, s->head_queue, call);
    add_attachment(s);
    for (struct store_call *call = calls; call; call = call->next) {
        add_plain_args(s, call);
        deadline_us = call->deadline_us < deadline_us ? call->deadline_us : deadline_us;
    }
    redis_link_send(s->link, &run->command, deadline_us);
}

static struct store_call *take_batch(struct redis_store *s, size_t *ret_count)
{
    struct store_call *calls = s->batch;

    *ret_count = s->batch_count;
    s->batch = NULL;
    s->batch_last = &s->batch;
    s->batch_count = 0;
    return calls;
}

static void flush_batch(struct redis_store *s)
{
    size_t count;
    struct store_call *calls = take_batch(s, &count);

    if (count == 1)
        send_call(s, calls, false);
    else if (count > 1)
        send_batch(s, calls, count, false);
}

/* The connection or the life of the data ended before they were sent. */
static void hold_batch(struct redis_store *s)
{
    size_t count;

    for (struct store_call *call = take_batch(s, &count), *next; call; call = next) {
        next = call->next;
        hold(s, call);
    }
}

static void on_turn(void *arg)
{
    flush_batch(arg);
}

static void add_to_batch(struct redis_store *s, struct store_call *call)
{
    call->next = NULL;
    *s->batch_last = call;
    s->batch_last = &call->next;
    if (s->batch_count++ == 0)
        redis_link_turn(s->link);
    if (s->batch_count == BATCH_MAX)
        flush_batch(s);
}

static void submit(struct store *seam, struct store_call *call)
{
    struct redis_store *s = (struct redis_store *)seam;

    call->reruns = 0;
    call->may_have_run = false;
    s->calls_open++;
    if (s->stopped) {
        fail_later(s, call, "this node is stopping");
    } else if (s->attachment == READY && redis_link_can_send(s->link)) {
        if (is_plain(call)) {
            add_to_batch(s, call);
        } else {
            flush_batch(s);
            send_call(s, call, false);
        }
    } else if (s->attachment == READY && redis_link_is_open(s->link)) {
        fail_later(s, call, "too many calls wait for Redis");
    } else if (s->attachment == DETACHED && s->refusal[0]) {
        fail_later(s, call, s->refusal);
    } else if (s->attachment == DETACHED && s->failing) {
        fail_later(s, call, redis_link_problem(s->link));
    } else {
        hold(s, call);
    }
}

/* ---- attach ---- */

static void detach(struct redis_store *s)
{
    bool was_ready = s->attachment == READY;

    s->attachment = DETACHED;
    if (s->sentinel)
        redis_sentinel_settled(s->sentinel, false);
    if (s->replicas) {
        for (struct store_call *call = redis_replicas_end(s->replicas), *next; call; call = next) {
            next = call->next;
            call_lost(s, call);
        }
    }
    if (was_ready && s->events.detached)
        s->events.detached(s->events.arg);
}

/* The server is there but can't be used: say why, and look again after the link's back-off. */
static void attach_refused(struct redis_store *s, const char *problem, const char *answer)
{
    if (problem != s->refusal)
        snprintf(s->refusal, sizeof(s->refusal), "%s", problem);
    complain(s, "attach_refused", s->refusal, answer);
    detach(s);
    fail_held(s, s->refusal);
    redis_link_drop(s->link, s->refusal);
}

static void explain_refusal(struct redis_store *s, const redisReply *reply)
{
    char text[160];
    size_t len;
    const char *detail = string_at(reply, 2, &len);

    if (status_is(reply, "not_master")) {
        s->role = len == 5 && memcmp(detail, "slave", 5) == 0 ? "replica" : "unknown";
        if (s->sentinel)
            redis_sentinel_refused(s->sentinel);
        attach_refused(s, "Redis is not a master", "");
    } else if (status_is(reply, "loading")) {
        attach_refused(s, "Redis is loading its data", "");
    } else if (status_is(reply, "no_identity")) {
        attach_refused(s, "this server tells no run_id or master_replid", "");
    } else if (status_is(reply, "evicts")) {
        snprintf(text, sizeof(text), "Redis may evict keys (maxmemory-policy %.*s); set noeviction, or accept it with --allow-eviction",
                 (int)(len < 40 ? len : 40), detail);
        attach_refused(s, text, "");
    } else if (status_is(reply, "bad_fence")) {
        attach_refused(s, "the stored fence is damaged or out of range", "");
    } else if (status_is(reply, "others")) {
        attach_refused(s, "other nodes use this Redis: a recovery window is needed (--recovery-window)", "");
    } else {
        attach_refused(s, "Redis gave an odd answer", "");
    }
}

static bool take_incarnation(struct redis_store *s, const redisReply *reply, bool *ret_new_life)
{
    size_t len, identity_len;
    const char *incarnation = string_at(reply, 2, &len), *identity = string_at(reply, 3, &identity_len);

    if (len == 0 || len >= sizeof(s->incarnation) || identity_len == 0 || identity_len >= sizeof(s->identity))
        return false;
    *ret_new_life = strlen(s->incarnation) != len || memcmp(s->incarnation, incarnation, len) != 0;
    memcpy(s->incarnation, incarnation, len);
    s->incarnation[len] = '\0';
    memcpy(s->identity, identity, identity_len);
    s->identity[identity_len] = '\0';
    return true;
}

static void attached(struct redis_store *s, const redisReply *reply)
{
    bool new_life = false, opened = number_at(reply, 4) != 0;
    int64_t now = clock_now_us(s->clock);

    if (!take_incarnation(s, reply, &new_life)) {
        attach_refused(s, "Redis gave an odd answer", "incarnation");
        return;
    }
    see_fence(s, number_at(reply, 1));
    s->attachment = READY;
    s->refusal[0] = '\0';
    s->role = "master";
    see_window(s, number_at(reply, 5));
    s->ahead_ms = number_at(reply, 7) - now / 1000;
    s->attaches++;
    s->openings += opened;
    s->fence_raises += number_at(reply, 6) != 0;
    log_info("attached", LOG_STR("address", redis_link_address(s->link)), LOG_STR("opened", opened ? "yes" : "no"),
             LOG_INT("fence", s->fence), LOG_INT("ticks", number_at(reply, 5)));
    s->heard_us = now;
    s->beat_at_us = now;
    set_alarm(s, now);
    redis_link_start(s->messages);
    if (s->sentinel)
        redis_sentinel_settled(s->sentinel, true);
    if (s->replicas)
        redis_replicas_begin(s->replicas);
    if (s->events.attached)
        s->events.attached(s->events.arg, new_life, s->window_open);
    send_held(s);
}

static void send_attach(struct redis_store *s, bool whole);

/* A new server may not have the scripts. Loading them first keeps calls in order: one that is sent again after a NOSCRIPT comes behind those that
 * were sent after it. A server that refuses costs nothing but that. */
static void load_answered(struct redis_command *command, const redisReply *reply)
{
    (void)command;
    (void)reply;
}

static void load_scripts(struct redis_store *s)
{
    for (int i = 0; i < SCRIPT_COUNT; i++) {
        redis_link_begin(s->link, 3);
        add_str(s, "SCRIPT");
        add_str(s, "LOAD");
        redis_link_arg(s->link, redis_scripts[i].body, redis_scripts[i].body_len);
        s->loads[i].done = load_answered;
        redis_link_send(s->link, &s->loads[i], clock_now_us(s->clock) + s->config.timeout_ms * 1000);
    }
}

static void attach_answered(struct redis_command *command, const redisReply *reply)
{
    struct redis_store *s = (struct redis_store *)((char *)command - offsetof(struct redis_store, attach));
    bool drop;

    s->attach_sent = false;
    if (!reply || s->attachment != ATTACHING)
        return; /* the link is going down and says so itself */
    if (reply->type == REDIS_REPLY_ERROR && !s->attach_whole && strncmp(reply->str, "NOSCRIPT", 8) == 0)
        send_attach(s, true);
    else if (reply->type == REDIS_REPLY_ERROR)
        attach_refused(s, error_problem(reply->str, &drop), reply->str);
    else if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2)
        attach_refused(s, "Redis gave an odd answer", "not an array");
    else if (status_is(reply, "attached"))
        attached(s, reply);
    else
        explain_refusal(s, reply);
}

static void send_attach(struct redis_store *s, bool whole)
{
    struct lease_id uuid;

    lease_id_generate(&uuid);
    s->attach_sent = true;
    s->attach_whole = whole;
    s->attach.done = attach_answered;
    begin_script(s, SCRIPT_ATTACH, whole, 4, 8);
    add_attachment(s);
    add_str(s, uuid.text);
    add_int(s, s->config.window_ms);
    add_int(s, JUMP);
    add_int(s, NODE_KEY_MS);
    add_str(s, s->config.allow_eviction ? "1" : "0");
    redis_link_send(s->link, &s->attach, clock_now_us(s->clock) + s->config.timeout_ms * 1000);
}

static void begin_attach(struct redis_store *s)
{
    if (s->attachment == ATTACHING || !redis_link_is_open(s->link))
        return;
    detach(s);
    hold_batch(s);
    s->attachment = ATTACHING;
    s->generation++;
    snprintf(s->generation_text, sizeof(s->generation_text), "%lld", (long long)s->generation);
    send_attach(s, false);
}

/* ---- beat ---- */

static void send_beat(struct redis_store *s, bool whole);

static int64_t beat_interval_us(const struct redis_store *s)
{
    int64_t tick = s->config.window_ms / 6, beats = (tick + BEAT_MS - 1) / BEAT_MS;

    if (!s->window_open || beats < 1)
        return BEAT_MS * 1000;
    if (s->last_tick && tick / beats > LAST_BEAT_MS)
        return LAST_BEAT_MS * 1000;
    return (tick / beats + 1) * 1000; /* a whole number of beats is a tick and a little more: none comes just too early for its tick */
}

static void beat_answered(struct redis_command *command, const redisReply *reply)
{
    struct redis_store *s = (struct redis_store *)((char *)command - offsetof(struct redis_store, beat));
    bool drop = false, was_open = s->window_open;

    s->beat_sent = false;
    if (!reply || s->attachment != READY)
        return;
    if (reply->type == REDIS_REPLY_ERROR && !s->beat_whole && strncmp(reply->str, "NOSCRIPT", 8) == 0) {
        send_beat(s, true);
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        const char *problem = error_problem(reply->str, &drop);
        complain(s, "beat_failed", problem, reply->str);
        if (drop)
            redis_link_drop(s->link, problem);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2)
        return;
    if (status_is(reply, "differs")) {
        begin_attach(s);
        return;
    }
    see_fence(s, number_at(reply, 1));
    see_window(s, number_at(reply, 2));
    s->ahead_ms = number_at(reply, 3) - clock_now_us(s->clock) / 1000;
    if (was_open && !s->window_open) {
        log_info("window_closed", LOG_INT("fence", s->fence));
        if (s->events.window_closed)
            s->events.window_closed(s->events.arg);
    }
}

static void send_beat(struct redis_store *s, bool whole)
{
    s->beat_sent = true;
    s->beat_whole = whole;
    s->beat.done = beat_answered;
    begin_script(s, SCRIPT_BEAT, whole, 4, 6);
    add_attachment(s);
    add_str(s, s->identity);
    add_int(s, NODE_KEY_MS);
    add_str(s, s->node);
    redis_link_send(s->link, &s->beat, clock_now_us(s->clock) + s->config.timeout_ms * 1000);
}

/* The messages' connection is judged by our own beats coming back through it. */
static void beat(struct redis_store *s, int64_t now)
{
    if (redis_link_is_open(s->messages) && now - s->heard_us > 4 * BEAT_MS * 1000 + s->config.timeout_ms * 1000) {
        redis_link_drop(s->messages, "no message came through");
        s->heard_us = now;
    }
    if (!s->beat_sent && redis_link_can_send(s->link))
        send_beat(s, false);
    s->beat_at_us = now + beat_interval_us(s);
}

static void on_alarm(void *arg)
{
    struct redis_store *s = arg;
    int64_t now = clock_now_us(s->clock);

    s->alarm_us = INT64_MAX;
    if (s->held)
        expire_held(s, now);
    answer_failed(s);
    if (s->attachment == READY && !s->stopped) {
        if (now >= s->beat_at_us)
            beat(s, now);
        set_alarm(s, s->beat_at_us);
    }
}

/* ---- replicas ---- */

/* The write that the WAIT stands behind is a beat: it checks that the data and the server are those that the calls were answered by. */
static void write_mark(void *arg, struct redis_link *link, bool again)
{
    struct redis_store *s = arg;
    const char *const keys[] = {s->key_incarnation, s->key_fence, s->key_node, s->key_recovery};
    const char *const args[] = {s->incarnation, s->fence_text, s->generation_text, s->identity};

    redis_link_begin(link, 13);
    redis_link_arg_str(link, again ? "EVAL" : "EVALSHA");
    if (again)
        redis_link_arg(link, redis_scripts[SCRIPT_BEAT].body, redis_scripts[SCRIPT_BEAT].body_len);
    else
        redis_link_arg(link, redis_scripts[SCRIPT_BEAT].sha1, 40);
    redis_link_arg_int(link, 4);
    for (size_t i = 0; i < 4; i++)
        redis_link_arg_str(link, keys[i]);
    for (size_t i = 0; i < 4; i++)
        redis_link_arg_str(link, args[i]);
    redis_link_arg_int(link, NODE_KEY_MS);
    redis_link_arg_str(link, s->node);
}

static enum replica_mark read_mark(void *arg, const redisReply *reply)
{
    struct redis_store *s = arg;
    bool drop;

    if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) == 0)
        return REPLICA_MARK_AGAIN;
    if (reply->type == REDIS_REPLY_ERROR)
        complain(s, "store_error", error_problem(reply->str, &drop), reply->str);
    else if (reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2)
        return status_is(reply, "beat") ? REPLICA_MARK_DONE : REPLICA_MARK_DIFFERS;
    return REPLICA_MARK_FAILED;
}

static void on_mark_differs(void *arg)
{
    begin_attach(arg);
}

static void on_proved(void *arg, struct store_call *call, int64_t replicas)
{
    struct redis_store *s = arg;

    call->ret_replicas = replicas;
    if (replicas < s->config.min_replicas) {
        call->ret_fresh = call->op == STORE_ACQUIRE && call->result == STORE_DONE;
        call->result = STORE_NOT_REPLICATED;
    }
    done(s, call);
}

/* ---- sentinels ---- */

static void on_address(void *arg, const char *host, int port)
{
    struct redis_store *s = arg;

    redis_link_set_address(s->link, host, port);
    redis_link_set_address(s->messages, host, port);
    if (s->replicas)
        redis_replicas_set_address(s->replicas, host, port);
}

/* ---- what the two connections tell ---- */

static void on_up(void *arg)
{
    struct redis_store *s = arg;

    s->failing = false;
    load_scripts(s);
    begin_attach(s);
}

static void on_down(void *arg, const char *problem, bool was_up)
{
    struct redis_store *s = arg;

    redis_link_stop(s->messages);
    s->attach_sent = s->beat_sent = false;
    detach(s);
    hold_batch(s);
    s->failing = !was_up;
    if (!was_up) {
        s->refusal[0] = '\0';
        fail_held(s, problem);
    }
}

/* "WORD LEASE_ID NAME": is this one with that word? */
static bool message_is(const char *word, const char *text, size_t len, struct lease_id *ret_id, const char **ret_name, size_t *ret_len)
{
    size_t head = strlen(word) + 1, name = head + PAWL_LEASE_ID_LEN + 1;

    if (len <= name || memcmp(text, word, head - 1) != 0 || text[head - 1] != ' ' || text[name - 1] != ' ')
        return false;
    *ret_name = text + name;
    *ret_len = len - name;
    return lease_id_parse(text + head, PAWL_LEASE_ID_LEN, ret_id) == 0;
}

/* What a forget has before the name: the number that the lease stood under, and a blank. */
static bool take_number(const char **name, size_t *len, uint64_t *ret_number)
{
    uint64_t number = 0;
    size_t at = 0;

    for (; at < *len && at < 19 && (*name)[at] >= '0' && (*name)[at] <= '9'; at++)
        number = number * 10 + (uint64_t)((*name)[at] - '0');
    if (at == 0 || at + 1 >= *len || (*name)[at] != ' ')
        return false;
    *name += at + 1;
    *len -= at + 1;
    *ret_number = number;
    return true;
}

/* A wake, a forget, or our own beat. */
static void on_message(struct redis_store *s, const char *text, size_t len)
{
    struct lease_id id;
    const char *name;
    size_t name_len;
    uint64_t confirm;

    s->heard_us = clock_now_us(s->clock);
    if (message_is("wake", text, len, &id, &name, &name_len)) {
        if (s->events.wake)
            s->events.wake(s->events.arg, &id, name, name_len);
    } else if (message_is("forget", text, len, &id, &name, &name_len) && take_number(&name, &name_len, &confirm)) {
        if (s->events.forget)
            s->events.forget(s->events.arg, &id, confirm, name, name_len);
    }
}

static void on_push(void *arg, const redisReply *reply)
{
    struct redis_store *s = arg;
    size_t len;
    const char *text;

    if (reply->type == REDIS_REPLY_ERROR) {
        complain(s, "messages_refused", "Redis refused the subscription", reply->str);
        redis_link_drop(s->messages, "Redis refused the subscription");
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3)
        return;
    text = string_at(reply, 2, &len);
    if (status_is(reply, "message"))
        on_message(s, text, len);
    else if (status_is(reply, "subscribe") && s->events.missed)
        s->events.missed(s->events.arg);
}

static void on_messages_up(void *arg)
{
    struct redis_store *s = arg;

    s->heard_us = clock_now_us(s->clock);
    redis_link_begin(s->messages, 2);
    redis_link_arg_str(s->messages, "SUBSCRIBE");
    redis_link_arg_str(s->messages, s->key_node);
    redis_link_send_silent(s->messages);
}

/* ---- start and stop ---- */

static void status(const struct store *seam, struct store_status *ret)
{
    const struct redis_store *s = (const struct redis_store *)seam;

    ret->ready = s->attachment == READY;
    ret->window_open = s->window_open;
    ret->problem = ret->ready                       ? ""
                   : s->refusal[0]                  ? s->refusal
                   : redis_link_problem(s->link)[0] ? redis_link_problem(s->link)
                                                    : "not attached yet";
    ret->address = redis_link_address(s->link);
    ret->role = ret->ready ? "master" : s->role;
    ret->incarnation = s->incarnation;
    ret->fence = s->fence;
    ret->pending = s->calls_open;
    ret->connects = redis_link_connects(s->link) + redis_link_connects(s->messages);
    if (s->sentinel)
        ret->connects += redis_sentinel_connects(s->sentinel);
    if (s->replicas)
        ret->connects += redis_replicas_connects(s->replicas);
    ret->attaches = s->attaches;
    ret->openings = s->openings;
    ret->fence_raises = s->fence_raises;
    ret->errors = s->errors;
}

static const struct store_ops redis_store_ops = {.takes_riders = true, .submit = submit, .status = status};

/* A prefix may hold characters that mean something in a glob. */
static void make_pattern(struct redis_store *s)
{
    char *out = s->pattern_head;

    for (const char *in = s->head_lock; *in; in++) {
        if (strchr("*?[]\\", *in))
            *out++ = '\\';
        *out++ = *in;
    }
    *out = '\0';
}

static void make_keys(struct redis_store *s, const char *prefix)
{
    static const size_t cap = KEY_HEAD_MAX;
    uint64_t random = 0;

    if (getrandom(&random, sizeof(random), 0) < 0)
        random = (uint64_t)clock_now_us(s->clock);
    snprintf(s->node, sizeof(s->node), "%016llx", (unsigned long long)random);
    snprintf(s->key_incarnation, cap, "%.64s{0}:incarnation", prefix);
    snprintf(s->key_fence, cap, "%.64s{0}:fence", prefix);
    snprintf(s->key_recovery, cap, "%.64s{0}:recovery", prefix);
    snprintf(s->key_node, cap, "%.64s{0}:node:%s", prefix, s->node);
    snprintf(s->head_lock, cap, "%.64s{0}:lock:", prefix);
    snprintf(s->head_queue, cap, "%.64s{0}:queue:", prefix);
    make_pattern(s);
}

/* What only some configurations have. False without memory. */
static bool make_extras(struct redis_store *s, struct event_base *base, const struct redis_store_config *config)
{
    const struct redis_sentinel_config sentinel = {.url = config->url,
                                                   .user = config->sentinel_user,
                                                   .password = config->sentinel_password,
                                                   .tls = config->tls,
                                                   .timeout_ms = config->timeout_ms};
    const struct redis_replicas_config replicas = {.url = config->url,
                                                   .min = config->min_replicas,
                                                   .timeout_ms = config->replica_timeout_ms,
                                                   .tls = config->tls,
                                                   .command_timeout_ms = config->timeout_ms};
    const struct redis_replicas_callbacks callbacks = {
        .arg = s, .mark = write_mark, .marked = read_mark, .differs = on_mark_differs, .proved = on_proved};

    if (config->url.sentinel_count > 0)
        s->sentinel = redis_sentinel_new(base, s->clock, &sentinel, on_address, s);
    if (config->min_replicas > 0)
        s->replicas = redis_replicas_new(base, s->clock, &replicas, &callbacks);
    return (config->url.sentinel_count == 0 || s->sentinel) && (config->min_replicas == 0 || s->replicas);
}

struct redis_store *redis_store_new(struct event_base *base, const struct clock *clock, const struct redis_store_config *config,
                                    const struct store_events *events)
{
    struct redis_store *s = calloc(1, sizeof(*s));
    struct redis_link_config link_config = {.url = config->url, .label = "commands", .max_delay_ms = MAX_DELAY_MS, .tls = config->tls};
    struct redis_link_callbacks callbacks = {.up = on_up, .down = on_down, .alarm = on_alarm, .turn = on_turn};
    struct redis_link_callbacks message_callbacks = {.up = on_messages_up, .push = on_push};

    if (!s)
        return NULL;
    s->seam.ops = &redis_store_ops;
    s->clock = clock;
    s->config = *config;
    s->config.key_prefix = s->config.sentinel_user = s->config.sentinel_password = NULL;
    s->events = *events;
    s->role = "unknown";
    s->alarm_us = INT64_MAX;
    s->held_last = &s->held;
    s->failed_last = &s->failed;
    s->batch_last = &s->batch;
    snprintf(s->fence_text, sizeof(s->fence_text), "0");
    snprintf(s->generation_text, sizeof(s->generation_text), "0");
    make_keys(s, config->key_prefix);
    callbacks.arg = message_callbacks.arg = s;
    link_config.connect_timeout_ms = config->timeout_ms < CONNECT_MS ? config->timeout_ms : CONNECT_MS;
    s->link = redis_link_new(base, clock, &link_config, &callbacks);
    link_config.label = "messages";
    s->messages = redis_link_new(base, clock, &link_config, &message_callbacks);
    if (!s->link || !s->messages || !make_extras(s, base, config)) {
        redis_store_free(s);
        return NULL;
    }
    if (s->sentinel)
        redis_sentinel_start(s->sentinel);
    redis_link_start(s->link);
    return s;
}

struct store *redis_store_seam(struct redis_store *s)
{
    return &s->seam;
}

const char *redis_store_node(const struct redis_store *s)
{
    return s->node;
}

void redis_store_stop(struct redis_store *s)
{
    s->stopped = true;
    if (s->sentinel)
        redis_sentinel_stop(s->sentinel);
    redis_link_stop(s->messages);
    redis_link_stop(s->link);
    detach(s);
    hold_batch(s);
    fail_held(s, "this node is stopping");
}

void redis_store_free(struct redis_store *s)
{
    if (!s)
        return;
    redis_link_free(s->link);
    redis_link_free(s->messages);
    redis_sentinel_free(s->sentinel);
    redis_replicas_free(s->replicas);
    while (s->spare) {
        struct run *next = s->spare->spare;
        free(s->spare);
        s->spare = next;
    }
    free(s);
}
