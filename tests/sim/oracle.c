#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/sim/oracle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTLE_US      3500000 /* an undo that failed is tried again after a second; then a call's time */
#define PUT_BACK_US    1500000 /* from a node's attach to its last lease put back, in fair weather */
#define TWIN_US        1500000 /* from one being told to the other being told the same */
#define TICKS_A_SECOND 6000
#define TICKS_AT_ONCE  300

static int64_t latest(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void oracle_fail(struct oracle *o, const char *format, ...)
{
    va_list args;

    if (o->failure[0])
        return;
    va_start(args, format);
    vsnprintf(o->failure, sizeof(o->failure), format, args);
    va_end(args);
    virtual_time_note(o->time, "FAILED: %s", o->failure);
}

void oracle_init(struct oracle *o, struct virtual_time *time)
{
    memset(o, 0, sizeof(*o));
    o->time = time;
    for (int i = 0; i < MEMORY_LOCKS; i++)
        o->free_us[i] = o->held_us[i] = INT64_MAX;
}

void oracle_close(struct oracle *o)
{
    struct ask *ask;

    while ((ask = o->asks) != NULL) {
        o->asks = ask->next;
        free(ask);
    }
    for (int64_t i = 0; i < o->story_count; i++)
        free(o->stories[i]);
    free(o->stories);
}

/* ---- stories ---- */

/* The number is in the id, so that a story is found by it. */
struct story *oracle_story(struct oracle *o, int lock)
{
    struct story *story = sim_alloc(sizeof(*story));

    if (o->story_count == o->story_cap) {
        o->story_cap = o->story_cap ? 2 * o->story_cap : 256;
        o->stories = sim_grow(o->stories, (size_t)o->story_cap * sizeof(struct story *));
    }
    story->number = o->story_count;
    story->lock = lock;
    snprintf(story->id.text, sizeof(story->id.text), "%08x-0000-4000-8000-000000000000", (unsigned)story->number);
    o->stories[o->story_count++] = story;
    return story;
}

static struct story *story_of(const struct oracle *o, const struct lease_id *id)
{
    return o->stories[strtol(id->text, NULL, 16)];
}

bool oracle_believes(const struct oracle *o, const struct story *story)
{
    return story->told && !story->given_up && !story->broken && story->claim_us > o->time->now_us;
}

/* It ended, and not by a release or a break; its delay has not. */
static bool in_delay(const struct oracle *o, const struct story *story)
{
    return story->told && !story->given_up && !story->broken && story->claim_us <= o->time->now_us &&
           story->claim_us + story->delay_ms * 1000 > o->time->now_us;
}

/* ---- what the store did ---- */

/* P6: nobody gets a lock past a waiter that has the earlier ticket, and none of those who have no ticket gets it past anyone. */
static void check_order(struct oracle *o, const struct memory_run *run, const struct story *winner)
{
    int64_t ticket = winner->ticket > 0 && winner->ticket_opened == o->opened ? winner->ticket : INT64_MAX;

    for (const struct ask *ask = o->asks; ask; ask = ask->next) {
        const struct story *story = ask->story;
        if (ask->op != STORE_ACQUIRE || ask->end_us <= o->time->now_us || story == winner || story->lock != run->lock || ask->submitting)
            continue;
        if (ask->ticket == 0 || ask->ticket_opened != o->opened || ask->ticket >= ticket || story->crowded)
            continue;
        if (!o->nodes[ask->node].alive || o->nodes[ask->node].draining)
            continue;
        oracle_fail(o, "P6: lock %d was granted to %.8s (ticket %lld) while %.8s waited at node %d with ticket %lld", run->lock,
                    winner->id.text, (long long)winner->ticket, story->id.text, ask->node, (long long)ask->ticket);
    }
}

static bool is_run_of(const struct ask *ask, const struct memory_run *run)
{
    return ask->node == run->node && ask->request->call.confirm == run->confirm;
}

static void saw_place(struct oracle *o, const struct memory_run *run, struct story *story)
{
    story->ticket = run->ticket;
    story->ticket_opened = o->opened;
    for (struct ask *ask = o->asks; ask; ask = ask->next) {
        if (ask->story == story && is_run_of(ask, run)) {
            ask->ticket = run->ticket;
            ask->ticket_opened = o->opened;
        }
    }
}

/* Its place has rightly gone. */
static void saw_no_place(struct oracle *o, struct story *story)
{
    story->ticket = 0;
    for (struct ask *ask = o->asks; ask; ask = ask->next)
        if (ask->story == story)
            ask->ticket = 0;
}

static const struct memory_place *place_of(const struct oracle *o, const struct story *story)
{
    const struct memory_place *places;
    size_t count = memory_places(o->memory, story->lock, &places);

    for (size_t i = 0; i < count; i++)
        if (strcmp(places[i].id.text, story->id.text) == 0)
            return &places[i];
    return NULL;
}

/* It has used up its claim to the place; others under the same lease id keep theirs, and with it the place. */
static void saw_place_used(struct oracle *o, const struct memory_run *run, struct story *story)
{
    const struct memory_place *place = place_of(o, story);

    story->ticket = place ? place->ticket : 0;
    for (struct ask *ask = o->asks; ask; ask = ask->next)
        if (ask->story == story && is_run_of(ask, run))
            ask->ticket = 0;
}

/* P10: no other lease within the delay of one that its client was told of, and has not given up. (Who gave one up may have released it.) */
static void check_delay(struct oracle *o, const struct memory_run *run, const struct story *winner)
{
    if (run->at_us < o->broken_until_us[run->lock])
        oracle_fail(o, "P10: lock %d was granted to %.8s %lld us before the end of the delay after a break", run->lock, winner->id.text,
                    (long long)(o->broken_until_us[run->lock] - run->at_us));
    for (int64_t i = 0; i < o->story_count; i++) {
        const struct story *other = o->stories[i];
        if (other == winner || other->lock != run->lock || other->delay_ms == 0 || !other->told || other->given_up || other->broken ||
            other->distrusted)
            continue;
        if (run->at_us < other->claim_us + other->delay_ms * 1000)
            oracle_fail(o, "P10: lock %d was granted to %.8s %lld us before the end of the delay of %.8s", run->lock, winner->id.text,
                        (long long)(other->claim_us + other->delay_ms * 1000 - run->at_us), other->id.text);
    }
}

/* P11: the store's own end of a lease is not later than its bound. (Each new life of the data may move it by the time that putting back takes on its
 * way, and no longer.) */
static void check_bound(struct oracle *o, const struct memory_run *run, const struct story *story)
{
    int64_t way_us = (o->opened - story->granted_opened) * 3 * o->timeout_ms * 1000;
    int64_t bound_us = story->granted_us + (story->most_ms + 2) * 1000 + way_us;

    if (story->most_ms == 0)
        return;
    o->seen.bounded++;
    if (run->at_us + run->ttl_ms * 1000 > bound_us)
        oracle_fail(o, "P11: lock %d: %.8s was to be held for %lld ms and is held for %lld us more", run->lock, story->id.text,
                    (long long)story->most_ms, (long long)(run->at_us + run->ttl_ms * 1000 - bound_us));
}

static void saw_grant(struct oracle *o, const struct memory_run *run, struct story *story)
{
    bool taken_over = run->was_held && strcmp(run->holder.text, run->id.text) == 0;

    o->seen.grants++;
    if (run->again) {
        o->greatest[run->lock] = latest(o->greatest[run->lock], run->token);
        return;
    }
    if (run->token <= o->greatest[run->lock])
        oracle_fail(o, "P2: lock %d: token %lld was granted after %lld", run->lock, (long long)run->token,
                    (long long)o->greatest[run->lock]);
    o->greatest[run->lock] = run->token;
    story->granted_us = run->at_us;
    story->granted_opened = o->opened;
    check_bound(o, run, story);
    if (taken_over)
        return;
    check_order(o, run, story);
    check_delay(o, run, story);
}

static void ran(void *arg, const struct memory_run *run, int64_t answer_us)
{
    struct oracle *o = arg;
    struct story *story = story_of(o, &run->id), *holder = run->was_held ? story_of(o, &run->holder) : NULL;

    (void)answer_us;
    o->seen.runs++;
    switch (run->status) {
    case RAN_GRANTED:
        saw_grant(o, run, story);
        o->free_us[run->lock] = INT64_MAX;
        saw_place_used(o, run, story);
        story->last_run = run->number;
        break;
    case RAN_REPEATED:
        saw_place_used(o, run, story);
        if (run->token > o->greatest[run->lock]) /* a lease of an earlier life has got a token of this one */
            o->greatest[run->lock] = run->token;
        story->last_run = run->number;
        check_bound(o, run, story);
        break;
    case RAN_RENEWED:
        story->last_run = run->number;
        check_bound(o, run, story);
        break;
    case RAN_DELAYED:
        o->seen.delayed++;
        __attribute__((fallthrough));
    case RAN_HELD:
    case RAN_TURN:
    case RAN_RECOVERING:
        if (run->op == STORE_ACQUIRE && run->ticket > 0)
            saw_place(o, run, story);
        break;
    case RAN_PUT_BACK: /* P3: from here on it excludes others again */
        check_bound(o, run, story);
        if (story->claim_token == run->token && run->at_us + (run->ttl_ms + 2) * 1000 >= story->claim_us)
            story->distrusted = false;
        if (story->claim_token == run->token && story->voucher_run == story->last_run) {
            story->voucher_run = run->number;
            if (run->at_us + (run->asked_ms + 2) * 1000 >= story->claim_us) /* one that knows of an earlier end vouches for that alone */
                story->voucher = run->node;
        }
        story->last_run = run->number;
        break;
    case RAN_BROKEN:
        if (holder) {
            holder->broken = true;
            holder->last_run = run->number;
            o->broken_until_us[run->lock] = run->at_us + holder->delay_ms * 1000;
        }
        break;
    case RAN_RELEASED:
    case RAN_CANCELLED:
        if (run->undone)
            o->seen.undone++;
        if (holder && (run->status == RAN_RELEASED || run->undone))
            holder->last_run = run->number;
        break;
    default:
        break;
    }
}

static void lost(void *arg, bool all_kept)
{
    struct oracle *o = arg;

    o->seen.lost++;
    if (!all_kept) {
        o->lost_us = o->time->now_us;
        memset(o->broken_until_us, 0, sizeof(o->broken_until_us));
    }
    for (int64_t i = 0; i < o->story_count; i++) {
        struct story *story = o->stories[i];
        if (!story->distrusted)
            story->owed = oracle_believes(o, story) || in_delay(o, story);
        if (all_kept)
            continue;
        story->distrusted = true;
        story->must_go = false; /* an older copy may have what was undone since */
    }
}

static void opened(void *arg)
{
    ((struct oracle *)arg)->opened++;
}

/* P3: a lease that stood when data were lost stands again, if the node that vouches for it was there for a part of the window, undisturbed. */
static void check_put_back(const struct story *story, struct oracle *o)
{
    const struct oracle_node *n = &o->nodes[story->voucher];
    struct lease_id id = {""};
    uint64_t confirm;
    int64_t left_us = 0;

    if (story->voucher_run != story->last_run || story->claim_us + story->delay_ms * 1000 < o->time->now_us + 5000)
        return;
    if (!in_delay(o, story) && (!oracle_believes(o, story) || story->claim_us < o->time->now_us + 5000))
        return;
    if (!n->alive || o->hostile || o->time->now_us < latest(n->shaken_us, n->stalled_us) + PUT_BACK_US ||
        !memory_node_ready(o->memory, story->voucher))
        return;
    o->seen.owed++;
    if (in_delay(o, story)) { /* P10: the delay stands again, or a later lease of this lock does */
        if (!memory_delayed(o->memory, story->lock) && !memory_holder(o->memory, story->lock, &id, &confirm, &left_us))
            oracle_fail(o, "P10: the delay of %.8s at lock %d has %lld us left and node %d vouches for it; the window has closed without",
                        story->id.text, story->lock, (long long)(story->claim_us + story->delay_ms * 1000 - o->time->now_us),
                        story->voucher);
        return;
    }
    if (!memory_holder(o->memory, story->lock, &id, &confirm, &left_us) || strcmp(id.text, story->id.text) != 0)
        oracle_fail(
            o,
            "P3: %.8s holds lock %d with token %lld by all it was told and node %d vouches for it; the window has closed and %s holds it",
            story->id.text, story->lock, (long long)story->claim_token, story->voucher, id.text[0] ? id.text : "nobody");
}

static void closed(void *arg)
{
    struct oracle *o = arg;

    for (int64_t i = 0; i < o->story_count; i++) {
        if (o->stories[i]->owed)
            check_put_back(o->stories[i], o);
        o->stories[i]->owed = false;
    }
}

static void dropped(void *arg, const struct lease_id *id)
{
    struct oracle *o = arg;

    saw_no_place(o, story_of(o, id));
}

static void trouble(void *arg, int node)
{
    struct oracle *o = arg;

    for (int i = 0; i < o->node_count; i++)
        if (node < 0 || node == i)
            o->nodes[i].calm_us = o->nodes[i].shaken_us = o->time->now_us;
}

static void crowded(void *arg, const struct lease_id *id)
{
    story_of(arg, id)->crowded = true;
}

struct memory_watch oracle_watch(struct oracle *o)
{
    return (struct memory_watch){
        .arg = o, .ran = ran, .lost = lost, .opened = opened, .closed = closed, .dropped = dropped, .crowded = crowded, .trouble = trouble};
}

/* ---- what clients asked and were told ---- */

struct ask *oracle_asked(struct oracle *o, struct story *story, int node, struct broker_request *r)
{
    struct ask *ask = sim_alloc(sizeof(*ask));

    ask->story = story;
    ask->request = r;
    ask->op = r->op;
    ask->node = node;
    ask->submitted_us = o->time->now_us;
    ask->end_us = o->time->now_us + r->wait_ms * 1000;
    ask->ttl_ms = r->ttl_ms;
    ask->submitting = true;
    ask->claim_us = oracle_believes(o, story) ? story->claim_us : 0;
    ask->next = o->asks;
    if (o->asks)
        o->asks->previous = ask;
    o->asks = ask;
    story->open++;
    story->nodes |= 1u << node;
    if (r->op == STORE_ACQUIRE) {
        story->acquires++;
        story->must_go = false;
    }
    if (r->op == STORE_RELEASE)
        story->given_up = true;
    if (r->op == STORE_RENEW) {
        story->renewed = true;
        story->must_go = false;
    }
    if (r->op == STORE_RENEW && story->claim_us > o->time->now_us + r->ttl_ms * 1000)
        story->claim_us = o->time->now_us + r->ttl_ms * 1000; /* it may be run and not be told */
    return ask;
}

static void end_ask(struct oracle *o, struct ask *ask)
{
    struct story *story = ask->story;

    if (ask->previous)
        ask->previous->next = ask->next;
    else
        o->asks = ask->next;
    if (ask->next)
        ask->next->previous = ask->previous;
    story->open--;
    story->last_end_us = o->time->now_us;
    if (ask->op == STORE_ACQUIRE && !story->told && story->acquires == 1 && !story->renewed)
        story->must_go = true; /* nobody was told that it holds: P7, P8 */
    free(ask);
}

/* P5, and that the answer is one that the store gave. */
static void check_left(struct oracle *o, const struct ask *ask, const struct memory_run *run, int64_t told_ms)
{
    struct lease_id id;
    uint64_t confirm;
    int64_t left_us = 0;

    if (run->at_us <= o->lost_us || ask->story->last_run != run->number)
        return; /* something else has changed the lease since */
    if (!memory_holder(o->memory, ask->story->lock, &id, &confirm, &left_us) || strcmp(id.text, ask->story->id.text) != 0)
        left_us = 0;
    if (left_us < told_ms * 1000)
        oracle_fail(o, "P5: %.8s was told %lld ms for lock %d; the store has %lld us left", ask->story->id.text, (long long)told_ms,
                    ask->story->lock, (long long)left_us);
}

/* P1: a claim begins; no other may be alive. */
static void claim(struct oracle *o, struct ask *ask, const struct memory_run *run, int64_t token, int64_t left_ms)
{
    struct story *story = ask->story;

    if (oracle_believes(o, story) && !story->distrusted && story->claim_token > memory_life(o->memory) && story->claim_token != token)
        oracle_fail(o, "P7: %.8s holds lock %d with token %lld and was told %lld", story->id.text, story->lock,
                    (long long)story->claim_token, (long long)token);
    if (story->told && run->number < story->claim_run)
        return;
    story->told = true;
    story->distrusted = run->at_us <= o->lost_us;
    story->claim_run = story->voucher_run = run->number;
    story->voucher = run->node;
    story->owed = false;
    story->claim_token = token;
    story->claim_us = o->time->now_us + left_ms * 1000;
    o->seen.told++;
    if (story->given_up || story->broken || story->distrusted)
        return;
    for (int64_t i = 0; i < o->story_count; i++) {
        const struct story *other = o->stories[i];
        if (other != story && other->lock == story->lock && oracle_believes(o, other) && !other->distrusted)
            oracle_fail(o, "P1: lock %d: %.8s was told token %lld while %.8s holds it with token %lld for another %lld us", story->lock,
                        story->id.text, (long long)token, other->id.text, (long long)other->claim_token,
                        (long long)(other->claim_us - o->time->now_us));
    }
}

static void check_holder(struct oracle *o, const struct ask *ask, const struct memory_run *run)
{
    if (run->op != ask->op || strcmp(run->id.text, ask->story->id.text) != 0)
        oracle_fail(o, "%.8s was given another call's answer", ask->story->id.text);
    else if (!run->window && (!run->was_held || strcmp(run->holder.text, run->id.text) != 0))
        oracle_fail(o, "P4: %.8s was told that it renewed or released lock %d; the holder was %.8s", ask->story->id.text, ask->story->lock,
                    run->was_held ? run->holder.text : "nobody");
}

static void answered_ok(struct oracle *o, struct ask *ask, const struct memory_run *run, bool delivered)
{
    struct broker_request *r = ask->request;
    int64_t left_ms = broker_left_ms(r->broker, r->lease_until_us);

    if (!run) {
        oracle_fail(o, "%.8s was told OK by no run of the store", ask->story->id.text);
        return;
    }
    if (ask->op == STORE_ACQUIRE && (run->status != RAN_GRANTED && run->status != RAN_REPEATED))
        oracle_fail(o, "%.8s was told a lease, and the store said %s", ask->story->id.text, memory_status_word(run->status));
    if (ask->op == STORE_RENEW || ask->op == STORE_RELEASE)
        check_holder(o, ask, run);
    if (ask->op == STORE_ACQUIRE || ask->op == STORE_RENEW) {
        if (r->ret_token != run->token)
            oracle_fail(o, "%.8s was told token %lld, and the store said %lld", ask->story->id.text, (long long)r->ret_token,
                        (long long)run->token);
        if (left_ms < 1)
            oracle_fail(o, "P5: %.8s was told a lease that is over", ask->story->id.text);
        check_left(o, ask, run, left_ms);
        if (delivered)
            claim(o, ask, run, r->ret_token, left_ms);
    }
}

/* P4, P7: who holds a lease, for all that it was told, is not told that it lost it. */
static void answered_lost(struct oracle *o, const struct ask *ask, const struct memory_run *run)
{
    const struct story *story = ask->story;

    if (ask->op == STORE_CHECK && story->claim_token <= memory_life(o->memory))
        return; /* a repeat may have got a token of this life, and not been told */
    if (run && ask->claim_us > run->at_us && story->claim_us > run->at_us && !story->broken && !story->distrusted &&
        run->at_us > o->lost_us && story->open == 1 && (ask->op == STORE_RELEASE || !story->given_up))
        oracle_fail(o, "P4: %.8s was told that it lost lock %d, which it holds for another %lld us by all it was told", story->id.text,
                    story->lock, (long long)(ask->claim_us - run->at_us));
}

void oracle_answered(struct oracle *o, struct ask *ask, bool delivered)
{
    struct broker_request *r = ask->request;
    const struct memory_run *run = memory_run_of(o->memory, &r->call);

    virtual_time_note(o->time, "node %d tells %.8s %s: %s %s%s", ask->node, ask->story->id.text,
                      ask->op == STORE_ACQUIRE ? "acquire" : "call", pawl_error_wire(r->error), r->problem ? r->problem : "",
                      delivered ? "" : " (undelivered)");
    if (ask->submitting)
        oracle_fail(o, "done was called from inside submit for %.8s", ask->story->id.text);
    if (!delivered && r->error == PAWL_OK)
        o->seen.undelivered++;
    if (r->error == PAWL_OK)
        answered_ok(o, ask, run, delivered);
    else if (r->error == PAWL_E_LEASE_LOST)
        answered_lost(o, ask, run);
    else if (r->error == PAWL_E_STORE_UNAVAILABLE)
        o->seen.unknown++;
    if (ask->op == STORE_RENEW && r->error != PAWL_OK && ask->claim_us > ask->submitted_us + ask->ttl_ms * 1000)
        ask->story->given_up = true; /* asked for less, and does not know whether it got it */
    end_ask(o, ask);
}

void oracle_abandoned(struct oracle *o, struct ask *ask)
{
    virtual_time_note(o->time, "node %d: the client of %.8s leaves", ask->node, ask->story->id.text);
    o->seen.abandoned++;
    if (ask->op == STORE_RENEW)
        ask->story->given_up = true;
    end_ask(o, ask);
}

/* ---- what takes time to be wrong ---- */

void oracle_ticked(struct oracle *o, int node)
{
    struct oracle_node *n = &o->nodes[node];

    if (n->second != o->time->now_us / 1000000) {
        n->second = o->time->now_us / 1000000;
        n->ticks = 0;
    }
    if (n->tick_us != o->time->now_us)
        n->ticks_at_once = 0;
    n->tick_us = o->time->now_us;
    if (++n->ticks > TICKS_A_SECOND || ++n->ticks_at_once > TICKS_AT_ONCE)
        oracle_fail(o, "node %d: broker_tick was called %lld times in a second, %lld times at once", node, (long long)n->ticks,
                    (long long)n->ticks_at_once);
}

static void check_answers(struct oracle *o)
{
    for (const struct ask *ask = o->asks; ask; ask = ask->next) {
        const struct oracle_node *n = &o->nodes[ask->node];
        /* At most an acquire that is under way, the cancel, and an acquire for one that is to be told the same as its twin. */
        int64_t bound_us = latest(ask->end_us, n->stalled_us) + 3 * o->timeout_ms * 1000 + 300000;
        if (n->alive && !ask->submitting && o->time->now_us > bound_us)
            oracle_fail(o, "%.8s was never answered at node %d: asked %lld ms ago, its wait was over %lld ms ago", ask->story->id.text,
                        ask->node, (long long)(o->time->now_us - ask->submitted_us) / 1000,
                        (long long)(o->time->now_us - ask->end_us) / 1000);
    }
}

/* P7, P8: of a story whose client knows of no lease, none stays. */
static void check_leases(struct oracle *o)
{
    for (int lock = 0; lock < MEMORY_LOCKS; lock++) {
        struct lease_id id;
        uint64_t confirm;
        int64_t left_us;
        const struct story *story;
        bool held = memory_holder(o->memory, lock, &id, &confirm, &left_us);
        if (!held || o->held_us[lock] == INT64_MAX || strcmp(o->held_by[lock].text, id.text) != 0)
            o->held_us[lock] = held ? o->time->now_us : INT64_MAX;
        if (held)
            o->held_by[lock] = id;
        if (held || memory_delayed(o->memory, lock))
            o->free_us[lock] = INT64_MAX;
        else if (o->free_us[lock] == INT64_MAX)
            o->free_us[lock] = o->time->now_us;
        story = held ? story_of(o, &id) : NULL;
        if (!story || !story->must_go || story->open > 0)
            continue;
        for (int node = 0; node < o->node_count; node++) {
            const struct oracle_node *n = &o->nodes[node];
            if (story->nodes == 1u << node && n->alive && o->time->now_us > latest(story->last_end_us, n->calm_us) + SETTLE_US)
                oracle_fail(o, "P8: lock %d is held by %.8s of node %d for another %lld us, and nobody was told", lock, story->id.text,
                            node, (long long)left_us);
        }
    }
}

static bool waits(const struct oracle *o, const struct story *story, const struct memory_claim *claim)
{
    for (const struct ask *ask = o->asks; ask; ask = ask->next)
        if (ask->story == story && ask->node == claim->node && ask->op == STORE_ACQUIRE && ask->request->call.confirm == claim->confirm)
            return true;
    return false;
}

static void check_claim(struct oracle *o, int lock, const struct memory_place *place, const struct memory_claim *claim)
{
    const struct story *story = story_of(o, &place->id);
    const struct oracle_node *n = &o->nodes[claim->node];

    if (n->alive && claim->life == memory_life(o->memory) && !memory_window_open(o->memory) &&
        o->time->now_us > latest(story->last_end_us, n->calm_us) + SETTLE_US && !waits(o, story, claim))
        oracle_fail(o, "P8: %.8s has a place in the queue of lock %d, claimed by request #%d of node %d, where nobody waits for it",
                    story->id.text, lock, (int)claim->confirm, claim->node);
}

/* P8: places belong to somebody. */
static void check_places(struct oracle *o)
{
    for (int lock = 0; lock < MEMORY_LOCKS; lock++) {
        const struct memory_place *places;
        size_t count = memory_places(o->memory, lock, &places);
        for (size_t i = 0; i < count; i++)
            for (size_t k = 0; k < places[i].claim_count; k++)
                check_claim(o, lock, &places[i], &places[i].claims[k]);
    }
}

static bool holds(const struct oracle *o, const struct story *story)
{
    return o->held_us[story->lock] != INT64_MAX && strcmp(o->held_by[story->lock].text, story->id.text) == 0;
}

/* P7: all who ask under one lease id are told that it holds. Where no message is lost, soon. (Who asked while the window was open may have to wait for
 * his turn to look.) */
static void check_twins(struct oracle *o)
{
    for (const struct ask *ask = o->asks; ask; ask = ask->next) {
        const struct oracle_node *n = &o->nodes[ask->node];
        int64_t since_us = latest(latest(ask->submitted_us, o->held_us[ask->story->lock]), n->calm_us);
        if (ask->op == STORE_ACQUIRE && holds(o, ask->story) && !ask->story->crowded && ask->end_us > o->time->now_us && n->alive &&
            !n->draining && !o->deaf && ask->submitted_us > o->window_us && o->time->now_us > since_us + TWIN_US)
            oracle_fail(o, "P7: %.8s waits at node %d for lock %d, which it has held for %lld ms", ask->story->id.text, ask->node,
                        ask->story->lock, (long long)(o->time->now_us - o->held_us[ask->story->lock]) / 1000);
    }
}

/* P6: who waits has a place; one whose call failed gets one soon. */
static void check_placed(struct oracle *o)
{
    for (struct ask *ask = o->asks; ask; ask = ask->next) {
        const struct oracle_node *n = &o->nodes[ask->node];
        bool placed = place_of(o, ask->story) || holds(o, ask->story);
        if (placed || ask->placeless_us == 0)
            ask->placeless_us = placed ? 0 : o->time->now_us;
        if (placed || ask->op != STORE_ACQUIRE || ask->end_us <= o->time->now_us || !n->alive || n->draining ||
            memory_window_open(o->memory) || ask->story->crowded)
            continue;
        if (o->time->now_us > latest(ask->placeless_us, n->calm_us) + o->poll_ms * 1100 + 1000000)
            oracle_fail(o, "P6: %.8s waits at node %d, and for %lld ms it has had no place in the queue of lock %d", ask->story->id.text,
                        ask->node, (long long)(o->time->now_us - ask->placeless_us) / 1000, ask->story->lock);
    }
}

/* Nobody waits for a free lock. */
static void check_waiting(struct oracle *o)
{
    int64_t bound_us = o->quick ? 600000 : o->poll_ms * 1100 + 1000000, calm_us = o->died_us > 0 ? o->died_us + MEMORY_NODE_MS * 1000 : 0;

    if (memory_window_open(o->memory))
        return;
    for (int i = 0; i < o->node_count; i++)
        if (o->nodes[i].alive)
            calm_us = latest(calm_us, o->nodes[i].calm_us);
    for (const struct ask *ask = o->asks; ask; ask = ask->next) {
        int64_t since_us;
        if (ask->op != STORE_ACQUIRE || ask->end_us <= o->time->now_us || !o->nodes[ask->node].alive ||
            o->free_us[ask->story->lock] == INT64_MAX)
            continue;
        since_us = latest(latest(ask->submitted_us, calm_us), o->free_us[ask->story->lock]);
        if (o->time->now_us > since_us + bound_us)
            oracle_fail(o, "%.8s waits at node %d for lock %d, which has been free for %lld ms", ask->story->id.text, ask->node,
                        ask->story->lock, (long long)(o->time->now_us - since_us) / 1000);
    }
}

void oracle_sweep(struct oracle *o)
{
    for (int i = 0; i < o->node_count; i++)
        if (o->nodes[i].alive && (o->hostile || !memory_node_ready(o->memory, i)))
            o->nodes[i].calm_us = o->nodes[i].shaken_us = o->time->now_us;
    if (memory_window_open(o->memory)) {
        o->window_us = o->time->now_us;
        for (int i = 0; i < o->node_count; i++)
            o->nodes[i].calm_us = o->time->now_us;
    }
    check_answers(o);
    check_leases(o);
    check_places(o);
    check_placed(o);
    check_twins(o);
    check_waiting(o);
}

void oracle_quiet(struct oracle *o, bool leases_over)
{
    for (int i = 0; i < o->node_count; i++) {
        const struct oracle_node *n = &o->nodes[i];
        if (!n->alive)
            continue;
        if (!broker_is_idle(n->broker))
            oracle_fail(o, "P8: node %d is not idle", i);
        if (broker_waiters(n->broker) > 0)
            oracle_fail(o, "P8: node %d has %zu waiters", i, broker_waiters(n->broker));
        if (leases_over && broker_leases(n->broker) > 0)
            oracle_fail(o, "P8: node %d knows of %zu leases", i, broker_leases(n->broker));
    }
    for (int lock = 0; lock < MEMORY_LOCKS; lock++) {
        struct lease_id id;
        uint64_t confirm;
        int64_t left_us;
        if (leases_over && memory_holder(o->memory, lock, &id, &confirm, &left_us))
            oracle_fail(o, "P8: lock %d is still held by %.8s", lock, id.text);
    }
}
