#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_backlog.h"

#include <string.h>

#include "daemon/name_hash.h"

void redis_backlog_init(struct redis_backlog *b)
{
    memset(b, 0, sizeof(*b));
    for (int i = 0; i < BACKLOG_LANES; i++)
        b->lanes[i].last = &b->lanes[i].first;
}

/* ---- which leases the OTHERS are about ---- */

static size_t bucket_of(const struct store_call *call)
{
    return (size_t)(name_hash(call->lease_id.text, strlen(call->lease_id.text)) % BACKLOG_BUCKETS);
}

static void note(struct redis_backlog *b, struct store_call *call)
{
    struct store_call **bucket = &b->leases[bucket_of(call)];

    call->beside = *bucket;
    call->beside_of = bucket;
    if (*bucket)
        (*bucket)->beside_of = &call->beside;
    *bucket = call;
}

static void unnote(struct store_call *call)
{
    *call->beside_of = call->beside;
    if (call->beside)
        call->beside->beside_of = call->beside_of;
}

static bool is_noted(const struct redis_backlog *b, const struct store_call *wanted)
{
    const struct store_call *call = b->leases[bucket_of(wanted)];

    while (call && strcmp(call->lease_id.text, wanted->lease_id.text) != 0)
        call = call->beside;
    return call != NULL;
}

/* ---- the lanes ---- */

enum backlog_lane redis_backlog_lane(const struct redis_backlog *b, const struct store_call *call)
{
    if (call->op == STORE_PUT_BACK)
        return BACKLOG_PUT_BACK;
    if (call->op == STORE_CHECK) /* about a token, changes nothing */
        return BACKLOG_HOLDERS;
    if ((call->op == STORE_RENEW || call->op == STORE_RELEASE) && !is_noted(b, call))
        return BACKLOG_HOLDERS;
    return BACKLOG_OTHERS;
}

bool redis_backlog_add(struct redis_backlog *b, enum backlog_lane lane, struct store_call *call)
{
    struct backlog_line *line = &b->lanes[lane];

    if (b->count >= BACKLOG_MAX)
        return false;
    call->next = NULL;
    *line->last = call;
    line->last = &call->next;
    b->count++;
    if (lane == BACKLOG_OTHERS)
        note(b, call);
    return true;
}

/* What follows the one at `at` follows its predecessor. */
static struct store_call *unlink_at(struct redis_backlog *b, int lane, struct store_call **at)
{
    struct backlog_line *line = &b->lanes[lane];
    struct store_call *call = *at;

    *at = call->next;
    if (line->last == &call->next)
        line->last = at;
    b->count--;
    if (lane == BACKLOG_OTHERS)
        unnote(call);
    return call;
}

struct store_call *redis_backlog_take(struct redis_backlog *b, enum backlog_lane *ret_lane)
{
    for (int i = 0; i < BACKLOG_LANES; i++) {
        if (!b->lanes[i].first)
            continue;
        if (ret_lane)
            *ret_lane = (enum backlog_lane)i;
        return unlink_at(b, i, &b->lanes[i].first);
    }
    return NULL;
}

int64_t redis_backlog_due_us(enum backlog_lane lane, const struct store_call *call, bool going)
{
    return going && lane != BACKLOG_AGAIN && lane != BACKLOG_UNSENT ? call->send_by_us : call->deadline_us;
}

struct store_call *redis_backlog_take_due(struct redis_backlog *b, int64_t now_us, bool going, int64_t *ret_next_us)
{
    struct store_call *due = NULL, **last = &due;

    *ret_next_us = INT64_MAX;
    for (int i = 0; i < BACKLOG_LANES; i++) {
        struct store_call **at = &b->lanes[i].first;
        while (*at) {
            int64_t due_us = redis_backlog_due_us((enum backlog_lane)i, *at, going);
            if (due_us <= now_us) {
                *last = unlink_at(b, i, at);
                last = &(*last)->next;
            } else {
                *ret_next_us = due_us < *ret_next_us ? due_us : *ret_next_us;
                at = &(*at)->next;
            }
        }
    }
    *last = NULL;
    return due;
}
