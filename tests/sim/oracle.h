/* What must hold, whatever happens: the promises of the design, watched from outside the broker.
 *
 * The oracle sees three things: what clients asked and were told, which scripts ran in the store and when, and what stands in the store now. It
 * believes of a lease what its client was told and of an order of waiters what the tickets say; the first contradiction ends the run.
 *
 * A story is one lease id: one possession that a client is after, from its first acquire to its end. An ask is one request of a story.
 */
#ifndef PAWL_SIM_ORACLE_H
#define PAWL_SIM_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/broker.h"
#include "tests/sim/memory_store.h"
#include "tests/sim/virtual_time.h"

struct story {
    int64_t number;
    int lock;
    struct lease_id id;
    int64_t delay_ms, most_ms; /* the terms that every acquire of it asks for; 0: none */
    int acquires, open;        /* acquires asked so far; asks that are open */
    unsigned nodes;            /* that were asked for it, a bit each */
    int64_t last_end_us;       /* when the last ask ended */

    /* what its client believes */
    bool told, given_up, broken, distrusted; /* distrusted: data were lost since */
    int64_t claim_us, claim_token, claim_run;
    bool renewed; /* it was asked for: who asks means to hold */
    bool must_go; /* nothing of it may stay in the store; since last_end_us */
    int voucher;  /* the node that granted, renewed or put back last what was told */
    int64_t voucher_run;
    bool owed; /* told and standing when data were lost: has to stand when the window closes */

    /* what the store did for it */
    int64_t last_run, ticket, ticket_opened; /* of its place */
    int64_t granted_us, granted_opened;      /* by the run that made the lease, in the life of the data of that number */
    bool crowded;                            /* it had more claims to its place than are kept: the oldest request has to look for itself */
};

struct ask {
    struct ask *next, *previous; /* open ones */
    struct story *story;
    struct broker_request *request;
    enum store_op op;
    int node;
    int64_t submitted_us, end_us;  /* end: of the wait */
    int64_t claim_us, ttl_ms;      /* what the client believed when it asked */
    int64_t ticket, ticket_opened; /* that the store gave to this very ask */
    int64_t placeless_us;          /* since when it has no place; 0: it has one */
    bool submitting;
};

struct oracle_node {
    bool alive, draining;
    int64_t calm_us;    /* since when nothing bad happened to it */
    int64_t stalled_us; /* until when it stalled last */
    int64_t shaken_us;  /* the same as calm_us, but for what an open window does */
    struct broker *broker;
    int64_t ticks, ticks_at_once, tick_us, second;
};

struct oracle {
    struct virtual_time *time;
    struct memory *memory;
    int64_t timeout_ms, poll_ms;
    bool hostile; /* the weather is: nobody is calm */
    bool quick;   /* nothing ever goes wrong in this run: a wake-up that gets lost shows at once */
    struct story **stories;
    int64_t story_count, story_cap;
    struct ask *asks;
    struct oracle_node nodes[MEMORY_NODES];
    int node_count;
    bool deaf; /* messages may get lost */
    int64_t opened, lost_us, window_us, died_us, greatest[MEMORY_LOCKS];
    int64_t free_us[MEMORY_LOCKS], held_us[MEMORY_LOCKS]; /* since when; INT64_MAX: it isn't */
    struct lease_id held_by[MEMORY_LOCKS];
    int64_t broken_until_us[MEMORY_LOCKS]; /* the delay after a break; 0: none, or data were lost since */
    char failure[400];
    struct {
        uint64_t runs, grants, told, waited_grants, repeats, undone, undelivered, abandoned, unknown, lost, owed, delayed, bounded;
    } seen;
};

void oracle_init(struct oracle *o, struct virtual_time *time);
void oracle_close(struct oracle *o);
struct memory_watch oracle_watch(struct oracle *o);
void oracle_fail(struct oracle *o, const char *format, ...) __attribute__((format(printf, 2, 3))); /* the first one counts */

struct story *oracle_story(struct oracle *o, int lock);
/* Before broker_submit; the request is filled. */
struct ask *oracle_asked(struct oracle *o, struct story *story, int node, struct broker_request *r);
/* In `done`: checks the answer. `delivered`: the client gets to see it. Ends the ask; the request is still the caller's. */
void oracle_answered(struct oracle *o, struct ask *ask, bool delivered);
void oracle_abandoned(struct oracle *o, struct ask *ask); /* ends the ask */

bool oracle_believes(const struct oracle *o, const struct story *story); /* its client believes that it holds */
void oracle_ticked(struct oracle *o, int node);                          /* broker_tick is called */
void oracle_sweep(struct oracle *o);                                     /* now and then: what takes time to be wrong */
void oracle_quiet(struct oracle *o, bool leases_over);                   /* all clients have gone and it was calm for a while */

#endif
