/* pawld as a whole: owns every module, in the order in which they start and stop. The only file that sees everything. */
#ifndef PAWL_DAEMON_H
#define PAWL_DAEMON_H

#include <stddef.h>

#include "daemon/options.h"

/* Options that only make sense, or not, together with what the daemon is made of, and the files that they name. Returns 0, or -1 with a sentence in
 * `problem`. daemon_run asks the same. */
int daemon_check(const struct options *options, char *problem, size_t cap);

/* Runs until a signal ends it, or until it can't start. Returns the exit code: 0 after SIGTERM or SIGINT and a drain, 1 otherwise, with a
 * sentence in `problem` and in the log. A second signal ends the drain at once.
 *
 * Drain: nothing new is accepted, acquires and waiters are told `draining`; renew, release and the rest go on working on the connections that are open, until
 * this node has no live lease or no connection left, at most --drain-timeout. Then what is in progress is answered and pawld ends. */
int daemon_run(const struct options *options, char *problem, size_t cap);

#endif
