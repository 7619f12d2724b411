/* The broker's time: how it comes by the present, and the one alarm by which it is called back. broker_now_us and broker_left_ms of broker.h are here too. */
#ifndef PAWL_BROKER_TIME_H
#define PAWL_BROKER_TIME_H

#include <stdint.h>

struct broker;

static inline int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* To be called whenever something may be due at another time than before; calls nobody but the host's alarm. */
void broker_set_alarm(struct broker *b);

#endif
