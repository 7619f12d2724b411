#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/router.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/lock_name.h"

#define LOCKS     "/v1/locks/"
#define NO_PARAMS 0u
#define OWN_BODY  (1u << 31) /* the handler reads the body by itself, and the query holds nothing */
_Static_assert(PARAM_COUNT < 31, "one bit is no parameter");

#define OPEN_TO_ALL 0u

const struct route routes[] = {
    {"acquire", HTTP_POST, ROUTE_VERB, "acquire",
     PARAM_BIT(TTL) | PARAM_BIT(WAIT) | PARAM_BIT(LOCK_DELAY) | PARAM_BIT(MAX_HOLD) | PARAM_BIT(OWNER) | PARAM_BIT(LEASE_ID), api_acquire,
     ACCESS_ACQUIRE},
    {"renew", HTTP_POST, ROUTE_VERB, "renew", PARAM_BIT(LEASE_ID) | PARAM_BIT(TTL), api_renew, ACCESS_ACQUIRE},
    {"release", HTTP_POST, ROUTE_VERB, "release", PARAM_BIT(LEASE_ID), api_release, ACCESS_ACQUIRE},
    {"check", HTTP_POST, ROUTE_VERB, "check", PARAM_BIT(TOKEN), api_check, ACCESS_ACQUIRE},
    {"break", HTTP_POST, ROUTE_VERB, "break", PARAM_BIT(REASON), api_break, ACCESS_BREAK},
    {"inspect", HTTP_GET, ROUTE_LOCK, "", PARAM_BIT(LEASE_ID), api_inspect, ACCESS_READ},
    {"list", HTTP_GET, ROUTE_FIXED, "/v1/locks", PARAM_BIT(PREFIX) | PARAM_BIT(LIMIT) | PARAM_BIT(CURSOR), api_list, ACCESS_READ},
    {"renew_many", HTTP_POST, ROUTE_FIXED, "/v1/renew", OWN_BODY, api_renew_many, ACCESS_ACQUIRE},
    {"release_all", HTTP_POST, ROUTE_FIXED, "/v1/release-all", PARAM_BIT(OWNER), api_release_all, ACCESS_ACQUIRE},
    {"status", HTTP_GET, ROUTE_FIXED, "/v1/status", NO_PARAMS, api_status, ACCESS_READ},
    {"events", HTTP_GET, ROUTE_FIXED, "/v1/events", PARAM_BIT(SINCE) | PARAM_BIT(NAME) | PARAM_BIT(PREFIX) | PARAM_BIT(LIMIT), api_events,
     ACCESS_READ},
    {"event_stream", HTTP_GET, ROUTE_FIXED, "/v1/events/stream", PARAM_BIT(SINCE) | PARAM_BIT(NAME) | PARAM_BIT(PREFIX), api_event_stream,
     ACCESS_READ},
    {"page", HTTP_GET, ROUTE_FIXED, "/", NO_PARAMS, api_page, OPEN_TO_ALL},
    {"page_script", HTTP_GET, ROUTE_FIXED, "/ui.js", NO_PARAMS, api_page_script, OPEN_TO_ALL},
    {"page_style", HTTP_GET, ROUTE_FIXED, "/ui.css", NO_PARAMS, api_page_style, OPEN_TO_ALL},
    {"page_icon", HTTP_GET, ROUTE_FIXED, "/ui.svg", NO_PARAMS, api_page_icon, OPEN_TO_ALL},
    {"healthz", HTTP_GET, ROUTE_FIXED, "/healthz", NO_PARAMS, api_healthz, OPEN_TO_ALL},
    {"readyz", HTTP_GET, ROUTE_FIXED, "/readyz", NO_PARAMS, api_readyz, OPEN_TO_ALL},
    {"metrics", HTTP_GET, ROUTE_FIXED, "/metrics", NO_PARAMS, api_metrics, ACCESS_READ},
};
const size_t route_count = sizeof(routes) / sizeof(routes[0]);

/* One name more than rows: requests that matched none are counted there. */
static const char *names[sizeof(routes) / sizeof(routes[0]) + 1];
#define ROUTE_NONE (sizeof(routes) / sizeof(routes[0]))

const char *const *route_names(void)
{
    for (size_t i = 0; i < route_count; i++)
        names[i] = routes[i].call;
    names[ROUTE_NONE] = "none";
    return names;
}

static bool slice_is(struct http_slice slice, const char *text)
{
    return slice.len == strlen(text) && memcmp(slice.at, text, slice.len) == 0;
}

/* "NAME/verb" */
static bool ends_with_verb(const char *at, size_t len, const char *verb)
{
    size_t n = strlen(verb);

    return len > n && at[len - n - 1] == '/' && memcmp(at + len - n, verb, n) == 0;
}

