/* Requests: wait and test for one, any, some and all; persistent ones; cancel; null and inactive ones. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

enum { N = 24 };

static int to, from;

static void post(MPI_Request *requests, int *in, int *out)
{
    for (int i = 0; i < N; i++) {
        in[i] = -1;
        MPI_Irecv(&in[i], 1, MPI_INT, from, i, MPI_COMM_WORLD, &requests[i]);
    }
    /* The requests are started backwards, so that completion is not in the order of the array. */
    for (int i = N - 1; i >= 0; i--) {
        out[i] = value(rank, i, 0);
        MPI_Isend(&out[i], 1, MPI_INT, to, i, MPI_COMM_WORLD, &requests[N + i]);
    }
}

static void check_received(const int *in)
{
    for (int i = 0; i < N; i++) EQUAL(in[i], value(from, i, 0), "received");
}

static int complete(int form, MPI_Request *requests, MPI_Status *statuses)
{
    int indices[2 * N], count = 0, index = 0, flag = 0;
    switch (form) {
    case 0:
        MPI_Waitany(2 * N, requests, &index, statuses);
        if (index == MPI_UNDEFINED) return 0;
        CHECK(requests[index] == MPI_REQUEST_NULL, "request %d is not null", index);
        if (index < N) EQUAL(statuses->MPI_TAG, index, "tag");
        return 1;
    case 1:
        while (!flag) MPI_Testany(2 * N, requests, &index, &flag, statuses);
        return index == MPI_UNDEFINED ? 0 : 1;
    case 2: MPI_Waitsome(2 * N, requests, &count, indices, statuses); break;
    case 3: MPI_Testsome(2 * N, requests, &count, indices, statuses); break;
    case 4:
        while (!flag) MPI_Testall(2 * N, requests, &flag, statuses);
        for (int i = 0; i < N; i++) EQUAL(statuses[i].MPI_TAG, i, "tag");
        return 2 * N;
    default: MPI_Waitall(2 * N, requests, MPI_STATUSES_IGNORE); return 2 * N;
    }
    if (count == MPI_UNDEFINED) return 0;
    for (int i = 0; i < count; i++) {
        CHECK(requests[indices[i]] == MPI_REQUEST_NULL, "request %d is not null", indices[i]);
        if (indices[i] < N) EQUAL(statuses[i].MPI_TAG, indices[i], "tag");
    }
    return count;
}

