/* Senders on another host flood a rank that does not receive: what it keeps for each is bounded by the credit
   (eager_credit_bytes), and every message arrives in its order afterwards.
   ranks: 6   ways: nodes   env: OUTBOARD_EAGER_CREDIT_BYTES=64KiB */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <malloc.h>

enum { MESSAGES = 20000, LONG_MESSAGES = 400, LONG = 8000, PER_PEER_MAX = 128 << 10, TAG = 7, GO = 8, DONE = 9 };

/* The bytes of this process's heap that are in use. */
static long in_use(void)
{
    struct mallinfo2 heap = mallinfo2();
    return (long)(heap.uordblks + heap.hblkhd);
}

static void flood(void)
{
    static char text[LONG];
    MPI_Recv(NULL, 0, MPI_INT, 0, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < MESSAGES; i++) MPI_Send(&i, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD);
    for (int i = 0; i < LONG_MESSAGES; i++) {
        memset(text, i, LONG);
        MPI_Send(text, LONG, MPI_CHAR, 0, TAG, MPI_COMM_WORLD);
    }
}

/* Lets ranks send many messages, makes progress for a while without receiving, and returns how much the heap
   has grown. */
static long grow(int first, int last)
{
    long before = in_use();
    for (int from = first; from <= last; from += 2) MPI_Send(NULL, 0, MPI_INT, from, GO, MPI_COMM_WORLD);
    for (double until = MPI_Wtime() + 2; MPI_Wtime() < until;) {
        int flag;
        MPI_Iprobe(MPI_ANY_SOURCE, DONE, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    }
    return in_use() - before;
}

static void take(int from)
{
    static char got[LONG];
    for (int i = 0; i < MESSAGES; i++) {
        int number = -1;
        MPI_Recv(&number, 1, MPI_INT, from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EQUAL(number, i, "a flooding message");
    }
    for (int i = 0; i < LONG_MESSAGES; i++) {
        MPI_Recv(got, LONG, MPI_CHAR, from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(got[0] == (char)i && got[LONG - 1] == (char)i, "long message %d from %d holds %d", i, from, got[0]);
    }
}

/* Exchanges a message with ranks, and returns how much the heap has grown by it. */
static long meet(int first, int last)
{
    long before = in_use();
    for (int peer = first; peer <= last; peer += 2) {
        MPI_Send(NULL, 0, MPI_INT, peer, GO, MPI_COMM_WORLD);
        MPI_Recv(NULL, 0, MPI_INT, peer, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    return in_use() - before;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    checked++;
    /* Odd ranks are on the other host. The first makes rank 0 touch the memory that all senders share. */
    if (rank % 2) {
        MPI_Recv(NULL, 0, MPI_INT, 0, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(NULL, 0, MPI_INT, 0, GO, MPI_COMM_WORLD);
        flood();
    } else if (rank == 0) {
        long peers = size / 2 - 1;
        meet(1, 1);
        long met = meet(3, size - 1) / peers;
        CHECK(met <= PER_PEER_MAX, "a peer that was met cost %ld bytes", met);
        grow(1, 1);
        take(1);
        long flooded = grow(3, size - 1) / peers;
        CHECK(flooded <= PER_PEER_MAX, "a peer that floods cost %ld bytes", flooded);
        if (getenv("NET_FLOOD_TELL")) printf("a peer that was met cost %ld bytes, one that floods %ld\n", met, flooded);
        for (int from = 3; from < size; from += 2) take(from);
    }
    return end();
}
