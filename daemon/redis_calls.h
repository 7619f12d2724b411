/* The calls that the store has taken and not answered: sent, in order; held until the node is attached; run again where that is safe; and each
 * answered once, by its deadline. It knows how a call goes, and asks its owner where the node stands (see redis_store.c): when to send, hold
 * or fail is said from outside.
 *
 * Calls of the plain kind (an acquire that does not wait, a release nobody waits for) that come in one turn of the loop leave as one run of
 * one script: most of what a script costs Redis is not its work. What turns out not to be plain comes back undone and is sent by itself.
 *
 * A call that was sent when its connection broke may have run. Those that may be run twice (all but release and break) are held and run
 * again under the same confirm number: attaching has raised the node's generation by then, so the first copy, should it still sit in
 * a socket buffer of Redis, does nothing when it is read.
 */
#ifndef PAWL_REDIS_CALLS_H
#define PAWL_REDIS_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
};

/* All that is borrowed must outlive it. NULL without memory. */
struct redis_calls *redis_calls_new(struct redis_link *link, struct redis_life *life, struct redis_complaints *complaints,
                                    const struct redis_calls_callbacks *callbacks);
void redis_calls_free(struct redis_calls *c); /* takes NULL */
size_t redis_calls_pending(const struct redis_calls *c);

/* A call comes in. One of the three below must follow. */
void redis_calls_take(struct redis_calls *c, struct store_call *call);
void redis_calls_send(struct redis_calls *c, struct store_call *call);
void redis_calls_hold(struct redis_calls *c, struct store_call *call);                      /* until send_held, fail_held or its deadline */
void redis_calls_fail(struct redis_calls *c, struct store_call *call, const char *problem); /* at the end of the turn; static problem */

/* Its connection, or the life in which it was answered, is over: run again, or its outcome is not known. */
void redis_calls_lost(struct redis_calls *c, struct store_call *call);
void redis_calls_done(struct redis_calls *c, struct store_call *call); /* its result stands */

void redis_calls_send_held(struct redis_calls *c);
void redis_calls_fail_held(struct redis_calls *c, const char *problem);
void redis_calls_flush(struct redis_calls *c);      /* sends the plain calls of this turn */
void redis_calls_hold_batch(struct redis_calls *c); /* holds them: the connection or the life of the data ended before they were sent */
/* Answers what failed, and what was held for too long, for this problem. */
void redis_calls_alarm(struct redis_calls *c, int64_t now_us, const char *problem);
void redis_calls_stop(struct redis_calls *c); /* from now on nothing is held */

#endif
