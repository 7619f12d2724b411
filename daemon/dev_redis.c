/* A Redis of pawld's own, for `pawld --dev`.
 *
 * What is delicate here is the life of the child. It must not outlive pawld however pawld ends, so it asks the kernel to be killed with its parent, and
 * then looks whether the parent is still there, as it may have gone between fork and that call. It must start from a clean state, whatever pawld has
 * blocked, ignored or opened, so mask, dispositions and descriptors are reset by hand; between fork and exec only calls are made that are safe in a signal
 * handler, so all that needs memory (the path, the arguments) is made before.
 *
 * What is left of a pawld that was killed is its folder. The next start removes it: the process id in its name is that of nobody, and the lock that
 * its pawld held on it is free. The lock decides where process ids mislead, as between containers that share a /tmp.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/dev_redis.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM        "redis-server"
#define FOLDER_PREFIX  "pawl-dev-"
#define LOG_NAME       "redis.log"
#define SOCKET_NAME    "redis.sock"
#define DEFAULT_PATH   "/usr/local/bin:/usr/bin:/bin"
#define START_MS       5000
#define TERM_MS        1000
#define POLL_MS        5
#define LOG_TAIL       4096
#define FIRST_OTHER_FD 3

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---------------------------------------------------------------- the folder */

static const char *temporary_folder(void)
{
    const char *folder = getenv("TMPDIR");

    return folder && folder[0] == '/' ? folder : "/tmp";
}

/* Removes what is in the folder, which is flat, and then the folder. */
static void remove_folder(const char *folder, int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_OTHER_FD);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;

    if (dir) {
        rewinddir(dir);
        while ((entry = readdir(dir)) != NULL) {
            if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                unlinkat(fd, entry->d_name, 0);
        }
        closedir(dir);
    } else if (copy >= 0) {
        close(copy);
    }
    rmdir(folder);
}

/* The process id in "pawl-dev-PID-XXXXXX", or -1 when the name is not of that form. */
static pid_t folder_owner(const char *name)
{
    char *end;
    long pid;

    if (strncmp(name, FOLDER_PREFIX, strlen(FOLDER_PREFIX)) != 0)
        return -1;
    name += strlen(FOLDER_PREFIX);
    if (name[0] < '1' || name[0] > '9')
        return -1;
    errno = 0;
    pid = strtol(name, &end, 10);
    if (errno || pid > INT32_MAX || end[0] != '-' || strlen(end + 1) != 6)
        return -1;
    return (pid_t)pid;
}

/* Only what is surely ours and surely left: a folder, not a link to one, of this user, of no living process, locked by nobody. */
static void sweep_one(const char *parent, const char *name)
{
    char folder[PATH_MAX];
    struct stat st;
    pid_t owner = folder_owner(name);
    int fd;

    if (owner < 0 || kill(owner, 0) == 0 || errno != ESRCH)
        return;
    if ((size_t)snprintf(folder, sizeof(folder), "%s/%s", parent, name) >= sizeof(folder))
        return;
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0)
        remove_folder(folder, fd);
    close(fd);
}

static void sweep(const char *parent)
{
    DIR *dir = opendir(parent);
    struct dirent *entry;

    if (!dir)
        return;
    while ((entry = readdir(dir)) != NULL)
        sweep_one(parent, entry->d_name);
    closedir(dir);
}

static int make_folder(struct dev_redis *r, char *problem, size_t cap)
{
    const char *parent = temporary_folder();

    sweep(parent);
    if ((size_t)snprintf(r->folder, sizeof(r->folder), "%s/" FOLDER_PREFIX "%ld-XXXXXX", parent, (long)getpid()) >= sizeof(r->folder)) {
        r->folder[0] = '\0';
        snprintf(problem, cap, "TMPDIR is too long for the private Redis, whose socket must fit into a short path");
        return -1;
    }
    if (!mkdtemp(r->folder)) {
        snprintf(problem, cap, "can't make a folder for the private Redis in %s: %s", parent, strerror(errno));
        r->folder[0] = '\0';
        return -1;
    }
    r->folder_fd = open(r->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->folder_fd < 0) {
        snprintf(problem, cap, "can't open %s: %s", r->folder, strerror(errno));
        return -1;
    }
    /* A file system without locks leaves the process id, which is enough on one machine. */
    flock(r->folder_fd, LOCK_EX | LOCK_NB);
    snprintf(r->socket, sizeof(r->socket), "%s/" SOCKET_NAME, r->folder);
    return 0;
}

