/* A pawld of the test's own, with a Redis of its own (pawld --dev), on a unix socket in a folder of its own. PAWLD names the program. */
#ifndef PAWL_TEST_PAWLD_PROCESS_H
#define PAWL_TEST_PAWLD_PROCESS_H

#include <sys/types.h>

struct pawld_process {
    pid_t pid; /* 0: none runs */
    char folder[64];
    char address[128]; /* "unix:/..." */
};

/* Starts it and waits until it can grant. Ends the test with a message when that fails. */
void pawld_process_start(struct pawld_process *p);

/* Freezes it, lets it go on. */
void pawld_process_freeze(const struct pawld_process *p);
void pawld_process_thaw(const struct pawld_process *p);

/* SIGTERM, and the end of its Redis with it; the folder goes too. Nothing happens when none runs. */
void pawld_process_stop(struct pawld_process *p);

#endif
