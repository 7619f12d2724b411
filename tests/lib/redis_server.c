#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/redis_server.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 60

/* ---- the folder ---- */

void redis_server_make_folder(struct redis_server *s)
{
    const char *tmp = getenv("TMPDIR");

    memset(s, 0, sizeof(*s));
    if (!tmp || !*tmp || strlen(tmp) > sizeof(s->folder) - 24)
        tmp = "/tmp";
    snprintf(s->folder, sizeof(s->folder), "%.40s/pawl-test-XXXXXX", tmp);
    ck_assert_ptr_nonnull(mkdtemp(s->folder));
    snprintf(s->socket, sizeof(s->socket), "%s/redis.sock", s->folder);
}

void redis_server_remove_folder(struct redis_server *s)
{
    DIR *folder = opendir(s->folder);
    const struct dirent *entry;

    ck_assert_ptr_nonnull(folder);
    while ((entry = readdir(folder)) != NULL)
        (void)unlinkat(dirfd(folder), entry->d_name, 0); /* "." and ".." stay */
    closedir(folder);
    ck_assert_int_eq(rmdir(s->folder), 0);
}

static void path_in(const struct redis_server *s, const char *name, char *out, size_t cap)
{
    snprintf(out, cap, "%s/%s", s->folder, name);
}

void redis_server_drop_data(struct redis_server *s)
{
    char path[96];

    path_in(s, "dump.rdb", path, sizeof(path));
    ck_assert(unlink(path) == 0 || errno == ENOENT);
}

/* ---- the process ---- */

static void pause_ms(long ms)
{
    struct timespec pause = {.tv_sec = 0, .tv_nsec = ms * 1000000};

    nanosleep(&pause, NULL);
}

static void run(const struct redis_server *s, const char *const *options, pid_t parent)
{
    const char *argv[48] = {
        "redis-server", "--port",      "0",  "--unixsocket",           s->socket, "--dir",      s->folder, "--save", "", "--appendonly",
        "no",           "--daemonize", "no", "--enable-debug-command", "yes",     "--loglevel", "warning"};
    size_t argc = 17;
    char log[96];
    int fd;

    for (; options && *options && argc < 47; options++)
        argv[argc++] = *options;
    path_in(s, "log", log, sizeof(log));
    fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
        _exit(126);
    for (fd = 3; fd < 256; fd++)
        close(fd);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(126);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

static bool answers(struct redis_server *s)
{
    struct timeval patience = {.tv_sec = PATIENCE_S};
    redisReply *reply;

    s->context = redisConnectUnix(s->socket);
    ck_assert_ptr_nonnull(s->context);
    reply = s->context->err ? NULL : redisCommand(s->context, "PING");
    if (!reply) {
        redisFree(s->context);
        s->context = NULL;
        return false;
    }
    freeReplyObject(reply);
    ck_assert_int_eq(redisSetTimeout(s->context, patience), REDIS_OK);
    return true;
}

void redis_server_start(struct redis_server *s, const char *const *options)
{
    pid_t parent = getpid();
    int status;

    ck_assert_int_eq(s->pid, 0);
    (void)unlink(s->socket);
    s->frozen = false;
    s->pid = fork();
    ck_assert_int_ge(s->pid, 0);
    if (s->pid == 0)
        run(s, options, parent);
    for (int tries = 0; !answers(s); tries++) {
        ck_assert_msg(tries < PATIENCE_S * 500, "redis-server does not answer");
        ck_assert_msg(waitpid(s->pid, &status, WNOHANG) == 0, "redis-server ended at once: is it installed?");
        pause_ms(2);
    }
}

void redis_server_kill(struct redis_server *s)
{
    if (s->context)
        redisFree(s->context);
    s->context = NULL;
    if (s->pid == 0)
        return;
    kill(s->pid, SIGKILL);
    ck_assert_int_eq(waitpid(s->pid, NULL, 0), s->pid);
    s->pid = 0;
    s->frozen = false;
}

void redis_server_freeze(struct redis_server *s)
{
    int status;

    ck_assert_int_eq(kill(s->pid, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(s->pid, &status, WUNTRACED), s->pid);
    ck_assert(WIFSTOPPED(status));
    s->frozen = true;
}

void redis_server_thaw(struct redis_server *s)
{
    ck_assert_int_eq(kill(s->pid, SIGCONT), 0);
    s->frozen = false;
}

/* ---- the conversation ---- */

static redisReply *converse(struct redis_server *s, const char *format, va_list args)
{
    redisReply *reply = redisvCommand(s->context, format, args);

    ck_assert_msg(reply != NULL, "%s: %s", format, s->context->errstr);
    return reply;
}

static redisReply *demand(struct redis_server *s, const char *format, va_list args)
{
    redisReply *reply = converse(s, format, args);

    ck_assert_msg(reply->type != REDIS_REPLY_ERROR, "%s: %s", format, reply->str);
    return reply;
}

redisReply *redis_server_try(struct redis_server *s, const char *format, ...)
{
    va_list args;
    redisReply *reply;

    va_start(args, format);
    reply = converse(s, format, args);
    va_end(args);
    return reply;
}

redisReply *redis_server_do(struct redis_server *s, const char *format, ...)
{
    va_list args;
    redisReply *reply;

    va_start(args, format);
    reply = demand(s, format, args);
    va_end(args);
    return reply;
}

int64_t redis_server_int(struct redis_server *s, const char *format, ...)
{
    va_list args;
    redisReply *reply;
    int64_t n;

    va_start(args, format);
    reply = demand(s, format, args);
    va_end(args);
    if (reply->type == REDIS_REPLY_STRING)
        n = strtoll(reply->str, NULL, 10);
    else
        n = reply->integer;
    freeReplyObject(reply);
    return n;
}

void redis_server_ok(struct redis_server *s, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    freeReplyObject(demand(s, format, args));
    va_end(args);
}

const char *redis_server_text(struct redis_server *s, const char *format, ...)
{
    static char texts[2][8192];
    static int turn;
    va_list args;
    redisReply *reply;

    turn = !turn;
    va_start(args, format);
    reply = demand(s, format, args);
    va_end(args);
    snprintf(texts[turn], sizeof(texts[turn]), "%s", reply->str ? reply->str : "(nil)");
    freeReplyObject(reply);
    return texts[turn];
}

void redis_server_write(struct redis_server *s, const char *format, ...)
{
    va_list args;
    int done = 0;

    va_start(args, format);
    ck_assert_int_eq(redisvAppendCommand(s->context, format, args), REDIS_OK);
    va_end(args);
    while (!done)
        ck_assert_int_eq(redisBufferWrite(s->context, &done), REDIS_OK);
}

void redis_server_answer(struct redis_server *s)
{
    void *reply = NULL;

    ck_assert_int_eq(redisGetReply(s->context, &reply), REDIS_OK);
    ck_assert_msg(((redisReply *)reply)->type != REDIS_REPLY_ERROR, "%s", ((redisReply *)reply)->str);
    freeReplyObject(reply);
}
