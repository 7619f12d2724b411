/* A JSON object, member by member: the only door to the JSON library.
 *
 * What this is: bytes in, each member of the outermost object handed out as a tagged value. What it is not: it knows no parameter
 * names and judges no values. What stands inside a nested object or array is checked for its form; json_inside() hands it out to who asks.
 */
#ifndef PAWL_JSON_H
#define PAWL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_DEPTH_MAX 8 /* objects and arrays inside one another, the outermost counted */

enum json_tag { JSON_TAG_NULL, JSON_TAG_BOOL, JSON_TAG_INTEGER, JSON_TAG_REAL, JSON_TAG_STRING, JSON_TAG_ARRAY, JSON_TAG_OBJECT };

struct json_member {
    const char *key; /* NUL-terminated, valid UTF-8, decoded */
    size_t key_len;
    enum json_tag tag;
    int64_t integer;  /* of an INTEGER; 1 of a true BOOL; 0 otherwise */
    const char *text; /* of a STRING, decoded: valid UTF-8 without NUL bytes; NULL otherwise */
    size_t text_len;
    const void *inside; /* of an OBJECT or ARRAY, for json_inside(); NULL otherwise */
};

struct json_fault {
    bool no_memory;  /* the text may be fine; there was no memory to read it */
    const char *key; /* the member at fault, as it is spelled in the body (a piece of it, without its quotes); NULL: can't be told */
    size_t key_len;
    const char *sentence; /* static; fits after "ttl_ms: " when key is set, and after "the body " when it isn't */
    int line, column;     /* from 1, where reading stopped; 0 when that says nothing */
};

/* Calls visit for each member of the object in body[0..len), in their order; a non-zero answer ends the walk. What a member points to
 * lives until visit returns. Nothing but blanks counts as an object without members.
 * Returns 0 after the last member, 1 when visit ended the walk, or -1 with *ret_fault when this is not one JSON object: nothing was
 * visited then. Refused are also duplicate keys (at any depth), bytes after the object, a BOM, NUL bytes and \u0000, numbers that don't
 * fit (integers in 64 bits, reals in a double), and more depth than JSON_DEPTH_MAX. */
int json_members(const char *body, size_t len, int (*visit)(void *arg, const struct json_member *member), void *arg,
                 struct json_fault *ret_fault);

/* For a program's main, before it has another thread: from now on jansson's requests for memory are watched, for all of the process, so that it is no_memory
 * wherever one of them failed. Without it, a number that is read behind the failure hides it, and a value may lack a byte. */
void json_watch_memory(void);

/* To be called from within visit: the same walk through a member that is an OBJECT, or through the elements of an ARRAY, whose key is ""
 * then. Anything else has nothing inside. Returns 0 after the last one, or 1 when visit ended the walk. */
int json_inside(const struct json_member *outer, int (*visit)(void *arg, const struct json_member *member), void *arg);

#endif
