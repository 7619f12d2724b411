/* Which sockets pawld serves on: for each --listen those of the predecessor, those that the service manager passed, or new ones, in this order. */
#ifndef PAWL_LISTENING_H
#define PAWL_LISTENING_H

#include <stddef.h>

#include "daemon/handover.h"
#include "daemon/http_front.h"
#include "daemon/options.h"
#include "daemon/systemd.h"

/* Opens or adopts all addresses of the options. A socket that the service manager passed and no --listen asks for is an error: the manager would go on
 * listening on it, and nobody would ever accept. What is taken from `handed` is marked as taken. Returns 0, or -1 with a sentence. */
int listening_open(struct http_front *front, const struct options *options, const struct systemd *manager, struct handover_sockets *handed,
                   char *problem, size_t cap);

#endif
