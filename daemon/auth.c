#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/auth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "daemon/log.h"
#include "daemon/login_limit.h"
#include "daemon/small_file.h"

#define FILE_BYTES_MAX ((size_t)1024 * 1024)

struct auth {
    const char *path;
    struct access *rules;
    struct login_limit *limit;
};

/* ---------------------------------------------------------------- the file */

static struct access *fail(const char *path, char *problem, size_t cap, const char *why)
{
    snprintf(problem, cap, "%s: %s", path, why);
    return NULL;
}

static struct access *parse(const char *path, const struct small_file *file, char *problem, size_t cap)
{
    char why[384];
    struct access *rules;

    if (file->mode & S_IWOTH)
        return fail(path, problem, cap, "every user of this machine may write to it: chmod o-w");
    rules = access_parse(file->bytes, file->len, why, sizeof(why));
    return rules ? rules : fail(path, problem, cap, why);
}

static struct access *load(const char *path, char *problem, size_t cap)
{
    struct small_file file;
    struct access *rules;
    char why[384];

    if (small_file_read(path, FILE_BYTES_MAX, &file, why, sizeof(why)) != 0)
        return fail(path, problem, cap, why);
    rules = parse(path, &file, problem, cap);
    if (rules && (file.mode & S_IROTH))
        log_warn("auth_file_readable", LOG_STR("file", path), LOG_STR("hint", "chmod o-r: hashes of tokens are for pawld alone"));
    small_file_wipe(&file);
    return rules;
}

static void free_auth(struct auth *auth)
{
    access_release(auth->rules);
    login_limit_free(auth->limit);
    free(auth);
}

int auth_open(const char *path, struct auth **ret, char *problem, size_t cap)
{
    struct auth *auth = calloc(1, sizeof(*auth));

    if (auth)
        auth->limit = login_limit_new();
    if (!auth || !auth->limit) {
        free(auth);
        (void)fail(path, problem, cap, "out of memory");
        return -1;
    }
    auth->path = path;
    auth->rules = load(path, problem, cap);
    if (!auth->rules) {
        free_auth(auth);
        return -1;
    }
    log_info("access_rules", LOG_STR("file", path), LOG_INT("rules", access_count(auth->rules)));
    *ret = auth;
    return 0;
}

void auth_close(struct auth *auth)
{
    if (auth)
        free_auth(auth);
}

int auth_check(const char *path, char *problem, size_t cap)
{
    struct access *rules = load(path, problem, cap);

    access_release(rules);
    return rules ? 0 : -1;
}

void auth_reload(struct auth *auth)
{
    char problem[512];
    struct access *rules;

    if (!auth)
        return;
    rules = load(auth->path, problem, sizeof(problem));
    if (!rules) {
        log_error("access_rules_kept", LOG_STR("problem", problem), LOG_INT("rules", access_count(auth->rules)));
        return;
    }
    access_release(auth->rules);
    auth->rules = rules;
    log_info("access_rules", LOG_STR("file", auth->path), LOG_INT("rules", access_count(rules)));
}

struct access *auth_rules(const struct auth *auth)
{
    return auth->rules;
}

/* ---------------------------------------------------------------- a request */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* Narrows "Bearer TOKEN" to the token. False: it is something else. */
static bool take_bearer(struct http_slice *value)
{
    static const char scheme[] = "Bearer";
    size_t skip = sizeof(scheme) - 1;

    if (value->len <= skip || strncasecmp(value->at, scheme, skip) != 0 || !is_blank(value->at[skip]))
        return false;
    while (skip < value->len && is_blank(value->at[skip]))
        skip++;
    value->at += skip;
    value->len -= skip;
    while (value->len > 0 && is_blank(value->at[value->len - 1]))
        value->len--;
    return value->len > 0;
}

static enum auth_verdict by_token(struct auth *auth, struct http_slice value, const struct peer *peer, int64_t now_us,
                                  const struct access_rule **ret_rule, int64_t *ret_wait_s)
{
    const struct access_rule *rule = NULL;
    int64_t wait_s;

    if (take_bearer(&value) && access_by_token(auth->rules, value.at, value.len, &rule) != 0)
        return AUTH_NO_MEMORY;
    if (rule) {
        *ret_rule = rule;
        return AUTH_KNOWN;
    }
    wait_s = login_limit_failed(auth->limit, peer, now_us);
    if (wait_s == 0)
        return AUTH_UNKNOWN;
    *ret_wait_s = wait_s;
    return AUTH_TOO_MANY;
}

enum auth_verdict auth_who(struct auth *auth, struct http_slice authorization, const struct peer *peer, int64_t now_us,
                           const struct access_rule **ret_rule, int64_t *ret_wait_s)
{
    const struct access_rule *rule = NULL;

    if (authorization.at)
        return by_token(auth, authorization, peer, now_us, ret_rule, ret_wait_s);
    if (peer->subject)
        rule = access_by_subject(auth->rules, peer->subject);
    if (!rule && peer->has_ids)
        rule = access_by_uid(auth->rules, peer->uid);
    if (!rule)
        return AUTH_NOTHING;
    *ret_rule = rule;
    return AUTH_KNOWN;
}
