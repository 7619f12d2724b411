/* One connection to one Redis: it connects, signs in, sends commands in order, matches replies, notices a dead peer, and comes back.
 *
 * What this is: sockets, deadlines and order. What it is not: it knows no script and no lease. hiredis gives the protocol (its reader);
 * its asynchronous half is not used, since 0.14 has no deadline for a connect or a command and can't be torn down from every callback.
 *
 * States:
 *
 *     STOPPED ─start─► RESOLVING ──► CONNECTING ──► SIGNING_IN ──► OPEN        (with TLS the handshake, GREETING, comes before SIGNING_IN)
 *                          ▲             │ error        │ error      │ EOF, error, a command's deadline, redis_link_drop
 *                          └── WAITING ◄─┴──────────────┴────────────┘
 *                          (capped, jittered back-off; the first attempt after an OPEN is at once)
 *
 * An address that is not known yet (a URL of sentinels) is given later by redis_link_set_address; until then every attempt fails.
 *
 * Everything sent in one turn of the event loop leaves in one write at its end. Callbacks run on the link's own events, never inside a
 * call into the link; every call but redis_link_free is allowed in them.
 */
#ifndef PAWL_REDIS_LINK_H
#define PAWL_REDIS_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/clock.h"
#include "daemon/redis_url.h"

struct event_base;
struct redisReply;
struct redis_link;
struct tls_config;

/* A command in flight; lives in the caller's object. */
struct redis_command {
    struct redis_command *next;
    int64_t deadline_us; /* no answer by then: the connection is dropped */
    int64_t sent_us;
    /* Once. `reply` NULL: the connection was lost, the outcome is unknown. The reply is freed afterwards. */
    void (*done)(struct redis_command *command, const struct redisReply *reply);
};

struct redis_link_callbacks {
    void *arg;
    void (*up)(void *arg); /* signed in: commands may be sent */
    void (*down)(void *arg, const char *problem,
                 bool was_up);                               /* after every command's done(NULL); problem: a static or borrowed sentence */
    void (*push)(void *arg, const struct redisReply *reply); /* a reply that no command waits for (pub/sub), may be NULL */
    void (*alarm)(void *arg);                                /* see redis_link_alarm, may be NULL */
    void (*turn)(void *arg);                                 /* see redis_link_turn, may be NULL */
};

struct redis_link_config {
    struct redis_url url;
    const char *label;            /* for logs: "commands", "messages" */
    int64_t connect_timeout_ms;   /* resolve, connect, handshake and sign in, all together */
    int64_t max_delay_ms;         /* cap of the back-off */
    const struct tls_config *tls; /* of a URL that asks for TLS; borrowed, reloaded as its owner likes */
};

/* `base`, `clock` and `config->label` must outlive the link. NULL without memory. */
struct redis_link *redis_link_new(struct event_base *base, const struct clock *clock, const struct redis_link_config *config,
                                  const struct redis_link_callbacks *callbacks);
void redis_link_start(struct redis_link *link);
void redis_link_stop(struct redis_link *link); /* closes; commands in flight get done(NULL) at the end of the turn; no `down` */
void redis_link_free(struct redis_link *link); /* commands in flight get no callback. Takes NULL. */

/* From now on `host` and `port` are where to connect to. An attempt or a connection under way to another place is dropped, and the next begins at once. */
void redis_link_set_address(struct redis_link *link, const char *host, int port);

bool redis_link_is_open(const struct redis_link *link);
const char *redis_link_address(const struct redis_link *link);
const char *redis_link_problem(const struct redis_link *link); /* why it last went down, "" while open */
uint64_t redis_link_connects(const struct redis_link *link);
/* False when a command more must not be sent: not open, or too much is queued. */
bool redis_link_can_send(const struct redis_link *link);

/* Closes the connection at the end of this turn, for `problem` (static), and begins again. */
void redis_link_drop(struct redis_link *link, const char *problem);

/* Writes one command: begin with the number of arguments, then each argument, then send. */
void redis_link_begin(struct redis_link *link, size_t argc);
void redis_link_arg(struct redis_link *link, const char *bytes, size_t len);
void redis_link_arg_str(struct redis_link *link, const char *s);
void redis_link_arg_int(struct redis_link *link, int64_t n);
void redis_link_send(struct redis_link *link, struct redis_command *command, int64_t deadline_us);
/* The same for a command whose replies come by `push` only (SUBSCRIBE). */
void redis_link_send_silent(struct redis_link *link);

/* Calls `turn` at the end of this turn of the loop, before what was sent in it is written. Only while open. */
void redis_link_turn(struct redis_link *link);

/* Calls `alarm` at or after `at_us` (INT64_MAX: never). One alarm a link; works in every state. Here so that only this file sees the loop. */
void redis_link_alarm(struct redis_link *link, int64_t at_us);

#endif
