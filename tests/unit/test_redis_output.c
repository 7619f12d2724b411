/* Commands on their way to Redis: their bytes, that they leave together and in order however little the socket takes (P9), and what is left of one without
 * memory. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/redis_output.h"

/* An allocation that can't be is answered by NULL here, as it is without the sanitizer. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

/* A socket that takes what it is told to. */
static struct {
    char bytes[65536];
    size_t len;
    size_t room;   /* of each write; what is over is not taken */
    int errors[4]; /* of the writes to come, 0: none; -1: nothing is taken, without an error */
    size_t writes;
} far;

static struct redis_output out;

static ssize_t take(struct stream *s, const struct iovec *parts, int count)
{
    int error = far.writes < 4 ? far.errors[far.writes] : 0;
    size_t n = parts->iov_len < far.room ? parts->iov_len : far.room;

    (void)s;
    ck_assert_int_eq(count, 1);
    ck_assert_uint_gt(parts->iov_len, 0);
    far.writes++;
    if (error) {
        errno = error;
        return error < 0 ? 0 : -1;
    }
    ck_assert_uint_le(far.len + n, sizeof(far.bytes));
    memcpy(far.bytes + far.len, parts->iov_base, n);
    far.len += n;
    return (ssize_t)n;
}

static const struct stream_ops ops = {.write = take};
static struct stream stream = {.ops = &ops, .fd = -1};

static void start(void)
{
    memset(&far, 0, sizeof(far));
    far.room = SIZE_MAX;
    redis_output_init(&out);
}

static void end(void)
{
    redis_output_close(&out);
}

static void expect(const char *bytes, size_t len)
{
    ck_assert_uint_eq(far.len, len);
    ck_assert_mem_eq(far.bytes, bytes, len);
}

#define EXPECT(literal) expect(literal, sizeof(literal) - 1)

START_TEST(a_command_is_written_as_redis_reads_it)
{
    redis_output_begin(&out, 4);
    redis_output_arg_str(&out, "SET");
    redis_output_arg(&out, "a\0\r\nb", 5);
    redis_output_arg(&out, "", 0);
    redis_output_arg(&out, "0123456789", 10);
    ck_assert_uint_eq(far.writes, 0);
    ck_assert_int_eq(redis_output_write(&out, &stream), 0);
    EXPECT("*4\r\n$3\r\nSET\r\n$5\r\na\0\r\nb\r\n$0\r\n\r\n$10\r\n0123456789\r\n");
    ck_assert(!out.failed);
}
END_TEST

START_TEST(numbers_are_written_to_their_ends)
{
    static const int64_t numbers[] = {0, 7, -7, 10, INT64_MAX, INT64_MIN};

    redis_output_begin(&out, 123);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        redis_output_arg_int(&out, numbers[i]);
    ck_assert_int_eq(redis_output_write(&out, &stream), 0);
    EXPECT("*123\r\n$1\r\n0\r\n$1\r\n7\r\n$2\r\n-7\r\n$2\r\n10\r\n$19\r\n9223372036854775807\r\n$20\r\n-9223372036854775808\r\n");
}
END_TEST

START_TEST(all_commands_of_a_turn_leave_in_one_write)
{
    ck_assert_int_eq(redis_output_write(&out, &stream), 0);
    ck_assert_uint_eq(far.writes, 0); /* nothing is no write */
    for (int i = 0; i < 1000; i++) {
        redis_output_begin(&out, 1);
        redis_output_arg_str(&out, "PING");
    }
    ck_assert_uint_eq(redis_output_pending(&out), 1000 * 14);
    ck_assert_int_eq(redis_output_write(&out, &stream), 0);
    ck_assert_uint_eq(far.writes, 1);
    ck_assert_uint_eq(far.len, 1000 * 14);
    ck_assert_uint_eq(redis_output_pending(&out), 0);
}
END_TEST

