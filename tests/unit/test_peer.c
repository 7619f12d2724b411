/* The peer of a connection: rules of access, bounds and log lines must be told the same of one client each time. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/peer.h"

static struct peer of_ipv4(const char *address, in_port_t port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct peer peer;

    ck_assert_int_eq(inet_pton(AF_INET, address, &in.sin_addr), 1);
    memset(&peer, 0xa5, sizeof(peer));
    peer_init(&peer, (const struct sockaddr *)&in);
    return peer;
}

static struct peer of_ipv6(const char *address, in_port_t port)
{
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct peer peer;

    ck_assert_int_eq(inet_pton(AF_INET6, address, &in6.sin6_addr), 1);
    memset(&peer, 0xa5, sizeof(peer));
    peer_init(&peer, (const struct sockaddr *)&in6);
    return peer;
}

static void expect_nothing_claimed(const struct peer *peer)
{
    ck_assert(!peer->has_ids);
    ck_assert_ptr_null(peer->subject);
    ck_assert_int_eq(peer->pid, 0);
}

START_TEST(ipv4)
{
    static const unsigned char want[16] = {[10] = 0xff, [11] = 0xff, [12] = 192, [13] = 0, [14] = 2, [15] = 7};
    struct peer peer = of_ipv4("192.0.2.7", 5050);

    ck_assert_int_eq(peer.kind, PEER_TCP);
    ck_assert_str_eq(peer.text, "192.0.2.7:5050");
    ck_assert_mem_eq(peer.address, want, 16);
    expect_nothing_claimed(&peer);
}
END_TEST

START_TEST(ipv6)
{
    static const char longest[] = "2001:db8:ffff:ffff:ffff:ffff:ffff:fffe";
    struct peer peer = of_ipv6(longest, 65535);

    ck_assert_int_eq(peer.kind, PEER_TCP);
    ck_assert_str_eq(peer.text, "[2001:db8:ffff:ffff:ffff:ffff:ffff:fffe]:65535");
    ck_assert_int_eq(peer.address[0], 0x20);
    ck_assert_int_eq(peer.address[15], 0xfe);
    expect_nothing_claimed(&peer);
    /* one client, one address, whichever way it came in */
    ck_assert_mem_eq(of_ipv6("::ffff:192.0.2.7", 1).address, of_ipv4("192.0.2.7", 2).address, 16);
}
END_TEST

START_TEST(unix_socket)
{
    static const unsigned char zero[16] = {0};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct sockaddr unnamed = {.sa_family = AF_UNSPEC};
    struct peer peer;

    peer_init(&peer, (const struct sockaddr *)&un);
    ck_assert_int_eq(peer.kind, PEER_UNIX);
    ck_assert_str_eq(peer.text, "unix");
    ck_assert_mem_eq(peer.address, zero, 16);
    expect_nothing_claimed(&peer);
    peer_init(&peer, &unnamed);
    ck_assert_int_eq(peer.kind, PEER_UNIX);
}
END_TEST

/* The kernel's word, not the client's: of a pair made here, both ends are this process. */
START_TEST(ids_of_a_unix_socket)
{
    struct sockaddr unnamed = {.sa_family = AF_UNSPEC};
    struct peer peer;
    char want[PEER_TEXT];
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    peer_init(&peer, &unnamed);
    peer_learn_ids(&peer, pair[0]);
    ck_assert(peer.has_ids);
    ck_assert(peer.uid == getuid() && peer.gid == getgid() && peer.pid == getpid());
    snprintf(want, sizeof(want), "unix:uid=%lu,pid=%ld", (unsigned long)getuid(), (long)getpid());
    ck_assert_str_eq(peer.text, want);
    close(pair[0]);
    close(pair[1]);
    peer_init(&peer, &unnamed);
    peer_learn_ids(&peer, pair[0]); /* closed: nobody can tell */
    ck_assert_str_eq(peer.text, "unix");
    expect_nothing_claimed(&peer);
    peer = of_ipv4("192.0.2.7", 5050);
    peer_learn_ids(&peer, 0);
    expect_nothing_claimed(&peer);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("peer");
    TCase *tcase = tcase_create("addresses");

    tcase_add_test(tcase, ipv4);
    tcase_add_test(tcase, ipv6);
    tcase_add_test(tcase, unix_socket);
    tcase_add_test(tcase, ids_of_a_unix_socket);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
