/* Growing text: from the lent block to the heap, up to the limit, through a failed allocation; and JSON strings that are always valid. */
#include "tests/lib/check_main.h"

#include <stdint.h>
#include <string.h>

#include "proto/text.h"
#include "proto/utf8.h"

#define BYTES(literal) (literal), sizeof(literal) - 1

/* Lets a sanitizer's malloc answer NULL to an absurd size, as the C library's does. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static void holds(const struct text *t, const char *want, size_t len)
{
    ck_assert(!t->failed);
    ck_assert_uint_eq(t->len, len);
    ck_assert_mem_eq(t->at, want, len);
}

START_TEST(short_text_stays_in_the_lent_block)
{
    char block[32];
    struct text t;

    text_init(&t, block, sizeof(block), 1000);
    holds(&t, BYTES(""));
    text_str(&t, "ab");
    text_add(&t, "c\0d", 3);
    text_add(&t, "", 0);
    text_add(&t, NULL, 0);
    text_str(&t, "");
    text_int(&t, -12);
    text_fmt(&t, "<%d %s>", 7, "x");
    holds(&t, BYTES("abc\0d-12<7 x>"));
    ck_assert_ptr_eq(t.at, block);
    ck_assert(!t.heap);
    text_close(&t);
}
END_TEST

START_TEST(the_block_is_filled_to_its_last_byte_before_the_heap)
{
    char block[9] = "________!";
    struct text t;

    text_init(&t, block, 8, 1000);
    text_str(&t, "1234");
    text_fmt(&t, "%s", "5678"); /* no byte left for a NUL, and none needed */
    ck_assert_ptr_eq(t.at, block);
    ck_assert_int_eq(block[8], '!');
    text_str(&t, "9");
    ck_assert(t.heap);
    ck_assert_ptr_ne(t.at, block);
    holds(&t, BYTES("123456789"));
    ck_assert_mem_eq(block, "12345678!", 9); /* the lender's block is left alone */
    text_close(&t);
}
END_TEST

START_TEST(growth_keeps_every_byte)
{
    char block[4], want[5000];
    struct text t;

    text_init(&t, block, sizeof(block), sizeof(want));
    for (size_t i = 0; i < sizeof(want); i++) {
        want[i] = (char)('a' + i % 26);
        text_add(&t, &want[i], 1);
    }
    holds(&t, want, sizeof(want));
    ck_assert_uint_le(t.cap, sizeof(want));
    text_close(&t);
}
END_TEST

START_TEST(no_block_at_all_is_fine)
{
    struct text t;

    text_init(&t, NULL, 0, 1000);
    text_str(&t, "x");
    holds(&t, BYTES("x"));
    text_close(&t);
}
END_TEST

START_TEST(P9_the_limit_fails_the_text_and_appends_nothing)
{
    char block[4];
    struct text t;

    text_init(&t, block, sizeof(block), 10);
    text_str(&t, "12345");
    text_str(&t, "67890");
    holds(&t, BYTES("1234567890"));
    text_str(&t, "x");
    ck_assert(t.failed);
    ck_assert_uint_eq(t.len, 10);
    text_close(&t);

    text_init(&t, block, sizeof(block), 10);
    text_str(&t, "12345");
    text_str(&t, "678901"); /* all or nothing */
    ck_assert(t.failed);
    ck_assert_uint_eq(t.len, 5);
    text_str(&t, "6"); /* would fit, but the text has a hole already */
    text_int(&t, 6);
    text_fmt(&t, "%d", 6);
    text_json_string(&t, "6", 1);
    ck_assert_uint_eq(t.len, 5);
    text_close(&t);
}
END_TEST

START_TEST(P9_the_limit_holds_inside_a_larger_block)
{
    char block[32] = {0};
    struct text t;

    text_init(&t, block, sizeof(block), 3);
    text_str(&t, "abc");
    holds(&t, BYTES("abc"));
    text_str(&t, "d");
    ck_assert(t.failed);
    ck_assert_int_eq(block[3], 0);
    text_close(&t);
}
END_TEST

