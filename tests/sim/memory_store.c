/* From the top: the data and the scripts over them; the way of a command to the server and back; the node's side, which is redis_store's. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/sim/memory_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_MS    3000
#define TICK_MS      (WINDOW_MS / 6)
#define JUMP         1000000
#define CLOCK_US     INT64_C(1790000000000000) /* the server's wall clock at virtual time 0 */
#define RERUNS_MAX   16
#define RETRY_US     250000
#define CONNECT_US   500000
#define TOMBSTONE_MS 3600000
#define NO_BOUND     INT64_MAX
#define QUEUE_MS     15000
#define COME_BACK_MS 10000
#define LEFT         32
#define SWEEP        256
#define BATCH_MAX    64
#define LONG_TURN_US 20000 /* of a busy loop: plain calls of one turn leave together */

struct lock {
    bool stored, released, broken; /* a lease, a tombstone, or what a break leaves of a lease with a delay */
    int64_t delay_ms,
        spare_ms; /* of a lease; spare: by how much its end may be put off; -1: without bound. Of a tombstone: the delay of what was broken */
    struct lease_id id;
    int64_t token, granted_ms, when_ms; /* gone when the clock shows more than `when` */
    int node;
    uint64_t confirm;
    size_t count, left_count;
    int64_t queue_when_ms;
    struct memory_place places[MEMORY_PLACES]; /* by ticket */
    struct {
        struct lease_id id;
        int64_t ticket, when_ms;
    } left[LEFT]; /* places that their clients may want back: the last few */
};

struct data {                            /* all that a server stores: copied whole for a snapshot */
    int64_t incarnation, identity, base; /* incarnation 0: none */
    int64_t fence;                       /* 0: none */
    int64_t ticks, tick_ms, used;        /* of the window, 0: closed */
    struct lock locks[MEMORY_LOCKS];
    struct {
        int64_t generation, until_ms;
    } nodes[MEMORY_NODES];
};

enum command_kind { CALL, PLAIN, ATTACH, BEAT };
enum mishap { NONE, REFUSED, ODD_AFTER, ODD_BEFORE }; /* the last three: what a sick server does */

struct command { /* on its way: owned by its one pending event */
    struct memory *memory;
    struct node *node;
    struct command *next, *previous; /* in the node's flight */
    enum command_kind kind;
    enum mishap mishap;
    bool ghost, never; /* nobody reads the answer; it does not even run */
    bool ran;
    int64_t server_life; /* of the server that its connection was made to */
    int64_t sent_us, answer_us, deadline_us;
    struct store_call *call, asked; /* asked: the question, copied */
    int lock;
    struct command *parts; /* of a PLAIN: one for each call; of a release with a rider: that. Never on their way by themselves */
    size_t part_count;
    bool part_done; /* of a part: in the common run */
    int64_t incarnation, fence, generation, identity, fresh;

    enum memory_status status;
    int64_t run;
    int64_t ret_fence, ret_token, ret_ttl_ms, ret_granted_ms, ret_ticket, ret_waiters, ret_incarnation, ret_identity, ret_ticks;
    uint64_t ret_confirm;
    struct lease_id ret_woken, ret_broken;
    bool ret_undone, ret_own;
    struct store_holder holder;
};

enum attachment { DETACHED, ATTACHING, READY };

struct node {
    struct store seam;
    struct memory *memory;
    struct store_events events;
    int number;
    bool dead, buried;
    int64_t timeout_ms, stalled_until_us, stall_order;

    enum attachment attachment;
    bool connected, failing; /* failing: the last attempt was in vain; right after a good connection was lost it is not yet known */
    int64_t connection;      /* counts them */
    int64_t server_life, last_run_us, last_answer_us;
    struct command *flight, *flight_last;
    struct store_call *held, **held_last, *failed, **failed_last;
    struct store_call *batch, **batch_last; /* plain calls of this turn, not sent yet */
    size_t batch_count;
    int64_t batches; /* counts them */
    int64_t incarnation, identity, fence, generation, beats;
    bool window_open, beat_sent;
    bool hears; /* the server has a subscription of it */
    int64_t hearing;
};

struct memory {
    struct virtual_time *time;
    struct memory_watch watch;
    struct memory_weather weather;
    enum memory_fault fault;
    struct data data, snapshot;
    int64_t identity, server_life;
    bool away;
    int64_t names;
    struct node *nodes[MEMORY_NODES];
    int node_count;
    struct memory_run *runs;
    int64_t run_count, run_cap;
    struct block *blocks;
};

struct block { /* before each command and letter: what is still on its way at the end is freed with the rest */
    struct block *next, *previous;
};

struct letter { /* a message on its way */
    struct node *node;
    int64_t hearing;
    bool wake, broken; /* neither: a forget */
    struct lease_id id;
    uint64_t confirm; /* of a broken or a forget */
    int lock;
};

static void begin_attach(struct node *n);
static void bury_call(struct node *n, struct store_call *call);
static void drop(struct node *n);
static void send_call(struct node *n, struct store_call *call);

static void *block_new(struct memory *m, size_t size)
{
    struct block *block = sim_alloc(sizeof(*block) + size);

    block->next = m->blocks;
    if (m->blocks)
        m->blocks->previous = block;
    m->blocks = block;
    return block + 1;
}

static void block_free(struct memory *m, void *at)
{
    struct block *block = (struct block *)at - 1;

    if (block->next)
        block->next->previous = block->previous;
    if (block->previous)
        block->previous->next = block->next;
    else
        m->blocks = block->next;
    free(block);
}

static void command_free(struct memory *m, struct command *c)
{
    if (c->parts)
        block_free(m, c->parts);
    block_free(m, c);
}

/* ---- the server's data ---- */

static int64_t now_ms(const struct memory *m)
{
    return (CLOCK_US + m->time->now_us) / 1000;
}

static void expire(struct memory *m, struct lock *lock)
{
    if (lock->stored && now_ms(m) > lock->when_ms)
        lock->stored = false;
    if (lock->count > 0 && now_ms(m) > lock->queue_when_ms)
        lock->count = 0;
}

/* What is left of a lease: below 0, its time is over and its delay is not. */
static int64_t left_ms(const struct memory *m, const struct lock *lock)
{
    return lock->when_ms - now_ms(m) - lock->delay_ms;
}

static bool was_lease(const struct lock *lock)
{
    return lock->stored && !lock->released && !lock->broken;
}

static bool is_lease(const struct memory *m, const struct lock *lock)
{
    return was_lease(lock) && left_ms(m, lock) >= 0;
}

static bool is_delayed(const struct memory *m, const struct lock *lock)
{
    return lock->stored && !lock->released && !is_lease(m, lock);
}

/* The greatest token of which nobody can vouch for a later word. */
static int64_t token_there(const struct memory *m, const struct lock *lock)
{
    return !lock->stored ? 0 : was_lease(lock) && !is_lease(m, lock) ? lock->token - 1 : lock->token;
}

static bool node_known(const struct memory *m, int node)
{
    return m->data.nodes[node].generation > 0 && now_ms(m) <= m->data.nodes[node].until_ms;
}

static int place_of(const struct lock *lock, const struct lease_id *id)
{
    for (size_t i = 0; i < lock->count; i++)
        if (strcmp(lock->places[i].id.text, id->text) == 0)
            return (int)i;
    return -1;
}

static void leave_queue(struct lock *lock, const struct lease_id *id)
{
    int at = place_of(lock, id);

    if (at < 0)
        return;
    lock->count--;
    memmove(&lock->places[at], &lock->places[at + 1], (lock->count - (size_t)at) * sizeof(lock->places[0]));
}

static void take_place(struct lock *lock, const struct memory_place *place)
{
    size_t at = lock->count++;

    for (; at > 0 && lock->places[at - 1].ticket > place->ticket; at--)
        lock->places[at] = lock->places[at - 1];
    lock->places[at] = *place;
}

static void letter_arrives(void *arg, int64_t hearing)
{
    struct letter *letter = arg;
    struct node *n = letter->node;
    char name[2] = {(char)('0' + letter->lock), '\0'};

    if (n->stalled_until_us > n->memory->time->now_us && !n->dead) {
        virtual_time_at(n->memory->time, n->stalled_until_us + n->stall_order++, letter_arrives, letter, hearing);
        return;
    }
    if (!n->dead && n->hearing == letter->hearing) {
        virtual_time_note(n->memory->time, "node %d hears %s %.8s #%d", n->number,
                          letter->wake     ? "wake"
                          : letter->broken ? "broken"
                                           : "forget",
                          letter->id.text, (int)letter->confirm);
        if (letter->wake)
            n->events.wake(n->events.arg, &letter->id, name, 1);
        else if (letter->broken)
            n->events.broken(n->events.arg, &letter->id, letter->confirm, name, 1);
        else
            n->events.forget(n->events.arg, &letter->id, letter->confirm, name, 1);
    }
    block_free(n->memory, letter);
}

