/* The rows: what each option is called, how it is read, between which bounds, what it is when nobody says, and how it is shown. The flag is "--" and the
 * key, the variable is PAWL_ and the key in capitals, so the three spellings can't drift apart. To add an option: a field in options.h, a row here, a
 * row in docs/operations.md.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/options_rows.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include <sys/un.h>

#include "daemon/host_port.h"
#include "daemon/listen_address.h"
#include "daemon/redis_url.h"
#include "daemon/tls_config.h"
#include "proto/duration.h"
#include "proto/limits.h"
#include "proto/params.h"

#define KEY_PREFIX_MAX 64
#define MINUTE_MS      INT64_C(60000)
#define HOUR_MS        (60 * MINUTE_MS)
#define DAY_MS         (24 * HOUR_MS)

/* ---------------------------------------------------------------- values that are more than any text */

static const char *check_listen(const char *value)
{
    struct listen_address ignored;

    return listen_address_parse(value, &ignored);
}

static const char *check_handover(const char *value)
{
    if (value[0] != '/' || value[strlen(value) - 1] == '/')
        return "must be the absolute path of a unix socket";
    if (strlen(value) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
        return "can have at most 107 bytes";
    return label_problem(value, strlen(value));
}

static const char *check_key_prefix(const char *value)
{
    if (strlen(value) > KEY_PREFIX_MAX)
        return "can have at most 64 bytes";
    for (const char *c = value; *c; c++) {
        if (*c <= ' ' || *c > '~' || *c == '{' || *c == '}')
            return "must be printable ASCII without blanks and without { and }";
    }
    return NULL;
}

static const char *check_node_name(const char *value)
{
    if (!value[0])
        return "is empty";
    if (strlen(value) > PAWL_OWNER_MAX)
        return "can have at most 255 bytes";
    return label_problem(value, strlen(value));
}

/* Browsers send an origin in lower case and without a path. What is spelled otherwise would never match, and nobody would know why. */
static const char *check_origin(const char *value)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    static const char form[] =
        "must be an origin as browsers send it: scheme://host or scheme://host:port, in lower case, nothing behind it";
    const char *host = strstr(value, "://");
    size_t scheme = host ? (size_t)(host - value) : 0;

    if (strlen(value) > PAWL_NAME_MAX)
        return "can have at most 255 bytes";
    if (scheme == 0 || strspn(value, letters) == 0 || strspn(value, "abcdefghijklmnopqrstuvwxyz0123456789+-.") != scheme)
        return form;
    host += strlen("://");
    if (!host[0] || strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789.-_:[]") != strlen(host))
        return form;
    return NULL;
}

static const char *check_sentinel_user(const char *value)
{
    if (!value[0])
        return "is empty";
    return strlen(value) < sizeof(((struct redis_url *)NULL)->user) ? NULL : "is too long";
}

static const char *check_sentinel_password(const char *value)
{
    if (!value[0])
        return "is empty";
    return strlen(value) < sizeof(((struct redis_url *)NULL)->password) ? NULL : "is too long";
}

static const char *check_file(const char *value)
{
    return value[0] ? NULL : "is empty";
}

static const struct option_choice client_auths[] = {
    {"required", TLS_CLIENT_AUTH_REQUIRED}, {"optional", TLS_CLIENT_AUTH_OPTIONAL}, {NULL, 0}};
static const struct option_choice log_levels[] = {
    {"error", LOG_LEVEL_ERROR}, {"warn", LOG_LEVEL_WARN}, {"info", LOG_LEVEL_INFO}, {"debug", LOG_LEVEL_DEBUG}, {NULL, 0}};
static const struct option_choice log_formats[] = {{"text", LOG_FORMAT_TEXT}, {"json", LOG_FORMAT_JSON}, {NULL, 0}};

/* Both enums are stored through an unsigned. */
_Static_assert(sizeof(enum log_level) == sizeof(unsigned) && sizeof(enum log_format) == sizeof(unsigned), "enums are as wide as unsigned");

/* ---------------------------------------------------------------- rows */

#define AT(field) offsetof(struct options, field)

const struct option_row option_rows[] = {
    {.key = "dev",
     .kind = OPTION_BOOL,
     .at = AT(dev),
     .fallback = "false",
     .help = "start a private Redis that ends with pawld and keeps nothing: to try pawl out"},
    {.key = "listen",
     .kind = OPTION_LIST,
     .at = AT(listen),
     .count_at = AT(listen_count),
     .list_max = OPTIONS_LISTEN_MAX,
     .check = check_listen,
     .fallback = "127.0.0.1:7295",
     .what = "ADDRESS",
     .help = "serve on host:port, [IPv6]:port, tls:host:port, unix:/path[?mode=0660&group=NAME] or systemd[:NAME]; port 0 takes any"},
    {.key = "handover",
     .kind = OPTION_STRING,
     .at = AT(handover),
     .check = check_handover,
     .what = "PATH",
     .help = "take over the addresses of the pawld that listens at this unix socket, then listen there for a successor"},
    {.key = "tls-cert",
     .kind = OPTION_STRING,
     .at = AT(tls_cert),
     .check = check_file,
     .what = "FILE",
     .help = "the certificate for tls: addresses, and those that lead to its authority (PEM)"},
    {.key = "tls-key",
     .kind = OPTION_STRING,
     .at = AT(tls_key),
     .check = check_file,
     .what = "FILE",
     .help = "its private key (PEM, no passphrase); in the file of the certificate when not given"},
    {.key = "tls-client-ca",
     .kind = OPTION_STRING,
     .at = AT(tls_client_ca),
     .check = check_file,
     .what = "FILE",
     .help = "ask clients for a certificate of one of these authorities (PEM)"},
    {.key = "tls-client-auth",
     .kind = OPTION_CHOICE,
     .at = AT(tls_client_auth),
     .choices = client_auths,
     .fallback = "required",
     .what = "required|optional",
     .help = "whether clients without a certificate are served, with --tls-client-ca"},
    {.key = "redis",
     .kind = OPTION_URL,
     .at = AT(redis),
     .secret = true,
     .fallback = "redis://127.0.0.1:6379/0",
     .what = "URL",
     .help = "the store: redis[s]://[user:password@]host:port[/db], unix:///path[?db=N] or "
             "[rediss+]sentinel://[...@]host:port,.../MASTER"},
    {.key = "redis-ca",
     .kind = OPTION_STRING,
     .at = AT(redis_ca),
     .check = check_file,
     .what = "FILE",
     .help = "who vouches for the Redis of a rediss:// URL (PEM); the system's authorities when not given"},
    {.key = "redis-cert",
     .kind = OPTION_STRING,
     .at = AT(redis_cert),
     .check = check_file,
     .what = "FILE",
     .help = "the certificate to show to Redis (PEM)"},
    {.key = "redis-key",
     .kind = OPTION_STRING,
     .at = AT(redis_key),
     .check = check_file,
     .what = "FILE",
     .help = "its private key (PEM, no passphrase); in the file of the certificate when not given"},
    {.key = "sentinel-user",
     .kind = OPTION_STRING,
     .at = AT(sentinel_user),
     .check = check_sentinel_user,
     .what = "NAME",
     .help = "whom to sign in as at the sentinels, which have users of their own"},
    {.key = "sentinel-password",
     .kind = OPTION_STRING,
     .at = AT(sentinel_password),
     .check = check_sentinel_password,
     .secret = true,
     .what = "TEXT",
     .help = "the password for the sentinels; that of the Redis stands in the URL"},
    {.key = "key-prefix",
     .kind = OPTION_STRING,
     .at = AT(key_prefix),
     .check = check_key_prefix,
     .fallback = "pawl:",
     .what = "TEXT",
     .help = "what all keys in Redis start with; nodes that share locks share it"},
    {.key = "node-name",
     .kind = OPTION_STRING,
     .at = AT(node_name),
     .check = check_node_name,
     .what = "NAME",
     .help = "a label for people, shown in the status; the host's name when not given"},
    {.key = "default-ttl",
     .kind = OPTION_DURATION,
     .at = AT(default_ttl_ms),
     .min = 1,
     .max = 365 * DAY_MS,
     .fallback = "30s",
     .what = "DURATION",
     .help = "time to live of a lease whose acquire names none"},
    {.key = "min-ttl",
     .kind = OPTION_DURATION,
     .at = AT(min_ttl_ms),
     .min = 1,
     .max = 365 * DAY_MS,
     .fallback = "1ms",
     .what = "DURATION",
     .help = "the shortest time to live that may be asked for"},
    {.key = "max-ttl",
     .kind = OPTION_DURATION,
     .at = AT(max_ttl_ms),
     .min = 1,
     .max = 365 * DAY_MS,
     .fallback = "24h",
     .what = "DURATION",
     .help = "the longest time to live that may be asked for"},
    {.key = "max-hold",
     .kind = OPTION_DURATION,
     .at = AT(max_hold_ms),
     .min = 0,
     .max = 365 * DAY_MS,
     .fallback = "0",
     .what = "DURATION",
     .help = "how long a lease may be held, however it is renewed; 0: as long as it is renewed"},
    {.key = "store-timeout",
     .kind = OPTION_DURATION,
     .at = AT(store_timeout_ms),
     .min = 10,
     .max = MINUTE_MS,
     .fallback = "1s",
     .what = "DURATION",
     .help = "how long an answer of Redis may take"},
    {.key = "recovery-window",
     .kind = OPTION_DURATION,
     .at = AT(recovery_window_ms),
     .min = 0,
     .max = 10 * MINUTE_MS,
     .fallback = "3s",
     .what = "DURATION",
     .help = "how long leases are put back after Redis lost data; 0 turns that off, as --dev does unless this is given"},
    {.key = "min-replicas",
     .kind = OPTION_COUNT,
     .at = AT(min_replicas),
     .min = 0,
     .max = 100,
     .fallback = "0",
     .what = "N",
     .help = "replicas that must confirm a grant or a renewal before it is told"},
    {.key = "replica-timeout",
     .kind = OPTION_DURATION,
     .at = AT(replica_timeout_ms),
     .min = 1,
     .max = MINUTE_MS,
     .fallback = "500ms",
     .what = "DURATION",
     .help = "how long replicas may take to confirm"},
    {.key = "busy-poll",
     .kind = OPTION_COUNT,
     .at = AT(busy_poll_us),
     .min = 0,
     .max = 1000,
     .fallback = "200",
     .what = "MICROSECONDS",
     .help = "how long to stay awake for Redis' answer to a hand-over; 0: sleep"},
    {.key = "allow-eviction",
     .kind = OPTION_BOOL,
     .at = AT(allow_eviction),
     .fallback = "false",
     .help = "use a Redis that may evict keys, and with them leases"},
    {.key = "auth-file",
     .kind = OPTION_STRING,
     .at = AT(auth_file),
     .check = check_file,
     .what = "FILE",
     .help = "who may do what, as JSON; read again on HUP"},
    {.key = "insecure-listen",
     .kind = OPTION_BOOL,
     .at = AT(insecure_listen),
     .fallback = "false",
     .help = "without --auth-file, listen also where other machines can reach it"},
    {.key = "max-connections",
     .kind = OPTION_COUNT,
     .at = AT(max_connections),
     .min = 1,
     .max = 1000000,
     .fallback = "10000",
     .what = "N",
     .help = "client connections open at once"},
    {.key = "request-timeout",
     .kind = OPTION_DURATION,
     .at = AT(request_timeout_ms),
     .min = 10,
     .max = HOUR_MS,
     .fallback = "10s",
     .what = "DURATION",
     .help = "how long the head of a request may take to arrive"},
    {.key = "body-timeout",
     .kind = OPTION_DURATION,
     .at = AT(body_timeout_ms),
     .min = 10,
     .max = HOUR_MS,
     .fallback = "30s",
     .what = "DURATION",
     .help = "how long the body of a request may take to arrive"},
    {.key = "idle-timeout",
     .kind = OPTION_DURATION,
     .at = AT(idle_timeout_ms),
     .min = 10,
     .max = DAY_MS,
     .fallback = "75s",
     .what = "DURATION",
     .help = "how long a connection may stay open between requests"},
    {.key = "drain-timeout",
     .kind = OPTION_DURATION,
     .at = AT(drain_timeout_ms),
     .min = 0,
     .max = HOUR_MS,
     .fallback = "10s",
     .what = "DURATION",
     .help = "how long holders may renew and release over open connections after a signal to stop"},
    {.key = "max-wait",
     .kind = OPTION_DURATION,
     .at = AT(max_wait_ms),
     .min = 0,
     .max = DAY_MS,
     .fallback = "10m",
     .what = "DURATION",
     .help = "the longest wait that an acquire may ask for"},
    {.key = "max-waiters",
     .kind = OPTION_COUNT,
     .at = AT(max_waiters),
     .min = 0,
     .max = 1000000,
     .fallback = "20000",
     .what = "N",
     .help = "acquires that may wait on this node at once"},
    {.key = "max-waiters-per-lock",
     .kind = OPTION_COUNT,
     .at = AT(max_waiters_per_lock),
     .min = 0,
     .max = 1000000,
     .fallback = "10000",
     .what = "N",
     .help = "acquires that may wait for one lock at once"},
    {.key = "events",
     .kind = OPTION_COUNT,
     .at = AT(events),
     .min = 1,
     .max = 100000,
     .fallback = "10000",
     .what = "N",
     .help = "events of leases that are kept in memory"},
    {.key = "max-streams",
     .kind = OPTION_COUNT,
     .at = AT(max_streams),
     .min = 0,
     .max = 100000,
     .fallback = "1000",
     .what = "N",
     .help = "event streams open at once"},
    {.key = "allow-origin",
     .kind = OPTION_LIST,
     .at = AT(allow_origin),
     .count_at = AT(allow_origin_count),
     .list_max = OPTIONS_ORIGINS_MAX,
     .check = check_origin,
     .what = "ORIGIN",
     .help = "let web pages of this origin call: scheme://host[:port]"},
    {.key = "log-level",
     .kind = OPTION_CHOICE,
     .at = AT(log_level),
     .choices = log_levels,
     .fallback = "info",
     .what = "error|warn|info|debug",
     .help = "what is worth a line in the log"},
    {.key = "log-format",
     .kind = OPTION_CHOICE,
     .at = AT(log_format),
     .choices = log_formats,
     .fallback = "text",
     .what = "text|json",
     .help = "how a line in the log is written"},
    {.key = "log-file",
     .kind = OPTION_STRING,
     .at = AT(log_file),
     .check = check_file,
     .what = "FILE",
     .help = "write the log to the end of this file, which HUP opens anew, and not to standard error"},
    {.key = "config",
     .kind = OPTION_STRING,
     .at = AT(config),
     .check = check_file,
     .not_in_file = true,
     .what = "FILE",
     .help = "read options from a file of lines \"key = value\"; a line that starts with '#' is a comment"},
};

const struct option_action option_actions[] = {
    {"check-config", OPTIONS_CHECK_CONFIG, "check all options, print them and exit"},
    {"version", OPTIONS_VERSION, "print the version and exit"},
    {"help", OPTIONS_HELP, "print this and exit"},
};

/* ---------------------------------------------------------------- values */

void *option_field(const struct options *o, size_t at)
{
    return (char *)(uintptr_t)o + at;
}

static const char *read_url(const char *value, char *why, size_t cap)
{
    struct redis_url ignored;
    int result = redis_url_parse(value, &ignored, why, cap);

    explicit_bzero(&ignored, sizeof(ignored));
    return result < 0 ? why : NULL;
}

static const char *read_bool(const char *value, int64_t *ret)
{
    *ret = strcmp(value, "true") == 0;
    return *ret || strcmp(value, "false") == 0 ? NULL : "must be true or false";
}

static const char *read_duration(const struct option_row *row, const char *value, int64_t *ret, char *why, size_t cap)
{
    const char *problem = duration_problem(value, strlen(value));
    char min[24], max[24];

    if (problem)
        return problem;
    if (duration_parse(value, strlen(value), ret) == 0 && *ret >= row->min && *ret <= row->max)
        return NULL;
    snprintf(why, cap, "must be from %s to %s", duration_format(row->min, min, sizeof(min)), duration_format(row->max, max, sizeof(max)));
    return why;
}

static const char *read_count(const struct option_row *row, const char *value, int64_t *ret, char *why, size_t cap)
{
    long n = host_port_number(value, strlen(value), (long)row->max);

    if (n >= row->min) {
        *ret = n;
        return NULL;
    }
    snprintf(why, cap, "must be a whole number from %" PRId64 " to %" PRId64, row->min, row->max);
    return why;
}

static const char *read_choice(const struct option_row *row, const char *value, int64_t *ret, char *why, size_t cap)
{
    for (const struct option_choice *c = row->choices; c->name; c++) {
        if (strcmp(c->name, value) == 0) {
            *ret = c->value;
            return NULL;
        }
    }
    snprintf(why, cap, "must be one of %s", row->what);
    return why;
}

const char *option_read(const struct option_row *row, const char *value, int64_t *ret, char *why, size_t cap)
{
    if (strlen(value) > OPTION_VALUE_MAX)
        return "is too long";
    switch (row->kind) {
    case OPTION_BOOL:
        return read_bool(value, ret);
    case OPTION_DURATION:
        return read_duration(row, value, ret, why, cap);
    case OPTION_COUNT:
        return read_count(row, value, ret, why, cap);
    case OPTION_CHOICE:
        return read_choice(row, value, ret, why, cap);
    case OPTION_URL:
        return read_url(value, why, cap);
    default:
        return row->check(value);
    }
}

/* ---------------------------------------------------------------- names */

void option_variable(const char *key, char *out, size_t cap)
{
    size_t n = (size_t)snprintf(out, cap, OPTION_PREFIX "%s", key);

    for (size_t i = strlen(OPTION_PREFIX); i < n && i + 1 < cap; i++)
        out[i] = key[i - strlen(OPTION_PREFIX)] == '-' ? '_' : (char)toupper((unsigned char)out[i]);
}

const struct option_row *option_find(const char *key, size_t len)
{
    for (size_t i = 0; i < OPTION_ROW_COUNT; i++) {
        if (strlen(option_rows[i].key) == len && memcmp(option_rows[i].key, key, len) == 0)
            return &option_rows[i];
    }
    return NULL;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* How many characters must be put in, left out or changed to turn one into the other. Both have at most OPTION_KEY_MAX. */
static size_t distance(const char *a, const char *b)
{
    size_t row[OPTION_KEY_MAX + 1], len = strlen(b);

    for (size_t j = 0; j <= len; j++)
        row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t corner = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < len; j++) {
            size_t up = row[j + 1];

            row[j + 1] = least(least(up, row[j]) + 1, corner + (a[i] != b[j]));
            corner = up;
        }
    }
    return row[len];
}

