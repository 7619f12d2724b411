/* The calls on locks. Each open call is one broker request whose `arg` is the exchange; the exchange's data is the request. What else a
 * call needs to answer (its route, a list's text) is in struct open_call, which lives as long as the two of them. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api.h"
#include "daemon/log.h"
#include "daemon/peer.h"

#define LIST_BYTES_MAX ((size_t)8 * 1024 * 1024)

struct open_call {
    struct api_open head;
    struct api *api;
    struct http_exchange *exchange;
    size_t route;
    struct broker_request *request;
    struct access *rules; /* held, and the one of them that let the call in; NULL: there are none */
    const struct access_rule *rule;
    struct text locks;       /* list */
    const char *call_at_end; /* inspect */
    char reason[PAWL_REASON_MAX + 1];
};

/* ---- beginning and ending ---- */

static void end(struct open_call *open)
{
    if (open->locks.at)
        text_close(&open->locks);
    access_release(open->rules);
    free(open);
}

static void gone(struct api_open *head)
{
    struct open_call *open = (struct open_call *)head;

    broker_request_abandon(open->request);
    end(open);
}

static struct broker_request *begin(struct api_call *call, enum store_op op, void (*done)(struct broker_request *r))
{
    struct open_call *open = malloc(sizeof(*open));
    struct broker_request *r = open ? broker_request_new(call->api->broker) : NULL;

    if (!r) {
        free(open);
        (void)api_error(call->api, call->route, call->exchange, PAWL_E_STORE_UNAVAILABLE, "out of memory", &call->params.lease_id);
        return NULL;
    }
    open->head.gone = gone;
    open->api = call->api;
    open->exchange = call->exchange;
    open->route = call->route;
    open->rule = call->rule;
    open->rules = call->rule ? access_hold(call->rules) : NULL;
    open->request = r;
    open->locks.heap = false;
    open->locks.at = NULL;
    r->op = op;
    r->peer = http_exchange_peer(call->exchange);
    r->arg = open;
    r->done = done;
    r->lease_id = call->params.lease_id;
    r->name_len = call->name_len;
    if (call->name)
        memcpy(r->name, call->name, call->name_len);
    http_exchange_set_data(call->exchange, open);
    return r;
}

void api_gone(struct http_exchange *x)
{
    struct api_open *open = http_exchange_data(x);

    if (open)
        open->gone(open);
}

/* An error that the broker reported. */
static void refuse(struct open_call *open)
{
    struct broker_request *r = open->request;

    (void)api_error(open->api, open->route, open->exchange, r->error, r->problem, r->op == STORE_ACQUIRE ? &r->lease_id : NULL);
    broker_request_free(r);
    end(open);
}

/* The reply that all went well, as far as every such reply goes. False: it did not, and that is answered. */
static bool begin_body(struct broker_request *r, struct text *body, char *block, size_t cap)
{
    if (r->error != PAWL_OK) {
        refuse(r->arg);
        return false;
    }
    text_init(body, block, cap, 16384);
    text_str(body, "{");
    json_text(body, "name", r->name, r->name_len);
    return true;
}

static void finish(struct broker_request *r, struct text *body)
{
    struct open_call *open = r->arg;

    text_str(body, "}");
    (void)api_reply(open->api, open->route, open->exchange, 200, NULL, body, NULL, NULL);
    text_close(body);
    broker_request_free(r);
    end(open);
}

static bool need(struct api_call *call, unsigned bit, const char *message)
{
    if (call->params.seen & bit)
        return true;
    (void)api_error(call->api, call->route, call->exchange, PAWL_E_BAD_REQUEST, message, &call->params.lease_id);
    return false;
}

/* `whose`: the options of pawld that say so, for those who can change them; "": none. */
static void out_of_range(struct api_call *call, enum param param, int64_t least_ms, int64_t most_ms, const char *whose)
{
    char message[160];

    snprintf(message, sizeof(message), "%s: must be from %" PRId64 " to %" PRId64 " ms%s%s%s", param_name(&call->params, param), least_ms,
             most_ms, whose[0] ? " (pawld's " : "", whose, whose[0] ? ")" : "");
    (void)api_error(call->api, call->route, call->exchange, PAWL_E_BAD_REQUEST, message, &call->params.lease_id);
}

static bool ttl_fits(struct api_call *call)
{
    const struct options *options = call->api->options;

    if (!(call->params.seen & PARAM_BIT(TTL)))
        call->params.ttl_ms = options->default_ttl_ms;
    if (call->params.ttl_ms >= options->min_ttl_ms && call->params.ttl_ms <= options->max_ttl_ms)
        return true;
    out_of_range(call, PARAM_TTL, options->min_ttl_ms, options->max_ttl_ms, "--min-ttl and --max-ttl");
    return false;
}

