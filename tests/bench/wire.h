/* A client's connection: an address, a non-blocking socket and the bytes that came and aren't read yet.
 *
 * The load keeps at most one request under way on a wire, and a request is some hundred bytes, so the kernel always takes it whole: a write
 * that would block is an error here, not a state. Addresses are spelled as pawld's --listen does: "127.0.0.1:7295" or "unix:/path".
 */
#ifndef PAWL_BENCH_WIRE_H
#define PAWL_BENCH_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define WIRE_IN_MAX 4096

struct address {
    struct sockaddr_storage sa;
    socklen_t len;
    bool tcp;
};

struct wire {
    int fd; /* -1: closed */
    size_t in_len;
    char *in; /* WIRE_IN_MAX bytes, NULL until the first read: thousands of idle wires cost the load little */
};

/* False if the text is no address. */
bool address_read(struct address *a, const char *text);

/* Connects (blocking: a full backlog is waited for), then makes the socket non-blocking. Returns 0, or -1 with errno set and the wire
 * closed. */
int wire_open(struct wire *w, const struct address *a);
void wire_close(struct wire *w);

/* Returns 0 when all went out, else -1 with errno. */
int wire_send(struct wire *w, const char *bytes, size_t len);

/* Reads once, behind what is there. Returns 1 when something came, 0 when nothing is there now, -1 with errno at the end of the stream
 * (ECONNRESET), on an error, and when the buffer is full without a whole reply in it (EMSGSIZE). */
int wire_read(struct wire *w);
/* Forgets the first n bytes read. */
void wire_drop(struct wire *w, size_t n);
/* Gives the buffer back when nothing is in it. */
void wire_shrink(struct wire *w);
/* wire_read, but waits for something to come: never returns 0; ETIMEDOUT after timeout_ms. */
int wire_wait(struct wire *w, int timeout_ms);

#endif
