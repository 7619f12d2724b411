/* The numbers as Prometheus reads them. All numbers are kept as integers (durations in microseconds) and written as such: seconds get their decimal point
 * by division, so they are exact and no locale can turn the point into a comma. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/metrics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/errors.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

#define BUCKET_0_US UINT64_C(16)

/* The columns of the table of requests. A status that several errors share stands here more than once; its first column counts. The last, 0, takes what
 * is not in the list, so that a request never goes uncounted. */
static const int statuses[] = {
    200,
#define STATUS_COLUMN(name, status, wire, text) status,
    PAWL_ERRORS(STATUS_COLUMN)
#undef STATUS_COLUMN
        0,
};
#define STATUS_COLUMNS (sizeof(statuses) / sizeof(statuses[0]))

static const struct {
    const char *name, *type, *help;
} metric_rows[METRIC_COUNT] = {
#define METRIC_ROW(id, type, name, help) [METRIC_##id] = {name, #type, help},
    PAWL_METRICS(METRIC_ROW)
#undef METRIC_ROW
};

static const struct {
    const char *name, *help;
} histogram_rows[HISTOGRAM_COUNT] = {
#define HISTOGRAM_ROW(id, name, help) [HISTOGRAM_##id] = {name, help},
    PAWL_HISTOGRAMS(HISTOGRAM_ROW)
#undef HISTOGRAM_ROW
};

int metrics_init(struct metrics *m, const char *const *calls, size_t call_count)
{
    memset(m, 0, sizeof(*m));
    if (call_count > METRICS_CALLS_MAX)
        return -1;
    m->requests = calloc(STATUS_COLUMNS, sizeof(*m->requests));
    if (!m->requests)
        return -1;
    m->calls = calls;
    m->call_count = call_count;
    return 0;
}

void metrics_close(struct metrics *m)
{
    free(m->requests);
    memset(m, 0, sizeof(*m));
}

/* The first bucket whose bound is not below us: 16, 32, 64 ... microseconds. */
static size_t bucket_of(uint64_t us)
{
    uint64_t above = us > BUCKET_0_US ? (us - 1) / BUCKET_0_US : 0;
    size_t i = 0;

    while (above > 0 && i < METRICS_BUCKETS) {
        above >>= 1;
        i++;
    }
    return i;
}

void metrics_observe(struct metrics *m, enum histogram id, int64_t us)
{
    uint64_t n = us > 0 ? (uint64_t)us : 0;

    m->histogram[id].bucket[bucket_of(n)]++;
    m->histogram[id].count++;
    m->histogram[id].sum_us += n;
}

static size_t status_column(int status)
{
    size_t i = 0;

    while (i < STATUS_COLUMNS - 1 && statuses[i] != status)
        i++;
    return i;
}

void metrics_request(struct metrics *m, size_t call, int status)
{
    if (call < m->call_count)
        m->requests[status_column(status)][call]++;
}

static void render_head(struct text *out, const char *name, const char *type, const char *help)
{
    text_fmt(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void render_seconds(struct text *out, uint64_t us)
{
    text_fmt(out, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);
}

static void render_histogram(const struct metrics *m, size_t id, struct text *out)
{
    const char *name = histogram_rows[id].name;
    uint64_t sum = 0;

    render_head(out, name, "histogram", histogram_rows[id].help);
    for (size_t i = 0; i < METRICS_BUCKETS; i++) {
        sum += m->histogram[id].bucket[i];
        text_fmt(out, "%s_bucket{le=\"", name);
        render_seconds(out, BUCKET_0_US << i);
        text_fmt(out, "\"} %" PRIu64 "\n", sum);
    }
    text_fmt(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum ", name, m->histogram[id].count, name);
    render_seconds(out, m->histogram[id].sum_us);
    text_fmt(out, "\n%s_count %" PRIu64 "\n", name, m->histogram[id].count);
}

static void render_requests(const struct metrics *m, struct text *out)
{
    render_head(out, "pawl_requests_total", "counter", "Requests answered, by call and HTTP status.");
    for (size_t call = 0; call < m->call_count; call++) {
        for (size_t i = 0; i < STATUS_COLUMNS; i++) {
            if (m->requests[i][call] == 0)
                continue;
            text_fmt(out, "pawl_requests_total{call=\"%s\",code=\"", m->calls[call]);
            if (statuses[i])
                text_int(out, statuses[i]);
            else
                text_str(out, "other");
            text_fmt(out, "\"} %" PRIu64 "\n", m->requests[i][call]);
        }
    }
}

void metrics_render(const struct metrics *m, struct text *out)
{
    render_head(out, "pawl_build_info", "gauge", "Always 1; the version is in the label.");
    text_str(out, "pawl_build_info{version=\"" PACKAGE_VERSION "\"} 1\n");
    for (size_t i = 0; i < METRIC_COUNT; i++) {
        render_head(out, metric_rows[i].name, metric_rows[i].type, metric_rows[i].help);
        text_fmt(out, "%s %" PRIu64 "\n", metric_rows[i].name, m->value[i]);
    }
    for (size_t i = 0; i < HISTOGRAM_COUNT; i++)
        render_histogram(m, i, out);
    render_requests(m, out);
}
