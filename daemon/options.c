/* Where options come from and which of them counts.
 *
 * Places are read from the strongest to the weakest: flags, environment, config file, defaults. The first that sets a row wins, but what a weaker one says
 * about it is checked all the same: a mistake that is hidden today by a flag would come out on the day the flag goes. A default passes through the same
 * reader as everything else.
 *
 * A misspelt option must never become a default, so whatever is not known is refused: flags, keys and also variables that start with PAWL_. Sentences
 * name the place and repeat little of what was typed there, since it may be a password in the wrong place.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/options.h"

#include <ctype.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/options_rows.h"
#include "daemon/redis_url.h"
#include "daemon/small_file.h"
#include "proto/duration.h"

#define CONFIG_BYTES_MAX ((size_t)64 * 1024)

/* ---------------------------------------------------------------- one reading */

enum place { PLACE_NOWHERE, PLACE_DEFAULT, PLACE_FILE, PLACE_ENVIRONMENT, PLACE_FLAG }; /* the greater is the stronger */

struct reading {
    struct options *o;
    enum place set_by[OPTION_ROW_COUNT];
    enum options_action action;
    char *problem;
    size_t cap;
};

/* Always -1, so that a failing reader can end with it. */
static __attribute__((format(printf, 2, 3))) int fail(struct reading *r, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(r->problem, r->cap, format, args);
    va_end(args);
    return -1;
}

static int out_of_memory(struct reading *r)
{
    return fail(r, "out of memory while reading the options");
}

/* ---------------------------------------------------------------- values into fields */

static int store_string(struct reading *r, const struct option_row *row, const char *value)
{
    char *copy = strdup(value);
    char **list = option_field(r->o, row->at);

    if (!copy)
        return out_of_memory(r);
    if (row->kind == OPTION_LIST)
        list[(*(size_t *)option_field(r->o, row->count_at))++] = copy;
    else
        *list = copy;
    return 0;
}

static int store_value(struct reading *r, const struct option_row *row, const char *value, int64_t number)
{
    switch (row->kind) {
    case OPTION_BOOL:
        *(bool *)option_field(r->o, row->at) = number != 0;
        return 0;
    case OPTION_DURATION:
    case OPTION_COUNT:
        *(int64_t *)option_field(r->o, row->at) = number;
        return 0;
    case OPTION_CHOICE:
        *(unsigned *)option_field(r->o, row->at) = (unsigned)number;
        return 0;
    default:
        return store_string(r, row, value);
    }
}

/* A value that was refused, as it may be repeated on a terminal: also when it is the URL of a Redis, password and all, in the wrong place. */
static const char *printable(const char *value, char *out, size_t cap)
{
    if (strchr(value, '@') && strncmp(value, "unix:", strlen("unix:")) != 0)
        redis_url_mask(value, out, cap);
    else
        snprintf(out, cap, "%s", value);
    for (char *c = out; *c; c++)
        *c = *c >= ' ' && *c <= '~' ? *c : '?';
    return out;
}

/* Takes one value from one place; `where` names it in a sentence. */
static int take(struct reading *r, const struct option_row *row, enum place place, const char *where, const char *value)
{
    enum place *set_by = &r->set_by[row - option_rows];
    char why[160], shown_value[121];
    int64_t number = 0;
    const char *problem = option_read(row, value, &number, why, sizeof(why));

    if (problem && row->kind == OPTION_LIST) /* which of several, then */
        return fail(r, "%s: %s: %s", where, printable(value, shown_value, sizeof(shown_value)), problem);
    if (problem)
        return fail(r, "%s: %s", where, problem);
    if (*set_by > place)
        return 0;
    if (*set_by == place && row->kind != OPTION_LIST)
        return fail(r, "%s: is given twice", where);
    if (row->kind == OPTION_LIST && *(size_t *)option_field(r->o, row->count_at) >= row->list_max)
        return fail(r, "%s: can be given at most %zu times", where, row->list_max);
    *set_by = place;
    return store_value(r, row, value, number);
}

