/* See redis_input.h. hiredis copies what it is fed and gives out what is whole; what is added here is when to stop believing it. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_input.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define READ_SIZE ((size_t)64 * 1024)

static const char no_memory[] = "out of memory";
static const char too_large[] = "an answer from there is larger than any of Redis to pawl";

#if HIREDIS_MAJOR >= 1
typedef size_t element_count;
#else
typedef int element_count;
#endif

int redis_input_init(struct redis_input *in)
{
    memset(in, 0, sizeof(*in));
    in->buffer = malloc(READ_SIZE);
    return in->buffer ? 0 : -1;
}

void redis_input_free(struct redis_input *in)
{
    redis_input_close(in);
    free(in->buffer);
    in->buffer = NULL;
}

/* A number of elements is believed before any of them is there. */
static void *make_array(const redisReadTask *task, element_count count)
{
    struct redis_input *in = task->privdata;

    if (count > REDIS_ELEMENTS_MAX) {
        in->too_large = true;
        return NULL;
    }
    return in->made_by->createArray(task, count);
}

int redis_input_open(struct redis_input *in)
{
    in->more = false;
    in->unfinished = 0;
    in->too_large = false;
    in->reader = redisReaderCreate();
    if (!in->reader)
        return -1;
    in->made_by = in->reader->fn;
    in->making = *in->made_by;
    in->making.createArray = make_array;
    in->reader->fn = &in->making;
    in->reader->privdata = in;
    return 0;
}

void redis_input_close(struct redis_input *in)
{
    if (in->reader) /* which not every version of hiredis asks */
        redisReaderFree(in->reader);
    in->reader = NULL;
}

ssize_t redis_input_read(struct redis_input *in, struct stream *stream)
{
    ssize_t n;

    do
        n = stream_read(stream, in->buffer, READ_SIZE);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n;
    in->more = (size_t)n == READ_SIZE || stream->more;
    in->unfinished += (size_t)n;
    (void)redisReaderFeed(in->reader, in->buffer, (size_t)n); /* the reader remembers that it failed, and the next answer is none */
    return n;
}

const char *redis_input_next(struct redis_input *in, redisReply **ret_reply)
{
    void *reply = NULL;

    *ret_reply = NULL;
    if (!in->reader)
        return NULL;
    if (redisReaderGetReply(in->reader, &reply) != REDIS_OK)
        return in->too_large                      ? too_large
               : in->reader->err == REDIS_ERR_OOM ? no_memory
                                                  : "the server there does not speak the Redis protocol";
    if (reply)
        in->unfinished = 0;
    else if (in->unfinished > REDIS_ANSWER_MAX)
        return too_large;
    *ret_reply = reply;
    return NULL;
}
