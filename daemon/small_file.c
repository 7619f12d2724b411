/* The size that the system tells of a file is a first guess and no more: the file may grow while it is read, and some that are made up as they are read have
 * none. So room is made until the end is seen, or the bound passed. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_ROOM ((size_t)4096)
#define MIB        ((size_t)1024 * 1024)

static int fail(char *why, size_t cap, const char *text)
{
    snprintf(why, cap, "%s", text);
    return -1;
}

static int too_long(char *why, size_t cap, size_t max)
{
    if (max % MIB == 0)
        snprintf(why, cap, "is longer than %zu MiB", max / MIB);
    else
        snprintf(why, cap, "is longer than %zu bytes", max);
    return -1;
}

/* realloc would leave a copy behind. */
static int make_room(struct small_file *file, size_t room)
{
    struct small_file larger = {malloc(room), file->len, file->mode};

    if (!larger.bytes)
        return -1;
    if (file->len > 0)
        memcpy(larger.bytes, file->bytes, file->len);
    small_file_wipe(file);
    *file = larger;
    return 0;
}

/* A byte more than max fits, so that a file which is longer shows. */
static int read_bytes(int fd, size_t room, size_t max, struct small_file *file, char *why, size_t cap)
{
    for (;;) {
        ssize_t n;

        if (file->len > max)
            return too_long(why, cap, max);
        if (file->len == room || !file->bytes) {
            room = file->bytes ? 2 * room : room;
            room = room <= max ? room : max + 1;
            if (make_room(file, room) != 0)
                return fail(why, cap, "out of memory");
        }
        n = read(fd, file->bytes + file->len, room - file->len);
        if (n == 0)
            return 0;
        if (n < 0 && errno != EINTR)
            return fail(why, cap, strerror(errno));
        file->len += n > 0 ? (size_t)n : 0;
    }
}

static int read_open(int fd, size_t max, struct small_file *file, char *why, size_t cap)
{
    struct stat st;
    size_t room;

    if (fstat(fd, &st) != 0)
        return fail(why, cap, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(why, cap, "is not a regular file");
    if (st.st_size > 0 && (uintmax_t)st.st_size > max)
        return too_long(why, cap, max);
    file->mode = st.st_mode;
    room = st.st_size > 0 ? (size_t)st.st_size + 1 : FIRST_ROOM;
    return read_bytes(fd, room, max, file, why, cap);
}

int small_file_read(const char *path, size_t max, struct small_file *ret, char *why, size_t cap)
{
    /* Not blocking: a FIFO in its place is told as what it is instead of being waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct small_file file = {NULL, 0, 0};
    int result;

    if (fd < 0)
        return fail(why, cap, strerror(errno));
    result = read_open(fd, max, &file, why, cap);
    close(fd);
    if (result == 0)
        *ret = file;
    else
        small_file_wipe(&file);
    return result;
}

void small_file_wipe(struct small_file *file)
{
    if (file->len > 0)
        explicit_bzero(file->bytes, file->len);
    free(file->bytes);
    *file = (struct small_file){NULL, 0, 0};
}
