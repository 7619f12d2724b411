/* The HTTP front with a service made for looking at it: what the tests in this folder drive.
 *
 *     front_probe [--listen ADDRESS]... [--max-connections N] [--head-timeout MS] [--body-timeout MS] [--idle-timeout MS] [--stuck-timeout MS]
 *                 [--tls-cert FILE] [--tls-key FILE] [--tls-client-ca FILE] [--tls-client-auth required|optional]
 *
 * Prints each bound address as "listening ADDRESS", then "ready", and serves until SIGTERM or until it has drained. SIGPIPE is left as it is: a front that
 * raised it would end this process.
 *
 *     /echo            what arrived, as text                    /counts        every count, as JSON (not itself counted as a receipt)
 *     /late?MS         replies after MS                         /big?N         a body of N bytes
 *     /park            parks until /wake                        /park-late?MS  a short call for MS, then parks
 *     /wake            replies to all that is parked            /error?NAME    an error by its wire name, through http_reply_error
 *     /hold, /unhold   takes all descriptors that are left, gives them back
 *     /drain, /stop    http_front_drain and http_front_stop_accepting
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include <event2/event.h>

#include "daemon/http_front.h"
#include "daemon/log.h"
#include "daemon/peer.h"
#include "daemon/tls_config.h"

#define HELD_MAX 4096

struct call { /* an exchange that is answered later */
    TAILQ_ENTRY(call) link;
    struct probe *probe;
    struct http_exchange *x;
    struct event *timer;
    bool parks; /* when the timer fires */
};
TAILQ_HEAD(call_list, call);

struct probe {
    struct event_base *base;
    struct http_front *front;
    struct tls_config *tls;
    struct call_list late, parked;
    uint64_t gone, delivered, lost, pending, later_delivered, later_lost;
    int held[HELD_MAX], held_count;
};

static bool is_path(const struct http_request *request, const char *path)
{
    return request->path.len == strlen(path) && memcmp(request->path.at, path, request->path.len) == 0;
}

static long query_number(const struct http_request *request)
{
    char text[24] = "";

    if (request->query.at != NULL && request->query.len < sizeof(text)) {
        memcpy(text, request->query.at, request->query.len);
    }
    return strtol(text, NULL, 10);
}

/* ---- replies and what becomes of them ---- */

static void on_receipt(void *arg, bool delivered)
{
    struct probe *p = arg;

    p->pending--;
    if (delivered) {
        p->later_delivered++;
    } else {
        p->later_lost++;
    }
}

static void reply(struct probe *p, struct http_exchange *x, const struct http_response *response)
{
    switch (http_reply(x, response, on_receipt, p)) {
    case HTTP_DELIVERED:
        p->delivered++;
        break;
    case HTTP_LOST:
        p->lost++;
        break;
    case HTTP_DELIVERY_PENDING:
        p->pending++;
        break;
    }
}

static void reply_text(struct probe *p, struct http_exchange *x, const char *text)
{
    const struct http_response response = {.status = 200, .content_type = "text/plain", .body = text, .body_len = strlen(text)};

    reply(p, x, &response);
}

/* ---- late and parked exchanges ---- */

static void end_call(struct call *call, struct call_list *list)
{
    TAILQ_REMOVE(list, call, link);
    if (call->timer != NULL) {
        event_free(call->timer);
    }
    free(call);
}

static void on_late(evutil_socket_t fd, short what, void *arg)
{
    struct call *call = arg;
    struct probe *p = call->probe;
    struct http_exchange *x = call->x;

    (void)fd;
    (void)what;
    if (call->parks) {
        TAILQ_REMOVE(&p->late, call, link);
        TAILQ_INSERT_TAIL(&p->parked, call, link);
        call->parks = false;
        http_exchange_park(x);
    } else {
        end_call(call, &p->late);
        reply_text(p, x, "late\n");
    }
}

static struct call *new_call(struct probe *p, struct http_exchange *x, struct call_list *list)
{
    struct call *call = calloc(1, sizeof(*call));

