#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/name_hash.h"

/* Adding without memory leaves the element out; its handle tells (uthash clears it). */
#define HASH_NONFATAL_OOM 1

#include "daemon/wait_queue.h"

#define KEY_LEN (sizeof(struct wait_line *) + PAWL_LEASE_ID_LEN)
_Static_assert(offsetof(struct waiter, id) == offsetof(struct waiter, line) + sizeof(struct wait_line *), "the key has a gap");

struct wait_line {
    struct waiter *first, *last;
    struct heap_node look;
    UT_hash_handle hh;
    struct wait_queue *queue;
    size_t name_len;
    char name[];
};

struct wait_queue {
    struct wait_line *by_name;
    struct waiter *by_key; /* the first of each lease id in a line; its twins stand behind it */
    struct heap look;
    size_t count;
};

struct wait_queue *wait_queue_new(void)
{
    return calloc(1, sizeof(struct wait_queue));
}

static void remove_line(struct wait_queue *queue, struct wait_line *line)
{
    heap_remove(&queue->look, &line->look);
    HASH_DEL(queue->by_name, line);
    free(line);
}

void wait_queue_free(struct wait_queue *queue)
{
    struct wait_line *line, *next;

    if (!queue)
        return;
    HASH_ITER(hh, queue->by_name, line, next)
    remove_line(queue, line);
    HASH_CLEAR(by_key, queue->by_key);
    heap_close(&queue->look);
    free(queue);
}

struct wait_line *wait_queue_line(struct wait_queue *queue, const char *name, size_t name_len)
{
    struct wait_line *line = NULL;

    HASH_FIND(hh, queue->by_name, name, name_len, line);
    return line;
}

static struct wait_line *make_line(struct wait_queue *queue, const char *name, size_t name_len)
{
    struct wait_line *line = malloc(sizeof(*line) + name_len);

    if (!line)
        return NULL;
    memset(line, 0, sizeof(*line));
    memcpy(line->name, name, name_len);
    line->name_len = name_len;
    line->queue = queue;
    HASH_ADD_KEYPTR(hh, queue->by_name, line->name, name_len, line);
    if (!line->hh.tbl) {
        free(line);
        return NULL;
    }
    return line;
}

static bool before(const struct waiter *a, const struct waiter *b)
{
    if (a->ticket == 0)
        return false;
    return b->ticket == 0 || a->ticket < b->ticket;
}

static bool are_twins(const struct waiter *a, const struct waiter *b)
{
    return a && b && memcmp(a->id.text, b->id.text, PAWL_LEASE_ID_LEN) == 0;
}

static void link_behind(struct wait_line *line, struct waiter *waiter, struct waiter *at)
{
    waiter->earlier = at;
    waiter->later = at ? at->later : line->first;
    if (waiter->later)
        waiter->later->earlier = waiter;
    else
        line->last = waiter;
    if (at)
        at->later = waiter;
    else
        line->first = waiter;
}

/* Looks for its place, behind its equals, from `at` on (NULL: from the front): a crowd must not be walked through for each of its waiters. */
static void link_in_near(struct wait_line *line, struct waiter *waiter, struct waiter *at)
{
    struct waiter *next;

    while (at && before(waiter, at))
        at = at->earlier;
    while ((next = at ? at->later : line->first) != NULL && !before(waiter, next))
        at = next;
    link_behind(line, waiter, at);
}

static void link_out(struct wait_line *line, struct waiter *waiter)
{
    if (waiter->earlier)
        waiter->earlier->later = waiter->later;
    else
        line->first = waiter->later;
    if (waiter->later)
        waiter->later->earlier = waiter->earlier;
    else
        line->last = waiter->earlier;
    waiter->earlier = waiter->later = NULL;
}

struct waiter *wait_line_find(const struct wait_line *line, const struct lease_id *id, const struct waiter *after)
{
    struct waiter key, *found = NULL;

    if (after)
        return are_twins(after, after->later) ? after->later : NULL;
    key.line = (struct wait_line *)line;
    key.id = *id;
    HASH_FIND(by_key, line->queue->by_key, &key, KEY_LEN, found);
    return found;
}

