#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/listening.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/listen_address.h"

/* Returns how many were adopted, or -1. */
static int take_handed(struct http_front *front, const char *asked, bool owns_file, struct handover_sockets *handed, char *problem,
                       size_t cap)
{
    int taken = 0;

    for (size_t i = 0; i < handed->count; i++) {
        if (handed->each[i].fd < 0 || strcmp(handed->each[i].asked, asked) != 0)
            continue;
        if (http_front_adopt(front, handed->each[i].fd, asked, owns_file, problem, cap) != 0)
            return -1;
        handed->each[i].fd = -1;
        taken++;
    }
    return taken;
}

/* The same of the manager's. `used` has a bit for each. */
static int take_passed(struct http_front *front, const char *asked, const char *name, const struct systemd *manager, uint32_t *used,
                       char *problem, size_t cap)
{
    const char *its_name;
    int taken = 0, fd;

    for (int i = 0; (fd = systemd_socket(manager, i, &its_name)) >= 0; i++) {
        if ((*used & (UINT32_C(1) << i)) || (name[0] && strcmp(name, its_name) != 0))
            continue;
        if (http_front_adopt(front, fd, asked, false, problem, cap) != 0)
            return -1;
        *used |= UINT32_C(1) << i;
        taken++;
    }
    if (taken == 0)
        snprintf(problem, cap, "%s: the service manager passed no such socket", asked);
    return taken > 0 ? taken : -1;
}

static int open_one(struct http_front *front, const char *asked, const struct systemd *manager, struct handover_sockets *handed,
                    uint32_t *used, char *problem, size_t cap)
{
    struct listen_address address;
    bool passed = listen_address_parse(asked, &address) == NULL && address.kind == LISTEN_SYSTEMD;
    int taken = take_handed(front, asked, !passed, handed, problem, cap);

    if (taken != 0)
        return taken;
    if (passed)
        return take_passed(front, asked, address.name, manager, used, problem, cap);
    return http_front_listen(front, asked, problem, cap);
}

int listening_open(struct http_front *front, const struct options *options, const struct systemd *manager, struct handover_sockets *handed,
                   char *problem, size_t cap)
{
    const char *name;
    uint32_t used = 0;

    for (size_t i = 0; i < options->listen_count; i++)
        if (open_one(front, options->listen[i], manager, handed, &used, problem, cap) < 0)
            return -1;
    for (int i = 0; systemd_socket(manager, i, &name) >= 0; i++) {
        if (used & (UINT32_C(1) << i))
            continue;
        snprintf(problem, cap, "the service manager passed a socket (%s) that no --listen asks for: --listen systemd",
                 name[0] ? name : "without a name");
        return -1;
    }
    return 0;
}
