/* One connection, one request at a time. A state is membership of a list, and move() alone changes it:
 *
 *    GREETING (TLS alone: the handshake) ── done ──► IDLE
 *
 *             first byte        head complete
 *      IDLE ─────────────► HEAD ─────────────► BODY          too slow, or refused by the reader ─► refuse()
 *       ▲ │                 │                   │
 *       │ └──── complete ───┴───────────────────┘
 *       │                   ▼
 *       │  http_reply     BUSY ── park ──► PARKED            the exchange is open in these, and in STREAM
 *       └───────────────────┼────────────────┤
 *                           │                └── EOF ──► gone(), refuse()
 *                           └── http_stream_begin ──► STREAM ── http_stream_end, or EOF and gone() ──► FLUSH
 *
 *      no request may follow: FLUSH (output is left) ──► LINGER (our side is shut; theirs is read and dropped, and acknowledgements are awaited) ──► DEAD
 *      an error of the descriptor, from any state: ──► DEAD
 *
 * Lists are in order of entry, so the front of each is the next to run out of time: one tick pops the fronts, and no request costs a timer.
 *
 * Events are edges: one that has been told is not told again. `readable` remembers that there may be more to read. It is cleared by EAGAIN, and also by a
 * read that got less than it asked for, which saves a system call per request and is safe but for one case: a reset that arrived together with the bytes.
 * So a connection that is about to wait without a deadline (park) looks again.
 *
 * What the service is told, it is told from run(), the tick or the turn, never from inside its own calls: those only note what happened and put the
 * connection on the turn list, which a timer of 0 ms works off. A dead connection is freed when no frame of its own is left (`entered`).
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include "daemon/clock.h"
#include "daemon/http_conn.h"
#include "daemon/http_input.h"
#include "daemon/http_output.h"
#include "daemon/http_reader.h"
#include "daemon/http_response.h"
#include "daemon/log.h"
#include "daemon/peer.h"
#include "daemon/stream.h"
#include "daemon/tls_stream.h"
#include "proto/errors.h"

#define TICK_MS   100
#define LINGER_MS 2000
#define YOUNG_MS  500                 /* a connection that made itself so lately is about to say something */
#define AHEAD_MAX ((size_t)64 * 1024) /* bytes behind a busy request; beyond, reading stops */
#define PARKED_AHEAD_MAX                                                                                                                   \
    ((size_t)16 * 1024) /* bytes behind a parked one; beyond, the client is cut off, since unread bytes would hide its leaving */
#define OUTPUT_HIGH        ((size_t)256 * 1024) /* output beyond which no further request is taken */
#define STEPS_PER_RUN      64                   /* requests and reads, before the others have their turn */
#define TURNED_AWAY_MAX    64                   /* clients over the limit whose 429 is seen off properly at one time */
#define SPARE_DESCRIPTORS  16                   /* the last ones are for the store and the log, not for clients */
#define TLS_HANDSHAKE_BYTE 0x16                 /* what a TLS client says first; in no HTTP request */

_Static_assert(HTTP_INPUT_MAX > HTTP_READER_RETAINS, "an unfinished request must leave room to read on");

enum conn_state { GREETING, IDLE, HEAD, BODY, BUSY, PARKED, STREAM, FLUSH, LINGER, DEAD, STATE_COUNT };

struct http_exchange { /* lives in its connection, which has one at a time */
    void *data;
    const struct http_stream_ops *stream; /* who is told, with `data`; NULL: it is not a stream */
};

struct http_conn {
    struct http_exchange exchange;
    struct http_conns *set;
    struct stream stream;
    struct event *read_event, *write_event; /* write_event: only while output is pending */
    TAILQ_ENTRY(http_conn) link, turn_link, stuck_link;
    int64_t since_us; /* entered its state */
    int64_t moved_us; /* output moved */
    struct http_reader reader;
    struct http_input in;
    struct http_output output;
    enum conn_state state;
    unsigned entered;                   /* frames of this connection's processing on the stack */
    bool running;                       /* one of them is run() */
    bool unfed;                         /* the reader has not seen all of the input */
    bool readable;                      /* there may be more to read */
    bool hung_up;                       /* the end of input is known to come: read until it is seen */
    bool eof;                           /* it was seen */
    bool reset;                         /* the connection failed */
    bool keep_alive, is_1_0, head_only; /* of the request that is open */
    bool spoke;                         /* it has made a request */
    bool unread;                        /* closing with input that nobody has read */
    bool turned_away;                   /* over the limit, not counted as a connection */
    bool owes_end;                      /* lingers, and our side is to be shut when no receipt waits */
    bool owes_gone;                     /* died with its exchange open, and the service has not been told */
    bool in_turn, is_stuck;
    struct peer peer;
    char *subject; /* what peer points to */
};

