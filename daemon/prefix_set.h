/* A set of prefixes, and the question whether one of them begins a name, answered in the logarithm of their number.
 *
 * Prefixes are added one by one, then the set is settled once and only asked from then on. An all-zero set is an empty one: nothing begins with any of it, while
 * the empty prefix begins everything. Bytes are compared as they are. Not thread-safe; it calls nobody.
 */
#ifndef PAWL_PREFIX_SET_H
#define PAWL_PREFIX_SET_H

#include <stdbool.h>
#include <stddef.h>

struct prefix {
    char *text; /* not NUL-terminated */
    size_t len;
};

struct prefix_set {
    struct prefix *at; /* in the order of their bytes; once settled, none begins another */
    size_t count;
};

void prefix_set_close(struct prefix_set *set); /* empty afterwards */

/* Is this very prefix in it? Only until the set is settled, since that drops some. */
bool prefix_set_has(const struct prefix_set *set, const char *text, size_t len);

/* Adds a copy, unless it is there. Returns 0, or -1 without memory; the set is as it was then. Not after prefix_set_settle. */
int prefix_set_add(struct prefix_set *set, const char *text, size_t len);

/* Drops what another begins: it says nothing of its own. */
void prefix_set_settle(struct prefix_set *set);

/* Of a settled set: does one of it begin this name? Can a name begin both with one of it and with `prefix`? */
bool prefix_set_begins(const struct prefix_set *set, const char *name, size_t len);
bool prefix_set_meets(const struct prefix_set *set, const char *prefix, size_t len);

/* One prefix by itself. */
bool prefix_begins(const char *prefix, size_t prefix_len, const char *name, size_t len);

#endif
