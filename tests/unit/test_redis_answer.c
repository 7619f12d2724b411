/* What errors of Redis mean: each kind has a sentence of its own, and those after which the connection is of no use are told apart from those that pass. The
 * texts are those that Redis 7 sends, from a command and from inside a script, and what Redis 6 makes of the latter. C19, C20, C21. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "daemon/redis_answer.h"

#include <string.h>

#include "tests/lib/check_main.h"

static const struct {
    const char *text, *word;
    bool drop;
} kinds[] = {
    {"NOSCRIPT No matching script. Please use EVAL.", "script", false},
    {"LOADING Redis is loading the dataset in memory", "loading", true},
    {"READONLY You can't write against a read only replica.", "read-only replica", true},
    {"READONLY You can't write against a read only replica. script: 2f8b, on @user_script:7.", "read-only replica", true},
    {"ERR Error running script (call to f_2f8b): @user_script:7: @user_script: 7: -READONLY You can't write against a read only replica.",
     "read-only replica", true},
    {"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "replica without its master", true},
    {"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", "(MISCONF)", false},
    {"OOM command not allowed when used memory > 'maxmemory'.", "(OOM)", false},
    {"OOM command not allowed when used memory > 'maxmemory'. script: 2f8b, on @user_script:7.", "(OOM)", false},
    {"ERR Error running script (call to f_2f8b): @user_script:7: @user_script: 7: -OOM command not allowed when used memory > 'maxmemory'.",
     "(OOM)", false},
    {"NOAUTH Authentication required.", "(NOAUTH)", true},
    {"ERR Protocol error: unauthenticated multibulk length", "(NOAUTH)", true},
    {"WRONGPASS invalid username-password pair or user is disabled.", "(WRONGPASS)", true},
    {"NOPERM this user has no permissions to run the 'evalsha' command", "(NOPERM)", false},
    {"NOPERM User weak has no permissions to access one of the keys used as arguments", "(NOPERM)", false},
    {"The user executing the script can't run this command or subcommand script: 2f8b, on @user_script:7.", "(NOPERM)", false},
    {"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", "(BUSY)", false},
    {"CLUSTERDOWN Hash slot not served", "(CLUSTERDOWN)", false},
    {"MOVED 866 127.0.0.1:7001", "(MOVED)", false},
    {"NOREPLICAS Not enough good replicas to write.", "(NOREPLICAS)", false},
    {"WRONGTYPE Operation against a key holding the wrong kind of value", "(WRONGTYPE)", false},
    {"WRONGTYPE Operation against a key holding the wrong kind of value script: 2f8b, on @user_script:7.", "(WRONGTYPE)", false},
    {"ERR max number of clients reached", "no more clients", true},
};

START_TEST(C19_C20_C21_each_kind_of_refusal_has_a_sentence_of_its_own)
{
    bool drop = !kinds[_i].drop;
    const char *problem = redis_answer_problem(kinds[_i].text, &drop);

    ck_assert_msg(strstr(problem, kinds[_i].word), "%s: %s", kinds[_i].text, problem);
    ck_assert_msg(drop == kinds[_i].drop, "%s", kinds[_i].text);
}
END_TEST

START_TEST(what_no_row_knows_is_told_in_words_of_ours)
{
    static const char *const odd[] = {"", "ERR", "ERR value is not an integer or out of range", "EXECABORT", "oom", "-", "\xff\n%s"};

    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        bool drop = true;

        ck_assert_ptr_eq(redis_answer_problem(odd[i], &drop), redis_answer_refused);
        ck_assert(!drop);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_answer");
    TCase *errors = tcase_create("errors");

    tcase_add_loop_test(errors, C19_C20_C21_each_kind_of_refusal_has_a_sentence_of_its_own, 0, (int)(sizeof(kinds) / sizeof(kinds[0])));
    tcase_add_test(errors, what_no_row_knows_is_told_in_words_of_ours);
    suite_add_tcase(suite, errors);
    return check_main(suite);
}
