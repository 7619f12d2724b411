/* The parameters of every call, from JSON and from a query (C07, C08, C28, C29, C30, C34, C42).
 *
 * Most tests are rows: text in, the whole message out. An unknown, duplicate, mistyped or out-of-range parameter must be named.
 */
#include "tests/lib/check_main.h"

#include <errno.h>
#include <jansson.h> /* for its allocator hooks alone: running out of memory is an ordinary path */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "proto/params.h"

#define ALL               ((1u << PARAM_COUNT) - 1)
#define BYTES_OF(literal) (literal), sizeof(literal) - 1
#define ID                "0123abcd-89ef-4aef-8abc-fedcba987654"

typedef int reader(struct params *p, const char *text, size_t len, unsigned allowed, struct param_problem *ret_problem);

static struct params p;
static struct param_problem problem;

/* Reads a copy of exactly len bytes on the heap, so that a sanitizer sees a read beyond them. */
static int read_with(reader *from, const char *text, size_t len, unsigned allowed)
{
    char *copy = malloc(len ? len : 1);
    int got;

    ck_assert_ptr_nonnull(copy);
    memcpy(copy, text, len);
    memset(&problem, '?', sizeof(problem));
    got = from(&p, copy, len, allowed, &problem);
    free(copy);
    return got;
}

/* Over what an earlier request left there. */
static void begin(void)
{
    memset(&p, 0x5a, sizeof(p));
    params_init(&p);
}

static int read_json(const char *text)
{
    begin();
    return read_with(params_from_json, text, strlen(text), ALL);
}

static int read_query(const char *text)
{
    begin();
    return read_with(params_from_query, text, strlen(text), ALL);
}

static void json_ok(const char *text)
{
    ck_assert_msg(read_json(text) == 0, "%s: %s", text, problem.message);
}

static void query_ok(const char *text)
{
    ck_assert_msg(read_query(text) == 0, "%s: %s", text, problem.message);
}

struct row {
    const char *text, *message;
};

static void all_refused(int (*read)(const char *text), const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ck_assert_msg(read(rows[i].text) == -1, "%s", rows[i].text);
        ck_assert_str_eq(problem.message, rows[i].message);
        ck_assert(!problem.no_memory);
    }
}

#define JSON_REFUSED(...)                                                                                                                  \
    do {                                                                                                                                   \
        static const struct row rows_[] = {__VA_ARGS__};                                                                                   \
        all_refused(read_json, rows_, sizeof(rows_) / sizeof(rows_[0]));                                                                   \
    } while (0)
#define QUERY_REFUSED(...)                                                                                                                 \
    do {                                                                                                                                   \
        static const struct row rows_[] = {__VA_ARGS__};                                                                                   \
        all_refused(read_query, rows_, sizeof(rows_) / sizeof(rows_[0]));                                                                  \
    } while (0)

static void nothing_was_given(void)
{
    ck_assert_uint_eq(p.seen, 0);
    ck_assert_int_eq(p.ttl_ms, 0);
    ck_assert_int_eq(p.wait_ms, 0);
    ck_assert_int_eq(p.lock_delay_ms, 0);
    ck_assert_int_eq(p.max_hold_ms, 0);
    ck_assert_int_eq(p.limit, PAWL_LIST_LIMIT_DEFAULT);
    ck_assert_str_eq(p.lease_id.text, "");
    ck_assert_str_eq(p.owner, "");
    ck_assert_str_eq(p.reason, "");
    ck_assert_str_eq(p.prefix, "");
    ck_assert_str_eq(p.cursor, "0");
    ck_assert_int_eq(p.since, 0);
    ck_assert_uint_eq(p.owner_len + p.reason_len + p.prefix_len + p.name_len, 0);
}

/* ---- what is given, arrives ---- */

START_TEST(nothing_is_fine)
{
    static const char *const blank[] = {"", " ", "\r\n\t ", "{}", " { } \n"};

    for (size_t i = 0; i < sizeof(blank) / sizeof(blank[0]); i++) {
        json_ok(blank[i]);
        nothing_was_given();
    }
    query_ok("");
    nothing_was_given();
    begin();
    ck_assert_int_eq(params_from_json(&p, NULL, 0, ALL, &problem), 0);
    ck_assert_int_eq(params_from_query(&p, NULL, 0, ALL, &problem), 0);
}
END_TEST

