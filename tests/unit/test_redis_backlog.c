/* The calls that wait to be sent: who goes first (P6: acquires never pass acquires; a node's calls about one lease keep their order), that no flood keeps
 * holders waiting, and when it is too late (P9). */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <stdio.h>
#include <string.h>

#include "daemon/redis_backlog.h"
#include "tests/lib/dice.h"

enum { CALLS = 1000 };

static struct redis_backlog backlog;
static struct store_call calls[CALLS];
static int made;

static void start(void)
{
    redis_backlog_init(&backlog);
    memset(calls, 0, sizeof(calls));
    made = 0;
}

/* Asks about this lease, which the node knows; its send_by and deadline are `due` and due + 100. */
static struct store_call *make(enum store_op op, int lease, int64_t due_us)
{
    struct store_call *call = &calls[made++];

    call->op = op;
    call->token = op == STORE_RENEW || op == STORE_RELEASE ? 33 : 0;
    call->send_by_us = due_us;
    call->deadline_us = due_us + 100;
    snprintf(call->lease_id.text, sizeof(call->lease_id.text), "%08x-0000-4000-8000-000000000000", (unsigned)lease);
    return call;
}

static struct store_call *add_to(enum backlog_lane lane, struct store_call *call)
{
    ck_assert(redis_backlog_add(&backlog, lane, call));
    return call;
}

static struct store_call *add(enum store_op op, int lease)
{
    struct store_call *call = make(op, lease, 1000);

    return add_to(redis_backlog_lane(&backlog, call), call);
}

/* The same about a lease that the node does not know. */
static struct store_call *add_stranger(enum store_op op, int lease)
{
    struct store_call *call = make(op, lease, 1000);

    call->token = 0;
    return add_to(redis_backlog_lane(&backlog, call), call);
}

static void expect(const struct store_call *wanted)
{
    ck_assert_ptr_eq(redis_backlog_take(&backlog, NULL), wanted);
}

START_TEST(P6_acquires_keep_their_order_and_holders_pass_them)
{
    struct store_call *a = add(STORE_ACQUIRE, 1), *b = add(STORE_ACQUIRE, 2), *r = add(STORE_RENEW, 3), *c = add(STORE_CANCEL, 4),
                      *s = add(STORE_RELEASE, 5), *k = add(STORE_CHECK, 1), *p = add(STORE_PUT_BACK, 1);
    enum backlog_lane lane;

    ck_assert_uint_eq(backlog.count, 7);
    expect(p);
    ck_assert_ptr_eq(redis_backlog_take(&backlog, &lane), r);
    ck_assert_int_eq(lane, BACKLOG_HOLDERS);
    expect(s);
    expect(k);
    expect(a);
    expect(b);
    ck_assert_ptr_eq(redis_backlog_take(&backlog, &lane), c);
    ck_assert_int_eq(lane, BACKLOG_OTHERS);
    expect(NULL);
    ck_assert_uint_eq(backlog.count, 0);
}
END_TEST

START_TEST(P9_a_flood_about_leases_that_do_not_exist_keeps_no_holder_and_no_newcomer_waiting)
{
    struct store_call *bogus[40], *holder[5], *newcomer[5];

    for (int i = 0; i < 40; i++)
        bogus[i] = add_stranger(i % 3 == 0 ? STORE_RENEW : i % 3 == 1 ? STORE_RELEASE : STORE_CHECK, 100 + i);
    for (int i = 0; i < 5; i++) {
        newcomer[i] = add(STORE_ACQUIRE, 10 + i);
        holder[i] = add(i % 2 ? STORE_RENEW : STORE_RELEASE, i);
    }
    for (int i = 0; i < 5; i++)
        expect(holder[i]);
    for (int i = 0; i < 5; i++) {
        for (int n = 0; n < 3; n++)
            expect(bogus[3 * i + n]);
        expect(newcomer[i]);
    }
    for (int i = 15; i < 40; i++)
        expect(bogus[i]);
    expect(NULL);
}
END_TEST

