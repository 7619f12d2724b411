/* The broker's news: what happened to a lease is told here and nowhere else, so that one look at this file shows all that can be heard of it.
 *
 * It goes two ways. To the log: what makes up a good day (granted, renewed, released) at debug, how a lease ends otherwise at info. And to the host, as a
 * `struct lease_event`, for the ring of events and the streams. A lease that this node vouches for is told of before the lease table
 * forgets it, while who held it, and for how long, can still be said. The strings in an event are the request's or the table's. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/broker_news.h"

#include <string.h>

#include "daemon/broker_state.h"
#include "daemon/log.h"

static void happened(const struct broker *b, const struct lease_event *event)
{
    if (b->host.happened)
        b->host.happened(b->host.arg, event);
}

/* What the request, its owner apart, says of the lease. */
static struct lease_event event_of(const struct broker_request *r, enum lease_event_kind kind, int64_t token)
{
    return (struct lease_event){.kind = kind,
                                .name = r->name,
                                .name_len = r->name_len,
                                .lease_id = r->lease_id.text,
                                .token = token,
                                .waited_ms = -1,
                                .held_ms = -1};
}

static void set_reason(struct lease_event *event, const char *reason)
{
    event->reason = reason;
    event->reason_len = strlen(reason);
}

void tell_granted(const struct broker_request *r, bool fresh)
{
    const struct broker *b = r->broker;
    struct lease_event event = event_of(r, EVENT_GRANT, r->ret_token);

    log_debug(fresh ? "granted" : "granted_again", LOG_TEXT("name", r->name, r->name_len), LOG_INT("token", r->ret_token),
              LOG_ID("lease", r->lease_id.text), LOG_TEXT("owner", r->call.holder.owner, r->call.holder.owner_len),
              LOG_INT("ttl_ms", r->call.ret_ttl_ms), LOG_INT("waited_ms", (broker_now_us(b) - r->submitted_us) / 1000),
              LOG_STR("caller", r->caller), LOG_STR("peer", r->peer));
    if (!fresh)
        return;
    event.owner = r->owner;
    event.owner_len = r->owner_len;
    event.waited_ms = (broker_now_us(b) - r->submitted_us) / 1000;
    happened(b, &event);
}

/* No event: there would be little else. */
void tell_renewed(const struct broker_request *r)
{
    log_debug("renewed", LOG_TEXT("name", r->name, r->name_len), LOG_INT("token", r->ret_token), LOG_ID("lease", r->lease_id.text),
              LOG_TEXT("owner", r->call.holder.owner, r->call.holder.owner_len), LOG_INT("ttl_ms", r->call.ret_ttl_ms),
              LOG_INT("held_ms", r->held_ms), LOG_STR("peer", r->peer));
}

void tell_released(struct broker_request *r)
{
    struct lease_event event = event_of(r, EVENT_RELEASE, r->call.ret_token);

    if (r->told_released)
        return;
    r->told_released = true;
    log_debug("released", LOG_TEXT("name", r->name, r->name_len), LOG_INT("token", r->call.ret_token), LOG_ID("lease", r->lease_id.text),
              LOG_TEXT("owner", r->owner, r->owner_len), LOG_INT("held_ms", r->held_ms), LOG_STR("peer", r->peer));
    event.owner = r->owner;
    event.owner_len = r->owner_len;
    event.held_ms = r->held_ms;
    happened(r->broker, &event);
}

void tell_broken(const struct broker_request *r)
{
    const struct store_holder *holder = &r->call.holder;
    const struct lease *known = lease_table_at(r->broker->leases, r->name, r->name_len);
    struct lease_event event = event_of(r, EVENT_BREAK, holder->token);

    event.lease_id = known && known->token == holder->token ? known->id.text : NULL;
    event.owner = holder->owner;
    event.owner_len = holder->owner_len;
    event.held_ms = holder->held_ms;
    if (r->reason) {
        event.reason = r->reason;
        event.reason_len = r->reason_len;
    }
    happened(r->broker, &event);
}

