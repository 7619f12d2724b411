/* Any bytes as a body or a query. The first byte chooses the form (bit 0), where the rest splits in two (bit 1: query, a newline, then
 * a body, read into one struct), and whether one call's set of parameters or every one is allowed. Whatever is read must be in bounds;
 * whatever is refused must say so in one printable line.
 */
#include <ctype.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/lock_name.h"
#include "proto/params.h"
#include "proto/utf8.h"
#include "tests/fuzz/target.h"

static const unsigned sets[] = {
    (1u << PARAM_COUNT) - 1,
    PARAM_BIT(TTL) | PARAM_BIT(WAIT) | PARAM_BIT(LOCK_DELAY) | PARAM_BIT(MAX_HOLD) | PARAM_BIT(OWNER) | PARAM_BIT(LEASE_ID),
    PARAM_BIT(LEASE_ID) | PARAM_BIT(TTL),
    PARAM_BIT(LEASE_ID),
    PARAM_BIT(TOKEN),
    PARAM_BIT(REASON),
    PARAM_BIT(PREFIX) | PARAM_BIT(LIMIT) | PARAM_BIT(CURSOR),
    0,
};

static void check_text(const char *text, size_t len, size_t max)
{
    must(len <= max);
    must(strlen(text) == len);
}

static void check_lease_id(const struct lease_id *id)
{
    struct lease_id again;

    if (id->text[0] == '\0')
        return;
    must(strlen(id->text) == PAWL_LEASE_ID_LEN);
    for (const char *c = id->text; *c; c++)
        must(isdigit((unsigned char)*c) || islower((unsigned char)*c) || *c == '-');
    must(lease_id_parse(id->text, PAWL_LEASE_ID_LEN, &again) == 0);
    must(strcmp(id->text, again.text) == 0);
}

static void check_values(const struct params *p, unsigned allowed)
{
    must((p->seen & ~allowed) == 0);
    must(p->ttl_ms >= 0 && p->wait_ms >= 0 && p->lock_delay_ms >= 0 && p->max_hold_ms >= 0);
    must(p->token >= 0 && p->token <= PAWL_TOKEN_MAX);
    must(p->limit >= 1 && p->limit <= PAWL_LIST_LIMIT_MAX);
    check_text(p->owner, p->owner_len, PAWL_OWNER_MAX);
    check_text(p->reason, p->reason_len, PAWL_REASON_MAX);
    check_text(p->prefix, p->prefix_len, PAWL_NAME_MAX);
    must(!label_problem(p->owner, p->owner_len));
    must(!label_problem(p->reason, p->reason_len));
    must(!lock_name_prefix_problem(p->prefix, p->prefix_len));
    must(strlen(p->cursor) >= 1 && strlen(p->cursor) <= PAWL_CURSOR_MAX);
    must(strspn(p->cursor, "0123456789") == strlen(p->cursor));
    check_lease_id(&p->lease_id);
    /* What was given has a value, and what was not has none. */
    must(!(p->seen & PARAM_BIT(TOKEN)) == (p->token == 0));
    must(!(p->seen & PARAM_BIT(LEASE_ID)) == (p->lease_id.text[0] == '\0'));
    must(!(p->seen & PARAM_BIT(REASON)) == (p->reason_len == 0));
    must((p->seen & PARAM_BIT(TTL)) || p->ttl_ms == 0);
    must((p->seen & PARAM_BIT(WAIT)) || p->wait_ms == 0);
    must((p->seen & PARAM_BIT(LIMIT)) || p->limit == PAWL_LIST_LIMIT_DEFAULT);
}

static void check_problem(const struct param_problem *problem)
{
    size_t len = strnlen(problem->message, sizeof(problem->message));

    must(len > 0 && len < sizeof(problem->message));
    must(!problem->no_memory);
    must(!label_problem(problem->message, len)); /* one line, no escape sequences, valid UTF-8 */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct param_problem problem;
    struct params p;
    const char *text, *second;
    size_t len, first_len;
    unsigned allowed;
    int failed;

    if (size == 0)
        return 0;
    text = (const char *)data + 1;
    len = size - 1;
    allowed = sets[data[0] >> 2 & 7];
    memset(&problem, 0, sizeof(problem));
    params_init(&p);
    second = data[0] & 2 && len > 0 ? memchr(text, '\n', len) : NULL;
    if (second) {
        first_len = (size_t)(second - text);
        failed = params_from_query(&p, text, first_len, allowed, &problem) ||
                 params_from_json(&p, second + 1, len - first_len - 1, allowed, &problem);
    } else if (data[0] & 1) {
        failed = params_from_query(&p, text, len, allowed, &problem);
    } else {
        failed = params_from_json(&p, text, len, allowed, &problem);
    }
    check_values(&p, allowed);
    if (failed)
        check_problem(&problem);
    return 0;
}
