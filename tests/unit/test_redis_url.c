/* Where a Redis is: what is taken, what is refused, and that a password is in nothing that people see. C43: IPv6 forms. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_url.h"

#include <stdio.h>
#include <string.h>

#include "daemon/host_port.h"
#include "tests/lib/check_main.h"

static const struct {
    const char *text, *host, *path;
    int port, db;
    const char *user, *password, *shown;
} good[] = {
    {"redis://127.0.0.1:6379/0", "127.0.0.1", "", 6379, 0, "", "", "redis://127.0.0.1:6379/0"},
    {"rediss://127.0.0.1:1/2", "127.0.0.1", "", 1, 2, "", "", "rediss://127.0.0.1:1/2"},
    {"REDISS://bob:pw@redis.example.com", "redis.example.com", "", 6379, 0, "bob", "pw", "rediss://redis.example.com:6379/0"},
    {"redis://127.0.0.1", "127.0.0.1", "", 6379, 0, "", "", "redis://127.0.0.1:6379/0"},
    {"redis://redis.example.com:1/", "redis.example.com", "", 1, 0, "", "", "redis://redis.example.com:1/0"},
    {"REDIS://my_redis-1:65535/15", "my_redis-1", "", 65535, 15, "", "", "redis://my_redis-1:65535/15"},
    {"redis://:secret@h", "h", "", 6379, 0, "", "secret", "redis://h:6379/0"},
    {"redis://bob:s%3Ac%2fr%40t%25@h:7/2", "h", "", 7, 2, "bob", "s:c/r@t%", "redis://h:7/2"},
    {"redis://b%6Fb:a:b:c@h:7", "h", "", 7, 0, "bob", "a:b:c", "redis://h:7/0"},
    {"redis://bob:gr%C3%BC%C3%9F@h", "h", "", 6379, 0, "bob", "gr\xc3\xbc\xc3\x9f", "redis://h:6379/0"},
    {"unix:///run/redis.sock", "", "/run/redis.sock", 0, 0, "", "", "unix:///run/redis.sock?db=0"},
    {"unix:///run/redis.sock?db=3", "", "/run/redis.sock", 0, 3, "", "", "unix:///run/redis.sock?db=3"},
    {"unix:///run/my redis%20@x.sock", "", "/run/my redis%20@x.sock", 0, 0, "", "", "unix:///run/my redis%20@x.sock?db=0"},
    {"unix://bob:pw@/run/r?db=1", "", "/run/r", 0, 1, "bob", "pw", "unix:///run/r?db=1"},
};

/* C43 */
static const struct {
    const char *text, *host;
    int port;
    const char *shown;
} good_v6[] = {
    {"redis://[::1]:6380/1", "::1", 6380, "redis://[::1]:6380/1"},
    {"redis://[::1]", "::1", 6379, "redis://[::1]:6379/0"},
    {"redis://[2001:db8::7]/3", "2001:db8::7", 6379, "redis://[2001:db8::7]:6379/3"},
    {"redis://[::ffff:10.0.0.1]:1", "::ffff:10.0.0.1", 1, "redis://[::ffff:10.0.0.1]:1/0"},
    {"redis://:pw@[::1]:6380", "::1", 6380, "redis://[::1]:6380/0"},
    {"redis://[fe80::1%eth0]:1", "fe80::1%eth0", 1, "redis://[fe80::1%25eth0]:1/0"},
    {"redis://[fe80::1%25eth0]:1", "fe80::1%eth0", 1, "redis://[fe80::1%25eth0]:1/0"},
    {"redis://[fe80::1%2]:1", "fe80::1%2", 1, "redis://[fe80::1%252]:1/0"},
};

