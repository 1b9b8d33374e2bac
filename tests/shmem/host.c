/* SPDX-License-Identifier: BSD-3-Clause */
/* Each kind of operation against its definition, in the heap and in statics. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "PE %d: %s:%d: %s\n", me, __FILE__, __LINE__, #what); shmem_global_exit(1); } } while (0)

static int me, n, next, before;
static int ints[64];
static long words[8], lock, plain;
static long psync[SHMEM_REDUCE_SYNC_SIZE];
static int work[SHMEM_REDUCE_MIN_WRKDATA_SIZE + 8];

static void rma(int *at, long double *real) {
    int mine[16], back[16];
    for (int i = 0; i < 16; i++) mine[i] = 100 * me + i;
    memset(at, 0, 64 * sizeof *at);
    shmem_barrier_all();
    shmem_put(at, mine, 16, next);
    shmem_iput(at + 16, mine, 2, 1, 8, next);
    shmem_ibput(at + 32, mine, 4, 3, 2, 4, next);
    shmem_p(at + 60, 1000 + me, next);
    shmem_putmem(at + 61, mine + 3, sizeof(int), next);
    shmem_put_nbi(at + 62, mine + 4, 1, next);
    shmem_p(real, 1.5L + me, next);
    shmem_quiet();
    shmem_barrier_all();
    for (int i = 0; i < 16; i++) CHECK(at[i] == 100 * before + i);
    for (int i = 0; i < 8; i++) CHECK(at[16 + 2 * i] == 100 * before + i && at[17 + 2 * i] == 0);
    for (int i = 0; i < 4; i++) CHECK(at[32 + 4 * i] == 100 * before + 3 * i && at[33 + 4 * i] == 100 * before + 3 * i + 1 && !at[34 + 4 * i]);
    CHECK(at[60] == 1000 + before && at[61] == 100 * before + 3 && at[62] == 100 * before + 4 && *real == 1.5L + before);
    shmem_get(back, at, 16, next);
    for (int i = 0; i < 16; i++) CHECK(back[i] == 100 * me + i);
    shmem_iget(back, at + 16, 1, 2, 8, next);
    for (int i = 0; i < 8; i++) CHECK(back[i] == 100 * me + i);
    shmem_int_ibget(back, at + 32, 2, 4, 2, 4, next);
    for (int i = 0; i < 4; i++) CHECK(back[2 * i] == 100 * me + 3 * i);
    CHECK(shmem_g(at + 60, next) == 1000 + me && shmem_g(real, next) == 1.5L + me);
    shmem_barrier_all();
}

static void atomics(long *at) {
    at[0] = 5, at[1] = 0, at[2] = 0;
    shmem_barrier_all();
    CHECK(shmem_atomic_swap(at, 7L, next) == 5);
    CHECK(shmem_atomic_compare_swap(at, 8L, 9L, next) == 7 && shmem_atomic_compare_swap(at, 7L, 9L, next) == 7);
    CHECK(shmem_atomic_fetch_add(at, 1L, next) == 9 && shmem_atomic_fetch_inc(at, next) == 10);
    shmem_atomic_add(at, 5L, next);
    CHECK(shmem_atomic_fetch(at, next) == 16);
    CHECK(shmem_ulong_atomic_fetch_or((unsigned long *)at, 3, next) == 16 && shmem_ulong_atomic_fetch_and((unsigned long *)at, 17, next) == 19);
    shmem_ulong_atomic_xor((unsigned long *)at, 1, next);
    long got = 0;
    shmem_atomic_fetch_add_nbi(&got, at, 1L, next);
    shmem_quiet();
    CHECK(got == 16);
    shmem_barrier_all();
    CHECK(at[0] == 17);
    for (int i = 0; i < 200; i++) shmem_long_fadd(at + 1, 2, 0);
    shmem_barrier_all();
    CHECK(shmem_g(at + 1, 0) == 400L * n);
    /* Two halves of 4 bytes do not affect each other. */
    shmem_int_atomic_set((int *)(at + 2), -1, next);
    shmem_barrier_all();
    CHECK(at[2] == 0xffffffffL);
    shmem_barrier_all();
}

