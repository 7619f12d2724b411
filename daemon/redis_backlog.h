/* The calls that are not on their way: those that found as many in flight as there may be, those that came while the node was not attached, and
 * those that must go once more. A queue with a few lanes, since order matters and not all calls are worth the same.
 *
 * Lanes are emptied one after the other, each in the order in which it was filled:
 *
 *     PUT_BACK   leases of this node, after a loss: what anybody may be granted depends on them
 *     AGAIN      were sent, and must be sent again: they came before all below
 *     UNSENT     were about to be sent
 *     HOLDERS    renewals and releases of leases that this node knows: worth more than all below when Redis can't do everything
 *     NEXT       the same, of those that stood behind another call about their lease. Who asks one thing after the other never comes here, and a flood about
 *                leases of its own always does
 *   these take turns, three of four are the first two's:
 *     NEXT_STRANGERS  what else stood behind another. Before
 *     STRANGERS  renewals and releases of what this node knows no lease of, and checks of tokens. Who took the lease through another node holds too, and must
 *                not be kept waiting by a crowd of newcomers; but anybody can make up a lease id or a token, in any number
 *     OWED       what the owner has to take back, right after an attach: before others are asked to wait for it; but a crowd may have left while
 *                Redis was away, and who holds must not be late because of it. Before
 *     OTHERS     all else
 *
 * No flood keeps holders waiting. It may ask for leases that do not exist: they are STRANGERS, of which so many may wait that there is room for others. It
 * may renew a lease of its own over and over: one renewal of each lease is among HOLDERS, and more of them are STRANGERS.
 *
 * Of one lease, calls leave in the order in which they came, which is what makes a node's numbers for it rise (docs/internals.md, the confirm number): a
 * renewal or release goes among OTHERS or STRANGERS while a call about the same lease waits there, and those among STRANGERS go to OTHERS before an acquire
 * or a cancel of their lease. What is OWED may be passed: it takes back under a number that it was given before, and a lease that was renewed meanwhile
 * stands under another. Acquires are never overtaken by acquires, so waiters keep their order.
 *
 * Beside the lanes stand those whose turn came while another call about their lease was on its way: of one lease one goes after the other (redis_calls.h). They
 * are bounded, too, so that a flood about few leases leaves room for others.
 *
 * The calls are borrowed and chained by `next`, with `at` where that points to them from. Nothing here calls back.
 */
#ifndef PAWL_REDIS_BACKLOG_H
#define PAWL_REDIS_BACKLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/lease_calls.h"
#include "daemon/store.h"

enum backlog_lane {
    BACKLOG_PUT_BACK,
    BACKLOG_AGAIN,
    BACKLOG_UNSENT,
    BACKLOG_HOLDERS,
    BACKLOG_NEXT,
    BACKLOG_NEXT_STRANGERS,
    BACKLOG_STRANGERS,
    BACKLOG_OWED,
    BACKLOG_OTHERS,
    BACKLOG_LANES
};

#define BACKLOG_MAX           65536 /* calls that wait, all together */
#define BACKLOG_STRANGERS_MAX 16384
#define BACKLOG_BEHIND_MAX    16384 /* behind others of their leases */

struct redis_backlog {
    struct backlog_line {
        struct store_call *first, **last;
        size_t count;
    } lanes[BACKLOG_LANES];
    size_t count;
    unsigned strangers_turns; /* since one of OWED or OTHERS had its turn */
    struct lease_calls holders, strangers, others;
    struct lease_calls behind; /* in no lane: those that wait for the answer to another call about their lease */
    size_t behind_count;       /* part of `count` */
};

void redis_backlog_init(struct redis_backlog *b);
enum backlog_lane redis_backlog_lane(const struct redis_backlog *b, const struct store_call *call); /* of a call that just came */
/* False, and nothing is taken, when it is full, or the lane is. */
bool redis_backlog_add(struct redis_backlog *b, enum backlog_lane lane, struct store_call *call);
/* The one whose turn it is; its lane in *ret_lane, unless that is NULL. NULL: none waits. */
struct store_call *redis_backlog_take(struct redis_backlog *b, enum backlog_lane *ret_lane);

/* A call whose turn has come, and comes again when another about its lease has been answered. False, and nothing is taken, when it is full, or
 * as many stand there as may. */
bool redis_backlog_add_behind(struct redis_backlog *b, struct store_call *call);
/* Of those that stand behind this one, as far as its lease says, the one that came first. NULL: none. */
struct store_call *redis_backlog_take_behind(struct redis_backlog *b, const struct store_call *first);
/* One that was taken from there waits for its turn, in the room that it had. It is in no set that is looked after here: its owner knows what goes before it. */
void redis_backlog_add_next(struct redis_backlog *b, struct store_call *call);
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