/* Each with a word of the sentence that must be about it. */
static const struct {
    const char *text, *word;
} bad[] = {
    {"", "redis://"},
    {"127.0.0.1:6379", "redis://"},
    {"http://h", "redis://"},
    {"redis:/h", "redis://"},
    {"rediss:/h", "redis://"},
    {"rediss://", "host"},
    {"rediss+unix:///run/r", "redis://"},
    {"rediss+sentinel://a", "name of the master"},
    {"sentinel://", "host"},
    {"sentinel://h", "name of the master"},
    {"sentinel://h/", "name of the master"},
    {"sentinel://h//0", "name of the master"},
    {"sentinel:///m", "host"},
    {"sentinel://a,,b/m", "host"},
    {"sentinel://a,b,/m", "host"},
    {"sentinel://,a/m", "host"},
    {"sentinel://a:0,b/m", "port"},
    {"sentinel://::1,b/m", "brackets"},
    {"sentinel://1,2,3,4,5,6,7,8,9,10/m", "IPv4"},
    {"sentinel://a,b,c,d,e,f,g,h,i,j/m", "too many"},
    {"sentinel://a/m/x", "database"},
    {"sentinel://a/m/0/1", "database"},
    {"sentinel://a/m?db=1", "'?'"},
    {"sentinel://a/m#0", "'#'"},
    {"sentinel://a/m m", "characters"},
    {"sentinel://a/m%20", "characters"},
    {"sentinel://SECRET@a,b/m", ":password"},
    {"sentinel://bob:SEC/RET@a,b/m", "%2F"},
    {"sentinel://bob:SEC,RET@x@a,b/m", "%40"},
    {"redis://", "host"},
    {"redis://:6379", "host"},
    {"redis:///0", "host"},
    {"redis://h:", "port"},
    {"redis://h:0", "port"},
    {"redis://h:65536", "port"},
    {"redis://h:+1", "port"},
    {"redis://h:80x", "port"},
    {"redis://h: 80", "port"},
    {"redis://h:99999999999999999999", "port"},
    {"redis://h/x", "database"},
    {"redis://h/-1", "database"},
    {"redis://h/0/1", "database"},
    {"redis://h/2147483648", "database"},
    {"redis://h/0?db=1", "'?'"},
    {"redis://h?password=SECRET", "'?'"},
    {"redis://h#0", "'#'"},
    {"redis://a b", "host"},
    {"redis://10.1", "IPv4"},
    {"redis://127.0.0.1.5", "IPv4"},
    {"redis://256.0.0.1", "IPv4"},
    {"redis://SECRET@h", ":password"},
    {"redis://bob:@h", "empty"},
    {"redis://@h", ":password"},
    {"redis://bob:SECRET%@h", "%25"},
    {"redis://bob:SECRET%2@h", "%25"},
    {"redis://bob:SECRET%zz@h", "%25"},
    {"redis://bob:SECRET%00@h", "NUL"},
    {"redis://bob:SEC@RET@h", "%40"},
    {"redis://bob:SEC/RET@h", "%2F"},
    {"redis://bob:SEC?RET@h", "%3F"},
    {"redis://bob:SEC#RET@h", "%23"},
    {"redis://bob:SEC RET@h", "%20"},
    {"redis://bob:SEC\nRET@h", "%20"},
    {"redis://bob:SECRET@h:x", "port"},
    {"redis://bob:SECRET@", "host"},
    {"unix://", "absolute"},
    {"unix:///", "absolute"},
    {"unix://run/redis.sock", "absolute"},
    {"unix:///run/", "absolute"},
    {"unix:///run/a\nb", "control"},
    {"unix:///run/r?db=", "database"},
    {"unix:///run/r?db=x", "database"},
    {"unix:///run/r?DB=1", "?db=N"},
    {"unix:///run/r?password=SECRET", "?db=N"},
    {"unix://SECRET@/run/r", ":password"},
    /* C43 */
    {"redis://::1", "brackets"},
    {"redis://::1:6379", "brackets"},
    {"redis://2001:db8::7", "brackets"},
    {"redis://[::1", "bracket"},
    {"redis://[::1]6379", "bracket"},
    {"redis://[::1]:", "port"},
    {"redis://[]:1", "IPv6"},
    {"redis://[localhost]:1", "IPv6"},
    {"redis://[::1::2]:1", "IPv6"},
    {"redis://[fe80::1%]:1", "interface"},
    {"redis://[fe80::1%a b]:1", "interface"},
    {"redis://[fe80::1%0123456789012345]:1", "interface"},
};

static const struct {
    const char *text;
    size_t count;
    const char *first_host, *last_host;
    int first_port, last_port;
    const char *master;
    int db;
    const char *user, *password, *shown;
} good_sentinels[] = {
    {"sentinel://h/mymaster", 1, "h", "h", 26379, 26379, "mymaster", 0, "", "", "sentinel://h:26379/mymaster/0"},
    {"SENTINEL://a:1,b,10.0.0.1:3/my-Master_1.x/2", 3, "a", "10.0.0.1", 1, 3, "my-Master_1.x", 2, "", "",
     "sentinel://a:1,b:26379,10.0.0.1:3/my-Master_1.x/2"},
    {"sentinel://[::1]:5,[fe80::1%25eth0]/m/", 2, "::1", "fe80::1%eth0", 5, 26379, "m", 0, "", "",
     "sentinel://[::1]:5,[fe80::1%25eth0]:26379/m/0"},
    {"rediss+sentinel://a,b:2/m", 2, "a", "b", 26379, 2, "m", 0, "", "", "rediss+sentinel://a:26379,b:2/m/0"},
    {"sentinel://bob:s%2Cc,r@a,b/m/1", 2, "a", "b", 26379, 26379, "m", 1, "bob", "s,c,r", "sentinel://a:26379,b:26379/m/1"},
    {"sentinel://:pw@a,b,c,d,e,f,g,h,i/m", 9, "a", "i", 26379, 26379, "m", 0, "", "pw",
     "sentinel://a:26379,b:26379,c:26379,d:26379,e:26379,f:26379,g:26379,h:26379,i:26379/m/0"},
};

