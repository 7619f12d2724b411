#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_question.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/text.h"

#define TERMS_MAX  48
#define TAIL_MAX   (96 + TERMS_MAX + PAWL_OWNER_MAX)
#define RIDER_ARGS 3

/* ---- the arguments, one function an operation ---- */

static int queue_word(const struct store_call *call)
{
    return !call->queue ? 0 : call->comes_back ? 2 : 1;
}

/* What stands behind the node in the value of a lease that has terms: "+delay.spare". */
static void add_terms(struct text *tail, const struct store_call *call)
{
    if (call->delay_ms == 0 && call->most_ms == 0)
        return;
    text_add(tail, "+", 1);
    text_int(tail, call->delay_ms);
    if (call->most_ms == 0)
        return;
    text_add(tail, ".", 1);
    text_int(tail, call->most_ms - call->ttl_ms);
}

/* What the plain case asks of Redis is made here, where it is cheap: one string for the end of the lock's value. */
static size_t make_tail(const struct redis_life *life, struct store_call *call, char *out, size_t cap)
{
    struct text tail;

    call->ret_granted_ms = redis_life_server_ms(life);
    text_init(&tail, out, cap, cap);
    text_str(&tail, life->node);
    add_terms(&tail, call);
    text_add(&tail, " ", 1);
    text_int(&tail, (int64_t)call->confirm);
    text_add(&tail, " ", 1);
    text_int(&tail, call->ret_granted_ms);
    text_add(&tail, " ", 1);
    text_add(&tail, call->owner, call->owner_len);
    return tail.len;
}

static void args_acquire(const struct redis_life *life, struct redis_link *link, struct store_call *call)
{
    char tail[TAIL_MAX], block[112];
    struct text place;

    redis_link_arg_str(link, call->lease_id.text);
    redis_link_arg_int(link, call->ttl_ms + call->delay_ms);
    redis_link_arg(link, tail, make_tail(life, call, tail, sizeof(tail)));
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
    redis_link_arg(link, block, place.len);
}

/* What the lease table knows of a lease, for putting it back: "granted_ms owner". */
static void add_known_lease(struct redis_link *link, const struct store_call *call)
{
    char lease[32 + PAWL_OWNER_MAX];
    int len = snprintf(lease, sizeof(lease), "%" PRId64 " %.*s", call->granted_ms, (int)call->owner_len, call->owner);

    redis_link_arg(link, lease, (size_t)len);
}

/* A call may have been held, or be run again: what was left is less now. */
static int64_t passed_ms(const struct redis_life *life, const struct store_call *call)
{
    return call->known_us > 0 ? (clock_now_us(life->clock) - call->known_us) / 1000 : 0;
}

static void add_known_terms(const struct redis_life *life, struct redis_link *link, const struct store_call *call)
{
    char terms[TERMS_MAX];
    int64_t most_ms = call->most_ms > 0 ? call->most_ms - passed_ms(life, call) : 0;
    int len = snprintf(terms, sizeof(terms), "%" PRId64 " %" PRId64, call->delay_ms, call->most_ms > 0 && most_ms < 1 ? 1 : most_ms);

    redis_link_arg(link, terms, (size_t)len);
}

static void args_renew(const struct redis_life *life, struct redis_link *link, struct store_call *call)
{
    redis_link_arg_str(link, call->lease_id.text);
    redis_link_arg_int(link, call->ttl_ms);
    redis_link_arg_str(link, life->node);
    redis_link_arg_int(link, (int64_t)call->confirm);
    redis_link_arg_int(link, call->token);
    add_known_lease(link, call);
    add_known_terms(life, link, call);
}

static void args_release(const struct redis_life *life, struct redis_link *link, struct store_call *call)
{
    char tail[TAIL_MAX];

    redis_link_arg_str(link, call->lease_id.text);
    redis_link_arg_str(link, life->node);
    redis_link_arg_int(link, call->token);
    if (call->rider) {
        redis_link_arg_str(link, call->rider->lease_id.text);
        redis_link_arg_int(link, call->rider->ttl_ms + call->rider->delay_ms);
        redis_link_arg(link, tail, make_tail(life, call->rider, tail, sizeof(tail)));
    }
}

static void args_check(const struct redis_life *life, struct redis_link *link, struct store_call *call)
{
    (void)life;
    redis_link_arg_int(link, call->token);
}

static void args_break(const struct redis_life *life, struct redis_link *link, struct store_call *call)
{
    (void)call;
    redis_link_arg_str(link, life->node);
}

static void args_inspect(const struct redis_life *life, struct redis_link *link, struct store_call *call)
{
    (void)life;
    redis_link_arg_str(link, call->lease_id.text);
}