START_TEST(what_the_socket_does_not_take_waits_and_stays_in_order)
{
    redis_output_begin(&out, 1);
    redis_output_arg_str(&out, "FIRST");
    far.room = 6;
    far.errors[1] = EAGAIN;
    ck_assert_int_eq(redis_output_write(&out, &stream), -1);
    ck_assert_int_eq(errno, EAGAIN);
    ck_assert_uint_eq(redis_output_pending(&out), 15 - 6);
    redis_output_begin(&out, 1);
    redis_output_arg_str(&out, "SECOND");
    ck_assert_int_eq(redis_output_write(&out, &stream), 0);
    EXPECT("*1\r\n$5\r\nFIRST\r\n*1\r\n$6\r\nSECOND\r\n");
}
END_TEST

START_TEST(an_interrupted_write_is_done_again)
{
    redis_output_begin(&out, 0);
    far.errors[0] = far.errors[1] = EINTR;
    ck_assert_int_eq(redis_output_write(&out, &stream), 0);
    EXPECT("*0\r\n");
}
END_TEST

START_TEST(a_broken_stream_is_told_of)
{
    redis_output_begin(&out, 0);
    far.errors[0] = ECONNRESET;
    far.errors[1] = -1;
    ck_assert_int_eq(redis_output_write(&out, &stream), -1);
    ck_assert_int_eq(errno, ECONNRESET);
    ck_assert_int_eq(redis_output_write(&out, &stream), -1);
    ck_assert_int_eq(errno, EPIPE);
    ck_assert_uint_eq(far.writes, 2);
}
END_TEST

START_TEST(P9_the_memory_of_a_stall_is_given_back)
{
    static const char block[50000];

    redis_output_begin(&out, 1);
    ck_assert_uint_gt(out.cap, 0);
    redis_output_clear(&out);
    ck_assert_uint_gt(out.cap, 0); /* what is usual is kept */
    ck_assert_uint_eq(redis_output_pending(&out), 0);
    for (int i = 0; i < 100; i++)
        redis_output_arg(&out, block, sizeof(block));
    ck_assert_uint_eq(redis_output_pending(&out), 100 * (8 + sizeof(block) + 2));
    redis_output_clear(&out);
    ck_assert_uint_eq(out.cap, 0);
    redis_output_begin(&out, 7);
    ck_assert_int_eq(redis_output_write(&out, &stream), 0);
    EXPECT("*7\r\n");
}
END_TEST

START_TEST(without_memory_nothing_more_is_taken_until_it_is_cleared)
{
    size_t pending;

    redis_output_begin(&out, 3);
    redis_output_arg_str(&out, "SET");
    pending = redis_output_pending(&out);
    redis_output_arg(&out, "never read", (size_t)1 << 60);
    ck_assert(out.failed);
    redis_output_arg_str(&out, "v");
    redis_output_begin(&out, 1);
    redis_output_arg_int(&out, 1);
    ck_assert_uint_eq(redis_output_pending(&out), pending); /* no command is taken for the rest of that one */
    redis_output_clear(&out);
    ck_assert(!out.failed);
    redis_output_begin(&out, 1);
    ck_assert_int_eq(redis_output_write(&out, &stream), 0);
    EXPECT("*1\r\n");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_output");
    TCase *tcase = tcase_create("commands");

    tcase_add_checked_fixture(tcase, start, end);
    tcase_add_test(tcase, a_command_is_written_as_redis_reads_it);
    tcase_add_test(tcase, numbers_are_written_to_their_ends);
    tcase_add_test(tcase, all_commands_of_a_turn_leave_in_one_write);
    tcase_add_test(tcase, what_the_socket_does_not_take_waits_and_stays_in_order);
    tcase_add_test(tcase, an_interrupted_write_is_done_again);
    tcase_add_test(tcase, a_broken_stream_is_told_of);
    tcase_add_test(tcase, P9_the_memory_of_a_stall_is_given_back);
    tcase_add_test(tcase, without_memory_nothing_more_is_taken_until_it_is_cleared);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
