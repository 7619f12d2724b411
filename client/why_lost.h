/* Why a lease is lost whose end has come near: in libpawl's PAWL_EVENT_LOST and in what `pawl run` says, which watch the same clock and may each be first. */
#ifndef PAWL_WHY_LOST_H
#define PAWL_WHY_LOST_H

#include <stdbool.h>

/* `at_bound`: as pawl_lease_is_at_bound() told while the lease had a deadline. A static sentence. */
static inline const char *why_lost_at_end(bool at_bound)
{
    return at_bound ? "the lease may not be held any longer: its max_hold is over" : "the end of the lease came near without a good answer";
}

#endif
