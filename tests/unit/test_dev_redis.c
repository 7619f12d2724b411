/* The private Redis of --dev, with a real redis-server: how it starts, that it is gone whenever its pawld is, and that nothing stays behind. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/dev_redis.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/check_main.h"

#define DEADLINE_MS 30000

static char home[32]; /* TMPDIR of these tests */
static char *path_before;
static char problem[512];
static struct dev_redis redis;

static void start(void)
{
    const char *path = getenv("PATH");

    strcpy(home, "/tmp/pawl-test-dev-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(home));
    setenv("TMPDIR", home, 1);
    ck_assert_ptr_nonnull(path);
    path_before = strdup(path ? path : "");
}

static void stop(void)
{
    char command[64];

    dev_redis_stop(&redis);
    snprintf(command, sizeof(command), "/bin/rm -rf '%s'", home);
    ck_assert_int_eq(system(command), 0);
    setenv("PATH", path_before, 1);
    free(path_before);
}

static void start_redis(struct dev_redis *r)
{
    ck_assert_msg(dev_redis_start(r, problem, sizeof(problem)) == 0, "%s", problem);
}

static bool exists(const char *path)
{
    struct stat st;

    return lstat(path, &st) == 0;
}

static unsigned entries(const char *path)
{
    DIR *dir = opendir(path);
    unsigned n = 0;

    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

/* Sends one inline command and returns the reply of one read. */
static const char *ask(const char *path, const char *command)
{
    static char reply[1024];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ssize_t n;

    strcpy(address.sun_path, path);
    ck_assert_int_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq((int)write(fd, command, strlen(command)), (int)strlen(command));
    n = read(fd, reply, sizeof(reply) - 1);
    ck_assert_int_gt((int)n, 0);
    reply[n] = '\0';
    close(fd);
    return reply;
}

/* Reaps the process once it has ended, by a deadline; the test is a subreaper, so this goes for grandchildren too. Returns its status. */
static int wait_for_end(pid_t pid)
{
    int status = -1;

    for (int waited = 0; waitpid(pid, &status, WNOHANG) != pid; waited += 5) {
        ck_assert_msg(waited < DEADLINE_MS, "process %d lives on", (int)pid);
        poll(NULL, 0, 5);
    }
    return status;
}

/* A process id that was somebody's and is nobody's. */
static pid_t dead_pid(void)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    wait_for_end(pid);
    return pid;
}

static void fake_program(const char *script)
{
    char path[128], paths[512];
    FILE *out;

    snprintf(path, sizeof(path), "%s/redis-server", home);
    out = fopen(path, "w");
    ck_assert_ptr_nonnull(out);
    fputs(script, out);
    fclose(out);
    chmod(path, 0755);
    snprintf(paths, sizeof(paths), "%s:/usr/bin:/bin", home);
    setenv("PATH", paths, 1);
}

START_TEST(it_serves_privately_and_keeps_nothing)
{
    struct stat st;

    start_redis(&redis);
    ck_assert_int_gt(redis.pid, 0);
    ck_assert_str_eq(ask(redis.socket, "PING\r\n"), "+PONG\r\n");
    ck_assert_ptr_nonnull(strstr(ask(redis.socket, "CONFIG GET maxmemory-policy\r\n"), "noeviction"));
    ck_assert_str_eq(ask(redis.socket, "CONFIG GET save\r\n"), "*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
    ck_assert_str_eq(ask(redis.socket, "CONFIG GET port\r\n"), "*2\r\n$4\r\nport\r\n$1\r\n0\r\n");
    ck_assert_ptr_nonnull(strstr(ask(redis.socket, "CONFIG GET appendonly\r\n"), "no"));
    ck_assert_ptr_nonnull(strstr(ask(redis.socket, "CONFIG GET dir\r\n"), redis.folder));
    ck_assert_int_eq(stat(redis.folder, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0700);
    ck_assert_int_eq(stat(redis.socket, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0700);
}
END_TEST

START_TEST(stop_ends_it_and_removes_its_folder)
{
    struct dev_redis before;

    start_redis(&redis);
    before = redis;
    dev_redis_stop(&redis);
    ck_assert_int_eq(redis.pid, 0);
    ck_assert(waitpid(before.pid, NULL, WNOHANG) == -1 && errno == ECHILD);
    ck_assert(!exists(before.folder));
    ck_assert_uint_eq(entries(home), 0);
    dev_redis_stop(&redis);
    struct dev_redis never = {0};
    dev_redis_stop(&never);
    ck_assert_int_eq(fcntl(STDIN_FILENO, F_GETFD), 0);
}
END_TEST

START_TEST(stop_ends_one_that_hangs)
{
    struct timespec before, after;

    start_redis(&redis);
    kill(redis.pid, SIGSTOP);
    clock_gettime(CLOCK_MONOTONIC, &before);
    dev_redis_stop(&redis);
    clock_gettime(CLOCK_MONOTONIC, &after);
    ck_assert_int_ge((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000, 900);
    ck_assert_uint_eq(entries(home), 0);
}
END_TEST

START_TEST(stop_takes_one_that_died_by_itself)
{
    start_redis(&redis);
    kill(redis.pid, SIGKILL);
    dev_redis_stop(&redis);
    ck_assert_uint_eq(entries(home), 0);
    start_redis(&redis);
    kill(redis.pid, SIGKILL);
    wait_for_end(redis.pid);
    redis.pid = 0; /* reaped by the caller */
    dev_redis_stop(&redis);
    ck_assert_uint_eq(entries(home), 0);
}
END_TEST

/* The pawld of the next test: starts a Redis, tells of it and then only waits to be killed. */
static void be_a_pawld(int out)
{
    struct dev_redis r;

    if (dev_redis_start(&r, problem, sizeof(problem)) < 0 || write(out, &r, sizeof(r)) != sizeof(r))
        _exit(1);
    for (;;)
        pause();
}

START_TEST(kill_9_of_the_parent_takes_it_down_and_the_next_start_sweeps)
{
    struct dev_redis orphan;
    int channel[2];
    pid_t parent;

    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    ck_assert_int_eq(pipe(channel), 0);
    parent = fork();
    ck_assert_int_ge(parent, 0);
    if (parent == 0)
        be_a_pawld(channel[1]);
    close(channel[1]);
    ck_assert_int_eq((int)read(channel[0], &orphan, sizeof(orphan)), (int)sizeof(orphan));
    close(channel[0]);
    /* while its pawld lives, another start leaves it alone */
    start_redis(&redis);
    ck_assert_str_eq(ask(orphan.socket, "PING\r\n"), "+PONG\r\n");
    dev_redis_stop(&redis);
    ck_assert(exists(orphan.socket));

    kill(parent, SIGKILL);
    wait_for_end(parent);
    int status = wait_for_end(orphan.pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ck_assert(exists(orphan.folder));
    start_redis(&redis);
    ck_assert(!exists(orphan.folder));
    ck_assert_str_eq(ask(redis.socket, "PING\r\n"), "+PONG\r\n");
}
END_TEST

START_TEST(only_what_is_surely_stale_is_swept)
{
    char path[8][128], inside[160];
    pid_t dead = dead_pid();
    int fd;

    snprintf(path[0], sizeof(path[0]), "%s/pawl-dev-%d-abcdef", home, (int)dead);     /* stale */
    snprintf(path[1], sizeof(path[1]), "%s/pawl-dev-%d-locked", home, (int)dead);     /* somebody holds it */
    snprintf(path[2], sizeof(path[2]), "%s/pawl-dev-%d-abcdef", home, (int)getpid()); /* its process lives */
    snprintf(path[3], sizeof(path[3]), "%s/pawl-dev-%d-abcdefg", home, (int)dead);    /* not a name of ours */
    snprintf(path[4], sizeof(path[4]), "%s/pawl-dev-x%d-abcdef", home, (int)dead);
    snprintf(path[5], sizeof(path[5]), "%s/pawl-dev-0-abcdef", home);
    snprintf(path[6], sizeof(path[6]), "%s/kept", home);
    for (int i = 0; i < 7; i++)
        ck_assert_int_eq(mkdir(path[i], 0700), 0);
    snprintf(path[7], sizeof(path[7]), "%s/pawl-dev-%d-linked", home, (int)dead); /* a link to a folder */
    ck_assert_int_eq(symlink("kept", path[7]), 0);
    snprintf(inside, sizeof(inside), "%s/file", path[6]);
    close(open(inside, O_CREAT | O_WRONLY, 0600));
    snprintf(inside, sizeof(inside), "%s/link", path[0]);
    ck_assert_int_eq(symlink("../kept/file", inside), 0);
    fd = open(path[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);

    start_redis(&redis);
    ck_assert(!exists(path[0]));
    for (int i = 1; i < 8; i++)
        ck_assert_msg(exists(path[i]), "%s", path[i]);
    snprintf(inside, sizeof(inside), "%s/file", path[6]);
    ck_assert(exists(inside));
    close(fd);
}
END_TEST

/* One line of /proc/PID/status as a mask of signals. */
static unsigned long long signals_of(pid_t pid, const char *key)
{
    char path[64], line[256];
    unsigned long long mask = ~0ull;
    FILE *in;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    in = fopen(path, "r");
    ck_assert_ptr_nonnull(in);
    while (fgets(line, sizeof(line), in)) {
        if (strncmp(line, key, strlen(key)) == 0)
            mask = strtoull(line + strlen(key) + 1, NULL, 16);
    }
    fclose(in);
    return mask;
}

#define SIGNAL_BIT(number) (1ull << ((number)-1))

START_TEST(it_starts_with_clean_signals_and_a_group_of_its_own)
{
    sigset_t blocked, after;

    signal(SIGUSR1, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGUSR2);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    start_redis(&redis);
    /* it blocks them itself for moments, while it starts its threads */
    for (int i = 0; i < 5000 && signals_of(redis.pid, "SigBlk:") != 0; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    ck_assert_uint_eq(signals_of(redis.pid, "SigBlk:"), 0);
    ck_assert_uint_eq(signals_of(redis.pid, "SigIgn:") & (SIGNAL_BIT(SIGUSR1) | SIGNAL_BIT(SIGQUIT) | SIGNAL_BIT(SIGCHLD)), 0);
    ck_assert_int_eq(getpgid(redis.pid), redis.pid);
    /* and the caller's own are as they were */
    sigprocmask(SIG_BLOCK, NULL, &after);
    ck_assert(sigismember(&after, SIGTERM) && sigismember(&after, SIGUSR2) && !sigismember(&after, SIGINT));
    sigprocmask(SIG_UNBLOCK, &blocked, NULL);
    signal(SIGUSR1, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
}
END_TEST

START_TEST(it_inherits_no_descriptor)
{
    char path[300], link[128], mine[64];
    int fds[2];
    struct stat st;
    DIR *dir;

    ck_assert_int_eq(pipe(fds), 0); /* without close-on-exec */
    ck_assert_int_eq(fstat(fds[0], &st), 0);
    snprintf(mine, sizeof(mine), "pipe:[%lu]", (unsigned long)st.st_ino);
    start_redis(&redis);
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)redis.pid);
    dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    for (const struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)redis.pid, entry->d_name);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = '\0';
        ck_assert_str_ne(link, mine);
        if (strcmp(entry->d_name, "0") == 0)
            ck_assert_str_eq(link, "/dev/null");
        if (strcmp(entry->d_name, "1") == 0 || strcmp(entry->d_name, "2") == 0)
            ck_assert_ptr_nonnull(strstr(link, "/redis.log"));
    }
    closedir(dir);
    close(fds[0]);
    close(fds[1]);
}
END_TEST

START_TEST(it_starts_without_standard_descriptors_too)
{
    int keep[3];
    int result;

    for (int i = 0; i < 3; i++) {
        keep[i] = fcntl(i, F_DUPFD_CLOEXEC, 10);
        close(i);
    }
    result = dev_redis_start(&redis, problem, sizeof(problem));
    for (int i = 0; i < 3; i++) {
        if (redis.folder_fd == i)
            redis.folder_fd = fcntl(i, F_DUPFD_CLOEXEC, 10);
        dup2(keep[i], i);
        close(keep[i]);
    }
    ck_assert_msg(result == 0, "%s", problem);
    ck_assert_str_eq(ask(redis.socket, "PING\r\n"), "+PONG\r\n");
}
END_TEST

START_TEST(missing_program_is_named)
{
    setenv("PATH", home, 1);
    ck_assert_int_eq(dev_redis_start(&redis, problem, sizeof(problem)), -1);
    ck_assert_ptr_nonnull(strstr(problem, "redis-server was not found on PATH"));
    ck_assert_uint_eq(entries(home), 0);
    ck_assert_int_eq(redis.pid, 0);
    /* never from the current folder, whatever PATH says of it */
    fake_program("#!/bin/sh\n");
    ck_assert_int_eq(chdir(home), 0);
    setenv("PATH", ":.:", 1);
    ck_assert_int_eq(dev_redis_start(&redis, problem, sizeof(problem)), -1);
    ck_assert_ptr_nonnull(strstr(problem, "redis-server was not found on PATH"));
    ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

START_TEST(early_end_quotes_its_last_words)
{
    fake_program("#!/bin/sh\necho first\necho 'bad luck: \033[2J' >&2\necho\nexit 3\n");
    ck_assert_int_eq(dev_redis_start(&redis, problem, sizeof(problem)), -1);
    ck_assert_str_eq(problem, "the private Redis ended at once with status 3; its last words: bad luck: ?[2J");
    fake_program("#!/bin/sh\nkill -9 $$\n");
    ck_assert_int_eq(dev_redis_start(&redis, problem, sizeof(problem)), -1);
    ck_assert_str_eq(problem, "the private Redis ended at once by signal 9 and said nothing");
    fake_program("this is no program of any kind\n");
    ck_assert_int_eq(dev_redis_start(&redis, problem, sizeof(problem)), -1);
    ck_assert_str_eq(problem, "the private Redis ended at once with status 127; its last words: the kernel refused to run redis-server");
    ck_assert_uint_eq(entries(home), 1); /* the fake */
}
END_TEST

START_TEST(P9_start_that_hangs_ends_with_a_sentence)
{
    struct timespec before, after;

    fake_program("#!/bin/sh\necho 'thinking about it'\nexec tail -f /dev/null\n");
    clock_gettime(CLOCK_MONOTONIC, &before);
    ck_assert_int_eq(dev_redis_start(&redis, problem, sizeof(problem)), -1);
    clock_gettime(CLOCK_MONOTONIC, &after);
    ck_assert_str_eq(problem, "the private Redis did not accept connections within 5 s; its last words: thinking about it");
    ck_assert_int_ge((after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000, 4900);
    ck_assert_int_eq(redis.pid, 0);
    ck_assert_uint_eq(entries(home), 1);
}
END_TEST

START_TEST(long_or_missing_temporary_folder_is_told)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/%0100d", home, 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    setenv("TMPDIR", path, 1);
    ck_assert_int_eq(dev_redis_start(&redis, problem, sizeof(problem)), -1);
    ck_assert_ptr_nonnull(strstr(problem, "TMPDIR is too long"));
    setenv("TMPDIR", "/nonexistent", 1);
    ck_assert_int_eq(dev_redis_start(&redis, problem, sizeof(problem)), -1);
    ck_assert_ptr_nonnull(strstr(problem, "/nonexistent: No such file or directory"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dev_redis");
    TCase *all = tcase_create("dev_redis");

    tcase_add_checked_fixture(all, start, stop);
    tcase_add_test(all, it_serves_privately_and_keeps_nothing);
    tcase_add_test(all, stop_ends_it_and_removes_its_folder);
    tcase_add_test(all, stop_ends_one_that_hangs);
    tcase_add_test(all, stop_takes_one_that_died_by_itself);
    tcase_add_test(all, kill_9_of_the_parent_takes_it_down_and_the_next_start_sweeps);
    tcase_add_test(all, only_what_is_surely_stale_is_swept);
    tcase_add_test(all, it_starts_with_clean_signals_and_a_group_of_its_own);
    tcase_add_test(all, it_inherits_no_descriptor);
    tcase_add_test(all, it_starts_without_standard_descriptors_too);
    tcase_add_test(all, missing_program_is_named);
    tcase_add_test(all, early_end_quotes_its_last_words);
    tcase_add_test(all, P9_start_that_hangs_ends_with_a_sentence);
    tcase_add_test(all, long_or_missing_temporary_folder_is_told);
    suite_add_tcase(suite, all);
    return check_main(suite);
}
