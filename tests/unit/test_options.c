/* The options: which place counts, what is refused and how it is named, that a typo never becomes a default and that a secret is seen nowhere. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/options.h"
#include "daemon/tls_config.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/lib/check_main.h"

#define STRINGS_MAX 40

static struct options options;
static enum options_action action;
static char problem[1024];
static char folder[32];
static char file[64];

/* Writable copies of the words of a command line or an environment, as a process has them. */
struct strings {
    char text[STRINGS_MAX][256];
    char *at[STRINGS_MAX + 1];
    int count;
};
static struct strings arguments, variables;

static void add(struct strings *s, const char *text)
{
    ck_assert_int_lt(s->count, STRINGS_MAX);
    ck_assert_uint_lt(strlen(text), sizeof(s->text[0]));
    strcpy(s->text[s->count], text);
    s->at[s->count] = s->text[s->count];
    s->at[++s->count] = NULL;
}

/* Words separated by '|'. */
static void split(struct strings *s, const char *text)
{
    char copy[2048], *rest = copy, *word;

    snprintf(copy, sizeof(copy), "%s", text);
    while (*text && (word = strsep(&rest, "|")) != NULL)
        add(s, word);
}

/* Reads with these flags and variables (both separated by '|'). */
static int read_both(const char *flags, const char *environment)
{
    options_close(&options);
    memset(&arguments, 0, sizeof(arguments));
    memset(&variables, 0, sizeof(variables));
    add(&arguments, "pawld");
    split(&arguments, flags);
    add(&variables, "HOME=/root");
    split(&variables, environment);
    problem[0] = '\0';
    return options_read(&options, arguments.count, arguments.at, variables.at, &action, problem, sizeof(problem));
}

static void good(const char *flags, const char *environment)
{
    ck_assert_msg(read_both(flags, environment) == 0, "%s, %s: %s", flags, environment, problem);
}

static void bad(const char *flags, const char *environment, const char *expected)
{
    ck_assert_msg(read_both(flags, environment) == -1, "%s, %s is taken", flags, environment);
    ck_assert_msg(strcmp(problem, expected) == 0, "%s, %s:\n%s\nexpected\n%s", flags, environment, problem, expected);
}

static int read_text(const char *text)
{
    options_close(&options);
    problem[0] = '\0';
    return options_read_text(&options, "pawld.conf", text, strlen(text), problem, sizeof(problem));
}

static void good_text(const char *text)
{
    ck_assert_msg(read_text(text) == 0, "%s: %s", text, problem);
}

static void bad_text(const char *text, const char *expected)
{
    ck_assert_msg(read_text(text) == -1, "%s is taken", text);
    ck_assert_msg(strcmp(problem, expected) == 0, "%s:\n%s\nexpected\n%s", text, problem, expected);
}

static void write_file(const char *text, size_t len)
{
    FILE *out = fopen(file, "w");

    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(text, 1, len, out), len);
    fclose(out);
}

static char *dumped(void)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    options_dump(&options, out);
    fclose(out);
    return text;
}

