#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "proto/renewals.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/json.h"
#include "proto/lock_name.h"

#define TO_STRING_(x) #x
#define TO_STRING(x)  TO_STRING_(x)

#define SEEN_LEASES   1u
#define SEEN_NAME     2u
#define SEEN_LEASE_ID 4u

struct reading {
    struct renewals *renewals;
    struct param_problem *problem;
    unsigned seen; /* of the object that is being read */
    bool inside;   /* that is one of the list */
};

typedef const char *field_reader(struct reading *r, const struct json_member *member);

/* ---- a sentence each that fits after "leases[3].name: ", or NULL ---- */

static const char *read_ttl(struct reading *r, const struct json_member *member)
{
    struct renewals *all = r->renewals;
    int64_t *field = r->inside ? &all->leases[all->count].ttl_ms : &all->ttl_ms;

    if (member->tag != JSON_TAG_INTEGER)
        return "must be a whole number of milliseconds";
    if (member->integer < 0)
        return "must not be negative";
    *field = member->integer;
    return NULL;
}

static const char *read_name(struct reading *r, const struct json_member *member)
{
    struct renewal *renewal = &r->renewals->leases[r->renewals->count];
    const char *problem = member->tag != JSON_TAG_STRING ? "must be a string" : lock_name_problem(member->text, member->text_len);

    if (problem)
        return problem;
    memcpy(renewal->name, member->text, member->text_len + 1);
    renewal->name_len = member->text_len;
    r->seen |= SEEN_NAME;
    return NULL;
}

static const char *read_lease_id(struct reading *r, const struct json_member *member)
{
    if (member->tag != JSON_TAG_STRING)
        return "must be a string that holds a UUID";
    if (lease_id_parse(member->text, member->text_len, &r->renewals->leases[r->renewals->count].lease_id) != 0)
        return LEASE_ID_PROBLEM;
    r->seen |= SEEN_LEASE_ID;
    return NULL;
}

static int visit_lease(void *arg, const struct json_member *member);

static const char *read_leases(struct reading *r, const struct json_member *member)
{
    if (member->tag != JSON_TAG_ARRAY)
        return "must be a list";
    r->seen |= SEEN_LEASES;
    (void)json_inside(member, visit_lease, r);
    return NULL;
}

/* ---- the rows ---- */

static const struct row {
    const char *key;
    bool inside; /* a field of each lease, or of the whole */
    field_reader *read;
} rows[] = {
    {"leases", false, read_leases},    {"ttl_ms", false, read_ttl}, {"name", true, read_name},
    {"lease_id", true, read_lease_id}, {"ttl_ms", true, read_ttl},
};

static void say(struct reading *r, const char *key, const char *sentence)
{
    if (r->problem->message[0])
        return;
    if (r->inside)
        snprintf(r->problem->message, sizeof(r->problem->message), "leases[%zu]%s%.32s: %s", r->renewals->count, key[0] ? "." : "", key,
                 sentence);
    else
        snprintf(r->problem->message, sizeof(r->problem->message), "%.32s: %s", key, sentence);
}

static int visit_member(void *arg, const struct json_member *member)
{
    struct reading *r = arg;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *sentence;
        if (rows[i].inside != r->inside || strcmp(rows[i].key, member->key) != 0)
            continue;
        sentence = rows[i].read(r, member);
        if (sentence)
            say(r, rows[i].key, sentence);
        return r->problem->message[0] != '\0';
    }
    /* What stands in its place may be a secret, and so is not repeated. */
    if (r->inside)
        say(r, "", "has a field that is none of name, lease_id and ttl_ms");
    else
        snprintf(r->problem->message, sizeof(r->problem->message), "this call takes leases and ttl_ms, and no other parameter");
    return 1;
}

static int visit_lease(void *arg, const struct json_member *member)
{
    struct reading *r = arg, one = {.renewals = r->renewals, .problem = r->problem, .inside = true};

    if (r->renewals->count == PAWL_RENEWALS_MAX) {
        snprintf(r->problem->message, sizeof(r->problem->message), "leases: at most " TO_STRING(PAWL_RENEWALS_MAX) " in one call");
        return 1;
    }
    r->renewals->leases[r->renewals->count].ttl_ms = -1;
    if (member->tag != JSON_TAG_OBJECT)
        say(&one, "", "must be an object");
    else
        (void)json_inside(member, visit_member, &one);
    if (!(one.seen & SEEN_NAME))
        say(&one, "name", "required");
    if (!(one.seen & SEEN_LEASE_ID))
        say(&one, "lease_id", "required");
    r->renewals->count++;
    return r->problem->message[0] != '\0';
}

int renewals_from_json(struct renewals *ret, const char *body, size_t len, struct param_problem *ret_problem)
{
    struct reading r = {.renewals = ret, .problem = ret_problem};
    struct json_fault fault = {.sentence = ""};
    int result;

    ret->ttl_ms = -1;
    ret->count = 0;
    *ret_problem = (struct param_problem){.no_memory = false};
    result = json_members(body, len, visit_member, &r, &fault);
    if (result < 0) {
        ret_problem->no_memory = fault.no_memory;
        snprintf(ret_problem->message, sizeof(ret_problem->message), fault.key ? "the body is no valid JSON: a field %s" : "the body %s",
                 fault.sentence);
        return -1;
    }
    if (!ret_problem->message[0] && (!(r.seen & SEEN_LEASES) || ret->count == 0))
        snprintf(ret_problem->message, sizeof(ret_problem->message), "leases: required, and at least one");
    return ret_problem->message[0] ? -1 : 0;
}
