/* A lock cycle spoken in one of two languages: HTTP to pawld, or the same node's scripts straight to Redis. The cycle (cycle.h) is the same
 * code for both.
 *
 * A dialect gives the two requests as frames and reads the two replies, strictly: a grant counts only with the right status and a token, a
 * release only if it says so.
 */
#ifndef PAWL_BENCH_DIALECT_H
#define PAWL_BENCH_DIALECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/bench/frame.h"
#include "tests/bench/wire.h"

enum reading { READING_MORE, READING_OK, READING_BAD };

struct reply {
    size_t len; /* of its bytes, to be dropped from the wire; set when READING_OK */
    int64_t token;
    char lease[FRAME_LEASE_LEN + 1]; /* untouched if the dialect lets the client choose it */
};

struct dialect {
    struct frame acquire;
    struct frame release;
    bool client_names_lease; /* a fresh lease id goes into the acquire; else the reply brings it */
    enum reading (*read_acquire)(const struct dialect *d, const char *in, size_t len, struct reply *ret);
    enum reading (*read_release)(const struct dialect *d, const char *in, size_t len, struct reply *ret);
    /* Redis alone: the first element that a reply must have, and where the token is in a grant. */
    char granted[32];
    char released[32];
    size_t token_at;
};

/* HTTP: POST .../acquire {"ttl_ms", "owner"} and POST .../release {"lease_id"}. */
bool dialect_http(struct dialect *d);

/* Redis: the commands that pawld itself was seen to send for one such cycle, from a file of lines (tests/bench/capture.py writes it):
 *     acquire | release              the command that the lines after it belong to
 *     arg TEXT                       one argument; \xHH is a byte, \\ a backslash, \N the lock's name, \L the lease id
 *     status TEXT                    the reply's first element
 *     token INDEX                    the place of the token in the reply to acquire
 * False with a sentence in problem. */
bool dialect_redis(struct dialect *d, const char *path, char *problem, size_t cap);

/* The parts of one HTTP reply; body points into in. READING_BAD if it is none that a keep-alive client can go on after. */
struct http_reply {
    size_t len;
    int status;
    const char *body;
    size_t body_len;
};
enum reading http_reply_read(struct http_reply *r, const char *in, size_t len);
/* Sends a request and waits for its reply, 10 s at most. True with a reply of that status, whose bytes stay on the wire: wire_drop(w,
 * r->len) after use. False: errno tells, EPROTO being another status or no HTTP. */
bool http_ask(struct wire *w, const char *request, int status, struct http_reply *r);
/* A member of a reply's JSON object that holds a number, or a lease id. Only for the flat objects that pawld makes: the first "key": in the
 * body is taken. */
bool http_reply_number(const struct http_reply *r, const char *key, int64_t *ret);
bool http_reply_lease(const struct http_reply *r, char ret[FRAME_LEASE_LEN + 1]);

#endif
