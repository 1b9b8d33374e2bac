/* MPIX_Request_attach: `start` before each start of a persistent request, `end` once when each operation is over, `release` once
   when nothing uses the copy any more; several for one request; and what has no operation is refused.
   ranks: 1 3   ways: plain proxy */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <mpi-ext.h>

struct calls {
    int starts, ends, releases;
    int *result, seen;
};

static void start(void *state) { ((struct calls *)state)->starts++; }
static void end_of(void *state)
{
    struct calls *calls = state;
    calls->ends++;
    calls->seen = *calls->result;
}
static void release(void *state) { ((struct calls *)state)->releases++; }

static void are(struct calls *calls, int starts, int ends, int releases)
{
    EQUAL(calls->starts, starts, "start was called so often, which");
    EQUAL(calls->ends, ends, "end was called so often, which");
    EQUAL(calls->releases, releases, "release was called so often, which");
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int one = 1, sum = 0;
    struct calls first = {.result = &sum}, second = {.result = &sum};
    MPI_Request request;

    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPIX_Request_attach(request, start, end_of, release, &first);
    MPIX_Request_attach(request, NULL, end_of, release, &second);
    are(&first, 0, 0, 0);
    int flag = 0;
    while (!flag) MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
    are(&first, 0, 1, 1);
    EQUAL(first.seen, size, "the sum as end saw it");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    are(&first, 0, 1, 1);
    are(&second, 0, 1, 1);

    struct calls third = {.result = &sum};
    MPI_Allreduce_init(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    MPIX_Request_attach(request, start, end_of, release, &third);
    for (int round = 1; round <= 3; round++) {
        sum = 0;
        MPI_Start(&request);
        EQUAL(third.starts, round, "starts");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        are(&third, round, round, 0);
        EQUAL(third.seen, size, "the sum as end saw it");
    }
    MPI_Request_free(&request);
    are(&third, 3, 3, 1);

    struct calls none = {.result = &sum};
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int class = 0;
    MPI_Error_class(MPIX_Request_attach(MPI_REQUEST_NULL, start, end_of, release, &none), &class);
    EQUAL(class, MPI_ERR_REQUEST, "the class for MPI_REQUEST_NULL");
    are(&none, 0, 0, 0);
    return end();
}