/* PUBLISH: true when somebody has subscribed, which does not mean that it arrives. */
static bool send_letter(struct memory *m, int node, bool wake, bool broken, const struct lease_id *id, uint64_t confirm, int lock)
{
    struct node *n = m->nodes[node];
    int64_t longest_us = m->weather.late_us > m->weather.slow_us ? m->weather.late_us : m->weather.slow_us;
    struct letter *letter;

    if (m->fault == MEMORY_NO_WAKE)
        return true;
    if (!n->hears)
        return false;
    if (virtual_time_chance(m->time, m->weather.deaf))
        return true;
    letter = block_new(m, sizeof(*letter));
    *letter = (struct letter){n, n->hearing, wake, broken, *id, confirm, lock};
    virtual_time_at(m->time, m->time->now_us + virtual_time_spread(m->time, 20, longest_us), letter_arrives, letter, 0);
    return true;
}

static bool tell(struct memory *m, int node, const struct lease_id *id, int lock)
{
    return send_letter(m, node, true, false, id, 0, lock);
}

/* ---- the scripts ---- */

/* The node of the first claim that somebody still makes; -1: nobody does. */
static int claimant(const struct memory *m, const struct memory_place *place)
{
    for (size_t i = 0; i < place->claim_count; i++)
        if (place->claims[i].life == m->data.base && node_known(m, place->claims[i].node))
            return place->claims[i].node;
    return -1;
}

static const struct memory_place *first_waiter(struct memory *m, struct lock *lock)
{
    while (lock->count > 0) {
        const struct memory_place *first = &lock->places[m->fault == MEMORY_LAST_FIRST ? lock->count - 1 : 0];
        struct lease_id gone = first->id;
        if (claimant(m, first) >= 0)
            return first;
        m->watch.dropped(m->watch.arg, &gone);
        leave_queue(lock, &gone);
    }
    return NULL;
}

/* The place stays with these claims, and without any it is given up. */
static void keep_claims(struct lock *lock, int at, const struct memory_claim *claims, size_t count)
{
    struct memory_place *place = &lock->places[at];

    if (count == 0) {
        struct lease_id gone = place->id;
        leave_queue(lock, &gone);
        return;
    }
    place->claim_count = count < MEMORY_CLAIMS ? count : MEMORY_CLAIMS;
    memmove(place->claims, claims, place->claim_count * sizeof(*claims));
}

static bool is_claim_of(const struct memory_claim *claim, const struct command *c)
{
    return claim->node == c->node->number && claim->confirm == c->asked.confirm;
}

/* This request's turn has come: its claim goes. The others under this lease id are told to look, and keep the place until they have. */
static void take_turn(struct memory *m, const struct command *c, struct lock *lock)
{
    int at = place_of(lock, &c->asked.lease_id);
    struct memory_claim others[MEMORY_CLAIMS];
    size_t count = 0;

    if (at < 0)
        return;
    for (size_t i = 0; i < lock->places[at].claim_count; i++) {
        const struct memory_claim *claim = &lock->places[at].claims[i];
        if (!is_claim_of(claim, c) && m->fault != MEMORY_LAST_CLAIM)
            others[count++] = *claim;
        if (claim->node != c->node->number)
            (void)tell(m, claim->node, &c->asked.lease_id, c->lock);
    }
    keep_claims(lock, at, others, count);
}

/* Drops waiters of dead nodes and other lives from this place on. */
static void sweep(struct memory *m, struct lock *lock, int64_t from)
{
    size_t at = (size_t)from - 1;

    for (int i = 0; i < SWEEP && at < lock->count; i++) {
        struct memory_place place = lock->places[at];
        if (claimant(m, &place) >= 0) {
            at++;
            continue;
        }
        m->watch.dropped(m->watch.arg, &place.id);
        leave_queue(lock, &place.id);
    }
}

static void wake_next(struct memory *m, struct command *c, struct lock *lock)
{
    const struct memory_place *first = first_waiter(m, lock);

    if (!first || m->fault == MEMORY_NO_WAKE)
        return;
    if (claimant(m, first) == c->node->number) {
        c->ret_woken = first->id;
        return;
    }
    if (tell(m, claimant(m, first), &first->id, c->lock))
        return;
    for (size_t i = 1; i < 5 && i < lock->count; i++) {
        if (lock->places[i].claims[0].node == c->node->number) {
            c->ret_woken = lock->places[i].id;
            return;
        }
        if (tell(m, lock->places[i].claims[0].node, &lock->places[i].id, c->lock))
            return;
    }
}

static void bury(struct memory *m, struct lock *lock, int64_t token, int64_t delay_ms)
{
    if (m->fault == MEMORY_BREAK_FREES)
        delay_ms = 0;
    lock->released = m->data.ticks > 0;
    lock->broken = m->data.ticks == 0 && delay_ms > 0;
    lock->stored = lock->released || lock->broken;
    lock->token = token;
    lock->delay_ms = delay_ms;
    lock->when_ms = now_ms(m) + (lock->broken ? delay_ms : TOMBSTONE_MS);
}

static void forget(struct memory *m, const struct command *c, const struct lock *lock)
{
    if (lock->node != c->node->number)
        (void)send_letter(m, lock->node, false, c->asked.op == STORE_BREAK, &lock->id,
                          m->fault == MEMORY_FORGET_ALL ? INT64_MAX : lock->confirm, c->lock);
}

/* `most_ms`: from now on; NO_BOUND. In the last millisecond of its bound a lease stays as it is: false. */
static bool write_lease(struct memory *m, struct command *c, struct lock *lock, int64_t token, int64_t granted_ms, int64_t ttl_ms,
                        int64_t delay_ms, int64_t most_ms)
{
    int64_t lasts_ms;

    if (ttl_ms > most_ms && m->fault != MEMORY_PUSHED)
        ttl_ms = most_ms;
    c->ret_token = token;
    c->ret_granted_ms = granted_ms;
    c->ret_confirm = c->asked.confirm;
    c->ret_ttl_ms = ttl_ms;
    c->holder.delay_ms = delay_ms;
    c->holder.most_ms = most_ms == NO_BOUND ? 0 : most_ms;
    if (ttl_ms + delay_ms < 1)
        return false;
    lasts_ms = m->fault == MEMORY_SHORT_TTL && ttl_ms > 20 ? ttl_ms / 2 : ttl_ms;
    lock->stored = true;
    lock->released = lock->broken = false;
    lock->delay_ms = m->fault == MEMORY_NO_DELAY ? 0 : delay_ms;
    lock->spare_ms = most_ms == NO_BOUND ? -1 : most_ms > ttl_ms ? most_ms - ttl_ms : 0;
    lock->id = c->asked.lease_id;
    lock->token = token;
    lock->node = c->node->number;
    lock->confirm = c->asked.confirm;
    lock->granted_ms = granted_ms;
    lock->when_ms = now_ms(m) + lasts_ms + lock->delay_ms;
    return true;
}

/* How long this lease may be held from now on. */
static int64_t most_ms(const struct memory *m, const struct lock *lock)
{
    return lock->spare_ms < 0 ? NO_BOUND : left_ms(m, lock) + lock->spare_ms;
}

static int64_t asked_most_ms(const struct command *c)
{
    return c->asked.most_ms > 0 ? c->asked.most_ms : NO_BOUND;
}

/* The ticket that its client left and wants back, 0: none. It is given once. */
static int64_t take_left_ticket(const struct memory *m, struct lock *lock, const struct lease_id *id)
{
    int64_t ticket = 0;

    for (size_t i = 0; i < LEFT; i++) {
        if (strcmp(lock->left[i].id.text, id->text) != 0)
            continue;
        if (now_ms(m) <= lock->left[i].when_ms)
            ticket = lock->left[i].ticket;
        lock->left[i].when_ms = -1;
    }
    return ticket;
}

static void leave_ticket(const struct memory *m, struct lock *lock, const struct memory_place *place)
{
    size_t at = lock->left_count++ % LEFT;

    for (size_t i = 0; i < LEFT; i++)
        if (strcmp(lock->left[i].id.text, place->id.text) == 0)
            at = i;
    lock->left[at].id = place->id;
    lock->left[at].ticket = place->ticket;
    lock->left[at].when_ms = now_ms(m) + COME_BACK_MS;
}

