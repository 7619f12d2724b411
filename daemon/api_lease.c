/* A lease as its holder is told of it: acquire, renew, and each one of a renewed list. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/api.h"

struct api_lease api_lease_of(const struct broker_request *r)
{
    return (struct api_lease){.id = r->lease_id,
                              .token = r->ret_token,
                              .until_us = r->lease_until_us,
                              .most_until_us = r->most_until_us,
                              .replicas = r->call.ret_replicas,
                              .owner = r->call.holder.owner,
                              .owner_len = r->call.holder.owner_len};
}

void json_lease(struct text *t, const struct broker *broker, const struct api_lease *lease)
{
    int64_t most_ms = broker_left_ms(broker, lease->most_until_us); /* looked at before ttl_ms, which is never shown as longer */

    json_text(t, "lease_id", lease->id.text, PAWL_LEASE_ID_LEN);
    json_number(t, "token", lease->token);
    json_number(t, "ttl_ms", broker_left_ms(broker, lease->until_us));
    json_text(t, "owner", lease->owner, lease->owner_len);
    if (lease->most_until_us < INT64_MAX)
        json_number(t, "max_hold_left_ms", most_ms);
    if (lease->replicas > 0)
        json_number(t, "replicas", lease->replicas);
}
