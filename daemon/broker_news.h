/* What happened to a lease, told: to the log, and to whoever listens (broker_host.happened). Not what decides it: each is called by the file that saw it
 * happen, when it is certain. None changes a lease, a table or a line; none fails. The listener is called before they return, and must not call the broker. */
#ifndef PAWL_BROKER_NEWS_H
#define PAWL_BROKER_NEWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/lease_event.h"
#include "proto/lease_id.h"

struct broker;
struct broker_request;
struct lease;

/* By a request whose answer is in it. */
void tell_granted(const struct broker_request *r, bool fresh); /* not fresh: it was granted before, which is no event again */
void tell_renewed(const struct broker_request *r);             /* to the log alone */
void tell_released(struct broker_request *r);                  /* once, however often it is called */
void tell_broken(const struct broker_request *r);              /* before the lease table learns of it */
void tell_undone(const struct broker_request *r);
void tell_lost(const struct broker_request *r); /* a renewal, a release or a check found it over; counts nothing */
/* A lease that this node vouched for until it was renewed or released is over, or nobody will see its end. Of any other lease: nothing. */
void tell_vouched_lost(const struct broker_request *r, const char *reason);
void tell_put_back(const struct broker_request *r, bool stands); /* after a loss: it stands again, or is gone */

/* A lease of the table is over by its time; counted too. */
void tell_expired(const struct broker *b, const struct lease *lease);
/* A greater token was seen at this lock, that of `holder` (NULL: a stranger): the lease that the table has there, if it is another's, is over. */
void tell_outlived(const struct broker *b, const char *name, size_t name_len, int64_t token, const struct lease_id *holder);

void tell_store(const struct broker *b, enum lease_event_kind kind, const char *reason); /* about the way to the store; reason NULL: none */

#endif