static void start(void)
{
    strcpy(folder, "/tmp/pawl-test-options-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(file, sizeof(file), "%s/pawld.conf", folder);
}

static void stop(void)
{
    options_close(&options);
    unlink(file);
    rmdir(folder);
}

/* ---------------------------------------------------------------- where values come from */

START_TEST(defaults_are_the_documented_ones)
{
    char host[256];

    good("", "");
    ck_assert_int_eq(action, OPTIONS_RUN);
    ck_assert(!options.dev && !options.allow_eviction && !options.recovery_window_given && !options.insecure_listen);
    ck_assert_ptr_null(options.auth_file);
    ck_assert_uint_eq(options.listen_count, 1);
    ck_assert_str_eq(options.listen[0], "127.0.0.1:7295");
    ck_assert_str_eq(options.redis, "redis://127.0.0.1:6379/0");
    ck_assert_str_eq(options.key_prefix, "pawl:");
    gethostname(host, sizeof(host));
    ck_assert_str_eq(options.node_name, host);
    ck_assert_int_eq(options.default_ttl_ms, 30000);
    ck_assert_int_eq(options.min_ttl_ms, 1);
    ck_assert_int_eq(options.max_ttl_ms, 86400000);
    ck_assert_int_eq(options.store_timeout_ms, 1000);
    ck_assert_int_eq(options.recovery_window_ms, 3000);
    ck_assert_int_eq(options.max_connections, 10000);
    ck_assert_int_eq(options.request_timeout_ms, 10000);
    ck_assert_int_eq(options.body_timeout_ms, 30000);
    ck_assert_int_eq(options.idle_timeout_ms, 75000);
    ck_assert_int_eq(options.drain_timeout_ms, 10000);
    ck_assert_int_eq(options.max_wait_ms, 600000);
    ck_assert_int_eq(options.max_waiters, 20000);
    ck_assert_int_eq(options.max_waiters_per_lock, 10000);
    ck_assert_int_eq(options.events, 10000);
    ck_assert_int_eq(options.busy_poll_us, 200);
    ck_assert_int_eq(options.max_streams, 1000);
    ck_assert_uint_eq(options.allow_origin_count, 0);
    ck_assert_int_eq(options.log_level, LOG_LEVEL_INFO);
    ck_assert_int_eq(options.log_format, LOG_FORMAT_TEXT);
    ck_assert_ptr_null(options.config);
}
END_TEST

START_TEST(every_option_reaches_its_field_from_every_place)
{
    static const char *const as_flags =
        "--events=14|--max-streams=0|--busy-poll=15|"
        "--listen=[::1]:1|--listen|unix:/run/p.sock|--redis=unix:///run/r.sock|--key-prefix=|--node-name|n 1|--default-ttl=2s|--min-ttl=1s|"
        "--max-ttl=3s|--max-hold=1m|--store-timeout=4s|--recovery-window=5s|--allow-eviction|--auth-file=/a|--tls-cert=/b|--tls-key=/"
        "c|--tls-client-ca=/"
        "d|--tls-client-auth=optional|"
        "--redis-ca=/e|--redis-cert=/f|--redis-key=/g|--insecure-listen|--max-connections=6|--request-timeout=7s|--body-timeout=8s|"
        "--idle-timeout=9s|--drain-timeout=0|--max-wait=11s|--max-waiters=12|--max-waiters-per-lock=13|--allow-origin=https://"
        "a.example:8443|"
        "--log-level=debug|--log-format=json";
    static const char *const as_variables =
        "PAWL_EVENTS=14|PAWL_MAX_STREAMS=0|PAWL_BUSY_POLL=15|"
        "PAWL_LISTEN=[::1]:1,unix:/run/p.sock|PAWL_REDIS=unix:///run/r.sock|PAWL_KEY_PREFIX=|PAWL_NODE_NAME=n 1|PAWL_DEFAULT_TTL=2s|"
        "PAWL_MIN_TTL=1s|PAWL_MAX_TTL=3s|PAWL_MAX_HOLD=1m|PAWL_STORE_TIMEOUT=4s|PAWL_RECOVERY_WINDOW=5s|PAWL_ALLOW_EVICTION=true|PAWL_AUTH_"
        "FILE=/a|"
        "PAWL_TLS_CERT=/b|PAWL_TLS_KEY=/c|PAWL_TLS_CLIENT_CA=/d|PAWL_TLS_CLIENT_AUTH=optional|PAWL_REDIS_CA=/e|PAWL_REDIS_CERT=/"
        "f|PAWL_REDIS_KEY=/g|"
        "PAWL_INSECURE_LISTEN=true|PAWL_MAX_CONNECTIONS=6|"
        "PAWL_REQUEST_TIMEOUT=7s|PAWL_BODY_TIMEOUT=8s|PAWL_IDLE_TIMEOUT=9s|PAWL_DRAIN_TIMEOUT=0|PAWL_MAX_WAIT=11s|PAWL_MAX_WAITERS=12|"
        "PAWL_MAX_WAITERS_PER_LOCK=13|PAWL_ALLOW_ORIGIN=https://a.example:8443|PAWL_LOG_LEVEL=debug|PAWL_LOG_FORMAT=json";
    static const char *const as_text =
        "# all of them\nevents = 14\nmax-streams = 0\nbusy-poll = 15\n\n  listen = [::1]:1\nlisten=unix:/run/p.sock\nredis = "
        "unix:///run/r.sock\r\nkey-prefix =\nnode-name =\tn 1 \n"
        "default-ttl = 2s\nmin-ttl = 1s\nmax-ttl = 3s\nmax-hold = 1m\nstore-timeout = 4s\nrecovery-window = 5s\nallow-eviction = "
        "true\nauth-file = /a\n"
        "tls-cert = /b\ntls-key = /c\ntls-client-ca = /d\ntls-client-auth = optional\nredis-ca = /e\nredis-cert = /f\nredis-key = /g\n"
        "insecure-listen = true\nmax-connections = "
        "6\n"
        "request-timeout = 7s\nbody-timeout = 8s\nidle-timeout = 9s\ndrain-timeout = 0\nmax-wait = 11s\nmax-waiters = 12\n"
        "max-waiters-per-lock = 13\nallow-origin = https://a.example:8443\nlog-level = debug\nlog-format = json";

    if (_i == 0)
        good(as_flags, "");
    else if (_i == 1)
        good("", as_variables);
    else
        good_text(as_text);
    ck_assert_uint_eq(options.listen_count, 2);
    ck_assert_str_eq(options.listen[0], "[::1]:1");
    ck_assert_str_eq(options.listen[1], "unix:/run/p.sock");
    ck_assert_str_eq(options.redis, "unix:///run/r.sock");
    ck_assert_str_eq(options.key_prefix, "");
    ck_assert_str_eq(options.node_name, "n 1");
    ck_assert_int_eq(options.default_ttl_ms, 2000);
    ck_assert_int_eq(options.min_ttl_ms, 1000);
    ck_assert_int_eq(options.max_ttl_ms, 3000);
    ck_assert_int_eq(options.max_hold_ms, 60000);
    ck_assert_int_eq(options.store_timeout_ms, 4000);
    ck_assert_int_eq(options.recovery_window_ms, 5000);
    ck_assert(options.recovery_window_given && options.allow_eviction && options.insecure_listen && !options.dev);
    ck_assert_str_eq(options.auth_file, "/a");
    ck_assert_str_eq(options.tls_cert, "/b");
    ck_assert_str_eq(options.tls_key, "/c");
    ck_assert_str_eq(options.tls_client_ca, "/d");
    ck_assert_uint_eq(options.tls_client_auth, TLS_CLIENT_AUTH_OPTIONAL);
    ck_assert_str_eq(options.redis_ca, "/e");
    ck_assert_str_eq(options.redis_cert, "/f");
    ck_assert_str_eq(options.redis_key, "/g");
    ck_assert_int_eq(options.max_connections, 6);
    ck_assert_int_eq(options.request_timeout_ms, 7000);
    ck_assert_int_eq(options.body_timeout_ms, 8000);
    ck_assert_int_eq(options.idle_timeout_ms, 9000);
    ck_assert_int_eq(options.drain_timeout_ms, 0);
    ck_assert_int_eq(options.max_wait_ms, 11000);
    ck_assert_int_eq(options.max_waiters, 12);
    ck_assert_int_eq(options.max_waiters_per_lock, 13);
    ck_assert_int_eq(options.events, 14);
    ck_assert_int_eq(options.busy_poll_us, 15);
    ck_assert_int_eq(options.max_streams, 0);
    ck_assert_uint_eq(options.allow_origin_count, 1);
    ck_assert_str_eq(options.allow_origin[0], "https://a.example:8443");
    ck_assert_int_eq(options.log_level, LOG_LEVEL_DEBUG);
    ck_assert_int_eq(options.log_format, LOG_FORMAT_JSON);
}
END_TEST

START_TEST(stronger_place_wins_and_replaces_lists)
{
    static const char text[] =
        "max-wait = 1s\nmax-waiters = 1\nmax-connections = 1\nlisten = h:1\nlisten = h:2\nallow-origin = http://file\n";
    char flags[128], environment[256];

    write_file(text, strlen(text));
    snprintf(flags, sizeof(flags), "--max-wait=3s|--config|%s|--listen=h:5", file);
    snprintf(environment, sizeof(environment), "PAWL_MAX_WAIT=2s|PAWL_MAX_WAITERS=2|PAWL_LISTEN=h:3,h:4|PAWL_ALLOW_ORIGIN=http://env");
    good(flags, environment);
    ck_assert_int_eq(options.max_wait_ms, 3000);
    ck_assert_int_eq(options.max_waiters, 2);
    ck_assert_int_eq(options.max_connections, 1);
    ck_assert_uint_eq(options.listen_count, 1);
    ck_assert_str_eq(options.listen[0], "h:5");
    ck_assert_uint_eq(options.allow_origin_count, 1);
    ck_assert_str_eq(options.allow_origin[0], "http://env");
    ck_assert_str_eq(options.config, file);
    /* the file by its variable, and a flag for the file before it */
    snprintf(environment, sizeof(environment), "PAWL_CONFIG=%s", file);
    good("", environment);
    ck_assert_uint_eq(options.listen_count, 2);
    snprintf(flags, sizeof(flags), "--config=%s", file);
    good(flags, "PAWL_CONFIG=/nonexistent");
    ck_assert_int_eq(options.max_wait_ms, 1000);
}
END_TEST

START_TEST(mistake_in_a_weaker_place_is_not_hidden)
{
    char flags[128], expected[256];

    bad("--max-wait=3s", "PAWL_MAX_WAIT=3", "PAWL_MAX_WAIT: needs a unit: ms, s, m, h or d");
    write_file("max-wait = 3x\n", 14);
    snprintf(flags, sizeof(flags), "--max-wait=3s|--config=%s", file);
    snprintf(expected, sizeof(expected), "%s:1: max-wait: must be a whole number and a unit, such as 500ms, 30s, 5m, 12h or 7d", file);
    bad(flags, "", expected);
}
END_TEST

START_TEST(booleans_are_bare_or_spelled_out)
{
    good("--allow-eviction", "");
    ck_assert(options.allow_eviction);
    good("--allow-eviction=false", "PAWL_ALLOW_EVICTION=true");
    ck_assert(!options.allow_eviction);
    bad("--allow-eviction=yes", "", "--allow-eviction: must be true or false");
    bad("", "PAWL_ALLOW_EVICTION=1", "PAWL_ALLOW_EVICTION: must be true or false");
    bad("", "PAWL_ALLOW_EVICTION=", "PAWL_ALLOW_EVICTION: must be true or false");
    bad_text("allow-eviction\n", "pawld.conf:1: needs the form key = value");
}
END_TEST

/* ---------------------------------------------------------------- what is refused */

START_TEST(unknown_option_names_itself_and_the_nearest)
{
    bad("--max-wiat=1s", "", "--max-wiat: there is no such option; did you mean --max-wait?");
    bad("--max_wait=1s", "", "--max_wait: there is no such option; did you mean --max-wait?");
    bad("-dev", "", "-dev: there is no such option; did you mean --dev?");
    bad("--versoin", "", "--versoin: there is no such option; did you mean --version?");
    bad("--redis-cert-file=x", "", "--redis-cert-file: there is no such option; did you mean --redis-cert?");
    bad("--quiet-as-a-mouse", "", "--quiet-as-a-mouse: there is no such option; see --help");
    bad("--", "", "--: there is no such option; see --help");
    bad("-", "", "-: there is no such option; see --help");
    bad("", "PAWL_MAXWAIT=1s", "PAWL_MAXWAIT: there is no such option; did you mean PAWL_MAX_WAIT?");
    bad("", "PAWL_max_wait=1s", "PAWL_max_wait: there is no such option; did you mean PAWL_MAX_WAIT?");
    bad("", "PAWL_REDIS_URL=x", "PAWL_REDIS_URL: there is no such option; did you mean PAWL_REDIS?");
    bad("", "PAWL_=1", "PAWL_: there is no such option; see --help");
    bad("", "PAWL_HELP=1", "PAWL_HELP: there is no such option; see --help");
    bad_text("\nlog_level = debug\n", "pawld.conf:2: log_level: there is no such option; did you mean log-level?");
    bad_text("Listen = h:1", "pawld.conf:1: Listen: there is no such option; did you mean listen?");
    bad_text("--listen = h:1", "pawld.conf:1: --listen: there is no such option; did you mean listen?");
    bad_text("= 1", "pawld.conf:1: what stands here: there is no such option; see --help");
    good("", "PAWLS=1|PAW=2|NOTHING");
}
END_TEST

START_TEST(value_is_never_missing_doubled_or_guessed)
{
    bad("--max-wait", "", "--max-wait: needs a value");
    bad("--max-wait|--dev", "", "--max-wait: needs a value");
    bad("--max-wait=", "", "--max-wait: must be a whole number and a unit, such as 500ms, 30s, 5m, 12h or 7d");
    bad("--max-wait=1s|--max-wait=1s", "", "--max-wait: is given twice");
    bad("--dev|--dev", "", "--dev: is given twice");
    bad("--help=yes", "", "--help: takes no value");
    bad("serve", "", "argument 1: pawld takes only options; see --help");
    bad("--dev|true", "", "argument 2: pawld takes only options; see --help");
    bad("|", "", "argument 1: pawld takes only options; see --help");
    bad("", "PAWL_LISTEN=", "PAWL_LISTEN: : the host is missing");
    bad("", "PAWL_LISTEN=h:1,,h:2", "PAWL_LISTEN: : the host is missing");
    bad_text("max-wait = 1s\nmax-wait = 2s\n", "pawld.conf:2: max-wait: is given twice");
}
END_TEST

START_TEST(P9_numbers_and_durations_have_bounds)
{
    bad("--max-connections=0", "", "--max-connections: must be a whole number from 1 to 1000000");
    bad("--max-connections=1000001", "", "--max-connections: must be a whole number from 1 to 1000000");
    bad("--max-connections=99999999999999999999", "", "--max-connections: must be a whole number from 1 to 1000000");
    bad("--max-connections=-1", "", "--max-connections: must be a whole number from 1 to 1000000");
    bad("--max-connections=1e3", "", "--max-connections: must be a whole number from 1 to 1000000");
    bad("--max-connections= 5", "", "--max-connections: must be a whole number from 1 to 1000000");
    bad("--store-timeout=9ms", "", "--store-timeout: must be from 10ms to 1m");
    bad("--store-timeout=61s", "", "--store-timeout: must be from 10ms to 1m");
    bad("--busy-poll=1001", "", "--busy-poll: must be a whole number from 0 to 1000");
    bad("--busy-poll=200us", "", "--busy-poll: must be a whole number from 0 to 1000");
    bad("--max-ttl=366d", "", "--max-ttl: must be from 1ms to 365d");
    bad("--default-ttl=0", "", "--default-ttl: must be from 1ms to 365d");
    bad("--default-ttl=30", "", "--default-ttl: needs a unit: ms, s, m, h or d");
    bad("--default-ttl=9223372036854775807d", "", "--default-ttl: the number is out of range");
    bad("--log-level=trace", "", "--log-level: must be one of error|warn|info|debug");
    good("--max-connections=1000000|--store-timeout=60s|--max-ttl=365d", "");
    ck_assert_int_eq(options.max_ttl_ms, INT64_C(31536000000));
}
END_TEST

START_TEST(C43_listen_address_is_checked_before_anything_is_bound)
{
    static const char *const fine[] = {"127.0.0.1:7295",   "0.0.0.0:0", "localhost:65535", "[::1]:7295", "[::]:0",
                                       "[fe80::1%eth0]:1", "unix:/p",   "tls:h:1",         "tls:[::]:0"};
    static const struct {
        const char *address, *word;
    } wrong[] = {
        {"", "host"},
        {":7295", "host"},
        {"7295", "port"},
        {"h", "port"},
        {"h:", "port"},
        {"h:x", "port"},
        {"h:-1", "port"},
        {"h:65536", "port"},
        {"::1", "brackets"},
        {"::1:7295", "brackets"},
        {"[::1]", "port"},
        {"[::1]7295", "':'"},
        {"[::1", "bracket"},
        {"[127.0.0.1]:1", "IPv6"},
        {"[]:1", "IPv6"},
        {"127.1:1", "IPv4"},
        {"http://h:1", "URL"},
        {"h:1/", "port"},
        {"*:1", "host"},
        {"tls:", "host"},
        {"tls:h", "port"},
        {"tls:unix:/p", "port"},
        {"tls:tls:h:1", "brackets"},
        {"unix:", "absolute"},
        {"unix:p", "absolute"},
        {"unix:/p/", "absolute"},
        {"unix:/p\n", "control"},
        {"a b:1", "host"},
    };
    char flag[256], expected[256];

    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++) {
        snprintf(flag, sizeof(flag), "--listen=%s", fine[i]);
        good(flag, "");
        ck_assert_str_eq(options.listen[0], fine[i]);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(flag, sizeof(flag), "--listen=%s", wrong[i].address);
        ck_assert_msg(read_both(flag, "") == -1, "%s is taken", flag);
        ck_assert_msg(strncmp(problem, "--listen: ", 10) == 0 && strstr(problem, wrong[i].word), "%s: %s", flag, problem);
    }
    snprintf(flag, sizeof(flag), "--listen=unix:/%0106d", 0);
    good(flag, "");
    snprintf(flag, sizeof(flag), "--listen=unix:/%0107d", 0);
    snprintf(expected, sizeof(expected), "--listen: unix:/%0107d: the path of a unix socket can have at most 107 bytes", 0);
    bad(flag, "", expected);
}
END_TEST