static bool enqueue(struct memory *m, struct command *c, struct lock *lock)
{
    struct memory_place place = {.id = c->asked.lease_id, .ticket = c->asked.ticket};
    struct memory_claim claims[MEMORY_CLAIMS + 1];
    size_t count = 0;
    int at = place_of(lock, &c->asked.lease_id);

    if (!c->asked.queue)
        return true;
    if (at < 0) {
        if ((int64_t)lock->count >= c->asked.max_waiters)
            return false;
        if (place.ticket == 0 && c->asked.comes_back)
            place.ticket = take_left_ticket(m, lock, &place.id);
        if (place.ticket == 0)
            place.ticket = ++m->data.fence;
        take_place(lock, &place);
        at = place_of(lock, &c->asked.lease_id);
    }
    claims[count++] = (struct memory_claim){c->node->number, m->data.base, c->asked.confirm};
    for (size_t i = 0; i < lock->places[at].claim_count; i++)
        if (!is_claim_of(&lock->places[at].claims[i], c))
            claims[count++] = lock->places[at].claims[i];
    if (count > MEMORY_CLAIMS)
        m->watch.crowded(m->watch.arg, &c->asked.lease_id);
    keep_claims(lock, at, claims, count);
    c->ret_ticket = lock->places[at].ticket;
    lock->queue_when_ms = now_ms(m) + QUEUE_MS;
    return true;
}

static void read_holder(const struct memory *m, struct command *c, const struct lock *lock)
{
    int64_t left = left_ms(m, lock), held = now_ms(m) - lock->granted_ms;

    c->holder.token = lock->token;
    c->holder.ttl_ms = left > 0 ? left : 0;
    c->holder.held_ms = held > 0 ? held : 0;
    c->holder.delay_ms = lock->delay_ms;
}

static enum memory_status run_acquire(struct memory *m, struct command *c, struct lock *lock, struct memory_run *run)
{
    bool overlooked = m->fault == MEMORY_TWO_HOLDERS && virtual_time_chance(m->time, 300);
    bool mine = is_lease(m, lock) && strcmp(lock->id.text, c->asked.lease_id.text) == 0;
    bool plain = !lock->stored && lock->count == 0 && m->data.ticks == 0; /* the script's short way: it looks for no ticket left behind */
    const struct memory_place *first;

    if (c->asked.sweep_from > 0 && m->data.ticks == 0)
        sweep(m, lock, c->asked.sweep_from);
    if (m->data.ticks > 0)
        return enqueue(m, c, lock) ? RAN_RECOVERING : RAN_FULL;
    if (is_lease(m, lock) && !mine && !overlooked) {
        if (!enqueue(m, c, lock))
            return RAN_FULL;
        c->ret_waiters = (int64_t)lock->count;
        read_holder(m, c, lock);
        return RAN_HELD;
    }
    if (was_lease(lock) && !is_lease(m, lock) && strcmp(lock->id.text, c->asked.lease_id.text) == 0 && lock->node == c->node->number &&
        lock->confirm == c->asked.confirm) /* of an earlier run of this call, and over before it could be told */
        bury(m, lock, lock->token, 0);
    if (is_delayed(m, lock) && !overlooked) {
        if (!enqueue(m, c, lock))
            return RAN_FULL;
        c->ret_waiters = (int64_t)lock->count;
        c->holder.delay_ms = lock->when_ms - now_ms(m);
        return RAN_DELAYED;
    }
    if (!mine) {
        first = m->fault == MEMORY_BARGE || overlooked ? NULL : first_waiter(m, lock);
        if (first && strcmp(first->id.text, c->asked.lease_id.text) != 0) {
            struct lease_id turn = first->id;
            int host = claimant(m, first);
            if (!enqueue(m, c, lock))
                return RAN_FULL;
            c->ret_waiters = (int64_t)lock->count;
            if (host != c->node->number)
                (void)tell(m, host, &turn, c->lock);
            else if (m->fault != MEMORY_NO_WAKE)
                c->ret_woken = turn;
            return RAN_TURN;
        }
        take_turn(m, c, lock);
        if (c->asked.queue && c->asked.comes_back && !plain)
            (void)take_left_ticket(m, lock, &c->asked.lease_id);
        (void)write_lease(m, c, lock, ++m->data.fence, now_ms(m), c->asked.ttl_ms, c->asked.delay_ms, asked_most_ms(c));
        return RAN_GRANTED;
    }
    take_turn(m, c, lock);
    forget(m, c, lock);
    c->ret_ttl_ms = left_ms(m, lock) > c->asked.ttl_ms ? left_ms(m, lock) : c->asked.ttl_ms;
    run->again = lock->node == c->node->number && lock->confirm == c->asked.confirm;
    if (write_lease(m, c, lock, lock->token <= m->data.base || m->fault == MEMORY_NEW_TOKEN ? ++m->data.fence : lock->token,
                    lock->granted_ms, c->ret_ttl_ms, lock->delay_ms, most_ms(m, lock)) &&
        !run->again && m->fault != MEMORY_REPEAT_UNDONE)
        lock->confirm = c->ret_confirm = c->asked.repeat_confirm; /* an earlier call may have been told: no undo has this number */
    return run->again ? RAN_GRANTED : RAN_REPEATED;
}

static enum memory_status run_renew(struct memory *m, struct command *c, struct lock *lock)
{
    bool stranger = m->fault == MEMORY_STRANGER && is_lease(m, lock);

    if (is_lease(m, lock) && (stranger || strcmp(lock->id.text, c->asked.lease_id.text) == 0) &&
        (m->data.ticks == 0 || lock->token >= c->asked.token)) {
        if (m->data.ticks > 0 && c->asked.token == 0)
            return RAN_RECOVERING;
        forget(m, c, lock);
        (void)write_lease(m, c, lock, lock->token, lock->granted_ms, c->asked.ttl_ms, lock->delay_ms, most_ms(m, lock));
        return RAN_RENEWED;
    }
    if (m->data.ticks == 0)
        return RAN_LOST;
    if (c->asked.token == 0)
        return RAN_RECOVERING;
    if (token_there(m, lock) >= c->asked.token)
        return RAN_LOST;
    if (c->asked.token > m->data.fence)
        m->data.fence = c->asked.token;
    (void)write_lease(m, c, lock, c->asked.token, c->asked.granted_ms, c->asked.ttl_ms, c->asked.delay_ms, asked_most_ms(c));
    return RAN_RENEWED;
}

static enum memory_status run_release(struct memory *m, struct command *c, struct lock *lock)
{
    bool stranger = m->fault == MEMORY_STRANGER && is_lease(m, lock);

    if (is_lease(m, lock) && (stranger || strcmp(lock->id.text, c->asked.lease_id.text) == 0)) {
        c->ret_token = lock->token;
        forget(m, c, lock);
        bury(m, lock, lock->token > c->asked.token ? lock->token : c->asked.token, 0);
        if (m->data.ticks == 0)
            wake_next(m, c, lock);
        return RAN_RELEASED;
    }
    if (m->data.ticks == 0)
        return RAN_LOST;
    if (c->asked.token == 0)
        return RAN_RECOVERING;
    if (token_there(m, lock) > c->asked.token || (lock->stored && lock->broken && lock->token == c->asked.token))
        return RAN_LOST;
    c->ret_token = c->asked.token;
    bury(m, lock, c->asked.token, 0);
    return RAN_RELEASED;
}

static enum memory_status run_break(struct memory *m, struct command *c, struct lock *lock)
{
    if (!is_lease(m, lock))
        return m->data.ticks > 0 ? RAN_RECOVERING : RAN_LOST;
    read_holder(m, c, lock);
    forget(m, c, lock);
    if (lock->node == c->node->number) {
        c->ret_broken = lock->id;
        c->ret_confirm = lock->confirm;
    }
    bury(m, lock, lock->token, lock->delay_ms);
    if (m->data.ticks == 0)
        wake_next(m, c, lock);
    return RAN_BROKEN;
}

static enum memory_status run_check(struct memory *m, struct command *c, struct lock *lock)
{
    if (is_lease(m, lock) && lock->token == c->asked.token) {
        c->ret_ttl_ms = left_ms(m, lock) > 0 ? left_ms(m, lock) : 0;
        return RAN_SHOWN;
    }
    return m->data.ticks > 0 && token_there(m, lock) < c->asked.token ? RAN_RECOVERING : RAN_LOST;
}

static enum memory_status run_cancel(struct memory *m, struct command *c, struct lock *lock)
{
    bool confirmed =
        (c->asked.confirm > 0 && lock->node == c->node->number && lock->confirm == c->asked.confirm) || m->fault == MEMORY_UNDO_BY_ID;
    int at = place_of(lock, &c->asked.lease_id);
    struct memory_claim others[MEMORY_CLAIMS];
    size_t count = 0;
    bool was_first = false;

    if (was_lease(lock) && strcmp(lock->id.text, c->asked.lease_id.text) == 0 && confirmed && m->fault != MEMORY_NO_UNDO) {
        bury(m, lock, lock->token - 1, 0); /* lesser tokens are kept out; another node may vouch for this one */
        c->ret_undone = true;
    }
    if (c->asked.queue && at >= 0 && m->fault != MEMORY_KEEP_PLACE) {
        struct memory_place *place = &lock->places[at];
        for (size_t i = 0; i < place->claim_count; i++)
            if (!is_claim_of(&place->claims[i], c) && !(c->asked.confirm == 0 && place->claims[i].node == c->node->number) &&
                m->fault != MEMORY_LAST_CLAIM)
                others[count++] = place->claims[i];
        if (count < place->claim_count) {
            was_first = at == 0;
            if (count == 0 && c->asked.comes_back)
                leave_ticket(m, lock, place);
            keep_claims(lock, at, others, count);
        }
    }
    if (m->data.ticks == 0 && (c->ret_undone || (was_first && !is_lease(m, lock))))
        wake_next(m, c, lock);
    c->ret_waiters = (int64_t)lock->count;
    c->ret_own = is_lease(m, lock) && strcmp(lock->id.text, c->asked.lease_id.text) == 0;
    if (is_lease(m, lock))
        read_holder(m, c, lock);
    else if (is_delayed(m, lock))
        c->holder.delay_ms = lock->when_ms - now_ms(m);
    return RAN_CANCELLED;
}

