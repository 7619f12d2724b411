/* The leases that this node vouches for: it granted or last renewed them, so it is the one that knows them when the store loses its data.
 *
 *   an answer grants or renews ---> in `leases` ---> its time is over: told; its delay, if it has one, goes to `delays` until that is over too
 *                                     |   ^
 *          attached to a life that    |   | the store answers that it stands
 *          may lack it                v   |
 *                                   put back ------> gone: told, dropped
 *                                     |   ^
 *                                     '---' the store failed: a moment later again
 *
 * Released, broken, taken over by another node or never told to its caller: it is dropped.
 *
 * Putting back is done by requests that no client made (PUTTING), one for each lease, a bounded number at a time. After every attach to a life of the data
 * that this node did not know, or whose window is open, each lease it vouches for, and each delay that stands after one, is put back (or, once the window
 * is closed, looked for). It is put back under the number that it had: should its grant turn out to be one that nobody could be told of, the cancel, which
 * the store gets later, finds it. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/broker_vouch.h"

#include <string.h>

#include "daemon/broker_news.h"
#include "daemon/broker_request.h"
#include "daemon/broker_state.h"
#include "daemon/broker_time.h"
#include "daemon/log.h"

#define EXPIRED_AT_ONCE 1000
#define PUTTING_MAX     128    /* leases being put back at one time */
#define PUT_AGAIN_US    100000 /* after the store failed to */

/* ---- taken in, and let out ---- */

static void remember(struct broker *b, const struct store_call *call, int64_t until_us, int64_t most_us, const char *caller)
{
    struct lease lease = {.id = call->lease_id,
                          .token = call->ret_token,
                          .deadline_us = until_us,
                          .granted_ms = call->ret_granted_ms,
                          .granted_us = broker_now_us(b),
                          .confirm = call->ret_confirm,
                          .delay_ms = call->holder.delay_ms,
                          .most_us = most_us,
                          .caller = caller,
                          .caller_len = strlen(caller),
                          .name = call->name,
                          .name_len = call->name_len,
                          .owner = call->holder.owner,
                          .owner_len = call->holder.owner_len};

    tell_outlived(b, call->name, call->name_len, lease.token, &lease.id);
    if (lease_table_put(b->leases, &lease) != 0)
        log_error("out_of_memory", LOG_STR("what", "lease table"));
    lease_table_see(b->delays, call->name, call->name_len, call->ret_token);
    broker_set_alarm(b);
}

void vouch_remember(struct broker_request *r)
{
    remember(r->broker, &r->call, r->lease_until_us, r->most_until_us, r->caller);
}

void vouch_done_late(struct broker *b, const struct store_call *call)
{
    const struct store_holder *holder = &call->holder;

    remember(b, call, call->sent_us + call->ret_ttl_ms * 1000, holder->most_ms > 0 ? call->sent_us + holder->most_ms * 1000 : INT64_MAX,
             call->caller ? call->caller : "");
}

/* A lease ended otherwise than by its release: nobody is granted the lock until then. */
static void remember_delay(struct broker *b, const struct lease *ended, int64_t until_us)
{
    struct lease delay = *ended;

    delay.deadline_us = until_us;
    if (delay.delay_ms > 0 && until_us > broker_now_us(b) && lease_table_put(b->delays, &delay) != 0)
        log_error("out_of_memory", LOG_STR("what", "lease table"));
}

/* The node that granted it forgets it; the delay is this one's to vouch for. It is counted from now: the break may have run at any moment before. */
void vouch_broken(struct broker_request *r)
{
    const struct store_holder *holder = &r->call.holder;
    struct broker *b = r->broker;
    const struct lease lease = {.token = holder->token,
                                .delay_ms = holder->delay_ms,
                                .most_us = INT64_MAX,
                                .name = r->name,
                                .name_len = r->name_len,
                                .owner = "",
                                .caller = ""};

    tell_broken(r);
    if (r->call.ret_broken.text[0]) /* also what a call confirms that ran before, and whose answer waits for replicas */
        lease_table_give_up(b->leases, r->name, r->name_len, &r->call.ret_broken, r->call.ret_confirm);
    lease_table_see(b->leases, r->name, r->name_len, holder->token + 1);
    remember_delay(b, &lease, broker_now_us(b) + holder->delay_ms * 1000);
    broker_set_alarm(b);
}

void vouch_see_holder(const struct broker_request *r)
{
    struct broker *b = r->broker;

    tell_outlived(b, r->name, r->name_len, r->call.holder.token, NULL);
    lease_table_see(b->leases, r->name, r->name_len, r->call.holder.token);
}

