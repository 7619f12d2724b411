/* The text of GET /metrics, read back as a scraper reads it: every sample below its HELP and TYPE, histograms cumulative and exact. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/metrics.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/errors.h"
#include "tests/lib/check_main.h"

static const char *const calls[] = {"acquire", "renew"};
static struct metrics metrics;

static void start(void)
{
    ck_assert_int_eq(metrics_init(&metrics, calls, 2), 0);
}

static void stop(void)
{
    metrics_close(&metrics);
}

/* The whole text, to be freed. */
static char *rendered(void)
{
    struct text text;
    char *copy;

    text_init(&text, NULL, 0, 1 << 20);
    metrics_render(&metrics, &text);
    ck_assert(!text.failed);
    copy = strndup(text.at, text.len);
    text_close(&text);
    return copy;
}

/* Is there exactly this line? */
static bool has_line(const char *text, const char *line)
{
    size_t len = strlen(line);

    for (const char *at = text; (at = strstr(at, line)) != NULL; at++) {
        if ((at == text || at[-1] == '\n') && at[len] == '\n')
            return true;
    }
    return false;
}

/* How often a line starts with this. */
static unsigned lines_from(const char *text, const char *start_of_line)
{
    unsigned n = 0;

    for (const char *at = text; (at = strstr(at, start_of_line)) != NULL; at++)
        n += at == text || at[-1] == '\n';
    return n;
}

START_TEST(every_metric_is_there_once_with_its_help_and_type)
{
    static const struct {
        const char *name, *type;
    } expected[] = {
#define EXPECT_METRIC(id, type, name, help) {name, #type},
        PAWL_METRICS(EXPECT_METRIC)
#undef EXPECT_METRIC
    };
    char *text = rendered(), line[256];

    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        snprintf(line, sizeof(line), "# TYPE %s %s", expected[i].name, expected[i].type);
        ck_assert_msg(has_line(text, line), "%s", line);
        snprintf(line, sizeof(line), "# HELP %s ", expected[i].name);
        ck_assert_uint_eq(lines_from(text, line), 1);
        snprintf(line, sizeof(line), "%s 0", expected[i].name);
        ck_assert_msg(has_line(text, line), "%s", line);
    }
    ck_assert_uint_eq(lines_from(text, "pawl_build_info{version=\""), 1);
    free(text);
}
END_TEST

/* The rules of the text format that a scraper refuses a page for. */
START_TEST(page_keeps_the_rules_of_the_format)
{
    char family[128] = "", *text, *rest, *line;
    unsigned samples = 0;

    metrics_request(&metrics, 0, 200);
    metrics_request(&metrics, 1, 503);
    text = rest = rendered();
    ck_assert_int_eq(text[strlen(text) - 1], '\n');
    while ((line = strsep(&rest, "\n")) != NULL && line[0]) {
        char name[128], type[16];
        unsigned long long value;

        if (sscanf(line, "# HELP %127s ", name) == 1) {
            ck_assert_ptr_nonnull(strchr(line + strlen("# HELP "), ' '));
            snprintf(family, sizeof(family), "%s", name);
        } else if (sscanf(line, "# TYPE %127s %15s", name, type) == 2) {
            ck_assert_str_eq(name, family);
            ck_assert(!strcmp(type, "counter") || !strcmp(type, "gauge") || !strcmp(type, "histogram"));
            if (strcmp(type, "counter") == 0)
                ck_assert_str_eq(name + strlen(name) - strlen("_total"), "_total");
        } else {
            ck_assert_msg(strncmp(line, family, strlen(family)) == 0, "%s under %s", line, family);
            ck_assert_int_eq(sscanf(strrchr(line, ' '), " %llu", &value), 1);
            samples++;
        }
    }
    ck_assert_uint_eq(samples, METRIC_COUNT + HISTOGRAM_COUNT * (METRICS_BUCKETS + 3) + 1 + 2);
    free(text);
}
END_TEST

START_TEST(values_are_whole_and_exact)
{
    char *text;

    metrics_add(&metrics, METRIC_GRANTS, 2);
    metrics_add(&metrics, METRIC_GRANTS, 3);
    metrics_set(&metrics, METRIC_LEASES, 9);
    metrics_set(&metrics, METRIC_LEASES, 7);
    metrics_set(&metrics, METRIC_WAITERS, UINT64_MAX);
    text = rendered();
    ck_assert(has_line(text, "pawl_grants_total 5"));
    ck_assert(has_line(text, "pawl_leases 7"));
    ck_assert(has_line(text, "pawl_waiters 18446744073709551615"));
    free(text);
}
END_TEST

START_TEST(observation_falls_into_the_bucket_that_bounds_it)
{
    static const struct {
        int64_t us;
        size_t bucket;
    } table[] = {
        {-5, 0},   {0, 0},    {16, 0},   {17, 1},        {32, 1},        {33, 2},
        {1000, 6}, {1024, 6}, {1025, 7}, {16777216, 20}, {16777217, 21}, {INT64_MAX, 21},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct metrics fresh;

        ck_assert_int_eq(metrics_init(&fresh, calls, 2), 0);
        metrics_observe(&fresh, HISTOGRAM_HOLD, table[i].us);
        for (size_t b = 0; b <= METRICS_BUCKETS; b++)
            ck_assert_msg(fresh.histogram[HISTOGRAM_HOLD].bucket[b] == (b == table[i].bucket), "%" PRId64 " us, bucket %zu", table[i].us,
                          b);
        metrics_close(&fresh);
    }
}
END_TEST

