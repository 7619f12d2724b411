/* A lease: taken, renewed, given back, and until when it is sure.
 *
 * The deadline is a lower bound of the end in Redis: what pawld said was left, counted from before the request was sent. A wait is taken off
 * by pawld's own measure of it (waited_ms): the answer was written at least that long after the request was sent.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "client/lease.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/moment.h"
#include "proto/lease_id.h"
#include "proto/params.h"

#define GIVE_BACK_MS   1000
#define BOUND_SLACK_US 2000 /* a deadline so near to the bound is the bound: both are whole milliseconds */

/* ---- the object ---- */

static struct pawl_lease *lease_new(struct pawl *client, const char *name, const struct lease_id *id)
{
    struct pawl_lease *lease = calloc(1, sizeof(*lease));

    if (!lease)
        return NULL;
    if (pthread_mutex_init(&lease->lock, NULL) != 0) {
        free(lease);
        return NULL;
    }
    lease->client = client;
    snprintf(lease->name, sizeof(lease->name), "%s", name);
    memcpy(lease->id, id->text, sizeof(lease->id));
    return lease;
}

void pawl_lease_free(struct pawl_lease *lease)
{
    if (!lease)
        return;
    pawl_keep_alive_stop(lease);
    pthread_mutex_destroy(&lease->lock);
    memset(lease->id, 0, sizeof(lease->id));
    free(lease);
}

/* What an answer told to a request that was sent at sent_us; what is left counts from from_us. An older answer changes nothing. */
static void lease_told(struct pawl_lease *lease, int64_t sent_us, int64_t from_us, const struct reply *reply, int64_t ttl_ms)
{
    pthread_mutex_lock(&lease->lock);
    if (sent_us >= lease->told_us) {
        lease->told_us = sent_us;
        lease->deadline_us = moment_after(from_us, reply->lock.ttl_ms);
        lease->hold_end_us = reply->seen & REPLY_HOLD ? moment_after(from_us, reply->lock.max_hold_left_ms) : 0;
        lease->token = reply->lock.token;
        lease->ttl_ms = ttl_ms;
    }
    pthread_mutex_unlock(&lease->lock);
}

/* It may have become shorter: a renewal to that end may have been carried out. */
static void lease_maybe_until(struct pawl_lease *lease, int64_t deadline_us)
{
    pthread_mutex_lock(&lease->lock);
    if (deadline_us < lease->deadline_us)
        lease->deadline_us = deadline_us;
    pthread_mutex_unlock(&lease->lock);
}

void lease_forget(struct pawl_lease *lease)
{
    pthread_mutex_lock(&lease->lock);
    lease->told_us = INT64_MAX;
    lease->deadline_us = 0;
    pthread_mutex_unlock(&lease->lock);
}

static int64_t read_field(const struct pawl_lease *lease, const int64_t *field)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)(uintptr_t)&lease->lock; /* reading changes nothing that a caller sees */
    int64_t value;

    pthread_mutex_lock(lock);
    value = *field;
    pthread_mutex_unlock(lock);
    return value;
}

const char *pawl_lease_name(const struct pawl_lease *lease)
{
    return lease->name;
}

const char *pawl_lease_id(const struct pawl_lease *lease)
{
    return lease->id;
}

int64_t pawl_lease_token(const struct pawl_lease *lease)
{
    return read_field(lease, &lease->token);
}

int64_t pawl_lease_ttl_ms(const struct pawl_lease *lease)
{
    return read_field(lease, &lease->ttl_ms);
}

int64_t pawl_lease_deadline_us(const struct pawl_lease *lease)
{
    return read_field(lease, &lease->deadline_us);
}

int64_t pawl_lease_hold_end_us(const struct pawl_lease *lease)
{
    return read_field(lease, &lease->hold_end_us);
}

bool pawl_lease_is_at_bound(const struct pawl_lease *lease)
{
    int64_t hold_end_us = pawl_lease_hold_end_us(lease);

    return hold_end_us > 0 && pawl_lease_deadline_us(lease) >= hold_end_us - BOUND_SLACK_US;
}

int64_t pawl_lease_left_ms(const struct pawl_lease *lease)
{
    int64_t left_us = pawl_lease_deadline_us(lease) - moment_now_us();

    return left_us > 0 ? left_us / 1000 : 0;
}

/* ---- acquire ---- */

