/* Messages of all kinds between the ranks of MPI_COMM_WORLD, for the trace: short and long, late and early, from any source, matched and cancelled. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

enum { LONG = 1 << 21, ROUNDS = 20 };

int main(int argc, char **argv)
{
    int rank, size, flag;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char *out = calloc(LONG, 1), *in = calloc(LONG, 1);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    MPI_Request requests[2], persistent;
    MPI_Message message;
    MPI_Status status;

    for (int i = 0; i < ROUNDS; i++) {
        int bytes = i % 2 ? LONG : 8;
        MPI_Irecv(in, LONG, MPI_CHAR, i % 3 ? before : MPI_ANY_SOURCE, i % 4 ? 7 : MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]);
        if (rank == 0) usleep(2000);  /* Its receiver waits: a late sender. */
        MPI_Isend(out, bytes, MPI_CHAR, next, 7, MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    for (int i = 0; i < ROUNDS; i++) {
        if (rank == 0) MPI_Send(out, 1 << i, MPI_CHAR, next, i % 3, MPI_COMM_WORLD);
        MPI_Recv(in, LONG, MPI_CHAR, before, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        if (rank != 0) MPI_Send(out, 1 << i, MPI_CHAR, next, status.MPI_TAG, MPI_COMM_WORLD);
    }
    MPI_Sendrecv(out, LONG, MPI_CHAR, next, 1, in, LONG, MPI_CHAR, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send_init(out, 100, MPI_CHAR, next, 2, MPI_COMM_WORLD, &persistent);
    for (int i = 0; i < 3; i++) {
        MPI_Start(&persistent);
        MPI_Mprobe(before, 2, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
        MPI_Mrecv(in, LONG, MPI_CHAR, &message, MPI_STATUS_IGNORE);
        MPI_Wait(&persistent, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&persistent);
    MPI_Irecv(in, LONG, MPI_CHAR, before, 99, MPI_COMM_WORLD, requests);
    MPI_Cancel(requests);
    MPI_Wait(requests, &status);
    MPI_Test_cancelled(&status, &flag);
    for (int i = 0; i < 5; i++) {
        MPI_Ialltoall(out, LONG / 64, MPI_CHAR, in, LONG / 64, MPI_CHAR, MPI_COMM_WORLD, requests);
        usleep(500);
        MPI_Wait(requests, MPI_STATUS_IGNORE);
    }
    MPI_Send(out, 8, MPI_CHAR, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    free(out), free(in);
    return flag ? 0 : 1;
}
