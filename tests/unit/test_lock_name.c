/* Lock names: which byte strings are one (C28, C42), list prefixes, and percent-decoding. */
#include "tests/lib/check_main.h"

#include <string.h>

#include "proto/lock_name.h"

#define BYTES(literal) (literal), sizeof(literal) - 1

struct bytes {
    const char *at;
    size_t len;
};

#define ROW(literal)                                                                                                                       \
    {                                                                                                                                      \
        (literal), sizeof(literal) - 1                                                                                                     \
    }

START_TEST(names_that_are_names)
{
    static const char *const good[] = {
        "a",       "Z",       "0",   "deploy/prod", "a.b",     "...",
        "a/...",   ".a",      "..a", "a..",         "a/.b/c",  "a+b",
        "x:fence", "x:queue", "~",   "-",           "=,@:_+~", "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-:@+=,~/x",
    };

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        ck_assert_msg(!lock_name_problem(good[i], strlen(good[i])), "%s", good[i]);
}
END_TEST

START_TEST(C28_what_is_no_name_is_refused)
{
    static const struct bytes bad[] = {
        ROW(""),
        ROW("a\0b"),
        ROW("\0"),
        ROW("."),
        ROW(".."),
        ROW("a b"),
        ROW("a;b"),
        ROW("a?c"),
        ROW("a%2Fb"),
        ROW("/"),
        ROW("/a"),
        ROW("a/"),
        ROW("a//b"),
        ROW("./a"),
        ROW("../a"),
        ROW("a/."),
        ROW("a/.."),
        ROW("a/./b"),
        ROW("a/../b"),
        ROW("\xff"),
        ROW("\xc3\xa9"),
        ROW("e\xcc\x81"),
        ROW("\xf0\x9f\x94\x92"),
        ROW("a\nb"),
        ROW("a\x7f"),
        ROW("a#"),
        ROW("a*"),
        ROW("a{0}"),
        ROW("a\\b"),
        ROW("a\"b"),
        ROW("a'b"),
        ROW("a!b"),
        ROW("a$b"),
        ROW("a&b"),
        ROW("a(b"),
        ROW("a<b"),
        ROW("a[b"),
        ROW("a^b"),
        ROW("a`b"),
        ROW("a|b"),
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(lock_name_problem(bad[i].at, bad[i].len) != NULL, "row %zu: %s", i, bad[i].at);
}
END_TEST

START_TEST(exactly_the_documented_bytes)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-:@+=,~/";

    for (int c = 0; c < 256; c++) {
        char name[3] = {'a', (char)c, 'b'};
        bool good = c != 0 && strchr(allowed, c) != NULL;

        ck_assert_msg(!lock_name_problem(name, 3) == good, "byte 0x%02x", (unsigned)c);
        ck_assert_msg(!lock_name_prefix_problem(name, 3) == good, "byte 0x%02x", (unsigned)c);
    }
}
END_TEST

START_TEST(C42_the_limit_is_255_bytes_and_is_named)
{
    static char name[1024 * 1024];

    memset(name, 'n', sizeof(name));
    ck_assert_ptr_null(lock_name_problem(name, 1));
    ck_assert_ptr_null(lock_name_problem(name, PAWL_NAME_MAX));
    ck_assert_ptr_null(lock_name_prefix_problem(name, PAWL_NAME_MAX));
    ck_assert_ptr_nonnull(strstr(lock_name_problem(name, PAWL_NAME_MAX + 1), "255"));
    ck_assert_ptr_nonnull(strstr(lock_name_problem(name, 64 * 1024), "255"));
    ck_assert_ptr_nonnull(strstr(lock_name_problem(name, sizeof(name)), "255"));
    ck_assert_ptr_nonnull(strstr(lock_name_prefix_problem(name, PAWL_NAME_MAX + 1), "255"));
}
END_TEST

