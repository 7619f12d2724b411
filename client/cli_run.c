/* `pawl run`: CMD lives inside a lease.
 *
 *      acquire --> running --CMD ends--------> leftovers get TERM, and KILL after the grace time --> gone --> release
 *                    |  |
 *                    |  +--signals are passed on to CMD's group
 *                    |
 *                    +--lease lost, or `stop_at`--> TERM --`kill_at`--> KILL, again until all are gone --> exit 113
 *
 *      |-- renewed ------ renewed ------ no answer ...            stop_at      kill_at    deadline
 *      |---- ttl/3 ------------|          tries again, backs off     |-- grace --|- margin -|
 *
 * The deadline is counted from before the last good renewal was sent, so that no clock of anybody else matters; `margin` is what KILL and the
 * scheduler may take. The lease is looked at first in every turn of the loop: also when pawl itself had been stopped, or the machine suspended.
 * If `kill_at` is over by then, there is no TERM any more, since a successor may be at work.
 *
 * Nothing that is said on the way may hold it up: see cli_say_without_waiting.
 *
 * One thread does all of this; the keep-alive's only renews, and wakes the loop.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli.h"
#include "client/cli_output.h"
#include "client/cli_terminal.h"
#include "client/cli_tree.h"
#include "client/moment.h"
#include "client/why_lost.h"

#define TTL_DEFAULT_MS  30000
#define TTL_LEAST_MS    1000 /* below, renewals have no room */
#define MARGIN_MOST_MS  2000
#define GRACE_MOST_MS   10000
#define RELEASE_MOST_MS 5000 /* what giving the lease back may take */
#define RELEASE_LOST_MS 500
#define KILL_AGAIN_MS   20

enum stage { STAGE_RUNNING, STAGE_TERMINATED, STAGE_KILLED };

struct run {
    const struct cli *cli;
    const char *name;
    struct pawl *client;
    struct pawl_lease *lease;
    int64_t ttl_ms, margin_ms, grace_ms;

    /* what pawl was started with, for CMD */
    sigset_t old_mask;
    struct sigaction old_chld;

    int signals, timer, wake;
    struct cli_tree tree;
    struct cli_terminal terminal;
    bool leader_stopped, leftovers_told;

    enum stage stage;
    int64_t deadline_us; /* the last that was known */
    bool at_bound;       /* it was the end of what may be held */
    int64_t kill_at_us;  /* MOMENT_MAX: not set */
    bool lost;
    atomic_bool told_lost; /* by the keep-alive's thread */
    char why[320];         /* written before told_lost, read after it */
};

/* ---- signals ---- */

/* Faults kill pawl as they should; the job-control signals are left alone while there is no CMD to pass them on to. */
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
static const int for_cmd[] = {SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGCHLD, SIGWINCH, SIGURG, SIGPIPE};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static bool is_for_cmd(int number)
{
    for (size_t i = 0; i < COUNT_OF(for_cmd); i++) {
        if (for_cmd[i] == number)
            return true;
    }
    return false;
}

static void signal_set(sigset_t *set, bool with_cmd)
{
    sigfillset(set);
    for (size_t i = 0; i < COUNT_OF(faults); i++)
        sigdelset(set, faults[i]);
    for (size_t i = 0; i < COUNT_OF(for_cmd) && !with_cmd; i++)
        sigdelset(set, for_cmd[i]);
}