static bool index_waiter(struct wait_queue *queue, struct waiter *waiter)
{
    HASH_ADD_KEYPTR(by_key, queue->by_key, waiter, KEY_LEN, waiter);
    return waiter->by_key.tbl != NULL;
}

int wait_queue_add(struct wait_queue *queue, struct waiter *waiter, const char *name, size_t name_len)
{
    struct wait_line *line = wait_queue_line(queue, name, name_len);
    struct waiter *twin = line ? wait_line_find(line, &waiter->id, NULL) : NULL;

    if (!line)
        line = make_line(queue, name, name_len);
    if (!line)
        return -1;
    waiter->line = line;
    if (twin) {
        while (wait_line_find(line, &waiter->id, twin))
            twin = twin->later;
        waiter->ticket = twin->ticket;
        link_behind(line, waiter, twin);
    } else if (index_waiter(queue, waiter)) {
        link_in_near(line, waiter, line->last); /* who comes anew is nearly always the last */
    } else {
        waiter->line = NULL;
        if (!line->first)
            remove_line(queue, line);
        return -1;
    }
    queue->count++;
    return 0;
}

/* Where the index pointed to this waiter it must point to its twin. Without memory for that the twin is found no more by its id: it still has its
 * place, and the looks at its line. */
static void unindex_waiter(struct wait_queue *queue, struct waiter *waiter)
{
    struct waiter *twin = wait_line_find(waiter->line, &waiter->id, waiter);

    if (wait_line_find(waiter->line, &waiter->id, NULL) != waiter)
        return;
    HASH_DELETE(by_key, queue->by_key, waiter);
    if (twin)
        (void)index_waiter(queue, twin);
}

void wait_queue_remove(struct wait_queue *queue, struct waiter *waiter)
{
    struct wait_line *line = waiter->line;

    if (!line)
        return;
    unindex_waiter(queue, waiter);
    link_out(line, waiter);
    waiter->line = NULL;
    queue->count--;
    if (!line->first)
        remove_line(queue, line);
}

void wait_queue_set_ticket(struct waiter *waiter, int64_t ticket)
{
    struct waiter *first = waiter->line ? wait_line_find(waiter->line, &waiter->id, NULL) : NULL, *last = first, *twin, *at;

    if (waiter->ticket == ticket)
        return;
    if (!first) {
        waiter->ticket = ticket;
        return;
    }
    while ((twin = wait_line_find(waiter->line, &waiter->id, last)) != NULL)
        last = twin;
    for (bool more = true; more; first = twin) { /* all twins move, and keep their order; the first may come to stand behind the last */
        more = first != last;
        twin = first->later;
        at = first->earlier; /* tickets are given in the order of coming: the place is nearly always the one it has */
        first->ticket = ticket;
        link_out(waiter->line, first);
        link_in_near(waiter->line, first, at);
    }
}

struct waiter *wait_line_first(const struct wait_line *line)
{
    return line->first;
}

int wait_line_look_at(struct wait_queue *queue, struct wait_line *line, int64_t at_us)
{
    return heap_set(&queue->look, &line->look, at_us);
}

int64_t wait_line_look_us(const struct wait_line *line)
{
    return line->look.place ? line->look.at_us : INT64_MAX;
}

struct wait_line *wait_queue_due(struct wait_queue *queue, int64_t now_us)
{
    struct heap_node *node = heap_first(&queue->look);

    if (!node || node->at_us > now_us)
        return NULL;
    heap_remove(&queue->look, node);
    return (struct wait_line *)((char *)node - offsetof(struct wait_line, look));
}

int64_t wait_queue_next_us(const struct wait_queue *queue)
{
    return heap_next_us(&queue->look);
}

size_t wait_queue_count(const struct wait_queue *queue)
{
    return queue->count;
}

void wait_queue_each(struct wait_queue *queue, void (*fn)(struct waiter *waiter, void *arg), void *arg)
{
    struct wait_line *line, *next;

    HASH_ITER(hh, queue->by_name, line, next)
    for (struct waiter *waiter = line->first; waiter; waiter = waiter->later)
        fn(waiter, arg);
}
