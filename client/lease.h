/* A lease and what its keep-alive shares with it. Between lease.c and keep_alive.c. */
#ifndef PAWL_LEASE_H
#define PAWL_LEASE_H

#include <pthread.h>
#include <stdint.h>

#include "client/call.h"
#include "client/pawl.h"

struct keep_alive;

struct pawl_lease {
    struct pawl *client;
    char name[PAWL_NAME_SIZE];
    char id[PAWL_LEASE_ID_SIZE];
    struct keep_alive *keep_alive; /* NULL: none runs. Of the thread that starts and stops it */

    pthread_mutex_t lock; /* of what follows */
    int64_t token;
    int64_t ttl_ms;
    int64_t deadline_us; /* 0: not known, or over */
    int64_t hold_end_us; /* however it is renewed; 0: no bound, or not known */
    int64_t told_us;     /* when the request was sent that the deadline comes from */
};

/* One renewal with the time-out, budget and limits in *call, which lease_renewal() began. 0, or a code with *problem. The lease knows its
 * new deadline, or that it is lost, afterwards. */
struct call lease_renewal(const struct pawl_lease *lease, int64_t ttl_ms);
int lease_renew(struct pawl_lease *lease, struct call *call, struct pawl_problem *problem);

/* It is over, for whatever reason. */
void lease_forget(struct pawl_lease *lease);

#endif
