/* The rights are set on the socket before it is bound: bind makes the file with them, less the umask, which is out of the way for that one call (pawld has one
 * thread). The group is set on the file before listen, and until then nobody can connect. So there is no moment in which more may connect than should.
 *
 * Whether a file that is there already is left over from a dead process is asked by connecting to it. Two processes that ask at once would both be told so, and
 * the second would remove what the first has just made: a lock on the folder makes them take turns. Where the folder can't be opened, or stays locked, they do
 * without.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/unix_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/problem.h"

#define LOCK_TRIES   100
#define LOCK_STEP_MS 10
#define GROUP_BYTES  16384

enum who_answers { NOBODY, SOMEBODY, NO_SOCKET, NOTHING_THERE };

static enum who_answers who_answers(const struct sockaddr_un *address, int type)
{
    struct stat st;
    int fd, error = 0;

    if (lstat(address->sun_path, &st) != 0)
        return NOTHING_THERE; /* or out of our sight, and then bind says why */
    if (!S_ISSOCK(st.st_mode))
        return NO_SOCKET;
    fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0)
        error = errno;
    if (fd >= 0)
        close(fd);
    return error == ECONNREFUSED ? NOBODY
           : error == ENOENT     ? NOTHING_THERE
                                 : SOMEBODY; /* when in doubt (EACCES, a full queue, another type) it is not ours to remove */
}

static int clear_path(const struct sockaddr_un *address, int type, char *problem, size_t cap)
{
    switch (who_answers(address, type)) {
    case NO_SOCKET:
        return problem_say(problem, cap, "unix:%s: there is a file of that name that is not a socket", address->sun_path);
    case SOMEBODY:
        return problem_say(problem, cap, "unix:%s: somebody listens there already", address->sun_path);
    case NOBODY:
        if (unlink(address->sun_path) != 0 && errno != ENOENT)
            return problem_say(problem, cap, "unix:%s: cannot remove the socket that was left there: %s", address->sun_path,
                               strerror(errno));
        return 0;
    case NOTHING_THERE:
        break;
    }
    return 0;
}

/* The folder's descriptor, locked if that could be; -1 if it can't be opened. Closing it unlocks. */
static int lock_folder(const char *path)
{
    char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
    size_t len = (size_t)(strrchr(path, '/') - path);
    int fd;

    memcpy(folder, path, len);
    folder[len] = '\0';
    fd = open(len > 0 ? folder : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < LOCK_TRIES && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; i++)
        (void)poll(NULL, 0, LOCK_STEP_MS);
    return fd;
}

/* Returns 0, or -1 when there is no such group. */
static int find_group(const char *name, gid_t *ret)
{
    char buffer[GROUP_BYTES];
    struct group entry, *found = NULL;
    long number = host_port_number(name, strlen(name), INT32_MAX);

    if (getgrnam_r(name, &entry, buffer, sizeof(buffer), &found) == 0 && found) {
        *ret = found->gr_gid;
        return 0;
    }
    if (number < 0)
        return -1;
    *ret = (gid_t)number;
    return 0;
}

/* bind with the rights that the file is to have. Returns 0 or -1 with errno. */
static int bind_file(int fd, const struct sockaddr_un *address, const struct listen_address *asked)
{
    mode_t mask;
    int result, error;

    if (!asked->has_mode)
        return bind(fd, (const struct sockaddr *)address, sizeof(*address));
    if (fchmod(fd, asked->mode) != 0)
        return -1;
    mask = umask(0);
    result = bind(fd, (const struct sockaddr *)address, sizeof(*address));
    error = errno;
    (void)umask(mask);
    errno = error;
    return result;
}

static int bind_and_listen(int fd, const struct listen_address *asked, const struct sockaddr_un *address, int backlog,
                           struct unix_file *file, char *problem, size_t cap)
{
    gid_t group = 0;

    if (asked->group[0] && find_group(asked->group, &group) != 0)
        return problem_say(problem, cap, "unix:%s: there is no group %s", asked->path, asked->group);
    if (bind_file(fd, address, asked) != 0)
        return problem_say(problem, cap, "unix:%s: cannot listen there: %s", asked->path, strerror(errno));
    unix_file_identify(file, asked->path);
    if (asked->group[0] && lchown(asked->path, (uid_t)-1, group) != 0)
        return problem_say(problem, cap, "unix:%s: cannot give it to the group %s: %s", asked->path, asked->group, strerror(errno));
    if (listen(fd, backlog) != 0)
        return problem_say(problem, cap, "unix:%s: cannot listen there: %s", asked->path, strerror(errno));
    return 0;
}

int unix_socket_open(const struct listen_address *asked, int type, int backlog, struct unix_file *ret, char *problem, size_t cap)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct unix_file file = {.path = ""};
    int fd = -1, folder;

    memcpy(address.sun_path, asked->path, sizeof(address.sun_path));
    folder = lock_folder(asked->path);
    if (clear_path(&address, type, problem, cap) == 0) {
        fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
            (void)problem_say(problem, cap, "unix:%s: cannot listen there: %s", asked->path, strerror(errno));
    }
    if (fd >= 0 && bind_and_listen(fd, asked, &address, backlog, &file, problem, cap) != 0) {
        unix_file_remove(&file);
        close(fd);
        fd = -1;
    }
    if (folder >= 0)
        close(folder);
    if (fd >= 0)
        *ret = file;
    return fd;
}

void unix_file_identify(struct unix_file *ret, const char *path)
{
    struct stat st;

    ret->path[0] = '\0';
    if (strlen(path) >= sizeof(ret->path) || lstat(path, &st) != 0 || !S_ISSOCK(st.st_mode))
        return;
    memcpy(ret->path, path, strlen(path) + 1);
    ret->device = st.st_dev;
    ret->inode = st.st_ino;
}

void unix_file_remove(struct unix_file *file)
{
    struct stat st;

    if (file->path[0] && lstat(file->path, &st) == 0 && st.st_dev == file->device && st.st_ino == file->inode)
        (void)unlink(file->path);
    file->path[0] = '\0';
}
