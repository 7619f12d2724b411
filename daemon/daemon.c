#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include <event2/event.h>

#include "daemon/api.h"
#include "daemon/auth.h"
#include "daemon/broker.h"
#include "daemon/dev_redis.h"
#include "daemon/event_ring.h"
#include "daemon/event_streams.h"
#include "daemon/handover.h"
#include "daemon/host_port.h"
#include "daemon/http_front.h"
#include "daemon/listen_address.h"
#include "daemon/listening.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/redis_store.h"
#include "daemon/redis_url.h"
#include "daemon/router.h"
#include "daemon/systemd.h"
#include "daemon/tls_setup.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

#define POLL_MS            5000    /* a line of waiters looks this often though nothing told it to */
#define STUCK_MS           30000   /* output that does not move */
#define SPARE_FDS          64      /* beside client connections */
#define LAST_REPLIES_US    2000000 /* at the end of a drain, for what is in progress */
#define DRAIN_LOOK_US      20000
#define DAY_US             INT64_C(86400000000)
#define TAKE_LOOK_US       20000   /* until this node can take over */
#define SECOND_US          1000000 /* for what is summed or shown now and then */
#define STOP_MARGIN_US     5000000 /* beside the drain, before the service manager loses patience */
#define SENTINEL_WINDOW_MS 4000    /* --recovery-window that nobody asked for, with sentinels */

enum phase { RUNNING, DRAINING, CLOSING, OVER };

struct daemon {
    const struct options *options;
    struct event_base *base;
    struct event *term, *interrupt, *hangup, *child, *alarm, *drain_tick, *expiry_look, *streams_alarm;
    struct event *second, *watchdog, *take_tick;
    struct systemd manager;
    char status[512]; /* last told to it */
    struct handover *handover;
    bool taking;    /* a predecessor accepts for us, until this node can grant */
    bool successor; /* another accepts for us */
    bool signalled; /* to stop */
    int64_t alarm_us;
    struct dev_redis dev_redis;
    struct metrics metrics;
    struct event_ring *events;
    struct event_streams *streams;
    struct broker *broker;
    struct redis_store *store;
    struct auth *auth;
    struct http_front *front;
    struct tls_setup tls;
    struct http_service service;
    struct api api;
    enum phase phase;
    int64_t phase_ends_us;
    bool connections_gone;
    int exit_code;
    char *problem;
    size_t problem_cap;
};

static int fail(struct daemon *d, const char *what)
{
    if (what != d->problem)
        snprintf(d->problem, d->problem_cap, "%s", what);
    return -1;
}

static int64_t now_us(void)
{
    return clock_now_us(&clock_boottime);
}

static void take_over(struct daemon *d);

static void add_timer(struct event *event, int64_t wait_us)
{
    struct timeval tv = {.tv_sec = (time_t)(wait_us / 1000000), .tv_usec = (suseconds_t)(wait_us % 1000000)};

    (void)evtimer_add(event, &tv);
}

/* ---- the broker's clock ---- */

static void on_alarm(evutil_socket_t fd, short events, void *arg)
{
    struct daemon *d = arg;

    (void)fd;
    (void)events;
    d->alarm_us = INT64_MAX;
    broker_tick(d->broker);
}

/* An alarm that is set already and comes earlier is left alone: the tick it causes finds nothing due and sets the next. */
static void set_alarm(void *arg, int64_t at_us)
{
    struct daemon *d = arg;
    int64_t now;

    if (at_us >= d->alarm_us)
        return;
    now = now_us();
    d->alarm_us = at_us;
    add_timer(d->alarm, at_us > now ? at_us - now : 0);
}

/* ---- events ---- */

static int64_t wall_us(void)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void on_happened(void *arg, const struct lease_event *event)
{
    struct daemon *d = arg;

    if (event_ring_put(d->events, event, wall_us()) != 0)
        log_error("out_of_memory", LOG_STR("what", "event"));
    event_streams_news(d->streams);
}

static void on_streams_alarm(evutil_socket_t fd, short events, void *arg)
{
    (void)fd;
    (void)events;
    event_streams_tick(((struct daemon *)arg)->streams);
}

static void set_streams_alarm(void *arg, int64_t at_us)
{
    int64_t now = now_us();

    add_timer(((struct daemon *)arg)->streams_alarm, at_us > now ? at_us - now : 0);
}

/* ---- drain ---- */

static void finish(struct daemon *d)
{
    d->phase = OVER;
    (void)event_base_loopbreak(d->base);
}

