/* Responses as bytes: heads, and the bodies of errors. Formatting only: who sends it, and when, is http_conn's. */
#ifndef PAWL_HTTP_RESPONSE_H
#define PAWL_HTTP_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>
#include <sys/uio.h>

#include "daemon/http.h"
#include "proto/text.h"

struct http_date { /* the Date field, made once a second */
    time_t made_at;
    char text[32]; /* "Sun, 29 Nov 2026 17:25:01 GMT", NUL-terminated */
};

/* Cheap when the second is still the same. `wall` is the time of day. */
void http_date_set(struct http_date *date, time_t wall);

enum http_connection_field { HTTP_CONNECTION_NONE, HTTP_CONNECTION_CLOSE, HTTP_CONNECTION_KEEP_ALIVE };

#define HTTP_RESPONSE_BLOCK 384
#define HTTP_RESPONSE_PARTS 6

struct http_response_bytes { /* the whole response as pieces; they point into `block` and into the http_response */
    char block[HTTP_RESPONSE_BLOCK];
    struct iovec parts[HTTP_RESPONSE_PARTS];
    int count;
    size_t len;
};

/* Lays `response` out in `out`; its body is left out (but counted in Content-Length) when `head_only`. Valid as long as the response's own bytes. */
void http_response_lay(struct http_response_bytes *out, const struct http_response *response, const struct http_date *date,
                       enum http_connection_field connection, bool head_only);

/* Its head alone, for a body that comes by and by. */
void http_response_lay_head(struct http_response_bytes *out, const struct http_response *response, const struct http_date *date,
                            enum http_connection_field connection, enum http_framing framing);

#define HTTP_ERROR_BLOCK 1024

struct http_error_bytes { /* the body of an error; on the heap only when the message is long */
    char block[HTTP_ERROR_BLOCK];
    struct text text;
};

/* {"error": ..., "message": ...} with the error's status, and Retry-After where it is 503. `message` NULL, or one that is too long or that there is no memory for:
 * the error's own sentence. Valid until the bytes are closed. */
struct http_response http_response_error(struct http_error_bytes *bytes, enum pawl_error error, const char *message);
void http_response_error_close(struct http_error_bytes *bytes);

#endif
