/* The lock cycle as pawld speaks it (dialect.h). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/dialect.h"

#include <string.h>

#include "tests/bench/http.h"

#define ACQUIRE_BODY "{\"ttl_ms\": 30000, \"owner\": \"bench\"}"
#define WAITING_BODY "{\"ttl_ms\": 30000, \"owner\": \"bench\", \"wait_ms\": 60000}"

static enum reading read_acquire(const struct dialect *d, const struct words *w, const char *in, size_t len, struct reply *ret)
{
    struct http_reply r;
    enum reading got = http_reply_ok(&r, in, len, &ret->len);

    (void)d;
    (void)w;
    if (got == READING_OK && (!http_reply_number(&r, "token", &ret->token) || !http_reply_lease(&r, ret->lease)))
        return READING_BAD;
    return got;
}

static enum reading read_release(const struct dialect *d, const struct words *w, const char *in, size_t len, struct reply *ret)
{
    struct http_reply r;
    enum reading got = http_reply_ok(&r, in, len, &ret->len);

    (void)d;
    (void)w;
    if (got == READING_OK && (!http_reply_word_is(&r, "released", "true") || !http_reply_number(&r, "token", &ret->token)))
        return READING_BAD;
    return got;
}

static enum reading read_count(const struct dialect *d, const struct words *w, const char *in, size_t len, struct reply *ret)
{
    struct http_reply r;
    enum reading got = http_reply_ok(&r, in, len, &ret->len);

    (void)d;
    (void)w;
    return got == READING_OK && !http_reply_number(&r, "waiters", &ret->token) ? READING_BAD : got;
}

static bool add_call(struct frame *f, const char *verb, const struct frame *body)
{
    struct frame path = {0};

    return frame_add_text(&path, "/v1/locks/") && frame_add_slot(&path, FRAME_NAME) && frame_add_text(&path, verb) &&
           http_add_post(f, &path, body);
}

bool dialect_http(struct dialect *d, bool to_wait)
{
    struct frame acquire = {0};
    struct frame release = {0};

    memset(d, 0, sizeof *d);
    d->title = "http";
    d->release_tells_token = true;
    d->rising = true;
    d->read_acquire = read_acquire;
    d->read_release = read_release;
    d->read_count = read_count;
    return frame_add_text(&acquire, to_wait ? WAITING_BODY : ACQUIRE_BODY) && add_call(&d->acquire, "/acquire", &acquire) &&
           frame_add_text(&release, "{\"lease_id\": \"") && frame_add_slot(&release, FRAME_LEASE) && frame_add_text(&release, "\"}") &&
           add_call(&d->release, "/release", &release) && frame_add_text(&d->count, "GET /v1/locks/") &&
           frame_add_slot(&d->count, FRAME_NAME) && frame_add_text(&d->count, " HTTP/1.1\r\nHost: bench\r\n\r\n");
}
