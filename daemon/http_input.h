/* What one client has sent and nobody has taken yet.
 *
 * Bytes are read into a block that all connections of a set share. Only what a run leaves over (half a request, or those behind a busy one) moves to a block of
 * the connection's own; between two requests there is none. No I/O, no events; the owner reads into the room it is shown.
 */
#ifndef PAWL_HTTP_INPUT_H
#define PAWL_HTTP_INPUT_H

#include <stddef.h>

#define HTTP_INPUT_SHARED ((size_t)64 * 1024)  /* size of the shared block, and the most that one read is offered */
#define HTTP_INPUT_MAX    ((size_t)128 * 1024) /* of a connection's own */

struct http_input {
    char *at; /* bytes not yet taken are at[start..end); NULL, the shared block, or the connection's own */
    size_t start, end, cap;
};

static inline size_t http_input_len(const struct http_input *in)
{
    return in->end - in->start;
}

/* Forgets the bytes. They stay where they are until something is read. */
static inline void http_input_clear(struct http_input *in)
{
    in->start = in->end = 0;
}

/* Finds room behind the bytes, at in->at + in->end; may move them. Returns how much, or 0 without memory. Below HTTP_INPUT_MAX bytes there always is room. */
size_t http_input_room(struct http_input *in, char *shared);

/* Gives back whatever block is not needed between two runs, and leaves the shared one. Returns 0, or -1 without memory: the bytes are lost then. */
int http_input_put_away(struct http_input *in, char *shared);

/* Frees the block, if it is the connection's own. */
void http_input_close(struct http_input *in, char *shared);

#endif
