/* URLs of a Redis. They hold a password, which decides how this file is written: no sentence repeats any of the text, a half-read result does not stay
 * on the stack, and the mask works on text that is not a URL at all, because it is the malformed ones that end up in front of people.
 *
 *     redis://[[user]:password@]host[:port][/[db]]                                rediss:// the same, over TLS
 *     unix://[[user]:password@]/path[?db=N]
 *     sentinel://[[user]:password@]host[:port][,host[:port]]/MASTER[/[db]]        rediss+sentinel:// the same, over TLS
 *
 * The user and the password are percent-decoded; raw '/', '?', '#' and '@' in them are refused rather than guessed at, since where such a password
 * ends depends on who reads it.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_url.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "daemon/host_port.h"
#include "proto/hex.h"

#define DB_PROBLEM "the database must be a number, as in redis://host:6379/0 or unix:///path?db=0"

/* Decodes raw[0..len) into out. */
static const char *decode(const char *raw, size_t len, char *out, size_t cap)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        char c = raw[i];

        if (c <= ' ' || c > '~' || strchr("/?#@", c))
            return "in user and password, blanks and / ? # @ must be percent-encoded (%20 %2F %3F %23 %40)";
        if (c == '%') {
            int high = i + 1 < len ? hex_digit(raw[i + 1]) : -1;
            int low = i + 2 < len ? hex_digit(raw[i + 2]) : -1;

            if (high < 0 || low < 0)
                return "user or password has a '%' without two hexadecimal digits (write %25 for the sign itself)";
            if (high == 0 && low == 0)
                return "user and password cannot hold a NUL";
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (n + 1 >= cap)
            return "user or password is too long";
        out[n++] = c;
    }
    out[n] = '\0';
    return NULL;
}

static const char *read_login(const char *text, size_t len, struct redis_url *url)
{
    const char *colon = memchr(text, ':', len);
    const char *problem;

    if (!colon)
        return "what stands before the '@' must be user:password, or :password for the default user";
    problem = decode(text, (size_t)(colon - text), url->user, sizeof(url->user));
    if (!problem)
        problem = decode(colon + 1, len - (size_t)(colon - text) - 1, url->password, sizeof(url->password));
    if (!problem && !url->password[0])
        problem = "the password is empty";
    return problem;
}

static const char *read_db(const char *text, size_t len, struct redis_url *url)
{
    long db = host_port_number(text, len, INT_MAX);

    if (db < 0)
        return DB_PROBLEM;
    url->db = (int)db;
    return NULL;
}

static const char *read_tcp(const char *text, struct redis_url *url)
{
    /* The last '@', not the first: neither host nor database can hold one, a carelessly written password can. */
    const char *at = strrchr(text, '@');
    const char *rest = at ? at + 1 : text;
    size_t len = strcspn(rest, "/?#");
    struct host_port where;
    const char *problem = at ? read_login(text, (size_t)(at - text), url) : NULL;

    if (problem)
        return problem;
    problem = host_port_parse(rest, len, HOST_PORT_REDIS, &where);
    if (problem)
        return problem;
    memcpy(url->host, where.host, sizeof(url->host));
    url->port = where.port;
    rest += len;
    if (rest[0] == '?' || strpbrk(rest, "?#"))
        return "this URL of a Redis takes no '?' or '#' part";
    if (rest[0] == '/' && rest[1])
        return read_db(rest + 1, strlen(rest + 1), url);
    return NULL;
}

static const char *read_sentinels(const char *list, size_t len, struct redis_url *url)
{
    while (len > 0) {
        const char *comma = memchr(list, ',', len);
        size_t part = comma ? (size_t)(comma - list) : len;
        const char *problem;

        if (url->sentinel_count == REDIS_SENTINELS_MAX)
            return "too many sentinels: at most 9";
        problem = host_port_parse(list, part, HOST_PORT_SENTINEL, &url->sentinels[url->sentinel_count]);
        if (problem)
            return problem;
        url->sentinel_count++;
        if (!comma)
            return NULL;
        list += part + 1;
        len -= part + 1;
    }
    return "the host is missing";
}

/* The names that Redis Sentinel itself takes. */
static const char *read_master(const char *name, size_t len, struct redis_url *url)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    if (len == 0)
        return "the name of the master is missing: sentinel://host:26379,host:26379/MASTER";
    if (len >= sizeof(url->master))
        return "the name of the master can have at most 127 bytes";
    if (strspn(name, allowed) < len)
        return "the name of the master has characters that no master's name has";
    memcpy(url->master, name, len);
    url->master[len] = '\0';
    return NULL;
}

static const char *read_sentinel(const char *text, struct redis_url *url)
{
    const char *at = strrchr(text, '@');
    const char *rest = at ? at + 1 : text;
    size_t len = strcspn(rest, "/?#");
    const char *problem = at ? read_login(text, (size_t)(at - text), url) : NULL;

    if (!problem)
        problem = read_sentinels(rest, len, url);
    if (problem)
        return problem;
    rest += len;
    if (strpbrk(rest, "?#"))
        return "this URL of sentinels takes no '?' or '#' part";
    rest += rest[0] == '/';
    len = strcspn(rest, "/");
    problem = read_master(rest, len, url);
    if (problem)
        return problem;
    rest += len;
    return rest[0] && rest[1] ? read_db(rest + 1, strlen(rest + 1), url) : NULL;
}

