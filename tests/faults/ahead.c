/* A broadcast of up to 512 KiB to another host is complete at its root before the others have come, in a job with proxies
 * (docs/internals/edges.md): the root overwrites its buffer, and says so by a message for which the others wait first. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    static int data[128 << 10], rank;
    int count = argc > 1 ? atoi(argv[1]) : 128 << 10, rounds = 20;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int round = 0; round < rounds; round++) {
        MPI_Request request;
        for (int i = 0; i < count; i++) data[i] = rank == 0 ? round + i : -1;
        if (rank == 0) {
            MPI_Ibcast(data, count, MPI_INT, 0, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            for (int i = 0; i < count; i++) data[i] = -2;
            MPI_Send(&round, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        } else {
            int said;
            MPI_Recv(&said, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Ibcast(data, count, MPI_INT, 0, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            for (int i = 0; i < count; i++)
                if (data[i] != round + i) {
                    printf("round %d: item %d is %d\n", round, i, data[i]);
                    MPI_Abort(MPI_COMM_WORLD, 1);
                }
        }
    }
    if (rank == 0) printf("%d rounds\n", rounds);
    MPI_Finalize();
}
