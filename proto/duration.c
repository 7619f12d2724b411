/* Durations in words: the table of units, read one way by the parser and the other way by the formatter. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "proto/duration.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const struct unit {
    const char *name;
    int64_t ms;
} units[] = {
    {"d", INT64_C(86400000)}, {"h", INT64_C(3600000)}, {"m", INT64_C(60000)}, {"s", INT64_C(1000)}, {"ms", INT64_C(1)},
};
#define UNIT_COUNT (sizeof(units) / sizeof(units[0]))

static const char bad_form[] = "must be a whole number and a unit, such as 500ms, 30s, 5m, 12h or 7d";
static const char no_unit[] = "needs a unit: ms, s, m, h or d";
static const char negative[] = "must not be negative";
static const char out_of_range[] = "the number is out of range";

static const struct unit *find_unit(const char *at, size_t len)
{
    for (size_t i = 0; i < UNIT_COUNT; i++)
        if (strlen(units[i].name) == len && memcmp(units[i].name, at, len) == 0)
            return &units[i];
    return NULL;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* NULL and *ret_ms, or the problem. The form is judged before the size, so "99999999999999999999x" is called malformed, not too big. */
static const char *read_duration(const char *text, size_t len, int64_t *ret_ms)
{
    const struct unit *unit;
    int64_t n = 0;
    bool overflow = false;
    size_t i;

    for (i = 0; i < len && is_digit(text[i]); i++)
        overflow = overflow || __builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, text[i] - '0', &n);
    if (i == 0)
        return len > 1 && text[0] == '-' && is_digit(text[1]) ? negative : bad_form;
    if (i == len) {
        if (len != 1 || n != 0)
            return no_unit;
        *ret_ms = 0;
        return NULL;
    }
    unit = find_unit(text + i, len - i);
    if (!unit)
        return bad_form;
    if (overflow || __builtin_mul_overflow(n, unit->ms, &n))
        return out_of_range;
    *ret_ms = n;
    return NULL;
}

int duration_parse(const char *text, size_t len, int64_t *ret_ms)
{
    return read_duration(text, len, ret_ms) ? -1 : 0;
}

const char *duration_problem(const char *text, size_t len)
{
    int64_t ms;

    return read_duration(text, len, &ms);
}

char *duration_format(int64_t ms, char *out, size_t cap)
{
    size_t i = 0;

    if (ms == 0) {
        snprintf(out, cap, "0");
        return out;
    }
    while (ms % units[i].ms != 0) /* ends at the latest at 1 ms */
        i++;
    snprintf(out, cap, "%" PRId64 "%s", ms / units[i].ms, units[i].name);
    return out;
}
