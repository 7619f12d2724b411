/* Requests from their bytes to the bytes of their replies: front, router, access, parameters, broker and the JSON that comes out, over a real unix socket. The store
 * behind them answers by the input. Whatever is asked, each reply is whole HTTP with one line of JSON that the project's own reader takes, none comes
 * unasked, and a refused caller reaches the store with nothing.
 *
 * The first byte: bit 0, there are rules of access; bit 1, the client shuts its side when it has sent all; bit 2, it closes without reading; the rest, into how many
 * writes the bytes are split. The next eight say how the store answers, one call after the other; then come the bytes of the client. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <event2/event.h>

#include "daemon/api.h"
#include "daemon/event_ring.h"
#include "daemon/event_streams.h"
#include "daemon/http_front.h"
#include "daemon/router.h"
#include "proto/json.h"
#include "tests/fuzz/target.h"

#define ANSWERS   8
#define REPLY_MAX ((size_t)1 << 20)
#define TOKEN     "alpha"

static struct event_base *base;
static struct options options;
static struct auth *auth;
static char rules_path[64], socket_path[64], listen_text[80];
static char replies[REPLY_MAX + 1];

/* What the store is asked is answered in the next turn, in order. */
struct stub {
    struct store seam;
    const uint8_t *answers;
    unsigned asked;
    struct store_call *first, **last;
};

/* ---- the store ---- */

static void stub_submit(struct store *seam, struct store_call *call)
{
    struct stub *s = (struct stub *)seam;

    must(call->name_len <= PAWL_NAME_MAX && call->owner_len <= PAWL_OWNER_MAX);
    must(call->op == STORE_LIST || call->name_len >= 1);
    call->next = NULL;
    *s->last = call;
    s->last = &call->next;
}

static void stub_status(const struct store *seam, struct store_status *ret)
{
    (void)seam;
    memset(ret, 0, sizeof(*ret));
    ret->ready = true;
    ret->problem = ret->address = ret->incarnation = "";
    ret->role = "master";
}

static const struct store_ops stub_ops = {.submit = stub_submit, .status = stub_status};

static void answer(struct stub *s, struct store_call *call)
{
    static const char odd[] = "o\"\\\n\xff\xc3\xa4";
    uint8_t how = s->answers[s->asked++ % ANSWERS];
    struct store_lock lock = {.name = "a/\"b", .name_len = 4, .owner = odd, .owner_len = sizeof(odd) - 1, .token = 7, .ttl_ms = 5};

    call->result = (enum store_result)(how % 10);
    call->problem = "a sentence";
    call->sent_us = clock_now_us(&clock_boottime);
    call->ret_token = how & 0x10 ? PAWL_TOKEN_MAX : 1;
    call->ret_ttl_ms = how & 0x20 ? 0 : call->ttl_ms;
    call->holder = (struct store_holder){.token = how & 0x40, .ttl_ms = 10, .owner_len = sizeof(odd) - 1};
    memcpy(call->holder.owner, odd, sizeof(odd));
    call->ret_ticket = call->queue ? 3 : 0;
    call->ret_waiters = how;
    call->ret_woken.text[0] = '\0';
    if (call->op == STORE_LIST && call->result == STORE_DONE) {
        (void)snprintf(call->cursor, sizeof(call->cursor), "%s", how & 0x80 ? "12" : "0");
        call->on_lock(call, &lock);
    }
    call->done(call);
}

static void answer_all(struct stub *s)
{
    struct store_call *call = s->first;

    s->first = NULL;
    s->last = &s->first;
    while (call) {
        struct store_call *next = call->next;

        answer(s, call);
        call = next;
    }
}

/* ---- once for all inputs ---- */

static void remove_files(void)
{
    (void)unlink(socket_path);
    (void)unlink(rules_path);
}

