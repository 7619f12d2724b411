/* The main of every unit test: run one suite, tell how it went. CK_FORK=no runs it in one process (for debuggers and sanitizers).
 *
 * No test has a time of its own: Check ends one after CK_DEFAULT_TIMEOUT seconds, 300 where nobody says otherwise, so that only one that hangs is ended and
 * none that a busy machine keeps waiting. Check's own 4 seconds are less than a test may wait for a processor. */
#ifndef PAWL_CHECK_MAIN_H
#define PAWL_CHECK_MAIN_H

#include <check.h>
#include <stdlib.h>

/* Before main: a test case reads it when it is made. */
__attribute__((constructor)) static void check_main_give_time(void)
{
    setenv("CK_DEFAULT_TIMEOUT", "300", 0);
}

static inline int check_main(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    int failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
