#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/lease_table.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/name_hash.h"

#define HASH_NONFATAL_OOM            1
#define uthash_nonfatal_oom(element) ((element)->added = false)
#include <uthash.h>

struct entry {
    struct lease lease;
    struct heap_node due;
    TAILQ_ENTRY(entry) link;
    bool in_round; /* on the list of those still to be taken */
    UT_hash_handle hh;
    bool added;
    char text[]; /* name, owner, caller */
};

TAILQ_HEAD(entry_list, entry);

/* Together more than leases have an answer on its way, as a rule, also when a burst waits for its turn. One that is crowded out may stay in the table for its
 * ttl: it is the oldest of its set. */
#define GIVEN_UP_SETS 2048
#define GIVEN_UP_WAYS 8

struct given_up { /* of this lease, whatever stands under this number or a lesser one */
    uint64_t confirm;
    struct lease_id id;
    unsigned since; /* lease_table.answers_lost then: what was given up before an answer was last lost counts no more */
};

struct lease_table {
    struct entry *by_name;
    struct heap due;
    struct entry_list todo, rest;                           /* every entry is on one of them */
    unsigned answers_lost;                                  /* how often, and one */
    struct given_up given_up[GIVEN_UP_SETS][GIVEN_UP_WAYS]; /* by the id's hash */
};

struct lease_table *lease_table_new(void)
{
    struct lease_table *table = calloc(1, sizeof(*table));

    if (table) {
        TAILQ_INIT(&table->todo);
        TAILQ_INIT(&table->rest);
        table->answers_lost = 1;
    }
    return table;
}

static void move(struct lease_table *table, struct entry *entry, bool in_round)
{
    TAILQ_REMOVE(entry->in_round ? &table->todo : &table->rest, entry, link);
    TAILQ_INSERT_TAIL(in_round ? &table->todo : &table->rest, entry, link);
    entry->in_round = in_round;
}

static void remove_entry(struct lease_table *table, struct entry *entry)
{
    heap_remove(&table->due, &entry->due);
    TAILQ_REMOVE(entry->in_round ? &table->todo : &table->rest, entry, link);
    HASH_DEL(table->by_name, entry);
    free(entry);
}

void lease_table_free(struct lease_table *table)
{
    struct entry *entry, *next;

    if (!table)
        return;
    HASH_ITER(hh, table->by_name, entry, next)
    remove_entry(table, entry);
    heap_close(&table->due);
    free(table);
}

static struct entry *find(struct lease_table *table, const char *name, size_t name_len)
{
    struct entry *entry = NULL;

    HASH_FIND(hh, table->by_name, name, name_len, entry);
    return entry;
}

static struct entry *entry_new(const struct lease *lease)
{
    struct entry *entry = malloc(sizeof(*entry) + lease->name_len + lease->owner_len + lease->caller_len);

    if (!entry)
        return NULL;
    memset(entry, 0, sizeof(*entry));
    entry->lease = *lease;
    memcpy(entry->text, lease->name, lease->name_len);
    memcpy(entry->text + lease->name_len, lease->owner, lease->owner_len);
    if (lease->caller_len > 0)
        memcpy(entry->text + lease->name_len + lease->owner_len, lease->caller, lease->caller_len);
    entry->lease.name = entry->text;
    entry->lease.owner = entry->text + lease->name_len;
    entry->lease.caller = entry->text + lease->name_len + lease->owner_len;
    return entry;
}

/* Where it stands, or should: then the slot's id is another, or it is of no use any more. */
static struct given_up *given_up(struct lease_table *table, const struct lease_id *id)
{
    struct given_up *set = table->given_up[name_hash(id->text, PAWL_LEASE_ID_LEN) % GIVEN_UP_SETS], *worst = set;

    for (struct given_up *slot = set; slot < set + GIVEN_UP_WAYS; slot++) {
        bool counts = slot->since == table->answers_lost, worst_counts = worst->since == table->answers_lost;
        if (counts && strcmp(slot->id.text, id->text) == 0)
            return slot;
        if (counts == worst_counts ? slot->confirm < worst->confirm : !counts)
            worst = slot;
    }
    return worst;
}

static bool was_given_up(struct lease_table *table, const struct lease *lease)
{
    const struct given_up *slot = given_up(table, &lease->id);

    return lease->id.text[0] && slot->since == table->answers_lost && lease->confirm <= slot->confirm &&
           strcmp(slot->id.text, lease->id.text) == 0;
}

