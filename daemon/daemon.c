/* The order in which pawld starts and stops, what signals mean, and who is told what happened. Each part that this puts together has a file of its own; what the
 * options mean together is daemon_options, how this pawld ends is drain, whose sockets it serves on is takeover, what it does each second is heartbeat. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include <event2/event.h>

#include "daemon/alarm.h"
#include "daemon/api.h"
#include "daemon/auth.h"
#include "daemon/broker.h"
#include "daemon/daemon_options.h"
#include "daemon/dev_redis.h"
#include "daemon/drain.h"
#include "daemon/event_ring.h"
#include "daemon/event_streams.h"
#include "daemon/heartbeat.h"
#include "daemon/http_front.h"
#include "daemon/log.h"
#include "daemon/metrics.h"
#include "daemon/redis_store.h"
#include "daemon/redis_url.h"
#include "daemon/router.h"
#include "daemon/systemd.h"
#include "daemon/takeover.h"
#include "daemon/tls_setup.h"
#include "proto/json.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

#define POLL_MS   5000  /* a line of waiters looks this often though nothing told it to */
#define STUCK_MS  30000 /* output that does not move */
#define SPARE_FDS 64    /* beside client connections */
#define TIMERS    64    /* of the loop, set at the same time; connections have none of their own */
#define DAY_US    INT64_C(86400000000)