static void locks(long *of) {
    for (int i = 0; i < 50; i++) {
        shmem_set_lock(of);
        long value = shmem_g(&plain, 0);
        shmem_p(&plain, value + 1, 0);
        shmem_clear_lock(of);
    }
    shmem_barrier_all();
    CHECK(shmem_g(&plain, 0) == 50L * n);
    shmem_barrier_all();
    plain = 0;
    if (me == 0) CHECK(shmem_test_lock(of) == 0 && shmem_test_lock(of) == 1);
    shmem_barrier_all();
    if (me == n - 1 && n > 1) CHECK(shmem_test_lock(of) == 1);
    shmem_barrier_all();
    if (me == 0) shmem_clear_lock(of);
    shmem_barrier_all();
}

static void waits(long *at) {
    int status[4] = {0, 1, 0, 0};
    long values[4] = {1, 99, 3, 4};
    size_t indices[4];
    memset(at, 0, 4 * sizeof *at);
    shmem_barrier_all();
    CHECK(shmem_test_any(at, 4, status, SHMEM_CMP_GT, 0L) == SIZE_MAX);
    CHECK(shmem_test_some(at, 4, indices, status, SHMEM_CMP_GT, 0L) == 0 && !shmem_test(at, SHMEM_CMP_NE, 0L));
    shmem_barrier_all();
    for (int i = 0; i < 4; i++) if (i != 1) shmem_p(at + i, values[i], next);
    shmem_wait_until_all_vector(at, 4, status, SHMEM_CMP_EQ, values);
    shmem_wait_until(at + 3, SHMEM_CMP_GE, 4L);
    CHECK(shmem_wait_until_any(at, 4, status, SHMEM_CMP_EQ, 3L) == 2);
    CHECK(shmem_wait_until_some(at, 4, indices, NULL, SHMEM_CMP_NE, 0L) == 3 && indices[0] == 0 && indices[1] == 2 && indices[2] == 3);
    CHECK(shmem_test_all(at, 4, status, SHMEM_CMP_LE, 4L) && shmem_test_any_vector(at, 4, NULL, SHMEM_CMP_EQ, values) == 0);
    int all[2] = {1, 1};
    CHECK(shmem_wait_until_any(at, 2, all, SHMEM_CMP_EQ, 55L) == SIZE_MAX);
    shmem_long_wait(at, 0);
    shmem_barrier_all();
}

static void collectives(int *to, int *from, shmem_team_t team) {
    int mine = shmem_team_my_pe(team), size = shmem_team_n_pes(team);
    for (int i = 0; i < 16; i++) from[i] = 10 * mine + i, to[i] = -1;
    shmem_team_sync(team);
    CHECK(shmem_broadcast(team, to, from, 3, size - 1) == 0);
    for (int i = 0; i < 3; i++) CHECK(to[i] == 10 * (size - 1) + i);
    shmem_team_sync(team);
    shmem_fcollect(team, to, from, 2);
    for (int i = 0; i < size; i++) CHECK(to[2 * i] == 10 * i && to[2 * i + 1] == 10 * i + 1);
    shmem_team_sync(team);
    shmem_collect(team, to, from, (size_t)mine % 2 + 1);
    for (int i = 0, at = 0; i < size; i++) for (int j = 0; j < i % 2 + 1; j++) CHECK(to[at++] == 10 * i + j);
    shmem_team_sync(team);
    shmem_alltoall(team, to, from, 1);
    for (int i = 0; i < size; i++) CHECK(to[i] == 10 * i + mine);
    shmem_team_sync(team);
    shmem_alltoalls(team, to, from, 2, 1, 1);
    for (int i = 0; i < size; i++) CHECK(to[2 * i] == 10 * i + mine);
    shmem_team_sync(team);
    shmem_max_reduce(team, to, from, 4);
    CHECK(to[3] == 10 * (size - 1) + 3);
    shmem_sum_inscan(team, to, from, 1);
    CHECK(to[0] == 5 * mine * (mine + 1));
    shmem_sum_exscan(team, to, from, 1);
    CHECK(to[0] == 5 * mine * (mine - 1));
    shmem_sum_reduce(team, from, from, 1);
    CHECK(from[0] == 5 * size * (size - 1));
    shmem_team_sync(team);
}