static void everything_is_there(void)
{
    ck_assert_uint_eq(p.seen, ALL);
    ck_assert_int_eq(p.ttl_ms, 30000);
    ck_assert_int_eq(p.wait_ms, 500);
    ck_assert_int_eq(p.lock_delay_ms, 15000);
    ck_assert_int_eq(p.max_hold_ms, 3600000);
    ck_assert_str_eq(p.owner, "billing-7 \xc3\xa9");
    ck_assert_uint_eq(p.owner_len, strlen(p.owner));
    ck_assert_str_eq(p.lease_id.text, ID);
    ck_assert_int_eq(p.token, PAWL_TOKEN_MAX);
    ck_assert_str_eq(p.reason, "node lost");
    ck_assert_uint_eq(p.reason_len, 9);
    ck_assert_str_eq(p.prefix, "deploy/");
    ck_assert_uint_eq(p.prefix_len, 7);
    ck_assert_int_eq(p.limit, 1000);
    ck_assert_str_eq(p.cursor, "18446744073709551615");
    ck_assert_int_eq(p.since, PAWL_TOKEN_MAX);
    ck_assert_str_eq(p.name, "deploy/prod");
    ck_assert_uint_eq(p.name_len, 11);
}

START_TEST(every_parameter_in_json)
{
    json_ok("{\"ttl_ms\": 30000, \"wait_ms\": 500, \"lock_delay_ms\": 15000, \"max_hold_ms\": 3600000, \"owner\": \"billing-7 \\u00e9\", "
            "\"lease_id\": \"0123ABCD-89EF-4AEF-8ABC-FEDCBA987654\","
            " \"token\": 9007199254740991, \"reason\": \"node lost\", \"prefix\": \"deploy/\", \"limit\": 1000,"
            " \"cursor\": \"18446744073709551615\", \"since\": 9007199254740991, \"name\": \"deploy/prod\"}");
    everything_is_there();
}
END_TEST

START_TEST(every_parameter_in_a_query)
{
    query_ok("ttl=30s&wait=500ms&lock_delay=15s&max_hold=1h&owner=billing-7%20%C3%a9&lease_id=0123ABCD-89EF-4AEF-8ABC-FEDCBA987654"
             "&token=9007199254740991&reason=node%20lost&prefix=deploy/"
             "&limit=1000&cursor=18446744073709551615&since=9007199254740991&name=deploy/prod");
    everything_is_there();
}
END_TEST

START_TEST(a_query_is_decoded_once_and_plus_stays_plus)
{
    query_ok("owner=a+b%2Bc%2526d=e");
    ck_assert_str_eq(p.owner, "a+b+c%26d=e");
    query_ok("%6fwner=x"); /* names are decoded as well */
    ck_assert_str_eq(p.owner, "x");
}
END_TEST

START_TEST(C08_zero_needs_no_unit_and_is_the_callers_to_judge)
{
    query_ok("ttl=0&wait=0");
    ck_assert_uint_eq(p.seen, PARAM_BIT(TTL) | PARAM_BIT(WAIT));
    json_ok("{\"ttl_ms\":0,\"wait_ms\":-0}");
    ck_assert_uint_eq(p.seen, PARAM_BIT(TTL) | PARAM_BIT(WAIT));
    ck_assert_int_eq(p.wait_ms, 0);
}
END_TEST

START_TEST(an_owner_and_a_prefix_may_be_empty)
{
    json_ok("{\"owner\":\"\",\"prefix\":\"\"}");
    ck_assert_uint_eq(p.seen, PARAM_BIT(OWNER) | PARAM_BIT(PREFIX));
    query_ok("owner=&prefix=");
    ck_assert_uint_eq(p.seen, PARAM_BIT(OWNER) | PARAM_BIT(PREFIX));
}
END_TEST

START_TEST(query_and_body_add_up)
{
    begin();
    ck_assert_int_eq(read_with(params_from_query, "ttl=30s", 7, ALL), 0);
    ck_assert_int_eq(read_with(params_from_json, "{\"owner\":\"a\"}", 13, ALL), 0);
    ck_assert_uint_eq(p.seen, PARAM_BIT(TTL) | PARAM_BIT(OWNER));
    ck_assert_int_eq(p.ttl_ms, 30000);
    ck_assert_str_eq(p.owner, "a");
}
END_TEST

/* ---- C07, C08: numbers ---- */

