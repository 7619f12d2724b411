/* What the service manager's variables may hold: what is meant for us is taken, what is for another is left, what can't be is refused by name. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/systemd.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/check_main.h"

static const char *const variables[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"};

static void forget(void)
{
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
}

static void expect_forgotten(void)
{
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        ck_assert_ptr_null(getenv(variables[i]));
}

static void set_pid(const char *name, long pid)
{
    char text[24];

    snprintf(text, sizeof(text), "%ld", pid);
    setenv(name, text, 1);
}

static void refused(const char *name, const char *value, const char *why)
{
    struct systemd s;
    char problem[256] = "";

    forget();
    set_pid("LISTEN_PID", getpid());
    setenv(name, value, 1);
    ck_assert_int_eq(systemd_init(&s, problem, sizeof(problem)), -1);
    ck_assert_msg(strstr(problem, why) != NULL, "%s=%s: %s", name, value, problem);
    systemd_close(&s);
    expect_forgotten();
}

START_TEST(nobody_is_there)
{
    struct systemd s;
    char problem[256];
    const char *name;

    forget();
    ck_assert_int_eq(systemd_init(&s, problem, sizeof(problem)), 0);
    ck_assert(!systemd_listens(&s) && !systemd_tell(&s, "READY=1") && !systemd_tell_reloading(&s));
    ck_assert(s.watchdog_us == 0);
    ck_assert_int_eq(systemd_socket(&s, 0, &name), -1);
    systemd_close(&s);
}
END_TEST

static void expect_message(int fd, const char *want)
{
    char text[256];
    ssize_t n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);

    ck_assert_int_ge((int)n, 0);
    text[n] = '\0';
    ck_assert_str_eq(text, want);
}

static void talk(const char *name, const struct sockaddr_un *address, socklen_t len)
{
    int server = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct systemd s;
    char problem[256] = "", text[256];
    long long us;

    ck_assert_int_eq(bind(server, (const struct sockaddr *)address, len), 0);
    forget();
    setenv("NOTIFY_SOCKET", name, 1);
    ck_assert_msg(systemd_init(&s, problem, sizeof(problem)) == 0, "%s", problem);
    expect_forgotten();
    ck_assert(systemd_tell(&s, "READY=1\nSTATUS=x"));
    expect_message(server, "READY=1\nSTATUS=x");
    ck_assert(systemd_tell_reloading(&s));
    ssize_t n = recv(server, text, sizeof(text) - 1, MSG_DONTWAIT);
    text[n < 0 ? 0 : n] = '\0';
    ck_assert_int_eq(sscanf(text, "RELOADING=1\nMONOTONIC_USEC=%lld", &us), 1);
    ck_assert(us > 0);
    /* a manager that hangs holds nobody up for long, and one that died none at all */
    int sent = 0;
    while (sent < 100000 && systemd_mention(&s, "WATCHDOG=1"))
        sent++;
    ck_assert_int_lt(sent, 100000);
    ck_assert(!systemd_tell(&s, "RELOADING=1") && !systemd_tell(&s, "READY=1") && !systemd_mention(&s, "WATCHDOG=1"));
    for (int i = 0; i < sent; i++)
        expect_message(server, "WATCHDOG=1");
    systemd_tell_again(&s); /* what waited comes in its turn */
    expect_message(server, "RELOADING=1");
    expect_message(server, "READY=1");
    while (systemd_mention(&s, "WATCHDOG=1"))
        ;
    for (int i = 0; i < 10; i++)
        ck_assert(!systemd_tell(&s, "STOPPING=1")); /* bounded */
    close(server);
    ck_assert(!systemd_tell(&s, "WATCHDOG=1"));
    systemd_close(&s);
}

START_TEST(messages_to_a_path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof(address.sun_path), "/tmp/pawl-test-%ld", (long)getpid());
    talk(address.sun_path, &address, sizeof(address));
    unlink(address.sun_path);
}
END_TEST

START_TEST(messages_to_an_abstract_name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char name[64];

    snprintf(name, sizeof(name), "@pawl-test-%ld", (long)getpid());
    memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
    talk(name, &address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name)));
}
END_TEST

