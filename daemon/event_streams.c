/* Two lists: streams that can take more (READY, in the order of their last turn) and those whose last bytes the kernel has not taken yet (FULL).
 *
 *      open ──► READY ── send took not all ──► FULL ── http: room ──► READY
 *                 │                              │
 *                 └── gone, end, failed ─────────┴── gone, end, overtaken ──► freed
 *
 * A pass gives each READY stream one turn: at most TURN_BYTES of events. It works in slices of SLICE_US, each followed by a rest of REST times what it took;
 * a new pass begins PASS_US after the last began, so that events gather and leave in one write. Nothing is armed while there is nothing to send, but for the
 * heartbeat: a comment to whoever has heard nothing for a while, so that proxies keep the connection and both sides notice when it is dead.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/event_streams.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "daemon/log.h"
#include "daemon/prefix_set.h"

#define SLICE_US       2000
#define REST           15
#define PASS_US        100000
#define PULSE_US       1000000  /* how often it is looked who needs a heartbeat, or was overtaken */
#define HEARTBEAT_US   15000000 /* of silence */
#define TURN_BYTES     ((size_t)16 * 1024)
#define TURN_PARTS     64
#define TURN_LOOKS     4096 /* records that a filter may pass over in one turn */
#define NOTE_BYTES_MAX 160

struct event_stream {
    TAILQ_ENTRY(event_stream) link;
    struct event_streams *set;
    struct http_exchange *x;
    uint64_t next; /* place in the ring */
    int64_t sent_us;
    bool full;
    struct event_filter filter;
    char bytes[]; /* of the filter */
};

TAILQ_HEAD(stream_list, event_stream);

struct event_streams {
    const struct clock *clock;
    struct event_ring *ring;
    struct metrics *metrics;
    struct event_streams_host host;
    size_t most, count;
    struct stream_list ready, full;
    size_t turns_left;                  /* of the pass that is under way */
    int64_t pass_us, rest_us, pulse_us; /* the next of each may come then */
    int64_t alarm_us;
    bool draining;
    struct log_gate slow_gate;
};

/* ---- filters ---- */

bool event_filter_passes(const struct event_filter *filter, const struct event_record *record)
{
    size_t len;
    const char *name = event_record_name(record, &len);

    if (filter->name_len > 0 && (len != filter->name_len || memcmp(name, filter->name, len) != 0))
        return false;
    if (!prefix_begins(filter->prefix, filter->prefix_len, name, len))
        return false;
    return !filter->rule || len == 0 || access_allows(filter->rule, ACCESS_READ, name, len);
}

/* ---- the set ---- */

struct event_streams *event_streams_new(const struct clock *clock, struct event_ring *ring, struct metrics *metrics, size_t most,
                                        const struct event_streams_host *host)
{
    struct event_streams *s = calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    s->clock = clock;
    s->ring = ring;
    s->metrics = metrics;
    s->most = most;
    s->host = *host;
    s->alarm_us = INT64_MAX;
    TAILQ_INIT(&s->ready);
    TAILQ_INIT(&s->full);
    return s;
}

void event_streams_free(struct event_streams *s)
{
    free(s);
}

size_t event_streams_count(const struct event_streams *s)
{
    return s->count;
}