START_TEST(C07_a_large_ttl_is_exact_or_out_of_range)
{
    static const int64_t fits[] = {INT64_C(2147483647),
                                   INT64_C(2147483648),
                                   INT64_C(4294967297),
                                   INT64_C(9007199254740992),
                                   INT64_C(9007199254740993),
                                   INT64_C(1000000000000000000),
                                   INT64_MAX};
    char text[64];

    for (size_t i = 0; i < sizeof(fits) / sizeof(fits[0]); i++) {
        snprintf(text, sizeof(text), "{\"ttl_ms\":%lld,\"wait_ms\":%lld}", (long long)fits[i], (long long)fits[i]);
        json_ok(text);
        ck_assert_int_eq(p.ttl_ms, fits[i]);
        ck_assert_int_eq(p.wait_ms, fits[i]);
        snprintf(text, sizeof(text), "ttl=%lldms&wait=%lldms", (long long)fits[i], (long long)fits[i]);
        query_ok(text);
        ck_assert_int_eq(p.ttl_ms, fits[i]);
        ck_assert_int_eq(p.wait_ms, fits[i]);
    }
    JSON_REFUSED({"{\"ttl_ms\":9223372036854775808}", "ttl_ms: the number is out of range"},
                 {"{\"owner\":\"a\\\"b\", \"wait_ms\" :\n 18446744073709551617 }", "wait_ms: the number is out of range"},
                 {"{\"ttl_ms\":1e400}", "ttl_ms: the number is out of range"},
                 {"{\"ttl_ms\":-1E+400}", "ttl_ms: the number is out of range"},
                 {"{\"ttl_ms\":-9223372036854775809}", "ttl_ms: the number is out of range"},
                 {"{\"ttl\\u005fms\":1e400}", "ttl\\u005fms: the number is out of range"},
                 {"{\"k\\\"\\\\\":1e400}", "k\\\"\\\\: the number is out of range"},
                 {"{\"ttl_ms\":1e18}", "ttl_ms: must be a whole number of milliseconds"},
                 {"{\"a\":[1e400]}", "the body holds a number that is out of range (line 1, column 11)"},
                 {"{\"a\":{\"ttl_ms\":1e400}}", "the body holds a number that is out of range (line 1, column 20)"});
    QUERY_REFUSED({"ttl=9223372036854775808ms", "ttl: the number is out of range"},
                  {"ttl=9223372036854776s", "ttl: the number is out of range"},
                  {"ttl=9223372036854775807s", "ttl: the number is out of range"},
                  {"wait=99999999999999999999999999d", "wait: the number is out of range"},
                  {"token=18446744073709551616", "token: the number is out of range"},
                  {"token=18446744073709551617", "token: the number is out of range"},
                  {"limit=99999999999999999999999", "limit: the number is out of range"});
}
END_TEST

START_TEST(C08_a_ttl_of_the_wrong_type_or_sign_is_named)
{
    static const char whole[] = "ttl_ms: must be a whole number of milliseconds";

    JSON_REFUSED({"{\"ttl_ms\":-1}", "ttl_ms: must not be negative"}, {"{\"ttl_ms\":0.4}", whole}, {"{\"ttl_ms\":1.5}", whole},
                 {"{\"ttl_ms\":1e3}", whole}, {"{\"ttl_ms\":1000.0}", whole}, {"{\"ttl_ms\":-0.0}", whole}, {"{\"ttl_ms\":\"30\"}", whole},
                 {"{\"ttl_ms\":\"30s\"}", whole}, {"{\"ttl_ms\":\"\"}", whole}, {"{\"ttl_ms\":true}", whole}, {"{\"ttl_ms\":false}", whole},
                 {"{\"ttl_ms\":null}", whole}, {"{\"ttl_ms\":{}}", whole}, {"{\"ttl_ms\":[]}", whole}, {"{\"ttl_ms\":[5]}", whole},
                 {"{\"wait_ms\":null}", "wait_ms: must be a whole number of milliseconds"},
                 {"{\"wait_ms\":-5}", "wait_ms: must not be negative"});
    QUERY_REFUSED({"ttl=30", "ttl: needs a unit: ms, s, m, h or d"},
                  {"ttl=", "ttl: must be a whole number and a unit, such as 500ms, 30s, 5m, 12h or 7d"},
                  {"wait=1.5s", "wait: must be a whole number and a unit, such as 500ms, 30s, 5m, 12h or 7d"},
                  {"wait=-1s", "wait: must not be negative"},
                  {"ttl=%2030s", "ttl: must be a whole number and a unit, such as 500ms, 30s, 5m, 12h or 7d"},
                  {"ttl=+30s", "ttl: must be a whole number and a unit, such as 500ms, 30s, 5m, 12h or 7d"});
}
END_TEST

