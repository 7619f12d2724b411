/* An address may stand for several sockets (a name with an IPv4 and an IPv6 address). They are opened into a batch that joins the set only when it is complete,
 * so a half-bound address never is. IPv6 sockets take IPv6 only, whatever the system's default: then "[::]" and "0.0.0.0" are two addresses that
 * never get into each other's way, and what is bound is what was written.
 *
 * A socket may be shared with a process that goes on after this one, or was there before it: the service manager, a predecessor, a successor. The connections
 * in its queue are then not ours to look after, and closing our descriptor resets none of them. The queue of a socket that nobody else has dies with it, so its
 * connections are accepted first.
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
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <event2/event.h>

#include "daemon/clock.h"
#include "daemon/listen_address.h"
#include "daemon/listener.h"
#include "daemon/log.h"
#include "daemon/problem.h"
#include "daemon/unix_socket.h"

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
    bool tls;              /* is spoken there */
    bool shared;           /* another process has it too */
    bool lent;             /* and its file is still that one's matter */
    struct unix_file file; /* that is ours to remove */
    char *asked;           /* the address as it was asked for */
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
    bool paused, held;
};

static const char tls_prefix[] = "tls:";

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
    for (l = TAILQ_FIRST(&set->list); l != NULL && !set->held; l = TAILQ_NEXT(l, link)) {
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

static void listener_close(struct listener *l)
{
    if (l->event != NULL) {
        event_free(l->event);
        l->event = NULL;
    }
    if (!l->lent) {
        unix_file_remove(&l->file);
    }
    if (l->fd >= 0) {
        close(l->fd);
        l->fd = -1;
    }
}

static void listener_free(struct listener *l)
{
    listener_close(l);
    free(l->asked);
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

/* Around a descriptor, which it owns when this succeeds. */
static struct listener *listener_around(struct listeners *set, int fd)
{
    struct listener *l = calloc(1, sizeof(*l));

    if (l != NULL) {
        l->set = set;
        l->fd = fd;
    }
    return l;
}

static struct listener *listener_new(struct listeners *set, int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct listener *l = fd >= 0 ? listener_around(set, fd) : NULL;

    if (l == NULL && fd >= 0) {
        close(fd);
        errno = ENOMEM;
    }
    return l;
}

static void set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

/* What accepted sockets inherit is set here once, instead of on each of them. */
static void set_inherited_options(int fd)
{
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1); /* a client whose machine vanished leaves the queue after a minute, not never */
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 30);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

static int set_tcp_options(int fd, int family)
{
    int on = 1;

    set_inherited_options(fd);
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

static int open_host_port(struct listeners *set, const char *address, const struct host_port *hp, struct listener_list *batch,
                          char *problem, size_t cap)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *all = NULL;
    char port[8], where[ADDRESS_LEN] = "";
    int error;

    snprintf(port, sizeof(port), "%d", hp->port);
    error = getaddrinfo(hp->host, port, &hints, &all);
    if (error != 0) {
        return problem_say(problem, cap, "%s: %s", address, error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
    }
    for (int i = 0; i < PORT_TRIES; i++) {
        error = open_each(set, all, hp->port == 0, batch, where, sizeof(where));
        if (error != EADDRINUSE || hp->port != 0) {
            break;
        }
        free_all(batch); /* the free port that the first one got is in use at another: find a new one */
    }
    freeaddrinfo(all);
    if (error == 0) {
        return 0;
    }
    if (strcmp(address, where) == 0) {
        where[0] = '\0'; /* what was asked for: once is enough */
    }
    return problem_say(problem, cap, "%s: cannot listen%s%s: %s%s", address, where[0] ? " on " : "", where, strerror(error),
                       error == EADDRINUSE ? "; another pawld or program listens there: end it, or give another --listen" : "");
}

/* ---- tls: before an address ---- */

static void speak_tls(struct listener *l)
{
    const size_t prefix = sizeof(tls_prefix) - 1;

    l->tls = true;
    memmove(l->address + prefix, l->address, sizeof(l->address) - prefix); /* it has room for both */
    memcpy(l->address, tls_prefix, prefix);
    l->address[sizeof(l->address) - 1] = '\0';
}

/* ---- unix:/path ---- */

static int open_unix(struct listeners *set, const struct listen_address *asked, struct listener_list *batch, char *problem, size_t cap)
{
    struct unix_file file;
    int fd = unix_socket_open(asked, SOCK_STREAM, BACKLOG, &file, problem, cap);
    struct listener *l;

    if (fd < 0) {
        return -1;
    }
    l = listener_around(set, fd);
    if (l == NULL) {
        unix_file_remove(&file);
        close(fd);
        return problem_say(problem, cap, "unix:%s: %s", asked->path, strerror(ENOMEM));
    }
    l->file = file;
    snprintf(l->address, sizeof(l->address), "unix:%s", asked->path);
    TAILQ_INSERT_TAIL(batch, l, link);
    return 0;
}

/* ---- sockets that another process opened ---- */

union any_address {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    struct sockaddr_un un;
};

/* What is wrong with a descriptor that is to be accepted from, as a static sentence, or NULL. */
static const char *not_listening(int fd, union any_address *ret_bound)
{
    int type = 0, listens = 0;
    socklen_t len = sizeof(type), bound_len = sizeof(*ret_bound);

    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) != 0 || type != SOCK_STREAM) {
        return "the passed descriptor is no stream socket";
    }
    len = sizeof(listens);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len) != 0 || listens == 0) {
        return "the passed socket does not listen";
    }
    memset(ret_bound, 0, sizeof(*ret_bound));
    if (getsockname(fd, &ret_bound->any, &bound_len) != 0) {
        return "the passed socket has no address";
    }
    switch (ret_bound->any.sa_family) {
    case AF_INET:
    case AF_INET6:
    case AF_UNIX:
        return NULL;
    default:
        return "the passed socket is neither of TCP nor a unix socket";
    }
}

