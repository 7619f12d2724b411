/* Lock names, list prefixes and percent-decoding.
 *
 * One table says which bytes may stand in a name; one walk over the segments says the rest. The walk is shared by names and prefixes:
 * a prefix is refused when no name can begin with it, since a listing that can only be empty is a typo that looks like good news.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "proto/lock_name.h"

#include <limits.h>
#include <string.h>

#include "proto/hex.h"

#define TO_STRING_(x) #x
#define TO_STRING(x)  TO_STRING_(x)

static const char too_long[] = "must be at most " TO_STRING(PAWL_NAME_MAX) " bytes";
static const char bad_byte[] = "may hold only the characters A-Z a-z 0-9 . _ - : @ + = , ~ /";
static const char bad_segment[] = "must not hold an empty, '.' or '..' segment, nor begin or end with '/'";

static bool is_name_byte(unsigned char c)
{
    static const bool allowed[256] = {
        ['0'] = 1, ['1'] = 1, ['2'] = 1, ['3'] = 1, ['4'] = 1, ['5'] = 1, ['6'] = 1, ['7'] = 1, ['8'] = 1, ['9'] = 1, ['A'] = 1, ['B'] = 1,
        ['C'] = 1, ['D'] = 1, ['E'] = 1, ['F'] = 1, ['G'] = 1, ['H'] = 1, ['I'] = 1, ['J'] = 1, ['K'] = 1, ['L'] = 1, ['M'] = 1, ['N'] = 1,
        ['O'] = 1, ['P'] = 1, ['Q'] = 1, ['R'] = 1, ['S'] = 1, ['T'] = 1, ['U'] = 1, ['V'] = 1, ['W'] = 1, ['X'] = 1, ['Y'] = 1, ['Z'] = 1,
        ['a'] = 1, ['b'] = 1, ['c'] = 1, ['d'] = 1, ['e'] = 1, ['f'] = 1, ['g'] = 1, ['h'] = 1, ['i'] = 1, ['j'] = 1, ['k'] = 1, ['l'] = 1,
        ['m'] = 1, ['n'] = 1, ['o'] = 1, ['p'] = 1, ['q'] = 1, ['r'] = 1, ['s'] = 1, ['t'] = 1, ['u'] = 1, ['v'] = 1, ['w'] = 1, ['x'] = 1,
        ['y'] = 1, ['z'] = 1, ['.'] = 1, ['_'] = 1, ['-'] = 1, [':'] = 1, ['@'] = 1, ['+'] = 1, ['='] = 1, [','] = 1, ['~'] = 1, ['/'] = 1,
    };

    return allowed[c];
}

static bool segment_is_fine(const char *at, size_t len)
{
    return !(len == 0 || (len == 1 && at[0] == '.') || (len == 2 && at[0] == '.' && at[1] == '.'));
}

/* `open`: the last segment may be anything, since more may follow it. */
static const char *problem_of(const char *name, size_t len, bool open)
{
    size_t start = 0;

    if (len > PAWL_NAME_MAX)
        return too_long;
    for (size_t i = 0; i < len; i++) {
        if (!is_name_byte((unsigned char)name[i]))
            return bad_byte;
        if (name[i] != '/')
            continue;
        if (!segment_is_fine(name + start, i - start))
            return bad_segment;
        start = i + 1;
    }
    return open || segment_is_fine(name + start, len - start) ? NULL : bad_segment;
}

const char *lock_name_problem(const char *name, size_t len)
{
    return len == 0 ? "must not be empty" : problem_of(name, len, false);
}

const char *lock_name_prefix_problem(const char *prefix, size_t len)
{
    return len == 0 ? NULL : problem_of(prefix, len, true);
}

int percent_decode(const char *raw, size_t len, char *out, size_t cap)
{
    size_t n = 0;

    if (cap == 0)
        return -1;
    for (size_t i = 0; i < len; i++) {
        char c = raw[i];

        if (c == '%') {
            int high = len - i > 2 ? hex_digit(raw[i + 1]) : -1;
            int low = len - i > 2 ? hex_digit(raw[i + 2]) : -1;

            if (high < 0 || low < 0)
                return -1;
            c = (char)(high * 16 + low);
            i += 2;
        }
        /* A NUL would cut the text for whoever reads it as a C string: "a%00b" must never become "a". */
        if (c == '\0' || n >= cap - 1 || n >= INT_MAX)
            return -1;
        out[n++] = c;
    }
    out[n] = '\0';
    return (int)n;
}
