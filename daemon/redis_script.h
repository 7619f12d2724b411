/* The Lua scripts, embedded at build time from daemon/scripts (see build-aux/embed-scripts.sh): each is one round trip. */
#ifndef PAWL_REDIS_SCRIPT_H
#define PAWL_REDIS_SCRIPT_H

#include <stddef.h>

/* In the order in which the build hands the files to the generator. */
enum redis_script_id {
    SCRIPT_ATTACH,
    SCRIPT_BEAT,
    SCRIPT_ACQUIRE,
    SCRIPT_RENEW,
    SCRIPT_RELEASE,
    SCRIPT_CHECK,
    SCRIPT_BREAK,
    SCRIPT_INSPECT,
    SCRIPT_LIST,
    SCRIPT_CANCEL,
    SCRIPT_PUT_BACK,
    SCRIPT_PLAIN,
    SCRIPT_COUNT
};

struct redis_script {
    const char *name;
    const char *sha1; /* of `body`, in hex: what EVALSHA wants */
    const char *body;
    size_t body_len;
};

extern const struct redis_script redis_scripts[];

#endif
