/* Who is at the other end of a connection, as far as the operating system and TLS know. What a client says of itself is not in here.
 *
 * A connection owns its peer; the HTTP front hands a pointer to it out with each request (http.h), and it lives as long as the exchange. Who fills what:
 *   kind, address, text    here, from what accept() told
 *   has_ids, uid, gid, pid here, from the connected socket, when it is accepted: those of the process that connected, as they were then
 *   subject                whoever ends TLS: after the handshake, before the first request
 * No allocation, and no look-up of users by name: that may ask a server, and everybody would wait for it.
 */
#ifndef PAWL_PEER_H
#define PAWL_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PEER_TEXT 64

struct sockaddr;

enum peer_kind { PEER_TCP, PEER_UNIX };

struct peer {
    enum peer_kind kind;
    unsigned char address[16]; /* PEER_TCP: network order, an IPv4 address as ::ffff:a.b.c.d; all zero otherwise */
    bool has_ids;              /* PEER_UNIX: the three below are known */
    uid_t uid;
    gid_t gid;
    pid_t pid;
    const char *subject; /* of the verified client certificate, as RFC 2253 writes it ("CN=billing,O=Example"); NULL: none */
    char text
        [PEER_TEXT]; /* for logs: "127.0.0.1:5050", "[::1]:5050", "unix:uid=1000,pid=4242", "unix"; NUL-terminated, without blanks and control characters */
};

/* Sets all of *ret: kind, address and text from `address`, nothing in the rest. What is neither IPv4 nor IPv6 is a unix socket. */
void peer_init(struct peer *ret, const struct sockaddr *address);

/* PEER_UNIX: asks the kernel who connected (SO_PEERCRED), and puts it into the ids and the text. Without an answer, and for other kinds, nothing changes. */
void peer_learn_ids(struct peer *peer, int fd);

#endif