/* Of a holder as the store saw it at `sent_us` or later: never more than it has left now. */
static int64_t holder_left_ms(const struct broker_request *r)
{
    return broker_left_ms(r->broker, r->call.sent_us + r->call.holder.ttl_ms * 1000);
}

static void add_holder(struct text *body, const struct broker_request *r)
{
    const struct store_holder *holder = &r->call.holder;

    json_text(body, "owner", holder->owner, holder->owner_len);
    json_number(body, "token", holder->token);
    json_number(body, "ttl_ms", holder_left_ms(r));
    json_number(body, "held_ms", holder->held_ms);
}

/* Nobody holds the lock, and nobody is granted it yet. `reason`: why somebody was refused, which is told although it may be over by now; NULL: nobody was. */
static void add_delay_left(struct text *body, const struct broker_request *r, const char *reason)
{
    int64_t left_ms = r->call.holder.delay_ms > 0 ? broker_left_ms(r->broker, r->call.sent_us + r->call.holder.delay_ms * 1000) : 0;

    if (reason && r->call.holder.delay_ms > 0 && left_ms < 1)
        left_ms = 1;
    if (left_ms < 1)
        return;
    if (reason)
        json_text(body, "reason", reason, strlen(reason));
    json_number(body, "delay_left_ms", left_ms);
}

/* ---- acquire ---- */

static void acquire_told(void *arg, bool delivered)
{
    struct broker_request *r = arg;

    if (delivered)
        broker_request_free(r);
    else
        broker_request_undelivered(r);
}

static void acquire_held(struct open_call *open)
{
    struct broker_request *r = open->request;
    const char *message = r->problem ? r->problem : pawl_error_text(PAWL_E_HELD);
    char block[2560];
    struct text body;

    text_init(&body, block, sizeof(block), 16384);
    text_str(&body, "{\"error\": \"held\"");
    json_text(&body, "message", message, strlen(message));
    json_text(&body, "name", r->name, r->name_len);
    json_text(&body, "lease_id", r->lease_id.text, PAWL_LEASE_ID_LEN);
    json_number(&body, "waited_ms", r->waited_ms);
    json_number(&body, "waiters", r->call.ret_waiters);
    json_key(&body, "holder");
    if (r->call.holder.token > 0) {
        text_str(&body, "{");
        add_holder(&body, r);
        text_str(&body, "}");
    } else {
        text_str(&body, "null"); /* free, but an earlier waiter's, or in a delay */
        add_delay_left(&body, r, "lock_delay");
    }
    text_str(&body, "}");
    (void)api_reply(open->api, open->route, open->exchange, 409, NULL, &body, NULL, NULL);
    text_close(&body);
    broker_request_free(r);
    end(open);
}

static void add_lease(struct text *body, const struct broker_request *r)
{
    const struct api_lease lease = api_lease_of(r);

    json_lease(body, r->broker, &lease);
}

static void acquire_done(struct broker_request *r)
{
    struct open_call *open = r->arg;
    char block[2560];
    struct text body;
    enum http_delivery delivery;

    if (r->error == PAWL_E_HELD) {
        acquire_held(open);
        return;
    }
    if (!begin_body(r, &body, block, sizeof(block)))
        return;
    add_lease(&body, r);
    json_number(&body, "waited_ms", r->waited_ms);
    text_str(&body, "}");
    delivery = api_reply(open->api, open->route, open->exchange, 200, NULL, &body, acquire_told, r);
    text_close(&body);
    end(open);
    if (delivery != HTTP_DELIVERY_PENDING)
        acquire_told(r, delivery == HTTP_DELIVERED);
}

static void take_caller(const struct api_call *call, struct broker_request *r)
{
    if (call->rule)
        snprintf(r->caller, sizeof(r->caller), "%s", access_name(call->rule));
}

/* Whoever gives itself no name is called by that of its rule, or else by what the kernel knows of it. */
static void take_owner(const struct api_call *call, struct broker_request *r)
{
    const struct peer *peer = call->peer;

    r->owner_len = call->params.owner_len;
    memcpy(r->owner, call->params.owner, r->owner_len);
    take_caller(call, r);
    if (call->params.seen & PARAM_BIT(OWNER))
        return;
    if (call->rule) {
        r->owner_len = strlen(r->caller);
        memcpy(r->owner, r->caller, r->owner_len);
    } else if (peer->has_ids) {
        r->owner_len = (size_t)snprintf(r->owner, sizeof(r->owner), "uid:%lu/pid:%ld", (unsigned long)peer->uid, (long)peer->pid);
    }
}

