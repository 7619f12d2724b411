/* What the commands print. Whatever comes from pawld was cleaned of control characters when it was read (reply.c): a lock's owner must not be
 * able to steer a terminal. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "client/cli_output.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/text.h"

int cli_exit_of(int code)
{
    switch (code) {
    case 0:
        return CLI_OK;
    case PAWL_ERR_HELD:
        return CLI_HELD;
    case PAWL_ERR_LOST:
        return CLI_LOST;
    case PAWL_ERR_NOT_HELD:
        return CLI_NOT_HELD;
    case PAWL_ERR_UNAVAILABLE:
        return CLI_UNAVAILABLE;
    case PAWL_ERR_BUSY:
    case PAWL_ERR_FORBIDDEN:
        return CLI_REFUSED;
    default:
        return CLI_FAILED;
    }
}

const char *cli_time(int64_t ms, char *block, size_t cap)
{
    int64_t s = ms / 1000;

    if (s < 60)
        snprintf(block, cap, "%" PRId64 ".%" PRId64 "s", s, ms % 1000 / 100);
    else if (s < 3600)
        snprintf(block, cap, "%" PRId64 "m%02" PRId64 "s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(block, cap, "%" PRId64 "h%02" PRId64 "m", s / 3600, s / 60 % 60);
    else
        snprintf(block, cap, "%" PRId64 "d%02" PRId64 "h", s / 86400, s / 3600 % 24);
    return block;
}

void cli_json_string(const char *text)
{
    char block[2048];
    struct text t;

    text_init(&t, block, sizeof(block), 16384);
    text_json_string(&t, text, strlen(text));
    if (!t.failed)
        fwrite(t.at, 1, t.len, stdout);
    text_close(&t);
}

static void json_holder(const char *owner, int64_t token, int64_t ttl_ms, int64_t held_ms)
{
    printf("\"owner\": ");
    cli_json_string(owner);
    printf(", \"token\": %" PRId64 ", \"ttl_ms\": %" PRId64 ", \"held_ms\": %" PRId64, token, ttl_ms, held_ms);
}

void cli_json_lock(const struct pawl_lock *lock)
{
    printf("{\"name\": ");
    cli_json_string(lock->name);
    printf(", \"held\": %s, ", lock->held ? "true" : "false");
    if (lock->held) {
        json_holder(lock->owner, lock->token, lock->ttl_ms, lock->held_ms);
        printf(", ");
    }
    if (lock->lock_delay_ms > 0)
        printf("\"lock_delay_ms\": %" PRId64 ", ", lock->lock_delay_ms);
    if (lock->max_hold_left_ms > 0)
        printf("\"max_hold_left_ms\": %" PRId64 ", ", lock->max_hold_left_ms);
    if (lock->delay_left_ms > 0)
        printf("\"delay_left_ms\": %" PRId64 ", ", lock->delay_left_ms);
    printf("\"waiters\": %" PRId64 "%s}\n", lock->waiters, lock->recovering ? ", \"recovering\": true" : "");
}

static void json_problem(const char *name, const struct pawl_problem *problem)
{
    printf("{\"error\": ");
    cli_json_string(pawl_code_name(problem->code));
    printf(", \"message\": ");
    cli_json_string(problem->message);
    if (name) {
        printf(", \"name\": ");
        cli_json_string(name);
    }
    if (problem->code == PAWL_ERR_HELD) {
        printf(", \"waiters\": %" PRId64 ", \"holder\": ", problem->waiters);
        if (problem->holder_token > 0) {
            printf("{");
            json_holder(problem->holder_owner, problem->holder_token, problem->holder_ttl_ms, problem->holder_held_ms);
            printf("}");
        } else {
            printf("null");
            if (problem->delay_left_ms > 0)
                printf(", \"delay_left_ms\": %" PRId64, problem->delay_left_ms);
        }
    }
    printf("}\n");
}

/* What is said of a parameter is said of the option that it was given by: "wait_ms: ..." -> "--wait: ...". */
static const char *by_option(const char *message, char *block, size_t cap)
{
    static const char *const names[][2] = {{"ttl_ms:", "--ttl"},           {"wait_ms:", "--wait"},      {"lock_delay_ms:", "--lock-delay"},
                                           {"max_hold_ms:", "--max-hold"}, {"lease_id:", "--lease-id"}, {"owner:", "--owner"},
                                           {"reason:", "--reason"}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t len = strlen(names[i][0]);

        if (strncmp(message, names[i][0], len) != 0)
            continue;
        snprintf(block, cap, "%s:%s", names[i][1], message + len);
        return block;
    }
    return message;
}

int cli_complain(const struct cli *cli, const char *name, const struct pawl_problem *problem)
{
    char held[32], said[sizeof(problem->message) + 16];

    if (cli->json)
        json_problem(name, problem);
    else if (problem->code == PAWL_ERR_HELD && problem->holder_token > 0)
        cli_say("%s: held by %s for %s (token %" PRId64 ", %" PRId64 " waiting)", name,
                problem->holder_owner[0] ? problem->holder_owner : "somebody", cli_time(problem->holder_held_ms, held, sizeof(held)),
                problem->holder_token, problem->waiters);
    else if (problem->code == PAWL_ERR_HELD && problem->delay_left_ms > 0)
        cli_say("%s: held by nobody, and nobody gets it for another %s: the last lease was not released", name,
                cli_time(problem->delay_left_ms, held, sizeof(held)));
    else if (problem->code == PAWL_ERR_ARGUMENT)
        cli_say("%s%s%s", name ? name : "", name ? ": " : "", by_option(problem->message, said, sizeof(said)));
    else
        cli_say("%s%s%s (%s)", name ? name : "", name ? ": " : "", problem->message, pawl_code_name(problem->code));
    return cli_exit_of(problem->code);
}

void cli_row_head(int name_width)
{
    printf("%-*s  %8s  %8s  %7s  %16s  %s\n", name_width, "NAME", "HELD", "LEFT", "WAITERS", "TOKEN", "OWNER");
}

void cli_row(const struct pawl_lock *lock, int name_width)
{
    char held[32], left[32];

    printf("%-*s  %8s  %8s  %7" PRId64 "  %16" PRId64 "  %s\n", name_width, lock->name, cli_time(lock->held_ms, held, sizeof(held)),
           cli_time(lock->ttl_ms, left, sizeof(left)), lock->waiters, lock->token, lock->owner);
}
