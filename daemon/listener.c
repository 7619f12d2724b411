/* An address may stand for several sockets (a name with an IPv4 and an IPv6 address). They are opened into a batch that joins the set only when it is complete,
 * so a half-bound address never is. IPv6 sockets take IPv6 only, whatever the system's default: then "[::]" and "0.0.0.0" are two addresses that
 * never get into each other's way, and what is bound is what was written.
 *
 * A unix socket's file outlives a process that was killed. A file on which nobody answers is replaced; one on which somebody does is an error. At the end the
 * file is removed if it is still the one that we made.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <event2/event.h>

#include "daemon/clock.h"
#include "daemon/host_port.h"
#include "daemon/listener.h"
#include "daemon/log.h"

#define BACKLOG          1024
#define ACCEPTS_PER_TURN 64
#define OVERFLOWS        16  /* clients turned away with the reserve descriptor, each time that accepting fails */
#define PAUSE_MS         200 /* before accepting is tried again */
#define PORT_TRIES       16  /* for one free port on all addresses of a name */
#define ADDRESS_LEN      (sizeof("tls:") + sizeof("unix:") + sizeof(((struct sockaddr_un *)0)->sun_path))

struct listener {
    TAILQ_ENTRY(listener) link;
    struct listeners *set;
    struct event *event;
    int fd;
    bool tls;                                               /* is spoken there */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* of a unix socket; empty otherwise */
    dev_t device;                                           /* of its file, to know it again */
    ino_t inode;
    char address[ADDRESS_LEN];
};

TAILQ_HEAD(listener_list, listener);

struct listeners {
    struct event_base *base;
    struct listener_owner owner;
    struct event *resume;
    struct listener_list list;
    uint64_t *accept_errors;
    struct log_gate gate;
    int reserve; /* a descriptor to give up when there is no other; -1: it is given up */
    bool paused;
};

static const char unix_prefix[] = "unix:";
static const char tls_prefix[] = "tls:";

static int fail(char *problem, size_t cap, const char *format, ...) __attribute__((format(printf, 3, 4)));

static int fail(char *problem, size_t cap, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(problem, cap, format, args);
    va_end(args);
    return -1;
}

/* ---- accepting ---- */