#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))

START_TEST(good_url_gives_its_parts)
{
    struct redis_url url;
    char problem[200] = "", shown[512];

    ck_assert_msg(redis_url_parse(good[_i].text, &url, problem, sizeof(problem)) == 0, "%s: %s", good[_i].text, problem);
    ck_assert_str_eq(url.host, good[_i].host);
    ck_assert_str_eq(url.unix_path, good[_i].path);
    ck_assert_int_eq(url.port, good[_i].port);
    ck_assert_int_eq(url.db, good[_i].db);
    ck_assert_str_eq(url.user, good[_i].user);
    ck_assert_str_eq(url.password, good[_i].password);
    ck_assert(url.tls == redis_url_asks_for_tls(good[_i].text) && url.tls == (strncmp(good[_i].shown, "rediss:", 7) == 0));
    redis_url_show(&url, shown, sizeof(shown));
    ck_assert_str_eq(shown, good[_i].shown);
}
END_TEST

/* The login is the Redis' own, the host stays empty until a sentinel has named one. */
START_TEST(sentinels_are_read_in_order)
{
    struct redis_url url;
    char problem[200] = "", shown[512];
    size_t last = good_sentinels[_i].count - 1;

    ck_assert_msg(redis_url_parse(good_sentinels[_i].text, &url, problem, sizeof(problem)) == 0, "%s: %s", good_sentinels[_i].text,
                  problem);
    ck_assert(redis_url_names_sentinels(good_sentinels[_i].text));
    ck_assert_uint_eq(url.sentinel_count, good_sentinels[_i].count);
    ck_assert_str_eq(url.sentinels[0].host, good_sentinels[_i].first_host);
    ck_assert_int_eq(url.sentinels[0].port, good_sentinels[_i].first_port);
    ck_assert_str_eq(url.sentinels[last].host, good_sentinels[_i].last_host);
    ck_assert_int_eq(url.sentinels[last].port, good_sentinels[_i].last_port);
    ck_assert_str_eq(url.master, good_sentinels[_i].master);
    ck_assert_int_eq(url.db, good_sentinels[_i].db);
    ck_assert_str_eq(url.user, good_sentinels[_i].user);
    ck_assert_str_eq(url.password, good_sentinels[_i].password);
    ck_assert_str_eq(url.host, "");
    ck_assert_str_eq(url.unix_path, "");
    redis_url_show(&url, shown, sizeof(shown));
    ck_assert_str_eq(shown, good_sentinels[_i].shown);
    ck_assert(!redis_url_names_sentinels("redis://sentinel://h/m"));
}
END_TEST

START_TEST(C43_ipv6_address_is_read_and_shown_in_brackets)
{
    struct redis_url url;
    char problem[200] = "", shown[512];

    ck_assert_msg(redis_url_parse(good_v6[_i].text, &url, problem, sizeof(problem)) == 0, "%s: %s", good_v6[_i].text, problem);
    ck_assert_str_eq(url.host, good_v6[_i].host);
    ck_assert_int_eq(url.port, good_v6[_i].port);
    redis_url_show(&url, shown, sizeof(shown));
    ck_assert_str_eq(shown, good_v6[_i].shown);
}
END_TEST

START_TEST(bad_url_is_refused_without_its_password)
{
    struct redis_url url, before;
    char problem[200] = "";

    memset(&url, 'z', sizeof(url));
    before = url;
    ck_assert_msg(redis_url_parse(bad[_i].text, &url, problem, sizeof(problem)) == -1, "%s", bad[_i].text);
    ck_assert_msg(strstr(problem, bad[_i].word) != NULL, "%s: %s", bad[_i].text, problem);
    ck_assert_ptr_null(strstr(problem, "SEC"));
    ck_assert_mem_eq(&url, &before, sizeof(url));
}
END_TEST

