#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_backlog.h"

#include <string.h>

void redis_backlog_init(struct redis_backlog *b)
{
    memset(b, 0, sizeof(*b));
    for (int i = 0; i < BACKLOG_LANES; i++)
        b->lanes[i].last = &b->lanes[i].first;
    lease_calls_init(&b->others);
    lease_calls_init(&b->behind);
}

/* ---- the lanes ---- */

enum backlog_lane redis_backlog_lane(const struct redis_backlog *b, const struct store_call *call)
{
    if (call->op == STORE_PUT_BACK)
        return BACKLOG_PUT_BACK;
    if (call->op == STORE_CHECK) /* about a token, changes nothing */
        return BACKLOG_HOLDERS;
    if ((call->op == STORE_RENEW || call->op == STORE_RELEASE) && !lease_calls_first(&b->others, call))
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
        lease_calls_add(&b->others, call);
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
        lease_calls_remove(call);
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

/* ---- behind another ---- */

bool redis_backlog_add_behind(struct redis_backlog *b, struct store_call *call)
{
    if (b->count >= BACKLOG_MAX)
        return false;
    lease_calls_add(&b->behind, call);
    b->count++;
    b->behind_count++;
    return true;
}

static void take_out(struct redis_backlog *b, struct store_call *call)
{
    lease_calls_remove(call);
    b->count--;
    b->behind_count--;
}

struct store_call *redis_backlog_take_behind(struct redis_backlog *b, const struct store_call *first)
{
    struct store_call *call = b->behind_count > 0 ? lease_calls_first(&b->behind, first) : NULL;

    if (call)
        take_out(b, call);
    return call;
}

/* ---- what is too late ---- */

int64_t redis_backlog_due_us(enum backlog_lane lane, const struct store_call *call, bool going)
{
    return going && lane != BACKLOG_AGAIN && lane != BACKLOG_UNSENT ? call->send_by_us : call->deadline_us;
}

struct due { /* those found so far, and the first of the others */
    int64_t now_us, next_us;
    bool going;
    struct store_call *first, **last;
};

static bool is_due(struct due *due, enum backlog_lane lane, const struct store_call *call)
{
    int64_t due_us = redis_backlog_due_us(lane, call, due->going);

    if (due_us > due->now_us && due_us < due->next_us)
        due->next_us = due_us;
    return due_us <= due->now_us;
}

static void add_due(struct due *due, struct store_call *call)
{
    *due->last = call;
    due->last = &call->next;
}

static void take_due_of(struct redis_backlog *b, enum backlog_lane lane, struct due *due)
{
    struct store_call **at = &b->lanes[lane].first;

    while (*at) {
        if (is_due(due, lane, *at))
            add_due(due, unlink_at(b, lane, at));
        else
            at = &(*at)->next;
    }
}

static void take_due_behind(struct redis_backlog *b, struct due *due)
{
    struct store_call *next;

    for (struct store_call *call = lease_calls_next(&b->behind, NULL); call; call = next) {
        next = lease_calls_next(&b->behind, call);
        if (!is_due(due, BACKLOG_OTHERS, call))
            continue;
        take_out(b, call);
        add_due(due, call);
    }
}

struct store_call *redis_backlog_take_due(struct redis_backlog *b, int64_t now_us, bool going, int64_t *ret_next_us)
{
    struct due due = {.now_us = now_us, .next_us = INT64_MAX, .going = going, .last = &due.first};

    for (int i = 0; i < BACKLOG_LANES; i++)
        take_due_of(b, (enum backlog_lane)i, &due);
    if (b->behind_count > 0)
        take_due_behind(b, &due);
    *due.last = NULL;
    *ret_next_us = due.next_us;
    return due.first;
}