/* Who took a lease through another node is a stranger here, and renews through this one. */
START_TEST(P9_a_crowd_of_newcomers_keeps_no_stranger_waiting)
{
    struct store_call *owed = add_to(BACKLOG_OWED, make(STORE_CANCEL, 50, 1000)), *newcomer[40], *stranger[5];

    for (int i = 0; i < 40; i++)
        newcomer[i] = add(STORE_ACQUIRE, 100 + i);
    for (int i = 0; i < 5; i++)
        stranger[i] = add_stranger(STORE_RENEW, i);
    for (int i = 0; i < 3; i++)
        expect(stranger[i]);
    expect(owed);
    for (int i = 3; i < 5; i++)
        expect(stranger[i]);
    for (int i = 0; i < 40; i++)
        expect(newcomer[i]);
    expect(NULL);
}
END_TEST

START_TEST(P9_who_renews_one_lease_over_and_over_has_one_turn_among_holders)
{
    struct store_call *first = add(STORE_RENEW, 1), *again[3], *other, *freed;

    for (int i = 0; i < 3; i++)
        again[i] = add(STORE_RENEW, 1);
    other = add(STORE_RENEW, 2);
    freed = add(STORE_RELEASE, 1); /* not before what came before it */
    expect(first);
    expect(other);
    for (int i = 0; i < 3; i++)
        expect(again[i]);
    expect(freed);
    first = add(STORE_RENEW, 1);
    freed = add(STORE_RELEASE, 1);
    other = add_stranger(STORE_RELEASE, 1); /* as it is known no more */
    expect(first);
    expect(freed);
    expect(other);
}
END_TEST

START_TEST(P9_strangers_leave_room_for_others)
{
    backlog.lanes[BACKLOG_STRANGERS].count = BACKLOG_STRANGERS_MAX;
    ck_assert(!redis_backlog_add(&backlog, BACKLOG_STRANGERS, make(STORE_CHECK, 1, 1000)));
    backlog.lanes[BACKLOG_STRANGERS].count = 0;
    expect(add(STORE_ACQUIRE, 2));
    expect(add(STORE_RENEW, 3));
}
END_TEST

START_TEST(P4_P6_of_a_strangers_lease_nothing_is_passed_nor_does_its_acquire_pass_another)
{
    struct store_call *renewal[2], *other, *first, *mine, *freed, *late;

    renewal[0] = add_stranger(STORE_RENEW, 1);
    other = add_stranger(STORE_RENEW, 2);
    renewal[1] = add_stranger(STORE_RENEW, 1);
    first = add(STORE_ACQUIRE, 3);
    mine = add(STORE_ACQUIRE, 1);
    freed = add(STORE_RELEASE, 1);
    late = add_stranger(STORE_RELEASE, 2);
    expect(other);
    expect(late);
    expect(first);
    expect(renewal[0]);
    expect(renewal[1]);
    expect(mine);
    expect(freed);
    expect(NULL);
}
END_TEST

START_TEST(P4_of_one_lease_nothing_is_passed)
{
    struct store_call *first = add(STORE_ACQUIRE, 1), *other = add(STORE_ACQUIRE, 2), *renewal = add(STORE_RENEW, 1),
                      *release = add(STORE_RELEASE, 1), *stranger = add(STORE_RELEASE, 3);

    expect(stranger);
    expect(first);
    expect(other);
    expect(renewal);
    expect(release);
    expect(add(STORE_RENEW, 1)); /* none waits any more */
}
END_TEST