static void take_reserve(struct listeners *set)
{
    if (set->reserve < 0) {
        set->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
}

static void give_reserve(struct listeners *set)
{
    if (set->reserve >= 0) {
        close(set->reserve);
        set->reserve = -1;
    }
}

static int accept_one(struct listener *l, struct sockaddr_storage *peer)
{
    socklen_t len = sizeof(*peer);

    peer->ss_family = AF_UNSPEC; /* an unnamed unix socket leaves it so on some kernels */
    return accept4(l->fd, (struct sockaddr *)peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

static void turn_away_some(struct listener *l)
{
    struct listeners *set = l->set;
    struct sockaddr_storage peer;

    for (int i = 0; i < OVERFLOWS && set->reserve >= 0; i++) {
        int fd;

        give_reserve(set);
        fd = accept_one(l, &peer);
        if (fd >= 0) {
            set->owner.overflowed(set->owner.ctx, fd, (const struct sockaddr *)&peer, l->tls);
        }
        take_reserve(set);
        if (fd < 0) {
            return;
        }
    }
}

static void pause_accepting(struct listeners *set)
{
    static const struct timeval delay = {0, PAUSE_MS * 1000L};
    struct listener *l;

    if (set->paused || event_add(set->resume, &delay) != 0) {
        return;
    }
    set->paused = true;
    for (l = TAILQ_FIRST(&set->list); l != NULL; l = TAILQ_NEXT(l, link)) {
        (void)event_del(l->event);
    }
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    struct listeners *set = arg;
    struct listener *l;

    (void)fd;
    (void)what;
    set->paused = false;
    take_reserve(set);
    for (l = TAILQ_FIRST(&set->list); l != NULL; l = TAILQ_NEXT(l, link)) {
        if (event_add(l->event, NULL) != 0) {
            pause_accepting(set); /* no memory now: try again then */
            return;
        }
    }
}

static bool is_out_of_something(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static void accept_failed(struct listener *l, int error)
{
    struct listeners *set = l->set;
    uint64_t suppressed = 0;

    ++*set->accept_errors;
    if (log_gate_pass(&set->gate, clock_now_us(&clock_boottime), &suppressed)) {
        log_warn("accept_failed", LOG_STR("address", l->address), LOG_STR("reason", strerror(error)), LOG_INT("suppressed", suppressed));
    }
    if (is_out_of_something(error)) {
        turn_away_some(l);
        pause_accepting(set);
    }
}

static void on_acceptable(evutil_socket_t unused, short what, void *arg)
{
    struct listener *l = arg;
    struct sockaddr_storage peer;

    (void)unused;
    (void)what;
    for (int i = 0; i < ACCEPTS_PER_TURN && !l->set->paused; i++) {
        int fd = accept_one(l, &peer);

        if (fd >= 0) {
            l->set->owner.accepted(l->set->owner.ctx, fd, (const struct sockaddr *)&peer, l->tls);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != ECONNABORTED && errno != EINTR) { /* those: the client changed its mind, the next one waits already */
            accept_failed(l, errno);
        }
    }
}

/* ---- opening and closing one socket ---- */

/* Only the file that this listener made: another process may have put its own there since. */
static void remove_file(struct listener *l)
{
    struct stat st;

    if (l->path[0] != '\0' && lstat(l->path, &st) == 0 && st.st_dev == l->device && st.st_ino == l->inode) {
        (void)unlink(l->path);
    }
    l->path[0] = '\0';
}

static void listener_close(struct listener *l)
{
    if (l->event != NULL) {
        event_free(l->event);
        l->event = NULL;
    }
    remove_file(l);
    if (l->fd >= 0) {
        close(l->fd);
        l->fd = -1;
    }
}

static void listener_free(struct listener *l)
{
    listener_close(l);
    free(l);
}

static void free_all(struct listener_list *list)
{
    struct listener *l;

    while ((l = TAILQ_FIRST(list)) != NULL) {
        TAILQ_REMOVE(list, l, link);
        listener_free(l);
    }
}

static struct listener *listener_new(struct listeners *set, int family)
{
    struct listener *l = calloc(1, sizeof(*l));

    if (l == NULL) {
        return NULL;
    }
    l->set = set;
    l->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->fd < 0) {
        free(l);
        return NULL;
    }
    return l;
}

static void set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

/* What accepted sockets inherit is set here once, instead of on each of them. */
static int set_tcp_options(int fd, int family)
{
    int on = 1;

    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1); /* a client whose machine vanished leaves the queue after a minute, not never */
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    if (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) != 0) {
        return -1;
    }
    return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
}

static void show_address(const struct sockaddr *address, char *out, size_t cap)
{
    char text[INET6_ADDRSTRLEN + 16] = "?", port[8] = "?";
    socklen_t len = address->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

    (void)getnameinfo(address, len, text, sizeof(text), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(out, cap, address->sa_family == AF_INET ? "%s:%s" : "[%s]:%s", text, port);
}

/* Binds and listens. Returns NULL with errno. */
static struct listener *open_tcp(struct listeners *set, const struct sockaddr *address, socklen_t len)
{
    struct listener *l = listener_new(set, address->sa_family);
    struct sockaddr_storage bound = {0};
    socklen_t bound_len = sizeof(bound);

    if (l == NULL) {
        return NULL;
    }
    if (set_tcp_options(l->fd, address->sa_family) != 0 || bind(l->fd, address, len) != 0 || listen(l->fd, BACKLOG) != 0 ||
        getsockname(l->fd, (struct sockaddr *)&bound, &bound_len) != 0) {
        int error = errno;

        listener_free(l);
        errno = error;
        return NULL;
    }
    show_address((const struct sockaddr *)&bound, l->address, sizeof(l->address));
    return l;
}

/* ---- host:port ---- */

static in_port_t *port_of(struct sockaddr *address)
{
    return address->sa_family == AF_INET ? &((struct sockaddr_in *)(void *)address)->sin_port
                                         : &((struct sockaddr_in6 *)(void *)address)->sin6_port;
}

static in_port_t bound_port(const struct listener *l)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } bound = {.in6 = {0}};
    socklen_t len = sizeof(bound);

    if (getsockname(l->fd, &bound.any, &len) != 0) {
        return 0;
    }
    return bound.any.sa_family == AF_INET ? bound.in.sin_port : bound.in6.sin6_port;
}

static bool is_repeated(const struct addrinfo *first, const struct addrinfo *a)
{
    for (const struct addrinfo *b = first; b != a; b = b->ai_next) {
        if (b->ai_addrlen == a->ai_addrlen && memcmp(b->ai_addr, a->ai_addr, a->ai_addrlen) == 0) {
            return true;
        }
    }
    return false;
}

