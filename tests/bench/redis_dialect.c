/* The lock cycle straight on Redis (dialect.h): the commands are read from a file once, and the replies are read just far enough to check
 * status and token.
 *
 * The arguments are those that a running pawld sent, so the scripts find its incarnation and fence in Redis as pawld left them and do the
 * same work for the load as for pawld. What changes from call to call is the name and the lease id; the rest (the greatest fence seen,
 * confirm number, node) may stay as it was.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/dialect.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- replies ---- */

/* A cursor over a reply; text and text_len are those of the scalar read last. */
struct resp {
    const char *at;
    const char *end;
    const char *text;
    size_t text_len;
};

/* Takes a line without its CRLF. */
static enum reading take_line(struct resp *r, const char **ret, size_t *ret_len)
{
    const char *cr = memmem(r->at, (size_t)(r->end - r->at), "\r\n", 2);

    if (cr == NULL)
        return READING_MORE;
    *ret = r->at;
    *ret_len = (size_t)(cr - r->at);
    r->at = cr + 2;
    return READING_OK;
}

/* The number behind a type byte; -1 stands for nil. */
static long line_number(const char *line, size_t len)
{
    char digits[24];
    size_t n = len - 1 < sizeof digits - 1 ? len - 1 : sizeof digits - 1;

    memcpy(digits, line + 1, n);
    digits[n] = '\0';
    return strtol(digits, NULL, 10);
}

static enum reading take_bulk(struct resp *r, long len)
{
    if (len < 0) {
        r->text = "(nil)";
        r->text_len = 5;
        return READING_OK;
    }
    if (r->end - r->at < len + 2)
        return READING_MORE;
    r->text = r->at;
    r->text_len = (size_t)len;
    r->at += len + 2;
    return READING_OK;
}

/* A scalar, or an array's head, whose length goes to *ret_items (0 of a scalar). */
static enum reading take_item(struct resp *r, long *ret_items)
{
    const char *line;
    size_t len;
    enum reading got = take_line(r, &line, &len);

    *ret_items = 0;
    if (got != READING_OK)
        return got;
    if (len == 0)
        return READING_BAD;
    switch (*line) {
    case '*':
        *ret_items = line_number(line, len);
        return READING_OK;
    case '$':
        return take_bulk(r, line_number(line, len));
    case ':':
    case '+':
        r->text = line + 1;
        r->text_len = len - 1;
        return READING_OK;
    default: /* '-': an error is never what a cycle expects */
        return READING_BAD;
    }
}

static bool text_is(const struct resp *r, const char *want)
{
    return r->text_len == strlen(want) && memcmp(r->text, want, r->text_len) == 0;
}

static bool text_number(const struct resp *r, int64_t *ret)
{
    char digits[24];

    if (r->text_len == 0 || r->text_len >= sizeof digits)
        return false;
    memcpy(digits, r->text, r->text_len);
    digits[r->text_len] = '\0';
    *ret = strtoll(digits, NULL, 10);
    return *ret > 0;
}

/* A scalar, or a flat array, whose first element is status; with token_at > 0 the element there is the token. */
static enum reading read_reply(const char *in, size_t len, const char *status, size_t token_at, struct reply *ret)
{
    struct resp r = {.at = in, .end = in + len, .text = ""};
    long items;
    long nested = 0;
    size_t i;
    enum reading got = take_item(&r, &items);
    size_t count = items > 0 ? (size_t)items : 1;
    bool right = true;

    if (got == READING_OK && items > 0)
        got = take_item(&r, &nested);
    for (i = 0; got == READING_OK; i++) {
        if (nested != 0)
            return READING_BAD;
        if (i == 0)
            right = right && text_is(&r, status);
        else if (i == token_at)
            right = right && text_number(&r, &ret->token);
        if (i + 1 == count)
            break;
        got = take_item(&r, &nested);
    }
    if (got != READING_OK)
        return got;
    if (!right || token_at >= count)
        return READING_BAD;
    ret->len = (size_t)(r.at - in);
    return READING_OK;
}

static enum reading read_acquire(const struct dialect *d, const struct words *w, const char *in, size_t len, struct reply *ret)
{
    (void)w;
    return read_reply(in, len, d->granted, d->token_at, ret);
}

static enum reading read_release(const struct dialect *d, const struct words *w, const char *in, size_t len, struct reply *ret)
{
    (void)w;
    return read_reply(in, len, d->released, 0, ret);
}

/* ---- the file of commands ---- */