static void adopt_address(struct listener *l, const union any_address *bound)
{
    if (bound->any.sa_family != AF_UNIX) {
        set_inherited_options(l->fd);
        show_address(&bound->any, l->address, sizeof(l->address));
    } else {
        bool is_abstract = bound->un.sun_path[0] == '\0' && bound->un.sun_path[1] != '\0';
        snprintf(l->address, sizeof(l->address), "unix:%s%.*s", is_abstract ? "@" : "", (int)sizeof(bound->un.sun_path) - 1,
                 bound->un.sun_path + is_abstract);
    }
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
        if (l->event == NULL || (!set->paused && !set->held && event_add(l->event, NULL) != 0)) {
            return -1;
        }
    }
    return 0;
}

static int open_batch(struct listeners *set, const char *address, struct listener_list *batch, char *problem, size_t cap)
{
    struct listen_address asked;
    const char *wrong = listen_address_parse(address, &asked);

    if (wrong == NULL && asked.kind == LISTEN_UNIX) {
        return open_unix(set, &asked, batch, problem, cap);
    }
    if (wrong == NULL && asked.kind == LISTEN_HOST_PORT) {
        struct listener *l;

        if (open_host_port(set, address, &asked.host_port, batch, problem, cap) != 0) {
            return -1;
        }
        for (l = TAILQ_FIRST(batch); l != NULL && asked.tls; l = TAILQ_NEXT(l, link)) {
            speak_tls(l);
        }
        return 0;
    }
    return problem_say(problem, cap, "%s: %s", address, wrong != NULL ? wrong : "no socket was passed");
}

/* Takes the batch into the set, or closes it. */
static int join_batch(struct listeners *set, const char *address, struct listener_list *batch, char *problem, size_t cap)
{
    struct listener *l;
    int result = 0;

    for (l = TAILQ_FIRST(batch); l != NULL && result == 0; l = TAILQ_NEXT(l, link)) {
        l->asked = strdup(address);
        result = l->asked == NULL ? -1 : 0;
    }
    if (result != 0 || start_batch(set, batch) != 0) {
        free_all(batch);
        return problem_say(problem, cap, "%s: cannot watch the socket: %s", address, strerror(ENOMEM));
    }
    TAILQ_CONCAT(&set->list, batch, link);
    return 0;
}

