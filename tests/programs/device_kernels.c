/* Datatypes with many pieces in device memory: kernels pack and unpack them, as the host would; few pieces are copied.
   ranks: 1 2   ways: plain   env: OUTBOARD_DEVICE=sentinel OUTBOARD_DEVICE_SEED=5 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "counter.h"
#include <mpi-ext.h>

enum { N = 40 * 50 * 6 };

static unsigned long long kernels(void) { return counter("device_kernels", MPI_T_PVAR_CLASS_COUNTER); }

/* Sends `count` of a datatype around the ring and receives them with it. The bytes in between stay. */
static void around(MPI_Datatype type, int count, const char *name, int expected)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size, *host = grab(N * sizeof(int)), *in, *out;
    int *packed = grab(N * sizeof(int)), *wanted = grab(N * sizeof(int)), at = 0, bytes;
    unsigned long long begun = kernels();
    MPI_Type_commit(&type);
    MPIX_Device_alloc(N * sizeof(int), (void **)&out);
    MPIX_Device_alloc(N * sizeof(int), (void **)&in);
    fill(host, N, rank, 1);
    MPIX_Device_copy(out, host, N * sizeof(int));
    fill(host, N, 50, 2);
    MPIX_Device_copy(in, host, N * sizeof(int));
    MPI_Sendrecv(out, count, type, next, 1, in, count, type, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EQUAL((int)(kernels() - begun), expected, name);
    MPIX_Device_copy(host, in, N * sizeof(int));

    /* The same by the host. */
    int *theirs = grab(N * sizeof(int));
    fill(theirs, N, before, 1);
    fill(wanted, N, 50, 2);
    MPI_Pack(theirs, count, type, packed, N * sizeof(int), &at, MPI_COMM_WORLD);
    bytes = at, at = 0;
    MPI_Unpack(packed, bytes, &at, wanted, count, type, MPI_COMM_WORLD);
    CHECK(memcmp(host, wanted, N * sizeof(int)) == 0, "%s: other elements than the host's", name);
    MPIX_Device_free(in), MPIX_Device_free(out);
    free(host), free(packed), free(wanted), free(theirs);
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    int sizes[] = {40, 50, 6}, some[] = {17, 23, 3}, from[] = {3, 11, 2}, lengths[60], places[60];
    MPI_Datatype type, column;
    begin(&argc, &argv);
    MPI_Type_vector(1000, 3, 7, MPI_INT, &type);
    around(type, 1, "a vector", 2);
    MPI_Type_vector(20, 1, 9, MPI_SHORT, &column);
    MPI_Type_create_hvector(30, 1, 1202, column, &type);
    around(type, 1, "a vector of vectors", 2);
    MPI_Type_free(&column);
    MPI_Type_create_subarray(3, sizes, some, from, MPI_ORDER_C, MPI_INT, &type);
    around(type, 1, "a subarray", 2);
    for (int i = 0; i < 60; i++) lengths[i] = i * 7 % 13, places[i] = (59 - i) * 20 + i % 3;
    MPI_Type_indexed(60, lengths, places, MPI_BYTE, &type);
    around(type, 3, "an indexed type", 2);
    MPI_Type_vector(3, 5, 8, MPI_INT, &type);
    around(type, 1, "three pieces", 0);
    return end();
}
