/* See redis_link.h for the states. Three events carry everything: `io` (the socket), `step` (activated by hand: end-of-turn work such as
 * the one write of a turn, or a drop) and `timer` (deadlines and back-off). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/util.h>
#include <hiredis/hiredis.h>

#include "daemon/log.h"
#include "daemon/redis_dial.h"
#include "daemon/redis_input.h"
#include "daemon/redis_output.h"
#include "daemon/stream.h"
#include "daemon/tls_stream.h"

#define IN_FLIGHT_MAX  65536
#define OUTPUT_MAX     ((size_t)16 * 1024 * 1024)
#define FIRST_DELAY_MS 10
#define STEADY_US      1000000 /* a connection that lived this long is reopened at once */

enum link_state { LINK_STOPPED, LINK_RESOLVING, LINK_CONNECTING, LINK_GREETING, LINK_SIGNING_IN, LINK_OPEN, LINK_WAITING };

struct redis_link {
    struct event_base *base;
    const struct clock *clock;
    struct redis_link_config config;
    struct redis_link_callbacks callbacks;

    enum link_state state;
    struct redis_dial dial; /* until there is a connection */
    struct stream stream;   /* over it from then on; its descriptor is -1 before */
    struct event *io, *step, *timer, *alarm;
    short io_events; /* what `io` is registered for */

    struct redis_input input;
    struct redis_output output;
    bool turn_wanted;

    struct redis_command *first, **last; /* in flight, oldest first */
    size_t in_flight;
    int64_t check_us; /* when to look for commands past their deadline; INT64_MAX: nothing to look for */

    int sign_in_left; /* replies to sign-in commands still to come */
    int sign_in_seen;
    int64_t attempt_us; /* deadline of the attempt; or, while WAITING, when to try again */
    int64_t opened_us;
    int64_t delay_ms;
    const char *drop_problem; /* a drop is due */
    bool moved;               /* ... because the address is another one: no delay */
    uint64_t connects;
    unsigned jitter;
    char shown[320];
    char problem[200];
    struct log_gate gate;
};

/* ---- deadlines ---- */

static void set_timer(struct event *event, int64_t now_us, int64_t at_us)
{
    int64_t wait = at_us > now_us ? at_us - now_us : 0;
    struct timeval tv = {.tv_sec = (time_t)(wait / 1000000), .tv_usec = (suseconds_t)(wait % 1000000)};
    (void)evtimer_add(event, &tv);
}

static void arm(struct redis_link *link, int64_t at_us)
{
    if (at_us < link->check_us) {
        link->check_us = at_us;
        set_timer(link->timer, clock_now_us(link->clock), at_us);
    }
}

static void watch(struct redis_link *link, short events)
{
    if (link->io_events == events)
        return;
    if (link->io_events)
        (void)event_del(link->io);
    link->io_events = events;
    if (events) {
        int fd = link->stream.fd >= 0 ? link->stream.fd : link->dial.fd;
        (void)event_assign(link->io, link->base, fd, events, event_get_callback(link->io), link);
        if (event_add(link->io, NULL) != 0) { /* a connection of which no event tells would be looked at by its deadlines only */
            link->io_events = 0;
            redis_link_drop(link, "out of memory");
        }
    }
}

/* ---- going down and coming back ---- */

static void set_problem(struct redis_link *link, const char *problem)
{
    if (problem != link->problem)
        snprintf(link->problem, sizeof(link->problem), "%s", problem);
}

/* Whatever there is of a connection, or of an attempt. */
static void hang_up(struct redis_link *link)
{
    watch(link, 0);
    if (link->stream.fd >= 0)
        stream_close(&link->stream, false);
    link->stream.fd = -1;
    redis_dial_drop(&link->dial);
    redis_input_close(&link->input);
    redis_output_clear(&link->output);
    link->turn_wanted = false;
    link->drop_problem = NULL;
}

static void fail_commands(struct redis_link *link)
{
    struct redis_command *command = link->first;

    link->first = NULL;
    link->last = &link->first;
    link->in_flight = 0;
    while (command) {
        struct redis_command *next = command->next;
        command->done(command, NULL);
        command = next;
    }
}

