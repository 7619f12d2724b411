/* The set of connections: who is let in, who has run out of time, and the end of all.
 *
 * Lists are in order of entry, so the front of each is the next to run out of time: one tick pops the fronts, and no request costs a timer. The tick is there
 * as long as there are connections.
 *
 * The turn list holds connections that want a run without an event of their own: what the service did from its calls is worked off there, by a timer of 0 ms.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/http_conns.h"

#include <stdlib.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include "daemon/clock.h"
#include "daemon/http_conn.h"
#include "proto/errors.h"

#define TICK_MS           100
#define LINGER_MS         2000
#define YOUNG_MS          500 /* a connection that made itself so lately is about to say something */
#define TURNED_AWAY_MAX   64  /* clients over the limit whose 429 is seen off properly at one time */
#define SPARE_DESCRIPTORS 16  /* the last ones are for the store and the log, not for clients */

_Static_assert(HTTP_INPUT_MAX > HTTP_READER_RETAINS, "an unfinished request must leave room to read on");

/* ---- the turn ---- */

static void arm_turn(struct http_conns *set)
{
    static const struct timeval at_once = {0, 0};

    if (!set->turn_armed) {
        set->turn_armed = event_add(set->turn, &at_once) == 0; /* failed: the tick tries again */
    }
}

void http_conns_defer(struct http_conn *c)
{
    if (!c->in_turn) {
        TAILQ_INSERT_TAIL(&c->set->turn_list, c, turn_link);
        c->set->turn_length++;
        c->in_turn = true;
    }
    arm_turn(c->set);
}

static void leave_turn(struct http_conn *c)
{
    if (c->in_turn) {
        TAILQ_REMOVE(&c->set->turn_list, c, turn_link);
        c->set->turn_length--;
        c->in_turn = false;
    }
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
    struct http_conns *set = arg;
    struct http_conn *c;

    (void)fd;
    (void)what;
    set->turn_armed = false;
    /* Those who defer again, or come only now, have the next turn. */
    for (size_t n = set->turn_length; n > 0 && (c = TAILQ_FIRST(&set->turn_list)) != NULL; n--) {
        leave_turn(c);
        http_conn_enter(c);
        http_run(c);
        http_conn_leave(c);
    }
    if (set->draining && set->total == 0 && !set->told_empty) {
        set->told_empty = true;
        set->emptied(set->emptied_arg); /* may free the set */
    }
}

/* ---- the tick ---- */

static void read_time(struct http_conns *set)
{
    set->now_us = clock_now_us(&clock_boottime);
    http_date_set(&set->date, time(NULL));
}

static void too_slow(struct http_conn *c)
{
    c->set->counts.timeouts++;
    http_conn_refuse(c, PAWL_E_TIMEOUT,
                     c->state == HEAD ? "the head of the request did not arrive in time" : "the body of the request did not arrive in time",
                     c->reader.method == HTTP_HEAD);
}

/* There is no way to tell it why. */
static void greets_too_slowly(struct http_conn *c)
{
    c->set->counts.timeouts++;
    http_conn_tell_refused(c, "the handshake did not end in time");
    http_conn_close(c, false);
}

static void idle_too_long(struct http_conn *c)
{
    if (http_output_pending(&c->output) > 0) {
        http_conn_move(c, IDLE); /* a slow reader of its last reply: that has a deadline of its own */
    } else {
        http_conn_begin_close(c);
    }
}

static void lingered(struct http_conn *c)
{
    http_conn_close(c, false);
}

static void stuck_too_long(struct http_conn *c)
{
    c->set->counts.timeouts++;
    http_conn_close(c, true);
}

