#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_answer.h"

#include <stdio.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "daemon/log.h"
#include "proto/lock_name.h"

/* ---- what errors mean ---- */

const char redis_answer_refused[] = "Redis refused the call";

#define WANTS_PASSWORD "Redis asks for a password (NOAUTH): write it into the URL, redis://[USER]:PASSWORD@host"

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
    {"NOAUTH", WANTS_PASSWORD, true},
    /* what it says instead when a call is too long for somebody unknown */
    {"ERR Protocol error: unauthenticated", WANTS_PASSWORD, true},
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

const char *redis_answer_problem(const char *text, bool *ret_drop)
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
    return redis_answer_refused;
}

bool redis_answer_lacks_script(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) == 0;
}

void redis_complain(struct redis_complaints *complaints, const char *event, const char *problem, const char *answer)
{
    uint64_t left_out;

    complaints->count++;
    if (log_gate_pass(&complaints->gate, clock_now_us(complaints->clock), &left_out))
        log_warn(event, LOG_STR("problem", problem), LOG_STR("answer", answer), LOG_INT("suppressed", left_out));
}

/* ---- the parts of an answer ---- */

int64_t redis_answer_number(const redisReply *reply, size_t i)
{
    const redisReply *element = i < reply->elements ? reply->element[i] : NULL;
    int64_t n = 0;

    if (element && element->type == REDIS_REPLY_INTEGER)
        return element->integer >= 0 && element->integer <= PAWL_TOKEN_MAX ? (int64_t)element->integer : 0;
    if (!element || element->type != REDIS_REPLY_STRING || element->len == 0 || element->len > 16)
        return 0;
    for (size_t k = 0; k < (size_t)element->len; k++) {
        if (element->str[k] < '0' || element->str[k] > '9')
            return 0;
        n = n * 10 + (element->str[k] - '0');
    }
    return n <= PAWL_TOKEN_MAX ? n : 0;
}

const char *redis_answer_text(const redisReply *reply, size_t i, size_t *ret_len)
{
    if (i >= reply->elements || reply->element[i]->type != REDIS_REPLY_STRING) {
        *ret_len = 0;
        return "";
    }
    *ret_len = (size_t)reply->element[i]->len;
    return reply->element[i]->str;
}

bool redis_answer_is(const redisReply *reply, const char *status)
{
    size_t len;
    const char *text = redis_answer_text(reply, 0, &len);

    return len == strlen(status) && memcmp(text, status, len) == 0;
}

static const char *owner_at(const redisReply *reply, size_t i, size_t *ret_len)
{
    size_t len;
    const char *owner = redis_answer_text(reply, i, &len);

    *ret_len = len < PAWL_OWNER_MAX ? len : PAWL_OWNER_MAX;
    return owner;
}

static void read_owner(struct store_holder *holder, const redisReply *reply, size_t i)
{
    const char *owner = owner_at(reply, i, &holder->owner_len);

    memcpy(holder->owner, owner, holder->owner_len);
    holder->owner[holder->owner_len] = '\0';
}

static void read_holder(struct store_holder *holder, const redisReply *reply, size_t i)
{
    holder->token = redis_answer_number(reply, i);
    holder->ttl_ms = redis_answer_number(reply, i + 1);
    holder->held_ms = redis_answer_number(reply, i + 2);
    read_owner(holder, reply, i + 3);
    holder->delay_ms = holder->most_ms = 0;
}

/* "" where there is none. */
static void read_id(struct lease_id *ret, const redisReply *reply, size_t i)
{
    size_t len;
    const char *id = redis_answer_text(reply, i, &len);

    if (lease_id_parse(id, len, ret) != 0)
        ret->text[0] = '\0';
}

static void read_woken(struct store_call *call, const redisReply *reply, size_t i)
{
    read_id(&call->ret_woken, reply, i);
}

/* ---- one function an operation ---- */

void redis_answer_as_asked(struct store_call *call, int64_t token)
{
    call->result = STORE_DONE;
    call->problem = "";
    call->ret_token = token;
    call->ret_confirm = call->confirm;
    call->ret_ttl_ms = call->ttl_ms;
    call->holder.delay_ms = call->delay_ms;
    call->holder.most_ms = call->most_ms;
    call->holder.owner_len = call->owner_len;
    memcpy(call->holder.owner, call->owner, call->owner_len);
}

/* A short answer means: as asked. False: there is no such lease. */
static bool read_lease(struct store_call *call, const redisReply *reply)
{
    if (reply->elements == 2) {
        redis_answer_as_asked(call, redis_answer_number(reply, 1));
    } else {
        call->ret_token = redis_answer_number(reply, 2);
        call->ret_confirm = call->confirm;
        call->ret_ttl_ms = redis_answer_number(reply, 3);
        call->ret_granted_ms = redis_answer_number(reply, 4);
        read_owner(&call->holder, reply, 5);
        call->holder.delay_ms = redis_answer_number(reply, 6);
        call->holder.most_ms = redis_answer_number(reply, 7);
    }
    return call->ret_token > 0;
}