void tell_undone(const struct broker_request *r)
{
    struct lease_event event = event_of(r, EVENT_UNDONE, r->call.ret_token);

    log_debug("undone", LOG_TEXT("name", r->name, r->name_len), LOG_ID("lease", r->lease_id.text),
              LOG_TEXT("owner", r->owner, r->owner_len));
    event.owner = r->owner;
    event.owner_len = r->owner_len;
    happened(r->broker, &event);
}

/* A lease that this node vouched for until it was renewed or released is over; of any other it knows no more than its caller. */
void tell_vouched_lost(const struct broker_request *r, const char *reason)
{
    struct lease_event event = event_of(r, EVENT_LOST, r->call.token);

    if (r->call.token <= 0)
        return;
    event.owner = r->owner;
    event.owner_len = r->owner_len;
    event.held_ms = r->held_ms;
    set_reason(&event, reason);
    happened(r->broker, &event);
}

void tell_lost(const struct broker_request *r)
{
    bool renewal = r->op == STORE_RENEW;

    if (r->op == STORE_CHECK) {
        log_debug("token_refused", LOG_TEXT("name", r->name, r->name_len), LOG_INT("token", r->token), LOG_STR("peer", r->peer));
        return;
    }
    log_info("lease_lost", LOG_TEXT("name", r->name, r->name_len), LOG_ID("lease", r->lease_id.text),
             LOG_TEXT("owner", r->owner, r->owner_len), LOG_STR("call", renewal ? "renew" : "release"), LOG_INT("held_ms", r->held_ms),
             LOG_STR("peer", r->peer));
    tell_vouched_lost(r, renewal ? "it was over when it was to be renewed" : "it was over when it was to be released");
}

void tell_put_back(const struct broker_request *r, bool stands)
{
    struct lease_event event = event_of(r, stands ? EVENT_RECOVERED : EVENT_LOST, r->call.token);

    event.owner = r->owner;
    event.owner_len = r->owner_len;
    if (!stands)
        set_reason(&event, "gone when the data began a new life");
    happened(r->broker, &event);
}

/* A lease of the table ends, by its time or (with a reason) before. */
static void tell_ended(const struct broker *b, const struct lease *lease, const char *reason)
{
    struct lease_event event = {.kind = reason ? EVENT_LOST : EVENT_EXPIRE,
                                .name = lease->name,
                                .name_len = lease->name_len,
                                .owner = lease->owner,
                                .owner_len = lease->owner_len,
                                .lease_id = lease->id.text,
                                .token = lease->token,
                                .waited_ms = -1,
                                .held_ms = (broker_now_us(b) - lease->granted_us) / 1000};

    if (reason)
        set_reason(&event, reason);
    happened(b, &event);
}

void tell_expired(const struct broker *b, const struct lease *lease)
{
    log_info("expired", LOG_TEXT("name", lease->name, lease->name_len), LOG_INT("token", lease->token), LOG_ID("lease", lease->id.text),
             LOG_TEXT("owner", lease->owner, lease->owner_len), LOG_INT("held_ms", (broker_now_us(b) - lease->granted_us) / 1000));
    metrics_add(b->metrics, METRIC_EXPIRED, 1);
    tell_ended(b, lease, NULL);
}

void tell_store(const struct broker *b, enum lease_event_kind kind, const char *reason)
{
    struct lease_event event = {.kind = kind, .waited_ms = -1, .held_ms = -1};

    if (reason)
        set_reason(&event, reason);
    happened(b, &event);
}

/* A greater token was seen at this lock, that of `holder` (NULL: a stranger): the lease in the table, if it is another's, is over. Its deadline comes no later
 * than its end in the store; so if it has not come, something else ended it. */
void tell_outlived(const struct broker *b, const char *name, size_t name_len, int64_t token, const struct lease_id *holder)
{
    const struct lease *lease = lease_table_at(b->leases, name, name_len);

    if (!lease || lease->token >= token || (holder && strcmp(holder->text, lease->id.text) == 0))
        return;
    if (lease->deadline_us <= broker_now_us(b))
        tell_expired(b, lease);
    else
        tell_ended(b, lease, "another lease holds the lock");
}
