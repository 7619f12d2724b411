/* What pawld and the service manager that started it tell each other: the notify protocol of sd_notify(3), the watchdog, and sockets that the manager has
 * opened (sd_listen_fds(3)).
 *
 * What this is: the three, read from the environment once and said in datagrams. What it is not: no timer and no event loop; when something is worth telling
 * is the daemon's to say. Without a manager every call does nothing. Embedded in its owner; allocates nothing but the names of sockets.
 */
#ifndef PAWL_SYSTEMD_H
#define PAWL_SYSTEMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#define SYSTEMD_SOCKETS_MAX 16
#define SYSTEMD_MESSAGE_MAX 255
#define SYSTEMD_WAITING_MAX 4

struct systemd {
    struct sockaddr_un address; /* of the manager's socket */
    socklen_t address_len;      /* 0: nobody listens */
    int fd;
    char waiting[SYSTEMD_WAITING_MAX][SYSTEMD_MESSAGE_MAX + 1]; /* for room in its queue */
    size_t waiting_count;
    int64_t watchdog_us;     /* the manager wants a sign of life that often; 0: it doesn't */
    int first, socket_count; /* descriptors that were passed: first .. first + socket_count - 1 */
    char *names;             /* NUL-terminated, one after the other; fewer than there are sockets: the rest has none */
    size_t name_count;
};

/* Reads NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID, LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES, and takes them out of this process's environment, so that no
 * child speaks in its name. What is meant for another process counts as absent. The sockets are made close-on-exec. Returns 0, or -1 with a sentence in
 * `problem` when the manager asks for something that can't be done. systemd_close also after a failure; it leaves the passed sockets alone. */
int systemd_init(struct systemd *s, char *problem, size_t cap);
void systemd_close(struct systemd *s);

bool systemd_listens(const struct systemd *s);

/* One message, lines of "KEY=value" ("READY=1\nSTATUS=serving"). Never waits. False: the manager's queue is full, or nobody listens. systemd_tell keeps what
 * found no room and sends it in its turn, with the next message or systemd_tell_again (of more than a few the oldest is given up); systemd_mention is for what
 * is said again anyway. */
bool systemd_tell(struct systemd *s, const char *message);
bool systemd_mention(struct systemd *s, const char *message);
void systemd_tell_again(struct systemd *s);

/* "RELOADING=1" with the time that Type=notify-reload wants beside it; to be followed by "READY=1". */
bool systemd_tell_reloading(struct systemd *s);

/* The i-th passed socket: its descriptor, and its name ("" when it has none). -1 past the end. */
int systemd_socket(const struct systemd *s, int i, const char **ret_name);

#endif
