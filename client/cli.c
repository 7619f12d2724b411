/* `pawl`: from the command line to one function per command.
 *
 * Commands and options are rows of two tables. To add an option: a row in `options`, its letter in the rows of the commands that take it, a
 * line in docs/man/pawl.1 and in both files of client/completion/ (tests/cli/test_usage.py compares them).
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "client/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli_output.h"
#include "proto/duration.h"
#include "proto/limits.h"

enum option_kind { FLAG, TEXT, DURATION, TOKEN };

struct option_row {
    char letter; /* names it in the rows of commands; also its short form when `brief` */
    bool brief;
    const char *name, *what, *help;
    enum option_kind kind;
    size_t at;
};

#define AT(member) offsetof(struct cli, member)

static const struct option_row options[] = {
    {'s', true, "server", "ADDRESS", "http://HOST:PORT, https://HOST:PORT or unix:/PATH (PAWL_SERVER; " PAWL_DEFAULT_ADDRESS ")", TEXT,
     AT(server)},
    {'A', false, "token-file", "FILE", "the access token is in FILE (PAWL_TOKEN_FILE, or the token in PAWL_ACCESS_TOKEN)", TEXT,
     AT(token_file)},
    {'V', false, "cacert", "FILE", "https: whom to trust (PAWL_CACERT; the system's authorities)", TEXT, AT(cacert)},
    {'C', false, "cert", "FILE", "https: the certificate to show (PAWL_CERT)", TEXT, AT(cert)},
    {'K', false, "key", "FILE", "https: its private key (PAWL_KEY; in the certificate's file)", TEXT, AT(key)},
    {'R', false, "retry", "DURATION", "go on for so long when pawld gives no answer (10s)", DURATION, AT(retry_ms)},
    {'j', true, "json", NULL, "one line of JSON", FLAG, AT(json)},
    {'t', true, "ttl", "DURATION", "time to live of the lease (30s)", DURATION, AT(ttl_ms)},
    {'w', true, "wait", "DURATION", "wait so long for the lock (0)", DURATION, AT(wait_ms)},
    {'d', false, "lock-delay", "DURATION", "nobody gets the lock for so long after the lease, unless it is released (0)", DURATION,
     AT(lock_delay_ms)},
    {'m', false, "max-hold", "DURATION", "the lease ends then, however it is renewed (no bound)", DURATION, AT(max_hold_ms)},
    {'o', true, "owner", "TEXT", "a label shown to others (HOST:PID)", TEXT, AT(owner)},
    {'l', false, "lease-id", "UUID", "the lease (PAWL_LEASE_ID)", TEXT, AT(lease_id)},
    {'T', false, "token", "N", "the fencing token (PAWL_TOKEN)", TOKEN, AT(token)},
    {'r', true, "reason", "TEXT", "why; pawld logs it", TEXT, AT(reason)},
    {'g', false, "grace", "DURATION", "between TERM and KILL when CMD is stopped (a sixth of the ttl, at most 10s)", DURATION,
     AT(grace_ms)},
    {'k', true, "kill-after", "DURATION", "KILL so long after a signal to end was passed on (never)", DURATION, AT(kill_after_ms)},
    {'E', false, "export-lease-id", NULL, "give CMD the lease id too, in PAWL_LEASE_ID", FLAG, AT(export_lease_id)},
    {'N', false, "no-terminal", NULL, "don't give CMD the terminal", FLAG, AT(no_terminal)},
    {'q', true, "quiet", NULL, "no word about retries", FLAG, AT(quiet)},
    {'i', false, "interval", "DURATION", "how often to look (1s)", DURATION, AT(interval_ms)},
};

#define OPTION_COUNT (sizeof(options) / sizeof(options[0]))

struct command_row {
    const char *name, *takes, *letters, *help;
    int least, most; /* arguments */
    int (*run)(const struct cli *cli);
};

