/* What the options mean together, and with what the daemon is made of: those questions that no single row can answer.
 *
 * What this is: the checks before a start, and the values that follow from several options. What it is not: it opens and keeps nothing. options.h knows each
 * option by itself, tls_setup.h those of TLS.
 */
#ifndef PAWL_DAEMON_OPTIONS_H
#define PAWL_DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/options.h"

/* Do they fit together, and can the files of TLS be used? Returns 0, or -1 with a sentence. */
int daemon_options_check(const struct options *o, char *problem, size_t cap);

/* May pawld listen there? Without rules whoever reaches it may take and break every lock: on this machine that may be meant; on a network it is said aloud or
 * not done. Returns 0, or -1 with a sentence. For a socket that the service manager passed, the address is known only when the socket is there. */
int daemon_options_check_address(const struct options *o, const char *address, char *problem, size_t cap);

/* The recovery window that is in force. It must be long enough for every node to come back in it: the default grows with the timeout; a value that was asked for
 * does not. */
int64_t daemon_options_window_ms(const struct options *o);

/* Redis is spoken to with TLS. */
bool daemon_options_redis_is_tls(const struct options *o);

#endif