TAILQ_HEAD(conn_list, http_conn);

struct http_conns {
    struct event_base *base;
    struct event *tick, *turn;
    struct http_front_config config;
    struct http_service service;
    void (*emptied)(void *arg);
    void *emptied_arg;
    struct conn_list lists[STATE_COUNT];
    struct conn_list stuck, turn_list; /* output pending, by the time it last moved; something to do at the end of the turn */
    size_t turn_length;
    size_t total, turned_away; /* all that are not freed; those among them that were over the limit */
    int fd_ceiling;
    int64_t now_us; /* as of the last tick */
    struct http_date date;
    struct http_front_counts counts;
    bool draining, seeing_off, turn_armed, told_empty;
    struct log_gate greeting_gate, plain_gate;
    char shared[HTTP_INPUT_SHARED];
};

enum go { GO_ON, WAIT };

static void on_readable(evutil_socket_t fd, short what, void *arg);
static void on_writable(evutil_socket_t fd, short what, void *arg);

/* ---- small helpers ---- */

static struct http_conn *conn_of(struct http_exchange *x)
{
    return (struct http_conn *)(void *)((char *)x - offsetof(struct http_conn, exchange));
}

static bool has_exchange(const struct http_conn *c)
{
    return c->state == BUSY || c->state == PARKED || c->state == STREAM;
}

static size_t buffered(const struct http_conn *c)
{
    return http_input_len(&c->in);
}

static void move(struct http_conn *c, enum conn_state state)
{
    struct http_conns *set = c->set;

    TAILQ_REMOVE(&set->lists[c->state], c, link);
    TAILQ_INSERT_TAIL(&set->lists[state], c, link);
    set->counts.parked += (size_t)(state == PARKED);
    set->counts.parked -= (size_t)(c->state == PARKED);
    c->state = state;
    c->since_us = set->now_us;
}

static void arm_turn(struct http_conns *set)
{
    static const struct timeval at_once = {0, 0};

    if (!set->turn_armed) {
        set->turn_armed = event_add(set->turn, &at_once) == 0; /* failed: the tick tries again */
    }
}

/* Lets the connection have a run at the end of the turn. */
static void defer(struct http_conn *c)
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

static void read_time(struct http_conns *set)
{
    set->now_us = clock_now_us(&clock_boottime);
    http_date_set(&set->date, time(NULL));
}

/* ---- birth and death ---- */

/* Returns 0, or -1 without memory. */
static int init_stream(struct http_conns *set, struct stream *s, int fd, const struct sockaddr *peer, bool tls)
{
    if (tls) {
        return tls_stream_init_server(s, fd, set->config.tls);
    }
    if (peer->sa_family == AF_INET || peer->sa_family == AF_INET6) {
        stream_init_tcp(s, fd);
    } else {
        stream_init_unix(s, fd);
    }
    return 0;
}

static void begin_ticking(struct http_conns *set)
{
    static const struct timeval interval = {0, TICK_MS * 1000L};

    if (!event_pending(set->tick, EV_TIMEOUT, NULL)) {
        read_time(set);
        (void)event_add(set->tick, &interval);
    }
}

/* Owns fd only when it succeeds. */
static struct http_conn *conn_new(struct http_conns *set, int fd, const struct sockaddr *peer, bool tls, bool turned_away)
{
    struct http_conn *c = calloc(1, sizeof(*c));

    if (c == NULL) {
        return NULL;
    }
    c->read_event = event_new(set->base, fd, EV_READ | EV_CLOSED | EV_ET | EV_PERSIST, on_readable, c);
    if (c->read_event == NULL || event_add(c->read_event, NULL) != 0 || init_stream(set, &c->stream, fd, peer, tls) != 0) {
        if (c->read_event != NULL) {
            event_free(c->read_event);
        }
        free(c);
        return NULL;
    }
    begin_ticking(set);
    c->set = set;
    c->turned_away = turned_away;
    c->since_us = set->now_us;
    http_reader_init(&c->reader);
    http_output_init(&c->output);
    peer_init(&c->peer, peer);
    peer_learn_ids(&c->peer, fd);
    c->state = tls ? GREETING : IDLE;
    TAILQ_INSERT_TAIL(&set->lists[c->state], c, link);
    set->total++;
    set->turned_away += (size_t)turned_away;
    set->counts.connections += (size_t)!turned_away;
    return c;
}

