/* Log lines: one event, one line, whatever the values hold (C34), valid JSON however long (P9), and never a reason to stop. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/log.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/check_main.h"

#define LINE_CAP 4096

/* Standard error is a socket that keeps writes apart while a line is caught: what one recv brings is what one write sent. */
static int caught = -1, saved_stderr = -1;

static void catch_start(void)
{
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    saved_stderr = dup(STDERR_FILENO);
    ck_assert_int_ge(dup2(pair[1], STDERR_FILENO), 0);
    close(pair[1]);
    caught = pair[0];
}

static void catch_stop(void)
{
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    close(caught);
    unsetenv("TZ");
}

/* The one write since the last call, without its newline; "" when there was none. */
static const char *line(void)
{
    static char text[LINE_CAP];
    ssize_t n = recv(caught, text, sizeof(text) - 1, MSG_DONTWAIT);
    char more;

    if (n <= 0)
        return "";
    ck_assert_int_eq(text[n - 1], '\n');
    ck_assert_int_le((int)n, 2048);
    text[n - 1] = '\0';
    ck_assert_uint_eq(strlen(text), (size_t)n - 1);
    ck_assert_int_lt((int)recv(caught, &more, 1, MSG_DONTWAIT), 0);
    return text;
}

/* What follows the time stamp of a text line. */
static const char *after_time(void)
{
    const char *text = line();

    ck_assert_uint_gt(strlen(text), 25);
    return text + 25;
}

static json_t *json_line(void)
{
    json_error_t error;
    const char *text = line();
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &error);

    ck_assert_msg(json != NULL, "%s: %s", text, error.text);
    return json;
}

static void assert_printable(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            ck_abort_msg("byte 0x%02x", (unsigned char)*text);
    }
}

START_TEST(text_line_has_the_documented_form)
{
    log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    log_info("lock_broken", LOG_STR("name", "deploy/prod"), LOG_INT("token", 1792000000000001), LOG_STR("reason", "node lost"));
    ck_assert_str_eq(after_time(), "info lock_broken name=\"deploy/prod\" token=1792000000000001 reason=\"node lost\"");
    log_error("stopped");
    ck_assert_str_eq(after_time(), "error stopped");
    log_warn("edges", LOG_INT("least", INT64_MIN), LOG_INT("most", INT64_MAX), LOG_STR("none", (const char *)NULL));
    ck_assert_str_eq(after_time(), "warn edges least=-9223372036854775808 most=9223372036854775807 none=\"\"");
}
END_TEST

