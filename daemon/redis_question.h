/* What is asked of Redis: a store_call as the command that runs its script, one row an operation. Written into the buffer of the link, begun
 * and complete but for redis_link_send. */
#ifndef PAWL_REDIS_QUESTION_H
#define PAWL_REDIS_QUESTION_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/redis_life.h"
#include "daemon/redis_link.h"
#include "daemon/store.h"

const char *redis_question_name(const struct store_call *call); /* of its script, for the log */
bool redis_question_may_repeat(const struct store_call *call);  /* may be run twice */
void redis_question_write(const struct redis_life *life, struct redis_link *link, struct store_call *call, bool whole_script);

/* Of the plain kind: an acquire that does not wait, a release nobody waits for. Many of them, chained by `next`, make one run of one script. */
bool redis_question_is_plain(const struct store_call *call);
void redis_question_write_plain(const struct redis_life *life, struct redis_link *link, struct store_call *calls, size_t count,
                                bool whole_script);

#endif
