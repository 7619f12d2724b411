/* Every number pawl publishes, declared once: the list makes the enum, the text of GET /metrics and the check of docs/operations.md.
 * No label per lock name, ever: memory and cardinality stay bounded. Pure: no I/O, no clock. */
#ifndef PAWL_METRICS_H
#define PAWL_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/text.h"

/* clang-format off */
/*      id                  type      name                                   help */
#define PAWL_METRICS(X) \
    X(GRANTS,               counter,  "pawl_grants_total",                   "Leases granted.") \
    X(REGRANTS,             counter,  "pawl_repeated_acquires_total",        "Acquires answered with the lease that the same lease id holds already.") \
    X(REFUSALS,             counter,  "pawl_refusals_total",                 "Acquires refused because another lease held the lock.") \
    X(RENEWALS,             counter,  "pawl_renewals_total",                 "Leases renewed.") \
    X(RELEASES,             counter,  "pawl_releases_total",                 "Leases released by their holder.") \
    X(EXPIRED,              counter,  "pawl_expired_total",                  "Leases of this node that ran out, as far as it knows.") \
    X(BREAKS,               counter,  "pawl_breaks_total",                   "Locks broken by an operator.") \
    X(LOST,                 counter,  "pawl_lease_lost_total",               "Calls answered lease_lost.") \
    X(UNDONE,               counter,  "pawl_undone_grants_total",            "Grants given back because nobody could receive them.") \
    X(UNKNOWN,              counter,  "pawl_unknown_outcomes_total",         "Store calls whose outcome was not learned.") \
    X(NOT_REPLICATED,       counter,  "pawl_not_replicated_total",           "Grants and renewals that too few replicas confirmed.") \
    X(STORE_ERRORS,         counter,  "pawl_store_errors_total",             "Store calls that failed.") \
    X(FENCE_RAISES,         counter,  "pawl_fence_raises_total",             "Attaches that raised the fence (a new life, or a node that had seen more).") \
    X(ATTACHES,             counter,  "pawl_store_attaches_total",           "Attaches to the store.") \
    X(OPENINGS,             counter,  "pawl_store_openings_total",           "Attaches that opened a new life of the data.") \
    X(CONNECTS,             counter,  "pawl_store_connects_total",           "Connection attempts to the store.") \
    X(WAKE_MISSES,          counter,  "pawl_wakeups_for_nothing_total",      "Waiters woken by a release or a message that did not get the lock.") \
    X(PUT_BACK,             counter,  "pawl_leases_put_back_total",          "Leases put back, or found still there, after the data began a new life.") \
    X(GONE,                 counter,  "pawl_leases_gone_total",              "Leases of this node that could not be put back after the data began a new life.") \
    X(LEASES,               gauge,    "pawl_leases",                         "Live leases that this node granted or last renewed.") \
    X(STORE_PENDING,        gauge,    "pawl_store_pending",                  "Store calls without an answer yet.") \
    X(STORE_WAITING,        gauge,    "pawl_store_waiting",                  "Store calls that wait to be sent, many being on their way.") \
    X(STORE_UNSENT,         counter,  "pawl_store_unsent_total",             "Store calls refused because they would have waited too long to be sent.") \
    X(BUSY_POLLS,           counter,  "pawl_store_busy_polls_total",         "Store calls whose answer was waited for without sleeping.") \
    X(VAIN_BUSY_POLLS,      counter,  "pawl_store_vain_busy_polls_total",    "Of these, those that ended in sleep before the answer came.") \
    X(ATTACHED,             gauge,    "pawl_store_attached",                 "1 while the store can be used.") \
    X(RECOVERING,           gauge,    "pawl_recovering",                     "1 while the recovery window is open.") \
    X(READY,                gauge,    "pawl_ready",                          "1 while grants can be made.") \
    X(CONNECTIONS,          gauge,    "pawl_connections",                    "Client connections open.") \
    X(CONNECTIONS_ACCEPTED, counter,  "pawl_connections_accepted_total",     "Client connections accepted.") \
    X(CONNECTIONS_REFUSED,  counter,  "pawl_connections_refused_total",      "Client connections refused at the limit.") \
    X(ACCEPT_ERRORS,        counter,  "pawl_accept_errors_total",            "accept() calls that failed.") \
    X(HTTP_BAD,             counter,  "pawl_http_refused_requests_total",    "Requests that the HTTP reader refused.") \
    X(HTTP_UNPROVEN,        counter,  "pawl_http_unproven_replies_total",    "Grants whose connection was reset while they were on their way.") \
    X(HTTP_TIMEOUTS,        counter,  "pawl_http_timeouts_total",            "Connections ended by a deadline.") \
    X(TLS_HANDSHAKES,       counter,  "pawl_tls_handshakes_total",           "TLS handshakes with clients that succeeded.") \
    X(TLS_FAILED,           counter,  "pawl_tls_handshakes_failed_total",    "TLS handshakes with clients that failed or took too long.") \
    X(TLS_EXPIRY,           gauge,    "pawl_tls_certificate_expiry_timestamp_seconds", "When the certificate of the tls: addresses ends, in seconds since 1970; 0 without one.") \
    X(STREAMS,              gauge,    "pawl_event_streams",                  "Event streams open.") \
    X(STREAMS_DROPPED,      counter,  "pawl_event_streams_dropped_total",    "Event streams ended because their client read too slowly.") \
    X(WAITERS,              gauge,    "pawl_waiters",                        "Requests waiting for a lock on this node.")
