/* The PUBLISH trip of trip.h. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/trip.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "tests/bench/report.h"

#define CHANNEL    "bench:publish"
#define SUBSCRIBE  "*2\r\n$9\r\nSUBSCRIBE\r\n$13\r\n" CHANNEL "\r\n"
#define PAYLOAD    "wake 00000000-0000-4000-8000-000000000000 bench" /* of the size of a wake-up */
#define PUBLISH    "*3\r\n$7\r\nPUBLISH\r\n$13\r\n" CHANNEL "\r\n$47\r\n" PAYLOAD "\r\n"
#define TAKEN      ":1\r\n"
#define TIMEOUT_MS 10000

/* Waits until one of the two has something and reads it; -1 with errno on an error or when nothing comes. */
static int read_some(struct trip *t)
{
    struct pollfd fds[2] = {{.fd = t->sub.fd, .events = POLLIN}, {.fd = t->pub.fd, .events = POLLIN}};
    int n = poll(fds, 2, TIMEOUT_MS);

    if (n == 0)
        errno = ETIMEDOUT;
    if (n <= 0)
        return -1;
    if (fds[0].revents != 0 && wire_read(&t->sub) < 0)
        return -1;
    return fds[1].revents != 0 && wire_read(&t->pub) < 0 ? -1 : 0;
}

static bool heard(const struct wire *sub)
{
    return sub->in_len > 0 && memmem(sub->in, sub->in_len, PAYLOAD "\r\n", sizeof PAYLOAD + 1) != NULL;
}

int trip_open(struct trip *t, const struct address *redis)
{
    size_t len = sizeof TAKEN - 1;

    t->pub.fd = -1;
    t->sub.fd = -1;
    if (wire_open(&t->pub, redis) != 0 || wire_open(&t->sub, redis) != 0 || wire_send(&t->sub, SUBSCRIBE, sizeof SUBSCRIBE - 1) != 0)
        return -1;
    while (t->sub.in_len < len || memcmp(t->sub.in + t->sub.in_len - len, TAKEN, len) != 0) {
        if (read_some(t) != 0)
            return -1;
    }
    t->sub.in_len = 0;
    return 0;
}

void trip_close(struct trip *t)
{
    wire_close(&t->pub);
    wire_close(&t->sub);
}

int trip_once(struct trip *t, uint64_t *ret_ns)
{
    uint64_t sent = report_now_ns();

    if (wire_send(&t->pub, PUBLISH, sizeof PUBLISH - 1) != 0)
        return -1;
    while (!heard(&t->sub)) {
        if (read_some(t) != 0)
            return -1;
    }
    *ret_ns = report_now_ns() - sent;
    while (t->pub.in_len < sizeof TAKEN - 1) {
        if (read_some(t) != 0)
            return -1;
    }
    if (memcmp(t->pub.in, TAKEN, sizeof TAKEN - 1) != 0) {
        errno = EPROTO;
        return -1;
    }
    t->pub.in_len = 0;
    t->sub.in_len = 0;
    return 0;
}
