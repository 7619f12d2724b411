/* The parameters of every call: one row each, read from a JSON body or from a query string by the same rules.
 *
 * What this is: text in, checked values out, or a problem that names the parameter. What it is not: it does not know which call
 * takes which (`allowed` says so), and it does no I/O. An unknown, duplicate, mistyped or out-of-range parameter is a problem:
 * a typo must never become a default. json.c is the only file that sees jansson.
 */
#ifndef PAWL_PARAMS_H
#define PAWL_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/lease_id.h"
#include "proto/limits.h"

/* clang-format off */
/*      name      JSON key    query key   type      help */
#define PAWL_PARAMS(X) \
    X(TTL,        "ttl_ms",   "ttl",      DURATION, "time to live of the lease") \
    X(WAIT,       "wait_ms",  "wait",     DURATION, "how long to wait for the lock") \
    X(LOCK_DELAY, "lock_delay_ms", "lock_delay", DURATION, "how long nobody is granted after the lease, unless it is released") \
    X(MAX_HOLD,   "max_hold_ms", "max_hold", DURATION, "how long the lease may be held, however it is renewed") \
    X(OWNER,      "owner",    "owner",    LABEL,    "a label for people; proves nothing") \
    X(LEASE_ID,   "lease_id", "lease_id", UUID,     "the holder's secret; makes an acquire repeatable") \
    X(TOKEN,      "token",    "token",    TOKEN,    "a fencing token") \
    X(REASON,     "reason",   "reason",   LABEL,    "why a lock is broken; logged") \
    X(PREFIX,     "prefix",   "prefix",   PREFIX,   "only names that start with this") \
    X(LIMIT,      "limit",    "limit",    COUNT,    "how many to list") \
    X(CURSOR,     "cursor",   "cursor",   CURSOR,   "where the last page ended") \
    X(SINCE,      "since",    "since",    SINCE,    "only events with a greater id") \
    X(NAME,       "name",     "name",     NAME,     "only events of this lock")
/* clang-format on */

enum param {
#define PAWL_PARAM_ENUM(name, json, query, type, help) PARAM_##name,
    PAWL_PARAMS(PAWL_PARAM_ENUM)
#undef PAWL_PARAM_ENUM
        PARAM_COUNT
};
#define PARAM_BIT(name) (1u << PARAM_##name)

struct params {
    unsigned seen;     /* PARAM_BIT of each that was given; the others keep what params_init gave them */
    unsigned in_query; /* those of them that came in the query */
    int64_t ttl_ms;    /* bounds of durations are the daemon's options, checked by the caller; here only >= 0 */
    int64_t wait_ms, lock_delay_ms, max_hold_ms;
    int64_t token; /* 1 .. PAWL_TOKEN_MAX */
    int64_t limit; /* 1 .. PAWL_LIST_LIMIT_MAX */
    int64_t since; /* 0 .. PAWL_TOKEN_MAX */
    struct lease_id lease_id;
    size_t owner_len, reason_len, prefix_len, name_len;
    char owner[PAWL_OWNER_MAX + 1];   /* valid UTF-8, no control characters (C0, DEL, C1), NUL-terminated */
    char reason[PAWL_REASON_MAX + 1]; /* the same, and not empty */
    char prefix[PAWL_NAME_MAX + 1];
    char name[PAWL_NAME_MAX + 1];     /* a lock's, in the query; that in the path is the router's */
    char cursor[PAWL_CURSOR_MAX + 1]; /* decimal digits of a uint64, "0" = from the start */
};

struct param_problem {
    char message[256]; /* for a person; starts with the parameter's name as the caller spelled it, e.g. "ttl_ms: must be a whole number" */
    bool no_memory;    /* the text may be fine; there was no memory to read it (a 503, not a 400) */
};

void params_init(struct params *p);

/* As the caller spelled it ("ttl" in a query, "ttl_ms" in JSON), for messages about a value that was read but does not do. */
const char *param_name(const struct params *p, enum param param);

/* Both add to what is in *p (a parameter given in both query and body is a duplicate). `allowed` is a set of PARAM_BITs: another known
 * parameter is a problem as an unknown one is. Return 0, or -1 with *ret_problem set; *p may be partly filled then, but lease_id is set if
 * and only if a valid one was read before the problem (callers put it into the error reply).
 *
 * JSON: an object or nothing (an empty or all-blank body is no parameters); durations, token and limit are JSON integers (1000.0 and "30" are not); null is a
 * mistyped value, not an absence; duplicate keys, trailing bytes, a BOM, NUL bytes, depth > 8 are problems.
 * A body that looks like a form (ttl_ms=5&...) gets a message that says to send JSON or use the query string. */
int params_from_json(struct params *p, const char *body, size_t len, unsigned allowed, struct param_problem *ret_problem);

/* Query: key=value pairs joined by '&', percent-decoded once ('+' stays '+'); durations carry a unit. An empty query is fine; an empty pair ("a=1&&b=2") is not. */
int params_from_query(struct params *p, const char *query, size_t len, unsigned allowed, struct param_problem *ret_problem);

/* Is `bytes` a label: valid UTF-8, no control characters? NULL or the reason. (Shared by both readers and by the options.) */
const char *label_problem(const char *bytes, size_t len);

#endif
