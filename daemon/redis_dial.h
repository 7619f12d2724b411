/* From where Redis is said to be to a connected socket: looks up the name, then tries its addresses one after the other.
 *
 * What this is: addresses, and a socket on which nobody has said anything yet. What it is not: it has no deadline and no second attempt, which are the
 * link's; and it watches no socket. Who dials watches `fd` until it can be written to, and stops watching it before each call in here, since that may close it.
 */
#ifndef PAWL_REDIS_DIAL_H
#define PAWL_REDIS_DIAL_H

#include <stdbool.h>

struct addrinfo;
struct evdns_base;
struct evdns_getaddrinfo_request;
struct event_base;
struct redis_lookup;
struct redis_url;

enum redis_dialled {
    DIAL_LOOKS_UP,  /* `looked_up` will be called: redis_dial_go_on then */
    DIAL_CONNECTS,  /* when `fd` can be written to: redis_dial_ready */
    DIAL_CONNECTED, /* `fd` is; redis_dial_take has it */
    DIAL_FAILED,    /* `problem` says why; what is left is for redis_dial_drop */
};

struct redis_dial {
    int fd; /* -1: none */
    char problem[160];

    /* its own */
    struct event_base *base;
    const struct redis_url *url;
    void (*looked_up)(void *arg);
    void *arg;
    struct evdns_base *dns;
    struct evdns_getaddrinfo_request *request;
    struct redis_lookup *lookup;
    struct addrinfo *addresses; /* of the last look-up; freed with evutil_freeaddrinfo */
    struct addrinfo *address;   /* the one being tried */
    bool resolved;              /* the look-up has ended, for good or ill, and nobody has gone on yet */
};

/* `base` and `url` must outlive it; what stands in the url is read when a dial begins. `looked_up` may be called from inside redis_dial_begin, and must call
 * nothing in here. */
void redis_dial_init(struct redis_dial *dial, struct event_base *base, const struct redis_url *url, void (*looked_up)(void *arg),
                     void *arg);

/* Of one that is idle: new, taken or dropped. */
enum redis_dialled redis_dial_begin(struct redis_dial *dial);
enum redis_dialled redis_dial_go_on(struct redis_dial *dial);
enum redis_dialled redis_dial_ready(struct redis_dial *dial); /* connected, or another address is being tried, or there is none left */

void redis_dial_take(struct redis_dial *dial); /* `fd` is the caller's from now on, who has kept its number; it is idle again */
void redis_dial_drop(struct redis_dial *dial); /* in any state; it is idle again, and `looked_up` is not called any more */
void redis_dial_close(struct redis_dial *dial);

#endif
