#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/heap.h"

#include <stdlib.h>

static void set(struct heap *heap, size_t i, struct heap_node *node)
{
    heap->nodes[i] = node;
    node->place = i + 1;
}

static void sift_up(struct heap *heap, size_t i)
{
    struct heap_node *node = heap->nodes[i];

    while (i > 0 && heap->nodes[(i - 1) / 2]->at_us > node->at_us) {
        set(heap, i, heap->nodes[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    set(heap, i, node);
}

static void sift_down(struct heap *heap, size_t i)
{
    struct heap_node *node = heap->nodes[i];

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && heap->nodes[child + 1]->at_us < heap->nodes[child]->at_us)
            child++;
        if (heap->nodes[child]->at_us >= node->at_us)
            break;
        set(heap, i, heap->nodes[child]);
        i = child;
    }
    set(heap, i, node);
}

static void settle(struct heap *heap, size_t i)
{
    struct heap_node *node = heap->nodes[i];

    sift_up(heap, i);
    sift_down(heap, node->place - 1);
}

int heap_set(struct heap *heap, struct heap_node *node, int64_t at_us)
{
    if (node->place == 0) {
        if (heap->count == heap->cap) {
            size_t cap = heap->cap ? heap->cap * 2 : 64;
            struct heap_node **grown = realloc(heap->nodes, cap * sizeof(struct heap_node *));
            if (!grown)
                return -1;
            heap->nodes = grown;
            heap->cap = cap;
        }
        set(heap, heap->count++, node);
    }
    node->at_us = at_us;
    settle(heap, node->place - 1);
    return 0;
}

/* Gives memory back after a peak. */
static void shrink(struct heap *heap)
{
    if (heap->cap > 1024 && heap->count < heap->cap / 4) {
        struct heap_node **less = realloc(heap->nodes, heap->cap / 2 * sizeof(struct heap_node *));
        if (less) {
            heap->nodes = less;
            heap->cap /= 2;
        }
    }
}

void heap_remove(struct heap *heap, struct heap_node *node)
{
    size_t i = node->place;

    if (i == 0)
        return;
    i--;
    node->place = 0;
    heap->count--;
    if (i < heap->count) {
        set(heap, i, heap->nodes[heap->count]);
        settle(heap, i);
    }
    shrink(heap);
}

struct heap_node *heap_first(const struct heap *heap)
{
    return heap->count ? heap->nodes[0] : NULL;
}

int64_t heap_next_us(const struct heap *heap)
{
    return heap->count ? heap->nodes[0]->at_us : INT64_MAX;
}

void heap_close(struct heap *heap)
{
    free(heap->nodes);
    heap->nodes = NULL;
    heap->count = heap->cap = 0;
}