START_TEST(P9_lists_have_a_bound)
{
    char text[1024] = "", *at = text;

    for (int i = 0; i < OPTIONS_LISTEN_MAX; i++)
        at += sprintf(at, "listen = h:%d\n", i);
    good_text(text);
    ck_assert_uint_eq(options.listen_count, OPTIONS_LISTEN_MAX);
    strcpy(at, "listen = h:99\n");
    bad_text(text, "pawld.conf:17: listen: can be given at most 16 times");
}
END_TEST

START_TEST(texts_are_checked)
{
    char flag[400];

    bad("--key-prefix=a b", "", "--key-prefix: must be printable ASCII without blanks and without { and }");
    bad("--key-prefix={0}", "", "--key-prefix: must be printable ASCII without blanks and without { and }");
    bad("--key-prefix=\xc3\xbc", "", "--key-prefix: must be printable ASCII without blanks and without { and }");
    snprintf(flag, sizeof(flag), "--key-prefix=%064d", 0);
    good(flag, "");
    snprintf(flag, sizeof(flag), "--key-prefix=%065d", 0);
    bad(flag, "", "--key-prefix: can have at most 64 bytes");
    bad("--node-name=", "", "--node-name: is empty");
    ck_assert_int_eq(read_both("--node-name=a\nb", ""), -1);
    ck_assert_int_eq(read_both("--node-name=\xff", ""), -1);
    good("--node-name=gr\xc3\xbc\xc3\x9f", "");
    bad("--config=", "", "--config: is empty");
}
END_TEST

