/* Threads of every rank lock, add, put and flush on windows of their own and on a shared one, all at once.
   ranks: 1 2 3 5   ways: plain no-cma */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <pthread.h>

enum { THREADS = 3, ROUNDS = 40 };
static MPI_Win shared, own[THREADS];
static long *sums, *private_sums[THREADS];

static void *work(void *argument)
{
    int me = *(int *)argument;
    long one = 1, old;
    for (int i = 0; i < ROUNDS; i++) {
        int target = (rank + i + me) % size;
        MPI_Win_lock(i % 4 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, target, 0, own[me]);
        MPI_Accumulate(&one, 1, MPI_LONG, target, 0, 1, MPI_LONG, MPI_SUM, own[me]);
        MPI_Win_flush(target, own[me]);
        MPI_Win_unlock(target, own[me]);
        MPI_Fetch_and_op(&one, &old, MPI_LONG, target, me, MPI_SUM, shared);
        MPI_Win_flush_all(shared);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided, numbers[THREADS];
    pthread_t threads[THREADS];
    long all, expected = (long)size * ROUNDS;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    EQUAL(provided, MPI_THREAD_MULTIPLE, "the thread level");
    expected = (long)size * ROUNDS;
    MPI_Win_allocate(THREADS * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &sums, &shared);
    memset(sums, 0, THREADS * sizeof(long));
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        private_sums[i] = calloc(1, sizeof(long));
        MPI_Win_create(private_sums[i], sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &own[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, shared);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, &numbers[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    MPI_Win_unlock_all(shared);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < THREADS; i++) {
        MPI_Allreduce(&sums[i], &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        EQUAL(all, expected, "what threads added to the shared window");
        MPI_Allreduce(private_sums[i], &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        EQUAL(all, expected, "what a thread added to its own window");
        MPI_Win_free(&own[i]);
        free(private_sums[i]);
    }
    MPI_Win_free(&shared);
    return end();
}
