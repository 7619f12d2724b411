/* Events come with every grant and release, readers rarely: so a put copies a few strings into the block that its place has had before, and text is made when
 * somebody wants it. In the long run no memory is asked for. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/event_ring.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct event_record {
    int64_t id, wall_ms;
    enum lease_event_kind kind;
    int64_t token, waited_ms, held_ms;
    size_t name_len, owner_len, reason_len;
    char lease[LEASE_EVENT_ID];
    size_t lease_len;
    struct text frame; /* at NULL: not made yet */
    size_t cap;        /* of `bytes` */
    char bytes[];      /* name, owner, reason */
};

struct event_ring {
    size_t places;
    uint64_t first, end;
    int64_t last_id;
    int64_t gone_id; /* of the record that was dropped last */
    struct event_record *record[];
};

static const char *const words[EVENT_KINDS] = {
#define LEASE_EVENT_WORD(name, word) [EVENT_##name] = (word),
    PAWL_LEASE_EVENTS(LEASE_EVENT_WORD)
#undef LEASE_EVENT_WORD
};

const char *event_kind_word(enum lease_event_kind kind)
{
    return words[kind];
}

struct event_ring *event_ring_new(size_t places, int64_t wall_us)
{
    struct event_ring *ring = calloc(1, sizeof(*ring) + places * sizeof(void *));

    if (!ring)
        return NULL;
    ring->places = places;
    ring->last_id = ring->gone_id = wall_us;
    return ring;
}

static void drop_frame(struct event_record *record)
{
    if (record->frame.at)
        text_close(&record->frame);
    record->frame.at = NULL;
}

void event_ring_free(struct event_ring *ring)
{
    if (!ring)
        return;
    for (size_t i = 0; i < ring->places; i++) {
        if (ring->record[i])
            drop_frame(ring->record[i]);
        free(ring->record[i]);
    }
    free(ring);
}

static size_t place_of(const struct event_ring *ring, uint64_t n)
{
    return (size_t)(n % ring->places);
}

/* A block with room for the strings, the place's old one if it fits. NULL without memory; the old one is gone then too. */
static struct event_record *make_room(struct event_record *old, size_t bytes)
{
    if (old)
        drop_frame(old);
    if (old && old->cap >= bytes)
        return old;
    free(old);
    old = malloc(sizeof(*old) + bytes);
    if (old)
        old->cap = bytes;
    return old;
}

static char *put_string(char *at, const char *from, size_t len)
{
    if (len > 0)
        memcpy(at, from, len);
    return at + len;
}

static void fill(struct event_record *record, const struct lease_event *event)
{
    char *at = record->bytes;

    record->kind = event->kind;
    record->token = event->token;
    record->waited_ms = event->waited_ms;
    record->held_ms = event->held_ms;
    record->name_len = event->name_len;
    record->owner_len = event->owner_len;
    record->reason_len = event->reason_len;
    record->lease_len = event->lease_id ? strnlen(event->lease_id, LEASE_EVENT_ID) : 0;
    (void)put_string(record->lease, event->lease_id, record->lease_len);
    record->frame.at = NULL;
    at = put_string(at, event->name, event->name_len);
    at = put_string(at, event->owner, event->owner_len);
    (void)put_string(at, event->reason, event->reason_len);
}

int event_ring_put(struct event_ring *ring, const struct lease_event *event, int64_t wall_us)
{
    struct event_record **place = &ring->record[place_of(ring, ring->end)];

    if (ring->end - ring->first == ring->places) {
        ring->gone_id = (*place)->id;
        ring->first++;
    }
    *place = make_room(*place, event->name_len + event->owner_len + event->reason_len);
    if (!*place)
        return -1;
    fill(*place, event);
    ring->last_id = wall_us > ring->last_id ? wall_us : ring->last_id + 1;
    (*place)->id = ring->last_id;
    (*place)->wall_ms = wall_us / 1000;
    ring->end++;
    return 0;
}

uint64_t event_ring_first(const struct event_ring *ring)
{
    return ring->first;
}

uint64_t event_ring_end(const struct event_ring *ring)
{
    return ring->end;
}

int64_t event_ring_last_id(const struct event_ring *ring)
{
    return ring->last_id;
}

uint64_t event_ring_seek(const struct event_ring *ring, int64_t id)
{
    uint64_t low = ring->first, high = ring->end;

    while (low < high) {
        uint64_t middle = low + (high - low) / 2;

        if (ring->record[place_of(ring, middle)]->id > id)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool event_ring_missed(const struct event_ring *ring, int64_t id)
{
    return id < ring->gone_id;
}

struct event_record *event_ring_at(struct event_ring *ring, uint64_t n)
{
    return ring->record[place_of(ring, n)];
}

int64_t event_record_id(const struct event_record *record)
{
    return record->id;
}

const char *event_record_name(const struct event_record *record, size_t *ret_len)
{
    *ret_len = record->name_len;
    return record->bytes;
}

/* ---- as text ---- */

static void add_key(struct text *t, const char *key)
{
    text_str(t, ", \"");
    text_str(t, key);
    text_str(t, "\": ");
}

static void add_string(struct text *t, const char *key, const char *value, size_t len)
{
    if (len == 0)
        return;
    add_key(t, key);
    text_json_string(t, value, len);
}

static void add_number(struct text *t, const char *key, int64_t value)
{
    add_key(t, key);
    text_int(t, value);
}

static void add_time(struct text *t, int64_t wall_ms)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm = {.tm_mday = 1};

    (void)gmtime_r(&seconds, &tm);
    text_fmt(t, "\"%04d-%02d-%02dT%02d:%02d:%02d.%03dZ\"", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
             (int)(wall_ms % 1000));
}

void event_record_json(const struct event_record *record, struct text *out)
{
    const char *owner = record->bytes + record->name_len, *reason = owner + record->owner_len;

    text_str(out, "{\"id\": ");
    text_int(out, record->id);
    add_key(out, "time");
    add_time(out, record->wall_ms);
    add_string(out, "event", words[record->kind], strlen(words[record->kind]));
    add_string(out, "name", record->bytes, record->name_len);
    if (record->token > 0)
        add_number(out, "token", record->token);
    add_string(out, "owner", owner, record->owner_len);
    add_string(out, "lease", record->lease, record->lease_len);
    if (record->waited_ms >= 0)
        add_number(out, "waited_ms", record->waited_ms);
    if (record->held_ms >= 0)
        add_number(out, "held_ms", record->held_ms);
    add_string(out, "reason", reason, record->reason_len);
    text_str(out, "}");
}

const char *event_record_frame(struct event_record *record, size_t *ret_len)
{
    struct text *t = &record->frame;

    if (!t->at) {
        text_init(t, NULL, 0, EVENT_BYTES_MAX);
        text_str(t, "id: ");
        text_int(t, record->id);
        text_str(t, "\nevent: ");
        text_str(t, words[record->kind]);
        text_str(t, "\ndata: ");
        event_record_json(record, t);
        text_str(t, "\n\n");
        if (t->failed) {
            drop_frame(record);
            return NULL;
        }
    }
    *ret_len = t->len;
    return t->at;
}
