/* Whom a call is let in for, and what it may do. The rules are decided in access.c; here they meet a route, and a refusal becomes an answer and a line in the
 * log. Neither repeats anything of what a caller showed to prove who it is. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/api.h"
#include "daemon/log.h"
#include "daemon/router.h"

static void log_failed(struct api_call *call, const char *reason)
{
    uint64_t suppressed;

    if (log_gate_pass(&call->api->login_gate, broker_now_us(call->api->broker), &suppressed))
        log_warn("login_failed", LOG_STR("peer", call->peer->text), LOG_STR("call", routes[call->route].call), LOG_STR("reason", reason),
                 LOG_INT("suppressed", suppressed));
}

static void refuse(struct api_call *call, enum pawl_error error, const char *message, const char *headers)
{
    (void)api_error_with(call->api, call->route, call->exchange, error, message, NULL, headers);
}

static void refuse_too_many(struct api_call *call, int64_t wait_s)
{
    char field[48];

    log_failed(call, "too many");
    snprintf(field, sizeof(field), "Retry-After: %" PRId64 "\r\n", wait_s);
    refuse(call, PAWL_E_TOO_MANY_LOGINS, NULL, field);
}

bool api_let_in(struct api_call *call, struct http_slice authorization)
{
    struct auth *auth = call->api->auth;
    int64_t wait_s = 1;

    if (!auth)
        return true;
    switch (auth_who(auth, authorization, call->peer, broker_now_us(call->api->broker), &call->rule, &wait_s)) {
    case AUTH_KNOWN:
        call->rules = auth_rules(auth);
        return true;
    case AUTH_NOTHING:
        log_failed(call, "nothing shown");
        refuse(call, PAWL_E_UNAUTHORIZED, NULL, "WWW-Authenticate: Bearer realm=\"pawl\"\r\n");
        return false;
    case AUTH_UNKNOWN:
        log_failed(call, "unknown token");
        refuse(call, PAWL_E_UNAUTHORIZED, "no rule has this access token, which is sent as Authorization: Bearer TOKEN",
               "WWW-Authenticate: Bearer realm=\"pawl\", error=\"invalid_token\"\r\n");
        return false;
    case AUTH_TOO_MANY:
        refuse_too_many(call, wait_s);
        return false;
    case AUTH_NO_MEMORY:
        break;
    }
    refuse(call, PAWL_E_STORE_UNAVAILABLE, "out of memory", NULL);
    return false;
}

static bool allowed(const struct api_call *call, unsigned needs)
{
    if (call->name)
        return access_allows(call->rule, needs, call->name, call->name_len);
    if (call->params.seen & PARAM_BIT(PREFIX))
        return access_sees_some(call->rule, call->params.prefix, call->params.prefix_len);
    return access_allows_some(call->rule, needs);
}

static const char *verb_name(unsigned verb)
{
    return verb == ACCESS_ACQUIRE ? "acquire" : verb == ACCESS_BREAK ? "break" : verb == ACCESS_READ ? "read" : "admin";
}

bool api_may(struct api_call *call, unsigned needs)
{
    const char *about = call->name ? " on this lock" : call->params.seen & PARAM_BIT(PREFIX) ? " on locks with this prefix" : "";
    char message[192];
    uint64_t suppressed;

    if (!call->rule || allowed(call, needs))
        return true;
    if (log_gate_pass(&call->api->refusal_gate, broker_now_us(call->api->broker), &suppressed))
        log_warn("access_refused", LOG_STR("caller", access_name(call->rule)), LOG_STR("peer", call->peer->text),
                 LOG_STR("call", routes[call->route].call), LOG_TEXT("name", call->name, call->name_len),
                 LOG_INT("suppressed", suppressed));
    snprintf(message, sizeof(message), "the rule \"%s\" does not give %s%s", access_name(call->rule), verb_name(needs), about);
    (void)api_error(call->api, call->route, call->exchange, PAWL_E_FORBIDDEN, message, &call->params.lease_id);
    return false;
}
