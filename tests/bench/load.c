/* The load: one thread that works a pawld, or a Redis, as hard as its connections allow, and prints what it saw as one JSON object.
 * tests/bench/run starts it, many times over; by hand it is useful under a profiler.
 *
 * Reading order: modes.h (what it can do), cycle.c (the comparison), dialect.h (its two languages), frame.h and wire.h below them.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/bench/modes.h"

static const char usage[] = "Usage: load MODE --to ADDRESS [OPTION...]\n"
                            "\n"
                            "Modes\n"
                            "  http       lock cycles (acquire, release) through pawld, a new name each\n"
                            "  redis      the same cycles by pawld's own commands straight to Redis; needs --commands\n"
                            "  etcd       the same cycles by etcd's lock API over its JSON gateway; etcd-lease: with a lease for each\n"
                            "  handover   waiters on one lock of pawld, from release to grant; handover-etcd: of etcd;\n"
                            "             handover-poll: tries every 50 ms on Redis\n"
                            "  publish    from PUBLISH to a subscriber, on Redis\n"
                            "  idle       open connections, have one request served on each, hold them until standard input ends\n"
                            "\n"
                            "Options\n"
                            "  --to ADDRESS        127.0.0.1:PORT or unix:PATH, of what is measured; of cycles repeatable, for many nodes\n"
                            "  --connections N     connections; of handover: waiters (1)\n"
                            "  --seconds S         measure for so long\n"
                            "  --warm-up S         do the same for so long before (cycles)\n"
                            "  --count N           end after so many cycles, hand-overs or messages\n"
                            "  --commands FILE     what pawld sends for one cycle, as tests/bench/capture.py writes it\n"
                            "  --cpu-pid PID       also take the CPU time of this process; repeatable\n"
                            "  --park              idle: leave a waiting acquire on each connection\n"
                            "  --leases N          idle: hold so many leases besides\n"
                            "  --trips ADDRESS     handover: measure a PUBLISH trip on this Redis between any two hand-overs\n"
                            "  --help\n"
                            "\n"
                            "Exit status: 0, 1 if there was any fault, 2 if the command line is wrong.\n";

enum { TO = 256, CONNECTIONS, SECONDS, WARM_UP, COUNT, COMMANDS, CPU_PID, PARK, LEASES, TRIPS, HELP };

static const struct option rows[] = {
    {"to", required_argument, NULL, TO},
    {"connections", required_argument, NULL, CONNECTIONS},
    {"seconds", required_argument, NULL, SECONDS},
    {"warm-up", required_argument, NULL, WARM_UP},
    {"count", required_argument, NULL, COUNT},
    {"commands", required_argument, NULL, COMMANDS},
    {"cpu-pid", required_argument, NULL, CPU_PID},
    {"park", no_argument, NULL, PARK},
    {"leases", required_argument, NULL, LEASES},
    {"trips", required_argument, NULL, TRIPS},
    {"help", no_argument, NULL, HELP},
    {NULL, 0, NULL, 0},
};

struct request {
    struct plan plan;
    const char *mode;
    const char *commands;
};

static bool read_count(const char *text, uint64_t max, uint64_t *ret)
{
    char *end;

    errno = 0;
    *ret = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == '\0' && text[0] != '-' && *ret > 0 && *ret <= max;
}

static bool read_seconds(const char *text, double *ret)
{
    char *end;

    *ret = strtod(text, &end);
    return end != text && *end == '\0' && *ret >= 0 && *ret <= 86400;
}

static bool take_option(struct request *q, int option, const char *value)
{
    struct plan *p = &q->plan;
    uint64_t n;

    switch (option) {
    case TO:
        return p->to_count < MODES_TO_MAX && address_read(&p->to[p->to_count++], value);
    case CONNECTIONS:
        if (!read_count(value, 100000, &n))
            return false;
        p->connections = (size_t)n;
        return true;
    case SECONDS:
        return read_seconds(value, &p->seconds);
    case WARM_UP:
        return read_seconds(value, &p->warm_up);
    case COUNT:
        return read_count(value, UINT64_C(1) << 40, &p->count);
    case COMMANDS:
        q->commands = value;
        return true;
    case CPU_PID:
        if (p->cpu_pid_count == MODES_PIDS_MAX || !read_count(value, 1 << 30, &n))
            return false;
        p->cpu_pids[p->cpu_pid_count++] = (pid_t)n;
        return true;
    case PARK:
        p->park = true;
        return true;
    case LEASES:
        return read_count(value, 10000000, &p->leases);
    case TRIPS:
        return address_read(&p->trips, value);
    default:
        return false;
    }
}

/* 0 to run, else the exit status plus one. */
static int read_request(struct request *q, int argc, char **argv)
{
    int option, row;

    q->plan.connections = 1;
    while ((option = getopt_long(argc, argv, "", rows, &row)) != -1) {
        if (option == HELP) {
            (void)fputs(usage, stdout);
            return 1;
        }
        if (option == '?')
            return 3;
        if (!take_option(q, option, optarg)) {
            (void)fprintf(stderr, "load: --%s: '%s' won't do\n", rows[row].name, optarg != NULL ? optarg : "");
            return 3;
        }
    }
    if (optind + 1 != argc || q->plan.to_count == 0) {
        (void)fputs(usage, stderr);
        return 3;
    }
    q->mode = argv[optind];
    return 0;
}

/* Thousands of connections are wanted: as many descriptors as may be had. */
static void raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* The dialect that a mode of cycles or hand-over speaks; false with a sentence if it can't be made. */
static bool make_dialect(struct dialect *d, const struct request *q, char *problem, size_t cap)
{
    const char *mode = q->mode;

    (void)snprintf(problem, cap, "no mode is called so, or a frame is too long");
    if (strcmp(mode, "http") == 0 || strcmp(mode, "handover") == 0)
        return dialect_http(d, strcmp(mode, "handover") == 0);
    if (strcmp(mode, "etcd") == 0 || strcmp(mode, "etcd-lease") == 0 || strcmp(mode, "handover-etcd") == 0)
        return dialect_etcd(d, strcmp(mode, "etcd-lease") == 0);
    if (strcmp(mode, "handover-poll") == 0)
        return dialect_poll(d);
    if (strcmp(mode, "redis") != 0)
        return false;
    if (q->commands != NULL)
        return dialect_redis(d, q->commands, problem, cap);
    (void)snprintf(problem, cap, "it needs --commands");
    return false;
}

static int run_mode(const struct request *q)
{
    static struct dialect dialect;
    char problem[200];
    bool ok;

    if (strcmp(q->mode, "idle") == 0)
        return mode_idle(&q->plan) ? 0 : 1;
    if (q->plan.seconds <= 0 && q->plan.count == 0) {
        (void)fprintf(stderr, "load: %s needs an end: --seconds or --count\n", q->mode);
        return 2;
    }
    if (strcmp(q->mode, "publish") == 0)
        return mode_publish(&q->plan) ? 0 : 1;
    if (!make_dialect(&dialect, q, problem, sizeof problem)) {
        (void)fprintf(stderr, "load: %s: %s\n", q->mode, problem);
        return 2;
    }
    ok = strncmp(q->mode, "handover", 8) == 0 ? mode_handover(&q->plan, &dialect) : mode_cycle(&q->plan, &dialect);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct request q = {.mode = NULL};
    int status = read_request(&q, argc, argv);

    if (status != 0)
        return status - 1;
    raise_descriptors();
    return run_mode(&q);
}
