/* The sentence with which something fails that a person is to read about: a start, a reload. Whoever asks lends the room for it. */
#ifndef PAWL_PROBLEM_H
#define PAWL_PROBLEM_H

#include <stddef.h>

/* Writes it into problem[0..cap), cut to fit. Always -1, so that whatever fails can end with it. */
int problem_say(char *problem, size_t cap, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
