/* Which of many lines are written: a flood is summed.
 *
 * For each event there is a window of one second that begins with a line. In it, the first LOG_FLOOD_LINES are written: a few equal lines are no flood, and
 * who caused each of them may be waiting to see it. What is left out is counted and told, as one sum for each event, when the window is over. Pure; memory is bounded: one slot an
 * event, and the name of an event is a constant of the program, of which there are fewer than slots.
 */
#ifndef PAWL_LOG_FLOOD_H
#define PAWL_LOG_FLOOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_FLOOD_SLOTS  128
#define LOG_FLOOD_LINES  100 /* of one event in a window */
#define LOG_FLOOD_RECENT 8   /* of which the last so many are known again */
#define LOG_FLOOD_US     1000000

struct log_flood_slot {
    const char *event; /* NULL: free */
    int64_t ends_us;
    int level;
    uint64_t left_out;
    unsigned written;
    uint64_t recent[LOG_FLOOD_RECENT];
};

struct log_flood { /* zero-initialise */
    struct log_flood_slot slots[LOG_FLOOD_SLOTS];
    size_t count;
    bool owes; /* something was left out and not told yet */
};

struct log_flood_sum {
    const char *event;
    int level;
    uint64_t lines;
};

/* Is this line to be written? `hash` stands for its whole text; with `all_unlike` only lines that equal a recent one are left out. When an earlier window of the event is over,
 * *ret_sum is what it left out (lines 0: nothing), to be told first. `event` must live for ever. */
bool log_flood_pass(struct log_flood *f, int64_t now_us, const char *event, int level, uint64_t hash, bool all_unlike,
                    struct log_flood_sum *ret_sum);

/* The next sum that is due; call until false. INT64_MAX: all there are. */
bool log_flood_settle(struct log_flood *f, int64_t now_us, struct log_flood_sum *ret_sum);

#endif
