/* A binary heap of deadlines. Elements are embedded in what they belong to and know their place, so one is removed or moved in O(log n).
 * Pure: no clock, no library. */
#ifndef PAWL_HEAP_H
#define PAWL_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct heap_node {
    int64_t at_us;
    size_t place; /* 0: in no heap; else index + 1 */
};

struct heap {
    struct heap_node **nodes;
    size_t count, cap;
};

void heap_close(struct heap *heap); /* the nodes are their owners' */

/* Puts the node in, or moves it, to fall due at `at_us`. Returns -1 without memory (only when it was in no heap; nothing changed). */
int heap_set(struct heap *heap, struct heap_node *node, int64_t at_us) __attribute__((warn_unused_result));
void heap_remove(struct heap *heap, struct heap_node *node); /* of one that is in no heap: nothing */
struct heap_node *heap_first(const struct heap *heap);       /* NULL when empty */
int64_t heap_next_us(const struct heap *heap);               /* INT64_MAX when empty */

#endif