/* A name may have an address of a family that this machine was set up without: that one is left out, aloud. */
static bool is_not_ours(const struct addrinfo *all, int error)
{
    return all->ai_next != NULL && (error == EADDRNOTAVAIL || error == EAFNOSUPPORT);
}

/* Opens every address in `all`; with port 0 on the port that the first one got. Returns 0, or an errno with the address it happened at in `where`. */
static int open_each(struct listeners *set, struct addrinfo *all, bool any_port, struct listener_list *batch, char *where, size_t cap)
{
    in_port_t port = 0;
    int skipped = 0;

    for (struct addrinfo *a = all; a != NULL; a = a->ai_next) {
        struct listener *l;

        if (is_repeated(all, a)) {
            continue;
        }
        if (any_port) {
            *port_of(a->ai_addr) = port;
        }
        l = open_tcp(set, a->ai_addr, a->ai_addrlen);
        if (l == NULL) {
            int error = errno;

            show_address(a->ai_addr, where, cap);
            if (!is_not_ours(all, error) || (a->ai_next == NULL && TAILQ_EMPTY(batch))) {
                return error;
            }
            skipped = error;
            log_warn("address_left_out", LOG_STR("address", where), LOG_STR("reason", strerror(error)));
            continue;
        }
        TAILQ_INSERT_TAIL(batch, l, link);
        port = bound_port(l);
    }
    return TAILQ_EMPTY(batch) ? skipped : 0;
}

static int open_host_port(struct listeners *set, const char *address, struct listener_list *batch, char *problem, size_t cap)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct host_port hp;
    struct addrinfo *all = NULL;
    char port[8], where[ADDRESS_LEN] = "";
    const char *wrong = host_port_parse(address, strlen(address), HOST_PORT_LISTEN, &hp);
    int error;

    if (wrong != NULL) {
        return fail(problem, cap, "%s: %s", address, wrong);
    }
    snprintf(port, sizeof(port), "%d", hp.port);
    error = getaddrinfo(hp.host, port, &hints, &all);
    if (error != 0) {
        return fail(problem, cap, "%s: %s", address, error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
    }
    for (int i = 0; i < PORT_TRIES; i++) {
        error = open_each(set, all, hp.port == 0, batch, where, sizeof(where));
        if (error != EADDRINUSE || hp.port != 0) {
            break;
        }
        free_all(batch); /* the free port that the first one got is in use at another: find a new one */
    }
    freeaddrinfo(all);
    return error == 0 ? 0 : fail(problem, cap, "%s: cannot listen on %s: %s", address, where, strerror(error));
}

/* ---- tls:host:port ---- */

static int open_tls(struct listeners *set, const char *address, struct listener_list *batch, char *problem, size_t cap)
{
    struct listener *l;

    if (open_host_port(set, address, batch, problem, cap) != 0) {
        return -1;
    }
    for (l = TAILQ_FIRST(batch); l != NULL; l = TAILQ_NEXT(l, link)) {
        const size_t prefix = sizeof(tls_prefix) - 1;

        l->tls = true;
        memmove(l->address + prefix, l->address, sizeof(l->address) - prefix); /* it has room for both */
        memcpy(l->address, tls_prefix, prefix);
        l->address[sizeof(l->address) - 1] = '\0';
    }
    return 0;
}

/* ---- unix:/path ---- */

enum who_answers { NOBODY, SOMEBODY, NO_SOCKET, NOTHING_THERE };

static enum who_answers who_answers(const struct sockaddr_un *address)
{
    struct stat st;
    int fd, error = 0;

    if (lstat(address->sun_path, &st) != 0) {
        return NOTHING_THERE; /* or out of our sight, and then bind says why */
    }
    if (!S_ISSOCK(st.st_mode)) {
        return NO_SOCKET;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0) {
        error = errno;
    }
    if (fd >= 0) {
        close(fd);
    }
    return error == ECONNREFUSED ? NOBODY
           : error == ENOENT     ? NOTHING_THERE
                                 : SOMEBODY; /* when in doubt (EACCES, a full queue) it is not ours to remove */
}

static int clear_path(const struct sockaddr_un *address, char *problem, size_t cap)
{
    switch (who_answers(address)) {
    case NO_SOCKET:
        return fail(problem, cap, "unix:%s: there is a file of that name that is not a socket", address->sun_path);
    case SOMEBODY:
        return fail(problem, cap, "unix:%s: somebody listens there already", address->sun_path);
    case NOBODY:
        if (unlink(address->sun_path) != 0 && errno != ENOENT) {
            return fail(problem, cap, "unix:%s: cannot remove the socket that was left there: %s", address->sun_path, strerror(errno));
        }
        return 0;
    case NOTHING_THERE:
        break;
    }
    return 0;
}