static void keep_window(struct memory *m, const struct command *c)
{
    if (c->asked.token > m->data.fence)
        m->data.fence = c->asked.token;
    if (m->data.ticks < 3 && m->data.used < 21)
        m->data.ticks = 3;
}

/* Only the delay after a lease that was broken. */
static enum memory_status run_put_back_broken(struct memory *m, struct command *c, struct lock *lock)
{
    int64_t when_ms = now_ms(m) + c->asked.ttl_ms;

    if (lock->stored && lock->released && lock->token == c->asked.token)
        return RAN_SHOWN; /* its tombstone knows of it */
    if (m->data.ticks == 0 || c->asked.ttl_ms < 1 || token_there(m, lock) > c->asked.token || m->fault == MEMORY_NO_PUT_BACK)
        return RAN_LOST;
    if (lock->stored && lock->broken && lock->token == c->asked.token && lock->when_ms > when_ms)
        when_ms = lock->when_ms;
    lock->stored = lock->broken = true;
    lock->released = false;
    lock->token = c->asked.token;
    lock->delay_ms = 0;
    lock->when_ms = when_ms;
    keep_window(m, c);
    return RAN_SHOWN;
}

static enum memory_status run_put_back(struct memory *m, struct command *c, struct lock *lock)
{
    bool same = was_lease(lock) && lock->token == c->asked.token && strcmp(lock->id.text, c->asked.lease_id.text) == 0;
    int64_t bound_ms = asked_most_ms(c), left = left_ms(m, lock);

    if (same && (m->data.ticks > 0 || is_lease(m, lock))) {
        bool own = lock->node == c->node->number && lock->confirm == c->asked.confirm;
        if (most_ms(m, lock) < bound_ms)
            bound_ms = most_ms(m, lock);
        if (m->data.ticks > 0) {
            (void)write_lease(m, c, lock, lock->token, c->asked.granted_ms, left > c->asked.ttl_ms ? left : c->asked.ttl_ms,
                              c->asked.delay_ms, bound_ms);
            if (!own)
                lock->confirm = c->asked.repeat_confirm;
        }
        c->ret_token = lock->token;
        c->ret_ttl_ms = left_ms(m, lock);
        return RAN_PUT_BACK;
    }
    if (m->data.ticks == 0 || token_there(m, lock) >= c->asked.token || c->asked.ttl_ms + c->asked.delay_ms < 1 ||
        m->fault == MEMORY_NO_PUT_BACK)
        return RAN_LOST;
    (void)write_lease(m, c, lock, c->asked.token, c->asked.granted_ms, c->asked.ttl_ms, c->asked.delay_ms, asked_most_ms(c));
    keep_window(m, c);
    return RAN_PUT_BACK;
}

static bool differs(const struct memory *m, const struct command *c)
{
    const struct data *d = &m->data;
    int node = c->node->number;

    return d->incarnation == 0 || d->incarnation != c->incarnation || !node_known(m, node) || d->nodes[node].generation != c->generation ||
           d->fence == 0 || (d->fence < c->fence && m->fault != MEMORY_STALE_FENCE);
}

static struct memory_run begin_run(const struct memory *m, const struct command *c, const struct lock *lock)
{
    return (struct memory_run){.at_us = m->time->now_us,
                               .node = c->node->number,
                               .op = c->asked.op,
                               .lock = c->lock,
                               .id = c->asked.lease_id,
                               .confirm = c->asked.confirm,
                               .asked_ms = c->asked.ttl_ms,
                               .holder = lock->id,
                               .was_held = is_lease(m, lock),
                               .window = m->data.ticks > 0,
                               .ghost = c->ghost};
}

static void record(struct memory *m, struct command *c, const struct lock *lock, struct memory_run *run)
{
    run->number = m->run_count;
    c->ret_fence = m->data.fence;
    c->run = run->number;
    run->status = c->status;
    run->token = c->status == RAN_BROKEN ? c->holder.token : c->ret_token;
    run->ttl_ms = c->ret_ttl_ms;
    run->ticket = c->ret_ticket;
    run->undone = c->ret_undone;
    if (m->run_count == m->run_cap) {
        m->run_cap = m->run_cap ? 2 * m->run_cap : 1024;
        m->runs = sim_grow(m->runs, (size_t)m->run_cap * sizeof(*run));
    }
    m->runs[m->run_count++] = *run;
    virtual_time_note(
        m->time, "store: %s of node %d lock %d %.8s #%d -> %s token %lld ticket %lld left %lld%s%s",
        (const char *[]){"acquire", "renew", "release", "check", "break", "inspect", "list", "put back", "cancel"}[c->asked.op], run->node,
        run->lock, run->id.text, (int)run->confirm, memory_status_word(run->status), (long long)run->token, (long long)run->ticket,
        (long long)(is_lease(m, lock) ? left_ms(m, lock) : -1), run->undone ? " undone" : "", c->ghost ? " (nobody will read this)" : "");
    m->watch.ran(m->watch.arg, run, c->answer_us);
}

/* A release's rider: granted in the same run if it is the head of the queue. */
static void run_rider(struct memory *m, struct command *c, struct lock *lock)
{
    struct command *part = c->parts;
    struct memory_run run;

    if (c->status != RAN_RELEASED || strcmp(c->ret_woken.text, part->asked.lease_id.text) != 0 ||
        (place_of(lock, &part->asked.lease_id) != 0 && m->fault != MEMORY_RIDE_PAST))
        return; /* the one to be woken need not be the head, but only one further back whose node listens */
    run = begin_run(m, part, lock);
    run.ghost = part->ghost = c->ghost;
    part->answer_us = c->answer_us;
    take_turn(m, part, lock);
    (void)write_lease(m, part, lock, ++m->data.fence, now_ms(m), part->asked.ttl_ms, part->asked.delay_ms, asked_most_ms(part));
    part->status = RAN_GRANTED;
    part->part_done = true;
    c->ret_woken.text[0] = '\0';
    record(m, part, lock, &run);
    c->ret_fence = m->data.fence;
}

static void run_call(struct memory *m, struct command *c)
{
    struct lock *lock = &m->data.locks[c->lock];
    struct memory_run run;

    expire(m, lock);
    run = begin_run(m, c, lock);
    if (differs(m, c)) {
        c->status = RAN_DIFFERS;
    } else {
        switch (c->asked.op) {
        case STORE_ACQUIRE:
            c->status = run_acquire(m, c, lock, &run);
            break;
        case STORE_RENEW:
            c->status = run_renew(m, c, lock);
            break;
        case STORE_RELEASE:
            c->status = run_release(m, c, lock);
            break;
        case STORE_BREAK:
            c->status = run_break(m, c, lock);
            break;
        case STORE_CHECK:
            c->status = run_check(m, c, lock);
            break;
        case STORE_CANCEL:
            c->status = run_cancel(m, c, lock);
            break;
        case STORE_PUT_BACK:
            c->status = c->asked.broken ? run_put_back_broken(m, c, lock) : run_put_back(m, c, lock);
            break;
        default:
            c->status = RAN_SHOWN;
            c->ret_waiters = (int64_t)lock->count;
            c->ret_ticket = place_of(lock, &c->asked.lease_id) + 1; /* read back as the position */
            if (is_lease(m, lock))
                read_holder(m, c, lock);
            break;
        }
    }
    record(m, c, lock, &run);
    if (c->part_count > 0)
        run_rider(m, c, lock);
}

