/* The seam between the HTTP front (http_conns, http_reader, listener) and whoever answers requests (router).
 *
 * The front reads requests strictly, keeps replies in order, owns buffers and deadlines. The service answers: each request it is
 * handed gets exactly one http_reply, at once or later, unless the front says `gone` first. Nothing here is thread-safe; all of it
 * runs on the one event loop.
 *
 * The life of an exchange:
 *
 *     handle() ──► http_reply()                                    a short call; EOF from the client is ignored until the reply
 *        │                                                         is written (a client may close its sending side and read on)
 *        └──► http_exchange_park() ──► http_reply()                a waiting call; EOF or an error from the client ends it:
 *                      └────────────► gone()                       told once, and no reply may follow
 *
 *        └──► http_stream_begin() ──► http_stream_send()...       a reply that goes on: EOF or an error from the client ends it and is
 *                   ├───────────────► http_stream_end()           told to the stream's own gone(), not to the service's
 *                   └───────────────► gone()
 *
 * An error (reset) of the connection during a short call is also `gone`. `gone` is never called from inside handle, park, reply or one of the
 * stream's calls: what has already happened is told at the end of the loop turn.
 */
#ifndef PAWL_HTTP_H
#define PAWL_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "proto/errors.h"

struct peer;          /* peer.h */
struct http_exchange; /* owned by the front; valid from handle() until the reply or gone() */

enum http_method { HTTP_GET, HTTP_HEAD, HTTP_POST, HTTP_PUT, HTTP_DELETE, HTTP_OPTIONS, HTTP_PATCH, HTTP_TRACE, HTTP_CONNECT, HTTP_OTHER };

struct http_slice { /* points into the connection's buffer; not NUL-terminated; at == NULL when the field is absent */
    const char *at;
    size_t len;
};

struct http_request { /* valid only during handle() */
    enum http_method method;
    struct http_slice path;  /* raw, still percent-encoded; absolute-form already stripped; starts with '/' (or is "*" for OPTIONS) */
    struct http_slice query; /* what follows the first '?', raw; at == NULL when there is no '?' */
    struct http_slice body;  /* whole, de-chunked */
    struct http_slice host, origin, authorization, last_event_id;
    const struct peer *peer; /* who asks; valid as long as the exchange */
};

struct http_response {
    int status;
    const char *content_type;  /* NULL: application/json */
    const char *extra_headers; /* whole lines, each ended by CRLF ("Allow: GET\r\n"), or NULL */
    const char *body;          /* copied or written before http_reply returns; not sent for HEAD */
    size_t body_len;
};

enum http_framing { HTTP_BY_LENGTH, HTTP_BY_CHUNKS, HTTP_BY_CLOSE }; /* how a client learns where a body ends; the front chooses */

/* What became of a reply. It is lost when the client is known to have closed before it could read it: the kernel did not take all of it, or the
 * client's end of sending is followed by a reset. It is delivered when the client sends more, ends without a reset, or closes in a way that
 * proves nothing: a lease must not be taken back from a client that may have been told. */
enum http_delivery { HTTP_DELIVERED, HTTP_LOST, HTTP_DELIVERY_PENDING };

/* Called at most once, and only when http_reply returned HTTP_DELIVERY_PENDING. `delivered` false: the client can't have read the reply. */
typedef void http_receipt_fn(void *arg, bool delivered);

struct http_service {
    void *ctx;
    void (*handle)(void *ctx, struct http_exchange *x, const struct http_request *request);
    void (*gone)(void *ctx, struct http_exchange *x); /* the exchange is dead when this returns */
};

/* A pointer of the service's own, NULL at handle(). */
void http_exchange_set_data(struct http_exchange *x, void *data);
void *http_exchange_data(const struct http_exchange *x);

/* Where the client comes from, for logs: "127.0.0.1:5050", "[::1]:5050", "unix". Valid as long as the exchange. */
const char *http_exchange_peer(const struct http_exchange *x);

/* From now on the client's leaving ends the exchange (see the picture). */
void http_exchange_park(struct http_exchange *x);

/* Ends the exchange. May free the connection, so `x` must not be touched afterwards. `receipt` may be NULL when nobody asks. */
enum http_delivery http_reply(struct http_exchange *x, const struct http_response *response, http_receipt_fn *receipt, void *arg);

/* ---- replies without an end in sight ---- */

struct http_stream_ops {
    void (*room)(void *arg); /* what was pending has been sent: more may follow */
    void (*gone)(void *arg); /* the client has left: the exchange is dead when this returns */
};

/* Sends the head (of `response`: status, content type, extra headers), and from now on the exchange is a stream: in chunks, or up to the end of the connection
 * for HTTP/1.0; either way the connection ends with it. False: the exchange is over and nobody is told of it; the client has gone, or it was a HEAD. */
bool http_stream_begin(struct http_exchange *x, const struct http_response *response, const struct http_stream_ops *ops, void *arg);

enum http_stream_result {
    HTTP_STREAM_OPEN, /* all of it is on its way */
    HTTP_STREAM_FULL, /* some of it waits for the client to read. room() will tell; what is sent before that waits too, in memory */
    HTTP_STREAM_GONE  /* the client has left: the exchange is over, and gone() is not called any more */
};

/* Sends the parts, as one chunk; they are not needed afterwards. At most HTTP_STREAM_PARTS. */
#define HTTP_STREAM_PARTS 64
enum http_stream_result http_stream_send(struct http_exchange *x, const struct iovec *parts, int count);

/* Ends the exchange properly; what is pending is sent first. May free the connection. */
void http_stream_end(struct http_exchange *x);

/* {"error": ..., "message": ...} with the error's status; message NULL means the error's own sentence. 503s get Retry-After: 1. For
 * the front's own refusals and for services that have nothing to add. */
enum http_delivery http_reply_error(struct http_exchange *x, enum pawl_error error, const char *message);

#endif