static void drop_folder(struct dev_redis *r)
{
    if (r->folder[0]) {
        if (r->folder_fd >= 0)
            remove_folder(r->folder, r->folder_fd);
        else
            rmdir(r->folder);
        if (r->folder_fd >= 0)
            close(r->folder_fd);
    }
    r->folder[0] = '\0';
    r->socket[0] = '\0';
    r->folder_fd = -1;
}

/* ---------------------------------------------------------------- the program */

/* Looks along PATH as the shell does, except in the current folder. */
static int find_program(char *out, size_t out_cap, char *problem, size_t cap)
{
    const char *path = getenv("PATH");
    struct stat st;

    if (!path)
        path = DEFAULT_PATH;
    while (*path) {
        size_t len = strcspn(path, ":");

        if (path[0] == '/' && (size_t)snprintf(out, out_cap, "%.*s/" PROGRAM, (int)len, path) < out_cap && stat(out, &st) == 0 &&
            S_ISREG(st.st_mode) && access(out, X_OK) == 0)
            return 0;
        path += len + (path[len] == ':' ? 1 : 0);
    }
    snprintf(problem, cap, PROGRAM " was not found on PATH; --dev needs it (Debian: apt install redis-server)");
    return -1;
}

/* ---------------------------------------------------------------- between fork and exec */

struct birth {
    pid_t parent;
    int input, output; /* both above the standard descriptors, so that putting them there overwrites none of them */
    long max_fd;
    const char *program;
    const char *const *arguments;
};

static void reset_signals(void)
{
    struct sigaction normal = {.sa_handler = SIG_DFL};
    sigset_t none;

    for (int number = 1; number < NSIG; number++)
        sigaction(number, &normal, NULL); /* fails for some, which have no other state to begin with */
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void close_others(const struct birth *birth)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)FIRST_OTHER_FD, ~0u, 0u) == 0)
        return;
#endif
    for (long fd = FIRST_OTHER_FD; fd < birth->max_fd; fd++)
        close((int)fd);
}

static __attribute__((noreturn)) void be_born(const struct birth *birth)
{
    static const char no_exec[] = "the kernel refused to run " PROGRAM "\n";

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != birth->parent)
        _exit(127);
    setpgid(0, 0);
    if (dup2(birth->input, STDIN_FILENO) < 0 || dup2(birth->output, STDOUT_FILENO) < 0 || dup2(birth->output, STDERR_FILENO) < 0)
        _exit(127);
    close_others(birth);
    reset_signals();
    execve(birth->program, (char *const *)birth->arguments, environ);
    if (write(STDERR_FILENO, no_exec, sizeof(no_exec) - 1) < 0)
        _exit(127);
    _exit(127);
}

/* Opens a file above the standard descriptors, also when pawld was started with some of those closed. */
static int open_high(int folder, const char *name, int flags)
{
    int fd = openat(folder, name, flags | O_CLOEXEC, 0600);
    int high;

    if (fd < 0 || fd >= FIRST_OTHER_FD)
        return fd;
    high = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_OTHER_FD);
    close(fd);
    return high;
}

/* With all signals blocked from before the fork, none of pawld's handlers can run in the child. */
static pid_t fork_quietly(const struct birth *birth)
{
    sigset_t all, before;
    pid_t pid;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0)
        be_born(birth);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return pid;
}

static int spawn(struct dev_redis *r, const char *program, char *problem, size_t cap)
{
    const char *const arguments[] = {
        PROGRAM,      "--port",      "0",  "--unixsocket", r->socket, "--unixsocketperm",
        "700",        "--save",      "",   "--appendonly", "no",      "--maxmemory-policy",
        "noeviction", "--daemonize", "no", "--loglevel",   "warning", "--dir",
        r->folder,    NULL,
    };
    struct birth birth = {
        .parent = getpid(),
        .input = open_high(AT_FDCWD, "/dev/null", O_RDONLY),
        .output = open_high(r->folder_fd, LOG_NAME, O_WRONLY | O_APPEND | O_CREAT | O_EXCL),
        .max_fd = sysconf(_SC_OPEN_MAX),
        .program = program,
        .arguments = arguments,
    };
    pid_t pid = -1;

    if (birth.input >= 0 && birth.output >= 0)
        pid = fork_quietly(&birth);
    if (pid < 0)
        snprintf(problem, cap, "can't start the private Redis: %s", strerror(errno));
    if (birth.input >= 0)
        close(birth.input);
    if (birth.output >= 0)
        close(birth.output);
    r->pid = pid > 0 ? pid : 0;
    return pid > 0 ? 0 : -1;
}

