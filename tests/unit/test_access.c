/* The rules of access: what a file of them means, what is refused and how it is named, and that no right comes from a typo. The matrix of verbs and names is
 * held here for the rules alone; tests/system/test_access.py holds it again through every route. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/access.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/check_main.h"

/* printf %s TOKEN | sha256sum */
#define HASH_ALPHA "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8" /* alpha */
#define HASH_BETA  "f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753" /* beta */
#define HASH_GAMMA "9f4bb75c8ea8ddf9f1ee2eb0dc1bce2e3e3b1d7d5f3cd1cf3e1f0ad6b8f0d0a1" /* of nothing in particular */

#define RULE(name, rest) "{\"name\": \"" name "\", " rest "}"
#define USUAL            "\"prefixes\": [\"a/\"], \"verbs\": [\"acquire\"]"
#define FILE_OF(rules)   "{\"rules\": [" rules "]}"

static struct access *set;
static char problem[512];

static void stop(void)
{
    access_release(set);
    set = NULL;
}

static void parse(const char *text)
{
    stop();
    problem[0] = '\0';
    set = access_parse(text, strlen(text), problem, sizeof(problem));
}

static void good(const char *text)
{
    parse(text);
    ck_assert_msg(set != NULL, "%s: %s", text, problem);
}

static void bad(const char *text, const char *expected)
{
    parse(text);
    ck_assert_msg(set == NULL, "%s is taken", text);
    ck_assert_msg(strcmp(problem, expected) == 0, "%s:\n%s\nexpected\n%s", text, problem, expected);
}

static const struct access_rule *by_token(const char *token)
{
    const struct access_rule *rule = NULL;

    ck_assert_int_eq(access_by_token(set, token, strlen(token), &rule), 0);
    return rule;
}

static void finds(const struct access_rule *rule, const char *name)
{
    if (!name)
        ck_assert_ptr_null(rule);
    else
        ck_assert_str_eq(access_name(rule), name);
}

/* ---------------------------------------------------------------- look-up */

START_TEST(each_credential_finds_its_rule_and_no_other)
{
    good(FILE_OF(RULE("one", "\"token_sha256\": \"" HASH_ALPHA "\", " USUAL) ", " RULE(
        "two", "\"token_sha256\": [\"" HASH_BETA "\", \"" HASH_GAMMA
               "\"], \"subject\": \"CN=two,O=Example\", " USUAL) ", " RULE("three", "\"uid\": 0, " USUAL)));
    ck_assert_uint_eq(access_count(set), 3);
    finds(by_token("alpha"), "one");
    finds(by_token("beta"), "two");
    finds(by_token("alphA"), NULL);
    finds(by_token("alpha "), NULL);
    finds(by_token("alph"), NULL);
    finds(by_token(""), NULL);
    finds(by_token(HASH_ALPHA), NULL); /* who has read the file has no token */
    finds(access_by_subject(set, "CN=two,O=Example"), "two");
    finds(access_by_subject(set, "CN=two"), NULL);
    finds(access_by_subject(set, "cn=two,O=Example"), NULL);
    finds(access_by_subject(set, ""), NULL);
    finds(access_by_uid(set, 0), "three");
    finds(access_by_uid(set, 1), NULL);
    finds(access_by_uid(set, (uid_t)-1), NULL);
}
END_TEST

START_TEST(hex_digits_may_be_of_either_case)
{
    good(FILE_OF(RULE("one", "\"token_sha256\": \"8ED3F6AD685B959EAD7022518E1AF76CD816F8E8EC7CCDDA1ED4018E8F2223F8\", " USUAL)));
    finds(by_token("alpha"), "one");
}
END_TEST