START_TEST(tokens_and_limits_have_bounds)
{
    static const char token[] = "token: must be from 1 to 9007199254740991", limit[] = "limit: must be from 1 to 1000";

    json_ok("{\"token\":1,\"limit\":1}");
    ck_assert_int_eq(p.token, 1);
    ck_assert_int_eq(p.limit, 1);
    query_ok("token=1&limit=1");
    JSON_REFUSED({"{\"token\":0}", token}, {"{\"token\":-1}", token}, {"{\"token\":9007199254740992}", token},
                 {"{\"token\":9223372036854775807}", token}, {"{\"limit\":0}", limit}, {"{\"limit\":1001}", limit},
                 {"{\"limit\":-9223372036854775808}", limit}, {"{\"token\":\"5\"}", "token: must be a whole number"},
                 {"{\"token\":5.0}", "token: must be a whole number"}, {"{\"limit\":null}", "limit: must be a whole number"});
    QUERY_REFUSED({"token=0", token}, {"token=9007199254740992", token}, {"token=18446744073709551615", token}, {"limit=0", limit},
                  {"limit=1001", limit}, {"token=-1", "token: must be a whole number"}, {"token=+5", "token: must be a whole number"},
                  {"token=", "token: must be a whole number"}, {"token=0x5", "token: must be a whole number"},
                  {"limit=5s", "limit: must be a whole number"}, {"limit=1e3", "limit: must be a whole number"},
                  {"limit=99999999999999999999x", "limit: must be a whole number"});
}
END_TEST

START_TEST(a_cursor_has_one_spelling)
{
    static const char cursor[] = "cursor: must be a cursor from an earlier reply";

    query_ok("cursor=0");
    ck_assert_str_eq(p.cursor, "0");
    query_ok("cursor="); /* as the last page has it */
    ck_assert_str_eq(p.cursor, "0");
    JSON_REFUSED({"{\"cursor\":0}", cursor}, {"{\"cursor\":\"18446744073709551616\"}", cursor}, {"{\"cursor\":\"-1\"}", cursor},
                 {"{\"cursor\":null}", cursor});
    QUERY_REFUSED({"cursor=00", cursor}, {"cursor=01", cursor}, {"cursor=000000000000000000001", cursor}, {"cursor=1 ", cursor},
                  {"cursor=18446744073709551616", cursor});
}
END_TEST

/* ---- text ---- */

START_TEST(a_lease_id_is_a_uuid_and_never_repeated_in_a_message)
{
    static const char uuid[] = "lease_id: must be a UUID (8-4-4-4-12 hex digits, not all zero)";
    static const char string[] = "lease_id: must be a string that holds a UUID";

    JSON_REFUSED({"{\"lease_id\":\"\"}", uuid}, {"{\"lease_id\":\"00000000-0000-0000-0000-000000000000\"}", uuid},
                 {"{\"lease_id\":\"0123abcd-89ef-4aef-8abc-fedcba98765\"}", uuid}, {"{\"lease_id\":5}", string},
                 {"{\"lease_id\":null}", string}, {"{\"lease_id\":[\"" ID "\"]}", string});
    QUERY_REFUSED({"lease_id=", uuid}, {"lease_id=5", uuid}, {"lease_id=" ID "%0a", uuid});
    ck_assert_str_eq(p.lease_id.text, "");
}
END_TEST

START_TEST(P7_the_lease_id_that_was_read_before_a_problem_is_kept)
{
    ck_assert_int_eq(read_json("{\"lease_id\":\"" ID "\",\"ttl_ms\":null}"), -1);
    ck_assert_str_eq(p.lease_id.text, ID);
    ck_assert_int_eq(read_query("lease_id=" ID "&bogus=1"), -1);
    ck_assert_str_eq(p.lease_id.text, ID);
    ck_assert_int_eq(read_query("lease_id=" ID "&lease_id=ffffffff-89ef-4aef-8abc-fedcba987654"), -1);
    ck_assert_str_eq(p.lease_id.text, ID);
    ck_assert_int_eq(read_json("{\"ttl_ms\":null,\"lease_id\":\"" ID "\"}"), -1);
    ck_assert_str_eq(p.lease_id.text, "");
    begin();
    ck_assert_int_eq(read_with(params_from_query, BYTES_OF("lease_id=" ID), ALL & ~PARAM_BIT(LEASE_ID)), -1);
    ck_assert_str_eq(p.lease_id.text, "");
}
END_TEST

/* {"owner":"xxx..."} of n bytes, in either form. */
static char *long_value(const char *before, size_t n, const char *after)
{
    static char text[70000];
    int head = snprintf(text, sizeof(text), "%s", before);

    memset(text + head, 'x', n);
    memcpy(text + head + n, after, strlen(after) + 1);
    return text;
}

