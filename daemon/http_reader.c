/* The reader is a table of states, one function each. A function looks at bytes from r->pos up to `end`, takes what belongs to it, and moves the state on.
 *
 *   METHOD ─ TARGET ─ VERSION ─ LINE_LF ─┬─► FIELD_START ─ FIELD_NAME ─ FIELD_BLANK ─ FIELD_VALUE ─ FIELD_LF ─┐
 *                                        │       │ ▲                                                          │
 *                                        │       │ └──────────────────────────────────────────────────────────┘
 *                                        │       └─ HEAD_LF ─┬─► DONE
 *                                        │                   ├─► BODY ─► DONE
 *                                        │                   └─► CHUNK_SIZE ─ CHUNK_EXTENSION ─ CHUNK_LF ─┬─ CHUNK_DATA ─ CHUNK_DATA_CR ─ CHUNK_DATA_LF ─► CHUNK_SIZE
 *                                        └──────────────────────────────────── (last chunk: trailers) ────┘
 *
 * Two rules keep the outcome independent of how the bytes were cut. A refusal depends only on the bytes up to the one that makes the request bad, so a
 * function that scans ahead checks lengths before it judges the byte that stopped it. And what needs a whole field is judged at that field's LF.
 *
 * Every byte is paid for out of r->budget: of the head, of a chunked body with all its framing, of the trailers. Nothing is read without a limit.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <string.h>
#include <strings.h>

#include "daemon/http_reader.h"
#include "proto/hex.h"

#define METHOD_LEN_MAX    32
#define CHUNK_DIGITS_MAX  15
#define CHUNKED_BYTES_MAX (8 * PAWL_BODY_MAX) /* a body of one-byte chunks fits; one that is all extensions doesn't */
#define UNLIMITED         UINT32_MAX

enum state {
    METHOD,
    TARGET,
    VERSION,
    LINE_LF,
    FIELD_START,
    FIELD_NAME,
    FIELD_BLANK,
    FIELD_VALUE,
    FIELD_LF,
    HEAD_LF,
    BODY,
    CHUNK_SIZE,
    CHUNK_EXTENSION,
    CHUNK_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    DONE,
    REFUSED
};

/* ---- classes of bytes ---- */

enum { TOKEN = 1, VISIBLE = 2, TEXT = 4, HOST = 8 };

#define T (TOKEN | VISIBLE | TEXT)
#define H (TOKEN | VISIBLE | TEXT | HOST)
#define D (VISIBLE | TEXT)
#define E (VISIBLE | TEXT | HOST)

static const uint8_t classes[256] = {
    ['\t'] = TEXT,     [' '] = TEXT,
    ['!'] = H,         ['"'] = D,
    ['#'] = D,         ['$'] = H,
    ['%'] = H,         ['&'] = H,
    ['\''] = H,        ['('] = E,
    [')'] = E,         ['*'] = H,
    ['+'] = H,         [','] = E,
    ['-'] = H,         ['.'] = H,
    ['/'] = D,         ['0' ... '9'] = H,
    [':'] = E,         [';'] = E,
    ['<'] = D,         ['='] = E,
    ['>'] = D,         ['?'] = D,
    ['@'] = D,         ['A' ... 'Z'] = H,
    ['['] = E,         ['\\'] = D,
    [']'] = E,         ['^'] = T,
    ['_'] = H,         ['`'] = T,
    ['a' ... 'z'] = H, ['{'] = D,
    ['|'] = T,         ['}'] = D,
    ['~'] = H,         [0x80 ... 0xff] = TEXT,
};

#undef T
#undef H
#undef D
#undef E

static bool is(char c, int class)
{
    return (classes[(unsigned char)c] & class) != 0;
}

static size_t skip(const char *b, size_t at, size_t end, int class)
{
    while (at < end && is(b[at], class)) {
        at++;
    }
    return at;
}

static bool all(const char *b, size_t len, int class)
{
    return skip(b, 0, len, class) == len;
}

static bool spells(const char *at, size_t len, const char *word)
{
    return len == strlen(word) && strncasecmp(at, word, len) == 0;
}

static void refuse(struct http_reader *r, enum pawl_error error, const char *problem)
{
    r->state = REFUSED;
    r->error = error;
    r->problem = problem;
}

