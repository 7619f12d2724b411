/* SipHash-1-3 (Aumasson, Bernstein: "SipHash: a fast short-input PRF", 2012) under a key drawn once a process, for tables keyed by lock
 * names: clients choose those, and must not be able to choose ones that collide. Define before uthash.h is included. */
#ifndef PAWL_NAME_HASH_H
#define PAWL_NAME_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t name_hash(const void *bytes, size_t len);

#define HASH_FUNCTION(bytes, len, hash)                                                                                                    \
    do {                                                                                                                                   \
        (hash) = (unsigned)name_hash((bytes), (len));                                                                                      \
    } while (0)

#endif
