/* The rules are read through json_members into one set; a set is refused whole or taken whole.
 *
 * Whoever edits the file by hand must not be surprised: unknown fields, what is given twice, and lists that are empty (is that nothing, or everything?) are
 * refused, and each refusal names the rule and the field. A typo must never become a right, nor silently take one away.
 *
 * Tokens are random and long, so one round of SHA-256 is as good as a slow hash, and cheap enough for each request. What is compared are hashes, all of
 * them for each look-up, without a branch that depends on a byte of them.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/access.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "daemon/prefix_set.h"
#include "proto/hex.h"
#include "proto/json.h"
#include "proto/lock_name.h"
#include "proto/params.h"

#define HASH_BYTES 32
#define UID_MOST   INT64_C(4294967294) /* above is "no such user" */

struct access_rule {
    char *name;
    char *subject; /* NULL: none */
    bool has_uid;
    uid_t uid;
    unsigned verbs;
    struct prefix_set prefixes;
};

struct token {
    unsigned char hash[HASH_BYTES];
    size_t rule;
};

struct access {
    unsigned held;
    struct access_rule *rules;
    size_t count;
    struct token *tokens;
    size_t token_count;
    EVP_MD_CTX *begun, *work; /* a hash of nothing yet, and where a copy of it goes on */
};

/* ---------------------------------------------------------------- a set */

static void free_rule(struct access_rule *rule)
{
    prefix_set_close(&rule->prefixes);
    free(rule->subject);
    free(rule->name);
}

struct access *access_hold(struct access *set)
{
    set->held++;
    return set;
}

void access_release(struct access *set)
{
    if (!set || --set->held > 0)
        return;
    for (size_t i = 0; i < set->count; i++)
        free_rule(&set->rules[i]);
    free(set->rules);
    free(set->tokens);
    EVP_MD_CTX_free(set->begun);
    EVP_MD_CTX_free(set->work);
    free(set);
}

static struct access *new_set(void)
{
    struct access *set = calloc(1, sizeof(*set));

    if (!set)
        return NULL;
    set->held = 1;
    set->begun = EVP_MD_CTX_new();
    set->work = EVP_MD_CTX_new();
    if (!set->begun || !set->work || EVP_DigestInit_ex(set->begun, EVP_sha256(), NULL) != 1) {
        access_release(set);
        return NULL;
    }
    return set;
}

size_t access_count(const struct access *set)
{
    return set->count;
}

/* ---------------------------------------------------------------- reading */

struct reading {
    struct access *set;
    size_t number; /* of the rule that is read, from 1; 0: none */
    const char *name, *field;
    unsigned seen; /* fields of this rule, a bit each */
    char *problem;
    size_t cap;
    bool failed;
};

/* One more element at the end of an array, all zero; NULL without memory. Arrays grow by doubling when their length is a power of two. */
static void *grow(void *array, size_t count, size_t size)
{
    char *longer = array;

    if ((count & (count - 1)) == 0)
        longer = realloc(array, (count ? 2 * count : 1) * size);
    if (longer)
        memset(longer + count * size, 0, size);
    return longer;
}

static __attribute__((format(printf, 2, 3))) int fail(struct reading *r, const char *format, ...)
{
    char where[PAWL_CALLER_MAX + 64] = "", text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (r->number > 0 && r->name)
        snprintf(where, sizeof(where), "rule %zu \"%s\": ", r->number, r->name);
    else if (r->number > 0)
        snprintf(where, sizeof(where), "rule %zu: ", r->number);
    snprintf(r->problem, r->cap, "%s%s%s%s", where, r->field ? r->field : "", r->field ? ": " : "", text);
    r->failed = true;
    return -1;
}

static int out_of_memory(struct reading *r)
{
    r->number = 0;
    r->field = NULL;
    return fail(r, "out of memory");
}

static struct access_rule *current(const struct reading *r)
{
    return &r->set->rules[r->set->count - 1];
}

static const char *name_problem(const struct json_member *value)
{
    if (value->tag != JSON_TAG_STRING)
        return "must be a text";
    if (value->text_len == 0 || value->text_len > PAWL_CALLER_MAX)
        return "must have 1 to 64 bytes";
    return label_problem(value->text, value->text_len);
}

