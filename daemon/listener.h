/* Addresses to listening sockets to accepted descriptors.
 *
 * What this is: the set of everything that pawld listens on. What it is not: it knows no HTTP; what becomes of an accepted descriptor is its owner's to say.
 *
 * When the process or the system is out of descriptors, accept fails at once and the socket stays ready: a loop that would take all of the CPU. So
 * accepting then pauses for a moment, and those who wait meanwhile are taken with a descriptor kept in reserve, to be told and closed.
 */
#ifndef PAWL_LISTENER_H
#define PAWL_LISTENER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct event_base;
struct listeners;
struct sockaddr;

struct listener_owner {
    void *ctx;
    /* Takes over a connected descriptor (non-blocking, close-on-exec, TCP_NODELAY). `peer` only during the call. `tls`: TLS is spoken there. */
    void (*accepted)(void *ctx, int fd, const struct sockaddr *peer, bool tls);
    /* The same, but no descriptor is left: it is to be closed before this returns. */
    void (*overflowed)(void *ctx, int fd, const struct sockaddr *peer, bool tls);
};

/* `accept_errors` counts accept() calls that failed; it must live as long as the set. NULL without memory. */
struct listeners *listeners_new(struct event_base *base, const struct listener_owner *owner, uint64_t *accept_errors);

/* Closes all, removes the files of unix sockets. Takes NULL. */
void listeners_free(struct listeners *set);

/* See http_front_listen. */
int listeners_add(struct listeners *set, const char *address, char *problem, size_t cap);

/* Takes over a socket that another process made to listen, and which it may have too: see http_front_adopt. */
int listeners_adopt(struct listeners *set, int fd, const char *address, bool owns_file, char *problem, size_t cap);

/* The i-th bound address as text, NULL past the end. Goes on answering after listeners_close. */
const char *listeners_address(const struct listeners *set, size_t i);

/* The i-th socket and the address as it was asked for, for a successor. -1 past the end. */
int listeners_socket(const struct listeners *set, size_t i, const char **ret_asked);

/* Sockets that are added from now on listen, but nobody accepts, until listeners_let_go; until then the files of adopted ones are not removed either. */
void listeners_hold(struct listeners *set);
void listeners_let_go(struct listeners *set);

/* Another process has all of the sockets too, and their files are its matter. */
void listeners_share(struct listeners *set);

/* Stops accepting for good: closes the sockets, removes the files of unix sockets. What waits in the queue of a socket that no other process has is accepted
 * first. */
void listeners_close(struct listeners *set);

#endif
