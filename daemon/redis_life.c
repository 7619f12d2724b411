#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_life.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "proto/limits.h"
#include "proto/text.h"

/* A prefix may hold characters that mean something in a glob. */
static void make_pattern(struct redis_life *life)
{
    char *out = life->pattern_head;

    for (const char *in = life->head_lock; *in; in++) {
        if (strchr("*?[]\\", *in))
            *out++ = '\\';
        *out++ = *in;
    }
    *out = '\0';
}

void redis_life_init(struct redis_life *life, const struct clock *clock, const char *key_prefix)
{
    static const size_t cap = REDIS_KEY_HEAD_MAX;
    uint64_t random = 0;

    memset(life, 0, sizeof(*life));
    life->clock = clock;
    snprintf(life->fence_text, sizeof(life->fence_text), "0");
    snprintf(life->generation_text, sizeof(life->generation_text), "0");
    if (getrandom(&random, sizeof(random), 0) < 0)
        random = (uint64_t)clock_now_us(clock);
    snprintf(life->node, sizeof(life->node), "%016llx", (unsigned long long)random);
    snprintf(life->key_incarnation, cap, "%.64s{0}:incarnation", key_prefix);
    snprintf(life->key_fence, cap, "%.64s{0}:fence", key_prefix);
    snprintf(life->key_recovery, cap, "%.64s{0}:recovery", key_prefix);
    snprintf(life->key_node, cap, "%.64s{0}:node:%s", key_prefix, life->node);
    snprintf(life->head_lock, cap, "%.64s{0}:lock:", key_prefix);
    snprintf(life->head_queue, cap, "%.64s{0}:queue:", key_prefix);
    make_pattern(life);
}

void redis_life_see_fence(struct redis_life *life, int64_t fence)
{
    struct text text;

    if (fence > life->fence && fence <= PAWL_TOKEN_MAX) {
        life->fence = fence;
        text_init(&text, life->fence_text, sizeof(life->fence_text) - 1, sizeof(life->fence_text) - 1);
        text_int(&text, fence);
        life->fence_text[text.len] = '\0';
    }
}

void redis_life_next_generation(struct redis_life *life)
{
    life->generation++;
    snprintf(life->generation_text, sizeof(life->generation_text), "%lld", (long long)life->generation);
}

int64_t redis_life_server_ms(const struct redis_life *life)
{
    return clock_now_us(life->clock) / 1000 + life->ahead_ms;
}

void redis_life_begin_script(const struct redis_life *life, struct redis_link *link, enum redis_script_id id, bool whole, size_t keys,
                             size_t args)
{
    redis_link_begin(link, 3 + keys + args);
    redis_link_arg_str(link, whole ? "EVAL" : "EVALSHA");
    if (whole)
        redis_link_arg(link, redis_scripts[id].body, redis_scripts[id].body_len);
    else
        redis_link_arg(link, redis_scripts[id].sha1, 40);
    redis_link_arg_int(link, (int64_t)keys);
    redis_link_arg_str(link, life->key_incarnation);
    redis_link_arg_str(link, life->key_fence);
    redis_link_arg_str(link, life->key_node);
    redis_link_arg_str(link, life->key_recovery);
}

void redis_life_add_attachment(const struct redis_life *life, struct redis_link *link)
{
    redis_link_arg_str(link, life->incarnation);
    redis_link_arg_str(link, life->fence_text);
    redis_link_arg_str(link, life->generation_text);
}
