/* The processes that descend from CMD: who is left, and signals to all of them.
 *
 * pawl is the subreaper of its descendants (prctl): one that loses its parent becomes pawl's child, wherever its session or group is. So
 * CMD's tree is gone when pawl has no child left but those that it had before CMD was started. Linux, with /proc.
 */
#ifndef PAWL_CLI_TREE_H
#define PAWL_CLI_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct cli_tree {
    pid_t leader;      /* CMD itself, also its process group; 0 before it is started */
    bool leader_ended; /* it is kept as a zombie until tree_close(), so that its number and its group's stay its own */
    int leader_status; /* as of waitpid; when leader_ended */
    pid_t *strangers;  /* children from before */
    size_t stranger_count;
    int spare[2]; /* descriptors, kept for looking into /proc when there are no others; -1: not there */
};

#define CLI_TREE_NONE                                                                                                                      \
    {                                                                                                                                      \
        .spare = { -1, -1 }                                                                                                                \
    } /* one that was not opened, and may be closed */

/* Becomes the subreaper and notes the children that are there. 0, or -1 with errno (no /proc, no memory, no descriptors). */
int cli_tree_open(struct cli_tree *tree);

/* Reaps what has ended. Returns whether anything of the tree is left alive. *ret_stopped: the signal that stopped the leader since the last
 * call, or 0. */
bool cli_tree_look(struct cli_tree *tree, int *ret_stopped);

/* To CMD's process group. */
void cli_tree_signal_group(const struct cli_tree *tree, int number);

/* To CMD's process group and to every descendant that has left it. */
void cli_tree_signal_all(struct cli_tree *tree, int number);

/* Reaps the leader. Nothing may be signalled afterwards. */
void cli_tree_close(struct cli_tree *tree);

#endif
