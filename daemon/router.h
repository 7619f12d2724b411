/* Method and path to a row, and from there to the handler. The rows are the API: docs/openapi.yaml is checked against them. */
#ifndef PAWL_ROUTER_H
#define PAWL_ROUTER_H

#include <stddef.h>

#include "daemon/api.h"

/* How the path of a route is made. */
enum route_shape {
    ROUTE_FIXED, /* exactly `path` */
    ROUTE_LOCK,  /* /v1/locks/{name} */
    ROUTE_VERB,  /* /v1/locks/{name}/`path` */
};

struct route {
    const char *call;        /* its name in metrics and docs */
    enum http_method method; /* HTTP_GET also serves HEAD */
    enum route_shape shape;
    const char *path;
    unsigned params; /* set of PARAM_BITs that it takes */
    api_handler *handler;
    unsigned needs; /* the ACCESS_ verb that its caller must have; 0: none, also where there are rules */
};

extern const struct route routes[];
extern const size_t route_count;

/* Names of the rows, for metrics_init. */
const char *const *route_names(void);

/* The HTTP service; `ctx` is a struct api. */
void router_handle(void *ctx, struct http_exchange *x, const struct http_request *request);
void router_gone(void *ctx, struct http_exchange *x);

#endif
