/* Which addresses lead to this machine alone: on all others nobody listens unasked. The spellings of addresses are held by test_options and test_redis_url. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/host_port.h"

#include "tests/lib/check_main.h"

START_TEST(loopback)
{
    static const char *const inside[] = {"127.0.0.1:7295", "127.1.2.3:0", "[::1]:7295", "localhost:7295", "LOCALHOST:1"};

    for (size_t i = 0; i < sizeof(inside) / sizeof(inside[0]); i++)
        ck_assert_msg(host_port_is_loopback(inside[i]), "%s", inside[i]);
}
END_TEST

START_TEST(everything_else)
{
    static const char *const outside[] = {"0.0.0.0:7295",
                                          "[::]:7295",
                                          "10.0.0.5:7295",
                                          "192.168.1.1:1",
                                          "128.0.0.1:1",
                                          "126.255.255.255:1",
                                          "[fe80::1%lo]:1",
                                          "[2001:db8::1]:1",
                                          "[::ffff:127.0.0.1]:1",
                                          "localhost.example:1",
                                          "pawl.internal:1",
                                          "localhos:1",
                                          "127.1:1",
                                          ":7295",
                                          "",
                                          "unix:/run/x"};

    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++)
        ck_assert_msg(!host_port_is_loopback(outside[i]), "%s", outside[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("host_port");
    TCase *tcase = tcase_create("reach");

    tcase_add_test(tcase, loopback);
    tcase_add_test(tcase, everything_else);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
