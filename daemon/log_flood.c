#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/log_flood.h"

#include <string.h>

/* NULL when all slots are taken: such an event is never summed. */
static struct log_flood_slot *find(struct log_flood *f, const char *event)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->slots[i].event == event || strcmp(f->slots[i].event, event) == 0)
            return &f->slots[i];
    if (f->count == LOG_FLOOD_SLOTS)
        return NULL;
    f->slots[f->count].event = event;
    f->slots[f->count].ends_us = INT64_MIN;
    return &f->slots[f->count++];
}

static bool is_repeated(const struct log_flood_slot *slot, uint64_t hash)
{
    unsigned known = slot->written < LOG_FLOOD_RECENT ? slot->written : LOG_FLOOD_RECENT;

    for (unsigned i = 0; i < known; i++)
        if (slot->recent[i] == hash)
            return true;
    return false;
}

static void take_sum(struct log_flood_slot *slot, struct log_flood_sum *ret)
{
    *ret = (struct log_flood_sum){slot->event, slot->level, slot->left_out};
    slot->left_out = 0;
}

bool log_flood_pass(struct log_flood *f, int64_t now_us, const char *event, int level, uint64_t hash, bool all_unlike,
                    struct log_flood_sum *ret_sum)
{
    struct log_flood_slot *slot = find(f, event);

    ret_sum->lines = 0;
    if (!slot)
        return true;
    if (now_us >= slot->ends_us) {
        take_sum(slot, ret_sum);
        slot->ends_us = now_us + LOG_FLOOD_US;
        slot->written = 0;
    }
    if (slot->written >= LOG_FLOOD_LINES && (!all_unlike || is_repeated(slot, hash))) {
        slot->level = level;
        slot->left_out++;
        f->owes = true;
        return false;
    }
    slot->recent[slot->written++ % LOG_FLOOD_RECENT] = hash;
    return true;
}

bool log_flood_settle(struct log_flood *f, int64_t now_us, struct log_flood_sum *ret_sum)
{
    bool owes = false;

    for (size_t i = 0; f->owes && i < f->count; i++) {
        struct log_flood_slot *slot = &f->slots[i];

        if (slot->left_out > 0 && now_us >= slot->ends_us) {
            take_sum(slot, ret_sum);
            return true;
        }
        owes |= slot->left_out > 0;
    }
    f->owes = owes;
    return false;
}