static int64_t next_delay_us(struct redis_link *link)
{
    int64_t delay = link->delay_ms * 1000;

    link->delay_ms = link->delay_ms * 2 < link->config.max_delay_ms ? link->delay_ms * 2 : link->config.max_delay_ms;
    link->jitter = link->jitter * 1103515245u + 12345u;
    return delay / 2 + (int64_t)((link->jitter >> 16) % 1024u) * (delay / 2) / 1024;
}

/* Closes, tells, and arranges the next attempt. Only from the link's own events. */
static void link_fail(struct redis_link *link, const char *problem)
{
    int64_t now = clock_now_us(link->clock);
    bool was_up = link->state == LINK_OPEN;
    uint64_t left_out;

    set_problem(link, problem);
    if (log_gate_pass(&link->gate, now, &left_out))
        log_warn("store_link_down", LOG_STR("link", link->config.label), LOG_STR("address", link->shown), LOG_STR("problem", link->problem),
                 LOG_INT("suppressed", left_out));
    hang_up(link);
    link->state = LINK_WAITING;
    link->attempt_us = now;
    if (link->moved || (was_up && now - link->opened_us >= STEADY_US))
        link->delay_ms = FIRST_DELAY_MS;
    else
        link->attempt_us = now + next_delay_us(link);
    link->moved = false;
    link->check_us = INT64_MAX;
    arm(link, link->attempt_us);
    fail_commands(link);
    if (link->callbacks.down)
        link->callbacks.down(link->callbacks.arg, link->problem, was_up);
}

/* ---- writing ---- */

void redis_link_begin(struct redis_link *link, size_t argc)
{
    if (redis_output_pending(&link->output) == 0) /* the first of this turn: one write at its end */
        event_active(link->step, 0, 0);
    redis_output_begin(&link->output, argc);
}

void redis_link_arg(struct redis_link *link, const char *bytes, size_t len)
{
    redis_output_arg(&link->output, bytes, len);
}

void redis_link_arg_str(struct redis_link *link, const char *s)
{
    redis_output_arg_str(&link->output, s);
}

void redis_link_arg_int(struct redis_link *link, int64_t n)
{
    redis_output_arg_int(&link->output, n);
}

/* Of a command that could not be written as a whole the rest must never follow. */
static void end_command(struct redis_link *link)
{
    if (link->output.failed)
        redis_link_drop(link, "out of memory");
}

void redis_link_send(struct redis_link *link, struct redis_command *command, int64_t deadline_us)
{
    command->next = NULL;
    command->deadline_us = deadline_us;
    command->sent_us = clock_now_us(link->clock);
    *link->last = command;
    link->last = &command->next;
    link->in_flight++;
    arm(link, deadline_us);
    end_command(link);
}

void redis_link_send_silent(struct redis_link *link)
{
    end_command(link); /* the bytes are in the buffer; nothing waits for an answer */
}

static void write_output(struct redis_link *link)
{
    if (redis_output_write(&link->output, &link->stream) == 0)
        watch(link, EV_READ | EV_PERSIST);
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
        watch(link, EV_READ | EV_WRITE | EV_PERSIST);
    else
        redis_link_drop(link, strerror(errno));
}

/* ---- reading ---- */

static void sign_in_reply(struct redis_link *link, const redisReply *reply)
{
    static const char *const what[] = {"AUTH", "SELECT", "CLIENT"};
    const struct redis_url *url = &link->config.url;
    int step = link->sign_in_seen++;

    if (link->drop_problem)
        return;
    if (url->password[0] == '\0')
        step++;
    if (step >= 1 && url->db == 0)
        step++;
    link->sign_in_left--;
    if (reply->type == REDIS_REPLY_ERROR && step < 2) {
        char text[200];
        snprintf(text, sizeof(text), "%s refused: %.160s", what[step], reply->str);
        set_problem(link, text);
        link->drop_problem = link->problem;
        return;
    }
    if (link->sign_in_left > 0)
        return;
    link->state = LINK_OPEN;
    link->opened_us = clock_now_us(link->clock);
    link->check_us = INT64_MAX;
    link->problem[0] = '\0';
    if (link->callbacks.up)
        link->callbacks.up(link->callbacks.arg);
}

static void deliver(struct redis_link *link, const redisReply *reply)
{
    struct redis_command *command = link->first;

    if (link->state == LINK_SIGNING_IN) {
        sign_in_reply(link, reply);
        return;
    }
    if (!command) {
        if (link->callbacks.push) {
            link->callbacks.push(link->callbacks.arg, reply);
            return;
        }
        set_problem(link, reply->type == REDIS_REPLY_ERROR ? reply->str : "an answer that nobody asked for");
        link->drop_problem = link->problem;
        return;
    }
    link->first = command->next;
    if (!link->first)
        link->last = &link->first;
    link->in_flight--;
    command->done(command, reply);
}

