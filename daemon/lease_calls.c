#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/lease_calls.h"

#include <string.h>

#include "daemon/name_hash.h"

void lease_calls_init(struct lease_calls *set)
{
    for (size_t i = 0; i < LEASE_CALLS_BUCKETS; i++)
        set->buckets[i].next = set->buckets[i].previous = &set->buckets[i];
}

/* Of both, since they are the clients' to choose: many calls may have the one in common, or the other. */
static size_t bucket_of(const struct store_call *call)
{
    char both[PAWL_LEASE_ID_LEN + PAWL_NAME_MAX];

    memcpy(both, call->lease_id.text, PAWL_LEASE_ID_LEN);
    if (call->name_len > 0)
        memcpy(both + PAWL_LEASE_ID_LEN, call->name, call->name_len);
    return (size_t)(name_hash(both, PAWL_LEASE_ID_LEN + call->name_len) % LEASE_CALLS_BUCKETS);
}

static bool is_about_the_same(const struct store_call *a, const struct store_call *b)
{
    return strcmp(a->lease_id.text, b->lease_id.text) == 0 && a->name_len == b->name_len &&
           (a->name_len == 0 || memcmp(a->name, b->name, a->name_len) == 0);
}

static struct store_call *call_of(struct store_link *link)
{
    return (struct store_call *)((char *)link - offsetof(struct store_call, beside));
}

static struct store_call *first_in(const struct store_link *bucket, const struct store_call *about)
{
    for (struct store_link *link = bucket->next; link != bucket; link = link->next)
        if (is_about_the_same(call_of(link), about))
            return call_of(link);
    return NULL;
}

static void add_to(struct store_link *bucket, struct store_call *call)
{
    call->beside.next = bucket;
    call->beside.previous = bucket->previous;
    bucket->previous->next = &call->beside;
    bucket->previous = &call->beside;
}

void lease_calls_add(struct lease_calls *set, struct store_call *call)
{
    add_to(&set->buckets[bucket_of(call)], call);
}

bool lease_calls_add_first(struct lease_calls *set, struct store_call *call)
{
    struct store_link *bucket = &set->buckets[bucket_of(call)];

    if (first_in(bucket, call))
        return false;
    add_to(bucket, call);
    return true;
}

struct store_call *lease_calls_first(const struct lease_calls *set, const struct store_call *about)
{
    return first_in(&set->buckets[bucket_of(about)], about);
}

struct store_call *lease_calls_next(const struct lease_calls *set, const struct store_call *call)
{
    size_t i = call ? bucket_of(call) : 0;
    struct store_link *next = call ? call->beside.next : set->buckets[0].next;

    while (next == &set->buckets[i]) {
        if (++i == LEASE_CALLS_BUCKETS)
            return NULL;
        next = set->buckets[i].next;
    }
    return call_of(next);
}

void lease_calls_remove(struct store_call *call)
{
    call->beside.previous->next = call->beside.next;
    call->beside.next->previous = call->beside.previous;
    call->beside.next = call->beside.previous = NULL;
}
