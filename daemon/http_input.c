/* Blocks grow by doubling, when less than a quarter of them is free. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdlib.h>
#include <string.h>

#include "daemon/http_input.h"

#define BLOCK_MIN ((size_t)1024)

void http_input_close(struct http_input *in, char *shared)
{
    if (in->at != shared) {
        free(in->at);
    }
    *in = (struct http_input){NULL, 0, 0, 0};
}

/* Copies what lies in the shared block to one of the connection's own, with room for more. */
static int move_to_own(struct http_input *in)
{
    size_t len = http_input_len(in), cap = BLOCK_MIN;
    char *own;

    while (cap < len + len / 4) {
        cap *= 2;
    }
    own = malloc(cap);
    if (own == NULL) {
        *in = (struct http_input){NULL, 0, 0, 0};
        return -1;
    }
    memcpy(own, in->at + in->start, len);
    *in = (struct http_input){own, 0, len, cap};
    return 0;
}

static void move_to_front(struct http_input *in)
{
    memmove(in->at, in->at + in->start, http_input_len(in));
    in->end -= in->start;
    in->start = 0;
}

size_t http_input_room(struct http_input *in, char *shared)
{
    if (in->start == in->end && (in->at == NULL || in->at == shared)) {
        *in = (struct http_input){shared, 0, 0, HTTP_INPUT_SHARED};
        return HTTP_INPUT_SHARED;
    }
    if (in->at == shared && move_to_own(in) != 0) {
        return 0;
    }
    if (in->start > 0 && in->cap - in->end < in->cap / 2) {
        move_to_front(in);
    }
    if (in->cap - in->end < in->cap / 4 && in->cap < HTTP_INPUT_MAX) {
        char *grown = realloc(in->at, in->cap * 2);

        if (grown == NULL) {
            return 0;
        }
        in->at = grown;
        in->cap *= 2;
    }
    return in->cap - in->end < HTTP_INPUT_SHARED ? in->cap - in->end : HTTP_INPUT_SHARED;
}

int http_input_put_away(struct http_input *in, char *shared)
{
    if (http_input_len(in) == 0) {
        http_input_close(in, shared);
        return 0;
    }
    return in->at == shared ? move_to_own(in) : 0;
}
