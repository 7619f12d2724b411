/* The commands that ask once and print the answer. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli.h"
#include "client/cli_output.h"
#include "proto/limits.h"

/* ---- acquire, renew, release ---- */

static void print_lease(const struct cli *cli, const struct pawl_lease *lease)
{
    char left[32];

    if (cli->json) {
        printf("{\"name\": ");
        cli_json_string(pawl_lease_name(lease));
        printf(", \"lease_id\": \"%s\", \"token\": %" PRId64 ", \"ttl_ms\": %" PRId64 "}\n", pawl_lease_id(lease), pawl_lease_token(lease),
               pawl_lease_left_ms(lease));
        return;
    }
    printf("lock      %s\nlease id  %s\ntoken     %" PRId64 "\nleft      %s\n", pawl_lease_name(lease), pawl_lease_id(lease),
           pawl_lease_token(lease), cli_time(pawl_lease_left_ms(lease), left, sizeof(left)));
}

int cli_acquire(const struct cli *cli)
{
    char owner[192];
    struct pawl_acquire_options want = {.ttl_ms = cli->ttl_ms, .wait_ms = cli->wait_ms, .owner = cli->owner, .lease_id = cli->lease_id};
    struct pawl_problem problem;
    struct pawl_lease *lease;
    struct pawl *client;
    int code = cli_open(cli, &client);

    if (code != CLI_OK)
        return code;
    if (want.ttl_ms == 0)
        cli_say("--ttl: must be above 0");
    if (want.ttl_ms == 0 || !cli_take_terms(cli, &want)) {
        pawl_close(client);
        return CLI_FAILED;
    }
    if (want.ttl_ms < 0)
        want.ttl_ms = 0; /* the library's default */
    if (want.wait_ms < 0)
        want.wait_ms = 0;
    if (!want.owner)
        want.owner = cli_default_owner(owner, sizeof(owner), getppid()); /* whoever holds it, it isn't this short-lived process */
    if (pawl_acquire(client, cli->args[0], &want, &lease, &problem) == 0) {
        print_lease(cli, lease);
        pawl_lease_free(lease);
    } else {
        code = cli_complain(cli, cli->args[0], &problem);
    }
    pawl_close(client);
    return code;
}

/* A lease from --lease-id or PAWL_LEASE_ID. */
static int adopt(const struct cli *cli, struct pawl *client, struct pawl_lease **ret_lease)
{
    const char *id = cli->lease_id ? cli->lease_id : getenv("PAWL_LEASE_ID");
    struct pawl_problem problem;

    if (!id || !id[0]) {
        cli_say("%s: which lease? Give --lease-id, or set PAWL_LEASE_ID, which other users can't see", cli->program);
        return CLI_FAILED;
    }
    return pawl_lease_adopt(client, cli->args[0], id, ret_lease, &problem) == 0 ? CLI_OK : cli_complain(cli, cli->args[0], &problem);
}

/* `use` ends as libpawl's calls do: 0, or a code with *problem. */
static int with_lease(const struct cli *cli, int (*use)(const struct cli *cli, struct pawl_lease *lease, struct pawl_problem *problem))
{
    struct pawl_problem problem;
    struct pawl_lease *lease;
    struct pawl *client;
    int code = cli_open(cli, &client);

    if (code != CLI_OK)
        return code;
    code = adopt(cli, client, &lease);
    if (code == CLI_OK) {
        if (use(cli, lease, &problem) != 0)
            code = cli_complain(cli, cli->args[0], &problem);
        pawl_lease_free(lease);
    }
    pawl_close(client);
    return code;
}

static int renew(const struct cli *cli, struct pawl_lease *lease, struct pawl_problem *problem)
{
    int code = pawl_renew(lease, cli->ttl_ms > 0 ? cli->ttl_ms : 0, problem);

    if (code == 0)
        print_lease(cli, lease);
    return code;
}

int cli_renew(const struct cli *cli)
{
    if (cli->ttl_ms == 0) {
        cli_say("--ttl: must be above 0");
        return CLI_FAILED;
    }
    return with_lease(cli, renew);
}

static int release(const struct cli *cli, struct pawl_lease *lease, struct pawl_problem *problem)
{
    int code = pawl_release(lease, problem);

    if (code == 0 && cli->json)
        printf("{\"name\": \"%s\", \"released\": true}\n", cli->args[0]);
    return code;
}

int cli_release(const struct cli *cli)
{
    return with_lease(cli, release);
}

/* ---- check, status, break ---- */

