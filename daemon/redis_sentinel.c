/* See redis_sentinel.h for the rule by which an address is chosen. A `watch` is one sentinel: its two connections and what it said last. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_sentinel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "daemon/log.h"
#include "daemon/redis_link.h"

#define ASK_MS       (REDIS_SENTINEL_LEARN_MS / 2)
#define CONNECT_MS   500
#define MAX_DELAY_MS 250
#define PING_MS      1000    /* a connection for messages on which nothing came back for three of these is dead */
#define REFUSED_US   1000000 /* a server that is no master is not tried again for so long while another is named */
#define REFUSED_MAX  4

struct place {
    char host[256];
    int port;
};

struct statement {
    bool made;
    struct place place;
    int64_t epoch;
};

struct watch {
    struct redis_sentinel *owner;
    struct redis_link *ask, *listen;
    struct redis_command where, details; /* the two questions; always sent together */
    int open;                            /* of the two, without an answer yet */
    struct statement heard;              /* the answer to the first, until the second is answered */
    struct statement said;
    bool again; /* a switch was told while questions were open */
    int64_t ask_us, ping_us, heard_us;
    struct log_gate gate;
};

struct redis_sentinel {
    const struct clock *clock;
    struct redis_sentinel_config config;
    void (*address)(void *arg, const char *host, int port);
    void *arg;
    struct watch watches[REDIS_SENTINELS_MAX];
    size_t count;
    struct statement followed;
    bool settled;
    struct {
        struct place place;
        int64_t until_us;
    } refused[REFUSED_MAX];
};

/* ---- choosing ---- */

static bool same_place(const struct place *a, const struct place *b)
{
    return a->port == b->port && strcmp(a->host, b->host) == 0;
}

static bool is_refused(const struct redis_sentinel *s, const struct place *place, int64_t now)
{
    for (size_t i = 0; i < REFUSED_MAX; i++) {
        if (s->refused[i].until_us > now && same_place(&s->refused[i].place, place))
            return true;
    }
    return false;
}

static size_t votes(const struct redis_sentinel *s, const struct place *place)
{
    size_t n = 0;

    for (size_t i = 0; i < s->count; i++)
        n += s->watches[i].said.made && same_place(&s->watches[i].said.place, place);
    return n;
}

/* What counts most of that which is said now; NULL when nothing is, or only of servers that said they are no masters. */
static const struct statement *best_statement(const struct redis_sentinel *s, int64_t now)
{
    const struct statement *best = NULL;

    for (size_t i = 0; i < s->count; i++) {
        const struct statement *said = &s->watches[i].said;
        if (!said->made || is_refused(s, &said->place, now))
            continue;
        if (!best || said->epoch > best->epoch || (said->epoch == best->epoch && votes(s, &said->place) > votes(s, &best->place)))
            best = said;
    }
    return best;
}

static bool should_move(const struct redis_sentinel *s, const struct statement *to, int64_t now)
{
    if (!s->followed.made || to->epoch > s->followed.epoch)
        return true;
    if (s->settled || same_place(&to->place, &s->followed.place))
        return false;
    return is_refused(s, &s->followed.place, now) || to->epoch == s->followed.epoch || 2 * votes(s, &to->place) > s->count;
}

static void choose(struct redis_sentinel *s)
{
    int64_t now = clock_now_us(s->clock);
    const struct statement *best = best_statement(s, now);
    bool moved;

    if (!best || !should_move(s, best, now))
        return;
    moved = !s->followed.made || !same_place(&s->followed.place, &best->place);
    s->followed = *best;
    if (!moved)
        return;
    s->settled = false;
    log_info("master_named", LOG_STR("master", s->config.url.master), LOG_STR("host", best->place.host), LOG_INT("port", best->place.port),
             LOG_INT("epoch", best->epoch));
    s->address(s->arg, s->followed.place.host, s->followed.place.port);
}

/* ---- asking ---- */

static void complain(struct watch *w, const char *problem)
{
    uint64_t left_out;

    if (log_gate_pass(&w->gate, clock_now_us(w->owner->clock), &left_out))
        log_warn("sentinel_answer", LOG_STR("address", redis_link_address(w->ask)), LOG_STR("problem", problem),
                 LOG_INT("suppressed", left_out));
}

static bool is_text(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS;
}

static int64_t digits_of(const redisReply *reply)
{
    long n = is_text(reply) ? host_port_number(reply->str, (size_t)reply->len, INT32_MAX) : -1;

    return n < 0 ? 0 : n;
}