static void bad(struct http_reader *r, const char *problem)
{
    refuse(r, PAWL_E_BAD_REQUEST, problem);
}

/* ---- the request line ---- */

static const struct {
    const char *name;
    enum http_method method;
} methods[] = {
    {"GET", HTTP_GET},         {"HEAD", HTTP_HEAD},   {"POST", HTTP_POST},   {"PUT", HTTP_PUT},         {"DELETE", HTTP_DELETE},
    {"OPTIONS", HTTP_OPTIONS}, {"PATCH", HTTP_PATCH}, {"TRACE", HTTP_TRACE}, {"CONNECT", HTTP_CONNECT},
};

/* Methods are case-sensitive: "get" is some other one. */
static enum http_method method_of(const char *at, size_t len)
{
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (len == strlen(methods[i].name) && memcmp(at, methods[i].name, len) == 0) {
            return methods[i].method;
        }
    }
    return HTTP_OTHER;
}

static void read_method(struct http_reader *r, char *b, size_t end)
{
    size_t at = skip(b, r->pos, end, TOKEN);

    r->pos = (uint32_t)at;
    if (at > METHOD_LEN_MAX) {
        refuse(r, PAWL_E_NOT_IMPLEMENTED, "no method is that long");
    } else if (at < end && (at == 0 || b[at] != ' ')) {
        bad(r, at == 0 ? "this is not an HTTP request" : "the method is not a token followed by one blank");
    } else if (at < end) {
        r->method = method_of(b, at);
        r->pos = (uint32_t)at + 1;
        r->target.at = r->pos;
        r->state = TARGET;
    }
}

static void read_target(struct http_reader *r, char *b, size_t end)
{
    size_t at = r->pos;

    while (at < end && is(b[at], VISIBLE) && b[at] != '#') {
        at++;
    }
    r->pos = (uint32_t)at;
    r->target.len = r->pos - r->target.at;
    if (r->target.len > PAWL_TARGET_MAX) {
        refuse(r, PAWL_E_URI_TOO_LONG, "the request target is longer than 8192 bytes");
    } else if (at < end && b[at] == ' ' && r->target.len > 0) {
        r->pos++;
        r->matched = 0;
        r->state = VERSION;
    } else if (at < end) {
        bad(r, b[at] == '#' ? "a request target has no fragment"
                            : "the request target holds a byte that has to be percent-encoded, or no version follows it");
    }
}

static void read_version(struct http_reader *r, char *b, size_t end)
{
    static const char pattern[] = "HTTP/0.0\r"; /* 0 stands for any digit */

    for (; r->pos < end; r->pos++, r->matched++) {
        char c = b[r->pos];

        if (pattern[r->matched] == '0' ? c < '0' || c > '9' : c != pattern[r->matched]) {
            bad(r, "the request line doesn't end in HTTP/1.1 and CRLF");
            return;
        }
        if (c == '\r') {
            r->pos++;
            r->state = LINE_LF;
            return;
        }
    }
}

static void split_path(struct http_reader *r, const char *b, uint32_t at)
{
    uint32_t end = r->target.at + r->target.len;
    const char *mark = memchr(b + at, '?', end - at);

    r->path = (struct http_span){at, (mark ? (uint32_t)(mark - b) : end) - at};
    r->path_is_empty = r->path.len == 0;
    if (mark) {
        r->query.at = (uint32_t)(mark - b) + 1;
        r->query.len = end - r->query.at;
    }
}

/* http://host/path: what proxies are sent. The host it names is the one that counts, whatever the Host field says. */
static void split_absolute(struct http_reader *r, const char *b)
{
    const char *target = b + r->target.at;
    uint32_t skipped = r->target.len >= 7 && strncasecmp(target, "http://", 7) == 0    ? 7
                       : r->target.len >= 8 && strncasecmp(target, "https://", 8) == 0 ? 8
                                                                                       : 0;
    uint32_t at = r->target.at + skipped, end = at, stop = r->target.at + r->target.len;

    while (end < stop && b[end] != '/' && b[end] != '?') {
        end++;
    }
    if (skipped == 0) {
        bad(r, "the request target starts with '/', or is http://host/path");
    } else if (end == at || !all(b + at, end - at, HOST)) {
        bad(r, "the request target names no proper host");
    } else {
        r->authority = (struct http_span){at, end - at};
        split_path(r, b, end);
    }
}

