/* Values of --listen. What is taken has all its parts in bounds; what is refused leaves no trace and says why. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/listen_address.h"
#include "proto/params.h"
#include "tests/fuzz/target.h"

static void check_parts(const struct listen_address *a, const char *text)
{
    must(a->tls == (strncmp(text, "tls:", 4) == 0));
    must((a->kind == LISTEN_UNIX) == (a->path[0] == '/'));
    must(strnlen(a->path, sizeof(a->path)) < sizeof(a->path) && !label_problem(a->path, strlen(a->path)));
    must(strnlen(a->group, sizeof(a->group)) < sizeof(a->group));
    must(strnlen(a->name, sizeof(a->name)) < sizeof(a->name) && !label_problem(a->name, strlen(a->name)));
    must(a->mode <= 0777 && (a->has_mode || a->mode == 0));
    must(a->kind == LISTEN_UNIX || (!a->has_mode && !a->group[0]));
    must(a->kind == LISTEN_SYSTEMD || !a->name[0]);
    must(a->kind != LISTEN_UNIX || !a->tls);
    if (a->kind == LISTEN_HOST_PORT) {
        must(strnlen(a->host_port.host, sizeof(a->host_port.host)) < sizeof(a->host_port.host));
        must(a->host_port.port >= 0 && a->host_port.port <= 65535);
    }
}

/* Also what is between its parts. */
static bool is_untouched(const struct listen_address *a)
{
    const unsigned char *bytes = (const unsigned char *)a;
    size_t i = 0;

    while (i < sizeof(*a) && bytes[i] == 0)
        i++;
    return i == sizeof(*a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct listen_address address;
    char *text = malloc(size + 1);
    const char *wrong;

    if (!text)
        return 0;
    memset(&address, 0, sizeof(address));
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    wrong = listen_address_parse(text, &address);
    if (wrong)
        must(wrong[0] != '\0' && is_untouched(&address));
    else
        check_parts(&address, text);
    free(text);
    return 0;
}