static void unwatch_output(struct http_conn *c)
{
    if (c->write_event != NULL) {
        event_free(c->write_event);
        c->write_event = NULL;
    }
    if (c->is_stuck) {
        TAILQ_REMOVE(&c->set->stuck, c, stuck_link);
        c->is_stuck = false;
    }
}

/* The descriptor goes now; the rest when the last frame is left. */
static void conn_close(struct http_conn *c, bool abort)
{
    if (c->state == DEAD) {
        return;
    }
    c->owes_gone = has_exchange(c);
    move(c, DEAD);
    unwatch_output(c);
    event_free(c->read_event);
    c->read_event = NULL;
    stream_close(&c->stream, abort);
    c->set->counts.connections -= (size_t)!c->turned_away;
    c->set->turned_away -= (size_t)c->turned_away;
}

static void conn_fail(struct http_conn *c)
{
    c->reset = true;
    conn_close(c, true);
}

static void tell_gone(struct http_conn *c)
{
    const struct http_stream_ops *stream = c->exchange.stream;

    if (stream != NULL) {
        stream->gone(c->exchange.data);
    } else {
        c->set->service.gone(c->set->service.ctx, &c->exchange);
    }
}

/* Tells what is left to tell, and frees. */
static void bury(struct http_conn *c)
{
    struct http_conns *set = c->set;

    c->entered++; /* keeps whoever is told from coming here again */
    http_output_settle_all(&c->output, c->reset);
    if (c->owes_gone) {
        c->owes_gone = false;
        tell_gone(c);
    }
    leave_turn(c);
    TAILQ_REMOVE(&set->lists[DEAD], c, link);
    http_output_close(&c->output);
    http_input_close(&c->in, set->shared);
    free(c->subject);
    free(c);
    if (--set->total == 0) {
        event_del(set->tick);
        if (set->draining) {
            arm_turn(set);
        }
    }
}

static void enter(struct http_conn *c)
{
    c->entered++;
}

/* Out of a frame that the loop called: the service may be told things. */
static void leave(struct http_conn *c)
{
    if (--c->entered == 0 && c->state == DEAD) {
        bury(c);
    }
}

/* Out of a frame that the service called. */
static void leave_to_service(struct http_conn *c)
{
    if (--c->entered > 0 || c->state != DEAD) {
        return;
    }
    if (c->owes_gone || http_output_has_receipts(&c->output)) {
        defer(c);
    } else {
        bury(c);
    }
}

/* ---- output ---- */

static void note_movement(struct http_conn *c)
{
    if (c->is_stuck) {
        TAILQ_REMOVE(&c->set->stuck, c, stuck_link);
    }
    TAILQ_INSERT_TAIL(&c->set->stuck, c, stuck_link);
    c->is_stuck = true;
    c->moved_us = c->set->now_us;
}

static void watch_output(struct http_conn *c)
{
    if (c->write_event != NULL) {
        return;
    }
    c->write_event = event_new(c->set->base, c->stream.fd, EV_WRITE | EV_ET | EV_PERSIST, on_writable, c);
    if (c->write_event == NULL || event_add(c->write_event, NULL) != 0) {
        conn_close(c, true);
        return;
    }
    note_movement(c);
}

/* Returns 0, or -1 when the connection has died of it. */
static int send_parts(struct http_conn *c, struct iovec *parts, int count)
{
    if (http_output_send(&c->output, &c->stream, parts, count) != 0) {
        conn_fail(c);
    } else if (http_output_pending(&c->output) > 0) {
        watch_output(c);
    }
    return c->state == DEAD ? -1 : 0;
}

/* All output is with the kernel. Closing a descriptor with unread input makes the kernel send a reset, which can overtake the reply: so in that case our side
 * is shut first, and theirs read for a while. */
static void finish_close(struct http_conn *c)
{
    bool unread = c->unread || c->readable || c->hung_up;

    if ((!unread || c->eof) && !http_output_has_receipts(&c->output)) {
        conn_close(c, false);
        return;
    }
    c->owes_end = c->stream.ops->end_sends && http_output_has_receipts(&c->output);
    if (!c->owes_end) {
        stream_end(&c->stream);
    }
    move(c, LINGER);
    if (!c->running || c->owes_end) {
        defer(c);
    }
}

/* No request is taken any more. */
static void begin_close(struct http_conn *c)
{
    c->unread |= buffered(c) > 0;
    http_input_clear(&c->in);
    c->unfed = false;
    move(c, FLUSH);
    if (http_output_pending(&c->output) == 0) {
        finish_close(c);
    }
}