static void set_up(void)
{
    static const char rules[] =
        "{\"rules\": [{\"name\": \"one\", \"token_sha256\": \"8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8\", "
        "\"prefixes\": [\"a\"], \"verbs\": [\"acquire\", \"read\"]}]}";
    static const struct options untouched;
    char problem[600];
    FILE *file;

    if (base)
        return;
    log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    (void)snprintf(socket_path, sizeof(socket_path), "/tmp/pawl-fuzz-front-%ld.sock", (long)getpid());
    (void)snprintf(rules_path, sizeof(rules_path), "/tmp/pawl-fuzz-front-%ld.json", (long)getpid());
    (void)snprintf(listen_text, sizeof(listen_text), "unix:%s", socket_path);
    remove_files();
    must(atexit(remove_files) == 0);
    file = fopen(rules_path, "w");
    must(file && fputs(rules, file) >= 0 && fclose(file) == 0 && chmod(rules_path, 0600) == 0);
    options = untouched;
    must(options_read_text(&options, "f", "", 0, problem, sizeof(problem)) == 0);
    must(auth_open(rules_path, &auth, problem, sizeof(problem)) == 0);
    base = event_base_new();
    must(base != NULL);
}

/* ---- replies ---- */

static int any_member(void *arg, const struct json_member *member)
{
    (void)arg;
    (void)member;
    return 0;
}

static void check_body(const char *head, size_t head_len, const char *body, size_t len)
{
    struct json_fault fault;

    if (len == 0 || !memmem(head, head_len, "application/json", 16))
        return;
    must(body[len - 1] == '\n' && !memchr(body, '\n', len - 1));
    must(json_members(body, len, any_member, NULL, &fault) == 0);
}

/* One reply of those in text[0..len): returns its length, or 0 when it isn't whole. */
static size_t check_reply(const char *text, size_t len, bool heads)
{
    const char *end = memmem(text, len, "\r\n\r\n", 4), *field;
    size_t head_len, body_len = 0;

    must(len < 13 || strncmp(text, "HTTP/1.1 ", 9) == 0);
    if (!end)
        return 0;
    head_len = (size_t)(end - text) + 4;
    field = memmem(text, head_len, "Content-Length: ", 16);
    if (memmem(text, head_len, "text/event-stream", 17)) /* goes on until the client leaves */
        return len;
    if (field)
        body_len = strtoul(field + 16, NULL, 10);
    must(field || strncmp(text + 9, "100", 3) == 0);
    if (heads && body_len > 0) { /* perhaps one to a HEAD, which has no body: what comes next tells */
        if (head_len == len || strncmp(text + head_len, "HTTP/1.1 ", 9) == 0)
            return head_len;
    }
    if (len - head_len < body_len)
        return 0;
    check_body(text, head_len, text + head_len, body_len);
    return head_len + body_len;
}

static void check_replies(size_t len, bool heads, bool whole)
{
    const char *at = replies;

    replies[len] = '\0';
    while (len > 0) {
        size_t step = check_reply(at, len, heads);

        must(step > 0 || !whole);
        if (step == 0)
            return;
        at += step;
        len -= step;
    }
}

/* ---- one input ---- */

struct world {
    struct stub stub;
    struct metrics metrics;
    struct broker *broker;
    struct http_front *front;
    struct event_ring *events;
    struct event_streams *streams;
    struct api api;
    int client;
    size_t heard;
    bool ended;
};

static void no_alarm(void *arg, int64_t at_us)
{
    (void)arg;
    (void)at_us;
}

static void keep_event(void *arg, const struct lease_event *event)
{
    struct world *w = arg;

    must(event_ring_put(w->events, event, 1000000) == 0);
    event_streams_news(w->streams);
}

