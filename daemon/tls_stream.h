/* A stream that encrypts: TLS over a connected TCP socket, as a further kind of struct stream.
 *
 * Nothing may be read or written before stream_greet has returned 0. What the other side sent is read from the socket no further than one record and what
 * came with it, and stays inside until it is asked for.
 */
#ifndef PAWL_TLS_STREAM_H
#define PAWL_TLS_STREAM_H

#include "daemon/stream.h"

struct tls_config;

/* Take over a connected, non-blocking TCP socket, as the server's end or as the client's, which wants a certificate of `host`. Return 0, or -1 without
 * memory: the descriptor is then still the caller's. */
int tls_stream_init_server(struct stream *s, int fd, const struct tls_config *config);
int tls_stream_init_client(struct stream *s, int fd, const struct tls_config *config, const char *host);

/* Why stream_greet or a read failed, as a sentence that names the reason and nothing that the other side wrote; "" when they didn't. Until the close. */
const char *tls_stream_problem(const struct stream *s);

/* After stream_greet: whose certificate the other side has shown, and proved to own, as RFC 2253 writes it ("CN=worker-7,O=Example", control characters
 * escaped). *ret is the caller's to free, NULL when no certificate was shown. Returns 0, or -1 without memory. */
int tls_stream_subject(const struct stream *s, char **ret);

/* What errno says after stream_greet failed, beside EAGAIN and the errors of the socket. */
#define TLS_STREAM_SPEAKS_PLAIN                                                                                                            \
    EPROTOTYPE /* it sent an HTTP request without TLS: the stream is a plain one from now on, and can be answered */
#define TLS_STREAM_SAID_NOTHING ENODATA /* it closed before its first byte */

#endif
