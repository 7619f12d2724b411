/* UTF-8, strictly: no overlong forms, no surrogates, nothing above U+10FFFF. Pure. */
#ifndef PAWL_UTF8_H
#define PAWL_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many bytes the well-formed sequence at the start of bytes[0..len) has (1 .. 4), and its code point in *ret_code; 0 when there is
 * none (then *ret_code is untouched). */
size_t utf8_sequence(const char *bytes, size_t len, uint32_t *ret_code);

/* C0, DEL and C1: what moves a cursor or forges a line. */
static inline bool utf8_is_control(uint32_t code)
{
    return code < 0x20 || (code >= 0x7f && code <= 0x9f);
}

#endif
