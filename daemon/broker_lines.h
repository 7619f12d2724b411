/* The lines of waiters: who stands in them, and when each looks again. Not what becomes of a waiter that must ask: it is marked (broker.again), and
 * broker_acquire takes it from there. Nothing here asks the store or answers anybody. Without memory a line may not look by itself, which the log says;
 * its waiters are still woken. */
#ifndef PAWL_BROKER_LINES_H
#define PAWL_BROKER_LINES_H

#include <stdbool.h>
#include <stdint.h>

#define LINES_SOON_US 250000 /* free, but an earlier waiter's turn: it may be dead; or the store failed: look again soon */

struct broker;
struct broker_request;

/* Stands in the line of its lock, and its wait ends when it should. False when there are as many waiters as there may be, or no memory: nothing changed. */
bool lines_join(struct broker_request *r) __attribute__((warn_unused_result));

/* Another request of this node that waits with the same lease id, and means to go on: it is to be told the same. NULL: none. */
struct broker_request *lines_twin(const struct broker_request *r);

/* They must ask again; one that is just asking does so once more afterwards. */
void lines_mark_all(struct broker *b);
void lines_mark_first(struct broker *b); /* of each line */

/* When the line of this request's lock looks again: */
void lines_after_lease(struct broker *b, const struct broker_request *r); /* it was granted or renewed: the others look when it would end */
void lines_after_answer(struct broker_request *r);                        /* it stands in the line, and its answer told how things stand */
void lines_after_end(struct broker_request *r); /* its wait is over: it may have been the one that watched for the holder's end */
void lines_look_soon(struct broker_request *r); /* a grant was over before it could be taken back, so nobody was woken */

/* Marks the first waiter that may ask of each line whose time to look has come. */
void lines_look(struct broker *b, int64_t now);
/* For a waiter that looks for those of dead nodes too (its `sweep`): from which place on. */
int64_t lines_sweep_from(struct broker_request *r);

#endif
