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

static const size_t lengths[] = {
    [FRAME_NAME] = FRAME_NAME_LEN,     [FRAME_LEASE] = FRAME_LEASE_LEN, [FRAME_SESSION] = FRAME_SESSION_LEN,
    [FRAME_NAME64] = FRAME_NAME64_LEN, [FRAME_KEY64] = FRAME_KEY64_LEN,
};

bool frame_add_slot(struct frame *f, enum frame_slot what)
{
    size_t len = lengths[what];

    if (f->slot_count == FRAME_SLOTS_MAX || len > FRAME_MAX - f->len)
        return false;
    f->slots[f->slot_count].at = f->len;
    f->slots[f->slot_count].what = what;
    f->slot_count++;
    memset(f->bytes + f->len, '?', len);
    f->len += len;
    return true;
}

bool frame_add_frame(struct frame *f, const struct frame *src)
{
    size_t base = f->len;
    size_t i;

    if (src->slot_count > FRAME_SLOTS_MAX - f->slot_count || !frame_add(f, src->bytes, src->len))
        return false;
    for (i = 0; i < src->slot_count; i++) {
        f->slots[f->slot_count].at = base + src->slots[i].at;
        f->slots[f->slot_count].what = src->slots[i].what;
        f->slot_count++;
    }
    return true;
}

static const char *word_of(const struct words *w, enum frame_slot what)
{
    switch (what) {
    case FRAME_NAME:
        return w->name;
    case FRAME_LEASE:
        return w->lease;
    case FRAME_SESSION:
        return w->session;
    case FRAME_NAME64:
        return w->name64;
    default:
        return w->key64;
    }
}

void frame_fill(struct frame *f, const struct words *w)
{
    size_t i;

    for (i = 0; i < f->slot_count; i++)
        memcpy(f->bytes + f->slots[i].at, word_of(w, f->slots[i].what), lengths[f->slots[i].what]);
}
