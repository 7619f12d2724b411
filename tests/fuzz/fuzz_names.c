/* Any bytes as a lock name in a URL, as a duration, as a lease id and as text for JSON. What is accepted must survive the way back: a name
 * encoded and decoded again is the same name, a duration written out reads as the same number, a JSON string holds valid UTF-8.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/duration.h"
#include "proto/lease_id.h"
#include "proto/lock_name.h"
#include "proto/params.h"
#include "proto/text.h"
#include "tests/fuzz/target.h"

static void check_name(const char *name, size_t len)
{
    static const char hex[] = "0123456789aBcDeF";
    char encoded[3 * PAWL_NAME_MAX], decoded[PAWL_NAME_MAX + 1];
    size_t n = 0;

    must(len >= 1 && len <= PAWL_NAME_MAX);
    must(strlen(name) == len);
    must(name[0] != '/' && name[len - 1] != '/' && !strstr(name, "//"));
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];

        must(c > 0x20 && c < 0x7f && c != '%');
        encoded[n++] = '%';
        encoded[n++] = hex[c >> 4];
        encoded[n++] = hex[c & 15];
        must(!lock_name_prefix_problem(name, i)); /* every beginning of a name is a prefix */
    }
    must(percent_decode(encoded, n, decoded, sizeof(decoded)) == (int)len);
    must(memcmp(decoded, name, len + 1) == 0);
    /* Nothing in a name needs an escape: as it stands it decodes to itself. */
    must(percent_decode(name, len, decoded, sizeof(decoded)) == (int)len);
    must(memcmp(decoded, name, len + 1) == 0);
}

static void check_decoding(const char *raw, size_t len)
{
    static char wide[1 << 16];
    char out[PAWL_NAME_MAX + 1];
    int n = percent_decode(raw, len, out, sizeof(out)), m = percent_decode(raw, len, wide, sizeof(wide));

    must(n >= -1 && n <= PAWL_NAME_MAX);
    if (n < 0) {
        must(m < 0 || m > PAWL_NAME_MAX); /* the smaller block refuses for its size alone */
        return;
    }
    must(m == n && (size_t)n <= len && strlen(out) == (size_t)n);
    if (!lock_name_problem(out, (size_t)n))
        check_name(out, (size_t)n);
}

static void check_duration(const char *text, size_t len)
{
    char out[24];
    int64_t ms = -1, back = -1;
    int failed = duration_parse(text, len, &ms);

    must(!failed == !duration_problem(text, len));
    if (failed) {
        must(ms == -1);
        return;
    }
    must(ms >= 0);
    duration_format(ms, out, sizeof(out));
    must(duration_parse(out, strlen(out), &back) == 0 && back == ms);
}

static void check_json_string(const char *bytes, size_t len)
{
    char block[64];
    struct text t;

    text_init(&t, block, sizeof(block), 6 * len + 2);
    text_json_string(&t, bytes, len);
    must(!t.failed);
    must(t.len >= 2 && t.at[0] == '"' && t.at[t.len - 1] == '"');
    must(!label_problem(t.at, t.len)); /* valid UTF-8 and no control character, whatever came in */
    text_close(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct lease_id id = {""};

    check_decoding(text, size);
    check_duration(text, size);
    check_json_string(text, size);
    if (!lock_name_problem(text, size))
        must(!memchr(text, '\0', size));
    if (lease_id_parse(text, size, &id) == 0)
        must(size == PAWL_LEASE_ID_LEN && strlen(id.text) == PAWL_LEASE_ID_LEN);
    else
        must(id.text[0] == '\0');
    return 0;
}
