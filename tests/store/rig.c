#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/store/rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "daemon/log.h"

enum { NODES = 4, CALLS = 1024, MESSAGE_MS = 10000 };

struct redis_server redis;
bool rig_allow_eviction;
const char *const *rig_redis_options;
static struct event_base *base;
static struct event *tick;
static struct node nodes[NODES];
static struct asked calls[CALLS];
static size_t call_count;
static int answered; /* calls so far */
static bool foreign;

/* ---- the loop ---- */

int64_t now_us(void)
{
    return clock_now_us(&clock_boottime);
}

static void on_tick(evutil_socket_t fd, short events, void *arg)
{
    (void)fd;
    (void)events;
    (void)arg;
}

void turn(void)
{
    struct timeval few = {.tv_usec = 2000};

    ck_assert_int_eq(evtimer_add(tick, &few), 0);
    ck_assert_int_ge(event_base_loop(base, EVLOOP_ONCE), 0);
}

/* ---- nodes ---- */

static void on_attached(void *arg, bool new_life, bool window_open)
{
    struct node *node = arg;

    node->attached++;
    node->new_life = new_life;
    node->window_open = window_open;
}

static void on_detached(void *arg)
{
    struct node *node = arg;
    struct asked *asked = node->on_detached;

    node->detached++;
    node->on_detached = NULL;
    if (asked)
        submit(asked);
}

static void on_window_closed(void *arg)
{
    ((struct node *)arg)->closed++;
}

static void on_missed(void *arg)
{
    ((struct node *)arg)->missed++;
}

static void on_answered(void *arg, int64_t us)
{
    ((struct node *)arg)->answered++;
    ck_assert_int_ge(us, 0);
}

static void take_note(struct node *node, char kind, const struct lease_id *id, uint64_t confirm, const char *name, size_t len)
{
    struct note *note = &node->notes[node->note_count];

    ck_assert_uint_lt(node->note_count, sizeof(node->notes) / sizeof(node->notes[0]));
    ck_assert_uint_le(len, PAWL_NAME_MAX);
    node->note_count++;
    note->kind = kind;
    note->id = *id;
    note->confirm = confirm;
    memcpy(note->name, name, len);
    note->name[len] = '\0';
}

static void on_wake(void *arg, const struct lease_id *id, const char *name, size_t len)
{
    take_note(arg, 'w', id, 0, name, len);
}

static void on_forget(void *arg, const struct lease_id *id, uint64_t confirm, const char *name, size_t len)
{
    take_note(arg, 'f', id, confirm, name, len);
}

static void on_broken(void *arg, const struct lease_id *id, uint64_t confirm, const char *name, size_t len)
{
    take_note(arg, 'b', id, confirm, name, len);
}

struct node *rig_node(int64_t window_ms)
{
    struct redis_store_config config = {
        .key_prefix = PREFIX, .timeout_ms = TIMEOUT_MS, .window_ms = window_ms, .allow_eviction = rig_allow_eviction, .busy_poll_us = 200};
    struct store_events events = {.attached = on_attached,
                                  .detached = on_detached,
                                  .window_closed = on_window_closed,
                                  .missed = on_missed,
                                  .answered = on_answered,
                                  .wake = on_wake,
                                  .forget = on_forget,
                                  .broken = on_broken};
    struct node *node = nodes;

    while (node->redis) {
        node++;
        ck_assert(node < nodes + NODES);
    }
    memset(node, 0, sizeof(*node));
    snprintf(config.url.unix_path, sizeof(config.url.unix_path), "%s", redis.socket);
    events.arg = node;
    node->redis = redis_store_new(base, &clock_boottime, &config, &events);
    ck_assert_ptr_nonnull(node->redis);
    node->store = redis_store_seam(node->redis);
    return node;
}

struct node *rig_ready_node(void)
{
    struct node *node = rig_node(WINDOW_MS);
    struct store_status status = {0};

