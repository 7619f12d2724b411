/* The hash of lock names: the same name always hashes alike, every byte and the length count, names that look alike spread (P9: nobody can
 * make the tables slow by the names it chooses). The key is drawn anew in each process, so there are no fixed vectors. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "tests/lib/check_main.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/name_hash.h"

START_TEST(a_name_hashes_alike_wherever_it_lies)
{
    char room[64 + 8];
    static const char name[] = "deploy/production/eu-west-1/api";

    for (size_t shift = 0; shift < 8; shift++) {
        memset(room, 'x', sizeof(room));
        memcpy(room + shift, name, sizeof(name) - 1);
        ck_assert(name_hash(room + shift, sizeof(name) - 1) == name_hash(name, sizeof(name) - 1));
    }
}
END_TEST

START_TEST(every_length_and_every_bit_counts)
{
    unsigned char zeros[40] = {0};

    for (size_t len = 0; len < sizeof(zeros); len++) {
        uint64_t plain = name_hash(zeros, len);

        ck_assert(plain != name_hash(zeros, len + 1));
        for (size_t bit = 0; bit < len * 8; bit++) {
            zeros[bit / 8] ^= (unsigned char)(1u << bit % 8);
            ck_assert_msg(name_hash(zeros, len) != plain, "length %zu, bit %zu", len, bit);
            zeros[bit / 8] = 0;
        }
    }
}
END_TEST

START_TEST(names_that_differ_by_a_number_spread_evenly)
{
    enum { NAMES = 65536, BUCKETS = 256 };
    static unsigned low[BUCKETS], high[BUCKETS];
    char name[32];

    for (int i = 0; i < NAMES; i++) {
        int len = snprintf(name, sizeof(name), "job-%06d", i);
        unsigned hash;

        HASH_FUNCTION(name, (size_t)len, hash);
        low[hash % BUCKETS]++;
        high[hash / (UINT32_MAX / BUCKETS + 1)]++;
    }
    for (int i = 0; i < BUCKETS; i++) { /* 256 each expected, 16 the standard deviation: eight of them never happen by chance */
        ck_assert_msg(low[i] > 128 && low[i] < 384, "low bits %d: %u", i, low[i]);
        ck_assert_msg(high[i] > 128 && high[i] < 384, "high bits %d: %u", i, high[i]);
    }
}
END_TEST

/* Each run of this program has a key of its own: what one tells of collisions is of no use against another. */
START_TEST(P9_each_process_has_its_own_key)
{
    uint64_t hashes[2];

    for (int i = 0; i < 2; i++) {
        int ends[2];
        pid_t pid;

        ck_assert_int_eq(pipe(ends), 0);
        pid = fork();
        if (pid == 0) {
            uint64_t hash = name_hash("name", 4);
            _exit(write(ends[1], &hash, sizeof(hash)) == sizeof(hash) ? 0 : 1);
        }
        ck_assert_int_gt(pid, 0);
        ck_assert_int_eq(read(ends[0], &hashes[i], sizeof(hashes[i])), sizeof(hashes[i]));
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
        close(ends[0]);
        close(ends[1]);
    }
    ck_assert(hashes[0] != hashes[1]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("name_hash");
    TCase *tcase = tcase_create("hash"), *fresh = tcase_create("key");

    tcase_add_test(tcase, a_name_hashes_alike_wherever_it_lies);
    tcase_add_test(tcase, every_length_and_every_bit_counts);
    tcase_add_test(tcase, names_that_differ_by_a_number_spread_evenly);
    tcase_add_test(fresh, P9_each_process_has_its_own_key);
    suite_add_tcase(suite, fresh); /* before this process draws its own, which the children would inherit */
    suite_add_tcase(suite, tcase);
    return check_main(suite);
}
