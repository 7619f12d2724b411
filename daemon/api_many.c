/* The calls about many leases at once: renewing a list, and releasing all that a caller holds here.
 *
 *     one exchange ─► one batch ─► an item a lease ─► a broker request each ─┐
 *                        ▲                                                   │
 *                        └── the last answer writes the reply ◄── done ──────┘
 *
 * All requests of a batch are submitted in one turn of the loop, so what they ask of the store leaves in one piece. Each has a fate of its own: the reply
 * says it in the items' order. A client that leaves gets no reply; what was submitted is carried out all the same.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/api.h"
#include "proto/renewals.h"

#define REPLY_BYTES_MAX ((size_t)4 * 1024 * 1024)

struct batch;

struct item {
    struct batch *batch;
    struct broker_request *request; /* while it is open */
    enum pawl_error error;
    const char *problem;    /* static, or NULL */
    struct api_lease lease; /* its id; all of it once it was renewed */
    size_t name_len;
    char name[PAWL_NAME_MAX + 1], owner[PAWL_OWNER_MAX + 1];
};

struct batch {
    struct api_open head;
    struct api *api;
    struct http_exchange *exchange;
    size_t route;
    struct access *rules; /* held, and the one of them that let the call in; NULL: there are none */
    const struct access_rule *rule;
    void (*reply)(struct batch *batch);
    bool more; /* there are leases for which there was no room */
    size_t open, count, cap;
    struct item items[];
};

/* ---- beginning and ending ---- */

static void end(struct batch *batch)
{
    access_release(batch->rules);
    free(batch);
}

static void gone(struct api_open *head)
{
    struct batch *batch = (struct batch *)head;

    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].request)
            broker_request_abandon(batch->items[i].request);
    end(batch);
}

static void refuse(const struct api_call *call, enum pawl_error error, const char *message)
{
    (void)api_error(call->api, call->route, call->exchange, error, message, NULL);
}

/* NULL, and answered, without memory. */
static struct batch *begin(struct api_call *call, size_t cap, void (*reply)(struct batch *batch))
{
    struct batch *batch = malloc(sizeof(*batch) + cap * sizeof(batch->items[0]));

    if (!batch) {
        refuse(call, PAWL_E_STORE_UNAVAILABLE, "out of memory");
        return NULL;
    }
    *batch = (struct batch){.head = {gone}, .api = call->api, .exchange = call->exchange, .route = call->route, .reply = reply, .cap = cap};
    batch->rule = call->rule;
    batch->rules = call->rule ? access_hold(call->rules) : NULL;
    http_exchange_set_data(call->exchange, batch);
    return batch;
}

static struct item *add(struct batch *batch, const char *name, size_t name_len, const struct lease_id *id)
{
    struct item *item = &batch->items[batch->count++];

    memset(item, 0, offsetof(struct item, name));
    item->batch = batch;
    item->lease.id = *id;
    item->name_len = name_len;
    memcpy(item->name, name, name_len);
    return item;
}

static void answered(struct broker_request *r)
{
    struct item *item = r->arg;
    struct batch *batch = item->batch;

    item->request = NULL;
    item->error = r->error;
    /* What the store says of a problem lives no longer than this call. */
    item->problem = r->error == PAWL_E_STORE_UNAVAILABLE ? "the store gave no answer that could be used: repeat the call" : NULL;
    item->lease = api_lease_of(r);
    memcpy(item->owner, item->lease.owner, item->lease.owner_len);
    item->lease.owner = item->owner; /* the request's ends here */
    broker_request_free(r);
    if (--batch->open == 0) {
        batch->reply(batch);
        end(batch);
    }
}

/* Opens the item's request; what goes wrong at once is the item's error. */
static struct broker_request *open_request(struct item *item, enum store_op op)
{
    struct batch *batch = item->batch;
    struct broker_request *r = NULL;