static void split_target(struct http_reader *r, const char *b)
{
    const char *target = b + r->target.at;

    if (target[0] == '/') {
        split_path(r, b, r->target.at);
    } else if (r->target.len == 1 && target[0] == '*' && r->method == HTTP_OPTIONS) {
        r->path = r->target;
    } else if (r->method == HTTP_CONNECT) {
        refuse(r, PAWL_E_NOT_IMPLEMENTED, "this server is no proxy");
    } else {
        split_absolute(r, b);
    }
}

static void read_line_lf(struct http_reader *r, char *b, size_t end)
{
    const char *digits = b + r->pos - 4; /* "1.1\r" */

    (void)end;
    if (b[r->pos] != '\n') {
        bad(r, "a CR without LF in the request line");
    } else if (digits[0] != '1') {
        refuse(r, PAWL_E_VERSION_NOT_SUPPORTED, "only HTTP/1.0 and HTTP/1.1 are spoken");
    } else {
        r->pos++;
        r->is_1_0 = digits[2] == '0';
        r->state = FIELD_START;
        split_target(r, b);
    }
}

/* ---- fields ---- */

static void take_once(struct http_reader *r, struct http_span *field, const char *problem)
{
    if (field->at != 0) {
        bad(r, problem);
    } else {
        *field = r->value;
    }
}

static void take_host(struct http_reader *r, const char *value, size_t len)
{
    if (!all(value, len, HOST)) {
        bad(r, "Host is not a host");
    } else {
        take_once(r, &r->host, "Host is given twice");
    }
}

static void take_origin(struct http_reader *r, const char *value, size_t len)
{
    (void)value;
    (void)len;
    take_once(r, &r->origin, "Origin is given twice");
}

static void take_authorization(struct http_reader *r, const char *value, size_t len)
{
    (void)value;
    (void)len;
    take_once(r, &r->authorization, "Authorization is given twice");
}

static void take_last_event_id(struct http_reader *r, const char *value, size_t len)
{
    (void)value;
    (void)len;
    take_once(r, &r->last_event_id, "Last-Event-ID is given twice");
}

static void take_content_length(struct http_reader *r, const char *value, size_t len)
{
    uint32_t length = 0;

    for (size_t i = 0; i < len; i++) {
        if (value[i] < '0' || value[i] > '9') {
            len = 0;
        } else if (length <= PAWL_BODY_MAX) { /* beyond it the exact number doesn't matter, and it can't wrap */
            length = length * 10 + (uint32_t)(value[i] - '0');
        }
    }
    if (len == 0) {
        bad(r, "Content-Length is not one decimal number");
    } else if (r->has_length) {
        bad(r, "Content-Length is given twice");
    } else {
        r->has_length = true;
        r->length = length;
    }
}

static void take_transfer_encoding(struct http_reader *r, const char *value, size_t len)
{
    if (r->is_chunked || !spells(value, len, "chunked")) {
        bad(r, "Transfer-Encoding may only be chunked, once");
    } else {
        r->is_chunked = true;
    }
}

static void take_connection(struct http_reader *r, const char *value, size_t len)
{
    const char *at = value, *stop = value + len;

    while (at < stop) {
        const char *comma = memchr(at, ',', (size_t)(stop - at)), *end = comma ? comma : stop, *next = comma ? comma + 1 : stop;

        while (at < end && (*at == ' ' || *at == '\t')) {
            at++;
        }
        while (end > at && (end[-1] == ' ' || end[-1] == '\t')) {
            end--;
        }
        r->wants_close |= spells(at, (size_t)(end - at), "close");
        r->wants_keep_alive |= spells(at, (size_t)(end - at), "keep-alive");
        at = next;
    }
}

static void take_expect(struct http_reader *r, const char *value, size_t len)
{
    if (spells(value, len, "100-continue")) {
        r->expects_continue = true;
    } else {
        r->expects_other = true;
    }
}

/* The fields that mean something to the reader or to the service. Each of them is refused in a trailer, where it comes too late to mean it. */
#define FIELD(name, take)                                                                                                                  \
    {                                                                                                                                      \
        name, sizeof(name) - 1, take                                                                                                       \
    }