/* ---------------------------------------------------------------- names, known and unknown */

/* A name as it may be repeated to a person. What does not look like a name may be anything, a password too, and is not repeated. */
static const char *shown(const char *name, size_t len, char *out, size_t cap)
{
    bool plain = len > 0 && len <= 2 * OPTION_KEY_MAX;

    for (size_t i = 0; i < len && plain; i++)
        plain = isalnum((unsigned char)name[i]) || name[i] == '-' || name[i] == '_' || name[i] == '.';
    snprintf(out, cap, "%.*s", plain ? (int)len : INT_MAX, plain ? name : "what stands here");
    return out;
}

static int unknown(struct reading *r, enum place place, const char *where, const char *name, size_t len)
{
    size_t skip = place == PLACE_ENVIRONMENT ? strlen(OPTION_PREFIX) : 0;
    const char *key = option_nearest(name + skip, len - skip, place == PLACE_FLAG);
    char typed[2 * OPTION_KEY_MAX + 1], meant[OPTION_NAME_CAP];

    shown(name, len, typed, sizeof(typed));
    if (!key)
        return fail(r, "%s%s: there is no such option; see --help", where, typed);
    if (place == PLACE_ENVIRONMENT)
        option_variable(key, meant, sizeof(meant));
    else
        snprintf(meant, sizeof(meant), "%s%s", place == PLACE_FLAG ? "--" : "", key);
    return fail(r, "%s%s: there is no such option; did you mean %s?", where, typed, meant);
}

/* ---------------------------------------------------------------- flags */

static const struct option_action *find_action(const char *arg, size_t len)
{
    for (size_t i = 0; i < OPTION_ACTION_COUNT; i++) {
        if (len == strlen(option_actions[i].key) + 2 && memcmp(arg, "--", 2) == 0 && memcmp(arg + 2, option_actions[i].key, len - 2) == 0)
            return &option_actions[i];
    }
    return NULL;
}

static bool read_action(struct reading *r, const char *arg)
{
    const struct option_action *found = strcmp(arg, "-h") == 0 ? find_action("--help", strlen("--help")) : find_action(arg, strlen(arg));

    if (found)
        r->action = found->action;
    return found;
}

/* argv[*i] and perhaps the one behind it, to which *i then moves. */
static int read_flag(struct reading *r, int argc, char **argv, int *i)
{
    const char *arg = argv[*i], *equals, *value;
    const struct option_row *row;
    char where[OPTION_KEY_MAX + 3];
    size_t len;

    if (arg[0] != '-')
        return fail(r, "argument %d: pawld takes only options; see --help", *i);
    equals = strchr(arg, '=');
    len = equals ? (size_t)(equals - arg) : strlen(arg);
    row = strncmp(arg, "--", 2) == 0 ? option_find(arg + 2, len - 2) : NULL;
    if (!row && find_action(arg, len))
        return fail(r, "%.*s: takes no value", (int)len, arg);
    if (!row)
        return unknown(r, PLACE_FLAG, "", arg, len);
    snprintf(where, sizeof(where), "--%s", row->key);
    if (equals)
        value = equals + 1;
    else if (row->kind == OPTION_BOOL)
        value = "true";
    else if (*i + 1 < argc && strncmp(argv[*i + 1], "--", 2) != 0)
        value = argv[++*i];
    else
        return fail(r, "%s: needs a value", where);
    return take(r, row, PLACE_FLAG, where, value);
}

static int read_flags(struct reading *r, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (!read_action(r, argv[i]) && read_flag(r, argc, argv, &i) < 0)
            return -1;
        if (r->action == OPTIONS_HELP || r->action == OPTIONS_VERSION)
            return 0;
    }
    return 0;
}

/* ---------------------------------------------------------------- environment */