START_TEST(C42_labels_of_255_bytes_fit_and_longer_ones_name_the_limit)
{
    json_ok(long_value("{\"owner\":\"", 255, "\"}"));
    ck_assert_uint_eq(p.owner_len, 255);
    ck_assert_uint_eq(strlen(p.owner), 255);
    query_ok(long_value("reason=", 255, ""));
    ck_assert_uint_eq(p.reason_len, 255);
    query_ok(long_value("prefix=", 255, ""));
    ck_assert_uint_eq(p.prefix_len, 255);

    ck_assert_int_eq(read_json(long_value("{\"owner\":\"", 256, "\"}")), -1);
    ck_assert_str_eq(problem.message, "owner: must be at most 255 bytes");
    ck_assert_int_eq(read_json(long_value("{\"reason\":\"", 64 * 1024, "\"}")), -1);
    ck_assert_str_eq(problem.message, "reason: must be at most 255 bytes");
    ck_assert_int_eq(read_query(long_value("owner=", 256, "")), -1);
    ck_assert_str_eq(problem.message, "owner: must be at most 255 bytes");
    ck_assert_int_eq(read_query(long_value("prefix=", 256, "")), -1);
    ck_assert_str_eq(problem.message, "prefix: must be at most 255 bytes");
    ck_assert_int_eq(read_query(long_value("owner=", PAWL_TARGET_MAX - 6, "")), -1); /* as long as a query can be */
    ck_assert_str_eq(problem.message, "owner: must be at most 255 bytes");
    ck_assert_int_eq(read_query(long_value("owner=", PAWL_TARGET_MAX - 5, "")), -1);
    ck_assert_str_eq(problem.message, "the query must be at most 8192 bytes");
    ck_assert_int_eq(read_query(long_value("", PAWL_TARGET_MAX, "")), -1);
    ck_assert_int_eq(read_query(long_value("", PAWL_TARGET_MAX - 1, "=")), -1);
}
END_TEST

START_TEST(C34_labels_hold_no_control_characters)
{
    static const char owner[] = "owner: must not hold control characters";

    QUERY_REFUSED({"owner=a%0d%0afake%20line", owner}, {"owner=%1b%5b31m", owner}, {"owner=%7f", owner}, {"owner=%c2%9b31m", owner},
                  {"owner=%c2%80", owner}, {"owner=a%09b", owner}, {"reason=%0a", "reason: must not hold control characters"},
                  {"reason=", "reason: must not be empty"});
    JSON_REFUSED({"{\"owner\":\"a\\r\\nb\"}", owner}, {"{\"owner\":\"\\u001b[31m\"}", owner}, {"{\"owner\":\"\\u007f\"}", owner},
                 {"{\"owner\":\"\\u009b\"}", owner}, {"{\"owner\":5}", "owner: must be a string"},
                 {"{\"owner\":null}", "owner: must be a string"}, {"{\"owner\":[]}", "owner: must be a string"},
                 {"{\"reason\":{}}", "reason: must be a string"}, {"{\"reason\":\"\"}", "reason: must not be empty"},
                 {"{\"prefix\":true}", "prefix: must be a string"});
    query_ok("owner=%25s%25n"); /* text, never a format */
    ck_assert_str_eq(p.owner, "%s%n");
    query_ok("owner=%c2%a0");
}
END_TEST

START_TEST(labels_are_strict_utf8)
{
    static const char owner[] = "owner: must be valid UTF-8";

    QUERY_REFUSED({"owner=%ff", owner}, {"owner=%c3", owner}, {"owner=%80", owner}, {"owner=%c0%af", owner}, {"owner=%e0%80%80", owner},
                  {"owner=%ed%a0%80", owner}, {"owner=%ed%bf%bf", owner}, {"owner=%f4%90%80%80", owner}, {"owner=%f0%80%80%80", owner},
                  {"owner=%f8%88%80%80%80", owner}, {"owner=\xff", owner});
    query_ok("owner=%f4%8f%bf%bf%ed%9f%bf%ee%80%80");
    JSON_REFUSED({"{\"owner\":\"a\xff\"}", owner}, {"{\"owner\" : \"\xed\xa0\x80\"}", owner}, {"{\"owner\":\"\xc0\xaf\"}", owner},
                 {"{\"a\":\":\" \xff", "the body is not valid UTF-8 (line 1, column 9)"},
                 {"{\"a\xff\":1}", "the body is not valid UTF-8 (line 1, column 3)"},
                 {"{\"owner\":\"\\ud800\"}", "the body is not valid JSON (line 1, column 17)"},
                 {"{\"owner\":\"a\\u0000b\"}", "owner: must not hold a NUL character"},
                 {"{\"ow\\u0000ner\":\"a\"}", "the body holds a NUL character (line 1, column 14)"});
    ck_assert_ptr_null(label_problem("", 0));
    ck_assert_ptr_null(label_problem(BYTES_OF("host-1:42 \xf0\x9f\x94\x92")));
    ck_assert_ptr_nonnull(label_problem("\0", 1));
    ck_assert_ptr_nonnull(label_problem(BYTES_OF("a\xe2\x82")));
}
END_TEST