START_TEST(P9_what_was_sent_goes_first_and_holders_before_what_is_owed)
{
    struct store_call *o = add(STORE_ACQUIRE, 1), *h = add(STORE_RENEW, 2), *u = add_to(BACKLOG_UNSENT, make(STORE_ACQUIRE, 3, 1000)),
                      *again = add_to(BACKLOG_AGAIN, make(STORE_ACQUIRE, 4, 1000)),
                      *owed = add_to(BACKLOG_OWED, make(STORE_CANCEL, 5, 1000)), *p = add(STORE_PUT_BACK, 6);
    struct store_call *const wanted[] = {p, again, u, h, owed, o};

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
        expect(wanted[i]);
}
END_TEST

START_TEST(P9_what_is_too_late_is_taken_out_of_every_lane)
{
    struct store_call *late = add_to(BACKLOG_OTHERS, make(STORE_ACQUIRE, 1, 500)),
                      *in_time = add_to(BACKLOG_OTHERS, make(STORE_ACQUIRE, 2, 700)),
                      *last = add_to(BACKLOG_OTHERS, make(STORE_ACQUIRE, 3, 600)),
                      *again = add_to(BACKLOG_AGAIN, make(STORE_ACQUIRE, 4, 550)), *due, *next;
    int64_t next_us;

    due = redis_backlog_take_due(&backlog, 499, true, &next_us);
    ck_assert_ptr_null(due);
    ck_assert_int_eq(next_us, 500);
    due = redis_backlog_take_due(&backlog, 600, true, &next_us); /* the one that was sent before has until its deadline */
    ck_assert_ptr_eq(due, late);
    ck_assert_ptr_eq(due->next, last);
    ck_assert_ptr_null(last->next);
    ck_assert_int_eq(next_us, 650);
    ck_assert_uint_eq(backlog.count, 2);
    next = add(STORE_ACQUIRE, 5); /* the end of the lane is where it should be */
    expect(again);
    expect(in_time);
    expect(next);
    add_to(BACKLOG_OTHERS, make(STORE_ACQUIRE, 1, 500));
    ck_assert_ptr_null(
        redis_backlog_take_due(&backlog, 599, false, &next_us)); /* nothing is sent: it may go on waiting until its deadline */
    ck_assert_int_eq(next_us, 600);
    ck_assert_ptr_nonnull(redis_backlog_take_due(&backlog, 600, false, &next_us));
    ck_assert_int_eq(next_us, INT64_MAX);
    expect(NULL);
}
END_TEST

START_TEST(P4_P9_who_stands_behind_another_has_no_turn_until_it_is_asked_for)
{
    struct store_call *first = make(STORE_RENEW, 1, 1000), *a = make(STORE_RENEW, 1, 500), *b = make(STORE_RELEASE, 1, 600),
                      *other = make(STORE_RENEW, 2, 700), *due;
    int64_t next_us;

    ck_assert_ptr_null(redis_backlog_take_behind(&backlog, first));
    ck_assert(redis_backlog_add_behind(&backlog, a) && redis_backlog_add_behind(&backlog, b) && redis_backlog_add_behind(&backlog, other));
    ck_assert_uint_eq(backlog.count, 3);
    ck_assert(!redis_backlog_wants_turns(&backlog));
    expect(NULL);
    expect(add(STORE_RENEW, 1)); /* in a lane as ever: whether it is sent is decided when its turn has come */
    ck_assert_ptr_eq(redis_backlog_take_behind(&backlog, first), a);
    ck_assert(redis_backlog_add_behind(&backlog, a)); /* now the last */
    due = redis_backlog_take_due(&backlog, 550, true, &next_us);
    ck_assert_ptr_eq(due, a);
    ck_assert_ptr_null(due->next);
    ck_assert_int_eq(next_us, 600);
    ck_assert_ptr_eq(redis_backlog_take_behind(&backlog, first), b);
    ck_assert_ptr_null(redis_backlog_take_behind(&backlog, first));
    due = redis_backlog_take_due(&backlog, 799, false, &next_us); /* nothing is sent: until its deadline */
    ck_assert_ptr_null(due);
    ck_assert_int_eq(next_us, 800);
    ck_assert_ptr_eq(redis_backlog_take_due(&backlog, INT64_MAX, false, &next_us), other);
    ck_assert_uint_eq(backlog.count, 0);
}
END_TEST