static void args_list(const struct redis_life *life, struct redis_link *link, struct store_call *call)
{
    char pattern[2 * REDIS_KEY_HEAD_MAX + PAWL_NAME_MAX + 2];
    int len = snprintf(pattern, sizeof(pattern), "%s%.*s*", life->pattern_head, (int)call->prefix_len, call->prefix);

    redis_link_arg_str(link, call->cursor);
    redis_link_arg(link, pattern, (size_t)len);
    redis_link_arg_int(link, call->look_at);
}

static void args_cancel(const struct redis_life *life, struct redis_link *link, struct store_call *call)
{
    redis_link_arg_str(link, call->lease_id.text);
    redis_link_arg_str(link, life->node);
    redis_link_arg_int(link, (int64_t)call->confirm);
    redis_link_arg_int(link, queue_word(call));
}

static void args_put_back(const struct redis_life *life, struct redis_link *link, struct store_call *call)
{
    redis_link_arg_str(link, call->broken ? "-" : call->lease_id.text);
    redis_link_arg_int(link, call->token);
    redis_link_arg_int(link, call->ttl_ms + call->delay_ms - passed_ms(life, call));
    redis_link_arg_str(link, life->node);
    redis_link_arg_int(link, (int64_t)call->confirm);
    add_known_lease(link, call);
    redis_link_arg_int(link, (int64_t)call->repeat_confirm);
    add_known_terms(life, link, call);
}

static const struct question_row {
    enum redis_script_id script;
    size_t args; /* beside the three that every script gets */
    bool on_lock;
    bool repeatable; /* may be run twice */
    void (*write)(const struct redis_life *life, struct redis_link *link, struct store_call *call);
} rows[] = {
    [STORE_ACQUIRE] = {SCRIPT_ACQUIRE, 4, true, true, args_acquire},  [STORE_RENEW] = {SCRIPT_RENEW, 7, true, true, args_renew},
    [STORE_RELEASE] = {SCRIPT_RELEASE, 3, true, false, args_release}, [STORE_CHECK] = {SCRIPT_CHECK, 1, true, true, args_check},
    [STORE_BREAK] = {SCRIPT_BREAK, 1, true, false, args_break},       [STORE_INSPECT] = {SCRIPT_INSPECT, 1, true, true, args_inspect},
    [STORE_LIST] = {SCRIPT_LIST, 3, false, true, args_list},          [STORE_PUT_BACK] = {SCRIPT_PUT_BACK, 8, true, true, args_put_back},
    [STORE_CANCEL] = {SCRIPT_CANCEL, 4, true, true, args_cancel},
};

static void add_lock_key(struct redis_link *link, const char *head, const struct store_call *call)
{
    char key[REDIS_KEY_HEAD_MAX + PAWL_NAME_MAX];
    size_t len = strlen(head);

    memcpy(key, head, len);
    memcpy(key + len, call->name, call->name_len);
    redis_link_arg(link, key, len + call->name_len);
}

/* ---- one call ---- */

const char *redis_question_name(const struct store_call *call)
{
    return redis_scripts[rows[call->op].script].name;
}

bool redis_question_may_repeat(const struct store_call *call)
{
    return rows[call->op].repeatable;
}

void redis_question_write(const struct redis_life *life, struct redis_link *link, struct store_call *call, bool whole_script)
{
    const struct question_row *row = &rows[call->op];

    redis_life_begin_script(life, link, row->script, whole_script, row->on_lock ? 6 : 4, 3 + row->args + (call->rider ? RIDER_ARGS : 0));
    if (row->on_lock) {
        add_lock_key(link, life->head_lock, call);
        add_lock_key(link, life->head_queue, call);
    }
    redis_life_add_attachment(life, link);
    row->write(life, link, call);
}

/* ---- plain calls, many at a time ---- */

bool redis_question_is_plain(const struct store_call *call)
{
    return (call->op == STORE_ACQUIRE && !call->queue && call->ticket == 0 && !call->contended) ||
           (call->op == STORE_RELEASE && !call->contended);
}

static void add_plain_args(const struct redis_life *life, struct redis_link *link, struct store_call *call)
{
    char tail[TAIL_MAX];

    redis_link_arg_str(link, call->lease_id.text);
    if (call->op == STORE_RELEASE) {
        redis_link_arg_str(link, "");
        redis_link_arg_str(link, life->node);
        return;
    }
    redis_link_arg_int(link, call->ttl_ms + call->delay_ms);
    redis_link_arg(link, tail, make_tail(life, call, tail, sizeof(tail)));
}

void redis_question_write_plain(const struct redis_life *life, struct redis_link *link, struct store_call *calls, size_t count,
                                bool whole_script)
{
    redis_life_begin_script(life, link, SCRIPT_PLAIN, whole_script, 4 + 2 * count, 3 + 3 * count);
    for (struct store_call *call = calls; call; call = call->next)
        add_lock_key(link, life->head_lock, call);
    for (struct store_call *call = calls; call; call = call->next)
        add_lock_key(link, life->head_queue, call);
    redis_life_add_attachment(life, link);
    for (struct store_call *call = calls; call; call = call->next)
        add_plain_args(life, link, call);
}