/* Does the path have this row's shape? *ret_name is the raw name then (at NULL: none). */
static bool shape_fits(const struct route *route, struct http_slice path, struct http_slice *ret_name)
{
    size_t head = strlen(LOCKS);

    *ret_name = (struct http_slice){NULL, 0};
    if (route->shape == ROUTE_FIXED)
        return slice_is(path, route->path);
    if (path.len <= head || memcmp(path.at, LOCKS, head) != 0)
        return false;
    *ret_name = (struct http_slice){path.at + head, path.len - head};
    if (route->shape == ROUTE_LOCK)
        return true;
    if (!ends_with_verb(ret_name->at, ret_name->len, route->path))
        return false;
    ret_name->len -= strlen(route->path) + 1;
    return true;
}

/* The call that this would be as a POST; NULL: none. For those who forgot that, and sent a GET. */
static const char *call_at_end(struct http_slice path)
{
    for (size_t i = 0; i < route_count; i++)
        if (routes[i].shape == ROUTE_VERB && path.len > strlen(routes[i].path) + 1 && ends_with_verb(path.at, path.len, routes[i].path))
            return routes[i].path;
    return NULL;
}

static const char *method_name(enum http_method method)
{
    return method == HTTP_POST ? "POST" : "GET, HEAD";
}

/* The row for method and path, or NULL with the methods that this path does take in `allow` ("" when the path is none of ours). */
static const struct route *find(const struct http_request *request, struct http_slice *ret_name, char *allow, size_t cap)
{
    enum http_method method = request->method == HTTP_HEAD ? HTTP_GET : request->method;
    bool get = false, post = false;

    for (size_t i = 0; i < route_count; i++) {
        struct http_slice name;
        if (!shape_fits(&routes[i], request->path, &name))
            continue;
        if (routes[i].method == method) {
            *ret_name = name;
            return &routes[i];
        }
        get = get || routes[i].method == HTTP_GET;
        post = post || routes[i].method == HTTP_POST;
    }
    snprintf(allow, cap, "%s%s%s", get ? method_name(HTTP_GET) : "", get && post ? ", " : "", post ? method_name(HTTP_POST) : "");
    return NULL;
}

#define CALLS_ON_LOCKS "POST takes /v1/locks/{name}/acquire, renew, release, check or break"

static void refuse_path(struct api *api, struct http_exchange *x, struct http_slice path)
{
    bool slash = path.len > 1 && path.at[path.len - 1] == '/';

    (void)api_error(api, ROUTE_NONE, x, PAWL_E_NOT_FOUND,
                    slash ? "there is nothing at this path: none ends with a slash"
                          : "there is nothing at this path; a lock is at /v1/locks/{name}, the list of them at /v1/locks",
                    NULL);
}

/* The header says which methods there are, and so does the message, since curl shows only that. */
static void refuse_route(struct api *api, struct http_exchange *x, const struct http_request *request, const char *allow)
{
    static const struct route any_lock = {.shape = ROUTE_LOCK, .path = ""};
    bool on_lock, call = strcmp(allow, method_name(HTTP_POST)) == 0;
    char header[64], message[160];
    struct http_slice name;

    if (!allow[0]) {
        refuse_path(api, x, request->path);
        return;
    }
    on_lock = shape_fits(&any_lock, request->path, &name);
    if (request->method == HTTP_POST && on_lock) { /* any verb of ours would have been found */
        (void)api_error(api, ROUTE_NONE, x, PAWL_E_NOT_FOUND, CALLS_ON_LOCKS, NULL);
        return;
    }
    snprintf(header, sizeof(header), "Allow: %s\r\n", allow);
    snprintf(message, sizeof(message), "this path takes only %s%s", allow, on_lock && !call ? "; " CALLS_ON_LOCKS : "");
    (void)api_error_with(api, ROUTE_NONE, x, PAWL_E_METHOD_NOT_ALLOWED, message, NULL, header);
}

/* Does a host that a browser was pointed at mean one machine, whatever a name server says? Names could be made to point here by whoever owns them. */
static bool host_is_fixed(struct http_slice host)
{
    static const char local[] = "localhost";
    size_t len = strlen(local), digits = 0;

    if (host.len >= len && strncasecmp(host.at, local, len) == 0 && (host.len == len || host.at[len] == ':'))
        return true;
    if (host.len > 0 && host.at[0] == '[')
        return true;
    while (digits < host.len && host.at[digits] != '\0' && strchr("0123456789.", host.at[digits]))
        digits++;
    return digits > 0 && (digits == host.len || host.at[digits] == ':');
}