START_TEST(an_allocation_that_fails_is_a_failed_text)
{
    char block[8];
    struct text t;
    volatile size_t absurd = SIZE_MAX / 4; /* refused before a byte of it is read */

    text_init(&t, block, sizeof(block), SIZE_MAX);
    text_str(&t, "first");
    text_add(&t, "", absurd);
    ck_assert(t.failed);
    ck_assert(!t.heap);
    ck_assert_uint_eq(t.len, 5);
    ck_assert_mem_eq(t.at, "first", 5);
    text_str(&t, "x");
    ck_assert_uint_eq(t.len, 5);
    text_close(&t);

    /* On the heap already: the old piece stays owned, and is freed (the leak checker watches). */
    text_init(&t, block, sizeof(block), SIZE_MAX);
    text_str(&t, "longer than the block");
    ck_assert(t.heap);
    text_add(&t, "", absurd);
    ck_assert(t.failed);
    ck_assert_uint_eq(t.len, 21);
    ck_assert_mem_eq(t.at, "longer than the block", 21);
    text_close(&t);

    /* The sum of what is there and what is asked must not wrap. */
    text_init(&t, block, sizeof(block), SIZE_MAX);
    text_str(&t, "first");
    absurd = SIZE_MAX - 2;
    text_add(&t, "", absurd);
    ck_assert(t.failed);
    text_close(&t);
}
END_TEST

START_TEST(after_close_nothing_is_appended)
{
    struct text t;

    text_init(&t, NULL, 0, 100);
    text_str(&t, "x");
    text_close(&t);
    text_str(&t, "y");
    ck_assert_uint_eq(t.len, 0);
    text_close(&t);
}
END_TEST

START_TEST(integers_of_every_size)
{
    static const struct {
        int64_t n;
        const char *text;
    } rows[] = {{0, "0"},
                {9, "9"},
                {10, "10"},
                {-1, "-1"},
                {INT64_C(9007199254740991), "9007199254740991"},
                {INT64_MAX, "9223372036854775807"},
                {INT64_MIN, "-9223372036854775808"}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char block[32];
        struct text t;

        text_init(&t, block, sizeof(block), sizeof(block));
        text_int(&t, rows[i].n);
        holds(&t, rows[i].text, strlen(rows[i].text));
        text_close(&t);
    }
}
END_TEST

