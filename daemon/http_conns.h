/* The open connections: one client's bytes to requests for the service, and replies back, in order.
 *
 * What this is: the middle of the HTTP front, between the listener, which hands it accepted descriptors, and the service (http.h). It owns buffers, states,
 * deadlines and the decision when a client counts as gone. What it is not: it knows no addresses to listen on and no route.
 *
 * Needs an event base that can watch edges and early closes (epoll). Everything runs on that base's loop.
 */
#ifndef PAWL_HTTP_CONNS_H
#define PAWL_HTTP_CONNS_H

#include <stdbool.h>

#include "daemon/http_front.h"

struct event_base;
struct sockaddr;
struct http_conns;

/* An empty set. `emptied` is called from the loop, once, when the set is draining and no connection is left; it may free the set. NULL without memory. */
struct http_conns *http_conns_new(struct event_base *base, const struct http_front_config *config, const struct http_service *service,
                                  void (*emptied)(void *arg), void *arg);

/* Closes every connection at once; open exchanges get gone(), waiting receipts are told. Takes NULL. Not from inside the service. */
void http_conns_free(struct http_conns *set);

/* Takes over an accepted, non-blocking descriptor. Past the limits of the configuration, or when it is among the last that this process may have, the client
 * is told 429 and closed. `tls`: it begins with a handshake, by the configuration's `tls`. */
void http_conns_take(struct http_conns *set, int fd, const struct sockaddr *peer, bool tls);

/* Tells the client 429 as far as that goes without waiting (under TLS it doesn't go at all), and closes the descriptor before it returns. */
void http_conns_turn_away(struct http_conns *set, int fd, const struct sockaddr *peer, bool tls);

/* From now on each connection is closed after its next reply. Idle ones stay until their clients speak. */
void http_conns_see_off(struct http_conns *set);

/* Closes what is idle, and each other connection after its reply. One that has just connected and not spoken yet has a moment to do so. */
void http_conns_drain(struct http_conns *set);

/* Live; the set's as long as it lives. accept_errors is the listener's to count. */
struct http_front_counts *http_conns_counts(struct http_conns *set);

#endif
