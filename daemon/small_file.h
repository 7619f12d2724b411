/* A file that pawld is told to read as a whole: its options, its rules, certificates and keys.
 *
 * What this is: the one way from a path to bytes, so that all of them refuse the same: what is no regular file (a FIFO would be waited for, a device read for
 * ever), and what is longer than its reader can make sense of. What it is not: it knows no format, and who may read or write the file is its owner's to judge,
 * by `mode`. Blocks for as long as the disk takes; allocates; knows no library.
 *
 * Any of them may hold a secret, so no copy of the bytes is left in memory that has been freed.
 */
#ifndef PAWL_SMALL_FILE_H
#define PAWL_SMALL_FILE_H

#include <stddef.h>
#include <sys/types.h>

struct small_file {
    char *bytes; /* not NUL-terminated; never NULL after a reading that succeeded */
    size_t len;
    mode_t mode; /* of the very file that was read */
};

/* Reads the file, of at most `max` bytes. Returns 0, and *ret is to be wiped; or -1 with what is wrong in why[0..cap), without the path ("is not a regular
 * file", "No such file or directory"), for whoever knows how people call the file. */
int small_file_read(const char *path, size_t max, struct small_file *ret, char *why, size_t cap) __attribute__((warn_unused_result));

/* Overwrites and frees the bytes. Takes one that is all zeroes, and leaves one. */
void small_file_wipe(struct small_file *file);

#endif