/* Many acquires and releases of the plain kind in one run. */
static void run_plain(struct memory *m, struct command *c)
{
    struct lock seen[MEMORY_LOCKS];
    bool window = m->data.ticks > 0;

    if (differs(m, c)) {
        c->status = RAN_DIFFERS;
        return;
    }
    for (int i = 0; i < MEMORY_LOCKS; i++)
        expire(m, &m->data.locks[i]);
    memcpy(seen, m->data.locks, sizeof(seen));
    for (size_t i = 0; i < c->part_count; i++) {
        struct command *part = &c->parts[i];
        struct lock *lock = &m->data.locks[part->lock], *then = &seen[part->lock];
        struct memory_run run = begin_run(m, part, lock);
        part->ghost = run.ghost = c->ghost;
        part->answer_us = c->answer_us;
        if (window || lock->count > 0)
            continue;
        if (part->asked.op == STORE_ACQUIRE && !then->stored) {
            m->data.fence++;
            if (lock->stored)
                continue;
            (void)write_lease(m, part, lock, m->data.fence, now_ms(m), part->asked.ttl_ms, part->asked.delay_ms, asked_most_ms(part));
            part->status = RAN_GRANTED;
        } else if (part->asked.op == STORE_RELEASE && is_lease(m, then) && strcmp(then->id.text, part->asked.lease_id.text) == 0 &&
                   then->node == c->node->number && lock->stored && then->delay_ms == 0 && then->spare_ms < 0) {
            part->ret_token = lock->token;
            bury(m, lock, lock->token, 0);
            part->status = RAN_RELEASED;
        } else {
            continue;
        }
        part->part_done = true;
        record(m, part, lock, &run);
    }
    c->status = RAN_SHOWN;
    c->ret_fence = m->data.fence;
}

/* With the window go the tombstones that stood in it. */
static void tick_window(struct memory *m)
{
    struct data *d = &m->data;

    if (d->ticks == 0 || now_ms(m) - d->tick_ms < TICK_MS)
        return;
    d->ticks--;
    d->used++;
    d->tick_ms = now_ms(m);
    if (d->ticks > 0)
        return;
    for (int i = 0; i < MEMORY_LOCKS; i++) {
        struct lock *lock = &d->locks[i];
        int64_t until_ms = lock->when_ms - TOMBSTONE_MS + lock->delay_ms; /* of what was broken while the window was open */
        if (!lock->released)
            continue;
        lock->broken = lock->stored && lock->delay_ms > 0 && until_ms > now_ms(m);
        lock->stored = lock->broken;
        lock->released = false;
        lock->when_ms = until_ms;
    }
    virtual_time_note(m->time, "store: the window closes");
    m->watch.closed(m->watch.arg);
}

static void run_attach(struct memory *m, struct command *c)
{
    struct data *d = &m->data;
    int64_t above = d->fence > c->fence ? d->fence : c->fence;
    int node = c->node->number;

    if (d->incarnation && d->fence && (d->fence >= c->fence || m->fault == MEMORY_STALE_FENCE) && d->identity == m->identity) {
        if (c->fence > 0 && d->incarnation != c->incarnation && d->fence < c->fence + JUMP && m->fault != MEMORY_STALE_FENCE)
            d->fence = c->fence + JUMP;
        tick_window(m);
    } else {
        if (m->fault != MEMORY_STALE_FENCE)
            d->fence = CLOCK_US + m->time->now_us > above + JUMP ? CLOCK_US + m->time->now_us : above + JUMP;
        else if (d->fence == 0)
            d->fence = CLOCK_US;
        d->incarnation = c->fresh;
        d->identity = m->identity;
        d->base = d->fence;
        d->ticks = 6;
        d->used = 0;
        d->tick_ms = now_ms(m);
        virtual_time_note(m->time, "store: node %d opens life %lld", node, (long long)d->incarnation);
        m->watch.opened(m->watch.arg);
    }
    d->nodes[node].generation = m->fault == MEMORY_RUN_TWICE ? 1 : c->generation;
    d->nodes[node].until_ms = now_ms(m) + MEMORY_NODE_MS;
    c->status = RAN_SHOWN;
    c->ret_fence = d->fence;
    c->ret_incarnation = d->incarnation;
    c->ret_identity = d->identity;
    c->ret_ticks = d->ticks;
}

static void run_beat(struct memory *m, struct command *c)
{
    if (differs(m, c) || c->identity != m->identity) {
        c->status = RAN_DIFFERS;
        return;
    }
    m->data.nodes[c->node->number].until_ms = now_ms(m) + MEMORY_NODE_MS;
    tick_window(m);
    c->status = RAN_SHOWN;
    c->ret_fence = m->data.fence;
    c->ret_ticks = m->data.ticks;
}

/* ---- a command's way ---- */

static void answered(void *arg, int64_t tag);

static void link_out(struct command *c)
{
    struct node *n = c->node;

    if (c->previous)
        c->previous->next = c->next;
    else
        n->flight = c->next;
    if (c->next)
        c->next->previous = c->previous;
    else
        n->flight_last = c->previous;
    c->next = c->previous = NULL;
}

static void arrives(void *arg, int64_t tag)
{
    struct command *c = arg;
    struct memory *m = c->memory;

    (void)tag;
    if (c->never || c->server_life != m->server_life) {
        if (!c->ghost)
            virtual_time_at(m->time, INT64_MAX, answered, c, 0); /* until its connection is seen to be broken */
        else
            command_free(m, c);
        return;
    }
    if (c->mishap != REFUSED && c->mishap != ODD_BEFORE) {
        c->ran = true;
        if (c->kind == CALL)
            run_call(m, c);
        else if (c->kind == PLAIN)
            run_plain(m, c);
        else if (c->kind == ATTACH)
            run_attach(m, c);
        else
            run_beat(m, c);
    }
    if (c->ghost)
        command_free(m, c);
    else
        virtual_time_at(m->time, c->answer_us, answered, c, 0);
}

static void cut_now(void *arg, int64_t connection)
{
    struct node *n = arg;

    if (n->dead || !n->connected || n->connection != connection)
        return;
    if (n->stalled_until_us > n->memory->time->now_us)
        virtual_time_at(n->memory->time, n->stalled_until_us + n->stall_order++, cut_now, n, connection);
    else
        drop(n);
}

