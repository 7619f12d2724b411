/* The options: one row each, with flag, environment variable, config-file key, type, bounds, default, secrecy and help.
 *
 * Order of precedence: flag, environment, config file, default. A repeatable option given in a higher place replaces all of the lower ones. An unknown or malformed one is an
 * error that names it and where it stood (flag, variable, or file and line). Rows live in options.c; docs/operations.md has each (checked by `make check`).
 * Secrets (the password in a store URL) are overwritten in argv and environ once read, and never printed: options_dump masks them.
 */
#ifndef PAWL_OPTIONS_H
#define PAWL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "daemon/log.h"

#define OPTIONS_LISTEN_MAX  16
#define OPTIONS_ORIGINS_MAX 16

struct options {
    bool dev;                         /* --dev */
    char *listen[OPTIONS_LISTEN_MAX]; /* --listen, repeatable (environment: separated by commas); default 127.0.0.1:7295 */
    size_t listen_count;
    char *tls_cert, *tls_key; /* --tls-cert, --tls-key: of addresses that begin with tls:; NULL: none */
    char *tls_client_ca;      /* --tls-client-ca: whose client certificates are accepted; NULL: none are asked for */
    unsigned tls_client_auth; /* --tls-client-auth required|optional: enum tls_client_auth */
    char *redis_ca, *redis_cert,
        *redis_key;          /* --redis-ca, --redis-cert, --redis-key: of a rediss:// URL; NULL: the system's authorities, none */
    char *handover;          /* --handover PATH: a unix socket through which a successor takes over; NULL: none */
    char *redis;             /* --redis URL, secret; default redis://127.0.0.1:6379/0; with --dev it is an error to give it, and NULL */
    char *sentinel_user;     /* --sentinel-user: of the sentinels themselves; NULL: none */
    char *sentinel_password; /* --sentinel-password, secret; NULL: none */
    char *key_prefix;       /* --key-prefix, default "pawl:"; printable ASCII without '{', '}' and blanks, at most 64 bytes, may be empty */
    char *node_name;        /* --node-name, default the host name; shown in status, proves nothing */
    int64_t default_ttl_ms; /* --default-ttl 30s */
    int64_t min_ttl_ms;     /* --min-ttl 1ms */
    int64_t max_ttl_ms;     /* --max-ttl 24h (at most 365d) */
    int64_t max_hold_ms;    /* --max-hold 0: how long any lease may be held, however it is renewed; 0: no bound */
    int64_t store_timeout_ms;   /* --store-timeout 1s (10ms .. 60s) */
    int64_t recovery_window_ms; /* --recovery-window 3s (4s with sentinels, see daemon.c); 0 turns it off (the default with --dev) */
    bool recovery_window_given;
    int64_t min_replicas;                    /* --min-replicas 0: that many must confirm a grant and a renewal */
    int64_t replica_timeout_ms;              /* --replica-timeout 500ms: how long that may take */
    int64_t busy_poll_us;                    /* --busy-poll 200: microseconds awake for an answer that a hand-over waits for; 0: none */
    char *auth_file;                         /* --auth-file FILE: who may do what (access.h); NULL: everybody everything */
    bool insecure_listen;                    /* --insecure-listen: the latter on a network too */
    bool allow_eviction;                     /* --allow-eviction: attach to a Redis that may evict keys */
    int64_t max_connections;                 /* --max-connections 10000 (1 .. 1000000) */
    int64_t request_timeout_ms;              /* --request-timeout 10s: total time to receive a request's head */
    int64_t body_timeout_ms;                 /* --body-timeout 30s */
    int64_t idle_timeout_ms;                 /* --idle-timeout 75s */
    int64_t drain_timeout_ms;                /* --drain-timeout 10s */
    int64_t max_wait_ms;                     /* --max-wait 10m */
    int64_t max_waiters;                     /* --max-waiters 20000 */
    int64_t max_waiters_per_lock;            /* --max-waiters-per-lock 10000 */
    int64_t events;                          /* --events 10000: how many are kept (1 .. 100000) */
    int64_t max_streams;                     /* --max-streams 1000: event streams open at once (0 .. 100000) */
    char *allow_origin[OPTIONS_ORIGINS_MAX]; /* --allow-origin, repeatable */
    size_t allow_origin_count;
    enum log_level log_level;   /* --log-level error|warn|info|debug; default info */
    enum log_format log_format; /* --log-format text|json */
    char *log_file;             /* --log-file FILE; NULL: standard error */
    char *config;               /* --config FILE: lines "key = value", '#' comments */
};

enum options_action { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION, OPTIONS_CHECK_CONFIG };

/* Fills *o. argv strings and environ values that held a secret are overwritten with 'x'. Also cross-checks (min <= default <= max ttl).
 * Returns 0 and the action, or -1 with a sentence in problem. options_close also after a failure. */
int options_read(struct options *o, int argc, char **argv, char **environment, enum options_action *ret_action, char *problem, size_t cap);
void options_close(struct options *o);

/* The same for nothing but a config file's text, with `name` in its place in sentences. For tests. */
int options_read_text(struct options *o, const char *name, const char *text, size_t len, char *problem, size_t cap);

void options_help(FILE *out);
/* Every row as "key = value", secrets masked (redis://user:***@host/0): what --check-config prints. But for the masks it is a config file of its own;
 * rows that no such file may hold or that have no value are comments in it. */
void options_dump(const struct options *o, FILE *out);

#endif
