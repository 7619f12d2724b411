/* The last events of a node: bounded, in order, with ids that rise whatever the clock does, and never more of a lease id than may be shown (P9). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "daemon/event_ring.h"
#include "proto/limits.h"

#define START_US INT64_C(1795975274759777)
#define PLACES   4

static struct event_ring *ring;

static void start(void)
{
    ring = event_ring_new(PLACES, START_US);
    ck_assert_ptr_nonnull(ring);
}

static void stop(void)
{
    event_ring_free(ring);
}

static void put_text(enum lease_event_kind kind, const char *name, const char *owner, const char *reason, int64_t wall_us)
{
    struct lease_event event = {.kind = kind,
                                .name = name,
                                .name_len = strlen(name),
                                .owner = owner,
                                .owner_len = strlen(owner),
                                .reason = reason,
                                .reason_len = strlen(reason),
                                .lease_id = "8d0cabcd-6769-4aab-b086-8ada45fcfc44",
                                .token = 7,
                                .waited_ms = -1,
                                .held_ms = -1};

    ck_assert_int_eq(event_ring_put(ring, &event, wall_us), 0);
}

static void put(const char *name, int64_t wall_us)
{
    put_text(EVENT_GRANT, name, "", "", wall_us);
}

static const char *name_at(uint64_t n)
{
    static char text[PAWL_NAME_MAX + 1];
    size_t len;
    const char *name = event_record_name(event_ring_at(ring, n), &len);

    snprintf(text, sizeof(text), "%.*s", (int)len, name);
    return text;
}

static int64_t id_at(uint64_t n)
{
    return event_record_id(event_ring_at(ring, n));
}

START_TEST(empty)
{
    ck_assert_uint_eq(event_ring_first(ring), event_ring_end(ring));
    ck_assert_int_eq(event_ring_last_id(ring), START_US);
    ck_assert_uint_eq(event_ring_seek(ring, 0), event_ring_end(ring));
    ck_assert(!event_ring_missed(ring, START_US));
    ck_assert(event_ring_missed(ring, START_US - 1)); /* another process may have had some */
}
END_TEST

START_TEST(the_last_ones_are_kept)
{
    for (int i = 0; i < 10; i++) {
        char name[32];
        snprintf(name, sizeof(name), "lock-%d%s", i, i % 2 ? "" : "-long"); /* so that places change their size */
        put(name, START_US + 1000 * (i + 1));
    }
    ck_assert_uint_eq(event_ring_end(ring), 10);
    ck_assert_uint_eq(event_ring_first(ring), 10 - PLACES);
    ck_assert_str_eq(name_at(6), "lock-6-long");
    ck_assert_str_eq(name_at(9), "lock-9");
    ck_assert(event_ring_missed(ring, START_US + 5999));
    ck_assert(!event_ring_missed(ring, START_US + 6000)); /* the sixth was dropped, and is not asked for */
}
END_TEST

START_TEST(ids_are_times_and_rise_when_the_clock_does_not)
{
    put("a", START_US + 50);
    put("b", START_US + 50);
    put("c", START_US - 9000000);
    put("d", START_US + 70);
    ck_assert_int_eq(id_at(0), START_US + 50);
    ck_assert_int_eq(id_at(1), START_US + 51);
    ck_assert_int_eq(id_at(2), START_US + 52);
    ck_assert_int_eq(id_at(3), START_US + 70);
    ck_assert_int_eq(event_ring_last_id(ring), START_US + 70);
}
END_TEST

START_TEST(seek_finds_what_comes_after_an_id)
{
    for (int i = 0; i < 6; i++)
        put("x", START_US + 10 * (i + 1));
    ck_assert_uint_eq(event_ring_seek(ring, 0), 2);
    ck_assert_uint_eq(event_ring_seek(ring, START_US + 29), 2);
    ck_assert_uint_eq(event_ring_seek(ring, START_US + 30), 3);
    ck_assert_uint_eq(event_ring_seek(ring, START_US + 59), 5);
    ck_assert_uint_eq(event_ring_seek(ring, START_US + 60), 6);
    ck_assert_uint_eq(event_ring_seek(ring, INT64_MAX), 6);
}
END_TEST

static void json_is(uint64_t n, const char *wanted)
{
    char block[1024];
    struct text t;

    text_init(&t, block, sizeof(block), sizeof(block));
    event_record_json(event_ring_at(ring, n), &t);
    ck_assert(!t.failed);
    ck_assert_int_eq((int)t.len, (int)strlen(wanted));
    ck_assert_mem_eq(t.at, wanted, t.len);
    text_close(&t);
}

