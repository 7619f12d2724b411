/* The heap of deadlines: the first is always the earliest, a node knows its place, a moved or removed one leaves no trace (P9: every wait ends at
 * its own time). The random test runs against the slowest heap there is: an array in which everything is looked for. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "daemon/heap.h"
#include "tests/lib/dice.h"

static struct heap heap;

static void stop(void)
{
    heap_close(&heap);
}

static void put(struct heap_node *node, int64_t at_us)
{
    ck_assert_int_eq(heap_set(&heap, node, at_us), 0);
}

START_TEST(an_empty_heap_is_never_due)
{
    struct heap_node stranger = {.at_us = 7};

    ck_assert_ptr_null(heap_first(&heap));
    ck_assert(heap_next_us(&heap) == INT64_MAX);
    heap_remove(&heap, &stranger);
    ck_assert_int_eq(stranger.at_us, 7);
    ck_assert_uint_eq(heap.count, 0);
}
END_TEST

START_TEST(the_earliest_comes_first_whatever_the_order_of_entry)
{
    static const int64_t times[] = {50, INT64_MAX, 10, -3, 40, 10, INT64_MIN, 0, 30};
    enum { COUNT = sizeof(times) / sizeof(times[0]) };
    struct heap_node nodes[COUNT] = {{0}};
    int64_t last = INT64_MIN;

    for (size_t i = 0; i < COUNT; i++)
        put(&nodes[i], times[i]);
    for (size_t i = 0; i < COUNT; i++) {
        struct heap_node *first = heap_first(&heap);

        ck_assert(first->at_us == heap_next_us(&heap));
        ck_assert(first->at_us >= last);
        last = first->at_us;
        heap_remove(&heap, first);
        ck_assert_uint_eq(first->place, 0);
    }
    ck_assert(last == INT64_MAX);
    ck_assert_ptr_null(heap_first(&heap));
}
END_TEST

START_TEST(setting_again_moves_and_does_not_add)
{
    struct heap_node a = {0}, b = {0};

    put(&a, 10);
    put(&b, 20);
    put(&a, 30);
    ck_assert_uint_eq(heap.count, 2);
    ck_assert_ptr_eq(heap_first(&heap), &b);
    put(&a, 5);
    ck_assert_ptr_eq(heap_first(&heap), &a);
    put(&a, 5);
    ck_assert_ptr_eq(heap_first(&heap), &a);
    heap_remove(&heap, &a);
    heap_remove(&heap, &a);
    ck_assert_uint_eq(heap.count, 1);
    ck_assert_ptr_eq(heap_first(&heap), &b);
}
END_TEST

START_TEST(P9_memory_is_given_back_after_a_peak)
{
    enum { PEAK = 20000 };
    static struct heap_node nodes[PEAK];

    memset(nodes, 0, sizeof(nodes));
    for (int i = 0; i < PEAK; i++)
        put(&nodes[i], i % 977);
    ck_assert_uint_ge(heap.cap, PEAK);
    for (int i = 0; i < PEAK - 10; i++)
        heap_remove(&heap, &nodes[i]);
    ck_assert_uint_le(heap.cap, 2048);
    for (int i = PEAK - 10; i < PEAK; i++)
        ck_assert_ptr_eq(heap.nodes[nodes[i].place - 1], &nodes[i]);
}
END_TEST

/* ---- against an array ---- */

enum { COUNT = 300, STEPS = 20000 };
static struct heap_node nodes[COUNT];
static int64_t model[COUNT]; /* the time of each node, -1: not in the heap */

static int64_t earliest(size_t *ret_count)
{
    int64_t first = INT64_MAX;

    *ret_count = 0;
    for (int i = 0; i < COUNT; i++) {
        if (model[i] < 0)
            continue;
        (*ret_count)++;
        if (model[i] < first)
            first = model[i];
    }
    return first;
}

static void compare(const struct dice *dice, int step)
{
    size_t count;
    int64_t first = earliest(&count);

    DICE_ASSERT(dice, step, heap.count == count);
    DICE_ASSERT(dice, step, heap_next_us(&heap) == first);
    DICE_ASSERT(dice, step, (heap_first(&heap) == NULL) == (count == 0));
    for (int i = 0; i < COUNT; i++) {
        DICE_ASSERT(dice, step, (nodes[i].place != 0) == (model[i] >= 0));
        DICE_ASSERT(dice, step, model[i] < 0 || (heap.nodes[nodes[i].place - 1] == &nodes[i] && nodes[i].at_us == model[i]));
    }
}

START_TEST(random_steps_agree_with_an_array)
{
    struct dice dice;

    dice_init(&dice);
    memset(nodes, 0, sizeof(nodes));
    for (int i = 0; i < COUNT; i++)
        model[i] = -1;
    for (int step = 0; step < STEPS; step++) {
        unsigned i = dice_roll(&dice, COUNT), what = dice_roll(&dice, 10);

        if (what < 6) {
            model[i] = dice_roll(&dice, 50); /* few values: many are equal */
            put(&nodes[i], model[i]);
        } else if (what < 9) {
            model[i] = -1;
            heap_remove(&heap, &nodes[i]);
        } else if (heap_first(&heap)) {
            model[heap_first(&heap) - nodes] = -1;
            heap_remove(&heap, heap_first(&heap));
        }
        if (step % 16 == 0)
            compare(&dice, step);
    }
    compare(&dice, STEPS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("heap");
    TCase *tcase = tcase_create("deadlines");

    tcase_add_checked_fixture(tcase, NULL, stop);
    tcase_add_test(tcase, an_empty_heap_is_never_due);
    tcase_add_test(tcase, the_earliest_comes_first_whatever_the_order_of_entry);
    tcase_add_test(tcase, setting_again_moves_and_does_not_add);
    tcase_add_test(tcase, P9_memory_is_given_back_after_a_peak);
    tcase_add_test(tcase, random_steps_agree_with_an_array);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
