/* Collective and point-to-point traffic that reads every received byte: for valgrind. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    enum { COUNT = 50000 };
    int rank, size, odd = 0, *sent = malloc(COUNT * sizeof *sent), *received = malloc(COUNT * sizeof *received);
    char *shared;
    MPI_Request requests[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < COUNT; i++) sent[i] = 2 * (i + rank);
    MPI_Allreduce(sent, received, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) odd += received[i] % 2;
    MPI_Irecv(received, COUNT, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(sent, COUNT, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COUNT; i++) odd += received[i] % 2;
    MPI_Alloc_mem(100, MPI_INFO_NULL, &shared);
    shared[99] = 2;
    MPI_Bcast(shared + 99, 1, MPI_CHAR, 0, MPI_COMM_WORLD);
    odd += shared[99] % 2;
    MPI_Free_mem(shared);
    free(sent);
    free(received);
    MPI_Finalize();
    return odd != 0;
}
