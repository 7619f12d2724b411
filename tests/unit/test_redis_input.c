/* Answers of Redis, out of bytes that come as they like: whole at their last byte and not before, and none beyond the bounds within which a server is
 * believed (P9). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/redis_input.h"

/* A socket that has what it is told to. */
static struct {
    const char *bytes;
    size_t len;
    int errors[4]; /* of the reads to come, 0: none */
    size_t reads;
    size_t cap; /* of the last read */
} far;

static struct redis_input in;

static ssize_t give(struct stream *s, char *at, size_t cap)
{
    int error = far.reads < 4 ? far.errors[far.reads] : 0;
    size_t n = far.len < cap ? far.len : cap;

    (void)s;
    far.reads++;
    far.cap = cap;
    if (error) {
        errno = error;
        return -1;
    }
    if (n == 0)
        return 0;
    memcpy(at, far.bytes, n);
    far.bytes += n;
    far.len -= n;
    return (ssize_t)n;
}

static const struct stream_ops ops = {.read = give};
static struct stream stream = {.ops = &ops, .fd = -1};

static void start(void)
{
    memset(&far, 0, sizeof(far));
    stream.more = false;
    ck_assert_int_eq(redis_input_init(&in), 0);
    ck_assert_int_eq(redis_input_open(&in), 0);
}

static void end(void)
{
    redis_input_free(&in);
}

static void feed(const char *bytes, size_t len)
{
    far.bytes = bytes;
    far.len = len;
    ck_assert_int_eq(redis_input_read(&in, &stream), (ssize_t)len);
}

static void feed_str(const char *s)
{
    feed(s, strlen(s));
}

static void expect_none(void)
{
    redisReply *reply;

    ck_assert_ptr_null(redis_input_next(&in, &reply));
    ck_assert_ptr_null(reply);
}

static redisReply *next(void)
{
    redisReply *reply;

    ck_assert_ptr_null(redis_input_next(&in, &reply));
    ck_assert_ptr_nonnull(reply);
    return reply;
}

static void expect_number(long long n)
{
    redisReply *reply = next();

    ck_assert_int_eq(reply->type, REDIS_REPLY_INTEGER);
    ck_assert_int_eq(reply->integer, n);
    freeReplyObject(reply);
}

static void expect_problem(const char *part)
{
    redisReply *reply;
    const char *problem = redis_input_next(&in, &reply);

    ck_assert_ptr_nonnull(problem);
    ck_assert_ptr_nonnull(strstr(problem, part));
    ck_assert_ptr_null(reply);
}

START_TEST(an_answer_is_whole_at_its_last_byte_wherever_it_is_cut)
{
    static const char bytes[] = "*3\r\n$4\r\nlost\r\n*2\r\n:-5\r\n$-1\r\n$2\r\n\r\n\r\n";
    size_t len = sizeof(bytes) - 1;

    for (size_t cut = 1; cut < len; cut++) {
        redisReply *reply;

        feed(bytes, cut);
        expect_none();
        feed(bytes + cut, len - cut);
        reply = next();
        ck_assert_int_eq(reply->type, REDIS_REPLY_ARRAY);
        ck_assert_uint_eq(reply->elements, 3);
        ck_assert_str_eq(reply->element[0]->str, "lost");
        ck_assert_int_eq(reply->element[1]->element[0]->integer, -5);
        ck_assert_int_eq(reply->element[1]->element[1]->type, REDIS_REPLY_NIL);
        ck_assert_str_eq(reply->element[2]->str, "\r\n");
        freeReplyObject(reply);
        expect_none();
    }
}
END_TEST

START_TEST(many_answers_come_out_of_one_read_in_order)
{
    redisReply *reply;

    feed_str(":1\r\n-NOSCRIPT none\r\n:3\r\n:");
    expect_number(1);
    reply = next();
    ck_assert_int_eq(reply->type, REDIS_REPLY_ERROR);
    ck_assert_str_eq(reply->str, "NOSCRIPT none");
    freeReplyObject(reply);
    expect_number(3);
    expect_none();
    feed_str("4\r\n");
    expect_number(4);
    expect_none();
}
END_TEST

START_TEST(P9_an_answer_has_only_so_many_bytes)
{
    static char block[65536];
    size_t fed;

    memset(block, 'x', sizeof(block));
    feed_str("$1000000000\r\n");
    for (fed = 13; fed + sizeof(block) <= REDIS_ANSWER_MAX; fed += sizeof(block)) {
        feed(block, sizeof(block));
        expect_none();
    }
    feed(block, REDIS_ANSWER_MAX - fed);
    expect_none();
    feed(block, 1);
    expect_problem("larger");
    feed(block, 1);
    expect_problem("larger");
}
END_TEST