static const struct command_row commands[] = {
    {"run", "NAME -- CMD [ARG...]", "sAVCKRtwdmogkENq", "hold the lock while CMD runs", 1, 1, cli_run},
    {"acquire", "NAME", "sAVCKRjtwdmol", "take the lock, and print the lease", 1, 1, cli_acquire},
    {"renew", "NAME", "sAVCKRjtl", "give a lease a new time to live", 1, 1, cli_renew},
    {"release", "NAME", "sAVCKRjl", "end a lease", 1, 1, cli_release},
    {"check", "NAME", "sAVCKRjT", "is the token that of the holder?", 1, 1, cli_check},
    {"status", "NAME", "sAVCKRj", "who holds the lock?", 1, 1, cli_status},
    {"ls", "[PREFIX]", "sAVCKRj", "list the locks that are held", 0, 1, cli_ls},
    {"break", "NAME", "sAVCKRjr", "end somebody else's lease", 1, 1, cli_break},
    {"top", "[PREFIX]", "sAVCKRi", "watch the locks in a terminal", 0, 1, cli_top},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

/* stderr may be a pipe or a terminal whose reader has stalled (Ctrl-S, a pager). Opened once more, it can be made non-blocking for pawl alone and not for all
 * who share it. */
static int say_to = -1; /* -1: stderr, and wait */

void cli_say_without_waiting(void)
{
    struct stat found;

    if (say_to >= 0)
        return;
    if (fstat(STDERR_FILENO, &found) == 0 && (S_ISFIFO(found.st_mode) || S_ISCHR(found.st_mode)))
        say_to = open("/proc/self/fd/2", O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (say_to < 0)
        say_to = STDERR_FILENO; /* a file; or a socket, which has room for a line when it polls writable */
}

static void say_if_there_is_room(const char *text, size_t len)
{
    struct pollfd room = {.fd = say_to, .events = POLLOUT};

    if (poll(&room, 1, 0) > 0 && (room.revents & POLLOUT))
        (void)!write(say_to, text, len);
}

void cli_say(const char *format, ...)
{
    static const char name[] = "pawl: ";
    char text[1024];
    size_t len = sizeof(name) - 1;
    va_list values;

    memcpy(text, name, len);
    va_start(values, format);
    vsnprintf(text + len, sizeof(text) - len - 1, format, values);
    va_end(values);
    len = strlen(text);
    text[len++] = '\n'; /* one write: stderr of several programs may be one file */
    if (say_to >= 0)
        say_if_there_is_room(text, len);
    else
        fwrite(text, 1, len, stderr);
}

/* ---- help ---- */

static void print_option(FILE *to, const struct option_row *row)
{
    char left[64];

    snprintf(left, sizeof(left), "%c%c%s--%s%s%s", row->brief ? '-' : ' ', row->brief ? row->letter : ' ', row->brief ? ", " : "  ",
             row->name, row->what ? " " : "", row->what ? row->what : "");
    fprintf(to, "  %-28s%s\n", left, row->help);
}

static void print_command_help(FILE *to, const struct command_row *command)
{
    fprintf(to, "Usage: pawl %s [OPTION...] %s\n%s\n\nOptions:\n", command->name, command->takes, command->help);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (strchr(command->letters, options[i].letter))
            print_option(to, &options[i]);
    }
    fprintf(to, "  %-28s%s\n", "-h, --help", "this text");
    if (command->run == cli_run)
        fprintf(to, "\nCMD finds the fencing token in PAWL_TOKEN, and NAME in PAWL_LOCK. It gets TERM before the lease can end.\n"
                    "Exit code: that of CMD; or one of `pawl --help`, when it was not started or was stopped.\n");
}

static void print_help(FILE *to)
{
    fprintf(to, "Usage: pawl COMMAND [OPTION...] ...\n\nCommands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(to, "  %-8s %-22s%s\n", commands[i].name, commands[i].takes, commands[i].help);
    fprintf(to, "\n`pawl COMMAND --help` tells the options. DURATION is a whole number with ms, s, m, h or d.\n"
                "Exit codes: 113 lost, 114 held, 115 pawld unavailable, 116 not held, 117 refused, 125 usage or failure.\n");
}

/* ---- reading ---- */

static bool read_token(const char *text, int64_t *ret)
{
    char *end;
    long long value;

    errno = 0;
    value = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0' || end == text || text[0] < '0' || text[0] > '9' || value < 1 || value > PAWL_TOKEN_MAX)
        return false;
    *ret = value;
    return true;
}

static bool take_value(struct cli *cli, const struct option_row *row, const char *value)
{
    char *at = (char *)cli + row->at;
    const char *problem;

    switch (row->kind) {
    case FLAG:
        *(bool *)at = true;
        return true;
    case TEXT:
        *(const char **)(void *)at = value;
        return true;
    case DURATION:
        if (duration_parse(value, strlen(value), (int64_t *)(void *)at) == 0)
            return true;
        problem = duration_problem(value, strlen(value));
        cli_say("--%s: %s", row->name, problem ? problem : "is no duration");
        return false;
    case TOKEN:
        if (read_token(value, (int64_t *)(void *)at))
            return true;
        cli_say("--%s: must be a whole number from 1 to 9007199254740991", row->name);
        return false;
    }
    return false;
}

static const struct option_row *row_of(int letter)
{
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (options[i].letter == letter)
            return &options[i];
    }
    return NULL;
}

/* The rows that this command takes, for getopt_long. */
static void list_options(const struct command_row *command, struct option *longs, char *shorts)
{
    size_t count = 0;

    *shorts++ = ':';
    *shorts++ = 'h';
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        const struct option_row *row = &options[i];

        if (!strchr(command->letters, row->letter))
            continue;
        longs[count++] = (struct option){row->name, row->kind == FLAG ? no_argument : required_argument, NULL, row->letter};
        if (row->brief) {
            *shorts++ = row->letter;
            if (row->kind != FLAG)
                *shorts++ = ':';
        }
    }
    *shorts = '\0';
    longs[count++] = (struct option){"help", no_argument, NULL, 'h'};
    longs[count] = (struct option){NULL, 0, NULL, 0};
}

