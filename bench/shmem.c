/* SPDX-License-Identifier: BSD-3-Clause */
/* OpenSHMEM between two PEs, in microseconds an operation: the median of several runs of each row. It uses OpenSHMEM 1.4 only, so that
   every implementation can compile it:  oshcc -O2 -o shmem bench/shmem.c && oshrun -n 2 ./shmem
   argument: a factor for the number of operations */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RUNS 9
static long psync[SHMEM_REDUCE_SYNC_SIZE], collect_sync[SHMEM_COLLECT_SYNC_SIZE], broadcast_sync[SHMEM_BCAST_SYNC_SIZE];
static long lock;
static double work[4096];
static int me, n, peer;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e6 * time.tv_sec + 1e-3 * time.tv_nsec;
}

static int ascending(const void *one, const void *other) {
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

/* Runs `body` OPERATIONS times on PE 0, or on all PEs. */
#define ROW(name, operations, by_all, body) do { \
    double runs[RUNS]; \
    for (int run = 0; run < RUNS; run++) { \
        shmem_barrier_all(); \
        double begun = now(); \
        if (by_all || me == 0) { for (long i = 0; i < (operations); i++) { body; } shmem_quiet(); } \
        runs[run] = (now() - begun) / (operations); \
        shmem_barrier_all(); \
    } \
    qsort(runs, RUNS, sizeof *runs, ascending); \
    if (me == 0) printf("%-28s %12.4f\n", name, runs[RUNS / 2]); \
} while (0)

int main(int argc, char **argv) {
    double factor = argc > 1 ? atof(argv[1]) : 1;
    shmem_init();
    me = shmem_my_pe(), n = shmem_n_pes(), peer = (me + 1) % n;
    long *word = shmem_malloc(2 * sizeof *word);
    char *here = shmem_malloc(1 << 20), *there = shmem_malloc(1 << 20);
    double *from = shmem_malloc(4096 * sizeof *from), *to = shmem_malloc(4096 * sizeof *to);
    for (int i = 0; i < SHMEM_REDUCE_SYNC_SIZE; i++) psync[i] = SHMEM_SYNC_VALUE;
    for (int i = 0; i < SHMEM_COLLECT_SYNC_SIZE; i++) collect_sync[i] = SHMEM_SYNC_VALUE;
    for (int i = 0; i < SHMEM_BCAST_SYNC_SIZE; i++) broadcast_sync[i] = SHMEM_SYNC_VALUE;
    memset(here, 1, 1 << 20), memset(there, 2, 1 << 20);
    for (int i = 0; i < 4096; i++) from[i] = i, to[i] = 0;
    word[0] = word[1] = 0;
    long sum = 0, many = (long)(100000 * factor), some = (long)(10000 * factor), few = (long)(500 * factor);
    ROW("p, 8 B", many, 0, shmem_long_p(word, i, peer));
    ROW("g, 8 B", many, 0, sum += shmem_long_g(word, peer));
    ROW("put, 8 B", many, 0, shmem_putmem(there, here, 8, peer));
    ROW("put and quiet, 8 B", many, 0, shmem_putmem(there, here, 8, peer); shmem_quiet());
    ROW("put_nbi, 1 KiB", many, 0, shmem_putmem_nbi(there, here, 1024, peer));
    ROW("put, 64 KiB", some / 4, 0, shmem_putmem(there, here, 65536, peer));
    ROW("put, 1 MiB", few / 2, 0, shmem_putmem(there, here, 1 << 20, peer));
    ROW("get, 8 B", many, 0, shmem_getmem(here, there, 8, peer));
    ROW("get, 1 KiB", many, 0, shmem_getmem(here, there, 1024, peer));
    ROW("get, 64 KiB", some / 4, 0, shmem_getmem(here, there, 65536, peer));
    ROW("get, 1 MiB", few / 2, 0, shmem_getmem(here, there, 1 << 20, peer));
    ROW("iput, 64 of every other", some, 0, shmem_long_iput((long *)there, (long *)here, 2, 2, 64, peer));
    ROW("atomic_add", many, 0, shmem_long_atomic_add(word, 1, peer));
    ROW("atomic_fetch_add", many, 0, sum += shmem_long_atomic_fetch_add(word, 1, peer));
    ROW("atomic_compare_swap", many, 0, sum += shmem_long_atomic_compare_swap(word, i, i + 1, peer));
    ROW("atomic_fetch_add, all on PE 0", many, 1, sum += shmem_long_atomic_fetch_add(word, 1, 0));
    long *heap_lock = shmem_malloc(sizeof *heap_lock);
    *heap_lock = 0;
    ROW("lock and unlock, by one", some, 0, shmem_set_lock(heap_lock); shmem_clear_lock(heap_lock));
    ROW("the same, a static lock", some, 0, shmem_set_lock(&lock); shmem_clear_lock(&lock));
    long turn = 0;
    word[1] = 0;
    shmem_barrier_all();
    ROW("there and back by p", some, me < 2, (turn++, me == 0 ? (shmem_long_p(&word[1], turn, 1 % n), shmem_long_wait_until(&word[1], SHMEM_CMP_EQ, turn))
        : (shmem_long_wait_until(&word[1], SHMEM_CMP_EQ, turn), shmem_long_p(&word[1], turn, 0))));
    ROW("barrier_all", some, 1, shmem_barrier_all());
    ROW("sum_to_all, 1 double", some, 1, shmem_double_sum_to_all(to, from, 1, 0, 0, n, work, psync); shmem_barrier_all());
    ROW("sum_to_all, 4096 doubles", few, 1, shmem_double_sum_to_all(to, from, 4096, 0, 0, n, work, psync); shmem_barrier_all());
    ROW("broadcast64, 1024", some / 10, 1, shmem_broadcast64(to, from, 1024, 0, 0, 0, n, broadcast_sync); shmem_barrier_all());
    ROW("fcollect64, 256", some / 10, 1, shmem_fcollect64(to, from, 256, 0, 0, n, collect_sync); shmem_barrier_all());
    if (sum == 42) puts("");
    shmem_finalize();
    return 0;
}
