/* One call of the API, with its retries. What pawl.c and lease.c are written with. */
#ifndef PAWL_CALL_H
#define PAWL_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/pawl.h"
#include "client/reply.h"
#include "client/wire.h"

#define CALL_TTL_DEFAULT_MS 30000
#define CALL_MS_MAX         (INT64_C(366) * 24 * 3600 * 1000) /* of any duration that is asked for: longer than pawld takes */

struct pawl {
    struct wire *wire;
    int64_t timeout_ms, budget_ms;
    void (*on_retry)(void *arg, const struct pawl_problem *problem, int64_t left_ms); /* NULL: nobody */
    void *on_retry_arg;
    int cancel_fd;
    bool is_tls;
};

struct call {
    const char *name;            /* of the lock; checked by the caller. NULL: the list */
    const char *verb;            /* "acquire", ...; NULL: a GET */
    const char *prefix, *cursor; /* of the list; NULL: none */

    /* parameters of a POST; 0 or NULL: not sent */
    int64_t ttl_ms, wait_ms, lock_delay_ms, max_hold_ms, token;
    const char *lease_id, *owner, *reason;

    bool once;          /* never sent twice */
    int64_t timeout_ms; /* 0: the client's */
    int64_t budget_ms;  /* -1: the client's */
    int64_t give_up_us; /* the call ends then at the latest; 0: never */
    int cancel_fd, stop_fd;
    reply_each_fn *each; /* of the list */
    void *each_arg;

    /* after it */
    int64_t ret_sent_us; /* the try that was answered, or the last one, was begun then */
    unsigned ret_tries;
    bool ret_uncertain; /* a try without a good answer may have been carried out */
};

/* A call with the client's own time-out, budget and cancel descriptor. */
struct call call_of(const struct pawl *client, const char *name, const char *verb);

/* Returns 0 with *ret_reply, or an enum pawl_code with *problem (may be NULL). Blocks. */
int call_run(struct pawl *client, struct call *call, struct reply *ret_reply, struct pawl_problem *problem);

/* Fills *problem (may be NULL) and returns code. */
int call_problem(struct pawl_problem *problem, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Is it a lock's name? 0, or PAWL_ERR_ARGUMENT with *problem. */
int call_check_name(const char *name, struct pawl_problem *problem);

#endif
