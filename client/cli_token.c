/* Where `pawl` gets its access token from: a file, or the environment; never the command line, which every user of the machine can read. What was in the
 * environment is taken out of it at once, so that neither /proc nor a command that pawl starts has it. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli.h"

#define VARIABLE "PAWL_ACCESS_TOKEN"

bool cli_take_environment_token(struct cli *cli)
{
    char *value = getenv(VARIABLE);
    size_t len = value ? strlen(value) : 0;

    if (!value)
        return true;
    if (len < sizeof(cli->access_token))
        memcpy(cli->access_token, value, len + 1);
    memset(value, 'x', len);
    (void)unsetenv(VARIABLE);
    if (len < sizeof(cli->access_token))
        return true;
    cli_say(VARIABLE ": is too long");
    return false;
}

void cli_forget_token(struct cli *cli)
{
    explicit_bzero(cli->access_token, sizeof(cli->access_token));
}

/* All of the file, which may be a pipe. Returns the length, or -1 after a word. */
static ssize_t read_file(const char *path, char *block, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    size_t len = 0;
    ssize_t n = 1;

    while (fd >= 0 && len < cap && n > 0) {
        n = read(fd, block + len, cap - len);
        if (n > 0)
            len += (size_t)n;
        else if (n < 0 && errno == EINTR)
            n = 1;
    }
    if (fd < 0 || n < 0) {
        cli_say("the file with the access token can't be read: %s",
                strerror(errno)); /* it isn't named: somebody may have given the token itself */
        len = 0;
    }
    if (fd >= 0)
        close(fd);
    return fd < 0 || n < 0 ? -1 : (ssize_t)len;
}

static bool set(struct pawl *client, const char *token, const char *where)
{
    struct pawl_problem problem;

    if (pawl_set_access_token(client, token, &problem) == 0)
        return true;
    cli_say("%s: %s", where, problem.message);
    return false;
}

static bool set_from_file(struct pawl *client, const char *path)
{
    char block[CLI_TOKEN_SIZE + 2]; /* the end of a line may follow */
    ssize_t len = read_file(path, block, sizeof(block) - 1);
    bool done = false;

    if (len >= 0) {
        block[len] = '\0';
        if (len > 0 && block[len - 1] == '\n')
            block[--len] = '\0';
        if (len > 0 && block[len - 1] == '\r')
            block[--len] = '\0';
        if (strlen(block) != (size_t)len)
            cli_say("the file with the access token holds a NUL byte");
        else
            done = set(client, block, "the file with the access token");
    }
    explicit_bzero(block, sizeof(block));
    return done;
}

bool cli_set_token(const struct cli *cli, struct pawl *client)
{
    if (cli->token_file)
        return set_from_file(client, cli->token_file);
    return !cli->access_token[0] || set(client, cli->access_token, VARIABLE);
}
