/* Sendrecv, sendrecv_replace, messages to oneself, MPI_PROC_NULL, all pairs at once, the space that bsend
   takes, a 64 MiB message. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

static void exchange(void)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int count = 1; count < 400000; count *= 9) {
        int *out = grab(count * sizeof(int)), *in = grab(count * sizeof(int));
        MPI_Status status;
        fill(out, count, rank, 0);
        MPI_Sendrecv(out, count, MPI_INT, to, 1, in, count, MPI_INT, from, 1, MPI_COMM_WORLD, &status);
        EQUAL(status.MPI_SOURCE, from, "source");
        FILLED(in, count, from, 0);
        MPI_Sendrecv_replace(out, count, MPI_INT, to, 2, from, 2, MPI_COMM_WORLD, &status);
        EQUAL(status.MPI_TAG, 2, "tag");
        FILLED(out, count, from, 0);
        free(in);
        free(out);
    }
}

static void null_process(void)
{
    int x = 42, count;
    MPI_Status status;
    MPI_Request request;
    MPI_Send(&x, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD);
    MPI_Recv(&x, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status);
    EQUAL(status.MPI_SOURCE, MPI_PROC_NULL, "source");
    EQUAL(status.MPI_TAG, MPI_ANY_TAG, "tag");
    MPI_Get_count(&status, MPI_INT, &count);
    EQUAL(count, 0, "count");
    EQUAL(x, 42, "the buffer");
    MPI_Irecv(&x, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, &status);
    EQUAL(status.MPI_SOURCE, MPI_PROC_NULL, "source");
}

static void to_self(void)
{
    enum { COUNT = 100000 };
    int *out = grab(COUNT * sizeof(int)), *in = grab(COUNT * sizeof(int));
    MPI_Request request;
    MPI_Status status;
    for (int late = 0; late < 2; late++) {
        fill(out, COUNT, rank, late);
        if (late) {
            MPI_Isend(out, COUNT, MPI_INT, 0, 7, MPI_COMM_SELF, &request);
            MPI_Recv(in, COUNT, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &status);
        } else {
            MPI_Irecv(in, COUNT, MPI_INT, 0, 7, MPI_COMM_SELF, &request);
            MPI_Ssend(out, COUNT, MPI_INT, 0, 7, MPI_COMM_SELF);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        FILLED(in, COUNT, rank, late);
    }
    free(in);
    free(out);
}

static void all_pairs(void)
{
    enum { COUNT = 9000, TAGS = 4 };
    int total = size * TAGS;
    int *out = grab((size_t)total * COUNT * sizeof(int)), *in = grab((size_t)total * COUNT * sizeof(int));
    MPI_Request *requests = grab(2 * total * sizeof *requests);
    for (int i = 0; i < total; i++)
        MPI_Irecv(in + (size_t)i * COUNT, COUNT, MPI_INT, i % size, i / size, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < total; i++) {
        fill(out + (size_t)i * COUNT, COUNT, rank, i / size * 100 + i % size);
        MPI_Isend(out + (size_t)i * COUNT, COUNT, MPI_INT, i % size, i / size, MPI_COMM_WORLD,
                  &requests[total + i]);
    }
    MPI_Waitall(2 * total, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < total; i++) FILLED(in + (size_t)i * COUNT, COUNT, i % size, i / size * 100 + rank);
    free(requests);
    free(in);
    free(out);
}

/* The buffer takes as many messages as its size allows, and each delivery makes room again. */
static void buffered(void)
{
    enum { COUNT = 500, FIT = 10 };
    int need, to = (rank + 1) % size, from = (rank + size - 1) % size, data[COUNT];
    MPI_Pack_size(COUNT, MPI_INT, MPI_COMM_WORLD, &need);
    int space = FIT * (need + MPI_BSEND_OVERHEAD);
    void *buffer = grab(space);
    MPI_Buffer_attach(buffer, space);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < FIT; i++) {
            fill(data, COUNT, rank, i);
            MPI_Bsend(data, COUNT, MPI_INT, to, i, MPI_COMM_WORLD);
            memset(data, 255, sizeof data);
        }
        for (int i = FIT - 1; i >= 0; i--) {
            MPI_Recv(data, COUNT, MPI_INT, from, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            FILLED(data, COUNT, from, i);
        }
        /* Detaching waits until all of the buffer is delivered. */
        void *back;
        int bytes;
        MPI_Buffer_detach(&back, &bytes);
        EQUAL(bytes, space, "detached size");
        MPI_Buffer_attach(buffer, space);
    }
    MPI_Buffer_detach(&buffer, &space);
    free(buffer);
}

static void huge(void)
{
    if (size < 2 || rank > 1) return;
    int count = 16 << 20;
    int *data = grab((size_t)count * sizeof(int));
    if (rank == 0) {
        fill(data, count, 0, 1);
        MPI_Send(data, count, MPI_INT, 1, 0, MPI_COMM_WORLD);
    } else {
        MPI_Recv(data, count, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        FILLED(data, count, 0, 1);
    }
    free(data);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    exchange();
    null_process();
    to_self();
    all_pairs();
    buffered();
    huge();
    return end();
}