START_TEST(C28_a_prefix_obeys_the_rules_of_names)
{
    QUERY_REFUSED({"prefix=a%20b", "prefix: may hold only the characters A-Z a-z 0-9 . _ - : @ + = , ~ /"},
                  {"prefix=/", "prefix: must not hold an empty, '.' or '..' segment, nor begin or end with '/'"});
    JSON_REFUSED({"{\"prefix\":\"\\u00e9\"}", "prefix: may hold only the characters A-Z a-z 0-9 . _ - : @ + = , ~ /"});
}
END_TEST

/* ---- C29, C30: the body as a whole ---- */

START_TEST(C29_bodies_of_the_wrong_shape)
{
    static const char object[] = "the body must be a JSON object",
                      form[] = "the body looks like a form; send a JSON object, or put the parameters into the query string";

    JSON_REFUSED({"null", object}, {"[]", object}, {"\"x\"", object}, {"5", object}, {"true", object}, {"[{\"ttl_ms\":5}]", object},
                 {"ttl_ms", object}, {"=", object}, {"}", object}, {"ttl_ms=5&wait_ms=3", form}, {" owner=x", form}, {"ttl_ms=", form},
                 {"\xef\xbb\xbf{}", "the body begins with a byte order mark; send plain UTF-8"},
                 {"\xef\xbb\xbf", "the body begins with a byte order mark; send plain UTF-8"},
                 {"{} x", "the body goes on after its JSON object (line 1, column 4)"},
                 {"{}{}", "the body goes on after its JSON object (line 1, column 3)"},
                 {"{\"ttl_ms\":5", "the body ends before its JSON object does (line 1, column 11)"},
                 {"{", "the body ends before its JSON object does (line 1, column 1)"},
                 {"{\"owner\":\"x", "the body ends before its JSON object does (line 1, column 11)"},
                 {"{\"ttl_ms\":5,}", "the body is not valid JSON (line 1, column 13)"},
                 {"{'ttl_ms':5}", "the body is not valid JSON (line 1, column 2)"},
                 {"{\"ttl_ms\":05}", "the body is not valid JSON (line 1, column 11)"},
                 {"{\n \"ttl_ms\":NaN}", "the body is not valid JSON (line 2, column 13)"},
                 {"{\"owner\":\"a\nb\"}", "the body is not valid JSON (line 1, column 11)"},
                 {"{}\f", "the body goes on after its JSON object (line 1, column 3)"});
}
END_TEST

START_TEST(C29_a_NUL_never_ends_a_body)
{
    static const struct {
        const char *at;
        size_t len;
    } rows[] = {{"{}\0", 3}, {"{}\0{", 4}, {"{\"ttl_ms\":5\0}", 13}, {" \0", 2}, {"{\"owner\":\"a\0b\"}", 15}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        begin();
        ck_assert_int_eq(read_with(params_from_json, rows[i].at, rows[i].len, ALL), -1);
        ck_assert_str_eq(problem.message, "the body holds a NUL byte");
    }
    begin();
    ck_assert_int_eq(read_with(params_from_json, "\0", 1, ALL), -1);
}
END_TEST

START_TEST(P9_depth_is_bounded)
{
    static const char head[] = {'{', '"', 'a', '"', ':'};
    static char deep[PAWL_BODY_MAX];

    /* 8 deep is read (and refused for another reason), 9 is not. */
    JSON_REFUSED({"{\"ttl_ms\":[[[[[[[]]]]]]]}", "ttl_ms: must be a whole number of milliseconds"},
                 {"{\"ttl_ms\":[[[[[[[[]]]]]]]]}", "the body is nested too deeply"},
                 {"{\"ttl_ms\":{\"a\":[{\"a\":[{\"a\":[{\"a\":[]}]}]}]}}", "the body is nested too deeply"});
    json_ok("{\"owner\":\"[[[[[[[[[[{{{{{{{{{{\\\"[[[[[[[\"}"); /* brackets in a string are text */
    memset(deep, '[', sizeof(deep));
    memcpy(deep, head, sizeof(head));
    begin();
    ck_assert_int_eq(read_with(params_from_json, deep, sizeof(deep), ALL), -1);
    ck_assert_str_eq(problem.message, "the body is nested too deeply");
}
END_TEST

