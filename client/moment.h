/* Time as libpawl counts it, waiting for a point in it, and the randomness that keeps clients apart. No state. */
#ifndef PAWL_MOMENT_H
#define PAWL_MOMENT_H

#include <stdbool.h>
#include <stdint.h>

#define MOMENT_MAX INT64_MAX /* never */

/* CLOCK_BOOTTIME in microseconds: it goes on while the machine is suspended, as leases in Redis do. */
int64_t moment_now_us(void);

/* at + ms, without passing MOMENT_MAX. */
int64_t moment_after(int64_t at_us, int64_t ms);

/* A timerfd of that clock, close-on-exec and non-blocking; -1 with errno. moment_set lets it become readable at at_us (MOMENT_MAX: never). */
int moment_timer(void);
void moment_set(int timer, int64_t at_us);

/* Waits until at_us or until one of two descriptors (-1: none) is readable. `timer` comes from moment_timer(). Returns true when it was a
 * descriptor. */
bool moment_pause(int timer, int64_t at_us, int fd_a, int fd_b);

/* 0 .. below - 1, from the kernel; below >= 1. */
int64_t moment_random(int64_t below);

/* How long to wait after the nth failure in a row (from 1): doubling from first_ms to cap_ms, of which a random part between the half and
 * the whole is taken. */
int64_t moment_back_off_ms(unsigned failures, int64_t first_ms, int64_t cap_ms);

#endif
