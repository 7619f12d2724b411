/* A Redis that says whatever it likes: broken, hostile, or another server altogether. The whole of what reads it takes part (link, store, broker), over a
 * real socket whose other end is fed from the input. Whatever comes, no request is told of a lease with a token or a time that there can't be, and
 * everything ends.
 *
 * The first byte says how to go on:
 *
 *     bit 0    the rest is what is sent, byte by byte; else each line of it is one reply, made of its words: one that begins as a number does is an
 *              integer, '"' begins a string, '-' alone an error with the rest of the line, '~' nothing; a line that begins with '@' is said on the
 *              connection for messages, one with '#' on that of the replicas
 *     bit 1    attaching is answered by the input as well; else it goes well
 *     bit 2    a window is open
 *     bit 3    replicas are waited for
 *     bits 4-6 which requests are open when the input comes
 *     bit 7    who was granted a lease can't be told
 */
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
#include <sys/un.h>
#include <unistd.h>

#include <event2/event.h>

#include "daemon/broker.h"
#include "daemon/log.h"
#include "daemon/redis_script.h"
#include "daemon/redis_store.h"
#include "tests/fuzz/far_end.h"
#include "tests/fuzz/target.h"

#define REQUESTS  8
#define REPLY_MAX 65536

static struct far_end far_end; /* its links: commands, messages, replicas, and one more */
static char socket_path[64];

struct world {
    struct metrics metrics;
    struct broker *broker;
    struct redis_store *store;
    struct broker_request *requests[REQUESTS];
    unsigned mode;
};

static void stop_listening(void)
{
    (void)unlink(socket_path);
}

/* Once for all inputs. */
static void set_up(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (far_end.base)
        return;
    log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    (void)snprintf(socket_path, sizeof(socket_path), "/tmp/pawl-fuzz-%ld.sock", (long)getpid());
    memcpy(address.sun_path, socket_path, sizeof(socket_path));
    stop_listening();
    far_end_listen(&far_end, (const struct sockaddr *)&address, sizeof(address), 4);
    must(atexit(stop_listening) == 0);
}

/* ---- replies made of words ---- */

struct made {
    char at[REPLY_MAX];
    size_t len;
};

static void make_bulk(struct made *m, const char *text, size_t len)
{
    m->len += (size_t)snprintf(m->at + m->len, 32, "$%zu\r\n", len);
    memcpy(m->at + m->len, text, len);
    m->len += len;
    memcpy(m->at + m->len, "\r\n", 2);
    m->len += 2;
}

static void make_word(struct made *m, const char *word, size_t len)
{
    char digits[24];
    int64_t n;
    char *end;

    if (len == 1 && word[0] == '~') {
        m->len += (size_t)snprintf(m->at + m->len, 8, "$-1\r\n");
        return;
    }
    if (len > 0 && len < sizeof(digits) && (word[0] == '-' || (word[0] >= '0' && word[0] <= '9'))) {
        memcpy(digits, word, len);
        digits[len] = '\0';
        n = strtoll(digits, &end, 10);
        if (*end == '\0') {
            m->len += (size_t)snprintf(m->at + m->len, 32, ":%lld\r\n", (long long)n);
            return;
        }
    }
    make_bulk(m, len > 0 && word[0] == '"' ? word + 1 : word, len > 0 && word[0] == '"' ? len - 1 : len);
}

/* An array of the words of the line, which is shorter than an eighth of REPLY_MAX. */
static void make_reply(struct made *m, const char *line, size_t len)
{
    size_t words = 1;

    m->len = 0;
    if (len > 1 && line[0] == '-' && line[1] == ' ') {
        m->len = (size_t)snprintf(m->at, sizeof(m->at), "-%.*s\r\n", (int)(len - 2), line + 2);
        return;
    }
    for (size_t i = 0; i < len; i++)
        words += line[i] == ' ';
    m->len = (size_t)snprintf(m->at, sizeof(m->at), "*%zu\r\n", words);
    while (words-- > 0) {
        const char *blank = memchr(line, ' ', len);
        size_t step = blank ? (size_t)(blank - line) : len;

        make_word(m, line, step);
        line += blank ? step + 1 : step;
        len -= blank ? step + 1 : step;
    }
}

