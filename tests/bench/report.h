/* What a run of the load tells: faults as they come, and the pieces of the one JSON object that it prints at the end. */
#ifndef PAWL_BENCH_REPORT_H
#define PAWL_BENCH_REPORT_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "tests/bench/hist.h"

/* Faults are counted, and the first one is kept in words: the ones after it mostly follow from it. */
struct faults {
    uint64_t count;
    char first[240];
};

void faults_add(struct faults *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Monotonic nanoseconds. */
uint64_t report_now_ns(void);
/* The CPU time that a process (0: this one) has used so far with all its threads, user and system, in ns; 0 if there is no such process. */
uint64_t report_cpu_ns(pid_t pid);

/* "text" with JSON's escapes and quotes. */
void report_string(FILE *out, const char *text);
/* , "key": {"count", "mean", "p50", "p90", "p99", "p999", "max"}: all but count in microseconds. */
void report_hist(FILE *out, const char *key, const struct hist *h);
/* , "errors": n, "first_error": text or null */
void report_faults(FILE *out, const struct faults *f);

#endif
