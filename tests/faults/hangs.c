/* Ranks that wait for ever, each in another way; rank 4 computes. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    static char big[200000];
    int rank, number = 0;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    switch (rank) {
    case 0:
        MPI_Irecv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &request);
        MPI_Recv(big, 100, MPI_BYTE, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
    case 1:
        MPI_Send(&rank, 1, MPI_INT, 0, 9, MPI_COMM_WORLD);
        MPI_Send(big, sizeof big, MPI_BYTE, 0, 6, MPI_COMM_WORLD);
        break;
    case 2:
        MPI_Barrier(MPI_COMM_WORLD);
        break;
    case 3:
        MPI_Probe(2, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        break;
    default:
        printf("rank %d computes\n", rank);
        fflush(stdout);
        for (volatile unsigned long turn = 0;; turn++) {
        }
    }
    MPI_Finalize();
    return 0;
}
