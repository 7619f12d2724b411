/* The HTTP front as the daemon sees it: open listeners, serve, drain, close. See http.h for the seam to the service. */
#ifndef PAWL_HTTP_FRONT_H
#define PAWL_HTTP_FRONT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/http.h"

struct event_base;
struct http_front;
struct tls_config;

struct http_front_config {
    size_t max_connections;   /* beyond it a new client gets 429 too_many_connections and is closed */
    int64_t head_timeout_ms;  /* total time to receive a request's head; also of a TLS handshake */
    int64_t body_timeout_ms;  /* total time to receive its body */
    int64_t idle_timeout_ms;  /* keep-alive without a request */
    int64_t stuck_timeout_ms; /* output that does not move */
    struct tls_config *tls;   /* of "tls:" addresses, and reloaded as its owner likes; NULL: there are none. Borrowed */
};

struct http_front_counts { /* for metrics and tests */
    uint64_t accepted, refused, requests, bad_requests, timeouts, accept_errors;
    uint64_t tls_greeted, tls_failed; /* handshakes */
    uint64_t unproven;  /* replies with a receipt whose connection was reset before it was known whether they arrived; told as delivered */
    size_t connections; /* open now */
    size_t most;        /* open at one time since http_front_take_most */
    size_t parked;      /* exchanges parked now */
};

/* NULL only without memory. `base` and `service` must outlive the front. */
struct http_front *http_front_new(struct event_base *base, const struct http_front_config *config, const struct http_service *service);

/* Adds one listening address: "127.0.0.1:7295", "[::1]:7295", "localhost:7295" (every address that the name has), ":7295" is refused,
 * "unix:/path", "unix:/path?mode=0660&group=www", and "tls:" before any of the first three (listen_address.h). All of them or none: returns 0, or -1 with a
 * sentence that names the address in problem[0..cap). Port 0 picks one. */
int http_front_listen(struct http_front *front, const char *address, char *problem, size_t cap);

/* Adds a socket that another process opened: one that listens, of TCP or a unix socket. `address` is what was asked for, for sentences and a successor;
 * owns_file: the file of a unix socket is ours to remove at the end. Owns fd when it returns 0; else -1 with a sentence. */
int http_front_adopt(struct http_front *front, int fd, const char *address, bool owns_file, char *problem, size_t cap);

/* Between the two, sockets that are added listen but nobody is accepted, and the files of adopted ones are not ours to remove yet. */
void http_front_hold(struct http_front *front);
void http_front_let_go(struct http_front *front);

/* The i-th listening socket and the address as it was asked for. -1 past the end, and after accepting has stopped. */
int http_front_socket(const struct http_front *front, size_t i, const char **ret_asked);

/* The i-th bound address as text ("127.0.0.1:40001"), NULL past the end. For the start-up log line and port 0. */
const char *http_front_address(const struct http_front *front, size_t i);

/* Stops accepting (listeners closed, unix socket files removed), closes idle connections, closes the others after their reply in
 * progress with `Connection: close`. `drained` is called from the loop when no connection is left. */
void http_front_drain(struct http_front *front, void (*drained)(void *arg), void *arg);

/* Another process has the listening sockets too and goes on with them: no file of theirs is removed, and the connections in their queues are left to it. */
void http_front_share(struct http_front *front);

/* From now on each connection is closed after its next reply, which says so: its client's next request is for the successor. */
void http_front_see_off(struct http_front *front);

/* Accepts nothing more but keeps serving open connections (for a drain in which renew and release go on working). */
void http_front_stop_accepting(struct http_front *front);

struct http_front_counts http_front_counts(const struct http_front *front);

/* How many connections were open at one time at most, since the last call or the start. */
size_t http_front_take_most(struct http_front *front);

/* Closes everything at once; exchanges still open get gone(). Takes NULL. */
void http_front_free(struct http_front *front);

#endif