const char *option_nearest(const char *typed, size_t len, bool with_actions)
{
    char plain[OPTION_KEY_MAX + 1];
    const char *best = NULL;
    size_t best_distance, n = 0;

    while (len > 0 && *typed == '-') {
        typed++;
        len--;
    }
    if (len == 0 || len > OPTION_KEY_MAX)
        return NULL;
    for (n = 0; n < len; n++)
        plain[n] = typed[n] == '_' ? '-' : (char)tolower((unsigned char)typed[n]);
    plain[n] = '\0';
    best_distance = len / 3 + 2;
    for (size_t i = 0; i < OPTION_ROW_COUNT + (with_actions ? OPTION_ACTION_COUNT : 0); i++) {
        const char *key = i < OPTION_ROW_COUNT ? option_rows[i].key : option_actions[i - OPTION_ROW_COUNT].key;
        size_t d = distance(plain, key), key_len = strlen(key);

        /* redis-url: one word too many is nearer than another word */
        if (len > key_len && memcmp(plain, key, key_len) == 0 && plain[key_len] == '-')
            d = 1;
        if (d < best_distance || (best && d == best_distance && d == 1 && key_len > strlen(best))) {
            best_distance = d;
            best = key;
        }
    }
    return best;
}

/* ---------------------------------------------------------------- for people */

