/* The client object, and the calls that are about locks and not about a lease of one's own. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "client/pawl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/call.h"
#include "client/moment.h"
#include "proto/lock_name.h"
#include "proto/params.h"

#define TIMEOUT_DEFAULT_MS 5000
#define BUDGET_DEFAULT_MS  10000
#define ACCESS_TOKEN_MAX   4096 /* a request's head may have 16 KiB */

const char *pawl_code_name(int code)
{
    switch (code) {
    case 0:
        return "ok";
    case PAWL_ERR_ARGUMENT:
        return "argument";
    case PAWL_ERR_MEMORY:
        return "memory";
    case PAWL_ERR_HELD:
        return "held";
    case PAWL_ERR_LOST:
        return "lost";
    case PAWL_ERR_NOT_HELD:
        return "not_held";
    case PAWL_ERR_BUSY:
        return "busy";
    case PAWL_ERR_UNAVAILABLE:
        return "unavailable";
    case PAWL_ERR_FORBIDDEN:
        return "forbidden";
    case PAWL_ERR_PROTOCOL:
        return "protocol";
    case PAWL_ERR_CANCELLED:
        return "cancelled";
    default:
        return "unknown";
    }
}

int64_t pawl_now_us(void)
{
    return moment_now_us();
}

int pawl_open(const char *address, struct pawl **ret_client, struct pawl_problem *ret_problem)
{
    struct address at;
    const char *wrong = address_parse(address ? address : PAWL_DEFAULT_ADDRESS, &at);
    struct pawl *client;

    if (wrong)
        return call_problem(ret_problem, PAWL_ERR_ARGUMENT, "address: %s", wrong);
    client = calloc(1, sizeof(*client));
    if (client)
        client->wire = wire_open(&at);
    if (!client || !client->wire) {
        free(client);
        return call_problem(ret_problem, PAWL_ERR_MEMORY, "out of memory");
    }
    client->timeout_ms = TIMEOUT_DEFAULT_MS;
    client->budget_ms = BUDGET_DEFAULT_MS;
    client->cancel_fd = -1;
    client->is_tls = at.tls;
    *ret_client = client;
    return 0;
}

void pawl_close(struct pawl *client)
{
    if (!client)
        return;
    wire_close(client->wire);
    free(client);
}

int pawl_set_access_token(struct pawl *client, const char *token, struct pawl_problem *ret_problem)
{
    size_t len = token ? strlen(token) : 0;

    if (token && (len == 0 || len > ACCESS_TOKEN_MAX))
        return call_problem(ret_problem, PAWL_ERR_ARGUMENT, "the access token must have 1 to %d bytes", ACCESS_TOKEN_MAX);
    for (size_t i = 0; i < len; i++) {
        if (token[i] <= ' ' || token[i] > '~')
            return call_problem(ret_problem, PAWL_ERR_ARGUMENT, "the access token must be printable ASCII without blanks");
    }
    if (!wire_set_token(client->wire, token))
        return call_problem(ret_problem, PAWL_ERR_MEMORY, "out of memory");
    return 0;
}

/* Now, rather than as a connection that fails for reasons of its own. */
static int check_file(const char *what, const char *path, struct pawl_problem *ret_problem)
{
    if (!path || access(path, R_OK) == 0)
        return 0;
    return call_problem(ret_problem, PAWL_ERR_ARGUMENT, "%s %s: %s", what, path, strerror(errno));
}

int pawl_set_tls(struct pawl *client, const char *ca_file, const char *cert_file, const char *key_file, struct pawl_problem *ret_problem)
{
    int code;

    if (!client->is_tls)
        return call_problem(ret_problem, PAWL_ERR_ARGUMENT, "certificates are for an address that begins with https://");
    if (key_file && !cert_file)
        return call_problem(ret_problem, PAWL_ERR_ARGUMENT, "a key is of no use without its certificate");
    code = check_file("authorities", ca_file, ret_problem);
    if (code == 0)
        code = check_file("certificate", cert_file, ret_problem);
    if (code == 0)
        code = check_file("key", key_file, ret_problem);
    if (code != 0)
        return code;
    return wire_set_tls(client->wire, ca_file, cert_file, key_file) ? 0 : call_problem(ret_problem, PAWL_ERR_MEMORY, "out of memory");
}

static int64_t within(int64_t value, int64_t least)
{
    if (value < least)
        return least;
    return value > CALL_MS_MAX ? CALL_MS_MAX : value;
}

void pawl_set_timeout(struct pawl *client, int64_t timeout_ms)
{
    client->timeout_ms = within(timeout_ms, 1);
}

void pawl_set_retry_budget(struct pawl *client, int64_t budget_ms)
{
    client->budget_ms = within(budget_ms, 0);
}

void pawl_set_on_retry(struct pawl *client, void (*on_retry)(void *arg, const struct pawl_problem *problem, int64_t left_ms), void *arg)
{
    client->on_retry = on_retry;
    client->on_retry_arg = arg;
}

