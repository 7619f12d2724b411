/* See ebb.h. Low is when a third of the peak has gone, and enough to be worth it: a parked waiter is two things, and may leave one of them, its connection,
 * behind. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/ebb.h"

#ifdef HAVE_MALLOC_TRIM
#include <malloc.h>
#endif

bool ebb_look(struct ebb *e, int64_t now_us, size_t things, size_t most)
{
    if (most > e->peak)
        e->peak = most;
    if (things > e->peak)
        e->peak = things;
    if (e->peak - things < EBB_LEAST || e->peak - things < e->peak / 3) {
        e->low_since_us = 0;
        return false;
    }
    if (e->low_since_us == 0)
        e->low_since_us = now_us;
    if (now_us - e->low_since_us < EBB_CALM_US || now_us < e->again_us)
        return false;
    e->peak = things;
    e->low_since_us = 0;
    e->again_us = now_us + EBB_EVERY_US;
    return true;
}

bool ebb_give_back(void)
{
#ifdef HAVE_MALLOC_TRIM
    return malloc_trim(0) != 0;
#else
    return false;
#endif
}
