/* Addresses are read strictly: what could mean two things (a user, a path, a second port) is refused instead of dropped, since a client that
 * asks another server than was meant takes another lock. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "client/address.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool all_of(const char *text, size_t len, const char *set)
{
    for (size_t i = 0; i < len; i++) {
        if (!strchr(set, text[i]) || text[i] == '\0')
            return false;
    }
    return len > 0;
}

#define DIGITS  "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

/* "" or ":PORT" */
static const char *read_port(const char *text, unsigned *ret_port)
{
    unsigned port = 0;

    if (*text == '\0') {
        *ret_port = ADDRESS_PORT_DEFAULT;
        return NULL;
    }
    if (*text != ':')
        return "only a port may follow the host";
    text++;
    if (!all_of(text, strlen(text), DIGITS) || strlen(text) > 5)
        return "the port is not a number from 1 to 65535";
    for (; *text; text++)
        port = port * 10 + (unsigned)(*text - '0');
    if (port < 1 || port > 65535)
        return "the port is not a number from 1 to 65535";
    *ret_port = port;
    return NULL;
}

/* "[fe80::1%eth0]:7295"; in a URL the zone's percent sign is spelled %25. */
static const char *read_bracketed(const char *scheme, const char *text, struct address *ret)
{
    const char *end = strchr(text, ']');
    const char *zone = strchr(text, '%');
    size_t len, zone_len = 0;
    const char *problem;
    unsigned port;

    if (!end)
        return "the bracket of the IPv6 address is not closed";
    if (zone && zone > end)
        zone = NULL;
    len = (size_t)((zone ? zone : end) - (text + 1));
    if (zone) {
        zone += strncmp(zone, "%25", 3) == 0 ? 3 : 1;
        zone_len = (size_t)(end - zone);
        if (zone_len > 32 || !all_of(zone, zone_len, LETTERS DIGITS "._-"))
            return "the zone of the IPv6 address is malformed";
    }
    if (len > 45 || !all_of(text + 1, len, "0123456789abcdefABCDEF:.") || !memchr(text + 1, ':', len))
        return "what stands in brackets is no IPv6 address";
    problem = read_port(end + 1, &port);
    if (!problem)
        snprintf(ret->base, sizeof(ret->base), "%s[%.*s%s%.*s]:%u", scheme, (int)len, text + 1, zone ? "%25" : "", (int)zone_len,
                 zone ? zone : "", port);
    return problem;
}

static const char *read_host(const char *scheme, const char *text, struct address *ret)
{
    size_t len = strcspn(text, ":/?#@");
    const char *problem;
    unsigned port;

    if (strpbrk(text, "/?#") && !strchr(text, '@'))
        return "a path has no place in it";
    if (text[0] == '[')
        return read_bracketed(scheme, text, ret);
    if (len == 0)
        return "there is no host in it";
    if (strcspn(text + len, "@") < strlen(text + len))
        return "a user name has no place in it";
    if (len > 253 || !all_of(text, len, LETTERS DIGITS "._-"))
        return "the host is malformed";
    if (text[len] == ':' && strchr(text + len + 1, ':'))
        return "an IPv6 address needs brackets";
    problem = read_port(text + len, &port);
    if (!problem)
        snprintf(ret->base, sizeof(ret->base), "%s%.*s:%u", scheme, (int)len, text, port);
    return problem;
}

static const char *read_socket(const char *path, struct address *ret)
{
    if (path[0] != '/')
        return "the path of a unix socket begins with /";
    if (strlen(path) >= sizeof(ret->socket))
        return "the path of a unix socket has at most 107 bytes";
    memcpy(ret->socket, path, strlen(path) + 1);
    snprintf(ret->base, sizeof(ret->base), "http://localhost");
    return NULL;
}

const char *address_parse(const char *text, struct address *ret)
{
    static const char http[] = "http://", https[] = "https://", unix_[] = "unix:";
    const char *scheme = http;
    char host[300];
    size_t len;

    memset(ret, 0, sizeof(*ret));
    if (strncmp(text, unix_, sizeof(unix_) - 1) == 0)
        return read_socket(text + sizeof(unix_) - 1, ret);
    if (strncmp(text, https, sizeof(https) - 1) == 0)
        scheme = https;
    else if (strncmp(text, http, sizeof(http) - 1) != 0)
        return "it must begin with http://, https:// or unix:/";
    ret->tls = scheme == https;
    text += strlen(scheme);
    len = strlen(text);
    if (len > 0 && text[len - 1] == '/')
        len--; /* http://host:7295/ is what people paste */
    if (len >= sizeof(host))
        return "it is too long";
    memcpy(host, text, len);
    host[len] = '\0';
    return read_host(scheme, host, ret);
}
