/* The sizes that daemon and client both count on (promise P9: every input has a bound). Bytes unless a name says otherwise. */
#ifndef PAWL_LIMITS_H
#define PAWL_LIMITS_H

/* clang-format off */
#define PAWL_NAME_MAX 255      /* a lock name, percent-decoded */
#define PAWL_OWNER_MAX 255     /* an owner label, UTF-8 */
#define PAWL_REASON_MAX 255    /* the reason of a break, UTF-8 */
#define PAWL_CALLER_MAX 64     /* the name of an access rule, UTF-8; at most PAWL_OWNER_MAX */
#define PAWL_LEASE_ID_LEN 36   /* a UUID in its text form */
#define PAWL_CURSOR_MAX 20     /* a list cursor: an unsigned 64-bit number in decimal */
#define PAWL_LOCK_DELAY_MAX_MS 60000 /* what a lock may be kept from others for after a lease */
#define PAWL_MAX_HOLD_MAX_MS INT64_C(31536000000) /* a year; where the operator sets no bound */
#define PAWL_RENEWALS_MAX 256   /* leases in one renewal of many */
#define PAWL_RELEASES_MAX 1000  /* leases that one release-all releases */
#define PAWL_LIST_LIMIT_MAX 1000
#define PAWL_LIST_LIMIT_DEFAULT 100

#define PAWL_TOKEN_MAX ((INT64_C(1) << 53) - 1) /* exact in every JSON client */

#define PAWL_HEAD_MAX (16 * 1024)   /* request line and headers together */
#define PAWL_TARGET_MAX (8 * 1024)  /* the request target alone */
#define PAWL_FIELDS_MAX 64          /* header fields of one request */
#define PAWL_BODY_MAX (64 * 1024)
/* clang-format on */

#endif
