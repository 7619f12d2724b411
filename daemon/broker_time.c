/* Time in the broker. It reads the clock that it was given, and it asks its host for one alarm: for whichever comes first of the waits that end, the lines
 * of waiters that look, the leases and delays that are over, and the next try to put leases back. Each of these keeps its own times; here they are only
 * compared, so a file that sets one must have the alarm set afterwards. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/broker_time.h"

#include "daemon/broker_state.h"

int64_t broker_now_us(const struct broker *b)
{
    return clock_now_us(b->clock);
}

int64_t broker_left_ms(const struct broker *b, int64_t until_us)
{
    int64_t left = until_us - broker_now_us(b);

    return left > 0 ? left / 1000 : 0;
}

void broker_set_alarm(struct broker *b)
{
    int64_t at = earlier(heap_next_us(&b->ends), earlier(wait_queue_next_us(b->waiters), lease_table_next_us(b->leases)));

    at = earlier(at, earlier(b->put_again_us, lease_table_next_us(b->delays)));
    if (b->again.first && b->attached && b->tries_open < TRIES_OPEN_MAX)
        at = 0;
    b->host.alarm(b->host.arg, at);
}
