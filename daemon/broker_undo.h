/* What nobody was told of is taken back: a grant that may stand in the store (`unsettled`), a place in its queue (`queued`). */
#ifndef PAWL_BROKER_UNDO_H
#define PAWL_BROKER_UNDO_H

struct broker;
struct broker_request;

/* The client is gone or has its answer, and nothing of the request is with the store: takes back what there is to, and lets the request go. */
void undo_rest(struct broker_request *r);
/* The store's answer to the cancel of a request that was CLEANING, or ENDING before its client left: lets it go, or owes it. */
void undo_answered(struct broker_request *r);

/* One that is owed is tried again, if the store is there; at each attach all are. */
void undo_settle(struct broker_request *r);
void undo_settle_all(struct broker *b);

void undo_close(struct broker *b); /* lets go of what is owed, when the store answers no more */

#endif