static int check_options(const struct pawl_acquire_options *options, struct lease_id *ret_id, struct pawl_problem *problem)
{
    const char *wrong;

    if (options->ttl_ms < 0 || options->ttl_ms > CALL_MS_MAX)
        return call_problem(problem, PAWL_ERR_ARGUMENT, "ttl_ms: must be from 1 to %lld", (long long)CALL_MS_MAX);
    if (options->wait_ms < 0 || options->wait_ms > CALL_MS_MAX)
        return call_problem(problem, PAWL_ERR_ARGUMENT, "wait_ms: must be from 0 to %lld", (long long)CALL_MS_MAX);
    if (options->lock_delay_ms < 0 || options->lock_delay_ms > PAWL_LOCK_DELAY_MAX_MS)
        return call_problem(problem, PAWL_ERR_ARGUMENT, "lock_delay_ms: must be from 0 to %d", PAWL_LOCK_DELAY_MAX_MS);
    if (options->max_hold_ms < 0 || options->max_hold_ms > CALL_MS_MAX)
        return call_problem(problem, PAWL_ERR_ARGUMENT, "max_hold_ms: must be from 0 to %lld", (long long)CALL_MS_MAX);
    if (options->owner) {
        wrong = strlen(options->owner) > PAWL_OWNER_MAX ? "is too long" : label_problem(options->owner, strlen(options->owner));
        if (wrong)
            return call_problem(problem, PAWL_ERR_ARGUMENT, "owner: %s", wrong);
    }
    if (!options->lease_id)
        lease_id_generate(ret_id);
    else if (lease_id_parse(options->lease_id, strlen(options->lease_id), ret_id) != 0)
        return call_problem(problem, PAWL_ERR_ARGUMENT, "lease_id: is no UUID");
    return 0;
}

/* One short release of what may have been granted without our knowing. */
static void give_back(struct pawl *client, const char *name, const char *lease_id)
{
    struct call call = call_of(client, name, "release");
    struct reply reply;

    call.lease_id = lease_id;
    call.cancel_fd = -1;
    call.give_up_us = moment_after(moment_now_us(), GIVE_BACK_MS);
    (void)call_run(client, &call, &reply, NULL);
}

static bool holds_lease(const struct reply *reply, const char *name, const char *lease_id)
{
    const unsigned needed = REPLY_NAME | REPLY_LEASE_ID | REPLY_TOKEN | REPLY_TTL;

    return (reply->seen & needed) == needed && strcmp(reply->lock.name, name) == 0 && strcmp(reply->lease_id, lease_id) == 0;
}

/* The answer of a repeated acquire may count its wait from an earlier try. A renewal tells a deadline that can be relied on. */
static int refresh(struct pawl_lease *lease, struct pawl_problem *problem)
{
    struct call call = lease_renewal(lease, pawl_lease_ttl_ms(lease));
    int code;

    call.budget_ms = 0;
    code = lease_renew(lease, &call, problem);
    return code == PAWL_ERR_UNAVAILABLE ? 0 : code;
}

static int granted(struct pawl_lease *lease, const struct call *call, const struct reply *reply, struct pawl_problem *problem)
{
    bool waited = (reply->seen & REPLY_WAITED) && reply->waited_ms > 0;
    int64_t from_us = waited && call->ret_tries == 1 ? moment_after(call->ret_sent_us, reply->waited_ms) : call->ret_sent_us;
    int64_t now = moment_now_us();
    int code = 0;

    if (from_us > now)
        from_us = now;
    lease_told(lease, call->ret_sent_us, from_us, reply, call->ttl_ms);
    if (waited && call->ret_tries > 1)
        code = refresh(lease, problem);
    if (code == 0 && pawl_lease_deadline_us(lease) <= moment_now_us())
        code = call_problem(problem, PAWL_ERR_LOST, "the lease was granted, but the answer was read after its end");
    return code;
}

int pawl_acquire(struct pawl *client, const char *name, const struct pawl_acquire_options *options, struct pawl_lease **ret_lease,
                 struct pawl_problem *ret_problem)
{
    static const struct pawl_acquire_options none;
    struct call call = call_of(client, name, "acquire");
    struct pawl_lease *lease;
    struct lease_id id;
    struct reply reply;
    int code = call_check_name(name, ret_problem);

