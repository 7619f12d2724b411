/* The text of a file of access rules: anything may stand in it. What is refused is told in one line; what is taken answers every question, and gives a right only
 * on names that one of its prefixes begins. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/access.h"
#include "tests/fuzz/target.h"

static void ask(const struct access_rule *rule)
{
    static const char *const names[] = {"a", "a/1", "billing/x", "~"};
    static const unsigned verbs[] = {ACCESS_ACQUIRE, ACCESS_READ, ACCESS_BREAK, ACCESS_ADMIN};

    must(strlen(access_name(rule)) >= 1 && strlen(access_name(rule)) <= PAWL_CALLER_MAX);
    for (size_t v = 0; v < sizeof(verbs) / sizeof(verbs[0]); v++) {
        for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
            int allowed = access_allows(rule, verbs[v], names[n], strlen(names[n]));

            must(!allowed || access_allows_some(rule, verbs[v]));
            must(!allowed || verbs[v] != ACCESS_READ || access_sees_some(rule, names[n], strlen(names[n])));
            must(!access_allows_some(rule, ACCESS_ADMIN) || access_allows(rule, verbs[v], names[n], strlen(names[n])) ==
                                                                access_allows(rule, ACCESS_ADMIN, names[n], strlen(names[n])));
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct access_rule *rule = NULL;
    char problem[512] = "";
    struct access *set = access_parse((const char *)data, size, problem, sizeof(problem));

    if (!set) {
        must(problem[0] != '\0');
        for (const char *c = problem; *c; c++)
            must((unsigned char)*c >= ' ' && *c != 0x7f);
        return 0;
    }
    must(access_count(set) >= 1 && access_count(set) <= ACCESS_RULES_MAX);
    must(access_by_token(set, "alpha", 5, &rule) == 0);
    if (rule)
        ask(rule);
    rule = access_by_uid(set, 1000);
    if (rule)
        ask(rule);
    rule = access_by_subject(set, "CN=a");
    if (rule)
        ask(rule);
    access_release(set);
    return 0;
}
