/* The list of errors: each row answers, codes are distinct, and nothing outside the list reads as success. */
#include "tests/lib/check_main.h"

#include <ctype.h>
#include <string.h>

#include "proto/errors.h"

START_TEST(ok_is_200_and_has_nothing_to_say)
{
    ck_assert_int_eq(pawl_error_status(PAWL_OK), 200);
    ck_assert_str_eq(pawl_error_wire(PAWL_OK), "ok");
    ck_assert_str_eq(pawl_error_text(PAWL_OK), "");
}
END_TEST

START_TEST(rows_are_what_the_api_documents)
{
    static const struct {
        enum pawl_error error;
        int status;
        const char *wire;
    } api[] = {
        {PAWL_E_BAD_REQUEST, 400, "bad_request"},
        {PAWL_E_UNAUTHORIZED, 401, "unauthorized"},
        {PAWL_E_FORBIDDEN, 403, "forbidden"},
        {PAWL_E_NOT_FOUND, 404, "not_found"},
        {PAWL_E_NOT_HELD, 404, "not_held"},
        {PAWL_E_METHOD_NOT_ALLOWED, 405, "method_not_allowed"},
        {PAWL_E_TIMEOUT, 408, "timeout"},
        {PAWL_E_HELD, 409, "held"},
        {PAWL_E_LEASE_LOST, 410, "lease_lost"},
        {PAWL_E_TOO_LARGE, 413, "too_large"},
        {PAWL_E_URI_TOO_LONG, 414, "uri_too_long"},
        {PAWL_E_EXPECTATION_FAILED, 417, "expectation_failed"},
        {PAWL_E_TOO_MANY_WAITERS, 429, "too_many_waiters"},
        {PAWL_E_TOO_MANY_CONNECTIONS, 429, "too_many_connections"},
        {PAWL_E_HEADERS_TOO_LARGE, 431, "headers_too_large"},
        {PAWL_E_STORE_UNAVAILABLE, 503, "store_unavailable"},
        {PAWL_E_NOT_REPLICATED, 503, "not_replicated"},
        {PAWL_E_RECOVERING, 503, "recovering"},
        {PAWL_E_DRAINING, 503, "draining"},
    };

    for (size_t i = 0; i < sizeof(api) / sizeof(api[0]); i++) {
        ck_assert_int_eq(pawl_error_status(api[i].error), api[i].status);
        ck_assert_str_eq(pawl_error_wire(api[i].error), api[i].wire);
    }
}
END_TEST

START_TEST(every_row_is_an_error_with_a_code_and_a_sentence)
{
    for (int e = 1; e < PAWL_ERROR_COUNT; e++) {
        const char *wire = pawl_error_wire((enum pawl_error)e);

        ck_assert_int_ge(pawl_error_status((enum pawl_error)e), 400);
        ck_assert_int_le(pawl_error_status((enum pawl_error)e), 599);
        ck_assert_uint_gt(strlen(pawl_error_text((enum pawl_error)e)), 0);
        ck_assert_uint_gt(strlen(wire), 0);
        for (const char *c = wire; *c; c++)
            ck_assert(islower((unsigned char)*c) || *c == '_');
        for (int other = 0; other < e; other++)
            ck_assert_str_ne(wire, pawl_error_wire((enum pawl_error)other));
    }
}
END_TEST

START_TEST(a_number_outside_the_list_is_never_success)
{
    static const int strangers[] = {-1, PAWL_ERROR_COUNT, PAWL_ERROR_COUNT + 1, 100000};

    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++) {
        volatile int number = strangers[i];

        ck_assert_int_eq(pawl_error_status((enum pawl_error)number), 500);
        ck_assert_str_eq(pawl_error_wire((enum pawl_error)number), "unknown");
        ck_assert_ptr_nonnull(pawl_error_text((enum pawl_error)number));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("errors");
    TCase *tcase = tcase_create("list");

    tcase_add_test(tcase, ok_is_200_and_has_nothing_to_say);
    tcase_add_test(tcase, rows_are_what_the_api_documents);
    tcase_add_test(tcase, every_row_is_an_error_with_a_code_and_a_sentence);
    tcase_add_test(tcase, a_number_outside_the_list_is_never_success);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
