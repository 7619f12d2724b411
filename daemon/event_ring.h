/* The last events of this node: a ring of a fixed number of places, each with one record.
 *
 * A record has a place number, which counts up by one, and an id, which is what clients see: the time in microseconds, or one more than the last where that
 * would not rise. So ids rise through restarts too, as long as the clock does, and one that was read at another node still means a time.
 *
 * What this is: memory, bounded by the number of places (a record has at most EVENT_BYTES_MAX, and usually 150). What it is not: it knows neither who reads
 * (event_streams) nor what the words mean to whom. No I/O, no clock: the time of day comes from the caller.
 */
#ifndef PAWL_EVENT_RING_H
#define PAWL_EVENT_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/lease_event.h"
#include "proto/text.h"

#define EVENT_BYTES_MAX 4096 /* of one record in each of its two forms */

struct event_ring;
struct event_record;

/* `wall_us`: the time of day. Ids begin behind it. NULL without memory. */
struct event_ring *event_ring_new(size_t places, int64_t wall_us);
void event_ring_free(struct event_ring *ring); /* takes NULL */

/* Keeps it, in place of the oldest once all places are taken. Returns 0, or -1 without memory: the event is missing then, and its number is too. */
int event_ring_put(struct event_ring *ring, const struct lease_event *event, int64_t wall_us);

/* Places that hold a record: first <= n < end. Numbers are never used again. */
uint64_t event_ring_first(const struct event_ring *ring);
uint64_t event_ring_end(const struct event_ring *ring);

/* The first place whose record has a greater id than `id`; the end when there is none. */
uint64_t event_ring_seek(const struct event_ring *ring, int64_t id);
/* Have events with a greater id than `id` been here that are not any more? Also when the ring is younger than that. */
bool event_ring_missed(const struct event_ring *ring, int64_t id);
int64_t event_ring_last_id(const struct event_ring *ring); /* the greatest given so far; one before all others when there is none */

/* The record of a place between first and end; valid until the next put. */
struct event_record *event_ring_at(struct event_ring *ring, uint64_t n);

int64_t event_record_id(const struct event_record *record);
const char *event_record_name(const struct event_record *record, size_t *ret_len); /* length 0: it is about the store */

/* {"id": ..., "time": "...", "event": "grant", ...} */
void event_record_json(const struct event_record *record, struct text *out);

/* As one server-sent event: id, event, data and an empty line. Made once, when first asked for, and kept with the record: everybody is sent the same bytes.
 * NULL without memory. */
const char *event_record_frame(struct event_record *record, size_t *ret_len);

const char *event_kind_word(enum lease_event_kind kind);

#endif
