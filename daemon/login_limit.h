/* How often logins may fail from one place.
 *
 * A place is an IPv4 address, the /64 of an IPv6 address (one customer's, often one machine's), or a user at the other end of unix sockets. Each has a bucket
 * of LOGIN_BURST failures that fills again by one each LOGIN_REFILL_MS. It keeps one broken client from filling the log and from being taken for work;
 * it is no defence of tokens that can be guessed, since a right one is let in from everywhere at any time (docs/security.md).
 *
 * At most LOGIN_PLACES are remembered, in memory that is taken once; beyond, the one whose last failure is the longest ago is forgotten. Pure: the time
 * is the caller's.
 */
#ifndef PAWL_LOGIN_LIMIT_H
#define PAWL_LOGIN_LIMIT_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/peer.h"

#define LOGIN_BURST     20
#define LOGIN_REFILL_MS 1000
#define LOGIN_PLACES    4096

struct login_limit;

/* NULL without memory. login_limit_free takes NULL. */
struct login_limit *login_limit_new(void);
void login_limit_free(struct login_limit *limit);

/* A login of this peer has failed at now_us (any clock that doesn't go back). Returns 0: it is within the limit, and counted; else how many seconds (1 or
 * more) the peer had better wait before the next one. */
int64_t login_limit_failed(struct login_limit *limit, const struct peer *peer, int64_t now_us);

/* How many places are remembered. For tests. */
size_t login_limit_places(const struct login_limit *limit);

#endif
