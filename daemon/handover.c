/* Why sockets are passed, and not opened a second time with SO_REUSEPORT: with that option each process has a queue of its own for every port. What the kernel has
 * put into the old one's queue dies with it, and so does each connection that is half made when it closes; no order of accept and close leaves no gap, and moving
 * them (net.ipv4.tcp_migrate_req) is off by default and an administrator's to switch on. A socket that is passed is one socket with one queue, which lives as long
 * as anybody holds it. It needs no rights, holds for unix sockets as well, and a second pawld that was started by mistake still learns that the address is taken.
 *
 * Messages are packets (SOCK_SEQPACKET), so none comes in parts. The first is "pawl-sockets 1" and a line for each descriptor beside it; "busy" says that
 * another is taking over already.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/handover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <event2/event.h>

#include "daemon/listen_address.h"
#include "daemon/log.h"
#include "daemon/unix_socket.h"

#define BACKLOG      4
#define ASK_S        5
#define LISTEN_TRIES 100
#define LISTEN_US    100000
#define PACKET_BYTES (64 + HANDOVER_SOCKETS_MAX * (HANDOVER_ASKED_MAX + 1))

static const char greeting[] = "pawl-sockets 1\n", busy[] = "busy", take[] = "take";

struct handover {
    struct event_base *base;
    struct handover_owner owner;
    const char *path;
    struct unix_file file;
    int server, successor, predecessor; /* -1: none */
    struct event *server_event, *successor_event, *predecessor_event;
    struct event *listen_event;
    int listen_tries;
};

/* A control message of as many descriptors as there can be, aligned. */
union control {
    char bytes[CMSG_SPACE(HANDOVER_SOCKETS_MAX * sizeof(int))];
    struct cmsghdr align;
};

static bool is_trusted(int fd)
{
    struct ucred credentials;
    socklen_t len = sizeof(credentials);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &len) == 0 && (credentials.uid == geteuid() || credentials.uid == 0);
}

static void drop(int *fd, struct event **event)
{
    if (*event)
        event_free(*event);
    *event = NULL;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- the successor's start ---- */

static int fail(char *problem, size_t cap, const char *path, const char *what)
{
    snprintf(problem, cap, "--handover %s: %s", path, what);
    return -1;
}

void handover_sockets_close(struct handover_sockets *sockets)
{
    for (size_t i = 0; i < sockets->count; i++)
        if (sockets->each[i].fd >= 0)
            close(sockets->each[i].fd);
    sockets->count = 0;
}

static void take_descriptors(struct msghdr *message, struct handover_sockets *ret)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        size_t count = c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;

        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
            if (ret->count < HANDOVER_SOCKETS_MAX)
                ret->each[ret->count++].fd = fd;
            else
                close(fd);
        }
    }
}

/* A line for each descriptor, no more and no less. */
static bool take_names(const char *text, const char *end, struct handover_sockets *sockets)
{
    for (size_t i = 0; i < sockets->count; i++) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));

        if (!stop || stop - text > HANDOVER_ASKED_MAX)
            return false;
        memcpy(sockets->each[i].asked, text, (size_t)(stop - text));
        sockets->each[i].asked[stop - text] = '\0';
        text = stop + 1;
    }
    return text == end;
}

