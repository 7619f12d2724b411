/* Lists of locks. A list is made of steps, since each holds the store up for as long as it takes to look at its keys. A few steps of all lists together are
 * in the store at one time; the other lists take turns (LISTING) and go to the end of the row after each step, so that no number of people who look makes
 * the calls of those who work miss their deadline. How many keys a step looks at grows from step to step, as long as what it finds does not fill the page. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/broker_listing.h"

#include <string.h>

#include "daemon/broker_request.h"
#include "daemon/broker_state.h"
#include "daemon/broker_time.h"

#define LIST_STEPS_MAX 200
#define LIST_LOOK_MIN  10 /* keys a step of a list looks at */
#define LIST_LOOK_MAX  1000
#define LISTS_AT_ONCE  4        /* steps of lists in the store */
#define LIST_WAIT_US   10000000 /* then a list ends with what it has */

static void pass_lock(struct store_call *call, const struct store_lock *lock)
{
    struct broker_request *r = call->arg;
    struct store_lock shown = *lock;

    if (r->state != CALLING)
        return;
    r->found++;
    shown.ttl_ms = broker_left_ms(r->broker, call->sent_us + lock->ttl_ms * 1000);
    r->on_lock(r, &shown);
}

/* Before each step, so that a long list lets the others go before its next one. */
static void line_up(struct broker_request *r)
{
    r->state = LISTING;
    request_list_add(&r->broker->lists, r);
}

void listing_next(struct broker *b)
{
    struct broker_request *r;

    while (b->lists_open < LISTS_AT_ONCE && (r = b->lists.first) != NULL) {
        request_list_remove(&b->lists, r);
        r->state = CALLING;
        b->lists_open++;
        request_send(r);
    }
}

void listing_submit(struct broker_request *r)
{
    r->call.look_at = earlier(r->limit + LIST_LOOK_MIN, LIST_LOOK_MAX);
    r->call.on_lock = pass_lock;
    line_up(r);
    listing_next(r->broker);
}

void listing_step_over(struct broker *b)
{
    b->lists_open--;
}

void listing_answered(struct broker_request *r)
{
    if (strcmp(r->call.cursor, "0") != 0 && r->found < r->limit && ++r->steps < LIST_STEPS_MAX &&
        broker_now_us(r->broker) - r->submitted_us < LIST_WAIT_US) {
        r->call.look_at = earlier(2 * r->call.look_at, LIST_LOOK_MAX);
        if (r->found > 0)
            r->call.look_at = earlier(r->call.look_at, r->limit - r->found + LIST_LOOK_MIN);
        line_up(r);
        return;
    }
    request_answer(r, PAWL_OK, NULL);
}

void listing_abandon(struct broker_request *r)
{
    request_list_remove(&r->broker->lists, r);
    request_let_go(r);
}