    RUN_UNTIL(node->attached && node->missed, 10000);
    store_get_status(node->store, &status);
    if (status.openings > 0)
        close_window();
    return node;
}

void node_stop(struct node *node)
{
    redis_store_stop(node->redis);
    for (int i = 0; i < 4; i++)
        turn();
    redis_store_free(node->redis);
    node->redis = NULL;
}

static struct store_status status_of(const struct node *node)
{
    struct store_status status = {0};

    store_get_status(node->store, &status);
    return status;
}

bool node_is_ready(const struct node *node)
{
    return status_of(node).ready;
}

bool node_sees_window(const struct node *node)
{
    return status_of(node).window_open;
}

const char *node_problem(const struct node *node)
{
    return status_of(node).problem;
}

const char *node_role(const struct node *node)
{
    return status_of(node).role;
}

size_t node_pending(const struct node *node)
{
    return status_of(node).pending;
}

int64_t node_fence(const struct node *node)
{
    return status_of(node).fence;
}

/* Messages come in order: when one of our own has come, all before it have. */
static void hear_all(struct node *node)
{
    static int count;
    struct lease_id id = id_of('0');
    char mark[32], message[128];
    size_t next = node->note_count;

    snprintf(mark, sizeof(mark), "mark-%d", ++count);
    snprintf(message, sizeof(message), "wake %s %s", id.text, mark);
    ck_assert_int_eq(redis_server_int(&redis, "PUBLISH %s{0}:node:%s %s", PREFIX, redis_store_node(node->redis), message), 1);
    for (int64_t end = now_us() + MESSAGE_MS * 1000;; turn()) {
        for (; next < node->note_count; next++) {
            if (strcmp(node->notes[next].name, mark) == 0) {
                node->notes[next] = node->notes[--node->note_count];
                return;
            }
        }
        ck_assert_msg(now_us() < end, "a message did not come through");
    }
}

static struct note *note_of(struct node *node, char kind, char id, const char *name)
{
    struct lease_id wanted = id_of(id);

    hear_all(node);
    for (size_t i = 0; i < node->note_count; i++) {
        struct note *note = &node->notes[i];
        if (note->kind == kind && strcmp(note->id.text, wanted.text) == 0 && strcmp(note->name, name) == 0)
            return note;
    }
    return NULL;
}

bool node_took(struct node *node, char kind, char id, const char *name)
{
    struct note *note = note_of(node, kind, id, name);

    if (note)
        *note = node->notes[--node->note_count];
    return note;
}

static bool took_with_number(struct node *node, char kind, char id, const char *name, uint64_t confirm)
{
    const struct note *note = note_of(node, kind, id, name);
    bool wanted = note && note->confirm == confirm;

    return node_took(node, kind, id, name) && wanted;
}

bool node_forgot(struct node *node, char id, const char *name, uint64_t confirm)
{
    return took_with_number(node, 'f', id, name, confirm);
}

bool node_took_broken(struct node *node, char id, const char *name, uint64_t confirm)
{
    return took_with_number(node, 'b', id, name, confirm);
}

bool node_heard_nothing(struct node *node)
{
    hear_all(node);
    return node->note_count == 0;
}

/* ---- calls ---- */

struct lease_id id_of(char digit)
{
    struct lease_id id;

    memset(id.text, digit, PAWL_LEASE_ID_LEN);
    id.text[8] = id.text[13] = id.text[18] = id.text[23] = '-';
    if (digit == '0')
        id.text[0] = '1'; /* the nil UUID is none */
    id.text[PAWL_LEASE_ID_LEN] = '\0';
    return id;
}

const char *result_name(enum store_result result)
{
    static const char *const names[] = {"DONE", "REPEATED", "HELD",       "TURN",        "DELAYED",
                                        "FULL", "LOST",     "RECOVERING", "UNAVAILABLE", "UNKNOWN"};

    ck_assert_uint_lt((unsigned)result, sizeof(names) / sizeof(names[0]));
    return names[result];
}

