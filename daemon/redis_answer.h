/* What Redis answers, in the words of store.h: the parts of an array, what each operation's answer means, and what errors mean. Pure but for the
 * complaints, which go to the log. What an answer may look like is told at the top of each script. */
#ifndef PAWL_REDIS_ANSWER_H
#define PAWL_REDIS_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/store.h"

struct redisReply;

/* An integer, or one that a script passed on as the text it is stored in; 0 for anything else. Nothing that a script tells is greater than the greatest token, so
 * what is came from somewhere else and must not be calculated with: it is 0 too. So is what is below 0, as the time left of a key that ends this very
 * millisecond, or (never ours) has no end. */
int64_t redis_answer_number(const struct redisReply *reply, size_t i);
const char *redis_answer_text(const struct redisReply *reply, size_t i, size_t *ret_len); /* "" for what is no text */
bool redis_answer_is(const struct redisReply *reply, const char *status);                 /* of an array that begins with its status */

/* An error: what it means, as a static sentence. `ret_drop`: the connection is of no use any more. */
const char *redis_answer_problem(const char *text, bool *ret_drop);
bool redis_answer_lacks_script(const struct redisReply *reply); /* EVALSHA of one that the server does not have */
extern const char redis_answer_refused[];                       /* the sentence for an error that no row of the table knows */

/* Reads the answer to this call into it: an array of at least two, whose status is the operation's own. STORE_UNKNOWN: it is none that the
 * operation has. */
enum store_result redis_answer_read(struct store_call *call, const struct redisReply *reply);
/* A lease with this token, and for the rest as it was asked for. */
void redis_answer_as_asked(struct store_call *call, int64_t token);

struct redis_complaints { /* what Redis refuses, or answers oddly: counted, and told to the log now and then */
    const struct clock *clock;
    uint64_t count;
    struct log_gate gate;
};
void redis_complain(struct redis_complaints *complaints, const char *event, const char *problem, const char *answer);

#endif
