/* The histogram of hist.h. Bucket i below 128 holds the value i; above, each power of two is cut into 128 equal buckets. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/hist.h"

#include <string.h>

#define SUB (1U << HIST_SUB_BITS)

static unsigned bucket_of(uint64_t value)
{
    unsigned top, shift;

    if (value < SUB)
        return (unsigned)value;
    top = 63U - (unsigned)__builtin_clzll(value);
    if (top > HIST_TOP_BIT)
        return HIST_BUCKETS - 1;
    shift = top - HIST_SUB_BITS;
    return (shift << HIST_SUB_BITS) + (unsigned)(value >> shift);
}

/* The greatest value that falls into the bucket. */
static uint64_t bucket_end(unsigned bucket)
{
    unsigned shift;

    if (bucket < SUB)
        return bucket;
    shift = (bucket >> HIST_SUB_BITS) - 1;
    return ((uint64_t)(bucket - (shift << HIST_SUB_BITS) + 1) << shift) - 1;
}

void hist_clear(struct hist *h)
{
    memset(h, 0, sizeof *h);
}

void hist_add(struct hist *h, uint64_t value_ns)
{
    h->count++;
    h->sum_ns += value_ns;
    if (value_ns > h->max_ns)
        h->max_ns = value_ns;
    h->buckets[bucket_of(value_ns)]++;
}

uint64_t hist_quantile(const struct hist *h, double q)
{
    double wanted = q * (double)h->count;
    uint64_t seen = 0;
    unsigned i;

    for (i = 0; i < HIST_BUCKETS && h->count > 0; i++) {
        seen += h->buckets[i];
        if (seen > 0 && (double)seen >= wanted)
            return bucket_end(i) < h->max_ns ? bucket_end(i) : h->max_ns;
    }
    return h->max_ns;
}
