/* Long messages one by one, several at a time, and in exchanges: of lengths on both sides of every limit of a
   protocol, and often enough that each protocol is tried before one is chosen. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

enum { ROUNDS = 12, WINDOW = 4, COUNT_MAX = 1 << 18 };

static int *from, *into, other;

static void alone(int count, int round)
{
    if (rank < other) MPI_Send(from, count, MPI_INT, other, 1, MPI_COMM_WORLD);
    MPI_Recv(into, count, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    FILLED(into, count, other, round);
    if (rank > other) MPI_Send(from, count, MPI_INT, other, 1, MPI_COMM_WORLD);
}

static void many(int count, int round)
{
    MPI_Request requests[WINDOW];
    for (int k = 0; k < WINDOW; k++)
        if (rank < other) MPI_Isend(from, count, MPI_INT, other, k, MPI_COMM_WORLD, &requests[k]);
        else MPI_Irecv(into + k * count, count, MPI_INT, other, k, MPI_COMM_WORLD, &requests[k]);
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    for (int k = 0; k < WINDOW && rank > other; k++) FILLED(into + k * count, count, other, round);
}

static void exchange(int count, int round)
{
    MPI_Sendrecv(from, count, MPI_INT, other, 1, into, count, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    FILLED(into, count, other, round);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    void (*const ways[])(int, int) = {alone, many, exchange};
    from = grab(COUNT_MAX * sizeof(int)), into = grab(WINDOW * COUNT_MAX * sizeof(int));
    other = rank ^ 1;
    CHECK(1, "a rank without another has nothing to send");
    for (int count = 3000; count <= COUNT_MAX && other < size; count = count * 7 / 3)
        for (int way = 0; way < 3; way++)
            for (int round = 0; round < ROUNDS; round++) {
                fill(from, count, rank, round);
                ways[way](count, round);
            }
    free(from), free(into);
    return end();
}
