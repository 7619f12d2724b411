/* URLs of a Redis. What is taken must be shown in a form that says the same; the mask must not depend on any byte of the password, in a good URL or in
 * rubbish. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/redis_url.h"
#include "tests/fuzz/target.h"

#define MASK_CAP 4096

static void check_parts(const struct redis_url *url)
{
    struct redis_url again;
    char shown[4096], problem[200];

    must(strlen(url->host) < sizeof(url->host) && strlen(url->unix_path) < sizeof(url->unix_path));
    must(strlen(url->user) < sizeof(url->user) && strlen(url->password) < sizeof(url->password));
    must((url->host[0] != '\0') + (url->unix_path[0] != '\0') + (url->sentinel_count > 0) == 1);
    must(url->host[0] ? url->port >= 1 && url->port <= 65535 : url->port == 0);
    must((url->master[0] != '\0') == (url->sentinel_count > 0) && strlen(url->master) < sizeof(url->master));
    must(url->db >= 0);
    redis_url_show(url, shown, sizeof(shown));
    /* '@' may stand in the path of a socket, but what is shown has no login before it */
    must(redis_url_parse(shown, &again, problem, sizeof(problem)) == 0);
    must(strcmp(url->host, again.host) == 0 && strcmp(url->unix_path, again.unix_path) == 0);
    must(url->port == again.port && url->db == again.db && !again.user[0] && !again.password[0]);
    must(url->sentinel_count <= REDIS_SENTINELS_MAX && url->sentinel_count == again.sentinel_count &&
         strcmp(url->master, again.master) == 0);
    for (size_t i = 0; i < url->sentinel_count; i++) {
        must(url->sentinels[i].port >= 1 && url->sentinels[i].port <= 65535 && url->sentinels[i].port == again.sentinels[i].port);
        must(url->sentinels[i].host[0] && strcmp(url->sentinels[i].host, again.sentinels[i].host) == 0);
    }
}

/* Overwrites all that may be a password, from the first ':' of the login to the last '@', and looks whether the mask notices. */
static void check_mask(char *text)
{
    char before[MASK_CAP], after[MASK_CAP];
    char *at = strrchr(text, '@'), *slashes = strstr(text, "//"), *from, *colon;

    redis_url_mask(text, before, sizeof(before));
    must(strlen(before) < sizeof(before));
    if (!at)
        return;
    from = slashes && slashes < at ? slashes + 2 : text;
    colon = from > text ? memchr(from, ':', (size_t)(at - from)) : NULL;
    if (colon)
        from = colon + 1;
    memset(from, 'p', (size_t)(at - from));
    redis_url_mask(text, after, sizeof(after));
    must(strcmp(before, after) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    char problem[200] = "";
    struct redis_url url;

    if (!text)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    if (redis_url_parse(text, &url, problem, sizeof(problem)) == 0)
        check_parts(&url);
    else
        must(problem[0] != '\0');
    check_mask(text);
    free(text);
    return 0;
}
