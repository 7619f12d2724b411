/* The one file that sees jansson.
 *
 * Before jansson reads a body it is looked over once: an empty body, a form, a BOM and a NUL get a sentence of their own, and depth is
 * bounded here because jansson recurses, to a depth that was fixed when it was built. After jansson refused one, its error code is turned
 * into a sentence of ours (its texts quote the body and speak of its own flags), and its position is followed back to the key.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "proto/json.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- before: what can be told without parsing ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* "ttl_ms=5&...": what curl -d sends when somebody forgets the quotes and braces. */
static bool looks_like_form(const char *at, size_t len)
{
    size_t i = 0;

    while (i < len && is_word(at[i]))
        i++;
    return i > 0 && i < len && at[i] == '=';
}

#define NOWHERE SIZE_MAX

struct scan {
    size_t depth;   /* objects and arrays open at the end of the scan */
    size_t deepest; /* and the most that were */
    size_t quote;   /* the opening quote of the string that the scan ended in, or NOWHERE */
};

/* Counts brackets and follows strings in body[0..end). Right up to the first byte that jansson would refuse, which is as far as it matters:
 * jansson recurses no deeper than that, and reports no place behind it. */
static struct scan scan_to(const char *body, size_t end)
{
    struct scan s = {.quote = NOWHERE};

    for (size_t i = 0; i < end; i++) {
        char c = body[i];

        if (s.quote != NOWHERE) {
            if (c == '\\')
                i++;
            else if (c == '"')
                s.quote = NOWHERE;
        } else if (c == '"') {
            s.quote = i;
        } else if (c == '{' || c == '[') {
            if (++s.depth > s.deepest)
                s.deepest = s.depth;
        } else if ((c == '}' || c == ']') && s.depth > 0) {
            s.depth--;
        }
    }
    return s;
}

/* `first` is the place of the first byte that is no blank, below len. */
static const char *look_over(const char *body, size_t len, size_t first)
{
    if (len >= 3 && memcmp(body, "\xef\xbb\xbf", 3) == 0)
        return "begins with a byte order mark; send plain UTF-8";
    if (memchr(body, '\0', len))
        return "holds a NUL byte";
    if (looks_like_form(body + first, len - first))
        return "looks like a form; send a JSON object, or put the parameters into the query string";
    if (body[first] != '{')
        return "must be a JSON object";
    if (scan_to(body, len).deepest > JSON_DEPTH_MAX)
        return "is nested too deeply";
    return NULL;
}

/* ---- after: whose fault it was ---- */

/* Takes the string that ends (with its quote) right before `end` for the key. */
static void take_key(const char *body, size_t end, struct json_fault *fault)
{
    size_t open;

    if (end == 0 || body[end - 1] != '"')
        return;
    open = scan_to(body, end - 1).quote;
    if (open == NOWHERE)
        return;
    fault->key = body + open + 1;
    fault->key_len = end - 1 - (open + 1);
}

/* The same for a value that begins at `start`: back over the colon. In an array there is none, and the key stays untold. */
static void take_key_of_value(const char *body, size_t start, struct json_fault *fault)
{
    while (start > 0 && is_blank(body[start - 1]))
        start--;
    if (start == 0 || body[start - 1] != ':')
        return;
    start--;
    while (start > 0 && is_blank(body[start - 1]))
        start--;
    take_key(body, start, fault);
}

static size_t number_before(const char *body, size_t end)
{
    while (end > 0 && body[end - 1] != '\0' && strchr("0123456789+-.eE", body[end - 1]))
        end--;
    return end;
}

/* `at`: how far jansson had read. It stops right behind the token at fault, or at the byte that is no UTF-8. Only members of the
 * outermost object are named: one further in may be called like a parameter and is none. */
static void blame(const char *body, size_t at, enum json_error_code code, struct json_fault *fault)
{
    struct scan here = scan_to(body, at), inside;

    if (here.depth != 1)
        return;
    switch (code) {
    case json_error_numeric_overflow:
        fault->sentence = "the number is out of range";
        take_key_of_value(body, number_before(body, at), fault);
        break;
    case json_error_duplicate_key:
        fault->sentence = "given more than once";
        take_key(body, at, fault);
        break;
    case json_error_null_character:
        fault->sentence = "must not hold a NUL character";
        inside = scan_to(body, at > 0 ? at - 1 : 0);
        if (inside.quote != NOWHERE)
            take_key_of_value(body, inside.quote, fault);
        break;
    case json_error_invalid_utf8:
        fault->sentence = "must be valid UTF-8";
        if (here.quote != NOWHERE)
            take_key_of_value(body, here.quote, fault);
        break;
    default:
        break;
    }
}