START_TEST(histogram_is_cumulative_and_its_seconds_are_exact)
{
    static const int64_t seen[] = {1, 16, 17, 1000, 20000000};
    char *text;

    for (size_t i = 0; i < sizeof(seen) / sizeof(seen[0]); i++)
        metrics_observe(&metrics, HISTOGRAM_STORE_RTT, seen[i]);
    text = rendered();
    ck_assert(has_line(text, "# TYPE pawl_store_roundtrip_seconds histogram"));
    ck_assert(has_line(text, "pawl_store_roundtrip_seconds_bucket{le=\"0.000016\"} 2"));
    ck_assert(has_line(text, "pawl_store_roundtrip_seconds_bucket{le=\"0.000032\"} 3"));
    ck_assert(has_line(text, "pawl_store_roundtrip_seconds_bucket{le=\"0.000512\"} 3"));
    ck_assert(has_line(text, "pawl_store_roundtrip_seconds_bucket{le=\"0.001024\"} 4"));
    ck_assert(has_line(text, "pawl_store_roundtrip_seconds_bucket{le=\"16.777216\"} 4"));
    ck_assert(has_line(text, "pawl_store_roundtrip_seconds_bucket{le=\"+Inf\"} 5"));
    ck_assert(has_line(text, "pawl_store_roundtrip_seconds_sum 20.001034"));
    ck_assert(has_line(text, "pawl_store_roundtrip_seconds_count 5"));
    ck_assert(has_line(text, "pawl_hold_seconds_count 0"));
    free(text);
}
END_TEST

START_TEST(requests_are_counted_by_call_and_status)
{
    static const int statuses[] = {200,
#define EXPECT_STATUS(name, status, wire, text) status,
                                   PAWL_ERRORS(EXPECT_STATUS)
#undef EXPECT_STATUS
    };
    char line[128], *text = rendered();

    ck_assert_uint_eq(lines_from(text, "pawl_requests_total{"), 0);
    free(text);
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        struct metrics fresh = metrics;

        ck_assert_int_eq(metrics_init(&metrics, calls, 2), 0);
        metrics_request(&metrics, 1, statuses[i]);
        text = rendered();
        snprintf(line, sizeof(line), "pawl_requests_total{call=\"renew\",code=\"%d\"} 1", statuses[i]);
        ck_assert_msg(has_line(text, line), "%s", line);
        ck_assert_uint_eq(lines_from(text, "pawl_requests_total{"), 1);
        free(text);
        metrics_close(&metrics);
        metrics = fresh;
    }
}
END_TEST

START_TEST(request_of_an_unheard_of_status_is_not_lost)
{
    char *text;

    metrics_request(&metrics, 0, 299);
    metrics_request(&metrics, 0, 200);
    metrics_request(&metrics, 2, 200); /* no such call: counted nowhere, breaks nothing */
    text = rendered();
    ck_assert(has_line(text, "pawl_requests_total{call=\"acquire\",code=\"200\"} 1"));
    ck_assert(has_line(text, "pawl_requests_total{call=\"acquire\",code=\"other\"} 1"));
    ck_assert_uint_eq(lines_from(text, "pawl_requests_total{"), 2);
    free(text);
}
END_TEST

START_TEST(P9_number_of_calls_is_bounded)
{
    struct metrics fresh;
    const char *many[METRICS_CALLS_MAX + 1];

    for (size_t i = 0; i <= METRICS_CALLS_MAX; i++)
        many[i] = "call";
    ck_assert_int_eq(metrics_init(&fresh, many, METRICS_CALLS_MAX + 1), -1);
    metrics_close(&fresh);
    ck_assert_int_eq(metrics_init(&fresh, many, METRICS_CALLS_MAX), 0);
    metrics_close(&fresh);
}
END_TEST

START_TEST(P9_page_that_does_not_fit_is_told_by_the_text)
{
    struct text text;

    text_init(&text, NULL, 0, 1000);
    metrics_render(&metrics, &text);
    ck_assert(text.failed);
    text_close(&text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("metrics");
    TCase *page = tcase_create("page");

    tcase_add_checked_fixture(page, start, stop);
    tcase_add_test(page, every_metric_is_there_once_with_its_help_and_type);
    tcase_add_test(page, page_keeps_the_rules_of_the_format);
    tcase_add_test(page, values_are_whole_and_exact);
    tcase_add_test(page, observation_falls_into_the_bucket_that_bounds_it);
    tcase_add_test(page, histogram_is_cumulative_and_its_seconds_are_exact);
    tcase_add_test(page, requests_are_counted_by_call_and_status);
    tcase_add_test(page, request_of_an_unheard_of_status_is_not_lost);
    tcase_add_test(page, P9_number_of_calls_is_bounded);
    tcase_add_test(page, P9_page_that_does_not_fit_is_told_by_the_text);
    suite_add_tcase(suite, page);
    return check_main(suite);
}