/* Returns NULL, or a sentence. */
static const char *receive(int link, struct handover_sockets *ret)
{
    static char packet[PACKET_BYTES]; /* once, at the start */
    union control control;
    struct iovec part = {packet, sizeof(packet)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    const size_t head = sizeof(greeting) - 1;
    ssize_t n;

    do
        n = recvmsg(link, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN ? "whoever listens there does not answer" : strerror(errno);
    take_descriptors(&message, ret);
    if ((size_t)n == sizeof(busy) - 1 && memcmp(packet, busy, sizeof(busy) - 1) == 0)
        return "another process is taking over already";
    if (n == 0)
        return "whoever listens there hung up: it runs as another user, or is ending";
    if ((size_t)n < head || memcmp(packet, greeting, head) != 0 || (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
        !take_names(packet + head, packet + n, ret))
        return "whoever listens there is no pawld that hands over as this one does";
    return NULL;
}

int handover_ask(const char *path, struct handover_sockets *ret, int *ret_link, char *problem, size_t cap)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = ASK_S};
    const char *wrong = NULL;
    int link;

    *ret_link = -1;
    ret->count = 0;
    memcpy(address.sun_path, path, strlen(path));
    link = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (link < 0)
        return fail(problem, cap, path, strerror(errno));
    (void)setsockopt(link, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    (void)setsockopt(link, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(link, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        int error = errno;

        close(link);
        return error == ENOENT || error == ECONNREFUSED ? 0 : fail(problem, cap, path, strerror(error));
    }
    wrong = is_trusted(link) ? receive(link, ret) : "whoever listens there runs as another user";
    if (wrong) {
        handover_sockets_close(ret);
        close(link);
        return fail(problem, cap, path, wrong);
    }
    *ret_link = link;
    return 0;
}

/* ---- the predecessor, seen from its successor ---- */

/* It never says anything after its sockets: what can be read is its end. */
static void on_predecessor(evutil_socket_t fd, short what, void *arg)
{
    struct handover *h = arg;
    char ignored;

    (void)what;
    if (recv(fd, &ignored, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    drop(&h->predecessor, &h->predecessor_event);
    h->owner.predecessor_gone(h->owner.ctx);
}

bool handover_has_predecessor(const struct handover *h)
{
    return h && h->predecessor >= 0;
}

void handover_take(struct handover *h)
{
    (void)send(h->predecessor, take, sizeof(take) - 1, MSG_NOSIGNAL | MSG_DONTWAIT); /* fails only if it is gone, which is told */
}

/* ---- the successor, seen from its predecessor ---- */

/* It keeps its end open for as long as this process lives. So one that has closed it took over and died, while this process was stalled, and would leave nobody. */
static bool has_closed(int fd)
{
    char ignored;

    return recv(fd, &ignored, 1, MSG_DONTWAIT | MSG_PEEK) >= 0 || (errno != EAGAIN && errno != EINTR);
}

static void on_successor(evutil_socket_t fd, short what, void *arg)
{
    struct handover *h = arg;
    char packet[sizeof(take)];
    ssize_t n = recv(fd, packet, sizeof(packet), MSG_DONTWAIT);

    (void)what;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n != (ssize_t)sizeof(take) - 1 || memcmp(packet, take, sizeof(take) - 1) != 0 || has_closed(fd)) {
        log_warn("successor_left", LOG_STR("path", h->path));
        drop(&h->successor, &h->successor_event);
        return;
    }
    drop(&h->server, &h->server_event);
    unix_file_remove(&h->file);
    h->owner.taken(h->owner.ctx);
    drop(&h->successor, &h->successor_event); /* the last thing: it tells that the path is free */
}

/* Puts all sockets into one packet. Returns 0, or -1 when they can't be sent. */
static int send_sockets(struct handover *h, int fd)
{
    char *packet = malloc(PACKET_BYTES);
    union control control = {.bytes = {0}};
    struct iovec part = {packet, sizeof(greeting) - 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes};
    struct cmsghdr *c = &control.align;
    const char *asked;
    size_t count = 0;
    ssize_t n;

    if (!packet)
        return -1;
    memcpy(packet, greeting, sizeof(greeting) - 1);
    for (int one; count < HANDOVER_SOCKETS_MAX && (one = h->owner.socket(h->owner.ctx, count, &asked)) >= 0; count++) {
        size_t len = strlen(asked);

        if (len > HANDOVER_ASKED_MAX)
            break;
        memcpy(packet + part.iov_len, asked, len);
        packet[part.iov_len + len] = '\n';
        part.iov_len += len + 1;
        memcpy(CMSG_DATA(c) + count * sizeof(int), &one, sizeof(int));
    }
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(count * sizeof(int));
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    n = count > 0 ? sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) : -1;
    free(packet);
    return n > 0 ? 0 : -1;
}

static int watch(struct handover *h, int fd, event_callback_fn fn, struct event **ret)
{
    *ret = event_new(h->base, fd, EV_READ | EV_PERSIST, fn, h);
    return *ret && event_add(*ret, NULL) == 0 ? 0 : -1;
}

static void on_server(evutil_socket_t server, short what, void *arg)
{
    struct handover *h = arg;
    int fd = accept4(server, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    (void)what;
    if (fd < 0)
        return;
    if (!is_trusted(fd)) {
        log_warn("handover_refused", LOG_STR("path", h->path));
        close(fd);
    } else if (h->successor >= 0) {
        (void)send(fd, busy, sizeof(busy) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
    } else {
        h->successor = fd;
        if (watch(h, fd, on_successor, &h->successor_event) != 0 || send_sockets(h, fd) != 0)
            drop(&h->successor, &h->successor_event);
        else
            log_info("handing_over", LOG_STR("path", h->path));
    }
}

bool handover_has_successor(const struct handover *h)
{
    return h && h->successor >= 0;
}

int handover_listen(struct handover *h, char *problem, size_t cap)
{
    struct listen_address address = {.kind = LISTEN_UNIX, .has_mode = true, .mode = 0600};

    if (h->server >= 0)
        return 0;
    snprintf(address.path, sizeof(address.path), "%s", h->path);
    h->server = unix_socket_open(&address, SOCK_SEQPACKET, BACKLOG, &h->file, problem, cap);
    if (h->server < 0)
        return -1;
    if (watch(h, h->server, on_server, &h->server_event) == 0)
        return 0;
    drop(&h->server, &h->server_event);
    unix_file_remove(&h->file);
    return fail(problem, cap, h->path, strerror(ENOMEM));
}

static void on_listen(evutil_socket_t fd, short what, void *arg)
{
    const struct timeval pause = {.tv_usec = LISTEN_US};
    struct handover *h = arg;
    char problem[256];

    (void)fd;
    (void)what;
    if (handover_listen(h, problem, sizeof(problem)) == 0)
        return;
    if (++h->listen_tries >= LISTEN_TRIES || event_add(h->listen_event, &pause) != 0)
        log_error("no_handover", LOG_STR("problem", problem));
}

void handover_listen_soon(struct handover *h)
{
    h->listen_tries = 0;
    on_listen(-1, 0, h);
}

/* ---- making and freeing ---- */

struct handover *handover_new(struct event_base *base, const char *path, int link, const struct handover_owner *owner)
{
    struct handover *h = calloc(1, sizeof(*h));

    if (!h) {
        if (link >= 0)
            close(link);
        return NULL;
    }
    h->base = base;
    h->owner = *owner;
    h->path = path;
    h->server = h->successor = -1;
    h->predecessor = link;
    h->listen_event = evtimer_new(base, on_listen, h);
    if (!h->listen_event || (link >= 0 && watch(h, link, on_predecessor, &h->predecessor_event) != 0)) {
        handover_free(h);
        return NULL;
    }
    return h;
}

void handover_free(struct handover *h)
{
    if (!h)
        return;
    drop(&h->server, &h->server_event);
    unix_file_remove(&h->file);
    drop(&h->successor, &h->successor_event);
    drop(&h->predecessor, &h->predecessor_event);
    if (h->listen_event)
        event_free(h->listen_event);
    free(h);
}