START_TEST(origin_is_one_that_a_browser_sends)
{
    static const char *const wrong[] = {
        "*", "null", "", "example.com", "https://", "https://a/", "https://A.example", "HTTPS://a", "://a", "https://a b", "https://a?x"};
    char flag[128];

    good("--allow-origin=https://a.example|--allow-origin=http://[::1]:8080|--allow-origin=moz-extension://0b2f-7c1e", "");
    ck_assert_uint_eq(options.allow_origin_count, 3);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(flag, sizeof(flag), "--allow-origin=%s", wrong[i]);
        ck_assert_msg(read_both(flag, "") == -1, "%s is taken", flag);
    }
}
END_TEST

START_TEST(options_must_fit_together)
{
    bad("--max-ttl=10s", "", "--default-ttl (30s) must lie between --min-ttl (1ms) and --max-ttl (10s)");
    bad("--min-ttl=1m", "", "--default-ttl (30s) must lie between --min-ttl (1m) and --max-ttl (1d)");
    good("--min-ttl=30s|--max-ttl=30s", "");
    bad("--min-ttl=2s|--max-hold=1s", "", "--max-hold (1s) must not be shorter than --min-ttl (2s)");
    good("--min-ttl=2s|--max-hold=2s", "");
    good("--max-hold=0", "");
    static const char both[] = "--dev and --redis (PAWL_REDIS, redis =) exclude each other: --dev brings a Redis of its own";
    bad("--dev|--redis=redis://h", "", both);
    bad("--dev", "PAWL_REDIS=redis://h", both);
    bad_text("dev = true\nredis = redis://h\n", both);
    good("--dev=false|--redis=redis://h", "");
    good("--dev", "");
    ck_assert_ptr_null(options.redis);
    ck_assert_int_eq(options.recovery_window_ms, 0);
    ck_assert(!options.recovery_window_given);
    good("--dev|--recovery-window=2s", "");
    ck_assert_int_eq(options.recovery_window_ms, 2000);
    ck_assert(options.recovery_window_given);
}
END_TEST