static int read_name(struct reading *r, const struct json_member *value)
{
    const char *problem = name_problem(value);

    if (problem)
        return fail(r, "%s", problem);
    for (size_t i = 0; i + 1 < r->set->count; i++) {
        if (strcmp(r->set->rules[i].name, value->text) == 0)
            return fail(r, "rule %zu has the same", i + 1);
    }
    current(r)->name = strdup(value->text);
    return current(r)->name ? 0 : out_of_memory(r);
}

/* ---- token_sha256 ---- */

static bool read_hex(const char *text, size_t len, unsigned char *out)
{
    if (len != (size_t)2 * HASH_BYTES)
        return false;
    for (size_t i = 0; i < HASH_BYTES; i++) {
        int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        out[i] = (unsigned char)(high * 16 + low);
    }
    return true;
}

static int hash(struct access *set, const char *text, size_t len, unsigned char *out)
{
    unsigned n = HASH_BYTES;

    if (EVP_MD_CTX_copy_ex(set->work, set->begun) != 1 || EVP_DigestUpdate(set->work, text, len) != 1 ||
        EVP_DigestFinal_ex(set->work, out, &n) != 1)
        return -1;
    return 0;
}

/* What comes out when the token was lost on its way into sha256sum. No request can match it, so somebody would look for the reason for long. */
static int refuse_empty(struct reading *r, const unsigned char *sha256)
{
    static const char *const nothings[] = {"", "\n"};
    unsigned char nothing[HASH_BYTES];

    for (size_t i = 0; i < 2; i++) {
        if (hash(r->set, nothings[i], strlen(nothings[i]), nothing) != 0)
            return out_of_memory(r);
        if (memcmp(nothing, sha256, HASH_BYTES) == 0)
            return fail(r, "is the hash of an empty token");
    }
    return 0;
}

static int read_hash(struct reading *r, const struct json_member *value)
{
    struct access *set = r->set;
    struct token *tokens;
    unsigned char sha256[HASH_BYTES];

    if (value->tag != JSON_TAG_STRING || !read_hex(value->text, value->text_len, sha256))
        return fail(r, "must be the SHA-256 of a token in 64 hex digits, or a list of such");
    if (refuse_empty(r, sha256) != 0)
        return -1;
    for (size_t i = 0; i < set->token_count; i++) {
        if (memcmp(set->tokens[i].hash, sha256, HASH_BYTES) == 0)
            return fail(r, "rule %zu has the same token", set->tokens[i].rule + 1);
    }
    if (set->token_count >= ACCESS_TOKENS_MAX && set->tokens[set->token_count - ACCESS_TOKENS_MAX].rule == set->count - 1)
        return fail(r, "can have at most %d", ACCESS_TOKENS_MAX);
    tokens = grow(set->tokens, set->token_count, sizeof(*tokens));
    if (!tokens)
        return out_of_memory(r);
    set->tokens = tokens;
    memcpy(tokens[set->token_count].hash, sha256, HASH_BYTES);
    tokens[set->token_count++].rule = set->count - 1;
    return 0;
}

/* ---- lists ---- */

struct list_walk {
    struct reading *r;
    int (*take)(struct reading *r, const struct json_member *value);
    size_t count;
};

static int take_element(void *arg, const struct json_member *value)
{
    struct list_walk *walk = arg;

    walk->count++;
    return walk->take(walk->r, value);
}

static int read_list(struct reading *r, const struct json_member *value, int (*take)(struct reading *r, const struct json_member *value))
{
    struct list_walk walk = {.r = r, .take = take};

    if (value->tag != JSON_TAG_ARRAY)
        return fail(r, "must be a list");
    if (json_inside(value, take_element, &walk) != 0)
        return -1;
    return walk.count > 0 ? 0 : fail(r, "is an empty list");
}

static int read_tokens(struct reading *r, const struct json_member *value)
{
    return value->tag == JSON_TAG_ARRAY ? read_list(r, value, read_hash) : read_hash(r, value);
}

static int read_prefix(struct reading *r, const struct json_member *value)
{
    struct prefix_set *prefixes = &current(r)->prefixes;
    const char *problem = value->tag == JSON_TAG_STRING ? lock_name_prefix_problem(value->text, value->text_len) : "must be texts";

    if (problem)
        return fail(r, "%s", problem);
    if (prefix_set_has(prefixes, value->text, value->text_len))
        return fail(r, "one is given twice");
    if (prefixes->count == ACCESS_PREFIXES_MAX)
        return fail(r, "can have at most %d", ACCESS_PREFIXES_MAX);
    return prefix_set_add(prefixes, value->text, value->text_len) == 0 ? 0 : out_of_memory(r);
}