START_TEST(C30_duplicates_are_named)
{
    JSON_REFUSED({"{\"ttl_ms\":1,\"ttl_ms\":1}", "ttl_ms: given more than once"},
                 {"{\"owner\":\"a\",\"ttl_ms\":1,\"owner\":\"b\"}", "owner: given more than once"},
                 {"{\"owner\":\"a\",\"\\u006fwner\":\"b\"}", "\\u006fwner: given more than once"},
                 {"{\"bogus\":1, \"bogus\" :1}", "bogus: given more than once"},
                 {"{\"a\":{\"b\":1,\"b\":2}}", "the body gives a parameter more than once (line 1, column 15)"});
    QUERY_REFUSED({"ttl=1s&ttl=1s", "ttl: given more than once"}, {"owner=a&%6fwner=b", "owner: given more than once"});
    begin();
    ck_assert_int_eq(read_with(params_from_query, BYTES_OF("owner=a"), ALL), 0);
    ck_assert_int_eq(read_with(params_from_json, BYTES_OF("{\"owner\":\"b\"}"), ALL), -1);
    ck_assert_str_eq(problem.message, "owner: given more than once");
    ck_assert_str_eq(p.owner, "a");
}
END_TEST

/* ---- keys ---- */

START_TEST(unknown_parameters_are_named_as_they_were_spelled)
{
    JSON_REFUSED({"{\"bogus\":1}", "bogus: unknown parameter"}, {"{\"TTL_MS\":1}", "TTL_MS: unknown parameter"},
                 {"{\"ttl_ms \":1}", "ttl_ms : unknown parameter"}, {"{\"\":1}", "\"\": unknown parameter"},
                 {"{\"gr\\u00f6\xc3\x9f"
                  "e\":1}",
                  "gr\xc3\xb6\xc3\x9f"
                  "e: unknown parameter"},
                 {"{\"ttl\":1}", "ttl: unknown parameter; in JSON it is called ttl_ms"},
                 {"{\"wait\":1}", "wait: unknown parameter; in JSON it is called wait_ms"});
    QUERY_REFUSED({"bogus=1", "bogus: unknown parameter"}, {"=1", "\"\": unknown parameter"},
                  {"ttl_ms=1", "ttl_ms: unknown parameter; in a query it is called ttl"},
                  {"ttl_ms%00=1", "ttl_ms%00: the name holds a broken percent escape or a NUL"},
                  {"wait_ms=0", "wait_ms: unknown parameter; in a query it is called wait"});
}
END_TEST

START_TEST(a_known_parameter_of_another_call_is_refused)
{
    begin();
    ck_assert_int_eq(read_with(params_from_json, BYTES_OF("{\"wait_ms\":1}"), PARAM_BIT(TTL) | PARAM_BIT(LEASE_ID)), -1);
    ck_assert_str_eq(problem.message, "wait_ms: not a parameter of this call");
    ck_assert_int_eq(read_with(params_from_query, BYTES_OF("wait=1s"), PARAM_BIT(TTL)), -1);
    ck_assert_str_eq(problem.message, "wait: not a parameter of this call");
    ck_assert_int_eq(read_with(params_from_query, BYTES_OF("ttl=1s"), 0), -1);
    ck_assert_uint_eq(p.seen, 0);
    ck_assert_int_eq(p.wait_ms, 0);
}
END_TEST

