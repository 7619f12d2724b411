/* The body of a call that renews many leases: a list of names and lease ids, each with a time to live of its own if it likes.
 *
 *     {"ttl_ms": 30000, "leases": [{"name": "a", "lease_id": "8d0c..."}, {"name": "b", "lease_id": "f19e...", "ttl_ms": 5000}]}
 *
 * What this is: text in, checked values out, or a problem that names the field. As with params.h, whatever is unknown, missing, mistyped or given twice is a
 * problem of the whole, so that a typo renews nothing.
 */
#ifndef PAWL_RENEWALS_H
#define PAWL_RENEWALS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/lease_id.h"
#include "proto/limits.h"
#include "proto/params.h"

struct renewal {
    struct lease_id lease_id;
    int64_t ttl_ms; /* -1: not given */
    size_t name_len;
    char name[PAWL_NAME_MAX + 1]; /* a lock's name, NUL-terminated */
};

struct renewals {
    int64_t ttl_ms; /* of those that say none; -1: not given */
    size_t count;   /* 1 to PAWL_RENEWALS_MAX; the same lease may be in it more than once */
    struct renewal leases[PAWL_RENEWALS_MAX];
};

/* Returns 0, or -1 with *ret_problem set; *ret may be partly filled then. Bounds of the times are the caller's matter; here they are >= 0. */
int renewals_from_json(struct renewals *ret, const char *body, size_t len, struct param_problem *ret_problem);

#endif
