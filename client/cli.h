/* The command `pawl`: what its parts share. Each command is one function; cli.c reads the options and calls it. */
#ifndef PAWL_CLI_H
#define PAWL_CLI_H

#include <stdbool.h>
#include <stdint.h>

#include "client/pawl.h"

/* Exit codes, documented in pawl(1). From 113 on, so that those of a CMD are rarely among them. */
enum cli_exit {
    CLI_OK = 0,
    CLI_LOST = 113,        /* the lease was lost; of check: the token is not the holder's */
    CLI_HELD = 114,        /* somebody else holds the lock */
    CLI_UNAVAILABLE = 115, /* no good answer from pawld */
    CLI_NOT_HELD = 116,    /* break: nobody holds the lock */
    CLI_REFUSED = 117,     /* pawld refuses this caller, or too many wait */
    CLI_FAILED = 125,      /* wrong usage, or pawl itself failed */
    CLI_CANNOT_RUN = 126,  /* CMD was found but can't be run */
    CLI_NOT_FOUND = 127,   /* CMD wasn't found */
    CLI_SIGNAL = 128       /* + n: CMD died of signal n, or pawl was told so while it waited */
};

#define CLI_TOKEN_SIZE 4097 /* of an access token with its NUL */

struct cli {
    const char *program; /* "pawl run", for messages */
    const char *server;
    const char *cacert, *cert, *key; /* NULL: not given */
    bool json, quiet, export_lease_id, no_terminal;
    int64_t ttl_ms, wait_ms, lock_delay_ms, max_hold_ms, retry_ms, grace_ms, kill_after_ms, interval_ms; /* -1: not given */
    int64_t token;                                                                                       /* 0: not given */
    const char *owner, *lease_id, *reason;                                                               /* NULL: not given */
    const char *token_file;                                                                              /* NULL: none */
    char access_token[CLI_TOKEN_SIZE]; /* of the environment; "": none there */
    int arg_count;
    char **args;
    char **command; /* run: CMD and its arguments, ended by NULL */
};

/* Opens the client for these options; says why and returns an exit code if it can't. */
int cli_open(const struct cli *cli, struct pawl **ret_client);

/* cli_token.c. Both say what is wrong when they return false. */
bool cli_take_environment_token(struct cli *cli); /* into access_token, and out of the environment */
bool cli_set_token(const struct cli *cli, struct pawl *client);
void cli_forget_token(struct cli *cli);

/* --lock-delay and --max-hold. Says why when they can't be. */
bool cli_take_terms(const struct cli *cli, struct pawl_acquire_options *want);

/* "host:pid", as the default owner. */
const char *cli_default_owner(char *block, size_t cap, int64_t pid);

/* One line on stderr: "pawl: ...". */
void cli_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* From now on cli_say never waits for whoever reads there, on whatever thread; what there is no room for is not said. */
void cli_say_without_waiting(void);

int cli_acquire(const struct cli *cli);
int cli_renew(const struct cli *cli);
int cli_release(const struct cli *cli);
int cli_check(const struct cli *cli);
int cli_status(const struct cli *cli);
int cli_ls(const struct cli *cli);
int cli_break(const struct cli *cli);
int cli_run(const struct cli *cli);
int cli_top(const struct cli *cli);

#endif