START_TEST(watchdog_of_ours_and_of_others)
{
    struct systemd s;
    char problem[256];

    forget();
    setenv("WATCHDOG_USEC", "30000000", 1);
    ck_assert_int_eq(systemd_init(&s, problem, sizeof(problem)), 0);
    ck_assert_int_eq(s.watchdog_us, 30000000);
    systemd_close(&s);
    setenv("WATCHDOG_USEC", "30000000", 1);
    set_pid("WATCHDOG_PID", getpid());
    ck_assert_int_eq(systemd_init(&s, problem, sizeof(problem)), 0);
    ck_assert_int_eq(s.watchdog_us, 30000000);
    systemd_close(&s);
    setenv("WATCHDOG_USEC", "30000000", 1);
    set_pid("WATCHDOG_PID", getppid());
    ck_assert_int_eq(systemd_init(&s, problem, sizeof(problem)), 0);
    ck_assert_int_eq(s.watchdog_us, 0);
    systemd_close(&s);
    expect_forgotten();
}
END_TEST

/* In a child, whose descriptors from 3 on are its own to arrange. */
static void in_child(void (*fn)(void))
{
    pid_t pid = fork();
    int status;

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        fn();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child failed at its step %d", WEXITSTATUS(status));
}

static void step(int number, bool ok)
{
    if (!ok)
        _exit(number);
}

static void passed_sockets(void)
{
    struct systemd s;
    char problem[256];
    const char *name = NULL;
    int null = open("/dev/null", O_RDONLY);

    forget();
    for (int fd = 3; fd < 6; fd++)
        step(1, null == fd || dup2(null, fd) == fd);
    (void)fcntl(null, F_SETFD, 0);
    set_pid("LISTEN_PID", getpid());
    setenv("LISTEN_FDS", "3", 1);
    setenv("LISTEN_FDNAMES", "tcp::sock", 1);
    step(2, systemd_init(&s, problem, sizeof(problem)) == 0);
    step(3, systemd_socket(&s, 0, &name) == 3 && strcmp(name, "tcp") == 0);
    step(4, systemd_socket(&s, 1, &name) == 4 && strcmp(name, "") == 0);
    step(5, systemd_socket(&s, 2, &name) == 5 && strcmp(name, "sock") == 0);
    step(6, systemd_socket(&s, 3, &name) == -1);
    for (int fd = 3; fd < 6; fd++)
        step(7, (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    systemd_close(&s);
    step(8, fcntl(3, F_GETFD) >= 0);
    set_pid("LISTEN_PID", getpid());
    setenv("LISTEN_FDS", "2", 1);
    setenv("LISTEN_FDNAMES", "one", 1); /* fewer names than sockets */
    step(9, systemd_init(&s, problem, sizeof(problem)) == 0);
    step(10, systemd_socket(&s, 1, &name) == 4 && strcmp(name, "") == 0);
    systemd_close(&s);
    set_pid("LISTEN_PID", getppid()); /* meant for another */
    setenv("LISTEN_FDS", "2", 1);
    step(11, systemd_init(&s, problem, sizeof(problem)) == 0 && systemd_socket(&s, 0, &name) == -1);
    systemd_close(&s);
    set_pid("LISTEN_PID", getpid());
    setenv("LISTEN_FDS", "9", 1); /* more than there are */
    for (int fd = 6; fd < 12; fd++)
        close(fd);
    step(12, systemd_init(&s, problem, sizeof(problem)) == -1 && strstr(problem, "not there") != NULL);
    systemd_close(&s);
}

START_TEST(sockets_are_counted_and_named)
{
    in_child(passed_sockets);
}
END_TEST

START_TEST(nonsense_is_refused)
{
    refused("NOTIFY_SOCKET", "", "NOTIFY_SOCKET");
    refused("NOTIFY_SOCKET", "@", "NOTIFY_SOCKET");
    refused("NOTIFY_SOCKET", "vsock:2:1234", "NOTIFY_SOCKET");
    refused("NOTIFY_SOCKET",
            "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "too long");
    refused("WATCHDOG_USEC", "0", "WATCHDOG_USEC");
    refused("WATCHDOG_USEC", "-1", "WATCHDOG_USEC");
    refused("WATCHDOG_USEC", "1s", "WATCHDOG_USEC");
    refused("LISTEN_FDS", "17", "LISTEN_FDS");
    refused("LISTEN_FDS", "x", "LISTEN_FDS");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("systemd");
    TCase *tcase = tcase_create("protocols");

    tcase_add_test(tcase, nobody_is_there);
    tcase_add_test(tcase, messages_to_a_path);
    tcase_add_test(tcase, messages_to_an_abstract_name);
    tcase_add_test(tcase, watchdog_of_ours_and_of_others);
    tcase_add_test(tcase, sockets_are_counted_and_named);
    tcase_add_test(tcase, nonsense_is_refused);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
