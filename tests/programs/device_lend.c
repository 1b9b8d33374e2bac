/* Long messages from device memory on one host: the receiver copies them out of the sender's device memory, at once to where
   they belong. To device and host memory, with gaps, shorter than the buffer, after memory was freed and made again. Where
   the sender's memory cannot be opened they come all the same. Memory that a send still needs cannot be freed.
   ranks: 2 3   env: OUTBOARD_DEVICE=sentinel */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "counter.h"
#include "on_device.h"

enum { N = 300001 };

static unsigned long long counted(void) { return counter("device_bytes", MPI_T_PVAR_CLASS_AGGREGATE); }

static int next, before, opens;

/* Each rank of a ring sends `count` elements from device memory, and receives into `in`. */
static void around(int count, int round, void *in, int in_count, MPI_Datatype type, unsigned long long expected)
{
    int *out = filled(count, rank, round), got;
    unsigned long long at = counted();
    MPI_Status status;
    MPI_Sendrecv(out, count, MPI_INT, next, round, in, in_count, type, before, round, MPI_COMM_WORLD, &status);
    MPI_Get_elements(&status, type, &got);
    EQUAL(got, count, "elements received");
    CHECK(counted() - at == (opens ? expected : 0), "round %d: %llu bytes came from a device", round, counted() - at);
    MPIX_Device_free(out);
}

static void gaps(int *in, int round)
{
    int *host = grab(2 * N * sizeof(int)), wrong = 0;
    MPI_Datatype every_second;
    MPI_Type_vector(N, 1, 2, MPI_INT, &every_second);
    MPI_Type_commit(&every_second);
    memset(host, 0, 2 * N * sizeof(int));
    MPIX_Device_copy(in, host, 2 * N * sizeof(int));
    around(N, round, in, 1, every_second, N * sizeof(int));
    MPIX_Device_copy(host, in, 2 * N * sizeof(int));
    for (int i = 0; i < 2 * N; i++) wrong += host[i] != (i % 2 ? 0 : value(before, i / 2, round));
    CHECK(wrong == 0, "%d of %d elements in a buffer with gaps are wrong", wrong, 2 * N);
    MPI_Type_free(&every_second);
    free(host);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    const char *cma = getenv("OUTBOARD_CMA");
    opens = !cma || strcmp(cma, "off") != 0;
    next = (rank + 1) % size, before = (rank + size - 1) % size;
    /* Memory is freed and made between the rounds. */
    for (int round = 1; round < 4; round++) {
        int *in = filled(N, 99, 0);
        around(N, round, in, N, MPI_INT, N * sizeof(int));
        HOLDS(in, N, before, round);
        MPIX_Device_free(in);
    }
    int *in = filled(2 * N, 98, 0), *host = grab(2 * N * sizeof(int));
    around(N, 4, in, 2 * N, MPI_INT, N * sizeof(int));
    HOLDS(in, N, before, 4);
    int *rest = grab(2 * N * sizeof(int)), *whole = grab(2 * N * sizeof(int));
    fill(whole, 2 * N, 98, 0);
    MPIX_Device_copy(rest, in, 2 * N * sizeof(int));
    CHECK(memcmp(rest + N, whole + N, N * sizeof(int)) == 0, "a receive wrote behind its message");
    around(N, 5, host, N, MPI_INT, N * sizeof(int));
    FILLED(host, N, before, 5);
    gaps(in, 6);
    gaps(host, 7);

    /* A short message is eager. */
    around(10, 8, in, N, MPI_INT, 0);
    HOLDS(in, 10, before, 8);

    /* The message is under way for a while, and a matched probe from any source takes it. */
    int *out = filled(N, rank, 9);
    MPI_Request request;
    MPI_Message message;
    MPI_Issend(out, N, MPI_INT, next, 9, MPI_COMM_WORLD, &request);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    EQUAL(error_class(MPIX_Device_free(out)), MPI_ERR_BUFFER, "freeing what a send needs");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Mprobe(MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(in, N, MPI_INT, &message, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    HOLDS(in, N, before, 9);
    EQUAL(MPIX_Device_free(out), MPI_SUCCESS, "freeing it then");

    /* The message is too long for the buffer: there is an error, and the memory behind the buffer stays. */
    fill(whole, 2 * N, 97, 0);
    MPIX_Device_copy(in, whole, 2 * N * sizeof(int));
    out = filled(N, rank, 10);
    MPI_Isend(out, N, MPI_INT, next, 10, MPI_COMM_WORLD, &request);
    int code = MPI_Recv(in, N - 1000, MPI_INT, before, 10, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    EQUAL(error_class(code), MPI_ERR_TRUNCATE, "a message that is too long");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPIX_Device_copy(rest, in, 2 * N * sizeof(int));
    CHECK(memcmp(rest + N - 1000, whole + N - 1000, 1000 * sizeof(int)) == 0, "a receive wrote behind its buffer");
    MPIX_Device_free(out), MPIX_Device_free(in);
    free(host), free(rest), free(whole);
    return end();
}
