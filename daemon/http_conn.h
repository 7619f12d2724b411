/* One connection, and the set that it belongs to, as the files know them that make up the middle of the HTTP front. Private to these:
 *
 *     http_conns     the set: limits, the tick, the turn, turning away, drain        (http_conns.h is what others see of it all)
 *     http_conn      one connection: birth and death, states, what goes out
 *     http_run       what it can do now: handshake, bytes to requests
 *     http_exchange  a request that is open, to the service: reply, park             (http.h)
 *     http_stream    the same for a reply without an end                             (http.h)
 *
 * Everything runs on the loop of the set's base. Whatever may call the service, or be called by it, stands between http_conn_enter and one of the leaves:
 * in between the connection may die, and is still there.
 */
#ifndef PAWL_HTTP_CONN_H
#define PAWL_HTTP_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <event2/util.h>

#include "daemon/http_conns.h"
#include "daemon/http_input.h"
#include "daemon/http_output.h"
#include "daemon/http_reader.h"
#include "daemon/http_response.h"
#include "daemon/log.h"
#include "daemon/peer.h"
#include "daemon/stream.h"

#define PARKED_AHEAD_MAX                                                                                                                   \
    ((size_t)16 * 1024) /* bytes behind a parked request; beyond, the client is cut off, since unread bytes would hide its leaving */

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
    bool running;                       /* one of them is http_run() */
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

static inline struct http_conn *http_conn_of(struct http_exchange *x)
{
    return (struct http_conn *)(void *)((char *)x - offsetof(struct http_conn, exchange));
}

static inline bool http_conn_has_exchange(const struct http_conn *c)
{
    return c->state == BUSY || c->state == PARKED || c->state == STREAM;
}

static inline size_t http_conn_buffered(const struct http_conn *c)
{
    return http_input_len(&c->in);
}

static inline void http_conn_enter(struct http_conn *c)
{
    c->entered++;
}

/* ---- http_conn ---- */

/* A stream on the descriptor. Returns 0, or -1 without memory; owns fd only when it succeeds. */
int http_conn_init_stream(struct http_conns *set, struct stream *s, int fd, const struct sockaddr *peer, bool tls);

/* Watches the descriptor already; its set is still to take it into its lists. NULL without memory; owns fd only when it succeeds. */
struct http_conn *http_conn_new(struct http_conns *set, int fd, const struct sockaddr *peer, bool tls, bool turned_away);

/* The only way from one state to another. */
void http_conn_move(struct http_conn *c, enum conn_state state);

/* The descriptor goes now, with a reset if `abort`; the rest when the last frame is left. */
void http_conn_close(struct http_conn *c, bool abort);
void http_conn_fail(struct http_conn *c); /* the same after an error of the descriptor: what was sent and not read is lost */

/* Out of a frame that the loop called: the service may be told things. May free. */
void http_conn_leave(struct http_conn *c);
/* Out of a frame that the service called: it is told at the end of the turn. May free. */
void http_conn_leave_to_service(struct http_conn *c);

/* The open exchange ends because of its client: whoever has it is told. */
void http_conn_tell_gone(struct http_conn *c);

/* An open request whose client's leaving has to be noticed from now on. What was there before is looked at now: no event will tell of it. */
void http_conn_watch_leaving(struct http_conn *c);

/* Write, and keep what the kernel would not take. Return 0, or -1 when the connection has died of it. */
int http_conn_send_parts(struct http_conn *c, struct iovec *parts, int count);
int http_conn_send_response(struct http_conn *c, const struct http_response *response, enum http_connection_field field, bool head_only);

/* For output that is pending: an event when there is room, and the deadline of output that does not move, which begins again when some has moved. */
void http_conn_watch_output(struct http_conn *c);
void http_conn_note_movement(struct http_conn *c);
void http_conn_unwatch_output(struct http_conn *c);

/* No request is taken any more; what is pending is sent first. */
void http_conn_begin_close(struct http_conn *c);
/* All output is with the kernel: closes, or lingers. */
void http_conn_finish_close(struct http_conn *c);

/* The front's own answer to what it will not take, and the end of the connection. No exchange is open. */
void http_conn_refuse(struct http_conn *c, enum pawl_error error, const char *message, bool head_only);

/* A handshake that came to nothing: counted, and a line in the log. */
void http_conn_tell_refused(struct http_conn *c, const char *problem);

/* ---- http_run ---- */

/* Does whatever can be done now. Between http_conn_enter and http_conn_leave. */
void http_run(struct http_conn *c);

/* Events of the descriptor; `arg` is the connection. */
void http_run_readable(evutil_socket_t fd, short what, void *arg);
void http_run_writable(evutil_socket_t fd, short what, void *arg);

/* ---- http_conns ---- */

/* Lets the connection have a run at the end of the turn. */
void http_conns_defer(struct http_conn *c);

/* It is freed: out of the set. */
void http_conns_remove(struct http_conn *c);

#endif
