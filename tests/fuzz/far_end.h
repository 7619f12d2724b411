/* The far end of the connections that a target's code makes: a listening socket, what comes to it, and one loop for both sides. Whatever is said there is thrown
 * away; what is said back comes from the input.
 *
 * Nothing waits: a step is one turn of the loop and a look at all that is there, and the near end is a few steps away from anything. */
#ifndef PAWL_FUZZ_FAR_END_H
#define PAWL_FUZZ_FAR_END_H

#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "tests/fuzz/target.h"

#define FAR_LINKS_MAX 4

struct far_end {
    struct event_base *base;
    int listening, most;      /* links beyond so many are closed at once */
    int links[FAR_LINKS_MAX]; /* in the order in which they came */
    int count;
};

/* Once for all inputs. The socket is bound and listens; the loop is where the target's code lives. */
static inline void far_end_listen(struct far_end *f, const struct sockaddr *address, socklen_t len, int most)
{
    f->base = event_base_new();
    f->listening = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    f->most = most;
    must(most <= FAR_LINKS_MAX && f->base && f->listening >= 0);
    must(bind(f->listening, address, len) == 0 && listen(f->listening, 64) == 0);
}

static inline void far_end_turn(struct far_end *f)
{
    static const struct linger reset = {1, 0}; /* so that TCP keeps no port for a while */
    char heard[65536];
    int fd;

    (void)event_base_loop(f->base, EVLOOP_NONBLOCK);
    while ((fd = accept4(f->listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        if (f->count < f->most)
            f->links[f->count++] = fd;
        else
            close(fd);
    }
    for (int i = 0; i < f->count; i++) {
        while (read(f->links[i], heard, sizeof(heard)) > 0) {
        }
    }
}

/* Nothing, where there is no such link. A turn follows. */
static inline void far_end_say(struct far_end *f, int link, const void *bytes, size_t len)
{
    if (link < f->count && len > 0)
        (void)!send(f->links[link], bytes, len, MSG_NOSIGNAL);
    far_end_turn(f);
}

static inline void far_end_hang_up(struct far_end *f)
{
    for (int i = 0; i < f->count; i++)
        close(f->links[i]);
    f->count = 0;
}

#endif