static void expire(struct http_conns *set, struct conn_list *list, int64_t limit_ms, void (*end)(struct http_conn *c))
{
    /* since_us is up to a tick too early; so nothing ends before its time */
    const int64_t born_before = set->now_us - (limit_ms + TICK_MS) * 1000;
    struct http_conn *c;

    while ((c = TAILQ_FIRST(list)) != NULL && (list == &set->stuck ? c->moved_us : c->since_us) <= born_before) {
        http_conn_enter(c);
        end(c);
        http_conn_leave(c);
    }
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct http_conns *set = arg;
    struct http_conn *c;

    (void)fd;
    (void)what;
    read_time(set);
    expire(set, &set->lists[GREETING], set->draining ? YOUNG_MS : set->config.head_timeout_ms,
           set->draining ? lingered : greets_too_slowly);
    expire(set, &set->lists[IDLE], set->draining ? YOUNG_MS : set->config.idle_timeout_ms, idle_too_long);
    expire(set, &set->lists[HEAD], set->config.head_timeout_ms, too_slow);
    expire(set, &set->lists[BODY], set->config.body_timeout_ms, too_slow);
    expire(set, &set->lists[LINGER], LINGER_MS, lingered);
    expire(set, &set->stuck, set->config.stuck_timeout_ms, stuck_too_long);
    for (c = TAILQ_FIRST(&set->lists[LINGER]); c != NULL; c = TAILQ_NEXT(c, link)) {
        if (http_output_has_receipts(&c->output)) {
            http_conns_defer(c); /* no event tells that the last byte was acknowledged */
        }
    }
    if (!TAILQ_EMPTY(&set->turn_list)) {
        arm_turn(set);
    }
}

static void begin_ticking(struct http_conns *set)
{
    static const struct timeval interval = {0, TICK_MS * 1000L};

    if (!event_pending(set->tick, EV_TIMEOUT, NULL)) {
        read_time(set);
        (void)event_add(set->tick, &interval);
    }
}

/* ---- the set ---- */

/* Descriptors are given lowest first: one that is near the limit means that nearly all are in use. */
static int fd_ceiling(void)
{
    struct rlimit limit;
    rlim_t spare = SPARE_DESCRIPTORS;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > INT32_MAX) {
        return INT32_MAX;
    }
    if (spare > limit.rlim_cur / 4) {
        spare = limit.rlim_cur / 4;
    }
    return (int)(limit.rlim_cur - spare);
}

struct http_conns *http_conns_new(struct event_base *base, const struct http_front_config *config, const struct http_service *service,
                                  void (*emptied)(void *arg), void *arg)
{
    struct http_conns *set = calloc(1, sizeof(*set));

    if (set == NULL) {
        return NULL;
    }
    set->base = base;
    set->config = *config;
    set->service = *service;
    set->emptied = emptied;
    set->emptied_arg = arg;
    set->fd_ceiling = fd_ceiling();
    for (int i = 0; i < STATE_COUNT; i++) {
        TAILQ_INIT(&set->lists[i]);
    }
    TAILQ_INIT(&set->stuck);
    TAILQ_INIT(&set->turn_list);
    set->tick = event_new(base, -1, EV_PERSIST, on_tick, set);
    set->turn = event_new(base, -1, 0, on_turn, set);
    if (set->tick == NULL || set->turn == NULL) {
        http_conns_free(set);
        return NULL;
    }
    return set;
}

void http_conns_free(struct http_conns *set)
{
    if (set == NULL) {
        return;
    }
    for (int i = 0; i < STATE_COUNT; i++) {
        struct http_conn *c;

        while ((c = TAILQ_FIRST(&set->lists[i])) != NULL) {
            http_conn_enter(c);
            http_conn_close(c, false);
            http_conn_leave(c);
        }
        if (i == DEAD && set->total > 0) {
            i = -1; /* whoever was told of a loss may have answered another, which is in another list now */
        }
    }
    if (set->tick != NULL) {
        event_free(set->tick);
    }
    if (set->turn != NULL) {
        event_free(set->turn);
    }
    free(set);
}

struct http_front_counts *http_conns_counts(struct http_conns *set)
{
    return &set->counts;
}

/* ---- coming and going ---- */

/* NULL without memory; owns fd only when it succeeds. */
static struct http_conn *add(struct http_conns *set, int fd, const struct sockaddr *peer, bool tls, bool turned_away)
{
    struct http_conn *c = http_conn_new(set, fd, peer, tls, turned_away);

