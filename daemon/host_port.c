/* Addresses, strictly. The faults this is here to prevent: an IPv6 address cut at its first colon, "127.1" taken for a name or a short address, a port
 * that atoi() made of "80x", and a host left empty by a typo that then means "everywhere". */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/host_port.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <string.h>
#include <strings.h>

#define REDIS_PORT    6379
#define SENTINEL_PORT 26379
#define PORT_MAX      65535

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS  "0123456789"

static bool only(const char *text, size_t len, const char *allowed)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\0' || !strchr(allowed, text[i]))
            return false;
    }
    return true;
}

long host_port_number(const char *text, size_t len, long max)
{
    long n = 0;

    if (len == 0)
        return -1;
    for (size_t i = 0; i < len; i++) {
        long digit = text[i] - '0';

        if (digit < 0 || digit > 9 || digit > max || n > (max - digit) / 10)
            return -1;
        n = n * 10 + digit;
    }
    return n;
}

/* Copies the zone of an IPv6 address, which starts at its '%'. */
static const char *read_zone(const char *zone, size_t len, enum host_port_form form, char *out, size_t cap)
{
    size_t skip = form != HOST_PORT_LISTEN && len > 3 && memcmp(zone, "%25", 3) == 0 ? 3 : 1;
    size_t n = len - skip;

    if (n == 0 || n >= IF_NAMESIZE || !only(zone + skip, n, LETTERS DIGITS "._-~"))
        return "what follows the '%' of an IPv6 address must name a network interface";
    if (n + 2 > cap)
        return "the host is too long";
    out[0] = '%';
    memcpy(out + 1, zone + skip, n);
    out[n + 1] = '\0';
    return NULL;
}

static const char *read_ipv6(const char *text, size_t len, enum host_port_form form, char *out, size_t cap)
{
    const char *zone = memchr(text, '%', len);
    size_t n = zone ? (size_t)(zone - text) : len;
    struct in6_addr ignored;

    if (n >= INET6_ADDRSTRLEN || n >= cap || memchr(text, '\0', n))
        return "what stands in brackets is not an IPv6 address";
    memcpy(out, text, n);
    out[n] = '\0';
    if (inet_pton(AF_INET6, out, &ignored) != 1)
        return "what stands in brackets is not an IPv6 address";
    return zone ? read_zone(zone, len - n, form, out + n, cap - n) : NULL;
}

static const char *read_name(const char *text, size_t len, char *out, size_t cap)
{
    struct in_addr ignored;

    if (len == 0)
        return "the host is missing";
    if (len >= cap)
        return "the host is too long";
    if (!only(text, len, LETTERS DIGITS ".-_"))
        return "the host has characters that no host name or address has";
    memcpy(out, text, len);
    out[len] = '\0';
    /* The resolver would make something of "10.1" and of "127.0.0.0.1" too; what somebody meant by it is a guess. */
    if (only(text, len, DIGITS ".") && inet_pton(AF_INET, out, &ignored) != 1)
        return "the host is not a whole IPv4 address";
    return NULL;
}

static const char *read_port(const char *text, size_t len, enum host_port_form form, int *ret_port)
{
    long port = host_port_number(text, len, PORT_MAX);

    if (form == HOST_PORT_LISTEN && port < 0)
        return "the port must be a number from 0 to 65535";
    if (form != HOST_PORT_LISTEN && port < 1)
        return "the port must be a number from 1 to 65535";
    *ret_port = (int)port;
    return NULL;
}

/* Where the host ends: behind its bracket, or at the only colon. Returns NULL and *ret_end, or a sentence. */
static const char *find_host_end(const char *text, size_t len, size_t *ret_end)
{
    const char *end;

    if (len > 0 && text[0] == '[') {
        end = memchr(text, ']', len);
        if (!end)
            return "the bracket of the IPv6 address is not closed";
        *ret_end = (size_t)(end - text) + 1;
        return NULL;
    }
    end = memchr(text, ':', len);
    if (end && memchr(end + 1, ':', len - (size_t)(end - text) - 1))
        return "an IPv6 address needs brackets, as in [::1]:7295";
    *ret_end = end ? (size_t)(end - text) : len;
    return NULL;
}

const char *host_port_parse(const char *text, size_t len, enum host_port_form form, struct host_port *out)
{
    struct host_port found = {.port = form == HOST_PORT_SENTINEL ? SENTINEL_PORT : REDIS_PORT};
    size_t end;
    const char *problem = find_host_end(text, len, &end);

    if (problem)
        return problem;
    if (len > 0 && end == len && form == HOST_PORT_LISTEN)
        return "the port is missing: write host:port, [IPv6]:port or unix:/path";
    problem = len > 0 && text[0] == '[' ? read_ipv6(text + 1, end - 2, form, found.host, sizeof(found.host))
                                        : read_name(text, end, found.host, sizeof(found.host));
    if (problem)
        return problem;
    if (end < len && text[end] != ':')
        return "only a ':' and a port may follow the bracket";
    if (end < len)
        problem = read_port(text + end + 1, len - end - 1, form, &found.port);
    if (problem)
        return problem;
    *out = found;
    return NULL;
}

bool host_port_is_loopback(const char *text)
{
    struct host_port at;
    struct in_addr v4;
    struct in6_addr v6;

    if (host_port_parse(text, strlen(text), HOST_PORT_LISTEN, &at) != NULL)
        return false;
    if (inet_pton(AF_INET, at.host, &v4) == 1)
        return (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, at.host, &v6) == 1)
        return memcmp(&v6, &in6addr_loopback, sizeof(v6)) == 0;
    return strcasecmp(at.host, "localhost") == 0;
}