    if (call == NULL) {
        http_reply_error(x, PAWL_E_STORE_UNAVAILABLE, "no memory");
        return NULL;
    }
    call->probe = p;
    call->x = x;
    TAILQ_INSERT_TAIL(list, call, link);
    http_exchange_set_data(x, call);
    return call;
}

static void answer_late(struct probe *p, struct http_exchange *x, const struct http_request *request, bool parks)
{
    long ms = query_number(request);
    const struct timeval delay = {ms / 1000, ms % 1000 * 1000};
    struct call *call = new_call(p, x, &p->late);

    if (call != NULL) {
        call->parks = parks;
        call->timer = event_new(p->base, -1, 0, on_late, call);
        event_add(call->timer, &delay);
    }
}

static void handle_late(struct probe *p, struct http_exchange *x, const struct http_request *request)
{
    answer_late(p, x, request, false);
}

static void handle_park_late(struct probe *p, struct http_exchange *x, const struct http_request *request)
{
    answer_late(p, x, request, true);
}

static void handle_park(struct probe *p, struct http_exchange *x, const struct http_request *request)
{
    (void)request;
    if (new_call(p, x, &p->parked) != NULL) {
        http_exchange_park(x);
    }
}

static void handle_wake(struct probe *p, struct http_exchange *x, const struct http_request *request)
{
    struct call *call;
    int woken = 0;
    char text[32];

    (void)request;
    while ((call = TAILQ_FIRST(&p->parked)) != NULL) {
        struct http_exchange *sleeper = call->x;

        end_call(call, &p->parked);
        reply_text(p, sleeper, "woken\n");
        woken++;
    }
    snprintf(text, sizeof(text), "%d\n", woken);
    reply_text(p, x, text);
}

static void on_gone(void *ctx, struct http_exchange *x)
{
    struct probe *p = ctx;
    struct call *call = http_exchange_data(x);

    p->gone++;
    if (call != NULL) {
        end_call(call, call->timer != NULL && event_pending(call->timer, EV_TIMEOUT, NULL) ? &p->late : &p->parked);
    }
}

/* ---- the other paths ---- */

static void put_slice(FILE *out, const char *name, struct http_slice slice)
{
    if (slice.at != NULL) {
        fprintf(out, "%s=", name);
        fwrite(slice.at, 1, slice.len, out);
        fputc('\n', out);
    }
}

static void handle_echo(struct probe *p, struct http_exchange *x, const struct http_request *request)
{
    static const char *const names[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "OTHER"};
    struct http_response response = {.status = 200, .content_type = "text/plain"};
    char *text = NULL;
    FILE *out = open_memstream(&text, &response.body_len);

    if (out == NULL) {
        http_reply_error(x, PAWL_E_STORE_UNAVAILABLE, "no memory");
        return;
    }
    fprintf(out, "%s ", names[request->method]);
    fwrite(request->path.at, 1, request->path.len, out);
    fputc('\n', out);
    put_slice(out, "query", request->query);
    put_slice(out, "host", request->host);
    put_slice(out, "origin", request->origin);
    put_slice(out, "authorization", request->authorization);
    if (request->peer->subject != NULL) {
        fprintf(out, "subject=%s\n", request->peer->subject);
    }
    put_slice(out, "body", request->body);
    fclose(out);
    response.body = text;
    reply(p, x, &response);
    free(text);
}

static void handle_big(struct probe *p, struct http_exchange *x, const struct http_request *request)
{
    struct http_response response = {.status = 200, .content_type = "application/octet-stream", .body_len = (size_t)query_number(request)};
    char *body = malloc(response.body_len + 1);

    if (body == NULL) {
        http_reply_error(x, PAWL_E_STORE_UNAVAILABLE, "no memory");
        return;
    }
    for (size_t i = 0; i < response.body_len; i++) {
        body[i] = (char)('a' + i % 26);
    }
    response.body = body;
    reply(p, x, &response);
    free(body);
}

