/* The calls of the HTTP API: one handler each. A handler decodes, asks the broker (or reads a number), and encodes; it decides nothing.
 *
 * This header is what router, api_locks and api_admin share: what a handler is given, and how every one of them answers. */
#ifndef PAWL_API_H
#define PAWL_API_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/auth.h"
#include "daemon/broker.h"
#include "daemon/http.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/options.h"
#include "daemon/store.h"
#include "proto/params.h"
#include "proto/text.h"

struct event_ring;
struct event_streams;
struct http_front;

struct api { /* owned by the daemon; everything in it outlives every call */
    const struct options *options;
    struct broker *broker;
    struct store *store;
    struct metrics *metrics;
    struct http_front *front;
    struct auth *auth; /* NULL: everybody may do everything */
    struct event_ring *events;
    struct event_streams *streams;
    const char *node;
    int64_t started_us;
    bool draining;
    struct log_gate login_gate, refusal_gate;
};

struct api_call { /* valid only while the handler runs */
    struct api *api;
    size_t route; /* its row, for the counts */
    struct http_exchange *exchange;
    const struct peer *peer;
    const struct access_rule *rule; /* that let it in; NULL: there are no rules, or this route is open to all */
    struct access *rules;           /* whose it is, to be held for longer than the handler */
    const char *name;               /* of the lock, decoded and checked; NULL when the route has none */
    size_t name_len;
    const char *call_at_end; /* with which that name ends, of a GET that may have been meant as this POST; NULL: none */
    struct http_slice last_event_id;
    struct params params;
    struct http_slice body; /* of a route that reads it by itself (see router.c); else in params */
};

/* What an exchange has as its data while a call is open: the first member of it. */
struct api_open {
    void (*gone)(struct api_open *open); /* the client has left: no reply may follow */
};

/* Answers with JSON (a line; `body` without its newline, which is added) and counts it. The exchange is over afterwards. */
enum http_delivery api_reply(struct api *api, size_t route, struct http_exchange *x, int status, const char *extra_headers,
                             struct text *body, http_receipt_fn *receipt, void *arg);

/* {"error", "message"} and, unless lease_id is NULL or empty, "lease_id". message NULL: the error's own sentence. */
enum http_delivery api_error(struct api *api, size_t route, struct http_exchange *x, enum pawl_error error, const char *message,
                             const struct lease_id *lease_id);

/* The same with header fields of its own, as http_response has them; NULL: those that belong to the error. */
enum http_delivery api_error_with(struct api *api, size_t route, struct http_exchange *x, enum pawl_error error, const char *message,
                                  const struct lease_id *lease_id, const char *extra_headers);

/* api_access.c. Both answer when they return false; without rules they return true. */
bool api_let_in(struct api_call *call, struct http_slice authorization); /* who is it? Sets rule and rules */
bool api_may(struct api_call *call, unsigned needs);                     /* an ACCESS_...; for the name or the prefix of the call, or any */

/* ,"key":"value" and ,"key":n for bodies built by hand; without the comma after a '{'. */
void json_key(struct text *t, const char *key);
void json_text(struct text *t, const char *key, const char *value, size_t len);
void json_number(struct text *t, const char *key, int64_t value);
void json_bool(struct text *t, const char *key, bool value);

/* api_lease.c. What a caller is told of a lease that it was granted or that it renewed, which is the same in every call that tells it. */
struct api_lease {
    struct lease_id id;
    int64_t token, until_us, most_until_us; /* as in a broker_request */
    int64_t replicas;
    const char *owner; /* borrowed */
    size_t owner_len;
};

struct api_lease api_lease_of(const struct broker_request *r);                               /* owner lives in the request */
void json_lease(struct text *t, const struct broker *broker, const struct api_lease *lease); /* its fields */

typedef void api_handler(struct api_call *call);
api_handler api_acquire, api_renew, api_release, api_check, api_break, api_inspect, api_list; /* api_locks.c */
api_handler api_renew_many, api_release_all;                                                  /* api_many.c */
api_handler api_status, api_healthz, api_readyz, api_metrics;                                 /* api_admin.c */
api_handler api_events, api_event_stream;                                                     /* api_events.c */
api_handler api_page, api_page_script, api_page_style, api_page_icon;                         /* api_page.c */
void api_gone(struct http_exchange *x); /* api_locks.c: the client of an open call has left */

#endif
