/* The calls that ask the store once: all but the acquire. What their answers mean for leases, lines and listeners, and what their clients are told. */
#ifndef PAWL_BROKER_CALLS_H
#define PAWL_BROKER_CALLS_H

struct broker_request;

/* The store's answer is there, and is told; the request may be gone when this returns. */
void calls_answered(struct broker_request *r);
/* The same when the client has left: nobody is told, and the request stays. */
void calls_left(struct broker_request *r);

#endif
