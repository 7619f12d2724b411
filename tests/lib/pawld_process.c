#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/pawld_process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/pawl.h"

#define START_MS 30000

static void die(const char *why, const char *what)
{
    fprintf(stderr, "pawld_process: %s: %s\n", why, what);
    abort();
}

/* pawld refuses settings that it doesn't know, and the tests have some. */
static void clean_environment(void)
{
    char name[64];

    for (char **at = environ; *at;) {
        size_t len = strcspn(*at, "=");

        if (strncmp(*at, "PAWL", 4) != 0 || len >= sizeof(name)) {
            at++;
            continue;
        }
        memcpy(name, *at, len);
        name[len] = '\0';
        (void)unsetenv(name); /* moves the next one here */
    }
}

static void become_pawld(const struct pawld_process *p, const char *program)
{
    char log[128];
    int fd;

    (void)prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    snprintf(log, sizeof(log), "%s/log", p->folder);
    fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)dup2(fd, STDOUT_FILENO);
        (void)dup2(fd, STDERR_FILENO);
    }
    clean_environment();
    execl(program, program, "--dev", "--listen", p->address, (char *)NULL);
    _exit(127);
}

/* It grants nothing before it is attached, so a grant is the sign. */
static int can_grant(const struct pawld_process *p)
{
    struct pawl_acquire_options want = {.ttl_ms = 1000};
    struct pawl_lease *lease;
    struct pawl *client;
    int code;

    if (pawl_open(p->address, &client, NULL) != 0)
        return 0;
    pawl_set_retry_budget(client, 0);
    code = pawl_acquire(client, "ready", &want, &lease, NULL);
    if (code == 0) {
        (void)pawl_release(lease, NULL);
        pawl_lease_free(lease);
    }
    pawl_close(client);
    return code == 0;
}

void pawld_process_start(struct pawld_process *p)
{
    static const struct timespec pause = {0, 20000000};
    const char *program = getenv("PAWLD");
    int64_t end_us = pawl_now_us() + START_MS * 1000;

    if (!program || !program[0])
        die("PAWLD", "not set: it names the built daemon");
    snprintf(p->folder, sizeof(p->folder), "/tmp/pawltest-XXXXXX");
    if (!mkdtemp(p->folder))
        die("mkdtemp", p->folder);
    snprintf(p->address, sizeof(p->address), "unix:%s/s", p->folder);
    p->pid = fork();
    if (p->pid < 0)
        die("fork", "failed");
    if (p->pid == 0)
        become_pawld(p, program);
    while (!can_grant(p)) {
        if (pawl_now_us() > end_us || waitpid(p->pid, NULL, WNOHANG) != 0)
            die("it does not start; its log is in", p->folder);
        nanosleep(&pause, NULL);
    }
}

static int is_stopped(pid_t pid)
{
    char path[64], text[256] = "", *after;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (!file)
        return 0;
    (void)!fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    after = strrchr(text, ')');
    return after && after[2] == 'T';
}

void pawld_process_freeze(const struct pawld_process *p)
{
    static const struct timespec pause = {0, 1000000};

    (void)kill(p->pid, SIGSTOP);
    while (!is_stopped(p->pid))
        nanosleep(&pause, NULL);
}

void pawld_process_thaw(const struct pawld_process *p)
{
    (void)kill(p->pid, SIGCONT);
}

void pawld_process_stop(struct pawld_process *p)
{
    char path[128];

    if (p->pid <= 0)
        return;
    (void)kill(p->pid, SIGCONT);
    (void)kill(p->pid, SIGTERM);
    (void)waitpid(p->pid, NULL, 0);
    p->pid = 0;
    snprintf(path, sizeof(path), "%s/log", p->folder);
    (void)unlink(path);
    snprintf(path, sizeof(path), "%s/s", p->folder);
    (void)unlink(path);
    (void)rmdir(p->folder);
}
