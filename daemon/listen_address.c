/* The parameters of a unix socket follow a '?', as those of a Redis behind one do (unix:///path?db=0), and not a comma: commas part the values of a list in
 * the environment. So a path with a '?' in it can't be named; that is said, not guessed at. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/listen_address.h"

#include <string.h>

#include "proto/params.h"

static const char *take_mode(struct listen_address *a, const char *value, size_t len)
{
    mode_t mode = 0;

    if (a->has_mode)
        return "mode stands there twice";
    if (len != 4 || value[0] != '0')
        return "the mode of a unix socket is written as four octal digits, the first a 0: mode=0660";
    for (size_t i = 1; i < len; i++) {
        if (value[i] < '0' || value[i] > '7')
            return "the mode of a unix socket is written as four octal digits, the first a 0: mode=0660";
        mode = mode * 8 + (mode_t)(value[i] - '0');
    }
    a->has_mode = true;
    a->mode = mode;
    return NULL;
}

static const char *take_group(struct listen_address *a, const char *value, size_t len)
{
    if (a->group[0])
        return "group stands there twice";
    if (len == 0 || len > LISTEN_GROUP_MAX)
        return "the group of a unix socket has 1 to 32 bytes";
    memcpy(a->group, value, len);
    a->group[len] = '\0';
    return NULL;
}

/* "mode=0660&group=www" */
static const char *take_parameters(struct listen_address *a, const char *text)
{
    static const char mode[] = "mode=", group[] = "group=";

    for (;;) {
        size_t len = strcspn(text, "&");
        const char *wrong;

        if (strncmp(text, mode, sizeof(mode) - 1) == 0)
            wrong = take_mode(a, text + sizeof(mode) - 1, len - (sizeof(mode) - 1));
        else if (strncmp(text, group, sizeof(group) - 1) == 0)
            wrong = take_group(a, text + sizeof(group) - 1, len - (sizeof(group) - 1));
        else
            wrong = "what follows the '?' of a unix socket is mode=0660, group=NAME, or both with a '&' between";
        if (wrong || !text[len])
            return wrong;
        text += len + 1;
    }
}

static const char *parse_unix(struct listen_address *a, const char *path)
{
    size_t len = strcspn(path, "?");

    a->kind = LISTEN_UNIX;
    if (path[0] != '/' || path[len - 1] == '/')
        return "the path of a unix socket must be absolute: unix:/run/pawl.sock";
    if (len >= sizeof(a->path))
        return "the path of a unix socket can have at most 107 bytes";
    if (label_problem(path, len))
        return "the path of a unix socket has a control character or is not UTF-8";
    memcpy(a->path, path, len);
    return path[len] ? take_parameters(a, path + len + 1) : NULL;
}

static const char *parse_systemd(struct listen_address *a, const char *name)
{
    size_t len = strlen(name);

    a->kind = LISTEN_SYSTEMD;
    if (len == 0 || len > LISTEN_NAME_MAX || strchr(name, ':') || label_problem(name, len))
        return "the name of a passed socket has 1 to 255 bytes and neither ':' nor control characters";
    memcpy(a->name, name, len);
    return NULL;
}

const char *listen_address_parse(const char *text, struct listen_address *ret)
{
    struct listen_address a = {.kind = LISTEN_HOST_PORT, .tls = strncmp(text, "tls:", strlen("tls:")) == 0};
    const char *rest = a.tls ? text + strlen("tls:") : text, *wrong = NULL;

    if (!a.tls && strncmp(rest, "unix:", strlen("unix:")) == 0)
        wrong = parse_unix(&a, rest + strlen("unix:"));
    else if (strcmp(rest, "systemd") == 0)
        a.kind = LISTEN_SYSTEMD;
    else if (strncmp(rest, "systemd:", strlen("systemd:")) == 0)
        wrong = parse_systemd(&a, rest + strlen("systemd:"));
    else if (strstr(rest, "://"))
        wrong = "that is a URL: write host:port, or tls:host:port for HTTPS";
    else
        wrong = host_port_parse(rest, strlen(rest), HOST_PORT_LISTEN, &a.host_port);
    if (!wrong)
        *ret = a;
    return wrong;
}
