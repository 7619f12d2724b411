/* The text of a config file: anything may stand in it. What is taken must survive being dumped and read again; what is refused must be told in one
 * printable line. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/options.h"
#include "tests/fuzz/target.h"

static char *dumped(const struct options *options, size_t *ret_len)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, ret_len);

    must(out != NULL);
    options_dump(options, out);
    must(fclose(out) == 0);
    return text;
}

/* A socket's path with an '@' in it is masked as if it were a login, rather too much than too little; what is left then is no URL. */
static int overmasked(const struct options *options)
{
    const char *url = options->redis;

    if (!url || strncasecmp(url, "unix://", 7) != 0 || !strchr(url, '@'))
        return 0;
    return url[7] == '/' || strchr(url, '@') != strrchr(url, '@'); /* without a login, or behind one */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct options options, again;
    char problem[600] = "";
    char *first, *second;
    size_t first_len, second_len;

    if (options_read_text(&options, "f", (const char *)data, size, problem, sizeof(problem)) < 0) {
        must(problem[0] != '\0');
        for (const char *c = problem; *c; c++)
            must(*c >= ' ' && *c <= '~');
        options_close(&options);
        return 0;
    }
    first = dumped(&options, &first_len);
    if (overmasked(&options)) {
        free(first);
        options_close(&options);
        return 0;
    }
    must(options_read_text(&again, "dump", first, first_len, problem, sizeof(problem)) == 0);
    second = dumped(&again, &second_len);
    must(first_len == second_len && memcmp(first, second, first_len) == 0);
    free(first);
    free(second);
    options_close(&options);
    options_close(&again);
    return 0;
}
