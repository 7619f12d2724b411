/* Virtual time: events in a heap and one seeded stream of random numbers. A run is a function of its seed.
 *
 * Events of the same microsecond come in random order, so that every order of things that happen at once gets its turn. */
#ifndef PAWL_SIM_VIRTUAL_TIME_H
#define PAWL_SIM_VIRTUAL_TIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct virtual_event;

struct virtual_time {
    int64_t now_us;
    uint64_t random; /* state of the stream */
    uint64_t steps;  /* events run so far */
    struct virtual_event *events;
    size_t count, cap;
    bool trace; /* virtual_time_note tells */
};

void virtual_time_init(struct virtual_time *time, uint64_t seed);
void virtual_time_close(struct virtual_time *time); /* what is pending never happens */

/* Calls fn(arg, tag) at `at_us`, or now when that has passed; never from inside this call. */
void virtual_time_at(struct virtual_time *time, int64_t at_us, void (*fn)(void *arg, int64_t tag), void *arg, int64_t tag);
bool virtual_time_step(struct virtual_time *time); /* runs the next event; false: there is none */

uint64_t virtual_time_random(struct virtual_time *time);
int64_t virtual_time_between(struct virtual_time *time, int64_t low, int64_t high); /* both included */
bool virtual_time_chance(struct virtual_time *time, int64_t in_10000);
/* From low to high, each power of two as likely as the next: many short ones, a few long ones. */
int64_t virtual_time_spread(struct virtual_time *time, int64_t low, int64_t high);

void virtual_time_note(struct virtual_time *time, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* From now on the last `lines` notes are kept instead of printed, until they are told. */
void virtual_time_keep(size_t lines);
void virtual_time_tell_kept(void);

/* Memory for a test: ends the process when there is none. */
void *sim_alloc(size_t size);
void *sim_grow(void *at, size_t size);

#endif
