/* Ten all-to-alls beside a pause; then the job ends in the way that the argument names. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void compute(double seconds)
{
    for (double begun = MPI_Wtime(); MPI_Wtime() - begun < seconds;) continue;
}

int main(int argc, char **argv)
{
    enum { BYTES = 1 << 18 };
    const char *end = argc > 1 ? argv[1] : "finalize";
    char *send, *recv;
    int rank, size, number = 0;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Alloc_mem((MPI_Aint)BYTES * size, MPI_INFO_NULL, &send);
    MPI_Alloc_mem((MPI_Aint)BYTES * size, MPI_INFO_NULL, &recv);
    memset(send, rank, (size_t)BYTES * size);
    usleep(200000);  /* The proxy starts meanwhile. */
    for (int i = 0; i < 10; i++) {
        MPI_Ialltoall(send, BYTES, MPI_CHAR, recv, BYTES, MPI_CHAR, MPI_COMM_WORLD, &request);
        usleep(2000);  /* The proxy has a core meanwhile. */
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Allreduce(MPI_IN_PLACE, &number, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) puts("ready"), fflush(stdout);
    if (!strcmp(end, "abort") && rank == size - 1) MPI_Abort(MPI_COMM_WORLD, 5);
    if (!strcmp(end, "error") && rank == size - 1) MPI_Send(&number, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
    if (!strcmp(end, "kill") && rank == size - 1) raise(SIGKILL);
    if (!strcmp(end, "hang")) MPI_Recv(&number, 1, MPI_INT, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!strcmp(end, "compute") || !strcmp(end, "kill")) compute(100);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Free_mem(send);
    MPI_Free_mem(recv);
    MPI_Finalize();
    return 0;
}
