/* What a connection can do now: it is run when its descriptor has something to tell, and at the end of a turn when somebody wants it to.
 *
 * Events are edges: one that has been told is not told again. `readable` remembers that there may be more to read. It is cleared by EAGAIN, and also by a
 * read that got less than it asked for, which saves a system call per request and is safe but for one case: a reset that arrived together with the bytes.
 * So a connection that is about to wait without a deadline (http_conn_watch_leaving) looks again.
 *
 * A run is a number of steps, one function a group of states, until there is nothing to do or the others must have their turn.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/http_conn.h"

#include <errno.h>

#include <event2/event.h>

#include "daemon/clock.h"
#include "daemon/tls_stream.h"
#include "proto/errors.h"

#define AHEAD_MAX          ((size_t)64 * 1024)  /* bytes behind a busy request; beyond, reading stops */
#define OUTPUT_HIGH        ((size_t)256 * 1024) /* output beyond which no further request is taken */
#define STEPS_PER_RUN      64                   /* requests and reads, before the others have their turn */
#define TLS_HANDSHAKE_BYTE 0x16                 /* what a TLS client says first; in no HTTP request */

enum go { GO_ON, WAIT };

/* ---- input ---- */

/* A read failed with `error`: what that says of the replies that were sent. A reset that proves no loss leaves open whether a reply was read that was on its
 * way, and a client that read its grant may hold the lock: so the reply counts as delivered. */
static void note_failure(struct http_conn *c, int error)
{
    c->reset = stream_proves_loss(&c->stream, error);
    if (!c->reset && http_output_has_receipts(&c->output) && stream_reach(&c->stream) != STREAM_ARRIVED) {
        c->set->counts.unproven++;
    }
    http_conn_close(c, true);
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
            http_conn_watch_output(c);
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
        http_conn_close(c, true);
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

static void tell_unexpected(struct http_conn *c)
{
    uint64_t suppressed = 0;

    if (log_gate_pass(&c->set->plain_gate, clock_now_us(&clock_boottime), &suppressed)) {
        log_warn("tls_on_plain_port", LOG_STR("peer", c->peer.text), LOG_INT("suppressed", suppressed));
    }
}

static void hand_over(struct http_conn *c)
{
    struct http_conns *set = c->set;
    struct http_request request;

    http_reader_request(&c->reader, c->in.at + c->in.start, &request);
    request.peer = &c->peer;
    c->in.start += http_reader_size(&c->reader); /* the bytes stay where they are until something is read */
    c->unfed = http_conn_buffered(c) > 0;
    c->keep_alive = c->reader.keep_alive;
    c->is_1_0 = c->reader.is_1_0;
    c->head_only = request.method == HTTP_HEAD;
    http_reader_init(&c->reader);
    set->counts.requests++;
    c->spoke = true;
    c->exchange = (struct http_exchange){NULL, NULL};
    http_conn_move(c, BUSY);
    set->service.handle(set->service.ctx, &c->exchange, &request);
}

static void say_continue(struct http_conn *c)
{
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct iovec part = {(char *)line, sizeof(line) - 1};

    c->reader.wants_continue = false;
    (void)http_conn_send_parts(c, &part, 1);
}

static enum go feed(struct http_conn *c)
{
    size_t len = http_conn_buffered(c);
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
            http_conn_refuse(c, c->reader.error, "this port speaks plain HTTP: use http://", false);
            break;
        }
        http_conn_refuse(c, c->reader.error, c->reader.problem, c->reader.method == HTTP_HEAD);
        break;
    case HTTP_READER_MORE:
        c->in.end = c->in.start + len;
        c->readable = !c->eof; /* not only an edge: see the top */
        if (c->state == IDLE || (c->state == HEAD && c->reader.in_body)) {
            http_conn_move(c, c->reader.in_body ? BODY : HEAD);
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
        http_conn_begin_close(c);
    } else {
        c->set->counts.bad_requests++;
        http_conn_refuse(c, PAWL_E_BAD_REQUEST, "the connection ended in the middle of a request", c->reader.method == HTTP_HEAD);
    }
    return c->state == DEAD ? WAIT : GO_ON;
}

/* The exchange ends because of its client; the connection follows. */
static enum go leave_parked(struct http_conn *c, const char *why)
{
    http_conn_move(c, FLUSH);
    http_conn_tell_gone(c);
    http_conn_refuse(c, PAWL_E_BAD_REQUEST, why, c->head_only);
    return c->state == DEAD ? WAIT : GO_ON;
}