static void on_connections_gone(void *arg)
{
    ((struct daemon *)arg)->connections_gone = true;
}

static void begin_closing(struct daemon *d)
{
    d->phase = CLOSING;
    d->phase_ends_us = now_us() + LAST_REPLIES_US;
    http_front_drain(d->front, on_connections_gone, d);
}

/* With a successor, connections go one by one, after their next replies; without, there is nothing to wait for once nobody here holds a lease. */
static bool is_drained(const struct daemon *d)
{
    return http_front_counts(d->front).connections == 0 || (!d->successor && broker_leases(d->broker) == 0);
}

static void on_drain_tick(evutil_socket_t fd, short events, void *arg)
{
    struct daemon *d = arg;
    bool late = now_us() >= d->phase_ends_us;

    (void)fd;
    (void)events;
    if (d->phase == DRAINING && (late || is_drained(d)))
        begin_closing(d);
    else if (d->phase == CLOSING && (late || (d->connections_gone && broker_is_idle(d->broker))))
        finish(d);
    if (d->phase != OVER)
        add_timer(d->drain_tick, DRAIN_LOOK_US);
}

static void tell_stopping(struct daemon *d)
{
    char message[96];

    snprintf(message, sizeof(message), "STOPPING=1\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=%" PRId64,
             d->options->drain_timeout_ms * 1000 + LAST_REPLIES_US + STOP_MARGIN_US);
    (void)systemd_tell(&d->manager, message);
}

static void begin_draining(struct daemon *d, int signal_number)
{
    log_info("draining", LOG_INT("signal", signal_number), LOG_INT("leases", broker_leases(d->broker)),
             LOG_INT("waiters", broker_waiters(d->broker)), LOG_STR("successor", d->successor ? "yes" : "no"));
    tell_stopping(d);
    d->phase = DRAINING;
    d->api.draining = true;
    d->phase_ends_us = now_us() + d->options->drain_timeout_ms * 1000;
    if (d->successor) {
        http_front_share(d->front);
        http_front_see_off(d->front);
    }
    http_front_stop_accepting(d->front);
    event_streams_drain(d->streams);
    broker_drain(d->broker, d->successor);
    add_timer(d->drain_tick, 0);
}

static void on_stop_signal(evutil_socket_t number, short events, void *arg)
{
    struct daemon *d = arg;

    (void)events;
    if (d->signalled) {
        log_warn("stopping_at_once", LOG_INT("signal", number));
        finish(d);
        return;
    }
    d->signalled = true;
    if (d->phase != RUNNING)
        return; /* a successor began it, and this is the first signal */
    d->successor = handover_has_successor(d->handover);
    begin_draining(d, number);
    handover_free(d->handover); /* a successor that still waited goes on alone */
    d->handover = NULL;
}

/* ---- taking over, and being taken over from ---- */

static int nth_socket(void *arg, size_t i, const char **ret_asked)
{
    return http_front_socket(((struct daemon *)arg)->front, i, ret_asked);
}

static void on_taken(void *arg)
{
    struct daemon *d = arg;

    if (d->phase != RUNNING)
        return;
    d->successor = true;
    begin_draining(d, 0);
}

static void on_predecessor_gone(void *arg)
{
    struct daemon *d = arg;
    char problem[256];

    if (d->taking)
        take_over(d);
    if (d->phase == RUNNING && handover_listen(d->handover, problem, sizeof(problem)) != 0)
        log_error("no_handover", LOG_STR("problem", problem));
}

static void say_ready(struct daemon *d)
{
    (void)systemd_tell(&d->manager, "READY=1");
}

static void take_over(struct daemon *d)
{
    d->taking = false;
    http_front_let_go(d->front);
    if (handover_has_predecessor(d->handover))
        handover_take(d->handover);
    log_info("taken_over", LOG_STR("node", d->api.node));
    say_ready(d);
}

static void on_take_tick(evutil_socket_t fd, short events, void *arg)
{
    struct daemon *d = arg;
    struct store_status store;

    (void)fd;
    (void)events;
    if (!d->taking || d->phase != RUNNING)
        return;
    store_get_status(d->api.store, &store);
    if (store.ready && !store.window_open)
        take_over(d);
    else
        add_timer(d->take_tick, TAKE_LOOK_US);
}

/* ---- the service manager, and what happens each second ---- */