/* ---------------------------------------------------------------- config files */

START_TEST(config_text_says_file_and_line)
{
    bad_text("# fine\n\n   \nmax-wait 5s\n", "pawld.conf:4: needs the form key = value");
    bad_text("max-wait = 5s # as the proxy\n", "pawld.conf:1: max-wait: a comment needs a line of its own");
    bad_text("node-name = \"a\"\n", "pawld.conf:1: node-name: values are written without quotes");
    bad_text("config = other.conf\n", "pawld.conf:1: config: can't stand in a config file");
    bad_text("help = true\n", "pawld.conf:1: help: there is no such option; see --help");
    ck_assert_int_eq(options_read_text(&options, "f", "dev\0 = true", 11, problem, sizeof(problem)), -1);
    ck_assert_int_eq(options_read_text(&options, "f", "node-name = a\0b", 15, problem, sizeof(problem)), -1);
    ck_assert_str_eq(problem, "f:1: node-name: has a NUL byte");
    good_text("");
    good_text("\n\n");
    good_text("#");
    good_text("node-name = a#b=c");
    ck_assert_str_eq(options.node_name, "a#b=c");
}
END_TEST

START_TEST(P9_config_file_is_bounded_and_regular)
{
    static char big[64 * 1024 + 1];
    char flag[128], expected[256];

    snprintf(flag, sizeof(flag), "--config=%s", file);
    snprintf(expected, sizeof(expected), "%s: No such file or directory", file);
    bad(flag, "", expected);
    memset(big, '#', sizeof(big));
    write_file(big, sizeof(big) - 1);
    good(flag, "");
    write_file(big, sizeof(big));
    snprintf(expected, sizeof(expected), "%s: is longer than 65536 bytes", file);
    bad(flag, "", expected);
    unlink(file);
    ck_assert_int_eq(mkfifo(file, 0600), 0);
    snprintf(expected, sizeof(expected), "%s: is not a regular file", file);
    bad(flag, "", expected);
    snprintf(flag, sizeof(flag), "--config=%s", folder);
    snprintf(expected, sizeof(expected), "%s: is not a regular file", folder);
    bad(flag, "", expected);
    bad("--config=/dev/zero", "", "/dev/zero: is not a regular file");
}
END_TEST

