#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/api.h"

#include <string.h>

enum http_delivery api_reply(struct api *api, size_t route, struct http_exchange *x, int status, const char *extra_headers,
                             struct text *body, http_receipt_fn *receipt, void *arg)
{
    struct http_response response = {.status = status, .extra_headers = extra_headers};

    text_add(body, "\n", 1);
    if (body->failed) {
        metrics_request(api->metrics, route, 503);
        (void)http_reply_error(x, PAWL_E_STORE_UNAVAILABLE, "out of memory");
        return HTTP_LOST;
    }
    response.body = body->at;
    response.body_len = body->len;
    metrics_request(api->metrics, route, status);
    return http_reply(x, &response, receipt, arg);
}

enum http_delivery api_error(struct api *api, size_t route, struct http_exchange *x, enum pawl_error error, const char *message,
                             const struct lease_id *lease_id)
{
    return api_error_with(api, route, x, error, message, lease_id, NULL);
}

enum http_delivery api_error_with(struct api *api, size_t route, struct http_exchange *x, enum pawl_error error, const char *message,
                                  const struct lease_id *lease_id, const char *extra_headers)
{
    char block[1024];
    struct text body;
    enum http_delivery delivery;
    int status = pawl_error_status(error);

    text_init(&body, block, sizeof(block), 8192);
    text_str(&body, "{\"error\": \"");
    text_str(&body, pawl_error_wire(error));
    text_str(&body, "\"");
    if (!message)
        message = pawl_error_text(error);
    json_text(&body, "message", message, strlen(message));
    if (lease_id && lease_id->text[0])
        json_text(&body, "lease_id", lease_id->text, PAWL_LEASE_ID_LEN);
    text_str(&body, "}");
    if (!extra_headers && status == 503)
        extra_headers = "Retry-After: 1\r\n";
    delivery = api_reply(api, route, x, status, extra_headers, &body, NULL, NULL);
    text_close(&body);
    return delivery;
}

void json_key(struct text *t, const char *key)
{
    if (t->len > 0 && !t->failed && t->at[t->len - 1] != '{')
        text_add(t, ", ", 2);
    text_add(t, "\"", 1);
    text_str(t, key);
    text_add(t, "\": ", 3);
}

void json_text(struct text *t, const char *key, const char *value, size_t len)
{
    json_key(t, key);
    text_json_string(t, value, len);
}

void json_number(struct text *t, const char *key, int64_t value)
{
    json_key(t, key);
    text_int(t, value);
}

void json_bool(struct text *t, const char *key, bool value)
{
    json_key(t, key);
    text_str(t, value ? "true" : "false");
}