static int take_list(struct reading *r, const struct option_row *row, const char *where, const char *value)
{
    char *copy = strdup(value), *rest = copy, *item;
    int result = copy ? 0 : out_of_memory(r);

    while (result == 0 && (item = strsep(&rest, ",")) != NULL)
        result = take(r, row, PLACE_ENVIRONMENT, where, item);
    free(copy);
    return result;
}

static int read_variable(struct reading *r, const char *entry)
{
    const char *equals = strchr(entry, '=');
    char name[OPTION_NAME_CAP];

    if (!equals)
        return 0;
    for (size_t i = 0; i < OPTION_ROW_COUNT; i++) {
        option_variable(option_rows[i].key, name, sizeof(name));
        if (strlen(name) != (size_t)(equals - entry) || strncmp(name, entry, strlen(name)) != 0)
            continue;
        if (option_rows[i].kind == OPTION_LIST)
            return take_list(r, &option_rows[i], name, equals + 1);
        return take(r, &option_rows[i], PLACE_ENVIRONMENT, name, equals + 1);
    }
    return unknown(r, PLACE_ENVIRONMENT, "", entry, (size_t)(equals - entry));
}

/* Variables of this prefix that are not ours to judge: what the clients read and export (a daemon may run under `pawl run`), the tests', and what
 * Kubernetes sets in every container beside a Service called "pawl". */
static bool is_others(const char *entry)
{
    static const char *const whole[] = {"PAWL_SERVER", "PAWL_LOCK",         "PAWL_TOKEN",     "PAWL_LEASE_ID",
                                        "PAWL_PORT",   "PAWL_ACCESS_TOKEN", "PAWL_TOKEN_FILE"};
    static const char *const heads[] = {"PAWL_PORT_", "PAWL_SERVICE_", "PAWL_TEST_"};
    size_t len = strcspn(entry, "=");

    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        if (strlen(whole[i]) == len && strncmp(entry, whole[i], len) == 0)
            return true;
    }
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        if (strncmp(entry, heads[i], strlen(heads[i])) == 0)
            return true;
    }
    return false;
}

static int read_environment(struct reading *r, char **environment)
{
    for (; environment && *environment; environment++) {
        if (strncmp(*environment, OPTION_PREFIX, strlen(OPTION_PREFIX)) == 0 && !is_others(*environment) &&
            read_variable(r, *environment) < 0)
            return -1;
    }
    return 0;
}

/* ---------------------------------------------------------------- config file */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Narrows *at and *len to what is between blanks. */
static void trim(const char **at, size_t *len)
{
    while (*len > 0 && is_blank(**at)) {
        (*at)++;
        (*len)--;
    }
    while (*len > 0 && is_blank((*at)[*len - 1]))
        (*len)--;
}

/* What may stand behind '=' without being what its author thinks it is. */
static const char *value_problem(const char *value, size_t len)
{
    if (memchr(value, '\0', len))
        return "has a NUL byte";
    if (len > OPTION_VALUE_MAX)
        return "is too long";
    if (len > 0 && (value[0] == '"' || value[0] == '\''))
        return "values are written without quotes";
    for (size_t i = 1; i < len; i++) {
        if (value[i] == '#' && is_blank(value[i - 1]))
            return "a comment needs a line of its own";
    }
    return NULL;
}

static int read_line(struct reading *r, const char *name, unsigned number, const char *line, size_t len)
{
    const char *equals, *value, *problem;
    const struct option_row *row;
    size_t value_len;
    char where[512], *copy;
    int result;

    trim(&line, &len);
    if (len == 0 || line[0] == '#')
        return 0;
    snprintf(where, sizeof(where), "%.400s:%u: ", name, number);
    equals = memchr(line, '=', len);
    if (!equals)
        return fail(r, "%sneeds the form key = value", where);
    value = equals + 1;
    value_len = len - (size_t)(value - line);
    len = (size_t)(equals - line);
    trim(&line, &len);
    trim(&value, &value_len);
    row = option_find(line, len);
    if (!row)
        return unknown(r, PLACE_FILE, where, line, len);
    snprintf(where, sizeof(where), "%.400s:%u: %s", name, number, row->key);
    problem = row->not_in_file ? "can't stand in a config file" : value_problem(value, value_len);
    if (problem)
        return fail(r, "%s: %s", where, problem);
    copy = strndup(value, value_len);
    if (!copy)
        return out_of_memory(r);
    result = take(r, row, PLACE_FILE, where, copy);
    explicit_bzero(copy, value_len);
    free(copy);
    return result;
}