static int send_response(struct http_conn *c, const struct http_response *response, enum http_connection_field field, bool head_only)
{
    struct http_response_bytes bytes;

    http_response_lay(&bytes, response, &c->set->date, field, head_only);
    return send_parts(c, bytes.parts, bytes.count);
}

/* The front's own answer to what it will not take, and the end of the connection. No exchange is open. */
static void refuse(struct http_conn *c, enum pawl_error error, const char *message, bool head_only)
{
    struct http_error_bytes bytes;
    struct http_response response = http_response_error(&bytes, error, message);

    log_debug("http_refused", LOG_STR("peer", c->peer.text), LOG_STR("error", pawl_error_wire(error)), LOG_STR("message", message));
    c->unread = true;
    if (send_response(c, &response, HTTP_CONNECTION_CLOSE, head_only) == 0) {
        begin_close(c);
    }
    http_response_error_close(&bytes);
}

/* TLS where there should be none, or none where there should be. One line a second each, since a port scan must not fill the log. */
static void tell_refused(struct http_conn *c, const char *problem)
{
    uint64_t suppressed = 0;

    c->set->counts.tls_failed++;
    if (log_gate_pass(&c->set->greeting_gate, clock_now_us(&clock_boottime), &suppressed)) {
        log_warn("tls_refused", LOG_STR("peer", c->peer.text), LOG_STR("problem", problem), LOG_INT("suppressed", suppressed));
    }
}

static void tell_unexpected(struct http_conn *c)
{
    uint64_t suppressed = 0;

    if (log_gate_pass(&c->set->plain_gate, clock_now_us(&clock_boottime), &suppressed)) {
        log_warn("tls_on_plain_port", LOG_STR("peer", c->peer.text), LOG_INT("suppressed", suppressed));
    }
}

/* ---- input ---- */

/* A read failed with `error`: what that says of the replies that were sent. A reset that proves no loss leaves open whether a reply was read that was on its
 * way, and a client that read its grant may hold the lock: so the reply counts as delivered. */
static void note_failure(struct http_conn *c, int error)
{
    c->reset = stream_proves_loss(&c->stream, error);
    if (!c->reset && http_output_has_receipts(&c->output) && stream_reach(&c->stream) != STREAM_ARRIVED) {
        c->set->counts.unproven++;
    }
    conn_close(c, true);
}

/* What a read that brought `n` bytes of `asked`, or failed with errno, means for the connection. */
static void note_read(struct http_conn *c, ssize_t n, size_t asked)
{
    if (n > 0) {
        c->readable = c->hung_up || (size_t)n == asked || c->stream.more;
    } else if (n == 0) {
        c->eof = true;
        c->readable = c->hung_up = false;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        c->readable = c->hung_up = false;
        if (c->stream.read_wants_room) {
            watch_output(c);
        }
    } else if (errno != EINTR) {
        note_failure(c, errno);
    }
}

static enum go read_on(struct http_conn *c, size_t limit)
{
    size_t room = http_input_room(&c->in, c->set->shared);
    ssize_t n;

    if (room == 0) {
        conn_close(c, true);
        return WAIT;
    }
    if (room > limit) {
        room = limit;
    }
    n = stream_read(&c->stream, c->in.at + c->in.end, room);
    note_read(c, n, room);
    if (n > 0) {
        (void)http_output_settle(&c->output, &c->stream, false); /* it lives, and speaks: what it was sent has reached it */
        c->in.end += (size_t)n;
        c->unfed = true;
    }
    return c->state == DEAD ? WAIT : GO_ON;
}

/* Input that nobody will look at. */
static enum go read_away(struct http_conn *c)
{
    note_read(c, stream_read(&c->stream, c->set->shared, HTTP_INPUT_SHARED), HTTP_INPUT_SHARED);
    return c->state == DEAD ? WAIT : GO_ON;
}

/* ---- requests ---- */

static void hand_over(struct http_conn *c)
{
    struct http_conns *set = c->set;
    struct http_request request;

    http_reader_request(&c->reader, c->in.at + c->in.start, &request);
    request.peer = &c->peer;
    c->in.start += http_reader_size(&c->reader); /* the bytes stay where they are until something is read */
    c->unfed = buffered(c) > 0;
    c->keep_alive = c->reader.keep_alive;
    c->is_1_0 = c->reader.is_1_0;
    c->head_only = request.method == HTTP_HEAD;
    http_reader_init(&c->reader);
    set->counts.requests++;
    c->spoke = true;
    c->exchange = (struct http_exchange){NULL, NULL};
    move(c, BUSY);
    set->service.handle(set->service.ctx, &c->exchange, &request);
}