/* Returns -1 to go on, or an exit code. */
static int read_options(struct cli *cli, const struct command_row *command, int argc, char **argv)
{
    struct option longs[OPTION_COUNT + 2];
    char shorts[2 * OPTION_COUNT + 3];
    int letter;

    list_options(command, longs, shorts);
    opterr = 0;
    optind = 1;
    while ((letter = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        const struct option_row *row = row_of(letter);

        if (letter == 'h') {
            print_command_help(stdout, command);
            return CLI_OK;
        }
        if (letter == ':' || letter == '?' || !row) {
            cli_say("%s: %s '%s'; see `pawl %s --help`", command->name, letter == ':' ? "a value is missing after" : "there is no option",
                    argv[optind - 1], command->name);
            return CLI_FAILED;
        }
        if (!take_value(cli, row, optarg))
            return CLI_FAILED;
    }
    cli->arg_count = argc - optind;
    cli->args = argv + optind;
    return -1;
}

/* run: what stands after the first "--" is CMD's, word for word. Takes it off and returns how many words are left for pawl, -1: no CMD. */
static int take_command(struct cli *cli, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") != 0)
            continue;
        if (i + 1 == argc)
            return -1;
        cli->command = argv + i + 1;
        argv[i] = NULL;
        return i;
    }
    return -1;
}

static bool wants_help(int argc, char **argv)
{
    return argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
}

/* NULL when it is not set, or empty. */
static const char *from_environment(const char *name)
{
    const char *value = getenv(name);

    return value && value[0] ? value : NULL;
}

static int run_command(const struct command_row *command, int argc, char **argv)
{
    const char *server = from_environment("PAWL_SERVER");
    struct cli cli = {.program = command->name,
                      .server = server ? server : PAWL_DEFAULT_ADDRESS,
                      .token_file = from_environment("PAWL_TOKEN_FILE"),
                      .cacert = from_environment("PAWL_CACERT"),
                      .cert = from_environment("PAWL_CERT"),
                      .key = from_environment("PAWL_KEY"),
                      .ttl_ms = -1,
                      .wait_ms = -1,
                      .lock_delay_ms = -1,
                      .max_hold_ms = -1,
                      .retry_ms = -1,
                      .grace_ms = -1,
                      .kill_after_ms = -1,
                      .interval_ms = -1};
    int code;

    if (!cli_take_environment_token(&cli))
        return CLI_FAILED;
    if (command->run == cli_run && !wants_help(argc, argv)) {
        argc = take_command(&cli, argc, argv);
        if (argc < 0) {
            cli_say("run: there is no CMD; it stands after --: pawl run [OPTION...] NAME -- CMD [ARG...]");
            return CLI_FAILED;
        }
    }
    code = read_options(&cli, command, argc, argv);
    if (code >= 0)
        return code;
    if (cli.arg_count < command->least || cli.arg_count > command->most) {
        cli_say("usage: pawl %s [OPTION...] %s", command->name, command->takes);
        return CLI_FAILED;
    }
    code = command->run(&cli);
    cli_forget_token(&cli);
    return code;
}

