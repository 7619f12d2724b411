/* Lists of locks, a step at a time, and a few steps of all lists at one time. */
#ifndef PAWL_BROKER_LISTING_H
#define PAWL_BROKER_LISTING_H

struct broker;
struct broker_request;

void listing_submit(struct broker_request *r);
/* A step's answer is there. For every answer, whatever becomes of its list and before anything else is done about it: the step's room is free. Then, once the
 * answer has been dealt with: whose turn it is. */
void listing_step_over(struct broker *b);
void listing_next(struct broker *b);
/* The step was done, and its client is there: goes on to the next one, or tells that the list is at its end. */
void listing_answered(struct broker_request *r);
/* The client of a list whose turn has not come (LISTING) has left: it is let go. */
void listing_abandon(struct broker_request *r);

#endif
