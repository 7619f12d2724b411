/* An array in the order of the bytes, a shorter text before those that it begins.
 *
 * In a settled set it is enough to compare a name with one prefix, the last that does not come behind it. Say that p of the set begins the name; then p comes
 * before it or is it. Whatever comes behind p and not behind the name begins as p does (all that lies between two texts that begin alike does), and p begins no
 * other of the set, so p is the last.
 *
 * A set is asked for each event that a stream passes over and each lock of a list; it is made when somebody edits a file. So adding may move the others.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/prefix_set.h"

#include <stdlib.h>
#include <string.h>

void prefix_set_close(struct prefix_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        free(set->at[i].text);
    free(set->at);
    *set = (struct prefix_set){0};
}

bool prefix_begins(const char *prefix, size_t prefix_len, const char *name, size_t len)
{
    return prefix_len <= len && (prefix_len == 0 || memcmp(prefix, name, prefix_len) == 0);
}

static bool comes_behind(const struct prefix *prefix, const char *text, size_t len)
{
    size_t common = prefix->len < len ? prefix->len : len;
    int order = common > 0 ? memcmp(prefix->text, text, common) : 0;

    return order > 0 || (order == 0 && prefix->len > len);
}

/* How many of the set do not come behind this text. */
static size_t up_to(const struct prefix_set *set, const char *text, size_t len)
{
    size_t low = 0, high = set->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (comes_behind(&set->at[middle], text, len))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static bool is_at(const struct prefix_set *set, size_t i, const char *text, size_t len)
{
    return set->at[i].len == len && prefix_begins(set->at[i].text, len, text, len);
}

bool prefix_set_has(const struct prefix_set *set, const char *text, size_t len)
{
    size_t n = up_to(set, text, len);

    return n > 0 && is_at(set, n - 1, text, len);
}

/* The array doubles when it is full, which it is when its length is a power of two (or nothing). */
static int make_room(struct prefix_set *set)
{
    struct prefix *longer;

    if ((set->count & (set->count - 1)) != 0)
        return 0;
    longer = realloc(set->at, (set->count > 0 ? 2 * set->count : 1) * sizeof(*longer));
    if (!longer)
        return -1;
    set->at = longer;
    return 0;
}

int prefix_set_add(struct prefix_set *set, const char *text, size_t len)
{
    size_t n = up_to(set, text, len);
    char *copy;

    if (n > 0 && is_at(set, n - 1, text, len))
        return 0;
    copy = malloc(len > 0 ? len : 1);
    if (!copy || make_room(set) != 0) {
        free(copy);
        return -1;
    }
    if (len > 0)
        memcpy(copy, text, len);
    memmove(&set->at[n + 1], &set->at[n], (set->count - n) * sizeof(set->at[0]));
    set->at[n].text = copy;
    set->at[n].len = len;
    set->count++;
    return 0;
}

/* Those that a prefix begins stand right behind it. */
void prefix_set_settle(struct prefix_set *set)
{
    size_t kept = 0;

    for (size_t i = 0; i < set->count; i++) {
        const struct prefix *last = kept > 0 ? &set->at[kept - 1] : NULL;

        if (last && prefix_begins(last->text, last->len, set->at[i].text, set->at[i].len))
            free(set->at[i].text);
        else
            set->at[kept++] = set->at[i];
    }
    set->count = kept;
}

bool prefix_set_begins(const struct prefix_set *set, const char *name, size_t len)
{
    size_t n = up_to(set, name, len);

    return n > 0 && prefix_begins(set->at[n - 1].text, set->at[n - 1].len, name, len);
}

/* Either one of the set begins it, or it begins the first that comes behind it. */
bool prefix_set_meets(const struct prefix_set *set, const char *prefix, size_t len)
{
    size_t n = up_to(set, prefix, len);

    if (n > 0 && prefix_begins(set->at[n - 1].text, set->at[n - 1].len, prefix, len))
        return true;
    return n < set->count && prefix_begins(prefix, len, set->at[n].text, set->at[n].len);
}
