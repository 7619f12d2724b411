/* What happened to a lease, or to the way to the store, as the broker tells it: the words that the broker, the ring of events and the API share.
 * To add one: a row here, then one in docs/api.md and docs/openapi.yaml (`make check` compares the three). */
#ifndef PAWL_LEASE_EVENT_H
#define PAWL_LEASE_EVENT_H

#include <stddef.h>
#include <stdint.h>

/* clang-format off */
/*      name           word */
#define PAWL_LEASE_EVENTS(X) \
    X(GRANT,           "grant") \
    X(RELEASE,         "release") \
    X(EXPIRE,          "expire") \
    X(BREAK,           "break") \
    X(LOST,            "lost") \
    X(UNDONE,          "undone") \
    X(RECOVERED,       "recovered") \
    X(DETACHED,        "detached") \
    X(ATTACHED,        "attached") \
    X(WINDOW_CLOSED,   "window_closed")
/* clang-format on */

enum lease_event_kind {
#define LEASE_EVENT_ENUM(name, word) EVENT_##name,
    PAWL_LEASE_EVENTS(LEASE_EVENT_ENUM)
#undef LEASE_EVENT_ENUM
        EVENT_KINDS
};

#define LEASE_EVENT_ID 8 /* characters of a lease id that may be shown: the whole is a secret */

struct lease_event { /* strings are the teller's, for the length of the call; an absent one has length 0 */
    enum lease_event_kind kind;
    const char *name; /* of the lock; none: it is about the store */
    size_t name_len;
    const char *owner;
    size_t owner_len;
    const char *reason;
    size_t reason_len;
    const char *lease_id; /* whoever keeps it keeps LEASE_EVENT_ID characters; NULL: not known */
    int64_t token;        /* 0: not known */
    int64_t waited_ms;    /* grant; -1 otherwise */
    int64_t held_ms;      /* how it ended: since the grant, as far as it is known; -1 otherwise */
};

#endif
