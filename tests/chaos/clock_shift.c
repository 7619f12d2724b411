/* A wall clock that can be set, for one process: a library for LD_PRELOAD.
 *
 * CLOCK_SHIFT names a file of eight bytes, a number of microseconds that is added to what the kernel says; whoever writes to the file sets the
 * clock at once. Clocks that can't be set in the world, monotonic ones, are left alone. libfaketime would be the usual tool, but redis-server hangs
 * in it: its allocator asks for the time before that library is ready. So here is no state but a mapping, and the kernel is asked directly.
 */

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift_us;

__attribute__((constructor)) static void map_shift(void)
{
    const char *path = getenv("CLOCK_SHIFT");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped = fd >= 0 ? mmap(NULL, sizeof(*shift_us), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

    if (mapped != MAP_FAILED)
        shift_us = mapped;
    if (fd >= 0)
        close(fd);
}

/* The C library's headers call the parameters by reserved names. NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */
int clock_gettime(clockid_t clock, struct timespec *ret)
{
    int result = (int)syscall(SYS_clock_gettime, clock, ret);

    if (result == 0 && shift_us && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t us = ret->tv_sec * 1000000 + ret->tv_nsec / 1000 + *shift_us;

        ret->tv_nsec = us % 1000000 * 1000 + ret->tv_nsec % 1000;
        ret->tv_sec = us / 1000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0)
        return -1;
    ret->tv_sec = now.tv_sec;
    ret->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *ret)
{
    struct timespec now = {0};

    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */
