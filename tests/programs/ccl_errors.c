/* A collective library that fails: the call says so, the comm's later calls, too; other ways and other comms go on.
   ranks: 2 3   ways: nccl nccl-late   env: TEST_NCCL_FAIL=2:6 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

enum { N = 4000 };

static void sums(MPI_Comm comm, int *data)
{
    for (int i = 0; i < N; i++) data[i] = rank + i;
    EQUAL(MPI_Allreduce(MPI_IN_PLACE, data, N, MPI_INT, MPI_SUM, comm), MPI_SUCCESS, "an allreduce");
    EQUAL(data[N - 1], size * (N - 1) + size * (size - 1) / 2, "the sum");
}

int main(int argc, char **argv)
{
    int *data = grab(N * sizeof(int)), length;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Comm other;
    MPI_Request request;
    begin(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    sums(MPI_COMM_WORLD, data);
    MPI_Iallreduce(MPI_IN_PLACE, data, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    int code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    EQUAL(error_class(code), MPI_ERR_PROC_ABORTED, "the failure");
    MPI_Error_string(code, text, &length);
    CHECK(strstr(text, "ncclAllReduce") || strstr(text, "an operation"), "the error says \"%s\"", text);
    CHECK(strstr(text, "remote process exited") && strstr(text, "said by tests/nccl.c"), "the error says \"%s\"", text);
    EQUAL(error_class(MPI_Bcast(data, N, MPI_INT, 0, MPI_COMM_WORLD)), MPI_ERR_PROC_ABORTED, "a later call");
    /* The barrier is too short for the library. */
    EQUAL(MPI_Barrier(MPI_COMM_WORLD), MPI_SUCCESS, "a barrier");
    sums(other, data);
    MPI_Comm_free(&other);
    free(data);
    return end();
}