/* Returns a problem when what comes is none of Redis. */
static const char *deliver_all(struct redis_link *link)
{
    redisReply *reply;

    for (;;) {
        const char *problem = redis_input_next(&link->input, &reply);
        if (problem || !reply)
            return problem;
        deliver(link, reply);
        freeReplyObject(reply);
        if (link->state == LINK_STOPPED)
            return NULL;
    }
}

/* Reads what is there. Returns a problem when the connection is over. */
static const char *read_input(struct redis_link *link)
{
    const char *problem;

    do {
        ssize_t n = redis_input_read(&link->input, &link->stream);
        if (n == 0)
            return "Redis closed the connection";
        if (n < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                return tls_stream_problem(&link->stream)[0] ? tls_stream_problem(&link->stream) : strerror(errno);
            if (link->stream.read_wants_room)
                watch(link, EV_READ | EV_WRITE | EV_PERSIST);
            return NULL;
        }
        problem = deliver_all(link);
        if (problem)
            return problem;
        if (link->state == LINK_STOPPED || link->drop_problem)
            return link->drop_problem;
    } while (link->input.more);
    return NULL;
}

/* ---- connecting ---- */

static void sign_in(struct redis_link *link)
{
    const struct redis_url *url = &link->config.url;

    link->state = LINK_SIGNING_IN;
    link->sign_in_left = link->sign_in_seen = 0;
    if (url->password[0]) {
        redis_link_begin(link, url->user[0] ? 3 : 2);
        redis_link_arg_str(link, "AUTH");
        if (url->user[0])
            redis_link_arg_str(link, url->user);
        redis_link_arg_str(link, url->password);
        link->sign_in_left++;
    }
    if (url->db) {
        redis_link_begin(link, 2);
        redis_link_arg_str(link, "SELECT");
        redis_link_arg_int(link, url->db);
        link->sign_in_left++;
    }
    redis_link_begin(link, 3);
    redis_link_arg_str(link, "CLIENT");
    redis_link_arg_str(link, "SETNAME");
    redis_link_arg_str(link, "pawl");
    link->sign_in_left++;
    end_command(link);
}

/* TLS: the handshake goes on whenever the socket is ready for what it wants. */
static void greet(struct redis_link *link)
{
    char text[200];

    if (stream_greet(&link->stream) == 0) {
        watch(link, EV_READ | EV_PERSIST);
        sign_in(link);
    } else if (errno == EAGAIN) {
        watch(link, (short)(EV_READ | EV_PERSIST | (link->stream.read_wants_room ? EV_WRITE : 0)));
    } else {
        snprintf(text, sizeof(text), "TLS with Redis failed: %s", tls_stream_problem(&link->stream));
        set_problem(link, text);
        link_fail(link, link->problem);
    }
}

static void begin_stream(struct redis_link *link)
{
    const struct redis_url *url = &link->config.url;
    int fd = link->dial.fd;

    if (redis_input_open(&link->input) != 0) {
        link_fail(link, "out of memory");
        return;
    }
    if (url->unix_path[0]) {
        stream_init_unix(&link->stream, fd);
    } else if (!url->tls) {
        stream_init_tcp(&link->stream, fd);
    } else if (tls_stream_init_client(&link->stream, fd, link->config.tls, url->host) != 0) {
        link_fail(link, "out of memory");
        return;
    }
    redis_dial_take(&link->dial);
    link->state = LINK_GREETING;
    greet(link);
}

static void go_on(struct redis_link *link, enum redis_dialled dialled)
{
    switch (dialled) {
    case DIAL_LOOKS_UP:
        link->state = LINK_RESOLVING;
        return;
    case DIAL_CONNECTS:
        link->state = LINK_CONNECTING;
        watch(link, EV_WRITE | EV_PERSIST);
        return;
    case DIAL_CONNECTED:
        begin_stream(link);
        return;
    case DIAL_FAILED:
        link_fail(link, link->dial.problem);
        return;
    }
}