static void on_done(struct store_call *call)
{
    struct asked *asked = call->arg;

    asked->answers++;
    asked->place = ++answered;
    asked->answered_us = now_us();
    ck_assert_msg(asked->answers == 1, "answered twice: operation %d", call->op);
}

static void on_lock(struct store_call *call, const struct store_lock *lock)
{
    struct asked *asked = call->arg;
    size_t len = strlen(asked->listed);

    ck_assert_int_eq(asked->answers, 0);
    snprintf(asked->listed + len, sizeof(asked->listed) - len, "%.*s:%.*s:%" PRId64 ":%" PRId64 " ", (int)lock->name_len, lock->name,
             (int)lock->owner_len, lock->owner, lock->token, lock->waiters);
    asked->listed_count++;
    ck_assert_int_ge(lock->ttl_ms, 0);
    ck_assert_int_ge(lock->held_ms, 0);
}

struct asked *ask(struct node *node, enum store_op op, const char *name, char id)
{
    struct asked *asked;

    ck_assert_uint_lt(call_count, CALLS);
    asked = &calls[call_count++];
    memset(asked, 0, sizeof(*asked));
    asked->node = node;
    snprintf(asked->name, sizeof(asked->name), "%s", name);
    snprintf(asked->owner, sizeof(asked->owner), "owner %c", id ? id : '-');
    asked->call = (struct store_call){.op = op,
                                      .name = asked->name,
                                      .name_len = strlen(asked->name),
                                      .owner = asked->owner,
                                      .owner_len = strlen(asked->owner),
                                      .ttl_ms = TTL_MS,
                                      .max_waiters = 1000,
                                      .cursor = "0",
                                      .look_at = 1000,
                                      .on_lock = on_lock,
                                      .done = on_done,
                                      .arg = asked};
    if (id)
        asked->call.lease_id = id_of(id);
    if (op == STORE_ACQUIRE || op == STORE_RENEW || op == STORE_PUT_BACK)
        asked->call.confirm = ++node->confirm;
    if (op == STORE_ACQUIRE || op == STORE_PUT_BACK)
        asked->call.repeat_confirm = ++node->confirm;
    return asked;
}

struct asked *submit(struct asked *asked)
{
    asked->submitted_us = now_us();
    if (asked->call.deadline_us == 0)
        asked->call.deadline_us = asked->submitted_us + TIMEOUT_MS * 1000;
    store_submit(asked->node->store, &asked->call);
    ck_assert_msg(asked->answers == 0, "answered from inside submit");
    return asked;
}

enum store_result answer(struct asked *asked)
{
    RUN_UNTIL(asked->answers > 0, 10000);
    ck_assert(asked->call.result < STORE_UNAVAILABLE || (asked->call.problem && asked->call.problem[0]));
    return asked->call.result;
}

struct asked *expect_at(struct asked *asked, enum store_result wanted, const char *file, int line)
{
    enum store_result result = answer(asked);

    ck_assert_msg(result == wanted, "%s:%d: %s instead of %s (%s)", file, line, result_name(result), result_name(wanted),
                  asked->call.problem ? asked->call.problem : "");
    return asked;
}

static struct asked *done(struct asked *asked)
{
    (void)answer(submit(asked));
    return asked;
}

struct asked *acquire(struct node *node, const char *name, char id)
{
    return done(ask(node, STORE_ACQUIRE, name, id));
}

struct asked *queue_up_anew(struct node *node, const char *name, char id)
{
    struct asked *asked = ask(node, STORE_ACQUIRE, name, id);

    asked->call.queue = true;
    return done(asked);
}

struct asked *queue_up(struct node *node, const char *name, char id)
{
    struct asked *asked = ask(node, STORE_ACQUIRE, name, id);

