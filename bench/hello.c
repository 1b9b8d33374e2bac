/* The shortest MPI program: the time from before MPI_Init to after MPI_Finalize on rank 0. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static double clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * t.tv_sec + 1e-6 * t.tv_nsec;
}

int main(int argc, char **argv)
{
    int json = argc > 1 && strcmp(argv[1], "--json") == 0, rank, size;
    if (argc > 1 && !json) {
        printf("usage: %s [--json]      (under mpirun)\n", argv[0]);
        return strcmp(argv[1], "--help") != 0;
    }
    double began = clock_ms();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Finalize();
    double value = clock_ms() - began;
    if (rank == 0 && json)
        printf("{\"test\": \"hello\", \"ranks\": %d, \"bytes\": 0, \"unit\": \"ms\", \"value\": %.3f}\n", size, value);
    else if (rank == 0)
        printf("Hello from %d ranks: %.2f ms from MPI_Init to the end of MPI_Finalize\n", size, value);
    return 0;
}
