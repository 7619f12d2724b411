/* Calls by the lease that they are about, which is a lease id and the name of a lock: of one lease in the order in which they were added. What keeps the
 * calls about a lease in order asks it whether there is one before (redis_backlog.h, redis_calls.h).
 *
 * The calls are borrowed, and linked by `beside`: one is in one set at a time, and `beside` tells whether it is in any. Pure; nothing allocates.
 */
#ifndef PAWL_LEASE_CALLS_H
#define PAWL_LEASE_CALLS_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/store.h"

#define LEASE_CALLS_BUCKETS 1024

/* Embedded in its owner. */
struct lease_calls {
    struct store_link buckets[LEASE_CALLS_BUCKETS]; /* by a hash of both, each a ring */
};

void lease_calls_init(struct lease_calls *set);
void lease_calls_add(struct lease_calls *set, struct store_call *call);
/* Unless there is one about the same lease: then false, and nothing is done. */
bool lease_calls_add_first(struct lease_calls *set, struct store_call *call);
/* The one that was added before all others about the lease that this call is about; NULL: none. */
struct store_call *lease_calls_first(const struct lease_calls *set, const struct store_call *about);
/* The one after this one in the order of the set, which is no order of theirs; after NULL the first. */
struct store_call *lease_calls_next(const struct lease_calls *set, const struct store_call *call);
/* From whatever set it is in. */
void lease_calls_remove(struct store_call *call);
static inline bool lease_calls_has(const struct store_call *call) /* it is in a set */
{
    return call->beside.next != NULL;
}

#endif