START_TEST(P9_who_stood_behind_another_passes_no_holder_who_did_not)
{
    struct store_call *mine = make(STORE_RELEASE, 1, 1000), *bogus = make(STORE_RENEW, 2, 1000), *other, *holder, *stranger, *newcomer;
    struct store_call *const behind[] = {mine, bogus};

    bogus->token = 0;
    for (int i = 0; i < 2; i++) {
        ck_assert(redis_backlog_add_behind(&backlog, behind[i]));
        ck_assert_ptr_eq(redis_backlog_take_behind(&backlog, behind[i]), behind[i]);
        redis_backlog_add_next(&backlog, behind[i]);
        ck_assert(!lease_calls_has(behind[i]));
    }
    ck_assert_uint_eq(backlog.count, 2);
    stranger = add_stranger(STORE_RENEW, 3);
    newcomer = add(STORE_ACQUIRE, 4);
    holder = add(STORE_RENEW, 5);
    other = add_to(BACKLOG_OWED, make(STORE_CANCEL, 6, 1000));
    expect(holder);
    expect(mine);
    expect(bogus);
    expect(stranger);
    expect(other);
    expect(newcomer);
    expect(NULL);
}
END_TEST

START_TEST(P9_those_behind_others_leave_room_for_the_rest)
{
    struct store_call *call = make(STORE_RENEW, 1, 1000);

    backlog.count = backlog.behind_count = BACKLOG_BEHIND_MAX;
    ck_assert(!redis_backlog_add_behind(&backlog, call));
    ck_assert(!lease_calls_has(call));
    expect(add(STORE_ACQUIRE, 2));
    expect(add(STORE_RENEW, 3));
}
END_TEST

START_TEST(many_leases_are_told_apart_whatever_the_order_they_leave_in)
{
    int64_t next_us;

    for (int i = 0; i < CALLS / 2; i++)
        add_to(BACKLOG_OTHERS, make(STORE_ACQUIRE, i, i % 2 ? 100 : 1000));
    (void)redis_backlog_take_due(&backlog, 100, true, &next_us); /* every other one */
    for (int i = 0; i < CALLS / 2; i++) {
        const struct store_call *renewal = make(STORE_RENEW, i, 1000);
        ck_assert_int_eq(redis_backlog_lane(&backlog, renewal), i % 2 ? BACKLOG_HOLDERS : BACKLOG_OTHERS);
    }
    while (redis_backlog_take(&backlog, NULL))
        ;
    for (int i = 0; i < CALLS / 2; i++)
        ck_assert_int_eq(redis_backlog_lane(&backlog, &calls[CALLS / 2 + i]), BACKLOG_HOLDERS);
}
END_TEST

START_TEST(P9_it_is_bounded)
{
    struct store_call *call = add(STORE_ACQUIRE, 1);

    backlog.count = BACKLOG_MAX;
    ck_assert(!redis_backlog_add(&backlog, BACKLOG_OTHERS, make(STORE_ACQUIRE, 2, 1000)));
    backlog.count = 1;
    expect(call);
    expect(NULL);
}
END_TEST

/* ---- against a model ---- */

/* What redis_calls.c does with a backlog, by chance: calls come, have their turn, are answered or sent again, are too late, find the connection gone. The model
 * is a walk over all of them. */
enum { MODEL = 120, LEASES = 5, STEPS = 20000 };
enum whereabouts { NOWHERE, LANE, BEHIND, FLIGHT };

static struct entry {
    enum whereabouts where;
    enum backlog_lane lane;
    bool owed;
    int came, stands; /* in the order of all that came, and that went to where it is */
} model[MODEL];
static struct lease_calls under_way;
static int events, strangers_in_a_row, others_in_a_row;
static struct dice dice;
#define HOLDS(condition) DICE_ASSERT(&dice, events, condition)

