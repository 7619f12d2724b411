/* A Redis in memory, seen by several nodes through store.h, on virtual time.
 *
 * It does what the Lua scripts and redis_store do: leases that end by time, the fence, queues, nodes' keys and beats, the recovery window, lives of the
 * data, generations, confirm numbers, messages, calls held and run again. The scripts are told in C here on purpose: the same rules written twice.
 *
 * Around that it is hostile on request: commands and answers take their time, connections break with commands in flight that run or don't,
 * messages get lost, the server goes away, comes back with its data, with an older copy or with none.
 */
#ifndef PAWL_SIM_MEMORY_STORE_H
#define PAWL_SIM_MEMORY_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/store.h"
#include "tests/sim/virtual_time.h"

#define MEMORY_LOCKS   6  /* named "0", "1", ... */
#define MEMORY_NODES   12 /* one after the other, the dead included */
#define MEMORY_PLACES  64 /* in one lock's queue */
#define MEMORY_CLAIMS  4  /* to one place */
#define MEMORY_NODE_MS 4000
#define MEMORY_BEAT_MS 500

/* Faults built into the store, each of which the oracle must see. */
enum memory_fault {
    MEMORY_SOUND,
    MEMORY_UNDO_BY_ID,    /* cancel does not look at the confirm number */
    MEMORY_REPEAT_UNDONE, /* a repeated acquire takes the lease under its own confirm number, so that its undo ends what others were told */
    MEMORY_NO_UNDO,       /* cancel leaves the grant */
    MEMORY_KEEP_PLACE,    /* cancel leaves the place */
    MEMORY_BARGE,         /* acquire does not look at the queue */
    MEMORY_LAST_FIRST,    /* the queue hands out its last place first */
    MEMORY_NO_WAKE,       /* nobody is poked */
    MEMORY_SHORT_TTL,     /* leases end early */
    MEMORY_TWO_HOLDERS,   /* acquire now and then does not see the holder */
    MEMORY_STALE_FENCE,   /* a new life does not raise the fence */
    MEMORY_STRANGER,      /* renew and release ask for no lease id */
    MEMORY_NEW_TOKEN,     /* a repeated acquire gets another token */
    MEMORY_RUN_TWICE,     /* attaching does not raise the generation: late copies run */
    MEMORY_LATE,          /* some calls are answered long after their deadline */
    MEMORY_LAST_CLAIM,    /* cancel takes the place away from those who still claim it */
    MEMORY_RIDE_PAST,     /* a release's rider is granted although it is not the head */
    MEMORY_NO_PUT_BACK,   /* leases are said to be over instead of being put back */
    MEMORY_FORGET_ALL,    /* a message is about a lease and not about one of its confirmations */
    MEMORY_NO_DELAY,      /* a lease's key lives no longer than the lease */
    MEMORY_BREAK_FREES,   /* a break leaves no delay */
    MEMORY_PUSHED,        /* a renewal does not look at the bound */
    MEMORY_FAULTS
};

enum memory_status {
    RAN_DIFFERS, /* nothing done: another life */
    RAN_GRANTED,
    RAN_REPEATED,
    RAN_HELD,
    RAN_TURN,
    RAN_DELAYED,
    RAN_FULL,
    RAN_RECOVERING,
    RAN_RENEWED,
    RAN_RELEASED,
    RAN_LOST,
    RAN_BROKEN,
    RAN_SHOWN,
    RAN_CANCELLED,
    RAN_PUT_BACK,
};

struct memory_run { /* one run of a call's script, whether or not its answer arrives */
    int64_t number, at_us;
    int node;
    enum store_op op;
    enum memory_status status;
    int lock;
    struct lease_id id, holder; /* holder: whose lease stood there before, if was_held */
    bool was_held, window;      /* window: it was open */
    uint64_t confirm;
    int64_t token, ttl_ms, ticket;
    int64_t asked_ms; /* the ttl that the call came with */
    bool again;       /* the lease had been made by an earlier run of the same call */
    bool undone;
    bool ghost; /* its connection has gone: nobody will read the answer */
};