struct daemon {
    const struct options *options;
    struct event_base *base;
    struct event *term, *interrupt, *hangup, *child;
    struct alarm broker_alarm, streams_alarm, expiry_look;
    struct systemd manager;
    struct heartbeat heartbeat;
    struct takeover takeover;
    struct drain drain;
    bool signalled; /* to stop */
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

/* ---- the broker's clock ---- */

static void on_broker_alarm(void *arg)
{
    broker_tick(((struct daemon *)arg)->broker);
}

static void set_broker_alarm(void *arg, int64_t at_us)
{
    alarm_no_later(&((struct daemon *)arg)->broker_alarm, at_us);
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

static void on_streams_alarm(void *arg)
{
    event_streams_tick(((struct daemon *)arg)->streams);
}

static void set_streams_alarm(void *arg, int64_t at_us)
{
    alarm_at(&((struct daemon *)arg)->streams_alarm, at_us);
}

/* ---- the end ---- */

static void on_drain_begun(void *arg)
{
    ((struct daemon *)arg)->api.draining = true;
}

static void on_drain_over(void *arg)
{
    (void)event_base_loopbreak(((struct daemon *)arg)->base);
}

static void on_stop_signal(evutil_socket_t number, short events, void *arg)
{
    struct daemon *d = arg;

    (void)events;
    if (d->signalled) {
        log_warn("stopping_at_once", LOG_INT("signal", number));
        drain_finish(&d->drain);
        return;
    }
    d->signalled = true;
    if (drain_has_begun(&d->drain))
        return; /* a successor began it, and this is the first signal */
    drain_begin(&d->drain, number, takeover_has_successor(&d->takeover));
    takeover_close(&d->takeover); /* a successor that still waited goes on alone */
}

/* ---- TLS ---- */

static void on_expiry_look(void *arg)
{
    struct daemon *d = arg;

    tls_setup_look(&d->tls);
    alarm_in(&d->expiry_look, DAY_US);
}

static int start_tls(struct daemon *d)
{
    if (tls_setup_load(&d->tls, d->options, daemon_options_redis_is_tls(d->options), d->problem, d->problem_cap) != 0)
        return -1;
    on_expiry_look(d);
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
    (void)systemd_tell(&d->manager, "READY=1");
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
    drain_finish(&d->drain);
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

static void on_no_timer(evutil_socket_t fd, short events, void *arg)
{
    (void)fd;
    (void)events;
    (void)arg;
}

/* Nobody would learn of a timer that could not be set, and what hangs on it would never come. So the loop's room for them is made now; it is kept for good. */
static int reserve_timers(struct event_base *base)
{
    static const struct timeval day = {86400, 0};
    struct event *timers[TIMERS];
    int made = 0, result = 0;

    while (made < TIMERS && result == 0) {
        timers[made] = evtimer_new(base, on_no_timer, NULL);
        result = timers[made] ? evtimer_add(timers[made++], &day) : -1;
    }
    while (made > 0)
        event_free(timers[--made]);
    return result;
}

static int start_events(struct daemon *d)
{
    event_set_log_callback(on_libevent_word);
    d->base = event_base_new();
    if (!d->base)
        return fail(d, "the event loop cannot be made");
    if (reserve_timers(d->base) != 0)
        return fail(d, "out of memory");
    d->term = evsignal_new(d->base, SIGTERM, on_stop_signal, d);
    d->interrupt = evsignal_new(d->base, SIGINT, on_stop_signal, d);
    d->hangup = evsignal_new(d->base, SIGHUP, on_hangup, d);
    d->child = evsignal_new(d->base, SIGCHLD, on_child, d);
    if (!d->term || !d->interrupt || !d->hangup || !d->child || alarm_open(&d->broker_alarm, d->base, on_broker_alarm, d) != 0 ||
        alarm_open(&d->streams_alarm, d->base, on_streams_alarm, d) != 0 || alarm_open(&d->expiry_look, d->base, on_expiry_look, d) != 0)
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
    struct broker_host host = {.arg = d, .alarm = set_broker_alarm, .happened = on_happened};
    struct redis_store_config store_config = {.key_prefix = o->key_prefix,
                                              .timeout_ms = o->store_timeout_ms,
                                              .allow_eviction = o->allow_eviction,
                                              .sentinel_user = o->sentinel_user,
                                              .sentinel_password = o->sentinel_password,
                                              .min_replicas = o->min_replicas,
                                              .replica_timeout_ms = o->replica_timeout_ms,
                                              .busy_poll_us = o->busy_poll_us,
                                              .tls = d->tls.redis};
    struct store_events events;

    store_config.window_ms = daemon_options_window_ms(o);
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

/* What begins and ends together with serving. */
static int start_serving(struct daemon *d)
{
    const struct drain_parts drain = {.timeout_ms = d->options->drain_timeout_ms,
                                      .front = d->front,
                                      .broker = d->broker,
                                      .streams = d->streams,
                                      .manager = &d->manager,
                                      .begun = on_drain_begun,
                                      .over = on_drain_over,
                                      .arg = d};
    const struct takeover_parts takeover = {
        .options = d->options, .front = d->front, .store = d->api.store, .node = d->api.node, .manager = &d->manager, .drain = &d->drain};
    const struct heartbeat_parts heartbeat = {.clock = &clock_boottime,
                                              .broker = d->broker,
                                              .front = d->front,
                                              .manager = &d->manager,
                                              .store = d->api.store,
                                              .takeover = &d->takeover,
                                              .drain = &d->drain};

    if (drain_open(&d->drain, d->base, &drain) != 0)
        return fail(d, "out of memory");
    if (takeover_open(&d->takeover, d->base, &takeover, d->problem, d->problem_cap) != 0)
        return -1;
    if (heartbeat_open(&d->heartbeat, d->base, &heartbeat) != 0)
        return fail(d, "out of memory");
    return 0;
}

static void announce(struct daemon *d)
{
    const char *address;

    log_info("started", LOG_STR("version", PACKAGE_VERSION), LOG_STR("node", d->api.node), LOG_STR("dev_redis", d->dev_redis.socket));
    for (size_t i = 0; (address = http_front_address(d->front, i)) != NULL; i++)
        log_info("listening", LOG_STR("address", address));
    takeover_begin(&d->takeover);
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
    free_event(d->term); /* first: the loop still turns below, and one that came earlier would find what is gone by then */
    free_event(d->interrupt);
    free_event(d->hangup);
    free_event(d->child);
    http_front_free(d->front);
    takeover_close(&d->takeover);
    drain_close(&d->drain);
    heartbeat_close(&d->heartbeat);
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
    alarm_close(&d->broker_alarm);
    alarm_close(&d->streams_alarm);
    alarm_close(&d->expiry_look);
    systemd_close(&d->manager);
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
    if (daemon_options_check(d->options, d->problem, d->problem_cap) != 0 || systemd_init(&d->manager, d->problem, d->problem_cap) != 0)
        return -1;
    return start_events(d) == 0 && start_events_of_leases(d) == 0 && start_auth(d) == 0 && start_tls(d) == 0 && start_store(d) == 0 &&
                   start_front(d) == 0 && start_serving(d) == 0
               ? 0
               : -1;
}

int daemon_check(const struct options *o, char *problem, size_t cap)
{
    if (daemon_options_check(o, problem, cap) != 0)
        return -1;
    return o->auth_file ? auth_check(o->auth_file, problem, cap) : 0;
}

int daemon_run(const struct options *options, char *problem, size_t cap)
{
    struct daemon d = {.options = options, .problem = problem, .problem_cap = cap};

    (void)signal(SIGPIPE, SIG_IGN);
    json_watch_memory();
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
