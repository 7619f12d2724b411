/* Calls found by their lease: a lease id and a name, of which many calls may have either in common. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <stdio.h>
#include <string.h>

#include "daemon/lease_calls.h"

enum { CALLS = 3000 };

static struct lease_calls set;
static struct store_call calls[CALLS];
static char names[CALLS][24];
static int made;

static void start(void)
{
    lease_calls_init(&set);
    memset(calls, 0, sizeof(calls));
    made = 0;
}

static struct store_call *about(int id, int name)
{
    struct store_call *call = &calls[made];

    call->name = names[made];
    call->name_len = (size_t)snprintf(names[made], sizeof(names[made]), "lock/%d", name);
    snprintf(call->lease_id.text, sizeof(call->lease_id.text), "%08x-0000-4000-8000-000000000000", (unsigned)id);
    made++;
    return call;
}

static struct store_call *added(int id, int name)
{
    struct store_call *call = about(id, name);

    lease_calls_add(&set, call);
    return call;
}

static void expect_first(int id, int name, const struct store_call *wanted)
{
    ck_assert_ptr_eq(lease_calls_first(&set, about(id, name)), wanted);
    made--;
}

START_TEST(the_one_that_came_first_is_found_and_then_the_next)
{
    struct store_call *a = added(1, 1), *b = added(1, 1), *c = added(1, 1);

    expect_first(1, 1, a);
    lease_calls_remove(b);
    ck_assert(!lease_calls_has(b) && lease_calls_has(a));
    lease_calls_remove(a);
    expect_first(1, 1, c);
    lease_calls_add(&set, a);
    expect_first(1, 1, c);
    lease_calls_remove(c);
    expect_first(1, 1, a);
    lease_calls_remove(a);
    expect_first(1, 1, NULL);
    ck_assert_ptr_null(lease_calls_next(&set, NULL));
}
END_TEST

START_TEST(one_id_on_two_locks_is_two_leases_and_so_are_two_ids_on_one)
{
    struct store_call *a = added(1, 1), *b = added(1, 2), *c = added(2, 1);

    expect_first(1, 1, a);
    expect_first(1, 2, b);
    expect_first(2, 1, c);
    expect_first(2, 2, NULL);
}
END_TEST

START_TEST(only_the_first_is_added_where_one_at_a_time_is_wanted)
{
    struct store_call *a = about(1, 1), *b = about(1, 1), *c = about(1, 2);

    ck_assert(lease_calls_add_first(&set, a));
    ck_assert(!lease_calls_add_first(&set, b));
    ck_assert(!lease_calls_has(b));
    ck_assert(lease_calls_add_first(&set, c));
    lease_calls_remove(a);
    ck_assert(lease_calls_add_first(&set, b));
    expect_first(1, 1, b);
}
END_TEST

START_TEST(all_are_met_once_also_when_they_are_taken_out_meanwhile)
{
    size_t met = 0, left = 0;
    struct store_call *next;

    for (int i = 0; i < CALLS - 1; i++)
        (void)added(i / 3, i % 3 == 2);
    for (struct store_call *call = lease_calls_next(&set, NULL); call; call = next) {
        next = lease_calls_next(&set, call);
        ck_assert(lease_calls_has(call));
        if (met++ % 2)
            lease_calls_remove(call);
    }
    ck_assert_uint_eq(met, CALLS - 1);
    for (struct store_call *call = lease_calls_next(&set, NULL); call; call = lease_calls_next(&set, call))
        left++;
    ck_assert_uint_eq(left, (CALLS - 1 + 1) / 2);
    for (int i = 0; i < CALLS - 1; i++)
        if (lease_calls_has(&calls[i]))
            lease_calls_remove(&calls[i]);
    ck_assert_ptr_null(lease_calls_next(&set, NULL));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lease_calls");
    TCase *tc = tcase_create("lease_calls");

    tcase_add_checked_fixture(tc, start, NULL);
    tcase_add_test(tc, the_one_that_came_first_is_found_and_then_the_next);
    tcase_add_test(tc, one_id_on_two_locks_is_two_leases_and_so_are_two_ids_on_one);
    tcase_add_test(tc, only_the_first_is_added_where_one_at_a_time_is_wanted);
    tcase_add_test(tc, all_are_met_once_also_when_they_are_taken_out_meanwhile);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
