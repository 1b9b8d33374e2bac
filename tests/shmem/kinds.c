/* SPDX-License-Identifier: BSD-3-Clause */
/* What OpenSHMEM programs typically do: threads with a context each, many teams and contexts, one pSync for all, long blocks, a
   server. */
#include <pthread.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "PE %d: %s:%d: %s\n", me, __FILE__, __LINE__, #what); shmem_global_exit(1); } } while (0)
#define THREADS 4
#define ROUNDS 50

static int me, n, next, before;
static long psync[SHMEM_COLLECT_SYNC_SIZE + SHMEM_REDUCE_SYNC_SIZE];
static double work[SHMEM_REDUCE_MIN_WRKDATA_SIZE];
static struct slot { long block[100]; uint64_t arrived; long counted; } *slots;

/* A thread puts to the slot of its number on the next PE, waits for its own, and counts on PE 0. */
static void *talk(void *number) {
    long t = (long)number, mine[100];
    shmem_ctx_t ctx;
    CHECK(shmem_ctx_create(t % 2 ? SHMEM_CTX_PRIVATE : 0, &ctx) == 0);
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < 100; i++) mine[i] = 1000 * me + round + i;
        shmem_put_signal(ctx, slots[t].block, mine, 100, &slots[t].arrived, 1, SHMEM_SIGNAL_ADD, next);
        CHECK(shmem_signal_wait_until(&slots[t].arrived, SHMEM_CMP_GE, round) == (uint64_t)round);
        for (int i = 0; i < 100; i++) CHECK(slots[t].block[i] == 1000 * before + round + i);
        shmem_atomic_inc(ctx, &slots[t].counted, 0);
        /* The block of the next round comes only when all PEs have read that of this one. */
        shmem_ctx_quiet(ctx);
        shmem_atomic_inc(ctx, &slots[THREADS + t].counted, before);
        shmem_long_wait_until(&slots[THREADS + t].counted, SHMEM_CMP_GE, round);
    }
    shmem_ctx_destroy(ctx);
    return NULL;
}

static void threads(void) {
    pthread_t all[THREADS];
    slots = shmem_calloc(2 * THREADS, sizeof *slots);
    for (long t = 0; t < THREADS; t++) CHECK(pthread_create(&all[t], NULL, talk, (void *)t) == 0);
    for (int t = 0; t < THREADS; t++) pthread_join(all[t], NULL);
    shmem_barrier_all();
    for (int t = 0; t < THREADS; t++) CHECK(shmem_g(&slots[t].counted, 0) == (long)ROUNDS * n);
    shmem_barrier_all();
    shmem_free(slots);
}

/* Teams of teams down to one PE, and many contexts at once. */
static void many(void) {
    static long word, sum;
    shmem_ctx_t all[200];
    for (int i = 0; i < 200; i++) CHECK(shmem_ctx_create(i % 2 ? SHMEM_CTX_SERIALIZED : SHMEM_CTX_NOSTORE, &all[i]) == 0);
    for (int i = 0; i < 200; i++) shmem_atomic_add(all[i], &word, 1, next);
    for (int i = 0; i < 200; i++) shmem_ctx_quiet(all[i]), shmem_ctx_destroy(all[i]);
    shmem_barrier_all();
    CHECK(word == 200);
    for (int round = 0; round < 5; round++) {
        shmem_team_t team = SHMEM_TEAM_WORLD, halves;
        for (int size = n; size > 1 && team != SHMEM_TEAM_INVALID; size = (size + 1) / 2) {
            CHECK(shmem_team_split_strided(team, 0, 2, (size + 1) / 2, NULL, 0, &halves) == 0);
            if (team != SHMEM_TEAM_WORLD) shmem_team_destroy(team);
            if ((team = halves) == SHMEM_TEAM_INVALID) break;
            word = 1;
            CHECK(shmem_sum_reduce(team, &sum, &word, 1) == 0 && sum == shmem_team_n_pes(team));
        }
        if (team != SHMEM_TEAM_WORLD) shmem_team_destroy(team);
    }
    shmem_barrier_all();
}

/* Old collectives, one after the other with one pSync, with more elements than the work array has room for, and
   in place. */
