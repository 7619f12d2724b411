/* argv to exit code, and nothing that a test could want. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "daemon/daemon.h"
#include "daemon/options.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

/* One of the three that was closed would be the number of the next thing that is opened, and lines of the log would go there. */
static void fill_standard_descriptors(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

static int act(const struct options *options, enum options_action action, char *problem, size_t cap)
{
    switch (action) {
    case OPTIONS_HELP:
        options_help(stdout);
        return 0;
    case OPTIONS_VERSION:
        printf("pawld %s\n", PACKAGE_VERSION);
        return 0;
    case OPTIONS_CHECK_CONFIG:
        if (daemon_check(options, problem, cap) != 0)
            break;
        options_dump(options, stdout);
        return 0;
    default:
        log_init(options->log_level, options->log_format);
        log_own_stderr();
        return daemon_run(options, problem, cap);
    }
    fprintf(stderr, "pawld: %s\n", problem);
    return 2;
}

int main(int argc, char **argv)
{
    struct options options;
    enum options_action action;
    char problem[512] = "";
    int code = 2;

    fill_standard_descriptors();
    if (options_read(&options, argc, argv, environ, &action, problem, sizeof(problem)) == 0)
        code = act(&options, action, problem, sizeof(problem));
    else
        fprintf(stderr, "pawld: %s\n", problem);
    options_close(&options);
    return code;
}