/* The delay and the bound that were asked for, or the operator's bound. */
static bool terms_fit(struct api_call *call)
{
    const struct options *options = call->api->options;
    int64_t most_ms = options->max_hold_ms > 0 ? options->max_hold_ms : PAWL_MAX_HOLD_MAX_MS;
    struct params *p = &call->params;

    if (p->lock_delay_ms > PAWL_LOCK_DELAY_MAX_MS) {
        out_of_range(call, PARAM_LOCK_DELAY, 0, PAWL_LOCK_DELAY_MAX_MS, "");
        return false;
    }
    if (!(p->seen & PARAM_BIT(MAX_HOLD))) {
        p->max_hold_ms = options->max_hold_ms;
    } else if (p->max_hold_ms < options->min_ttl_ms || p->max_hold_ms > most_ms) {
        out_of_range(call, PARAM_MAX_HOLD, options->min_ttl_ms, most_ms,
                     options->max_hold_ms > 0 ? "--min-ttl and --max-hold" : "--min-ttl");
        return false;
    }
    if (p->max_hold_ms > 0 && p->ttl_ms > p->max_hold_ms)
        p->ttl_ms = p->max_hold_ms;
    return true;
}

void api_acquire(struct api_call *call)
{
    const struct options *options = call->api->options;
    struct broker_request *r;

    if (!(call->params.seen & PARAM_BIT(LEASE_ID)))
        lease_id_generate(&call->params.lease_id);
    if (!ttl_fits(call) || !terms_fit(call))
        return;
    if (call->params.wait_ms > options->max_wait_ms) {
        out_of_range(call, PARAM_WAIT, 0, options->max_wait_ms, "--max-wait");
        return;
    }
    r = begin(call, STORE_ACQUIRE, acquire_done);
    if (!r)
        return;
    r->own_lease_id = (call->params.seen & PARAM_BIT(LEASE_ID)) != 0;
    r->ttl_ms = call->params.ttl_ms;
    r->wait_ms = call->params.wait_ms;
    r->delay_ms = call->params.lock_delay_ms;
    r->most_ms = call->params.max_hold_ms;
    take_owner(call, r);
    if (r->wait_ms > 0)
        http_exchange_park(call->exchange);
    broker_submit(r);
}

/* ---- renew, release, check ---- */

static void renew_done(struct broker_request *r)
{
    char block[2560];
    struct text body;

    if (!begin_body(r, &body, block, sizeof(block)))
        return;
    add_lease(&body, r);
    finish(r, &body);
}

void api_renew(struct api_call *call)
{
    struct broker_request *r;

    if (!need(call, PARAM_BIT(LEASE_ID), "lease_id: required") || !ttl_fits(call))
        return;
    r = begin(call, STORE_RENEW, renew_done);
    if (!r)
        return;
    r->ttl_ms = call->params.ttl_ms;
    take_caller(call, r);
    broker_submit(r);
}

static void release_done(struct broker_request *r)
{
    char block[512];
    struct text body;

    if (!begin_body(r, &body, block, sizeof(block)))
        return;
    json_bool(&body, "released", true);
    json_number(&body, "token", r->ret_token);
    finish(r, &body);
}

void api_release(struct api_call *call)
{
    struct broker_request *r;

    if (!need(call, PARAM_BIT(LEASE_ID), "lease_id: required"))
        return;
    r = begin(call, STORE_RELEASE, release_done);
    if (r)
        broker_submit(r);
}

static void check_done(struct broker_request *r)
{
    char block[512];
    struct text body;

    if (!begin_body(r, &body, block, sizeof(block)))
        return;
    json_number(&body, "token", r->token);
    json_number(&body, "ttl_ms", broker_left_ms(r->broker, r->lease_until_us));
    finish(r, &body);
}

void api_check(struct api_call *call)
{
    struct broker_request *r;

    if (!need(call, PARAM_BIT(TOKEN), "token: required"))
        return;
    r = begin(call, STORE_CHECK, check_done);
    if (!r)
        return;
    r->token = call->params.token;
    broker_submit(r);
}

/* ---- break, inspect ---- */

static void break_done(struct broker_request *r)
{
    struct open_call *open = r->arg;
    const struct store_holder *holder = &r->call.holder;
    char block[2560];
    struct text body;

    log_record(r->error == PAWL_OK ? "lock_broken" : "lock_not_broken", LOG_TEXT("name", r->name, r->name_len),
               LOG_INT("token", r->error == PAWL_OK ? holder->token : 0),
               LOG_TEXT("owner", holder->owner, r->error == PAWL_OK ? holder->owner_len : 0),
               LOG_INT("held_ms", r->error == PAWL_OK ? holder->held_ms : 0), LOG_STR("reason", open->reason),
               LOG_STR("caller", open->rule ? access_name(open->rule) : ""), LOG_STR("peer", http_exchange_peer(open->exchange)),
               LOG_STR("outcome", pawl_error_wire(r->error)));
    if (!begin_body(r, &body, block, sizeof(block)))
        return;
    json_bool(&body, "broken", true);
    json_key(&body, "holder");
    text_str(&body, "{");
    add_holder(&body, r);
    text_str(&body, "}");
    finish(r, &body);
}