static void old(void) {
    static double from[1000], to[1000];
    static long counts[64], gathered[64 * 64];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 1000; i++) from[i] = me + i, to[i] = -1;
        shmem_double_sum_to_all(to, from, 1000, 0, 0, n, work, psync);
        for (int i = 0; i < 1000; i++) CHECK(to[i] == n * (n - 1) / 2 + n * i);
        shmem_double_max_to_all(from, from, 1000, 0, 0, n, work, psync);
        CHECK(from[999] == n - 1 + 999);
        int members = me % 2 ? n / 2 : (n + 1) / 2;
        counts[0] = me;
        shmem_collect64(gathered, counts, me / 2 % 2, me % 2, 1, members, psync);
        for (int i = 0, at = 0; i < members; i++) if (i % 2) CHECK(gathered[at++] == 2 * i + me % 2);
        shmem_barrier(me % 2, 1, members, psync);
        shmem_broadcast64(to, from, 1000, round % n, 0, 0, n, psync);
        CHECK(to[0] == (me == round % n ? n * (n - 1) / 2 : n - 1));
    }
    shmem_barrier_all();
}

/* Blocks of many MiB, also with the same source and target. */
static void large(void) {
    size_t count = 4 << 20;
    int *block = shmem_malloc(count * sizeof *block), *back = malloc(count * sizeof *back);
    CHECK(block && back);
    for (size_t i = 0; i < count; i++) back[i] = me ^ (int)i;
    shmem_put(block, back, count, next);
    shmem_barrier_all();
    for (size_t i = 0; i < count; i++) CHECK(block[i] == (before ^ (int)i));
    shmem_get(back, block, count, next);
    for (size_t i = 0; i < count; i++) CHECK(back[i] == (me ^ (int)i));
    shmem_barrier_all();
    shmem_put(block, block, count, me), shmem_get(block, block, count, me), shmem_put(block + 1, block, 1000, me);
    CHECK(block[0] == before && block[1] == before && block[1000] == (before ^ 999));
    shmem_barrier_all();
    shmem_free(block), free(back);
    size_t each = 100000;
    int *from = shmem_malloc(n * each * sizeof *from), *to = shmem_malloc(n * each * sizeof *to);
    for (size_t i = 0; i < n * each; i++) from[i] = (int)i * n + me;
    shmem_sync_all();
    CHECK(shmem_alltoall(SHMEM_TEAM_WORLD, to, from, each) == 0);
    for (size_t i = 0; i < n * each; i++) CHECK(to[i] == (int)(me * each + i % each) * n + (int)(i / each));
    CHECK(shmem_sum_reduce(SHMEM_TEAM_WORLD, from, from, n * each) == 0);
    for (size_t i = 0; i < n * each; i++) CHECK(from[i] == (int)i * n * n + n * (n - 1) / 2);
    shmem_free(to), shmem_free(from);
}

/* PE 0 takes requests as they come. If possible it stores its answer through the address from shmem_ptr. */
static void server(void) {
    long *asked = shmem_calloc(n, sizeof *asked), *answer = shmem_calloc(1, sizeof *answer);
    int *done = calloc(n, sizeof *done);
    CHECK(asked && answer && done);
    for (int round = 1; round <= 20; round++) {
        if (me == 0) {
            memset(done, 0, n * sizeof *done);
            done[0] = 1;
            for (size_t pe; (pe = shmem_wait_until_any(asked, n, done, SHMEM_CMP_EQ, round)) != SIZE_MAX; done[pe] = 1) {
                long *there = shmem_ptr(answer, (int)pe);
                if (there) __atomic_store_n(there, round, __ATOMIC_RELEASE);
                else shmem_p(answer, round, (int)pe);
            }
        } else {
            shmem_p(&asked[me], round, 0);
            shmem_wait_until(answer, SHMEM_CMP_EQ, round);
        }
    }
    shmem_barrier_all();
    free(done), shmem_free(answer), shmem_free(asked);
}

int main(void) {
    int level;
    CHECK(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &level) == 0 && level == SHMEM_THREAD_MULTIPLE);
    me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n, before = (me + n - 1) % n;
    CHECK(n <= 64);
    threads();
    many();
    old();
    large();
    server();
    shmem_finalize();
    return 0;
}
