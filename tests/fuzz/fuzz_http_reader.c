/* The HTTP reader under bytes nobody thought of. The first bytes of the input say how the rest is cut into pieces; the outcome must be the one of the rest fed
 * whole: the same result, the same refusal, the same request, the same bytes left over. And what the reader keeps of an unfinished request stays within its word.
 * Pieces lie in blocks of exactly their size, so that a read past the end is seen. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http_reader.h"
#include "tests/fuzz/target.h"

#define CUTS 8 /* bytes of the input that say where to cut */

struct fed {
    struct http_reader reader;
    enum http_reader_result result;
    struct http_request request;
    char *block;
    size_t taken; /* bytes of the input that belong to the request */
};

static void insist(int truth)
{
    if (!truth) {
        abort();
    }
}

/* Feeds piece after piece, their sizes being those in cuts[0..n) over and over; with n == 0 all at once. */
static void feed(struct fed *f, const uint8_t *bytes, size_t len, const uint8_t *cuts, size_t n)
{
    size_t kept = 0, fed = 0;

    http_reader_init(&f->reader);
    f->result = HTTP_READER_MORE;
    f->block = NULL;
    for (size_t i = 0; f->result == HTTP_READER_MORE && fed < len; i++) {
        size_t piece = n > 0 ? (size_t)cuts[i % n] + 1 : len;
        char *moved;

        piece = piece < len - fed ? piece : len - fed;
        moved = malloc(kept + piece);
        insist(moved != NULL);
        if (kept > 0) {
            memcpy(moved, f->block, kept);
        }
        memcpy(moved + kept, bytes + fed, piece);
        free(f->block);
        f->block = moved;
        fed += piece;
        kept += piece;
        f->result = http_reader_feed(&f->reader, f->block, &kept);
        insist(f->result != HTTP_READER_MORE || kept <= HTTP_READER_RETAINS);
    }
    f->taken = 0;
    if (f->result == HTTP_READER_COMPLETE) {
        insist(http_reader_size(&f->reader) <= kept);
        f->taken = fed - (kept - http_reader_size(&f->reader));
        http_reader_request(&f->reader, f->block, &f->request);
    }
}

static void same_slice(struct http_slice a, struct http_slice b)
{
    insist((a.at == NULL) == (b.at == NULL) && a.len == b.len && (a.len == 0 || (a.at && b.at && memcmp(a.at, b.at, a.len) == 0)));
}

static void check_request(const struct http_request *q)
{
    insist(q->path.len > 0 && (q->path.at[0] == '/' || (q->method == HTTP_OPTIONS && q->path.len == 1 && q->path.at[0] == '*')));
    insist(q->path.len + q->query.len <= PAWL_TARGET_MAX && q->body.len <= PAWL_BODY_MAX);
    for (size_t i = 0; i < q->path.len; i++) {
        insist(q->path.at[i] > 0x20 && q->path.at[i] < 0x7f && q->path.at[i] != '?' && q->path.at[i] != '#');
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fed whole, cut;

    if (size <= CUTS) {
        return 0;
    }
    feed(&whole, data + CUTS, size - CUTS, NULL, 0);
    feed(&cut, data + CUTS, size - CUTS, data, CUTS);
    insist(whole.result == cut.result);
    switch (whole.result) {
    case HTTP_READER_MORE:
        insist(whole.reader.in_body == cut.reader.in_body && whole.reader.wants_continue == cut.reader.wants_continue);
        insist(whole.reader.body_len == cut.reader.body_len);
        break;
    case HTTP_READER_REFUSED:
        insist(whole.reader.error == cut.reader.error && whole.reader.error != PAWL_OK && whole.reader.problem == cut.reader.problem);
        break;
    case HTTP_READER_COMPLETE:
        insist(whole.taken == cut.taken && whole.request.method == cut.request.method);
        insist(whole.reader.keep_alive == cut.reader.keep_alive && whole.reader.is_1_0 == cut.reader.is_1_0);
        same_slice(whole.request.path, cut.request.path);
        same_slice(whole.request.query, cut.request.query);
        same_slice(whole.request.body, cut.request.body);
        same_slice(whole.request.host, cut.request.host);
        same_slice(whole.request.origin, cut.request.origin);
        same_slice(whole.request.authorization, cut.request.authorization);
        check_request(&whole.request);
        break;
    }
    free(whole.block);
    free(cut.block);
    return 0;
}