static void say_continue(struct http_conn *c)
{
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct iovec part = {(char *)line, sizeof(line) - 1};

    c->reader.wants_continue = false;
    (void)send_parts(c, &part, 1);
}

static enum go feed(struct http_conn *c)
{
    size_t len = buffered(c);
    enum http_reader_result result = http_reader_feed(&c->reader, c->in.at + c->in.start, &len);

    c->unfed = false;
    switch (result) {
    case HTTP_READER_COMPLETE:
        hand_over(c);
        break;
    case HTTP_READER_REFUSED:
        c->set->counts.bad_requests++;
        if (c->in.at[c->in.start] == TLS_HANDSHAKE_BYTE) {
            tell_unexpected(c);
            refuse(c, c->reader.error, "this port speaks plain HTTP: use http://", false);
            break;
        }
        refuse(c, c->reader.error, c->reader.problem, c->reader.method == HTTP_HEAD);
        break;
    case HTTP_READER_MORE:
        c->in.end = c->in.start + len;
        c->readable = !c->eof; /* not only an edge: see the top */
        if (c->state == IDLE || (c->state == HEAD && c->reader.in_body)) {
            move(c, c->reader.in_body ? BODY : HEAD);
        }
        if (c->reader.wants_continue) {
            say_continue(c);
        }
        break;
    }
    return c->state == DEAD ? WAIT : GO_ON;
}

static enum go end_of_input(struct http_conn *c)
{
    if (c->state == IDLE) {
        begin_close(c);
    } else {
        c->set->counts.bad_requests++;
        refuse(c, PAWL_E_BAD_REQUEST, "the connection ended in the middle of a request", c->reader.method == HTTP_HEAD);
    }
    return c->state == DEAD ? WAIT : GO_ON;
}

/* The exchange ends because of its client; the connection follows. */
static enum go leave_parked(struct http_conn *c, const char *why)
{
    move(c, FLUSH);
    tell_gone(c);
    refuse(c, PAWL_E_BAD_REQUEST, why, c->head_only);
    return c->state == DEAD ? WAIT : GO_ON;
}

/* The same for a stream, in which there is no place for an answer. */
static enum go leave_stream(struct http_conn *c)
{
    move(c, FLUSH);
    tell_gone(c);
    begin_close(c);
    return c->state == DEAD ? WAIT : GO_ON;
}

/* ---- the handshake ---- */

static void greeting_failed(struct http_conn *c, int error)
{
    if (error == TLS_STREAM_SPEAKS_PLAIN) {
        c->set->counts.bad_requests++;
        tell_refused(c, "a plain HTTP request came where TLS is spoken");
        move(c, IDLE);
        refuse(c, PAWL_E_BAD_REQUEST, "this port speaks TLS: use https://", false);
        return;
    }
    if (error != TLS_STREAM_SAID_NOTHING) {
        tell_refused(c, tls_stream_problem(&c->stream));
    }
    finish_close(c); /* with what is unread read, so that our alert arrives */
}

static void greeted(struct http_conn *c)
{
    c->set->counts.tls_greeted++;
    if (tls_stream_subject(&c->stream, &c->subject) != 0) {
        conn_close(c, true);
        return;
    }
    c->peer.subject = c->subject;
    c->readable = true; /* the first request may have come along */
    move(c, IDLE);
    if (c->turned_away) {
        refuse(c, PAWL_E_TOO_MANY_CONNECTIONS, NULL, false);
    } else if (c->set->draining) {
        begin_close(c);
    }
}

static enum go run_greeting(struct http_conn *c)
{
    if (!c->readable) {
        return WAIT;
    }
    if (stream_greet(&c->stream) == 0) {
        greeted(c);
    } else if (errno == EAGAIN) {
        c->readable = c->hung_up = false;
        if (c->stream.read_wants_room) {
            watch_output(c);
        }
    } else {
        greeting_failed(c, errno);
    }
    return c->state == DEAD ? WAIT : GO_ON;
}

/* ---- the run: whatever can be done now ---- */

static enum go run_open(struct http_conn *c)
{
    if (http_output_pending(&c->output) > OUTPUT_HIGH) {
        return WAIT; /* for on_writable */
    }
    if (c->unfed) {
        return feed(c);
    }
    if (c->eof) {
        return end_of_input(c);
    }
    return c->readable ? read_on(c, HTTP_INPUT_SHARED) : WAIT;
}

