/* One connection, one request at a time. A state is membership of a list, and http_conn_move() alone changes it:
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
 * What the service is told, it is told from a run, the tick or the turn, never from inside its own calls: those only note what happened and put the
 * connection on the turn list (http_conns). A dead connection is freed when no frame of its own is left (`entered`).
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/http_conn.h"

#include <stdlib.h>
#include <sys/socket.h>

#include <event2/event.h>

#include "daemon/clock.h"
#include "daemon/tls_stream.h"
#include "proto/errors.h"

void http_conn_move(struct http_conn *c, enum conn_state state)
{
    struct http_conns *set = c->set;

    TAILQ_REMOVE(&set->lists[c->state], c, link);
    TAILQ_INSERT_TAIL(&set->lists[state], c, link);
    set->counts.parked += (size_t)(state == PARKED);
    set->counts.parked -= (size_t)(c->state == PARKED);
    c->state = state;
    c->since_us = set->now_us;
}

/* ---- birth and death ---- */

int http_conn_init_stream(struct http_conns *set, struct stream *s, int fd, const struct sockaddr *peer, bool tls)
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

struct http_conn *http_conn_new(struct http_conns *set, int fd, const struct sockaddr *peer, bool tls, bool turned_away)
{
    struct http_conn *c = calloc(1, sizeof(*c));

    if (c == NULL) {
        return NULL;
    }
    c->read_event = event_new(set->base, fd, EV_READ | EV_CLOSED | EV_ET | EV_PERSIST, http_run_readable, c);
    if (c->read_event == NULL || event_add(c->read_event, NULL) != 0 || http_conn_init_stream(set, &c->stream, fd, peer, tls) != 0) {
        if (c->read_event != NULL) {
            event_free(c->read_event);
        }
        free(c);
        return NULL;
    }
    c->set = set;
    c->turned_away = turned_away;
    http_reader_init(&c->reader);
    http_output_init(&c->output);
    peer_init(&c->peer, peer);
    peer_learn_ids(&c->peer, fd);
    c->state = tls ? GREETING : IDLE;
    return c;
}

void http_conn_unwatch_output(struct http_conn *c)
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

void http_conn_close(struct http_conn *c, bool abort)
{
    if (c->state == DEAD) {
        return;
    }
    c->owes_gone = http_conn_has_exchange(c);
    http_conn_move(c, DEAD);
    http_conn_unwatch_output(c);
    event_free(c->read_event);
    c->read_event = NULL;
    stream_close(&c->stream, abort);
    c->set->counts.connections -= (size_t)!c->turned_away;
    c->set->turned_away -= (size_t)c->turned_away;
}

void http_conn_fail(struct http_conn *c)
{
    c->reset = true;
    http_conn_close(c, true);
}

void http_conn_tell_gone(struct http_conn *c)
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
    c->entered++; /* keeps whoever is told from coming here again */
    http_output_settle_all(&c->output, c->reset);
    if (c->owes_gone) {
        c->owes_gone = false;
        http_conn_tell_gone(c);
    }
    http_conns_remove(c);
    http_output_close(&c->output);
    http_input_close(&c->in, c->set->shared);
    free(c->subject);
    free(c);
}

void http_conn_leave(struct http_conn *c)
{
    if (--c->entered == 0 && c->state == DEAD) {
        bury(c);
    }
}

void http_conn_leave_to_service(struct http_conn *c)
{
    if (--c->entered > 0 || c->state != DEAD) {
        return;
    }
    if (c->owes_gone || http_output_has_receipts(&c->output)) {
        http_conns_defer(c);
    } else {
        bury(c);
    }
}

void http_conn_watch_leaving(struct http_conn *c)
{
    if (c->running) {
        c->readable |= !c->eof; /* the run that called handle() goes on and looks again */
    } else if (c->eof || c->readable || http_conn_buffered(c) > PARKED_AHEAD_MAX || stream_has_news(&c->stream)) {
        c->readable |= !c->eof;
        http_conns_defer(c);
    }
}

/* ---- output ---- */

void http_conn_note_movement(struct http_conn *c)
{
    if (c->is_stuck) {
        TAILQ_REMOVE(&c->set->stuck, c, stuck_link);
    }
    TAILQ_INSERT_TAIL(&c->set->stuck, c, stuck_link);
    c->is_stuck = true;
    c->moved_us = c->set->now_us;
}

void http_conn_watch_output(struct http_conn *c)
{
    if (c->write_event != NULL) {
        return;
    }
    c->write_event = event_new(c->set->base, c->stream.fd, EV_WRITE | EV_ET | EV_PERSIST, http_run_writable, c);
    if (c->write_event == NULL || event_add(c->write_event, NULL) != 0) {
        http_conn_close(c, true);
        return;
    }
    http_conn_note_movement(c);
}

int http_conn_send_parts(struct http_conn *c, struct iovec *parts, int count)
{
    if (http_output_send(&c->output, &c->stream, parts, count) != 0) {
        http_conn_fail(c);
    } else if (http_output_pending(&c->output) > 0) {
        http_conn_watch_output(c);
    }
    return c->state == DEAD ? -1 : 0;
}

int http_conn_send_response(struct http_conn *c, const struct http_response *response, enum http_connection_field field, bool head_only)
{
    struct http_response_bytes bytes;

    http_response_lay(&bytes, response, &c->set->date, field, head_only);
    return http_conn_send_parts(c, bytes.parts, bytes.count);
}

/* ---- the end ---- */

/* All output is with the kernel. Closing a descriptor with unread input makes the kernel send a reset, which can overtake the reply: so in that case our side
 * is shut first, and theirs read for a while. */
void http_conn_finish_close(struct http_conn *c)
{
    bool unread = c->unread || c->readable || c->hung_up;

    if ((!unread || c->eof) && !http_output_has_receipts(&c->output)) {
        http_conn_close(c, false);
        return;
    }
    c->owes_end = c->stream.ops->end_sends && http_output_has_receipts(&c->output);
    if (!c->owes_end) {
        stream_end(&c->stream);
    }
    http_conn_move(c, LINGER);
    if (!c->running || c->owes_end) {
        http_conns_defer(c);
    }
}

void http_conn_begin_close(struct http_conn *c)
{
    c->unread |= http_conn_buffered(c) > 0;
    http_input_clear(&c->in);
    c->unfed = false;
    http_conn_move(c, FLUSH);
    if (http_output_pending(&c->output) == 0) {
        http_conn_finish_close(c);
    }
}

void http_conn_refuse(struct http_conn *c, enum pawl_error error, const char *message, bool head_only)
{
    struct http_error_bytes bytes;
    struct http_response response = http_response_error(&bytes, error, message);

    log_debug("http_refused", LOG_STR("peer", c->peer.text), LOG_STR("error", pawl_error_wire(error)), LOG_STR("message", message));
    c->unread = true;
    if (http_conn_send_response(c, &response, HTTP_CONNECTION_CLOSE, head_only) == 0) {
        http_conn_begin_close(c);
    }
    http_response_error_close(&bytes);
}

/* TLS where there should be none, or none where there should be. One line a second each, since a port scan must not fill the log. */
void http_conn_tell_refused(struct http_conn *c, const char *problem)
{
    uint64_t suppressed = 0;

    c->set->counts.tls_failed++;
    if (log_gate_pass(&c->set->greeting_gate, clock_now_us(&clock_boottime), &suppressed)) {
        log_warn("tls_refused", LOG_STR("peer", c->peer.text), LOG_STR("problem", problem), LOG_INT("suppressed", suppressed));
    }
}
