/* The parameters of every call.
 *
 *     json_members() ─┐                    ┌─ known? allowed? first time? ─► the reader of its type ─► struct params
 *                     ├─► struct value ──► │
 *     query pairs ────┘                    └─ else a problem that begins with the key
 *
 * Both forms meet in take(), so a rule can't hold in one and not in the other. What differs by nature is in the readers: a number is
 * an integer in JSON and text in a query. To add a parameter: a row in params.h, a field in struct params, and a case where its type's
 * reader finds that field. Values are never repeated in a message: one of them is a secret.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "proto/params.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/duration.h"
#include "proto/json.h"
#include "proto/lock_name.h"
#include "proto/utf8.h"

#define TO_STRING_(x) #x
#define TO_STRING(x)  TO_STRING_(x)

struct value {
    bool query;        /* text out of a query string, whatever its type is to be */
    enum json_tag tag; /* STRING in a query */
    int64_t integer;
    const char *text;
    size_t len;
};

struct reading {
    struct params *p;
    unsigned allowed;
    bool query;
    struct param_problem *problem;
};

/* ---- the readers: one a type; NULL, or a static sentence that fits after "ttl_ms: " ---- */

static const char out_of_range[] = "the number is out of range";

static const char *read_duration(struct params *p, enum param param, const struct value *v)
{
    int64_t *field = param == PARAM_TTL          ? &p->ttl_ms
                     : param == PARAM_LOCK_DELAY ? &p->lock_delay_ms
                     : param == PARAM_MAX_HOLD   ? &p->max_hold_ms
                                                 : &p->wait_ms;

    if (v->query)
        return duration_parse(v->text, v->len, field) ? duration_problem(v->text, v->len) : NULL;
    if (v->tag != JSON_TAG_INTEGER)
        return "must be a whole number of milliseconds";
    if (v->integer < 0)
        return "must not be negative";
    *field = v->integer;
    return NULL;
}

/* Digits and nothing else, as an unsigned 64-bit number. */
static const char *read_digits(const char *text, size_t len, uint64_t *ret)
{
    uint64_t n = 0;
    bool overflow = false;

    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return "must be a whole number";
        overflow = overflow || __builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, (unsigned)(text[i] - '0'), &n);
    }
    if (len == 0)
        return "must be a whole number";
    if (overflow)
        return out_of_range;
    *ret = n;
    return NULL;
}

static const char *read_number(const struct value *v, int64_t min, int64_t max, const char *bounds, int64_t *ret)
{
    const char *problem;
    uint64_t n;

    if (!v->query) {
        if (v->tag != JSON_TAG_INTEGER)
            return "must be a whole number";
        if (v->integer < min || v->integer > max)
            return bounds;
        *ret = v->integer;
        return NULL;
    }
    problem = read_digits(v->text, v->len, &n);
    if (problem)
        return problem;
    if (n < (uint64_t)min || n > (uint64_t)max)
        return bounds;
    *ret = (int64_t)n;
    return NULL;
}

static const char *read_token(struct params *p, enum param param, const struct value *v)
{
    (void)param;
    return read_number(v, 1, PAWL_TOKEN_MAX, "must be from 1 to 9007199254740991", &p->token);
}

static const char *read_count(struct params *p, enum param param, const struct value *v)
{
    (void)param;
    return read_number(v, 1, PAWL_LIST_LIMIT_MAX, "must be from 1 to " TO_STRING(PAWL_LIST_LIMIT_MAX), &p->limit);
}

static const char *read_since(struct params *p, enum param param, const struct value *v)
{
    (void)param;
    return read_number(v, 0, PAWL_TOKEN_MAX, "must be from 0 to 9007199254740991", &p->since);
}

static void keep_text(char *field, size_t *ret_len, const struct value *v)
{
    memcpy(field, v->text, v->len);
    field[v->len] = '\0';
    *ret_len = v->len;
}

static const char *read_label(struct params *p, enum param param, const struct value *v)
{
    const char *problem;

    _Static_assert(PAWL_OWNER_MAX == PAWL_REASON_MAX, "one limit for both labels");
    if (v->tag != JSON_TAG_STRING)
        return "must be a string";
    if (v->len > PAWL_OWNER_MAX)
        return "must be at most " TO_STRING(PAWL_OWNER_MAX) " bytes";
    problem = label_problem(v->text, v->len);
    if (problem)
        return problem;
    if (param == PARAM_OWNER) {
        keep_text(p->owner, &p->owner_len, v);
        return NULL;
    }
    if (v->len == 0)
        return "must not be empty";
    keep_text(p->reason, &p->reason_len, v);
    return NULL;
}

static const char *read_uuid(struct params *p, enum param param, const struct value *v)
{
    (void)param;
    if (v->tag != JSON_TAG_STRING)
        return "must be a string that holds a UUID";
    if (lease_id_parse(v->text, v->len, &p->lease_id))
        return LEASE_ID_PROBLEM;
    return NULL;
}

