/* PUBLISH trips one after the other, with nothing between them (trip.h): what a machine that is awake needs. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/bench/modes.h"
#include "tests/bench/report.h"
#include "tests/bench/trip.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void measure(const struct plan *p, struct hist *h, struct faults *faults)
{
    struct trip trip = TRIP_CLOSED;
    uint64_t begun = report_now_ns();
    uint64_t ns;

    if (trip_open(&trip, &p->to[0]) != 0)
        faults_add(faults, "subscribing: %s", strerror(errno));
    while (faults->count == 0 && (p->count == 0 || h->count < p->count) &&
           (p->seconds <= 0 || report_now_ns() - begun < (uint64_t)(p->seconds * 1e9))) {
        if (trip_once(&trip, &ns) != 0)
            faults_add(faults, "message %llu: %s", (unsigned long long)h->count, strerror(errno));
        else
            hist_add(h, ns);
    }
    trip_close(&trip);
}

bool mode_publish(const struct plan *p)
{
    struct hist *h = calloc(1, sizeof *h);
    struct faults faults = {0};

    if (h == NULL) {
        (void)fprintf(stderr, "load: out of memory\n");
        return false;
    }
    measure(p, h, &faults);
    (void)printf("{\"mode\": \"publish\", \"messages\": %llu", (unsigned long long)h->count);
    report_hist(stdout, "trip_us", h);
    report_faults(stdout, &faults);
    (void)printf("}\n");
    free(h);
    return faults.count == 0;
}
