/* Answers on their way in: bytes from the socket, and out of them whole replies, by hiredis's reader.
 *
 * What this is: the bounds within which a server is believed. Whoever is at the other end, a few bytes of it must not be worth gigabytes: one answer may have
 * so many bytes, and an array may announce so many elements. What it is not: it knows no events, and not to whom an answer belongs. Embedded in its owner,
 * and must stay where it is while it is open. Nothing here calls back.
 *
 *     redis_input_open ──► redis_input_read ──► redis_input_next, until it gives none ──┐──► redis_input_close
 *                                ▲──────────────────────────────────────────────────────┘
 */
#ifndef PAWL_REDIS_INPUT_H
#define PAWL_REDIS_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include <hiredis/hiredis.h>

#include "daemon/stream.h"

#define REDIS_ANSWER_MAX   ((size_t)4 * 1024 * 1024) /* bytes; the longest that a script gives is a page of a list, below 2 MiB */
#define REDIS_ELEMENTS_MAX 100000                    /* of one array; memory for them is taken when their number is read */

struct redis_input {
    bool more; /* the last read took all that it could, or the stream has more: there may be something yet, of which no event will tell */

    /* its own */
    redisReader *reader;              /* NULL: not open */
    redisReplyObjectFunctions making; /* hiredis's own, but for the making of arrays */
    const redisReplyObjectFunctions *made_by;
    size_t unfinished; /* bytes of an answer that is not complete */
    bool too_large;
    char *buffer;
};

/* -1 without memory, with nothing left behind. Freeing takes one that is all zeros, or in any state. */
int redis_input_init(struct redis_input *in);
void redis_input_free(struct redis_input *in);

/* For a new connection, of one that is closed. -1 without memory. */
int redis_input_open(struct redis_input *in);
void redis_input_close(struct redis_input *in); /* in any state; also between two redis_input_next, of which the second then gives none */

/* One read. Bytes read (> 0), 0 at the end of the other side's sending, -1 with errno (EAGAIN: nothing now; never EINTR). */
ssize_t redis_input_read(struct redis_input *in, struct stream *stream);

/* The next whole answer of what was read in *ret_reply, the caller's to free by freeReplyObject; or NULL there, when none is complete. Returns NULL, or why no
 * answer will come any more: a static sentence. */
const char *redis_input_next(struct redis_input *in, redisReply **ret_reply);

#endif
