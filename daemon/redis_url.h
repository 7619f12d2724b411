/* Where a Redis is: redis://[user:pass@]host:port[/db], the same with rediss:// for TLS, unix:///path[?db=N], or sentinel://[user:pass@]host:port,host:port/MASTER[/db] for one that
 * sentinels know (rediss+sentinel:// when it and they speak TLS), as text and as parts. Pure; no allocation. Percent-escapes in user and password are decoded; [IPv6] in brackets; default port 6379 (of a
 * sentinel 26379), default db 0. */
#ifndef PAWL_REDIS_URL_H
#define PAWL_REDIS_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/host_port.h"

#define REDIS_SENTINELS_MAX 9

struct redis_url {
    char host[256];      /* a name or an address without brackets; empty for a unix socket, and for sentinels */
    char unix_path[108]; /* empty for TCP */
    int port;
    int db;
    bool tls;              /* to the Redis and to the sentinels */
    char user[128];        /* empty: none */
    char password[512];    /* empty: none */
    size_t sentinel_count; /* 0: the Redis itself is named. User and password are the Redis' own also with sentinels */
    struct host_port sentinels[REDIS_SENTINELS_MAX];
    char master[128]; /* what the sentinels call it; empty without */
};

/* Returns 0, or -1 with a sentence in problem that does not repeat the password. */
int redis_url_parse(const char *text, struct redis_url *out, char *problem, size_t cap);

/* Whether the text is meant to name sentinels, or to ask for TLS, well formed or not. */
bool redis_url_names_sentinels(const char *text);
bool redis_url_asks_for_tls(const char *text);

/* The URL without secrets, for logs and status: "redis://127.0.0.1:6379/0". */
void redis_url_show(const struct redis_url *url, char *out, size_t cap);

/* Masks the password in a URL of any form in place of a copy: "redis://u:***@h:1/0". Works on malformed ones too: everything between the scheme's "//" and the last '@'. */
void redis_url_mask(const char *text, char *out, size_t cap);

#endif