static const char *read_prefix(struct params *p, enum param param, const struct value *v)
{
    const char *problem;

    (void)param;
    if (v->tag != JSON_TAG_STRING)
        return "must be a string";
    problem = lock_name_prefix_problem(v->text, v->len);
    if (!problem)
        keep_text(p->prefix, &p->prefix_len, v);
    return problem;
}

static const char *read_name(struct params *p, enum param param, const struct value *v)
{
    const char *problem;

    (void)param;
    if (v->tag != JSON_TAG_STRING)
        return "must be a string";
    problem = lock_name_problem(v->text, v->len);
    if (!problem)
        keep_text(p->name, &p->name_len, v);
    return problem;
}

/* Text in both forms, since it does not fit every client's numbers. Its one spelling has no leading zeros. */
static const char *read_cursor(struct params *p, enum param param, const struct value *v)
{
    uint64_t n;
    size_t len;

    (void)param;
    if (v->tag == JSON_TAG_STRING && v->len == 0)
        return NULL; /* what the last page says: from the start again */
    if (v->tag != JSON_TAG_STRING || v->len > PAWL_CURSOR_MAX || read_digits(v->text, v->len, &n) || (v->len > 1 && v->text[0] == '0'))
        return "must be a cursor from an earlier reply";
    keep_text(p->cursor, &len, v);
    return NULL;
}

/* ---- the rows ---- */

typedef const char *param_reader(struct params *p, enum param param, const struct value *v);

#define READ_DURATION read_duration
#define READ_LABEL    read_label
#define READ_UUID     read_uuid
#define READ_TOKEN    read_token
#define READ_PREFIX   read_prefix
#define READ_COUNT    read_count
#define READ_CURSOR   read_cursor
#define READ_SINCE    read_since
#define READ_NAME     read_name

static const struct row {
    const char *json, *query;
    size_t json_len, query_len;
    param_reader *read;
} rows[PARAM_COUNT] = {
#define PARAM_ROW(name, json, query, type, help) [PARAM_##name] = {json, query, sizeof(json) - 1, sizeof(query) - 1, READ_##type},
    PAWL_PARAMS(PARAM_ROW)
#undef PARAM_ROW
};

static unsigned find_row(bool query, const char *key, size_t len)
{
    unsigned i;

    for (i = 0; i < PARAM_COUNT; i++) {
        const char *name = query ? rows[i].query : rows[i].json;
        size_t name_len = query ? rows[i].query_len : rows[i].json_len;

        if (name_len == len && memcmp(name, key, len) == 0)
            break;
    }
    return i;
}

/* ---- problems ---- */

#define KEY_SHOWN_MAX 64 /* bytes of a message; the rest of a longer key is left out */

/* Writes one sequence of a key as it may stand in a log line and on a terminal. Returns how many bytes of the key it took. */
static size_t show_sequence(const char *key, size_t len, char piece[16])
{
    uint32_t code = 0;
    size_t n = utf8_sequence(key, len, &code);

    if (n > 0 && !utf8_is_control(code)) {
        memcpy(piece, key, n);
        piece[n] = '\0';
    } else if (n > 0) {
        snprintf(piece, 16, "\\u%04x", (unsigned)code);
    } else {
        snprintf(piece, 16, "\\x%02x", (unsigned char)key[0]);
    }
    return n > 0 ? n : 1;
}

/* The key as its caller spelled it, but harmless: controls and bad bytes escaped, and cut where it gets silly. */
static void show_key(const char *key, size_t len, char out[KEY_SHOWN_MAX + 4])
{
    size_t used = 0, i = 0;
    char piece[16];

    if (len == 0) {
        memcpy(out, "\"\"", 3);
        return;
    }
    while (i < len) {
        size_t taken = show_sequence(key + i, len - i, piece), n = strlen(piece);

        if (used + n > KEY_SHOWN_MAX) {
            memcpy(out + used, "...", 3);
            used += 3;
            break;
        }
        memcpy(out + used, piece, n);
        used += n;
        i += taken;
    }
    out[used] = '\0';
}

static int problem_at(struct param_problem *problem, const char *key, size_t len, const char *sentence)
{
    char shown[KEY_SHOWN_MAX + 4];

    show_key(key, len, shown);
    snprintf(problem->message, sizeof(problem->message), "%s: %s", shown, sentence);
    return -1;
}

/* Somebody who moves from the query to JSON will write "ttl" there: say what it is called. */
static int unknown(struct reading *r, const char *key, size_t len)
{
    unsigned other = find_row(!r->query, key, len);
    char hint[96];

    if (other == PARAM_COUNT)
        return problem_at(r->problem, key, len, "unknown parameter");
    snprintf(hint, sizeof(hint), "unknown parameter; in %s it is called %s", r->query ? "a query" : "JSON",
             r->query ? rows[other].query : rows[other].json);
    return problem_at(r->problem, key, len, hint);
}

/* ---- where both forms meet ---- */

