/* Hexadecimal digits, of either case. */
#ifndef PAWL_HEX_H
#define PAWL_HEX_H

/* 0 to 15, or -1. */
static inline int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

#endif