/* The same for a stream, in which there is no place for an answer. */
static enum go leave_stream(struct http_conn *c)
{
    http_conn_move(c, FLUSH);
    http_conn_tell_gone(c);
    http_conn_begin_close(c);
    return c->state == DEAD ? WAIT : GO_ON;
}

/* ---- the handshake ---- */

static void greeting_failed(struct http_conn *c, int error)
{
    if (error == TLS_STREAM_SPEAKS_PLAIN) {
        c->set->counts.bad_requests++;
        http_conn_tell_refused(c, "a plain HTTP request came where TLS is spoken");
        http_conn_move(c, IDLE);
        http_conn_refuse(c, PAWL_E_BAD_REQUEST, "this port speaks TLS: use https://", false);
        return;
    }
    if (error != TLS_STREAM_SAID_NOTHING) {
        http_conn_tell_refused(c, tls_stream_problem(&c->stream));
    }
    http_conn_finish_close(c); /* with what is unread read, so that our alert arrives */
}

static void greeted(struct http_conn *c)
{
    c->set->counts.tls_greeted++;
    if (tls_stream_subject(&c->stream, &c->subject) != 0) {
        http_conn_close(c, true);
        return;
    }
    c->peer.subject = c->subject;
    c->readable = true; /* the first request may have come along */
    http_conn_move(c, IDLE);
    if (c->turned_away) {
        http_conn_refuse(c, PAWL_E_TOO_MANY_CONNECTIONS, NULL, false);
    } else if (c->set->draining) {
        http_conn_begin_close(c);
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
            http_conn_watch_output(c);
        }
    } else {
        greeting_failed(c, errno);
    }
    return c->state == DEAD ? WAIT : GO_ON;
}

/* ---- the run ---- */

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
    if (c->state == PARKED && http_conn_buffered(c) > PARKED_AHEAD_MAX) {
        return leave_parked(c, "too many bytes follow a request that is waiting");
    }
    if (c->state == STREAM && (c->eof || http_conn_buffered(c) > PARKED_AHEAD_MAX)) {
        return leave_stream(c);
    }
    if (!c->readable || http_conn_buffered(c) >= AHEAD_MAX) {
        return WAIT;
    }
    return read_on(c, AHEAD_MAX - http_conn_buffered(c));
}

static enum go run_closing(struct http_conn *c)
{
    if (c->state == LINGER && c->eof && !http_output_has_receipts(&c->output)) {
        http_conn_close(c, false);
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

void http_run(struct http_conn *c)
{
    int steps = 0;

    c->running = true;
    if (c->state != DEAD && (c->eof || c->state == LINGER) && http_output_settle(&c->output, &c->stream, true) != 0) {
        http_conn_fail(c);
    }
    if (c->state == LINGER && c->owes_end && !http_output_has_receipts(&c->output)) {
        c->owes_end = false;
        stream_end(&c->stream);
    }
    while (step(c) == GO_ON) {
        if (++steps == STEPS_PER_RUN) {
            http_conns_defer(c);
            break;
        }
    }
    if (c->state == DEAD) {
        http_input_clear(&c->in);
    }
    if (http_input_put_away(&c->in, c->set->shared) != 0) {
        http_conn_close(c, true);
    }
    c->running = false;
}

void http_run_readable(evutil_socket_t fd, short what, void *arg)
{
    struct http_conn *c = arg;

    (void)fd;
    c->readable = true;
    c->hung_up |= (what & EV_CLOSED) != 0 && !c->eof;
    http_conn_enter(c);
    http_run(c);
    http_conn_leave(c);
}

void http_run_writable(evutil_socket_t fd, short what, void *arg)
{
    struct http_conn *c = arg;
    ssize_t moved;

    (void)fd;
    (void)what;
    http_conn_enter(c);
    c->readable |= c->stream.read_wants_room;
    moved = http_output_flush(&c->output, &c->stream);
    if (moved < 0) {
        http_conn_fail(c);
    } else if (http_output_pending(&c->output) == 0) {
        http_conn_unwatch_output(c);
        if (c->state == FLUSH) {
            http_conn_finish_close(c);
        } else if (c->state == STREAM) {
            c->exchange.stream->room(c->exchange.data);
        }
    } else if (moved > 0) {
        http_conn_note_movement(c);
    }
    http_run(c);
    http_conn_leave(c);
}
