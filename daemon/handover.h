/* How a new pawld takes the place of one that runs: it is given the listening sockets themselves.
 *
 *     predecessor                                             successor
 *     listens at --handover PATH
 *                                          <-- connects --    starts with the same PATH
 *                   -- its sockets, each with its address ->  listens on them, accepts nobody yet
 *     serves                                                  attaches to the store
 *                                          <-- "take" -----   can grant: accepts from now on
 *     removes PATH, closes the link, drains --------------->  listens at PATH for its own successor
 *
 * A predecessor that ends before that, however, closes the link too: the successor then accepts at once.
 *
 * What this is: that conversation. What it is not: it opens no listening socket but the one at PATH, and what draining or accepting means is the owner's
 * to say. Each side wants the other to run as the same user, or as root. Runs on the event loop, but for handover_ask.
 */
#ifndef PAWL_HANDOVER_H
#define PAWL_HANDOVER_H

#include <stdbool.h>
#include <stddef.h>

#define HANDOVER_SOCKETS_MAX 64
#define HANDOVER_ASKED_MAX   511

struct event_base;
struct handover;

struct handover_sockets { /* zero: none */
    size_t count;
    struct {
        int fd; /* -1: taken */
        char asked[HANDOVER_ASKED_MAX + 1];
    } each[HANDOVER_SOCKETS_MAX];
};

struct handover_owner {
    void *ctx;
    /* The i-th socket that a successor gets and its address as it was asked for (valid during the call); -1 past the end. */
    int (*socket)(void *ctx, size_t i, const char **ret_asked);
    /* The successor serves: from now on this process has nothing more to accept. */
    void (*taken)(void *ctx);
    /* The predecessor has let go, or is dead. */
    void (*predecessor_gone)(void *ctx);
};

/* For the start: asks whoever listens at `path` for its sockets, waiting some seconds at most. Returns 0 and the link to the predecessor in *ret_link, or -1
 * there if nobody listens; or -1 with a sentence. Owned by the caller: the link and every descriptor in *ret. */
int handover_ask(const char *path, struct handover_sockets *ret, int *ret_link, char *problem, size_t cap);

/* Closes what nobody took. */
void handover_sockets_close(struct handover_sockets *sockets);

/* NULL without memory. `path` must outlive it. `link` (-1: none) is owned from now on, also when this fails. */
struct handover *handover_new(struct event_base *base, const char *path, int link, const struct handover_owner *owner);

/* Closes everything, removes the file at the path if it is still ours. A successor that waits takes that as the end of this process. Takes NULL. */
void handover_free(struct handover *h);

/* There is a predecessor that has not let go yet. */
bool handover_has_predecessor(const struct handover *h);

/* Tells the predecessor that it is not needed any more. */
void handover_take(struct handover *h);

/* A successor has our sockets and waits. */
bool handover_has_successor(const struct handover *h);

/* Listens at the path. Returns 0, or -1 with a sentence. */
int handover_listen(struct handover *h, char *problem, size_t cap);

/* The same after a predecessor, whose death is seen before all of its sockets are closed: tries again for some seconds, and logs when it comes to nothing. */
void handover_listen_soon(struct handover *h);

#endif
