/* A number, a name or a path becomes a connected socket. A number is tried at once. A name is looked up by libevent's resolver, which is made anew each time,
 * since the hosts file and resolv.conf may have changed since the last; an address that refuses gives way to the name's next one.
 *
 * A look-up that is cancelled may still call back, later; so what it is given to call back with (`struct redis_lookup`) is memory of its own, which the dial
 * and the look-up part from by turns. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_dial.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <event2/dns.h>
#include <event2/util.h>

#include "daemon/redis_url.h"

struct redis_lookup { /* outlives the dial when it is cancelled too late */
    struct redis_dial *dial;
};

void redis_dial_init(struct redis_dial *dial, struct event_base *base, const struct redis_url *url, void (*looked_up)(void *arg), void *arg)
{
    *dial = (struct redis_dial){.fd = -1, .base = base, .url = url, .looked_up = looked_up, .arg = arg};
}

static enum redis_dialled fail(struct redis_dial *dial, const char *problem)
{
    snprintf(dial->problem, sizeof(dial->problem), "%s", problem);
    return DIAL_FAILED;
}

/* ---- the socket ---- */

static void close_fd(struct redis_dial *dial)
{
    if (dial->fd >= 0)
        close(dial->fd);
    dial->fd = -1;
}

/* Returns 0 or an errno. */
static int open_socket(struct redis_dial *dial, int family, const struct sockaddr *address, socklen_t len)
{
    int one = 1;

    dial->fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (dial->fd < 0)
        return errno;
    if (family != AF_UNIX) {
        (void)setsockopt(dial->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        (void)setsockopt(dial->fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    }
    if (connect(dial->fd, address, len) < 0 && errno != EINPROGRESS)
        return errno;
    return 0;
}

/* Tries `address`, or the path. */
static int try_one(struct redis_dial *dial)
{
    if (dial->url->unix_path[0]) {
        struct sockaddr_un sun = {.sun_family = AF_UNIX};
        memcpy(sun.sun_path, dial->url->unix_path, sizeof(sun.sun_path));
        return open_socket(dial, AF_UNIX, (const struct sockaddr *)&sun, sizeof(sun));
    }
    return open_socket(dial, dial->address->ai_family, dial->address->ai_addr, dial->address->ai_addrlen);
}

/* This one can't be reached, for `error`: on to the name's next address, as long as there is one. */
static enum redis_dialled try_next(struct redis_dial *dial, int error)
{
    while (error && dial->address && dial->address->ai_next) {
        close_fd(dial);
        dial->address = dial->address->ai_next;
        error = try_one(dial);
    }
    if (!error)
        return DIAL_CONNECTS;
    snprintf(dial->problem, sizeof(dial->problem), "Redis cannot be reached: %s", strerror(error));
    return DIAL_FAILED;
}

enum redis_dialled redis_dial_ready(struct redis_dial *dial)
{
    int error = 0;
    socklen_t len = sizeof(error);

    if (getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        error = errno;
    return error ? try_next(dial, error) : DIAL_CONNECTED;
}

/* ---- the name ---- */

static void on_lookup(int error, struct evutil_addrinfo *addresses, void *arg)
{
    struct redis_lookup *lookup = arg;
    struct redis_dial *dial = lookup->dial;

    free(lookup);
    if (!dial) {
        if (addresses)
            evutil_freeaddrinfo(addresses);
        return;
    }
    dial->lookup = NULL;
    dial->request = NULL;
    dial->resolved = true;
    dial->addresses = dial->address = addresses;
    if (!addresses)
        (void)fail(dial, error ? evutil_gai_strerror(error) : "Redis cannot be reached: its name has no address");
    dial->looked_up(dial->arg);
}

/* A resolver made anew. */
static bool fresh_resolver(struct redis_dial *dial)
{
    if (dial->dns)
        evdns_base_free(dial->dns, 0);
    dial->dns = evdns_base_new(dial->base, EVDNS_BASE_INITIALIZE_NAMESERVERS);
    if (!dial->dns) { /* no resolv.conf: the hosts file will do */
        dial->dns = evdns_base_new(dial->base, 0);
        if (dial->dns)
            (void)evdns_base_load_hosts(dial->dns, "/etc/hosts");
    }
    return dial->dns != NULL;
}

static enum redis_dialled look_up(struct redis_dial *dial)
{
    struct evutil_addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = EVUTIL_AI_NUMERICHOST};
    char port[16];

    snprintf(port, sizeof(port), "%d", dial->url->port);
    if (evutil_getaddrinfo(dial->url->host, port, &hints, &dial->addresses) == 0) {
        dial->address = dial->addresses;
        return try_next(dial, try_one(dial));
    }
    hints.ai_flags = EVUTIL_AI_ADDRCONFIG;
    dial->lookup = malloc(sizeof(*dial->lookup));
    if (!dial->lookup || !fresh_resolver(dial)) {
        free(dial->lookup);
        dial->lookup = NULL;
        return fail(dial, "out of memory");
    }
    dial->lookup->dial = dial;
    dial->request = evdns_getaddrinfo(dial->dns, dial->url->host, port, &hints, on_lookup, dial->lookup);
    if (dial->resolved) /* it has called back already */
        dial->request = NULL;
    return DIAL_LOOKS_UP;
}

enum redis_dialled redis_dial_begin(struct redis_dial *dial)
{
    return dial->url->unix_path[0] ? try_next(dial, try_one(dial)) : look_up(dial);
}

enum redis_dialled redis_dial_go_on(struct redis_dial *dial)
{
    if (!dial->resolved)
        return DIAL_LOOKS_UP;
    dial->resolved = false;
    return dial->address ? try_next(dial, try_one(dial)) : DIAL_FAILED;
}

/* ---- its end ---- */

static void drop_lookup(struct redis_dial *dial)
{
    if (dial->lookup) {
        dial->lookup->dial = NULL;
        dial->lookup = NULL;
        if (dial->request)
            evdns_getaddrinfo_cancel(dial->request);
        dial->request = NULL;
    }
    if (dial->addresses) {
        evutil_freeaddrinfo(dial->addresses);
        dial->addresses = dial->address = NULL;
    }
    dial->resolved = false;
}

void redis_dial_take(struct redis_dial *dial)
{
    dial->fd = -1;
    drop_lookup(dial);
}

void redis_dial_drop(struct redis_dial *dial)
{
    close_fd(dial);
    drop_lookup(dial);
}

void redis_dial_close(struct redis_dial *dial)
{
    redis_dial_drop(dial);
    if (dial->dns)
        evdns_base_free(dial->dns, 0);
    dial->dns = NULL;
}