/* The page of this very node: the browser has it from the address that it now calls. */
static bool is_own_page(const struct http_request *request)
{
    static const char *const schemes[] = {"http://", "https://"};
    struct http_slice origin = request->origin, host = request->host;

    for (size_t i = 0; host.len > 0 && i < sizeof(schemes) / sizeof(schemes[0]); i++) {
        size_t len = strlen(schemes[i]);

        if (origin.len == len + host.len && memcmp(origin.at, schemes[i], len) == 0 && strncasecmp(origin.at + len, host.at, host.len) == 0)
            return host_is_fixed(host);
    }
    return false;
}

static bool origin_allowed(const struct api *api, struct http_slice origin)
{
    for (size_t i = 0; i < api->options->allow_origin_count; i++)
        if (slice_is(origin, api->options->allow_origin[i]))
            return true;
    return false;
}

/* Of a name that could not be decoded into `cap` bytes. */
static const char *raw_name_problem(struct http_slice raw, size_t cap)
{
    if (raw.len < cap)
        return "badly percent-encoded";
    return memchr(raw.at, '%', raw.len) ? "longer than 255 bytes, or badly percent-encoded" : "must be at most 255 bytes";
}

/* Decodes and checks the name; on a problem answers and returns false. */
static bool read_name(struct api_call *call, struct http_slice raw, char *name, size_t cap)
{
    const char *problem = NULL;
    char message[256];
    int len = percent_decode(raw.at, raw.len, name, cap);

    if (len < 0)
        problem = raw_name_problem(raw, cap);
    else
        problem = lock_name_problem(name, (size_t)len);
    if (problem) {
        snprintf(message, sizeof(message), "name: %s", problem);
        (void)api_error(call->api, call->route, call->exchange, PAWL_E_BAD_REQUEST, message, &call->params.lease_id);
        return false;
    }
    call->name = name;
    call->name_len = (size_t)len;
    return true;
}

/* The commonest way to a parameter that "is not one of this call". */
static void hint_at_post(struct param_problem *problem, struct http_slice path)
{
    const char *verb = call_at_end(path);
    size_t len = strlen(problem->message);

    if (verb && len > 0)
        snprintf(problem->message + len, sizeof(problem->message) - len, "; %s is a POST, and this is a GET", verb);
}

static bool read_params(struct api_call *call, const struct http_request *request, unsigned allowed)
{
    struct param_problem problem = {.no_memory = false};
    int bad = 0;

    params_init(&call->params);
    if (request->query.at)
        bad = params_from_query(&call->params, request->query.at, request->query.len, allowed & ~OWN_BODY, &problem);
    if (allowed & OWN_BODY) {
        call->body = request->body;
    } else if (!bad && request->body.len > 0) {
        if (request->method != HTTP_POST) {
            snprintf(problem.message, sizeof(problem.message), "a GET takes its parameters in the query, and no body");
            bad = -1;
        } else {
            bad = params_from_json(&call->params, request->body.at, request->body.len, allowed, &problem);
        }
    }
    if (bad && request->method != HTTP_POST)
        hint_at_post(&problem, request->path);
    if (bad)
        (void)api_error(call->api, call->route, call->exchange, problem.no_memory ? PAWL_E_STORE_UNAVAILABLE : PAWL_E_BAD_REQUEST,
                        problem.message, &call->params.lease_id);
    return !bad;
}

void router_handle(void *ctx, struct http_exchange *x, const struct http_request *request)
{
    struct api_call call = {.api = ctx, .exchange = x, .peer = request->peer, .last_event_id = request->last_event_id};
    struct http_slice raw_name;
    char name[PAWL_NAME_MAX + 1], allow[32];
    const struct route *route = find(request, &raw_name, allow, sizeof(allow));

    if (!route) {
        refuse_route(ctx, x, request, allow);
        return;
    }
    call.route = (size_t)(route - routes);
    if (request->origin.at && !is_own_page(request) && !origin_allowed(ctx, request->origin)) {
        (void)api_error(ctx, call.route, x, PAWL_E_FORBIDDEN, "requests from web pages of this origin are not allowed", NULL);
        return;
    }
    if (route->needs && !api_let_in(&call, request->authorization))
        return;
    if (!read_params(&call, request, route->params))
        return;
    if (raw_name.at && !read_name(&call, raw_name, name, sizeof(name)))
        return;
    if (route->needs && !api_may(&call, route->needs))
        return;
    if (route->shape == ROUTE_LOCK)
        call.call_at_end = call_at_end(raw_name);
    route->handler(&call);
}

void router_gone(void *ctx, struct http_exchange *x)
{
    (void)ctx;
    api_gone(x);
}