void options_help(FILE *out)
{
    char variable[OPTION_NAME_CAP];

    fputs("Usage: pawld [OPTION]...\n"
          "A lock broker over Redis. An option may also stand in the environment or in a config file; flags are stronger than the\n"
          "environment, the environment is stronger than the file. Durations carry a unit: 500ms, 30s, 5m, 12h, 7d.\n\n",
          out);
    for (size_t i = 0; i < OPTION_ROW_COUNT; i++) {
        option_variable(option_rows[i].key, variable, sizeof(variable));
        fprintf(out, "  --%s%s%s\n      %s\n      (%s", option_rows[i].key, option_rows[i].what ? " " : "",
                option_rows[i].what ? option_rows[i].what : "", option_rows[i].help, variable);
        if (option_rows[i].kind == OPTION_LIST)
            fputs(", repeatable, in the environment separated by commas", out);
        if (option_rows[i].fallback)
            fprintf(out, "; default %s", option_rows[i].fallback);
        fputs(")\n", out);
    }
    for (size_t i = 0; i < OPTION_ACTION_COUNT; i++)
        fprintf(out, "  --%s\n      %s\n", option_actions[i].key, option_actions[i].help);
}

static void dump_string(const struct option_row *row, const char *value, FILE *out)
{
    char masked[OPTION_VALUE_MAX + 8];

    if (value && row->secret && row->kind == OPTION_URL) {
        redis_url_mask(value, masked, sizeof(masked));
        value = masked;
    } else if (value && row->secret) {
        value = "***";
    }
    fprintf(out, "%s%s =%s%s\n", row->not_in_file || !value ? "# " : "", row->key, value && value[0] ? " " : "", value ? value : "");
}

