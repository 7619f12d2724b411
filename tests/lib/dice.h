/* Random numbers for tests that a failure can be repeated from: dice_roll draws from a seed that is new for each run, or TEST_SEED from the
 * environment, and every assertion made with DICE_ASSERT prints it. */
#ifndef PAWL_TESTS_DICE_H
#define PAWL_TESTS_DICE_H

#include <check.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

struct dice {
    uint64_t seed, state;
};

static inline void dice_init(struct dice *dice)
{
    const char *given = getenv("TEST_SEED");
    uint32_t drawn = 0;

    ck_assert_int_eq(getrandom(&drawn, sizeof(drawn), 0), sizeof(drawn));
    dice->seed = given ? strtoull(given, NULL, 10) : drawn;
    dice->state = dice->seed;
}

/* 0 to below - 1 (splitmix64) */
static inline unsigned dice_roll(struct dice *dice, unsigned below)
{
    uint64_t z = dice->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (unsigned)((z ^ (z >> 31)) % below);
}

/* A good one costs nothing: Check writes down where it was after each of its own, which is most of what a comparison of thousands of places takes. */
#define DICE_ASSERT(dice, step, condition)                                                                                                 \
    do {                                                                                                                                   \
        if (!(condition))                                                                                                                  \
            ck_abort_msg("%s (TEST_SEED=%llu, step %d)", #condition, (unsigned long long)(dice)->seed, (int)(step));                       \
    } while (0)

#endif
