/* The leases that this node vouches for (lease_table.h), and the delays that stand after them: taken in by the store's answers, told when they are over, put
 * back after a loss. Not what decides who holds a lock; that is the store. Functions that take a request want one whose answer is in it, unless they say
 * otherwise. Without memory a lease is not vouched for, which the log says; nothing else fails. */
#ifndef PAWL_BROKER_VOUCH_H
#define PAWL_BROKER_VOUCH_H

#include <stddef.h>
#include <stdint.h>

#include "proto/lease_id.h"

struct broker;
struct broker_request;
struct store_call;

/* Granted, granted again, or renewed, with its ends taken (request_take_ends): this node vouches for it now. */
void vouch_remember(struct broker_request *r);
/* Renewed or granted again, though its caller was told that the outcome is not known: store_events has the meaning. */
void vouch_done_late(struct broker *b, const struct store_call *call);
/* Its release was answered: it is forgotten, whatever was taken in since that was submitted. */
void vouch_released(const struct broker_request *r);
/* It was broken: told, forgotten, and its delay is vouched for. */
void vouch_broken(struct broker_request *r);
/* Another lease holds the lock: a lesser one in the table is over. */
void vouch_see_holder(const struct broker_request *r);
/* This lease is over. */
void vouch_drop(const struct broker_request *r);
/* Nobody was told of this grant: this node does not vouch for it, unless another call with the lease id was told since. Any request that has a name, a lease
 * id and a confirm number. */
void vouch_forget_grant(const struct broker_request *r);
/* Another node vouches for what stood under this number or a lesser one. */
void vouch_forget(struct broker *b, const struct lease_id *id, uint64_t confirm, const char *name, size_t name_len);

/* It is over, but for its delay: that is vouched for here as well, if the lease was. */
void vouch_broken_elsewhere(struct broker *b, const struct lease_id *id, uint64_t confirm, const char *name, size_t name_len);

/* Before a renewal or a release is sent: what is known of the lease goes into the call, under a new confirm number. A release's is given up with it. */
void vouch_fill_call(struct broker_request *r);
/* The connection was lost: no answer is on its way any more. */
void vouch_answers_lost(struct broker *b);

/* Tells what is over by its time, a bounded number at once. The alarm is the caller's to set. */
void vouch_expire(struct broker *b, int64_t now);

/* All of them, as fast as the bound on them lets it. Again: all of them once more. */
void vouch_begin_putting_back(struct broker *b);
void vouch_put_back_due(struct broker *b, int64_t now); /* those that the store failed to, when it is time */
void vouch_put_back_answered(struct broker_request *r); /* of a request that is PUTTING, which it lets go */

#endif
