/* Answers as libpawl reads them, from a pawld or from whatever else listens there. What is taken is in bounds and fit to be shown to people; a lock of a list has a
 * name and a token. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/reply.h"
#include "proto/limits.h"
#include "proto/params.h"
#include "tests/fuzz/target.h"

struct walk {
    unsigned locks, until;
};

/* A string that lies in its array and has one line of UTF-8. */
static void check_people(const char *text, size_t size)
{
    must(strnlen(text, size) < size);
    must(!label_problem(text, strlen(text)));
}

static void check_number(int64_t n)
{
    must(n >= 0 && n <= PAWL_TOKEN_MAX);
}

static void check_lock(const struct pawl_lock *lock)
{
    must(strnlen(lock->name, sizeof(lock->name)) < sizeof(lock->name));
    check_people(lock->owner, sizeof(lock->owner));
    check_number(lock->token);
    check_number(lock->ttl_ms);
    check_number(lock->held_ms);
    check_number(lock->waiters);
    must((lock->held == 0 || lock->held == 1) && (lock->recovering == 0 || lock->recovering == 1));
}

static int on_lock(void *arg, const struct pawl_lock *lock)
{
    struct walk *walk = arg;

    check_lock(lock);
    must(lock->held == 1 && lock->token >= 1);
    walk->locks++;
    return walk->locks == walk->until;
}

/* The first byte: after how many locks of a list the caller has enough (0: never). */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct walk walk = {.until = size > 0 ? data[0] % 4 : 0};
    struct reply reply, again;
    bool no_memory = true;
    char shown[64];
    int result;

    if (size == 0)
        return 0;
    reply_clean((const char *)data, size, shown, sizeof(shown));
    check_people(shown, sizeof(shown));
    result = reply_read((const char *)data + 1, size - 1, on_lock, &walk, &reply, &no_memory);
    must(!no_memory);
    must(result == 0 || result == -1 || (result == 1 && walk.until > 0 && walk.locks == walk.until));
    if (result != 0)
        return 0;
    check_lock(&reply.lock);
    check_lock(&reply.holder);
    check_number(reply.waited_ms);
    check_people(reply.message, sizeof(reply.message));
    must(strnlen(reply.error, sizeof(reply.error)) < sizeof(reply.error));
    must(strnlen(reply.lease_id, sizeof(reply.lease_id)) < sizeof(reply.lease_id));
    must(strnlen(reply.cursor, sizeof(reply.cursor)) < sizeof(reply.cursor));
    must(!(reply.seen & REPLY_TOKEN) == (reply.lock.token == 0));
    must(!(reply.seen & REPLY_HOLDER) || reply.holder.token >= 1);
    must(reply_read((const char *)data + 1, size - 1, NULL, NULL, &again, &no_memory) == 0);
    must(again.seen == reply.seen);
    return 0;
}
