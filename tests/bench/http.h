/* HTTP as far as the load needs it: one kind of request, and replies that a keep-alive client can go on after. The replies are read with plain searches, not a
 * JSON library: the load shares two cores with what it measures. */
#ifndef PAWL_BENCH_HTTP_H
#define PAWL_BENCH_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/bench/dialect.h"
#include "tests/bench/frame.h"
#include "tests/bench/wire.h"

/* The parts of one HTTP reply; body points into in. READING_BAD if it is none that a keep-alive client can go on after. */
struct http_reply {
    size_t len;
    int status;
    const char *body;
    size_t body_len;
};
enum reading http_reply_read(struct http_reply *r, const char *in, size_t len);
/* The same of a reply that must be a 200, READING_BAD if it isn't; its length also into *ret_len. */
enum reading http_reply_ok(struct http_reply *r, const char *in, size_t len, size_t *ret_len);
/* Sends a request and waits for its reply, 10 s at most. True with a reply of that status, whose bytes stay on the wire: wire_drop(w,
 * r->len) after use. False: errno tells, EPROTO being another status or no HTTP. */
bool http_ask(struct wire *w, const char *request, int status, struct http_reply *r);
/* A member of a reply's JSON object that holds a number (quoted: a number in quotes, as etcd writes them), or a lease id. Only for objects
 * in which the first "key": is the one that is meant. */
bool http_reply_number(const struct http_reply *r, const char *key, int64_t *ret);
bool http_reply_quoted(const struct http_reply *r, const char *key, int64_t *ret);
bool http_reply_lease(const struct http_reply *r, char ret[FRAME_LEASE_LEN + 1]);
/* A member that is this text, or this word (true). */
bool http_reply_text_is(const struct http_reply *r, const char *key, const char *text);
bool http_reply_word_is(const struct http_reply *r, const char *key, const char *word);

/* Appends a POST with this body (which may have holes) to a frame. */
bool http_add_post(struct frame *f, const struct frame *path, const struct frame *body);

#endif
