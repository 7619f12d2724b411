#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/takeover.h"

#include <stdio.h>

#include "daemon/daemon_options.h"
#include "daemon/drain.h"
#include "daemon/handover.h"
#include "daemon/http_front.h"
#include "daemon/listening.h"
#include "daemon/log.h"
#include "daemon/options.h"
#include "daemon/store.h"
#include "daemon/systemd.h"

#define LOOK_US 20000 /* until this node can grant */

/* ---- with a predecessor ---- */

static void accept_from_now_on(struct takeover *t)
{
    t->waiting = false;
    http_front_let_go(t->parts.front);
    if (handover_has_predecessor(t->handover))
        handover_take(t->handover);
    log_info("taken_over", LOG_STR("node", t->parts.node));
    (void)systemd_tell(t->parts.manager, "READY=1");
}

static void on_look(void *arg)
{
    struct takeover *t = arg;
    struct store_status store;

    if (!t->waiting || drain_has_begun(t->parts.drain))
        return;
    store_get_status(t->parts.store, &store);
    if (store.ready && !store.window_open)
        accept_from_now_on(t);
    else
        alarm_in(&t->look, LOOK_US);
}

static void on_predecessor_gone(void *arg)
{
    struct takeover *t = arg;

    if (t->waiting)
        accept_from_now_on(t);
    if (!drain_has_begun(t->parts.drain))
        handover_listen_soon(t->handover);
}

/* ---- with a successor ---- */

static int nth_socket(void *arg, size_t i, const char **ret_asked)
{
    return http_front_socket(((struct takeover *)arg)->parts.front, i, ret_asked);
}

static void on_taken(void *arg)
{
    struct takeover *t = arg;

    if (!drain_has_begun(t->parts.drain))
        drain_begin(t->parts.drain, 0, true);
}

bool takeover_has_successor(const struct takeover *t)
{
    return handover_has_successor(t->handover);
}

/* ---- start and end ---- */

/* Where a passed socket is bound is seen only now. */
static int check_bound(const struct takeover *t, char *problem, size_t cap)
{
    const char *address;

    for (size_t i = 0; (address = http_front_address(t->parts.front, i)) != NULL; i++)
        if (daemon_options_check_address(t->parts.options, address, problem, cap) != 0)
            return -1;
    return 0;
}

static int open_sockets(struct takeover *t, struct handover_sockets *handed, char *problem, size_t cap)
{
    return listening_open(t->parts.front, t->parts.options, t->parts.manager, handed, problem, cap) == 0 &&
                   check_bound(t, problem, cap) == 0
               ? 0
               : -1;
}

static int out_of_memory(char *problem, size_t cap)
{
    snprintf(problem, cap, "out of memory");
    return -1;
}

int takeover_open(struct takeover *t, struct event_base *base, const struct takeover_parts *parts, char *problem, size_t cap)
{
    const struct handover_owner owner = {t, nth_socket, on_taken, on_predecessor_gone};
    const char *path = parts->options->handover;
    struct handover_sockets handed = {.count = 0};
    int link = -1, result;

    *t = (struct takeover){.parts = *parts};
    if (alarm_open(&t->look, base, on_look, t) != 0)
        return out_of_memory(problem, cap);
    if (path && handover_ask(path, &handed, &link, problem, cap) != 0)
        return -1;
    t->waiting = link >= 0;
    if (t->waiting)
        http_front_hold(t->parts.front);
    result = open_sockets(t, &handed, problem, cap);
    handover_sockets_close(&handed);
    if (!path)
        return result;
    t->handover = handover_new(base, path, link, &owner);
    if (!t->handover)
        return out_of_memory(problem, cap);
    return result == 0 && !t->waiting ? handover_listen(t->handover, problem, cap) : result;
}

void takeover_close(struct takeover *t)
{
    handover_free(t->handover);
    t->handover = NULL;
    alarm_close(&t->look);
}

void takeover_begin(struct takeover *t)
{
    if (t->waiting) {
        log_info("taking_over", LOG_STR("path", t->parts.options->handover));
        alarm_in(&t->look, 0);
    } else {
        (void)systemd_tell(t->parts.manager, "READY=1");
    }
}
