/* A connected byte stream: read, write, end, close, and the questions that only the transport can answer.
 *
 * What this is: the seam under http_conn and redis_link: TCP, unix sockets, and TLS (tls_stream.h) look alike above it. What it is not: it waits for nothing
 * and knows no events; the descriptor is non-blocking and `fd` is there to be watched. Embedded in its owner. The plain kinds buffer and allocate nothing.
 */
#ifndef PAWL_STREAM_H
#define PAWL_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

struct stream;

enum stream_reach {
    STREAM_ARRIVED,    /* the other kernel has taken every byte written so far */
    STREAM_ON_ITS_WAY, /* not known yet */
    STREAM_BROKEN      /* the other side answered with a reset, or the connection failed */
};

struct stream_ops {
    /* Bytes read (> 0), 0 at the end of the other side's sending, -1 with errno (EAGAIN: nothing now). */
    ssize_t (*read)(struct stream *s, char *at, size_t cap);
    /* Bytes taken (>= 0, maybe fewer than offered), -1 with errno (EAGAIN: no room now). Never raises SIGPIPE. */
    ssize_t (*write)(struct stream *s, const struct iovec *parts, int count);
    /* Would read say anything but EAGAIN? Takes nothing. */
    bool (*has_news)(struct stream *s);
    /* Has the other side ended its sending, with nothing left to read? Takes nothing. */
    bool (*at_end)(struct stream *s);
    /* How far the bytes written have come. After STREAM_BROKEN the stream is only good for closing. */
    enum stream_reach (*reach)(struct stream *s);
    /* Does this errno of a read prove that the other side closed without having read all that was written? */
    bool (*proves_loss)(int error);
    /* Ends our sending; reading goes on. Failure shows in the next call. */
    void (*end)(struct stream *s);
    /* `end` sends bytes. A client that read all it wanted and closed answers them with a reset, from which nothing follows for what was sent before: so whoever
     * still asks how far that came (reach, proves_loss) must know it first. */
    bool end_sends;
    /* Closes the descriptor. `abort`: drop what is unsent and tell the other side with a reset. */
    void (*close)(struct stream *s, bool abort);
    /* Goes on with what comes before the first byte: 0 when it is done, -1 with errno (EAGAIN: nothing now). NULL: nothing comes before. */
    int (*greet)(struct stream *s);
};

struct tls_stream;

struct stream {
    const struct stream_ops *ops;
    int fd;    /* owned; -1 when closed */
    bool more; /* there may be more to read, though the last read got less than it asked for and no event will tell; also set by at_end */
    bool read_wants_room; /* the last read or greet said EAGAIN because something must be sent first: watch for room, then go on reading */
    struct tls_stream *tls; /* of tls_stream.c, owned; NULL in the plain kinds */
};

/* Takes over a connected, non-blocking descriptor: TCP, or a unix socket. */
void stream_init_tcp(struct stream *s, int fd);
void stream_init_unix(struct stream *s, int fd);

/* What every stream over TCP has in common, for kinds made elsewhere. */
enum stream_reach stream_tcp_reach(struct stream *s);
bool stream_tcp_proves_loss(int error);
void stream_close_socket(struct stream *s, bool abort);

static inline int stream_greet(struct stream *s)
{
    return s->ops->greet ? s->ops->greet(s) : 0;
}

static inline ssize_t stream_read(struct stream *s, char *at, size_t cap)
{
    return s->ops->read(s, at, cap);
}

static inline ssize_t stream_write(struct stream *s, const struct iovec *parts, int count)
{
    return s->ops->write(s, parts, count);
}

static inline bool stream_has_news(struct stream *s)
{
    return s->ops->has_news(s);
}

static inline bool stream_at_end(struct stream *s)
{
    return s->ops->at_end(s);
}

static inline enum stream_reach stream_reach(struct stream *s)
{
    return s->ops->reach(s);
}

static inline bool stream_proves_loss(const struct stream *s, int error)
{
    return s->ops->proves_loss(error);
}

static inline void stream_end(struct stream *s)
{
    s->ops->end(s);
}

static inline void stream_close(struct stream *s, bool abort)
{
    s->ops->close(s, abort);
}

#endif
