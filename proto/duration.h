/* Durations as a person types them: "500ms", "30s", "5m", "12h", "7d"; a whole number and one unit, nothing else.
 * (In JSON they are whole milliseconds and never come here.) Pure. */
#ifndef PAWL_DURATION_H
#define PAWL_DURATION_H

#include <stddef.h>
#include <stdint.h>

/* Reads all of text[0..len) as a duration. A bare "0" is allowed, since zero needs no unit. Returns 0 and sets *ret_ms (0 ..
 * INT64_MAX), or -1 when it is malformed or overflows; *ret_ms is untouched then. */
int duration_parse(const char *text, size_t len, int64_t *ret_ms);

/* Why duration_parse refuses text, as a static sentence that fits after "ttl: "; NULL when it doesn't. */
const char *duration_problem(const char *text, size_t len);

/* Writes the shortest exact spelling ("30s", "1500ms") into out (at least 24 bytes) and returns out. */
char *duration_format(int64_t ms, char *out, size_t cap);

#endif
