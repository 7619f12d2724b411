/* The main of a fuzz target where there is no libFuzzer: feeds it every file that the arguments name, folders with all that is in them.
 *
 * Each input is copied to a block of exactly its size, so that a read past its end is one that ASan or valgrind sees. Arguments that begin with '-' are
 * libFuzzer's and passed over, so that both kinds of build are run by the same line. No input at all is a failure: a replay of nothing shows nothing.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <fts.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "tests/fuzz/target.h"

static int feed(const char *path, size_t size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(size); /* malloc(0) is a block of no bytes here, not NULL: exact as well */
    int result = -1;

    if (file != NULL && data != NULL && fread(data, 1, size, file) == size) {
        LLVMFuzzerTestOneInput(data, size);
        result = 0;
    } else {
        perror(path);
    }
    free(data);
    if (file != NULL)
        fclose(file);
    return result;
}

/* Returns how many files were fed, or -1. */
static long feed_tree(char *path)
{
    char *paths[] = {path, NULL};
    FTS *tree = fts_open(paths, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    long count = 0;

    if (tree == NULL) {
        perror(path);
        return -1;
    }
    for (FTSENT *entry = fts_read(tree); entry != NULL && count >= 0; entry = fts_read(tree)) {
        if (entry->fts_info == FTS_F) {
            if (feed(entry->fts_path, (size_t)entry->fts_statp->st_size) == 0)
                count++;
            else
                count = -1;
        } else if (entry->fts_info != FTS_D && entry->fts_info != FTS_DP) {
            fprintf(stderr, "%s: can't be read\n", entry->fts_path);
            count = -1;
        }
    }
    fts_close(tree);
    return count;
}

int main(int argc, char **argv)
{
    long total = 0;

    for (int i = 1; i < argc; i++) {
        long count;

        if (argv[i][0] == '-')
            continue;
        count = feed_tree(argv[i]);
        if (count < 0)
            return EXIT_FAILURE;
        total += count;
    }
    printf("%s: %ld inputs replayed\n", argv[0], total);
    return total > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
