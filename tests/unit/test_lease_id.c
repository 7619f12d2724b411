/* Lease ids: fresh ones differ, either case reads as one id, nothing else reads at all (P4). */
#include "tests/lib/check_main.h"

#include <string.h>

#include "proto/lease_id.h"

START_TEST(P4_fresh_ids_are_random_uuids_that_differ)
{
    enum { COUNT = 256 };
    static struct lease_id ids[COUNT];
    struct lease_id back;

    for (int i = 0; i < COUNT; i++) {
        lease_id_generate(&ids[i]);
        ck_assert_uint_eq(strlen(ids[i].text), PAWL_LEASE_ID_LEN);
        ck_assert_int_eq(lease_id_parse(ids[i].text, PAWL_LEASE_ID_LEN, &back), 0);
        ck_assert_str_eq(back.text, ids[i].text); /* lower case already */
        ck_assert_int_eq(ids[i].text[14], '4');   /* version 4: nothing of the host or the clock in it */
        ck_assert(strchr("89ab", ids[i].text[19]) != NULL);
        for (int other = 0; other < i; other++)
            ck_assert_str_ne(ids[i].text, ids[other].text);
    }
}
END_TEST

START_TEST(either_case_is_held_in_lower_case)
{
    struct lease_id id;

    ck_assert_int_eq(lease_id_parse("0123ABCD-89ef-4Aef-8ABC-FEDCBA987654", 36, &id), 0);
    ck_assert_str_eq(id.text, "0123abcd-89ef-4aef-8abc-fedcba987654");
    ck_assert_int_eq(lease_id_parse("00000000-0000-0000-0000-000000000001 and more", 36, &id), 0);
    ck_assert_str_eq(id.text, "00000000-0000-0000-0000-000000000001");
    ck_assert_int_eq(lease_id_parse("ffffffff-ffff-ffff-ffff-ffffffffffff", 36, &id), 0);
}
END_TEST

START_TEST(what_is_no_uuid_is_refused_and_changes_nothing)
{
    static const struct {
        const char *text;
        size_t len;
    } bad[] = {
        {"", 0},
        {"00000000-0000-0000-0000-000000000000", 36},
        {"0123abcd-89ef-4aef-8abc-fedcba98765", 35},
        {"0123abcd-89ef-4aef-8abc-fedcba9876543", 37},
        {"0123abcd89ef-4aef-8abc-fedcba9876543", 36},
        {"0123abcd-89ef-4aef-8abc_fedcba987654", 36},
        {"0123abcd089ef-4aef-8abc-fedcba987654", 36},
        {"0123abcg-89ef-4aef-8abc-fedcba987654", 36},
        {"0123abc@-89ef-4aef-8abc-fedcba987654", 36},
        {"0123abcG-89ef-4aef-8abc-fedcba987654", 36},
        {"0123abc`-89ef-4aef-8abc-fedcba987654", 36},
        {"0123abc/-89ef-4aef-8abc-fedcba987654", 36},
        {"0123abc:-89ef-4aef-8abc-fedcba987654", 36},
        {"0123abc--89ef-4aef-8abc-fedcba987654", 36},
        {" 123abcd-89ef-4aef-8abc-fedcba987654", 36},
        {"{123abcd-89ef-4aef-8abc-fedcba98765}", 36},
        {"0123abcd-89ef-4aef-8abc-fedcba98765\0", 36},
        {"\xff"
         "123abcd-89ef-4aef-8abc-fedcba987654",
         36},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct lease_id id = {"untouched"};

        ck_assert_msg(lease_id_parse(bad[i].text, bad[i].len, &id) == -1, "row %zu: %s", i, bad[i].text);
        ck_assert_str_eq(id.text, "untouched");
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lease_id");
    TCase *tcase = tcase_create("ids");

    tcase_add_test(tcase, P4_fresh_ids_are_random_uuids_that_differ);
    tcase_add_test(tcase, either_case_is_held_in_lower_case);
    tcase_add_test(tcase, what_is_no_uuid_is_refused_and_changes_nothing);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