static int take(struct reading *r, const char *key, size_t key_len, const struct value *v)
{
    unsigned i = find_row(r->query, key, key_len), bit = 1u << i;
    const char *problem;

    if (i == PARAM_COUNT)
        return unknown(r, key, key_len);
    if (!(r->allowed & bit))
        return problem_at(r->problem, key, key_len, "not a parameter of this call");
    if (r->p->seen & bit)
        return problem_at(r->problem, key, key_len, "given more than once");
    problem = rows[i].read(r->p, (enum param)i, v);
    if (problem)
        return problem_at(r->problem, key, key_len, problem);
    r->p->seen |= bit;
    if (r->query)
        r->p->in_query |= bit;
    return 0;
}

const char *param_name(const struct params *p, enum param param)
{
    return p->in_query & (1u << param) ? rows[param].query : rows[param].json;
}

void params_init(struct params *p)
{
    /* Field by field: there is a kilobyte of text behind them that nobody reads beyond its NUL, and this runs for every request. */
    p->seen = p->in_query = 0;
    p->ttl_ms = p->wait_ms = p->lock_delay_ms = p->max_hold_ms = p->token = p->since = 0;
    p->limit = PAWL_LIST_LIMIT_DEFAULT;
    p->lease_id.text[0] = '\0';
    p->owner_len = p->reason_len = p->prefix_len = p->name_len = 0;
    p->owner[0] = p->reason[0] = p->prefix[0] = p->name[0] = '\0';
    memcpy(p->cursor, "0", 2);
}

/* ---- JSON ---- */

static int take_member(void *arg, const struct json_member *m)
{
    struct value v = {.tag = m->tag, .integer = m->integer, .text = m->text, .len = m->text_len};

    return take(arg, m->key, m->key_len, &v);
}

static void problem_of_fault(struct param_problem *problem, const struct json_fault *fault)
{
    problem->no_memory = fault->no_memory;
    if (fault->key)
        problem_at(problem, fault->key, fault->key_len, fault->sentence);
    else if (fault->line > 0)
        snprintf(problem->message, sizeof(problem->message), "the body %s (line %d, column %d)", fault->sentence, fault->line,
                 fault->column);
    else
        snprintf(problem->message, sizeof(problem->message), "the body %s", fault->sentence);
}

int params_from_json(struct params *p, const char *body, size_t len, unsigned allowed, struct param_problem *ret_problem)
{
    struct reading r = {p, allowed, false, ret_problem};
    struct json_fault fault;

    ret_problem->no_memory = false;
    switch (json_members(body, len, take_member, &r, &fault)) {
    case 0:
        return 0;
    case 1:
        return -1; /* take() wrote the problem */
    default:
        problem_of_fault(ret_problem, &fault);
        return -1;
    }
}

/* ---- the query ---- */

/* One "key=value". `scratch` holds both decoded, which are never longer than they were. */
static int take_pair(struct reading *r, const char *pair, size_t len, char *scratch, size_t cap)
{
    const char *equals = memchr(pair, '=', len);
    size_t raw_key = equals ? (size_t)(equals - pair) : len;
    struct value v = {.query = true, .tag = JSON_TAG_STRING};
    char *text;
    int n, key_len = percent_decode(pair, raw_key, scratch, cap);

    if (key_len < 0)
        return problem_at(r->problem, pair, raw_key, "the name holds a broken percent escape or a NUL");
    if (!equals)
        return problem_at(r->problem, scratch, (size_t)key_len, "has no value");
    text = scratch + key_len + 1;
    n = percent_decode(equals + 1, len - raw_key - 1, text, cap - (size_t)key_len - 1);
    if (n < 0)
        return problem_at(r->problem, scratch, (size_t)key_len, "the value holds a broken percent escape or a NUL");
    v.text = text;
    v.len = (size_t)n;
    return take(r, scratch, (size_t)key_len, &v);
}

int params_from_query(struct params *p, const char *query, size_t len, unsigned allowed, struct param_problem *ret_problem)
{
    struct reading r = {p, allowed, true, ret_problem};
    char scratch[PAWL_TARGET_MAX + 2]; /* two NULs more than a pair can have */
    const char *end;

    ret_problem->no_memory = false;
    if (len == 0)
        return 0;
    if (len > PAWL_TARGET_MAX) {
        snprintf(ret_problem->message, sizeof(ret_problem->message), "the query must be at most %d bytes", PAWL_TARGET_MAX);
        return -1;
    }
    end = query + len;
    for (;;) {
        const char *stop = memchr(query, '&', (size_t)(end - query));
        size_t pair_len = (size_t)((stop ? stop : end) - query);

        if (pair_len == 0) {
            snprintf(ret_problem->message, sizeof(ret_problem->message), "the query has an empty pair (a stray '&')");
            return -1;
        }
        if (take_pair(&r, query, pair_len, scratch, sizeof(scratch)))
            return -1;
        if (!stop)
            return 0;
        query = stop + 1;
    }
}

/* ---- labels ---- */

const char *label_problem(const char *bytes, size_t len)
{
    for (size_t i = 0; i < len;) {
        uint32_t code;
        size_t n = utf8_sequence(bytes + i, len - i, &code);

        if (n == 0)
            return "must be valid UTF-8";
        if (utf8_is_control(code))
            return "must not hold control characters";
        i += n;
    }
    return NULL;
}