static int open_unix(struct listeners *set, const char *path, struct listener_list *batch, char *problem, size_t cap)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct listener *l;
    struct stat st;

    if (path[0] != '/' || strlen(path) >= sizeof(address.sun_path)) {
        return fail(problem, cap, "unix:%s: the path of a unix socket starts with '/' and has at most %zu bytes", path,
                    sizeof(address.sun_path) - 1);
    }
    memcpy(address.sun_path, path, strlen(path));
    if (clear_path(&address, problem, cap) != 0) {
        return -1;
    }
    l = listener_new(set, AF_UNIX);
    if (l == NULL || bind(l->fd, (const struct sockaddr *)&address, sizeof(address)) != 0) {
        int error = l == NULL && errno == 0 ? ENOMEM : errno;

        if (l != NULL) {
            listener_free(l);
        }
        return fail(problem, cap, "unix:%s: cannot listen there: %s", path, strerror(error));
    }
    TAILQ_INSERT_TAIL(batch, l, link);
    if (lstat(path, &st) == 0) {
        l->device = st.st_dev;
        l->inode = st.st_ino;
        memcpy(l->path, address.sun_path, sizeof(l->path));
    }
    if (listen(l->fd, BACKLOG) != 0) {
        return fail(problem, cap, "unix:%s: cannot listen there: %s", path, strerror(errno));
    }
    snprintf(l->address, sizeof(l->address), "unix:%s", path);
    return 0;
}

/* ---- the set ---- */

struct listeners *listeners_new(struct event_base *base, const struct listener_owner *owner, uint64_t *accept_errors)
{
    struct listeners *set = calloc(1, sizeof(*set));

    if (set == NULL) {
        return NULL;
    }
    set->base = base;
    set->owner = *owner;
    set->accept_errors = accept_errors;
    set->reserve = -1;
    TAILQ_INIT(&set->list);
    set->resume = evtimer_new(base, on_resume, set);
    if (set->resume == NULL) {
        free(set);
        return NULL;
    }
    take_reserve(set);
    return set;
}

void listeners_free(struct listeners *set)
{
    if (set == NULL) {
        return;
    }
    free_all(&set->list);
    event_free(set->resume);
    give_reserve(set);
    free(set);
}

static int start_batch(struct listeners *set, struct listener_list *batch)
{
    struct listener *l;

    for (l = TAILQ_FIRST(batch); l != NULL; l = TAILQ_NEXT(l, link)) {
        l->event = event_new(set->base, l->fd, EV_READ | EV_PERSIST, on_acceptable, l);
        if (l->event == NULL || (!set->paused && event_add(l->event, NULL) != 0)) {
            return -1;
        }
    }
    return 0;
}

int listeners_add(struct listeners *set, const char *address, char *problem, size_t cap)
{
    struct listener_list batch = TAILQ_HEAD_INITIALIZER(batch);
    int result;

    if (strncmp(address, unix_prefix, sizeof(unix_prefix) - 1) == 0) {
        result = open_unix(set, address + sizeof(unix_prefix) - 1, &batch, problem, cap);
    } else if (strncmp(address, tls_prefix, sizeof(tls_prefix) - 1) == 0) {
        result = open_tls(set, address + sizeof(tls_prefix) - 1, &batch, problem, cap);
    } else {
        result = open_host_port(set, address, &batch, problem, cap);
    }
    if (result == 0 && start_batch(set, &batch) != 0) {
        result = fail(problem, cap, "%s: cannot watch the socket: %s", address, strerror(ENOMEM));
    }
    if (result != 0) {
        free_all(&batch);
        return -1;
    }
    TAILQ_CONCAT(&set->list, &batch, link);
    return 0;
}

const char *listeners_address(const struct listeners *set, size_t i)
{
    struct listener *l;

    for (l = TAILQ_FIRST(&set->list); l != NULL; l = TAILQ_NEXT(l, link)) {
        if (i-- == 0) {
            return l->address;
        }
    }
    return NULL;
}

void listeners_close(struct listeners *set)
{
    struct listener *l;

    set->paused = true; /* for good */
    (void)event_del(set->resume);
    for (l = TAILQ_FIRST(&set->list); l != NULL; l = TAILQ_NEXT(l, link)) {
        listener_close(l);
    }
    give_reserve(set);
}