    if (c == NULL) {
        return NULL;
    }
    begin_ticking(set);
    c->since_us = set->now_us;
    TAILQ_INSERT_TAIL(&set->lists[c->state], c, link);
    set->total++;
    set->turned_away += (size_t)turned_away;
    set->counts.connections += (size_t)!turned_away;
    if (set->counts.connections > set->counts.most)
        set->counts.most = set->counts.connections;
    return c;
}

void http_conns_remove(struct http_conn *c)
{
    struct http_conns *set = c->set;

    leave_turn(c);
    TAILQ_REMOVE(&set->lists[c->state], c, link);
    if (--set->total == 0) {
        event_del(set->tick);
        if (set->draining) {
            arm_turn(set);
        }
    }
}

void http_conns_turn_away(struct http_conns *set, int fd, const struct sockaddr *peer, bool tls)
{
    struct http_response_bytes bytes;
    struct http_error_bytes error;
    struct http_response response = http_response_error(&error, PAWL_E_TOO_MANY_CONNECTIONS, NULL);
    struct stream s;

    set->counts.refused++;
    if (tls) { /* to tell it would take a handshake */
        (void)close(fd);
        return;
    }
    http_date_set(&set->date, time(NULL));
    (void)http_conn_init_stream(set, &s, fd, peer, false);
    http_response_lay(&bytes, &response, &set->date, HTTP_CONNECTION_CLOSE, false);
    (void)stream_write(&s, bytes.parts, bytes.count);
    stream_end(&s);
    (void)stream_read(&s, set->shared, HTTP_INPUT_SHARED); /* a request that is already here would turn the close into a reset */
    stream_close(&s, false);
    http_response_error_close(&error);
}

/* The same, but with time for the client to read it. */
static bool turn_away_gently(struct http_conns *set, int fd, const struct sockaddr *peer, bool tls)
{
    struct http_conn *c = set->turned_away < TURNED_AWAY_MAX && fd < set->fd_ceiling ? add(set, fd, peer, tls, true) : NULL;

    if (c == NULL) {
        return false;
    }
    set->counts.refused++;
    http_conn_enter(c);
    if (!tls) { /* else when the handshake is done */
        http_conn_refuse(c, PAWL_E_TOO_MANY_CONNECTIONS, NULL, false);
    }
    http_conn_leave(c);
    return true;
}

void http_conns_take(struct http_conns *set, int fd, const struct sockaddr *peer, bool tls)
{
    bool is_full = set->counts.connections >= set->config.max_connections || fd >= set->fd_ceiling;

    if (!is_full && add(set, fd, peer, tls, false) != NULL) {
        set->counts.accepted++;
    } else if (!is_full || !turn_away_gently(set, fd, peer, tls)) {
        http_conns_turn_away(set, fd, peer, tls);
    }
}

/* ---- the end ---- */

void http_conns_see_off(struct http_conns *set)
{
    set->seeing_off = true;
}

/* Connected, but its first request is still on its way: closing now would be a request without an answer. */
static bool is_young(const struct http_conn *c)
{
    return !c->spoke && c->set->now_us - c->since_us < YOUNG_MS * 1000;
}

void http_conns_drain(struct http_conns *set)
{
    struct http_conn *c, *next;

    set->draining = true;
    read_time(set);
    for (c = TAILQ_FIRST(&set->lists[GREETING]); c != NULL; c = next) {
        next = TAILQ_NEXT(c, link);
        if (!is_young(c)) {
            http_conn_close(c, false);
            http_conns_defer(c);
        }
    }
    for (c = TAILQ_FIRST(&set->lists[IDLE]); c != NULL; c = next) {
        next = TAILQ_NEXT(c, link);
        if (is_young(c)) {
            continue; /* the tick closes it, if its reply doesn't */
        }
        http_conn_enter(c);
        http_conn_begin_close(c);
        c->entered--;
        http_conns_defer(c); /* the service may have called: whatever died is freed at the end of the turn */
    }
    if (set->total == 0) {
        arm_turn(set);
    }
}
