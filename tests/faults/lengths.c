/* lengths ROUNDS [DIVISOR]: MPI_Ialltoallv and MPI_Ineighbor_alltoallw, in turns, beside work, with blocks of very different
 * lengths, all of them divided by DIVISOR. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static const int lengths[] = {100, 0, 200000, 7, 600000, 100000};
enum { KINDS = sizeof lengths / sizeof *lengths };

static int length(int from, int to, int round, int divisor)
{
    return lengths[(from + 2 * to + round) % KINDS] / divisor;
}

static unsigned char item(int from, int to, int at, int round)
{
    return (unsigned char)(from * 31 + to * 17 + at * 7 + round);
}

int main(int argc, char **argv)
{
    int rank, size, wrong = 0, rounds = argc > 1 ? atoi(argv[1]) : 20, divisor = argc > 2 ? atoi(argv[2]) : 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* Every rank is every rank's neighbour. */
    int *ranks = malloc(size * sizeof *ranks);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    MPI_Comm graph;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, size, ranks, MPI_UNWEIGHTED, size, ranks, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);

    int most = 600000, *counts[2], *displs[2];
    unsigned char *buffers[2];
    MPI_Aint *bytes[2];
    MPI_Datatype *types = malloc(size * sizeof *types);
    for (int side = 0; side < 2; side++) {
        counts[side] = malloc(size * sizeof(int));
        displs[side] = malloc(size * sizeof(int));
        bytes[side] = malloc(size * sizeof(MPI_Aint));
        MPI_Alloc_mem((MPI_Aint)most * size, MPI_INFO_NULL, &buffers[side]);
    }
    volatile double work = 0;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < size; i++) {
            types[i] = MPI_BYTE;
            counts[0][i] = length(rank, i, round, divisor);
            counts[1][i] = length(i, rank, round, divisor);
            for (int side = 0; side < 2; side++)
                bytes[side][i] = displs[side][i] = i * most;
            for (int at = 0; at < counts[0][i]; at++)
                buffers[0][displs[0][i] + at] = item(rank, i, at, round);
            for (int at = 0; at < counts[1][i]; at++)
                buffers[1][displs[1][i] + at] = 0xee;
        }
        MPI_Request request;
        if (round % 2 == 0)
            MPI_Ialltoallv(buffers[0], counts[0], displs[0], MPI_BYTE, buffers[1], counts[1], displs[1], MPI_BYTE, MPI_COMM_WORLD, &request);
        else
            MPI_Ineighbor_alltoallw(buffers[0], counts[0], bytes[0], types, buffers[1], counts[1], bytes[1], types, graph, &request);
        for (int i = 0; i < 200000; i++)
            work += i;
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < size; i++)
            for (int at = 0; at < counts[1][i]; at++)
                wrong += buffers[1][displs[1][i] + at] != item(i, rank, at, round);
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d rounds, %d bytes wrong\n", rounds, wrong);
    MPI_Comm_free(&graph);
    MPI_Finalize();
    return wrong != 0;
}