static bool token_of_environment(int64_t *ret)
{
    const char *text = getenv("PAWL_TOKEN");
    char *end;

    if (!text || text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *ret = strtoll(text, &end, 10);
    return errno == 0 && *end == '\0' && *ret > 0;
}

int cli_check(const struct cli *cli)
{
    struct pawl_problem problem;
    int64_t token = cli->token, left_ms;
    struct pawl *client;
    char left[32];
    int code;

    if (token == 0 && !token_of_environment(&token)) {
        cli_say("check: which token? Give --token, or set PAWL_TOKEN");
        return CLI_FAILED;
    }
    code = cli_open(cli, &client);
    if (code != CLI_OK)
        return code;
    if (pawl_check(client, cli->args[0], token, &left_ms, &problem) != 0)
        code = cli_complain(cli, cli->args[0], &problem);
    else if (cli->json)
        printf("{\"name\": \"%s\", \"token\": %" PRId64 ", \"ttl_ms\": %" PRId64 "}\n", cli->args[0], token, left_ms);
    else
        printf("%s: %" PRId64 " is the holder's token, for another %s\n", cli->args[0], token, cli_time(left_ms, left, sizeof(left)));
    pawl_close(client);
    return code;
}

static void print_lock(const struct pawl_lock *lock)
{
    char left[32], held[32];

    printf("lock      %s\n", lock->name);
    if (lock->held)
        printf("held      for %s, by %s\ntoken     %" PRId64 "\nleft      %s\n", cli_time(lock->held_ms, held, sizeof(held)),
               lock->owner[0] ? lock->owner : "(no owner told)", lock->token, cli_time(lock->ttl_ms, left, sizeof(left)));
    else
        printf("free%s\n", lock->recovering ? ", as far as is known: leases are being put back" : "");
    if (lock->max_hold_left_ms > 0)
        printf("may be    held for another %s\n", cli_time(lock->max_hold_left_ms, left, sizeof(left)));
    if (lock->delay_left_ms > 0)
        printf("delay     nobody gets it for another %s\n", cli_time(lock->delay_left_ms, left, sizeof(left)));
    else if (lock->lock_delay_ms > 0)
        printf("delay     %s after the lease, unless it is released\n", cli_time(lock->lock_delay_ms, left, sizeof(left)));
    printf("waiters   %" PRId64 "\n", lock->waiters);
}

int cli_status(const struct cli *cli)
{
    struct pawl_problem problem;
    struct pawl_lock lock;
    struct pawl *client;
    int code = cli_open(cli, &client);

    if (code != CLI_OK)
        return code;
    if (pawl_inspect(client, cli->args[0], &lock, &problem) != 0)
        code = cli_complain(cli, cli->args[0], &problem);
    else if (cli->json)
        cli_json_lock(&lock);
    else
        print_lock(&lock);
    pawl_close(client);
    return code;
}

int cli_break(const struct cli *cli)
{
    struct pawl_problem problem;
    struct pawl_lock lock;
    struct pawl *client;
    char held[32];
    int code;

    if (!cli->reason || !cli->reason[0]) {
        cli_say("break: why? Give --reason; pawld logs it");
        return CLI_FAILED;
    }
    code = cli_open(cli, &client);
    if (code != CLI_OK)
        return code;
    if (pawl_break(client, cli->args[0], cli->reason, &lock, &problem) != 0)
        code = cli_complain(cli, cli->args[0], &problem);
    else if (cli->json)
        cli_json_lock(&lock);
    else
        printf("%s: broken; %s had held it for %s (token %" PRId64 ")\n", lock.name, lock.owner[0] ? lock.owner : "somebody",
               cli_time(lock.held_ms, held, sizeof(held)), lock.token);
    pawl_close(client);
    return code;
}

/* ---- ls ---- */

struct listing {
    const struct cli *cli;
    bool any;
};

static int list_lock(void *arg, const struct pawl_lock *lock)
{
    struct listing *listing = arg;

    if (listing->cli->json) {
        cli_json_lock(lock); /* a line each: a list may be long */
        return 0;
    }
    if (!listing->any)
        cli_row_head(32);
    listing->any = true;
    cli_row(lock, 32);
    return 0;
}

int cli_ls(const struct cli *cli)
{
    struct listing listing = {.cli = cli};
    struct pawl_problem problem;
    struct pawl *client;
    int code = cli_open(cli, &client), recovering = 0;

    if (code != CLI_OK)
        return code;
    if (pawl_list(client, cli->arg_count > 0 ? cli->args[0] : NULL, list_lock, &listing, &recovering, &problem) != 0)
        code = cli_complain(cli, cli->arg_count > 0 ? cli->args[0] : NULL, &problem);
    else if (recovering && !cli->json)
        cli_say("leases are being put back after a loss: there may be more");
    pawl_close(client);
    return code;
}