START_TEST(P9_the_last_rule_of_the_greatest_file_is_found)
{
    char *text = malloc(1000 * 160 + 64), *at = text;

    ck_assert_ptr_nonnull(text);
    at += sprintf(at, "{\"rules\": [");
    for (int i = 0; i < ACCESS_RULES_MAX - 1; i++)
        at += sprintf(at, "{\"name\": \"r%d\", \"token_sha256\": \"%064x\", " USUAL "},", i, i + 1);
    sprintf(at, RULE("last", "\"token_sha256\": \"" HASH_ALPHA "\", " USUAL) "]}");
    good(text);
    ck_assert_uint_eq(access_count(set), ACCESS_RULES_MAX);
    finds(by_token("alpha"), "last");
    finds(by_token("beta"), NULL);
    sprintf(at, RULE("last", "\"token_sha256\": \"" HASH_ALPHA "\", " USUAL) "," RULE("more", "\"uid\": 1, " USUAL) "]}");
    bad(text, "rule 1001: there can be at most 1000");
    free(text);
}
END_TEST

START_TEST(a_set_lives_as_long_as_somebody_holds_it)
{
    const struct access_rule *rule;
    struct access *held;

    good(FILE_OF(RULE("one", "\"token_sha256\": \"" HASH_ALPHA "\", " USUAL)));
    rule = by_token("alpha");
    held = access_hold(set);
    stop();
    ck_assert_str_eq(access_name(rule), "one"); /* the sanitizer would know */
    access_release(held);
    access_release(NULL);
}
END_TEST

/* ---------------------------------------------------------------- the matrix */

static const struct {
    const char *verbs, *prefixes, *name;
    bool acquire, read, breaks; /* may it? */
} matrix[] = {
    {"[\"acquire\"]", "[\"a/\"]", "a/1", true, false, false},
    {"[\"read\"]", "[\"a/\"]", "a/1", false, true, false},
    {"[\"break\"]", "[\"a/\"]", "a/1", false, false, true},
    {"[\"admin\"]", "[\"a/\"]", "a/1", true, true, true},
    {"[\"acquire\", \"break\"]", "[\"a/\"]", "a/1", true, false, true},
    {"[\"read\", \"acquire\"]", "[\"a/\"]", "a/1", true, true, false},
    {"[\"admin\"]", "[\"a/\"]", "b/1", false, false, false},
    {"[\"admin\"]", "[\"a/\"]", "a", false, false, false},     /* shorter than the prefix */
    {"[\"admin\"]", "[\"a/\"]", "A/1", false, false, false},   /* another name */
    {"[\"admin\"]", "[\"a/\"]", "x/a/1", false, false, false}, /* a prefix, not a part */
    {"[\"admin\"]", "[\"a\"]", "abc", true, true, true},       /* bytes, not segments */
    {"[\"admin\"]", "[\"a/\"]", "a/b/c", true, true, true},
    {"[\"admin\"]", "[\"b/\", \"a/1\"]", "a/1", true, true, true}, /* the second of two; a whole name */
    {"[\"admin\"]", "[\"b/\", \"a/1\"]", "a/2", false, false, false},
    {"[\"admin\"]", "[\"\"]", "whatever/it/is", true, true, true},
    {"[\"read\"]", "[\"\"]", "whatever/it/is", false, true, false},
};

START_TEST(verbs_and_prefixes)
{
    const struct access_rule *rule;
    char text[512];

    snprintf(text, sizeof(text), FILE_OF("{\"name\": \"one\", \"uid\": 7, \"prefixes\": %s, \"verbs\": %s}"), matrix[_i].prefixes,
             matrix[_i].verbs);
    good(text);
    rule = access_by_uid(set, 7);
    ck_assert_int_eq(access_allows(rule, ACCESS_ACQUIRE, matrix[_i].name, strlen(matrix[_i].name)), matrix[_i].acquire);
    ck_assert_int_eq(access_allows(rule, ACCESS_READ, matrix[_i].name, strlen(matrix[_i].name)), matrix[_i].read);
    ck_assert_int_eq(access_allows(rule, ACCESS_BREAK, matrix[_i].name, strlen(matrix[_i].name)), matrix[_i].breaks);
    ck_assert_int_eq(access_allows_some(rule, ACCESS_ADMIN), strstr(matrix[_i].verbs, "admin") != NULL);
}
END_TEST