/* The address of a master that the sentinel knows: a host and a port. */
static bool read_place(const redisReply *reply, struct place *ret)
{
    const redisReply *host;
    int64_t port;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2)
        return false;
    host = reply->element[0];
    port = digits_of(reply->element[1]);
    if (!is_text(host) || host->len == 0 || (size_t)host->len >= sizeof(ret->host) || memchr(host->str, '\0', (size_t)host->len))
        return false;
    if (port < 1 || port > 65535)
        return false;
    snprintf(ret->host, sizeof(ret->host), "%s", host->str);
    ret->port = (int)port;
    return true;
}

/* Of the pairs of names and values that SENTINEL MASTER gives; 0 where it isn't told. */
static int64_t read_epoch(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY)
        return 0;
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        if (is_text(reply->element[i]) && strcmp(reply->element[i]->str, "config-epoch") == 0)
            return digits_of(reply->element[i + 1]);
    }
    return 0;
}

static void set_alarm(struct watch *w)
{
    redis_link_alarm(w->ask, w->ask_us);
}

static void where_answered(struct redis_command *command, const redisReply *reply)
{
    struct watch *w = (struct watch *)((char *)command - offsetof(struct watch, where));

    w->open--;
    w->heard.made = false;
    if (!reply)
        return;
    if (reply->type == REDIS_REPLY_NIL || (reply->type == REDIS_REPLY_ARRAY && reply->elements == 0))
        complain(w, "this sentinel does not know a master of this name");
    else if (reply->type == REDIS_REPLY_ERROR)
        complain(w, reply->str);
    else if (!read_place(reply, &w->heard.place))
        complain(w, "an odd answer");
    else
        w->heard.made = true;
}

static void details_answered(struct redis_command *command, const redisReply *reply)
{
    struct watch *w = (struct watch *)((char *)command - offsetof(struct watch, details));

    w->open--;
    if (!reply)
        return;
    w->heard.epoch = read_epoch(reply);
    w->said = w->heard;
    choose(w->owner);
    if (w->again) {
        w->again = false;
        w->ask_us = 0;
        set_alarm(w);
    }
}

static void ask_about_master(struct watch *w, const char *what, struct redis_command *command, int64_t deadline_us)
{
    redis_link_begin(w->ask, 3);
    redis_link_arg_str(w->ask, "SENTINEL");
    redis_link_arg_str(w->ask, what);
    redis_link_arg_str(w->ask, w->owner->config.url.master);
    redis_link_send(w->ask, command, deadline_us);
}

static void ask(struct watch *w, int64_t now)
{
    int64_t deadline_us = now + w->owner->config.timeout_ms * 1000;

    if (w->open > 0 || !redis_link_can_send(w->ask))
        return;
    w->where.done = where_answered;
    w->details.done = details_answered;
    ask_about_master(w, "get-master-addr-by-name", &w->where, deadline_us);
    ask_about_master(w, "master", &w->details, deadline_us);
    w->open = 2;
}

/* PING is one of the few commands that a connection with subscriptions takes; its answer comes as a message. */
static void check_listener(struct watch *w, int64_t now)
{
    if (!redis_link_is_open(w->listen) || now < w->ping_us)
        return;
    if (now - w->heard_us > 3 * PING_MS * 1000) {
        redis_link_drop(w->listen, "no message came through");
        return;
    }
    redis_link_begin(w->listen, 1);
    redis_link_arg_str(w->listen, "PING");
    redis_link_send_silent(w->listen);
    w->ping_us = now + PING_MS * 1000;
}

static void on_ask_alarm(void *arg)
{
    struct watch *w = arg;
    int64_t now = clock_now_us(w->owner->clock);

    choose(w->owner); /* a refusal may have run out */
    ask(w, now);
    check_listener(w, now);
    w->ask_us = now + ASK_MS * 1000;
    set_alarm(w);
}

static void on_ask_up(void *arg)
{
    struct watch *w = arg;

    w->ask_us = 0;
    set_alarm(w);
}

/* What a sentinel that is out of reach said before counts no more. */
static void on_ask_down(void *arg, const char *problem, bool was_up)
{
    struct watch *w = arg;

    (void)problem;
    (void)was_up;
    w->said.made = w->heard.made = w->again = false;
}

/* ---- listening ---- */

static void on_listen_up(void *arg)
{
    struct watch *w = arg;

    w->heard_us = clock_now_us(w->owner->clock);
    w->ping_us = w->heard_us + PING_MS * 1000;
    redis_link_begin(w->listen, 2);
    redis_link_arg_str(w->listen, "SUBSCRIBE");
    redis_link_arg_str(w->listen, "+switch-master");
    redis_link_send_silent(w->listen);
}

