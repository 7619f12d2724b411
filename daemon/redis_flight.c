/* See redis_flight.h. Two halves: the runs, a list in the order of sending and a stack of spare ones; and the window, which only looks at the oldest run and
 * at what came since it last looked. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_flight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPARE_RUNS_MAX 256
#define LATE_PART      8 /* a run that is out for this part of the time-out is late */

void redis_flight_init(struct redis_flight *f, int64_t timeout_us)
{
    memset(f, 0, sizeof(*f));
    f->timeout_us = timeout_us;
    f->sent_last = &f->sent;
    redis_flight_forget_pace(f);
}

static void free_runs(struct redis_run *run)
{
    while (run) {
        struct redis_run *next = run->next;
        free(run->late);
        free(run);
        run = next;
    }
}

void redis_flight_close(struct redis_flight *f)
{
    free_runs(f->sent);
    free_runs(f->spare);
}

void redis_flight_forget_pace(struct redis_flight *f)
{
    f->most = REDIS_FLIGHT_MOST;
    f->narrowed_us = INT64_MIN;
    f->least_us = f->timeout_us;
}

/* ---- runs ---- */

struct redis_run *redis_flight_take(struct redis_flight *f)
{
    struct redis_run *run = f->spare;

    if (!run)
        return calloc(1, sizeof(*run));
    f->spare = run->next;
    f->spare_count--;
    return run;
}

void redis_flight_give(struct redis_flight *f, struct redis_run *run)
{
    free(run->late);
    run->late = NULL;
    run->keeps_late = false;
    if (f->spare_count >= SPARE_RUNS_MAX) {
        free(run);
        return;
    }
    run->next = f->spare;
    f->spare = run;
    f->spare_count++;
}

bool redis_flight_has_room(const struct redis_flight *f, size_t leaving)
{
    return f->in_flight + leaving < f->most;
}

void redis_flight_depart(struct redis_flight *f, struct redis_run *run)
{
    run->next = NULL;
    *f->sent_last = run;
    f->sent_last = &run->next;
    f->in_flight += run->count;
}

void redis_flight_land(struct redis_flight *f, struct redis_run *run, bool answered, int64_t took_us)
{
    f->sent = run->next;
    if (!f->sent)
        f->sent_last = &f->sent;
    f->in_flight -= run->count;
    if (!answered)
        return;
    if (took_us < f->least_us)
        f->least_us = took_us;
    f->landed += run->count;
}

/* ---- the window ---- */

/* Once for all that were in flight together. */
static void narrow(struct redis_flight *f, const struct redis_run *run, int64_t now_us)
{
    if (run->command.sent_us <= f->narrowed_us)
        return;
    f->most = f->most / 2 > REDIS_FLIGHT_LEAST ? f->most / 2 : REDIS_FLIGHT_LEAST;
    f->narrowed_us = now_us;
}

void redis_flight_see_pace(struct redis_flight *f, int64_t now_us, bool others_wait)
{
    int64_t part_us = f->timeout_us / LATE_PART, late_us = 2 * f->least_us > part_us ? 2 * f->least_us : part_us;

    if (f->sent && now_us - f->sent->command.sent_us > late_us)
        narrow(f, f->sent, now_us);
    else if (others_wait)
        f->most += f->sent ? (f->landed + 7) / 8 : f->landed; /* nothing is left to do there: it had too little */
    if (f->most > REDIS_FLIGHT_MOST)
        f->most = REDIS_FLIGHT_MOST;
    f->landed = 0;
}

static struct redis_late *copy_of(const struct store_call *call)
{
    struct redis_late *late = malloc(sizeof(*late));

    if (!late)
        return NULL;
    late->call = *call;
    late->call.name = late->name;
    late->call.owner = late->owner;
    late->call.caller = late->caller;
    snprintf(late->caller, sizeof(late->caller), "%s", call->caller ? call->caller : "");
    if (call->name_len > 0)
        memcpy(late->name, call->name, call->name_len);
    if (call->owner_len > 0)
        memcpy(late->owner, call->owner, call->owner_len);
    return late;
}

/* A call that had no answer in its time makes its run late, however short that time was. */
struct store_call *redis_flight_take_due(struct redis_flight *f, int64_t now_us, int64_t *ret_next_us)
{
    struct store_call *due = NULL, **last = &due;

    *ret_next_us = INT64_MAX;
    for (struct redis_run *run = f->sent; run; run = run->next) {
        for (size_t i = 0; i < run->count; i++) {
            struct store_call *call = run->of[i];
            if (call && call->deadline_us <= now_us) {
                run->of[i] = NULL;
                if (run->keeps_late && i == 0)
                    run->late = copy_of(call);
                *last = call;
                last = &call->next;
                narrow(f, run, now_us);
            } else if (call && call->deadline_us < *ret_next_us) {
                *ret_next_us = call->deadline_us;
            }
        }
    }
    *last = NULL;
    return due;
}
