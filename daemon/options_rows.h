/* The rows of the options, for options.c and its like alone: others see struct options. A row says how an option is called, read, bounded and shown; this
 * module knows values and names one at a time, options.c knows where they come from and which of them counts. */
#ifndef PAWL_OPTIONS_ROWS_H
#define PAWL_OPTIONS_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/options.h"

#define OPTION_PREFIX    "PAWL_"
#define OPTION_KEY_MAX   32                                       /* no key is longer */
#define OPTION_NAME_CAP  (OPTION_KEY_MAX + sizeof(OPTION_PREFIX)) /* room for a key in any of its three spellings */
#define OPTION_VALUE_MAX 2048

enum option_kind {
    OPTION_BOOL,     /* bool */
    OPTION_DURATION, /* int64_t, milliseconds */
    OPTION_COUNT,    /* int64_t */
    OPTION_CHOICE,   /* an enum as wide as unsigned */
    OPTION_STRING,   /* char *, NULL or owned */
    OPTION_URL,      /* the same */
    OPTION_LIST,     /* char *[list_max] and a size_t */
};

struct option_choice { /* a list of them ends with a NULL */
    const char *name;
    unsigned value;
};

struct option_row {
    const char *key;
    enum option_kind kind;
    size_t at;       /* of the field in struct options */
    size_t count_at; /* OPTION_LIST: of its count */
    size_t list_max;
    int64_t min, max;     /* OPTION_DURATION (milliseconds), OPTION_COUNT */
    const char *fallback; /* the default as somebody would type it; NULL: none */
    const struct option_choice *choices;
    const char *(*check)(const char *value); /* OPTION_STRING, OPTION_LIST: NULL or a static sentence */
    bool secret;                             /* a password, or a URL that may hold one: masked when shown, overwritten where it came from */
    bool not_in_file;
    const char *what; /* how help calls the value; NULL: it has none */
    const char *help;
};

#define OPTION_ROW_COUNT 42
extern const struct option_row option_rows[OPTION_ROW_COUNT];

/* Flags that are no options: what to do instead of serving. */
struct option_action {
    const char *key;
    enum options_action action;
    const char *help;
};
#define OPTION_ACTION_COUNT 3
extern const struct option_action option_actions[OPTION_ACTION_COUNT];

/* The field of *o at a row's `at` or `count_at`. */
void *option_field(const struct options *o, size_t at);

/* NULL when key[0..len) is no row's key. */
const struct option_row *option_find(const char *key, size_t len);

/* The name of a key in the environment: "PAWL_LOG_LEVEL". */
void option_variable(const char *key, char *out, size_t cap);

/* The key that looks most like what was typed (in any of the three spellings), or NULL when none looks much like it. */
const char *option_nearest(const char *typed, size_t len, bool with_actions);

/* NULL when `value` is good for the row, and *ret its number for the kinds that have one; else a sentence, which is static or in why[0..cap) and does not
 * repeat the value. */
const char *option_read(const struct option_row *row, const char *value, int64_t *ret, char *why, size_t cap);

#endif
