/* What a value of --listen names: a host and port, a unix socket, or sockets that the service manager passes.
 *
 *     127.0.0.1:7295   [::1]:7295   tls:127.0.0.1:7443   unix:/run/pawl/pawl.sock   unix:/run/pawl/pawl.sock?mode=0660&group=www
 *     systemd   systemd:NAME   tls:systemd   tls:systemd:NAME
 *
 * Only the spelling: nothing is looked up or opened. Pure; no allocation. */
#ifndef PAWL_LISTEN_ADDRESS_H
#define PAWL_LISTEN_ADDRESS_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

#include "daemon/host_port.h"

#define LISTEN_GROUP_MAX 32
#define LISTEN_NAME_MAX  255 /* systemd allows no longer one */

enum listen_kind { LISTEN_HOST_PORT, LISTEN_UNIX, LISTEN_SYSTEMD };

struct listen_address {
    enum listen_kind kind;
    bool tls;                                               /* is spoken there; not LISTEN_UNIX */
    struct host_port host_port;                             /* LISTEN_HOST_PORT */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* LISTEN_UNIX */
    bool has_mode;
    mode_t mode;
    char group[LISTEN_GROUP_MAX + 1]; /* a name or a number; empty: as it comes */
    char name[LISTEN_NAME_MAX + 1];   /* LISTEN_SYSTEMD: of the passed sockets; empty: all of them */
};

/* Returns NULL and sets all of *ret, or a static sentence; *ret is untouched then. */
const char *listen_address_parse(const char *text, struct listen_address *ret);

#endif