static void on_looked_up(void *arg)
{
    struct redis_link *link = arg;

    event_active(link->step, 0, 0); /* may run inside redis_dial_begin: go on from the event */
}

static void attempt(struct redis_link *link)
{
    if (!link->config.url.host[0] && !link->config.url.unix_path[0]) {
        link_fail(link, "no sentinel has named the master yet");
        return;
    }
    fail_commands(link); /* left over when a stop and a start came in one turn */
    link->connects++;
    link->attempt_us = clock_now_us(link->clock) + link->config.connect_timeout_ms * 1000;
    link->check_us = INT64_MAX;
    arm(link, link->attempt_us);
    go_on(link, redis_dial_begin(&link->dial));
}

/* ---- the three events ---- */

static void on_io(evutil_socket_t fd, short events, void *arg)
{
    struct redis_link *link = arg;
    const char *problem;
    bool wanted_room;

    (void)fd;
    if (link->state == LINK_CONNECTING) {
        watch(link, 0);
        go_on(link, redis_dial_ready(&link->dial));
        return;
    }
    if (link->state == LINK_GREETING) {
        greet(link);
        return;
    }
    wanted_room = link->stream.read_wants_room;
    if (events & EV_WRITE)
        write_output(link);
    if (!(events & EV_READ) && !wanted_room)
        return;
    problem = read_input(link);
    if (link->state != LINK_STOPPED && problem)
        link_fail(link, problem);
}

static void on_step(evutil_socket_t fd, short events, void *arg)
{
    struct redis_link *link = arg;

    (void)fd;
    (void)events;
    if (link->state == LINK_STOPPED) {
        fail_commands(link);
        return;
    }
    if (link->drop_problem && (link->state == LINK_RESOLVING || link->state == LINK_CONNECTING || link->state == LINK_GREETING)) {
        link_fail(link, link->drop_problem);
        return;
    }
    if (link->state == LINK_RESOLVING) {
        go_on(link, redis_dial_go_on(&link->dial));
        return;
    }
    if (link->state != LINK_SIGNING_IN && link->state != LINK_OPEN)
        return;
    if (link->turn_wanted && link->callbacks.turn) {
        link->turn_wanted = false;
        link->callbacks.turn(link->callbacks.arg);
    }
    if (!link->drop_problem)
        write_output(link);
    if (link->drop_problem)
        link_fail(link, link->drop_problem);
}

/* Looks for commands past their deadline; sets the next look. */
static bool overdue(struct redis_link *link, int64_t now)
{
    int64_t next = INT64_MAX;

    for (const struct redis_command *command = link->first; command; command = command->next) {
        if (command->deadline_us <= now)
            return true;
        if (command->deadline_us < next)
            next = command->deadline_us;
    }
    link->check_us = INT64_MAX;
    if (next != INT64_MAX)
        arm(link, next);
    return false;
}

static void on_timer(evutil_socket_t fd, short events, void *arg)
{
    struct redis_link *link = arg;
    int64_t now = clock_now_us(link->clock);
    const char *problem;

    (void)fd;
    (void)events;
    if (link->check_us != INT64_MAX && now < link->check_us) { /* early by the rounding of the loop's own clock */
        set_timer(link->timer, now, link->check_us);
        return;
    }
    link->check_us = INT64_MAX;
    switch (link->state) {
    case LINK_STOPPED:
        return;
    case LINK_WAITING:
        attempt(link);
        return;
    case LINK_RESOLVING:
        link_fail(link, "Redis cannot be reached: looking up its name took too long");
        return;
    case LINK_CONNECTING:
        link_fail(link, "Redis cannot be reached: connecting took too long");
        return;
    case LINK_GREETING:
        link_fail(link, "Redis cannot be reached: the TLS handshake took too long; does it speak TLS at this port?");
        return;
    case LINK_SIGNING_IN:
        link_fail(link, "Redis did not answer in time");
        return;
    case LINK_OPEN:
        /* A daemon that was itself stopped finds its answers waiting: read before judging. */
        problem = read_input(link);
        if (link->state == LINK_STOPPED)
            return;
        if (!problem && overdue(link, now))
            problem = "Redis did not answer in time";
        if (problem)
            link_fail(link, problem);
        return;
    }
}

static void on_alarm(evutil_socket_t fd, short events, void *arg)
{
    struct redis_link *link = arg;

    (void)fd;
    (void)events;
    if (link->callbacks.alarm)
        link->callbacks.alarm(link->callbacks.arg);
}