static enum go run_exchange(struct http_conn *c)
{
    if (c->state == PARKED && c->eof) {
        return leave_parked(c, "the client closed its sending side while its request was waiting");
    }
    if (c->state == PARKED && buffered(c) > PARKED_AHEAD_MAX) {
        return leave_parked(c, "too many bytes follow a request that is waiting");
    }
    if (c->state == STREAM && (c->eof || buffered(c) > PARKED_AHEAD_MAX)) {
        return leave_stream(c);
    }
    if (!c->readable || buffered(c) >= AHEAD_MAX) {
        return WAIT;
    }
    return read_on(c, AHEAD_MAX - buffered(c));
}

static enum go run_closing(struct http_conn *c)
{
    if (c->state == LINGER && c->eof && !http_output_has_receipts(&c->output)) {
        conn_close(c, false);
        return WAIT;
    }
    return c->readable ? read_away(c) : WAIT;
}

static enum go step(struct http_conn *c)
{
    switch (c->state) {
    case GREETING:
        return run_greeting(c);
    case IDLE:
    case HEAD:
    case BODY:
        return run_open(c);
    case BUSY:
    case PARKED:
    case STREAM:
        return run_exchange(c);
    case FLUSH:
    case LINGER:
        return run_closing(c);
    case DEAD:
    case STATE_COUNT:
        break;
    }
    return WAIT;
}

static void run(struct http_conn *c)
{
    int steps = 0;

    c->running = true;
    if (c->state != DEAD && (c->eof || c->state == LINGER) && http_output_settle(&c->output, &c->stream, true) != 0) {
        conn_fail(c);
    }
    if (c->state == LINGER && c->owes_end && !http_output_has_receipts(&c->output)) {
        c->owes_end = false;
        stream_end(&c->stream);
    }
    while (step(c) == GO_ON) {
        if (++steps == STEPS_PER_RUN) {
            defer(c);
            break;
        }
    }
    if (c->state == DEAD) {
        http_input_clear(&c->in);
    }
    if (http_input_put_away(&c->in, c->set->shared) != 0) {
        conn_close(c, true);
    }
    c->running = false;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct http_conn *c = arg;

    (void)fd;
    c->readable = true;
    c->hung_up |= (what & EV_CLOSED) != 0 && !c->eof;
    enter(c);
    run(c);
    leave(c);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct http_conn *c = arg;
    ssize_t moved;

    (void)fd;
    (void)what;
    enter(c);
    c->readable |= c->stream.read_wants_room;
    moved = http_output_flush(&c->output, &c->stream);
    if (moved < 0) {
        conn_fail(c);
    } else if (http_output_pending(&c->output) == 0) {
        unwatch_output(c);
        if (c->state == FLUSH) {
            finish_close(c);
        } else if (c->state == STREAM) {
            c->exchange.stream->room(c->exchange.data);
        }
    } else if (moved > 0) {
        note_movement(c);
    }
    run(c);
    leave(c);
}

/* ---- the turn and the tick ---- */

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
        enter(c);
        run(c);
        leave(c);
    }
    if (set->draining && set->total == 0 && !set->told_empty) {
        set->told_empty = true;
        set->emptied(set->emptied_arg); /* may free the set */
    }
}

static void too_slow(struct http_conn *c)
{
    c->set->counts.timeouts++;
    refuse(c, PAWL_E_TIMEOUT,
           c->state == HEAD ? "the head of the request did not arrive in time" : "the body of the request did not arrive in time",
           c->reader.method == HTTP_HEAD);
}

/* There is no way to tell it why. */
static void greets_too_slowly(struct http_conn *c)
{
    c->set->counts.timeouts++;
    tell_refused(c, "the handshake did not end in time");
    conn_close(c, false);
}

static void idle_too_long(struct http_conn *c)
{
    if (http_output_pending(&c->output) > 0) {
        move(c, IDLE); /* a slow reader of its last reply: that has a deadline of its own */
    } else {
        begin_close(c);
    }
}

static void lingered(struct http_conn *c)
{
    conn_close(c, false);
}

static void stuck_too_long(struct http_conn *c)
{
    c->set->counts.timeouts++;
    conn_close(c, true);
}

static void expire(struct http_conns *set, struct conn_list *list, int64_t limit_ms, void (*end)(struct http_conn *c))
{
    /* since_us is up to a tick too early; so nothing ends before its time */
    const int64_t born_before = set->now_us - (limit_ms + TICK_MS) * 1000;
    struct http_conn *c;

    while ((c = TAILQ_FIRST(list)) != NULL && (list == &set->stuck ? c->moved_us : c->since_us) <= born_before) {
        enter(c);
        end(c);
        leave(c);
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
            defer(c); /* no event tells that the last byte was acknowledged */
        }
    }
    if (!TAILQ_EMPTY(&set->turn_list)) {
        arm_turn(set);
    }
}

