/* Listening unix sockets and the files they are reached by: made with the rights that were asked for from their first moment, put where a dead process left
 * one, never where somebody listens, and removed only while they are still our own.
 *
 * Knows nothing of what is served there. Blocks for the group's look-up and for at most a second when another process is starting in the same folder: for
 * the start, not for the loop. */
#ifndef PAWL_UNIX_SOCKET_H
#define PAWL_UNIX_SOCKET_H

#include <stddef.h>
#include <sys/types.h>
#include <sys/un.h>

#include "daemon/listen_address.h"

struct unix_file {
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* empty: none */
    dev_t device;                                           /* to know it again */
    ino_t inode;
};

/* Opens a socket of `type` (SOCK_STREAM, SOCK_SEQPACKET) at asked->path, non-blocking and close-on-exec, listening, with asked->mode (without one: as the
 * umask says) and asked->group. Returns the descriptor and sets *ret, or -1 with a sentence that names the address in problem[0..cap). */
int unix_socket_open(const struct listen_address *asked, int type, int backlog, struct unix_file *ret, char *problem, size_t cap);

/* Takes the file at `path`, made by another, as ours to remove; an empty one if there is none. */
void unix_file_identify(struct unix_file *ret, const char *path);

/* Removes the file, unless another stands in its place. It is empty afterwards. */
void unix_file_remove(struct unix_file *file);

#endif