START_TEST(many_small_answers_may_have_as_many_bytes_as_they_like)
{
    static char block[65536];
    enum { EACH = 1024 };

    memset(block, 'x', sizeof(block));
    for (size_t i = 0; i < sizeof(block); i += EACH) {
        memcpy(block + i, "$1015\r\n", 7);
        memcpy(block + i + EACH - 2, "\r\n", 2);
    }
    for (size_t fed = 0; fed <= REDIS_ANSWER_MAX; fed += sizeof(block)) {
        feed(block, sizeof(block));
        for (size_t i = 0; i < sizeof(block); i += EACH)
            freeReplyObject(next());
        expect_none();
    }
}
END_TEST

START_TEST(P9_an_array_has_only_so_many_elements)
{
    char line[40];

    snprintf(line, sizeof(line), "*%d\r\n", REDIS_ELEMENTS_MAX);
    feed_str(line);
    expect_none();
    redis_input_close(&in);
    ck_assert_int_eq(redis_input_open(&in), 0);
    snprintf(line, sizeof(line), ":1\r\n*2\r\n*%d\r\n", REDIS_ELEMENTS_MAX + 1);
    feed_str(line);
    expect_number(1); /* what came before it is believed */
    expect_problem("larger");
    feed_str(":2\r\n");
    expect_problem("larger");
    redis_input_close(&in);
    ck_assert_int_eq(redis_input_open(&in), 0);
    feed_str("!");
    expect_problem("does not speak"); /* of another connection nothing larger was seen */
}
END_TEST

START_TEST(another_kind_of_server_is_told_of)
{
    feed_str("HTTP/1.1 400 Bad Request\r\n");
    expect_problem("does not speak");
    feed_str(":1\r\n");
    expect_problem("does not speak");
}
END_TEST

START_TEST(a_new_connection_knows_nothing_of_the_old_one)
{
    feed_str("$100\r\nabc");
    expect_none();
    redis_input_close(&in);
    ck_assert_int_eq(redis_input_open(&in), 0);
    feed_str(":1\r\n");
    expect_number(1);
    feed_str("!");
    expect_problem("does not speak");
    redis_input_close(&in);
    ck_assert_int_eq(redis_input_open(&in), 0);
    feed_str(":2\r\n");
    expect_number(2);
}
END_TEST

START_TEST(once_closed_it_gives_no_answer)
{
    feed_str(":1\r\n:2\r\n");
    expect_number(1);
    redis_input_close(&in);
    expect_none();
    redis_input_close(&in);
}
END_TEST

START_TEST(a_read_says_what_the_socket_said)
{
    far.errors[0] = far.errors[1] = EINTR;
    far.errors[2] = EAGAIN;
    far.errors[3] = ECONNRESET;
    ck_assert_int_eq(redis_input_read(&in, &stream), -1);
    ck_assert_int_eq(errno, EAGAIN);
    ck_assert_uint_eq(far.reads, 3);
    ck_assert_int_eq(redis_input_read(&in, &stream), -1);
    ck_assert_int_eq(errno, ECONNRESET);
    ck_assert_int_eq(redis_input_read(&in, &stream), 0);
    expect_none();
}
END_TEST

START_TEST(it_says_when_there_may_be_more_without_an_event)
{
    static char zeros[1 << 20];

    feed_str(":1\r\n");
    ck_assert(!in.more);
    stream.more = true;
    feed_str(":1\r\n");
    ck_assert(in.more);
    stream.more = false;
    feed_str(":1\r\n");
    ck_assert(!in.more);
    ck_assert_uint_lt(far.cap, sizeof(zeros));
    feed(zeros, far.cap - 1);
    ck_assert(!in.more);
    feed(zeros, far.cap);
    ck_assert(in.more);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_input");
    TCase *tcase = tcase_create("answers");

    tcase_add_checked_fixture(tcase, start, end);
    tcase_add_test(tcase, an_answer_is_whole_at_its_last_byte_wherever_it_is_cut);
    tcase_add_test(tcase, many_answers_come_out_of_one_read_in_order);
    tcase_add_test(tcase, P9_an_answer_has_only_so_many_bytes);
    tcase_add_test(tcase, many_small_answers_may_have_as_many_bytes_as_they_like);
    tcase_add_test(tcase, P9_an_array_has_only_so_many_elements);
    tcase_add_test(tcase, another_kind_of_server_is_told_of);
    tcase_add_test(tcase, a_new_connection_knows_nothing_of_the_old_one);
    tcase_add_test(tcase, once_closed_it_gives_no_answer);
    tcase_add_test(tcase, a_read_says_what_the_socket_said);
    tcase_add_test(tcase, it_says_when_there_may_be_more_without_an_event);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
