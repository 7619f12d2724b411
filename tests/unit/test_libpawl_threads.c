/* One client and eight threads that take, keep, renew and give back leases of their own and fight for one that they share: for valgrind and
 * ThreadSanitizer, which look for leaks and races (`make client-threads`), and here for P1 and P2 as the library sees them. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "client/pawl.h"
#include "tests/lib/pawld_process.h"

#define THREADS 8
#define TTL_MS  3000 /* the first renewal comes after a third of it; a busy machine may hold the next one up for the rest */

static struct pawld_process pawld;
static struct pawl *client;
static atomic_int inside, renewed;
static int64_t last_token; /* of the lock that they share, written by its holder alone */

static int rounds(void)
{
    const char *text = getenv("PAWL_TEST_ROUNDS");

    return text ? atoi(text) : 25;
}

static void on_event(void *arg, struct pawl_lease *lease, enum pawl_event event, const struct pawl_problem *problem)
{
    (void)problem;
    if (event == PAWL_EVENT_RENEWED)
        atomic_fetch_add((atomic_int *)arg, 1);
    ck_assert_int_ge(pawl_lease_left_ms(lease), 0);
    ck_assert_int_gt(pawl_lease_token(lease), 0);
}

static void own_lock(int thread, int round)
{
    struct pawl_keep_alive_options keep = {.ttl_ms = TTL_MS, .on_event = on_event, .arg = &renewed};
    struct pawl_acquire_options want = {.ttl_ms = TTL_MS, .owner = "thread"};
    struct pawl_lock lock;
    struct pawl_lease *lease;
    char name[32];

    snprintf(name, sizeof(name), "own/%d", thread);
    ck_assert_int_eq(pawl_acquire(client, name, &want, &lease, NULL), 0);
    ck_assert_int_eq(pawl_keep_alive(lease, &keep, NULL), 0);
    ck_assert_int_eq(pawl_renew(lease, 0, NULL), 0);
    ck_assert_int_eq(pawl_check(client, name, pawl_lease_token(lease), NULL, NULL), 0);
    ck_assert_int_eq(pawl_inspect(client, name, &lock, NULL), 0);
    ck_assert_int_eq(lock.token, pawl_lease_token(lease));
    if (round % 12 == 0) {
        int seen = atomic_load(&renewed);

        while (atomic_load(&renewed) == seen) { /* a renewal of anybody's */
            ck_assert_int_gt(pawl_lease_left_ms(lease), 0);
            nanosleep(&(struct timespec){0, 1000000}, NULL);
        }
    }
    ck_assert_int_eq(pawl_release(lease, NULL), 0);
    pawl_lease_free(lease);
}

static void shared_lock(void)
{
    struct pawl_acquire_options want = {.ttl_ms = 20000, .wait_ms = 60000};
    struct pawl_lease *lease;

    ck_assert_int_eq(pawl_acquire(client, "shared", &want, &lease, NULL), 0);
    ck_assert_int_eq(atomic_fetch_add(&inside, 1), 0);
    ck_assert_int_gt(pawl_lease_token(lease), last_token);
    last_token = pawl_lease_token(lease);
    atomic_fetch_sub(&inside, 1);
    ck_assert_int_eq(pawl_release(lease, NULL), 0);
    pawl_lease_free(lease);
}

static void *work(void *arg)
{
    int thread = *(int *)arg;

    for (int round = 0; round < rounds(); round++) {
        own_lock(thread, round);
        shared_lock();
    }
    return NULL;
}

START_TEST(P1_P2_eight_threads_share_a_client)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];

    pawld_process_start(&pawld);
    ck_assert_int_eq(pawl_open(pawld.address, &client, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_gt(atomic_load(&renewed), 0);
    pawl_close(client);
    pawld_process_stop(&pawld);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("libpawl_threads");
    TCase *all = tcase_create("all");

    tcase_add_test(all, P1_P2_eight_threads_share_a_client);
    suite_add_tcase(s, all);
    return check_main(s);
}
