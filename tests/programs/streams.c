/* Operations enqueued on a device's stream, between copies of that stream: none of these calls waits, order is kept, and
   what is wrong is told. The streams' delays come from a seed.
   ranks: 1 2 3   ways: plain no-cma   env: OUTBOARD_DEVICE=sentinel OUTBOARD_DEVICE_SEED=7 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "hooks.h"
#include <mpi-ext.h>
#include <pthread.h>
#include <unistd.h>

enum { N = 3000 };

static void *stream;
static MPIX_Stream mpix;
static MPI_Comm comm;

static int *device(int count)
{
    void *at;
    MPIX_Device_alloc(count * sizeof(int), &at);
    return at;
}

static MPIX_Stream stream_of(void *handle)
{
    MPI_Info info;
    MPIX_Stream made;
    MPI_Info_create(&info);
    MPI_Info_set(info, "type", "sentinel");
    MPIX_Info_set_hex(info, "value", &handle, sizeof handle);
    EQUAL(MPIX_Stream_create(info, &made), MPI_SUCCESS, "the creation of a stream");
    MPI_Info_free(&info);
    return made;
}

/* In each round the stream copies host to device, sends around the ring, sums, and copies back to another
   host buffer. */
static void in_order(int rounds)
{
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    int *given = grab(rounds * N * sizeof(int)), *got = grab(rounds * N * sizeof(int)), *sums = grab(rounds * N * sizeof(int));
    int *out = device(N), *in = device(N), *sum = device(N);
    MPI_Status status[1];
    for (int round = 0; round < rounds; round++) {
        MPI_Request requests[2];
        MPI_Datatype pairs;
        fill(given + round * N, N, rank, round);
        MPIX_Device_stream_copy(out, given + round * N, N * sizeof(int), stream);
        /* The datatype is freed long before the stream comes to it. */
        MPI_Type_contiguous(2, MPI_INT, &pairs);
        MPI_Type_commit(&pairs);
        MPIX_Irecv_enqueue(in, N / 2, pairs, last, round, comm, &requests[0]);
        MPIX_Isend_enqueue(out, N, MPI_INT, next, round, comm, &requests[1]);
        MPI_Type_free(&pairs);
        if (round % 2) {
            MPIX_Waitall_enqueue(2, requests, MPI_STATUSES_IGNORE);
        } else {
            MPIX_Wait_enqueue(&requests[1], MPI_STATUS_IGNORE);
            MPIX_Wait_enqueue(&requests[0], status);
        }
        CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL, "requests remain");
        MPIX_Device_stream_copy(got + round * N, in, N * sizeof(int), stream);
        MPIX_Allreduce_enqueue(in, sum, N, MPI_INT, MPI_SUM, comm);
        MPIX_Device_stream_copy(sums + round * N, sum, N * sizeof(int), stream);
        MPIX_Bcast_enqueue(out, N, MPI_INT, 0, comm);
        if (rank > 0) MPIX_Send_enqueue(out, N, MPI_INT, 0, 77, comm);
        for (int who = 1; rank == 0 && who < size; who++)
            MPIX_Recv_enqueue(in, N, MPI_INT, who, 77, comm, MPI_STATUS_IGNORE);
        if (rank == 0 && size > 1) MPIX_Device_stream_copy(given + round * N, in, N * sizeof(int), stream);
    }
    /* A message of the host, beside the work of the stream. */
    int token = rank, other = -1;
    MPI_Sendrecv(&token, 1, MPI_INT, next, 5, &other, 1, MPI_INT, last, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EQUAL(other, last, "the token");
    MPIX_Device_stream_synchronize(stream);
    for (int round = 0; round < rounds; round++) {
        int wrong = 0;
        FILLED(got + round * N, N, last, round);
        for (int i = 0; i < N; i++) {
            unsigned expected = 0;
            for (int who = 0; who < size; who++) expected += value(who, i, round);
            wrong += sums[round * N + i] != (int)expected;
        }
        CHECK(wrong == 0, "%d sums of round %d are wrong", wrong, round);
        if (rank == 0) FILLED(given + round * N, N, 0, round);
    }
    int count;
    MPI_Get_count(status, MPI_INT, &count);
    EQUAL(count, N, "the elements of an enqueued receive");
    free(given), free(got), free(sums);
    MPIX_Device_free(out), MPIX_Device_free(in), MPIX_Device_free(sum);
}

/* A call returns although its stream cannot have come to it: no rank has sent yet. */
static void waits_for_nothing(void)
{
    int *in = device(1), host = -1, sent = 41 + rank;
    double begun = MPI_Wtime();
    for (int i = 0; i < 50; i++) MPIX_Recv_enqueue(in, 1, MPI_INT, rank, 9, comm, MPI_STATUS_IGNORE);
    MPIX_Device_stream_copy(&host, in, sizeof host, stream);
    EQUAL(*(volatile int *)&host, -1, "what the stream has not copied yet");
    for (int i = 0; i < 50; i++) MPI_Send(&sent, 1, MPI_INT, rank, 9, comm);
    MPIX_Device_stream_synchronize(stream);
    EQUAL(host, 41 + rank, "what the stream copied");
    CHECK(MPI_Wtime() - begun < 100, "it took %f s", MPI_Wtime() - begun);
    MPIX_Device_free(in);
}

