/* What is on its way to one client: bytes that the kernel would not take yet, and who wants to know what became of which reply.
 *
 * Writes first and keeps only what is left, so that in the usual case nothing is kept and nothing is allocated. Knows no events: the owner watches the
 * descriptor for room while http_output_pending() is not 0.
 *
 * A reply has arrived (see http.h) when the kernel took all of it; once the client has closed its sending side, when the client's kernel took it as well.
 */
#ifndef PAWL_HTTP_OUTPUT_H
#define PAWL_HTTP_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/http.h"
#include "daemon/stream.h"

struct http_receipt {
    struct http_receipt *next;
    http_receipt_fn *fn;
    void *arg;
    uint64_t end; /* the reply's last byte, counted from the connection's first */
};

struct http_output {
    char *at; /* pending bytes are at[start..end); NULL when there are none */
    size_t start, end, cap;
    uint64_t written;                   /* bytes that the kernel took, ever */
    struct http_receipt *first, **last; /* replies whose fate is open, in order */
    struct http_receipt own;            /* the first of them needs no allocation */
};

void http_output_init(struct http_output *o);

/* Frees the bytes. Receipts are to be settled before. */
void http_output_close(struct http_output *o);

static inline size_t http_output_pending(const struct http_output *o)
{
    return o->end - o->start;
}

static inline bool http_output_has_receipts(const struct http_output *o)
{
    return o->first != NULL;
}

/* Writes the parts behind what is pending; keeps what the kernel does not take. Changes the parts. Returns 0, or -1 when the stream has failed or there is
 * no memory for the rest: what was written is then cut off somewhere, and the connection is only good for closing. */
int http_output_send(struct http_output *o, struct stream *s, struct iovec *parts, int count);

/* Writes what is pending. Returns the number of bytes that moved, or -1 when the stream has failed. */
ssize_t http_output_flush(struct http_output *o, struct stream *s);

/* A place for a receipt, to be had before its reply is sent since it may need memory; NULL: there is none. */
struct http_receipt *http_output_reserve(struct http_output *o);
/* Gives back one that isn't needed, */
void http_output_unreserve(struct http_output *o, struct http_receipt *receipt);
/* or makes it wait for the last byte sent so far. */
void http_output_expect(struct http_output *o, struct http_receipt *receipt, http_receipt_fn *fn, void *arg);

/* Has everything sent so far arrived? `half_closed`: the client has closed its sending side. HTTP_LOST: the stream has failed. */
enum http_delivery http_output_delivery(const struct http_output *o, struct stream *s, bool half_closed);

/* Tells those receipts whose reply has arrived. They may call anything of http.h. Returns -1 when the stream has failed; nothing more is told then. */
int http_output_settle(struct http_output *o, struct stream *s, bool half_closed);

/* Tells all that are left, when the connection ends. A reply is lost when the kernel did not take all of it or the client answered with a reset (`reset`);
 * when neither is known, the client may have read it, and it counts as delivered. */
void http_output_settle_all(struct http_output *o, bool reset);

#endif
