/* Which data this node speaks of, and in which life of them: the names of the keys, and what every script is given so that it does nothing
 * in another life. The store that attaches is the only one that changes it, but for the fence, which each answer may raise. */
#ifndef PAWL_REDIS_LIFE_H
#define PAWL_REDIS_LIFE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/clock.h"
#include "daemon/redis_link.h"
#include "daemon/redis_script.h"

#define REDIS_KEY_HEAD_MAX 96

struct redis_life {
    const struct clock *clock;
    char node[17];
    char key_incarnation[REDIS_KEY_HEAD_MAX], key_fence[REDIS_KEY_HEAD_MAX], key_node[REDIS_KEY_HEAD_MAX];
    char key_recovery[REDIS_KEY_HEAD_MAX], head_lock[REDIS_KEY_HEAD_MAX], head_queue[REDIS_KEY_HEAD_MAX];
    char pattern_head[2 * REDIS_KEY_HEAD_MAX]; /* of the lock keys, as a glob */

    char incarnation[256], identity[128]; /* "": none yet */
    int64_t generation;                   /* counts attaches */
    int64_t fence;                        /* g: the greatest ever seen in an answer */
    char fence_text[24], generation_text[24];
    int64_t ahead_ms; /* of the server's wall clock over our own clock: grants carry the server's time without asking it */
};

/* A node with an id of its own that has seen nothing yet. */
void redis_life_init(struct redis_life *life, const struct clock *clock, const char *key_prefix);
void redis_life_see_fence(struct redis_life *life, int64_t fence);
void redis_life_next_generation(struct redis_life *life);
int64_t redis_life_server_ms(const struct redis_life *life); /* the server's time, as far as it can be told from here */

/* A command that runs a script: EVALSHA (or EVAL), the four common keys; then come `keys` - 4 more, the attachment, and what is left of `args`. */
void redis_life_begin_script(const struct redis_life *life, struct redis_link *link, enum redis_script_id id, bool whole, size_t keys,
                             size_t args);
void redis_life_add_attachment(const struct redis_life *life, struct redis_link *link);

#endif
