/* Listeners and connections, put together. Each knows nothing of the other: descriptors go from the first to the second through the two functions here. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/http_conns.h"
#include "daemon/http_front.h"
#include "daemon/listener.h"

struct http_front {
    struct listeners *listeners;
    struct http_conns *conns;
    bool has_tls;
    void (*drained)(void *arg);
    void *drained_arg;
};

static void on_accepted(void *ctx, int fd, const struct sockaddr *peer, bool tls)
{
    struct http_front *front = ctx;

    http_conns_take(front->conns, fd, peer, tls);
}

static void on_overflowed(void *ctx, int fd, const struct sockaddr *peer, bool tls)
{
    struct http_front *front = ctx;

    http_conns_turn_away(front->conns, fd, peer, tls);
}

static void on_emptied(void *arg)
{
    struct http_front *front = arg;

    if (front->drained != NULL) {
        front->drained(front->drained_arg); /* may free the front */
    }
}

struct http_front *http_front_new(struct event_base *base, const struct http_front_config *config, const struct http_service *service)
{
    struct http_front *front = calloc(1, sizeof(*front));
    const struct listener_owner owner = {front, on_accepted, on_overflowed};

    if (front == NULL) {
        return NULL;
    }
    front->has_tls = config->tls != NULL;
    front->conns = http_conns_new(base, config, service, on_emptied, front);
    if (front->conns != NULL) {
        front->listeners = listeners_new(base, &owner, &http_conns_counts(front->conns)->accept_errors);
    }
    if (front->listeners == NULL) {
        http_front_free(front);
        return NULL;
    }
    return front;
}

static bool can_serve(const struct http_front *front, const char *address, char *problem, size_t cap)
{
    if (front->has_tls || strncmp(address, "tls:", strlen("tls:")) != 0) {
        return true;
    }
    snprintf(problem, cap, "%s: there is no certificate to serve it with", address);
    return false;
}

int http_front_listen(struct http_front *front, const char *address, char *problem, size_t cap)
{
    return can_serve(front, address, problem, cap) ? listeners_add(front->listeners, address, problem, cap) : -1;
}

int http_front_adopt(struct http_front *front, int fd, const char *address, bool owns_file, char *problem, size_t cap)
{
    return can_serve(front, address, problem, cap) ? listeners_adopt(front->listeners, fd, address, owns_file, problem, cap) : -1;
}

void http_front_hold(struct http_front *front)
{
    listeners_hold(front->listeners);
}

void http_front_let_go(struct http_front *front)
{
    listeners_let_go(front->listeners);
}

int http_front_socket(const struct http_front *front, size_t i, const char **ret_asked)
{
    return listeners_socket(front->listeners, i, ret_asked);
}

void http_front_share(struct http_front *front)
{
    listeners_share(front->listeners);
}

void http_front_see_off(struct http_front *front)
{
    http_conns_see_off(front->conns);
}

const char *http_front_address(const struct http_front *front, size_t i)
{
    return listeners_address(front->listeners, i);
}

void http_front_stop_accepting(struct http_front *front)
{
    listeners_close(front->listeners);
}

void http_front_drain(struct http_front *front, void (*drained)(void *arg), void *arg)
{
    front->drained = drained;
    front->drained_arg = arg;
    listeners_close(front->listeners);
    http_conns_drain(front->conns);
}

struct http_front_counts http_front_counts(const struct http_front *front)
{
    return *http_conns_counts(front->conns);
}

size_t http_front_take_most(struct http_front *front)
{
    struct http_front_counts *counts = http_conns_counts(front->conns);
    size_t most = counts->most;

    counts->most = counts->connections;
    return most;
}

void http_front_free(struct http_front *front)
{
    if (front == NULL) {
        return;
    }
    listeners_free(front->listeners);
    http_conns_free(front->conns);
    free(front);
}
