/* Answers of pawld: JSON to one struct. Unknown fields are skipped, duplicate keys and mistyped fields make it no answer. Pure. */
#ifndef PAWL_REPLY_H
#define PAWL_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/pawl.h"

/* Fields that were there. */
enum reply_seen {
    REPLY_ERROR = 1u << 0,
    REPLY_NAME = 1u << 1,
    REPLY_LEASE_ID = 1u << 2,
    REPLY_OWNER = 1u << 3,
    REPLY_TOKEN = 1u << 4,
    REPLY_TTL = 1u << 5,
    REPLY_HELD = 1u << 6,
    REPLY_HELD_MS = 1u << 7,
    REPLY_WAITED = 1u << 8,
    REPLY_WAITERS = 1u << 9,
    REPLY_HOLDER = 1u << 10, /* an object, not null */
    REPLY_LOCKS = 1u << 11,
    REPLY_CURSOR = 1u << 12,
    REPLY_HOLD = 1u << 13
};

#define REPLY_CURSOR_SIZE 21

struct reply {
    unsigned seen;
    char error[40];
    char message[320];
    char lease_id[PAWL_LEASE_ID_SIZE];
    char cursor[REPLY_CURSOR_SIZE];
    int64_t waited_ms;
    struct pawl_lock lock;   /* name .. waiters, recovering */
    struct pawl_lock holder; /* owner, token, ttl_ms, held_ms */
};

/* Called for each lock of a list. Non-zero ends the walk. */
typedef int reply_each_fn(void *arg, const struct pawl_lock *lock);

/* Reads body[0..len). `each` may be NULL. Returns 0, 1 when `each` ended the walk, or -1: not what pawld sends, or no memory (*ret_no_memory).
 * Then *ret is undefined. */
int reply_read(const char *body, size_t len, reply_each_fn *each, void *arg, struct reply *ret, bool *ret_no_memory);

/* Copies text as one line for people: controls become '?', and it is cut at a character to fit in cap bytes with its NUL. */
void reply_clean(const char *text, size_t len, char *out, size_t cap);

#endif