/* As far as this node knows: one that was renewed through another is that node's matter, whose message of it may have been missed. */
void vouch_expire(struct broker *b, int64_t now)
{
    const struct lease *lease;

    for (int i = 0; i < EXPIRED_AT_ONCE && (lease = lease_table_due(b->leases, now)) != NULL; i++) {
        tell_expired(b, lease);
        remember_delay(b, lease, lease->deadline_us + lease->delay_ms * 1000);
        if (b->recovering && lease->delay_ms > 0) { /* it may not have been put back yet: the round goes on with what is left of it */
            lease_table_take_again(b->delays, lease->name, lease->name_len, &lease->id);
            b->put_again_us = earlier(b->put_again_us, now);
        }
        (void)lease_table_expire(b->leases, now, 1);
    }
    (void)lease_table_expire(b->delays, now, EXPIRED_AT_ONCE);
}

static void forget_grant_in(struct lease_table *table, const struct broker_request *r)
{
    const struct lease *lease = lease_table_find(table, r->name, r->name_len, &r->lease_id, 0);

    if (lease && lease->confirm == r->call.confirm)
        lease_table_drop(table, r->name, r->name_len, &r->lease_id);
}

/* Nobody was told of this grant: this node does not vouch for it. Unless another call with the lease id was told since. */
void vouch_forget_grant(const struct broker_request *r)
{
    forget_grant_in(r->broker->leases, r);
    forget_grant_in(r->broker->delays, r);
}

/* What may be held of it from now on, for the store; 0: no bound. */
static int64_t known_most_ms(const struct broker *b, const struct lease *lease)
{
    int64_t left_ms = (lease->most_us - broker_now_us(b)) / 1000;

    return lease->most_us == INT64_MAX ? 0 : left_ms > 1 ? left_ms : 1;
}

static bool is_waited_for(const struct broker_request *release)
{
    const struct wait_line *line = wait_queue_line(release->broker->waiters, release->name, release->name_len);

    return line && wait_line_find(line, &release->lease_id, NULL);
}

/* Also what a renewal confirms whose answer is still on its way. Should a request wait here under this very lease id, it is older than this call, and its
 * grant to come is not meant. */
static void give_up(struct broker_request *release)
{
    struct broker *b = release->broker;

    if (is_waited_for(release))
        lease_table_drop(b->leases, release->name, release->name_len, &release->lease_id);
    else
        lease_table_give_up(b->leases, release->name, release->name_len, &release->lease_id, release->call.confirm);
}

/* It was given up when its release was submitted. But that is forgotten when a connection ends, which both this call and a renewal before it may have outlasted,
 * and the renewal's answer may have been taken in since; or be still to come, if replicas are waited for. */
void vouch_released(const struct broker_request *r)
{
    struct broker *b = r->broker;

    lease_table_see(b->leases, r->name, r->name_len, r->call.ret_token + 1);
    if (!is_waited_for(r))
        lease_table_give_up(b->leases, r->name, r->name_len, &r->lease_id, r->call.confirm);
}

static void add_known(struct broker_request *r, const struct lease *known)
{
    struct broker *b = r->broker;
    struct store_call *call = &r->call;

    call->token = known ? known->token : 0;
    call->granted_ms = known ? known->granted_ms : 0;
    call->delay_ms = known ? known->delay_ms : 0;
    call->most_ms = known ? known_most_ms(b, known) : 0;
    call->known_us = broker_now_us(b);
    call->confirm = ++b->confirms;
    r->held_ms = known ? (broker_now_us(b) - known->granted_us) / 1000 : -1;
    if (known && known->owner_len <= PAWL_OWNER_MAX) {
        memcpy(r->owner, known->owner, known->owner_len);
        r->owner_len = call->owner_len = known->owner_len;
    }
    if (known && r->op == STORE_RELEASE)
        metrics_observe(b->metrics, HISTOGRAM_HOLD, broker_now_us(b) - known->granted_us);
}

void vouch_fill_call(struct broker_request *r)
{
    struct broker *b = r->broker;
    bool release = r->op == STORE_RELEASE;

    if (release)
        vouch_expire(b, broker_now_us(b)); /* should it be over, that is told, since nobody will see its end afterwards */
    add_known(r, lease_table_find(b->leases, r->name, r->name_len, &r->lease_id, broker_now_us(b)));
    if (release)
        give_up(r);
}

void vouch_drop(const struct broker_request *r)
{
    lease_table_drop(r->broker->leases, r->name, r->name_len, &r->lease_id);
}

void vouch_forget(struct broker *b, const struct lease_id *id, uint64_t confirm, const char *name, size_t name_len)
{
    lease_table_give_up(b->leases, name, name_len, id, confirm);
    lease_table_give_up(b->delays, name, name_len, id, confirm); /* it was renewed elsewhere just before it ended here */
}

/* What the node that broke it vouches for is vouched for here too: its answer may be lost together with the data, and then it knows neither token nor delay.
 * Both are this node's own: what a message says is not put into the store. */