/* ---------------------------------------------------------------- secrets */

static void assert_secret_is_gone(void)
{
    for (int i = 0; i < arguments.count; i++)
        ck_assert_msg(!strstr(arguments.at[i], "SECRET"), "%s", arguments.at[i]);
    for (int i = 0; i < variables.count; i++)
        ck_assert_msg(!strstr(variables.at[i], "SECRET"), "%s", variables.at[i]);
    ck_assert_ptr_null(strstr(problem, "SECRET"));
}

START_TEST(secret_is_overwritten_where_it_came_from)
{
    good("--redis|redis://u:SECRET@h|--max-wait=1s", "PAWL_REDIS=redis://:SECRET@other|PAWL_MAX_WAITERS=5");
    ck_assert_str_eq(options.redis, "redis://u:SECRET@h");
    assert_secret_is_gone();
    ck_assert_str_eq(arguments.at[2], "xxxxxxxxxxxxxxxxxx");
    ck_assert_str_eq(arguments.at[3], "--max-wait=1s");
    ck_assert_str_eq(variables.at[1], "PAWL_REDIS=xxxxxxxxxxxxxxxxxxxxx");
    ck_assert_str_eq(variables.at[2], "PAWL_MAX_WAITERS=5");
    good("--redis=redis://u:SECRET@h", "");
    ck_assert_str_eq(arguments.at[1], "--redis=xxxxxxxxxxxxxxxxxx");
    ck_assert_str_eq(options.redis, "redis://u:SECRET@h");
}
END_TEST

