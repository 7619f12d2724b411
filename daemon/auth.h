/* Who is asking: the rules of --auth-file, as they are now, and the look-up of a request's caller among them.
 *
 * A bearer token decides alone if there is one: a wrong one is not made good by a certificate or a unix user. Without one, the subject of the client's
 * certificate and then the user at the other end of a unix socket are looked up. Runs on the event loop's thread.
 */
#ifndef PAWL_AUTH_H
#define PAWL_AUTH_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/access.h"
#include "daemon/http.h"
#include "daemon/peer.h"

struct auth;

/* Reads the rules in file `path`, which must stay valid. Returns 0, or -1 with one line in problem[0..cap) that names the file. Warns in the log of a file
 * that all users of the machine can read; one that all can write is refused. */
int auth_open(const char *path, struct auth **ret, char *problem, size_t cap);
void auth_close(struct auth *auth); /* takes NULL */

/* Is the file good? Says and warns the same as auth_open, and keeps nothing. */
int auth_check(const char *path, char *problem, size_t cap);

/* Reads the file again. What can't be read leaves the rules as they are, and the log says why. Takes NULL. Calls that were let in keep what they were given. */
void auth_reload(struct auth *auth);

enum auth_verdict {
    AUTH_KNOWN,    /* *ret_rule */
    AUTH_NOTHING,  /* showed nothing, and is nobody that a rule names */
    AUTH_UNKNOWN,  /* showed what no rule has */
    AUTH_TOO_MANY, /* the same, too often: *ret_wait_s */
    AUTH_NO_MEMORY
};

/* `authorization`: the value of that field of the request. *ret_rule lives as long as the rules of auth_rules, and is set only when known. */
enum auth_verdict auth_who(struct auth *auth, struct http_slice authorization, const struct peer *peer, int64_t now_us,
                           const struct access_rule **ret_rule, int64_t *ret_wait_s);

struct access *auth_rules(const struct auth *auth); /* to be held by whoever needs them longer than this call */

#endif
