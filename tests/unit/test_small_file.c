/* What is read as a whole, and what is refused before it is: the same for options, rules and certificates. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/small_file.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/check_main.h"

static char folder[40], path[64], why[128];
static struct small_file file;

static void write_bytes(const char *bytes, size_t len)
{
    FILE *out = fopen(path, "w");

    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(bytes, 1, len, out), len);
    ck_assert_int_eq(fclose(out), 0);
}

static void start(void)
{
    strcpy(folder, "/tmp/pawl-test-file-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/file", folder);
}

static void stop(void)
{
    small_file_wipe(&file);
    unlink(path);
    rmdir(folder);
}

/* Nothing is left to wipe after a refusal. */
static void refused(const char *at, size_t max, const char *wanted)
{
    ck_assert_int_eq(small_file_read(at, max, &file, why, sizeof(why)), -1);
    ck_assert_str_eq(why, wanted);
    ck_assert_ptr_null(file.bytes);
}

START_TEST(the_whole_file_and_its_mode_and_nothing_after_a_wipe)
{
    static const char bytes[] = "a\0b\nc";

    write_bytes(bytes, sizeof(bytes));
    ck_assert_int_eq(chmod(path, 0640), 0);
    ck_assert_int_eq(small_file_read(path, 64, &file, why, sizeof(why)), 0);
    ck_assert_uint_eq(file.len, sizeof(bytes));
    ck_assert_mem_eq(file.bytes, bytes, sizeof(bytes));
    ck_assert_uint_eq(file.mode & 07777, 0640);
    small_file_wipe(&file);
    ck_assert_ptr_null(file.bytes);
    ck_assert_uint_eq(file.len, 0);
}
END_TEST

START_TEST(an_empty_file_is_one)
{
    write_bytes("", 0);
    ck_assert_int_eq(small_file_read(path, 64, &file, why, sizeof(why)), 0);
    ck_assert_uint_eq(file.len, 0);
    ck_assert_ptr_nonnull(file.bytes);
}
END_TEST

START_TEST(as_long_as_the_bound_is_not_too_long)
{
    char bytes[65];

    memset(bytes, 'x', sizeof(bytes));
    write_bytes(bytes, 64);
    ck_assert_int_eq(small_file_read(path, 64, &file, why, sizeof(why)), 0);
    ck_assert_uint_eq(file.len, 64);
    small_file_wipe(&file);
    write_bytes(bytes, 65);
    refused(path, 64, "is longer than 64 bytes");
}
END_TEST

START_TEST(a_bound_is_told_in_the_unit_that_fits_it)
{
    write_bytes("", 0);
    ck_assert_int_eq(truncate(path, 3 * 1024 * 1024), 0);
    refused(path, (size_t)2 * 1024 * 1024, "is longer than 2 MiB");
    refused(path, 65536, "is longer than 65536 bytes");
}
END_TEST

/* The system says that it has no bytes. */
START_TEST(a_size_that_is_only_known_at_the_end)
{
    struct stat st;

    ck_assert_int_eq(stat("/proc/self/smaps", &st), 0);
    ck_assert_int_eq(st.st_size, 0);
    ck_assert_int_eq(small_file_read("/proc/self/smaps", (size_t)1024 * 1024, &file, why, sizeof(why)), 0);
    ck_assert_uint_gt(file.len, 8192); /* more than the first room, and than the second */
    ck_assert_ptr_nonnull(memmem(file.bytes, file.len, "Rss:", 4));
    small_file_wipe(&file);
    refused("/proc/self/smaps", 5000, "is longer than 5000 bytes");
    refused("/proc/self/smaps", 100, "is longer than 100 bytes");
}
END_TEST

START_TEST(what_is_no_file_is_refused_and_not_waited_for)
{
    refused("/dev/zero", 64, "is not a regular file");
    refused(folder, 64, "is not a regular file");
    refused(path, 64, "No such file or directory");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    refused(path, 64, "is not a regular file");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("small_file");
    TCase *tcase = tcase_create("small_file");

    tcase_add_checked_fixture(tcase, start, stop);
    tcase_add_test(tcase, the_whole_file_and_its_mode_and_nothing_after_a_wipe);
    tcase_add_test(tcase, an_empty_file_is_one);
    tcase_add_test(tcase, as_long_as_the_bound_is_not_too_long);
    tcase_add_test(tcase, a_bound_is_told_in_the_unit_that_fits_it);
    tcase_add_test(tcase, a_size_that_is_only_known_at_the_end);
    tcase_add_test(tcase, what_is_no_file_is_refused_and_not_waited_for);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