void api_break(struct api_call *call)
{
    struct broker_request *r;
    struct open_call *open;

    if (!need(call, PARAM_BIT(REASON), "reason: required"))
        return;
    r = begin(call, STORE_BREAK, break_done);
    if (!r)
        return;
    open = r->arg;
    memcpy(open->reason, call->params.reason, call->params.reason_len + 1);
    r->reason = open->reason;
    r->reason_len = call->params.reason_len;
    broker_submit(r);
}

/* A GET of /v1/locks/NAME/release looks at a lock "NAME/release", and the answer reads as if something had been done. Where nobody has such a lock, it says so. */
static void add_hint(struct text *body, const struct broker_request *r)
{
    const struct open_call *open = r->arg;
    char hint[96];

    if (!open->call_at_end)
        return;
    snprintf(hint, sizeof(hint), "a GET only looks, here at a lock of this name; %s is a POST", open->call_at_end);
    json_text(body, "hint", hint, strlen(hint));
}

static void inspect_done(struct broker_request *r)
{
    const struct store_call *answer = &r->call;
    char block[2560];
    struct text body;

    if (!begin_body(r, &body, block, sizeof(block)))
        return;
    json_bool(&body, "held", answer->holder.token > 0);
    if (answer->holder.token > 0) {
        add_holder(&body, r);
        if (answer->holder.delay_ms > 0)
            json_number(&body, "lock_delay_ms", answer->holder.delay_ms);
        if (answer->holder.most_ms > 0)
            json_number(&body, "max_hold_left_ms", broker_left_ms(r->broker, answer->sent_us + answer->holder.most_ms * 1000));
    } else {
        add_delay_left(&body, r, NULL);
    }
    json_number(&body, "waiters", answer->ret_waiters);
    if (answer->ret_position > 0)
        json_number(&body, "position", answer->ret_position);
    if (answer->ret_recovering)
        json_bool(&body, "recovering", true);
    if (answer->holder.token <= 0 && answer->ret_waiters == 0)
        add_hint(&body, r);
    finish(r, &body);
}

void api_inspect(struct api_call *call)
{
    struct broker_request *r = begin(call, STORE_INSPECT, inspect_done);
    struct open_call *open = r ? r->arg : NULL;

    if (!open)
        return;
    open->call_at_end = call->call_at_end;
    broker_submit(r);
}

/* ---- list ---- */

static void add_lock(struct broker_request *r, const struct store_lock *lock)
{
    struct open_call *open = r->arg;
    struct text *t = &open->locks;

    if (open->rule && !access_allows(open->rule, ACCESS_READ, lock->name, lock->name_len))
        return;
    if (t->len > 0)
        text_str(t, ", ");
    text_str(t, "{");
    json_text(t, "name", lock->name, lock->name_len);
    json_text(t, "owner", lock->owner, lock->owner_len);
    json_number(t, "token", lock->token);
    json_number(t, "ttl_ms", lock->ttl_ms);
    json_number(t, "held_ms", lock->held_ms);
    json_number(t, "waiters", lock->waiters);
    text_str(t, "}");
}

static void list_done(struct broker_request *r)
{
    struct open_call *open = r->arg;
    struct text body;

    if (r->error != PAWL_OK) {
        refuse(open);
        return;
    }
    text_init(&body, NULL, 0, LIST_BYTES_MAX);
    text_str(&body, "{\"locks\": [");
    if (open->locks.failed)
        body.failed = true;
    else
        text_add(&body, open->locks.at, open->locks.len);
    text_str(&body, "]");
    json_text(&body, "cursor", r->call.cursor, strcmp(r->call.cursor, "0") == 0 ? 0 : strlen(r->call.cursor));
    if (r->call.ret_recovering)
        json_bool(&body, "recovering", true);
    finish(r, &body);
}

void api_list(struct api_call *call)
{
    struct broker_request *r = begin(call, STORE_LIST, list_done);
    struct open_call *open;

    if (!r)
        return;
    open = r->arg;
    text_init(&open->locks, malloc(4096), 4096, LIST_BYTES_MAX);
    open->locks.heap = open->locks.at != NULL;
    open->locks.failed = open->locks.at == NULL;
    r->on_lock = add_lock;
    r->limit = call->params.limit;
    r->prefix_len = call->params.prefix_len;
    memcpy(r->prefix, call->params.prefix, call->params.prefix_len);
    memcpy(r->call.cursor, call->params.cursor, sizeof(r->call.cursor));
    broker_submit(r);
}