static int read_prefixes(struct reading *r, const struct json_member *value)
{
    if (read_list(r, value, read_prefix) != 0)
        return -1;
    prefix_set_settle(&current(r)->prefixes);
    return 0;
}

static int read_verb(struct reading *r, const struct json_member *value)
{
    static const struct {
        const char *name;
        unsigned verb;
    } verbs[] = {{"acquire", ACCESS_ACQUIRE}, {"read", ACCESS_READ}, {"break", ACCESS_BREAK}, {"admin", ACCESS_ADMIN}};

    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (value->tag != JSON_TAG_STRING || strcmp(verbs[i].name, value->text) != 0)
            continue;
        if (current(r)->verbs & verbs[i].verb)
            return fail(r, "one is given twice");
        current(r)->verbs |= verbs[i].verb;
        return 0;
    }
    return fail(r, "must be among acquire, read, break, admin");
}

static int read_verbs(struct reading *r, const struct json_member *value)
{
    return read_list(r, value, read_verb);
}

/* ---- subject, uid ---- */

static int read_subject(struct reading *r, const struct json_member *value)
{
    if (value->tag != JSON_TAG_STRING || value->text_len == 0 || value->text_len > ACCESS_SUBJECT_MAX)
        return fail(r, "must be a text of 1 to %d bytes", ACCESS_SUBJECT_MAX);
    for (size_t i = 0; i + 1 < r->set->count; i++) {
        if (r->set->rules[i].subject && strcmp(r->set->rules[i].subject, value->text) == 0)
            return fail(r, "rule %zu has the same", i + 1);
    }
    current(r)->subject = strdup(value->text);
    return current(r)->subject ? 0 : out_of_memory(r);
}

static int read_uid(struct reading *r, const struct json_member *value)
{
    if (value->tag != JSON_TAG_INTEGER || value->integer < 0 || value->integer > UID_MOST)
        return fail(r, "must be a whole number from 0 to 4294967294");
    for (size_t i = 0; i + 1 < r->set->count; i++) {
        if (r->set->rules[i].has_uid && r->set->rules[i].uid == (uid_t)value->integer)
            return fail(r, "rule %zu has the same", i + 1);
    }
    current(r)->has_uid = true;
    current(r)->uid = (uid_t)value->integer;
    return 0;
}

/* ---- rules ---- */

static const struct field {
    const char *name;
    bool required;
    int (*read)(struct reading *r, const struct json_member *value);
} fields[] = {{"name", true, read_name}, {"token_sha256", false, read_tokens}, {"subject", false, read_subject},
              {"uid", false, read_uid},  {"prefixes", true, read_prefixes},    {"verbs", true, read_verbs}};
#define FIELD_COUNT     (sizeof(fields) / sizeof(fields[0]))
#define FIELDS_OF_PROOF 0xeu /* the bits of those that tell who it is */

static int read_field(void *arg, const struct json_member *member)
{
    struct reading *r = arg;

    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (strcmp(fields[i].name, member->key) != 0)
            continue;
        r->seen |= 1u << i;
        r->field = fields[i].name;
        return fields[i].read(r, member);
    }
    r->field = NULL;
    if (strcmp(member->key, "token") == 0)
        return fail(r, "a token does not stand in this file, only its SHA-256, as token_sha256");
    return fail(r, "has a field that is none of name, token_sha256, subject, uid, prefixes, verbs");
}

/* So that a rule can be called by its name while its fields are read, in whatever order they stand. */
static int find_name(void *arg, const struct json_member *member)
{
    struct reading *r = arg;

    if (strcmp(member->key, "name") != 0)
        return 0;
    if (!name_problem(member))
        r->name = member->text;
    return 1;
}

