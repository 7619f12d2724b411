/* The leases that this node vouches for: those it granted or renewed last, by lock name.
 *
 * It is not what decides who holds a lock (the store does); it is what this node knows to be true, so that leases can be put back after a loss,
 * a renewal can be answered while the store recovers, and a number can be published. One entry a lock, the one with the greatest token
 * seen, until its latest deadline. Pure: times come from the caller (microseconds of the daemon's clock).
 */
#ifndef PAWL_LEASE_TABLE_H
#define PAWL_LEASE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/heap.h"
#include "proto/lease_id.h"

struct lease_table;

struct lease {
    struct lease_id id;
    int64_t token;
    int64_t deadline_us;               /* not later than the store's own */
    int64_t granted_ms;                /* the store's time, opaque */
    int64_t granted_us;                /* when this node first knew of it */
    uint64_t confirm;                  /* the number that it stands under in the store */
    int64_t delay_ms;                  /* nobody is granted the lock for so long after it, unless it is released */
    int64_t most_us;                   /* renewals can't make it last longer; INT64_MAX: no bound */
    const char *name, *owner, *caller; /* caller: the name of the rule that it was granted by, "" without one */
    size_t name_len, owner_len, caller_len;
};

struct lease_table *lease_table_new(void);
void lease_table_free(struct lease_table *table); /* takes NULL */

/* Takes a lease in, or its new deadline. One with a lesser token than the entry there is ignored; a greater one replaces it. One that was given up already
 * (see below) is no more than a token that was seen. Strings are copied.
 * Returns 0, or -1 without memory (an older entry stays as it was). */
int lease_table_put(struct lease_table *table, const struct lease *lease) __attribute__((warn_unused_result));

/* The entry for this lock, if it is this lease's and its deadline has not passed; valid until the table changes. NULL otherwise. */
const struct lease *lease_table_find(struct lease_table *table, const char *name, size_t name_len, const struct lease_id *id,
                                     int64_t now_us);

/* The entry for this lock, whosever it is and also past its deadline; valid until the table changes. NULL: none. */
const struct lease *lease_table_at(struct lease_table *table, const char *name, size_t name_len);

void lease_table_drop(struct lease_table *table, const char *name, size_t name_len, const struct lease_id *id);

/* What stood under this number or a lesser one is given up: released, or another node's matter now. Drops the entry, unless its number is greater: it was
 * renewed since. What is not known yet, its answer being on its way, will not be taken in. */
void lease_table_give_up(struct lease_table *table, const char *name, size_t name_len, const struct lease_id *id, uint64_t confirm);
/* No answer is on its way any more: a call that is sent again keeps its number, and its answer is to be taken in. */
void lease_table_answers_lost(struct lease_table *table);

/* A greater token was seen at this lock: a lesser entry is history. */
void lease_table_see(struct lease_table *table, const char *name, size_t name_len, int64_t token);

/* A round over all leases there are now, such as putting them back: begin it, then take each in turn (NULL: the round is over). One that was taken may be
 * put at the end of the round again. Entries that come or go meanwhile are no trouble; what take returns is valid until the table changes. */
void lease_table_begin_round(struct lease_table *table);
const struct lease *lease_table_take(struct lease_table *table);
void lease_table_take_again(struct lease_table *table, const char *name, size_t name_len, const struct lease_id *id);

/* The entry whose deadline passed first, valid until the table changes: the next that lease_table_expire drops. NULL: none has. */
const struct lease *lease_table_due(const struct lease_table *table, int64_t now_us);

/* Calls `visit` for every entry, which must not change the table; a non-zero answer ends the walk. */
void lease_table_each(const struct lease_table *table, int (*visit)(void *arg, const struct lease *lease), void *arg);

/* Drops what has passed its deadline, at most `most` entries; returns how many. */
size_t lease_table_expire(struct lease_table *table, int64_t now_us, size_t most);
int64_t lease_table_next_us(const struct lease_table *table); /* the first deadline, INT64_MAX when empty */
size_t lease_table_count(const struct lease_table *table);

#endif