static const struct {
    const char *name;
    size_t len;
    void (*take)(struct http_reader *r, const char *value, size_t len);
} known_fields[] = {
    FIELD("host", take_host),
    FIELD("content-length", take_content_length),
    FIELD("transfer-encoding", take_transfer_encoding),
    FIELD("connection", take_connection),
    FIELD("expect", take_expect),
    FIELD("origin", take_origin),
    FIELD("authorization", take_authorization),
    FIELD("last-event-id", take_last_event_id),
};
#undef FIELD

static void take_field(struct http_reader *r, const char *b)
{
    const char *name = b + r->name.at;

    for (size_t i = 0; i < sizeof(known_fields) / sizeof(known_fields[0]); i++) {
        if (r->name.len == known_fields[i].len && strncasecmp(name, known_fields[i].name, r->name.len) == 0) {
            if (r->in_trailers) {
                bad(r, "a trailer holds a field that belongs into the head");
            } else {
                known_fields[i].take(r, b + r->value.at, r->value.len);
            }
            return;
        }
    }
}

static void read_field_start(struct http_reader *r, char *b, size_t end)
{
    char c = b[r->pos];

    (void)end;
    if (c == '\r') {
        r->pos++;
        r->state = HEAD_LF;
    } else if (c == ' ' || c == '\t') {
        bad(r, "a header field is folded, or starts with a blank");
    } else if (!is(c, TOKEN)) {
        bad(r, "a header field starts with a byte that no name may hold");
    } else if (r->fields == PAWL_FIELDS_MAX) {
        refuse(r, PAWL_E_HEADERS_TOO_LARGE, "the request has more than 64 header fields");
    } else {
        r->fields++;
        r->name.at = r->pos;
        r->state = FIELD_NAME;
    }
}

static void read_field_name(struct http_reader *r, char *b, size_t end)
{
    r->pos = (uint32_t)skip(b, r->pos, end, TOKEN);
    if (r->pos == end) {
        return;
    }
    if (b[r->pos] != ':') {
        bad(r, b[r->pos] == ' ' || b[r->pos] == '\t' ? "a blank stands before the colon of a header field"
                                                     : "the name of a header field is not a token");
        return;
    }
    r->name.len = r->pos - r->name.at;
    r->pos++;
    r->state = FIELD_BLANK;
}

static void read_field_blank(struct http_reader *r, char *b, size_t end)
{
    while (r->pos < end && (b[r->pos] == ' ' || b[r->pos] == '\t')) {
        r->pos++;
    }
    if (r->pos < end) {
        r->value.at = r->pos;
        r->state = FIELD_VALUE;
    }
}

static void read_field_value(struct http_reader *r, char *b, size_t end)
{
    uint32_t stop;

    r->pos = (uint32_t)skip(b, r->pos, end, TEXT);
    if (r->pos == end) {
        return;
    }
    if (b[r->pos] != '\r') {
        bad(r, b[r->pos] == '\n' ? "a line ends in LF without CR" : "a header field holds a control character");
        return;
    }
    stop = r->pos;
    while (stop > r->value.at && (b[stop - 1] == ' ' || b[stop - 1] == '\t')) {
        stop--;
    }
    r->value.len = stop - r->value.at;
    r->pos++;
    r->state = FIELD_LF;
}

static void read_field_lf(struct http_reader *r, char *b, size_t end)
{
    (void)end;
    if (b[r->pos] != '\n') {
        bad(r, "a header field holds a CR");
        return;
    }
    r->pos++;
    r->state = FIELD_START;
    take_field(r, b);
}

/* ---- the end of the head ---- */

static void check_head(struct http_reader *r)
{
    if (!r->is_1_0 && r->host.at == 0) {
        bad(r, "HTTP/1.1 needs a Host");
    } else if (r->is_chunked && r->has_length) {
        bad(r, "Content-Length and Transfer-Encoding exclude each other");
    } else if (r->is_chunked && r->is_1_0) {
        bad(r, "HTTP/1.0 has no Transfer-Encoding");
    } else if (r->expects_other) {
        refuse(r, PAWL_E_EXPECTATION_FAILED, "only Expect: 100-continue is understood");
    } else if (r->has_length && r->length > PAWL_BODY_MAX) {
        refuse(r, PAWL_E_TOO_LARGE, "the request body is larger than 65536 bytes");
    }
}

