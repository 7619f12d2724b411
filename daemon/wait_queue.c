#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/wait_queue.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/name_hash.h"

#define HASH_NONFATAL_OOM 1
#define uthash_nonfatal_oom(element) ((element)->added = false)
#include <uthash.h>

struct wait_line {
    struct waiter *first, *last;
    struct heap_node look;
    UT_hash_handle hh;
    bool added;
    size_t name_len;
    char name[];
};

struct wait_queue {
    struct wait_line *by_name;
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
    HASH_ITER (hh, queue->by_name, line, next)
        remove_line(queue, line);
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
    line->added = true;
    HASH_ADD_KEYPTR(hh, queue->by_name, line->name, name_len, line);
    if (!line->added) {
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

/* Tickets rise: the place is nearly always the end. */
static void link_in(struct wait_line *line, struct waiter *waiter)
{
    struct waiter *at = line->last;

    while (at && before(waiter, at))
        at = at->earlier;
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

int wait_queue_add(struct wait_queue *queue, struct waiter *waiter, const char *name, size_t name_len)
{
    struct wait_line *line = wait_queue_line(queue, name, name_len);

    if (!line)
        line = make_line(queue, name, name_len);
    if (!line)
        return -1;
    waiter->line = line;
    link_in(line, waiter);
    queue->count++;
    return 0;
}

void wait_queue_remove(struct wait_queue *queue, struct waiter *waiter)
{
    struct wait_line *line = waiter->line;

    if (!line)
        return;
    link_out(line, waiter);
    waiter->line = NULL;
    queue->count--;
    if (!line->first)
        remove_line(queue, line);
}

void wait_queue_set_ticket(struct waiter *waiter, int64_t ticket)
{
    if (waiter->ticket == ticket)
        return;
    waiter->ticket = ticket;
    if (waiter->line) {
        link_out(waiter->line, waiter);
        link_in(waiter->line, waiter);
    }
}

struct waiter *wait_line_first(const struct wait_line *line)
{
    return line->first;
}

struct waiter *wait_line_find(const struct wait_line *line, const struct lease_id *id, const struct waiter *after)
{
    for (struct waiter *waiter = after ? after->later : line->first; waiter; waiter = waiter->later)
        if (strcmp(waiter->id.text, id->text) == 0)
            return waiter;
    return NULL;
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

    HASH_ITER (hh, queue->by_name, line, next)
        for (struct waiter *waiter = line->first; waiter; waiter = waiter->later)
            fn(waiter, arg);
}