static void on_watchdog(evutil_socket_t fd, short events, void *arg)
{
    (void)fd;
    (void)events;
    (void)systemd_mention(&((struct daemon *)arg)->manager, "WATCHDOG=1"); /* the loop turns: that is all it says */
}

static void describe(const struct daemon *d, char *out, size_t cap)
{
    struct store_status store;

    store_get_status(d->api.store, &store);
    if (d->taking)
        snprintf(out, cap, "STATUS=waiting to take over from a predecessor");
    else if (!store.ready)
        snprintf(out, cap, "STATUS=no grants: not attached to Redis");
    else
        snprintf(out, cap, "STATUS=%s %.200s", store.window_open ? "recovering, attached to" : "serving, attached to", store.address);
}

static void on_second(evutil_socket_t fd, short events, void *arg)
{
    struct daemon *d = arg;
    char status[sizeof(d->status)];

    (void)fd;
    (void)events;
    log_settle(false);
    systemd_tell_again(&d->manager);
    if (!systemd_listens(&d->manager) || d->phase != RUNNING)
        return;
    describe(d, status, sizeof(status));
    if (strcmp(status, d->status) != 0 && systemd_mention(&d->manager, status))
        memcpy(d->status, status, sizeof(status));
}

static int start_ticking(struct daemon *d)
{
    const struct timeval second = {.tv_sec = SECOND_US / 1000000};
    const int64_t half = d->manager.watchdog_us / 2;
    const struct timeval interval = {.tv_sec = (time_t)(half / 1000000), .tv_usec = (suseconds_t)(half % 1000000)};

    if (event_add(d->second, &second) != 0 || (half > 0 && event_add(d->watchdog, &interval) != 0))
        return fail(d, "out of memory");
    return 0;
}

/* ---- TLS ---- */

static bool redis_is_tls(const struct options *o)
{
    return o->redis && redis_url_asks_for_tls(o->redis);
}

static void on_expiry_look(evutil_socket_t fd, short events, void *arg)
{
    struct daemon *d = arg;

    (void)fd;
    (void)events;
    tls_setup_look(&d->tls);
    add_timer(d->expiry_look, DAY_US);
}

static int start_tls(struct daemon *d)
{
    if (tls_setup_load(&d->tls, d->options, redis_is_tls(d->options), d->problem, d->problem_cap) != 0)
        return -1;
    on_expiry_look(-1, 0, d);
    return 0;
}

/* ---- reload ---- */

/* Each part reads again what it keeps outside of the process, one line for each. A part that can't keeps what it has and says so itself; connections,
 * waiters and leases are not touched by any. */
static void reload(struct daemon *d)
{
    (void)systemd_tell_reloading(&d->manager);
    log_reopen();
    tls_setup_reload(&d->tls);
    metrics_set(&d->metrics, METRIC_TLS_EXPIRY, tls_setup_expiry(&d->tls));
    log_info("reloading", LOG_STR("node", d->api.node));
    auth_reload(d->auth);
    if (d->auth)
        event_streams_end(d->streams, "rules_changed"); /* who comes back is let in, or not, by the new ones */
    say_ready(d);
}

static void on_hangup(evutil_socket_t number, short events, void *arg)
{
    (void)number;
    (void)events;
    reload(arg);
}

/* The private Redis ended though nobody asked it to: without it, --dev has nothing to stand on. */
static void on_child(evutil_socket_t number, short events, void *arg)
{
    struct daemon *d = arg;
    int status;

    (void)number;
    (void)events;
    if (d->dev_redis.pid <= 0 || waitpid(d->dev_redis.pid, &status, WNOHANG) != d->dev_redis.pid)
        return;
    d->dev_redis.pid = 0;
    d->exit_code = 1;
    (void)fail(d, "the private redis-server ended unexpectedly");
    finish(d);
}

/* ---- start ---- */

static void raise_fd_limit(const struct options *options)
{
    struct rlimit limit;
    rlim_t want = (rlim_t)options->max_connections + SPARE_FDS;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= want)
        return;
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || limit.rlim_max >= want ? want : limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < want)
        log_warn("few_descriptors", LOG_INT("limit", limit.rlim_cur), LOG_INT("wanted", want));
}

/* By itself libevent writes to standard error, past the form, the bounds and the file of the log, and waits when nobody reads there. */
static void on_libevent_word(int severity, const char *text)
{
    if (severity != EVENT_LOG_DEBUG)
        log_warn("libevent", LOG_STR("text", text));
}