START_TEST(formats_of_every_length)
{
    char block[16], long_text[1001];

    memset(long_text, 'l', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    for (int n = 0; n <= 1000; n++) {
        struct text t;

        text_init(&t, block, sizeof(block), 2 + (size_t)n); /* just enough: the NUL that vsnprintf writes is no text */
        text_str(&t, "<");
        text_fmt(&t, "%.*s", n, long_text);
        text_str(&t, ">");
        ck_assert(!t.failed);
        ck_assert_uint_eq(t.len, 2 + (size_t)n);
        ck_assert_mem_eq(t.at + 1, long_text, (size_t)n);
        ck_assert_int_eq(t.at[n + 1], '>');
        text_close(&t);

        text_init(&t, block, sizeof(block), (size_t)n); /* one too few */
        text_str(&t, n > 0 ? "<" : "");
        text_fmt(&t, "%.*s%s", n, long_text, n > 0 ? "" : "x");
        ck_assert(t.failed);
        text_close(&t);
    }
}
END_TEST

static void json_is(const char *bytes, size_t len, const char *want)
{
    char block[8]; /* small, so that most rows cross over to the heap */
    struct text t;

    text_init(&t, block, sizeof(block), 10000);
    text_json_string(&t, bytes, len);
    holds(&t, want, strlen(want));
    text_close(&t);
}

START_TEST(C34_json_strings_escape_what_json_and_terminals_need)
{
    json_is(BYTES(""), "\"\"");
    json_is(BYTES("plain text"), "\"plain text\"");
    json_is(BYTES("a\"b\\c/d"), "\"a\\\"b\\\\c/d\"");
    json_is(BYTES("\n\r\t"), "\"\\n\\r\\t\"");
    json_is(BYTES("\0\x01\x08\x0c\x1b\x1f"), "\"\\u0000\\u0001\\u0008\\u000c\\u001b\\u001f\"");
    json_is(BYTES("\x7f\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0"), "\"\\u007f\\u0080\\u009b\\u009f\xc2\xa0\"");
    json_is(BYTES("%s%n"), "\"%s%n\"");
}
END_TEST

START_TEST(json_strings_pass_utf8_through)
{
    json_is(BYTES("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\x92"), "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x94\x92\"");
    json_is(BYTES("\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xf4\x8f\xbf\xbf"), "\"\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf\xf4\x8f\xbf\xbf\"");
}
END_TEST

#define FFFD "\xef\xbf\xbd"

START_TEST(json_strings_replace_what_is_no_utf8)
{
    json_is(BYTES("a\xff"
                  "b"),
            "\"a" FFFD "b\"");
    json_is(BYTES("\x80"), "\"" FFFD "\"");
    json_is(BYTES("\xc3"), "\"" FFFD "\"");                            /* cut */
    json_is(BYTES("\xc3\""), "\"" FFFD "\\\"\"");                      /* a lead byte does not swallow the quote behind it */
    json_is(BYTES("\xc0\xaf"), "\"" FFFD FFFD "\"");                   /* overlong */
    json_is(BYTES("\xe0\x80\x80"), "\"" FFFD FFFD FFFD "\"");          /* overlong */
    json_is(BYTES("\xed\xa0\x80"), "\"" FFFD FFFD FFFD "\"");          /* surrogate */
    json_is(BYTES("\xf4\x90\x80\x80"), "\"" FFFD FFFD FFFD FFFD "\""); /* beyond U+10FFFF */
    json_is(BYTES("\xf0\x9f\x94z"), "\"" FFFD FFFD FFFD "z\"");
}
END_TEST

START_TEST(P9_a_json_string_respects_the_limit)
{
    char block[64];
    struct text t;

    text_init(&t, block, sizeof(block), 8);
    text_json_string(&t, "\x01", 1);
    holds(&t, BYTES("\"\\u0001\""));
    text_close(&t);
    text_init(&t, block, sizeof(block), 7);
    text_json_string(&t, "\x01", 1);
    ck_assert(t.failed);
    text_close(&t);
}
END_TEST

START_TEST(only_the_shortest_form_of_each_code_point_is_utf8)
{
    /* Every code point, encoded by the book, reads back as itself; surrogates don't. */
    for (uint32_t want = 0; want <= 0x110000; want++) {
        char b[4];
        uint32_t got = 0xdead;
        size_t n = want < 0x80 ? 1 : want < 0x800 ? 2 : want < 0x10000 ? 3 : 4;
        bool valid = want <= 0x10ffff && !(want >= 0xd800 && want <= 0xdfff);

        for (size_t i = n; i-- > 1;)
            b[i] = (char)(0x80 | (want >> (6 * (n - 1 - i)) & 0x3f));
        b[0] = (char)(n == 1 ? want : (0xffu << (8 - n) & 0xffu) | want >> (6 * (n - 1)));
        if (utf8_sequence(b, n, &got) != (valid ? n : 0) || (valid && got != want) || (!valid && got != 0xdead))
            ck_abort_msg("code point %x", (unsigned)want);
        if (n > 1 && utf8_sequence(b, n - 1, &got) != 0)
            ck_abort_msg("code point %x, cut", (unsigned)want);
    }
    ck_assert_uint_eq(utf8_sequence("", 0, &(uint32_t){0}), 0);
    ck_assert_uint_eq(utf8_sequence("\xc1\xbf", 2, &(uint32_t){0}), 0);
    ck_assert_uint_eq(utf8_sequence("\xe0\x9f\xbf", 3, &(uint32_t){0}), 0);
    ck_assert_uint_eq(utf8_sequence("\xf0\x8f\xbf\xbf", 4, &(uint32_t){0}), 0);
    ck_assert_uint_eq(utf8_sequence("\xf8\x88\x80\x80\x80", 5, &(uint32_t){0}), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("text");
    TCase *growth = tcase_create("growth"), *json = tcase_create("json");

    tcase_add_test(growth, short_text_stays_in_the_lent_block);
    tcase_add_test(growth, the_block_is_filled_to_its_last_byte_before_the_heap);
    tcase_add_test(growth, growth_keeps_every_byte);
    tcase_add_test(growth, no_block_at_all_is_fine);
    tcase_add_test(growth, P9_the_limit_fails_the_text_and_appends_nothing);
    tcase_add_test(growth, P9_the_limit_holds_inside_a_larger_block);
    tcase_add_test(growth, an_allocation_that_fails_is_a_failed_text);
    tcase_add_test(growth, after_close_nothing_is_appended);
    tcase_add_test(growth, integers_of_every_size);
    tcase_add_test(growth, formats_of_every_length);
    suite_add_tcase(suite, growth);
    tcase_add_test(json, C34_json_strings_escape_what_json_and_terminals_need);
    tcase_add_test(json, json_strings_pass_utf8_through);
    tcase_add_test(json, json_strings_replace_what_is_no_utf8);
    tcase_add_test(json, P9_a_json_string_respects_the_limit);
    tcase_add_test(json, only_the_shortest_form_of_each_code_point_is_utf8);
    suite_add_tcase(suite, json);
    return check_main(suite);
}
