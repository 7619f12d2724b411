/* Memory that is short when a test says so: a library for LD_PRELOAD.
 *
 * NO_MEMORY names a file of five numbers (int64_t) that is shared with the test. Of each kind of request there is how many more are granted before some fail
 * (below 0: none fails), and how many fail then; `failed` counts those that did. One kind is malloc, calloc and realloc, the other epoll_ctl, which takes memory of
 * the kernel. Only the program whose name is in NO_MEMORY_OF is meant. Under AddressSanitizer too: what is granted comes from whoever is next.
 */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

struct shared {
    int64_t failed;
    struct {
        int64_t granted, fail;
    } memory, watches;
};

static volatile struct shared *shared;
static void *(*next_malloc)(size_t size);
static void *(*next_calloc)(size_t count, size_t size);
static void *(*next_realloc)(void *old, size_t size);
static int (*next_epoll_ctl)(int epoll, int op, int fd, struct epoll_event *event);

__attribute__((constructor)) static void map_shared(void)
{
    const char *path = getenv("NO_MEMORY"), *program = getenv("NO_MEMORY_OF");
    int fd = path && program && strcmp(program, program_invocation_short_name) == 0 ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *mapped = fd >= 0 ? mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;

    if (mapped != MAP_FAILED)
        shared = mapped;
    if (fd >= 0)
        close(fd);
}

static bool fails(volatile int64_t *granted, volatile int64_t *fail)
{
    if (*granted < 0)
        return false;
    if (*granted > 0) {
        --*granted;
        return false;
    }
    if (*fail <= 0 || --*fail == 0)
        *granted = -1;
    shared->failed++;
    errno = ENOMEM;
    return true;
}

/* What dlsym itself asks for while the next ones are not known yet. */
static void *from_reserve(size_t size)
{
    static _Alignas(max_align_t) char reserve[16384];
    static size_t used;
    size_t at = used;

    size = (size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
    if (size > sizeof(reserve) - used)
        return NULL;
    used += size;
    return reserve + at;
}

static void find(void *ret, const char *name)
{
    static bool finding;
    void *found;

    if (finding)
        return;
    finding = true;
    found = dlsym(RTLD_NEXT, name);
    memcpy(ret, &found, sizeof(found));
    finding = false;
}

void *malloc(size_t size)
{
    if (!next_malloc)
        find(&next_malloc, "malloc");
    if (shared && fails(&shared->memory.granted, &shared->memory.fail))
        return NULL;
    return next_malloc ? next_malloc(size) : from_reserve(size);
}

void *calloc(size_t nmemb, size_t size)
{
    if (!next_calloc)
        find(&next_calloc, "calloc");
    if (shared && fails(&shared->memory.granted, &shared->memory.fail))
        return NULL;
    return next_calloc ? next_calloc(nmemb, size) : from_reserve(nmemb * size);
}

void *realloc(void *ptr, size_t size)
{
    if (!next_realloc)
        find(&next_realloc, "realloc");
    if (shared && fails(&shared->memory.granted, &shared->memory.fail))
        return NULL;
    return next_realloc(ptr, size);
}

int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
    if (!next_epoll_ctl)
        find(&next_epoll_ctl, "epoll_ctl");
    if (shared && op != EPOLL_CTL_DEL && fails(&shared->watches.granted, &shared->watches.fail))
        return -1;
    return next_epoll_ctl(epfd, op, fd, event);
}
