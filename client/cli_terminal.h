/* Who has the terminal: pawl's process group or CMD's. */
#ifndef PAWL_CLI_TERMINAL_H
#define PAWL_CLI_TERMINAL_H

#include <stdbool.h>
#include <sys/types.h>
#include <termios.h>

struct cli_terminal {
    int fd;     /* -1: there is none, or it is not to be touched */
    bool eager; /* CMD gets it whenever pawl has it */
    bool given; /* CMD had it last */
    bool have_modes;
    struct termios modes; /* as they were */
};

/* `touch`: false leaves the terminal alone. CMD gets it as soon as pawl has it if standard input is the terminal and standard output is
 * no pipe (a pager behind that pipe needs it); else when CMD stops for want of it. */
void cli_terminal_open(struct cli_terminal *terminal, bool touch);
void cli_terminal_close(struct cli_terminal *terminal);

/* Is pawl's own group in the foreground? */
bool cli_terminal_is_ours(const struct cli_terminal *terminal);

/* SIGTTOU must be blocked for both. give: also called in CMD's process, before it becomes CMD. take: only from `group`, not from a shell
 * that has taken it already; `mend` puts the modes back, for a CMD that ended too fast to do that itself. */
void cli_terminal_give(struct cli_terminal *terminal, pid_t group);
void cli_terminal_take(struct cli_terminal *terminal, pid_t group, bool mend);

#endif