START_TEST(as_json)
{
    struct lease_event grant = {.kind = EVENT_GRANT,
                                .name = "deploy",
                                .name_len = 6,
                                .owner = "ci",
                                .owner_len = 2,
                                .lease_id = "8d0cabcd-6769-4aab-b086-8ada45fcfc44",
                                .token = 1795975274759777,
                                .waited_ms = 0,
                                .held_ms = -1};
    struct lease_event away = {.kind = EVENT_DETACHED, .waited_ms = -1, .held_ms = -1};

    ck_assert_int_eq(event_ring_put(ring, &grant, START_US + 1), 0);
    ck_assert_int_eq(event_ring_put(ring, &away, START_US + 2), 0);
    put_text(EVENT_BREAK, "deploy", "", "node \"7\"\n\xff", START_US + 3);
    json_is(0, "{\"id\": 1795975274759778, \"time\": \"2026-11-29T18:01:14.759Z\", \"event\": \"grant\", \"name\": \"deploy\", "
               "\"token\": 1795975274759777, \"owner\": \"ci\", \"lease\": \"8d0cabcd\", \"waited_ms\": 0}");
    json_is(1, "{\"id\": 1795975274759779, \"time\": \"2026-11-29T18:01:14.759Z\", \"event\": \"detached\"}");
    json_is(2,
            "{\"id\": 1795975274759780, \"time\": \"2026-11-29T18:01:14.759Z\", \"event\": \"break\", \"name\": \"deploy\", \"token\": 7, "
            "\"lease\": \"8d0cabcd\", \"reason\": \"node \\\"7\\\"\\n\xef\xbf\xbd\"}");
}
END_TEST

START_TEST(a_frame_is_made_once)
{
    const char *frame,
        *wanted = "id: 1795975274759778\nevent: expire\ndata: {\"id\": 1795975274759778, \"time\": "
                  "\"2026-11-29T18:01:14.759Z\", \"event\": \"expire\", \"name\": \"x\", \"token\": 7, \"lease\": \"8d0cabcd\"}\n\n";
    size_t len;

    put_text(EVENT_EXPIRE, "x", "", "", START_US + 1);
    frame = event_record_frame(event_ring_at(ring, 0), &len);
    ck_assert_ptr_nonnull(frame);
    ck_assert_uint_eq(len, strlen(wanted));
    ck_assert_mem_eq(frame, wanted, len);
    ck_assert_ptr_eq(frame, event_record_frame(event_ring_at(ring, 0), &len));
    for (int i = 0; i < PLACES; i++) /* its place is taken by another, whose frame is its own */
        put_text(EVENT_RELEASE, "x", "", "", START_US + 10 + i);
    frame = event_record_frame(event_ring_at(ring, 4), &len);
    ck_assert_ptr_nonnull(memmem(frame, len, "release", 7));
}
END_TEST

START_TEST(the_longest_fits)
{
    char name[PAWL_NAME_MAX + 1], owner[PAWL_OWNER_MAX + 1], reason[PAWL_REASON_MAX + 1];
    size_t len;

    memset(name, 'n', sizeof(name));
    memset(owner, '\x01', sizeof(owner)); /* six bytes each; what stands in a store may be anything */
    memset(reason, '"', sizeof(reason));
    name[PAWL_NAME_MAX] = owner[PAWL_OWNER_MAX] = reason[PAWL_REASON_MAX] = '\0';
    put_text(EVENT_BREAK, name, owner, reason, START_US + 1);
    ck_assert_ptr_nonnull(event_record_frame(event_ring_at(ring, 0), &len));
    ck_assert_uint_lt(len, EVENT_BYTES_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("event_ring");
    TCase *tc = tcase_create("ring");

    tcase_add_checked_fixture(tc, start, stop);
    tcase_add_test(tc, empty);
    tcase_add_test(tc, the_last_ones_are_kept);
    tcase_add_test(tc, ids_are_times_and_rise_when_the_clock_does_not);
    tcase_add_test(tc, seek_finds_what_comes_after_an_id);
    tcase_add_test(tc, as_json);
    tcase_add_test(tc, a_frame_is_made_once);
    tcase_add_test(tc, the_longest_fits);
    suite_add_tcase(suite, tc);
    return check_main(suite);
}
