/* A token goes round the ranks, which poll for it; rank 0 prints how many polls a hop took. With an argument, ranks 0 and 1
   then poll for a message that never comes. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>

enum { LAPS = 50 };

static int rank, size, token;
static MPI_Request request;

static int iprobe(void)
{
    int flag;
    MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    if (flag) MPI_Recv(&token, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return flag;
}
static int improbe(void)
{
    int flag;
    MPI_Message message;
    MPI_Improbe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE);
    if (flag) MPI_Mrecv(&token, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
    return flag;
}
static int test(void)
{
    int flag;
    if (request == MPI_REQUEST_NULL) MPI_Irecv(&token, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &request);
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    return flag;
}
static int get_status(void)
{
    int flag;
    if (request == MPI_REQUEST_NULL) MPI_Irecv(&token, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &request);
    MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
    if (flag) MPI_Wait(&request, MPI_STATUS_IGNORE);
    return flag;
}

int main(int argc, char **argv)
{
    int (*const ways[])(void) = {iprobe, improbe, test, get_status};
    const char *const names[] = {"MPI_Iprobe", "MPI_Improbe", "MPI_Test", "MPI_Request_get_status"};
    (void)argv;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    request = MPI_REQUEST_NULL;
    for (int way = 0; way < 4; way++) {
        long polls = 0, all = 0;
        MPI_Barrier(MPI_COMM_WORLD);
        for (int lap = 0; lap < LAPS; lap++) {
            if (rank == 0) MPI_Send(&token, 1, MPI_INT, 1 % size, 1, MPI_COMM_WORLD);
            while (!ways[way]()) polls++;
            if (rank != 0) MPI_Send(&token, 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD);
        }
        MPI_Reduce(&polls, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0) printf("%s: %ld polls a hop\n", names[way], all / size / LAPS / size);
    }
    fflush(stdout);
    if (argc > 1 && rank == 0)
        for (int flag = 0; !flag;) MPI_Iprobe(1, 5, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    if (argc > 1 && rank == 1) {
        MPI_Irecv(&token, 1, MPI_INT, 0, 6, MPI_COMM_WORLD, &request);
        for (int flag = 0; !flag;) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    }
    return MPI_Finalize();
}
