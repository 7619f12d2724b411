/* What every fuzz target begins with: its one function, and the check whose failure is a finding. */
#ifndef PAWL_FUZZ_TARGET_H
#define PAWL_FUZZ_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(condition)                                                                                                                    \
    do {                                                                                                                                   \
        if (!(condition))                                                                                                                  \
            abort();                                                                                                                       \
    } while (0)

#endif