/* Blocks the set and makes the descriptor deliver it; fd -1: a new one. */
static int catch_signals(int fd, bool with_cmd, sigset_t *ret_old)
{
    sigset_t set;

    signal_set(&set, with_cmd);
    if (sigprocmask(SIG_BLOCK, &set, ret_old) != 0)
        return -1;
    return signalfd(fd, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* The next signal that came, or 0. */
static int next_signal(const struct run *run)
{
    struct signalfd_siginfo info;

    return read(run->signals, &info, sizeof(info)) == (ssize_t)sizeof(info) ? (int)info.ssi_signo : 0;
}

/* ---- the keep-alive's word ---- */

static void poke(struct run *run)
{
    uint64_t one = 1;

    (void)!write(run->wake, &one, sizeof(one)); /* can't be full; a retry on EINTR isn't needed: its thread blocks all signals */
}

static void on_event(void *arg, struct pawl_lease *lease, enum pawl_event event, const struct pawl_problem *problem)
{
    struct run *run = arg;

    if (event == PAWL_EVENT_MAYBE_LOST && !run->cli->quiet)
        cli_say("%s: not renewed, trying again, %" PRId64 " ms are left: %s", run->name, pawl_lease_left_ms(lease), problem->message);
    if (event == PAWL_EVENT_LOST) {
        snprintf(run->why, sizeof(run->why), "%s", problem->message);
        atomic_store(&run->told_lost, true);
    }
    poke(run); /* also RENEWED: the timer is set by the old deadline */
}

/* ---- stopping CMD ---- */

static void earlier(int64_t *at_us, int64_t than_us)
{
    if (than_us < *at_us)
        *at_us = than_us;
}

static void kill_tree(struct run *run)
{
    run->stage = STAGE_KILLED;
    cli_tree_signal_all(&run->tree, SIGKILL);
}

/* TERM to all of the tree, and KILL after the grace time. What is stopped has to run to see the first. */
static void terminate_tree(struct run *run, int64_t now_us)
{
    if (run->stage == STAGE_RUNNING) {
        run->stage = STAGE_TERMINATED;
        cli_tree_signal_all(&run->tree, SIGTERM);
        cli_tree_signal_all(&run->tree, SIGCONT);
    }
    earlier(&run->kill_at_us, moment_after(now_us, run->grace_ms));
}

static int64_t before_end(const struct run *run, int64_t ms)
{
    return run->deadline_us - ms * 1000;
}

/* The keep-alive's thread sees the same end at the same time: whoever is first names the same reason. */
static const char *why_lost(const struct run *run)
{
    return atomic_load(&run->told_lost) ? run->why : why_lost_at_end(run->at_bound);
}

static void lose(struct run *run, int64_t now_us)
{
    bool too_late = now_us >= before_end(run, run->margin_ms);

    if (!run->lost)
        cli_say("%s: the lease is lost, CMD is %s: %s", run->name, too_late ? "killed" : "stopped", why_lost(run));
    run->lost = true;
    if (!too_late)
        terminate_tree(run, now_us);
    earlier(&run->kill_at_us, before_end(run, run->margin_ms));
}

/* First thing in every turn. */
static void look_at_lease(struct run *run)
{
    int64_t now_us = moment_now_us(), deadline_us = pawl_lease_deadline_us(run->lease);

    if (deadline_us > 0) {
        run->deadline_us = deadline_us;
        run->at_bound = pawl_lease_is_at_bound(run->lease);
    }
    if (run->lost || atomic_load(&run->told_lost) || now_us >= before_end(run, run->margin_ms + run->grace_ms))
        lose(run, now_us);
    if (now_us >= run->kill_at_us)
        kill_tree(run);
}

/* ---- the terminal and job control ---- */

/* Stops pawl's own group as the terminal's Ctrl-Z would have. Returns whether it was stopped: the kernel doesn't where nobody could make it
 * go on. */
static bool stop_self(void)
{
    static const struct timespec at_once;
    sigset_t stop, go, pending;

    sigemptyset(&go);
    sigaddset(&go, SIGCONT);
    (void)sigtimedwait(&go, NULL, &at_once); /* an old one must not be taken for the one that ends this stop */
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL);
    (void)kill(0, SIGTSTP);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    sigemptyset(&pending);
    (void)sigpending(&pending);
    return sigismember(&pending, SIGCONT) == 1;
}

static void go_on(struct run *run)
{
    if (cli_terminal_is_ours(&run->terminal) && (run->terminal.eager || run->terminal.given))
        cli_terminal_give(&run->terminal, run->tree.leader);
    if (run->leader_stopped) {
        run->leader_stopped = false;
        cli_tree_signal_group(&run->tree, SIGCONT);
    }
}

static void leader_stopped(struct run *run, int number)
{
    bool wants_terminal = number == SIGTTIN || number == SIGTTOU;

    run->leader_stopped = true;
    if (run->stage != STAGE_RUNNING || (number != SIGTSTP && !wants_terminal))
        return; /* somebody's SIGSTOP is between them and CMD */
    if (wants_terminal && cli_terminal_is_ours(&run->terminal)) {
        run->terminal.given = true;
        go_on(run);
        return;
    }
    cli_terminal_take(&run->terminal, run->tree.leader, false);
    if (!stop_self() && wants_terminal)
        return;         /* it would stop again at once: let it wait for its CONT */
    look_at_lease(run); /* before CMD may do anything */
    if (run->stage == STAGE_RUNNING)
        go_on(run);
}

/* ---- signals while CMD runs ---- */

static void pass_on(struct run *run, int number)
{
    cli_tree_signal_group(&run->tree, number);
    if (number != SIGTERM && number != SIGINT && number != SIGHUP && number != SIGQUIT)
        return;
    if (run->leader_stopped) /* as shells do for jobs that are stopped: else it would not see the signal */
        cli_tree_signal_group(&run->tree, SIGCONT);
    if (run->cli->kill_after_ms >= 0)
        earlier(&run->kill_at_us, moment_after(moment_now_us(), run->cli->kill_after_ms));
}

static void handle_signals(struct run *run)
{
    int number;

    while ((number = next_signal(run)) != 0) {
        switch (number) {
        case SIGCHLD:
        case SIGPIPE:
        case SIGURG:
        case SIGTTIN:
        case SIGTTOU:
            break;
        case SIGCONT:
            go_on(run);
            break;
        case SIGTSTP:
            cli_tree_signal_group(&run->tree, SIGTSTP); /* pawl follows when CMD has stopped */
            break;
        default:
            pass_on(run, number);
            break;
        }
    }
}

/* ---- the loop ---- */

static void wait_for_something(struct run *run)
{
    struct pollfd polled[3] = {
        {.fd = run->signals, .events = POLLIN}, {.fd = run->timer, .events = POLLIN}, {.fd = run->wake, .events = POLLIN}};
    int64_t due_us = run->lost ? MOMENT_MAX : before_end(run, run->margin_ms + run->grace_ms);
    uint64_t count;

    earlier(&due_us, run->kill_at_us);
    if (run->stage == STAGE_KILLED)
        due_us = moment_after(moment_now_us(), KILL_AGAIN_MS);
    moment_set(run->timer, due_us);
    while (poll(polled, 3, -1) < 0 && errno == EINTR)
        continue;
    if (polled[2].revents)
        (void)!read(run->wake, &count, sizeof(count));
}

static void supervise(struct run *run)
{
    int stopped;

    for (;;) {
        look_at_lease(run);
        handle_signals(run);
        if (!cli_tree_look(&run->tree, &stopped))
            return;
        if (stopped)
            leader_stopped(run, stopped);
        if (run->tree.leader_ended && !run->leftovers_told) {
            run->leftovers_told = true; /* CMD has ended and left some behind */
            terminate_tree(run, moment_now_us());
        }
        wait_for_something(run);
    }
}

/* ---- starting CMD ---- */

static void set_number(const char *name, int64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%" PRId64, value);
    (void)setenv(name, text, 1);
}

/* In CMD's process. No other thread exists yet, so anything may be called. */
static void become_command(struct run *run, pid_t parent, bool give)
{
    (void)setpgid(0, 0);
    if (give)
        cli_terminal_give(&run->terminal, getpid());
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* a pawl that was killed can't keep the lease */
    if (getppid() != parent)
        _exit(CLI_LOST);
    if (setenv("PAWL_LOCK", run->name, 1) != 0)
        _exit(CLI_FAILED);
    set_number("PAWL_TOKEN", pawl_lease_token(run->lease));
    if (run->cli->export_lease_id)
        (void)setenv("PAWL_LEASE_ID", pawl_lease_id(run->lease), 1);
    else
        (void)unsetenv("PAWL_LEASE_ID"); /* an outer lease's is no business of CMD's */
    (void)sigaction(SIGCHLD, &run->old_chld, NULL);
    (void)sigprocmask(SIG_SETMASK, &run->old_mask, NULL);
    execvp(run->cli->command[0], run->cli->command);
    cli_say("%s: %s", run->cli->command[0], strerror(errno));
    _exit(errno == ENOENT ? CLI_NOT_FOUND : CLI_CANNOT_RUN);
}

static int start_command(struct run *run)
{
    struct pawl_keep_alive_options keep = {.margin_ms = run->margin_ms + run->grace_ms, .on_event = on_event, .arg = run};
    struct pawl_problem problem;
    bool give = run->terminal.eager && cli_terminal_is_ours(&run->terminal);
    pid_t self = getpid(), pid = fork();

    if (pid < 0) {
        cli_say("fork: %s", strerror(errno));
        return CLI_FAILED;
    }
    if (pid == 0)
        become_command(run, self, give);
    (void)setpgid(pid, pid); /* whoever is first; it fails when the child was, and has become CMD */
    run->tree.leader = pid;
    run->terminal.given = give;
    if (pawl_keep_alive(run->lease, &keep, &problem) == 0)
        return CLI_OK;
    snprintf(run->why, sizeof(run->why), "%s", problem.message);
    atomic_store(&run->told_lost, true); /* nobody renews: CMD is stopped at once */
    return CLI_OK;
}

/* ---- the whole ---- */

static int exit_code_of(const struct run *run)
{
    int status = run->tree.leader_status;

    if (run->lost)
        return CLI_LOST;
    return WIFSIGNALED(status) ? CLI_SIGNAL + WTERMSIG(status) : WEXITSTATUS(status);
}

/* All are gone. Losing the lease so late counts too: the end of the work was not alone. */
static int give_up_lease(struct run *run, int code)
{
    int64_t left_ms = (run->deadline_us - moment_now_us()) / 1000;
    int64_t most_ms = run->lost ? RELEASE_LOST_MS : RELEASE_MOST_MS; /* who waits for our exit code should not wait for pawld */
    struct pawl_problem problem;

    left_ms = left_ms < 1 ? 1 : left_ms > most_ms ? most_ms : left_ms;
    pawl_set_retry_budget(run->client, left_ms);
    pawl_set_timeout(run->client, left_ms);
    switch (pawl_release(run->lease, &problem)) {
    case 0:
        return code;
    case PAWL_ERR_LOST:
        if (!run->lost)
            cli_say("%s: the lease had been lost before CMD ended", run->name);
        return CLI_LOST;
    default:
        if (!run->lost)
            cli_say("%s: not released, it ends by itself: %s", run->name, problem.message);
        return code;
    }
}

static int run_command(struct run *run)
{
    bool mend;
    int code = start_command(run);

    if (code != CLI_OK)
        return give_up_lease(run, code);
    supervise(run);
    code = exit_code_of(run);
    mend = WIFSIGNALED(run->tree.leader_status);
    cli_terminal_take(&run->terminal, run->tree.leader, mend);
    pawl_keep_alive_stop(run->lease);
    return give_up_lease(run, code);
}

/* With the lease in hand: unless a signal came meanwhile, or too little of it is left. */
static int use_lease(struct run *run)
{
    int number;

    run->deadline_us = pawl_lease_deadline_us(run->lease);
    cli_say_without_waiting(); /* the lease ends, and CMD before it, whoever reads what is said of it */
    if (cli_tree_open(&run->tree) != 0) {
        cli_say("/proc is needed to look after CMD: %s", strerror(errno));
        return give_up_lease(run, CLI_FAILED);
    }
    run->signals = catch_signals(run->signals, true, NULL);
    while ((number = next_signal(run)) != 0) {
        if (!is_for_cmd(number))
            return give_up_lease(run, CLI_SIGNAL + number);
    }
    if (moment_now_us() >= before_end(run, run->margin_ms + run->grace_ms)) {
        cli_say("%s: granted, but too late to start CMD", run->name);
        return give_up_lease(run, CLI_LOST);
    }
    cli_terminal_open(&run->terminal, !run->cli->no_terminal);
    return run_command(run);
}

static int take_lease(struct run *run)
{
    char owner[192];
    struct pawl_acquire_options want = {.ttl_ms = run->ttl_ms, .wait_ms = run->cli->wait_ms > 0 ? run->cli->wait_ms : 0};
    struct pawl_problem problem;
    int code;

    if (!cli_take_terms(run->cli, &want))
        return CLI_FAILED;
    want.owner = run->cli->owner ? run->cli->owner : cli_default_owner(owner, sizeof(owner), getpid());
    pawl_set_cancel_fd(run->client, run->signals);
    code = pawl_acquire(run->client, run->name, &want, &run->lease, &problem);
    pawl_set_cancel_fd(run->client, -1);
    if (code == 0)
        return CLI_OK;
    if (code == PAWL_ERR_CANCELLED) {
        int number = next_signal(run);

        return number > 0 ? CLI_SIGNAL + number : CLI_FAILED;
    }
    return cli_complain(run->cli, run->name, &problem);
}

/* Of the ttl, a tenth (at most 2 s) is the margin and a sixth (at most 10 s) the grace time. Both have to fit into its half, so that
 * there is room for more than one try to renew. */
static int plan(struct run *run)
{
    run->ttl_ms = run->cli->ttl_ms >= 0 ? run->cli->ttl_ms : TTL_DEFAULT_MS;
    if (run->cli->max_hold_ms >= 0 && run->cli->max_hold_ms < TTL_LEAST_MS) {
        cli_say("--max-hold: must be at least 1s: below there is no time to stop CMD before the lease ends");
        return CLI_FAILED;
    }
    if (run->cli->max_hold_ms >= 0 && run->cli->max_hold_ms < run->ttl_ms)
        run->ttl_ms = run->cli->max_hold_ms;
    run->margin_ms = run->ttl_ms / 10 < MARGIN_MOST_MS ? run->ttl_ms / 10 : MARGIN_MOST_MS;
    run->grace_ms = run->ttl_ms / 6 < GRACE_MOST_MS ? run->ttl_ms / 6 : GRACE_MOST_MS;
    if (run->cli->grace_ms >= 0)
        run->grace_ms = run->cli->grace_ms;
    if (run->ttl_ms < TTL_LEAST_MS) {
        cli_say("--ttl: must be at least 1s: below there is no time to stop CMD before the lease ends");
        return CLI_FAILED;
    }
    if (run->grace_ms > run->ttl_ms / 2 - run->margin_ms) {
        cli_say("--grace: may be %" PRId64 " ms with this ttl", run->ttl_ms / 2 - run->margin_ms);
        return CLI_FAILED;
    }
    return CLI_OK;
}

static void close_run(struct run *run)
{
    pawl_lease_free(run->lease);
    pawl_close(run->client);
    cli_tree_close(&run->tree);
    cli_terminal_close(&run->terminal);
    close(run->signals);
    close(run->timer);
    close(run->wake);
}

int cli_run(const struct cli *cli)
{
    struct run run = {.cli = cli, .name = cli->args[0], .kill_at_us = MOMENT_MAX, .tree = CLI_TREE_NONE, .terminal.fd = -1};
    struct sigaction plain = {.sa_handler = SIG_DFL};
    int code = plan(&run);

    if (code != CLI_OK)
        return code;
    code = cli_open(cli, &run.client);
    if (code != CLI_OK)
        return code;
    (void)sigaction(SIGCHLD, &plain, &run.old_chld); /* ignored, it would hide how CMD ended */
    run.signals = catch_signals(-1, false, &run.old_mask);
    run.timer = moment_timer();
    run.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (run.signals < 0 || run.timer < 0 || run.wake < 0) {
        cli_say("no descriptors: %s", strerror(errno));
        code = CLI_FAILED;
    } else {
        code = take_lease(&run);
        if (code == CLI_OK)
            code = use_lease(&run);
    }
    close_run(&run);
    return code;
}