static int64_t way_us(struct memory *m)
{
    return virtual_time_spread(m->time, 25, m->weather.slow_us);
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Sets out: when it will run, when the answer will be there. */
static void set_out(struct node *n, struct command *c, int64_t deadline_us)
{
    struct memory *m = n->memory;
    bool hangs = virtual_time_chance(m->time, m->weather.hang) || (m->fault == MEMORY_LATE && virtual_time_chance(m->time, 100));

    c->memory = m;
    c->node = n;
    c->server_life = n->server_life;
    c->incarnation = n->incarnation;
    c->fence = n->fence;
    c->generation = m->fault == MEMORY_RUN_TWICE ? 1 : n->generation;
    c->identity = n->identity;
    c->sent_us = m->time->now_us;
    c->deadline_us = deadline_us;
    c->previous = n->flight_last;
    if (n->flight_last)
        n->flight_last->next = c;
    else
        n->flight = c;
    n->flight_last = c;
    n->last_run_us = later(n->last_run_us + 1, c->sent_us + way_us(m));
    if (hangs && virtual_time_chance(m->time, 5000))
        n->last_run_us += 2 * n->timeout_ms * 1000;
    n->last_answer_us = c->answer_us = later(n->last_answer_us + 1, n->last_run_us + way_us(m));
    if (hangs)
        n->last_answer_us = c->answer_us = c->answer_us + 2 * n->timeout_ms * 1000;
    if (c->answer_us > deadline_us && m->fault != MEMORY_LATE)
        virtual_time_at(m->time, deadline_us, cut_now, n, n->connection);
    if (virtual_time_chance(m->time, m->weather.cut))
        virtual_time_at(m->time, virtual_time_between(m->time, c->sent_us, c->answer_us), cut_now, n, n->connection);
    if ((c->kind == CALL || c->kind == PLAIN) && virtual_time_chance(m->time, m->weather.sick))
        c->mishap = (enum mishap)virtual_time_between(m->time, REFUSED, ODD_BEFORE);
    virtual_time_at(m->time, n->last_run_us, arrives, c, 0);
}

/* ---- the node's side: finishing calls ---- */

static void fill_answer(struct store_call *call, const struct command *c, enum store_result result)
{
    call->problem = "";
    call->result = result;
    call->sent_us = c->sent_us;
    call->reruns = (int)c->run;
    call->ret_token = c->ret_token;
    call->ret_ttl_ms = c->ret_ttl_ms;
    call->ret_granted_ms = c->ret_granted_ms;
    call->ret_confirm = c->ret_confirm;
    call->ret_ticket = c->ret_ticket;
    call->ret_position = c->ret_ticket;
    call->ret_waiters = c->ret_waiters;
    call->ret_undone = c->ret_undone;
    call->ret_own = c->ret_own;
    call->ret_woken = c->ret_woken;
    call->ret_broken = c->ret_broken;
    if (result != STORE_RECOVERING && result != STORE_LOST && result != STORE_FULL)
        call->holder = c->holder;
}

/* A release's rider is answered right before it when it was granted; right after it when it is somebody else's turn, or when it shares the
 * release's failure. */
static void done(struct store_call *call, const struct command *part)
{
    struct store_call *rider = call->rider;
    bool failed = call->result == STORE_UNKNOWN || call->result == STORE_UNAVAILABLE;

    if (rider && part && part->part_done) {
        fill_answer(rider, part, STORE_DONE);
    } else if (rider) {
        rider->sent_us = call->sent_us;
        rider->result = failed ? call->result : STORE_TURN;
        rider->problem = call->problem;
        rider->ret_ticket = rider->ticket;
        rider->ret_woken.text[0] = '\0';
        rider->reruns = -1;
    }
    if (rider && rider->result == STORE_DONE) {
        rider->done(rider);
        rider = NULL;
    }
    call->done(call);
    if (rider)
        rider->done(rider);
}

static void deliver_failed(void *arg, int64_t tag)
{
    struct node *n = arg;
    struct store_call *call = n->failed;

    (void)tag;
    if (n->dead && !n->buried)
        return;
    if (n->stalled_until_us > n->memory->time->now_us && !n->buried) {
        virtual_time_at(n->memory->time, n->stalled_until_us + n->stall_order++, deliver_failed, n, 0);
        return;
    }
    n->failed = NULL;
    n->failed_last = &n->failed;
    while (call) {
        struct store_call *next = call->next;
        done(call, NULL);
        call = next;
    }
}

static void fail_later(struct node *n, struct store_call *call, const char *problem)
{
    call->result = call->may_have_run ? STORE_UNKNOWN : STORE_UNAVAILABLE;
    call->problem = problem;
    call->reruns = -1;
    call->next = NULL;
    *n->failed_last = call;
    n->failed_last = &call->next;
    virtual_time_at(n->memory->time, n->memory->time->now_us, deliver_failed, n, 0);
}

static void keep(struct node *n, struct store_call *call)
{
    call->next = NULL;
    *n->held_last = call;
    n->held_last = &call->next;
}

static struct store_call *take_held(struct node *n)
{
    struct store_call *call = n->held;

    n->held = NULL;
    n->held_last = &n->held;
    return call;
}

static void expire_held(void *arg, int64_t tag)
{
    struct node *n = arg;
    struct store_call *call;

    (void)tag;
    if (n->dead)
        return;
    if (n->stalled_until_us > n->memory->time->now_us) {
        virtual_time_at(n->memory->time, n->stalled_until_us + n->stall_order++, expire_held, n, 0);
        return;
    }
    for (call = take_held(n); call;) {
        struct store_call *next = call->next;
        if (call->deadline_us <= n->memory->time->now_us) {
            fail_later(n, call, "no answer in time");
        } else {
            keep(n, call);
        }
        call = next;
    }
}

static void hold(struct node *n, struct store_call *call)
{
    keep(n, call);
    virtual_time_at(n->memory->time, call->deadline_us, expire_held, n, 0);
}

static void fail_held(struct node *n, const char *problem)
{
    for (struct store_call *call = take_held(n); call;) {
        struct store_call *next = call->next;
        fail_later(n, call, problem);
        call = next;
    }
}

static void send_held(struct node *n)
{
    for (struct store_call *call = take_held(n); call;) {
        struct store_call *next = call->next;
        send_call(n, call);
        call = next;
    }
}

static void rerun(struct node *n, struct store_call *call)
{
    if (++call->reruns > RERUNS_MAX)
        fail_later(n, call, "the store changed too often");
    else
        hold(n, call);
}

static void fill_part(struct node *n, struct command *part, const struct store_call *call)
{
    part->memory = n->memory;
    part->node = n;
    part->asked = *call;
    part->lock = call->name[0] - '0';
    part->sent_us = n->memory->time->now_us;
}

/* It has no call of its own on the way: it shares the release's fate. */
static void add_rider(struct node *n, struct command *c, const struct store_call *rider)
{
    c->parts = block_new(n->memory, sizeof(*c));
    c->part_count = 1;
    fill_part(n, c->parts, rider);
}

/* A call may have been held, or be run again: what was left is less now. */
static void take_off_passed(const struct node *n, struct store_call *asked)
{
    int64_t passed_ms = asked->known_us > 0 ? (n->memory->time->now_us - asked->known_us) / 1000 : 0;

    if (asked->op == STORE_PUT_BACK)
        asked->ttl_ms -= passed_ms;
    if (asked->most_ms > 0)
        asked->most_ms = asked->most_ms > passed_ms + 1 ? asked->most_ms - passed_ms : 1;
}

static void send_call(struct node *n, struct store_call *call)
{
    struct command *c;

    if (!n->connected) {
        hold(n, call);
        return;
    }
    c = block_new(n->memory, sizeof(*c));
    c->kind = CALL;
    c->call = call;
    c->asked = *call;
    take_off_passed(n, &c->asked);
    c->lock = call->name[0] - '0';
    if (call->rider)
        add_rider(n, c, call->rider);
    set_out(n, c, call->deadline_us);
}

static bool repeatable(const struct store_call *call)
{
    return call->op != STORE_RELEASE && call->op != STORE_BREAK;
}

/* ---- the node's side: plain calls, many at a time ---- */

static bool is_plain(const struct store_call *call)
{
    return (call->op == STORE_ACQUIRE && !call->queue && call->ticket == 0 && !call->contended) ||
           (call->op == STORE_RELEASE && !call->contended);
}

static struct store_call *take_batch(struct node *n)
{
    struct store_call *calls = n->batch;

    n->batch = NULL;
    n->batch_last = &n->batch;
    n->batch_count = 0;
    n->batches++;
    return calls;
}

static void send_batch(struct node *n, struct store_call *calls, size_t count)
{
    struct command *c = block_new(n->memory, sizeof(*c));
    int64_t deadline_us = INT64_MAX;

    c->kind = PLAIN;
    c->parts = block_new(n->memory, count * sizeof(*c));
    for (struct store_call *call = calls; call; call = call->next) {
        struct command *part = &c->parts[c->part_count++];
        fill_part(n, part, call);
        part->call = call;
        if (call->deadline_us < deadline_us)
            deadline_us = call->deadline_us;
    }
    virtual_time_note(n->memory->time, "node %d sends %zu plain calls at once", n->number, count);
    set_out(n, c, deadline_us);
}

static void flush_batch(struct node *n)
{
    size_t count = n->batch_count;
    struct store_call *calls = take_batch(n);

    if (count == 1)
        send_call(n, calls);
    else if (count > 1)
        send_batch(n, calls, count);
}

/* The connection or the life of the data ended before they were sent. */
static void hold_batch(struct node *n)
{
    for (struct store_call *call = take_batch(n), *next; call; call = next) {
        next = call->next;
        hold(n, call);
    }
}

static void turn_ends(void *arg, int64_t batch)
{
    struct node *n = arg;

    if (n->dead || n->batches != batch)
        return;
    if (n->stalled_until_us > n->memory->time->now_us)
        virtual_time_at(n->memory->time, n->stalled_until_us + n->stall_order++, turn_ends, n, batch);
    else
        flush_batch(n);
}

static void add_to_batch(struct node *n, struct store_call *call)
{
    struct virtual_time *time = n->memory->time;
    int64_t turn_us = virtual_time_chance(time, 3000) ? virtual_time_spread(time, 1, LONG_TURN_US) : 0;

    call->next = NULL;
    *n->batch_last = call;
    n->batch_last = &call->next;
    if (n->batch_count++ == 0)
        virtual_time_at(time, time->now_us + turn_us, turn_ends, n, n->batches);
    if (n->batch_count == BATCH_MAX)
        flush_batch(n);
}

/* Takes the calls out of a command and hands each on. */
static void each_call(struct node *n, struct command *c, void (*fn)(struct node *n, struct store_call *call))
{
    struct store_call *call = c->call;

    c->call = NULL;
    if (call)
        fn(n, call);
    for (size_t i = 0; i < c->part_count; i++) {
        call = c->parts[i].call;
        c->parts[i].call = NULL;
        if (call)
            fn(n, call);
    }
}

static void call_lost(struct node *n, struct store_call *call)
{
    call->may_have_run = true;
    if (repeatable(call))
        rerun(n, call);
    else
        fail_later(n, call, "the connection was lost");
}

/* What the status becomes in the broker's words. */
static void finish(struct command *c)
{
    static const enum store_result results[] = {
        [RAN_GRANTED] = STORE_DONE,  [RAN_REPEATED] = STORE_REPEATED,     [RAN_HELD] = STORE_HELD,       [RAN_TURN] = STORE_TURN,
        [RAN_FULL] = STORE_FULL,     [RAN_RECOVERING] = STORE_RECOVERING, [RAN_RENEWED] = STORE_DONE,    [RAN_RELEASED] = STORE_DONE,
        [RAN_LOST] = STORE_LOST,     [RAN_BROKEN] = STORE_DONE,           [RAN_SHOWN] = STORE_DONE,      [RAN_CANCELLED] = STORE_DONE,
        [RAN_PUT_BACK] = STORE_DONE, [RAN_DIFFERS] = STORE_UNKNOWN,       [RAN_DELAYED] = STORE_DELAYED,
    };
    fill_answer(c->call, c, results[c->status]);
    done(c->call, c->parts);
}

static void call_failed(struct node *n, struct command *c, enum mishap mishap)
{
    struct store_call *call = c->call;

    call->sent_us = c->sent_us;
    call->result = call->may_have_run || mishap != REFUSED ? STORE_UNKNOWN : STORE_UNAVAILABLE;
    call->problem = mishap == REFUSED ? "the store refused" : "the store gave an odd answer";
    call->reruns = -1;
    virtual_time_note(n->memory->time, "node %d: %.8s: %s", n->number, call->lease_id.text, call->problem);
    done(call, NULL);
}

static void see_fence(struct node *n, int64_t fence)
{
    if (fence > n->fence)
        n->fence = fence;
}

static void call_answered(struct node *n, struct command *c)
{
    if (c->mishap != NONE) {
        call_failed(n, c, c->mishap);
    } else if (c->status == RAN_DIFFERS) {
        rerun(n, c->call);
        begin_attach(n);
    } else {
        see_fence(n, c->ret_fence);
        finish(c);
    }
}

static void batch_answered(struct node *n, struct command *c)
{
    if (c->mishap == NONE && c->status == RAN_DIFFERS) {
        each_call(n, c, rerun);
        begin_attach(n);
        return;
    }
    if (c->mishap == NONE)
        see_fence(n, c->ret_fence);
    for (size_t i = 0; i < c->part_count; i++) {
        struct command *part = &c->parts[i];
        if (c->mishap != NONE)
            call_failed(n, part, c->mishap);
        else if (part->part_done)
            finish(part);
        else
            send_call(n, part->call);
    }
}

static void subscribed(void *arg, int64_t hearing)
{
    struct node *n = arg;

    if (n->dead || n->hearing != hearing || !n->connected)
        return;
    if (n->stalled_until_us > n->memory->time->now_us) {
        virtual_time_at(n->memory->time, n->stalled_until_us + n->stall_order++, subscribed, n, hearing);
        return;
    }
    n->events.missed(n->events.arg);
}

static void server_subscribes(void *arg, int64_t hearing)
{
    struct node *n = arg;

    if (n->dead || n->hearing != hearing || !n->connected)
        return;
    n->hears = true;
    virtual_time_at(n->memory->time, n->memory->time->now_us + way_us(n->memory), subscribed, n, hearing);
}

static void subscribe(struct node *n)
{
    n->hears = false;
    virtual_time_at(n->memory->time, n->memory->time->now_us + way_us(n->memory), server_subscribes, n, ++n->hearing);
}

static void beat(void *arg, int64_t beats)
{
    struct node *n = arg;
    struct command *c;

    if (n->dead || n->attachment != READY || n->beats != beats)
        return;
    if (n->stalled_until_us > n->memory->time->now_us) {
        virtual_time_at(n->memory->time, n->stalled_until_us + n->stall_order++, beat, n, beats);
        return;
    }
    if (!n->beat_sent && n->connected) {
        c = block_new(n->memory, sizeof(*c));
        c->kind = BEAT;
        n->beat_sent = true;
        set_out(n, c, n->memory->time->now_us + n->timeout_ms * 1000);
    }
    virtual_time_at(n->memory->time, n->memory->time->now_us + MEMORY_BEAT_MS * 1000, beat, n, beats);
}

static void beat_answered(struct node *n, const struct command *c)
{
    bool was_open = n->window_open;

    n->beat_sent = false;
    if (n->attachment != READY)
        return;
    if (c->status == RAN_DIFFERS) {
        begin_attach(n);
        return;
    }
    if (c->ret_fence > n->fence)
        n->fence = c->ret_fence;
    n->window_open = c->ret_ticks > 0;
    if (was_open && !n->window_open) {
        virtual_time_note(n->memory->time, "node %d: the window is closed", n->number);
        n->events.window_closed(n->events.arg);
    }
}

static void attach_answered(struct node *n, const struct command *c)
{
    bool new_life = n->incarnation != c->ret_incarnation;

    if (n->attachment != ATTACHING)
        return;
    if (c->ret_fence > n->fence)
        n->fence = c->ret_fence;
    n->incarnation = c->ret_incarnation;
    n->identity = c->ret_identity;
    n->attachment = READY;
    n->window_open = c->ret_ticks > 0;
    virtual_time_note(n->memory->time, "node %d attached%s", n->number, n->window_open ? ", window open" : "");
    if (!n->hears)
        subscribe(n);
    n->memory->watch.trouble(n->memory->watch.arg, n->number);
    n->events.attached(n->events.arg, new_life, n->window_open);
    beat(n, ++n->beats);
    send_held(n);
}

static void answered(void *arg, int64_t tag)
{
    struct command *c = arg;
    struct node *n = c->node;
    struct memory *m = c->memory;

    (void)tag;
    if (c->ghost) {
        command_free(m, c);
        return;
    }
    if (n->dead) { /* kept for the burial */
        link_out(c);
        each_call(n, c, keep);
        command_free(m, c);
        return;
    }
    if (n->stalled_until_us > m->time->now_us) {
        virtual_time_at(m->time, n->stalled_until_us + n->stall_order++, answered, c, 0);
        return;
    }
    if (m->time->now_us > c->deadline_us && m->fault != MEMORY_LATE && virtual_time_chance(m->time, 5000)) {
        drop(n); /* the timer was looked at before the socket; makes this command a ghost as well */
        command_free(m, c);
        return;
    }
    link_out(c);
    if (c->kind == CALL)
        call_answered(n, c);
    else if (c->kind == PLAIN)
        batch_answered(n, c);
    else if (c->kind == ATTACH)
        attach_answered(n, c);
    else
        beat_answered(n, c);
    command_free(m, c);
}

/* ---- the node's side: connections ---- */

static void attempt(void *arg, int64_t connection);

static void detach(struct node *n)
{
    bool was_ready = n->attachment == READY;

    n->attachment = DETACHED;
    if (was_ready) {
        n->memory->watch.trouble(n->memory->watch.arg, n->number);
        n->events.detached(n->events.arg);
    }
}

static void begin_attach(struct node *n)
{
    struct command *c;

    if (n->attachment == ATTACHING || !n->connected)
        return;
    detach(n);
    hold_batch(n);
    n->attachment = ATTACHING;
    n->generation++;
    c = block_new(n->memory, sizeof(*c));
    c->kind = ATTACH;
    c->fresh = ++n->memory->names;
    set_out(n, c, n->memory->time->now_us + n->timeout_ms * 1000);
}

/* The connection is gone: of the commands in flight the first few may still run, the rest never arrive. */
static void drop(struct node *n)
{
    struct memory *m = n->memory;
    struct command *c = n->flight, *next;
    bool lost = false;

    if (!n->connected)
        return;
    virtual_time_note(m->time, "node %d: the connection is gone", n->number);
    n->connected = n->hears = n->beat_sent = false;
    n->connection++;
    n->hearing++;
    n->flight = n->flight_last = NULL;
    for (; c; c = next) {
        next = c->next;
        c->next = c->previous = NULL;
        c->ghost = true;
        if (!c->ran) {
            lost = lost || virtual_time_chance(m->time, 4000);
            c->never = lost;
        }
        each_call(n, c, call_lost);
    }
    detach(n);
    hold_batch(n);
    virtual_time_at(m->time, m->time->now_us + virtual_time_spread(m->time, 1000, RETRY_US), attempt, n, n->connection);
}

static void attempt_failed(void *arg, int64_t connection)
{
    struct node *n = arg;

    if (n->dead || n->connected || n->connection != connection)
        return;
    n->failing = true;
    fail_held(n, "the store can't be reached");
    virtual_time_at(n->memory->time, n->memory->time->now_us + RETRY_US, attempt, n, connection);
}

static void attempt(void *arg, int64_t connection)
{
    struct node *n = arg;
    struct memory *m = n->memory;

    if (n->dead || n->connected || n->connection != connection)
        return;
    if (n->stalled_until_us > m->time->now_us) {
        virtual_time_at(m->time, n->stalled_until_us + n->stall_order++, attempt, n, connection);
        return;
    }
    if (m->away) {
        virtual_time_at(m->time, m->time->now_us + virtual_time_between(m->time, 0, 1) * CONNECT_US, attempt_failed, n, connection);
        return;
    }
    n->connected = true;
    n->failing = false;
    n->server_life = m->server_life;
    n->last_run_us = n->last_answer_us = m->time->now_us;
    begin_attach(n);
}

static void submit(struct store *seam, struct store_call *call)
{
    struct node *n = (struct node *)seam;

    call->reruns = 0;
    call->may_have_run = false;
    if (n->buried) {
        bury_call(n, call);
    } else if (n->attachment == READY && n->connected) {
        if (is_plain(call)) {
            add_to_batch(n, call);
        } else {
            flush_batch(n);
            send_call(n, call);
        }
    } else if (n->attachment == DETACHED && n->failing) {
        fail_later(n, call, "the store can't be reached");
    } else {
        hold(n, call);
    }
}

static void status(const struct store *seam, struct store_status *ret)
{
    const struct node *n = (const struct node *)seam;

    memset(ret, 0, sizeof(*ret));
    ret->ready = n->attachment == READY;
    ret->window_open = n->window_open;
    ret->problem = ret->address = ret->role = ret->incarnation = "";
    ret->fence = n->fence;
}

/* ---- nodes ---- */

int memory_node_start(struct memory *m, const struct store_events *events, int64_t timeout_ms, struct store **ret_store)
{
    static const struct store_ops ops = {.takes_riders = true, .submit = submit, .status = status};
    struct node *n;

    if (m->node_count == MEMORY_NODES)
        return -1;
    n = sim_alloc(sizeof(*n));
    n->seam.ops = &ops;
    n->memory = m;
    n->events = *events;
    n->number = m->node_count;
    n->timeout_ms = timeout_ms;
    n->held_last = &n->held;
    n->batch_last = &n->batch;
    n->failed_last = &n->failed;
    m->nodes[m->node_count++] = n;
    *ret_store = &n->seam;
    virtual_time_at(m->time, m->time->now_us, attempt, n, 0);
    return n->number;
}

void memory_node_kill(struct memory *m, int node)
{
    struct node *n = m->nodes[node];

    n->dead = true;
    n->hears = virtual_time_chance(m->time, 2000); /* its machine died with it: the server thinks it is still there */
    n->hearing++;
    for (struct command *c = n->flight; c; c = c->next)
        if (!c->ran && virtual_time_chance(m->time, 3000))
            c->never = true;
}

static void bury_call(struct node *n, struct store_call *call)
{
    fail_later(n, call, "buried");
    if (call->op == STORE_CANCEL)
        call->result = STORE_DONE;
}

/* Hands every call back, so that what hangs on them can be freed. */
void memory_node_bury(struct memory *m, int node)
{
    struct node *n = m->nodes[node];
    struct command *c, *next;

    n->dead = n->buried = true;
    n->connected = false;
    for (c = n->flight; c; c = next) {
        next = c->next;
        c->next = c->previous = NULL;
        c->ghost = c->never = true;
        each_call(n, c, bury_call);
    }
    n->flight = n->flight_last = NULL;
    hold_batch(n);
    for (struct store_call *call = take_held(n); call;) {
        struct store_call *after = call->next;
        bury_call(n, call);
        call = after;
    }
    for (struct store_call *call = n->failed; call; call = call->next)
        if (call->op == STORE_CANCEL)
            call->result = STORE_DONE;
    virtual_time_at(n->memory->time, n->memory->time->now_us, deliver_failed, n, 0);
}

void memory_node_stall(struct memory *m, int node, int64_t us)
{
    struct node *n = m->nodes[node];

    virtual_time_note(m->time, "node %d stalls for %lld ms", node, (long long)us / 1000);
    n->stalled_until_us = m->time->now_us + us;
    n->stall_order = 0;
}

int64_t memory_node_stalled_until_us(const struct memory *m, int node)
{
    return m->nodes[node]->stalled_until_us;
}

void memory_node_cut(struct memory *m, int node)
{
    struct node *n = m->nodes[node];

    if (!n->dead && n->connected)
        virtual_time_at(m->time, n->stalled_until_us, cut_now, n, n->connection);
}

void memory_node_deafen(struct memory *m, int node)
{
    struct node *n = m->nodes[node];

    if (n->dead || !n->connected || !n->hears)
        return;
    n->hears = false;
    virtual_time_at(m->time, m->time->now_us + virtual_time_spread(m->time, 1000, 1000000), server_subscribes, n, ++n->hearing);
}

/* ---- the server's fate ---- */

void memory_snapshot(struct memory *m)
{
    m->snapshot = m->data;
}

static void break_all(struct memory *m)
{
    m->server_life++;
    for (int i = 0; i < m->node_count; i++) {
        struct node *n = m->nodes[i];
        n->hears = false;
        if (!n->dead && n->connected)
            virtual_time_at(m->time, later(n->stalled_until_us, m->time->now_us + virtual_time_between(m->time, 0, 3000)), cut_now, n,
                            n->connection);
    }
}

void memory_lose(struct memory *m, enum memory_loss loss)
{
    virtual_time_note(m->time, "store: %s",
                      (const char *[]){"restarted with all data", "restarted with an older copy", "restarted empty", "flushed"}[loss]);
    if (loss == MEMORY_OLDER)
        m->data = m->snapshot;
    else if (loss != MEMORY_KEPT)
        memset(&m->data, 0, sizeof(m->data));
    if (loss != MEMORY_FLUSHED) {
        m->identity++;
        break_all(m);
    }
    m->watch.lost(m->watch.arg, loss == MEMORY_KEPT);
    m->watch.trouble(m->watch.arg, -1);
}

void memory_away(struct memory *m, bool away)
{
    virtual_time_note(m->time, "store: %s", away ? "away" : "back");
    if (away && !m->away)
        break_all(m);
    m->away = away;
    m->watch.trouble(m->watch.arg, -1);
}

/* ---- looking in ---- */

bool memory_holder(const struct memory *m, int lock, struct lease_id *ret_id, uint64_t *ret_confirm, int64_t *ret_left_us)
{
    const struct lock *l = &m->data.locks[lock];

    if (!is_lease(m, l))
        return false;
    *ret_id = l->id;
    *ret_confirm = l->confirm;
    *ret_left_us = (l->when_ms - l->delay_ms + 1) * 1000 - CLOCK_US - m->time->now_us;
    return true;
}

bool memory_delayed(const struct memory *m, int lock)
{
    const struct lock *l = &m->data.locks[lock];

    return is_delayed(m, l) && now_ms(m) <= l->when_ms;
}

size_t memory_places(const struct memory *m, int lock, const struct memory_place **ret_places)
{
    *ret_places = m->data.locks[lock].places;
    return m->data.locks[lock].count;
}

int64_t memory_life(const struct memory *m)
{
    return m->data.base;
}

bool memory_window_open(const struct memory *m)
{
    return m->data.ticks > 0 || m->data.incarnation == 0 || m->data.identity != m->identity;
}

bool memory_node_ready(const struct memory *m, int node)
{
    const struct node *n = m->nodes[node];

    return !n->dead && n->attachment == READY && n->stalled_until_us <= m->time->now_us;
}

bool memory_node_known(const struct memory *m, int node)
{
    return node_known(m, node);
}

const struct memory_run *memory_run_of(const struct memory *m, const struct store_call *call)
{
    return call->reruns >= 0 && call->reruns < m->run_count ? &m->runs[call->reruns] : NULL;
}

const char *memory_status_word(enum memory_status word)
{
    static const char *const words[] = {"differs", "granted",  "repeated", "held",   "turn",  "delayed",   "full",    "recovering",
                                        "renewed", "released", "lost",     "broken", "shown", "cancelled", "put back"};

    return words[word];
}

const char *memory_fault_word(enum memory_fault fault)
{
    static const char *const words[] = {
        [MEMORY_SOUND] = "none",
        [MEMORY_UNDO_BY_ID] = "undo by id alone",
        [MEMORY_REPEAT_UNDONE] = "undo of a repeated acquire",
        [MEMORY_NO_UNDO] = "no undo",
        [MEMORY_KEEP_PLACE] = "places are kept",
        [MEMORY_BARGE] = "barging",
        [MEMORY_LAST_FIRST] = "last first",
        [MEMORY_NO_WAKE] = "no wake-ups, no poll",
        [MEMORY_SHORT_TTL] = "short ttl",
        [MEMORY_TWO_HOLDERS] = "two holders",
        [MEMORY_STALE_FENCE] = "stale fence",
        [MEMORY_STRANGER] = "strangers renew",
        [MEMORY_NEW_TOKEN] = "new token for a repeat",
        [MEMORY_RUN_TWICE] = "late copies run",
        [MEMORY_LATE] = "late answers",
        [MEMORY_LAST_CLAIM] = "a cancel takes every claim",
        [MEMORY_RIDE_PAST] = "a rider passes the head",
        [MEMORY_NO_PUT_BACK] = "nothing is put back",
        [MEMORY_FORGET_ALL] = "a message is about any confirmation",
        [MEMORY_NO_DELAY] = "no delay",
        [MEMORY_BREAK_FREES] = "a break leaves no delay",
        [MEMORY_PUSHED] = "renewals past the bound",
    };

    return words[fault];
}

struct memory_weather *memory_weather(struct memory *m)
{
    return &m->weather;
}

struct memory *memory_new(struct virtual_time *time, const struct memory_watch *watch, enum memory_fault fault)
{
    struct memory *m = sim_alloc(sizeof(*m));

    m->time = time;
    m->watch = *watch;
    m->fault = fault;
    m->weather.slow_us = 200;
    m->identity = 1;
    return m;
}

void memory_free(struct memory *m)
{
    for (struct block *block = m->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    for (int i = 0; i < m->node_count; i++)
        free(m->nodes[i]);
    free(m->runs);
    free(m);
}
