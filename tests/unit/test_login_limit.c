/* The bound of failed logins (P9), in virtual time: how many, how fast it recovers, who shares a place, and that memory stays what it is. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/login_limit.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "tests/lib/check_main.h"

#define SECOND INT64_C(1000000)

static struct login_limit *limit;
static int64_t now_us;

static void start(void)
{
    limit = login_limit_new();
    ck_assert_ptr_nonnull(limit);
    now_us = 5 * SECOND;
}

static void stop(void)
{
    login_limit_free(limit);
}

static struct peer ipv4(const char *address, in_port_t port)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct peer peer;

    ck_assert_int_eq(inet_pton(AF_INET, address, &in.sin_addr), 1);
    peer_init(&peer, (const struct sockaddr *)&in);
    return peer;
}

static struct peer ipv6(const char *address)
{
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6};
    struct peer peer;

    ck_assert_int_eq(inet_pton(AF_INET6, address, &in6.sin6_addr), 1);
    peer_init(&peer, (const struct sockaddr *)&in6);
    return peer;
}

static struct peer user(bool known, uid_t uid)
{
    struct sockaddr unnamed = {.sa_family = AF_UNIX};
    struct peer peer;

    peer_init(&peer, &unnamed);
    peer.has_ids = known;
    peer.uid = uid;
    return peer;
}

static int64_t failed(struct peer peer)
{
    return login_limit_failed(limit, &peer, now_us);
}

static void use_up(struct peer peer)
{
    for (int i = 0; i < LOGIN_BURST; i++)
        ck_assert_int_eq(failed(peer), 0);
    ck_assert_int_gt(failed(peer), 0);
}

START_TEST(P9_a_burst_is_taken_and_then_one_a_second)
{
    struct peer peer = ipv4("192.0.2.1", 1000);

    use_up(peer);
    ck_assert_int_eq(failed(peer), 1);
    now_us += SECOND - 1;
    ck_assert_int_eq(failed(peer), 1);
    now_us += 1;
    ck_assert_int_eq(failed(peer), 0);
    ck_assert_int_eq(failed(peer), 1);
    for (int i = 0; i < 100; i++) { /* who goes on at ten times the rate gets one in ten, and is not punished further */
        now_us += SECOND / 10;
        ck_assert_int_eq(failed(peer) == 0, i % 10 == 9);
    }
    now_us += 3600 * SECOND; /* no more than full */
    use_up(peer);
}
END_TEST

START_TEST(a_port_is_no_place_of_its_own_and_another_address_is)
{
    use_up(ipv4("192.0.2.1", 1000));
    ck_assert_int_gt(failed(ipv4("192.0.2.1", 2000)), 0);
    ck_assert_int_eq(failed(ipv4("192.0.2.2", 1000)), 0);
    ck_assert_int_gt(failed(ipv6("::ffff:192.0.2.1")), 0);
}
END_TEST

START_TEST(ipv6_counts_by_its_64)
{
    use_up(ipv6("2001:db8:0:1::1"));
    ck_assert_int_gt(failed(ipv6("2001:db8:0:1:ffff:ffff:ffff:ffff")), 0);
    ck_assert_int_eq(failed(ipv6("2001:db8:0:2::1")), 0);
    ck_assert_int_eq(failed(ipv4("0.0.0.0", 1)), 0);
}
END_TEST

START_TEST(unix_sockets_count_by_user)
{
    use_up(user(true, 1000));
    ck_assert_int_eq(failed(user(true, 1001)), 0);
    ck_assert_int_eq(failed(user(true, 0)), 0);
    use_up(user(false, 0));
    ck_assert_int_gt(failed(user(false, 77)), 0); /* what is not known tells nobody apart */
    ck_assert_int_eq(failed(user(true, 0)), 0);
}
END_TEST

START_TEST(P9_any_number_of_places_fits_and_the_oldest_is_forgotten)
{
    struct peer first = ipv4("10.0.0.1", 1);
    char text[32];

    use_up(first);
    for (int i = 0; i < 3 * LOGIN_PLACES; i++) {
        snprintf(text, sizeof(text), "10.%d.%d.9", 1 + i / 250, 1 + i % 250);
        ck_assert_int_eq(failed(ipv4(text, 1)), 0);
        ck_assert_uint_le(login_limit_places(limit), LOGIN_PLACES);
        if (i < LOGIN_PLACES / 2)
            ck_assert_int_gt(failed(first), 0); /* it goes on failing, so it is not the oldest */
    }
    ck_assert_uint_eq(login_limit_places(limit), LOGIN_PLACES);
    ck_assert_int_eq(failed(first), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("login_limit");
    TCase *tcase = tcase_create("places");

    tcase_add_checked_fixture(tcase, start, stop);
    tcase_add_test(tcase, P9_a_burst_is_taken_and_then_one_a_second);
    tcase_add_test(tcase, a_port_is_no_place_of_its_own_and_another_address_is);
    tcase_add_test(tcase, ipv6_counts_by_its_64);
    tcase_add_test(tcase, unix_sockets_count_by_user);
    tcase_add_test(tcase, P9_any_number_of_places_fits_and_the_oldest_is_forgotten);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
