/* See redis_output.h. A command is an array of bulk strings ("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"), put together by hand: it is what every call of every client
 * goes through, and printf would cost more than the rest of it. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CAP_FIRST  4096
#define CAP_KEPT   ((size_t)64 * 1024)
#define LENGTH_MAX 24 /* of a line that tells a length: kind, 20 digits, CR LF */

void redis_output_init(struct redis_output *o)
{
    memset(o, 0, sizeof(*o));
}

void redis_output_close(struct redis_output *o)
{
    free(o->bytes);
    redis_output_init(o);
}

void redis_output_clear(struct redis_output *o)
{
    o->len = o->sent = 0;
    o->failed = false;
    if (o->cap > CAP_KEPT)
        redis_output_close(o);
}

static bool room(struct redis_output *o, size_t more)
{
    size_t need = o->len + more, cap = o->cap ? o->cap : CAP_FIRST;
    char *grown;

    if (o->failed)
        return false;
    if (need <= o->cap)
        return true;
    while (cap < need)
        cap *= 2;
    grown = realloc(o->bytes, cap);
    if (!grown) {
        o->failed = true;
        return false;
    }
    o->bytes = grown;
    o->cap = cap;
    return true;
}

/* Where there is room. */
static void put(struct redis_output *o, const char *bytes, size_t len)
{
    memcpy(o->bytes + o->len, bytes, len);
    o->len += len;
}

/* Writes the digits of n so that they end before `end`; returns where they begin. At most 20. */
static char *digits_before(char *end, uint64_t n)
{
    do {
        *--end = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    return end;
}

/* Where there is room for LENGTH_MAX. */
static void put_length(struct redis_output *o, char kind, size_t n)
{
    char line[LENGTH_MAX], *at = line + sizeof(line);

    *--at = '\n';
    *--at = '\r';
    at = digits_before(at, n);
    *--at = kind;
    put(o, at, (size_t)(line + sizeof(line) - at));
}

void redis_output_begin(struct redis_output *o, size_t argc)
{
    if (room(o, LENGTH_MAX))
        put_length(o, '*', argc);
}

void redis_output_arg(struct redis_output *o, const char *bytes, size_t len)
{
    if (!room(o, LENGTH_MAX + len + 2))
        return;
    put_length(o, '$', len);
    put(o, bytes, len);
    put(o, "\r\n", 2);
}

void redis_output_arg_str(struct redis_output *o, const char *s)
{
    redis_output_arg(o, s, strlen(s));
}

void redis_output_arg_int(struct redis_output *o, int64_t n)
{
    char digits[24], *end = digits + sizeof(digits), *at = digits_before(end, n < 0 ? 0 - (uint64_t)n : (uint64_t)n);

    if (n < 0)
        *--at = '-';
    redis_output_arg(o, at, (size_t)(end - at));
}

int redis_output_write(struct redis_output *o, struct stream *stream)
{
    while (o->sent < o->len) {
        struct iovec part = {o->bytes + o->sent, o->len - o->sent};
        ssize_t n = stream_write(stream, &part, 1);
        if (n > 0) {
            o->sent += (size_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0) /* no stream does: an end rather than a loop */
            errno = EPIPE;
        return -1;
    }
    o->len = o->sent = 0;
    return 0;
}
