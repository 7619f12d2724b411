/* A request that is made once and then only patched: bytes with holes for what changes from call to call.
 *
 * Each kind of hole has one length throughout a run, so all lengths in the protocol around them (Content-Length, bulk lengths) are constants
 * too, and making a request is a copy and a few small copies. All sides of a comparison use this, so none is charged for the load's own
 * formatting.
 */
#ifndef PAWL_BENCH_FRAME_H
#define PAWL_BENCH_FRAME_H

#include <stdbool.h>
#include <stddef.h>

#define FRAME_MAX         2048
#define FRAME_SLOTS_MAX   16
#define FRAME_NAME_LEN    21 /* "bench/CCCCCC/SSSSSSSS": the connection, then the cycle */
#define FRAME_LEASE_LEN   36
#define FRAME_SESSION_LEN 19
#define FRAME_NAME64_LEN  28
#define FRAME_KEY64_LEN   52

enum frame_slot { FRAME_NAME, FRAME_LEASE, FRAME_SESSION, FRAME_NAME64, FRAME_KEY64 };

/* What goes into the holes, each of its fixed length. The last three are etcd's. */
struct words {
    char name[FRAME_NAME_LEN + 1];
    char lease[FRAME_LEASE_LEN + 1];
    char session[FRAME_SESSION_LEN + 1]; /* the id of etcd's lease, in digits */
    char name64[FRAME_NAME64_LEN + 1];   /* the name in base64 */
    char key64[FRAME_KEY64_LEN + 1];     /* the key that etcd makes of name and session, in base64 */
};

struct frame {
    size_t len;
    size_t slot_count;
    struct {
        size_t at;
        enum frame_slot what;
    } slots[FRAME_SLOTS_MAX];
    char bytes[FRAME_MAX];
};

/* Append; false when the frame is full. The frame starts zeroed. */
bool frame_add(struct frame *f, const char *bytes, size_t len);
bool frame_add_text(struct frame *f, const char *text);
bool frame_add_slot(struct frame *f, enum frame_slot what);
/* Appends src, holes and all. */
bool frame_add_frame(struct frame *f, const struct frame *src);

/* Writes the words into the holes. The frame is then ready to be sent. */
void frame_fill(struct frame *f, const struct words *w);

#endif
