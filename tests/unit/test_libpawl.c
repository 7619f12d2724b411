/* libpawl: every call against a real pawld (started here), and what no pawld would do against a server that was told what to say. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "client/address.h"
#include "client/moment.h"
#include "client/pawl.h"
#include "client/reply.h"
#include "tests/lib/fake_pawld.h"
#include "tests/lib/pawld_process.h"

static struct pawld_process pawld;
static struct pawl *client;
static struct pawl_problem problem;

static void start_pawld(void)
{
    pawld_process_start(&pawld);
    ck_assert_int_eq(pawl_open(pawld.address, &client, NULL), 0);
}

static void stop_pawld(void)
{
    pawl_close(client);
    pawld_process_stop(&pawld);
}

static struct pawl_lease *take(const char *name, int64_t ttl_ms)
{
    struct pawl_acquire_options want = {.ttl_ms = ttl_ms, .owner = "the test"};
    struct pawl_lease *lease = NULL;
    int code = pawl_acquire(client, name, &want, &lease, &problem);

    ck_assert_msg(code == 0, "%s: %s", name, problem.message);
    return lease;
}

static void give(struct pawl_lease *lease)
{
    ck_assert_int_eq(pawl_release(lease, &problem), 0);
    pawl_lease_free(lease);
}

/* Polls for a state; fails when it doesn't come. */
#define UNTIL(state)                                                                                                                       \
    do {                                                                                                                                   \
        int64_t until_end_ = moment_now_us() + 30000000;                                                                                   \
        while (!(state)) {                                                                                                                 \
            ck_assert_msg(moment_now_us() < until_end_, "not within 30 s: %s", #state);                                                    \
            nanosleep(&(struct timespec){0, 1000000}, NULL);                                                                               \
        }                                                                                                                                  \
    } while (0)

/* ---- addresses ---- */

START_TEST(C43_addresses)
{
    static const struct {
        const char *text, *base;
    } rows[] = {
        {"http://127.0.0.1:7295", "http://127.0.0.1:7295"},
        {"http://127.0.0.1", "http://127.0.0.1:7295"},
        {"http://broker.example:80/", "http://broker.example:80"},
        {"http://[::1]:99", "http://[::1]:99"},
        {"http://[fe80::1%eth0]:99", "http://[fe80::1%25eth0]:99"},
        {"http://[fe80::1%25eth0]", "http://[fe80::1%25eth0]:7295"},
        {"unix:/run/pawl/s", "http://localhost"},
        {"", NULL},
        {"127.0.0.1:7295", NULL},
        {"https://127.0.0.1", "https://127.0.0.1:7295"},
        {"https://[::1]:99/", "https://[::1]:99"},
        {"https://", NULL},
        {"HTTPS://a", NULL},
        {"https://u:p@a:80", NULL},
        {"http://", NULL},
        {"http://:80", NULL},
        {"http://a:0", NULL},
        {"http://a:65536", NULL},
        {"http://a:", NULL},
        {"http://a:1x", NULL},
        {"http://::1", NULL},
        {"http://::1:80", NULL},
        {"http://[::1", NULL},
        {"http://[::1]x", NULL},
        {"http://[127.0.0.1]", NULL},
        {"http://u:p@a:80", NULL},
        {"http://a/path", NULL},
        {"http://a?x", NULL},
        {"http://a b", NULL},
        {"unix:", NULL},
        {"unix:relative", NULL},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct address at;
        const char *wrong = address_parse(rows[i].text, &at);

        ck_assert_msg(!wrong == (rows[i].base != NULL), "%s: %s", rows[i].text, wrong ? wrong : "was taken");
        if (rows[i].base)
            ck_assert_str_eq(at.base, rows[i].base);
        ck_assert(wrong || at.tls == (strncmp(rows[i].text, "https:", 6) == 0));
    }
}
END_TEST

START_TEST(what_is_wrong_with_an_address_is_said)
{
    struct address at;

    ck_assert_str_eq(address_parse("http://a:80/v1", &at), "a path has no place in it");
    ck_assert_str_eq(address_parse("http://a/v1/locks", &at), "a path has no place in it");
    ck_assert_str_eq(address_parse("http://[::1]:80/v1", &at), "a path has no place in it");
    ck_assert_str_eq(address_parse("http://u:p@a:80/v1", &at), "a user name has no place in it");
    ck_assert_str_eq(address_parse("http://a:x", &at), "the port is not a number from 1 to 65535");
}
END_TEST

START_TEST(an_address_that_is_none_is_said_at_once)
{
    struct pawl *other;

    ck_assert_int_eq(pawl_open("ftp://127.0.0.1", &other, &problem), PAWL_ERR_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(problem.message, "http://"));
    ck_assert_int_eq(pawl_open(NULL, &other, NULL), 0);
    pawl_close(other);
}
END_TEST

/* ---- replies ---- */

static int read_reply(const char *body, struct reply *reply)
{
    bool no_memory;

    return reply_read(body, strlen(body), NULL, NULL, reply, &no_memory);
}

START_TEST(C30_duplicate_keys_in_a_reply_are_refused)
{
    struct reply reply;

    ck_assert_int_eq(read_reply("{\"token\": 1, \"token\": 2}", &reply), -1);
    ck_assert_int_eq(read_reply("{\"error\": \"held\", \"holder\": {\"token\": 1, \"\\u0074oken\": 2}}", &reply), -1);
    ck_assert_int_eq(read_reply("{\"token\": 1, \"new\": {\"x\": [1, {}]}, \"newer\": null}", &reply), 0);
    ck_assert_int_eq(reply.lock.token, 1);
}
END_TEST

START_TEST(mistyped_and_out_of_range_fields_are_refused)
{
    static const char *const bad[] = {
        "",
        "[]",
        "null",
        "{\"token\": \"1\"}",
        "{\"token\": 0}",
        "{\"token\": 9007199254740992}",
        "{\"token\": 1.0}",
        "{\"ttl_ms\": -1}",
        "{\"name\": 5}",
        "{\"held\": 1}",
        "{\"holder\": 5}",
        "{\"locks\": {}}",
        "{\"locks\": [5]}",
        "{\"locks\": [{\"name\": \"a\"}]}",
        "{\"lease_id\": \"0123456789012345678901234567890123456\"}",
        "{\"token\": 1} x",
    };
    struct reply reply;

    for (size_t i = 1; i < sizeof(bad) / sizeof(bad[0]); i++)
        ck_assert_msg(read_reply(bad[i], &reply) == -1, "%s", bad[i]);
    ck_assert_int_eq(read_reply(bad[0], &reply), 0); /* empty: nothing seen, so no call is content with it */
    ck_assert_uint_eq(reply.seen, 0);
}
END_TEST

START_TEST(C34_what_people_see_has_no_controls)
{
    struct reply reply;
    char cut[6];

    ck_assert_int_eq(read_reply("{\"owner\": \"a\\u001b[2Jb\\r\\n\\u0085\\u007f\"}", &reply), 0);
    ck_assert_str_eq(reply.lock.owner, "a?[2Jb????");
    reply_clean("ab\xc3\xa4\xc3\xa4", 6, cut, sizeof(cut));
    ck_assert_str_eq(cut, "ab\xc3\xa4");
    reply_clean("\xff\xc3", 2, cut, sizeof(cut));
    ck_assert_str_eq(cut, "??");
}
END_TEST

/* ---- the calls ---- */

START_TEST(a_lease_from_acquire_to_release)
{
    struct pawl_lease *lease = take("life", 20000), *other;
    int64_t token = pawl_lease_token(lease), deadline = pawl_lease_deadline_us(lease), left;
    struct pawl_lock lock;

    ck_assert_int_gt(token, 0);
    ck_assert_int_gt(pawl_lease_left_ms(lease), 10000);
    ck_assert_int_le(pawl_lease_left_ms(lease), 20000);
    ck_assert_str_eq(pawl_lease_name(lease), "life");
    ck_assert_uint_eq(strlen(pawl_lease_id(lease)), 36);
    ck_assert_int_eq(pawl_acquire(client, "life", NULL, &other, &problem), PAWL_ERR_HELD);
    ck_assert_int_eq(problem.holder_token, token);
    ck_assert_str_eq(problem.holder_owner, "the test");
    ck_assert_str_eq(problem.error, "held");
    ck_assert_int_eq(problem.http_status, 409);
    ck_assert_int_eq(pawl_check(client, "life", token, &left, &problem), 0);
    ck_assert_int_le(left, 20000);
    ck_assert_int_eq(pawl_check(client, "life", token + 1, NULL, &problem), PAWL_ERR_LOST);
    ck_assert_int_eq(pawl_renew(lease, 40000, &problem), 0);
    ck_assert_int_eq(pawl_lease_token(lease), token);
    ck_assert_int_gt(pawl_lease_deadline_us(lease), deadline);
    ck_assert_int_eq(pawl_lease_ttl_ms(lease), 40000);
    ck_assert_int_eq(pawl_inspect(client, "life", &lock, &problem), 0);
    ck_assert_int_eq(lock.held, 1);
    ck_assert_int_eq(lock.token, token);
    ck_assert_str_eq(lock.owner, "the test");
    ck_assert_int_eq(pawl_release(lease, &problem), 0);
    ck_assert_int_eq(pawl_lease_deadline_us(lease), 0);
    ck_assert_int_eq(pawl_lease_left_ms(lease), 0);
    ck_assert_int_eq(pawl_renew(lease, 0, &problem), PAWL_ERR_LOST);
    ck_assert_int_eq(pawl_release(lease, &problem), PAWL_ERR_LOST);
    pawl_lease_free(lease);
    ck_assert_int_eq(pawl_inspect(client, "life", &lock, &problem), 0);
    ck_assert_int_eq(lock.held, 0);
    ck_assert_int_eq(lock.token, 0);
}
END_TEST

START_TEST(P7_an_acquire_is_repeated_by_its_lease_id)
{
    struct pawl_acquire_options want = {.ttl_ms = 20000, .lease_id = "0B7AD2C4-41a5-4cde-9f00-1b6d0f6a9e55"};
    struct pawl_lease *first, *second;

    ck_assert_int_eq(pawl_acquire(client, "again", &want, &first, &problem), 0);
    ck_assert_int_eq(pawl_acquire(client, "again", &want, &second, &problem), 0);
    ck_assert_int_eq(pawl_lease_token(first), pawl_lease_token(second));
    ck_assert_str_eq(pawl_lease_id(second), "0b7ad2c4-41a5-4cde-9f00-1b6d0f6a9e55");
    pawl_lease_free(first);
    ck_assert_int_eq(pawl_lease_adopt(client, "again", want.lease_id, &first, &problem), 0);
    ck_assert_int_eq(pawl_lease_token(first), 0);
    ck_assert_int_eq(pawl_lease_deadline_us(first), 0);
    ck_assert_int_eq(pawl_keep_alive(first, NULL, &problem), PAWL_ERR_ARGUMENT);
    ck_assert_int_eq(pawl_renew(first, 5000, &problem), 0);
    ck_assert_int_eq(pawl_lease_token(first), pawl_lease_token(second));
    ck_assert_int_le(pawl_lease_left_ms(first), 5000);
    pawl_lease_free(second);
    give(first);
}
END_TEST

START_TEST(arguments_are_refused_before_anything_is_sent)
{
    struct pawl_acquire_options want = {.ttl_ms = -1};
    struct pawl_lease *lease = NULL;
    struct pawl_lock lock;

    ck_assert_int_eq(pawl_acquire(client, "a b", NULL, &lease, &problem), PAWL_ERR_ARGUMENT);
    ck_assert_int_eq(problem.http_status, 0);
    ck_assert_int_eq(pawl_acquire(client, NULL, NULL, &lease, &problem), PAWL_ERR_ARGUMENT);
    ck_assert_int_eq(pawl_acquire(client, "a", &want, &lease, &problem), PAWL_ERR_ARGUMENT);
    want = (struct pawl_acquire_options){.wait_ms = -1};
    ck_assert_int_eq(pawl_acquire(client, "a", &want, &lease, &problem), PAWL_ERR_ARGUMENT);
    want = (struct pawl_acquire_options){.owner = "two\nlines"};
    ck_assert_int_eq(pawl_acquire(client, "a", &want, &lease, &problem), PAWL_ERR_ARGUMENT);
    want = (struct pawl_acquire_options){.lease_id = "me"};
    ck_assert_int_eq(pawl_acquire(client, "a", &want, &lease, &problem), PAWL_ERR_ARGUMENT);
    ck_assert_ptr_null(lease);
    ck_assert_int_eq(pawl_lease_adopt(client, "a", "me", &lease, &problem), PAWL_ERR_ARGUMENT);
    ck_assert_int_eq(pawl_check(client, "a", 0, NULL, &problem), PAWL_ERR_ARGUMENT);
    ck_assert_int_eq(pawl_check(client, "a", INT64_C(1) << 53, NULL, &problem), PAWL_ERR_ARGUMENT);
    ck_assert_int_eq(pawl_break(client, "a", "", NULL, &problem), PAWL_ERR_ARGUMENT);
    ck_assert_int_eq(pawl_inspect(client, "..", &lock, &problem), PAWL_ERR_ARGUMENT);
    ck_assert_int_eq(pawl_list(client, "a b", NULL, NULL, NULL, &problem), PAWL_ERR_ARGUMENT);
}
END_TEST

START_TEST(what_pawld_refuses_is_an_argument_that_is_named)
{
    struct pawl_acquire_options want = {.ttl_ms = INT64_C(30) * 24 * 3600 * 1000};
    struct pawl_lease *lease;

    ck_assert_int_eq(pawl_acquire(client, "a", &want, &lease, &problem), PAWL_ERR_ARGUMENT);
    ck_assert_str_eq(problem.error, "bad_request");
    ck_assert_ptr_nonnull(strstr(problem.message, "ttl_ms"));
}
END_TEST

static int count_lock(void *arg, const struct pawl_lock *lock)
{
    int *count = arg;

    ck_assert_int_eq(strncmp(lock->name, "many/", 5), 0);
    ck_assert_int_eq(lock->held, 1);
    (*count)++;
    return 0;
}

static int only_one(void *arg, const struct pawl_lock *lock)
{
    (void)lock;
    return ++*(int *)arg;
}

START_TEST(list_goes_through_all_pages)
{
    enum { LOCKS = 2500 };
    char name[32];
    int count = 0;

    for (int i = 0; i < LOCKS; i++) {
        snprintf(name, sizeof(name), "%s/%d", i % 50 ? "many" : "other", i);
        pawl_lease_free(take(name, 60000));
    }
    ck_assert_int_eq(pawl_list(client, "many/", count_lock, &count, NULL, &problem), 0);
    ck_assert_int_ge(count, LOCKS - LOCKS / 50);
    count = 0;
    ck_assert_int_eq(pawl_list(client, NULL, only_one, &count, NULL, &problem), 0);
    ck_assert_int_eq(count, 1);
    count = 0;
    ck_assert_int_eq(pawl_list(client, "nothing", count_lock, &count, NULL, &problem), 0);
    ck_assert_int_eq(count, 0);
}
END_TEST

START_TEST(break_says_whose_it_was)
{
    struct pawl_lease *lease = take("broken", 20000);
    struct pawl_lock was;

    ck_assert_int_eq(pawl_break(client, "broken", "the test wants it", &was, &problem), 0);
    ck_assert_str_eq(was.name, "broken");
    ck_assert_str_eq(was.owner, "the test");
    ck_assert_int_eq(was.token, pawl_lease_token(lease));
    ck_assert_int_eq(pawl_break(client, "broken", "the test wants it", &was, &problem), PAWL_ERR_NOT_HELD);
    ck_assert_int_eq(pawl_renew(lease, 0, &problem), PAWL_ERR_LOST);
    pawl_lease_free(lease);
}
END_TEST

/* ---- waiting ---- */

struct waiter {
    pthread_t thread;
    struct pawl_acquire_options want;
    const char *name;
    int code;
    struct pawl_lease *lease;
    int64_t took_ms;
    struct pawl_problem problem;
};

static void *wait_for_lock(void *arg)
{
    struct waiter *w = arg;
    int64_t begun_us = pawl_now_us();

    w->code = pawl_acquire(client, w->name, &w->want, &w->lease, &w->problem);
    w->took_ms = (pawl_now_us() - begun_us) / 1000;
    return NULL;
}

START_TEST(C03_a_wait_outlasts_the_time_out)
{
    struct waiter w = {.name = "patience", .want = {.ttl_ms = 5000, .wait_ms = 2500}};
    struct pawl_lease *lease = take("patience", 20000);

    pawl_set_timeout(client, 1000);
    wait_for_lock(&w);
    ck_assert_int_eq(w.code, PAWL_ERR_HELD);
    ck_assert_int_ge(w.took_ms, 2500);
    ck_assert_int_lt(w.took_ms, 10000);
    give(lease);
}
END_TEST

START_TEST(C39_the_time_to_live_starts_at_the_grant)
{
    struct waiter w = {.name = "late", .want = {.ttl_ms = 2000, .wait_ms = 20000}};
    struct pawl_lease *lease = take("late", 3000);
    int64_t left, asked_us;

    wait_for_lock(&w); /* the first lease runs out */
    ck_assert_int_eq(w.code, 0);
    ck_assert_int_ge(w.took_ms, 2500);
    left = pawl_lease_left_ms(w.lease);
    ck_assert_int_gt(left, 1500);
    ck_assert_int_le(left, 2000);
    asked_us = pawl_now_us();
    ck_assert_int_eq(pawl_check(client, "late", pawl_lease_token(w.lease), &left, &problem), 0);
    left += (pawl_now_us() - asked_us) / 1000; /* pawld takes off what the question took */
    ck_assert_int_le(pawl_lease_left_ms(w.lease), left + 1);
    pawl_lease_free(lease);
    give(w.lease);
}
END_TEST

START_TEST(cancelling_leaves_the_queue_at_once)
{
    struct waiter w = {.name = "cancel", .want = {.wait_ms = 60000}};
    struct pawl_lease *lease = take("cancel", 60000);
    int cancel = eventfd(0, EFD_CLOEXEC);
    struct pawl *looker;
    struct pawl_lock lock;
    uint64_t one = 1;

    ck_assert_int_eq(pawl_open(pawld.address, &looker, NULL), 0);
    pawl_set_cancel_fd(client, cancel);
    ck_assert_int_eq(pthread_create(&w.thread, NULL, wait_for_lock, &w), 0);
    UNTIL(pawl_inspect(looker, "cancel", &lock, NULL) == 0 && lock.waiters == 1);
    ck_assert_int_eq(write(cancel, &one, sizeof(one)), (int)sizeof(one));
    pthread_join(w.thread, NULL);
    ck_assert_int_eq(w.code, PAWL_ERR_CANCELLED);
    UNTIL(pawl_inspect(looker, "cancel", &lock, NULL) == 0 && lock.waiters == 0);
    ck_assert_int_eq(pawl_renew(lease, 0, &problem), PAWL_ERR_CANCELLED); /* it stays readable */
    pawl_set_cancel_fd(client, -1);
    pawl_close(looker);
    give(lease);
    close(cancel);
}
END_TEST

START_TEST(no_orphan_when_a_cancel_meets_the_grant)
{
    uint64_t one = 1, count;
    int cancel = eventfd(0, EFD_CLOEXEC);
    struct pawl *looker;
    struct pawl_lock lock;
    int cancelled = 0, granted = 0;

    ck_assert_int_eq(pawl_open(pawld.address, &looker, NULL), 0);
    for (int i = 0; i < 200; i++) {
        struct waiter w = {.name = "race", .want = {.ttl_ms = 600000, .wait_ms = 60000}};
        struct timespec pause = {0, moment_random(600000)};

        pawl_set_cancel_fd(client, cancel);
        ck_assert_int_eq(pthread_create(&w.thread, NULL, wait_for_lock, &w), 0);
        nanosleep(&pause, NULL);
        ck_assert_int_eq(write(cancel, &one, sizeof(one)), (int)sizeof(one));
        pthread_join(w.thread, NULL);
        ck_assert_int_eq(read(cancel, &count, sizeof(count)), (int)sizeof(count));
        pawl_set_cancel_fd(client, -1);
        if (w.code == 0) {
            granted++;
            give(w.lease);
        } else {
            ck_assert_int_eq(w.code, PAWL_ERR_CANCELLED);
            cancelled++;
        }
        UNTIL(pawl_inspect(looker, "race", &lock, NULL) == 0 && !lock.held && lock.waiters == 0);
    }
    printf("  %d granted, %d cancelled\n", granted, cancelled);
    pawl_close(looker);
    close(cancel);
}
END_TEST

/* ---- retries ---- */

#define GRANT "200 {\"name\": \"x\", \"lease_id\": \"%L\", \"token\": 77, \"ttl_ms\": 9000, \"owner\": \"\", \"waited_ms\": 0}"
#define SORRY "503 {\"error\": \"store_unavailable\", \"message\": \"not now\"}"

static struct fake_pawld fake;
static struct pawl *with_fake;

static void talk_to_fake(const char *const *answers, size_t count)
{
    fake_pawld_start(&fake, answers, count);
    ck_assert_int_eq(pawl_open(fake.address, &with_fake, NULL), 0);
}

static void leave_fake(void)
{
    pawl_close(with_fake);
    fake_pawld_stop(&fake);
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

START_TEST(C05_P7_retries_use_one_lease_id)
{
    static const char *const answers[] = {SORRY, FAKE_CUT, "502 <html>", "429 {\"error\": \"too_many_connections\", \"message\": \"m\"}",
                                          GRANT};
    char first[40], id[40];
    struct pawl_lease *lease;

    talk_to_fake(answers, COUNT(answers));
    ck_assert_int_eq(pawl_acquire(with_fake, "x", NULL, &lease, &problem), 0);
    ck_assert_int_eq(pawl_lease_token(lease), 77);
    ck_assert_uint_eq(fake_pawld_count(&fake), COUNT(answers));
    fake_pawld_lease_id(fake.requests[0], first);
    ck_assert_uint_eq(strlen(first), 36);
    for (size_t i = 1; i < COUNT(answers); i++) {
        fake_pawld_lease_id(fake.requests[i], id);
        ck_assert_str_eq(id, first);
    }
    ck_assert_str_eq(pawl_lease_id(lease), first);
    pawl_lease_free(lease);
    leave_fake();
}
END_TEST

START_TEST(the_retry_budget_ends_and_the_outcome_is_unknown)
{
    static const char *const answers[] = {SORRY};
    struct pawl_lease *lease;
    int64_t begun_us;

    talk_to_fake(answers, 1);
    pawl_set_retry_budget(with_fake, 2000);
    begun_us = pawl_now_us();
    ck_assert_int_eq(pawl_acquire(with_fake, "x", NULL, &lease, &problem), PAWL_ERR_UNAVAILABLE);
    ck_assert_str_eq(problem.message, "not now");
    ck_assert_int_le(pawl_now_us() - begun_us, 8000000);
    ck_assert_uint_ge(fake_pawld_count(&fake), 3);
    /* the last thing it did was to give back what may have been granted */
    ck_assert_ptr_nonnull(
        strstr(fake.requests[fake_pawld_count(&fake) - 1 < FAKE_REQUESTS_MAX ? fake_pawld_count(&fake) - 1 : 0], "/release"));
    leave_fake();
}
END_TEST

struct retries {
    int count;
    int64_t left_ms;
    char why[sizeof(problem.message)];
};

static void note_retry(void *arg, const struct pawl_problem *why, int64_t left_ms)
{
    struct retries *seen = arg;

    seen->count++;
    seen->left_ms = left_ms;
    snprintf(seen->why, sizeof(seen->why), "%s", why->message);
}

START_TEST(a_call_that_is_tried_again_says_so_once)
{
    static const char *const answers[] = {SORRY};
    struct retries seen = {.count = 0};
    struct pawl_lock lock;

    talk_to_fake(answers, 1);
    pawl_set_on_retry(with_fake, note_retry, &seen);
    pawl_set_retry_budget(with_fake, 0);
    ck_assert_int_eq(pawl_inspect(with_fake, "x", &lock, &problem), PAWL_ERR_UNAVAILABLE);
    ck_assert_int_eq(seen.count, 0);
    pawl_set_retry_budget(with_fake, 2000);
    ck_assert_int_eq(pawl_inspect(with_fake, "x", &lock, &problem), PAWL_ERR_UNAVAILABLE);
    ck_assert_uint_ge(fake_pawld_count(&fake), 4);
    ck_assert_int_eq(seen.count, 1);
    ck_assert_str_eq(seen.why, "not now");
    ck_assert_int_ge(seen.left_ms, 1);
    ck_assert_int_le(seen.left_ms, 2000);
    leave_fake();
}
END_TEST

START_TEST(nobody_there)
{
    struct pawl *nobody;
    struct pawl_lease *lease;

    ck_assert_int_eq(pawl_open("http://127.0.0.1:1", &nobody, NULL), 0);
    pawl_set_retry_budget(nobody, 300);
    ck_assert_int_eq(pawl_acquire(nobody, "x", NULL, &lease, &problem), PAWL_ERR_UNAVAILABLE);
    ck_assert_int_eq(problem.http_status, 0);
    pawl_close(nobody);
    ck_assert_int_eq(pawl_open("unix:/nonexistent/s", &nobody, NULL), 0);
    pawl_set_retry_budget(nobody, 0);
    ck_assert_int_eq(pawl_acquire(nobody, "x", NULL, &lease, &problem), PAWL_ERR_UNAVAILABLE);
    pawl_close(nobody);
}
END_TEST

START_TEST(C23_a_server_that_hangs_is_given_up)
{
    static const char *const answers[] = {FAKE_HANG};
    struct pawl_lease *lease;
    int64_t begun_us, took_us;

    talk_to_fake(answers, 1);
    pawl_set_timeout(with_fake, 300);
    pawl_set_retry_budget(with_fake, 0);
    begun_us = pawl_now_us();
    ck_assert_int_eq(pawl_acquire(with_fake, "x", NULL, &lease, &problem), PAWL_ERR_UNAVAILABLE);
    took_us = pawl_now_us() - begun_us;
    ck_assert_int_ge(took_us, 300000);
    ck_assert_int_le(took_us, 10000000);
    leave_fake();
}
END_TEST

START_TEST(C05_a_release_that_was_done_and_not_heard_of_has_succeeded)
{
    static const char *const answers[] = {GRANT, FAKE_CUT, "410 {\"error\": \"lease_lost\", \"message\": \"m\"}"};
    struct pawl_lease *lease;

    talk_to_fake(answers, COUNT(answers));
    ck_assert_int_eq(pawl_acquire(with_fake, "x", NULL, &lease, &problem), 0);
    ck_assert_int_eq(pawl_release(lease, &problem), 0);
    ck_assert_int_eq(pawl_release(lease, &problem), PAWL_ERR_LOST); /* told at the first try: lost */
    pawl_lease_free(lease);
    leave_fake();
}
END_TEST

START_TEST(a_break_is_never_sent_twice)
{
    static const char *const answers[] = {FAKE_CUT};

    talk_to_fake(answers, 1);
    ck_assert_int_eq(pawl_break(with_fake, "x", "why", NULL, &problem), PAWL_ERR_UNAVAILABLE);
    ck_assert_uint_eq(fake_pawld_count(&fake), 1);
    leave_fake();
}
END_TEST

START_TEST(a_renewal_that_may_have_shortened_the_lease_counts)
{
    static const char *const answers[] = {GRANT, FAKE_CUT};
    struct pawl_lease *lease;

    talk_to_fake(answers, COUNT(answers));
    pawl_set_retry_budget(with_fake, 0);
    ck_assert_int_eq(pawl_acquire(with_fake, "x", NULL, &lease, &problem), 0);
    ck_assert_int_gt(pawl_lease_left_ms(lease), 5000);
    ck_assert_int_eq(pawl_renew(lease, 1000, &problem), PAWL_ERR_UNAVAILABLE);
    ck_assert_int_le(pawl_lease_left_ms(lease), 1000);
    pawl_lease_free(lease);
    leave_fake();
}
END_TEST

START_TEST(what_is_no_pawld_is_told_apart)
{
    static const char *const bad[] = {
        "200 hello",
        "200 {}",
        "200 {\"name\": \"y\", \"lease_id\": \"%L\", \"token\": 77, \"ttl_ms\": 9000}",
        "200 {\"name\": \"x\", \"lease_id\": \"0b7ad2c4-41a5-4cde-9f00-1b6d0f6a9e55\", \"token\": 77, \"ttl_ms\": 9000}",
        "200 {\"name\": \"x\", \"lease_id\": \"%L\", \"token\": 77, \"token\": 77, \"ttl_ms\": 9000}",
        "404 <html>nothing here</html>",
        "204 {}",
        "301 {}",
        "409 <html>conflict</html>",
    };
    struct pawl_lease *lease;

    for (size_t i = 0; i < COUNT(bad); i++) {
        talk_to_fake(&bad[i], 1);
        ck_assert_msg(pawl_acquire(with_fake, "x", NULL, &lease, &problem) == PAWL_ERR_PROTOCOL, "%s: %s", bad[i],
                      pawl_code_name(problem.code));
        leave_fake();
    }
}
END_TEST

START_TEST(P9_a_reply_without_end_is_cut_off)
{
    static char endless[4 << 20];
    const char *answers[] = {endless};
    struct pawl_lock lock;

    memset(endless, ' ', sizeof(endless) - 1);
    memcpy(endless, "200 {\"a\": 1, ", 13);
    talk_to_fake(answers, 1);
    ck_assert_int_eq(pawl_inspect(with_fake, "x", &lock, &problem), PAWL_ERR_PROTOCOL);
    ck_assert_ptr_nonnull(strstr(problem.message, "too long"));
    leave_fake();
}
END_TEST

START_TEST(an_answer_read_after_the_end_is_no_lease)
{
    static const char *const answers[] = {"200 {\"name\": \"x\", \"lease_id\": \"%L\", \"token\": 77, \"ttl_ms\": 0}"};
    struct pawl_lease *lease;

    talk_to_fake(answers, 1);
    ck_assert_int_eq(pawl_acquire(with_fake, "x", NULL, &lease, &problem), PAWL_ERR_LOST);
    ck_assert_ptr_nonnull(strstr(fake.requests[1], "/release"));
    leave_fake();
}
END_TEST

/* ---- the keep-alive ---- */

struct heard {
    pthread_mutex_t lock;
    int renewed, maybe, lost;
    int64_t lost_us, deadline_before_lost_us;
    struct pawl_problem last;
};

static struct heard heard;

static void forget_events(void)
{
    memset(&heard, 0, sizeof(heard));
    pthread_mutex_init(&heard.lock, NULL);
}

static void on_event(void *arg, struct pawl_lease *lease, enum pawl_event event, const struct pawl_problem *why)
{
    struct heard *h = arg;

    pthread_mutex_lock(&h->lock);
    ck_assert_int_eq(h->lost, 0); /* nothing comes after it */
    if (event == PAWL_EVENT_RENEWED)
        h->renewed++;
    else if (event == PAWL_EVENT_MAYBE_LOST)
        h->maybe++;
    else
        h->lost++;
    if (event == PAWL_EVENT_LOST)
        h->lost_us = pawl_now_us();
    else
        h->deadline_before_lost_us = pawl_lease_deadline_us(lease);
    if (why)
        h->last = *why;
    pthread_mutex_unlock(&h->lock);
}

static int heard_of(const int *count)
{
    int n;

    pthread_mutex_lock(&heard.lock);
    n = *count;
    pthread_mutex_unlock(&heard.lock);
    return n;
}

static struct pawl_lease *take_and_keep(const char *name, int64_t ttl_ms)
{
    struct pawl_keep_alive_options keep = {.on_event = on_event, .arg = &heard};
    struct pawl_lease *lease = take(name, ttl_ms);

    forget_events();
    ck_assert_int_eq(pawl_keep_alive(lease, &keep, &problem), 0);
    ck_assert_int_eq(pawl_keep_alive(lease, &keep, &problem), PAWL_ERR_ARGUMENT);
    return lease;
}

START_TEST(the_keep_alive_renews_at_a_third)
{
    struct pawl_lease *lease = take_and_keep("kept", 2400);
    int64_t begun_us = pawl_now_us(), token = pawl_lease_token(lease);

    UNTIL(heard_of(&heard.renewed) >= 3);
    ck_assert_int_ge(pawl_now_us() - begun_us, 3 * 640000);
    ck_assert_int_eq(pawl_check(client, "kept", token, NULL, &problem), 0);
    ck_assert_int_eq(heard_of(&heard.lost), 0);
    give(lease); /* stops it */
}
END_TEST

START_TEST(P10_P11_terms_are_asked_for_and_told)
{
    struct pawl_acquire_options want = {.ttl_ms = 5000, .owner = "the test", .lock_delay_ms = 30000, .max_hold_ms = 60000};
    int64_t begun_us = pawl_now_us();
    struct pawl_lease *lease, *other;
    struct pawl_lock lock;

    ck_assert_int_eq(pawl_acquire(client, "terms", &want, &lease, &problem), 0);
    ck_assert_int_ge(pawl_lease_hold_end_us(lease), begun_us + 50000000);
    ck_assert_int_le(pawl_lease_hold_end_us(lease), pawl_now_us() + 60000000);
    ck_assert_int_eq(pawl_inspect(client, "terms", &lock, &problem), 0);
    ck_assert_int_eq(lock.lock_delay_ms, 30000);
    ck_assert_int_gt(lock.max_hold_left_ms, 50000);
    ck_assert_int_eq(lock.delay_left_ms, 0);
    ck_assert(!pawl_lease_is_at_bound(lease));
    ck_assert_int_eq(pawl_renew(lease, 500000, &problem), 0);
    ck_assert_int_le(pawl_lease_left_ms(lease), 60000);
    ck_assert(pawl_lease_is_at_bound(lease));
    ck_assert_int_eq(pawl_break(client, "terms", "test", NULL, &problem), 0);
    pawl_lease_free(lease);
    ck_assert_int_eq(pawl_acquire(client, "terms", NULL, &other, &problem), PAWL_ERR_HELD);
    ck_assert_int_eq(problem.holder_token, 0);
    ck_assert_int_gt(problem.delay_left_ms, 20000);
    ck_assert_int_eq(pawl_inspect(client, "terms", &lock, &problem), 0);
    ck_assert_int_gt(lock.delay_left_ms, 20000);
    want.lock_delay_ms = 60001;
    ck_assert_int_eq(pawl_acquire(client, "terms", &want, &other, &problem), PAWL_ERR_ARGUMENT);
    want.lock_delay_ms = 0;
    want.max_hold_ms = -1;
    ck_assert_int_eq(pawl_acquire(client, "terms", &want, &other, &problem), PAWL_ERR_ARGUMENT);
    lease = take("no-terms", 5000);
    ck_assert_int_eq(pawl_lease_hold_end_us(lease), 0);
    ck_assert(!pawl_lease_is_at_bound(lease));
    give(lease);
}
END_TEST

START_TEST(P11_the_keep_alive_of_a_lease_at_its_bound_sends_nothing_and_says_lost)
{
    struct pawl_acquire_options want = {.ttl_ms = 1800, .max_hold_ms = 4000};
    struct pawl_keep_alive_options keep = {.on_event = on_event, .arg = &heard};
    int64_t begun_us = pawl_now_us(), end_us;
    struct pawl_lease *lease;

    forget_events();
    ck_assert_int_eq(pawl_acquire(client, "bounded", &want, &lease, &problem), 0);
    end_us = pawl_lease_hold_end_us(lease);
    ck_assert_int_eq(pawl_keep_alive(lease, &keep, &problem), 0);
    UNTIL(heard_of(&heard.lost) == 1);
    ck_assert_int_lt(heard.lost_us, end_us);
    ck_assert_int_ge(heard.lost_us - begun_us, 3000000);
    ck_assert_int_eq(heard.maybe, 0);
    ck_assert_int_ge(heard.renewed, 2);
    ck_assert_int_le(heard.renewed, 10); /* it does not ask again and again for what can't be */
    ck_assert_ptr_nonnull(strstr(heard.last.message, "max_hold"));
    pawl_lease_free(lease);
}
END_TEST

START_TEST(C15d_lost_is_told_at_once_and_once)
{
    struct pawl_lease *lease = take_and_keep("gone", 4500);
    int64_t begun_us = pawl_now_us();

    ck_assert_int_eq(pawl_break(client, "gone", "test", NULL, &problem), 0);
    UNTIL(heard_of(&heard.lost) == 1);
    ck_assert_int_lt(pawl_now_us() - begun_us, 4000000); /* at the next renewal, not at the end */
    ck_assert_str_eq(heard.last.error, "lease_lost");
    ck_assert_int_eq(heard_of(&heard.maybe), 0);
    ck_assert_int_eq(pawl_lease_left_ms(lease), 0);
    pawl_lease_free(lease);
}
END_TEST

START_TEST(C15a_an_outage_shorter_than_the_lease_is_survived)
{
    struct pawl_lease *lease = take_and_keep("outage", 8000);

    pawl_set_timeout(client, 300);
    pawld_process_freeze(&pawld);
    UNTIL(heard_of(&heard.maybe) >= 2);
    pawld_process_thaw(&pawld);
    UNTIL(heard_of(&heard.renewed) >= 1);
    ck_assert_int_eq(heard_of(&heard.lost), 0);
    give(lease);
}
END_TEST

START_TEST(C14_without_answers_it_is_lost_before_its_end)
{
    int in_time = 0;

    /* The margin is 200 ms, and a busy machine may wake the thread later than that; not five times in a row. */
    for (int i = 0; i < 5 && !in_time; i++) {
        struct pawl_lease *lease;
        char name[24];

        snprintf(name, sizeof(name), "silent-%d", i);
        lease = take_and_keep(name, 2000);
        UNTIL(heard_of(&heard.renewed) >= 1 || heard_of(&heard.lost) == 1);
        pawld_process_freeze(&pawld);
        UNTIL(heard_of(&heard.lost) == 1);
        in_time = heard.renewed >= 1 && heard.lost_us < heard.deadline_before_lost_us;
        ck_assert(heard.renewed == 0 || heard.lost_us >= heard.deadline_before_lost_us - 2000000 / 10 - 1000); /* a tenth is the margin */
        pawld_process_thaw(&pawld);
        pawl_lease_free(lease);
    }
    ck_assert(in_time);
}
END_TEST

START_TEST(stopping_the_keep_alive_does_not_wait_for_an_answer)
{
    struct pawl_lease *lease = take_and_keep("stop", 6000);
    int64_t begun_us;

    pawld_process_freeze(&pawld);
    nanosleep(&(struct timespec){2, 100000000}, NULL); /* a renewal is under way, and given up 3.3 s later */
    begun_us = pawl_now_us();
    pawl_keep_alive_stop(lease);
    ck_assert_int_lt(pawl_now_us() - begun_us, 2500000);
    pawl_keep_alive_stop(lease);
    pawld_process_thaw(&pawld);
    pawl_lease_free(lease);
}
END_TEST

/* ---- what it leaves alone ---- */

static int inherited_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;
    int count = 0;

    ck_assert_ptr_nonnull(folder);
    while ((entry = readdir(folder))) {
        int flags = entry->d_name[0] == '.' ? -1 : fcntl(atoi(entry->d_name), F_GETFD);

        if (flags >= 0 && !(flags & FD_CLOEXEC))
            count++;
    }
    closedir(folder);
    return count;
}

START_TEST(no_descriptor_goes_across_exec)
{
    int before = inherited_descriptors();
    struct pawl_lease *lease = take_and_keep("fds", 900);

    UNTIL(heard_of(&heard.renewed) >= 2);
    ck_assert_int_eq(inherited_descriptors(), before);
    give(lease);
}
END_TEST

START_TEST(no_signal_is_touched)
{
    static const char *const answers[] = {FAKE_CUT};
    struct sigaction before[32], after;
    struct pawl_lease *lease;

    for (int n = 1; n < 32; n++)
        ck_assert_int_eq(sigaction(n, NULL, &before[n]), 0);
    ck_assert(before[SIGPIPE].sa_handler == SIG_DFL); /* so a SIGPIPE would end this test */
    talk_to_fake(answers, 1);
    pawl_set_retry_budget(with_fake, 300);
    ck_assert_int_eq(pawl_acquire(with_fake, "x", NULL, &lease, &problem), PAWL_ERR_UNAVAILABLE);
    leave_fake();
    for (int n = 1; n < 32; n++) {
        ck_assert_int_eq(sigaction(n, NULL, &after), 0);
        ck_assert_msg(after.sa_handler == before[n].sa_handler, "the handler of signal %d was changed", n);
    }
}
END_TEST

/* The value of the field in a request that the fake was sent, or "". */
static const char *authorization_of(size_t request)
{
    static char value[128];
    const char *at = strcasestr(fake.requests[request], "\r\nauthorization: ");

    value[0] = '\0';
    if (at)
        (void)sscanf(at + 17, "%127[^\r]", value);
    return value;
}

START_TEST(the_access_token_goes_with_every_call)
{
    static const char *const answers[] = {SORRY, GRANT, "200 {\"name\": \"x\", \"held\": false, \"waiters\": 0}"};
    struct pawl_lease *lease;
    struct pawl_lock lock;

    talk_to_fake(answers, COUNT(answers));
    ck_assert_int_eq(pawl_set_access_token(with_fake, "first", &problem), 0);
    ck_assert_int_eq(pawl_acquire(with_fake, "x", NULL, &lease, &problem), 0);
    ck_assert_str_eq(authorization_of(0), "Bearer first");
    ck_assert_str_eq(authorization_of(1), "Bearer first");
    ck_assert_int_eq(pawl_set_access_token(with_fake, "second", &problem), 0);
    ck_assert_int_eq(pawl_inspect(with_fake, "x", &lock, &problem), 0);
    ck_assert_str_eq(authorization_of(2), "Bearer second");
    ck_assert_int_eq(pawl_set_access_token(with_fake, NULL, &problem), 0);
    ck_assert_int_eq(pawl_inspect(with_fake, "x", &lock, &problem), 0);
    ck_assert_str_eq(authorization_of(3), "");
    pawl_lease_free(lease);
    leave_fake();
}
END_TEST

START_TEST(an_access_token_that_is_none_is_refused_and_not_repeated)
{
    static const char *const bad[] = {"", "hu sh", "hush\n", "hush\r\nX-Evil: 1", "hush\t", "h\xc3\xbcsh", "hush\x7f"};
    static const char *const answers[] = {"200 {\"name\": \"x\", \"held\": false, \"waiters\": 0}"};
    char longest[4098];
    struct pawl_lock lock;

    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    talk_to_fake(answers, COUNT(answers));
    ck_assert_int_eq(pawl_set_access_token(with_fake, "good", &problem), 0);
    for (size_t i = 0; i < COUNT(bad); i++) {
        ck_assert_int_eq(pawl_set_access_token(with_fake, bad[i], &problem), PAWL_ERR_ARGUMENT);
        ck_assert_ptr_null(strstr(problem.message, "hush"));
    }
    ck_assert_int_eq(pawl_set_access_token(with_fake, longest, &problem), PAWL_ERR_ARGUMENT);
    ck_assert_int_eq(pawl_inspect(with_fake, "x", &lock, &problem), 0);
    ck_assert_str_eq(authorization_of(0), "Bearer good");
    longest[4096] = '\0';
    ck_assert_int_eq(pawl_set_access_token(with_fake, longest, &problem), 0);
    leave_fake();
}
END_TEST

START_TEST(a_caller_that_is_refused_does_not_ask_again)
{
    static const char *const answers[] = {"401 {\"error\": \"unauthorized\", \"message\": \"m\"}",
                                          "403 {\"error\": \"forbidden\", \"message\": \"m\"}",
                                          "429 {\"error\": \"too_many_logins\", \"message\": \"m\"}"};
    struct pawl_lock lock;

    talk_to_fake(answers, COUNT(answers));
    for (size_t i = 0; i < COUNT(answers); i++) {
        ck_assert_int_eq(pawl_inspect(with_fake, "x", &lock, &problem), PAWL_ERR_FORBIDDEN);
        ck_assert_uint_eq(fake_pawld_count(&fake), i + 1);
    }
    leave_fake();
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("libpawl");
    TCase *pure = tcase_create("pure"), *calls = tcase_create("calls"), *faults = tcase_create("faults");

    tcase_add_test(pure, C43_addresses);
    tcase_add_test(pure, what_is_wrong_with_an_address_is_said);
    tcase_add_test(pure, an_address_that_is_none_is_said_at_once);
    tcase_add_test(pure, C30_duplicate_keys_in_a_reply_are_refused);
    tcase_add_test(pure, mistyped_and_out_of_range_fields_are_refused);
    tcase_add_test(pure, C34_what_people_see_has_no_controls);
    suite_add_tcase(s, pure);

    tcase_add_checked_fixture(calls, start_pawld, stop_pawld);
    tcase_add_test(calls, a_lease_from_acquire_to_release);
    tcase_add_test(calls, P7_an_acquire_is_repeated_by_its_lease_id);
    tcase_add_test(calls, arguments_are_refused_before_anything_is_sent);
    tcase_add_test(calls, what_pawld_refuses_is_an_argument_that_is_named);
    tcase_add_test(calls, list_goes_through_all_pages);
    tcase_add_test(calls, break_says_whose_it_was);
    tcase_add_test(calls, C03_a_wait_outlasts_the_time_out);
    tcase_add_test(calls, C39_the_time_to_live_starts_at_the_grant);
    tcase_add_test(calls, cancelling_leaves_the_queue_at_once);
    tcase_add_test(calls, no_orphan_when_a_cancel_meets_the_grant);
    tcase_add_test(calls, the_keep_alive_renews_at_a_third);
    tcase_add_test(calls, P10_P11_terms_are_asked_for_and_told);
    tcase_add_test(calls, P11_the_keep_alive_of_a_lease_at_its_bound_sends_nothing_and_says_lost);
    tcase_add_test(calls, C15d_lost_is_told_at_once_and_once);
    tcase_add_test(calls, C15a_an_outage_shorter_than_the_lease_is_survived);
    tcase_add_test(calls, C14_without_answers_it_is_lost_before_its_end);
    tcase_add_test(calls, stopping_the_keep_alive_does_not_wait_for_an_answer);
    tcase_add_test(calls, no_descriptor_goes_across_exec);
    suite_add_tcase(s, calls);

    tcase_add_test(faults, C05_P7_retries_use_one_lease_id);
    tcase_add_test(faults, the_retry_budget_ends_and_the_outcome_is_unknown);
    tcase_add_test(faults, nobody_there);
    tcase_add_test(faults, a_call_that_is_tried_again_says_so_once);
    tcase_add_test(faults, C23_a_server_that_hangs_is_given_up);
    tcase_add_test(faults, C05_a_release_that_was_done_and_not_heard_of_has_succeeded);
    tcase_add_test(faults, a_break_is_never_sent_twice);
    tcase_add_test(faults, a_renewal_that_may_have_shortened_the_lease_counts);
    tcase_add_test(faults, what_is_no_pawld_is_told_apart);
    tcase_add_test(faults, P9_a_reply_without_end_is_cut_off);
    tcase_add_test(faults, an_answer_read_after_the_end_is_no_lease);
    tcase_add_test(faults, no_signal_is_touched);
    tcase_add_test(faults, the_access_token_goes_with_every_call);
    tcase_add_test(faults, an_access_token_that_is_none_is_refused_and_not_repeated);
    tcase_add_test(faults, a_caller_that_is_refused_does_not_ask_again);
    suite_add_tcase(s, faults);
    return s;
}

int main(void)
{
    return check_main(suite());
}
