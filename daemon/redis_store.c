/* The life of the attachment:
 *
 *                       link up                      'attached'
 *     DETACHED ───────────────────► ATTACHING ─────────────────────► READY
 *         ▲                          │  ▲                             │
 *         │ refused, or link down    │  └───────── 'differs' ─────────┤
 *         └──────────────────────────┴────────────── link down ───────┘
 *
 * READY      calls are sent, as many at one time as Redis can be expected to answer soon; the others wait for their turn.
 * ATTACHING  calls are held, in order, until their deadline. After a 'differs' the attach goes out on the same connection, behind what is
 *            in flight there: those answers come first, so none is read in another life than the one it was sent in.
 * DETACHED   right after a connection that worked was lost, calls are held too, until the next attempt ends; after a failed attempt they
 *            fail at once, so that nobody hangs while Redis is away.
 *
 * What becomes of a call on its way is told in redis_calls.h; here stands which of the three it is.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "daemon/log.h"
#include "daemon/redis_answer.h"
#include "daemon/redis_calls.h"
#include "daemon/redis_hints.h"
#include "daemon/redis_life.h"
#include "daemon/redis_link.h"
#include "daemon/redis_replicas.h"
#include "daemon/redis_script.h"
#include "daemon/redis_sentinel.h"

#define BEAT_MS      500
#define LAST_BEAT_MS 100 /* while one tick is left of the window: whoever waits for its end should learn of it soon, at every node */
#define CONNECT_MS   500
#define MAX_DELAY_MS 250
#define ATTACH_MS    200 /* attaching and putting back */
#define NODE_KEY_MS  4000
#define JUMP         1000000

enum attachment { DETACHED, ATTACHING, READY };

struct redis_store {
    struct store seam;
    const struct clock *clock;
    struct redis_store_config config;
    struct store_events events;
    struct redis_life life;
    struct redis_complaints complaints;
    struct redis_link *link;
    struct busy_poll *busy_poll;
    struct redis_calls *calls;
    struct redis_hints *hints;
    struct redis_sentinel *sentinel; /* NULL: the Redis itself is named */
    struct redis_replicas *replicas; /* NULL: replicas are not waited for */

    enum attachment attachment;
    bool stopped;
    bool failing;                /* the last attempt to connect failed; right after a good connection was lost it is not yet known */
    bool window_open, last_tick; /* the second: one is left */
    const char *role;
    char refusal[160];

    struct redis_command attach, beat, loads[SCRIPT_COUNT];
    bool attach_sent, attach_whole, beat_sent, beat_whole;
    int64_t beat_at_us, alarm_us;
    uint64_t attaches, openings, fence_raises;
};

/* W - W/6 must exceed: a beat, the deadline of a beat in flight on a dead connection, a connection attempt, the longest delay between
 * attempts, attaching and putting back. With sentinels also how late this node learns what another may know already. */
int64_t redis_store_min_window_ms(int64_t timeout_ms, bool sentinels)
{
    int64_t sum = BEAT_MS + timeout_ms + (sentinels ? REDIS_SENTINEL_LEARN_MS : 0) + CONNECT_MS + MAX_DELAY_MS + ATTACH_MS;

    return sum * 6 / 5 + 1;
}

/* ---- calls ---- */

static void set_alarm(void *arg, int64_t at_us)
{
    struct redis_store *s = arg;

    if (at_us < s->alarm_us) {
        s->alarm_us = at_us;
        redis_link_alarm(s->link, at_us);
    }
}

static void on_turn(void *arg)
{
    redis_calls_turn(((struct redis_store *)arg)->calls);
}

static void on_answered(void *arg, int64_t us)
{
    struct redis_store *s = arg;

    if (s->events.answered)
        s->events.answered(s->events.arg, us);
}

/* Why calls cannot be sent. The link has no problem while it is open: then it is the attaching that did not succeed yet. */
static const char *why_held(const struct redis_store *s)
{
    const char *problem = redis_link_problem(s->link);

    return problem[0] && s->attachment != ATTACHING ? problem : "Redis did not answer in time";
}

static void submit(struct store *seam, struct store_call *call)
{
    struct redis_store *s = (struct redis_store *)seam;

    redis_calls_take(s->calls, call);
    if (s->stopped)
        redis_calls_fail(s->calls, call, "this node is stopping");
    else if (s->attachment == DETACHED && s->refusal[0])
        redis_calls_fail(s->calls, call, s->refusal);
    else if (s->attachment == DETACHED && s->failing)
        redis_calls_fail(s->calls, call, why_held(s));
    else
        redis_calls_send(s->calls, call);
}