static bool about_lease(int i)
{
    return calls[i].op == STORE_ACQUIRE || calls[i].op == STORE_RENEW || calls[i].op == STORE_RELEASE || calls[i].op == STORE_CANCEL;
}

static bool same_lease(int i, int k)
{
    return strcmp(calls[i].lease_id.text, calls[k].lease_id.text) == 0;
}

/* The one that stands first of those about the lease of `like`, -1: of any lease. */
static int first_of(enum whereabouts where, int lane, int like)
{
    int first = -1;

    for (int i = 0; i < MODEL; i++)
        if (model[i].where == where && (lane < 0 || (int)model[i].lane == lane) && (like < 0 || same_lease(i, like)) &&
            (first < 0 || model[i].stands < model[first].stands))
            first = i;
    return first;
}

static void stand(int i, enum whereabouts where, enum backlog_lane lane)
{
    model[i].where = where;
    model[i].lane = lane;
    model[i].stands = ++events;
}

static enum backlog_lane model_lane(int i)
{
    int before = first_of(LANE, BACKLOG_HOLDERS, i);

    if (calls[i].op == STORE_PUT_BACK)
        return BACKLOG_PUT_BACK;
    if (calls[i].op == STORE_CHECK)
        return BACKLOG_STRANGERS;
    if ((calls[i].op != STORE_RENEW && calls[i].op != STORE_RELEASE) || first_of(LANE, BACKLOG_OTHERS, i) >= 0)
        return BACKLOG_OTHERS;
    if (calls[i].token == 0 || first_of(LANE, BACKLOG_STRANGERS, i) >= 0)
        return BACKLOG_STRANGERS;
    return before >= 0 && calls[before].op == STORE_RENEW && calls[i].op == STORE_RENEW ? BACKLOG_STRANGERS : BACKLOG_HOLDERS;
}

static void model_comes(int i)
{
    static const enum store_op ops[] = {STORE_ACQUIRE, STORE_RENEW, STORE_RENEW, STORE_RELEASE, STORE_CHECK, STORE_PUT_BACK, STORE_CANCEL};
    bool owed = dice_roll(&dice, 20) == 0;

    calls[i] = (struct store_call){.op = owed ? STORE_CANCEL : ops[dice_roll(&dice, 7)], .token = dice_roll(&dice, 2) * 33};
    snprintf(calls[i].lease_id.text, sizeof(calls[i].lease_id.text), "%08x-0000-4000-8000-000000000000", dice_roll(&dice, LEASES));
    calls[i].send_by_us = events + (int)dice_roll(&dice, 300);
    calls[i].deadline_us = calls[i].send_by_us + 100;
    model[i].owed = owed;
    model[i].came = events + 1;
    if (!owed)
        HOLDS(redis_backlog_lane(&backlog, &calls[i]) == model_lane(i));
    for (int k; !owed && model_lane(i) == BACKLOG_OTHERS && (k = first_of(LANE, BACKLOG_STRANGERS, i)) >= 0;)
        stand(k, LANE, BACKLOG_OTHERS);
    stand(i, LANE, owed ? BACKLOG_OWED : model_lane(i));
    add_to(model[i].lane, &calls[i]);
}