static int start_events(struct daemon *d)
{
    event_set_log_callback(on_libevent_word);
    d->base = event_base_new();
    if (!d->base)
        return fail(d, "the event loop cannot be made");
    d->term = evsignal_new(d->base, SIGTERM, on_stop_signal, d);
    d->interrupt = evsignal_new(d->base, SIGINT, on_stop_signal, d);
    d->hangup = evsignal_new(d->base, SIGHUP, on_hangup, d);
    d->child = evsignal_new(d->base, SIGCHLD, on_child, d);
    d->alarm = evtimer_new(d->base, on_alarm, d);
    d->drain_tick = evtimer_new(d->base, on_drain_tick, d);
    d->expiry_look = evtimer_new(d->base, on_expiry_look, d);
    d->second = event_new(d->base, -1, EV_PERSIST, on_second, d);
    d->watchdog = event_new(d->base, -1, EV_PERSIST, on_watchdog, d);
    d->take_tick = evtimer_new(d->base, on_take_tick, d);
    d->streams_alarm = evtimer_new(d->base, on_streams_alarm, d);
    if (!d->term || !d->interrupt || !d->hangup || !d->child || !d->alarm || !d->drain_tick || !d->expiry_look || !d->second ||
        !d->watchdog || !d->take_tick || !d->streams_alarm)
        return fail(d, "out of memory");
    if (evsignal_add(d->term, NULL) != 0 || evsignal_add(d->interrupt, NULL) != 0 || evsignal_add(d->hangup, NULL) != 0 ||
        evsignal_add(d->child, NULL) != 0)
        return fail(d, "signals cannot be caught");
    return 0;
}

static int read_url(struct daemon *d, struct redis_url *url)
{
    if (!d->options->dev)
        return redis_url_parse(d->options->redis, url, d->problem, d->problem_cap);
    if (dev_redis_start(&d->dev_redis, d->problem, d->problem_cap) != 0)
        return -1;
    memset(url, 0, sizeof(*url));
    snprintf(url->unix_path, sizeof(url->unix_path), "%s", d->dev_redis.socket);
    return 0;
}

static bool names_sentinels(const struct options *o)
{
    return o->redis && redis_url_names_sentinels(o->redis);
}

static int64_t least_window_ms(const struct options *o)
{
    return redis_store_min_window_ms(o->store_timeout_ms, names_sentinels(o));
}

/* The window must be long enough for every node to come back in it. The default grows with the timeout; a value that was asked for does not. */
static int64_t window_ms(const struct options *o)
{
    int64_t least = least_window_ms(o), window = o->recovery_window_ms;

    if (window == 0 || o->recovery_window_given)
        return window;
    if (names_sentinels(o) && window < SENTINEL_WINDOW_MS)
        window = SENTINEL_WINDOW_MS;
    return window >= least ? window : least;
}

static int check_window(const struct options *o, char *problem, size_t cap)
{
    int64_t window = window_ms(o), least = least_window_ms(o);

    if (window == 0 || window >= least)
        return 0;
    snprintf(problem, cap, "--recovery-window is too short for --store-timeout %" PRId64 "ms%s: at least %" PRId64 "ms (or 0 for none)",
             o->store_timeout_ms, names_sentinels(o) ? " and sentinels" : "", least);
    return -1;
}

/* Without rules whoever reaches pawld may take and break every lock. On this machine that may be meant; on a network it is said aloud or not done. */
static int check_address(const struct options *o, const char *address, char *problem, size_t cap)
{
    bool tls = strncmp(address, "tls:", strlen("tls:")) == 0;
    const char *where = tls ? address + strlen("tls:") : address;

    if (o->auth_file || o->insecure_listen || (tls && tls_setup_knows_clients(o)))
        return 0;
    if (strncmp(where, "unix:", strlen("unix:")) == 0 || host_port_is_loopback(where))
        return 0;
    snprintf(problem, cap,
             "--listen %s: others could reach it, and nobody is asked who they are: give --auth-file FILE, or listen on 127.0.0.1 or "
             "unix:/PATH, or say --insecure-listen",
             address);
    return -1;
}

static bool is_passed(const char *address)
{
    struct listen_address parsed;

    return listen_address_parse(address, &parsed) == NULL && parsed.kind == LISTEN_SYSTEMD;
}

/* Where a passed socket is bound is seen when it is there: check_bound. */
static int check_listen(const struct options *o, char *problem, size_t cap)
{
    for (size_t i = 0; i < o->listen_count; i++)
        if (!is_passed(o->listen[i]) && check_address(o, o->listen[i], problem, cap) != 0)
            return -1;
    return 0;
}