static void say_line(const char *line, size_t len)
{
    static struct made made;
    int link = 0;

    if (len > REPLY_MAX / 16)
        return;
    if (len > 0 && (line[0] == '@' || line[0] == '#')) {
        link = line[0] == '@' ? 1 : 2;
        line++;
        len--;
    }
    make_reply(&made, line, len);
    far_end_say(&far_end, link, made.at, made.len);
}

/* ---- the requests ---- */

static void check_lease(const struct broker_request *r)
{
    must(r->ret_token >= 1 && r->ret_token <= PAWL_TOKEN_MAX);
    must(r->call.holder.owner_len <= PAWL_OWNER_MAX);
    must(broker_left_ms(r->broker, r->lease_until_us) <= PAWL_TOKEN_MAX);
}

static void done(struct broker_request *r)
{
    struct world *w = r->arg;
    const struct store_holder *holder = &r->call.holder;

    if (r->error == PAWL_OK && (r->op == STORE_ACQUIRE || r->op == STORE_RENEW))
        check_lease(r);
    if (r->error == PAWL_E_HELD || (r->error == PAWL_OK && (r->op == STORE_BREAK || r->op == STORE_INSPECT))) {
        must(holder->token >= 0 && holder->token <= PAWL_TOKEN_MAX && holder->held_ms >= 0 && holder->owner_len <= PAWL_OWNER_MAX);
        must(broker_left_ms(r->broker, r->call.sent_us + holder->ttl_ms * 1000) <= PAWL_TOKEN_MAX);
        must(r->call.ret_waiters >= 0);
    }
    for (int i = 0; i < REQUESTS; i++) {
        if (w->requests[i] == r)
            w->requests[i] = NULL;
    }
    if (r->op == STORE_ACQUIRE && r->error == PAWL_OK && (w->mode & 0x80))
        broker_request_undelivered(r);
    else
        broker_request_free(r);
}

static void on_lock(struct broker_request *r, const struct store_lock *lock)
{
    (void)r;
    must(lock->token >= 0 && lock->token <= PAWL_TOKEN_MAX && lock->held_ms >= 0 && lock->waiters >= 0);
    must(lock->ttl_ms <= PAWL_TOKEN_MAX && lock->name_len <= PAWL_NAME_MAX && lock->owner_len <= PAWL_OWNER_MAX);
}

static void ask(struct world *w, int i, enum store_op op, int64_t wait_ms, const char *id)
{
    struct broker_request *r = broker_request_new(w->broker);

    must(r != NULL);
    r->op = op;
    r->arg = w;
    r->done = done;
    r->on_lock = on_lock;
    r->name_len = 1;
    r->name[0] = 'a';
    r->owner_len = 1;
    r->owner[0] = 'o';
    r->ttl_ms = 30000;
    r->wait_ms = wait_ms;
    r->token = 5;
    r->limit = 10;
    memcpy(r->call.cursor, "0", 2);
    must(lease_id_parse(id, strlen(id), &r->lease_id) == 0);
    w->requests[i] = r;
    broker_submit(r);
}

static void ask_all(struct world *w)
{
    static const char one[] = "00000000-0000-4000-8000-000000000001", two[] = "00000000-0000-4000-8000-000000000002";
    unsigned which = w->mode >> 4 & 7;

    if (which == 0 || which == 1) /* alone, or two in one run */
        ask(w, 0, STORE_ACQUIRE, 0, one);
    if (which == 1 || which == 2)
        ask(w, 1, STORE_ACQUIRE, which == 1 ? 0 : 60000, two);
    if (which == 3)
        ask(w, 2, STORE_RENEW, 0, one);
    if (which == 4 || which == 2)
        ask(w, 3, STORE_RELEASE, 0, one);
    if (which == 5)
        ask(w, 4, STORE_LIST, 0, one);
    if (which == 6)
        ask(w, 5, STORE_INSPECT, 0, one);
    if (which == 6)
        ask(w, 6, STORE_CHECK, 0, one);
    if (which == 7)
        ask(w, 7, STORE_BREAK, 0, one);
}