static void on_done_late(void *arg, const struct store_call *call)
{
    struct redis_store *s = arg;

    if (s->events.done_late)
        s->events.done_late(s->events.arg, call);
}

/* ---- attach ---- */

static void see_window(struct redis_store *s, int64_t ticks_left)
{
    s->window_open = ticks_left > 0;
    s->last_tick = ticks_left == 1;
}

static void detach(struct redis_store *s)
{
    bool was_ready = s->attachment == READY;

    s->attachment = DETACHED;
    if (s->sentinel)
        redis_sentinel_settled(s->sentinel, false);
    if (s->replicas) {
        for (struct store_call *call = redis_replicas_end(s->replicas), *next; call; call = next) {
            next = call->next;
            redis_calls_lost(s->calls, call);
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
    redis_complain(&s->complaints, "attach_refused", s->refusal, answer);
    detach(s);
    redis_calls_fail_waiting(s->calls, s->refusal);
    redis_link_drop(s->link, s->refusal);
}

static void explain_refusal(struct redis_store *s, const redisReply *reply)
{
    char text[160];
    size_t len;
    const char *detail = redis_answer_text(reply, 2, &len);

    if (redis_answer_is(reply, "not_master")) {
        s->role = len == 5 && memcmp(detail, "slave", 5) == 0 ? "replica" : "unknown";
        if (s->sentinel)
            redis_sentinel_refused(s->sentinel);
        attach_refused(s, "Redis is not a master: write the master, or its sentinels, into the URL", "");
    } else if (redis_answer_is(reply, "loading")) {
        attach_refused(s, "Redis is loading its data", "");
    } else if (redis_answer_is(reply, "no_identity")) {
        attach_refused(s, "this server tells no run_id or master_replid", "");
    } else if (redis_answer_is(reply, "evicts")) {
        snprintf(text, sizeof(text), "Redis may evict keys (maxmemory-policy %.*s); set noeviction, or accept it with --allow-eviction",
                 (int)(len < 40 ? len : 40), detail);
        attach_refused(s, text, "");
    } else if (redis_answer_is(reply, "bad_fence")) {
        attach_refused(s, "the stored fence is damaged or out of range", "");
    } else if (redis_answer_is(reply, "others")) {
        attach_refused(s, "other nodes use this Redis: a recovery window is needed (--recovery-window)", "");
    } else {
        attach_refused(s, "Redis gave an odd answer", "");
    }
}

static bool take_incarnation(struct redis_store *s, const redisReply *reply, bool *ret_new_life)
{
    size_t len, identity_len;
    const char *incarnation = redis_answer_text(reply, 2, &len), *identity = redis_answer_text(reply, 3, &identity_len);

    if (len == 0 || len >= sizeof(s->life.incarnation) || identity_len == 0 || identity_len >= sizeof(s->life.identity))
        return false;
    *ret_new_life = strlen(s->life.incarnation) != len || memcmp(s->life.incarnation, incarnation, len) != 0;
    memcpy(s->life.incarnation, incarnation, len);
    s->life.incarnation[len] = '\0';
    memcpy(s->life.identity, identity, identity_len);
    s->life.identity[identity_len] = '\0';
    return true;
}

static void attached(struct redis_store *s, const redisReply *reply)
{
    bool new_life = false, opened = redis_answer_number(reply, 4) != 0;
    int64_t now = clock_now_us(s->clock);

    if (!take_incarnation(s, reply, &new_life)) {
        attach_refused(s, "Redis gave an odd answer", "incarnation");
        return;
    }
    redis_life_see_fence(&s->life, redis_answer_number(reply, 1));
    s->attachment = READY;
    s->refusal[0] = '\0';
    s->role = "master";
    see_window(s, redis_answer_number(reply, 5));
    s->life.ahead_ms = redis_answer_number(reply, 7) - now / 1000;
    s->attaches++;
    s->openings += opened;
    s->fence_raises += redis_answer_number(reply, 6) != 0;
    log_info("attached", LOG_STR("address", redis_link_address(s->link)), LOG_STR("opened", opened ? "yes" : "no"),
             LOG_INT("fence", s->life.fence), LOG_INT("ticks", redis_answer_number(reply, 5)));
    s->beat_at_us = now;
    set_alarm(s, now);
    redis_hints_start(s->hints);
    if (s->sentinel)
        redis_sentinel_settled(s->sentinel, true);
    if (s->replicas)
        redis_replicas_begin(s->replicas);
    redis_calls_lead(s->calls, true);
    if (s->events.attached)
        s->events.attached(s->events.arg, new_life, s->window_open);
    redis_calls_lead(s->calls, false);
    redis_calls_go(s->calls);
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
        redis_link_arg_str(s->link, "SCRIPT");
        redis_link_arg_str(s->link, "LOAD");
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
    if (!s->attach_whole && redis_answer_lacks_script(reply))
        send_attach(s, true);
    else if (reply->type == REDIS_REPLY_ERROR)
        attach_refused(s, redis_answer_problem(reply->str, &drop), reply->str);
    else if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2)
        attach_refused(s, "Redis gave an odd answer", "not an array");
    else if (redis_answer_is(reply, "attached"))
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
    redis_life_begin_script(&s->life, s->link, SCRIPT_ATTACH, whole, 4, 8);
    redis_life_add_attachment(&s->life, s->link);
    redis_link_arg_str(s->link, uuid.text);
    redis_link_arg_int(s->link, s->config.window_ms);
    redis_link_arg_int(s->link, JUMP);
    redis_link_arg_int(s->link, NODE_KEY_MS);
    redis_link_arg_str(s->link, s->config.allow_eviction ? "1" : "0");
    redis_link_send(s->link, &s->attach, clock_now_us(s->clock) + s->config.timeout_ms * 1000);
}

static void begin_attach(struct redis_store *s)
{
    if (s->attachment == ATTACHING || !redis_link_is_open(s->link))
        return;
    detach(s);
    redis_calls_halt(s->calls);
    s->attachment = ATTACHING;
    redis_life_next_generation(&s->life);
    send_attach(s, false);
}

static void on_differs(void *arg)
{
    begin_attach(arg);
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
    if (!s->beat_whole && redis_answer_lacks_script(reply)) {
        send_beat(s, true);
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        const char *problem = redis_answer_problem(reply->str, &drop);
        redis_complain(&s->complaints, "beat_failed", problem, reply->str);
        if (drop)
            redis_link_drop(s->link, problem);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2)
        return;
    if (redis_answer_is(reply, "differs")) {
        begin_attach(s);
        return;
    }
    redis_life_see_fence(&s->life, redis_answer_number(reply, 1));
    see_window(s, redis_answer_number(reply, 2));
    s->life.ahead_ms = redis_answer_number(reply, 3) - clock_now_us(s->clock) / 1000;
    if (was_open && !s->window_open) {
        log_info("window_closed", LOG_INT("fence", s->life.fence));
        if (s->events.window_closed)
            s->events.window_closed(s->events.arg);
    }
}

static void write_beat(const struct redis_store *s, struct redis_link *link, bool whole)
{
    redis_life_begin_script(&s->life, link, SCRIPT_BEAT, whole, 4, 6);
    redis_life_add_attachment(&s->life, link);
    redis_link_arg_str(link, s->life.identity);
    redis_link_arg_int(link, NODE_KEY_MS);
    redis_link_arg_str(link, s->life.node);
}

static void send_beat(struct redis_store *s, bool whole)
{
    s->beat_sent = true;
    s->beat_whole = whole;
    s->beat.done = beat_answered;
    write_beat(s, s->link, whole);
    redis_link_send(s->link, &s->beat, clock_now_us(s->clock) + s->config.timeout_ms * 1000);
}

static void beat(struct redis_store *s, int64_t now)
{
    redis_hints_check(s->hints, now, 4 * BEAT_MS + s->config.timeout_ms);
    if (!s->beat_sent && redis_link_can_send(s->link))
        send_beat(s, false);
    s->beat_at_us = now + beat_interval_us(s);
}

static void on_alarm(void *arg)
{
    struct redis_store *s = arg;
    int64_t now = clock_now_us(s->clock);

    s->alarm_us = INT64_MAX;
    redis_calls_alarm(s->calls, now, why_held(s));
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
    write_beat(arg, link, again);
}

static enum replica_mark read_mark(void *arg, const redisReply *reply)
{
    struct redis_store *s = arg;
    bool drop;

    if (redis_answer_lacks_script(reply))
        return REPLICA_MARK_AGAIN;
    if (reply->type == REDIS_REPLY_ERROR)
        redis_complain(&s->complaints, "store_error", redis_answer_problem(reply->str, &drop), reply->str);
    else if (reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2)
        return redis_answer_is(reply, "beat") ? REPLICA_MARK_DONE : REPLICA_MARK_DIFFERS;
    return REPLICA_MARK_FAILED;
}

static void on_proved(void *arg, struct store_call *call, int64_t replicas)
{
    struct redis_store *s = arg;

    call->ret_replicas = replicas;
    if (replicas < s->config.min_replicas) {
        call->ret_fresh = call->op == STORE_ACQUIRE && call->result == STORE_DONE;
        call->result = STORE_NOT_REPLICATED;
    }
    redis_calls_done(s->calls, call);
}

/* An answer read while this node attaches anew cannot be proved any more: it is run again in the life to come. */
static bool prove(void *arg, struct store_call *call)
{
    struct redis_store *s = arg;

    if (!s->replicas)
        return false;
    if (s->attachment == READY)
        redis_replicas_add(s->replicas, call);
    else
        redis_calls_lost(s->calls, call);
    return true;
}

/* ---- sentinels ---- */

static void on_address(void *arg, const char *host, int port)
{
    struct redis_store *s = arg;

    redis_link_set_address(s->link, host, port);
    redis_hints_set_address(s->hints, host, port);
    if (s->replicas)
        redis_replicas_set_address(s->replicas, host, port);
}

/* ---- what the connection tells ---- */

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

    redis_hints_stop(s->hints);
    s->attach_sent = s->beat_sent = false;
    detach(s);
    redis_calls_halt(s->calls);
    s->failing = !was_up;
    if (!was_up) {
        s->refusal[0] = '\0';
        redis_calls_fail_waiting(s->calls, problem);
    }
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
    ret->incarnation = s->life.incarnation;
    ret->fence = s->life.fence;
    ret->pending = redis_calls_pending(s->calls);
    ret->waiting = redis_calls_waiting(s->calls);
    ret->unsent = redis_calls_unsent(s->calls);
    ret->busy_polls = busy_poll_counts(s->busy_poll).begun;
    ret->vain_busy_polls = busy_poll_counts(s->busy_poll).vain;
    ret->connects = redis_link_connects(s->link) + redis_hints_connects(s->hints);
    if (s->sentinel)
        ret->connects += redis_sentinel_connects(s->sentinel);
    if (s->replicas)
        ret->connects += redis_replicas_connects(s->replicas);
    ret->attaches = s->attaches;
    ret->openings = s->openings;
    ret->fence_raises = s->fence_raises;
    ret->errors = s->complaints.count;
}