static void arm(struct event_streams *s, int64_t at_us)
{
    if (at_us >= s->alarm_us)
        return;
    s->alarm_us = at_us;
    s->host.alarm(s->host.arg, at_us);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* ---- one stream ---- */

static void forget(struct event_stream *stream)
{
    struct event_streams *s = stream->set;

    TAILQ_REMOVE(stream->full ? &s->full : &s->ready, stream, link);
    s->count--;
    access_release(stream->filter.rules);
    free(stream);
}

static void set_full(struct event_stream *stream, bool full)
{
    struct event_streams *s = stream->set;

    TAILQ_REMOVE(stream->full ? &s->full : &s->ready, stream, link);
    stream->full = full;
    TAILQ_INSERT_TAIL(full ? &s->full : &s->ready, stream, link);
}

/* Hands the parts over. False: the client has gone and the stream with it. */
static bool send_parts(struct event_stream *stream, const struct iovec *parts, int count)
{
    switch (http_stream_send(stream->x, parts, count)) {
    case HTTP_STREAM_GONE:
        forget(stream);
        return false;
    case HTTP_STREAM_FULL:
        if (!stream->full)
            set_full(stream, true);
        break;
    case HTTP_STREAM_OPEN:
        break;
    }
    stream->sent_us = clock_now_us(stream->set->clock);
    return true;
}

static bool send_text(struct event_stream *stream, const char *text)
{
    const struct iovec part = {(char *)(uintptr_t)text, strlen(text)};

    return send_parts(stream, &part, 1);
}

static void end(struct event_stream *stream, const char *reason)
{
    char note[NOTE_BYTES_MAX];
    struct http_exchange *x = stream->x;

    snprintf(note, sizeof(note), "event: end\ndata: {\"reason\": \"%s\"}\n\n", reason);
    if (!send_text(stream, note))
        return;
    forget(stream);
    http_stream_end(x);
}

/* The ring went round faster than this one was served: with its client's reading it has nothing to do. */
static bool tell_missed(struct event_stream *stream)
{
    char note[NOTE_BYTES_MAX];

    snprintf(note, sizeof(note), "event: missed\ndata: {\"last\": %" PRId64 "}\n\n", event_ring_last_id(stream->set->ring));
    stream->next = event_ring_end(stream->set->ring);
    return send_text(stream, note);
}

/* The frames from its place on that pass its filter, as far as one turn goes; moves the place. */
static int gather(struct event_stream *stream, struct iovec *parts)
{
    struct event_ring *ring = stream->set->ring;
    const uint64_t ring_end = event_ring_end(ring);
    size_t bytes = 0;
    int count = 0;

    for (int looks = 0; stream->next < ring_end && looks < TURN_LOOKS && count < TURN_PARTS && bytes < TURN_BYTES; looks++) {
        struct event_record *record = event_ring_at(ring, stream->next++);
        size_t len;
        const char *frame = event_filter_passes(&stream->filter, record) ? event_record_frame(record, &len) : NULL;

        if (!frame)
            continue;
        parts[count++] = (struct iovec){(char *)(uintptr_t)frame, len};
        bytes += len;
    }
    return count;
}

static void take_turn(struct event_stream *stream)
{
    struct iovec parts[TURN_PARTS];
    int count;

    if (stream->next < event_ring_first(stream->set->ring)) {
        (void)tell_missed(stream);
        return;
    }
    count = gather(stream, parts);
    if (count > 0)
        (void)send_parts(stream, parts, count);
}

static bool has_more(const struct event_streams *s, const struct event_stream *stream)
{
    return stream->next < event_ring_end(s->ring);
}

/* ---- passes ---- */

static void begin_pass(struct event_streams *s, int64_t now)
{
    s->turns_left = s->count;
    s->pass_us = now + PASS_US;
}

/* Turns until the slice is over. Each stream is last in the list before it has its turn, which may free it. */
static void work(struct event_streams *s, int64_t began_us)
{
    int64_t now = began_us;
    struct event_stream *stream;

    while (s->turns_left > 0 && now - began_us < SLICE_US && (stream = TAILQ_FIRST(&s->ready)) != NULL) {
        s->turns_left--;
        TAILQ_REMOVE(&s->ready, stream, link);
        TAILQ_INSERT_TAIL(&s->ready, stream, link);
        if (!has_more(s, stream))
            continue;
        take_turn(stream);
        now = clock_now_us(s->clock);
    }
    if (TAILQ_EMPTY(&s->ready))
        s->turns_left = 0;
    s->rest_us = now + REST * (now - began_us);
}

static bool owes_any(const struct event_streams *s)
{
    const struct event_stream *stream;

    TAILQ_FOREACH(stream, &s->ready, link)
    {
        if (has_more(s, stream))
            return true;
    }
    return false;
}

static void drop_slow(struct event_streams *s, int64_t now, struct event_stream *stream)
{
    uint64_t left_out;

    metrics_add(s->metrics, METRIC_STREAMS_DROPPED, 1);
    if (log_gate_pass(&s->slow_gate, now, &left_out))
        log_info("event_stream_dropped", LOG_STR("peer", http_exchange_peer(stream->x)), LOG_STR("reason", "too_slow"),
                 LOG_INT("suppressed", left_out));
    end(stream, "too_slow");
}

static void pulse(struct event_streams *s, int64_t now)
{
    struct event_stream *stream, *next;

    for (stream = TAILQ_FIRST(&s->full); stream; stream = next) {
        next = TAILQ_NEXT(stream, link);
        if (stream->next < event_ring_first(s->ring))
            drop_slow(s, now, stream);
    }
    for (stream = TAILQ_FIRST(&s->ready); stream; stream = next) {
        next = TAILQ_NEXT(stream, link);
        if (now - stream->sent_us >= HEARTBEAT_US)
            (void)send_text(stream, ":\n\n");
    }
    s->pulse_us = now + PULSE_US;
}

static void arm_next(struct event_streams *s)
{
    if (s->count == 0)
        return;
    arm(s, s->pulse_us);
    if (s->turns_left > 0)
        arm(s, s->rest_us);
    else if (owes_any(s))
        arm(s, later(s->pass_us, s->rest_us));
}

void event_streams_tick(struct event_streams *s)
{
    int64_t now = clock_now_us(s->clock);

    s->alarm_us = INT64_MAX;
    if (now >= s->pulse_us)
        pulse(s, now);
    if (s->turns_left == 0 && now >= s->pass_us && now >= s->rest_us)
        begin_pass(s, now);
    if (s->turns_left > 0 && now >= s->rest_us)
        work(s, now);
    arm_next(s);
}

void event_streams_news(struct event_streams *s)
{
    if (s->count > 0 && s->turns_left == 0)
        arm(s, later(s->pass_us, s->rest_us));
}

/* ---- what the front tells ---- */

static void on_room(void *arg)
{
    struct event_stream *stream = arg;
    struct event_streams *s = stream->set;

    if (stream->full)
        set_full(stream, false);
    arm(s, later(s->pass_us, s->rest_us));
}

static void on_gone(void *arg)
{
    forget(arg);
}

static const struct http_stream_ops stream_ops = {.room = on_room, .gone = on_gone};

/* ---- opening and ending ---- */

static const char *keep_bytes(char **at, const char *from, size_t len)
{
    char *kept = *at;

    if (len > 0)
        memcpy(kept, from, len);
    *at += len;
    return kept;
}

static struct event_stream *stream_new(struct event_streams *s, struct http_exchange *x, const struct event_filter *filter, uint64_t from)
{
    struct event_stream *stream = calloc(1, sizeof(*stream) + filter->name_len + filter->prefix_len);
    char *at;

    if (!stream)
        return NULL;
    at = stream->bytes;
    stream->set = s;
    stream->x = x;
    stream->next = from;
    stream->sent_us = clock_now_us(s->clock);
    stream->filter = *filter;
    stream->filter.rules = filter->rules ? access_hold(filter->rules) : NULL;
    stream->filter.name = keep_bytes(&at, filter->name, filter->name_len);
    stream->filter.prefix = keep_bytes(&at, filter->prefix, filter->prefix_len);
    TAILQ_INSERT_TAIL(&s->ready, stream, link);
    s->count++;
    return stream;
}

enum pawl_error event_streams_open(struct event_streams *s, struct http_exchange *x, const struct event_filter *filter, uint64_t from,
                                   bool missed)
{
    static const struct http_response head = {
        .status = 200, .content_type = "text/event-stream", .extra_headers = "X-Accel-Buffering: no\r\n"};
    struct event_stream *stream;

    if (s->draining)
        return PAWL_E_DRAINING;
    if (s->count >= s->most)
        return PAWL_E_TOO_MANY_STREAMS;
    stream = stream_new(s, x, filter, from);
    if (!stream)
        return PAWL_E_STORE_UNAVAILABLE;
    if (!http_stream_begin(x, &head, &stream_ops, stream)) {
        forget(stream);
        return PAWL_OK;
    }
    if (!send_text(stream, missed ? "retry: 1000\n\nevent: missed\ndata: {}\n\n" : "retry: 1000\n\n"))
        return PAWL_OK;
    if (s->count == 1)
        s->pulse_us = clock_now_us(s->clock) + PULSE_US;
    arm_next(s);
    return PAWL_OK;
}

static void end_all(struct stream_list *list, const char *reason)
{
    struct event_stream *stream, *next;

    for (stream = TAILQ_FIRST(list); stream; stream = next) {
        next = TAILQ_NEXT(stream, link);
        end(stream, reason);
    }
}

void event_streams_end(struct event_streams *s, const char *reason)
{
    end_all(&s->full, reason);
    end_all(&s->ready, reason);
    s->turns_left = 0;
}

void event_streams_drain(struct event_streams *s)
{
    s->draining = true;
    event_streams_end(s, "draining");
}