int listeners_add(struct listeners *set, const char *address, char *problem, size_t cap)
{
    struct listener_list batch = TAILQ_HEAD_INITIALIZER(batch);

    if (open_batch(set, address, &batch, problem, cap) != 0) {
        free_all(&batch);
        return -1;
    }
    return join_batch(set, address, &batch, problem, cap);
}

int listeners_adopt(struct listeners *set, int fd, const char *address, bool owns_file, char *problem, size_t cap)
{
    struct listener_list batch = TAILQ_HEAD_INITIALIZER(batch);
    union any_address bound;
    const char *wrong = not_listening(fd, &bound);
    int flags = fcntl(fd, F_GETFL);
    struct listener *l;

    if (wrong != NULL || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
        return problem_say(problem, cap, "%s: %s", address, wrong != NULL ? wrong : strerror(errno));
    }
    l = listener_around(set, fd);
    if (l == NULL) {
        return problem_say(problem, cap, "%s: %s", address, strerror(ENOMEM));
    }
    l->shared = true;
    l->lent = set->held;
    adopt_address(l, &bound);
    if (strncmp(address, tls_prefix, sizeof(tls_prefix) - 1) == 0) {
        speak_tls(l);
    }
    if (owns_file && bound.any.sa_family == AF_UNIX) {
        unix_file_identify(&l->file, bound.un.sun_path);
    }
    TAILQ_INSERT_TAIL(&batch, l, link);
    return join_batch(set, address, &batch, problem, cap);
}

static struct listener *nth(const struct listeners *set, size_t i)
{
    struct listener *l = TAILQ_FIRST(&set->list);

    while (l != NULL && i-- > 0) {
        l = TAILQ_NEXT(l, link);
    }
    return l;
}

const char *listeners_address(const struct listeners *set, size_t i)
{
    const struct listener *l = nth(set, i);

    return l != NULL ? l->address : NULL;
}

int listeners_socket(const struct listeners *set, size_t i, const char **ret_asked)
{
    const struct listener *l = nth(set, i);

    if (l == NULL || l->fd < 0) {
        return -1;
    }
    *ret_asked = l->asked;
    return l->fd;
}

void listeners_hold(struct listeners *set)
{
    set->held = true;
}

void listeners_let_go(struct listeners *set)
{
    struct listener *l;

    if (!set->held) {
        return;
    }
    set->held = false;
    for (l = TAILQ_FIRST(&set->list); l != NULL; l = TAILQ_NEXT(l, link)) {
        l->lent = false;
        if (!set->paused && event_add(l->event, NULL) != 0) {
            pause_accepting(set);
        }
    }
}

void listeners_share(struct listeners *set)
{
    struct listener *l;

    for (l = TAILQ_FIRST(&set->list); l != NULL; l = TAILQ_NEXT(l, link)) {
        l->shared = true;
        l->file.path[0] = '\0';
    }
}

/* Those that the kernel has connected already are not turned away by a reset: they get their answer in the drain. */
static void empty_queue(struct listener *l)
{
    struct sockaddr_storage peer;
    int fd;

    if (l->shared || l->fd < 0) {
        return;
    }
    for (int i = 0; i < BACKLOG && (fd = accept_one(l, &peer)) >= 0; i++) {
        l->set->owner.accepted(l->set->owner.ctx, fd, (const struct sockaddr *)&peer, l->tls);
    }
}

void listeners_close(struct listeners *set)
{
    struct listener *l;

    set->paused = true; /* for good */
    (void)event_del(set->resume);
    for (l = TAILQ_FIRST(&set->list); l != NULL; l = TAILQ_NEXT(l, link)) {
        empty_queue(l);
        listener_close(l);
    }
    give_reserve(set);
}
