/* A growing piece of text.
 *
 * Replies are built in a block on the caller's stack; only a long one meets the allocator. Every writer goes through room(), the one
 * place that knows about blocks, the heap and the limit; all or nothing, so a failed text never ends in half an append.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "proto/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/utf8.h"

void text_init(struct text *t, char *block, size_t cap, size_t max)
{
    *t = (struct text){.max = max};
    t->at = block;
    t->cap = block ? cap : 0;
}

void text_close(struct text *t)
{
    if (t->heap)
        free(t->at);
    *t = (struct text){.failed = true}; /* an append after the end does nothing */
}

/* At least double, so that n appends cost n copies; at most the limit, unless the append itself asks for more (see text_fmt). */
static size_t grown(const struct text *t, size_t need)
{
    size_t cap = t->cap < 128 ? 256 : t->cap <= SIZE_MAX / 2 ? t->cap * 2 : SIZE_MAX;

    if (cap > t->max)
        cap = t->max;
    return cap > need ? cap : need;
}

/* Makes room for n more bytes of text and `spare` bytes behind them that are no text. False: t has failed. */
static bool room(struct text *t, size_t n, size_t spare)
{
    size_t need, cap;
    char *at;

    if (t->failed)
        return false;
    if (n > t->max || t->len > t->max - n || __builtin_add_overflow(t->len + n, spare, &need))
        goto failed;
    if (need <= t->cap)
        return true;
    cap = grown(t, need);
    at = realloc(t->heap ? t->at : NULL, cap);
    if (!at)
        goto failed;
    if (!t->heap && t->len > 0)
        memcpy(at, t->at, t->len);
    t->at = at;
    t->cap = cap;
    t->heap = true;
    return true;

failed:
    t->failed = true;
    return false;
}

void text_add(struct text *t, const char *bytes, size_t len)
{
    if (len == 0 || !room(t, len, 0))
        return;
    memcpy(t->at + t->len, bytes, len);
    t->len += len;
}

void text_str(struct text *t, const char *s)
{
    text_add(t, s, strlen(s));
}

void text_int(struct text *t, int64_t n)
{
    char digits[20]; /* -9223372036854775808 */
    size_t i = sizeof(digits);
    uint64_t rest = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;

    do
        digits[--i] = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (n < 0)
        digits[--i] = '-';
    text_add(t, digits + i, sizeof(digits) - i);
}

void text_fmt(struct text *t, const char *format, ...)
{
    char small[256];
    va_list args;
    int n;

    if (t->failed)
        return;
    va_start(args, format);
    n = vsnprintf(small, sizeof(small), format, args);
    va_end(args);
    if (n < 0) {
        t->failed = true;
        return;
    }
    if ((size_t)n < sizeof(small)) {
        text_add(t, small, (size_t)n);
        return;
    }
    if (!room(t, (size_t)n, 1)) /* vsnprintf ends with a NUL, which is not part of the text */
        return;
    va_start(args, format);
    n = vsnprintf(t->at + t->len, (size_t)n + 1, format, args);
    va_end(args);
    if (n < 0)
        t->failed = true;
    else
        t->len += (size_t)n;
}

static void json_escape(struct text *t, uint32_t code)
{
    static const char hex[] = "0123456789abcdef";
    char six[] = {'\\', 'u', '0', '0', hex[code >> 4 & 15], hex[code & 15]};

    switch (code) {
    case '"':
        text_add(t, "\\\"", 2);
        break;
    case '\\':
        text_add(t, "\\\\", 2);
        break;
    case '\n':
        text_add(t, "\\n", 2);
        break;
    case '\r':
        text_add(t, "\\r", 2);
        break;
    case '\t':
        text_add(t, "\\t", 2);
        break;
    default:
        text_add(t, six, sizeof(six));
    }
}

/* JSON asks for the escape of C0 only; DEL and C1 are escaped as well because replies are read on terminals. */
static bool is_plain(uint32_t code)
{
    return code != '"' && code != '\\' && !utf8_is_control(code);
}

/* The bytes that stand for themselves: printable ASCII without quote and backslash. Nearly all that is ever written. */
static size_t plain_ascii(const char *bytes, size_t len)
{
    size_t i = 0;

    while (i < len && bytes[i] >= 0x20 && bytes[i] < 0x7f && bytes[i] != '"' && bytes[i] != '\\')
        i++;
    return i;
}

void text_json_string(struct text *t, const char *bytes, size_t len)
{
    size_t i = 0, run = 0; /* bytes[run..i) are plain and not written yet */

    text_add(t, "\"", 1);
    while ((i += plain_ascii(bytes + i, len - i)) < len) {
        uint32_t code = 0;
        size_t n = utf8_sequence(bytes + i, len - i, &code);

        if (n > 0 && is_plain(code)) {
            i += n;
            continue;
        }
        text_add(t, bytes + run, i - run);
        if (n == 0)
            text_add(t, "\xef\xbf\xbd", 3); /* U+FFFD for each byte that begins no sequence */
        else
            json_escape(t, code);
        i += n > 0 ? n : 1;
        run = i;
    }
    text_add(t, bytes + run, i - run);
    text_add(t, "\"", 1);
}