static const char *read_unix(const char *text, struct redis_url *url)
{
    size_t login = text[0] == '/' ? 0 : strcspn(text, "/");
    const char *path = text + login;
    size_t len = strcspn(path, "?");
    const char *problem;

    if (login > 0) {
        if (text[login - 1] != '@')
            return "the path of a unix socket must be absolute: unix:///run/redis.sock";
        problem = read_login(text, login - 1, url);
        if (problem)
            return problem;
    }
    if (len < 2 || path[0] != '/' || path[len - 1] == '/')
        return "the path of a unix socket must be absolute: unix:///run/redis.sock";
    if (len >= sizeof(url->unix_path))
        return "the path of a unix socket can have at most 107 bytes";
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)path[i] < 0x20 || path[i] == 0x7f)
            return "the path of a unix socket has a control character";
    }
    memcpy(url->unix_path, path, len);
    url->unix_path[len] = '\0';
    if (!path[len])
        return NULL;
    if (strncmp(path + len, "?db=", 4) != 0)
        return "only ?db=N may follow the path of a unix socket";
    return read_db(path + len + 4, strlen(path + len + 4), url);
}

static bool has_scheme(const char *text, const char *scheme)
{
    return strncasecmp(text, scheme, strlen(scheme)) == 0;
}

static const char *read_url(const char *text, struct redis_url *url)
{
    url->tls = redis_url_asks_for_tls(text);
    if (has_scheme(text, "redis://"))
        return read_tcp(text + strlen("redis://"), url);
    if (has_scheme(text, "unix://"))
        return read_unix(text + strlen("unix://"), url);
    if (has_scheme(text, "rediss://"))
        return read_tcp(text + strlen("rediss://"), url);
    if (has_scheme(text, "rediss+sentinel://"))
        return read_sentinel(text + strlen("rediss+sentinel://"), url);
    if (has_scheme(text, "sentinel://"))
        return read_sentinel(text + strlen("sentinel://"), url);
    return "must be redis://[user:password@]host:port[/db], unix:///path[?db=N] or sentinel://host:port,host:port/MASTER[/db]; with TLS "
           "rediss:// or rediss+sentinel://";
}

int redis_url_parse(const char *text, struct redis_url *out, char *problem, size_t cap)
{
    struct redis_url url = {0};
    const char *why = read_url(text, &url);

    if (why)
        snprintf(problem, cap, "%s", why);
    else
        *out = url;
    explicit_bzero(&url, sizeof(url));
    return why ? -1 : 0;
}

bool redis_url_names_sentinels(const char *text)
{
    return has_scheme(text, "sentinel://") || has_scheme(text, "rediss+sentinel://");
}

bool redis_url_asks_for_tls(const char *text)
{
    return has_scheme(text, "rediss://") || has_scheme(text, "rediss+sentinel://");
}

/* "host:port" as a URL spells it. */
static void show_address(const char *host, int port, char *out, size_t cap)
{
    const char *zone = strchr(host, '%');

    if (!strchr(host, ':'))
        snprintf(out, cap, "%s:%d", host, port);
    else if (!zone)
        snprintf(out, cap, "[%s]:%d", host, port);
    else
        snprintf(out, cap, "[%.*s%%25%s]:%d", (int)(zone - host), host, zone + 1, port);
}

static void show_sentinels(const struct redis_url *url, char *out, size_t cap)
{
    char address[320];
    size_t len = (size_t)snprintf(out, cap, "%s", url->tls ? "rediss+sentinel://" : "sentinel://");

    for (size_t i = 0; i < url->sentinel_count && len < cap; i++) {
        show_address(url->sentinels[i].host, url->sentinels[i].port, address, sizeof(address));
        len += (size_t)snprintf(out + len, cap - len, "%s%s", i ? "," : "", address);
    }
    if (len < cap)
        snprintf(out + len, cap - len, "/%s/%d", url->master, url->db);
}

void redis_url_show(const struct redis_url *url, char *out, size_t cap)
{
    char address[320];

    if (url->unix_path[0]) {
        snprintf(out, cap, "unix://%s?db=%d", url->unix_path, url->db);
    } else if (url->sentinel_count > 0 && !url->host[0]) {
        show_sentinels(url, out, cap);
    } else {
        show_address(url->host, url->port, address, sizeof(address));
        snprintf(out, cap, "%s://%s/%d", url->tls ? "rediss" : "redis", address, url->db);
    }
}

/* What may follow a '?' without being a secret that somebody put there by mistake. */
static bool harmless_query(const char *query)
{
    return strncmp(query, "db=", 3) == 0 && strspn(query + 3, "0123456789") == strlen(query + 3);
}

void redis_url_mask(const char *text, char *out, size_t cap)
{
    const char *slashes = strstr(text, "//");
    const char *at = strrchr(text, '@');
    const char *login, *colon, *rest, *query;
    size_t shown;

    /* A "//" behind the '@' is not the scheme's. */
    login = slashes && (!at || slashes < at) ? slashes + 2 : text;
    colon = at ? memchr(login, ':', (size_t)(at - login)) : NULL;
    rest = at ? at : text;
    query = strchr(rest, '?');
    shown = query && !harmless_query(query + 1) ? (size_t)(query - rest) + 1 : strlen(rest);
    if (shown > INT_MAX / 2)
        shown = INT_MAX / 2;
    /* Without a colon the whole of it may be the password. Without a scheme too: "redis:secret@host" is not a user called redis. */
    if (at && login == text)
        colon = NULL;
    if (!at)
        snprintf(out, cap, "%.*s%s", (int)shown, rest, query && rest[shown] ? "***" : "");
    else
        snprintf(out, cap, "%.*s%s***%.*s%s", (int)((colon ? colon : login) - text), text, colon ? ":" : "", (int)shown, rest,
                 query && rest[shown] ? "***" : "");
}
