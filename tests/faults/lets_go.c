/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_Win_flush_local asks nothing of a target on another host: it computes, and calls MPI only once the origin has gone on.
   Both are on one machine.  argument: a file that the origin makes */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, word = 0, one = 1, fetched = -1;
    MPI_Win win;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win_create(&word, sizeof word, sizeof word, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Put(&one, 1, MPI_INT, 1, 0, 1, MPI_INT, win);
        MPI_Win_flush_local(1, win);
        /* The value that was put may change now. */
        one = 10;
        MPI_Accumulate(&one, 1, MPI_INT, 1, 0, 1, MPI_INT, MPI_SUM, win);
        MPI_Win_flush_local_all(win);
        one = 100;
        FILE *made = fopen(argv[1], "w");
        if (!made || fclose(made)) MPI_Abort(MPI_COMM_WORLD, 1);
        /* The value that is fetched has arrived. */
        MPI_Fetch_and_op(&one, &fetched, MPI_INT, 1, 0, MPI_SUM, win);
        MPI_Win_flush_local(1, win);
        if (fetched != 11) printf("%d was fetched\n", fetched);
    } else {
        while (access(argv[1], F_OK)) usleep(1000);
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) printf("the word is %d\n", word);
    MPI_Win_free(&win);
    MPI_Finalize();
    return 0;
}
