#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/http.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

bool http_add_post(struct frame *f, const struct frame *path, const struct frame *body)
{
    char rest[160];

    (void)snprintf(rest, sizeof rest, " HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
                   body->len);
    return frame_add_text(f, "POST ") && frame_add_frame(f, path) && frame_add_text(f, rest) && frame_add_frame(f, body);
}

static enum reading read_length(const char *in, const char *head_end, size_t *ret)
{
    static const char field[] = "\r\nContent-Length:";
    const char *p;
    size_t n = 0;

    for (p = in; p + sizeof field - 1 < head_end; p++) {
        if (*p != '\r' || strncasecmp(p, field, sizeof field - 1) != 0)
            continue;
        for (p += sizeof field - 1; *p == ' '; p++)
            ;
        for (; *p >= '0' && *p <= '9' && n < 1000000; p++)
            n = n * 10 + (size_t)(*p - '0');
        *ret = n;
        return READING_OK;
    }
    return READING_BAD;
}

enum reading http_reply_read(struct http_reply *r, const char *in, size_t len)
{
    const char *head_end = memmem(in, len, "\r\n\r\n", 4);
    const char *body;
    size_t body_len = 0;

    if (head_end == NULL)
        return READING_MORE;
    if (head_end - in < 12 || memcmp(in, "HTTP/1.1 ", 9) != 0)
        return READING_BAD;
    body = head_end + 4;
    if (read_length(in, body, &body_len) != READING_OK)
        return READING_BAD;
    if (body_len > len - (size_t)(body - in))
        return READING_MORE;
    r->status = (in[9] - '0') * 100 + (in[10] - '0') * 10 + (in[11] - '0');
    r->body = body;
    r->body_len = body_len;
    r->len = (size_t)(body - in) + body_len;
    return READING_OK;
}

enum reading http_reply_ok(struct http_reply *r, const char *in, size_t len, size_t *ret_len)
{
    enum reading got = http_reply_read(r, in, len);

    if (got != READING_OK)
        return got;
    *ret_len = r->len;
    return r->status == 200 ? READING_OK : READING_BAD;
}

bool http_ask(struct wire *w, const char *request, int status, struct http_reply *r)
{
    enum reading got = READING_MORE;

    if (wire_send(w, request, strlen(request)) != 0)
        return false;
    while (got == READING_MORE) {
        if (wire_wait(w, 10000) < 0)
            return false;
        got = http_reply_read(r, w->in, w->in_len);
    }
    if (got == READING_OK && r->status == status)
        return true;
    errno = EPROTO;
    return false;
}

/* Points behind "key": and blanks; NULL if there is no such member. */
static const char *find_value(const struct http_reply *r, const char *key)
{
    char quoted[40];
    const char *end = r->body + r->body_len;
    const char *p;
    int n = snprintf(quoted, sizeof quoted, "\"%s\":", key);

    p = memmem(r->body, r->body_len, quoted, (size_t)n);
    if (p == NULL)
        return NULL;
    for (p += n; p < end && *p == ' '; p++)
        ;
    return p < end ? p : NULL;
}

static bool read_number(const char *p, const char *end, int64_t *ret)
{
    const char *start = p;
    int64_t n = 0;

    for (; p < end && *p >= '0' && *p <= '9' && p - start < 18; p++)
        n = n * 10 + (*p - '0');
    if (p == start)
        return false;
    *ret = n;
    return true;
}

bool http_reply_number(const struct http_reply *r, const char *key, int64_t *ret)
{
    const char *p = find_value(r, key);

    return p != NULL && read_number(p, r->body + r->body_len, ret);
}

bool http_reply_quoted(const struct http_reply *r, const char *key, int64_t *ret)
{
    const char *p = find_value(r, key);

    return p != NULL && *p == '"' && read_number(p + 1, r->body + r->body_len, ret);
}

bool http_reply_text_is(const struct http_reply *r, const char *key, const char *text)
{
    const char *p = find_value(r, key);
    size_t len = strlen(text);

    return p != NULL && (size_t)(r->body + r->body_len - p) >= len + 2 && p[0] == '"' && memcmp(p + 1, text, len) == 0 && p[len + 1] == '"';
}

bool http_reply_word_is(const struct http_reply *r, const char *key, const char *word)
{
    const char *p = find_value(r, key);
    size_t len = strlen(word);

    return p != NULL && (size_t)(r->body + r->body_len - p) >= len && memcmp(p, word, len) == 0;
}

bool http_reply_lease(const struct http_reply *r, char ret[FRAME_LEASE_LEN + 1])
{
    const char *end = r->body + r->body_len;
    const char *p = find_value(r, "lease_id");

    if (p == NULL || end - p < FRAME_LEASE_LEN + 2 || p[0] != '"' || p[FRAME_LEASE_LEN + 1] != '"')
        return false;
    memcpy(ret, p + 1, FRAME_LEASE_LEN);
    ret[FRAME_LEASE_LEN] = '\0';
    return true;
}
