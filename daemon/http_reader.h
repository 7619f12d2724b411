/* Bytes to one HTTP/1.x request, strictly.
 *
 * What this is: a state machine over bytes. It is fed the same buffer again and again as bytes arrive; how they were cut into pieces changes nothing,
 * neither the outcome nor the place at which a bad request is refused. What it is not: it does no I/O, allocates nothing, keeps no time, writes no log and
 * knows no connection. Where two readers of HTTP could disagree about a request it refuses, since a proxy in front may be the other one.
 *
 * The buffer holds the request from its first byte on and may move between calls. A chunked body is joined in place, so the buffer shrinks while it is
 * read: it never holds more than HTTP_READER_RETAINS bytes of an unfinished request.
 */
#ifndef PAWL_HTTP_READER_H
#define PAWL_HTTP_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/http.h"
#include "proto/errors.h"
#include "proto/limits.h"

#define HTTP_READER_RETAINS (PAWL_HEAD_MAX + PAWL_BODY_MAX + PAWL_HEAD_MAX) /* head, body, one line of a trailer */

enum http_reader_result { HTTP_READER_MORE, HTTP_READER_COMPLETE, HTTP_READER_REFUSED };

struct http_span { /* bytes of the buffer, as offsets since it may move; at 0 means absent: the method is there */
    uint32_t at, len;
};

struct http_reader {
    /* for the caller to read */
    enum pawl_error error; /* HTTP_READER_REFUSED: why */
    const char *problem;   /* HTTP_READER_REFUSED: the same as a static sentence */
    enum http_method method;
    bool keep_alive;     /* may another request follow? (COMPLETE) */
    bool is_1_0;         /* HTTP/1.0 (COMPLETE) */
    bool in_body;        /* MORE: the head is complete, the body is not */
    bool wants_continue; /* MORE: the body is wanted and within the limit, and the client waits for a word before it sends it */
    uint32_t body_len;   /* bytes of the body so far */

    /* the reader's own */
    uint8_t state, matched;
    bool in_trailers, has_body, is_chunked, has_length, path_is_empty;
    bool wants_close, wants_keep_alive, expects_continue, expects_other;
    uint16_t fields;
    uint32_t pos;    /* bytes of the buffer that have been looked at */
    uint32_t budget; /* bytes that this section may still take */
    uint32_t body_at;
    uint32_t length; /* bytes that the body, or the current chunk, still needs */
    struct http_span target, path, query, host, authority, origin, authorization, last_event_id, name, value;
};

void http_reader_init(struct http_reader *r);

/* Reads on in bytes[0..*len): what the last call left, and what has come since. After MORE *len may be less than it was. After COMPLETE
 * http_reader_size() bytes belong to the request and the rest to the next. After REFUSED the connection is to be closed. Neither is fed again. */
enum http_reader_result http_reader_feed(struct http_reader *r, char *bytes, size_t *len);

static inline size_t http_reader_size(const struct http_reader *r)
{
    return r->pos;
}

/* The complete request in `bytes`, where it was fed. Valid as long as those bytes. */
void http_reader_request(const struct http_reader *r, const char *bytes, struct http_request *out);

#endif
