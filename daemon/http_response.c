/* One response is one gathered write: a block with what is ours (status line, Date, lengths), then the caller's content type, extra fields and body where
 * they lie. Nearly every response is JSON without extra fields: two pieces. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <string.h>

#include "daemon/http_response.h"

#define STATUS_NO_CONTENT  204
#define STATUS_UNAVAILABLE 503

void http_date_set(struct http_date *date, time_t wall)
{
    /* by hand, since strftime's names depend on the locale */
    static const char days[][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char months[][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    struct tm tm;

    if (wall == date->made_at && date->text[0] != '\0') {
        return;
    }
    if (gmtime_r(&wall, &tm) == NULL) {
        return;
    }
    date->made_at = wall;
    strftime(date->text, sizeof(date->text), "???, %d ??? %Y %H:%M:%S GMT", &tm);
    memcpy(date->text, days[tm.tm_wday], 3);
    memcpy(date->text + 8, months[tm.tm_mon], 3);
}

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {201, "Created"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {505, "HTTP Version Not Supported"},
    };

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (reasons[i].status == status) {
            return reasons[i].reason;
        }
    }
    return "Unknown";
}

static char *put(char *at, const char *text)
{
    size_t len = strlen(text);

    memcpy(at, text, len);
    return at + len;
}

static char *put_number(char *at, size_t n)
{
    char digits[20];
    size_t len = 0;

    do {
        digits[len++] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0);
    while (len > 0) {
        *at++ = digits[--len];
    }
    return at;
}

static void add_part(struct http_response_bytes *out, const char *at, size_t len)
{
    if (len > 0) {
        out->parts[out->count++] = (struct iovec){(char *)at, len};
        out->len += len;
    }
}

/* Ends the piece of the block that began at `from`, puts a text of the caller's behind it, and returns where the block goes on. */
static char *interleave(struct http_response_bytes *out, const char *from, char *at, const char *text)
{
    add_part(out, from, (size_t)(at - from));
    add_part(out, text, strlen(text));
    return at;
}

static char *put_framing(char *at, enum http_framing framing, size_t body_len)
{
    switch (framing) {
    case HTTP_BY_LENGTH:
        return put_number(put(at, "\r\nContent-Length: "), body_len);
    case HTTP_BY_CHUNKS:
        return put(at, "\r\nTransfer-Encoding: chunked");
    case HTTP_BY_CLOSE:
        break;
    }
    return at;
}

void http_response_lay_head(struct http_response_bytes *out, const struct http_response *response, const struct http_date *date,
                            enum http_connection_field connection, enum http_framing framing)
{
    static const char *const connection_lines[] = {"", "Connection: close\r\n", "Connection: keep-alive\r\n"};
    char *at = out->block, *from = at;

    out->count = 0;
    out->len = 0;
    at = put(at, "HTTP/1.1 ");
    at = put_number(at, (size_t)response->status);
    *at++ = ' ';
    at = put(at, reason_of(response->status));
    at = put(at, "\r\nDate: ");
    at = put(at, date->text);
    if (response->status != STATUS_NO_CONTENT) {
        at = put(at, "\r\nContent-Type: ");
        if (response->content_type == NULL) {
            at = put(at, "application/json");
        } else {
            from = interleave(out, from, at, response->content_type);
        }
        at = put_framing(at, framing, response->body_len);
    }
    at = put(at, "\r\nCache-Control: no-store\r\n");
    at = put(at, connection_lines[connection]);
    if (response->extra_headers != NULL) {
        from = interleave(out, from, at, response->extra_headers);
    }
    at = put(at, "\r\n");
    add_part(out, from, (size_t)(at - from));
}

void http_response_lay(struct http_response_bytes *out, const struct http_response *response, const struct http_date *date,
                       enum http_connection_field connection, bool head_only)
{
    http_response_lay_head(out, response, date, connection, HTTP_BY_LENGTH);
    if (response->status != STATUS_NO_CONTENT && !head_only) {
        add_part(out, response->body, response->body_len);
    }
}

#define ERROR_MAX 8192

static void write_error(struct text *t, enum pawl_error error, const char *message)
{
    text_str(t, "{\"error\": \"");
    text_str(t, pawl_error_wire(error));
    text_str(t, "\", \"message\": ");
    text_json_string(t, message, strlen(message));
    text_str(t, "}\n");
}

struct http_response http_response_error(struct http_error_bytes *bytes, enum pawl_error error, const char *message)
{
    struct text *t = &bytes->text;

    text_init(t, bytes->block, sizeof(bytes->block), ERROR_MAX);
    write_error(t, error, message != NULL ? message : pawl_error_text(error));
    if (t->failed) {
        text_close(t);
        text_init(t, bytes->block, sizeof(bytes->block), sizeof(bytes->block)); /* the own sentence always fits it */
        write_error(t, error, pawl_error_text(error));
    }
    return (struct http_response){
        .status = pawl_error_status(error),
        .extra_headers = pawl_error_status(error) == STATUS_UNAVAILABLE ? "Retry-After: 1\r\n" : NULL,
        .body = t->at,
        .body_len = t->len,
    };
}

void http_response_error_close(struct http_error_bytes *bytes)
{
    text_close(&bytes->text);
}
