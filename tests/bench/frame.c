/* The requests with holes of frame.h. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/frame.h"

#include <string.h>

bool frame_add(struct frame *f, const char *bytes, size_t len)
{
    if (len > FRAME_MAX - f->len)
        return false;
    memcpy(f->bytes + f->len, bytes, len);
    f->len += len;
    return true;
}

bool frame_add_text(struct frame *f, const char *text)
{
    return frame_add(f, text, strlen(text));
}

bool frame_add_slot(struct frame *f, enum frame_slot what)
{
    size_t len = what == FRAME_NAME ? FRAME_NAME_LEN : FRAME_LEASE_LEN;

    if (f->slot_count == FRAME_SLOTS_MAX || len > FRAME_MAX - f->len)
        return false;
    f->slots[f->slot_count].at = f->len;
    f->slots[f->slot_count].what = what;
    f->slot_count++;
    memset(f->bytes + f->len, '?', len);
    f->len += len;
    return true;
}

void frame_fill(struct frame *f, const char *name, const char *lease)
{
    size_t i;

    for (i = 0; i < f->slot_count; i++) {
        if (f->slots[i].what == FRAME_NAME)
            memcpy(f->bytes + f->slots[i].at, name, FRAME_NAME_LEN);
        else if (lease != NULL)
            memcpy(f->bytes + f->slots[i].at, lease, FRAME_LEASE_LEN);
    }
}