void vouch_broken_elsewhere(struct broker *b, const struct lease_id *id, uint64_t confirm, const char *name, size_t name_len)
{
    const struct lease *known = lease_table_find(b->leases, name, name_len, id, 0);
    struct lease broken;

    if (!known)
        known = lease_table_find(b->delays, name, name_len, id, 0);
    if (known && known->confirm <= confirm) {
        broken = *known;
        broken.id.text[0] = '\0';
        remember_delay(b, &broken, broker_now_us(b) + known->delay_ms * 1000);
    }
    vouch_forget(b, id, confirm, name, name_len);
    broker_set_alarm(b);
}

void vouch_answers_lost(struct broker *b)
{
    lease_table_answers_lost(b->leases);
    lease_table_answers_lost(b->delays);
}

/* ---- put back ---- */

/* `over`: the lease has ended, and its deadline is that of its delay. False without memory. */
static bool put_back(struct broker *b, const struct lease *lease, bool over)
{
    int64_t now = broker_now_us(b), until_us = lease->deadline_us + (over ? 0 : lease->delay_ms * 1000);
    struct broker_request *r = until_us - now >= 1000 ? broker_request_new(b) : NULL;

    if (!r)
        return until_us - now < 1000;
    r->op = STORE_PUT_BACK;
    r->state = PUTTING;
    r->over = over;
    r->lease_id = lease->id;
    r->name_len = lease->name_len;
    r->owner_len = lease->owner_len;
    memcpy(r->name, lease->name, lease->name_len);
    memcpy(r->owner, lease->owner, lease->owner_len);
    r->call = (struct store_call){.op = STORE_PUT_BACK,
                                  .name = r->name,
                                  .name_len = r->name_len,
                                  .owner = r->owner,
                                  .owner_len = r->owner_len,
                                  .lease_id = lease->id,
                                  .token = lease->token,
                                  .granted_ms = lease->granted_ms,
                                  .ttl_ms = (until_us - now) / 1000,
                                  .known_us = now,
                                  .confirm = lease->confirm,
                                  .repeat_confirm = ++b->confirms};
    r->call.broken = lease->id.text[0] == '\0';
    if (!r->call.broken) {
        r->call.delay_ms = lease->delay_ms;
        r->call.ttl_ms -= lease->delay_ms;
        r->call.most_ms = known_most_ms(b, lease);
    }
    b->putting++;
    request_send(r);
    return true;
}

static void put_back_from(struct broker *b, struct lease_table *table)
{
    const struct lease *lease;

    while (b->attached && b->putting < PUTTING_MAX && (lease = lease_table_take(table)) != NULL) {
        if (put_back(b, lease, table == b->delays))
            continue;
        lease_table_take_again(table, lease->name, lease->name_len, &lease->id);
        b->put_again_us = broker_now_us(b) + PUT_AGAIN_US;
        return;
    }
}

static void put_back_more(struct broker *b)
{
    put_back_from(b, b->leases);
    put_back_from(b, b->delays);
}

void vouch_begin_putting_back(struct broker *b)
{
    lease_table_begin_round(b->leases);
    lease_table_begin_round(b->delays);
    put_back_more(b);
}

void vouch_put_back_due(struct broker *b, int64_t now)
{
    if (b->put_again_us > now)
        return;
    b->put_again_us = INT64_MAX;
    put_back_more(b);
}

static void lease_gone(struct broker_request *r)
{
    struct broker *b = r->broker;
    uint64_t left_out;

    vouch_drop(r);
    metrics_add(b->metrics, METRIC_GONE, 1);
    tell_put_back(r, false);
    if (log_gate_pass(&b->gone_gate, broker_now_us(b), &left_out))
        log_warn("lease_gone", LOG_TEXT("name", r->name, r->name_len), LOG_INT("token", r->call.token),
                 LOG_TEXT("owner", r->owner, r->owner_len), LOG_ID("lease", r->lease_id.text), LOG_INT("suppressed", left_out));
}

void vouch_put_back_answered(struct broker_request *r)
{
    struct broker *b = r->broker;
    bool lives = !r->over && r->call.ttl_ms >= 1;

    b->putting--;
    if (r->call.result == STORE_DONE) {
        metrics_add(b->metrics, METRIC_PUT_BACK, lives);
        if (lives)
            tell_put_back(r, true);
    } else if (r->call.result == STORE_LOST && lives) {
        lease_gone(r);
    } else if (r->call.result != STORE_LOST) {
        /* the next attach begins again; a store that failed for another reason is asked again soon. The lease may have ended meanwhile: then for its delay */
        lease_table_take_again(b->leases, r->name, r->name_len, &r->lease_id);
        lease_table_take_again(b->delays, r->name, r->name_len, &r->lease_id);
        b->put_again_us = broker_now_us(b) + PUT_AGAIN_US;
    }
    request_let_go(r);
    if (b->put_again_us == INT64_MAX)
        put_back_more(b);
    broker_set_alarm(b);
}
