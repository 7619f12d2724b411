/* A call and its retries.
 *
 *      try --> answered, good or final ------------------> done
 *       ^  --> answered 408, 429 (connections), 5xx --+
 *       |  --> no connection, cut, no answer in time --+--> outage too long, or not to be repeated --> UNAVAILABLE
 *       +------------- back off, with jitter <---------+
 *
 * All tries of an acquire carry one lease id, and what is left of its wait. An outage is counted from its first failed try; a try that lasted
 * longer than the time-out was parked by a pawld that was well, so the outage began when that try failed.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "client/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/moment.h"
#include "proto/lock_name.h"
#include "proto/text.h"

#define TARGET_MAX      768
#define ANSWER_MAX      (64 * 1024)
#define LIST_ANSWER_MAX (16 * 1024 * 1024)
#define BACK_OFF_FIRST  50
#define BACK_OFF_CAP    2000

/* ---- problems ---- */

int call_problem(struct pawl_problem *problem, int code, const char *format, ...)
{
    char text[512];
    va_list values;

    if (!problem)
        return code;
    memset(problem, 0, sizeof(*problem));
    problem->code = code;
    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    reply_clean(text, strlen(text), problem->message, sizeof(problem->message));
    return code;
}

int call_check_name(const char *name, struct pawl_problem *problem)
{
    const char *wrong = name ? lock_name_problem(name, strlen(name)) : "there is none";

    return wrong ? call_problem(problem, PAWL_ERR_ARGUMENT, "name: %s", wrong) : 0;
}

static int answered_problem(struct pawl_problem *problem, int code, int status, const struct reply *reply)
{
    if (!problem)
        return code;
    (void)call_problem(problem, code, "%s", reply->message[0] ? reply->message : reply->error);
    problem->http_status = status;
    memcpy(problem->error, reply->error, sizeof(problem->error));
    memcpy(problem->holder_owner, reply->holder.owner, sizeof(problem->holder_owner));
    problem->holder_token = reply->holder.token;
    problem->holder_ttl_ms = reply->holder.ttl_ms;
    problem->holder_held_ms = reply->holder.held_ms;
    problem->waiters = reply->lock.waiters;
    problem->delay_left_ms = reply->lock.delay_left_ms;
    return code;
}

/* ---- one try ---- */

static void add_key(struct text *t, const char *key)
{
    text_str(t, t->len > 1 ? ", \"" : "\"");
    text_str(t, key);
    text_str(t, "\": ");
}

static void add_number(struct text *t, const char *key, int64_t value)
{
    if (value == 0)
        return;
    add_key(t, key);
    text_int(t, value);
}

static void add_string(struct text *t, const char *key, const char *value)
{
    if (!value)
        return;
    add_key(t, key);
    text_json_string(t, value, strlen(value));
}

static void write_body(struct text *t, const struct call *call, int64_t wait_ms)
{
    text_str(t, "{");
    add_number(t, "ttl_ms", call->ttl_ms);
    add_number(t, "wait_ms", wait_ms);
    add_number(t, "lock_delay_ms", call->lock_delay_ms);
    add_number(t, "max_hold_ms", call->max_hold_ms);
    add_number(t, "token", call->token);
    add_string(t, "lease_id", call->lease_id);
    add_string(t, "owner", call->owner);
    add_string(t, "reason", call->reason);
    text_str(t, "}");
}

/* A name and a prefix hold only bytes that stand in a URL as they are. */
static void write_target(char *target, const struct call *call)
{
    if (call->name)
        snprintf(target, TARGET_MAX, "/v1/locks/%s%s%s", call->name, call->verb ? "/" : "", call->verb ? call->verb : "");
    else
        snprintf(target, TARGET_MAX, "/v1/locks?limit=1000%s%s%s%s", call->prefix ? "&prefix=" : "", call->prefix ? call->prefix : "",
                 call->cursor ? "&cursor=" : "", call->cursor ? call->cursor : "");
}

static int code_of_status(int status, const char *error)
{
    switch (status) {
    case 200:
        return 0;
    case 401:
    case 403:
        return PAWL_ERR_FORBIDDEN;
    case 404:
        return strcmp(error, "not_held") == 0 ? PAWL_ERR_NOT_HELD : PAWL_ERR_PROTOCOL;
    case 408:
        return PAWL_ERR_UNAVAILABLE;
    case 409:
        return PAWL_ERR_HELD;
    case 410:
        return PAWL_ERR_LOST;
    case 429:
        if (strcmp(error, "too_many_logins") == 0)
            return PAWL_ERR_FORBIDDEN; /* a token that is not known won't be by asking again */
        return strcmp(error, "too_many_waiters") == 0 ? PAWL_ERR_BUSY : PAWL_ERR_UNAVAILABLE;
    case 501:
    case 505:
        return PAWL_ERR_PROTOCOL;
    default:
        if (status >= 500)
            return PAWL_ERR_UNAVAILABLE;
        return status >= 400 ? PAWL_ERR_ARGUMENT : PAWL_ERR_PROTOCOL;
    }
}

