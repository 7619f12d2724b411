/* UTF-8, one sequence at a time. Shared by the reader of labels (which refuses bad bytes) and the writer of JSON (which replaces them). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "proto/utf8.h"

/* What a lead byte promises: how many bytes, which of its own bits count, and the least code point that needs that many. */
static size_t lead(unsigned char c, uint32_t *ret_bits, uint32_t *ret_least)
{
    if (c >= 0xc2 && c <= 0xdf) {
        *ret_bits = c & 0x1fu;
        *ret_least = 0x80;
        return 2;
    }
    if (c >= 0xe0 && c <= 0xef) {
        *ret_bits = c & 0x0fu;
        *ret_least = 0x800;
        return 3;
    }
    if (c >= 0xf0 && c <= 0xf4) {
        *ret_bits = c & 0x07u;
        *ret_least = 0x10000;
        return 4;
    }
    return 0;
}

size_t utf8_sequence(const char *bytes, size_t len, uint32_t *ret_code)
{
    uint32_t code, least;
    size_t need;

    if (len == 0)
        return 0;
    if ((unsigned char)bytes[0] < 0x80) {
        *ret_code = (unsigned char)bytes[0];
        return 1;
    }
    need = lead((unsigned char)bytes[0], &code, &least);
    if (need == 0 || need > len)
        return 0;
    for (size_t i = 1; i < need; i++) {
        unsigned char c = (unsigned char)bytes[i];

        if ((c & 0xc0u) != 0x80u)
            return 0;
        code = code << 6 | (c & 0x3fu);
    }
    if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
        return 0;
    *ret_code = code;
    return need;
}