static int read_rule(struct reading *r, const struct json_member *value)
{
    struct access *set = r->set;
    struct access_rule *rules;

    r->number++;
    r->name = NULL;
    r->field = NULL;
    r->seen = 0;
    if (value->tag != JSON_TAG_OBJECT)
        return fail(r, "must be an object");
    if (set->count == ACCESS_RULES_MAX)
        return fail(r, "there can be at most %d", ACCESS_RULES_MAX);
    rules = grow(set->rules, set->count, sizeof(*rules));
    if (!rules)
        return out_of_memory(r);
    set->rules = rules;
    set->count++;
    (void)json_inside(value, find_name, r);
    if (json_inside(value, read_field, r) != 0)
        return -1;
    r->field = NULL;
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if (fields[i].required && !(r->seen & 1u << i))
            return fail(r, "%s is missing", fields[i].name);
    }
    if (!(r->seen & FIELDS_OF_PROOF))
        return fail(r, "one of token_sha256, subject and uid is missing: nobody could be meant");
    return 0;
}

static int read_top(void *arg, const struct json_member *member)
{
    struct reading *r = arg;
    int result;

    if (strcmp(member->key, "rules") != 0)
        return fail(r, "beside \"rules\" there is another field");
    r->field = "rules";
    if (member->tag != JSON_TAG_ARRAY)
        return fail(r, "must be a list");
    result = read_list(r, member, read_rule);
    return result;
}

static int read_text(struct reading *r, const char *text, size_t len)
{
    struct json_fault fault;
    size_t first = 0;
    int result;

    while (first < len && strchr(" \t\r\n", text[first]) && text[first])
        first++;
    if (first == len || text[first] != '{')
        return fail(r, "must be a JSON object, {\"rules\": [...]}");
    result = json_members(text, len, read_top, r, &fault);
    if (result < 0 && fault.no_memory)
        return out_of_memory(r);
    if (result < 0 && fault.line > 0)
        return fail(r, "line %d, column %d: the file %s", fault.line, fault.column,
                    fault.key ? "gives a field twice, or one that can't be read" : fault.sentence);
    if (result < 0)
        return fail(r, "the file %s", fault.sentence);
    if (!r->failed && r->set->count == 0)
        return fail(r, "rules is missing");
    return r->failed ? -1 : 0;
}

struct access *access_parse(const char *text, size_t len, char *problem, size_t cap)
{
    struct reading r = {.set = new_set(), .problem = problem, .cap = cap};

    if (!r.set) {
        snprintf(problem, cap, "out of memory");
        return NULL;
    }
    if (read_text(&r, text, len) == 0)
        return r.set;
    access_release(r.set);
    return NULL;
}

/* ---------------------------------------------------------------- questions */

int access_by_token(struct access *set, const char *token, size_t len, const struct access_rule **ret)
{
    unsigned char sha256[HASH_BYTES];
    size_t found = 0; /* a rule's number from 1: at most one hash is equal, so the others add nothing */

    if (hash(set, token, len, sha256) != 0)
        return -1;
    for (size_t i = 0; i < set->token_count; i++)
        found |= (set->tokens[i].rule + 1) & (0 - (size_t)(CRYPTO_memcmp(set->tokens[i].hash, sha256, HASH_BYTES) == 0));
    *ret = found > 0 ? &set->rules[found - 1] : NULL;
    return 0;
}

const struct access_rule *access_by_subject(const struct access *set, const char *subject)
{
    for (size_t i = 0; i < set->count; i++) {
        if (set->rules[i].subject && strcmp(set->rules[i].subject, subject) == 0)
            return &set->rules[i];
    }
    return NULL;
}

const struct access_rule *access_by_uid(const struct access *set, uid_t uid)
{
    for (size_t i = 0; i < set->count; i++) {
        if (set->rules[i].has_uid && set->rules[i].uid == uid)
            return &set->rules[i];
    }
    return NULL;
}

const char *access_name(const struct access_rule *rule)
{
    return rule->name;
}

bool access_allows_some(const struct access_rule *rule, unsigned verb)
{
    return (rule->verbs & (verb | ACCESS_ADMIN)) != 0;
}

bool access_allows(const struct access_rule *rule, unsigned verb, const char *name, size_t len)
{
    return access_allows_some(rule, verb) && prefix_set_begins(&rule->prefixes, name, len);
}

bool access_sees_some(const struct access_rule *rule, const char *prefix, size_t len)
{
    return access_allows_some(rule, ACCESS_READ) && prefix_set_meets(&rule->prefixes, prefix, len);
}
