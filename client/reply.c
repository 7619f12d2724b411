/* One table says which field goes where; the same table serves the answer itself, the holder inside of it and the locks of a list. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "client/reply.h"

#include <string.h>

#include "proto/json.h"
#include "proto/limits.h"
#include "proto/utf8.h"

enum field_kind {
    FIELD_WORD,   /* a string that must fit */
    FIELD_PEOPLE, /* a string for people: cleaned and cut */
    FIELD_COUNT,  /* 0 or more */
    FIELD_TOKEN,  /* 1 .. PAWL_TOKEN_MAX */
    FIELD_BOOL,   /* into an int */
    FIELD_HOLDER, /* an object, or null */
    FIELD_LOCKS   /* an array of objects */
};

struct field {
    const char *key;
    enum field_kind kind;
    unsigned seen;
    size_t at, size;
};

#define AT(member)   offsetof(struct reply, member), sizeof(((struct reply *)NULL)->member)
#define LOCK(member) offsetof(struct pawl_lock, member), sizeof(((struct pawl_lock *)NULL)->member)

static const struct field lock_fields[] = {
    {"name", FIELD_WORD, REPLY_NAME, LOCK(name)},           {"owner", FIELD_PEOPLE, REPLY_OWNER, LOCK(owner)},
    {"token", FIELD_TOKEN, REPLY_TOKEN, LOCK(token)},       {"ttl_ms", FIELD_COUNT, REPLY_TTL, LOCK(ttl_ms)},
    {"held_ms", FIELD_COUNT, REPLY_HELD_MS, LOCK(held_ms)}, {"waiters", FIELD_COUNT, REPLY_WAITERS, LOCK(waiters)},
    {"held", FIELD_BOOL, REPLY_HELD, LOCK(held)},           {"recovering", FIELD_BOOL, 0, LOCK(recovering)},
    {"lock_delay_ms", FIELD_COUNT, 0, LOCK(lock_delay_ms)}, {"max_hold_left_ms", FIELD_COUNT, REPLY_HOLD, LOCK(max_hold_left_ms)},
    {"delay_left_ms", FIELD_COUNT, 0, LOCK(delay_left_ms)}, {NULL, FIELD_WORD, 0, 0, 0},
};

static const struct field reply_fields[] = {
    {"error", FIELD_WORD, REPLY_ERROR, AT(error)},
    {"message", FIELD_PEOPLE, 0, AT(message)},
    {"lease_id", FIELD_WORD, REPLY_LEASE_ID, AT(lease_id)},
    {"cursor", FIELD_WORD, REPLY_CURSOR, AT(cursor)},
    {"waited_ms", FIELD_COUNT, REPLY_WAITED, AT(waited_ms)},
    {"holder", FIELD_HOLDER, REPLY_HOLDER, 0, 0},
    {"locks", FIELD_LOCKS, REPLY_LOCKS, 0, 0},
    {NULL, FIELD_WORD, 0, 0, 0},
};

void reply_clean(const char *text, size_t len, char *out, size_t cap)
{
    size_t used = 0;
    uint32_t code;

    while (len > 0) {
        size_t step = utf8_sequence(text, len, &code);
        bool good = step > 0 && !utf8_is_control(code);

        if (used + (good ? step : 1) >= cap)
            break;
        if (good)
            memcpy(out + used, text, step);
        else
            out[used] = '?';
        used += good ? step : 1;
        text += step > 0 ? step : 1;
        len -= step > 0 ? step : 1;
    }
    out[used] = '\0';
}

struct reader {
    struct reply *reply;
    reply_each_fn *each;
    void *arg;
    bool wrong, ended;
};

/* A walk over the fields of one object. */
struct level {
    struct reader *reader;
    struct pawl_lock *lock;
    unsigned seen;
    bool top; /* the answer itself, which has the other fields as well */
};

static const struct field *find(const struct field *fields, const char *key)
{
    for (; fields->key; fields++) {
        if (strcmp(fields->key, key) == 0)
            return fields;
    }
    return NULL;
}

static int visit_level(void *arg, const struct json_member *member);