static void start_body(struct http_reader *r)
{
    r->has_body = r->is_chunked || r->has_length;
    r->keep_alive = !r->wants_close && (!r->is_1_0 || r->wants_keep_alive);
    r->body_at = r->pos;
    r->in_body = r->is_chunked || r->length > 0;
    r->wants_continue = r->in_body && r->expects_continue && !r->is_1_0;
    if (r->is_chunked) {
        r->budget = CHUNKED_BYTES_MAX;
        r->matched = 0;
        r->length = 0;
        r->state = CHUNK_SIZE;
    } else {
        r->budget = UNLIMITED; /* r->length is the limit */
        r->state = r->length > 0 ? BODY : DONE;
    }
}

static void read_head_lf(struct http_reader *r, char *b, size_t end)
{
    (void)end;
    if (b[r->pos] != '\n') {
        bad(r, "a CR without LF where the head ends");
        return;
    }
    r->pos++;
    if (r->in_trailers) {
        r->state = DONE;
        return;
    }
    check_head(r);
    if (r->state != REFUSED) {
        start_body(r);
    }
}

/* ---- the body ---- */

static uint32_t least(size_t available, uint32_t wanted)
{
    return available < wanted ? (uint32_t)available : wanted;
}

static void read_body(struct http_reader *r, char *b, size_t end)
{
    uint32_t n = least(end - r->pos, r->length);

    (void)b;
    r->pos += n;
    r->body_len += n;
    r->length -= n;
    r->wants_continue = false;
    if (r->length == 0) {
        r->state = DONE;
    }
}

/* A size beyond the limit is not refused before its line's end: what follows the digits decides first whether it is one at all. */
static void read_chunk_size(struct http_reader *r, char *b, size_t end)
{
    r->wants_continue = false;
    for (; r->pos < end && hex_digit(b[r->pos]) >= 0; r->pos++) {
        if (++r->matched > CHUNK_DIGITS_MAX) {
            bad(r, "a chunk size has more than 15 digits");
            return;
        }
        if (r->length <= PAWL_BODY_MAX) {
            r->length = r->length * 16 + (uint32_t)hex_digit(b[r->pos]);
        }
    }
    if (r->pos == end) {
        return;
    }
    if (r->matched == 0 || (b[r->pos] != ';' && b[r->pos] != '\r')) {
        bad(r, "a chunk size is not plain hexadecimal digits");
        return;
    }
    r->state = b[r->pos] == ';' ? CHUNK_EXTENSION : CHUNK_LF;
    r->pos++;
}

static void read_chunk_extension(struct http_reader *r, char *b, size_t end)
{
    r->pos = (uint32_t)skip(b, r->pos, end, TEXT);
    if (r->pos == end) {
        return;
    }
    if (b[r->pos] != '\r') {
        bad(r, "a chunk extension holds a control character");
        return;
    }
    r->pos++;
    r->state = CHUNK_LF;
}

static void read_chunk_lf(struct http_reader *r, char *b, size_t end)
{
    (void)end;
    if (b[r->pos] != '\n') {
        bad(r, "a CR without LF after a chunk size");
        return;
    }
    r->pos++;
    if (r->length == 0) {
        r->in_trailers = true;
        r->budget = PAWL_HEAD_MAX + 1; /* and 1 for the LF just read, which is taken off after this */
        r->state = FIELD_START;
    } else if (r->length > PAWL_BODY_MAX - r->body_len) {
        refuse(r, PAWL_E_TOO_LARGE, "the request body is larger than 65536 bytes");
    } else {
        r->state = CHUNK_DATA;
    }
}

static void read_chunk_data(struct http_reader *r, char *b, size_t end)
{
    uint32_t n = least(end - r->pos, r->length);

    memmove(b + r->body_at + r->body_len, b + r->pos, n);
    r->pos += n;
    r->body_len += n;
    r->length -= n;
    if (r->length == 0) {
        r->state = CHUNK_DATA_CR;
    }
}

static void read_chunk_data_cr(struct http_reader *r, char *b, size_t end)
{
    (void)end;
    if (b[r->pos] != '\r') {
        bad(r, "a chunk is longer than its size");
        return;
    }
    r->pos++;
    r->state = CHUNK_DATA_LF;
}