static int read_text(struct reading *r, const char *name, const char *text, size_t len)
{
    for (unsigned number = 1; len > 0; number++) {
        const char *end = memchr(text, '\n', len);
        size_t line = end ? (size_t)(end - text) : len;

        if (read_line(r, name, number, text, line) < 0)
            return -1;
        text += line + (end ? 1 : 0);
        len -= line + (end ? 1 : 0);
    }
    return 0;
}

static int read_file(struct reading *r, const char *name)
{
    struct small_file file;
    char why[128];
    int result;

    if (small_file_read(name, CONFIG_BYTES_MAX, &file, why, sizeof(why)) != 0)
        return fail(r, "%s: %s", name, why);
    result = read_text(r, name, file.bytes, file.len);
    small_file_wipe(&file);
    return result;
}

/* ---------------------------------------------------------------- defaults, and options that must fit together */

static int take_host_name(struct reading *r, const struct option_row *row)
{
    char host[HOST_NAME_MAX + 1] = "";

    if (gethostname(host, sizeof(host) - 1) < 0 || row->check(host))
        snprintf(host, sizeof(host), "pawld");
    return take(r, row, PLACE_DEFAULT, row->key, host);
}

static int take_defaults(struct reading *r)
{
    for (size_t i = 0; i < OPTION_ROW_COUNT; i++) {
        int result = 0;

        if (r->set_by[i] != PLACE_NOWHERE)
            continue;
        if (option_rows[i].at == offsetof(struct options, node_name))
            result = take_host_name(r, &option_rows[i]);
        else if (option_rows[i].fallback)
            result = take(r, &option_rows[i], PLACE_DEFAULT, option_rows[i].key, option_rows[i].fallback);
        if (result < 0)
            return -1;
    }
    return 0;
}

static enum place set_by(const struct reading *r, size_t at)
{
    for (size_t i = 0; i < OPTION_ROW_COUNT; i++) {
        if (option_rows[i].at == at)
            return r->set_by[i];
    }
    return PLACE_NOWHERE;
}

static void forget_string(char **string)
{
    if (*string)
        explicit_bzero(*string, strlen(*string));
    free(*string);
    *string = NULL;
}

static int fit_dev(struct reading *r)
{
    if (!r->o->dev)
        return 0;
    if (set_by(r, offsetof(struct options, redis)) > PLACE_DEFAULT)
        return fail(r, "--dev and --redis (PAWL_REDIS, redis =) exclude each other: --dev brings a Redis of its own");
    if (r->o->min_replicas > 0)
        return fail(r, "--dev and --min-replicas exclude each other: the Redis that --dev brings has no replicas");
    forget_string(&r->o->redis);
    if (!r->o->recovery_window_given)
        r->o->recovery_window_ms = 0;
    return 0;
}

static int fit_sentinels(struct reading *r)
{
    const struct options *o = r->o;

    if (o->sentinel_user && !o->sentinel_password)
        return fail(r, "--sentinel-user needs --sentinel-password");
    if (o->sentinel_password && (!o->redis || !redis_url_names_sentinels(o->redis)))
        return fail(r, "--sentinel-password is of no use without --redis sentinel://...");
    return 0;
}