/* ---------------------------------------------------------------- waiting for it */

/* Has the child ended? Then it is reaped, pid is 0 and *ret_status how it ended (-1: somebody else has reaped it). */
static bool has_ended(struct dev_redis *r, int *ret_status)
{
    int status = -1;
    pid_t pid = waitpid(r->pid, &status, WNOHANG);

    if (pid == 0 || (pid < 0 && errno != ECHILD))
        return false;
    *ret_status = pid < 0 ? -1 : status;
    r->pid = 0;
    return true;
}

static bool accepts(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool result;

    if (fd < 0)
        return false;
    memcpy(address.sun_path, path, strlen(path) + 1);
    result = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
    close(fd);
    return result;
}

/* The last line that is not blank of what the child wrote, with everything unprintable as '?'. */
static void last_line(const struct dev_redis *r, char *out, size_t cap)
{
    char tail[LOG_TAIL];
    int fd = openat(r->folder_fd, LOG_NAME, O_RDONLY | O_CLOEXEC);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t len = fd < 0 ? -1 : pread(fd, tail, sizeof(tail), size > LOG_TAIL ? size - LOG_TAIL : 0);
    size_t end = len > 0 ? (size_t)len : 0, start, n = 0;

    if (fd >= 0)
        close(fd);
    while (end > 0 && (unsigned char)tail[end - 1] <= ' ')
        end--;
    start = end;
    while (start > 0 && tail[start - 1] != '\n')
        start--;
    while (start < end && n + 1 < cap) {
        out[n++] = tail[start] >= ' ' && tail[start] <= '~' ? tail[start] : '?';
        start++;
    }
    out[n] = '\0';
}

static void describe_end(const struct dev_redis *r, int status, char *problem, size_t cap)
{
    char line[200];
    char how[40] = "";

    last_line(r, line, sizeof(line));
    if (status >= 0 && WIFEXITED(status))
        snprintf(how, sizeof(how), " with status %d", WEXITSTATUS(status));
    else if (status >= 0 && WIFSIGNALED(status))
        snprintf(how, sizeof(how), " by signal %d", WTERMSIG(status));
    snprintf(problem, cap, "the private Redis ended at once%s%s%s", how, line[0] ? "; its last words: " : " and said nothing", line);
}

static int wait_until_it_accepts(struct dev_redis *r, char *problem, size_t cap)
{
    int64_t deadline = now_ms() + START_MS;
    char line[200];
    int status;

    while (!accepts(r->socket)) {
        if (has_ended(r, &status)) {
            describe_end(r, status, problem, cap);
            return -1;
        }
        if (now_ms() >= deadline) {
            last_line(r, line, sizeof(line));
            snprintf(problem, cap, "the private Redis did not accept connections within %d s%s%s", START_MS / 1000,
                     line[0] ? "; its last words: " : "", line);
            return -1;
        }
        poll(NULL, 0, POLL_MS);
    }
    return 0;
}

/* ---------------------------------------------------------------- start and stop */

static void stop_ignoring_children(void)
{
    struct sigaction action;

    if (sigaction(SIGCHLD, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
        signal(SIGCHLD, SIG_DFL);
}

int dev_redis_start(struct dev_redis *r, char *problem, size_t cap)
{
    char program[PATH_MAX];

    *r = (struct dev_redis){.folder_fd = -1};
    if (find_program(program, sizeof(program), problem, cap) < 0)
        return -1;
    stop_ignoring_children();
    if (make_folder(r, problem, cap) == 0 && spawn(r, program, problem, cap) == 0 && wait_until_it_accepts(r, problem, cap) == 0)
        return 0;
    dev_redis_stop(r);
    return -1;
}

static void end_child(struct dev_redis *r)
{
    int64_t deadline = now_ms() + TERM_MS;
    int status;

    kill(r->pid, SIGTERM);
    while (!has_ended(r, &status)) {
        if (now_ms() >= deadline) {
            kill(r->pid, SIGKILL);
            while (waitpid(r->pid, &status, 0) < 0 && errno == EINTR)
                ;
            r->pid = 0;
            return;
        }
        poll(NULL, 0, POLL_MS);
    }
}

void dev_redis_stop(struct dev_redis *r)
{
    if (r->pid > 0)
        end_child(r);
    drop_folder(r);
}
