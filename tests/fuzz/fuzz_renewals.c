/* Any bytes as a list of leases to renew. Whatever is read must be in bounds and a name that a lock can have; whatever is refused must say so in one printable
 * line.
 */
#include <ctype.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/lock_name.h"
#include "proto/renewals.h"
#include "tests/fuzz/target.h"

static void check_renewal(const struct renewal *renewal)
{
    struct lease_id again;

    must(renewal->ttl_ms >= -1);
    must(renewal->name_len == strlen(renewal->name) && renewal->name_len <= PAWL_NAME_MAX);
    must(!lock_name_problem(renewal->name, renewal->name_len));
    must(lease_id_parse(renewal->lease_id.text, PAWL_LEASE_ID_LEN, &again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct renewals all;
    struct param_problem problem;
    char *body = malloc(size + 1);

    if (!body)
        return 0;
    memcpy(body, data, size);
    if (renewals_from_json(&all, body, size, &problem) == 0) {
        must(all.count >= 1 && all.count <= PAWL_RENEWALS_MAX && all.ttl_ms >= -1);
        for (size_t i = 0; i < all.count; i++)
            check_renewal(&all.leases[i]);
    } else {
        must(problem.message[0] && strlen(problem.message) < sizeof(problem.message));
        for (const char *c = problem.message; *c; c++)
            must(isprint((unsigned char)*c));
    }
    free(body);
    return 0;
}
