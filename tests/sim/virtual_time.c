#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/sim/virtual_time.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct virtual_event {
    int64_t at_us;
    uint64_t lot; /* order among those of one microsecond */
    void (*fn)(void *arg, int64_t tag);
    void *arg;
    int64_t tag;
};

void *sim_grow(void *at, size_t size)
{
    void *grown = realloc(at, size);

    if (!grown) {
        fprintf(stderr, "no memory for the simulation\n");
        exit(99);
    }
    return grown;
}

void *sim_alloc(size_t size)
{
    return memset(sim_grow(NULL, size), 0, size);
}

void virtual_time_init(struct virtual_time *time, uint64_t seed)
{
    memset(time, 0, sizeof(*time));
    time->now_us = 1000000;
    time->random = seed * 0x9e3779b97f4a7c15u + 0x1234567u;
}

void virtual_time_close(struct virtual_time *time)
{
    free(time->events);
    time->events = NULL;
    time->count = time->cap = 0;
}

static bool sooner(const struct virtual_event *a, const struct virtual_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->lot < b->lot;
}

void virtual_time_at(struct virtual_time *time, int64_t at_us, void (*fn)(void *arg, int64_t tag), void *arg, int64_t tag)
{
    struct virtual_event event = {at_us > time->now_us ? at_us : time->now_us, virtual_time_random(time), fn, arg, tag};
    size_t i;

    if (time->count == time->cap) {
        time->cap = time->cap ? 2 * time->cap : 256;
        time->events = sim_grow(time->events, time->cap * sizeof(event));
    }
    for (i = time->count++; i > 0 && sooner(&event, &time->events[(i - 1) / 2]); i = (i - 1) / 2)
        time->events[i] = time->events[(i - 1) / 2];
    time->events[i] = event;
}

bool virtual_time_step(struct virtual_time *time)
{
    struct virtual_event first, last;
    size_t i = 0;

    if (time->count == 0)
        return false;
    first = time->events[0];
    last = time->events[--time->count];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child + 1 < time->count && sooner(&time->events[child + 1], &time->events[child]))
            child++;
        if (child >= time->count || !sooner(&time->events[child], &last))
            break;
        time->events[i] = time->events[child];
        i = child;
    }
    time->events[i] = last;
    time->now_us = first.at_us;
    time->steps++;
    first.fn(first.arg, first.tag);
    return true;
}

uint64_t virtual_time_random(struct virtual_time *time)
{
    uint64_t z = time->random += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t virtual_time_between(struct virtual_time *time, int64_t low, int64_t high)
{
    return low + (int64_t)(virtual_time_random(time) % (uint64_t)(high - low + 1));
}

bool virtual_time_chance(struct virtual_time *time, int64_t in_10000)
{
    return virtual_time_between(time, 1, 10000) <= in_10000;
}

int64_t virtual_time_spread(struct virtual_time *time, int64_t low, int64_t high)
{
    int64_t top = low;
    int steps = 0;

    while (top < high) {
        top *= 2;
        steps++;
    }
    top = low << virtual_time_between(time, 0, steps);
    top = virtual_time_between(time, top / 2, top);
    return top < low ? low : top > high ? high : top;
}

#define NOTE_MAX 240

static struct {
    char (*lines)[NOTE_MAX];
    size_t cap, count;
} kept;

void virtual_time_keep(size_t lines)
{
    kept.lines = sim_alloc(lines * NOTE_MAX);
    kept.cap = lines;
    kept.count = 0;
}

void virtual_time_tell_kept(void)
{
    for (size_t i = kept.count > kept.cap ? kept.count - kept.cap : 0; i < kept.count; i++)
        puts(kept.lines[i % kept.cap]);
    free(kept.lines);
    kept.lines = NULL;
}

void virtual_time_note(struct virtual_time *time, const char *format, ...)
{
    char line[NOTE_MAX];
    va_list args;
    int len;

    if (!time->trace)
        return;
    len = snprintf(line, sizeof(line), "%11.6f  ", (double)time->now_us / 1e6);
    va_start(args, format);
    vsnprintf(line + len, sizeof(line) - (size_t)len, format, args);
    va_end(args);
    if (kept.lines)
        memcpy(kept.lines[kept.count++ % kept.cap], line, sizeof(line));
    else
        puts(line);
}
