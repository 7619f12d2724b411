/* Lease ids. They are made of the kernel's random bytes, asked for here: libuuid asks as well, but then stirs a generator of its own into
 * them, which is five system calls and a tenth of all that the daemon computes for a lock cycle. Should the kernel have no bytes, libuuid
 * knows what to do. Writing one is libuuid's; reading one is done here, since uuid_parse wants a C string and takes what we must not (it
 * knows no nil rule), and the text is kept rather than the 16 bytes. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "proto/lease_id.h"

#include <stdbool.h>
#include <sys/random.h>
#include <uuid/uuid.h>

void lease_id_generate(struct lease_id *out)
{
    uuid_t uuid;

    if (getrandom(uuid, sizeof(uuid), 0) == (ssize_t)sizeof(uuid)) {
        uuid[6] = (unsigned char)((uuid[6] & 0x0f) | 0x40); /* version 4, of the variant of RFC 9562 */
        uuid[8] = (unsigned char)((uuid[8] & 0x3f) | 0x80);
    } else {
        uuid_generate_random(uuid);
    }
    uuid_unparse_lower(uuid, out->text);
}

static bool is_dash_place(size_t i)
{
    return i == 8 || i == 13 || i == 18 || i == 23;
}

int lease_id_parse(const char *text, size_t len, struct lease_id *out)
{
    struct lease_id id;
    bool nil = true;

    if (len != PAWL_LEASE_ID_LEN)
        return -1;
    for (size_t i = 0; i < PAWL_LEASE_ID_LEN; i++) {
        char c = text[i];

        if (c >= 'A' && c <= 'F')
            c = (char)(c - 'A' + 'a');
        if (is_dash_place(i) ? c != '-' : !((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return -1;
        nil = nil && (c == '0' || c == '-');
        id.text[i] = c;
    }
    /* What an uninitialised variable prints as: two such clients would take one another for a retry. */
    if (nil)
        return -1;
    id.text[PAWL_LEASE_ID_LEN] = '\0';
    *out = id;
    return 0;
}