    asked->call.queue = true;
    for (struct asked *other = asked - 1; other >= calls; other--) {
        if (other->node != node || other->call.op != STORE_ACQUIRE || !other->call.queue || strcmp(other->name, name) != 0 ||
            strcmp(other->call.lease_id.text, asked->call.lease_id.text) != 0)
            continue;
        if (other->call.result != STORE_DONE && other->call.result != STORE_REPEATED)
            asked->call.confirm = other->call.confirm;
        break;
    }
    return done(asked);
}

struct asked *renew(struct node *node, const char *name, char id, int64_t ttl_ms)
{
    struct asked *asked = ask(node, STORE_RENEW, name, id);

    asked->call.ttl_ms = ttl_ms;
    return done(asked);
}

static struct asked *know(struct asked *asked, const struct asked *grant)
{
    asked->call.lease_id = grant->call.lease_id;
    asked->call.token = grant->call.ret_token;
    asked->call.granted_ms = grant->call.ret_granted_ms;
    asked->call.delay_ms = grant->call.holder.delay_ms;
    asked->call.most_ms = grant->call.holder.most_ms;
    memcpy(asked->owner, grant->call.holder.owner, sizeof(asked->owner));
    asked->call.owner_len = grant->call.holder.owner_len;
    return asked;
}

struct asked *renew_known(struct node *node, const struct asked *grant, int64_t ttl_ms)
{
    struct asked *asked = know(ask(node, STORE_RENEW, grant->name, 'f'), grant);

    asked->call.ttl_ms = ttl_ms;
    return done(asked);
}

struct asked *put_back(struct node *node, const struct asked *grant, int64_t left_ms)
{
    struct asked *asked = know(ask(node, STORE_PUT_BACK, grant->name, 'f'), grant);

    asked->call.confirm = grant->call.ret_confirm;
    asked->call.ttl_ms = left_ms;
    return done(asked);
}

struct asked *release(struct node *node, const char *name, char id)
{
    return done(ask(node, STORE_RELEASE, name, id));
}

struct asked *release_known(struct node *node, const struct asked *grant)
{
    return done(know(ask(node, STORE_RELEASE, grant->name, 'f'), grant));
}

struct asked *check(struct node *node, const char *name, int64_t token)
{
    struct asked *asked = ask(node, STORE_CHECK, name, '\0');

    asked->call.token = token;
    return done(asked);
}

struct asked *break_lock(struct node *node, const char *name)
{
    return done(ask(node, STORE_BREAK, name, '\0'));
}

struct asked *inspect(struct node *node, const char *name, char id)
{
    return done(ask(node, STORE_INSPECT, name, id));
}

struct asked *list(struct node *node, const char *prefix)
{
    struct asked *asked = ask(node, STORE_LIST, "", '\0');

    asked->call.prefix = prefix;
    asked->call.prefix_len = strlen(prefix);
    return done(asked);
}

struct asked *cancel(struct node *node, const struct asked *acquired)
{
    struct asked *asked = ask(node, STORE_CANCEL, acquired->name, 'f');

    asked->call.lease_id = acquired->call.lease_id;
    asked->call.confirm = acquired->call.confirm;
    asked->call.queue = acquired->call.queue;
    return done(asked);
}

struct asked *leave(struct node *node, const char *name, char id)
{
    struct asked *asked = ask(node, STORE_CANCEL, name, id);

    asked->call.queue = true;
    return done(asked);
}

struct asked *take(struct node *node, const char *name, char id)
{
    return EXPECT(acquire(node, name, id), STORE_DONE);
}

static void want_answers(void)
{
    for (size_t i = 0; i < call_count; i++)
        ck_assert_msg(calls[i].submitted_us == 0 || calls[i].answers == 1, "operation %d on %s was answered %d times", calls[i].call.op,
                      calls[i].name, calls[i].answers);
}

void forget_asked(void)
{
    want_answers();
    call_count = 0;
}

/* ---- windows and losses ---- */

