/* Lock names: which byte strings are one, and how they look in a URL.
 *
 * A name is 1 to PAWL_NAME_MAX bytes of A-Z a-z 0-9 . _ - : @ + = , ~ / with no empty, "." or ".." segment and no leading or
 * trailing '/'. ASCII only on purpose: two Unicode spellings of one name would be two locks. Pure functions; no allocation.
 */
#ifndef PAWL_LOCK_NAME_H
#define PAWL_LOCK_NAME_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/limits.h"

/* Why `name` is not a lock name, as a static sentence that fits after "name: "; NULL when it is one. */
const char *lock_name_problem(const char *name, size_t len);

/* A list prefix: the same bytes as a name and at most as long, but it may be empty and may end anywhere. NULL when it is one. */
const char *lock_name_prefix_problem(const char *prefix, size_t len);

/* Percent-decodes `raw` once into out (cap bytes, NUL-terminated). '+' stays '+'. Returns the decoded length, or -1 when an escape is
 * broken, decodes to NUL, or the result does not fit; `out` is undefined then. */
int percent_decode(const char *raw, size_t len, char *out, size_t cap);

#endif
