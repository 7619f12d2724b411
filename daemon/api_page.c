/* The built-in page. It is the same for everybody and holds nothing of this node: what it shows, its script asks the API for, as any client would. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/api.h"
#include "daemon/page_files.h"

/* Script, style and icon are files of their own, so that nothing inline has to be allowed: what a lock's name could smuggle into the page would not run. */
#define GUARDS                                                                                                                             \
    "X-Content-Type-Options: nosniff\r\n"                                                                                                  \
    "Referrer-Policy: same-origin\r\n"                                                                                                     \
    "Cross-Origin-Resource-Policy: same-origin\r\n"                                                                                        \
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "               \
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"

static void send_file(struct api_call *call, enum page_file_id id, const char *type)
{
    const struct http_response response = {
        .status = 200, .content_type = type, .extra_headers = GUARDS, .body = page_files[id].at, .body_len = page_files[id].len};

    metrics_request(call->api->metrics, call->route, 200);
    (void)http_reply(call->exchange, &response, NULL, NULL);
}

void api_page(struct api_call *call)
{
    send_file(call, PAGE_HTML, "text/html; charset=utf-8");
}

void api_page_script(struct api_call *call)
{
    send_file(call, PAGE_SCRIPT, "text/javascript; charset=utf-8");
}

void api_page_style(struct api_call *call)
{
    send_file(call, PAGE_STYLE, "text/css; charset=utf-8");
}

void api_page_icon(struct api_call *call)
{
    send_file(call, PAGE_ICON, "image/svg+xml");
}
