#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/name_hash.h"

#include <stdbool.h>
#include <string.h>
#include <sys/random.h>

static uint64_t rotate(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

static void mix(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

static const uint64_t *key(void)
{
    static uint64_t drawn[2];
    static bool is_drawn;

    if (!is_drawn) { /* without randomness the key stays zero: slower under attack, never wrong */
        is_drawn = true;
        if (getrandom(drawn, sizeof(drawn), 0) != (ssize_t)sizeof(drawn))
            memset(drawn, 0, sizeof(drawn));
    }
    return drawn;
}

uint64_t name_hash(const void *bytes, size_t len)
{
    const unsigned char *in = bytes;
    const uint64_t *k = key();
    uint64_t v[4] = {k[0] ^ 0x736f6d6570736575u, k[1] ^ 0x646f72616e646f6du, k[0] ^ 0x6c7967656e657261u, k[1] ^ 0x7465646279746573u};
    uint64_t word, last = (uint64_t)len << 56;

    for (; len >= 8; len -= 8, in += 8) {
        memcpy(&word, in, 8);
        v[3] ^= word;
        mix(v);
        v[0] ^= word;
    }
    for (size_t i = 0; i < len; i++)
        last |= (uint64_t)in[i] << (8 * i);
    v[3] ^= last;
    mix(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    mix(v);
    mix(v);
    mix(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}
