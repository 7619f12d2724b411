/* The main of every unit test: run one suite, tell how it went. CK_FORK=no runs it in one process (for debuggers and sanitizers). */
#ifndef PAWL_CHECK_MAIN_H
#define PAWL_CHECK_MAIN_H

#include <check.h>
#include <stdlib.h>

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