/* Two streams, whose operations each rank enqueues in another order. */
static void several(void)
{
    void *other;
    MPI_Comm comms[2] = {comm, MPI_COMM_NULL}, both;
    MPIX_Stream second, found, list[2];
    int *data[2] = {device(N), device(N)}, *host = grab(N * sizeof(int));
    MPIX_Device_stream_create(&other);
    second = stream_of(other);
    MPIX_Stream_comm_create(MPI_COMM_WORLD, second, &comms[1]);
    MPIX_Comm_get_stream(comms[1], 0, &found);
    EQUAL(found, second, "the comm's stream");
    MPIX_Comm_get_stream(MPI_COMM_WORLD, 0, &found);
    EQUAL(found, MPIX_STREAM_NULL, "the stream of a comm without one");
    for (int i = 0; i < 2; i++) {
        int which = (i + rank) % 2;
        fill(host, N, rank, which);
        MPIX_Device_copy(data[which], host, N * sizeof(int));
        MPIX_Allreduce_enqueue(MPI_IN_PLACE, data[which], N, MPI_INT, MPI_MAX, comms[which]);
    }
    MPIX_Device_stream_synchronize(other);
    MPIX_Device_stream_synchronize(stream);
    for (int which = 0; which < 2; which++) {
        int expected = 0;
        MPIX_Device_copy(host, data[which], N * sizeof(int));
        for (int who = 0; who < size; who++) expected = value(who, 17, which) > expected ? value(who, 17, which) : expected;
        EQUAL(host[17], expected, "the greatest");
        MPIX_Device_free(data[which]);
    }
    list[0] = mpix, list[1] = second;
    MPIX_Stream_comm_create_multiplex(MPI_COMM_WORLD, 2, list, &both);
    MPIX_Comm_get_stream(both, 1, &found);
    EQUAL(found, second, "the second stream");
    MPI_Comm_set_errhandler(both, MPI_ERRORS_RETURN);
    EQUAL(error_class(MPIX_Bcast_enqueue(host, 1, MPI_INT, 0, both)), MPI_ERR_COMM, "an operation of two streams");
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    EQUAL(error_class(MPIX_Stream_free(&second)), MPI_ERR_OTHER, "the end of a stream that comms have");
    MPI_Comm_free(&both);
    MPI_Comm_free(&comms[1]);
    EQUAL(MPIX_Stream_free(&second), MPI_SUCCESS, "the end of a stream");
    EQUAL(second, MPIX_STREAM_NULL, "the stream");
    MPIX_Device_stream_free(other);
    free(host);
}

static void errors(void)
{
    int data = 0, length;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Request request;
    MPI_Info info;
    MPIX_Stream none, plain;
    MPI_Comm of_plain;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    /* The next call on the stream returns the error, and the stream goes on. */
    EQUAL(MPIX_Send_enqueue(&data, 1, MPI_INT, size + 3, 1, comm), MPI_SUCCESS, "an operation whose fault shows later");
    MPIX_Device_stream_synchronize(stream);
    int code = MPIX_Bcast_enqueue(&data, 1, MPI_INT, 0, comm);
    EQUAL(error_class(code), MPI_ERR_RANK, "the error of an operation before");
    MPI_Error_string(code, text, &length);
    CHECK(strstr(text, "enqueued before"), "the error says \"%s\"", text);
    EQUAL(MPIX_Bcast_enqueue(&data, 1, MPI_INT, 0, comm), MPI_SUCCESS, "the next call");
    MPIX_Device_stream_synchronize(stream);

    MPIX_Irecv_enqueue(&data, 1, MPI_INT, rank, 3, comm, &request);
    MPI_Request copy = request;
    EQUAL(error_class(MPI_Wait(&copy, MPI_STATUS_IGNORE)), MPI_ERR_REQUEST, "the host's wait for an enqueued request");
    MPI_Send(&data, 1, MPI_INT, rank, 3, comm);

    EQUAL(error_class(MPIX_Stream_create(MPI_INFO_NULL, &plain)), MPI_SUCCESS, "a stream of no device");
    MPIX_Stream_comm_create(MPI_COMM_SELF, plain, &of_plain);
    MPI_Comm_set_errhandler(of_plain, MPI_ERRORS_RETURN);
    EQUAL(error_class(MPIX_Bcast_enqueue(&data, 1, MPI_INT, 0, of_plain)), MPI_ERR_COMM, "a stream of no device");
    MPI_Comm_free(&of_plain);
    MPIX_Stream_free(&plain);
    MPI_Info_create(&info);
    MPI_Info_set(info, "type", "cudaStream_t");
    MPI_Info_set(info, "value", "0000000000000000");
    EQUAL(error_class(MPIX_Stream_create(info, &none)), MPI_ERR_ARG, "a stream of another device");
    MPI_Info_set(info, "value", "xyz");
    EQUAL(error_class(MPIX_Stream_create(info, &none)), MPI_ERR_INFO_VALUE, "a bad value");
    MPI_Info_free(&info);
    EQUAL(error_class(MPIX_Stream_progress(MPIX_STREAM_NULL)), MPI_SUCCESS, "progress");
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPIX_Device_stream_create(&stream);
    mpix = stream_of(stream);
    MPIX_Stream_comm_create(MPI_COMM_WORLD, mpix, &comm);
    in_order(6);
    waits_for_nothing();
    several();
    errors();
    MPI_Comm_free(&comm);
    MPIX_Stream_free(&mpix);
    MPIX_Device_stream_free(stream);
    return end();
}