/* ["message", "+switch-master", "NAME OLD-HOST OLD-PORT NEW-HOST NEW-PORT"]: a reason to ask; what is followed is the answer, with its epoch. */
static void on_message(void *arg, const redisReply *reply)
{
    struct watch *w = arg;
    const char *name = w->owner->config.url.master;
    const redisReply *text;

    w->heard_us = clock_now_us(w->owner->clock);
    if (reply->type == REDIS_REPLY_ERROR) {
        complain(w, reply->str);
        redis_link_drop(w->listen, "the sentinel refused the subscription");
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 || !is_text(reply->element[0]) || !is_text(reply->element[2]))
        return;
    text = reply->element[2];
    if (strcmp(reply->element[0]->str, "message") != 0 || strncmp(text->str, name, strlen(name)) != 0 || text->str[strlen(name)] != ' ')
        return;
    if (w->open > 0) {
        w->again = true;
        return;
    }
    w->ask_us = 0;
    set_alarm(w);
}

/* ---- start and stop ---- */

static void make_url(const struct redis_sentinel_config *config, size_t i, struct redis_url *url)
{
    memset(url, 0, sizeof(*url));
    memcpy(url->host, config->url.sentinels[i].host, sizeof(url->host));
    url->port = config->url.sentinels[i].port;
    url->tls = config->url.tls;
    snprintf(url->user, sizeof(url->user), "%s", config->user ? config->user : "");
    snprintf(url->password, sizeof(url->password), "%s", config->password ? config->password : "");
}

struct redis_sentinel *redis_sentinel_new(struct event_base *base, const struct clock *clock, const struct redis_sentinel_config *config,
                                          void (*address)(void *arg, const char *host, int port), void *arg)
{
    struct redis_sentinel *s = calloc(1, sizeof(*s));
    struct redis_link_config link = {.label = "sentinel", .max_delay_ms = MAX_DELAY_MS, .tls = config->tls};
    struct redis_link_callbacks asks = {.up = on_ask_up, .down = on_ask_down, .alarm = on_ask_alarm};
    struct redis_link_callbacks listens = {.up = on_listen_up, .push = on_message};

    if (!s)
        return NULL;
    s->clock = clock;
    s->config = *config;
    s->config.user = s->config.password = NULL;
    s->address = address;
    s->arg = arg;
    link.connect_timeout_ms = config->timeout_ms < CONNECT_MS ? config->timeout_ms : CONNECT_MS;
    for (s->count = 0; s->count < config->url.sentinel_count; s->count++) {
        struct watch *w = &s->watches[s->count];
        w->owner = s;
        make_url(config, s->count, &link.url);
        asks.arg = listens.arg = w;
        w->ask = redis_link_new(base, clock, &link, &asks);
        w->listen = redis_link_new(base, clock, &link, &listens);
        if (!w->ask || !w->listen) {
            s->count++;
            redis_sentinel_free(s);
            s = NULL;
            break;
        }
    }
    explicit_bzero(&link.url, sizeof(link.url));
    return s;
}

void redis_sentinel_start(struct redis_sentinel *s)
{
    for (size_t i = 0; i < s->count; i++) {
        redis_link_start(s->watches[i].ask);
        redis_link_start(s->watches[i].listen);
    }
}

void redis_sentinel_stop(struct redis_sentinel *s)
{
    for (size_t i = 0; i < s->count; i++) {
        redis_link_stop(s->watches[i].ask);
        redis_link_stop(s->watches[i].listen);
        redis_link_alarm(s->watches[i].ask, INT64_MAX);
    }
}

void redis_sentinel_free(struct redis_sentinel *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->count; i++) {
        redis_link_free(s->watches[i].ask);
        redis_link_free(s->watches[i].listen);
    }
    free(s);
}

void redis_sentinel_settled(struct redis_sentinel *s, bool settled)
{
    s->settled = settled;
}

/* Marked for a while. The next question, at the latest, looks for another. */
void redis_sentinel_refused(struct redis_sentinel *s)
{
    size_t oldest = 0;

    s->settled = false;
    if (!s->followed.made)
        return;
    for (size_t i = 0; i < REFUSED_MAX; i++) {
        if (same_place(&s->refused[i].place, &s->followed.place)) {
            oldest = i;
            break;
        }
        if (s->refused[i].until_us < s->refused[oldest].until_us)
            oldest = i;
    }
    s->refused[oldest].place = s->followed.place;
    s->refused[oldest].until_us = clock_now_us(s->clock) + REFUSED_US;
    for (size_t i = 0; i < s->count; i++) {
        s->watches[i].ask_us = 0;
        set_alarm(&s->watches[i]);
    }
}

uint64_t redis_sentinel_connects(const struct redis_sentinel *s)
{
    uint64_t n = 0;

    for (size_t i = 0; i < s->count; i++)
        n += redis_link_connects(s->watches[i].ask) + redis_link_connects(s->watches[i].listen);
    return n;
}
