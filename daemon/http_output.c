/* The buffer is a plain block that grows by doubling and goes away when it has run empty. Receipts are a list in the order of their replies; since the stream
 * only knows "all has arrived" and "not yet", those of one half-closed connection are settled together. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http_output.h"

#define BLOCK_MIN ((size_t)4096)

void http_output_init(struct http_output *o)
{
    memset(o, 0, sizeof(*o));
    o->last = &o->first;
}

static void drop_block(struct http_output *o)
{
    free(o->at);
    o->at = NULL;
    o->start = o->end = o->cap = 0;
}

void http_output_close(struct http_output *o)
{
    drop_block(o);
}

static bool try_again(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOBUFS;
}

/* Makes room for n more bytes at the end. */
static int make_room(struct http_output *o, size_t n)
{
    size_t pending = http_output_pending(o), cap = o->cap > BLOCK_MIN ? o->cap : BLOCK_MIN;
    char *grown;

    if (o->cap - o->end >= n) {
        return 0;
    }
    if (o->start > 0) {
        memmove(o->at, o->at + o->start, pending);
        o->start = 0;
        o->end = pending;
    }
    while (cap < pending + n) {
        cap *= 2;
    }
    if (cap == o->cap) {
        return 0;
    }
    grown = realloc(o->at, cap);
    if (grown == NULL) {
        return -1;
    }
    o->at = grown;
    o->cap = cap;
    return 0;
}

static int keep(struct http_output *o, const struct iovec *parts, int count)
{
    size_t len = 0;

    for (int i = 0; i < count; i++) {
        len += parts[i].iov_len;
    }
    if (len == 0) {
        return 0;
    }
    if (make_room(o, len) != 0) {
        return -1;
    }
    for (int i = 0; i < count; i++) {
        memcpy(o->at + o->end, parts[i].iov_base, parts[i].iov_len);
        o->end += parts[i].iov_len;
    }
    return 0;
}

/* Takes n written bytes off the front of the parts. */
static void take_off(struct iovec *parts, int count, size_t n)
{
    for (int i = 0; i < count; i++) {
        size_t taken = n < parts[i].iov_len ? n : parts[i].iov_len;

        parts[i].iov_base = (char *)parts[i].iov_base + taken;
        parts[i].iov_len -= taken;
        n -= taken;
    }
}

int http_output_send(struct http_output *o, struct stream *s, struct iovec *parts, int count)
{
    ssize_t n;

    if (http_output_pending(o) > 0) {
        return keep(o, parts, count);
    }
    n = stream_write(s, parts, count);
    if (n < 0) {
        return try_again(errno) ? keep(o, parts, count) : -1;
    }
    o->written += (uint64_t)n;
    take_off(parts, count, (size_t)n);
    return keep(o, parts, count);
}

ssize_t http_output_flush(struct http_output *o, struct stream *s)
{
    ssize_t moved = 0;

    while (http_output_pending(o) > 0) {
        struct iovec part = {o->at + o->start, http_output_pending(o)};
        ssize_t n = stream_write(s, &part, 1);

        if (n < 0) {
            return try_again(errno) ? moved : -1;
        }
        o->start += (size_t)n;
        o->written += (uint64_t)n;
        moved += n;
    }
    drop_block(o);
    return moved;
}

/* ---- receipts ---- */

struct http_receipt *http_output_reserve(struct http_output *o)
{
    return o->own.fn == NULL ? &o->own : calloc(1, sizeof(struct http_receipt));
}

void http_output_unreserve(struct http_output *o, struct http_receipt *receipt)
{
    if (receipt == &o->own) {
        receipt->fn = NULL;
    } else {
        free(receipt);
    }
}

void http_output_expect(struct http_output *o, struct http_receipt *receipt, http_receipt_fn *fn, void *arg)
{
    receipt->fn = fn;
    receipt->arg = arg;
    receipt->end = o->written + http_output_pending(o);
    receipt->next = NULL;
    *o->last = receipt;
    o->last = &receipt->next;
}

/* Unlinked before it is told, since the one who is told may bring the next. */
static void tell_first(struct http_output *o, bool delivered)
{
    struct http_receipt *receipt = o->first;
    http_receipt_fn *fn = receipt->fn;
    void *arg = receipt->arg;

    o->first = receipt->next;
    if (o->first == NULL) {
        o->last = &o->first;
    }
    http_output_unreserve(o, receipt);
    fn(arg, delivered);
}

enum http_delivery http_output_delivery(const struct http_output *o, struct stream *s, bool half_closed)
{
    if (http_output_pending(o) > 0) {
        return HTTP_DELIVERY_PENDING;
    }
    if (half_closed) {
        switch (stream_reach(s)) {
        case STREAM_ON_ITS_WAY:
            return HTTP_DELIVERY_PENDING;
        case STREAM_BROKEN:
            return HTTP_LOST;
        case STREAM_ARRIVED:
            break;
        }
    }
    return HTTP_DELIVERED;
}

int http_output_settle(struct http_output *o, struct stream *s, bool half_closed)
{
    enum stream_reach reach = STREAM_ARRIVED;
    const uint64_t written = o->written; /* what is written meanwhile, by those who are told, is not what was asked about */

    if (o->first == NULL) {
        return 0;
    }
    if (half_closed) {
        reach = stream_reach(s);
    }
    while (reach == STREAM_ARRIVED && o->first != NULL && o->first->end <= written) {
        tell_first(o, true);
    }
    return reach == STREAM_BROKEN ? -1 : 0;
}

void http_output_settle_all(struct http_output *o, bool reset)
{
    while (o->first != NULL) {
        tell_first(o, !reset && o->first->end <= o->written);
    }
}