static void handle_counts(struct probe *p, struct http_exchange *x, const struct http_request *request)
{
    const struct http_front_counts c = http_front_counts(p->front);
    char text[512];
    struct http_response response = {.status = 200, .body = text};

    (void)request;
    response.body_len = (size_t)snprintf(text, sizeof(text),
                                         "{\"accepted\": %llu, \"refused\": %llu, \"requests\": %llu, \"bad_requests\": %llu, "
                                         "\"timeouts\": %llu, \"accept_errors\": %llu, \"connections\": %zu, "
                                         "\"parked\": %zu, \"gone\": %llu, \"delivered\": %llu, \"lost\": %llu, \"pending\": %llu, "
                                         "\"later_delivered\": %llu, \"later_lost\": %llu}\n",
                                         (unsigned long long)c.accepted, (unsigned long long)c.refused, (unsigned long long)c.requests,
                                         (unsigned long long)c.bad_requests, (unsigned long long)c.timeouts,
                                         (unsigned long long)c.accept_errors, c.connections, c.parked, (unsigned long long)p->gone,
                                         (unsigned long long)p->delivered, (unsigned long long)p->lost, (unsigned long long)p->pending,
                                         (unsigned long long)p->later_delivered, (unsigned long long)p->later_lost);
    http_reply(x, &response, NULL, NULL);
}

static void handle_error(struct probe *p, struct http_exchange *x, const struct http_request *request)
{
    (void)p;
    for (int error = PAWL_OK + 1; error < PAWL_ERROR_COUNT; error++) {
        const char *wire = pawl_error_wire((enum pawl_error)error);

        if (request->query.len == strlen(wire) && memcmp(request->query.at, wire, request->query.len) == 0) {
            http_reply_error(x, (enum pawl_error)error, NULL);
            return;
        }
    }
    http_reply_error(x, PAWL_E_NOT_FOUND, "a \"quoted\" sentence");
}

static void handle_hold(struct probe *p, struct http_exchange *x, const struct http_request *request)
{
    (void)request;
    while (p->held_count < HELD_MAX && (p->held[p->held_count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) {
        p->held_count++;
    }
    reply_text(p, x, "held\n");
}

static void handle_unhold(struct probe *p, struct http_exchange *x, const struct http_request *request)
{
    (void)request;
    while (p->held_count > 0) {
        close(p->held[--p->held_count]);
    }
    reply_text(p, x, "free\n");
}

static void on_drained(void *arg)
{
    struct probe *p = arg;

    printf("drained\n");
    event_base_loopbreak(p->base);
}

static void handle_drain(struct probe *p, struct http_exchange *x, const struct http_request *request)
{
    (void)request;
    http_front_drain(p->front, on_drained, p);
    reply_text(p, x, "draining\n");
}

static void handle_stop(struct probe *p, struct http_exchange *x, const struct http_request *request)
{
    (void)request;
    http_front_stop_accepting(p->front);
    reply_text(p, x, "stopped\n");
}

static void handle_options(struct probe *p, struct http_exchange *x, const struct http_request *request)
{
    const struct http_response response = {.status = 204, .extra_headers = "Allow: GET, HEAD, POST\r\n"};

    (void)request;
    reply(p, x, &response);
}

static void handle(void *ctx, struct http_exchange *x, const struct http_request *request)
{
    static const struct {
        const char *path;
        void (*handle)(struct probe *p, struct http_exchange *x, const struct http_request *request);
    } rows[] = {
        {"/echo", handle_echo}, {"/late", handle_late},     {"/park", handle_park},   {"/park-late", handle_park_late},
        {"/wake", handle_wake}, {"/big", handle_big},       {"/error", handle_error}, {"/counts", handle_counts},
        {"/hold", handle_hold}, {"/unhold", handle_unhold}, {"/drain", handle_drain}, {"/stop", handle_stop},
        {"*", handle_options},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (is_path(request, rows[i].path)) {
            rows[i].handle(ctx, x, request);
            return;
        }
    }
    handle_echo(ctx, x, request);
}

/* ---- the program ---- */

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
    struct probe *p = arg;

    (void)fd;
    (void)what;
    event_base_loopbreak(p->base);
}

static int listen_on(struct probe *p, const char *address)
{
    char problem[512];

    if (http_front_listen(p->front, address, problem, sizeof(problem)) != 0) {
        fprintf(stderr, "front_probe: %s\n", problem);
        return -1;
    }
    return 0;
}

static int load_certificate(struct probe *p, int argc, char **argv)
{
    struct tls_files files = {0};
    char problem[512];

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--tls-cert") == 0) {
            files.cert = argv[i + 1];
        } else if (strcmp(argv[i], "--tls-key") == 0) {
            files.key = argv[i + 1];
        } else if (strcmp(argv[i], "--tls-client-ca") == 0) {
            files.ca = argv[i + 1];
        } else if (strcmp(argv[i], "--tls-client-auth") == 0) {
            files.client_auth = strcmp(argv[i + 1], "optional") == 0 ? TLS_CLIENT_AUTH_OPTIONAL : TLS_CLIENT_AUTH_REQUIRED;
        }
    }
    if (files.cert == NULL) {
        return 0;
    }
    p->tls = tls_config_new_server(&files);
    if (p->tls == NULL || tls_config_load(p->tls, problem, sizeof(problem)) != 0) {
        fprintf(stderr, "front_probe: %s\n", p->tls == NULL ? "no memory" : problem);
        return -1;
    }
    return 0;
}