static void read_lock(struct reader *reader, const struct json_member *member)
{
    struct pawl_lock lock;
    struct level inside = {.reader = reader, .lock = &lock};
    const unsigned needed = REPLY_NAME | REPLY_TOKEN;

    memset(&lock, 0, sizeof(lock));
    (void)json_inside(member, visit_level, &inside);
    if (member->tag != JSON_TAG_OBJECT || (inside.seen & needed) != needed)
        reader->wrong = true;
    lock.held = 1;
    if (!reader->wrong && reader->each && reader->each(reader->arg, &lock) != 0)
        reader->ended = true;
}

static int visit_lock(void *arg, const struct json_member *member)
{
    struct reader *reader = arg;

    read_lock(reader, member);
    return reader->wrong || reader->ended;
}

static bool read_number(const struct field *field, const struct json_member *member, void *to)
{
    int64_t least = field->kind == FIELD_TOKEN ? 1 : 0;

    if (member->tag != JSON_TAG_INTEGER || member->integer < least || member->integer > PAWL_TOKEN_MAX)
        return false;
    memcpy(to, &member->integer, sizeof(member->integer));
    return true;
}

static bool read_text(const struct field *field, const struct json_member *member, char *to)
{
    if (member->tag != JSON_TAG_STRING)
        return false;
    if (field->kind == FIELD_PEOPLE) {
        reply_clean(member->text, member->text_len, to, field->size);
        return true;
    }
    if (member->text_len >= field->size)
        return false;
    memcpy(to, member->text, member->text_len + 1);
    return true;
}

static bool read_holder(struct level *level, const struct json_member *member)
{
    struct level inside = {.reader = level->reader, .lock = &level->reader->reply->holder};

    if (member->tag != JSON_TAG_OBJECT)
        return false;
    (void)json_inside(member, visit_level, &inside);
    return (inside.seen & REPLY_TOKEN) != 0;
}

static bool read_locks(struct level *level, const struct json_member *member)
{
    if (member->tag == JSON_TAG_ARRAY)
        (void)json_inside(member, visit_lock, level->reader);
    return member->tag == JSON_TAG_ARRAY;
}

static bool read_field(struct level *level, const struct field *field, void *base, const struct json_member *member)
{
    char *to = (char *)base + field->at;
    int yes = member->integer != 0;

    switch (field->kind) {
    case FIELD_WORD:
    case FIELD_PEOPLE:
        return read_text(field, member, to);
    case FIELD_COUNT:
    case FIELD_TOKEN:
        return read_number(field, member, to);
    case FIELD_BOOL:
        memcpy(to, &yes, sizeof(yes));
        return member->tag == JSON_TAG_BOOL;
    case FIELD_HOLDER:
        return read_holder(level, member);
    case FIELD_LOCKS:
        return read_locks(level, member);
    }
    return false;
}

static int visit_level(void *arg, const struct json_member *member)
{
    struct level *level = arg;
    struct reader *reader = level->reader;
    const struct field *field = find(lock_fields, member->key);
    void *base = level->lock;

    if (!field && level->top) {
        field = find(reply_fields, member->key);
        base = reader->reply;
    }
    if (!field)
        return 0;
    if (member->tag == JSON_TAG_NULL)
        return 0; /* "nothing here", as in "holder": null */
    if (!read_field(level, field, base, member))
        reader->wrong = true;
    level->seen |= field->seen;
    return reader->wrong || reader->ended;
}

int reply_read(const char *body, size_t len, reply_each_fn *each, void *arg, struct reply *ret, bool *ret_no_memory)
{
    struct reader reader = {.reply = ret, .each = each, .arg = arg};
    struct level top = {.reader = &reader, .lock = &ret->lock, .top = true};
    struct json_fault fault = {0};
    int result;

    memset(ret, 0, sizeof(*ret));
    *ret_no_memory = false;
    result = json_members(body, len, visit_level, &top, &fault);
    ret->seen = top.seen;
    if (result < 0)
        *ret_no_memory = fault.no_memory;
    if (result < 0 || reader.wrong)
        return -1;
    return reader.ended ? 1 : 0;
}
