/* Events: what has happened to locks at this node, read once or watched as it goes on. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <string.h>

#include "daemon/api.h"
#include "daemon/event_ring.h"
#include "daemon/event_streams.h"

#define EVENTS_BYTES_MAX ((size_t)PAWL_LIST_LIMIT_MAX * EVENT_BYTES_MAX)

static struct event_filter filter_of(const struct api_call *call)
{
    const struct params *p = &call->params;

    return (struct event_filter){.name = p->name,
                                 .name_len = p->name_len,
                                 .prefix = p->prefix,
                                 .prefix_len = p->prefix_len,
                                 .rule = call->rule,
                                 .rules = call->rules};
}

/* The place from which on the newest `limit` events that pass can be found. */
static uint64_t newest(struct event_ring *ring, const struct event_filter *filter, int64_t limit)
{
    uint64_t n = event_ring_end(ring), first = event_ring_first(ring);

    while (n > first && limit > 0) {
        if (event_filter_passes(filter, event_ring_at(ring, n - 1)))
            limit--;
        n--;
    }
    return n;
}

/* Adds up to `limit` events from place n on. Returns the id up to which all has been told. */
static int64_t add_events(struct text *body, struct event_ring *ring, const struct event_filter *filter, uint64_t n, int64_t limit)
{
    int64_t last = event_ring_last_id(ring);
    bool any = false;

    for (; n < event_ring_end(ring) && limit > 0; n++) {
        const struct event_record *record = event_ring_at(ring, n);

        if (!event_filter_passes(filter, record))
            continue;
        if (any)
            text_str(body, ", ");
        event_record_json(record, body);
        any = true;
        if (--limit == 0)
            last = event_record_id(record);
    }
    return last;
}

void api_events(struct api_call *call)
{
    struct event_ring *ring = call->api->events;
    const struct event_filter filter = filter_of(call);
    bool since = (call->params.seen & PARAM_BIT(SINCE)) != 0;
    uint64_t from = since ? event_ring_seek(ring, call->params.since) : newest(ring, &filter, call->params.limit);
    int64_t last;
    struct text body;

    text_init(&body, NULL, 0, EVENTS_BYTES_MAX);
    text_str(&body, "{");
    json_text(&body, "node", call->api->node, strlen(call->api->node));
    json_key(&body, "events");
    text_str(&body, "[");
    last = add_events(&body, ring, &filter, from, call->params.limit);
    text_str(&body, "]");
    json_number(&body, "last", last);
    if (since && event_ring_missed(ring, call->params.since))
        json_bool(&body, "missed", true);
    text_str(&body, "}");
    (void)api_reply(call->api, call->route, call->exchange, 200, NULL, &body, NULL, NULL);
    text_close(&body);
}

/* Last-Event-ID is what a browser adds to the very request that it made before, so it is stronger than `since`. False: answered already. */
static bool read_last_event_id(struct api_call *call)
{
    const struct http_slice *id = &call->last_event_id;
    int64_t n = 0;
    bool bad = id->len == 0;

    if (!id->at)
        return true;
    for (size_t i = 0; i < id->len && !bad; i++) {
        bad = id->at[i] < '0' || id->at[i] > '9';
        n = n * 10 + (id->at[i] - '0');
        bad = bad || n > PAWL_TOKEN_MAX;
    }
    if (bad) {
        (void)api_error(call->api, call->route, call->exchange, PAWL_E_BAD_REQUEST, "Last-Event-ID: must be the id of an event", NULL);
        return false;
    }
    call->params.since = n;
    call->params.seen |= PARAM_BIT(SINCE);
    return true;
}

void api_event_stream(struct api_call *call)
{
    struct event_ring *ring = call->api->events;
    const struct event_filter filter = filter_of(call);
    uint64_t from = event_ring_end(ring);
    bool missed = false;
    enum pawl_error error;

    if (!read_last_event_id(call))
        return;
    if (call->params.seen & PARAM_BIT(SINCE)) {
        from = event_ring_seek(ring, call->params.since);
        missed = event_ring_missed(ring, call->params.since);
    }
    error = event_streams_open(call->api->streams, call->exchange, &filter, from, missed);
    if (error == PAWL_OK)
        metrics_request(call->api->metrics, call->route, 200);
    else
        (void)api_error(call->api, call->route, call->exchange, error, error == PAWL_E_STORE_UNAVAILABLE ? "out of memory" : NULL, NULL);
}
