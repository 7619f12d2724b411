/* The calls that the store has taken and not answered: sent, in order; waiting until the node is attached, or until fewer are in
 * flight; run again where that is safe; and each answered once, by its deadline. It knows how a call goes, and asks its owner where the node stands (see
 * redis_store.c): when to send, wait or fail is said from outside.
 *
 * Only so many calls are in flight at one time, however many come: what Redis can't run within their time waits here, where a call whose time runs out was
 * surely not run and costs nobody else anything. Sent all at once they would make each other late, and the first that is too late would take the connection
 * with it. How many follows Redis's pace, see redis_flight.h. What waits is sent in order; see redis_backlog.h for who goes first.
 *
 * Of one lease one call is under way at a time, and the next has its turn when that one is done: one that has to be sent again, as below, would else come behind
 * those that came after it, and a node's numbers for a lease would not rise in the order in which they are written. Who asks one thing after the other, as
 * holders do, never waits for this.
 *
 * A call that was sent and is not answered by its deadline is answered UNKNOWN; its command stays in flight, and what the server says of it is no longer
 * its own. But that it renewed a lease, or found it there already, is told (done_late), lest no node vouch for that lease. The connection is dropped when a
 * command has no answer for the whole time-out.
 *
 * While a lock lies idle between two holders until a call is answered, the loop stays awake for that answer, if Redis is near enough (see busy_poll.h).
 *
 * Calls of the plain kind (an acquire that does not wait, a release nobody waits for) that come in one turn of the loop leave as one run of
 * one script: most of what a script costs Redis is not its work. What turns out not to be plain comes back undone and is sent by itself.
 *
 * A call that was sent when its connection broke may have run. Those that may be run twice (all but release and break) wait and are run
 * again under the same confirm number: attaching has raised the node's generation by then, so the first copy, should it still sit in
 * a socket buffer of Redis, does nothing when it is read.
 */
#ifndef PAWL_REDIS_CALLS_H
#define PAWL_REDIS_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/busy_poll.h"
#include "daemon/redis_answer.h"
#include "daemon/redis_life.h"
#include "daemon/redis_link.h"
#include "daemon/store.h"

struct redis_calls;

struct redis_calls_callbacks {
    void *arg;
    void (*answered)(void *arg, int64_t us);           /* a round trip */
    void (*differs)(void *arg);                        /* a script says that this is another life: attach anew */
    bool (*prove)(void *arg, struct store_call *call); /* "you hold it": true takes the call, until redis_calls_done or redis_calls_lost */
    void (*alarm)(void *arg, int64_t at_us);           /* redis_calls_alarm is wanted then */
    void (*done_late)(void *arg, const struct store_call *call); /* see store_events */
};

/* All that is borrowed must outlive it. `timeout_ms`: how long Redis may take for one answer. NULL without memory. */
struct redis_calls *redis_calls_new(struct redis_link *link, struct busy_poll *busy_poll, struct redis_life *life,
                                    struct redis_complaints *complaints, int64_t timeout_ms, const struct redis_calls_callbacks *callbacks);
void redis_calls_free(struct redis_calls *c); /* after the link stopped; takes NULL */
size_t redis_calls_pending(const struct redis_calls *c);
size_t redis_calls_waiting(const struct redis_calls *c);  /* of these, how many wait for their turn */
uint64_t redis_calls_unsent(const struct redis_calls *c); /* answered while others were sent, because their turn did not come in time */

/* A call comes in. One of the two below must follow. */
void redis_calls_take(struct redis_calls *c, struct store_call *call);
void redis_calls_send(struct redis_calls *c, struct store_call *call);                      /* now, or when its turn comes */
void redis_calls_fail(struct redis_calls *c, struct store_call *call, const char *problem); /* at the end of the turn; static problem */

/* Its connection, or the life in which it was answered, is over: run again, or its outcome is not known. */
void redis_calls_lost(struct redis_calls *c, struct store_call *call);
void redis_calls_done(struct redis_calls *c, struct store_call *call); /* its result stands */

void redis_calls_go(struct redis_calls *c);   /* attached: calls are sent, those that waited first */
void redis_calls_halt(struct redis_calls *c); /* the connection or the life of the data ended: all that is not sent waits */
void redis_calls_lead(struct redis_calls *c,
                      bool leading); /* while true what comes is what the node owes (redis_backlog.h); for right before the go */
void redis_calls_fail_waiting(struct redis_calls *c, const char *problem);
void redis_calls_turn(
    struct redis_calls *c); /* the end of a turn of the loop: sends the plain calls of it, and what waits and has room now */
/* Answers what failed, and what had no answer or no turn in its time; the latter for this problem while nothing is sent. */
void redis_calls_alarm(struct redis_calls *c, int64_t now_us, const char *problem);
void redis_calls_stop(struct redis_calls *c); /* from now on nothing waits */

#endif