struct memory_watch {
    void *arg;
    void (*ran)(void *arg, const struct memory_run *run, int64_t answer_us); /* right after it; the answer comes at answer_us */
    void (*lost)(void *arg, bool all_kept);                /* the data were replaced: kept, by an older copy, by nothing */
    void (*opened)(void *arg);                             /* a new life of the data was opened */
    void (*closed)(void *arg);                             /* its recovery window ended */
    void (*dropped)(void *arg, const struct lease_id *id); /* a script took a place away that no live node claims */
    void (*crowded)(void *arg, const struct lease_id *id); /* the oldest claim to its place was forgotten */
    void (*trouble)(void *arg, int node);                  /* the node is, or was until now, without its store; -1: every node */
};

struct memory_weather { /* how hostile; may change at any time. Chances are in 10,000. */
    int64_t slow_us;    /* the longest way of a command or answer */
    int64_t hang;       /* a command takes longer than any deadline */
    int64_t cut;        /* a connection breaks as a command is sent on it */
    int64_t deaf;       /* a message gets lost */
    int64_t late_us;    /* the longest way of a message, if that is longer */
    int64_t sick;       /* the server refuses a command, or answers oddly */
};

struct memory;

struct memory *memory_new(struct virtual_time *time, const struct memory_watch *watch, enum memory_fault fault);
void memory_free(struct memory *m);
struct memory_weather *memory_weather(struct memory *m);

/* A new node and its way to the store; returns its number, -1 when there are no more. */
int memory_node_start(struct memory *m, const struct store_events *events, int64_t timeout_ms, struct store **ret_store);
void memory_node_kill(struct memory *m, int node);              /* at once: nothing of it happens any more, but what it sent may run */
void memory_node_stall(struct memory *m, int node, int64_t us); /* stopped for a while: messages and answers wait for it */
int64_t memory_node_stalled_until_us(const struct memory *m, int node);
void memory_node_bury(struct memory *m, int node); /* a dead node's calls, and all it makes from here on, are answered as done or failed */
void memory_node_cut(struct memory *m, int node);  /* its connection breaks */
void memory_node_deafen(struct memory *m, int node); /* the connection for messages breaks */

enum memory_loss { MEMORY_KEPT, MEMORY_OLDER, MEMORY_EMPTY, MEMORY_FLUSHED };
void memory_snapshot(struct memory *m);                    /* what MEMORY_OLDER comes back with */
void memory_lose(struct memory *m, enum memory_loss loss); /* all but FLUSHED: the server restarts, all connections break */
void memory_away(struct memory *m, bool away);             /* no connection can be made; those there are broken */

/* What stands there now. */
struct memory_claim { /* one request that waits for a place */
    int node;
    int64_t life;
    uint64_t confirm;
};
struct memory_place {
    struct lease_id id;
    int64_t ticket;
    size_t claim_count;                        /* at least 1 */
    struct memory_claim claims[MEMORY_CLAIMS]; /* the newest first */
};
bool memory_holder(const struct memory *m, int lock, struct lease_id *ret_id, uint64_t *ret_confirm, int64_t *ret_left_us);
bool memory_delayed(const struct memory *m, int lock); /* nobody holds it, and nobody is granted it yet */
size_t memory_places(const struct memory *m, int lock, const struct memory_place **ret_places);
int64_t memory_life(const struct memory *m); /* what the life of a place is compared with */
bool memory_window_open(const struct memory *m);
bool memory_node_ready(const struct memory *m, int node);
bool memory_node_known(const struct memory *m, int node); /* its key is there */

/* The run that an answered call's result is from; NULL: none is known. */
const struct memory_run *memory_run_of(const struct memory *m, const struct store_call *call);
const char *memory_status_word(enum memory_status word);
const char *memory_fault_word(enum memory_fault fault);

#endif