START_TEST(C34_keys_in_messages_are_harmless_and_short)
{
    JSON_REFUSED({"{\"a\\r\\nb\\u001b[31m\\u009b\":1}", "a\\u000d\\u000ab\\u001b[31m\\u009b: unknown parameter"},
                 {"{\"%s%n\":1}", "%s%n: unknown parameter"});
    QUERY_REFUSED({"a%0d%0ab%ff=1", "a\\u000d\\u000ab\\xff: unknown parameter"}, {"%7f%c2%85=1", "\\u007f\\u0085: unknown parameter"});

    ck_assert_int_eq(read_json(long_value("{\"", 60000, "\":1}")), -1);
    ck_assert_str_eq(problem.message, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...: unknown parameter");
    ck_assert_int_eq(read_json(long_value("{\"", 64, "\":1}")), -1);
    ck_assert_str_eq(problem.message, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx: unknown parameter");
    /* Cut before a sequence or an escape, never inside. */
    ck_assert_int_eq(read_json(long_value("{\"", 63, "\xc3\xa9\":1}")), -1);
    ck_assert_str_eq(problem.message, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...: unknown parameter");
    ck_assert_int_eq(read_query(long_value("", 62, "%01=1")), -1);
    ck_assert_str_eq(problem.message, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...: unknown parameter");
    ck_assert_int_eq(read_json(long_value("{\"", 60000, "\":1e400}")), -1);
    ck_assert_str_eq(problem.message, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...: the number is out of range");
}
END_TEST

START_TEST(C28_odd_queries)
{
    static const char pair[] = "the query has an empty pair (a stray '&')";

    QUERY_REFUSED({"&", pair}, {"ttl=1s&", pair}, {"&ttl=1s", pair}, {"ttl=1s&&wait=1s", pair}, {"ttl", "ttl: has no value"},
                  {"ttl&wait=1s", "ttl: has no value"}, {"owner=%zz", "owner: the value holds a broken percent escape or a NUL"},
                  {"owner=%", "owner: the value holds a broken percent escape or a NUL"},
                  {"owner=a%00b", "owner: the value holds a broken percent escape or a NUL"},
                  {"%zz=1", "%zz: the name holds a broken percent escape or a NUL"},
                  {"ttl=1s;wait=1s", "ttl: must be a whole number and a unit, such as 500ms, 30s, 5m, 12h or 7d"},
                  {"ttl%3d1s", "ttl=1s: has no value"}, {"?ttl=1s", "?ttl: unknown parameter"});
}
END_TEST

/* ---- memory ---- */

static int allowance;

static void *sparing_malloc(size_t size)
{
    if (allowance-- > 0)
        return malloc(size);
    errno = ENOMEM;
    return NULL;
}

START_TEST(running_out_of_memory_is_told_apart_from_a_bad_body)
{
    static const char body[] = "{\"ttl_ms\":30000,\"wait_ms\":500,\"owner\":\"billing-7\",\"lease_id\":\"" ID "\",\"token\":5}";
    int n = 0;

    json_set_alloc_funcs(sparing_malloc, free);
    for (;; n++) {
        begin();
        allowance = n;
        if (read_with(params_from_json, BYTES_OF(body), ALL) == 0)
            break;
        ck_assert_msg(problem.no_memory, "allocation %d: %s", n, problem.message);
        ck_assert_str_eq(problem.message, "the body could not be read for want of memory");
        nothing_was_given();
        ck_assert_int_lt(n, 1000);
    }
    json_set_alloc_funcs(malloc, free);
    ck_assert_int_gt(n, 5); /* the loop did go through failures */
    ck_assert(!problem.no_memory);
    ck_assert_str_eq(p.lease_id.text, ID);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("params");
    TCase *values = tcase_create("values"), *bodies = tcase_create("bodies"), *keys = tcase_create("keys");

    tcase_add_test(values, nothing_is_fine);
    tcase_add_test(values, every_parameter_in_json);
    tcase_add_test(values, every_parameter_in_a_query);
    tcase_add_test(values, a_query_is_decoded_once_and_plus_stays_plus);
    tcase_add_test(values, C08_zero_needs_no_unit_and_is_the_callers_to_judge);
    tcase_add_test(values, an_owner_and_a_prefix_may_be_empty);
    tcase_add_test(values, query_and_body_add_up);
    tcase_add_test(values, C07_a_large_ttl_is_exact_or_out_of_range);
    tcase_add_test(values, C08_a_ttl_of_the_wrong_type_or_sign_is_named);
    tcase_add_test(values, tokens_and_limits_have_bounds);
    tcase_add_test(values, a_cursor_has_one_spelling);
    tcase_add_test(values, a_lease_id_is_a_uuid_and_never_repeated_in_a_message);
    tcase_add_test(values, P7_the_lease_id_that_was_read_before_a_problem_is_kept);
    tcase_add_test(values, C42_labels_of_255_bytes_fit_and_longer_ones_name_the_limit);
    tcase_add_test(values, C34_labels_hold_no_control_characters);
    tcase_add_test(values, labels_are_strict_utf8);
    tcase_add_test(values, C28_a_prefix_obeys_the_rules_of_names);
    suite_add_tcase(suite, values);
    tcase_add_test(bodies, C29_bodies_of_the_wrong_shape);
    tcase_add_test(bodies, C29_a_NUL_never_ends_a_body);
    tcase_add_test(bodies, P9_depth_is_bounded);
    tcase_add_test(bodies, C30_duplicates_are_named);
    tcase_add_test(bodies, running_out_of_memory_is_told_apart_from_a_bad_body);
    suite_add_tcase(suite, bodies);
    tcase_add_test(keys, unknown_parameters_are_named_as_they_were_spelled);
    tcase_add_test(keys, a_known_parameter_of_another_call_is_refused);
    tcase_add_test(keys, C34_keys_in_messages_are_harmless_and_short);
    tcase_add_test(keys, C28_odd_queries);
    suite_add_tcase(suite, keys);
    return check_main(suite);
}
