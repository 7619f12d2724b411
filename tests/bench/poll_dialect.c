/* The lock that most write by themselves on Redis (dialect.h): SET NX PX, tried again every 50 ms while somebody else has it; given back by
 * a script that compares and deletes. No token, no queue, no order. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/dialect.h"

#include <stdio.h>
#include <string.h>

#define GIVE_BACK "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0"

static enum reading compare(const char *in, size_t len, const char *want)
{
    size_t want_len = strlen(want);

    if (len >= want_len)
        return memcmp(in, want, want_len) == 0 ? READING_OK : READING_BAD;
    return memcmp(in, want, len) == 0 ? READING_MORE : READING_BAD;
}

static enum reading read_set(const struct dialect *d, const struct words *w, const char *in, size_t len, struct reply *ret)
{
    (void)d;
    (void)w;
    ret->len = 5; /* of either */
    if (compare(in, len, "$-1\r\n") == READING_OK)
        return READING_REFUSED;
    return compare(in, len, in[0] == '$' ? "$-1\r\n" : "+OK\r\n");
}

static enum reading read_given_back(const struct dialect *d, const struct words *w, const char *in, size_t len, struct reply *ret)
{
    (void)d;
    (void)w;
    ret->len = 4;
    return compare(in, len, ":1\r\n");
}

bool dialect_poll(struct dialect *d)
{
    char eval[200];
    int n = snprintf(eval, sizeof eval, "*5\r\n$4\r\nEVAL\r\n$%zu\r\n%s\r\n$1\r\n1\r\n$%d\r\n", sizeof GIVE_BACK - 1, GIVE_BACK,
                     FRAME_NAME_LEN);

    memset(d, 0, sizeof *d);
    d->title = "poll";
    d->client_names_lease = true;
    d->retry_ms = 50;
    d->read_acquire = read_set;
    d->read_release = read_given_back;
    return n > 0 && (size_t)n < sizeof eval && frame_add_text(&d->acquire, "*6\r\n$3\r\nSET\r\n$21\r\n") &&
           frame_add_slot(&d->acquire, FRAME_NAME) && frame_add_text(&d->acquire, "\r\n$36\r\n") &&
           frame_add_slot(&d->acquire, FRAME_LEASE) && frame_add_text(&d->acquire, "\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n") &&
           frame_add_text(&d->release, eval) && frame_add_slot(&d->release, FRAME_NAME) && frame_add_text(&d->release, "\r\n$36\r\n") &&
           frame_add_slot(&d->release, FRAME_LEASE) && frame_add_text(&d->release, "\r\n");
}
