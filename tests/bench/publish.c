/* The yardstick of hand-over: how long a message needs from PUBLISH to a subscriber on this Redis, on this machine, right now. Two
 * connections of one process, as in handover.c, and one message under way at a time. The time ends when the subscriber's read returns,
 * whether or not PUBLISH's own reply is there yet.
 *
 * The figure swings with the machine: a core that has to be woken costs several times what one that is awake costs. So it means something
 * only beside a hand-over that was measured in the same seconds.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/modes.h"
#include "tests/bench/report.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHANNEL    "bench:publish"
#define SUBSCRIBE  "*2\r\n$9\r\nSUBSCRIBE\r\n$13\r\n" CHANNEL "\r\n"
#define PAYLOAD    "wake 00000000-0000-4000-8000-000000000000 bench" /* of the size of a wake-up */
#define PUBLISH    "*3\r\n$7\r\nPUBLISH\r\n$13\r\n" CHANNEL "\r\n$47\r\n" PAYLOAD "\r\n"
#define TAKEN      ":1\r\n"
#define TIMEOUT_MS 10000

/* Waits until one of the two has something and reads it; -1 with errno on an error or when nothing comes. */
static int read_some(struct wire *pub, struct wire *sub)
{
    struct pollfd fds[2] = {{.fd = sub->fd, .events = POLLIN}, {.fd = pub->fd, .events = POLLIN}};
    int n = poll(fds, 2, TIMEOUT_MS);

    if (n == 0)
        errno = ETIMEDOUT;
    if (n <= 0)
        return -1;
    if (fds[0].revents != 0 && wire_read(sub) < 0)
        return -1;
    return fds[1].revents != 0 && wire_read(pub) < 0 ? -1 : 0;
}

static bool heard(const struct wire *sub)
{
    return sub->in_len > 0 && memmem(sub->in, sub->in_len, PAYLOAD "\r\n", sizeof PAYLOAD + 1) != NULL;
}

static int subscribe(struct wire *pub, struct wire *sub)
{
    size_t len = sizeof TAKEN - 1;

    if (wire_send(sub, SUBSCRIBE, sizeof SUBSCRIBE - 1) != 0)
        return -1;
    while (sub->in_len < len || memcmp(sub->in + sub->in_len - len, TAKEN, len) != 0) {
        if (read_some(pub, sub) != 0)
            return -1;
    }
    sub->in_len = 0;
    return 0;
}

static int one_message(struct wire *pub, struct wire *sub, struct hist *h)
{
    uint64_t sent = report_now_ns();

    if (wire_send(pub, PUBLISH, sizeof PUBLISH - 1) != 0)
        return -1;
    while (!heard(sub)) {
        if (read_some(pub, sub) != 0)
            return -1;
    }
    hist_add(h, report_now_ns() - sent);
    while (pub->in_len < sizeof TAKEN - 1) {
        if (read_some(pub, sub) != 0)
            return -1;
    }
    if (memcmp(pub->in, TAKEN, sizeof TAKEN - 1) != 0) {
        errno = EPROTO;
        return -1;
    }
    pub->in_len = 0;
    sub->in_len = 0;
    return 0;
}

static void measure(const struct plan *p, struct hist *h, struct faults *faults)
{
    struct wire pub = {.fd = -1};
    struct wire sub = {.fd = -1};
    uint64_t begun;

    if (wire_open(&pub, &p->to) != 0 || wire_open(&sub, &p->to) != 0 || subscribe(&pub, &sub) != 0) {
        faults_add(faults, "subscribing: %s", strerror(errno));
    } else {
        begun = report_now_ns();
        while ((p->count == 0 || h->count < p->count) && (p->seconds <= 0 || report_now_ns() - begun < (uint64_t)(p->seconds * 1e9))) {
            if (one_message(&pub, &sub, h) != 0) {
                faults_add(faults, "message %llu: %s", (unsigned long long)h->count, strerror(errno));
                break;
            }
        }
    }
    wire_close(&pub);
    wire_close(&sub);
}

bool mode_publish(const struct plan *p)
{
    struct hist *h = calloc(1, sizeof *h);
    struct faults faults = {0};

    if (h == NULL) {
        (void)fprintf(stderr, "load: out of memory\n");
        return false;
    }
    measure(p, h, &faults);
    (void)printf("{\"mode\": \"publish\", \"messages\": %llu", (unsigned long long)h->count);
    report_hist(stdout, "trip_us", h);
    report_faults(stdout, &faults);
    (void)printf("}\n");
    free(h);
    return faults.count == 0;
}