/* ---- the service's calls ---- */

void http_exchange_set_data(struct http_exchange *x, void *data)
{
    x->data = data;
}

void *http_exchange_data(const struct http_exchange *x)
{
    return x->data;
}

const char *http_exchange_peer(const struct http_exchange *x)
{
    return ((const struct http_conn *)(const void *)((const char *)x - offsetof(struct http_conn, exchange)))->peer.text;
}

/* An open request whose client's leaving has to be noticed from now on. What was there before is looked at now: no event will tell of it. */
static void watch_leaving(struct http_conn *c)
{
    if (c->running) {
        c->readable |= !c->eof; /* the run that called handle() goes on and looks again */
    } else if (c->eof || c->readable || buffered(c) > PARKED_AHEAD_MAX || stream_has_news(&c->stream)) {
        c->readable |= !c->eof;
        defer(c);
    }
}

void http_exchange_park(struct http_exchange *x)
{
    struct http_conn *c = conn_of(x);

    if (c->state != BUSY) {
        return;
    }
    move(c, PARKED);
    watch_leaving(c);
}

/* Sends, and says what became of it. The exchange has ended when this returns; the connection may be dead. */
static enum http_delivery send_reply(struct http_conn *c, const struct http_response *response, struct http_receipt *receipt,
                                     http_receipt_fn *fn, void *arg)
{
    bool closing = !c->keep_alive || c->set->draining || c->set->seeing_off || (c->eof && buffered(c) == 0);
    enum http_connection_field field = closing ? HTTP_CONNECTION_CLOSE : c->is_1_0 ? HTTP_CONNECTION_KEEP_ALIVE : HTTP_CONNECTION_NONE;
    enum http_delivery delivery = HTTP_LOST;

    move(c, IDLE);
    if (send_response(c, response, field, c->head_only) == 0) {
        delivery = http_output_delivery(&c->output, &c->stream, c->eof);
        if (receipt != NULL && delivery == HTTP_DELIVERED && !closing) {
            /* It may have closed between our last look and the writing: its next bytes, its end or an error will tell. */
            delivery = HTTP_DELIVERY_PENDING;
        }
        if (delivery == HTTP_LOST) {
            conn_fail(c);
        }
    }
    if (receipt != NULL && delivery == HTTP_DELIVERY_PENDING) {
        http_output_expect(&c->output, receipt, fn, arg);
    } else if (receipt != NULL) {
        http_output_unreserve(&c->output, receipt);
    }
    if (c->state != DEAD && closing) {
        begin_close(c);
    }
    return delivery;
}

enum http_delivery http_reply(struct http_exchange *x, const struct http_response *response, http_receipt_fn *receipt, void *arg)
{
    struct http_conn *c = conn_of(x);
    struct http_receipt *place = NULL;
    enum http_delivery delivery = HTTP_LOST;

    if (!has_exchange(c)) {
        return HTTP_LOST;
    }
    enter(c);
    if (receipt != NULL && !c->running) {
        c->eof |= stream_at_end(&c->stream); /* its leaving may wait behind what brought this reply in the same turn */
        c->readable |= c->stream.more && !c->eof;
    }
    if (receipt != NULL) {
        place = http_output_reserve(&c->output);
    }
    if (receipt != NULL && place == NULL) {
        /* No memory to learn what becomes of the reply: so the client doesn't get it. */
        move(c, IDLE);
        conn_close(c, true);
    } else {
        delivery = send_reply(c, response, place, receipt, arg);
    }
    if (!c->running && c->state == IDLE && (buffered(c) > 0 || c->readable || c->eof)) {
        defer(c);
    }
    leave_to_service(c);
    return delivery;
}

/* ---- streams ---- */

bool http_stream_begin(struct http_exchange *x, const struct http_response *response, const struct http_stream_ops *ops, void *arg)
{
    struct http_conn *c = conn_of(x);
    struct http_response_bytes bytes;
    bool open = false;

    if (c->state != BUSY) {
        return false;
    }
    enter(c);
    move(c, IDLE);
    http_response_lay_head(&bytes, response, &c->set->date, HTTP_CONNECTION_CLOSE, c->is_1_0 ? HTTP_BY_CLOSE : HTTP_BY_CHUNKS);
    if (send_parts(c, bytes.parts, bytes.count) == 0 && c->head_only) {
        begin_close(c);
    } else if (c->state != DEAD) {
        open = true;
        *x = (struct http_exchange){arg, ops};
        move(c, STREAM);
        watch_leaving(c);
    }
    leave_to_service(c);
    return open;
}