/* The sentence where no key can be named: it speaks of the body. */
static const char *body_sentence(enum json_error_code code)
{
    switch (code) {
    case json_error_numeric_overflow:
        return "holds a number that is out of range";
    case json_error_duplicate_key:
        return "gives a parameter more than once";
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return "holds a NUL character";
    case json_error_invalid_utf8:
        return "is not valid UTF-8";
    case json_error_premature_end_of_input:
        return "ends before its JSON object does";
    case json_error_end_of_input_expected:
        return "goes on after its JSON object";
    default:
        return "is not valid JSON";
    }
}

/* Where jansson is watched. By itself it drops a byte that it has no room for, and goes on. */
static _Thread_local bool memory_failed;

static void *watched_malloc(size_t size)
{
    void *memory = malloc(size);

    if (!memory)
        memory_failed = true;
    return memory;
}

void json_watch_memory(void)
{
    json_set_alloc_funcs(watched_malloc, free);
}

static void explain(const char *body, size_t len, const json_error_t *error, struct json_fault *fault)
{
    enum json_error_code code = json_error_code(error);

    /* Out of memory, jansson says nothing, or it takes the token that it could not store for an invalid one. The C library's errno
     * tells the truth; jansson clears it only for numbers that it goes on to read. */
    if (memory_failed || errno == ENOMEM || error->text[0] == '\0') {
        fault->no_memory = true;
        fault->sentence = "could not be read for want of memory";
        return;
    }
    fault->line = error->line > 0 ? error->line : 0;
    fault->column = error->column > 0 ? error->column : 0;
    if (error->position >= 0 && (size_t)error->position <= len)
        blame(body, (size_t)error->position, code, fault);
    if (!fault->key)
        fault->sentence = body_sentence(code);
}

/* ---- the walk ---- */

static void fill_member(struct json_member *member, const char *key, const json_t *value)
{
    *member = (struct json_member){.key = key, .key_len = strlen(key)}; /* a key with a NUL in it was refused */
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        member->tag = JSON_TAG_OBJECT;
        member->inside = value;
        break;
    case JSON_ARRAY:
        member->tag = JSON_TAG_ARRAY;
        member->inside = value;
        break;
    case JSON_STRING:
        member->tag = JSON_TAG_STRING;
        member->text = json_string_value(value);
        member->text_len = json_string_length(value);
        break;
    case JSON_INTEGER:
        member->tag = JSON_TAG_INTEGER;
        member->integer = json_integer_value(value);
        break;
    case JSON_REAL:
        member->tag = JSON_TAG_REAL;
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        member->tag = JSON_TAG_BOOL;
        member->integer = json_is_true(value) ? 1 : 0;
        break;
    case JSON_NULL:
        member->tag = JSON_TAG_NULL;
        break;
    }
}

static int walk_object(const json_t *object, int (*visit)(void *arg, const struct json_member *member), void *arg)
{
    /* jansson's iterators take what they don't change without const */
    json_t *it = (json_t *)(uintptr_t)object;
    struct json_member member;
    int stopped = 0;

    for (void *i = json_object_iter(it); i && !stopped; i = json_object_iter_next(it, i)) {
        fill_member(&member, json_object_iter_key(i), json_object_iter_value(i));
        stopped = visit(arg, &member) != 0;
    }
    return stopped;
}

int json_inside(const struct json_member *outer, int (*visit)(void *arg, const struct json_member *member), void *arg)
{
    struct json_member member;
    int stopped = 0;

    if (outer->tag == JSON_TAG_OBJECT)
        return walk_object(outer->inside, visit, arg);
    if (outer->tag != JSON_TAG_ARRAY)
        return 0;
    for (size_t i = 0; i < json_array_size(outer->inside) && !stopped; i++) {
        fill_member(&member, "", json_array_get(outer->inside, i));
        stopped = visit(arg, &member) != 0;
    }
    return stopped;
}

int json_members(const char *body, size_t len, int (*visit)(void *arg, const struct json_member *member), void *arg,
                 struct json_fault *ret_fault)
{
    json_error_t error;
    json_t *root;
    size_t first = 0;
    int stopped;

    while (first < len && is_blank(body[first]))
        first++;
    if (first == len)
        return 0;
    *ret_fault = (struct json_fault){.sentence = look_over(body, len, first)};
    if (ret_fault->sentence)
        return -1;
    memset(&error, 0, sizeof(error)); /* jansson leaves the code unset when it fails without a word */
    memory_failed = false;
    errno = 0;
    root = json_loadb(body, len, JSON_REJECT_DUPLICATES, &error);
    if (root && (memory_failed || errno == ENOMEM)) { /* jansson goes on without the byte of a word or number that it had no room for */
        json_decref(root);
        root = NULL;
        errno = ENOMEM;
    }
    if (!root) {
        explain(body, len, &error, ret_fault);
        return -1;
    }
    stopped = walk_object(root, visit, arg);
    json_decref(root);
    return stopped;
}
