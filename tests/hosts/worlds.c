/* Every rank spawns worlds of its own, one after the other, while the others do so, too. Argument: how many.
   Prints `all right`. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    MPI_Comm parent, children;
    int rank, rounds = atoi(argv[1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (parent != MPI_COMM_NULL) {
        MPI_Barrier(parent);
        MPI_Comm_disconnect(&parent);
        MPI_Finalize();
        return 0;
    }
    for (int round = 0; round < rounds; round++) {
        char *words[] = {"0", NULL}, **arguments[] = {words, words}, *commands[] = {argv[0], argv[0]};
        int counts[] = {1, 1 + round % 2};
        MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
        MPI_Comm_spawn_multiple(2, commands, arguments, counts, infos, 0, MPI_COMM_SELF, &children, MPI_ERRCODES_IGNORE);
        MPI_Barrier(children);
        MPI_Comm_disconnect(&children);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("all right\n");
    MPI_Finalize();
    return 0;
}
