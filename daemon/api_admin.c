/* What operators and their tools read. Nothing here asks the store: it tells what this node knows now. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <string.h>

#include "daemon/api.h"
#include "daemon/event_streams.h"
#include "daemon/http_front.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

#define METRICS_BYTES_MAX ((size_t)256 * 1024)

static void str(struct text *t, const char *key, const char *value)
{
    json_text(t, key, value, strlen(value));
}

void api_status(struct api_call *call)
{
    const struct api *api = call->api;
    struct store_status store;
    struct http_front_counts counts = http_front_counts(api->front);
    char block[2048];
    struct text body;

    store_get_status(api->store, &store);
    text_init(&body, block, sizeof(block), 16384);
    text_str(&body, "{");
    str(&body, "version", PACKAGE_VERSION);
    str(&body, "node", api->node);
    str(&body, "node_name", api->options->node_name);
    json_number(&body, "uptime_ms", (broker_now_us(api->broker) - api->started_us) / 1000);
    json_bool(&body, "ready", store.ready && !store.window_open && !api->draining);
    json_bool(&body, "draining", api->draining);
    json_key(&body, "redis");
    text_str(&body, "{");
    str(&body, "address", store.address);
    str(&body, "role", store.role);
    json_bool(&body, "attached", store.ready);
    str(&body, "problem", store.problem);
    text_str(&body, "}");
    str(&body, "incarnation", store.incarnation);
    json_number(&body, "fence", store.fence);
    json_bool(&body, "recovering", store.ready && store.window_open);
    json_number(&body, "leases", (int64_t)broker_leases(api->broker));
    json_number(&body, "waiters", (int64_t)broker_waiters(api->broker));
    json_number(&body, "connections", (int64_t)counts.connections);
    json_number(&body, "store_pending", (int64_t)store.pending);
    text_str(&body, "}");
    (void)api_reply(call->api, call->route, call->exchange, 200, NULL, &body, NULL, NULL);
    text_close(&body);
}

static void say_ok(struct api_call *call)
{
    char block[64];
    struct text body;

    text_init(&body, block, sizeof(block), sizeof(block));
    text_str(&body, "{\"ok\": true}");
    (void)api_reply(call->api, call->route, call->exchange, 200, NULL, &body, NULL, NULL);
    text_close(&body);
}

void api_healthz(struct api_call *call)
{
    say_ok(call);
}

void api_readyz(struct api_call *call)
{
    struct store_status store;

    store_get_status(call->api->store, &store);
    if (call->api->draining)
        (void)api_error(call->api, call->route, call->exchange, PAWL_E_DRAINING, NULL, NULL);
    else if (!store.ready) /* why is for those who may see the status */
        (void)api_error(call->api, call->route, call->exchange, PAWL_E_STORE_UNAVAILABLE, call->api->auth ? NULL : store.problem, NULL);
    else if (store.window_open)
        (void)api_error(call->api, call->route, call->exchange, PAWL_E_RECOVERING, NULL, NULL);
    else
        say_ok(call);
}

/* Numbers that live elsewhere are fetched when somebody looks. */
static void gather(struct api *api)
{
    struct metrics *m = api->metrics;
    struct http_front_counts counts = http_front_counts(api->front);
    struct store_status store;

    store_get_status(api->store, &store);
    metrics_set(m, METRIC_LEASES, broker_leases(api->broker));
    metrics_set(m, METRIC_WAITERS, broker_waiters(api->broker));
    metrics_set(m, METRIC_STORE_PENDING, store.pending);
    metrics_set(m, METRIC_STORE_WAITING, store.waiting);
    metrics_set(m, METRIC_STORE_UNSENT, store.unsent);
    metrics_set(m, METRIC_BUSY_POLLS, store.busy_polls);
    metrics_set(m, METRIC_VAIN_BUSY_POLLS, store.vain_busy_polls);
    metrics_set(m, METRIC_ATTACHED, store.ready);
    metrics_set(m, METRIC_RECOVERING, store.ready && store.window_open);
    metrics_set(m, METRIC_READY, store.ready && !store.window_open && !api->draining);
    metrics_set(m, METRIC_FENCE_RAISES, store.fence_raises);
    metrics_set(m, METRIC_ATTACHES, store.attaches);
    metrics_set(m, METRIC_OPENINGS, store.openings);
    metrics_set(m, METRIC_CONNECTS, store.connects);
    metrics_set(m, METRIC_STREAMS, event_streams_count(api->streams));
    metrics_set(m, METRIC_CONNECTIONS, counts.connections);
    metrics_set(m, METRIC_CONNECTIONS_ACCEPTED, counts.accepted);
    metrics_set(m, METRIC_CONNECTIONS_REFUSED, counts.refused);
    metrics_set(m, METRIC_ACCEPT_ERRORS, counts.accept_errors);
    metrics_set(m, METRIC_HTTP_BAD, counts.bad_requests);
    metrics_set(m, METRIC_HTTP_UNPROVEN, counts.unproven);
    metrics_set(m, METRIC_HTTP_TIMEOUTS, counts.timeouts);
    metrics_set(m, METRIC_TLS_HANDSHAKES, counts.tls_greeted);
    metrics_set(m, METRIC_TLS_FAILED, counts.tls_failed);
}

void api_metrics(struct api_call *call)
{
    struct text body;
    struct http_response response = {.status = 200, .content_type = "text/plain; version=0.0.4; charset=utf-8"};

    gather(call->api);
    text_init(&body, NULL, 0, METRICS_BYTES_MAX);
    metrics_render(call->api->metrics, &body);
    if (body.failed) {
        (void)api_error(call->api, call->route, call->exchange, PAWL_E_STORE_UNAVAILABLE, "out of memory", NULL);
    } else {
        response.body = body.at;
        response.body_len = body.len;
        metrics_request(call->api->metrics, call->route, 200);
        (void)http_reply(call->exchange, &response, NULL, NULL);
    }
    text_close(&body);
}