static void dump_list(const struct options *o, const struct option_row *row, FILE *out)
{
    char **list = option_field(o, row->at);
    size_t count = *(size_t *)option_field(o, row->count_at);

    if (count == 0)
        dump_string(row, NULL, out);
    for (size_t i = 0; i < count; i++)
        dump_string(row, list[i], out);
}

static const char *choice_name(const struct option_row *row, unsigned value)
{
    const struct option_choice *c = row->choices;

    while (c->name && c->value != value)
        c++;
    return c->name ? c->name : "";
}

void options_dump(const struct options *o, FILE *out)
{
    for (const struct option_row *row = option_rows; row < option_rows + OPTION_ROW_COUNT; row++) {
        const void *at = option_field(o, row->at);
        char text[24];

        switch (row->kind) {
        case OPTION_BOOL:
            fprintf(out, "%s = %s\n", row->key, *(const bool *)at ? "true" : "false");
            break;
        case OPTION_DURATION:
            fprintf(out, "%s = %s\n", row->key, duration_format(*(const int64_t *)at, text, sizeof(text)));
            break;
        case OPTION_COUNT:
            fprintf(out, "%s = %" PRId64 "\n", row->key, *(const int64_t *)at);
            break;
        case OPTION_CHOICE:
            fprintf(out, "%s = %s\n", row->key, choice_name(row, *(const unsigned *)at));
            break;
        case OPTION_STRING:
        case OPTION_URL:
            dump_string(row, *(char *const *)at, out);
            break;
        case OPTION_LIST:
            dump_list(o, row, out);
            break;
        }
    }
}
