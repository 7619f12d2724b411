/* The report of report.h. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/report.h"

#include <stdarg.h>
#include <time.h>

static uint64_t ns_of(const struct timespec *ts)
{
    return (uint64_t)ts->tv_sec * 1000000000U + (uint64_t)ts->tv_nsec;
}

void faults_add(struct faults *f, const char *format, ...)
{
    va_list args;

    if (f->count++ > 0)
        return;
    va_start(args, format);
    (void)vsnprintf(f->first, sizeof f->first, format, args);
    va_end(args);
}

uint64_t report_now_ns(void)
{
    struct timespec ts;

    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return ns_of(&ts);
}

/* The same count as utime + stime of /proc/PID/stat, in nanoseconds instead of clock ticks of 10 ms, which would drown a short round. */
uint64_t report_cpu_ns(pid_t pid)
{
    struct timespec ts;
    clockid_t clock;

    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &ts) != 0)
        return 0;
    return ns_of(&ts);
}

void report_string(FILE *out, const char *text)
{
    const unsigned char *p;

    (void)fputc('"', out);
    for (p = (const unsigned char *)text; *p != '\0'; p++) {
        if (*p == '"' || *p == '\\')
            (void)fprintf(out, "\\%c", *p);
        else if (*p < 0x20 || *p >= 0x7f)
            (void)fprintf(out, "\\u%04x", *p);
        else
            (void)fputc(*p, out);
    }
    (void)fputc('"', out);
}

static double us(uint64_t ns)
{
    return (double)ns / 1000.0;
}

void report_hist(FILE *out, const char *key, const struct hist *h)
{
    double mean = h->count > 0 ? (double)h->sum_ns / (double)h->count / 1000.0 : 0.0;

    (void)fprintf(out,
                  ", \"%s\": {\"count\": %llu, \"mean\": %.1f, \"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"p999\": %.1f, \"max\": %.1f}",
                  key, (unsigned long long)h->count, mean, us(hist_quantile(h, 0.5)), us(hist_quantile(h, 0.9)), us(hist_quantile(h, 0.99)),
                  us(hist_quantile(h, 0.999)), us(h->max_ns));
}

void report_faults(FILE *out, const struct faults *f)
{
    (void)fprintf(out, ", \"errors\": %llu, \"first_error\": ", (unsigned long long)f->count);
    if (f->count > 0)
        report_string(out, f->first);
    else
        (void)fputs("null", out);
}
