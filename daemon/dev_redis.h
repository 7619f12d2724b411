/* The private redis-server of `pawld --dev`: a child on a unix socket in a temporary folder, without persistence, gone when pawld goes.
 *
 * Dies with its parent also on kill -9 (PR_SET_PDEATHSIG, with the race between fork and prctl closed). The folder (pawl-dev-PID-XXXXXX under $TMPDIR or /tmp, mode 0700) is
 * removed at the end; folders of pawlds that were killed are swept at the next start. */
#ifndef PAWL_DEV_REDIS_H
#define PAWL_DEV_REDIS_H

#include <stddef.h>
#include <sys/types.h>

struct dev_redis {
    pid_t pid; /* 0: none; a caller that has reaped the child itself sets it so before dev_redis_stop */
    int folder_fd; /* open and locked as long as this pawld lives: by that others tell the folder from a stale one; -1 when there is no folder */
    char folder[96]; /* "": none */
    char socket[108];
};

/* Finds redis-server on PATH, forks and execs it with default signals and no inherited descriptors; waits until its socket accepts (at most 5 s). Returns 0, or -1 with a sentence
 * (not found, ended at once with its last line of output, ...), after which nothing is left. The child has a process group of its own, so a Ctrl-C at the
 * terminal reaches it only through dev_redis_stop. Blocks meanwhile. If SIGCHLD was ignored it gets its default back, as a lost child could not be told
 * otherwise. */
int dev_redis_start(struct dev_redis *r, char *problem, size_t cap);

/* Ends the child (TERM, then KILL after 1 s), reaps it and removes the folder. Takes one that never started (zeroed, or left by a failed start). */
void dev_redis_stop(struct dev_redis *r);

#endif