static char *put_chunk_size(char *end, size_t n)
{
    static const char digits[] = "0123456789abcdef";

    do {
        *--end = digits[n % 16];
        n /= 16;
    } while (n > 0);
    return end;
}

/* Frames the parts as one chunk in `framed`; returns how many parts that makes. An empty chunk would be the last. */
static int frame_chunk(struct iovec *framed, char *line, size_t line_len, const struct iovec *parts, int count)
{
    static const char line_end[] = "\r\n";
    size_t len = 0;
    char *size;

    for (int i = 0; i < count; i++) {
        framed[i + 1] = parts[i];
        len += parts[i].iov_len;
    }
    line[line_len - 2] = '\r';
    line[line_len - 1] = '\n';
    size = put_chunk_size(line + line_len - 2, len);
    framed[0] = (struct iovec){size, (size_t)(line + line_len - size)};
    framed[count + 1] = (struct iovec){(char *)line_end, 2};
    return len > 0 ? count + 2 : 0;
}

enum http_stream_result http_stream_send(struct http_exchange *x, const struct iovec *parts, int count)
{
    struct http_conn *c = conn_of(x);
    struct iovec framed[HTTP_STREAM_PARTS + 2];
    char line[24];
    enum http_stream_result result = HTTP_STREAM_OPEN;

    if (c->state != STREAM) { /* it failed before, and gone() has not been called yet: it won't be */
        c->owes_gone = false;
        return HTTP_STREAM_GONE;
    }
    enter(c);
    count = frame_chunk(framed, line, sizeof(line), parts, count);
    if (count > 0 && send_parts(c, framed + c->is_1_0, c->is_1_0 ? count - 2 : count) != 0) {
        c->owes_gone = false;
        result = HTTP_STREAM_GONE;
    } else if (http_output_pending(&c->output) > 0) {
        result = HTTP_STREAM_FULL;
    }
    leave_to_service(c);
    return result;
}

void http_stream_end(struct http_exchange *x)
{
    static const char last_chunk[] = "0\r\n\r\n";
    struct iovec part = {(char *)last_chunk, sizeof(last_chunk) - 1};
    struct http_conn *c = conn_of(x);

    if (c->state != STREAM) {
        c->owes_gone = false;
        return;
    }
    enter(c);
    move(c, FLUSH);
    if (c->is_1_0 || send_parts(c, &part, 1) == 0) {
        begin_close(c);
    }
    leave_to_service(c);
}

enum http_delivery http_reply_error(struct http_exchange *x, enum pawl_error error, const char *message)
{
    struct http_error_bytes bytes;
    struct http_response response = http_response_error(&bytes, error, message);
    enum http_delivery delivery = http_reply(x, &response, NULL, NULL);

    http_response_error_close(&bytes);
    return delivery;
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
            enter(c);
            conn_close(c, false);
            leave(c);
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
    (void)init_stream(set, &s, fd, peer, false);
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
    struct http_conn *c = set->turned_away < TURNED_AWAY_MAX && fd < set->fd_ceiling ? conn_new(set, fd, peer, tls, true) : NULL;

    if (c == NULL) {
        return false;
    }
    set->counts.refused++;
    enter(c);
    if (!tls) { /* else when the handshake is done */
        refuse(c, PAWL_E_TOO_MANY_CONNECTIONS, NULL, false);
    }
    leave(c);
    return true;
}

void http_conns_take(struct http_conns *set, int fd, const struct sockaddr *peer, bool tls)
{
    bool is_full = set->counts.connections >= set->config.max_connections || fd >= set->fd_ceiling;

    if (!is_full && conn_new(set, fd, peer, tls, false) != NULL) {
        set->counts.accepted++;
    } else if (!is_full || !turn_away_gently(set, fd, peer, tls)) {
        http_conns_turn_away(set, fd, peer, tls);
    }
}

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
            conn_close(c, false);
            defer(c);
        }
    }
    for (c = TAILQ_FIRST(&set->lists[IDLE]); c != NULL; c = next) {
        next = TAILQ_NEXT(c, link);
        if (is_young(c)) {
            continue; /* the tick closes it, if its reply doesn't */
        }
        enter(c);
        begin_close(c);
        c->entered--;
        defer(c); /* the service may have called: whatever died is freed at the end of the turn */
    }
    if (set->total == 0) {
        arm_turn(set);
    }
}

struct http_front_counts *http_conns_counts(struct http_conns *set)
{
    return &set->counts;
}