static int configure(struct probe *p, int argc, char **argv, const struct http_service *service)
{
    struct http_front_config config = {
        .max_connections = 10000, .head_timeout_ms = 10000, .body_timeout_ms = 30000, .idle_timeout_ms = 75000, .stuck_timeout_ms = 30000};
    const struct {
        const char *name;
        int64_t *value;
    } options[] = {
        {"--head-timeout", &config.head_timeout_ms},
        {"--body-timeout", &config.body_timeout_ms},
        {"--idle-timeout", &config.idle_timeout_ms},
        {"--stuck-timeout", &config.stuck_timeout_ms},
    };

    for (int i = 1; i + 1 < argc; i += 2) {
        for (size_t j = 0; j < sizeof(options) / sizeof(options[0]); j++) {
            if (strcmp(argv[i], options[j].name) == 0) {
                *options[j].value = strtoll(argv[i + 1], NULL, 10);
            }
        }
        if (strcmp(argv[i], "--max-connections") == 0) {
            config.max_connections = strtoul(argv[i + 1], NULL, 10);
        }
    }
    if (load_certificate(p, argc, argv) != 0) {
        return -1;
    }
    config.tls = p->tls;
    p->front = http_front_new(p->base, &config, service);
    if (p->front == NULL) {
        return -1;
    }
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--listen") == 0 && listen_on(p, argv[i + 1]) != 0) {
            return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct probe p; /* zeroed */
    const struct http_service service = {&p, handle, on_gone};
    struct event *on_term;
    int result = EXIT_FAILURE;

    setvbuf(stdout, NULL, _IOLBF, 0);
    log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    TAILQ_INIT(&p.late);
    TAILQ_INIT(&p.parked);
    p.base = event_base_new();
    on_term = evsignal_new(p.base, SIGTERM, on_signal, &p);
    event_add(on_term, NULL);
    if (configure(&p, argc, argv, &service) == 0) {
        for (size_t i = 0; http_front_address(p.front, i) != NULL; i++) {
            printf("listening %s\n", http_front_address(p.front, i));
        }
        printf("ready\n");
        event_base_dispatch(p.base);
        result = EXIT_SUCCESS;
    }
    http_front_free(p.front);
    tls_config_free(p.tls);
    event_free(on_term);
    event_base_free(p.base);
    return result;
}