/* Files named in the environment are for whatever address is given: one without TLS needs none. */
static bool wants_tls_files(const struct cli *cli)
{
    bool tls = strncmp(cli->server, "https://", strlen("https://")) == 0;
    const char *const given[][2] = {{cli->cacert, "PAWL_CACERT"}, {cli->cert, "PAWL_CERT"}, {cli->key, "PAWL_KEY"}};

    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++)
        if (given[i][0] && (tls || given[i][0] != from_environment(given[i][1])))
            return true; /* an option without https:// is a mistake, which pawl_set_tls names */
    return false;
}

/* For who sits before a terminal and wonders: logs and mails of cron don't want to know of what comes right by itself. */
static void on_retry(void *arg, const struct pawl_problem *problem, int64_t left_ms)
{
    char left[32];

    (void)arg;
    cli_say("%s; trying again for another %s", problem->message, cli_time(left_ms, left, sizeof(left)));
}

int cli_open(const struct cli *cli, struct pawl **ret_client)
{
    struct pawl_problem problem;

    if (pawl_open(cli->server, ret_client, &problem) != 0) {
        cli_say("--server %s: %s", cli->server, problem.message);
        return CLI_FAILED;
    }
    if (wants_tls_files(cli) && pawl_set_tls(*ret_client, cli->cacert, cli->cert, cli->key, &problem) != 0) {
        cli_say("%s", problem.message);
        pawl_close(*ret_client);
        *ret_client = NULL;
        return CLI_FAILED;
    }
    if (!cli_set_token(cli, *ret_client)) {
        pawl_close(*ret_client);
        return CLI_FAILED;
    }
    if (cli->retry_ms >= 0)
        pawl_set_retry_budget(*ret_client, cli->retry_ms);
    if (isatty(STDERR_FILENO) && !cli->quiet)
        pawl_set_on_retry(*ret_client, on_retry, NULL);
    return CLI_OK;
}

bool cli_take_terms(const struct cli *cli, struct pawl_acquire_options *want)
{
    if (cli->max_hold_ms == 0) {
        cli_say("--max-hold: must be above 0");
        return false;
    }
    want->lock_delay_ms = cli->lock_delay_ms > 0 ? cli->lock_delay_ms : 0;
    want->max_hold_ms = cli->max_hold_ms > 0 ? cli->max_hold_ms : 0;
    return true;
}

const char *cli_default_owner(char *block, size_t cap, int64_t pid)
{
    char host[128];

    if (gethostname(host, sizeof(host)) != 0 || host[0] == '\0')
        snprintf(host, sizeof(host), "unknown");
    host[sizeof(host) - 1] = '\0';
    snprintf(block, cap, "%s:%lld", host, (long long)pid);
    return block;
}

/* What was printed has to be out before it counts as done. */
static int flushed(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    cli_say("the output can't be written: %s", strerror(errno));
    return code == CLI_OK ? CLI_FAILED : code;
}

/* One of the three that was closed would be the number of the next thing that is opened, and what is said would go there: to pawld, even. CMD gets them closed,
 * as pawl did. */
static void fill_standard_descriptors(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;

    fill_standard_descriptors();
    if (!name) {
        print_help(stderr);
        return CLI_FAILED;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return flushed(CLI_OK);
    }
    if (strcmp(name, "--version") == 0) {
        printf("pawl " PACKAGE_VERSION "\n");
        return flushed(CLI_OK);
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(name, commands[i].name) == 0)
            return flushed(run_command(&commands[i], argc - 1, argv + 1));
    }
    if (name[0] == '-')
        cli_say("%s: options stand behind the command: pawl COMMAND [OPTION...]; see `pawl --help`", name);
    else
        cli_say("there is no command '%s'; see `pawl --help`", name);
    return CLI_FAILED;
}
