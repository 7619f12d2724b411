/* A fixed table of places, chained by hash, on one list in the order of their last failures: the head is the next to be forgotten. A bucket is one number, the
 * time at which it is full again; how many failures it can still take follows from that, so nothing has to be filled by a timer. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/login_limit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/name_hash.h"

#define KEY_BYTES 9
#define CHAINS    4096 /* a power of two */
#define REFILL_US (INT64_C(1000) * LOGIN_REFILL_MS)
#define BUCKET_US (LOGIN_BURST * REFILL_US) /* from empty to full */

struct place {
    TAILQ_ENTRY(place) by_age;
    LIST_ENTRY(place) chain;
    int64_t full_us; /* when its bucket is full again */
    unsigned char key[KEY_BYTES];
};

TAILQ_HEAD(place_list, place);
LIST_HEAD(chain, place);

struct login_limit {
    struct place_list used, unused;
    struct chain chains[CHAINS];
    struct place places[LOGIN_PLACES];
    size_t count;
};

struct login_limit *login_limit_new(void)
{
    struct login_limit *limit = calloc(1, sizeof(*limit));

    if (!limit)
        return NULL;
    TAILQ_INIT(&limit->used);
    TAILQ_INIT(&limit->unused);
    for (size_t i = 0; i < LOGIN_PLACES; i++)
        TAILQ_INSERT_TAIL(&limit->unused, &limit->places[i], by_age);
    return limit;
}

void login_limit_free(struct login_limit *limit)
{
    free(limit);
}

size_t login_limit_places(const struct login_limit *limit)
{
    return limit->count;
}

/* What kind it is, and what tells it from others of its kind. */
static void key_of(const struct peer *peer, unsigned char *key)
{
    static const unsigned char ipv4[12] = {[10] = 0xff, [11] = 0xff};

    memset(key, 0, KEY_BYTES);
    if (peer->kind == PEER_UNIX) {
        key[0] = peer->has_ids ? 'u' : '?';
        memcpy(key + 1, &peer->uid, peer->has_ids ? sizeof(peer->uid) : 0);
    } else if (memcmp(peer->address, ipv4, sizeof(ipv4)) == 0) {
        key[0] = '4';
        memcpy(key + 1, peer->address + 12, 4);
    } else {
        key[0] = '6';
        memcpy(key + 1, peer->address, 8);
    }
}

_Static_assert(sizeof(uid_t) < KEY_BYTES, "a user fits into a key");

static struct place *take_place(struct login_limit *limit)
{
    struct place *place = TAILQ_FIRST(&limit->unused);

    if (place) {
        TAILQ_REMOVE(&limit->unused, place, by_age);
        limit->count++;
        return place;
    }
    place = TAILQ_FIRST(&limit->used);
    TAILQ_REMOVE(&limit->used, place, by_age);
    LIST_REMOVE(place, chain);
    return place;
}

/* The place with this key, off the list of ages; a new one has a full bucket. */
static struct place *find(struct login_limit *limit, const unsigned char *key, int64_t now_us)
{
    struct chain *chain = &limit->chains[name_hash(key, KEY_BYTES) & (CHAINS - 1)];
    struct place *place;

    LIST_FOREACH(place, chain, chain)
    {
        if (memcmp(place->key, key, KEY_BYTES) == 0) {
            TAILQ_REMOVE(&limit->used, place, by_age);
            return place;
        }
    }
    place = take_place(limit);
    memcpy(place->key, key, KEY_BYTES);
    place->full_us = now_us;
    LIST_INSERT_HEAD(chain, place, chain);
    return place;
}

int64_t login_limit_failed(struct login_limit *limit, const struct peer *peer, int64_t now_us)
{
    unsigned char key[KEY_BYTES];
    struct place *place;
    int64_t over_us;

    key_of(peer, key);
    place = find(limit, key, now_us);
    TAILQ_INSERT_TAIL(&limit->used, place, by_age);
    if (place->full_us < now_us)
        place->full_us = now_us;
    over_us = place->full_us + REFILL_US - (now_us + BUCKET_US);
    if (over_us > 0)
        return (over_us + 999999) / 1000000;
    place->full_us += REFILL_US;
    return 0;
}
