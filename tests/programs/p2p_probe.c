/* Probe, iprobe, and their matched forms: the receive gets the message that they show. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

static const int counts[] = {0, 5, 2000, 200000};

static void recv_probed(int from, int count, int form)
{
    MPI_Status status;
    MPI_Message message = MPI_MESSAGE_NULL;
    int flag = 0, seen = -1;
    switch (form) {
    case 0: MPI_Probe(from, 4, MPI_COMM_WORLD, &status); break;
    case 1:
        while (!flag) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
        break;
    case 2: MPI_Mprobe(from, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status); break;
    default:
        while (!flag) MPI_Improbe(from, 4, MPI_COMM_WORLD, &flag, &message, &status);
    }
    MPI_Get_count(&status, MPI_INT, &seen);
    EQUAL(seen, count, "probed count");
    EQUAL(status.MPI_SOURCE, from, "probed source");
    EQUAL(status.MPI_TAG, 4, "probed tag");
    int *in = grab(count * sizeof(int));
    if (form < 2) {
        MPI_Recv(in, count, MPI_INT, from, 4, MPI_COMM_WORLD, &status);
    } else if (form == 2) {
        MPI_Mrecv(in, count, MPI_INT, &message, &status);
    } else {
        MPI_Request request;
        MPI_Imrecv(in, count, MPI_INT, &message, &request);
        MPI_Wait(&request, &status);
    }
    CHECK(message == MPI_MESSAGE_NULL, "a received message's handle is not null");
    FILLED(in, count, from, form);
    EQUAL(status.MPI_SOURCE, from, "source");
    free(in);
}

/* A message that mprobe has taken cannot be received by another receive. */
static void taken_is_taken(void)
{
    int x = 0, y = 0, flag = 1;
    if (rank == 1) {
        for (x = 10; x < 12; x++) MPI_Send(&x, 1, MPI_INT, 0, 6, MPI_COMM_WORLD);
    } else if (rank == 0) {
        MPI_Message first;
        MPI_Mprobe(1, 6, MPI_COMM_WORLD, &first, MPI_STATUS_IGNORE);
        MPI_Recv(&y, 1, MPI_INT, 1, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        EQUAL(y, 11, "the message after the taken one");
        MPI_Iprobe(MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        EQUAL(flag, 0, "flag with nothing left");
        MPI_Mrecv(&x, 1, MPI_INT, &first, MPI_STATUS_IGNORE);
        EQUAL(x, 10, "the taken message");
    }
}

static void nobody(void)
{
    MPI_Status status;
    MPI_Message message;
    int flag = 0;
    MPI_Probe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status);
    EQUAL(status.MPI_SOURCE, MPI_PROC_NULL, "source");
    EQUAL(status.MPI_TAG, MPI_ANY_TAG, "tag");
    MPI_Improbe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &flag, &message, &status);
    EQUAL(flag, 1, "flag");
    CHECK(message == MPI_MESSAGE_NO_PROC, "not MPI_MESSAGE_NO_PROC");
    MPI_Mrecv(NULL, 0, MPI_INT, &message, &status);
    EQUAL(status.MPI_SOURCE, MPI_PROC_NULL, "source");
    CHECK(message == MPI_MESSAGE_NULL, "not MPI_MESSAGE_NULL");
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int form = 0; form < 4; form++)
        for (int i = 0; i < 4; i++) {
            int *out = grab(counts[i] * sizeof(int));
            MPI_Request request;
            fill(out, counts[i], rank, form);
            MPI_Isend(out, counts[i], MPI_INT, to, 4, MPI_COMM_WORLD, &request);
            recv_probed(from, counts[i], form);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            free(out);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    if (size > 1) taken_is_taken();
    nobody();
    return end();
}
