/* SPDX-License-Identifier: BSD-3-Clause */
/* Locks, atomic operations and signals of all PEs at once: nothing is lost, doubled or seen too early.  argument: rounds */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "PE %d: %s:%d: %s\n", me, __FILE__, __LINE__, #what); shmem_global_exit(1); } } while (0)
#define PES_MAX 64
#define WORDS 32

static int me, n, rounds;
static struct memory {
    long lock[3], counted[3], holder;
    long tickets, taken[4096], token, bits, swapped;
    int halves[2];
    long data[PES_MAX][WORDS];
    uint64_t arrived[PES_MAX], seen[PES_MAX], bell;
} statics;

static unsigned next_random(void) {
    static unsigned state;
    if (!state) state = 2463534242u + 977 * me;
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    return state;
}

/* The value that a lock guards is read, changed and written back by ordinary gets and puts. */
static void locks(struct memory *at) {
    for (int i = 0; i < rounds; i++) {
        int which = next_random() % 3, home = which % n;
        if (next_random() % 4) shmem_set_lock(&at->lock[which]);
        else while (shmem_test_lock(&at->lock[which]));
        if (which == 0) CHECK(shmem_long_atomic_swap(&at->holder, me + 1, 0) == 0);
        long value = shmem_long_g(&at->counted[which], home);
        if (which == 0) CHECK(shmem_long_atomic_swap(&at->holder, 0, 0) == me + 1);
        shmem_long_p(&at->counted[which], value + 1, home);
        shmem_clear_lock(&at->lock[which]);
    }
    shmem_barrier_all();
    long all = 0;
    for (int which = 0; which < 3; which++) all += shmem_long_g(&at->counted[which], which % n);
    CHECK(all == (long)rounds * n);
    shmem_barrier_all();
}

static void atomics(struct memory *at) {
    long token = me + 1, sum = 0;
    int most = rounds * n < 4096 ? rounds : 4096 / n;
    for (int i = 0; i < rounds; i++) {
        if (i < most) {
            long ticket = shmem_long_atomic_fetch_inc(&at->tickets, 0);
            CHECK(ticket < 4096 && shmem_long_atomic_fetch_inc(&at->taken[ticket], ticket % n) == 0);
        }
        shmem_int_atomic_add(&at->halves[i % 2], i % 2 ? -1 : 1, i / 2 % n);
        shmem_ulong_atomic_xor((unsigned long *)&at->bits, 1ul << me, 0);
        token = shmem_long_atomic_swap(&at->token, token, 0);
        long old = shmem_long_atomic_fetch(&at->swapped, 0), found;
        while ((found = shmem_long_atomic_compare_swap(&at->swapped, old, old + 3, 0)) != old) old = found;
    }
    shmem_barrier_all();
    /* Each token is held by one PE, or lies in the word. */
    static long held, all;
    held = token;
    shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &all, &held, 1);
    CHECK(all + shmem_long_g(&at->token, 0) == n * (n + 1l) / 2);
    CHECK(shmem_long_g(&at->tickets, 0) == (long)most * n && shmem_long_g(&at->swapped, 0) == 3l * rounds * n);
    CHECK(shmem_long_g(&at->bits, 0) == (rounds % 2 ? (1l << n) - 1 : 0));
    for (int pe = 0; pe < n; pe++) sum += shmem_int_g(&at->halves[0], pe) - shmem_int_g(&at->halves[1], pe);
    CHECK(sum == (long)rounds * n);
    shmem_barrier_all();
}

/* Each PE puts to each other PE. A signal says that the bytes have arrived, another that they were read. */
static void signals(struct memory *at) {
    long block[WORDS];
    for (int round = 1; round <= rounds; round++) {
        for (int step = 0; step < n; step++) {
            int pe = (me + step) % n;
            shmem_signal_wait_until(&at->seen[pe], SHMEM_CMP_GE, round - 1);
            for (int i = 0; i < WORDS; i++) block[i] = 1000000l * me + 1000l * (round % 1000) + i;
            if (round % 2) shmem_long_put_signal(at->data[me], block, WORDS, &at->arrived[me], 1, SHMEM_SIGNAL_ADD, pe);
            else shmem_long_put_signal_nbi(at->data[me], block, WORDS, &at->arrived[me], round, SHMEM_SIGNAL_SET, pe), shmem_quiet();
        }
        for (int step = 0; step < n; step++) {
            int pe = (me + n - step) % n;
            CHECK(shmem_signal_wait_until(&at->arrived[pe], SHMEM_CMP_GE, round) == (uint64_t)round);
            for (int i = 0; i < WORDS; i++) CHECK(at->data[pe][i] == 1000000l * pe + 1000l * (round % 1000) + i);
            shmem_signal_set(&at->seen[me], round, pe);
        }
    }
    shmem_barrier_all();
}

/* A token goes round so slowly that the PEs that wait for it sleep. */
static void sleepers(struct memory *at) {
    struct timespec pause = {0, 4000000};
    for (int round = 1; round <= 2 + rounds / 1000; round++) {
        if (me > 0 || round > 1) shmem_signal_wait_until(&at->bell, SHMEM_CMP_GE, me > 0 ? round : round - 1);
        nanosleep(&pause, NULL);
        shmem_signal_add(&at->bell, 1, (me + 1) % n);
    }
    if (me == 0) shmem_signal_wait_until(&at->bell, SHMEM_CMP_GE, 2 + rounds / 1000);
    shmem_barrier_all();
}

int main(int argc, char **argv) {
    shmem_init();
    me = shmem_my_pe(), n = shmem_n_pes(), rounds = argc > 1 ? atoi(argv[1]) : 200;
    CHECK(n <= PES_MAX && n < 63);
    struct memory *heap = shmem_calloc(1, sizeof *heap);
    CHECK(heap);
    for (int pass = 0; pass < 2; pass++) {
        struct memory *at = pass ? &statics : heap;
        locks(at);
        atomics(at);
        signals(at);
        sleepers(at);
    }
    shmem_finalize();
    return 0;
}