    if (batch->rule && !access_allows(batch->rule, ACCESS_ACQUIRE, item->name, item->name_len)) {
        item->error = PAWL_E_FORBIDDEN;
        return NULL;
    }
    r = broker_request_new(batch->api->broker);
    if (!r) {
        item->error = PAWL_E_STORE_UNAVAILABLE;
        item->problem = "out of memory";
        return NULL;
    }
    r->op = op;
    r->peer = http_exchange_peer(batch->exchange);
    r->arg = item;
    r->done = answered;
    r->lease_id = item->lease.id;
    r->name_len = item->name_len;
    memcpy(r->name, item->name, item->name_len);
    if (batch->rule)
        snprintf(r->caller, sizeof(r->caller), "%s", access_name(batch->rule));
    item->request = r;
    batch->open++;
    return r;
}

/* Requests are answered in a later turn of the loop, never from within their submit: none is missed. */
static void submit(struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (batch->items[i].request)
            broker_submit(batch->items[i].request);
    if (batch->open > 0)
        return;
    batch->reply(batch);
    end(batch);
}

static void add_error(struct text *body, const struct item *item)
{
    const char *message = item->problem ? item->problem : pawl_error_text(item->error);

    json_text(body, "error", pawl_error_wire(item->error), strlen(pawl_error_wire(item->error)));
    json_text(body, "message", message, strlen(message));
}

static void send(struct batch *batch, struct text *body)
{
    text_str(body, "}");
    (void)api_reply(batch->api, batch->route, batch->exchange, 200, NULL, body, NULL, NULL);
    text_close(body);
}

/* ---- renewing a list ---- */

static void add_renewed(struct text *body, const struct item *item)
{
    text_str(body, "{");
    json_text(body, "name", item->name, item->name_len);
    if (item->error == PAWL_OK) {
        json_lease(body, item->batch->api->broker, &item->lease);
    } else {
        json_text(body, "lease_id", item->lease.id.text, PAWL_LEASE_ID_LEN);
        add_error(body, item);
    }
    text_str(body, "}");
}

static void renewed(struct batch *batch)
{
    struct text body;
    size_t good = 0;

    text_init(&body, NULL, 0, REPLY_BYTES_MAX);
    for (size_t i = 0; i < batch->count; i++)
        good += batch->items[i].error == PAWL_OK;
    text_str(&body, "{");
    json_number(&body, "renewed", (int64_t)good);
    json_number(&body, "failed", (int64_t)(batch->count - good));
    json_key(&body, "leases");
    text_str(&body, "[");
    for (size_t i = 0; i < batch->count; i++) {
        if (i > 0)
            text_str(&body, ", ");
        add_renewed(&body, &batch->items[i]);
    }
    text_str(&body, "]");
    send(batch, &body);
}

static int64_t ttl_of(const struct api_call *call, const struct renewals *all, size_t i)
{
    int64_t ttl_ms = all->leases[i].ttl_ms >= 0 ? all->leases[i].ttl_ms : all->ttl_ms;

    return ttl_ms >= 0 ? ttl_ms : call->api->options->default_ttl_ms;
}

static bool ttls_fit(const struct api_call *call, const struct renewals *all)
{
    const struct options *options = call->api->options;
    char message[160];

    for (size_t i = 0; i < all->count; i++) {
        int64_t ttl_ms = ttl_of(call, all, i);
        if (ttl_ms >= options->min_ttl_ms && ttl_ms <= options->max_ttl_ms)
            continue;
        snprintf(message, sizeof(message), "leases[%zu].ttl_ms: must be from %lld to %lld ms (pawld's --min-ttl and --max-ttl)", i,
                 (long long)options->min_ttl_ms, (long long)options->max_ttl_ms);
        refuse(call, PAWL_E_BAD_REQUEST, message);
        return false;
    }
    return true;
}

static void renew_all(struct api_call *call, const struct renewals *all)
{
    struct batch *batch = ttls_fit(call, all) ? begin(call, all->count, renewed) : NULL;

    if (!batch)
        return;
    for (size_t i = 0; i < all->count; i++) {
        const struct renewal *renewal = &all->leases[i];
        struct broker_request *r = open_request(add(batch, renewal->name, renewal->name_len, &renewal->lease_id), STORE_RENEW);
        if (r)
            r->ttl_ms = ttl_of(call, all, i);
    }
    submit(batch);
}