START_TEST(what_a_list_can_show)
{
    static const struct {
        const char *prefix;
        bool some;
    } asked[] = {{"", true},       {"a", true},        {"a/", true},   {"a/1", true}, {"b", true},
                 {"b/only", true}, {"b/only/x", true}, {"b/x", false}, {"c", false},  {"aa", false}};

    good(FILE_OF(
        "{\"name\": \"one\", \"uid\": 7, \"prefixes\": [\"a/\", \"b/only\"], \"verbs\": [\"read\"]}, {\"name\": \"two\", \"uid\": 8, "
        "\"prefixes\": [\"\"], \"verbs\": [\"acquire\", \"break\"]}"));
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        ck_assert_msg(access_sees_some(access_by_uid(set, 7), asked[i].prefix, strlen(asked[i].prefix)) == asked[i].some, "%s",
                      asked[i].prefix);
        ck_assert(!access_sees_some(access_by_uid(set, 8), asked[i].prefix, strlen(asked[i].prefix)));
    }
}
END_TEST

/* ---------------------------------------------------------------- refusals */

#define TOKEN_A "\"token_sha256\": \"" HASH_ALPHA "\", "

static const struct {
    const char *text, *problem;
} refused[] = {
    {"", "must be a JSON object, {\"rules\": [...]}"},
    {" \n", "must be a JSON object, {\"rules\": [...]}"},
    {"[]", "must be a JSON object, {\"rules\": [...]}"},
    {"rules = x", "must be a JSON object, {\"rules\": [...]}"},
    {"{}", "rules is missing"},
    {"{\"rules\": []}", "rules: is an empty list"},
    {"{\"rules\": {}}", "rules: must be a list"},
    {"{\"rules\": null}", "rules: must be a list"},
    {"{\"rule\": []}", "beside \"rules\" there is another field"},
    {"{\"rules\": [1]}", "rule 1: must be an object"},
    {"{\"rules\": [\n{\"name\": }]}", "line 2, column 10: the file is not valid JSON"},
    {"{\"rules\": [], \"rules\": []}", "line 1, column 21: the file gives a field twice, or one that can't be read"},
    {FILE_OF("{\"name\": \"x\", \"name\": \"y\"}"), "line 1, column 31: the file gives a parameter more than once"},
    {FILE_OF(RULE("x", TOKEN_A USUAL)) "x", "line 1, column 153: the file goes on after its JSON object"},
    {FILE_OF("{" TOKEN_A USUAL "}"), "rule 1: name is missing"},
    {FILE_OF(RULE("x", "\"verbs\": [\"read\"], \"prefixes\": [\"\"]")),
     "rule 1 \"x\": one of token_sha256, subject and uid is missing: nobody could be meant"},
    {FILE_OF(RULE("x", TOKEN_A "\"verbs\": [\"read\"]")), "rule 1 \"x\": prefixes is missing"},
    {FILE_OF(RULE("x", TOKEN_A "\"prefixes\": [\"\"]")), "rule 1 \"x\": verbs is missing"},
    {FILE_OF(RULE("", TOKEN_A USUAL)), "rule 1: name: must have 1 to 64 bytes"},
    {FILE_OF(RULE("a\\nb", TOKEN_A USUAL)), "rule 1: name: must not hold control characters"},
    {FILE_OF("{\"name\": 5, " TOKEN_A USUAL "}"), "rule 1: name: must be a text"},
    {FILE_OF(RULE("x", "\"verbz\": [], " TOKEN_A USUAL)),
     "rule 1 \"x\": has a field that is none of name, token_sha256, subject, uid, prefixes, verbs"},
    {FILE_OF(RULE("x", "\"token\": \"hush\", " USUAL)),
     "rule 1 \"x\": a token does not stand in this file, only its SHA-256, as token_sha256"},
    {FILE_OF("{\"token_sha256\": \"hush\", \"name\": \"x\"}"),
     "rule 1 \"x\": token_sha256: must be the SHA-256 of a token in 64 hex digits, or a list of such"},
    {FILE_OF(RULE("x", "\"token_sha256\": \"8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223g8\"")),
     "rule 1 \"x\": token_sha256: must be the SHA-256 of a token in 64 hex digits, or a list of such"},
    {FILE_OF(RULE("x", "\"token_sha256\": \"" HASH_ALPHA "0\"")),
     "rule 1 \"x\": token_sha256: must be the SHA-256 of a token in 64 hex digits, or a list of such"},
    {FILE_OF(RULE("x", "\"token_sha256\": []")), "rule 1 \"x\": token_sha256: is an empty list"},
    {FILE_OF(RULE("x", "\"token_sha256\": [7]")),
     "rule 1 \"x\": token_sha256: must be the SHA-256 of a token in 64 hex digits, or a list of such"},
    {FILE_OF(RULE("x", "\"token_sha256\": \"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"")),
     "rule 1 \"x\": token_sha256: is the hash of an empty token"},
    {FILE_OF(RULE("x", "\"token_sha256\": \"01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b\"")),
     "rule 1 \"x\": token_sha256: is the hash of an empty token"},
    {FILE_OF(RULE("x", TOKEN_A "\"prefixes\": [], \"verbs\": [\"read\"]")), "rule 1 \"x\": prefixes: is an empty list"},
    {FILE_OF(RULE("x", TOKEN_A "\"prefixes\": \"a/\", \"verbs\": [\"read\"]")), "rule 1 \"x\": prefixes: must be a list"},
    {FILE_OF(RULE("x", TOKEN_A "\"prefixes\": [7], \"verbs\": [\"read\"]")), "rule 1 \"x\": prefixes: must be texts"},
    {FILE_OF(RULE("x", TOKEN_A "\"prefixes\": [\"a/\", \"a/\"], \"verbs\": [\"read\"]")), "rule 1 \"x\": prefixes: one is given twice"},
    {FILE_OF(RULE("x", TOKEN_A "\"prefixes\": [\"\"], \"verbs\": []")), "rule 1 \"x\": verbs: is an empty list"},
    {FILE_OF(RULE("x", TOKEN_A "\"prefixes\": [\"\"], \"verbs\": [\"write\"]")),
     "rule 1 \"x\": verbs: must be among acquire, read, break, admin"},
    {FILE_OF(RULE("x", TOKEN_A "\"prefixes\": [\"\"], \"verbs\": [\"Read\"]")),
     "rule 1 \"x\": verbs: must be among acquire, read, break, admin"},
    {FILE_OF(RULE("x", TOKEN_A "\"prefixes\": [\"\"], \"verbs\": [\"read\", \"read\"]")), "rule 1 \"x\": verbs: one is given twice"},
    {FILE_OF(RULE("x", "\"uid\": -1, " USUAL)), "rule 1 \"x\": uid: must be a whole number from 0 to 4294967294"},
    {FILE_OF(RULE("x", "\"uid\": 4294967295, " USUAL)), "rule 1 \"x\": uid: must be a whole number from 0 to 4294967294"},
    {FILE_OF(RULE("x", "\"uid\": \"root\", " USUAL)), "rule 1 \"x\": uid: must be a whole number from 0 to 4294967294"},
    {FILE_OF(RULE("x", "\"subject\": \"\", " USUAL)), "rule 1 \"x\": subject: must be a text of 1 to 1024 bytes"},
    {FILE_OF(RULE("x", TOKEN_A USUAL) ", " RULE("x", "\"uid\": 1, " USUAL)), "rule 2 \"x\": name: rule 1 has the same"},
    {FILE_OF(RULE("x", TOKEN_A USUAL) ", " RULE("y", TOKEN_A USUAL)), "rule 2 \"y\": token_sha256: rule 1 has the same token"},
    {FILE_OF(RULE("x", "\"token_sha256\": [\"" HASH_ALPHA "\", \"" HASH_ALPHA "\"], " USUAL)),
     "rule 1 \"x\": token_sha256: rule 1 has the same token"},
    {FILE_OF(RULE("x", "\"subject\": \"CN=a\", " USUAL) ", " RULE("y", "\"subject\": \"CN=a\", " USUAL)),
     "rule 2 \"y\": subject: rule 1 has the same"},
    {FILE_OF(RULE("x", "\"uid\": 5, " USUAL) ", " RULE("y", "\"uid\": 5, " USUAL)), "rule 2 \"y\": uid: rule 1 has the same"},
};

START_TEST(what_is_refused_is_named)
{
    bad(refused[_i].text, refused[_i].problem);
}
END_TEST

START_TEST(a_prefix_that_no_name_has_is_refused)
{
    parse(FILE_OF(RULE("x", TOKEN_A "\"prefixes\": [\"a//\"], \"verbs\": [\"read\"]")));
    ck_assert_ptr_null(set);
    ck_assert_ptr_nonnull(strstr(problem, "rule 1 \"x\": prefixes: "));
    ck_assert_ptr_null(strstr(problem, "a//"));
}
END_TEST

/* Broken: a token that stands in the wrong place comes out in a log. */
START_TEST(no_sentence_repeats_what_stands_in_the_file)
{
    static const char *const places[] = {
        "{\"hush\": []}",
        "{\"rules\": \"hush\"}",
        "{\"rules\": [\"hush\"]}",
        "{\"rules\": [{\"hush\": 1}]}",
        "{\"rules\": [{\"name\": \"x\", \"token_sha256\": \"hush\"}]}",
        "{\"rules\": [{\"name\": \"x\", \"token_sha256\": [\"hush\"]}]}",
        "{\"rules\": [{\"name\": \"x\", \"verbs\": [\"hush\"]}]}",
        "{\"rules\": [{\"name\": \"x\", \"verbs\": \"hush\"}]}",
        "{\"rules\": [{\"name\": \"x\", \"prefixes\": [\"hush/../\"]}]}",
        "{\"rules\": [{\"name\": \"x\", \"uid\": \"hush\"}]}",
        "{\"rules\": [{\"name\": \"x\", \"subject\": [\"hush\"]}]}",
        "{\"rules\": [{\"name\": \"x\", hush}]}",
        "{\"hush\": 1, \"hush\": 2}",
        "hush",
    };

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        parse(places[i]);
        ck_assert_ptr_null(set);
        ck_assert_msg(problem[0] && !strstr(problem, "hush"), "%s: %s", places[i], problem);
    }
}
END_TEST

START_TEST(P9_lists_have_a_limit)
{
    char text[16384], *at = text;

    at += sprintf(at, "{\"rules\": [{\"name\": \"x\", \"token_sha256\": [");
    for (int i = 0; i <= ACCESS_TOKENS_MAX; i++)
        at += sprintf(at, "%s\"%064x\"", i ? ", " : "", i + 1);
    sprintf(at, "], " USUAL "}]}");
    bad(text, "rule 1 \"x\": token_sha256: can have at most 8");
    at = text + sprintf(text, "{\"rules\": [{\"name\": \"x\", \"uid\": 1, \"verbs\": [\"read\"], \"prefixes\": [");
    for (int i = 0; i <= ACCESS_PREFIXES_MAX; i++)
        at += sprintf(at, "%s\"p%d\"", i ? ", " : "", i);
    sprintf(at, "]}]}");
    bad(text, "rule 1 \"x\": prefixes: can have at most 256");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("access");
    TCase *tcase = tcase_create("rules");

    tcase_add_checked_fixture(tcase, NULL, stop);
    tcase_add_test(tcase, each_credential_finds_its_rule_and_no_other);
    tcase_add_test(tcase, hex_digits_may_be_of_either_case);
    tcase_add_test(tcase, P9_the_last_rule_of_the_greatest_file_is_found);
    tcase_add_test(tcase, a_set_lives_as_long_as_somebody_holds_it);
    tcase_add_loop_test(tcase, verbs_and_prefixes, 0, sizeof(matrix) / sizeof(matrix[0]));
    tcase_add_test(tcase, what_a_list_can_show);
    tcase_add_loop_test(tcase, what_is_refused_is_named, 0, sizeof(refused) / sizeof(refused[0]));
    tcase_add_test(tcase, a_prefix_that_no_name_has_is_refused);
    tcase_add_test(tcase, no_sentence_repeats_what_stands_in_the_file);
    tcase_add_test(tcase, P9_lists_have_a_limit);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
