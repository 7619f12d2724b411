/* Who is asking: which of the things that a caller shows decides, and that the file behind the rules can be replaced under open calls. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/auth.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/log.h"
#include "daemon/login_limit.h"
#include "tests/lib/check_main.h"

/* of "alpha" */
#define HASH_ALPHA "8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8"
#define REST       "\"prefixes\": [\"\"], \"verbs\": [\"read\"]}"

static const char by_all[] = "{\"rules\": [{\"name\": \"token\", \"token_sha256\": \"" HASH_ALPHA "\", " REST
                             ", {\"name\": \"subject\", \"subject\": \"CN=a\", " REST ", {\"name\": \"uid\", \"uid\": 1000, " REST "]}";
static const char by_uid[] = "{\"rules\": [{\"name\": \"other\", \"uid\": 1000, " REST "]}";

static char folder[40], path[64], problem[512];
static struct auth *auth;
static struct peer peer;

static void write_file(const char *text)
{
    FILE *out = fopen(path, "w");

    ck_assert_ptr_nonnull(out);
    fputs(text, out);
    fclose(out);
    ck_assert_int_eq(chmod(path, 0600), 0);
}

static void start(void)
{
    struct sockaddr unnamed = {.sa_family = AF_UNIX};

    log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    strcpy(folder, "/tmp/pawl-test-auth-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/auth.json", folder);
    write_file(by_all);
    peer_init(&peer, &unnamed);
    ck_assert_msg(auth_open(path, &auth, problem, sizeof(problem)) == 0, "%s", problem);
}

static void stop(void)
{
    auth_close(auth);
    unlink(path);
    rmdir(folder);
}

/* Expects a rule of this name, or (NULL) this verdict. */
static void expect(const char *authorization, const char *name, enum auth_verdict verdict)
{
    struct http_slice value = {authorization, authorization ? strlen(authorization) : 0};
    const struct access_rule *rule = NULL;
    int64_t wait_s = 0;

    ck_assert_int_eq(auth_who(auth, value, &peer, 1000000, &rule, &wait_s), name ? AUTH_KNOWN : verdict);
    ck_assert_int_eq(wait_s > 0, verdict == AUTH_TOO_MANY);
    if (name)
        ck_assert_str_eq(access_name(rule), name);
    else
        ck_assert_ptr_null(rule);
}

START_TEST(what_a_caller_shows_decides_in_this_order)
{
    expect(NULL, NULL, AUTH_NOTHING);
    expect("Bearer alpha", "token", AUTH_KNOWN);
    peer.uid = 1000;
    expect(NULL, NULL, AUTH_NOTHING); /* a number that nobody vouched for */
    peer.has_ids = true;
    expect(NULL, "uid", AUTH_KNOWN);
    peer.subject = "CN=b";
    expect(NULL, "uid", AUTH_KNOWN);
    peer.subject = "CN=a";
    expect(NULL, "subject", AUTH_KNOWN);
    expect("Bearer alpha", "token", AUTH_KNOWN);
    expect("Bearer beta", NULL, AUTH_UNKNOWN); /* a wrong token is not made good by the rest */
    expect("Basic alpha", NULL, AUTH_UNKNOWN);
    expect("", NULL, AUTH_UNKNOWN);
    peer.subject = NULL;
    peer.uid = 0;
    expect(NULL, NULL, AUTH_NOTHING);
}
END_TEST

START_TEST(P9_wrong_tokens_are_bounded_and_right_ones_are_not)
{
    for (int i = 0; i < LOGIN_BURST; i++)
        expect("Bearer beta", NULL, AUTH_UNKNOWN);
    expect("Bearer beta", NULL, AUTH_TOO_MANY);
    expect("nonsense", NULL, AUTH_TOO_MANY);
    expect("Bearer alpha", "token", AUTH_KNOWN);
    expect(NULL, NULL, AUTH_NOTHING);
}
END_TEST

START_TEST(a_reload_replaces_the_rules_and_leaves_those_that_are_held)
{
    struct http_slice value = {"Bearer alpha", 12};
    const struct access_rule *rule;
    struct access *held;
    int64_t wait_s;

    ck_assert_int_eq(auth_who(auth, value, &peer, 0, &rule, &wait_s), AUTH_KNOWN);
    held = access_hold(auth_rules(auth));
    write_file(by_uid);
    auth_reload(auth);
    ck_assert_ptr_ne(auth_rules(auth), held);
    expect("Bearer alpha", NULL, AUTH_UNKNOWN);
    ck_assert_str_eq(access_name(rule), "token");
    access_release(held);
    peer.has_ids = true;
    peer.uid = 1000;
    expect(NULL, "other", AUTH_KNOWN);
}
END_TEST

START_TEST(a_bad_file_leaves_the_rules_as_they_are)
{
    struct access *before = auth_rules(auth);

    log_init(LOG_LEVEL_ERROR, LOG_FORMAT_JSON);
    write_file("{");
    auth_reload(auth);
    ck_assert_ptr_eq(auth_rules(auth), before);
    write_file(by_uid);
    ck_assert_int_eq(chmod(path, 0602), 0);
    auth_reload(auth);
    ck_assert_ptr_eq(auth_rules(auth), before);
    unlink(path);
    auth_reload(auth);
    ck_assert_ptr_eq(auth_rules(auth), before);
    expect("Bearer alpha", "token", AUTH_KNOWN);
    auth_reload(NULL);
}
END_TEST

START_TEST(P9_a_file_has_a_size)
{
    FILE *out = fopen(path, "w");

    ck_assert_ptr_nonnull(out);
    for (int i = 0; i < 1024 * 1024; i++)
        fputc(' ', out);
    fputs("{}", out);
    fclose(out);
    ck_assert_int_eq(auth_check(path, problem, sizeof(problem)), -1);
    ck_assert_ptr_nonnull(strstr(problem, "1 MiB"));
    ck_assert_int_eq(auth_check("/nonexistent/auth.json", problem, sizeof(problem)), -1);
    ck_assert_ptr_nonnull(strstr(problem, "/nonexistent/auth.json: "));
    ck_assert_int_eq(auth_check(folder, problem, sizeof(problem)), -1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("auth");
    TCase *tcase = tcase_create("callers");

    tcase_add_checked_fixture(tcase, start, stop);
    tcase_add_test(tcase, what_a_caller_shows_decides_in_this_order);
    tcase_add_test(tcase, P9_wrong_tokens_are_bounded_and_right_ones_are_not);
    tcase_add_test(tcase, a_reload_replaces_the_rules_and_leaves_those_that_are_held);
    tcase_add_test(tcase, a_bad_file_leaves_the_rules_as_they_are);
    tcase_add_test(tcase, P9_a_file_has_a_size);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