void api_renew_many(struct api_call *call)
{
    struct renewals *all = malloc(sizeof(*all));
    struct param_problem problem = {.no_memory = true, .message = "out of memory"};

    if (!all || renewals_from_json(all, call->body.at, call->body.len, &problem) != 0)
        refuse(call, problem.no_memory ? PAWL_E_STORE_UNAVAILABLE : PAWL_E_BAD_REQUEST, problem.message);
    else
        renew_all(call, all);
    free(all);
}

/* ---- releasing all ---- */

static void released(struct batch *batch)
{
    struct text body;
    size_t good = 0, shown = 0;

    text_init(&body, NULL, 0, REPLY_BYTES_MAX);
    for (size_t i = 0; i < batch->count; i++)
        good += batch->items[i].error == PAWL_OK;
    text_str(&body, "{");
    json_number(&body, "released", (int64_t)good);
    json_number(&body, "failed", (int64_t)(batch->count - good));
    json_bool(&body, "more", batch->more);
    json_key(&body, "names");
    text_str(&body, "[");
    for (size_t i = 0; i < batch->count; i++) {
        if (batch->items[i].error != PAWL_OK)
            continue;
        if (shown++ > 0)
            text_str(&body, ", ");
        text_json_string(&body, batch->items[i].name, batch->items[i].name_len);
    }
    text_str(&body, "]");
    json_key(&body, "failures");
    text_str(&body, "[");
    for (size_t i = 0, told = 0; i < batch->count; i++) {
        if (batch->items[i].error == PAWL_OK)
            continue;
        text_str(&body, told++ > 0 ? ", {" : "{");
        json_text(&body, "name", batch->items[i].name, batch->items[i].name_len);
        add_error(&body, &batch->items[i]);
        text_str(&body, "}");
    }
    text_str(&body, "]");
    send(batch, &body);
}

struct search {
    struct batch *batch;
    const struct params *params;
    int64_t now_us;
};

/* A lease is the caller's when it was granted by the caller's rule; where there are no rules, the owner alone tells. */
static bool is_callers(const struct search *s, const struct lease *lease)
{
    const char *caller = s->batch->rule ? access_name(s->batch->rule) : NULL;

    if (lease->deadline_us <= s->now_us || lease->owner_len != s->params->owner_len ||
        memcmp(lease->owner, s->params->owner, lease->owner_len) != 0)
        return false;
    return !caller || (lease->caller_len == strlen(caller) && memcmp(lease->caller, caller, lease->caller_len) == 0);
}

static int take(void *arg, const struct lease *lease)
{
    struct search *s = arg;

    if (!is_callers(s, lease))
        return 0;
    if (s->batch->count == s->batch->cap) {
        s->batch->more = true;
        return 1;
    }
    (void)add(s->batch, lease->name, lease->name_len, &lease->id);
    return 0;
}

static int count(void *arg, const struct lease *lease)
{
    struct search *s = arg;

    return is_callers(s, lease) && ++s->batch->cap == PAWL_RELEASES_MAX;
}

void api_release_all(struct api_call *call)
{
    const struct broker *broker = call->api->broker;
    struct batch counted = {.rule = call->rule}, *batch;
    struct search s = {.batch = &counted, .params = &call->params, .now_us = broker_now_us(broker)};

    if (call->params.owner_len == 0) {
        refuse(call, PAWL_E_BAD_REQUEST, call->params.seen & PARAM_BIT(OWNER) ? "owner: must not be empty" : "owner: required");
        return;
    }
    broker_each_lease(broker, count, &s);
    batch = begin(call, counted.cap, released);
    if (!batch)
        return;
    s.batch = batch;
    broker_each_lease(broker, take, &s);
    for (size_t i = 0; i < batch->count; i++)
        (void)open_request(&batch->items[i], STORE_RELEASE);
    submit(batch);
}
