/* Who has the terminal. A group of its own costs CMD the terminal, unless it is handed over as shells do it; that it has one lets a Ctrl-C reach
 * CMD once, and lets pawl end CMD's group without ending itself. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "client/cli_terminal.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void cli_terminal_open(struct cli_terminal *terminal, bool touch)
{
    struct stat out;
    bool piped;

    memset(terminal, 0, sizeof(*terminal));
    terminal->fd = touch ? open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
    if (terminal->fd < 0)
        return;
    terminal->have_modes = tcgetattr(terminal->fd, &terminal->modes) == 0;
    piped = fstat(STDOUT_FILENO, &out) == 0 && S_ISFIFO(out.st_mode);
    terminal->eager = !piped && tcgetpgrp(STDIN_FILENO) >= 0; /* it is our controlling terminal */
}

void cli_terminal_close(struct cli_terminal *terminal)
{
    if (terminal->fd >= 0)
        close(terminal->fd);
    terminal->fd = -1;
}

bool cli_terminal_is_ours(const struct cli_terminal *terminal)
{
    return terminal->fd >= 0 && tcgetpgrp(terminal->fd) == getpgrp();
}

void cli_terminal_give(struct cli_terminal *terminal, pid_t group)
{
    if (terminal->fd >= 0 && tcsetpgrp(terminal->fd, group) == 0)
        terminal->given = true;
}

void cli_terminal_take(struct cli_terminal *terminal, pid_t group, bool mend)
{
    if (terminal->fd < 0 || tcgetpgrp(terminal->fd) != group)
        return;
    (void)tcsetpgrp(terminal->fd, getpgrp());
    if (mend && terminal->have_modes)
        (void)tcsetattr(terminal->fd, TCSADRAIN, &terminal->modes);
}
