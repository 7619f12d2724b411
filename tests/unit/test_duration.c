/* Durations in words: one spelling rule, no overflow (C07), no fractions, signs or default units (C08). */
#include "tests/lib/check_main.h"

#include <stdint.h>
#include <string.h>

#include "proto/duration.h"

START_TEST(every_unit)
{
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {
        {"0", 0},
        {"0ms", 0},
        {"0d", 0},
        {"1ms", 1},
        {"500ms", 500},
        {"30s", 30000},
        {"5m", 300000},
        {"12h", 43200000},
        {"7d", 604800000},
        {"007s", 7000},
        {"2147483648ms", INT64_C(2147483648)},
        {"9007199254740993ms", INT64_C(9007199254740993)},
        {"9223372036854775807ms", INT64_MAX},
        {"106751991167d", INT64_C(106751991167) * 86400000},
        {"0000000000000000000000000000001s", 1000},
    };

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        int64_t ms = -7;

        ck_assert_msg(duration_parse(good[i].text, strlen(good[i].text), &ms) == 0, "%s", good[i].text);
        ck_assert_msg(ms == good[i].ms, "%s", good[i].text);
        ck_assert_ptr_null(duration_problem(good[i].text, strlen(good[i].text)));
    }
}
END_TEST

static void refused(const char *text, size_t len, const char *word)
{
    int64_t ms = -7;

    ck_assert_msg(duration_parse(text, len, &ms) == -1, "%s", text);
    ck_assert_msg(ms == -7, "%s: output touched", text);
    ck_assert_msg(strstr(duration_problem(text, len), word) != NULL, "%s: %s", text, duration_problem(text, len));
}

START_TEST(C08_what_is_no_duration_is_refused)
{
    static const char *const malformed[] = {"",     "s",    "ms",  "-",    "-s",   "1.5s", "0.4s",  "1e3s", " 1s",
                                            "1s ",  "1 s",  "+1s", "1S",   "1MS",  "1sec", "1m30s", "1us",  "1w",
                                            "0x1s", "1,5s", "s1",  "true", "1s\n", "1m s", "--1s"};
    static const char *const unitless[] = {"1", "30", "1000", "00", "99999999999999999999999"};
    static const char *const negative[] = {"-1s", "-0", "-5", "-500ms"};

    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++)
        refused(malformed[i], strlen(malformed[i]), "a whole number and a unit");
    for (size_t i = 0; i < sizeof(unitless) / sizeof(unitless[0]); i++)
        refused(unitless[i], strlen(unitless[i]), "needs a unit");
    for (size_t i = 0; i < sizeof(negative) / sizeof(negative[0]); i++)
        refused(negative[i], strlen(negative[i]), "must not be negative");
    refused("1s\0", 3, "a whole number and a unit");
    refused("\xd9\xa1s", 3, "a whole number and a unit"); /* an Arabic digit one */
}
END_TEST

START_TEST(C07_overflow_is_out_of_range_and_never_wraps)
{
    static const char *const big[] = {"9223372036854775808ms", "18446744073709551616ms", "18446744073709551617ms",
                                      "9223372036854776s",     "9223372036854775807s",   "153722867280913m",
                                      "2562047788016h",        "106751991168d",          "99999999999999999999999999999999999999999999ms"};

    for (size_t i = 0; i < sizeof(big) / sizeof(big[0]); i++)
        refused(big[i], strlen(big[i]), "out of range");
}
END_TEST

START_TEST(only_len_bytes_are_read)
{
    int64_t ms;

    ck_assert_int_eq(duration_parse("30sxyz", 3, &ms), 0);
    ck_assert_int_eq(ms, 30000);
    ck_assert_int_eq(duration_parse("30ms", 3, &ms), 0); /* "30m" */
    ck_assert_int_eq(ms, 1800000);
    ck_assert_int_eq(duration_parse("01", 1, &ms), 0);
    ck_assert_int_eq(ms, 0);
}
END_TEST

START_TEST(the_shortest_exact_spelling)
{
    static const struct {
        int64_t ms;
        const char *text;
    } rows[] = {
        {0, "0"},
        {1, "1ms"},
        {1000, "1s"},
        {1500, "1500ms"},
        {30000, "30s"},
        {60000, "1m"},
        {90000, "90s"},
        {3600000, "1h"},
        {5400000, "90m"},
        {86400000, "1d"},
        {129600000, "36h"},
        {-60000, "-1m"},
        {INT64_MAX, "9223372036854775807ms"},
        {INT64_MIN, "-9223372036854775808ms"},
    };
    char out[24];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ck_assert_ptr_eq(duration_format(rows[i].ms, out, sizeof(out)), out);
        ck_assert_str_eq(out, rows[i].text);
    }
}
END_TEST

START_TEST(what_is_written_reads_back)
{
    char out[24];
    int64_t back;

    for (int64_t ms = 1; ms > 0 && ms < INT64_MAX / 7; ms = ms * 7 + ms % 1000 * 60000) {
        duration_format(ms, out, sizeof(out));
        ck_assert_int_eq(duration_parse(out, strlen(out), &back), 0);
        ck_assert_int_eq(back, ms);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("duration");
    TCase *tcase = tcase_create("words");

    tcase_add_test(tcase, every_unit);
    tcase_add_test(tcase, C08_what_is_no_duration_is_refused);
    tcase_add_test(tcase, C07_overflow_is_out_of_range_and_never_wraps);
    tcase_add_test(tcase, only_len_bytes_are_read);
    tcase_add_test(tcase, the_shortest_exact_spelling);
    tcase_add_test(tcase, what_is_written_reads_back);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