/* ---- the rest of the contract ---- */

struct redis_link *redis_link_new(struct event_base *base, const struct clock *clock, const struct redis_link_config *config,
                                  const struct redis_link_callbacks *callbacks)
{
    struct redis_link *link = calloc(1, sizeof(*link));

    if (!link)
        return NULL;
    link->base = base;
    link->clock = clock;
    link->config = *config;
    link->callbacks = *callbacks;
    link->stream.fd = -1;
    redis_dial_init(&link->dial, base, &link->config.url, on_looked_up, link);
    link->last = &link->first;
    link->check_us = INT64_MAX;
    link->delay_ms = FIRST_DELAY_MS;
    if (getrandom(&link->jitter, sizeof(link->jitter), GRND_NONBLOCK) < 0)
        link->jitter = (unsigned)getpid();
    redis_url_show(&config->url, link->shown, sizeof(link->shown));
    redis_output_init(&link->output);
    link->io = event_new(base, -1, 0, on_io, link);
    link->step = event_new(base, -1, 0, on_step, link);
    link->timer = evtimer_new(base, on_timer, link);
    link->alarm = evtimer_new(base, on_alarm, link);
    if (redis_input_init(&link->input) != 0 || !link->io || !link->step || !link->timer || !link->alarm) {
        redis_link_free(link);
        return NULL;
    }
    return link;
}

void redis_link_start(struct redis_link *link)
{
    if (link->state != LINK_STOPPED)
        return;
    link->state = LINK_WAITING;
    link->delay_ms = FIRST_DELAY_MS;
    link->check_us = INT64_MAX;
    arm(link, clock_now_us(link->clock));
}

void redis_link_stop(struct redis_link *link)
{
    if (link->state == LINK_STOPPED)
        return;
    hang_up(link);
    link->state = LINK_STOPPED;
    (void)event_del(link->timer);
    link->check_us = INT64_MAX;
    event_active(link->step, 0, 0);
}

void redis_link_set_address(struct redis_link *link, const char *host, int port)
{
    struct redis_url *url = &link->config.url;

    if (url->port == port && strcmp(url->host, host) == 0)
        return;
    snprintf(url->host, sizeof(url->host), "%s", host);
    url->port = port;
    redis_url_show(url, link->shown, sizeof(link->shown));
    if (link->state == LINK_STOPPED)
        return;
    link->delay_ms = FIRST_DELAY_MS;
    if (link->state == LINK_WAITING) {
        arm(link, clock_now_us(link->clock));
        return;
    }
    link->moved = true;
    redis_link_drop(link, "the sentinels name another master");
}

void redis_link_free(struct redis_link *link)
{
    if (!link)
        return;
    if (link->io && link->step && link->timer)
        hang_up(link);
    redis_dial_close(&link->dial);
    if (link->io)
        event_free(link->io);
    if (link->step)
        event_free(link->step);
    if (link->timer)
        event_free(link->timer);
    if (link->alarm)
        event_free(link->alarm);
    redis_input_free(&link->input);
    redis_output_close(&link->output);
    free(link);
}

bool redis_link_is_open(const struct redis_link *link)
{
    return link->state == LINK_OPEN && !link->drop_problem;
}

const char *redis_link_address(const struct redis_link *link)
{
    return link->shown;
}

const char *redis_link_problem(const struct redis_link *link)
{
    return link->problem;
}

uint64_t redis_link_connects(const struct redis_link *link)
{
    return link->connects;
}

bool redis_link_can_send(const struct redis_link *link)
{
    return redis_link_is_open(link) && link->in_flight < IN_FLIGHT_MAX && redis_output_pending(&link->output) < OUTPUT_MAX;
}

void redis_link_drop(struct redis_link *link, const char *problem)
{
    if (link->state == LINK_STOPPED || link->state == LINK_WAITING || link->drop_problem)
        return;
    link->drop_problem = problem;
    event_active(link->step, 0, 0);
}

void redis_link_turn(struct redis_link *link)
{
    link->turn_wanted = true;
    event_active(link->step, 0, 0);
}

void redis_link_alarm(struct redis_link *link, int64_t at_us)
{
    if (at_us == INT64_MAX)
        (void)event_del(link->alarm);
    else
        set_timer(link->alarm, clock_now_us(link->clock), at_us);
}
