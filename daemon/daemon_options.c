#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/daemon_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/host_port.h"
#include "daemon/listen_address.h"
#include "daemon/redis_store.h"
#include "daemon/redis_url.h"
#include "daemon/tls_setup.h"

#define SENTINEL_WINDOW_MS 4000 /* --recovery-window that nobody asked for, with sentinels */

/* ---- the recovery window ---- */

static bool names_sentinels(const struct options *o)
{
    return o->redis && redis_url_names_sentinels(o->redis);
}

static int64_t least_window_ms(const struct options *o)
{
    return redis_store_min_window_ms(o->store_timeout_ms, names_sentinels(o));
}

int64_t daemon_options_window_ms(const struct options *o)
{
    int64_t least = least_window_ms(o), window = o->recovery_window_ms;

    if (window == 0 || o->recovery_window_given)
        return window;
    if (names_sentinels(o) && window < SENTINEL_WINDOW_MS)
        window = SENTINEL_WINDOW_MS;
    return window >= least ? window : least;
}

static int check_window(const struct options *o, char *problem, size_t cap)
{
    int64_t window = daemon_options_window_ms(o), least = least_window_ms(o);

    if (window == 0 || window >= least)
        return 0;
    snprintf(problem, cap, "--recovery-window is too short for --store-timeout %" PRId64 "ms%s: at least %" PRId64 "ms (or 0 for none)",
             o->store_timeout_ms, names_sentinels(o) ? " and sentinels" : "", least);
    return -1;
}

/* ---- where to listen ---- */

int daemon_options_check_address(const struct options *o, const char *address, char *problem, size_t cap)
{
    bool tls = strncmp(address, "tls:", strlen("tls:")) == 0;
    const char *where = tls ? address + strlen("tls:") : address;

    if (o->auth_file || o->insecure_listen || (tls && tls_setup_knows_clients(o)))
        return 0;
    if (strncmp(where, "unix:", strlen("unix:")) == 0 || host_port_is_loopback(where))
        return 0;
    snprintf(problem, cap,
             "--listen %s: others could reach it, and nobody is asked who they are: give --auth-file FILE, or listen on 127.0.0.1 or "
             "unix:/PATH, or say --insecure-listen",
             address);
    return -1;
}

static bool is_passed(const char *address)
{
    struct listen_address parsed;

    return listen_address_parse(address, &parsed) == NULL && parsed.kind == LISTEN_SYSTEMD;
}

static int check_listen(const struct options *o, char *problem, size_t cap)
{
    for (size_t i = 0; i < o->listen_count; i++)
        if (!is_passed(o->listen[i]) && daemon_options_check_address(o, o->listen[i], problem, cap) != 0)
            return -1;
    return 0;
}

/* ---- all of them ---- */

bool daemon_options_redis_is_tls(const struct options *o)
{
    return o->redis && redis_url_asks_for_tls(o->redis);
}

int daemon_options_check(const struct options *o, char *problem, size_t cap)
{
    return check_window(o, problem, cap) != 0 || check_listen(o, problem, cap) != 0 ||
                   tls_setup_check(o, daemon_options_redis_is_tls(o), problem, cap) != 0
               ? -1
               : 0;
}