void hold_window_open(void)
{
    int64_t now_ms = redis_server_int(&redis, "EVAL %s 0", "return redis.call('TIME')[1] * 1000");
    char value[64];

    snprintf(value, sizeof(value), "6 %" PRId64 " 0 3600000", now_ms); /* left, last, used, interval: an hour a tick */
    redis_server_ok(&redis, "SET %s{0}:recovery %s", PREFIX, value);
}

void close_window(void)
{
    redis_server_ok(&redis, "DEL %s{0}:recovery", PREFIX);
}

void lose_everything(void)
{
    int before[NODES];

    for (size_t i = 0; i < NODES; i++)
        before[i] = nodes[i].attached;
    redis_server_ok(&redis, "FLUSHALL");
    for (size_t i = 0; i < NODES; i++)
        if (nodes[i].redis)
            RUN_UNTIL(nodes[i].attached > before[i], 10000); /* its beat finds out */
    hold_window_open();
}

/* ---- what stands in Redis ---- */

const char *key(const char *kind, const char *name)
{
    static char keys[4][64 + PAWL_NAME_MAX];
    static int which;

    which = (which + 1) % 4;
    snprintf(keys[which], sizeof(keys[which]), "%s{0}:%s:%s", PREFIX, kind, name);
    return keys[which];
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char *keys_left(void)
{
    static char text[1024];
    const char *kinds[64];
    redisReply *reply = redis_server_do(&redis, "KEYS *");
    size_t count = reply->elements < 64 ? reply->elements : 64;

    for (size_t i = 0; i < count; i++) {
        char *kind = strstr(reply->element[i]->str, "{0}:"), *end;
        kinds[i] = kind ? kind + 4 : reply->element[i]->str;
        end = strstr(kinds[i], "node:");
        if (end)
            end[4] = '\0';
    }
    qsort(kinds, count, sizeof(kinds[0]), compare_text);
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i ? " " : "", kinds[i]);
    freeReplyObject(reply);
    return text;
}

int64_t stored_fence(void)
{
    return redis_server_int(&redis, "GET %s{0}:fence", PREFIX);
}

int64_t lock_pttl(const char *name)
{
    return redis_server_int(&redis, "PTTL %s", key("lock", name));
}

void lock_is_foreign(void)
{
    foreign = true;
}

/* C09: no lock key without an end, whatever the test did. */
static void want_ends(void)
{
    redisReply *reply = redis_server_do(&redis, "KEYS %s{0}:lock:*", PREFIX);

    for (size_t i = 0; i < reply->elements; i++)
        ck_assert_msg(redis_server_int(&redis, "PTTL %s", reply->element[i]->str) != -1, "%s has no end", reply->element[i]->str);
    freeReplyObject(reply);
}

/* ---- fixtures ---- */

void rig_make_folder(void)
{
    redis_server_make_folder(&redis);
}

void rig_remove_folder(void)
{
    redis_server_remove_folder(&redis);
}

void rig_restart_redis(void)
{
    redis_server_start(&redis, rig_redis_options);
}

void rig_start_without_redis(void)
{
    log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    call_count = 0;
    foreign = rig_allow_eviction = false;
    rig_redis_options = NULL;
    redis_server_drop_data(&redis);
    base = event_base_new();
    ck_assert_ptr_nonnull(base);
    tick = evtimer_new(base, on_tick, NULL);
    ck_assert_ptr_nonnull(tick);
}

void rig_start(void)
{
    rig_start_without_redis();
    rig_restart_redis();
}

void rig_stop(void)
{
    if (redis.pid && redis.frozen)
        redis_server_thaw(&redis);
    if (redis.pid && !foreign)
        want_ends();
    for (size_t i = 0; i < NODES; i++)
        if (nodes[i].redis)
            node_stop(&nodes[i]);
    want_answers();
    event_free(tick);
    event_base_free(base);
    libevent_global_shutdown();
    redis_server_kill(&redis);
}
