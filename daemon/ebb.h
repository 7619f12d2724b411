/* When a burst has ebbed, the memory that it took goes back to the system.
 *
 * What 10,000 waiters had is free when they have left, but scattered: among it stands some small thing that stays (a name in a table, the waiters' queue), so
 * glibc can't cut it off its end, which is the only way in which it gives memory back by itself, whatever its thresholds are set to. malloc_trim hands back
 * all whole pages that are free, wherever they are. After such a crowd 36 MiB were resident and 13 are then (5 before it came).
 *
 * It holds the loop up, by the time of a walk over the free pieces and for the kernel to take pages back: measured on a heap of as many pieces as such
 * crowds leave, 1 to 4 ms where 28 MiB were free, 80 to 150 ms where it was 1 GiB. And a crowd that comes back pays for the pages again. So it is done when
 * the things that pawld keeps memory for have been well below their peak for a while, and not often.
 *
 * Embedded in its owner, who looks each second and knows of crowds that came and went in between.
 */
#ifndef PAWL_EBB_H
#define PAWL_EBB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EBB_LEAST    1000              /* fewer things gone than this are not worth it */
#define EBB_CALM_US  INT64_C(5000000)  /* it has ebbed when it has been so low for so long */
#define EBB_EVERY_US INT64_C(60000000) /* between two times at least */

struct ebb {              /* zeroed: nothing was seen yet */
    size_t peak;          /* most things seen since memory was given back */
    int64_t low_since_us; /* 0: it is not low */
    int64_t again_us;     /* not before */
};

/* So many things (connections, waiters, leases) there are now, and so many there were at most since the last look. True: memory is to be given back, and the
 * peak is now what there is now. */
bool ebb_look(struct ebb *e, int64_t now_us, size_t things, size_t most);

/* Gives back what is free. False: nothing was, or this C library has no way to. */
bool ebb_give_back(void);

#endif