START_TEST(P9_every_part_is_bounded)
{
    struct redis_url url;
    char text[2000], long_part[1200], problem[200];

    memset(long_part, 'a', sizeof(long_part));
    snprintf(text, sizeof(text), "redis://%.255s:1", long_part);
    ck_assert_int_eq(redis_url_parse(text, &url, problem, sizeof(problem)), 0);
    snprintf(text, sizeof(text), "redis://%.256s:1", long_part);
    ck_assert_int_eq(redis_url_parse(text, &url, problem, sizeof(problem)), -1);
    snprintf(text, sizeof(text), "redis://%.127s:%.511s@h", long_part, long_part);
    ck_assert_int_eq(redis_url_parse(text, &url, problem, sizeof(problem)), 0);
    ck_assert_uint_eq(strlen(url.user), 127);
    ck_assert_uint_eq(strlen(url.password), 511);
    snprintf(text, sizeof(text), "redis://%.128s:p@h", long_part);
    ck_assert_int_eq(redis_url_parse(text, &url, problem, sizeof(problem)), -1);
    snprintf(text, sizeof(text), "redis://:%.512s@h", long_part);
    ck_assert_int_eq(redis_url_parse(text, &url, problem, sizeof(problem)), -1);
    snprintf(text, sizeof(text), "unix:///%.106s", long_part);
    ck_assert_int_eq(redis_url_parse(text, &url, problem, sizeof(problem)), 0);
    snprintf(text, sizeof(text), "unix:///%.107s", long_part);
    ck_assert_int_eq(redis_url_parse(text, &url, problem, sizeof(problem)), -1);
    ck_assert_ptr_nonnull(strstr(problem, "107"));
}
END_TEST

static const struct {
    const char *text, *masked;
} masks[] = {
    {"redis://u:SECRET@h:1/0", "redis://u:***@h:1/0"},
    {"redis://:SECRET@h:1/0", "redis://:***@h:1/0"},
    {"redis://u:SEC@RET@h:1/0", "redis://u:***@h:1/0"},
    {"redis://u:SEC//RET@h", "redis://u:***@h"},
    {"redis://SECRET@h", "redis://***@h"},
    {"redis://u:SEC:RET@h", "redis://u:***@h"},
    {"redis://h:1/0", "redis://h:1/0"},
    {"redis://h:1/0?password=SECRET", "redis://h:1/0?***"},
    {"redis://u:SECRET@h?auth=SECRET", "redis://u:***@h?***"},
    {"unix:///run/r?db=3", "unix:///run/r?db=3"},
    {"unix://u:SECRET@/run/r?db=3", "unix://u:***@/run/r?db=3"},
    {"u:SECRET@h", "***@h"},
    {"redis:SECRET@h//x", "***@h//x"},
    {"redis:/u:SECRET@h", "***@h"},
    {"SECRET@", "***@"},
    {"", ""},
    {"@", "***@"},
    {"//", "//"},
};

START_TEST(mask_hides_the_password_of_any_text)
{
    char out[128], tiny[4];

    redis_url_mask(masks[_i].text, out, sizeof(out));
    ck_assert_str_eq(out, masks[_i].masked);
    redis_url_mask(masks[_i].text, tiny, sizeof(tiny));
    ck_assert_uint_lt(strlen(tiny), sizeof(tiny));
}
END_TEST

START_TEST(listen_form_wants_a_port_and_takes_zero)
{
    struct host_port out;

    ck_assert_ptr_null(host_port_parse("localhost:0", 11, HOST_PORT_LISTEN, &out));
    ck_assert_int_eq(out.port, 0);
    ck_assert_str_eq(out.host, "localhost");
    ck_assert_ptr_nonnull(host_port_parse("localhost", 9, HOST_PORT_LISTEN, &out));
    ck_assert_ptr_nonnull(host_port_parse("[::1]", 5, HOST_PORT_LISTEN, &out));
    ck_assert_ptr_nonnull(host_port_parse("localhost:65536", 15, HOST_PORT_LISTEN, &out));
    ck_assert_ptr_nonnull(host_port_parse("a\0b:1", 5, HOST_PORT_LISTEN, &out));
    ck_assert_int_eq(host_port_number("007", 3, 7), 7);
    ck_assert_int_eq(host_port_number("8", 1, 7), -1);
    ck_assert_int_eq(host_port_number("", 0, 7), -1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_url");
    TCase *urls = tcase_create("urls");

    tcase_add_loop_test(urls, good_url_gives_its_parts, 0, COUNT(good));
    tcase_add_loop_test(urls, sentinels_are_read_in_order, 0, COUNT(good_sentinels));
    tcase_add_loop_test(urls, C43_ipv6_address_is_read_and_shown_in_brackets, 0, COUNT(good_v6));
    tcase_add_loop_test(urls, bad_url_is_refused_without_its_password, 0, COUNT(bad));
    tcase_add_loop_test(urls, mask_hides_the_password_of_any_text, 0, COUNT(masks));
    tcase_add_test(urls, P9_every_part_is_bounded);
    tcase_add_test(urls, listen_form_wants_a_port_and_takes_zero);
    suite_add_tcase(suite, urls);
    return check_main(suite);
}
