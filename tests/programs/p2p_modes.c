/* Every mode of sending, blocking and nonblocking, from empty to 8 MiB, between all pairs at once. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

static const int counts[] = {0, 1, 9, 10, 11, 100, 1000, 4096, 8191, 20000, 70001, 300000, 2097152};
enum { STANDARD, SYNCHRONOUS, READY, BUFFERED, MODES };

static void isend(int mode, const int *data, int count, int to, int tag, MPI_Request *request)
{
    switch (mode) {
    case STANDARD: MPI_Isend(data, count, MPI_INT, to, tag, MPI_COMM_WORLD, request); break;
    case SYNCHRONOUS: MPI_Issend(data, count, MPI_INT, to, tag, MPI_COMM_WORLD, request); break;
    case READY: MPI_Irsend(data, count, MPI_INT, to, tag, MPI_COMM_WORLD, request); break;
    default: MPI_Ibsend(data, count, MPI_INT, to, tag, MPI_COMM_WORLD, request);
    }
}

static void send(int mode, const int *data, int count, int to, int tag)
{
    switch (mode) {
    case STANDARD: MPI_Send(data, count, MPI_INT, to, tag, MPI_COMM_WORLD); break;
    case SYNCHRONOUS: MPI_Ssend(data, count, MPI_INT, to, tag, MPI_COMM_WORLD); break;
    case READY: MPI_Rsend(data, count, MPI_INT, to, tag, MPI_COMM_WORLD); break;
    default: MPI_Bsend(data, count, MPI_INT, to, tag, MPI_COMM_WORLD);
    }
}

/* The receive is posted before the send starts, which ready mode needs (MPI 5.0, section 3.4). */
static void shift(int mode, int blocking, int count)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    int *out = grab(count * sizeof(int)), *in = grab((count + 1) * sizeof(int));
    MPI_Request requests[2];
    MPI_Status status;
    fill(out, count, rank, mode);
    in[count] = -7;
    MPI_Irecv(in, count, MPI_INT, from, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Barrier(MPI_COMM_WORLD);
    if (blocking) {
        send(mode, out, count, to, 3);
        requests[1] = MPI_REQUEST_NULL;
    } else {
        isend(mode, out, count, to, 3, &requests[1]);
    }
    MPI_Wait(&requests[0], &status);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    int seen = -1;
    MPI_Get_count(&status, MPI_INT, &seen);
    EQUAL(seen, count, "count");
    EQUAL(status.MPI_SOURCE, from, "source");
    EQUAL(status.MPI_TAG, 3, "tag");
    EQUAL(in[count], -7, "the element after the message");
    FILLED(in, count, from, mode);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int space = 2097152 * sizeof(int) + 2 * MPI_BSEND_OVERHEAD;
    void *buffer = grab(space);
    MPI_Buffer_attach(buffer, space);
    for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int mode = 0; mode < MODES; mode++)
            for (int blocking = 0; blocking < 2; blocking++) shift(mode, blocking, counts[i]);
    void *back;
    int bytes;
    MPI_Buffer_detach(&back, &bytes);
    CHECK(back == buffer, "detached %p, attached %p", back, buffer);
    EQUAL(bytes, space, "detached size");
    free(buffer);
    return end();
}
