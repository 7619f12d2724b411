/* Plain streams: TCP and unix sockets. They differ in one answer only, how far written bytes have come.
 *
 * TCP keeps a byte in the send queue until the other kernel acknowledged it, and a socket that was closed over there answers data with a reset. So
 * "queue empty and no error" means taken. A unix socket hands bytes straight to the other side's queue: what write accepted has arrived, and a
 * closed other side makes write itself fail.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/stream.h"

static ssize_t plain_read(struct stream *s, char *at, size_t cap)
{
    return recv(s->fd, at, cap, 0);
}

static ssize_t plain_write(struct stream *s, const struct iovec *parts, int count)
{
    struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = (size_t)count};

    if (count == 1) {
        return send(s->fd, parts->iov_base, parts->iov_len, MSG_NOSIGNAL);
    }
    return sendmsg(s->fd, &message, MSG_NOSIGNAL);
}

static bool plain_has_news(struct stream *s)
{
    char byte;

    return recv(s->fd, &byte, 1, MSG_PEEK) >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

static bool plain_at_end(struct stream *s)
{
    char byte;

    return recv(s->fd, &byte, 1, MSG_PEEK) == 0;
}

enum stream_reach stream_tcp_reach(struct stream *s)
{
    int error = 0, queued = 0;
    socklen_t size = sizeof(error);

    if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0 || ioctl(s->fd, SIOCOUTQ, &queued) != 0) {
        return STREAM_BROKEN;
    }
    return queued == 0 ? STREAM_ARRIVED : STREAM_ON_ITS_WAY;
}

static enum stream_reach unix_reach(struct stream *s)
{
    (void)s;
    return STREAM_ARRIVED;
}

/* A reset after the other side's end of sending: it had closed when our bytes came. (A reset alone, ECONNRESET, may come from a client that has
 * read everything and closes the hard way.) */
bool stream_tcp_proves_loss(int error)
{
    return error == EPIPE;
}

/* It closed with bytes unread. */
static bool unix_proves_loss(int error)
{
    return error == ECONNRESET;
}

static void plain_end(struct stream *s)
{
    (void)shutdown(s->fd, SHUT_WR);
}

void stream_close_socket(struct stream *s, bool abort)
{
    const struct linger at_once = {.l_onoff = 1, .l_linger = 0};

    if (s->fd < 0) {
        return;
    }
    if (abort) {
        (void)setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    }
    (void)close(s->fd);
    s->fd = -1;
}

static const struct stream_ops tcp_ops = {.read = plain_read,
                                          .write = plain_write,
                                          .has_news = plain_has_news,
                                          .at_end = plain_at_end,
                                          .reach = stream_tcp_reach,
                                          .proves_loss = stream_tcp_proves_loss,
                                          .end = plain_end,
                                          .close = stream_close_socket};
static const struct stream_ops unix_ops = {.read = plain_read,
                                           .write = plain_write,
                                           .has_news = plain_has_news,
                                           .at_end = plain_at_end,
                                           .reach = unix_reach,
                                           .proves_loss = unix_proves_loss,
                                           .end = plain_end,
                                           .close = stream_close_socket};

void stream_init_tcp(struct stream *s, int fd)
{
    *s = (struct stream){.ops = &tcp_ops, .fd = fd};
}

void stream_init_unix(struct stream *s, int fd)
{
    *s = (struct stream){.ops = &unix_ops, .fd = fd};
}
