/* "host:port" as people write it: a name, an IPv4 address or an [IPv6] address, and a port. One reader for what pawld listens on and for where its
 * Redis is, so that both take and refuse the same spellings. Only the spelling: nothing is looked up. Pure; no allocation. */
#ifndef PAWL_HOST_PORT_H
#define PAWL_HOST_PORT_H

#include <stdbool.h>
#include <stddef.h>

struct host_port {
    char host[256]; /* a name or an address, without brackets; an IPv6 zone follows a '%' ("fe80::1%eth0") */
    int port;
};

enum host_port_form {
    HOST_PORT_LISTEN,   /* the port must be there and may be 0 (any free one) */
    HOST_PORT_REDIS,    /* the port is 1 or more, 6379 when left out; a zone may also be spelled as URLs do ("%25eth0") */
    HOST_PORT_SENTINEL, /* the same with 26379 */
};

/* Returns NULL and fills *out, or a static sentence that repeats nothing of the text (it may sit beside a password); *out is untouched then. */
const char *host_port_parse(const char *text, size_t len, enum host_port_form form, struct host_port *out);

/* Does this address, spelled as for HOST_PORT_LISTEN, lead to this machine alone: 127.0.0.0/8, ::1 or the name localhost? Another name is none, whatever it
 * resolves to. */
bool host_port_is_loopback(const char *text);

/* Reads all of text[0..len) as a decimal number of at most `max`; digits only. Returns it, or -1. */
long host_port_number(const char *text, size_t len, long max);

#endif