static int check_options(const struct options *o, char *problem, size_t cap)
{
    return check_window(o, problem, cap) != 0 || check_listen(o, problem, cap) != 0 ||
                   tls_setup_check(o, redis_is_tls(o), problem, cap) != 0
               ? -1
               : 0;
}

int daemon_check(const struct options *o, char *problem, size_t cap)
{
    if (check_options(o, problem, cap) != 0)
        return -1;
    return o->auth_file ? auth_check(o->auth_file, problem, cap) : 0;
}

static int start_auth(struct daemon *d)
{
    return d->options->auth_file ? auth_open(d->options->auth_file, &d->auth, d->problem, d->problem_cap) : 0;
}

static int start_events_of_leases(struct daemon *d)
{
    struct event_streams_host host = {.arg = d, .alarm = set_streams_alarm};

    d->events = event_ring_new((size_t)d->options->events, wall_us());
    if (d->events)
        d->streams = event_streams_new(&clock_boottime, d->events, &d->metrics, (size_t)d->options->max_streams, &host);
    return d->streams ? 0 : fail(d, "out of memory");
}

static int start_store(struct daemon *d)
{
    const struct options *o = d->options;
    struct broker_config broker_config = {.call_timeout_ms = o->store_timeout_ms,
                                          .max_waiters = o->max_waiters,
                                          .max_waiters_per_lock = o->max_waiters_per_lock,
                                          .poll_ms = POLL_MS};
    struct broker_host host = {.arg = d, .alarm = set_alarm, .happened = on_happened};
    struct redis_store_config store_config = {.key_prefix = o->key_prefix,
                                              .timeout_ms = o->store_timeout_ms,
                                              .allow_eviction = o->allow_eviction,
                                              .sentinel_user = o->sentinel_user,
                                              .sentinel_password = o->sentinel_password,
                                              .min_replicas = o->min_replicas,
                                              .replica_timeout_ms = o->replica_timeout_ms,
                                              .tls = d->tls.redis};
    struct store_events events;

    store_config.window_ms = window_ms(o);
    if (read_url(d, &store_config.url) != 0)
        return -1;
    if (metrics_init(&d->metrics, route_names(), route_count + 1) != 0)
        return fail(d, "out of memory");
    metrics_set(&d->metrics, METRIC_TLS_EXPIRY, tls_setup_expiry(&d->tls));
    d->broker = broker_new(&clock_boottime, &broker_config, &host, &d->metrics);
    if (!d->broker)
        return fail(d, "out of memory");
    events = broker_store_events(d->broker);
    d->store = redis_store_new(d->base, &clock_boottime, &store_config, &events);
    if (!d->store)
        return fail(d, "out of memory");
    broker_set_store(d->broker, redis_store_seam(d->store));
    return 0;
}

static int check_bound(struct daemon *d)
{
    const char *address;

    for (size_t i = 0; (address = http_front_address(d->front, i)) != NULL; i++)
        if (check_address(d->options, address, d->problem, d->problem_cap) != 0)
            return -1;
    return 0;
}

/* Afterwards d->taking says whether a predecessor serves until this node can. */
static int start_listening(struct daemon *d)
{
    const struct handover_owner owner = {d, nth_socket, on_taken, on_predecessor_gone};
    const char *path = d->options->handover;
    struct handover_sockets handed = {.count = 0};
    int link = -1, result;

    if (path && handover_ask(path, &handed, &link, d->problem, d->problem_cap) != 0)
        return -1;
    d->taking = link >= 0;
    if (d->taking)
        http_front_hold(d->front);
    result = listening_open(d->front, d->options, &d->manager, &handed, d->problem, d->problem_cap);
    if (result == 0)
        result = check_bound(d);
    handover_sockets_close(&handed);
    if (!path)
        return result;
    d->handover = handover_new(d->base, path, link, &owner);
    if (!d->handover)
        return fail(d, "out of memory");
    return result == 0 && !d->taking ? handover_listen(d->handover, d->problem, d->problem_cap) : result;
}