/* ---- one input ---- */

static void no_alarm(void *arg, int64_t at_us)
{
    (void)arg;
    (void)at_us;
}

static void begin(struct world *w)
{
    static const struct broker_config config = {.call_timeout_ms = 1000, .max_waiters = 10, .max_waiters_per_lock = 5, .poll_ms = 5000};
    static const struct broker_host host = {.alarm = no_alarm};
    struct redis_store_config store_config = {
        .key_prefix = "p:", .timeout_ms = 1000, .window_ms = w->mode & 4 ? 4000 : 0, .busy_poll_us = 200};
    struct store_events events;

    memcpy(store_config.url.unix_path, socket_path, sizeof(socket_path));
    store_config.min_replicas = w->mode & 8 ? 1 : 0;
    store_config.replica_timeout_ms = 500;
    must(metrics_init(&w->metrics, NULL, 0) == 0);
    w->broker = broker_new(&clock_boottime, &config, &host, &w->metrics);
    must(w->broker != NULL);
    events = broker_store_events(w->broker);
    w->store = redis_store_new(far_end.base, &clock_boottime, &store_config, &events);
    must(w->store != NULL);
    broker_set_store(w->broker, redis_store_seam(w->store));
}

static void attach(struct world *w)
{
    static const char attached[] = "attached 1000 inc ident 1 0 0 1000", in_window[] = "attached 1000 inc ident 1 3 0 1000";

    for (int i = 0; i < 4 && far_end.count == 0; i++)
        far_end_turn(&far_end);
    far_end_say(&far_end, 0, "+OK\r\n", 5); /* its name */
    far_end_turn(&far_end);
    for (int i = 0; i < SCRIPT_COUNT; i++)
        far_end_say(&far_end, 0, "$1\r\nx\r\n", 7);
    if (w->mode & 2)
        return;
    say_line(w->mode & 4 ? in_window : attached, strlen(attached));
    for (int i = 0; i < 3; i++)
        far_end_turn(&far_end);
    say_line("beat 1000 0 1000", 16);
    far_end_say(&far_end, 1, "+OK\r\n", 5);
    far_end_say(&far_end, 2, "+OK\r\n", 5);
}

static void end(struct world *w)
{
    for (int i = 0; i < REQUESTS; i++) {
        if (w->requests[i])
            broker_request_abandon(w->requests[i]);
    }
    far_end_hang_up(&far_end);
    far_end_turn(&far_end);
    redis_store_stop(w->store);
    for (int i = 0; i < 4; i++)
        far_end_turn(&far_end);
    redis_store_free(w->store);
    broker_free(w->broker);
    metrics_close(&w->metrics);
    far_end_hang_up(&far_end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data + 1;
    struct world w = {0};

    if (size == 0 || size > REPLY_MAX)
        return 0;
    set_up();
    w.mode = data[0];
    size--;
    begin(&w);
    attach(&w);
    ask_all(&w);
    far_end_turn(&far_end);
    if (w.mode & 1) {
        far_end_say(&far_end, 0, text, size);
    } else {
        while (size > 0) {
            const char *line_end = memchr(text, '\n', size);
            size_t len = line_end ? (size_t)(line_end - text) : size;

            say_line(text, len);
            far_end_turn(&far_end);
            text += line_end ? len + 1 : len;
            size -= line_end ? len + 1 : len;
        }
    }
    broker_tick(w.broker);
    far_end_turn(&far_end);
    end(&w);
    return 0;
}