void pawl_set_cancel_fd(struct pawl *client, int fd)
{
    client->cancel_fd = fd < 0 ? -1 : fd;
}

/* A 200 has to hold what the call is about, and be about the lock that was asked for. */
static int expect(const struct reply *reply, unsigned seen, const char *name, struct pawl_problem *problem)
{
    if ((reply->seen & seen) == seen && (!name || strcmp(reply->lock.name, name) == 0))
        return 0;
    return call_problem(problem, PAWL_ERR_PROTOCOL, "what answered is not pawld: its answer lacks something, or is about another lock");
}

int pawl_check(struct pawl *client, const char *name, int64_t token, int64_t *ret_ttl_ms, struct pawl_problem *ret_problem)
{
    struct call call = call_of(client, name, "check");
    struct reply reply;
    int code = call_check_name(name, ret_problem);

    if (code != 0)
        return code;
    if (token < 1 || token > PAWL_TOKEN_MAX)
        return call_problem(ret_problem, PAWL_ERR_ARGUMENT, "token: must be a whole number from 1 to 9007199254740991");
    call.token = token;
    code = call_run(client, &call, &reply, ret_problem);
    if (code == 0)
        code = expect(&reply, REPLY_NAME | REPLY_TOKEN | REPLY_TTL, name, ret_problem);
    if (code == 0 && ret_ttl_ms)
        *ret_ttl_ms = reply.lock.ttl_ms;
    return code;
}

int pawl_inspect(struct pawl *client, const char *name, struct pawl_lock *ret_lock, struct pawl_problem *ret_problem)
{
    struct call call = call_of(client, name, NULL);
    struct reply reply;
    int code = call_check_name(name, ret_problem);

    if (code == 0)
        code = call_run(client, &call, &reply, ret_problem);
    if (code == 0)
        code = expect(&reply, REPLY_NAME | REPLY_HELD | (reply.lock.held ? REPLY_TOKEN : 0), name, ret_problem);
    if (code == 0)
        *ret_lock = reply.lock;
    return code;
}

/* Cuts the walk of a page short when the caller has enough. */
struct walk {
    int (*each)(void *arg, const struct pawl_lock *lock);
    void *arg;
    bool enough;
};

static int walk_lock(void *arg, const struct pawl_lock *lock)
{
    struct walk *walk = arg;

    walk->enough = walk->each(walk->arg, lock) != 0;
    return walk->enough;
}

int pawl_list(struct pawl *client, const char *prefix, int (*each)(void *arg, const struct pawl_lock *lock), void *arg, int *ret_recovering,
              struct pawl_problem *ret_problem)
{
    struct call call = call_of(client, NULL, NULL);
    const char *wrong = prefix ? lock_name_prefix_problem(prefix, strlen(prefix)) : NULL;
    struct walk walk = {.each = each, .arg = arg};
    char cursor[REPLY_CURSOR_SIZE];
    struct reply reply;
    int code, recovering = 0;

    if (wrong)
        return call_problem(ret_problem, PAWL_ERR_ARGUMENT, "prefix: %s", wrong);
    call.prefix = prefix && prefix[0] ? prefix : NULL;
    call.each = walk_lock;
    call.each_arg = &walk;
    do {
        code = call_run(client, &call, &reply, ret_problem);
        if (code == 0 && !walk.enough)
            code = expect(&reply, REPLY_LOCKS | REPLY_CURSOR, NULL, ret_problem);
        if (code != 0)
            return code;
        recovering |= reply.lock.recovering;
        memcpy(cursor, reply.cursor, sizeof(cursor));
        call.cursor = cursor;
        if (cursor[strspn(cursor, "0123456789")] != '\0')
            return call_problem(ret_problem, PAWL_ERR_PROTOCOL, "what answered is not pawld: its cursor is no number");
    } while (!walk.enough && cursor[0]);
    if (ret_recovering)
        *ret_recovering = recovering;
    return 0;
}

int pawl_break(struct pawl *client, const char *name, const char *reason, struct pawl_lock *ret_lock, struct pawl_problem *ret_problem)
{
    struct call call = call_of(client, name, "break");
    struct reply reply;
    const char *wrong;
    int code = call_check_name(name, ret_problem);

    if (code != 0)
        return code;
    if (!reason || !reason[0] || strlen(reason) > PAWL_REASON_MAX)
        return call_problem(ret_problem, PAWL_ERR_ARGUMENT, "reason: must have 1 to %d bytes", PAWL_REASON_MAX);
    wrong = label_problem(reason, strlen(reason));
    if (wrong)
        return call_problem(ret_problem, PAWL_ERR_ARGUMENT, "reason: %s", wrong);
    call.reason = reason;
    call.once = true;
    code = call_run(client, &call, &reply, ret_problem);
    if (code == 0)
        code = expect(&reply, REPLY_NAME | REPLY_HOLDER, name, ret_problem);
    if (code == 0 && ret_lock) {
        *ret_lock = reply.holder;
        memcpy(ret_lock->name, reply.lock.name, sizeof(ret_lock->name));
        ret_lock->held = 1;
    }
    return code;
}