static const struct store_ops redis_store_ops = {.takes_riders = true, .submit = submit, .status = status};

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
        .arg = s, .mark = write_mark, .marked = read_mark, .differs = on_differs, .proved = on_proved};

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
    struct redis_link_callbacks callbacks = {.arg = s, .up = on_up, .down = on_down, .alarm = on_alarm, .turn = on_turn};
    const struct redis_calls_callbacks call_callbacks = {
        .arg = s, .answered = on_answered, .differs = on_differs, .prove = prove, .alarm = set_alarm, .done_late = on_done_late};

    if (!s)
        return NULL;
    s->seam.ops = &redis_store_ops;
    s->clock = clock;
    s->config = *config;
    s->config.key_prefix = s->config.sentinel_user = s->config.sentinel_password = NULL;
    s->events = *events;
    s->role = "unknown";
    s->alarm_us = INT64_MAX;
    s->complaints.clock = clock;
    redis_life_init(&s->life, clock, config->key_prefix);
    link_config.connect_timeout_ms = config->timeout_ms < CONNECT_MS ? config->timeout_ms : CONNECT_MS;
    s->link = redis_link_new(base, clock, &link_config, &callbacks);
    link_config.label = "messages";
    s->hints = redis_hints_new(base, &link_config, &s->life, &s->complaints, events);
    s->busy_poll = busy_poll_new(base, clock, config->busy_poll_us);
    s->calls = s->link && s->busy_poll
                   ? redis_calls_new(s->link, s->busy_poll, &s->life, &s->complaints, config->timeout_ms, &call_callbacks)
                   : NULL;
    if (!s->calls || !s->hints || !make_extras(s, base, config)) {
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
    return s->life.node;
}

void redis_store_stop(struct redis_store *s)
{
    s->stopped = true;
    redis_calls_stop(s->calls);
    if (s->sentinel)
        redis_sentinel_stop(s->sentinel);
    redis_hints_stop(s->hints);
    redis_link_stop(s->link);
    detach(s);
    redis_calls_halt(s->calls);
    redis_calls_fail_waiting(s->calls, "this node is stopping");
}

void redis_store_free(struct redis_store *s)
{
    if (!s)
        return;
    redis_calls_free(s->calls);
    redis_link_free(s->link);
    busy_poll_free(s->busy_poll);
    redis_hints_free(s->hints);
    redis_sentinel_free(s->sentinel);
    redis_replicas_free(s->replicas);
    free(s);
}
