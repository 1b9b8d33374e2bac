/* The part of callbacks.f90 in C. Each function returns 0, or the line of what was wrong. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stddef.h>

#define CHECK(condition) do { if (!(condition)) return __LINE__; } while (0)

int c_uses_attribute(int comm, int keyval, long value) {
    MPI_Aint *found;
    int flag;
    CHECK(MPI_Comm_get_attr(MPI_Comm_f2c(comm), keyval, &found, &flag) == MPI_SUCCESS);
    CHECK(flag && *found == value);
    return 0;
}

int c_makes_keyval(int *keyval) {
    CHECK(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, keyval, NULL) == MPI_SUCCESS);
    return 0;
}

int c_sets_attribute(int comm, int keyval, void *address) {
    CHECK(MPI_Comm_set_attr(MPI_Comm_f2c(comm), keyval, address) == MPI_SUCCESS);
    return 0;
}

int c_reduces(int op, int comm) {
    int rank, size, largest;
    MPI_Comm_rank(MPI_Comm_f2c(comm), &rank);
    MPI_Comm_size(MPI_Comm_f2c(comm), &size);
    CHECK(MPI_Allreduce(&rank, &largest, 1, MPI_INTEGER, MPI_Op_f2c(op), MPI_Comm_f2c(comm)) == MPI_SUCCESS);
    CHECK(largest == size - 1);
    return 0;
}

static void add(void *in, void *inout, int *count, MPI_Datatype *type) {
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] += *type == MPI_INTEGER ? ((int *)in)[i] : 1000;
}

int c_makes_op(int *op) {
    MPI_Op made;
    CHECK(MPI_Op_create(add, 1, &made) == MPI_SUCCESS);
    *op = MPI_Op_c2f(made);
    return 0;
}

int c_uses_type(int datatype, int bytes, int comm) {
    int size, rank;
    double sent[5] = {1, 2, 3, 4, 5}, received[3] = {0};
    MPI_Datatype type = MPI_Type_f2c(datatype);
    MPI_Comm_rank(MPI_Comm_f2c(comm), &rank);
    CHECK(MPI_Type_size(type, &size) == MPI_SUCCESS && size == bytes);
    MPI_Sendrecv(sent, 1, type, rank, 0, received, 3, MPI_DOUBLE, rank, 0, MPI_Comm_f2c(comm), MPI_STATUS_IGNORE);
    CHECK(received[0] == 1 && received[1] == 3 && received[2] == 5);
    return 0;
}

int c_fails(int comm) {
    CHECK(MPI_Send(NULL, -1, MPI_INT, 0, 0, MPI_Comm_f2c(comm)) != MPI_SUCCESS);
    return 0;
}

int c_waits(int request, int count) {
    MPI_Status status;
    int elements;
    MPI_Request waited = MPI_Request_f2c(request);
    CHECK(MPI_Wait(&waited, &status) == MPI_SUCCESS);
    CHECK(MPI_Get_elements(&status, MPI_INT, &elements) == MPI_SUCCESS && elements == count);
    CHECK(status.MPI_SOURCE == 3);
    return 0;
}