/* Strict order of the upper lanes, and turns among the lower ones. */
static void is_its_turn(int i)
{
    enum backlog_lane lane = model[i].lane;
    bool strangers = lane == BACKLOG_STRANGERS || lane == BACKLOG_NEXT_STRANGERS, others_wait, strangers_wait;

    HOLDS(first_of(LANE, (int)lane, -1) == i);
    for (int above = 0; above < (int)lane && above < BACKLOG_NEXT_STRANGERS; above++)
        HOLDS(first_of(LANE, above, -1) < 0);
    if (lane < BACKLOG_NEXT_STRANGERS)
        return;
    others_wait = first_of(LANE, BACKLOG_OWED, -1) >= 0 || first_of(LANE, BACKLOG_OTHERS, -1) >= 0;
    strangers_wait = first_of(LANE, BACKLOG_STRANGERS, -1) >= 0 || first_of(LANE, BACKLOG_NEXT_STRANGERS, -1) >= 0;
    HOLDS(lane != BACKLOG_STRANGERS || first_of(LANE, BACKLOG_NEXT_STRANGERS, -1) < 0);
    HOLDS(lane != BACKLOG_OTHERS || first_of(LANE, BACKLOG_OWED, -1) < 0);
    strangers_in_a_row = strangers && others_wait ? strangers_in_a_row + 1 : 0;
    others_in_a_row = !strangers && strangers_wait ? others_in_a_row + 1 : 0;
    HOLDS(strangers_in_a_row <= 3 && others_in_a_row <= 1);
}

/* Of one lease one is on its way, and none that came later passes one that waits. What is owed is passed, and passes. */
static void leaves_in_order(int i)
{
    for (int k = 0; about_lease(i) && k < MODEL; k++) {
        if (k == i || !about_lease(k) || !same_lease(i, k))
            continue;
        HOLDS(model[k].where != FLIGHT);
        HOLDS(model[k].where == NOWHERE || model[k].owed || model[i].owed || model[k].came > model[i].came);
    }
}

static void model_turn(void)
{
    enum backlog_lane lane;
    struct store_call *call = redis_backlog_take(&backlog, &lane);
    int i = call ? (int)(call - calls) : first_of(LANE, -1, -1);

    HOLDS(call || i < 0);
    if (!call)
        return;
    HOLDS(model[i].where == LANE && model[i].lane == lane);
    is_its_turn(i);
    if (about_lease(i) && !lease_calls_has(call) && !lease_calls_add_first(&under_way, call)) {
        HOLDS(redis_backlog_add_behind(&backlog, call));
        stand(i, BEHIND, lane);
        return;
    }
    stand(i, FLIGHT, lane);
    leaves_in_order(i);
}

static void model_done(int i)
{
    bool went = lease_calls_has(&calls[i]);
    int next = went ? first_of(BEHIND, -1, i) : -1;

    model[i].where = NOWHERE;
    if (!went)
        return;
    lease_calls_remove(&calls[i]);
    HOLDS(redis_backlog_take_behind(&backlog, &calls[i]) == (next < 0 ? NULL : &calls[next]));
    if (next < 0)
        return;
    lease_calls_add(&under_way, &calls[next]);
    redis_backlog_add_next(&backlog, &calls[next]);
    stand(next, LANE,
          calls[next].token && (calls[next].op == STORE_RENEW || calls[next].op == STORE_RELEASE) ? BACKLOG_NEXT : BACKLOG_NEXT_STRANGERS);
}

static void model_answered(void)
{
    int i = first_of(FLIGHT, -1, -1), kind = (int)dice_roll(&dice, 6);

    if (i < 0)
        return;
    if (kind > 1) {
        model_done(i);
        return;
    }
    stand(i, LANE, kind == 0 ? BACKLOG_AGAIN : BACKLOG_UNSENT);
    add_to(model[i].lane, &calls[i]);
}

static void model_late(void)
{
    bool going = dice_roll(&dice, 2) == 0;
    int64_t next_us, wanted_us = INT64_MAX, now_us = events;
    struct store_call *next, *due = redis_backlog_take_due(&backlog, now_us, going, &next_us);
    int late = 0, taken = 0;

    for (int i = 0; i < MODEL; i++) {
        bool sent = model[i].where == LANE && (model[i].lane == BACKLOG_AGAIN || model[i].lane == BACKLOG_UNSENT);
        int64_t due_us = going && !sent ? calls[i].send_by_us : calls[i].deadline_us;
        if (model[i].where != LANE && model[i].where != BEHIND)
            continue;
        late += due_us <= now_us;
        if (due_us > now_us && due_us < wanted_us)
            wanted_us = due_us;
    }
    HOLDS(next_us == wanted_us);
    for (struct store_call *call = due; call; call = call->next) { /* all are out before any is answered */
        HOLDS(model[call - calls].where != FLIGHT);
        model[call - calls].where = NOWHERE;
        taken++;
    }
    HOLDS(taken == late);
    for (; due; due = next) {
        next = due->next;
        model_done((int)(due - calls));
    }
}

