/* Who watches the events as they happen: one open reply each (http.h), fed from the ring.
 *
 * A stream is a place in the ring and a filter; it has no buffer of its own. So a thousand streams cost next to no memory, one that reads slowly costs no
 * more than one that doesn't, and what they are sent is made once for all of them.
 *
 * Events are sent in passes, several at a time, and passes get a sixteenth of the node's time at most: locks go first. Under more events than that can carry,
 * streams are told `missed` and go on with the newest. A stream whose client does not read, until the ring has gone round, is told why and ended.
 */
#ifndef PAWL_EVENT_STREAMS_H
#define PAWL_EVENT_STREAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/access.h"
#include "daemon/clock.h"
#include "daemon/event_ring.h"
#include "daemon/http.h"
#include "daemon/metrics.h"
#include "proto/errors.h"

struct event_streams;

struct event_streams_host {
    void *arg;
    void (*alarm)(void *arg, int64_t at_us); /* call event_streams_tick at or after this. Replaces the time set before. */
};

struct event_filter { /* empty ones let everything through; any that isn't leaves out what is about the store */
    const char *name; /* of exactly this lock */
    size_t name_len;
    const char *prefix; /* of locks whose names begin so */
    size_t prefix_len;
    const struct access_rule *rule; /* of locks that it may read, and all that is about the store; NULL: there are no rules */
    struct access *rules;           /* whose it is */
};

bool event_filter_passes(const struct event_filter *filter, const struct event_record *record);

/* All pointers must outlive it. At most `most` streams are open at a time. NULL without memory. */
struct event_streams *event_streams_new(const struct clock *clock, struct event_ring *ring, struct metrics *metrics, size_t most,
                                        const struct event_streams_host *host);
void event_streams_free(struct event_streams *s); /* when the front is gone, and every stream with it; takes NULL */

/* Opens a stream over this exchange that begins with place `from` of the ring. `missed`: events that were asked for are not there any more, and it is told.
 * PAWL_OK: the exchange is the stream's, and may be over already. Otherwise nothing was sent and the error is for the caller to answer. */
enum pawl_error event_streams_open(struct event_streams *s, struct http_exchange *x, const struct event_filter *filter, uint64_t from,
                                   bool missed);

void event_streams_news(struct event_streams *s); /* the ring has more; cheap */
void event_streams_tick(struct event_streams *s);

/* Tells every stream `end` with this reason (one word) and closes it; none is opened after a drain. */
void event_streams_end(struct event_streams *s, const char *reason);
void event_streams_drain(struct event_streams *s);

size_t event_streams_count(const struct event_streams *s);

#endif
