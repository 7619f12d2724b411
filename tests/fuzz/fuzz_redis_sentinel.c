/* A sentinel that says whatever it likes, over a real socket. Whatever comes, an address to follow is one that can be connected to, and everything ends.
 *
 * The first byte: bit 0, what is sent to the connection of questions comes before what is sent to that of messages; bit 1, whether both are given their first answer
 * (to the name that each tells) rightly. The rest is what is sent, to the first up to a byte of 0xff, to the second from there on. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "daemon/log.h"
#include "daemon/redis_sentinel.h"
#include "tests/fuzz/target.h"

static struct event_base *base;
static int listening = -1, port;

struct world {
    int links[2];
    int link_count;
    struct redis_sentinel *sentinel;
};

/* Once for all inputs. */
static void set_up(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);

    if (base)
        return;
    log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    base = event_base_new();
    listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    must(base && listening >= 0);
    must(bind(listening, (const struct sockaddr *)&address, sizeof(address)) == 0 && listen(listening, 64) == 0);
    must(getsockname(listening, (struct sockaddr *)&address, &len) == 0);
    port = ntohs(address.sin_port);
}

static void turn(struct world *w)
{
    char heard[4096];
    int fd;

    (void)event_base_loop(base, EVLOOP_NONBLOCK);
    while ((fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        const struct linger reset = {1, 0}; /* so that no port is kept for a while */

        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        if (w->link_count < 2)
            w->links[w->link_count++] = fd;
        else
            close(fd);
    }
    for (int i = 0; i < w->link_count; i++) {
        while (read(w->links[i], heard, sizeof(heard)) > 0) {
        }
    }
}

static void say(struct world *w, int link, const void *bytes, size_t len)
{
    if (link < w->link_count && len > 0)
        (void)!send(w->links[link], bytes, len, MSG_NOSIGNAL);
    turn(w);
    turn(w);
}

static void on_address(void *arg, const char *host, int named)
{
    size_t len = strlen(host);

    (void)arg;
    must(len >= 1 && len < 256 && named >= 1 && named <= 65535);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct redis_sentinel_config config = {.timeout_ms = 1000};
    const uint8_t *second;
    struct world w = {0};
    size_t first_len;

    if (size == 0 || size > 65536)
        return 0;
    set_up();
    config.url.sentinel_count = 1;
    memcpy(config.url.sentinels[0].host, "127.0.0.1", 10);
    config.url.sentinels[0].port = port;
    memcpy(config.url.master, "m", 2);
    w.sentinel = redis_sentinel_new(base, &clock_boottime, &config, on_address, &w);
    must(w.sentinel != NULL);
    redis_sentinel_start(w.sentinel);
    for (int i = 0; i < 4 && w.link_count < 2; i++)
        turn(&w);
    for (int i = 0; i < 2 && (data[0] & 2); i++)
        say(&w, i, "+OK\r\n", 5);
    turn(&w);
    second = memchr(data, 0xff, size);
    first_len = second && second > data ? (size_t)(second - data) - 1 : size - 1;
    if (data[0] & 1)
        say(&w, 0, data + 1, first_len);
    if (second && second > data)
        say(&w, 1, second + 1, size - first_len - 2);
    if (!(data[0] & 1))
        say(&w, 0, data + 1, first_len);
    redis_sentinel_refused(w.sentinel);
    turn(&w);
    for (int i = 0; i < w.link_count; i++)
        close(w.links[i]);
    w.link_count = 0;
    turn(&w);
    redis_sentinel_stop(w.sentinel);
    turn(&w);
    turn(&w);
    redis_sentinel_free(w.sentinel);
    for (int i = 0; i < w.link_count; i++)
        close(w.links[i]);
    return 0;
}
