/* Partitioned communication: equal and different numbers of partitions on the two sides, partitions that
   arrive one by one, restarts, threads.
   ways: plain proxy no-cma nodes-proxy refused-proxy */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

static int to, from;

/* Sends a message in `sends` partitions and receives it in `receives`. Partitions are made ready in three ways, from the last to
   the first. */
static void ring(MPI_Comm comm, int sends, int receives, int elements)
{
    int *out = grab(elements * sizeof(int)), *in = grab(elements * sizeof(int));
    MPI_Request requests[2];
    MPI_Status statuses[2];
    EQUAL(MPI_Psend_init(out, sends, elements / sends, MPI_INT, to, 3, comm, MPI_INFO_NULL, &requests[0]), MPI_SUCCESS, "psend");
    MPI_Precv_init(in, receives, elements / receives, MPI_INT, from, 3, comm, MPI_INFO_NULL, &requests[1]);
    for (int round = 0; round < 4; round++) {
        int flag, count;
        fill(out, elements, rank, round);
        memset(in, -1, elements * sizeof(int));
        MPI_Parrived(requests[1], 0, &flag);
        EQUAL(!!flag, 1, "parrived of an inactive request");
        MPI_Startall(2, requests);
        if (round == 0) {
            for (int i = sends - 1; i >= 0; i--) MPI_Pready(i, requests[0]);
        } else if (round == 1) {
            if (sends > 1) MPI_Pready_range(sends / 2, sends - 1, requests[0]);
            MPI_Pready_range(0, sends > 1 ? sends / 2 - 1 : 0, requests[0]);
        } else {
            int *list = grab(sends * sizeof(int));
            for (int i = 0; i < sends; i++) list[i] = (i + round) % sends;
            MPI_Pready_list(sends, list, requests[0]);
            free(list);
        }
        for (int i = 0; i < receives && round != 3; i++) {
            do MPI_Parrived(requests[1], i, &flag);
            while (!flag);
            int each = elements / receives;
            for (int j = i * each; j < (i + 1) * each; j++)
                if (in[j] != value(from, j, round)) {
                    CHECK(0, "element %d of partition %d is %d, not %d", j, i, in[j], value(from, j, round));
                    break;
                }
        }
        EQUAL(MPI_Waitall(2, requests, statuses), MPI_SUCCESS, "waitall");
        CHECK(requests[0] != MPI_REQUEST_NULL && requests[1] != MPI_REQUEST_NULL, "the requests are gone");
        FILLED(in, elements, from, round);
        MPI_Get_count(&statuses[1], MPI_INT, &count);
        EQUAL(count, elements, "count");
        EQUAL(statuses[1].MPI_SOURCE, from, "source");
        EQUAL(statuses[1].MPI_TAG, 3, "tag");
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    free(out);
    free(in);
}

/* A partition has arrived before the next one is sent, and the next one has not. */
static void partial(void)
{
    enum { PARTS = 4, EACH = 20000 };
    static int out[PARTS * EACH], in[PARTS * EACH];
    MPI_Request send, recv;
    int flag;
    fill(out, PARTS * EACH, rank, 7);
    MPI_Psend_init(out, PARTS, EACH, MPI_INT, to, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &send);
    MPI_Precv_init(in, 2 * PARTS, EACH / 2, MPI_INT, from, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &recv);
    MPI_Start(&recv);
    MPI_Start(&send);
    for (int i = 0; i < PARTS; i++) {
        MPI_Pready(i, send);
        do MPI_Parrived(recv, 2 * i + 1, &flag);
        while (!flag);
        MPI_Parrived(recv, 2 * i, &flag);
        EQUAL(!!flag, 1, "the first half of a part whose second half is here");
        CHECK(in[i * EACH] == value(from, i * EACH, 7), "part %d is not here", i);
        /* The neighbour sends its next part only after this rank's part has arrived. */
        MPI_Barrier(MPI_COMM_WORLD);
        if (i + 1 < PARTS) {
            MPI_Parrived(recv, 2 * i + 2, &flag);
            CHECK(size == 1 ? !flag : 1, "part %d is here before it was sent", i + 1);
            MPI_Test(&recv, &flag, MPI_STATUS_IGNORE);
            EQUAL(flag && i + 2 < PARTS && size == 1, 0, "over");
        }
    }
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Wait(&recv, MPI_STATUS_IGNORE);
    FILLED(in, PARTS * EACH, from, 7);
    MPI_Request_free(&send);
    MPI_Request_free(&recv);
}

/* When MPI_Parrived has found all of many partitions, MPI_Test finds the message. */
static void complete(void)
{
    enum { PARTS = 150, EACH = 2000 };
    int *out = grab(PARTS * EACH * sizeof(int)), *in = grab(PARTS * EACH * sizeof(int)), flag;
    MPI_Request send, recv;
    MPI_Psend_init(out, PARTS, EACH, MPI_INT, to, 8, MPI_COMM_WORLD, MPI_INFO_NULL, &send);
    MPI_Precv_init(in, PARTS, EACH, MPI_INT, from, 8, MPI_COMM_WORLD, MPI_INFO_NULL, &recv);
    for (int round = 0; round < 2; round++) {
        fill(out, PARTS * EACH, rank, round);
        MPI_Start(&recv);
        MPI_Start(&send);
        MPI_Pready_range(0, PARTS - 1, send);
        for (int i = 0; i < PARTS; i++) do MPI_Parrived(recv, i, &flag); while (!flag);
        MPI_Test(&recv, &flag, MPI_STATUS_IGNORE);
        EQUAL(!!flag, 1, "a message of which all partitions have arrived");
        FILLED(in, PARTS * EACH, from, round);
        MPI_Wait(&recv, MPI_STATUS_IGNORE);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&send);
    MPI_Request_free(&recv);
    free(out);
    free(in);
}

/* The receiver waits for another operation, and its partitions must make progress all the same. */
static void elsewhere(void)
{
    enum { N = 400000 };
    int *out = grab(N * sizeof(int)), *in = grab(N * sizeof(int)), token = rank, got = -1;
    MPI_Request send, recv;
    fill(out, N, rank, 9);
    MPI_Psend_init(out, 2, N / 2, MPI_INT, to, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &send);
    MPI_Precv_init(in, 4, N / 4, MPI_INT, from, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &recv);
    MPI_Start(&recv);
    MPI_Start(&send);
    MPI_Pready_range(0, 1, send);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&token, 1, MPI_INT, to, 2, &got, 1, MPI_INT, from, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EQUAL(got, from, "token");
    MPI_Wait(&recv, MPI_STATUS_IGNORE);
    FILLED(in, N, from, 9);
    MPI_Request_free(&send);
    MPI_Request_free(&recv);
    free(out);
    free(in);
}

/* Requests match in the order in which they are made, not in which they are started. */
static void order(void)
{
    int out[2] = {value(rank, 0, 1), value(rank, 1, 1)}, in[2] = {-1, -1};
    MPI_Request send[2], recv[2];
    for (int i = 0; i < 2; i++) {
        MPI_Psend_init(&out[i], 1, 1, MPI_INT, to, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &send[i]);
        MPI_Precv_init(&in[i], 1, 1, MPI_INT, from, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &recv[i]);
    }
    for (int i = 1; i >= 0; i--) MPI_Start(&send[i]), MPI_Pready(0, send[i]);
    MPI_Startall(2, recv);
    MPI_Waitall(2, recv, MPI_STATUSES_IGNORE);
    MPI_Waitall(2, send, MPI_STATUSES_IGNORE);
    FILLED(in, 2, from, 1);
    for (int i = 0; i < 2; i++) MPI_Request_free(&send[i]), MPI_Request_free(&recv[i]);
}

static void errors(void)
{
    int x[4] = {0}, flag, two[2] = {1, 1};
    MPI_Request send, recv, other;
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
#define FAILS(call, class) EQUAL(error_class(call), class, #call)
    FAILS(MPI_Psend_init(x, 0, 1, MPI_INT, to, 0, comm, MPI_INFO_NULL, &send), MPI_ERR_ARG);
    FAILS(MPI_Psend_init(x, 1, -1, MPI_INT, to, 0, comm, MPI_INFO_NULL, &send), MPI_ERR_COUNT);
    FAILS(MPI_Precv_init(x, 1, 1, MPI_INT, MPI_ANY_SOURCE, 0, comm, MPI_INFO_NULL, &recv), MPI_ERR_RANK);
    FAILS(MPI_Precv_init(x, 1, 1, MPI_INT, from, MPI_ANY_TAG, comm, MPI_INFO_NULL, &recv), MPI_ERR_TAG);
    MPI_Psend_init(x, 2, 1, MPI_INT, MPI_PROC_NULL, 0, comm, MPI_INFO_NULL, &send);
    MPI_Precv_init(x, 2, 1, MPI_INT, MPI_PROC_NULL, 0, comm, MPI_INFO_NULL, &recv);
    FAILS(MPI_Pready(0, send), MPI_ERR_REQUEST);
    MPI_Start(&send);
    MPI_Start(&recv);
    FAILS(MPI_Pready(2, send), MPI_ERR_ARG);
    FAILS(MPI_Pready(-1, send), MPI_ERR_ARG);
    FAILS(MPI_Pready_range(1, 0, send), MPI_ERR_ARG);
    FAILS(MPI_Pready_range(0, 2, send), MPI_ERR_ARG);
    FAILS(MPI_Pready_list(2, two, send), MPI_ERR_ARG);
    FAILS(MPI_Pready(1, send), MPI_SUCCESS);
    FAILS(MPI_Pready(1, send), MPI_ERR_ARG);
    FAILS(MPI_Pready(0, recv), MPI_ERR_REQUEST);
    FAILS(MPI_Parrived(send, 0, &flag), MPI_ERR_REQUEST);
    FAILS(MPI_Parrived(recv, 2, &flag), MPI_ERR_ARG);
    FAILS(MPI_Parrived(recv, 1, &flag), MPI_SUCCESS);
    EQUAL(!!flag, 1, "arrived from nobody");
    MPI_Test(&send, &flag, MPI_STATUS_IGNORE);
    EQUAL(flag, 0, "a send of which a partition is not ready");
    MPI_Pready(0, send);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Wait(&recv, MPI_STATUS_IGNORE);
    MPI_Irecv(x, 1, MPI_INT, rank, 77, comm, &other);
    FAILS(MPI_Pready(0, other), MPI_ERR_REQUEST);
    FAILS(MPI_Parrived(other, 0, &flag), MPI_ERR_REQUEST);
    MPI_Cancel(&other);
    MPI_Wait(&other, MPI_STATUS_IGNORE);
    MPI_Request_free(&send);
    MPI_Request_free(&recv);
    /* The request can be neither freed nor cancelled while it is active. */
    MPI_Psend_init(x, 2, 1, MPI_INT, rank, 5, comm, MPI_INFO_NULL, &send);
    MPI_Precv_init(two, 1, 2, MPI_INT, rank, 5, comm, MPI_INFO_NULL, &recv);
    MPI_Start(&send), MPI_Start(&recv), MPI_Pready(0, send);
    FAILS(MPI_Request_free(&send), MPI_ERR_REQUEST);
    FAILS(MPI_Request_free(&recv), MPI_ERR_REQUEST);
    FAILS(MPI_Cancel(&send), MPI_ERR_REQUEST);
    FAILS(MPI_Cancel(&recv), MPI_ERR_REQUEST);
    MPI_Pready(1, send);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Wait(&recv, MPI_STATUS_IGNORE);
    MPI_Request_free(&send);
    MPI_Request_free(&recv);
    /* The receive is too short. */
    MPI_Psend_init(x, 4, 1, MPI_INT, to, 6, comm, MPI_INFO_NULL, &send);
    MPI_Precv_init(two, 1, 2, MPI_INT, from, 6, comm, MPI_INFO_NULL, &recv);
    MPI_Start(&send), MPI_Start(&recv), MPI_Pready_range(0, 3, send);
    FAILS(MPI_Wait(&recv, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Request_free(&send);
    MPI_Request_free(&recv);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    int counts[][3] = {{4, 8, 0}, {1, 1, 1}, {4, 4, 400}, {6, 4, 1200}, {1, 8, 80000}, {8, 1, 80000}, {3, 7, 210000}, {100, 10, 1000}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) ring(i % 2 ? comm : MPI_COMM_WORLD, counts[i][0], counts[i][1], counts[i][2]);
    partial();
    complete();
    elsewhere();
    order();
    MPI_Barrier(MPI_COMM_WORLD);
    errors();
    MPI_Comm_free(&comm);
    return end();
}