static int start_front(struct daemon *d)
{
    const struct options *o = d->options;
    struct http_front_config config = {.max_connections = (size_t)o->max_connections,
                                       .head_timeout_ms = o->request_timeout_ms,
                                       .body_timeout_ms = o->body_timeout_ms,
                                       .idle_timeout_ms = o->idle_timeout_ms,
                                       .stuck_timeout_ms = STUCK_MS,
                                       .tls = d->tls.front};

    d->service = (struct http_service){.ctx = &d->api, .handle = router_handle, .gone = router_gone};
    d->front = http_front_new(d->base, &config, &d->service);
    if (!d->front)
        return fail(d, "out of memory");
    if (start_listening(d) != 0)
        return -1;
    d->api = (struct api){.options = o,
                          .broker = d->broker,
                          .store = redis_store_seam(d->store),
                          .metrics = &d->metrics,
                          .front = d->front,
                          .auth = d->auth,
                          .events = d->events,
                          .streams = d->streams,
                          .node = redis_store_node(d->store),
                          .started_us = now_us()};
    return 0;
}

static void announce(struct daemon *d)
{
    const char *address;

    log_info("started", LOG_STR("version", PACKAGE_VERSION), LOG_STR("node", d->api.node), LOG_STR("dev_redis", d->dev_redis.socket));
    for (size_t i = 0; (address = http_front_address(d->front, i)) != NULL; i++)
        log_info("listening", LOG_STR("address", address));
    if (d->taking) {
        log_info("taking_over", LOG_STR("path", d->options->handover));
        add_timer(d->take_tick, 0);
    } else {
        say_ready(d);
    }
}

/* ---- stop, in the opposite order ---- */

static void free_event(struct event *event)
{
    if (event)
        event_free(event);
}

/* Signals have their old meaning again once nobody waits for them, and one that comes late would make a failure of an orderly end. */
static void block_signals(void)
{
    sigset_t late;

    sigemptyset(&late);
    sigaddset(&late, SIGTERM);
    sigaddset(&late, SIGINT);
    sigaddset(&late, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &late, NULL);
}

static void stop(struct daemon *d)
{
    block_signals();
    http_front_free(d->front);
    handover_free(d->handover);
    if (d->store) {
        redis_store_stop(d->store);
        for (int i = 0; i < 4; i++) /* the last answers to calls, and cancelled look-ups */
            (void)event_base_loop(d->base, EVLOOP_NONBLOCK);
        redis_store_free(d->store);
    }
    broker_free(d->broker);
    tls_setup_free(&d->tls);
    auth_close(d->auth);
    event_streams_free(d->streams);
    event_ring_free(d->events);
    metrics_close(&d->metrics);
    free_event(d->term);
    free_event(d->interrupt);
    free_event(d->hangup);
    free_event(d->child);
    free_event(d->alarm);
    free_event(d->drain_tick);
    free_event(d->expiry_look);
    free_event(d->second);
    free_event(d->watchdog);
    free_event(d->take_tick);
    systemd_close(&d->manager);
    free_event(d->streams_alarm);
    if (d->base)
        event_base_free(d->base);
    dev_redis_stop(&d->dev_redis);
    libevent_global_shutdown();
}

static int start(struct daemon *d)
{
    const char *file = d->options->log_file;

    if (file && log_open(file) != 0) {
        snprintf(d->problem, d->problem_cap, "--log-file %s: %s", file, strerror(errno));
        return -1;
    }
    raise_fd_limit(d->options);
    if (check_options(d->options, d->problem, d->problem_cap) != 0 || systemd_init(&d->manager, d->problem, d->problem_cap) != 0)
        return -1;
    return start_events(d) == 0 && start_events_of_leases(d) == 0 && start_auth(d) == 0 && start_tls(d) == 0 && start_store(d) == 0 &&
                   start_front(d) == 0 && start_ticking(d) == 0
               ? 0
               : -1;
}

int daemon_run(const struct options *options, char *problem, size_t cap)
{
    struct daemon d = {.options = options, .alarm_us = INT64_MAX, .problem = problem, .problem_cap = cap};

    (void)signal(SIGPIPE, SIG_IGN);
    if (start(&d) != 0) {
        log_error("not_started", LOG_STR("problem", problem));
        if (options->log_file)
            fprintf(stderr, "pawld: %s\n", problem); /* also to who started it */
        stop(&d);
        log_close();
        return 1;
    }
    announce(&d);
    if (event_base_dispatch(d.base) < 0) {
        (void)fail(&d, "the event loop failed");
        d.exit_code = 1;
    }
    if (d.exit_code != 0)
        log_error("failed", LOG_STR("problem", problem));
    log_settle(true);
    log_info("stopped", LOG_INT("exit_code", d.exit_code));
    stop(&d);
    log_close();
    return d.exit_code;
}
