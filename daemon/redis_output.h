/* Commands on their way out: written as Redis reads them, kept until the socket takes them.
 *
 * A command is begun with the number of its arguments, and then each of them is added. What this is: bytes in order, in one buffer, so that whatever was
 * written before a redis_output_write leaves with one call of the kernel. What it is not: it knows no events, and not whose a command is. Embedded in its
 * owner, who watches the descriptor for room and says how much may be pending.
 *
 * Without memory it takes nothing more until it is cleared, and says so in `failed`: the owner looks there when a command is complete, since a command of
 * which a part is missing must not be followed by another.
 */
#ifndef PAWL_REDIS_OUTPUT_H
#define PAWL_REDIS_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/stream.h"

struct redis_output {
    char *bytes; /* pending are bytes[sent..len) */
    size_t len, sent, cap;
    bool failed;
};

void redis_output_init(struct redis_output *o);  /* allocates nothing yet */
void redis_output_close(struct redis_output *o); /* of one that is all zeros, too */
void redis_output_clear(struct redis_output *o); /* what is pending is dropped, and the memory that a stall made it take is given back */

static inline size_t redis_output_pending(const struct redis_output *o)
{
    return o->len - o->sent;
}

/* One command: begin, then as many arguments as were announced. The bytes are copied. */
void redis_output_begin(struct redis_output *o, size_t argc);
void redis_output_arg(struct redis_output *o, const char *bytes, size_t len);
void redis_output_arg_str(struct redis_output *o, const char *s);
void redis_output_arg_int(struct redis_output *o, int64_t n);

/* 0: nothing is pending any more. -1 with errno: EAGAIN, the rest waits for room; or else the stream is broken. */
int redis_output_write(struct redis_output *o, struct stream *stream);

#endif