START_TEST(secret_is_in_no_sentence)
{
    static const char *const mistakes[] = {
        "--redis=redis://u:SECRET@h:x",
        "--redis=SECRET",
        "--redis=redis://u:SEC%zzRET@h",
        "--redis|redis://SECRET@h|--nonsense",
        "--redis=redis://:SECRET@h|--redis=redis://:SECRET@h",
        "--dev|--redis=redis://:SECRET@h",
        "--redis=redis://:SECRET@h?x=SECRET",
    };
    static const char *const elsewhere[] = {
        "--listen=redis://u:SECRET@h:1",    "--listen=:SECRET@h:1",    "--listen|redis://SECRET@h",
        "--allow-origin=http://u:SECRET@h", "--allow-origin=SECRET@h",
    };

    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        ck_assert_int_eq(read_both(mistakes[i], "PAWL_REDIS=redis://:SECRET@h"), -1);
        assert_secret_is_gone();
    }
    /* in a wrong place the process ends; its sentence goes to a log all the same */
    ck_assert_int_eq(read_both("redis://:SECRET@h", ""), -1);
    ck_assert_ptr_null(strstr(problem, "SECRET"));
    ck_assert_int_eq(read_both("--reddis=redis://:SECRET@h", "PAWL_REDDIS=redis://:SECRET@h"), -1);
    ck_assert_str_eq(problem, "--reddis: there is no such option; did you mean --redis?");
    ck_assert_int_eq(read_both("--redis:redis://:SECRET@h", ""), -1);
    ck_assert_ptr_null(strstr(problem, "SECRET"));
    ck_assert_int_eq(read_text("redis redis://:SECRET@h"), -1);
    ck_assert_ptr_null(strstr(problem, "SECRET"));
    ck_assert_int_eq(read_text("redis://:SECRET@h = 1"), -1);
    ck_assert_ptr_null(strstr(problem, "SECRET"));
    ck_assert_int_eq(read_text("redis = redis://:SECRET@h:x"), -1);
    ck_assert_ptr_null(strstr(problem, "SECRET"));
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++) { /* of these options a wrong value is repeated */
        ck_assert_int_eq(read_both(elsewhere[i], ""), -1);
        ck_assert_ptr_null(strstr(problem, "SECRET"));
    }
    bad("--listen=redis://u:SECRET@h:1", "", "--listen: redis://u:***@h:1: that is a URL: write host:port, or tls:host:port for HTTPS");
    ck_assert_int_eq(read_both("", "PAWL_LISTEN=redis://u:SECRET@h:1"), -1);
    ck_assert_ptr_null(strstr(problem, "SECRET"));
    ck_assert_int_eq(read_text("listen = redis://u:SECRET@h:1"), -1);
    ck_assert_ptr_null(strstr(problem, "SECRET"));
}
END_TEST

START_TEST(dump_masks_secrets)
{
    good("--redis=redis://bob:SECRET@h:1/2", "");
    char *text = dumped();
    ck_assert_ptr_nonnull(strstr(text, "\nredis = redis://bob:***@h:1/2\n"));
    ck_assert_ptr_null(strstr(text, "SECRET"));
    free(text);
    good("--redis=sentinel://bob:SECRET@h:1,i/m|--sentinel-user=watch|--sentinel-password=SECRET", "");
    text = dumped();
    ck_assert_ptr_nonnull(strstr(text, "\nredis = sentinel://bob:***@h:1,i/m\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nsentinel-user = watch\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nsentinel-password = ***\n"));
    ck_assert_ptr_null(strstr(text, "SECRET"));
    free(text);
}
END_TEST

/* ---------------------------------------------------------------- for people */