static void read_chunk_data_lf(struct http_reader *r, char *b, size_t end)
{
    (void)end;
    if (b[r->pos] != '\n') {
        bad(r, "a CR without LF after a chunk");
        return;
    }
    r->pos++;
    r->matched = 0;
    r->state = CHUNK_SIZE;
}

/* ---- the loop ---- */

static void (*const readers[])(struct http_reader *r, char *b, size_t end) = {
    [METHOD] = read_method,
    [TARGET] = read_target,
    [VERSION] = read_version,
    [LINE_LF] = read_line_lf,
    [FIELD_START] = read_field_start,
    [FIELD_NAME] = read_field_name,
    [FIELD_BLANK] = read_field_blank,
    [FIELD_VALUE] = read_field_value,
    [FIELD_LF] = read_field_lf,
    [HEAD_LF] = read_head_lf,
    [BODY] = read_body,
    [CHUNK_SIZE] = read_chunk_size,
    [CHUNK_EXTENSION] = read_chunk_extension,
    [CHUNK_LF] = read_chunk_lf,
    [CHUNK_DATA] = read_chunk_data,
    [CHUNK_DATA_CR] = read_chunk_data_cr,
    [CHUNK_DATA_LF] = read_chunk_data_lf,
};

static void refuse_size(struct http_reader *r)
{
    if (r->in_trailers || !r->is_chunked || !r->in_body) {
        refuse(r, PAWL_E_HEADERS_TOO_LARGE,
               r->in_trailers ? "the trailers are larger than 16384 bytes" : "the request head is larger than 16384 bytes");
    } else {
        refuse(r, PAWL_E_TOO_LARGE, "the request body takes too many bytes to say little");
    }
}

/* Drops what has been read and isn't needed: the framing of chunks, and trailers but for the line that is still arriving. */
static void drop_framing(struct http_reader *r, char *b, size_t *len)
{
    uint32_t keep = r->body_at + r->body_len, from = r->in_trailers && r->state > FIELD_START && r->state <= FIELD_LF ? r->name.at : r->pos;
    uint32_t gap = from - keep;

    memmove(b + keep, b + from, r->pos - from);
    r->pos -= gap;
    r->name.at -= gap;
    r->value.at -= gap;
    *len = r->pos;
}

void http_reader_init(struct http_reader *r)
{
    memset(r, 0, sizeof(*r));
    r->budget = PAWL_HEAD_MAX;
}

enum http_reader_result http_reader_feed(struct http_reader *r, char *bytes, size_t *len)
{
    while (r->pos < *len && r->state < DONE) {
        size_t room = *len - r->pos, end = r->pos + (room < r->budget ? room : r->budget);
        uint32_t before = r->pos;

        if (r->budget == 0) {
            refuse_size(r);
            break;
        }
        readers[r->state](r, bytes, end);
        if (r->budget != UNLIMITED) {
            r->budget -= r->pos - before;
        }
    }
    if (r->state == REFUSED) {
        return HTTP_READER_REFUSED;
    }
    if (r->state == DONE) {
        r->in_body = false;
        return HTTP_READER_COMPLETE;
    }
    if (r->in_body && r->is_chunked) {
        drop_framing(r, bytes, len);
    }
    return HTTP_READER_MORE;
}

static struct http_slice slice(const char *bytes, struct http_span span)
{
    return span.at == 0 ? (struct http_slice){NULL, 0} : (struct http_slice){bytes + span.at, span.len};
}

void http_reader_request(const struct http_reader *r, const char *bytes, struct http_request *out)
{
    out->method = r->method;
    out->path = r->path_is_empty ? (struct http_slice){"/", 1} : slice(bytes, r->path);
    out->query = slice(bytes, r->query);
    out->body = r->has_body ? (struct http_slice){bytes + r->body_at, r->body_len} : (struct http_slice){NULL, 0};
    out->host = slice(bytes, r->authority.at != 0 ? r->authority : r->host);
    out->origin = slice(bytes, r->origin);
    out->authorization = slice(bytes, r->authorization);
    out->last_event_id = slice(bytes, r->last_event_id);
    out->peer = NULL; /* the reader sees bytes alone */
}
