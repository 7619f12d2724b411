/* The waiters of this node, by lock and in the order of their tickets.
 *
 * The order that counts is the store's, across all nodes; this is the node's own part of it: whom a message is for, and whose turn it may be when
 * a lease runs out. Each lock with waiters has a line, and each line a time to look again. Pure: no clock, no store.
 */
#ifndef PAWL_WAIT_QUEUE_H
#define PAWL_WAIT_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include <uthash.h>

#include "daemon/heap.h"
#include "proto/lease_id.h"

struct wait_line;
struct wait_queue;

struct waiter {             /* embedded in what waits; zero it before the first use */
    struct wait_line *line; /* NULL: not waiting */
    struct lease_id id;     /* line and id together are its key: nothing may come between them */
    int64_t ticket;         /* 0: none yet; such waiters stand last, in the order they came */
    struct waiter *earlier, *later;
    UT_hash_handle by_key;
};

struct wait_queue *wait_queue_new(void);
void wait_queue_free(struct wait_queue *queue); /* takes NULL; the waiters are their owners' */

/* waiter->id and ticket are set by the caller. One whose lease id waits in this line already gets that one's ticket and stands right behind it:
 * twins stay side by side. Returns -1 without memory; nothing changed then. */
int wait_queue_add(struct wait_queue *queue, struct waiter *waiter, const char *name, size_t name_len) __attribute__((warn_unused_result));
void wait_queue_remove(struct wait_queue *queue, struct waiter *waiter); /* of one that does not wait: nothing */
void wait_queue_set_ticket(struct waiter *waiter, int64_t ticket);       /* its twins' too */

struct wait_line *wait_queue_line(struct wait_queue *queue, const char *name, size_t name_len); /* NULL: nobody waits for it here */
struct waiter *wait_line_first(const struct wait_line *line);
/* The first waiter of the line with this lease id, or, given one, the next twin behind it; NULL when there is none. */
struct waiter *wait_line_find(const struct wait_line *line, const struct lease_id *id, const struct waiter *after);

/* When to look at the line again. Setting it again moves it. */
int wait_line_look_at(struct wait_queue *queue, struct wait_line *line, int64_t at_us) __attribute__((warn_unused_result));
int64_t wait_line_look_us(const struct wait_line *line);                    /* INT64_MAX: never */
struct wait_line *wait_queue_due(struct wait_queue *queue, int64_t now_us); /* one whose time has come (it is unset then), NULL: none */
int64_t wait_queue_next_us(const struct wait_queue *queue);

size_t wait_queue_count(const struct wait_queue *queue); /* waiters in all */
/* Calls fn on each waiter; fn must not add or remove any. */
void wait_queue_each(struct wait_queue *queue, void (*fn)(struct waiter *waiter, void *arg), void *arg);

#endif
