#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <stdio.h>
#include <string.h>

#include "proto/renewals.h"

#define ID "8d0c3b3e-6f0f-4a50-9c1e-000000000001"

static struct renewals all;
static struct param_problem problem;

static int read_body(const char *body)
{
    return renewals_from_json(&all, body, strlen(body), &problem);
}

static void bad(const char *body, const char *sentence)
{
    ck_assert_msg(read_body(body) == -1, "taken: %s", body);
    ck_assert_msg(strstr(problem.message, sentence) == problem.message, "%s: '%s' and not '%s'", body, problem.message, sentence);
    ck_assert(!problem.no_memory);
}

START_TEST(a_list_is_read_in_its_order)
{
    ck_assert_int_eq(read_body("{\"leases\": [{\"name\": \"a/b\", \"lease_id\": \"" ID "\"}, {\"ttl_ms\": 5, \"lease_id\": \"" ID
                               "\", \"name\": \"c\"}], \"ttl_ms\": 7000}"),
                     0);
    ck_assert_uint_eq(all.count, 2);
    ck_assert_int_eq(all.ttl_ms, 7000);
    ck_assert_str_eq(all.leases[0].name, "a/b");
    ck_assert_uint_eq(all.leases[0].name_len, 3);
    ck_assert_int_eq(all.leases[0].ttl_ms, -1);
    ck_assert_str_eq(all.leases[1].name, "c");
    ck_assert_str_eq(all.leases[1].lease_id.text, ID);
    ck_assert_int_eq(all.leases[1].ttl_ms, 5);
    ck_assert_int_eq(read_body("{\"leases\": [{\"name\": \"c\", \"lease_id\": \"" ID "\"}]}"), 0);
    ck_assert_int_eq(all.ttl_ms, -1);
}
END_TEST

START_TEST(P9_the_list_has_a_bound)
{
    static char body[PAWL_RENEWALS_MAX * 80 + 200];

    for (int more = 0; more < 2; more++) {
        size_t len = (size_t)sprintf(body, "{\"leases\": [");
        for (int i = 0; i < PAWL_RENEWALS_MAX + more; i++)
            len += (size_t)sprintf(body + len, "%s{\"name\": \"n\", \"lease_id\": \"" ID "\"}", i ? "," : "");
        memcpy(body + len, "]}", 3);
        if (more) {
            bad(body, "leases: at most 256 in one call");
        } else {
            ck_assert_int_eq(read_body(body), 0);
            ck_assert_uint_eq(all.count, PAWL_RENEWALS_MAX);
        }
    }
}
END_TEST

START_TEST(a_typo_renews_nothing_and_the_message_says_where_it_is)
{
    bad("", "leases: required");
    bad("{}", "leases: required");
    bad("{\"leases\": []}", "leases: required");
    bad("{\"leases\": {}}", "leases: must be a list");
    bad("{\"leases\": [1]}", "leases[0]: must be an object");
    bad("{\"leases\": [{}]}", "leases[0].name: required");
    bad("{\"leases\": [{\"name\": \"a\"}]}", "leases[0].lease_id: required");
    bad("{\"leases\": [{\"name\": \"a\", \"lease_id\": \"" ID "\"}, {\"lease_id\": \"" ID "\"}]}", "leases[1].name: required");
    bad("{\"leases\": [{\"name\": \"a\", \"lease_id\": \"x\"}]}", "leases[0].lease_id: must be a UUID");
    bad("{\"leases\": [{\"name\": \"a\", \"lease_id\": 5}]}", "leases[0].lease_id: must be a string");
    bad("{\"leases\": [{\"name\": \"/a\", \"lease_id\": \"" ID "\"}]}", "leases[0].name: ");
    bad("{\"leases\": [{\"name\": null, \"lease_id\": \"" ID "\"}]}", "leases[0].name: must be a string");
    bad("{\"leases\": [{\"name\": \"a\", \"lease_id\": \"" ID "\", \"ttl_ms\": -1}]}", "leases[0].ttl_ms: must not be negative");
    bad("{\"leases\": [{\"name\": \"a\", \"lease_id\": \"" ID "\", \"ttl_ms\": 1.0}]}", "leases[0].ttl_ms: must be a whole number");
    bad("{\"leases\": [{\"name\": \"a\", \"lease_id\": \"" ID "\", \"ttl\": 5}]}", "leases[0]: has a field that is none of");
    bad("{\"leases\": [{\"name\": \"a\", \"lease_id\": \"" ID "\"}], \"ttl_ms\": \"5\"}", "ttl_ms: must be a whole number");
    bad("{\"leases\": [{\"name\": \"a\", \"lease_id\": \"" ID "\"}], \"owner\": \"x\"}", "this call takes leases and ttl_ms");
    bad("{\"leases\": [{\"name\": \"a\", \"name\": \"b\", \"lease_id\": \"" ID "\"}]}", "the body ");
    bad("[]", "the body must be a JSON object");
    bad("{\"leases\": [", "the body ");
    bad("ttl_ms=5", "the body looks like a form");
}
END_TEST

START_TEST(no_message_repeats_a_lease_id)
{
    ck_assert_int_eq(read_body("{\"leases\": [{\"name\": \"a\", \"" ID "\": \"lease_id\"}]}"), -1);
    ck_assert_ptr_null(strstr(problem.message, "8d0c"));
    ck_assert_int_eq(read_body("{\"" ID "\": 1}"), -1);
    ck_assert_ptr_null(strstr(problem.message, "8d0c"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("renewals");
    TCase *all_of_it = tcase_create("renewals");

    tcase_add_test(all_of_it, a_list_is_read_in_its_order);
    tcase_add_test(all_of_it, P9_the_list_has_a_bound);
    tcase_add_test(all_of_it, a_typo_renews_nothing_and_the_message_says_where_it_is);
    tcase_add_test(all_of_it, no_message_repeats_a_lease_id);
    suite_add_tcase(suite, all_of_it);
    return check_main(suite);
}