START_TEST(json_line_has_the_documented_form)
{
    log_init(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    log_info("lock_broken", LOG_STR("name", "deploy/prod"), LOG_INT("token", 1792000000000001), LOG_STR("reason", "it's \"lost\" \\ gone"));
    json_t *json = json_line();
    ck_assert_uint_eq(json_object_size(json), 6);
    ck_assert_str_eq(json_string_value(json_object_get(json, "level")), "info");
    ck_assert_str_eq(json_string_value(json_object_get(json, "event")), "lock_broken");
    ck_assert_str_eq(json_string_value(json_object_get(json, "name")), "deploy/prod");
    ck_assert_str_eq(json_string_value(json_object_get(json, "reason")), "it's \"lost\" \\ gone");
    ck_assert_int_eq(json_integer_value(json_object_get(json, "token")), 1792000000000001);
    ck_assert_uint_eq(strlen(json_string_value(json_object_get(json, "time"))), 24);
    json_decref(json);
}
END_TEST

START_TEST(time_is_utc_with_milliseconds)
{
    struct timespec before, after;
    struct tm tm = {0};
    long ms;

    setenv("TZ", "Asia/Kathmandu", 1);
    tzset();
    log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    clock_gettime(CLOCK_REALTIME, &before);
    log_info("now");
    clock_gettime(CLOCK_REALTIME, &after);
    const char *text = line(), *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
    ck_assert_ptr_nonnull(rest);
    ck_assert_int_eq(sscanf(rest, ".%3ldZ", &ms), 1);
    ck_assert_int_eq(rest[4], 'Z');
    long long stamp = (long long)timegm(&tm) * 1000 + ms;
    ck_assert_int_ge(stamp, (long long)before.tv_sec * 1000 + before.tv_nsec / 1000000);
    ck_assert_int_le(stamp, (long long)after.tv_sec * 1000 + after.tv_nsec / 1000000);
}
END_TEST

START_TEST(level_decides_what_is_written)
{
    log_init(LOG_LEVEL_WARN, LOG_FORMAT_TEXT);
    log_info("quiet");
    log_debug("quiet");
    log_write(LOG_LEVEL_DEBUG, "quiet", NULL, 0);
    ck_assert_str_eq(line(), "");
    ck_assert(log_enabled(LOG_LEVEL_ERROR) && log_enabled(LOG_LEVEL_WARN) && !log_enabled(LOG_LEVEL_INFO));
    log_warn("heard");
    ck_assert_str_eq(after_time(), "warn heard");
}
END_TEST

START_TEST(C34_forged_lines_stay_in_their_value)
{
    log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    log_info("held", LOG_STR("owner", "x\r\n2026-11-29T17:25:01.123Z info released\tname=\"a\""));
    ck_assert_str_eq(after_time(), "info held owner=\"x\\r\\n2026-11-29T17:25:01.123Z info released\\tname=\\\"a\\\"\"");
    log_info("held", LOG_STR("owner", "\x1b[2J\x7f\x01%s%n%d"));
    ck_assert_str_eq(after_time(), "info held owner=\"\\u001b[2J\\u007f\\u0001%s%n%d\"");
    /* C1 controls, bytes that are no UTF-8, an overlong newline, a NUL, and what turns the reading direction */
    log_info("held", LOG_TEXT("owner",
                              "\xc2\x9b"
                              "2J\x9b\xff\xc0\x8a|\0|\xe2\x80\xae|\xe2\x80\xa8",
                              18));
    ck_assert_str_eq(after_time(), "info held owner=\"\\u009b2J\\x9b\\xff\\xc0\\x8a|\\u0000|\\u202e|\\u2028\"");
    log_info("held", LOG_STR("owner", "gr\xc3\xbc\xc3\x9f \xf0\x9f\x94\x92"));
    ck_assert_str_eq(after_time(), "info held owner=\"gr\xc3\xbc\xc3\x9f \xf0\x9f\x94\x92\"");
}
END_TEST

START_TEST(C34_forged_lines_stay_in_their_value_in_json)
{
    log_init(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    log_info("held", LOG_STR("owner", "\", \"event\": \"released\"}\n{\"a\": \"\x1b[2J%s%n"));
    json_t *json = json_line();
    ck_assert_uint_eq(json_object_size(json), 4);
    ck_assert_str_eq(json_string_value(json_object_get(json, "event")), "held");
    ck_assert_str_eq(json_string_value(json_object_get(json, "owner")), "\", \"event\": \"released\"}\n{\"a\": \"\x1b[2J%s%n");
    json_decref(json);
    log_info("held", LOG_TEXT("owner", "a\xff\xed\xa0\x80z", 6));
    json = json_line();
    ck_assert_str_eq(json_string_value(json_object_get(json, "owner")), "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz");
    json_decref(json);
}
END_TEST

START_TEST(C34_any_bytes_make_one_valid_line)
{
    char value[64];
    unsigned seed = 1;

    for (int round = 0; round < 5000; round++) {
        for (size_t i = 0; i < sizeof(value); i++) {
            seed = seed * 1103515245u + 12345u;
            value[i] = (char)(seed >> 16);
        }
        log_init(LOG_LEVEL_INFO, LOG_FORMAT_JSON);
        log_info("any", LOG_TEXT("value", value, sizeof(value)));
        const char *text = line();
        assert_printable(text);
        json_t *json = json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        ck_assert_msg(json != NULL, "%s", text);
        json_decref(json);
        log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
        log_info("any", LOG_TEXT("value", value, sizeof(value)));
        assert_printable(line());
    }
}
END_TEST

START_TEST(P9_long_value_is_cut_between_characters)
{
    static char big[64 * 1024];
    char expected[300];

    log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    memset(big, 'a', sizeof(big));
    log_info("e", LOG_TEXT("v", big, sizeof(big)));
    snprintf(expected, sizeof(expected), "info e v=\"%.256s...\"", big);
    ck_assert_str_eq(after_time(), expected);
    log_info("e", LOG_TEXT("v", big, 256));
    snprintf(expected, sizeof(expected), "info e v=\"%.256s\"", big);
    ck_assert_str_eq(after_time(), expected);
    memcpy(big + 255, "\xc3\xbc", 2);
    log_info("e", LOG_TEXT("v", big, 1000));
    snprintf(expected, sizeof(expected), "info e v=\"%.255s...\"", big);
    ck_assert_str_eq(after_time(), expected);
}
END_TEST

START_TEST(P9_long_line_is_cut_and_says_so)
{
    char controls[256];
    struct log_field fields[40];

    memset(controls, 1, sizeof(controls));
    for (size_t i = 0; i < 40; i++)
        fields[i] = i % 2 ? LOG_INT("number", i) : LOG_TEXT("controls", controls, sizeof(controls));
    fields[39] = LOG_STR("last", "kept");
    for (int format = LOG_FORMAT_TEXT; format <= LOG_FORMAT_JSON; format++) {
        log_init(LOG_LEVEL_INFO, (enum log_format)format);
        log_write(LOG_LEVEL_INFO, "long", fields, 40);
        const char *text = line();
        assert_printable(text);
        if (format == LOG_FORMAT_TEXT) {
            ck_assert_ptr_nonnull(strstr(text, " cut=19"));
            continue;
        }
        json_t *json = json_loads(text, 0, NULL);
        ck_assert_msg(json != NULL, "%s", text);
        ck_assert_int_eq(json_integer_value(json_object_get(json, "cut")), 19);
        ck_assert_str_eq(json_string_value(json_object_get(json, "last")), "kept");
        json_decref(json);
    }
}
END_TEST

START_TEST(lease_id_is_never_logged_whole)
{
    char none[37] = "";

    log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    log_info("renewed", LOG_ID("lease", "0b2f7c1e-1111-4222-8333-944445555666"));
    ck_assert_str_eq(after_time(), "info renewed lease=\"0b2f7c1e\"");
    log_info("renewed", LOG_ID("lease", none), LOG_TEXT("origin", (const char *)NULL, 0));
    ck_assert_str_eq(after_time(), "info renewed lease=\"\" origin=\"\"");
}
END_TEST

START_TEST(stalled_reader_never_stops_the_daemon)
{
    char block[4096] = {0};
    int pipe_fds[2], flags;

    ck_assert_int_eq(pipe(pipe_fds), 0);
    flags = fcntl(pipe_fds[1], F_GETFL);
    fcntl(pipe_fds[1], F_SETFL, flags | O_NONBLOCK);
    while (write(pipe_fds[1], block, sizeof(block)) > 0)
        ;
    fcntl(pipe_fds[1], F_SETFL, flags); /* blocking again, as standard error is: a write would now wait for ever */
    dup2(pipe_fds[1], STDERR_FILENO);
    log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    for (int i = 0; i < 1000; i++)
        log_info("dropped", LOG_INT("n", i));
    /* with room again lines come again */
    ck_assert_int_eq((int)read(pipe_fds[0], block, sizeof(block)), (int)sizeof(block));
    log_info("heard");
    fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK);
    ssize_t n, last = 0;
    while ((n = read(pipe_fds[0], block, sizeof(block))) > 0)
        last = n;
    ck_assert_int_gt((int)last, 0);
    ck_assert_ptr_nonnull(memmem(block, (size_t)last, "info heard\n", 11));
    ck_assert_ptr_null(memmem(block, (size_t)last, "dropped", 7));
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}
END_TEST

START_TEST(closed_standard_error_never_stops_the_daemon)
{
    log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    close(STDERR_FILENO);
    log_info("nowhere");
    dup2(saved_stderr, STDERR_FILENO);
}
END_TEST

START_TEST(gate_lets_one_line_a_second_through)
{
    struct log_gate gate = {0};
    uint64_t suppressed = 99;

    ck_assert(log_gate_pass(&gate, 5000000, &suppressed));
    ck_assert_uint_eq(suppressed, 0);
    for (int i = 0; i < 975; i++)
        ck_assert(!log_gate_pass(&gate, 5000000 + i * 1000, &suppressed));
    ck_assert(!log_gate_pass(&gate, 5999999, &suppressed));
    ck_assert(log_gate_pass(&gate, 6000000, &suppressed));
    ck_assert_uint_eq(suppressed, 976);
    ck_assert(log_gate_pass(&gate, 9000000, &suppressed));
    ck_assert_uint_eq(suppressed, 0);
}
END_TEST

START_TEST(a_flood_of_equal_lines_is_summed)
{
    int told = 0;

    log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    for (int i = 0; i < 500; i++) {
        log_info("lease_lost", LOG_STR("name", "a"), LOG_INT("n", 1));
        const char *text = line();
        if (i < 100)
            ck_assert_str_eq(text + 25, "info lease_lost name=\"a\" n=1");
        else if (text[0])
            break; /* more than a second has passed: this machine is too slow for the rest */
        if (i == 499)
            told = 400;
    }
    if (!told)
        return;
    log_settle(false);
    log_settle(true);
    ck_assert_str_eq(after_time(), "info repeated of=\"lease_lost\" lines=400");
    log_settle(true);
    ck_assert_str_eq(line(), "");
}
END_TEST

START_TEST(at_debug_and_of_records_every_unlike_line_is_written)
{
    log_init(LOG_LEVEL_DEBUG, LOG_FORMAT_TEXT);
    for (int i = 0; i < 1000; i++) {
        log_debug("granted", LOG_INT("token", i));
        ck_assert_str_ne(line(), "");
    }
    log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    int written = 0;
    for (int i = 0; i < 1000; i++) {
        log_info("expired", LOG_INT("token", i));
        written += line()[0] != '\0';
    }
    ck_assert_int_ge(written, 100);
    for (int i = 0; i < 1000; i++) {
        log_record("lock_broken", LOG_INT("token", i));
        ck_assert_str_ne(line(), "");
    }
    ck_assert_int_lt(written, 1000); /* fewer than one window for each ten lines */
}
END_TEST

/* What the file holds, without the times of its lines. */
static const char *file_text(const char *path)
{
    static char text[LINE_CAP];
    FILE *file = fopen(path, "r");
    char one[LINE_CAP];
    size_t len = 0;

    ck_assert_ptr_nonnull(file);
    text[0] = '\0';
    while (fgets(one, sizeof(one), file))
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s", one + 25);
    fclose(file);
    return text;
}

/* The same bytes, otherwise divided, are another line. */
START_TEST(at_debug_lines_that_equal_a_recent_one_are_summed)
{
    log_init(LOG_LEVEL_DEBUG, LOG_FORMAT_TEXT);
    for (int i = 0; i < 100; i++) {
        log_debug("e", LOG_INT("n", i));
        (void)line();
    }
    log_debug("e", LOG_STR("nam", "ea"), LOG_INT("n", 1));
    ck_assert_str_ne(line(), "");
    log_debug("e", LOG_STR("name", "a"), LOG_INT("n", 1));
    ck_assert_str_ne(line(), "");
}
END_TEST

START_TEST(a_file_is_appended_to_and_opened_anew)
{
    char folder[] = "/tmp/pawl-log-XXXXXX", path[64], moved[64];

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/log", folder);
    snprintf(moved, sizeof(moved), "%s/log.1", folder);
    log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    ck_assert_int_eq(log_open(path), 0);
    log_info("one");
    ck_assert_str_eq(line(), "");
    ck_assert_int_eq(rename(path, moved), 0);
    log_info("two");
    log_reopen();
    log_info("three");
    ck_assert_str_eq(file_text(moved), "info one\ninfo two\n");
    ck_assert_str_eq(file_text(path), "info three\n");
    /* a file that can't be opened: the old one stays, and is told */
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    log_reopen();
    log_info("four");
    ck_assert_int_eq(rmdir(path), 0);
    ck_assert_int_eq(rename(moved, path), 0);
    log_reopen();
    log_info("five");
    ck_assert_str_eq(file_text(path), "info one\ninfo two\ninfo five\n");
    log_close();
    log_info("six");
    ck_assert_str_eq(after_time(), "info six");
    log_reopen(); /* standard error: nothing to do */
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(log_open(folder), -1);
    log_info("seven");
    ck_assert_str_eq(after_time(), "info seven");
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

START_TEST(a_file_that_cannot_be_opened_anew_is_kept)
{
    char folder[] = "/tmp/pawl-log-XXXXXX", path[64], kept[64];

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/log", folder);
    snprintf(kept, sizeof(kept), "%s/log.1", folder);
    log_init(LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    ck_assert_int_eq(log_open(path), 0);
    ck_assert_int_eq(rename(path, kept), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    log_reopen();
    log_info("on");
    log_close();
    ck_assert_ptr_nonnull(strstr(file_text(kept), "error log_file_kept file="));
    ck_assert_ptr_nonnull(strstr(file_text(kept), "info on\n"));
    ck_assert(rmdir(path) == 0 && unlink(kept) == 0 && rmdir(folder) == 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *lines = tcase_create("lines");

    tcase_add_checked_fixture(lines, catch_start, catch_stop);
    tcase_add_test(lines, text_line_has_the_documented_form);
    tcase_add_test(lines, json_line_has_the_documented_form);
    tcase_add_test(lines, time_is_utc_with_milliseconds);
    tcase_add_test(lines, level_decides_what_is_written);
    tcase_add_test(lines, C34_forged_lines_stay_in_their_value);
    tcase_add_test(lines, C34_forged_lines_stay_in_their_value_in_json);
    tcase_add_test(lines, C34_any_bytes_make_one_valid_line);
    tcase_add_test(lines, P9_long_value_is_cut_between_characters);
    tcase_add_test(lines, P9_long_line_is_cut_and_says_so);
    tcase_add_test(lines, lease_id_is_never_logged_whole);
    tcase_add_test(lines, stalled_reader_never_stops_the_daemon);
    tcase_add_test(lines, closed_standard_error_never_stops_the_daemon);
    tcase_add_test(lines, gate_lets_one_line_a_second_through);
    tcase_add_test(lines, a_flood_of_equal_lines_is_summed);
    tcase_add_test(lines, at_debug_and_of_records_every_unlike_line_is_written);
    tcase_add_test(lines, at_debug_lines_that_equal_a_recent_one_are_summed);
    tcase_add_test(lines, a_file_is_appended_to_and_opened_anew);
    tcase_add_test(lines, a_file_that_cannot_be_opened_anew_is_kept);
    suite_add_tcase(suite, lines);
    return check_main(suite);
}
