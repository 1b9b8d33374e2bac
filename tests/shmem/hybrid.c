/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI and OpenSHMEM in one process: statics, heap, put with signal, a reduction.  argument: what is initialised and finalised first */
#include <mpi.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "PE %d: %s:%d: %s\n", shmem_my_pe(), __FILE__, __LINE__, #what); MPI_Abort(MPI_COMM_WORLD, 1); } } while (0)

static long landed[64];
static uint64_t arrived;
long counter;

int main(int argc, char **argv) {
    const char *order = argc > 1 ? argv[1] : "mpi-mpi";
    int mpi_first = !strncmp(order, "mpi-", 4), mpi_last = !strcmp(order + strlen(order) - 5, "shmem");
    if (mpi_first) MPI_Init(&argc, &argv);
    shmem_init();
    if (!mpi_first) MPI_Init(&argc, &argv);
    int me = shmem_my_pe(), n = shmem_n_pes(), rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(rank == me && size == n);

    int next = (me + 1) % n;
    long *there = shmem_malloc(1000 * sizeof *there);
    CHECK(there && shmem_addr_accessible(there, next) && !shmem_addr_accessible(&me, next));
    for (int i = 0; i < 1000; i++) there[i] = -1;
    shmem_barrier_all();

    /* A signal shows that the bytes have arrived: in a static, then in the heap. */
    long mine[1000];
    for (int i = 0; i < 1000; i++) mine[i] = 1000 * me + i;
    shmem_put_signal(landed, mine, 64, &arrived, 1, SHMEM_SIGNAL_ADD, next);
    CHECK(shmem_signal_wait_until(&arrived, SHMEM_CMP_GE, 1) >= 1);
    int before = (me + n - 1) % n;
    for (int i = 0; i < 64; i++) CHECK(landed[i] == 1000 * before + i);
    shmem_long_put_signal(there, mine, 1000, &arrived, 7, SHMEM_SIGNAL_SET, next);
    shmem_signal_wait_until(&arrived, SHMEM_CMP_EQ, 7);
    for (int i = 0; i < 1000; i++) CHECK(there[i] == 1000 * before + i);
    shmem_barrier_all();

    /* Atomics on a static of PE 0: no addition is lost. */
    for (int i = 0; i < 100; i++) shmem_long_atomic_inc(&counter, 0);
    shmem_barrier_all();
    CHECK(shmem_atomic_fetch(&counter, 0) == 100L * n);

    /* MPI messages from and to the same memory, in between. */
    MPI_Sendrecv(mine, 10, MPI_LONG, next, 0, there, 10, MPI_LONG, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(there[9] == 1000 * before + 9);
    double *sum = shmem_malloc(2 * sizeof *sum);
    sum[0] = me + 1;
    CHECK(shmem_sum_reduce(SHMEM_TEAM_WORLD, sum + 1, sum, 1) == 0 && sum[1] == n * (n + 1) / 2.0);
    shmem_free(sum);
    shmem_free(there);
    if (!mpi_last) MPI_Finalize();
    shmem_finalize();
    if (mpi_last) MPI_Finalize();
    return 0;
}
