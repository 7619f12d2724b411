/* The calls that are not on their way: those that found as many in flight as there may be, those that came while the node was not attached, and
 * those that must go once more. A queue with a few lanes, since order matters and not all calls are worth the same.
 *
 * Lanes are emptied one after the other, each in the order in which it was filled:
 *
 *     PUT_BACK   leases of this node, after a loss: what anybody may be granted depends on them
 *     AGAIN      were sent, and must be sent again: they came before all below
 *     UNSENT     were about to be sent
 *     HOLDERS    renewals, releases and checks of tokens: worth more than new acquires when Redis can't do everything
 *     OWED       what the owner has to take back, right after an attach: before others are asked to wait for it; but a crowd may have left while
 *                Redis was away, and who holds must not be late because of it
 *     OTHERS     all else
 *
 * A renewal or release goes among OTHERS while a call about the same lease waits there: of one lease, calls leave in the order in which they came, which is
 * what makes a node's numbers for it rise (docs/internals.md, the confirm number). What is OWED may be passed: it takes back under a number that it was given
 * before, and a lease that was renewed meanwhile stands under another. Acquires are never overtaken by acquires, so waiters keep their order.
 *
 * Beside the lanes stand those whose turn came while another call about their lease was on its way: of one lease one goes after the other (redis_calls.h).
 *
 * The calls are borrowed and chained by `next`. Nothing here calls back.
 */
#ifndef PAWL_REDIS_BACKLOG_H
#define PAWL_REDIS_BACKLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/lease_calls.h"
#include "daemon/store.h"

enum backlog_lane { BACKLOG_PUT_BACK, BACKLOG_AGAIN, BACKLOG_UNSENT, BACKLOG_HOLDERS, BACKLOG_OWED, BACKLOG_OTHERS, BACKLOG_LANES };

#define BACKLOG_MAX 65536 /* calls that wait, all together */

struct redis_backlog {
    struct backlog_line {
        struct store_call *first, **last;
    } lanes[BACKLOG_LANES];
    size_t count;
    struct lease_calls others; /* those among OTHERS */
    struct lease_calls behind; /* in no lane: those that wait for the answer to another call about their lease */
    size_t behind_count;       /* part of `count` */
};

void redis_backlog_init(struct redis_backlog *b);
enum backlog_lane redis_backlog_lane(const struct redis_backlog *b, const struct store_call *call); /* of a call that just came */
/* False, and nothing is taken, when it is full. */
bool redis_backlog_add(struct redis_backlog *b, enum backlog_lane lane, struct store_call *call);
/* The one whose turn it is; its lane in *ret_lane, unless that is NULL. NULL: none waits. */
struct store_call *redis_backlog_take(struct redis_backlog *b, enum backlog_lane *ret_lane);

/* A call whose turn has come, and comes again when another about its lease has been answered. False, and nothing is taken, when it is full. */
bool redis_backlog_add_behind(struct redis_backlog *b, struct store_call *call);
/* Of those that stand behind this one, as far as its lease says, the one that came first. NULL: none. */
struct store_call *redis_backlog_take_behind(struct redis_backlog *b, const struct store_call *first);
static inline bool redis_backlog_wants_turns(const struct redis_backlog *b) /* somebody is in a lane */
{
    return b->count > b->behind_count;
}

/* When a call in this lane can't be helped any more. While calls are sent (`going`), one that never was is not worth sending when little of its time is
 * left (send_by_us); else at its deadline. */
int64_t redis_backlog_due_us(enum backlog_lane lane, const struct store_call *call, bool going);
/* Those that can't be helped, chained; *ret_next_us: when the first of the others will be so, INT64_MAX without any. */
struct store_call *redis_backlog_take_due(struct redis_backlog *b, int64_t now_us, bool going, int64_t *ret_next_us);

#endif