    options = options ? options : &none;
    if (code == 0)
        code = check_options(options, &id, ret_problem);
    if (code != 0)
        return code;
    lease = lease_new(client, name, &id);
    if (!lease)
        return call_problem(ret_problem, PAWL_ERR_MEMORY, "out of memory");
    call.ttl_ms = options->ttl_ms > 0 ? options->ttl_ms : CALL_TTL_DEFAULT_MS;
    call.wait_ms = options->wait_ms;
    call.lock_delay_ms = options->lock_delay_ms;
    call.max_hold_ms = options->max_hold_ms;
    call.owner = options->owner;
    call.lease_id = lease->id;
    code = call_run(client, &call, &reply, ret_problem);
    if (code == 0 && !holds_lease(&reply, name, lease->id)) {
        code = call_problem(ret_problem, PAWL_ERR_PROTOCOL, "what answered is not pawld: it granted something else than was asked for");
        call.ret_uncertain = true;
    }
    if (code == 0) {
        code = granted(lease, &call, &reply, ret_problem);
        call.ret_uncertain = code != 0;
    }
    if (code == 0) {
        *ret_lease = lease;
        return 0;
    }
    if (call.ret_uncertain && code != PAWL_ERR_HELD)
        give_back(client, name, lease->id);
    pawl_lease_free(lease);
    return code;
}

int pawl_lease_adopt(struct pawl *client, const char *name, const char *lease_id, struct pawl_lease **ret_lease,
                     struct pawl_problem *ret_problem)
{
    struct pawl_lease *lease;
    struct lease_id id;
    int code = call_check_name(name, ret_problem);

    if (code != 0)
        return code;
    if (!lease_id || lease_id_parse(lease_id, strlen(lease_id), &id) != 0)
        return call_problem(ret_problem, PAWL_ERR_ARGUMENT, "lease_id: is no UUID");
    lease = lease_new(client, name, &id);
    if (!lease)
        return call_problem(ret_problem, PAWL_ERR_MEMORY, "out of memory");
    lease->ttl_ms = CALL_TTL_DEFAULT_MS;
    *ret_lease = lease;
    return 0;
}

/* ---- renew ---- */

struct call lease_renewal(const struct pawl_lease *lease, int64_t ttl_ms)
{
    struct call call = call_of(lease->client, lease->name, "renew");

    call.lease_id = lease->id;
    call.ttl_ms = ttl_ms;
    return call;
}

int lease_renew(struct pawl_lease *lease, struct call *call, struct pawl_problem *problem)
{
    int64_t begun_us = moment_now_us();
    struct reply reply;
    int code = call_run(lease->client, call, &reply, problem);

    if (code == 0 && !holds_lease(&reply, lease->name, lease->id)) {
        code = call_problem(problem, PAWL_ERR_PROTOCOL, "what answered is not pawld: it renewed something else than was asked for");
        call->ret_uncertain = true;
    }
    if (call->ret_uncertain)
        lease_maybe_until(lease, moment_after(begun_us, call->ttl_ms));
    if (code == 0)
        lease_told(lease, call->ret_sent_us, call->ret_sent_us, &reply, call->ttl_ms);
    else if (code == PAWL_ERR_LOST)
        lease_forget(lease);
    return code;
}

int pawl_renew(struct pawl_lease *lease, int64_t ttl_ms, struct pawl_problem *ret_problem)
{
    struct call call;

    if (ttl_ms < 0 || ttl_ms > CALL_MS_MAX)
        return call_problem(ret_problem, PAWL_ERR_ARGUMENT, "ttl_ms: must be from 1 to %lld", (long long)CALL_MS_MAX);
    call = lease_renewal(lease, ttl_ms > 0 ? ttl_ms : pawl_lease_ttl_ms(lease));
    return lease_renew(lease, &call, ret_problem);
}

/* ---- release ---- */

int pawl_release(struct pawl_lease *lease, struct pawl_problem *ret_problem)
{
    struct call call = call_of(lease->client, lease->name, "release");
    struct reply reply;
    int code;

    pawl_keep_alive_stop(lease);
    call.lease_id = lease->id;
    code = call_run(lease->client, &call, &reply, ret_problem);
    lease_forget(lease);
    if (code == PAWL_ERR_LOST && call.ret_uncertain)
        code = 0; /* an earlier try did it */
    return code;
}
