/* The connection of wire.h. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

static bool read_unix(struct address *a, const char *path)
{
    struct sockaddr_un *un = (struct sockaddr_un *)(void *)&a->sa;

    if (*path == '\0' || strlen(path) >= sizeof un->sun_path)
        return false;
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, path, strlen(path) + 1);
    a->len = sizeof *un;
    return true;
}

static bool read_tcp(struct address *a, const char *text)
{
    struct sockaddr_in *in = (struct sockaddr_in *)(void *)&a->sa;
    const char *colon = strrchr(text, ':');
    char host[INET_ADDRSTRLEN];
    char *end;
    long port;

    if (colon == NULL || (size_t)(colon - text) >= sizeof host)
        return false;
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    port = strtol(colon + 1, &end, 10);
    if (inet_pton(AF_INET, host, &in->sin_addr) != 1 || end == colon + 1 || *end != '\0' || port < 1 || port > 65535)
        return false;
    in->sin_family = AF_INET;
    in->sin_port = htons((uint16_t)port);
    a->len = sizeof *in;
    a->tcp = true;
    return true;
}

bool address_read(struct address *a, const char *text)
{
    memset(a, 0, sizeof *a);
    return strncmp(text, "unix:", 5) == 0 ? read_unix(a, text + 5) : read_tcp(a, text);
}

int wire_open(struct wire *w, const struct address *a)
{
    int one = 1;
    int saved;

    memset(w, 0, sizeof *w);
    w->fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (w->fd < 0)
        return -1;
    if (connect(w->fd, (const struct sockaddr *)&a->sa, a->len) != 0)
        goto fail;
    if (a->tcp && setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
        goto fail;
    if (fcntl(w->fd, F_SETFL, O_NONBLOCK) != 0)
        goto fail;
    return 0;
fail:
    saved = errno;
    wire_close(w);
    errno = saved;
    return -1;
}

void wire_close(struct wire *w)
{
    if (w->fd >= 0)
        (void)close(w->fd);
    free(w->in);
    memset(w, 0, sizeof *w);
    w->fd = -1;
}

int wire_send(struct wire *w, const char *bytes, size_t len)
{
    ssize_t n = send(w->fd, bytes, len, MSG_NOSIGNAL);

    if (n < 0)
        return -1;
    if ((size_t)n < len) {
        errno = EAGAIN;
        return -1;
    }
    return 0;
}

int wire_read(struct wire *w)
{
    ssize_t n;

    if (w->in == NULL && (w->in = malloc(WIRE_IN_MAX)) == NULL)
        return -1;
    if (w->in_len == WIRE_IN_MAX) {
        errno = EMSGSIZE;
        return -1;
    }
    n = recv(w->fd, w->in + w->in_len, WIRE_IN_MAX - w->in_len, 0);
    if (n > 0) {
        w->in_len += (size_t)n;
        return 1;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n == 0)
        errno = ECONNRESET;
    return -1;
}

void wire_drop(struct wire *w, size_t n)
{
    w->in_len -= n;
    memmove(w->in, w->in + n, w->in_len);
}

void wire_shrink(struct wire *w)
{
    if (w->in_len > 0)
        return;
    free(w->in);
    w->in = NULL;
}

int wire_wait(struct wire *w, int timeout_ms)
{
    struct pollfd fd = {.fd = w->fd, .events = POLLIN};
    int n;

    do {
        n = poll(&fd, 1, timeout_ms);
        if (n == 0)
            errno = ETIMEDOUT;
        if (n <= 0)
            return -1;
        n = wire_read(w);
    } while (n == 0);
    return n;
}