static void counts_agree(void)
{
    size_t behind = 0, waits = 0, lanes[BACKLOG_LANES] = {0};

    for (int i = 0; i < MODEL; i++) {
        waits += model[i].where == LANE || model[i].where == BEHIND;
        behind += model[i].where == BEHIND;
        lanes[model[i].lane] += model[i].where == LANE;
    }
    HOLDS(backlog.count == waits && backlog.behind_count == behind);
    HOLDS(redis_backlog_wants_turns(&backlog) == (waits > behind));
    for (int lane = 0; lane < BACKLOG_LANES; lane++)
        HOLDS(backlog.lanes[lane].count == lanes[lane]);
}

static void model_step(void)
{
    int i = (int)dice_roll(&dice, MODEL), what = (int)dice_roll(&dice, 100);

    events++;
    if (what < 45 && model[i].where == NOWHERE)
        model_comes(i);
    else if (what < 70)
        model_turn();
    else if (what < 95)
        model_answered();
    else if (what < 97)
        model_late();
    counts_agree();
}

START_TEST(P4_P6_P9_whatever_comes_it_keeps_to_its_rules)
{
    dice_init(&dice);
    memset(model, 0, sizeof(model));
    lease_calls_init(&under_way);
    for (int step = 0; step < STEPS; step++)
        model_step();
    while (first_of(LANE, -1, -1) >= 0 || first_of(FLIGHT, -1, -1) >= 0) {
        model_turn();
        model_answered();
    }
    HOLDS(backlog.count == 0); /* nobody was left behind */
    HOLDS(!lease_calls_next(&under_way, NULL));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_backlog");
    TCase *tcase = tcase_create("turns");

    tcase_add_checked_fixture(tcase, start, NULL);
    tcase_add_test(tcase, P6_acquires_keep_their_order_and_holders_pass_them);
    tcase_add_test(tcase, P9_a_flood_about_leases_that_do_not_exist_keeps_no_holder_and_no_newcomer_waiting);
    tcase_add_test(tcase, P9_a_crowd_of_newcomers_keeps_no_stranger_waiting);
    tcase_add_test(tcase, P9_who_renews_one_lease_over_and_over_has_one_turn_among_holders);
    tcase_add_test(tcase, P9_strangers_leave_room_for_others);
    tcase_add_test(tcase, P4_P6_of_a_strangers_lease_nothing_is_passed_nor_does_its_acquire_pass_another);
    tcase_add_test(tcase, P4_of_one_lease_nothing_is_passed);
    tcase_add_test(tcase, P9_what_was_sent_goes_first_and_holders_before_what_is_owed);
    tcase_add_test(tcase, P9_what_is_too_late_is_taken_out_of_every_lane);
    tcase_add_test(tcase, P4_P9_who_stands_behind_another_has_no_turn_until_it_is_asked_for);
    tcase_add_test(tcase, many_leases_are_told_apart_whatever_the_order_they_leave_in);
    tcase_add_test(tcase, P9_it_is_bounded);
    tcase_add_test(tcase, P9_who_stood_behind_another_passes_no_holder_who_did_not);
    tcase_add_test(tcase, P9_those_behind_others_leave_room_for_the_rest);
    tcase_add_test(tcase, P4_P6_P9_whatever_comes_it_keeps_to_its_rules);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
