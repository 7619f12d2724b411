/* The calls that ask once: renew, release, check, break, inspect, and what a list has in common with them. The store's answer is told as it is, and what it
 * means for leases, lines and listeners is done first. For leases it means the same when the client has left; only nobody is told. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/broker_calls.h"

#include "daemon/broker_acquire.h"
#include "daemon/broker_lines.h"
#include "daemon/broker_listing.h"
#include "daemon/broker_news.h"
#include "daemon/broker_request.h"
#include "daemon/broker_state.h"
#include "daemon/broker_vouch.h"

/* The lease is this node's to vouch for, also when its client has left. A shorter one is waited for anew. */
static void renewed(struct broker_request *r)
{
    r->ret_token = r->call.ret_token;
    request_take_ends(r);
    vouch_remember(r);
    lines_after_lease(r->broker, r);
}

static void renew_answered(struct broker_request *r)
{
    renewed(r);
    tell_renewed(r);
    if (broker_left_ms(r->broker, r->lease_until_us) < 1) {
        request_answer(r, PAWL_E_STORE_UNAVAILABLE, "the answer came too late: the lease may be over");
        return;
    }
    metrics_add(r->broker->metrics, METRIC_RENEWALS, 1);
    request_answer(r, PAWL_OK, NULL);
}

static void released(struct broker_request *r)
{
    tell_released(r);
    vouch_released(r);
    acquire_wake_of_answer(r);
}

static void release_answered(struct broker_request *r)
{
    r->ret_token = r->call.ret_token;
    metrics_add(r->broker->metrics, METRIC_RELEASES, 1);
    released(r);
    request_answer(r, PAWL_OK, NULL);
}

static void broken(struct broker_request *r)
{
    vouch_broken(r);
    acquire_wake_of_answer(r);
}

static void plain_answered(struct broker_request *r)
{
    switch (r->op) {
    case STORE_RENEW:
        renew_answered(r);
        return;
    case STORE_RELEASE:
        release_answered(r);
        return;
    case STORE_LIST:
        listing_answered(r);
        return;
    case STORE_BREAK:
        metrics_add(r->broker->metrics, METRIC_BREAKS, 1);
        broken(r);
        request_answer(r, PAWL_OK, NULL);
        return;
    case STORE_CHECK:
        r->lease_until_us = r->call.sent_us + r->call.ret_ttl_ms * 1000;
        request_answer(r, PAWL_OK, NULL);
        return;
    default:
        request_answer(r, PAWL_OK, NULL);
    }
}

/* The table has forgotten the lease when its release was sent, and nobody will see it end. */
static void tell_release_failed(const struct broker_request *r)
{
    if (r->op == STORE_RELEASE)
        tell_vouched_lost(r, "its release failed: it ends by its time, if not by then");
}

static void call_refused(struct broker_request *r)
{
    struct broker *b = r->broker;

    switch (r->call.result) {
    case STORE_LOST:
        if (r->op == STORE_BREAK) {
            request_answer(r, PAWL_E_NOT_HELD, NULL);
            return;
        }
        if (r->op == STORE_RENEW)
            vouch_drop(r);
        metrics_add(b->metrics, METRIC_LOST, 1);
        tell_lost(r);
        request_answer(r, PAWL_E_LEASE_LOST, NULL);
        return;
    case STORE_RECOVERING:
        request_answer(r, PAWL_E_RECOVERING, NULL);
        return;
    case STORE_NOT_REPLICATED: /* a renewal: it stands */
        renewed(r);
        metrics_add(b->metrics, METRIC_NOT_REPLICATED, 1);
        request_answer(r, PAWL_E_NOT_REPLICATED, "too few replicas confirmed the renewal in time: repeat it");
        return;
    case STORE_UNKNOWN:
        metrics_add(b->metrics, METRIC_UNKNOWN, 1);
        tell_release_failed(r);
        request_answer(r, PAWL_E_STORE_UNAVAILABLE, r->call.problem);
        return;
    default:
        metrics_add(b->metrics, METRIC_STORE_ERRORS, 1);
        tell_release_failed(r);
        request_answer(r, PAWL_E_STORE_UNAVAILABLE, r->call.problem);
    }
}

void calls_answered(struct broker_request *r)
{
    if (r->call.result == STORE_DONE)
        plain_answered(r);
    else
        call_refused(r);
}

void calls_left(struct broker_request *r)
{
    const struct store_call *call = &r->call;

    if (call->result == STORE_DONE && r->op == STORE_RELEASE)
        released(r);
    else
        tell_release_failed(r);
    if (call->result == STORE_DONE && r->op == STORE_BREAK)
        broken(r);
    if ((call->result == STORE_DONE || call->result == STORE_NOT_REPLICATED) && r->op == STORE_RENEW)
        renewed(r);
}
