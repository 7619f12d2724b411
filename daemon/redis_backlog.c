#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_backlog.h"

#include <string.h>

#define STRANGERS_TURNS 3 /* of four */

void redis_backlog_init(struct redis_backlog *b)
{
    memset(b, 0, sizeof(*b));
    for (int i = 0; i < BACKLOG_LANES; i++)
        b->lanes[i].last = &b->lanes[i].first;
    lease_calls_init(&b->holders);
    lease_calls_init(&b->strangers);
    lease_calls_init(&b->others);
    lease_calls_init(&b->behind);
}

/* ---- the lanes ---- */

/* Those in whose lanes the order of calls about one lease is looked after; NULL: the others. */
static struct lease_calls *set_of(struct redis_backlog *b, enum backlog_lane lane)
{
    switch (lane) {
    case BACKLOG_HOLDERS:
        return &b->holders;
    case BACKLOG_STRANGERS:
        return &b->strangers;
    case BACKLOG_OTHERS:
        return &b->others;
    default:
        return NULL;
    }
}

/* A renewal or a release. */
static enum backlog_lane lane_of_holder(const struct redis_backlog *b, const struct store_call *call)
{
    const struct store_call *before;

    if (lease_calls_first(&b->others, call))
        return BACKLOG_OTHERS;
    if (call->token == 0 || lease_calls_first(&b->strangers, call))
        return BACKLOG_STRANGERS;
    before = lease_calls_first(&b->holders, call);
    return before && before->op == STORE_RENEW && call->op == STORE_RENEW ? BACKLOG_STRANGERS : BACKLOG_HOLDERS;
}

enum backlog_lane redis_backlog_lane(const struct redis_backlog *b, const struct store_call *call)
{
    switch (call->op) {
    case STORE_PUT_BACK:
        return BACKLOG_PUT_BACK;
    case STORE_RENEW:
    case STORE_RELEASE:
        return lane_of_holder(b, call);
    case STORE_CHECK: /* about a token, changes nothing */
        return BACKLOG_STRANGERS;
    default:
        return BACKLOG_OTHERS;
    }
}

static void put(struct redis_backlog *b, enum backlog_lane lane, struct store_call *call)
{
    struct backlog_line *line = &b->lanes[lane];
    struct lease_calls *set = set_of(b, lane);

    call->next = NULL;
    call->at = line->last;
    *line->last = call;
    line->last = &call->next;
    line->count++;
    b->count++;
    if (set)
        lease_calls_add(set, call);
}

/* What follows it follows its predecessor. */
static void take_from(struct redis_backlog *b, enum backlog_lane lane, struct store_call *call)
{
    struct backlog_line *line = &b->lanes[lane];

    *call->at = call->next;
    if (call->next)
        call->next->at = call->at;
    else
        line->last = call->at;
    line->count--;
    b->count--;
    if (set_of(b, lane))
        lease_calls_remove(call);
}

bool redis_backlog_add(struct redis_backlog *b, enum backlog_lane lane, struct store_call *call)
{
    struct store_call *before;

    if (b->count >= BACKLOG_MAX || (lane == BACKLOG_STRANGERS && b->lanes[lane].count >= BACKLOG_STRANGERS_MAX))
        return false;
    while (lane == BACKLOG_OTHERS && (before = lease_calls_first(&b->strangers, call)) != NULL) {
        take_from(b, BACKLOG_STRANGERS, before);
        put(b, BACKLOG_OTHERS, before);
    }
    put(b, lane, call);
    return true;
}

static enum backlog_lane next_lane(struct redis_backlog *b)
{
    int lane = BACKLOG_PUT_BACK;
    enum backlog_lane strangers = b->lanes[BACKLOG_NEXT_STRANGERS].first ? BACKLOG_NEXT_STRANGERS : BACKLOG_STRANGERS;

    while (lane < BACKLOG_NEXT_STRANGERS && !b->lanes[lane].first)
        lane++;
    if (lane < BACKLOG_NEXT_STRANGERS)
        return (enum backlog_lane)lane;
    lane = b->lanes[BACKLOG_OWED].first ? BACKLOG_OWED : BACKLOG_OTHERS;
    if (b->lanes[strangers].first && (!b->lanes[lane].first || b->strangers_turns < STRANGERS_TURNS)) {
        b->strangers_turns++;
        return strangers;
    }
    b->strangers_turns = 0;
    return (enum backlog_lane)lane;
}

struct store_call *redis_backlog_take(struct redis_backlog *b, enum backlog_lane *ret_lane)
{
    enum backlog_lane lane = next_lane(b);
    struct store_call *call = b->lanes[lane].first;

    if (!call)
        return NULL;
    if (ret_lane)
        *ret_lane = lane;
    take_from(b, lane, call);
    return call;
}

/* ---- behind another ---- */

bool redis_backlog_add_behind(struct redis_backlog *b, struct store_call *call)
{
    if (b->count >= BACKLOG_MAX || b->behind_count >= BACKLOG_BEHIND_MAX)
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

void redis_backlog_add_next(struct redis_backlog *b, struct store_call *call)
{
    bool holds = call->token != 0 && (call->op == STORE_RENEW || call->op == STORE_RELEASE);

    put(b, holds ? BACKLOG_NEXT : BACKLOG_NEXT_STRANGERS, call);
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
    struct store_call *next;

    for (struct store_call *call = b->lanes[lane].first; call; call = next) {
        next = call->next;
        if (!is_due(due, lane, call))
            continue;
        take_from(b, lane, call);
        add_due(due, call);
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
