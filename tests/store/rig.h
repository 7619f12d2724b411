/* What the store's tests stand on: one Redis, one event loop, up to four nodes (stores) on it, and calls that are submitted and waited for the way the
 * broker would.
 *
 * A test asks (ask, submit, EXPECT), or uses one of the short forms (acquire, queue_up, ...) which wait for the answer. Lease ids are written as one
 * hex digit. When a test ends, rig_stop wants every call answered exactly once and no lock key without an end (C09).
 */
#ifndef PAWL_TESTS_STORE_RIG_H
#define PAWL_TESTS_STORE_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <check.h>

#include "daemon/redis_store.h"
#include "daemon/store.h"
#include "tests/lib/redis_server.h"

#define TTL_MS     30000 /* of a lease whose end no test waits for */
#define TIMEOUT_MS 1000  /* of a store call */
#define SLACK_MS   900   /* what a loaded machine may add; less than a second time-out would */
#define WINDOW_MS  3000  /* of nodes whose window no test waits for */
#define PREFIX     "t:"

struct note {  /* a message that a node got */
    char kind; /* 'w': wake, 'f': forget, 'b': broken */
    struct lease_id id;
    uint64_t confirm; /* of a forget or a broken */
    char name[PAWL_NAME_MAX + 1];
};

struct node {
    struct redis_store *redis; /* NULL: none */
    struct store *store;
    int attached, detached, closed, missed; /* events so far */
    int answered;                           /* round trips measured */
    bool new_life, window_open;             /* of the latest `attached` */
    struct note notes[64];
    size_t note_count;
    struct asked *on_detached; /* submitted from inside the event, once */
    uint64_t confirm;
};

struct asked { /* a call, and what became of it */
    struct store_call call;
    struct node *node;
    int answers;
    int place; /* of its answer among all answers */
    int64_t submitted_us, answered_us;
    char name[PAWL_NAME_MAX + 1], owner[PAWL_OWNER_MAX + 1];
    char listed[8192]; /* the locks of a list: "name:owner:token " each */
    int listed_count;
};

extern struct redis_server redis;
extern bool rig_allow_eviction;              /* of nodes made from now on; rig_start sets it back */
extern const char *const *rig_redis_options; /* of servers started from now on; the same */

void rig_make_folder(void);
void rig_remove_folder(void);
void rig_start(void);
void rig_start_without_redis(void);
void rig_stop(void);
/* Redis again after redis_server_kill, from its dump if there is one. */
void rig_restart_redis(void);

/* A node with this window; it has not attached yet. */
struct node *rig_node(int64_t window_ms);
/* One that has attached and hears its messages. When it was the one to open the life of the data, the window is closed at once. */
struct node *rig_ready_node(void);
void node_stop(struct node *node); /* as a pawld that ends: no clean-up in the store */
bool node_is_ready(const struct node *node);
bool node_sees_window(const struct node *node);
const char *node_problem(const struct node *node);
const char *node_role(const struct node *node);
size_t node_pending(const struct node *node); /* calls and beats on their way */
int64_t node_fence(const struct node *node);
/* Whether this message came; each is taken once. All that was published before the call has arrived. */
bool node_took(struct node *node, char kind, char id, const char *name);
bool node_forgot(struct node *node, char id, const char *name, uint64_t confirm);      /* the same for a forget with this number */
bool node_took_broken(struct node *node, char id, const char *name, uint64_t confirm); /* and for a broken */
bool node_heard_nothing(struct node *node);

int64_t now_us(void);
void turn(void); /* of the event loop; waits a few ms for something to happen */
#define RUN_UNTIL(condition, ms)                                                                                                           \
    do {                                                                                                                                   \
        for (int64_t run_end = now_us() + (int64_t)(ms)*1000; !(condition); turn())                                                        \
            ck_assert_msg(now_us() < run_end, "%s:%d: did not come in time: %s", __FILE__, __LINE__, #condition);                          \
    } while (0)

struct lease_id id_of(char digit);
struct asked *ask(struct node *node, enum store_op op, const char *name, char id); /* filled with defaults; not submitted */
struct asked *submit(struct asked *asked);
enum store_result answer(struct asked *asked); /* runs the loop until it is there */
const char *result_name(enum store_result result);
#define EXPECT(asked, wanted) expect_at((asked), (wanted), __FILE__, __LINE__)
struct asked *expect_at(struct asked *asked, enum store_result wanted, const char *file, int line);

/* Submitted and answered: */
struct asked *acquire(struct node *node, const char *name, char id); /* takes no place */
/* Takes one. Asked again by the same node it is the same request, as a waiter that was woken is, until it got the lock. */
struct asked *queue_up(struct node *node, const char *name, char id);
struct asked *queue_up_anew(struct node *node, const char *name, char id); /* another request: a twin of the first */
struct asked *renew(struct node *node, const char *name, char id, int64_t ttl_ms);
struct asked *renew_known(struct node *node, const struct asked *grant, int64_t ttl_ms); /* as a node whose table has the lease */
struct asked *put_back(struct node *node, const struct asked *grant,
                       int64_t left_ms); /* under the number that the answer to the grant told */
struct asked *release(struct node *node, const char *name, char id);
struct asked *release_known(struct node *node, const struct asked *grant);
struct asked *check(struct node *node, const char *name, int64_t token);
struct asked *break_lock(struct node *node, const char *name);
struct asked *inspect(struct node *node, const char *name, char id); /* '\0': of no waiter */
struct asked *list(struct node *node, const char *prefix);
struct asked *cancel(struct node *node, const struct asked *acquired); /* what that acquire did: grant and place */
struct asked *leave(struct node *node, const char *name, char id);     /* the place alone */
/* Granted, or the test fails. */
struct asked *take(struct node *node, const char *name, char id);
void forget_asked(void); /* all of them, which must be answered; for tests that ask very often */

/* Opens a window that no beat closes, and closes it, behind the nodes' backs: scripts obey at once, nodes learn it by their next beat. */
void hold_window_open(void);
void close_window(void);
/* Takes all data away and waits until the nodes have attached to the new life; the window is then held open. */
void lose_everything(void);

const char *key(const char *kind, const char *name); /* "lock", "queue", "waiters" of a lock; valid for four calls */
const char *keys_left(void); /* the kinds of all keys there are, sorted: "fence incarnation node" when nothing is left behind */
int64_t stored_fence(void);
int64_t lock_pttl(const char *name);
void lock_is_foreign(void); /* this test puts a key without an end at a lock's name */

#endif
