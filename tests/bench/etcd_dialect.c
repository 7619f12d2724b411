/* etcd's lock API through its JSON gateway (dialect.h).
 *
 *     /v3/lease/grant {"ID", "TTL"}        a lease, whose id the client may choose
 *     /v3/lock/lock {"name", "lease"}      answers when the lock is there: {"header": {"revision"}, "key"}
 *     /v3/lock/unlock {"key"}
 *
 * Names and keys travel in base64, and numbers of 64 bits as texts. The key is the name, a slash and the lease id in hexadecimal; as the id is
 * ours, we know the key before it is told, and whoever gets another one is not the one who asked. Ids from 2^60 up have 19 digits and 16
 * hexadecimal ones, so all frames keep their lengths. The revision of a grant is what etcd's users take for a fencing token.
 *
 * A new watcher that finds the store a revision further hears of it up to 100 ms later, in a loop of etcd's own. Whoever has waited for longer
 * doesn't notice that, so waiters get a rest before the first release.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/dialect.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/http.h"

#define ONE_DIR       DIALECT_ONE_NAME "/"
#define ONE_DIR_AFTER DIALECT_ONE_NAME "0" /* '0' comes after '/' */

static void base64(char *out, const char *in, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t i;
    unsigned v;

    for (i = 0; i < len; i += 3, out += 4) {
        v = (unsigned)(unsigned char)in[i] << 16;
        v |= i + 1 < len ? (unsigned)(unsigned char)in[i + 1] << 8 : 0;
        v |= i + 2 < len ? (unsigned)(unsigned char)in[i + 2] : 0;
        out[0] = digits[v >> 18];
        out[1] = digits[v >> 12 & 63];
        out[2] = digits[v >> 6 & 63];
        out[3] = digits[v & 63];
        if (i + 1 >= len)
            out[2] = '=';
        if (i + 2 >= len)
            out[3] = '=';
    }
    *out = '\0';
}

static void prepare(struct words *w)
{
    char key[FRAME_NAME_LEN + 1 + 16 + 1];
    uint64_t session = strtoull(w->session, NULL, 10);
    int len = snprintf(key, sizeof key, "%s/%" PRIx64, w->name, session);

    base64(w->name64, w->name, FRAME_NAME_LEN);
    base64(w->key64, key, (size_t)len);
}

static enum reading read_done(const struct dialect *d, const struct words *w, const char *in, size_t len, struct reply *ret)
{
    struct http_reply r;

    (void)d;
    (void)w;
    return http_reply_ok(&r, in, len, &ret->len);
}

static enum reading read_lock(const struct dialect *d, const struct words *w, const char *in, size_t len, struct reply *ret)
{
    struct http_reply r;
    enum reading got = http_reply_ok(&r, in, len, &ret->len);

    (void)d;
    if (got == READING_OK && (!http_reply_quoted(&r, "revision", &ret->token) || !http_reply_text_is(&r, "key", w->key64)))
        return READING_BAD;
    return got;
}

/* One key of each who waits, and the holder's. */
static enum reading read_count(const struct dialect *d, const struct words *w, const char *in, size_t len, struct reply *ret)
{
    struct http_reply r;
    enum reading got = http_reply_ok(&r, in, len, &ret->len);

    (void)d;
    (void)w;
    if (got != READING_OK)
        return got;
    if (!http_reply_quoted(&r, "count", &ret->token))
        return READING_BAD;
    ret->token--;
    return READING_OK;
}

static bool add_member(struct frame *body, const char *before, enum frame_slot what)
{
    return frame_add_text(body, before) && frame_add_slot(body, what);
}

static bool add_post(struct frame *f, const char *path, struct frame *body)
{
    struct frame at = {0};

    return frame_add_text(&at, path) && http_add_post(f, &at, body);
}

static bool add_count(struct frame *f)
{
    struct frame body = {0};
    char from[40];
    char to[40];

    base64(from, ONE_DIR, sizeof ONE_DIR - 1);
    base64(to, ONE_DIR_AFTER, sizeof ONE_DIR_AFTER - 1);
    return frame_add_text(&body, "{\"key\": \"") && frame_add_text(&body, from) && frame_add_text(&body, "\", \"range_end\": \"") &&
           frame_add_text(&body, to) && frame_add_text(&body, "\", \"count_only\": true}") && add_post(f, "/v3/kv/range", &body);
}

bool dialect_etcd(struct dialect *d, bool lease_each)
{
    struct frame grant = {0};
    struct frame lock = {0};
    struct frame release = {0};

    memset(d, 0, sizeof *d);
    d->title = lease_each ? "etcd-lease" : "etcd";
    d->open_each = lease_each;
    d->rising = true;
    d->rest_ms = 150;
    d->prepare = prepare;
    d->read_open = read_done;
    d->read_acquire = read_lock;
    d->read_release = read_done;
    d->read_count = read_count;
    if (!add_member(&grant, "{\"ID\": \"", FRAME_SESSION) || !frame_add_text(&grant, "\", \"TTL\": \"600\"}") ||
        !add_post(&d->open, "/v3/lease/grant", &grant))
        return false;
    if (!add_member(&lock, "{\"name\": \"", FRAME_NAME64) || !add_member(&lock, "\", \"lease\": \"", FRAME_SESSION) ||
        !frame_add_text(&lock, "\"}") || !add_post(&d->acquire, "/v3/lock/lock", &lock))
        return false;
    if (!(lease_each ? add_member(&release, "{\"ID\": \"", FRAME_SESSION) : add_member(&release, "{\"key\": \"", FRAME_KEY64)) ||
        !frame_add_text(&release, "\"}") || !add_post(&d->release, lease_each ? "/v3/lease/revoke" : "/v3/lock/unlock", &release))
        return false;
    return add_count(&d->count);
}
