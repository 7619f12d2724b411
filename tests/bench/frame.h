/* A request that is made once and then only patched: bytes with holes for the lock's name and the lease id.
 *
 * Names and lease ids have one length each throughout a run, so all lengths in the protocol around them (Content-Length, bulk lengths) are
 * constants too, and making a request is a copy and two or three small copies. Both sides of the comparison use this, so neither is charged
 * for the load's own formatting.
 */
#ifndef PAWL_BENCH_FRAME_H
#define PAWL_BENCH_FRAME_H

#include <stdbool.h>
#include <stddef.h>

#define FRAME_MAX       2048
#define FRAME_SLOTS_MAX 16
#define FRAME_NAME_LEN  21 /* "bench/CCCCCC/SSSSSSSS": the connection, then the cycle */
#define FRAME_LEASE_LEN 36

enum frame_slot { FRAME_NAME, FRAME_LEASE };

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

/* Writes name and lease id (each of its fixed length; lease may be NULL if the frame has no hole for it) into the holes. The frame is then
 * ready to be sent. */
void frame_fill(struct frame *f, const char *name, const char *lease);

#endif
