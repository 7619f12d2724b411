/* A growing piece of text, and JSON written into it.
 *
 * The caller lends a first block (usually on its stack); text moves to the heap only when it outgrows that. An allocation failure or
 * passing `max` sets `failed` and every later append does nothing, so callers check once, at the end. Not thread-safe.
 */
#ifndef PAWL_TEXT_H
#define PAWL_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
    char *at; /* not NUL-terminated */
    size_t len;
    size_t cap;
    size_t max; /* never grows beyond this many bytes */
    bool heap;  /* `at` is owned and freed by text_close */
    bool failed;
};

void text_init(struct text *t, char *block, size_t cap, size_t max);
void text_close(struct text *t);

void text_add(struct text *t, const char *bytes, size_t len);
void text_str(struct text *t, const char *s); /* literal bytes of a C string */
void text_int(struct text *t, int64_t n);     /* decimal */
void text_fmt(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, so the result is always valid JSON (data read back from a
 * store may hold anything). */
void text_json_string(struct text *t, const char *bytes, size_t len);

#endif