#define LINE_MAX_LEN 1024

/* Two hexadecimal digits, or -1. */
static int hex_byte(const char *text)
{
    char digits[3] = {text[0], text[0] != '\0' ? text[1] : '\0', '\0'};
    char *end;
    long value = strtol(digits, &end, 16);

    return end == digits + 2 && digits[0] != '-' && digits[0] != '+' && digits[0] != ' ' ? (int)value : -1;
}

/* One argument as a frame of its own first: its length must be known before it is written. */
static bool add_unescaped(struct frame *f, const char *text)
{
    const char *p;
    char c;
    bool ok = true;

    for (p = text; *p != '\0' && ok; p++) {
        if (*p != '\\') {
            ok = frame_add(f, p, 1);
            continue;
        }
        p++;
        if (*p == 'N' || *p == 'L') {
            ok = frame_add_slot(f, *p == 'N' ? FRAME_NAME : FRAME_LEASE);
        } else if (*p == '\\') {
            ok = frame_add(f, p, 1);
        } else if (*p == 'x' && hex_byte(p + 1) >= 0) {
            c = (char)hex_byte(p + 1);
            ok = frame_add(f, &c, 1);
            p += 2;
        } else {
            return false;
        }
    }
    return ok;
}

static bool add_argument(struct frame *command, const char *text)
{
    struct frame arg = {0};
    char head[32];

    if (!add_unescaped(&arg, text))
        return false;
    (void)snprintf(head, sizeof head, "$%zu\r\n", arg.len);
    return frame_add_text(command, head) && frame_add_frame(command, &arg) && frame_add_text(command, "\r\n");
}

/* What has been read of one of the two commands; body grows by arguments, the array's head is put before it at the end. */
struct command {
    struct frame body;
    size_t args;
};

static bool copy_status(char *dst, size_t cap, const char *text)
{
    size_t len = strlen(text);

    if (len == 0 || len >= cap)
        return false;
    memcpy(dst, text, len + 1);
    return true;
}

static bool take_row(struct dialect *d, struct command commands[2], int *which, const char *line)
{
    if (strcmp(line, "acquire") == 0 || strcmp(line, "release") == 0) {
        *which = line[0] == 'r';
        return true;
    }
    if (*which < 0)
        return false;
    if (strncmp(line, "arg ", 4) == 0) {
        commands[*which].args++;
        return add_argument(&commands[*which].body, line + 4);
    }
    if (strncmp(line, "status ", 7) == 0)
        return copy_status(*which == 0 ? d->granted : d->released, sizeof d->granted, line + 7);
    if (strncmp(line, "token ", 6) == 0 && *which == 0) {
        d->token_at = (size_t)strtoul(line + 6, NULL, 10);
        return true;
    }
    return false;
}

static bool finish_command(struct frame *f, const struct command *c)
{
    char head[32];

    (void)snprintf(head, sizeof head, "*%zu\r\n", c->args);
    return c->args > 0 && frame_add_text(f, head) && frame_add_frame(f, &c->body);
}

static bool read_rows(struct dialect *d, FILE *in, char *problem, size_t cap)
{
    struct command commands[2];
    char line[LINE_MAX_LEN];
    int which = -1;
    int number = 0;

    memset(commands, 0, sizeof commands);
    while (fgets(line, sizeof line, in) != NULL) {
        number++;
        line[strcspn(line, "\n")] = '\0';
        if (!take_row(d, commands, &which, line)) {
            (void)snprintf(problem, cap, "line %d of the commands makes no sense or is too much: %.80s", number, line);
            return false;
        }
    }
    if (!finish_command(&d->acquire, &commands[0]) || !finish_command(&d->release, &commands[1]) || d->granted[0] == '\0' ||
        d->released[0] == '\0' || d->token_at == 0) {
        (void)snprintf(problem, cap, "the commands lack acquire, release, their status or the token's place");
        return false;
    }
    return true;
}

bool dialect_redis(struct dialect *d, const char *path, char *problem, size_t cap)
{
    FILE *in;
    bool ok;

    memset(d, 0, sizeof *d);
    d->title = "redis";
    d->client_names_lease = true;
    d->read_acquire = read_acquire;
    d->read_release = read_release;
    in = fopen(path, "r");
    if (in == NULL) {
        (void)snprintf(problem, cap, "%s: %s", path, strerror(errno));
        return false;
    }
    ok = read_rows(d, in, problem, cap);
    (void)fclose(in);
    return ok;
}