START_TEST(dump_is_a_config_file_that_says_the_same)
{
    good("--listen=h:1|--listen=[::1]:2|--max-wait=90s|--key-prefix=|--allow-origin=http://"
         "a|--log-format=json|--allow-eviction|--node-name=n",
         "");
    char *first = dumped();
    good_text(first);
    char *second = dumped();
    ck_assert_str_eq(first, second);
    ck_assert_ptr_nonnull(strstr(first, "max-wait = 90s\n"));
    ck_assert_ptr_nonnull(strstr(first, "key-prefix =\n"));
    ck_assert_ptr_nonnull(strstr(first, "listen = h:1\nlisten = [::1]:2\n"));
    free(first);
    free(second);
    good("--dev|--recovery-window=0", "");
    first = dumped();
    good_text(first);
    second = dumped();
    ck_assert_str_eq(first, second);
    free(first);
    free(second);
}
END_TEST

START_TEST(help_tells_of_every_option)
{
    char *text = NULL, *dump, *rest, *row;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    unsigned count = 0;

    options_help(out);
    fclose(out);
    good("", "");
    dump = rest = dumped();
    while ((row = strsep(&rest, "\n")) != NULL && row[0]) {
        char key[64], flag[80], variable[80] = "PAWL_";

        ck_assert_int_eq(sscanf(row[0] == '#' ? row + 2 : row, "%63[a-z-]", key), 1);
        snprintf(flag, sizeof(flag), "  --%s", key);
        ck_assert_msg(strstr(text, flag) != NULL, "%s", flag);
        for (size_t i = 0; i <= strlen(key); i++)
            variable[5 + i] = key[i] == '-' ? '_' : (char)(key[i] >= 'a' ? key[i] - 32 : key[i]);
        ck_assert_msg(strstr(text, variable) != NULL, "%s", variable);
        count++;
    }
    ck_assert_uint_eq(count, 42);
    free(dump);
    free(text);
}
END_TEST

START_TEST(actions_are_told_apart)
{
    good("--help", "");
    ck_assert_int_eq(action, OPTIONS_HELP);
    good("-h", "");
    ck_assert_int_eq(action, OPTIONS_HELP);
    good("--max-wait=1s|--help|--nonsense", "PAWL_NONSENSE=1");
    ck_assert_int_eq(action, OPTIONS_HELP);
    good("--version", "PAWL_NONSENSE=1");
    ck_assert_int_eq(action, OPTIONS_VERSION);
    good("--check-config|--max-wait=1s", "");
    ck_assert_int_eq(action, OPTIONS_CHECK_CONFIG);
    ck_assert_int_eq(options.max_wait_ms, 1000);
    bad("--check-config", "PAWL_DEVV=1", "PAWL_DEVV: there is no such option; did you mean PAWL_DEV?");
    bad("--max-wait|--help", "", "--max-wait: needs a value");
}
END_TEST

START_TEST(nothing_given_is_nothing_read)
{
    enum options_action untouched = OPTIONS_VERSION;

    ck_assert_int_eq(options_read(&options, 0, NULL, NULL, &untouched, problem, sizeof(problem)), 0);
    ck_assert_int_eq(untouched, OPTIONS_RUN);
    options_close(&options);
    options_close(&options);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("options");
    TCase *all = tcase_create("options");

    tcase_add_checked_fixture(all, start, stop);
    tcase_add_test(all, defaults_are_the_documented_ones);
    tcase_add_loop_test(all, every_option_reaches_its_field_from_every_place, 0, 3);
    tcase_add_test(all, stronger_place_wins_and_replaces_lists);
    tcase_add_test(all, mistake_in_a_weaker_place_is_not_hidden);
    tcase_add_test(all, booleans_are_bare_or_spelled_out);
    tcase_add_test(all, unknown_option_names_itself_and_the_nearest);
    tcase_add_test(all, value_is_never_missing_doubled_or_guessed);
    tcase_add_test(all, P9_numbers_and_durations_have_bounds);
    tcase_add_test(all, C43_listen_address_is_checked_before_anything_is_bound);
    tcase_add_test(all, P9_lists_have_a_bound);
    tcase_add_test(all, texts_are_checked);
    tcase_add_test(all, origin_is_one_that_a_browser_sends);
    tcase_add_test(all, options_must_fit_together);
    tcase_add_test(all, config_text_says_file_and_line);
    tcase_add_test(all, P9_config_file_is_bounded_and_regular);
    tcase_add_test(all, secret_is_overwritten_where_it_came_from);
    tcase_add_test(all, secret_is_in_no_sentence);
    tcase_add_test(all, dump_masks_secrets);
    tcase_add_test(all, dump_is_a_config_file_that_says_the_same);
    tcase_add_test(all, help_tells_of_every_option);
    tcase_add_test(all, actions_are_told_apart);
    tcase_add_test(all, nothing_given_is_nothing_read);
    suite_add_tcase(suite, all);
    return check_main(suite);
}