static void teams(int *to, int *from) {
    shmem_team_t even, x, y;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 2, (n + 1) / 2, NULL, 0, &even) == 0);
    CHECK((even == SHMEM_TEAM_INVALID) == (me % 2 == 1));
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n + 1, NULL, 0, &x) != 0 && x == SHMEM_TEAM_INVALID);
    if (even != SHMEM_TEAM_INVALID) {
        CHECK(shmem_team_translate_pe(even, shmem_team_my_pe(even), SHMEM_TEAM_WORLD) == me);
        collectives(to, from, even);
        shmem_ctx_t ctx;
        CHECK(shmem_team_create_ctx(even, SHMEM_CTX_PRIVATE, &ctx) == 0);
        int size = shmem_team_n_pes(even), mine = shmem_team_my_pe(even);
        shmem_p(ctx, to, 77 + mine, (mine + 1) % size);
        shmem_ctx_quiet(ctx);
        shmem_sync(even);
        CHECK(*to == 77 + (mine + size - 1) % size);
        shmem_ctx_destroy(ctx);
        shmem_team_destroy(even);
    } else {
        CHECK(shmem_team_my_pe(even) == -1);
    }
    CHECK(shmem_team_split_2d(SHMEM_TEAM_WORLD, 2, NULL, 0, &x, NULL, 0, &y) == 0);
    CHECK(shmem_team_my_pe(x) == me % 2 && shmem_team_my_pe(y) == me / 2);
    shmem_team_destroy(x);
    shmem_team_destroy(y);
    shmem_barrier_all();
    /* The old form with an active set. */
    if (me % 2 == 0) {
        for (int i = 0; i < 8; i++) from[i] = me + i, to[i] = -1;
        shmem_barrier(0, 1, (n + 1) / 2, psync);
        shmem_int_sum_to_all(to, from, 2, 0, 1, (n + 1) / 2, work, psync);
        int k = (n + 1) / 2;
        CHECK(to[0] == k * (k - 1) && to[1] == k * (k - 1) + k);
        to[2] = -5;
        shmem_broadcast32(to + 2, from, 1, 0, 0, 1, k, psync);
        CHECK(to[2] == (me == 0 ? -5 : 0));
    }
    shmem_barrier_all();
}

/* The others access a PE that computes and makes no call. */
static void silent(long *at) {
    at[0] = 5, at[1] = 0;
    shmem_barrier_all();
    if (me == n - 1) {
        while (*(volatile long *)(at + 1) == 0) {}
    } else if (me == 0) {
        CHECK(shmem_long_atomic_fetch_add(at, 1, n - 1) == 5 && shmem_long_g(at, n - 1) == 6);
        shmem_long_p(at + 1, 1, n - 1);
        shmem_quiet();
    }
    shmem_barrier_all();
}

int main(void) {
    int level;
    CHECK(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &level) == 0 && level == SHMEM_THREAD_MULTIPLE);
    me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n, before = (me + n - 1) % n;
    static long double real;
    int *heap = shmem_calloc(64, sizeof(int)), *more = shmem_align(256, 64 * sizeof(int));
    long *longs = shmem_calloc(8, sizeof(long));
    CHECK(heap && more && longs && (uintptr_t)more % 256 == 0 && heap[63] == 0);
    long double *reals = shmem_malloc(sizeof *reals);
    int *there = shmem_ptr(heap, next);
    CHECK(there ? *there == 0 : shmem_team_n_pes(SHMEM_TEAM_SHARED) < n);
    CHECK(n == 1 || shmem_ptr(ints, next) == NULL);
    shmem_barrier_all();
    rma(heap, reals);
    rma(ints, &real);
    atomics(longs);
    atomics(words);
    longs[7] = 0;
    shmem_barrier_all();
    locks(longs + 7);
    locks(&lock);
    waits(longs);
    waits(words);
    if (n > 1) silent(longs), silent(words);
    collectives(heap, more, SHMEM_TEAM_WORLD);
    collectives(ints, more, SHMEM_TEAM_SHARED);
    teams(heap, more);
    int *grown = shmem_realloc(heap, 1000 * sizeof(int));
    CHECK(grown != NULL);
    shmem_free(grown);
    /* Freed memory can be allocated again as a whole. */
    shmem_free(more), shmem_free(longs), shmem_free(reals);
    void *large = shmem_malloc(60 << 20);
    CHECK(large != NULL && shmem_malloc((size_t)1 << 40) == NULL && shmem_malloc(0) == NULL);
    shmem_free(large);
    shmem_finalize();
    return 0;
}
