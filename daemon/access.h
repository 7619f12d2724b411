/* Who may do what: a set of rules, looked up by what a caller has shown of itself.
 *
 *     {"rules": [
 *         {"name": "billing", "token_sha256": "9f86d0…", "prefixes": ["billing/"], "verbs": ["acquire", "read"]},
 *         {"name": "ledger", "subject": "CN=ledger,O=Example", "prefixes": ["ledger/"], "verbs": ["acquire"]},
 *         {"name": "sidecar", "uid": 1000, "prefixes": ["reports/"], "verbs": ["acquire"]},
 *         {"name": "ops", "token_sha256": ["2c2648…", "fcde2b…"], "prefixes": [""], "verbs": ["admin"]}
 *     ]}
 *
 * A rule may have several credentials; each of them alone is enough, and none may stand in two rules. What every field means is in docs/security.md.
 *
 * What this is: text to rules, and questions answered from them. What it is not: it reads no file and no request (auth.h does). Nothing here logs, and no
 * sentence of it repeats a value of the file but a rule's name, since what stands in the wrong place may be a secret. Not thread-safe.
 */
#ifndef PAWL_ACCESS_H
#define PAWL_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "proto/limits.h"

#define ACCESS_RULES_MAX    1000
#define ACCESS_TOKENS_MAX   8    /* hashes of one rule: an old token and its successors */
#define ACCESS_PREFIXES_MAX 256  /* of one rule */
#define ACCESS_SUBJECT_MAX  1024 /* bytes */

/* Verbs, as a set. */
#define ACCESS_ACQUIRE 1u /* acquire, and renew, release and check */
#define ACCESS_READ    2u /* inspect, list, and the numbers of the node */
#define ACCESS_BREAK   4u
#define ACCESS_ADMIN   8u /* all of these */

struct access;      /* a set of rules; never changes */
struct access_rule; /* lives as long as its set */

/* Reads text[0..len). Returns a set that is held once, or NULL with one line in problem[0..cap). */
struct access *access_parse(const char *text, size_t len, char *problem, size_t cap);

/* Sets are counted: a call that was let in keeps its set while another replaces it. access_release frees at the last one; takes NULL. */
struct access *access_hold(struct access *set);
void access_release(struct access *set);

size_t access_count(const struct access *set); /* of rules */

/* The rule with this bearer token. *ret is NULL when there is none. The token is hashed and compared with every hash of the set, so the time it takes tells
 * nothing but the token's length. Returns 0, or -1 when there was no memory to hash it; *ret is untouched then. */
int access_by_token(struct access *set, const char *token, size_t len, const struct access_rule **ret);

/* The rule for exactly this subject of a verified client certificate, as peer.h spells it; for the user at the other end of a unix socket. NULL: none. */
const struct access_rule *access_by_subject(const struct access *set, const char *subject);
const struct access_rule *access_by_uid(const struct access *set, uid_t uid);

const char *access_name(const struct access_rule *rule); /* 1 to PAWL_CALLER_MAX bytes of UTF-8 without control characters */

/* May it do `verb` (one of the ACCESS_...) to this lock? */
bool access_allows(const struct access_rule *rule, unsigned verb, const char *name, size_t len);

/* May it do `verb` to any lock at all? For what is not about one lock. */
bool access_allows_some(const struct access_rule *rule, unsigned verb);

/* Can there be a name that begins with `prefix` and that it may read? */
bool access_sees_some(const struct access_rule *rule, const char *prefix, size_t len);

#endif
