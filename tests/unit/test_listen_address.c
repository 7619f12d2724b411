/* What --listen may say: read as written or refused with a reason (C43), never guessed at. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/listen_address.h"

#include <string.h>

#include "tests/lib/check_main.h"

static struct listen_address parsed(const char *text)
{
    struct listen_address a;
    const char *wrong;

    memset(&a, 0xa5, sizeof(a));
    wrong = listen_address_parse(text, &a);
    ck_assert_msg(wrong == NULL, "%s: %s", text, wrong ? wrong : "");
    return a;
}

static void refused(const char *text, const char *why)
{
    struct listen_address a = {.kind = LISTEN_SYSTEMD, .name = "as it was"};
    const char *wrong = listen_address_parse(text, &a);

    ck_assert_msg(wrong != NULL, "%s was taken", text);
    ck_assert_msg(strstr(wrong, why) != NULL, "%s: %s", text, wrong);
    ck_assert_str_eq(a.name, "as it was");
}

START_TEST(C43_host_and_port)
{
    struct listen_address a = parsed("[::1]:7295");

    ck_assert_int_eq(a.kind, LISTEN_HOST_PORT);
    ck_assert_str_eq(a.host_port.host, "::1");
    ck_assert_int_eq(a.host_port.port, 7295);
    a = parsed("tls:localhost:7443");
    ck_assert(a.tls && a.kind == LISTEN_HOST_PORT && a.host_port.port == 7443);
    ck_assert_str_eq(a.host_port.host, "localhost");
    refused("tls:unix:/s", "");
    refused("tls:", "");
    refused("", "");
    refused(":7295", "");
    refused("127.0.0.1", "port");
    refused("http://127.0.0.1:7295", "host:port");
    refused("https://127.0.0.1:7295", "tls:host:port");
}
END_TEST

START_TEST(unix_socket_as_it_comes)
{
    struct listen_address a = parsed("unix:/run/pawl/a,b&c.sock");

    ck_assert_int_eq(a.kind, LISTEN_UNIX);
    ck_assert_str_eq(a.path, "/run/pawl/a,b&c.sock");
    ck_assert(!a.has_mode);
    ck_assert_str_eq(a.group, "");
}
END_TEST

START_TEST(unix_socket_with_mode_and_group)
{
    struct listen_address a = parsed("unix:/run/p.sock?mode=0660&group=www-data");

    ck_assert_str_eq(a.path, "/run/p.sock");
    ck_assert(a.has_mode);
    ck_assert_uint_eq(a.mode, 0660);
    ck_assert_str_eq(a.group, "www-data");
    a = parsed("unix:/s?group=12&mode=0007");
    ck_assert_uint_eq(a.mode, 07);
    ck_assert_str_eq(a.group, "12");
    a = parsed("unix:/s?mode=0000");
    ck_assert(a.has_mode && a.mode == 0);
}
END_TEST

START_TEST(unix_socket_refused)
{
    char path[160] = "unix:/";

    refused("unix:", "absolute");
    refused("unix:relative", "absolute");
    refused("unix:/run/", "absolute");
    refused("unix:?mode=0660", "absolute");
    refused("unix:/s?", "mode=0660");
    refused("unix:/s?mode=0660&", "mode=0660");
    refused("unix:/s?user=root", "mode=0660");
    refused("unix:/s?Mode=0660", "mode=0660");
    refused("unix:/s?mode=660", "four octal digits");
    refused("unix:/s?mode=1660", "four octal digits");
    refused("unix:/s?mode=0680", "four octal digits");
    refused("unix:/s?mode=", "four octal digits");
    refused("unix:/s?mode=0660&mode=0600", "twice");
    refused("unix:/s?group=a&group=b", "twice");
    refused("unix:/s?group=", "1 to 32");
    refused("unix:/s?group=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "1 to 32");
    refused("unix:/a\nb", "control");
    memset(path + 6, 'x', 107);
    path[113] = '\0';
    refused(path, "107");
    path[112] = '\0';
    ck_assert_uint_eq(strlen(parsed(path).path), 107);
    strcat(path, "?mode=0600");
    ck_assert_uint_eq(strlen(parsed(path).path), 107);
}
END_TEST

START_TEST(passed_sockets)
{
    char name[300] = "systemd:";

    ck_assert_int_eq(parsed("systemd").kind, LISTEN_SYSTEMD);
    ck_assert_str_eq(parsed("systemd").name, "");
    ck_assert_str_eq(parsed("systemd:pawld.socket").name, "pawld.socket");
    refused("systemd:", "1 to 255");
    ck_assert(!parsed("systemd:a").tls && parsed("tls:systemd:a").tls && parsed("tls:systemd").kind == LISTEN_SYSTEMD);
    refused("systemd:a:b", "1 to 255");
    memset(name + 8, 'n', 256);
    refused(name, "1 to 255");
    name[8 + 255] = '\0';
    ck_assert_uint_eq(strlen(parsed(name).name), 255);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("listen_address");
    TCase *tcase = tcase_create("parse");

    tcase_add_test(tcase, C43_host_and_port);
    tcase_add_test(tcase, unix_socket_as_it_comes);
    tcase_add_test(tcase, unix_socket_with_mode_and_group);
    tcase_add_test(tcase, unix_socket_refused);
    tcase_add_test(tcase, passed_sockets);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
