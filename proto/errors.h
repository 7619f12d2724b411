/* Every error that pawl speaks of, once: code, HTTP status, wire string, and a sentence for a person.
 *
 * What this is: the one list from which the daemon's replies, the client library's codes and the check of docs/openapi.yaml come.
 * What it is not: a place for errno, Redis or parser errors; those are turned into one of these by the module that met them.
 * To add one: add a row, then a row in docs/api.md and docs/openapi.yaml (`make check` compares the three).
 */
#ifndef PAWL_ERRORS_H
#define PAWL_ERRORS_H

/* clang-format off */
/*      name                  HTTP  wire string              default sentence */
#define PAWL_ERRORS(X) \
    X(BAD_REQUEST,            400, "bad_request",            "the request is malformed") \
    X(UNAUTHORIZED,           401, "unauthorized",           "this call needs an access token, as Authorization: Bearer TOKEN") \
    X(FORBIDDEN,              403, "forbidden",              "this caller may not do that") \
    X(NOT_FOUND,              404, "not_found",              "there is nothing at this path") \
    X(NOT_HELD,               404, "not_held",               "nobody holds this lock") \
    X(METHOD_NOT_ALLOWED,     405, "method_not_allowed",     "this path does not take that method") \
    X(TIMEOUT,                408, "timeout",                "the request did not arrive in time") \
    X(HELD,                   409, "held",                   "another lease holds this lock") \
    X(LEASE_LOST,             410, "lease_lost",             "this lease does not hold the lock") \
    X(TOO_LARGE,              413, "too_large",              "the request body is too large") \
    X(URI_TOO_LONG,           414, "uri_too_long",           "the request target is too long") \
    X(EXPECTATION_FAILED,     417, "expectation_failed",     "only Expect: 100-continue is understood") \
    X(TOO_MANY_WAITERS,       429, "too_many_waiters",       "too many requests are waiting") \
    X(TOO_MANY_CONNECTIONS,   429, "too_many_connections",   "too many connections are open") \
    X(TOO_MANY_LOGINS,        429, "too_many_logins",        "too many failed logins came from this address") \
    X(TOO_MANY_STREAMS,       429, "too_many_streams",       "too many event streams are open") \
    X(HEADERS_TOO_LARGE,      431, "headers_too_large",      "the request head is too large") \
    X(NOT_IMPLEMENTED,        501, "not_implemented",        "this server does not know that method") \
    X(STORE_UNAVAILABLE,      503, "store_unavailable",      "the store cannot be used now") \
    X(NOT_REPLICATED,         503, "not_replicated",         "too few replicas confirmed the write") \
    X(RECOVERING,             503, "recovering",             "a new life of the data began: nothing is granted until its recovery window ends") \
    X(DRAINING,               503, "draining",               "this node is shutting down") \
    X(VERSION_NOT_SUPPORTED,  505, "version_not_supported",  "only HTTP/1.0 and HTTP/1.1 are spoken")
/* clang-format on */

enum pawl_error {
    PAWL_OK = 0,
#define PAWL_ERROR_ENUM(name, status, wire, text) PAWL_E_##name,
    PAWL_ERRORS(PAWL_ERROR_ENUM)
#undef PAWL_ERROR_ENUM
        PAWL_ERROR_COUNT
};

/* All three answer for every value of the enum; PAWL_OK is 200, "ok", "". Static strings, never NULL. */
int pawl_error_status(enum pawl_error error);
const char *pawl_error_wire(enum pawl_error error);
const char *pawl_error_text(enum pawl_error error);

#endif
