/* What is left of CMD: what can't be looked at counts as alive, lest a lock be released while something of CMD still runs. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli_tree.h"

static struct cli_tree tree = CLI_TREE_NONE;

/* CMD, which leaves a process behind and ends; that one's number is told through a pipe. */
static pid_t run_cmd(void)
{
    int ends[2];
    pid_t left = 0;

    ck_assert_int_eq(cli_tree_open(&tree), 0);
    ck_assert_int_eq(pipe(ends), 0);
    tree.leader = fork();
    ck_assert_int_ge(tree.leader, 0);
    if (tree.leader == 0) {
        left = fork();
        if (left == 0) {
            alarm(60); /* whatever becomes of the test */
            for (;;)
                pause();
        }
        _exit(write(ends[1], &left, sizeof(left)) != sizeof(left));
    }
    ck_assert_int_eq(read(ends[0], &left, sizeof(left)), sizeof(left));
    close(ends[0]);
    close(ends[1]);
    while (!tree.leader_ended) {
        int stopped;
        ck_assert(cli_tree_look(&tree, &stopped)); /* CMD itself, or what it left */
    }
    return left;
}

static void limit_descriptors(int most)
{
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)most;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* The spare ones are given up for the look, and another thread may have been quicker: so many of them are left. */
START_TEST(P1_what_cmd_left_counts_as_alive_also_without_descriptors_to_see_it)
{
    pid_t left = run_cmd();
    int stopped, first = tree.spare[0] < tree.spare[1] ? tree.spare[0] : tree.spare[1];

    limit_descriptors(first + _i);
    ck_assert(cli_tree_look(&tree, &stopped));
    limit_descriptors(64);
    ck_assert(cli_tree_look(&tree, &stopped));
    ck_assert_int_eq(kill(left, SIGKILL), 0);
    while (cli_tree_look(&tree, &stopped))
        usleep(1000);
    ck_assert_int_eq(waitpid(left, NULL, WNOHANG), -1); /* reaped */
    cli_tree_close(&tree);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cli_tree");
    TCase *tcase = tcase_create("cli_tree");

    tcase_add_loop_test(tcase, P1_what_cmd_left_counts_as_alive_also_without_descriptors_to_see_it, 0, 3);
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