static void begin(struct world *w, bool rules)
{
    static const struct broker_config broker_config = {
        .call_timeout_ms = 1000, .max_waiters = 4, .max_waiters_per_lock = 2, .poll_ms = 5000};
    static const struct event_streams_host streams_host = {.alarm = no_alarm};
    const struct broker_host host = {.arg = w, .alarm = no_alarm, .happened = keep_event};
    static const struct http_front_config config = {
        .max_connections = 4, .head_timeout_ms = 10000, .body_timeout_ms = 10000, .idle_timeout_ms = 10000, .stuck_timeout_ms = 10000};
    struct http_service service = {.ctx = &w->api, .handle = router_handle, .gone = router_gone};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct store_events events;
    char problem[300];

    w->stub.seam.ops = &stub_ops;
    w->stub.last = &w->stub.first;
    must(metrics_init(&w->metrics, route_names(), route_count + 1) == 0);
    w->broker = broker_new(&clock_boottime, &broker_config, &host, &w->metrics);
    w->front = http_front_new(base, &config, &service);
    w->events = event_ring_new(16, 1000000);
    w->streams = event_streams_new(&clock_boottime, w->events, &w->metrics, 2, &streams_host);
    must(w->broker && w->front && w->events && w->streams);
    broker_set_store(w->broker, &w->stub.seam);
    events = broker_store_events(w->broker);
    events.attached(events.arg, true, false);
    w->api = (struct api){.options = &options,
                          .broker = w->broker,
                          .store = &w->stub.seam,
                          .metrics = &w->metrics,
                          .front = w->front,
                          .auth = rules ? auth : NULL,
                          .events = w->events,
                          .streams = w->streams,
                          .node = "0123456789abcdef"};
    must(http_front_listen(w->front, listen_text, problem, sizeof(problem)) == 0);
    memcpy(address.sun_path, socket_path, sizeof(socket_path));
    w->client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    must(w->client >= 0 && connect(w->client, (const struct sockaddr *)&address, sizeof(address)) == 0);
}

static void turn(struct world *w, bool listen)
{
    (void)event_base_loop(base, EVLOOP_NONBLOCK);
    answer_all(&w->stub);
    event_streams_tick(w->streams);
    while (listen && w->heard < REPLY_MAX) {
        ssize_t n = recv(w->client, replies + w->heard, REPLY_MAX - w->heard, 0);

        w->ended |= n == 0;
        if (n <= 0)
            break;
        w->heard += (size_t)n;
    }
}

static void send_split(struct world *w, const uint8_t *bytes, size_t len, size_t writes, bool listen)
{
    size_t piece = len / writes + 1;

    while (len > 0) {
        ssize_t n = send(w->client, bytes, piece < len ? piece : len, MSG_NOSIGNAL);

        turn(w, listen);
        if (n <= 0)
            return;
        bytes += n;
        len -= (size_t)n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct world w = {0};
    uint8_t mode;
    bool listen;

    if (size < 1 + ANSWERS || size > 32768)
        return 0;
    set_up();
    mode = data[0];
    listen = !(mode & 4);
    w.stub.answers = data + 1;
    begin(&w, mode & 1);
    turn(&w, listen);
    send_split(&w, data + 1 + ANSWERS, size - 1 - ANSWERS, (size_t)(mode >> 3) + 1, listen);
    if (mode & 2)
        (void)shutdown(w.client, SHUT_WR);
    for (int i = 0; i < 6; i++)
        turn(&w, listen);
    broker_tick(w.broker);
    turn(&w, listen);
    if (listen)
        check_replies(w.heard, memmem(data, size, "HEAD", 4) != NULL, w.heard < REPLY_MAX && !w.ended);
    must(!(mode & 1) || w.stub.asked == 0 || memmem(data, size, TOKEN, sizeof(TOKEN) - 1)); /* who doesn't know it reaches nothing */
    close(w.client);
    turn(&w, false);
    http_front_free(w.front);
    event_streams_free(w.streams);
    event_ring_free(w.events);
    while (w.stub.first)
        answer_all(&w.stub);
    broker_free(w.broker);
    metrics_close(&w.metrics);
    return 0;
}
