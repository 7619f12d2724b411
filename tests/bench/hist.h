/* A histogram of durations: how long something took, some millions of times, in constant memory.
 *
 * Buckets are log-linear: 128 to each power of two, so a quantile is off by less than 1 % whatever its size, from a nanosecond to some
 * minutes; what is longer counts as the longest. Adding is a shift and an increment, cheap enough to leave the measured work alone.
 */
#ifndef PAWL_BENCH_HIST_H
#define PAWL_BENCH_HIST_H

#include <stdint.h>

#define HIST_SUB_BITS 7
#define HIST_TOP_BIT  39 /* the greatest value told apart is 2^40 - 1 ns, 18 minutes */
#define HIST_BUCKETS  ((HIST_TOP_BIT - HIST_SUB_BITS + 2) << HIST_SUB_BITS)

struct hist {
    uint64_t count;
    uint64_t sum_ns;
    uint64_t max_ns;
    uint64_t buckets[HIST_BUCKETS];
};

void hist_clear(struct hist *h);
void hist_add(struct hist *h, uint64_t value_ns);
/* The least duration that a share q (0 to 1) of the samples did not exceed, in ns; 0 of an empty histogram. */
uint64_t hist_quantile(const struct hist *h, double q);

#endif