static enum store_result read_acquire(struct store_call *call, const redisReply *reply)
{
    if (redis_answer_is(reply, "granted") || redis_answer_is(reply, "repeated")) {
        bool repeated = redis_answer_is(reply, "repeated");
        if (!read_lease(call, reply))
            return STORE_UNKNOWN;
        if (repeated)
            call->ret_confirm = call->repeat_confirm;
        return repeated ? STORE_REPEATED : STORE_DONE;
    }
    call->ret_ticket = redis_answer_number(reply, 2);
    call->ret_waiters = redis_answer_number(reply, 3);
    call->ret_woken.text[0] = '\0';
    if (redis_answer_is(reply, "held")) {
        read_holder(&call->holder, reply, 4);
        call->holder.delay_ms = redis_answer_number(reply, 8);
        return STORE_HELD;
    }
    if (redis_answer_is(reply, "delayed")) {
        call->holder = (struct store_holder){.delay_ms = redis_answer_number(reply, 4)};
        return STORE_DELAYED;
    }
    if (redis_answer_is(reply, "turn")) {
        call->holder.token = call->holder.delay_ms = 0;
        read_woken(call, reply, 4);
        return STORE_TURN;
    }
    return redis_answer_is(reply, "full") ? STORE_FULL : STORE_UNKNOWN;
}

static enum store_result read_renew(struct store_call *call, const redisReply *reply)
{
    if (!redis_answer_is(reply, "renewed") || !read_lease(call, reply))
        return STORE_UNKNOWN;
    return STORE_DONE;
}

static enum store_result read_release(struct store_call *call, const redisReply *reply)
{
    if (!redis_answer_is(reply, "released"))
        return STORE_UNKNOWN;
    call->ret_token = redis_answer_number(reply, 2);
    read_woken(call, reply, 3);
    if (call->rider) {
        call->rider->result = STORE_TURN;
        call->rider->ret_ticket = call->rider->ticket;
        call->rider->ret_woken.text[0] = '\0';
        if (redis_answer_number(reply, 4) > 0)
            redis_answer_as_asked(call->rider, redis_answer_number(reply, 4));
    }
    return STORE_DONE;
}

static enum store_result read_check(struct store_call *call, const redisReply *reply)
{
    if (!redis_answer_is(reply, "held"))
        return STORE_UNKNOWN;
    call->ret_ttl_ms = redis_answer_number(reply, 2);
    return STORE_DONE;
}

static enum store_result read_break(struct store_call *call, const redisReply *reply)
{
    if (redis_answer_is(reply, "free"))
        return STORE_LOST;
    if (!redis_answer_is(reply, "broken"))
        return STORE_UNKNOWN;
    read_holder(&call->holder, reply, 2);
    read_woken(call, reply, 6);
    call->holder.delay_ms = redis_answer_number(reply, 7);
    read_id(&call->ret_broken, reply, 8);
    call->ret_confirm = (uint64_t)redis_answer_number(reply, 9);
    return STORE_DONE;
}

static enum store_result read_inspect(struct store_call *call, const redisReply *reply)
{
    if (!redis_answer_is(reply, "held") && !redis_answer_is(reply, "free"))
        return STORE_UNKNOWN;
    call->ret_recovering = redis_answer_number(reply, 2) != 0;
    call->ret_waiters = redis_answer_number(reply, 3);
    call->ret_position = redis_answer_number(reply, 4);
    read_holder(&call->holder, reply, 5);
    call->holder.delay_ms = redis_answer_number(reply, 9);
    call->holder.most_ms = redis_answer_number(reply, 10);
    return STORE_DONE;
}

static enum store_result read_list(struct store_call *call, const redisReply *reply)
{
    size_t len;
    const char *cursor = redis_answer_text(reply, 2, &len);

    if (!redis_answer_is(reply, "page") || len == 0 || len > PAWL_CURSOR_MAX)
        return STORE_UNKNOWN;
    memcpy(call->cursor, cursor, len);
    call->cursor[len] = '\0';
    call->ret_recovering = redis_answer_number(reply, 3) != 0;
    for (size_t i = 4; i + 6 <= reply->elements; i += 6) {
        struct store_lock lock = {.token = redis_answer_number(reply, i + 1),
                                  .ttl_ms = redis_answer_number(reply, i + 2),
                                  .held_ms = redis_answer_number(reply, i + 3),
                                  .waiters = redis_answer_number(reply, i + 5)};
        lock.name = redis_answer_text(reply, i, &lock.name_len);
        lock.owner = owner_at(reply, i + 4, &lock.owner_len);
        if (lock.token > 0 && !lock_name_problem(lock.name, lock.name_len)) /* else somebody else's key */
            call->on_lock(call, &lock);
    }
    return STORE_DONE;
}

static enum store_result read_cancel(struct store_call *call, const redisReply *reply)
{
    if (!redis_answer_is(reply, "cancelled"))
        return STORE_UNKNOWN;
    call->ret_undone = redis_answer_number(reply, 2) != 0;
    read_woken(call, reply, 3);
    call->ret_waiters = redis_answer_number(reply, 4);
    read_holder(&call->holder, reply, 5);
    call->ret_own = redis_answer_number(reply, 9) != 0;
    call->holder.delay_ms = redis_answer_number(reply, 10);
    return STORE_DONE;
}

static enum store_result read_put_back(struct store_call *call, const redisReply *reply)
{
    (void)call;
    return redis_answer_is(reply, "there") ? STORE_DONE : STORE_UNKNOWN;
}

enum store_result redis_answer_read(struct store_call *call, const redisReply *reply)
{
    static enum store_result (*const readers[])(struct store_call *, const redisReply *) = {
        [STORE_ACQUIRE] = read_acquire, [STORE_RENEW] = read_renew,       [STORE_RELEASE] = read_release,
        [STORE_CHECK] = read_check,     [STORE_BREAK] = read_break,       [STORE_INSPECT] = read_inspect,
        [STORE_LIST] = read_list,       [STORE_PUT_BACK] = read_put_back, [STORE_CANCEL] = read_cancel,
    };

    return readers[call->op](call, reply);
}