/* An answer of whatever status came. What is no JSON of pawld's may be the page of a proxy in between: of that only a 5xx is believed. */
static int judge(const struct call *call, const struct wire_answer *answer, struct reply *reply, struct pawl_problem *problem)
{
    bool no_memory;
    int read = reply_read(answer->body ? answer->body : "", answer->len, call->each, call->each_arg, reply, &no_memory);
    int code;

    if (no_memory)
        return call_problem(problem, PAWL_ERR_MEMORY, "out of memory");
    if (read >= 0 && answer->status == 200 && !(reply->seen & REPLY_ERROR))
        return 0;
    if (read >= 0 && answer->status != 200 && (reply->seen & REPLY_ERROR))
        return answered_problem(problem, code_of_status(answer->status, reply->error), answer->status, reply);
    code = answer->status >= 500 && answer->status != 501 && answer->status != 505 ? PAWL_ERR_UNAVAILABLE : PAWL_ERR_PROTOCOL;
    (void)call_problem(problem, code, "what answered is not pawld: status %d", answer->status);
    if (problem)
        problem->http_status = answer->status;
    return code;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int try_once(struct pawl *client, struct call *call, int64_t wait_ms, struct reply *reply, struct pawl_problem *problem)
{
    int64_t timeout_ms = call->timeout_ms > 0 ? call->timeout_ms : client->timeout_ms;
    struct wire_call wired = {.connect_ms = timeout_ms, .cancel_fd = call->cancel_fd, .stop_fd = call->stop_fd, .once = call->once};
    char target[TARGET_MAX], block[2048];
    struct wire_answer answer;
    enum wire_outcome outcome;
    struct text body;
    int code;

    text_init(&body, block, sizeof(block), 8192);
    if (call->verb)
        write_body(&body, call, wait_ms);
    write_target(target, call);
    wired.target = target;
    wired.body = call->verb ? body.at : NULL;
    wired.body_len = body.len;
    wired.answer_max = call->name ? ANSWER_MAX : LIST_ANSWER_MAX;
    call->ret_sent_us = moment_now_us();
    wired.deadline_us = moment_after(moment_after(call->ret_sent_us, wait_ms), timeout_ms);
    if (call->give_up_us > 0)
        wired.deadline_us = earlier(wired.deadline_us, call->give_up_us);
    if (body.failed) {
        text_close(&body);
        return call_problem(problem, PAWL_ERR_MEMORY, "out of memory");
    }
    outcome = wire_call(client->wire, &wired, &answer);
    text_close(&body);
    switch (outcome) {
    case WIRE_ANSWERED:
        code = judge(call, &answer, reply, problem);
        break;
    case WIRE_FAILED:
    case WIRE_LATE:
        code = call_problem(problem, PAWL_ERR_UNAVAILABLE, "%s", answer.problem);
        break;
    case WIRE_CANCELLED:
        code = call_problem(problem, PAWL_ERR_CANCELLED, "cancelled");
        break;
    case WIRE_NO_MEMORY:
        code = call_problem(problem, PAWL_ERR_MEMORY, "%s", answer.problem);
        break;
    default:
        code = call_problem(problem, PAWL_ERR_PROTOCOL, "what answered is not pawld: %s", answer.problem);
        break;
    }
    if (answer.sent && (code == PAWL_ERR_UNAVAILABLE || code == PAWL_ERR_CANCELLED || code == PAWL_ERR_MEMORY || code == PAWL_ERR_PROTOCOL))
        call->ret_uncertain = true;
    wire_answer_close(&answer);
    return code;
}

/* ---- all of them ---- */

struct call call_of(const struct pawl *client, const char *name, const char *verb)
{
    struct call call = {.name = name, .verb = verb, .budget_ms = -1, .cancel_fd = client->cancel_fd, .stop_fd = -1};

    return call;
}

int call_run(struct pawl *client, struct call *call, struct reply *ret_reply, struct pawl_problem *problem)
{
    int64_t begun_us = moment_now_us(), wait_end_us = moment_after(begun_us, call->wait_ms), outage_us = 0;
    int64_t budget_ms = call->budget_ms >= 0 ? call->budget_ms : client->budget_ms;
    int64_t timeout_ms = call->timeout_ms > 0 ? call->timeout_ms : client->timeout_ms;
    unsigned failures = 0;
    bool told = false;

    call->ret_tries = 0;
    call->ret_uncertain = false;
    for (;;) {
        int64_t wait_ms = call->wait_ms, now, again_us;
        int code;

        if (call->ret_tries++ > 0)
            wait_ms = wait_end_us > moment_now_us() ? (wait_end_us - moment_now_us()) / 1000 : 0;
        if (wait_ms < 0)
            wait_ms = 0;
        code = try_once(client, call, wait_ms, ret_reply, problem);
        if (code != PAWL_ERR_UNAVAILABLE || (call->once && call->ret_uncertain))
            return code;
        now = moment_now_us();
        if (now - call->ret_sent_us > timeout_ms * 1000 + 100000) {
            outage_us = now; /* parked, then cut */
            failures = 0;
        } else if (outage_us == 0) {
            outage_us = call->ret_sent_us;
        }
        again_us = moment_after(now, moment_back_off_ms(++failures, BACK_OFF_FIRST, BACK_OFF_CAP));
        if (again_us - outage_us > budget_ms * 1000 || (call->give_up_us > 0 && again_us >= call->give_up_us))
            return code;
        if (!told && client->on_retry && problem)
            client->on_retry(client->on_retry_arg, problem, (outage_us + budget_ms * 1000 - now) / 1000);
        told = true;
        if (wire_pause(client->wire, again_us, call->cancel_fd, call->stop_fd))
            return call_problem(problem, PAWL_ERR_CANCELLED, "cancelled");
    }
}
