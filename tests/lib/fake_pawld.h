/* A server that answers as it was told to, one connection per request, and keeps what it was asked. On a port of the loopback. */
#ifndef PAWL_TEST_FAKE_PAWLD_H
#define PAWL_TEST_FAKE_PAWLD_H

#include <pthread.h>
#include <stddef.h>

#define FAKE_REQUESTS_MAX 32
#define FAKE_CUT          ((const char *)1) /* closes without a word */
#define FAKE_HANG         ((const char *)2) /* reads the request and says nothing until the client leaves */

struct fake_pawld {
    int listener;
    char address[64]; /* "http://127.0.0.1:PORT" */
    const char *const
        *answers; /* one per request; the last is repeated. "STATUS BODY", where %L in it stands for the lease id of the request */
    size_t answer_count;
    pthread_t thread;
    pthread_mutex_t lock;
    size_t request_count; /* of what follows */
    char requests[FAKE_REQUESTS_MAX][1024];
};

void fake_pawld_start(struct fake_pawld *f, const char *const *answers, size_t count);
void fake_pawld_stop(struct fake_pawld *f);
size_t fake_pawld_count(struct fake_pawld *f);

/* The value of "lease_id" in a request, into out (at least 37 bytes); "" without one. */
void fake_pawld_lease_id(const char *request, char *out);

#endif
