#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_hints.h"

#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>

struct redis_hints {
    struct redis_link *link;
    const struct redis_life *life;
    struct redis_complaints *complaints;
    struct store_events events;
    int64_t heard_us;
};

/* "WORD LEASE_ID NAME": is this one with that word? */
static bool message_is(const char *word, const char *text, size_t len, struct lease_id *ret_id, const char **ret_name, size_t *ret_len)
{
    size_t head = strlen(word) + 1, name = head + PAWL_LEASE_ID_LEN + 1;

    if (len <= name || memcmp(text, word, head - 1) != 0 || text[head - 1] != ' ' || text[name - 1] != ' ')
        return false;
    *ret_name = text + name;
    *ret_len = len - name;
    return lease_id_parse(text + head, PAWL_LEASE_ID_LEN, ret_id) == 0;
}

/* What a forget or a broken has before the name: the number that the lease stood under, and a blank. */
static bool take_number(const char **name, size_t *len, uint64_t *ret_number)
{
    uint64_t number = 0;
    size_t at = 0;

    for (; at < *len && at < 19 && (*name)[at] >= '0' && (*name)[at] <= '9'; at++)
        number = number * 10 + (uint64_t)((*name)[at] - '0');
    if (at == 0 || at + 1 >= *len || (*name)[at] != ' ')
        return false;
    *name += at + 1;
    *len -= at + 1;
    *ret_number = number;
    return true;
}

/* A wake, a forget, a broken, or our own beat. */
static void on_message(struct redis_hints *h, const char *text, size_t len)
{
    struct lease_id id;
    const char *name;
    size_t name_len;
    uint64_t confirm;

    h->heard_us = clock_now_us(h->life->clock);
    if (message_is("wake", text, len, &id, &name, &name_len)) {
        if (h->events.wake)
            h->events.wake(h->events.arg, &id, name, name_len);
    } else if (message_is("forget", text, len, &id, &name, &name_len) && take_number(&name, &name_len, &confirm)) {
        if (h->events.forget)
            h->events.forget(h->events.arg, &id, confirm, name, name_len);
    } else if (message_is("broken", text, len, &id, &name, &name_len) && take_number(&name, &name_len, &confirm)) {
        if (h->events.broken)
            h->events.broken(h->events.arg, &id, confirm, name, name_len);
    }
}

static void on_push(void *arg, const redisReply *reply)
{
    struct redis_hints *h = arg;
    size_t len;
    const char *text;

    if (reply->type == REDIS_REPLY_ERROR) {
        redis_complain(h->complaints, "messages_refused", "Redis refused the subscription", reply->str);
        redis_link_drop(h->link, "Redis refused the subscription");
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3)
        return;
    text = redis_answer_text(reply, 2, &len);
    if (redis_answer_is(reply, "message"))
        on_message(h, text, len);
    else if (redis_answer_is(reply, "subscribe") && h->events.missed)
        h->events.missed(h->events.arg);
}

static void on_up(void *arg)
{
    struct redis_hints *h = arg;

    h->heard_us = clock_now_us(h->life->clock);
    redis_link_begin(h->link, 2);
    redis_link_arg_str(h->link, "SUBSCRIBE");
    redis_link_arg_str(h->link, h->life->key_node);
    redis_link_send_silent(h->link);
}

struct redis_hints *redis_hints_new(struct event_base *base, const struct redis_link_config *config, const struct redis_life *life,
                                    struct redis_complaints *complaints, const struct store_events *events)
{
    struct redis_hints *h = calloc(1, sizeof(*h));
    const struct redis_link_callbacks callbacks = {.arg = h, .up = on_up, .push = on_push};

    if (!h)
        return NULL;
    h->life = life;
    h->complaints = complaints;
    h->events = *events;
    h->link = redis_link_new(base, life->clock, config, &callbacks);
    if (!h->link) {
        free(h);
        return NULL;
    }
    return h;
}

void redis_hints_free(struct redis_hints *h)
{
    if (!h)
        return;
    redis_link_free(h->link);
    free(h);
}

void redis_hints_start(struct redis_hints *h)
{
    h->heard_us = clock_now_us(h->life->clock);
    redis_link_start(h->link);
}

void redis_hints_stop(struct redis_hints *h)
{
    redis_link_stop(h->link);
}

void redis_hints_set_address(struct redis_hints *h, const char *host, int port)
{
    redis_link_set_address(h->link, host, port);
}

void redis_hints_check(struct redis_hints *h, int64_t now_us, int64_t silence_ms)
{
    if (redis_link_is_open(h->link) && now_us - h->heard_us > silence_ms * 1000) {
        redis_link_drop(h->link, "no message came through");
        h->heard_us = now_us;
    }
}

uint64_t redis_hints_connects(const struct redis_hints *h)
{
    return redis_link_connects(h->link);
}