static void forms(void)
{
    for (int form = 0; form < 6; form++) {
        MPI_Request requests[2 * N];
        MPI_Status statuses[2 * N];
        int in[N], out[N], done = 0;
        post(requests, in, out);
        while (done < 2 * N) done += complete(form, requests, statuses);
        EQUAL(done, 2 * N, "completions");
        for (int i = 0; i < 2 * N; i++) CHECK(requests[i] == MPI_REQUEST_NULL, "request %d is not null", i);
        if (form < 3) EQUAL(complete(form, requests, statuses), 0, "completions of null requests");
        check_received(in);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* Messages that arrive in the order of their receives, some shorter than the buffer; MPI_ERROR stays
   unchanged (MPI 5.0, section 3.2.5). */
static void in_order(void)
{
    for (int round = 0; round < 50; round++) {
        MPI_Request requests[2 * N];
        MPI_Status statuses[2 * N];
        int in[N][2], out[N][2], count;
        for (int i = 0; i < N; i++) {
            in[i][0] = in[i][1] = -1;
            MPI_Irecv(in[i], 2, MPI_INT, from, i % 3, MPI_COMM_WORLD, &requests[i]);
        }
        for (int i = 0; i < N; i++) {
            out[i][0] = out[i][1] = value(rank, i, round);
            MPI_Isend(out[i], 1 + i % 2, MPI_INT, to, i % 3, MPI_COMM_WORLD, &requests[N + i]);
        }
        for (int i = 0; i < 2 * N; i++) statuses[i].MPI_ERROR = 77;
        MPI_Waitall(2 * N, requests, statuses);
        for (int i = 0; i < N; i++) {
            EQUAL(statuses[i].MPI_SOURCE, from, "source");
            EQUAL(statuses[i].MPI_TAG, i % 3, "tag");
            MPI_Get_count(&statuses[i], MPI_INT, &count);
            EQUAL(count, 1 + i % 2, "count");
            EQUAL(in[i][0], value(from, i, round), "first element");
            EQUAL(in[i][1], i % 2 ? value(from, i, round) : -1, "second element");
        }
        for (int i = 0; i < 2 * N; i++) {
            EQUAL(statuses[i].MPI_ERROR, 77, "MPI_ERROR");
            CHECK(requests[i] == MPI_REQUEST_NULL, "request %d is not null", i);
        }
    }
}

static void persistent(void)
{
    enum { ROUNDS = 5, COUNT = 30000 };
    int *out = grab(COUNT * sizeof(int)), *in = grab(COUNT * sizeof(int));
    /* The receiver may be several rounds behind. */
    int space = ROUNDS * (COUNT * sizeof(int) + MPI_BSEND_OVERHEAD);
    void *buffer = grab(space);
    MPI_Buffer_attach(buffer, space);
    for (int mode = 0; mode < 3; mode++) {
        MPI_Request requests[2];
        MPI_Status statuses[2];
        MPI_Recv_init(in, COUNT, MPI_INT, from, 2, MPI_COMM_WORLD, &requests[0]);
        if (mode == 0) MPI_Send_init(out, COUNT, MPI_INT, to, 2, MPI_COMM_WORLD, &requests[1]);
        if (mode == 1) MPI_Ssend_init(out, COUNT, MPI_INT, to, 2, MPI_COMM_WORLD, &requests[1]);
        if (mode == 2) MPI_Bsend_init(out, COUNT, MPI_INT, to, 2, MPI_COMM_WORLD, &requests[1]);
        for (int round = 0; round < ROUNDS; round++) {
            fill(out, COUNT, rank, round);
            /* A request that is not active completes at once with an empty status. */
            MPI_Wait(&requests[0], &statuses[0]);
            EQUAL(statuses[0].MPI_SOURCE, MPI_ANY_SOURCE, "source of an inactive request");
            if (round % 2) {
                MPI_Startall(2, requests);
            } else {
                MPI_Start(&requests[0]);
                MPI_Start(&requests[1]);
            }
            MPI_Waitall(2, requests, statuses);
            EQUAL(statuses[0].MPI_SOURCE, from, "source");
            FILLED(in, COUNT, from, round);
            CHECK(requests[0] != MPI_REQUEST_NULL, "a persistent request is gone");
        }
        MPI_Request_free(&requests[0]);
        MPI_Request_free(&requests[1]);
        CHECK(requests[0] == MPI_REQUEST_NULL, "a freed request is not null");
    }
    MPI_Buffer_detach(&buffer, &space);
    free(buffer);
    free(in);
    free(out);
}

/* A receive without a message can be cancelled; a receive that is matched cannot. */
static void cancel(void)
{
    int x = -1, flag = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&x, 1, MPI_INT, from, 99, MPI_COMM_WORLD, &request);
    MPI_Test(&request, &flag, &status);
    EQUAL(flag, 0, "flag of a receive without a send");
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    EQUAL(flag, 1, "cancelled");
    MPI_Barrier(MPI_COMM_WORLD);
    int y = rank;
    MPI_Sendrecv(&y, 1, MPI_INT, to, 99, &x, 1, MPI_INT, from, 99, MPI_COMM_WORLD, &status);
    EQUAL(x, from, "the message after the cancelled receive");
    MPI_Test_cancelled(&status, &flag);
    EQUAL(flag, 0, "cancelled");
}

static int test_once(MPI_Request *request, MPI_Status *status)
{
    int flag;
    return MPI_Test(request, &flag, status);
}

static int get_status_once(MPI_Request *request, MPI_Status *status)
{
    int flag;
    return MPI_Request_get_status(*request, &flag, status);
}

/* Get_status does not free the request; a freed send still arrives. */
static void look_and_leave(void)
{
    int x = -1, y = rank, flag = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&x, 1, MPI_INT, from, 1, MPI_COMM_WORLD, &request);
    MPI_Request sending;
    MPI_Isend(&y, 1, MPI_INT, to, 1, MPI_COMM_WORLD, &sending);
    MPI_Request_free(&sending);
    while (!flag) MPI_Request_get_status(request, &flag, &status);
    CHECK(request != MPI_REQUEST_NULL, "get_status took the request");
    EQUAL(status.MPI_SOURCE, from, "source");
    EQUAL(x, from, "received");
    MPI_Test(&request, &flag, &status);
    EQUAL(flag, 1, "flag");
    CHECK(request == MPI_REQUEST_NULL, "a completed request is not null");
    int (*calls[])(MPI_Request *, MPI_Status *) = {MPI_Wait, test_once, get_status_once};
    for (int i = 0; i < 3; i++) {
        status.MPI_ERROR = MPI_ERR_TAG;
        calls[i](&request, &status);
        EQUAL(status.MPI_TAG, MPI_ANY_TAG, "tag of a null request");
        EQUAL(status.MPI_ERROR, MPI_SUCCESS, "error of a null request");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    to = (rank + 1) % size;
    from = (rank + size - 1) % size;
    forms();
    in_order();
    persistent();
    cancel();
    look_and_leave();
    return end();
}
