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
#include "tests/fuzz/far_end.h"
#include "tests/fuzz/target.h"

static struct far_end far_end; /* its links: questions, messages */
static int port;

/* Once for all inputs. */
static void set_up(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);

    if (far_end.base)
        return;
    log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    far_end_listen(&far_end, (const struct sockaddr *)&address, sizeof(address), 2);
    must(getsockname(far_end.listening, (struct sockaddr *)&address, &len) == 0);
    port = ntohs(address.sin_port);
}

static void say(int link, const void *bytes, size_t len)
{
    far_end_say(&far_end, link, bytes, len);
    far_end_turn(&far_end);
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
    struct redis_sentinel *sentinel;
    size_t first_len;

    if (size == 0 || size > 65536)
        return 0;
    set_up();
    config.url.sentinel_count = 1;
    memcpy(config.url.sentinels[0].host, "127.0.0.1", 10);
    config.url.sentinels[0].port = port;
    memcpy(config.url.master, "m", 2);
    sentinel = redis_sentinel_new(far_end.base, &clock_boottime, &config, on_address, NULL);
    must(sentinel != NULL);
    redis_sentinel_start(sentinel);
    for (int i = 0; i < 4 && far_end.count < 2; i++)
        far_end_turn(&far_end);
    for (int i = 0; i < 2 && (data[0] & 2); i++)
        say(i, "+OK\r\n", 5);
    far_end_turn(&far_end);
    second = memchr(data, 0xff, size);
    first_len = second && second > data ? (size_t)(second - data) - 1 : size - 1;
    if (data[0] & 1)
        say(0, data + 1, first_len);
    if (second && second > data)
        say(1, second + 1, size - first_len - 2);
    if (!(data[0] & 1))
        say(0, data + 1, first_len);
    redis_sentinel_refused(sentinel);
    far_end_turn(&far_end);
    far_end_hang_up(&far_end);
    far_end_turn(&far_end);
    redis_sentinel_stop(sentinel);
    far_end_turn(&far_end);
    far_end_turn(&far_end);
    redis_sentinel_free(sentinel);
    far_end_hang_up(&far_end);
    return 0;
}