START_TEST(a_prefix_is_the_beginning_of_a_name)
{
    static const char *const good[] = {"", "a", "a/", "a/b", "a/.", "a/..", ".", "..", "...", "a/.b/"};
    static const char *const bad[] = {"/", "/a", "a//", "./", "../", "a/./", "a/../b", "a b", "\xc3\xa9"};

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        ck_assert_msg(!lock_name_prefix_problem(good[i], strlen(good[i])), "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(lock_name_prefix_problem(bad[i], strlen(bad[i])) != NULL, "%s", bad[i]);
    ck_assert_ptr_nonnull(lock_name_prefix_problem("a\0", 2));
}
END_TEST

START_TEST(every_beginning_of_a_name_is_a_prefix)
{
    static const char name[] = "deploy/.prod/..x/a+b/c";

    for (size_t len = 0; len < sizeof(name); len++)
        ck_assert_ptr_null(lock_name_prefix_problem(name, len));
}
END_TEST

static void decodes(const char *raw, size_t raw_len, const char *want, size_t want_len)
{
    char out[64];

    memset(out, '!', sizeof(out));
    ck_assert_int_eq(percent_decode(raw, raw_len, out, sizeof(out)), (int)want_len);
    ck_assert_mem_eq(out, want, want_len);
    ck_assert_int_eq(out[want_len], '\0');
}

START_TEST(C28_escapes_are_decoded_once)
{
    decodes(BYTES(""), BYTES(""));
    decodes(BYTES("a/b"), BYTES("a/b"));
    decodes(BYTES("a%2Fb"), BYTES("a/b"));
    decodes(BYTES("a%2fb"), BYTES("a/b"));
    decodes(BYTES("a%252Fb"), BYTES("a%2Fb"));
    decodes(BYTES("a+b"), BYTES("a+b"));
    decodes(BYTES("a%2Bb"), BYTES("a+b"));
    decodes(BYTES("%25"), BYTES("%"));
    decodes(BYTES("%C3%a9"), BYTES("\xc3\xa9"));
    decodes(BYTES("%ff\xfe"), BYTES("\xff\xfe"));
}
END_TEST

START_TEST(C28_broken_escapes_and_NUL_are_refused)
{
    static const struct bytes bad[] = {
        ROW("a%00b"), ROW("%00"), ROW("a\0b"), ROW("a%zz"), ROW("%"),   ROW("%4"),  ROW("a%"),  ROW("a%4"),
        ROW("%%41"),  ROW("%4g"), ROW("%g4"),  ROW("% 4"),  ROW("%+4"), ROW("%-1"), ROW("%0x"), ROW("%\xff\xff"),
    };
    char out[64];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(percent_decode(bad[i].at, bad[i].len, out, sizeof(out)) == -1, "row %zu: %s", i, bad[i].at);
}
END_TEST

START_TEST(an_escape_never_reads_beyond_its_text)
{
    char out[8];

    /* The two digits behind the end would make it a good one. */
    ck_assert_int_eq(percent_decode("%41", 1, out, sizeof(out)), -1);
    ck_assert_int_eq(percent_decode("%41", 2, out, sizeof(out)), -1);
    ck_assert_int_eq(percent_decode("%41", 3, out, sizeof(out)), 1);
}
END_TEST

START_TEST(P9_decoding_stays_in_its_block)
{
    char out[8];

    memset(out, '!', sizeof(out));
    ck_assert_int_eq(percent_decode("abc", 3, out, 4), 3);
    ck_assert_str_eq(out, "abc");
    ck_assert_int_eq(percent_decode("abcd", 4, out, 4), -1);
    ck_assert_int_eq(percent_decode("%61%62%63", 9, out, 4), 3);
    ck_assert_int_eq(percent_decode("", 0, out, 1), 0);
    ck_assert_int_eq(percent_decode("a", 1, out, 1), -1);
    ck_assert_int_eq(percent_decode("", 0, out, 0), -1);
    ck_assert_int_eq(out[4], '!');
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lock_name");
    TCase *names = tcase_create("names"), *escapes = tcase_create("escapes");

    tcase_add_test(names, names_that_are_names);
    tcase_add_test(names, C28_what_is_no_name_is_refused);
    tcase_add_test(names, exactly_the_documented_bytes);
    tcase_add_test(names, C42_the_limit_is_255_bytes_and_is_named);
    tcase_add_test(names, a_prefix_is_the_beginning_of_a_name);
    tcase_add_test(names, every_beginning_of_a_name_is_a_prefix);
    suite_add_tcase(suite, names);
    tcase_add_test(escapes, C28_escapes_are_decoded_once);
    tcase_add_test(escapes, C28_broken_escapes_and_NUL_are_refused);
    tcase_add_test(escapes, an_escape_never_reads_beyond_its_text);
    tcase_add_test(escapes, P9_decoding_stays_in_its_block);
    suite_add_tcase(suite, escapes);
    return check_main(suite);
}