int lease_table_put(struct lease_table *table, const struct lease *lease)
{
    struct entry *there = find(table, lease->name, lease->name_len), *entry;

    if (was_given_up(table, lease)) {
        lease_table_see(table, lease->name, lease->name_len, lease->token);
        return 0;
    }
    if (there && there->lease.token > lease->token)
        return 0;
    if (there && there->lease.token == lease->token && strcmp(there->lease.id.text, lease->id.text) == 0) {
        there->lease.deadline_us = lease->deadline_us;
        there->lease.confirm = lease->confirm;
        if (lease->most_us < there->lease.most_us)
            there->lease.most_us = lease->most_us;
        return heap_set(&table->due, &there->due, lease->deadline_us);
    }
    entry = entry_new(lease);
    if (!entry || heap_set(&table->due, &entry->due, lease->deadline_us) != 0) {
        free(entry);
        return -1;
    }
    entry->added = true;
    HASH_ADD_KEYPTR(hh, table->by_name, entry->lease.name, entry->lease.name_len, entry);
    if (!entry->added) {
        heap_remove(&table->due, &entry->due);
        free(entry);
        return -1;
    }
    TAILQ_INSERT_TAIL(&table->rest, entry, link);
    if (there) /* only now: without memory the older one has to stay */
        remove_entry(table, there);
    return 0;
}

const struct lease *lease_table_find(struct lease_table *table, const char *name, size_t name_len, const struct lease_id *id,
                                     int64_t now_us)
{
    const struct entry *entry = find(table, name, name_len);

    if (!entry || entry->lease.deadline_us <= now_us || strcmp(entry->lease.id.text, id->text) != 0)
        return NULL;
    return &entry->lease;
}

const struct lease *lease_table_at(struct lease_table *table, const char *name, size_t name_len)
{
    const struct entry *entry = find(table, name, name_len);

    return entry ? &entry->lease : NULL;
}

void lease_table_drop(struct lease_table *table, const char *name, size_t name_len, const struct lease_id *id)
{
    struct entry *entry = find(table, name, name_len);

    if (entry && strcmp(entry->lease.id.text, id->text) == 0)
        remove_entry(table, entry);
}

void lease_table_give_up(struct lease_table *table, const char *name, size_t name_len, const struct lease_id *id, uint64_t confirm)
{
    struct entry *entry = find(table, name, name_len);
    bool known = entry && strcmp(entry->lease.id.text, id->text) == 0;

    if (known && entry->lease.confirm > confirm)
        return;
    if (!known || entry->lease.confirm < confirm)
        *given_up(table, id) = (struct given_up){.confirm = confirm, .id = *id, .since = table->answers_lost};
    if (known)
        remove_entry(table, entry);
}

void lease_table_answers_lost(struct lease_table *table)
{
    table->answers_lost++;
}

void lease_table_see(struct lease_table *table, const char *name, size_t name_len, int64_t token)
{
    struct entry *entry = find(table, name, name_len);

    if (entry && entry->lease.token < token)
        remove_entry(table, entry);
}

void lease_table_begin_round(struct lease_table *table)
{
    struct entry *entry;

    TAILQ_FOREACH(entry, &table->rest, link)
    entry->in_round = true;
    TAILQ_CONCAT(&table->todo, &table->rest, link);
}

const struct lease *lease_table_take(struct lease_table *table)
{
    struct entry *entry = TAILQ_FIRST(&table->todo);

    if (!entry)
        return NULL;
    move(table, entry, false);
    return &entry->lease;
}

void lease_table_take_again(struct lease_table *table, const char *name, size_t name_len, const struct lease_id *id)
{
    struct entry *entry = find(table, name, name_len);

    if (entry && strcmp(entry->lease.id.text, id->text) == 0)
        move(table, entry, true);
}

const struct lease *lease_table_due(const struct lease_table *table, int64_t now_us)
{
    if (heap_next_us(&table->due) > now_us)
        return NULL;
    return &((const struct entry *)((const char *)heap_first(&table->due) - offsetof(struct entry, due)))->lease;
}

void lease_table_each(const struct lease_table *table, int (*visit)(void *arg, const struct lease *lease), void *arg)
{
    for (const struct entry *entry = table->by_name; entry; entry = entry->hh.next)
        if (visit(arg, &entry->lease) != 0)
            return;
}

size_t lease_table_expire(struct lease_table *table, int64_t now_us, size_t most)
{
    size_t n = 0;

    while (n < most && heap_next_us(&table->due) <= now_us) {
        struct heap_node *node = heap_first(&table->due);
        remove_entry(table, (struct entry *)((char *)node - offsetof(struct entry, due)));
        n++;
    }
    return n;
}

int64_t lease_table_next_us(const struct lease_table *table)
{
    return heap_next_us(&table->due);
}

size_t lease_table_count(const struct lease_table *table)
{
    return HASH_COUNT(table->by_name);
}
