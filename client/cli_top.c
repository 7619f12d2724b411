/* `pawl top`: a table of the locks that is drawn again every second, until q or a signal.
 *
 * Drawn on the terminal's second screen, in one write per picture so that it doesn't flicker, and cut to the window's size. What is longest held
 * stands first. Signals come through a descriptor, so the screen and the modes are put back on every way out.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "client/cli.h"
#include "client/cli_output.h"
#include "client/moment.h"
#include "proto/text.h"
#include "proto/utf8.h"

#define INTERVAL_MS    1000
#define INTERVAL_LEAST 100
#define PICTURE_MAX    (1024 * 1024)
#define RETRY_MS       500 /* the picture says that pawld is away, and goes on asking */

struct top {
    const struct cli *cli;
    struct pawl *client;
    int signals;
    struct termios modes;

    struct pawl_lock *locks; /* of this picture */
    size_t count, cap;
    bool no_memory;
    int recovering;
};

/* ---- what is there ---- */

static int keep_lock(void *arg, const struct pawl_lock *lock)
{
    struct top *top = arg;

    if (top->count == top->cap) {
        size_t cap = top->cap ? top->cap * 2 : 64;
        struct pawl_lock *more = realloc(top->locks, cap * sizeof(*more));

        if (!more) {
            top->no_memory = true;
            return 1;
        }
        top->locks = more;
        top->cap = cap;
    }
    top->locks[top->count++] = *lock;
    return 0;
}

static int by_held(const void *a, const void *b)
{
    const struct pawl_lock *x = a, *y = b;

    if (x->held_ms != y->held_ms)
        return x->held_ms > y->held_ms ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* ---- the picture ---- */

/* One line, cut to the window; a character counts as one column. */
static void add_line(struct text *picture, const char *line, int columns)
{
    size_t len = strlen(line), step;
    uint32_t code;

    while (len > 0 && columns-- > 0 && (step = utf8_sequence(line, len, &code)) > 0) {
        text_add(picture, line, step);
        line += step;
        len -= step;
    }
    text_str(picture, "\033[K\n");
}

static void add_lock(struct text *picture, const struct pawl_lock *lock, int columns)
{
    char line[PAWL_NAME_SIZE + PAWL_OWNER_SIZE + 128], held[32], left[32];

    snprintf(line, sizeof(line), "%-32s %8s %8s %7" PRId64 " %16" PRId64 "  %s", lock->name, cli_time(lock->held_ms, held, sizeof(held)),
             cli_time(lock->ttl_ms, left, sizeof(left)), lock->waiters, lock->token, lock->owner);
    add_line(picture, line, columns);
}

static void draw(struct top *top, const char *problem)
{
    struct winsize window = {.ws_row = 24, .ws_col = 80};
    int64_t waiters = 0;
    struct text picture;
    char line[512];
    int rows;

    (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &window);
    rows = window.ws_row > 4 ? window.ws_row - 4 : 1;
    for (size_t i = 0; i < top->count; i++)
        waiters += top->locks[i].waiters;
    text_init(&picture, NULL, 0, PICTURE_MAX);
    text_str(&picture, "\033[H");
    snprintf(line, sizeof(line), "pawl top  %zu held, %" PRId64 " waiting%s%s%s  at %s, q ends", top->count, waiters,
             top->recovering ? ", leases are being put back" : "", problem ? "  -- " : "", problem ? problem : "", top->cli->server);
    add_line(&picture, line, window.ws_col);
    add_line(&picture, "", 0);
    snprintf(line, sizeof(line), "%-32s %8s %8s %7s %16s  %s", "NAME", "HELD", "LEFT", "WAITERS", "TOKEN", "OWNER");
    text_str(&picture, "\033[7m");
    add_line(&picture, line, window.ws_col);
    text_str(&picture, "\033[0m");
    for (size_t i = 0; i < top->count && rows-- > 0; i++)
        add_lock(&picture, &top->locks[i], window.ws_col);
    text_str(&picture, "\033[J");
    if (!picture.failed)
        (void)!write(STDOUT_FILENO, picture.at, picture.len);
    text_close(&picture);
}

static void look(struct top *top)
{
    const char *prefix = top->cli->arg_count > 0 ? top->cli->args[0] : NULL;
    struct pawl_problem problem;

    top->count = 0;
    if (pawl_list(top->client, prefix, keep_lock, top, &top->recovering, &problem) != 0) {
        top->count = 0;
        draw(top, problem.message);
        return;
    }
    if (top->count > 0)
        qsort(top->locks, top->count, sizeof(*top->locks), by_held);
    draw(top, top->no_memory ? "no memory for more" : NULL);
}

/* ---- keys, signals, and the screen ---- */

/* Returns -1 to go on, or an exit code. */
static int wait_for_key(const struct top *top, int64_t interval_ms)
{
    struct pollfd polled[2] = {{.fd = top->signals, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};
    struct signalfd_siginfo info;
    char key;

    if (poll(polled, 2, (int)interval_ms) <= 0)
        return -1;
    if (polled[0].revents && read(top->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        return info.ssi_signo == SIGWINCH ? -1 : CLI_SIGNAL + (int)info.ssi_signo;
    if (polled[1].revents && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q' || key == 3 || key == 4))
        return CLI_OK;
    return -1;
}

static int open_screen(struct top *top)
{
    static const int caught[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
    struct termios raw;
    sigset_t set;

    if (!isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &top->modes) != 0) {
        cli_say("top: this is no terminal; for scripts there is `pawl ls --json`");
        return -1;
    }
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof(caught) / sizeof(caught[0]); i++)
        sigaddset(&set, caught[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    top->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (top->signals < 0) {
        cli_say("top: no descriptor: %s", strerror(errno));
        return -1;
    }
    pawl_set_cancel_fd(top->client, top->signals);
    raw = top->modes;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG); /* Ctrl-C is a key: one that stops would leave the screen as it is */
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    (void)!write(STDOUT_FILENO, "\033[?1049h\033[?25l\033[2J", 18);
    return 0;
}

static void close_screen(struct top *top)
{
    (void)!write(STDOUT_FILENO, "\033[?25h\033[?1049l", 14);
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &top->modes);
    close(top->signals);
}

int cli_top(const struct cli *cli)
{
    struct top top = {.cli = cli};
    int64_t interval_ms = cli->interval_ms >= 0 ? cli->interval_ms : INTERVAL_MS;
    int code;

    if (interval_ms < INTERVAL_LEAST || interval_ms > 3600000) {
        cli_say("--interval: must be from 100ms to 1h");
        return CLI_FAILED;
    }
    code = cli_open(cli, &top.client);
    if (code != CLI_OK)
        return code;
    if (cli->retry_ms < 0)
        pawl_set_retry_budget(top.client, RETRY_MS);
    pawl_set_on_retry(top.client, NULL, NULL); /* the screen says it */
    if (open_screen(&top) != 0) {
        pawl_close(top.client);
        return CLI_FAILED;
    }
    do {
        look(&top);
        code = wait_for_key(&top, interval_ms);
    } while (code < 0);
    close_screen(&top);
    free(top.locks);
    pawl_close(top.client);
    return code;
}
