/* Where a pawld is: "http://HOST[:PORT]", the same with "https://", or "unix:/PATH". Pure. */
#ifndef PAWL_ADDRESS_H
#define PAWL_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#define ADDRESS_PORT_DEFAULT 7295

struct address {
    char base[320];   /* what URLs begin with: "http://HOST:PORT" */
    bool tls;         /* it begins with https:// */
    char socket[108]; /* path of the unix socket; "" for TCP */
};

/* Returns NULL, or why `text` is no address: a static sentence that fits after "address: ". *ret is undefined then. */
const char *address_parse(const char *text, struct address *ret);

#endif
