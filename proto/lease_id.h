/* Lease ids: UUIDs, the capability to renew and release. Made with libuuid, always held in lower case, never logged whole. */
#ifndef PAWL_LEASE_ID_H
#define PAWL_LEASE_ID_H

#include <stddef.h>

#include "proto/limits.h"

struct lease_id {
    char text[PAWL_LEASE_ID_LEN + 1]; /* lower case, NUL-terminated; "" means none */
};

void lease_id_generate(struct lease_id *out);

/* What there is to say of a text that lease_id_parse refuses, after "lease_id: ". */
#define LEASE_ID_PROBLEM "must be a UUID (8-4-4-4-12 hex digits, not all zero)"

/* Accepts the 8-4-4-4-12 form in either case and stores it in lower case. The nil UUID is refused. Returns 0, or -1 (out untouched). */
int lease_id_parse(const char *text, size_t len, struct lease_id *out);

#endif