/* clang-format on */

/* clang-format off */
/*      id           name                             help                                          (buckets: powers of two, 16 us to 16 s) */
#define PAWL_HISTOGRAMS(X) \
    X(STORE_RTT,     "pawl_store_roundtrip_seconds",  "From sending a store call to its answer.") \
    X(HOLD,          "pawl_hold_seconds",             "From grant to release.") \
    X(WAIT,          "pawl_wait_seconds",             "From asking to grant, of acquires that wait.") \
    X(HANDOVER,      "pawl_handover_seconds",         "From the release, or the message of it, to the next waiter's grant.")
/* clang-format on */

enum metric {
#define PAWL_METRIC_ENUM(id, type, name, help) METRIC_##id,
    PAWL_METRICS(PAWL_METRIC_ENUM)
#undef PAWL_METRIC_ENUM
        METRIC_COUNT
};
enum histogram {
#define PAWL_HISTOGRAM_ENUM(id, name, help) HISTOGRAM_##id,
    PAWL_HISTOGRAMS(PAWL_HISTOGRAM_ENUM)
#undef PAWL_HISTOGRAM_ENUM
        HISTOGRAM_COUNT
};

#define METRICS_BUCKETS   21 /* 16 us << i, i = 0..20 */
#define METRICS_CALLS_MAX 32

struct metrics {
    uint64_t value[METRIC_COUNT];
    struct {
        uint64_t bucket[METRICS_BUCKETS + 1]; /* not cumulative; the last is +Inf */
        uint64_t count, sum_us;
    } histogram[HISTOGRAM_COUNT];
    /* pawl_requests_total{call="acquire",code="200"}: rows are routes, columns every HTTP status that PAWL_ERRORS knows, and 200 */
    const char *const *calls;
    size_t call_count;
    uint64_t (*requests)[METRICS_CALLS_MAX]; /* by status column, then call */
};

/* `calls`: names of the routes, static. Returns 0, or -1 without memory. */
int metrics_init(struct metrics *m, const char *const *calls, size_t call_count);
void metrics_close(struct metrics *m);
static inline void metrics_add(struct metrics *m, enum metric id, uint64_t n)
{
    m->value[id] += n;
}
static inline void metrics_set(struct metrics *m, enum metric id, uint64_t n)
{
    m->value[id] = n;
}
void metrics_observe(struct metrics *m, enum histogram id, int64_t us);
void metrics_request(struct metrics *m, size_t call, int status);
/* Prometheus text format 0.0.4; requests with a count of zero are left out. Also writes pawl_build_info{version="..."} 1. */
void metrics_render(const struct metrics *m, struct text *out);

#endif
