/* The protocol of sd_notify(3) is a datagram of lines to the socket that NOTIFY_SOCKET names; that of sd_listen_fds(3) is three variables and descriptors from 3
 * on. Both are promised not to change, and sd_notify(3) itself shows how to speak without a library. libsystemd would do the same for four more libraries in
 * every address space and every sidecar's image, most of which run where there is no systemd; so it is done here, in a page.
 *
 * The manager may hang like any other peer, and nothing here waits for it: a lock broker that stands still because its supervisor does would be worse than one
 * whose state is shown late.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/systemd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/host_port.h"

#define FIRST_SOCKET   3
#define WATCHDOG_MAX_S 86400

/* Returns 0, or a static sentence. */
static const char *read_notify_socket(struct systemd *s, const char *path)
{
    size_t len = strlen(path);

    if (len < 2 || len >= sizeof(s->address.sun_path) || (path[0] != '/' && path[0] != '@'))
        return "NOTIFY_SOCKET is neither an absolute path nor @name, or too long";
    s->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s->fd < 0)
        return strerror(errno);
    s->address.sun_family = AF_UNIX;
    memcpy(s->address.sun_path, path, len);
    s->address_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1);
    if (path[0] == '@') { /* an abstract name: it is as long as it is, without a NUL at its end */
        s->address.sun_path[0] = '\0';
        s->address_len--;
    }
    return NULL;
}

/* Meant for this process, as the variable with a process id beside it tells? */
static bool is_for_us(const char *pid, bool when_absent)
{
    char own[24];

    snprintf(own, sizeof(own), "%ld", (long)getpid());
    return pid ? strcmp(pid, own) == 0 : when_absent;
}

static const char *read_watchdog(struct systemd *s, const char *text)
{
    long us = host_port_number(text, strlen(text), (long)WATCHDOG_MAX_S * 1000000);

    if (us <= 0)
        return "WATCHDOG_USEC is no number of microseconds from 1 to a day";
    s->watchdog_us = us;
    return NULL;
}

static const char *read_names(struct systemd *s, const char *names)
{
    s->names = strdup(names);
    if (!s->names)
        return strerror(ENOMEM);
    s->name_count = 1;
    for (char *c = s->names; *c; c++) {
        if (*c == ':') {
            *c = '\0';
            s->name_count++;
        }
    }
    return NULL;
}

static const char *read_sockets(struct systemd *s, const char *count, const char *names)
{
    long n = host_port_number(count, strlen(count), SYSTEMD_SOCKETS_MAX);

    if (n < 0)
        return "LISTEN_FDS is no number of at most 16";
    for (int fd = FIRST_SOCKET; fd < FIRST_SOCKET + n; fd++) {
        int flags = fcntl(fd, F_GETFD);

        if (flags < 0 || fcntl(fd, F_SETFD, flags | FD_CLOEXEC) < 0)
            return "LISTEN_FDS counts descriptors that are not there";
    }
    s->first = FIRST_SOCKET;
    s->socket_count = (int)n;
    return names ? read_names(s, names) : NULL;
}

static const char *read_environment(struct systemd *s)
{
    const char *notify = getenv("NOTIFY_SOCKET"), *watchdog = getenv("WATCHDOG_USEC"), *count = getenv("LISTEN_FDS"), *wrong = NULL;

    if (notify)
        wrong = read_notify_socket(s, notify);
    if (!wrong && watchdog && is_for_us(getenv("WATCHDOG_PID"), true))
        wrong = read_watchdog(s, watchdog);
    if (!wrong && count && is_for_us(getenv("LISTEN_PID"), false))
        wrong = read_sockets(s, count, getenv("LISTEN_FDNAMES"));
    return wrong;
}

int systemd_init(struct systemd *s, char *problem, size_t cap)
{
    static const char *const all[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"};
    const char *wrong;

    memset(s, 0, sizeof(*s));
    s->fd = -1;
    wrong = read_environment(s);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        (void)unsetenv(all[i]);
    if (!wrong)
        return 0;
    snprintf(problem, cap, "the service manager's wishes can't be met: %s", wrong);
    return -1;
}

void systemd_close(struct systemd *s)
{
    if (s->address_len > 0)
        close(s->fd);
    s->address_len = 0;
    free(s->names);
    s->names = NULL;
}

bool systemd_listens(const struct systemd *s)
{
    return s->address_len > 0;
}

/* Returns 0, or -1 with errno. */
static int send_message(struct systemd *s, const char *message)
{
    ssize_t n;

    do
        n = sendto(s->fd, message, strlen(message), MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)&s->address, s->address_len);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -1 : 0;
}

static void drop_first(struct systemd *s)
{
    memmove(s->waiting[0], s->waiting[1], sizeof(s->waiting) - sizeof(s->waiting[0]));
    s->waiting_count--;
}

void systemd_tell_again(struct systemd *s)
{
    while (s->waiting_count > 0 && (send_message(s, s->waiting[0]) == 0 || (errno != EAGAIN && errno != ENOBUFS)))
        drop_first(s); /* sent, or there is nobody to send it to */
}

bool systemd_mention(struct systemd *s, const char *message)
{
    if (!systemd_listens(s))
        return false;
    systemd_tell_again(s);
    return s->waiting_count == 0 && send_message(s, message) == 0;
}

bool systemd_tell(struct systemd *s, const char *message)
{
    if (!systemd_listens(s))
        return false;
    if (systemd_mention(s, message))
        return true;
    if (s->waiting_count == 0 && errno != EAGAIN && errno != ENOBUFS)
        return false;
    if (s->waiting_count == SYSTEMD_WAITING_MAX)
        drop_first(s);
    snprintf(s->waiting[s->waiting_count++], sizeof(s->waiting[0]), "%s", message);
    return false;
}

bool systemd_tell_reloading(struct systemd *s)
{
    struct timespec now;
    char message[64];

    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* can't fail for this clock; the manager compares it with its own reading */
    snprintf(message, sizeof(message), "RELOADING=1\nMONOTONIC_USEC=%" PRId64, (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000);
    return systemd_tell(s, message);
}

int systemd_socket(const struct systemd *s, int i, const char **ret_name)
{
    const char *name = s->names;

    if (i < 0 || i >= s->socket_count)
        return -1;
    for (int skip = i; skip > 0 && (size_t)i < s->name_count; skip--)
        name += strlen(name) + 1;
    *ret_name = (size_t)i < s->name_count ? name : "";
    return s->first + i;
}