static int fit_ttls(struct reading *r)
{
    const struct options *o = r->o;
    char least_ttl[24], normal[24], most[24];

    if (o->max_hold_ms > 0 && o->max_hold_ms < o->min_ttl_ms)
        return fail(r, "--max-hold (%s) must not be shorter than --min-ttl (%s)", duration_format(o->max_hold_ms, most, sizeof(most)),
                    duration_format(o->min_ttl_ms, least_ttl, sizeof(least_ttl)));
    if (o->min_ttl_ms <= o->default_ttl_ms && o->default_ttl_ms <= o->max_ttl_ms)
        return 0;
    return fail(r, "--default-ttl (%s) must lie between --min-ttl (%s) and --max-ttl (%s)",
                duration_format(o->default_ttl_ms, normal, sizeof(normal)), duration_format(o->min_ttl_ms, least_ttl, sizeof(least_ttl)),
                duration_format(o->max_ttl_ms, most, sizeof(most)));
}

static int finish(struct reading *r)
{
    if (take_defaults(r) < 0)
        return -1;
    r->o->recovery_window_given = set_by(r, offsetof(struct options, recovery_window_ms)) > PLACE_DEFAULT;
    if (fit_dev(r) < 0 || fit_sentinels(r) < 0)
        return -1;
    return fit_ttls(r);
}

/* ---------------------------------------------------------------- secrets */

static void overwrite(char *s)
{
    memset(s, 'x', strlen(s));
}

/* ps and /proc show both for as long as the process lives. */
static void hide_secret(const char *key, int argc, char **argv, char **environment)
{
    char flag[OPTION_KEY_MAX + 3], variable[OPTION_NAME_CAP];
    size_t len = (size_t)snprintf(flag, sizeof(flag), "--%s", key);

    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], flag, len) != 0)
            continue;
        if (argv[i][len] == '=')
            overwrite(argv[i] + len + 1);
        else if (!argv[i][len] && i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0)
            overwrite(argv[++i]);
    }
    option_variable(key, variable, sizeof(variable));
    len = strlen(variable);
    for (; environment && *environment; environment++) {
        if (strncmp(*environment, variable, len) == 0 && (*environment)[len] == '=')
            overwrite(*environment + len + 1);
    }
}

/* ---------------------------------------------------------------- the whole */

static int read_places(struct reading *r, int argc, char **argv, char **environment)
{
    if (read_flags(r, argc, argv) < 0)
        return -1;
    if (r->action == OPTIONS_HELP || r->action == OPTIONS_VERSION)
        return 0;
    if (read_environment(r, environment) < 0)
        return -1;
    if (r->o->config && read_file(r, r->o->config) < 0)
        return -1;
    return finish(r);
}

int options_read(struct options *o, int argc, char **argv, char **environment, enum options_action *ret_action, char *problem, size_t cap)
{
    struct reading r = {.o = o, .action = OPTIONS_RUN, .problem = problem, .cap = cap};
    int result;

    memset(o, 0, sizeof(*o));
    result = read_places(&r, argc, argv, environment);
    for (size_t i = 0; i < OPTION_ROW_COUNT; i++) {
        if (option_rows[i].secret)
            hide_secret(option_rows[i].key, argc, argv, environment);
    }
    hide_secret("access-token", argc, argv,
                environment); /* a client's; who starts a pawld beside one passes it on to its children otherwise */
    if (result == 0)
        *ret_action = r.action;
    return result;
}

int options_read_text(struct options *o, const char *name, const char *text, size_t len, char *problem, size_t cap)
{
    struct reading r = {.o = o, .action = OPTIONS_RUN, .problem = problem, .cap = cap};

    memset(o, 0, sizeof(*o));
    if (read_text(&r, name, text, len) < 0)
        return -1;
    return finish(&r);
}

void options_close(struct options *o)
{
    for (size_t i = 0; i < OPTION_ROW_COUNT; i++) {
        char **strings = option_field(o, option_rows[i].at);

        if (option_rows[i].kind == OPTION_STRING || option_rows[i].kind == OPTION_URL)
            forget_string(strings);
        if (option_rows[i].kind != OPTION_LIST)
            continue;
        for (size_t j = 0; j < *(size_t *)option_field(o, option_rows[i].count_at); j++)
            forget_string(&strings[j]);
    }
    memset(o, 0, sizeof(*o));
}
