/* The HTTP reader against a table of requests, legal and not. Each is fed whole, byte by byte and split at every point, into blocks of exactly the size
 * of what has arrived; all must come to the same end, the one that stands beside it. P9, and cases C12, C28, C32, C33, C49. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http_reader.h"
#include "tests/lib/check_main.h"

#define END "\r\n\r\n"
#define H   "Host: h\r\n"

/* What a request comes to, as text: "GET /path ?query host=h body=5:hello +3" (3 bytes are left for the next), "more", or "bad_request: why". */
struct outcome {
    char text[PAWL_HEAD_MAX + PAWL_BODY_MAX + 1024];
};

static void put_slice(FILE *out, const char *name, struct http_slice s)
{
    if (s.at != NULL) {
        fprintf(out, " %s%.*s", name, (int)s.len, s.at);
    }
}

static void describe(const struct http_reader *r, enum http_reader_result result, const char *bytes, size_t left, struct outcome *out)
{
    static const char *const methods[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT", "other"};
    FILE *f = fmemopen(out->text, sizeof(out->text), "w");
    struct http_request q;

    ck_assert_ptr_nonnull(f);
    if (result == HTTP_READER_MORE) {
        fprintf(f, "more%s%s", r->in_body ? " body" : "", r->wants_continue ? " continue" : "");
    } else if (result == HTTP_READER_REFUSED) {
        fprintf(f, "%s: %s", pawl_error_wire(r->error), r->problem);
    } else {
        http_reader_request(r, bytes, &q);
        fprintf(f, "%s %.*s", methods[q.method], (int)q.path.len, q.path.at);
        put_slice(f, "?", q.query);
        put_slice(f, "host=", q.host);
        put_slice(f, "origin=", q.origin);
        put_slice(f, "auth=", q.authorization);
        if (q.body.at != NULL) {
            fprintf(f, " body=%zu:%.*s", q.body.len, (int)q.body.len, q.body.at);
        }
        fprintf(f, "%s%s", r->keep_alive ? "" : " close", r->is_1_0 ? " 1.0" : "");
        if (left > 0) {
            fprintf(f, " +%zu", left);
        }
    }
    fclose(f);
}

/* An assertion of Check's own costs a write to a pipe, which is too much for one a byte. */
static void insist(bool truth)
{
    if (!truth) {
        ck_abort_msg("the reader kept too much, or there is no memory");
    }
}

/* Many small pieces of a long request: one block for all, since a new one for each piece would copy gigabytes. */
static void feed_in_place(const char *bytes, size_t len, size_t cut, struct outcome *out)
{
    static char block[HTTP_READER_RETAINS + 4096];
    struct http_reader r;
    enum http_reader_result result = HTTP_READER_MORE;
    size_t kept = 0, fed = 0;

    http_reader_init(&r);
    do {
        size_t n = cut < len - fed ? cut : len - fed;

        memcpy(block + kept, bytes + fed, n);
        fed += n;
        kept += n;
        result = http_reader_feed(&r, block, &kept);
        insist(kept <= HTTP_READER_RETAINS + n);
    } while (fed < len && result == HTTP_READER_MORE);
    describe(&r, result, block, result == HTTP_READER_COMPLETE ? kept - http_reader_size(&r) + len - fed : 0, out);
}

/* Feeds bytes[0..len) in pieces that end at cut, 2 cut, 3 cut ..., or only at `cut` and the end. */
static void feed(const char *bytes, size_t len, size_t cut, bool again, struct outcome *out)
{
    struct http_reader r;
    enum http_reader_result result = HTTP_READER_MORE;
    char *block = NULL;
    size_t kept = 0, fed = 0;

    http_reader_init(&r);
    do {
        size_t n = fed > 0 && !again ? len - fed : cut < len - fed ? cut : len - fed;
        char *moved = malloc(kept + n > 0 ? kept + n : 1);

        insist(moved != NULL);
        if (kept > 0) {
            memcpy(moved, block, kept);
        }
        memcpy(moved + kept, bytes + fed, n);
        free(block);
        block = moved;
        fed += n;
        kept += n;
        result = http_reader_feed(&r, block, &kept);
        insist(kept <= HTTP_READER_RETAINS + n);
    } while (fed < len && result == HTTP_READER_MORE);
    describe(&r, result, block, result == HTTP_READER_COMPLETE ? kept - http_reader_size(&r) + len - fed : 0, out);
    free(block);
}

/* Every way to cut it ends in what `expected` says; of a refusal only the error counts. */
static void check_all_cuts(const char *name, const char *bytes, size_t len, const char *expected)
{
    static struct outcome whole, cut;
    size_t step = len > 2000 ? len / 499 : 1; /* the long ones are split at some points only */

    feed(bytes, len, len, true, &whole);
    if (strstr(expected, ":*") != NULL) {
        size_t n = (size_t)(strstr(expected, ":*") - expected) + 1;

        ck_assert_msg(strncmp(whole.text, expected, n) == 0, "%s: expected '%s', got '%s'", name, expected, whole.text);
    } else {
        ck_assert_msg(strcmp(whole.text, expected) == 0, "%s: expected '%s', got '%s'", name, expected, whole.text);
    }
    feed(bytes, len, 1, true, &cut);
    ck_assert_msg(strcmp(whole.text, cut.text) == 0, "%s: byte by byte it is '%s', whole '%s'", name, cut.text, whole.text);
    for (size_t at = 1; at < len; at += step) {
        feed(bytes, len, at, false, &cut);
        ck_assert_msg(strcmp(whole.text, cut.text) == 0, "%s: split at %zu it is '%s', whole '%s'", name, at, cut.text, whole.text);
    }
}

/* ---- the table ---- */

struct row {
    const char *name;
    const char *bytes;
    size_t len;
    const char *expected; /* "error:*" stands for any sentence */
};
#define ROW(name, bytes, expected)                                                                                                         \
    {                                                                                                                                      \
        name, bytes, sizeof(bytes) - 1, expected                                                                                           \
    }

#define BAD     "bad_request:*"
#define POST    "POST / HTTP/1.1\r\n" H
#define CHUNKED POST "Transfer-Encoding: chunked" END

static const struct row rows[] = {
    /* what is fine */
    ROW("the least", "GET / HTTP/1.1\r\nHost: h" END, "GET / host=h"),
    ROW("query", "GET /a/b?c=d&e HTTP/1.1\r\n" H "\r\n", "GET /a/b ?c=d&e host=h"),
    ROW("empty query", "GET /a? HTTP/1.1\r\n" H "\r\n", "GET /a ? host=h"),
    ROW("second question mark", "GET /a?b?c HTTP/1.1\r\n" H "\r\n", "GET /a ?b?c host=h"),
    ROW("body", POST "Content-Length: 5" END "hello", "POST / host=h body=5:hello"),
    ROW("body of nothing", POST "Content-Length: 0" END, "POST / host=h body=0:"),
    ROW("leading zeros", POST "Content-Length: 0005" END "hello", "POST / host=h body=5:hello"),
    ROW("body comes late", POST "Content-Length: 5" END "hel", "more body"),
    ROW("next one follows", "GET / HTTP/1.1\r\n" H "\r\nGET", "GET / host=h +3"),
    ROW("next one follows a body", POST "Content-Length: 2" END "hiGET", "POST / host=h body=2:hi +3"),
    ROW("fields that matter", "GET / HTTP/1.1\r\nhOsT: x:80\r\nORIGIN: http://o\r\nauthorization:Bearer t" END,
        "GET / host=x:80 origin=http://o auth=Bearer t"),
    ROW("blanks around a value", "GET / HTTP/1.1\r\nHost: \t h \t" END, "GET / host=h"),
    ROW("empty value", "GET / HTTP/1.1\r\nHost:\r\nX-A:" END, "GET / host="),
    ROW("bytes over 127 in a value", "GET / HTTP/1.1\r\n" H "X-A: \xc3\xa9\xff" END, "GET / host=h"),
    ROW("IPv6 host", "GET / HTTP/1.1\r\nHost: [::1]:7295" END, "GET / host=[::1]:7295"),
    ROW("C33 close", "GET / HTTP/1.1\r\n" H "Connection: foo , Close" END, "GET / host=h close"),
    ROW("C33 HTTP/1.0 closes", "GET / HTTP/1.0" END, "GET / close 1.0"),
    ROW("C33 HTTP/1.0 keeps", "GET / HTTP/1.0\r\nConnection: Keep-Alive" END, "GET / 1.0"),
    ROW("C33 close wins", "GET / HTTP/1.0\r\nConnection: keep-alive, close" END, "GET / close 1.0"),
    ROW("a later 1.x is read as 1.1", "GET / HTTP/1.2\r\n" H "\r\n", "GET / host=h"),

    /* C12 and C33: methods */
    ROW("C12 HEAD", "HEAD / HTTP/1.1\r\n" H "\r\n", "HEAD / host=h"),
    ROW("C33 OPTIONS *", "OPTIONS * HTTP/1.1\r\n" H "\r\n", "OPTIONS * host=h"),
    ROW("C33 OPTIONS path", "OPTIONS /a HTTP/1.1\r\n" H "\r\n", "OPTIONS /a host=h"),
    ROW("C33 PATCH", "PATCH / HTTP/1.1\r\n" H "\r\n", "PATCH / host=h"),
    ROW("C33 TRACE", "TRACE / HTTP/1.1\r\n" H "\r\n", "TRACE / host=h"),
    ROW("C33 lower case is another method", "get / HTTP/1.1\r\n" H "\r\n", "other / host=h"),
    ROW("C33 CONNECT", "CONNECT h:80 HTTP/1.1\r\n" H "\r\n", "not_implemented:*"),
    ROW("C33 CONNECT path", "CONNECT /a HTTP/1.1\r\n" H "\r\n", "CONNECT /a host=h"),
    ROW("method of 32", "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEF / HTTP/1.1\r\n" H "\r\n", "other / host=h"),
    ROW("method of 33", "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFG", "not_implemented:*"),
    ROW("endless method with a bad byte", "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLM\x01", "not_implemented:*"),
    ROW("a TLS hello", "\x16\x03\x01", BAD),
    ROW("an empty line first", "\r\nGET / HTTP/1.1\r\n" H "\r\n", BAD),
    ROW("a blank first", " GET / HTTP/1.1\r\n" H "\r\n", BAD),
    ROW("a tab after the method", "GET\t/ HTTP/1.1\r\n" H "\r\n", BAD),
    ROW("two blanks", "GET  / HTTP/1.1\r\n" H "\r\n", BAD),

    /* C49 and C28: targets */
    ROW("C49 absolute", "GET http://x:1/a?b HTTP/1.1\r\n" H "\r\n", "GET /a ?b host=x:1"),
    ROW("C49 absolute, https, other case", "GET HTTPS://x/a HTTP/1.1\r\n" H "\r\n", "GET /a host=x"),
    ROW("C49 absolute without a path", "GET http://x HTTP/1.1\r\n" H "\r\n", "GET / host=x"),
    ROW("C49 absolute, query only", "GET http://x?q HTTP/1.1\r\n" H "\r\n", "GET / ?q host=x"),
    ROW("C49 absolute without a host", "GET http:///a HTTP/1.1\r\n" H "\r\n", BAD),
    ROW("C49 absolute with a user", "GET http://u@x/a HTTP/1.1\r\n" H "\r\n", BAD),
    ROW("C49 another scheme", "GET ftp://x/a HTTP/1.1\r\n" H "\r\n", BAD),
    ROW("C49 absolute still needs Host", "GET http://x/a HTTP/1.1" END, BAD),
    ROW("C49 double slash", "GET //a//b HTTP/1.1\r\n" H "\r\n", "GET //a//b host=h"),
    ROW("C49 dots stay", "GET /a/../b/. HTTP/1.1\r\n" H "\r\n", "GET /a/../b/. host=h"),
    ROW("C49 no slash", "GET a HTTP/1.1\r\n" H "\r\n", BAD),
    ROW("C49 star with GET", "GET * HTTP/1.1\r\n" H "\r\n", BAD),
    ROW("C49 fragment", "GET /a#b HTTP/1.1\r\n" H "\r\n", BAD),
    ROW("C28 escapes stay", "GET /a%00b%2Fc%252F%zz HTTP/1.1\r\n" H "\r\n", "GET /a%00b%2Fc%252F%zz host=h"),
    ROW("C28 a blank in the target", "GET /a b HTTP/1.1\r\n" H "\r\n", BAD),
    ROW("C28 NUL in the target", "GET /a\0b HTTP/1.1\r\n" H "\r\n", BAD),
    ROW("C28 raw 0xff in the target", "GET /a\xff HTTP/1.1\r\n" H "\r\n", BAD),
    ROW("C28 raw UTF-8 in the target", "GET /\xc3\xa9 HTTP/1.1\r\n" H "\r\n", BAD),
    ROW("C28 DEL in the target", "GET /\x7f HTTP/1.1\r\n" H "\r\n", BAD),

    /* versions */
    ROW("HTTP/0.9", "GET /\r\n", BAD),
    ROW("HTTP/2.0", "GET / HTTP/2.0\r\n" H "\r\n", "version_not_supported:*"),
    ROW("HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "version_not_supported:*"),
    ROW("HTTP/0.1", "GET / HTTP/0.1\r\n", "version_not_supported:*"),
    ROW("HTTP/1", "GET / HTTP/1\r\n" H "\r\n", BAD),
    ROW("HTTP/1.10", "GET / HTTP/1.10\r\n" H "\r\n", BAD),
    ROW("http/1.1", "GET / http/1.1\r\n" H "\r\n", BAD),
    ROW("a blank after the version", "GET / HTTP/1.1 \r\n" H "\r\n", BAD),

    /* lines and fields */
    ROW("LF alone after the request line", "GET / HTTP/1.1\n" H "\r\n", BAD),
    ROW("LF alone after a field", "GET / HTTP/1.1\r\nHost: h\n\r\n", BAD),
    ROW("LF alone at the end", "GET / HTTP/1.1\r\n" H "\n", BAD),
    ROW("CR alone in a field", "GET / HTTP/1.1\r\n" H "A: b\rc" END, BAD),
    ROW("CR alone after the request line", "GET / HTTP/1.1\rX", BAD),
    ROW("CR alone at the end", "GET / HTTP/1.1\r\n" H "\rX", BAD),
    ROW("obs-fold", "GET / HTTP/1.1\r\n" H "A: b\r\n c" END, BAD),
    ROW("obs-fold with a tab", "GET / HTTP/1.1\r\n" H "A: b\r\n\tc" END, BAD),
    ROW("a blank before the first field", "GET / HTTP/1.1\r\n Host: h" END, BAD),
    ROW("a blank before the colon", "GET / HTTP/1.1\r\n" H "A : b" END, BAD),
    ROW("a tab before the colon", "GET / HTTP/1.1\r\n" H "A\t: b" END, BAD),
    ROW("an empty name", "GET / HTTP/1.1\r\n" H ": b" END, BAD),
    ROW("no colon", "GET / HTTP/1.1\r\n" H "A" END, BAD),
    ROW("a name that is no token", "GET / HTTP/1.1\r\n" H "A(b): c" END, BAD),
    ROW("a name over 127", "GET / HTTP/1.1\r\n" H "\xc3\xa9: c" END, BAD),
    ROW("NUL in a value", "GET / HTTP/1.1\r\n" H "A: b\0c" END, BAD),
    ROW("a control in a value", "GET / HTTP/1.1\r\n" H "A: b\x1b[31m" END, BAD),
    ROW("DEL in a value", "GET / HTTP/1.1\r\n" H "A: \x7f" END, BAD),
    ROW("C33 no Host", "GET / HTTP/1.1\r\nA: b" END, BAD),
    ROW("two Hosts", "GET / HTTP/1.1\r\n" H H "\r\n", BAD),
    ROW("a listed Host", "GET / HTTP/1.1\r\nHost: a, b" END, BAD),
    ROW("a Host with a path", "GET / HTTP/1.1\r\nHost: a/b" END, BAD),
    ROW("a Host with a user", "GET / HTTP/1.1\r\nHost: u@a" END, BAD),
    ROW("two Origins", "GET / HTTP/1.1\r\n" H "Origin: a\r\nOrigin: a" END, BAD),
    ROW("two Authorizations", "GET / HTTP/1.1\r\n" H "Authorization: a\r\nAuthorization: a" END, BAD),

    /* C32: lengths */
    ROW("C32 two unlike lengths", POST "Content-Length: 5\r\nContent-Length: 6" END "hello!", BAD),
    ROW("C32 two like lengths", POST "Content-Length: 5\r\nContent-Length: 5" END "hello", BAD),
    ROW("C32 a list of lengths", POST "Content-Length: 5, 5" END "hello", BAD),
    ROW("C32 plus", POST "Content-Length: +3" END "abc", BAD),
    ROW("C32 minus", POST "Content-Length: -1" END, BAD),
    ROW("C32 empty", POST "Content-Length:" END, BAD),
    ROW("C32 blank inside", POST "Content-Length: 1 1" END "hello", BAD),
    ROW("C32 hexadecimal", POST "Content-Length: 0x3" END "abc", BAD),
    ROW("C32 a fraction", POST "Content-Length: 3.0" END "abc", BAD),
    ROW("C32 letters behind a huge one", POST "Content-Length: 99999999999999999999x" END, BAD),
    ROW("C32 wraps in 64 bits", POST "Content-Length: 18446744073709551621" END "hello", "too_large:*"),
    ROW("C32 wraps in 32 bits", POST "Content-Length: 4294967301" END "hello", "too_large:*"),
    ROW("C32 length and chunked", POST "Content-Length: 5\r\nTransfer-Encoding: chunked" END "0" END, BAD),
    ROW("C32 chunked and length", POST "Transfer-Encoding: chunked\r\nContent-Length: 5" END "0" END, BAD),
    ROW("C32 gzip, chunked", POST "Transfer-Encoding: gzip, chunked" END "0" END, BAD),
    ROW("C32 chunked, chunked", POST "Transfer-Encoding: chunked, chunked" END "0" END, BAD),
    ROW("C32 chunked twice", POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked" END "0" END, BAD),
    ROW("C32 identity", POST "Transfer-Encoding: identity" END, BAD),
    ROW("C32 xchunked", POST "Transfer-Encoding: xchunked" END, BAD),
    ROW("C32 empty coding", POST "Transfer-Encoding:" END, BAD),
    ROW("C32 chunked in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked" END "0" END, BAD),

    /* C32: chunks */
    ROW("C32 chunks", CHUNKED "5\r\nhello\r\n6\r\n world\r\n0" END "GET", "POST / host=h body=11:hello world +3"),
    ROW("C32 chunks in other case", POST "transfer-encoding:  CHUNKED " END "00A\r\n0123456789\r\n000" END,
        "POST / host=h body=10:0123456789"),
    ROW("C32 no chunks", CHUNKED "0" END, "POST / host=h body=0:"),
    ROW("C32 extensions", CHUNKED "3;a=b;c=\"d\"\r\nabc\r\n0;x" END, "POST / host=h body=3:abc"),
    ROW("C32 trailers", CHUNKED "3\r\nabc\r\n0\r\nX-A: b\r\nX-B:c" END "GET", "POST / host=h body=3:abc +3"),
    ROW("C32 chunks come late", CHUNKED "3\r\nab", "more body"),
    ROW("C32 trailers come late", CHUNKED "3\r\nabc\r\n0\r\nX-A: b", "more body"),
    ROW("C32 chunk size 0x3", CHUNKED "0x3\r\nabc\r\n0" END, BAD),
    ROW("C32 chunk size +3", CHUNKED "+3\r\nabc\r\n0" END, BAD),
    ROW("C32 chunk size -1", CHUNKED "-1\r\nabc\r\n0" END, BAD),
    ROW("C32 blank before a size", CHUNKED " 3\r\nabc\r\n0" END, BAD),
    ROW("C32 blank after a size", CHUNKED "3 \r\nabc\r\n0" END, BAD),
    ROW("C32 blank before an extension", CHUNKED "3 ;a\r\nabc\r\n0" END, BAD),
    ROW("C32 no size", CHUNKED "\r\nabc\r\n0" END, BAD),
    ROW("C32 an extension without a size", CHUNKED ";a\r\nabc\r\n0" END, BAD),
    ROW("C32 16 f's", CHUNKED "ffffffffffffffff\r\n", BAD),
    ROW("C32 15 f's", CHUNKED "fffffffffffffff\r\n", "too_large:*"),
    ROW("C32 16 digits of a small size", CHUNKED "0000000000000003\r\nabc\r\n0" END, BAD),
    ROW("C32 LF alone after a size", CHUNKED "3\nabc\r\n0" END, BAD),
    ROW("C32 CR alone after a size", CHUNKED "3\rXabc", BAD),
    ROW("C32 LF alone in an extension", CHUNKED "3;a\nabc\r\n0" END, BAD),
    ROW("C32 NUL in an extension", CHUNKED "3;a\0b\r\nabc\r\n0" END, BAD),
    ROW("C32 no CRLF after chunk data", CHUNKED "3\r\nabc0" END, BAD),
    ROW("C32 LF alone after chunk data", CHUNKED "3\r\nabc\n0" END, BAD),
    ROW("C32 CR alone after chunk data", CHUNKED "3\r\nabc\rX", BAD),
    ROW("C32 chunk data longer than its size", CHUNKED "3\r\nabcd\r\n0" END, BAD),
    ROW("C32 Content-Length in a trailer", CHUNKED "0\r\nContent-Length: 3" END, BAD),
    ROW("C32 Transfer-Encoding in a trailer", CHUNKED "3\r\nabc\r\n0\r\nTransfer-Encoding: chunked" END, BAD),
    ROW("C32 Host in a trailer", CHUNKED "0\r\nHost: x" END, BAD),
    ROW("C32 Authorization in a trailer", CHUNKED "0\r\nauthorization: x" END, BAD),
    ROW("C32 a folded trailer", CHUNKED "0\r\nA: b\r\n c" END, BAD),
    ROW("C32 LF alone at the end of trailers", CHUNKED "0\r\nA: b\r\n\n", BAD),

    /* C33: expectations */
    ROW("C33 100-continue, body awaited", POST "Expect: 100-Continue\r\nContent-Length: 5" END, "more body continue"),
    ROW("C33 100-continue, chunks awaited", POST "Expect: 100-continue\r\nTransfer-Encoding: chunked" END, "more body continue"),
    ROW("C33 100-continue, body began", POST "Expect: 100-continue\r\nContent-Length: 5" END "h", "more body"),
    ROW("C33 100-continue, no body", POST "Expect: 100-continue" END, "POST / host=h"),
    ROW("C33 100-continue, too large", POST "Expect: 100-continue\r\nContent-Length: 65537" END, "too_large:*"),
    ROW("C33 100-continue in 1.0", "POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5" END, "more body"),
    ROW("C33 another expectation", POST "Expect: tea" END, "expectation_failed:*"),
    ROW("C33 two expectations", POST "Expect: 100-continue\r\nExpect: tea" END, "expectation_failed:*"),
    ROW("C33 bad length before a bad expectation", POST "Expect: tea\r\nContent-Length: x" END, BAD),
};

START_TEST(each_row_has_one_outcome_however_it_is_cut)
{
    const struct row *row = &rows[_i];

    check_all_cuts(row->name, row->bytes, row->len, row->expected);
}
END_TEST

/* ---- limits: what fits exactly, and one more (P9, C33) ---- */

static char big[PAWL_HEAD_MAX + 10 * PAWL_BODY_MAX];

/* Puts `head`, then `n` times `unit`, then `tail` into big; returns the length. */
static size_t build(const char *head, const char *unit, size_t n, const char *tail)
{
    size_t at = strlen(head), unit_len = strlen(unit);

    memcpy(big, head, at);
    for (size_t i = 0; i < n; i++, at += unit_len) {
        memcpy(big + at, unit, unit_len);
    }
    memcpy(big + at, tail, strlen(tail));
    return at + strlen(tail);
}

static void check_starts(const char *name, size_t len, const char *expected)
{
    static struct outcome whole, cut;
    static const size_t cuts[] = {1, 2, 3, 7, 1000, 4096, 16383, 16384, 16385, 65536};

    feed(big, len, len, true, &whole);
    ck_assert_msg(strncmp(whole.text, expected, strlen(expected)) == 0, "%s: expected '%s', got '%.60s'", name, expected, whole.text);
    for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
        if (cuts[i] < 1000) {
            feed_in_place(big, len, cuts[i], &cut);
        } else {
            feed(big, len, cuts[i], true, &cut);
        }
        ck_assert_msg(strcmp(whole.text, cut.text) == 0, "%s: in pieces of %zu it is '%.60s', whole '%.60s'", name, cuts[i], cut.text,
                      whole.text);
    }
}

START_TEST(c33_the_target_has_a_limit)
{
    size_t len = build("GET /", "a", PAWL_TARGET_MAX - 1, " HTTP/1.1\r\n" H "\r\n");

    check_starts("exact", len, "GET /aaa");
    len = build("GET /", "a", PAWL_TARGET_MAX, " HTTP/1.1\r\n" H "\r\n");
    check_starts("one more", len, "uri_too_long");
    len = build("GET /", "a", PAWL_TARGET_MAX, "\xff");
    check_starts("one more, then a bad byte", len, "uri_too_long");
}
END_TEST

START_TEST(c33_the_head_has_a_limit)
{
    const char *start = "GET / HTTP/1.1\r\n" H "A: ";
    size_t frame = strlen(start) + 4;

    check_starts("exact", build(start, "a", PAWL_HEAD_MAX - frame, END), "GET / host=h");
    check_starts("one more", build(start, "a", PAWL_HEAD_MAX - frame + 1, END), "headers_too_large");
    check_starts("much more", build(start, "a", 4 * PAWL_HEAD_MAX, END), "headers_too_large");
    check_starts("blanks count", build(start, " ", 4 * PAWL_HEAD_MAX, END), "headers_too_large");
    check_starts("never ends", build(start, "a", PAWL_HEAD_MAX - frame, ""), "more");
}
END_TEST

START_TEST(c33_fields_have_a_limit)
{
    check_starts("64", build("GET / HTTP/1.1\r\n" H, "A: b\r\n", PAWL_FIELDS_MAX - 1, "\r\n"), "GET / host=h");
    check_starts("65", build("GET / HTTP/1.1\r\n" H, "A: b\r\n", PAWL_FIELDS_MAX, "\r\n"), "headers_too_large");
    check_starts("10,000", build("GET / HTTP/1.1\r\n" H, "A: b\r\n", 10000, "\r\n"), "headers_too_large");
    check_starts("trailers count too", build(CHUNKED "0\r\n", "A: b\r\n", PAWL_FIELDS_MAX, "\r\n"), "headers_too_large");
}
END_TEST

START_TEST(c33_the_body_has_a_limit)
{
    check_starts("exact", build(POST "Content-Length: 65536" END, "b", PAWL_BODY_MAX, "GET"), "POST / host=h body=65536:bbb");
    check_starts("one more is refused at the head", build(POST "Content-Length: 65537" END, "b", 0, ""), "too_large");
    check_starts("one chunk, exact", build(CHUNKED "10000\r\n", "b", PAWL_BODY_MAX, "\r\n0" END), "POST / host=h body=65536:bbb");
    check_starts("one chunk, one more", build(CHUNKED "10001\r\n", "b", PAWL_BODY_MAX + 1, "\r\n0" END), "too_large");
    check_starts("chunks of 1, exact", build(CHUNKED, "1\r\nb\r\n", PAWL_BODY_MAX, "0" END), "POST / host=h body=65536:bbb");
    check_starts("chunks of 1, one more", build(CHUNKED, "1\r\nb\r\n", PAWL_BODY_MAX + 1, "0" END), "too_large");
}
END_TEST

START_TEST(p9_framing_has_a_limit)
{
    check_starts("extension without end", build(CHUNKED "1;", "x", 9 * PAWL_BODY_MAX, "\r\nb\r\n0" END), "too_large");
    check_starts("chunks that are all extension", build(CHUNKED, "1;xxxxxxxx\r\nb\r\n", 9 * PAWL_BODY_MAX / 15, "0" END), "too_large");
    check_starts("trailer, fits", build(CHUNKED "0\r\nA: ", "x", PAWL_HEAD_MAX - 7, END), "POST / host=h body=0:");
    check_starts("trailer, one more", build(CHUNKED "0\r\nA: ", "x", PAWL_HEAD_MAX - 6, END), "headers_too_large");
    check_starts("trailer without end", build(CHUNKED "0\r\nA: ", "x", 4 * PAWL_HEAD_MAX, END), "headers_too_large");
}
END_TEST

/* A block never has to hold more than the header says, whatever comes. */
START_TEST(p9_an_unfinished_request_is_bounded)
{
    struct http_reader r;
    size_t len = build(CHUNKED, "1;xxx\r\nb\r\n", PAWL_BODY_MAX / 2, ""), kept = 0, most = 0;
    static char block[HTTP_READER_RETAINS + 100];

    http_reader_init(&r);
    for (size_t fed = 0; fed < len; fed += 100) {
        size_t n = len - fed < 100 ? len - fed : 100;

        memcpy(block + kept, big + fed, n);
        kept += n;
        insist(http_reader_feed(&r, block, &kept) == HTTP_READER_MORE);
        most = kept > most ? kept : most;
    }
    ck_assert_uint_le(most, strlen(CHUNKED) + PAWL_BODY_MAX / 2);
    ck_assert_uint_eq(r.body_len, PAWL_BODY_MAX / 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_reader");
    TCase *table = tcase_create("table"), *limits = tcase_create("limits");

    tcase_add_loop_test(table, each_row_has_one_outcome_however_it_is_cut, 0, sizeof(rows) / sizeof(rows[0]));
    tcase_add_test(limits, c33_the_target_has_a_limit);
    tcase_add_test(limits, c33_the_head_has_a_limit);
    tcase_add_test(limits, c33_fields_have_a_limit);
    tcase_add_test(limits, c33_the_body_has_a_limit);
    tcase_add_test(limits, p9_framing_has_a_limit);
    tcase_add_test(limits, p9_an_unfinished_request_is_bounded);
    suite_add_tcase(suite, table);
    suite_add_tcase(suite, limits);
    return check_main(suite);
}
