/* With OUTBOARD_CHECK=1 the members of a collective compare what they pass: every rank gets an error that
   names the difference. Members that make a comm always compare what they have made before.
   ranks: 2 4   ways: plain proxy   env: OUTBOARD_CHECK=1 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

enum { LENGTH, ROOT, OPERATOR, OTHER_CALL, OTHER_SORT, CASES };

static int call(int which, MPI_Comm comm)
{
    int odd = rank == size - 1, x[64] = {0}, y[64];
    switch (which) {
    case LENGTH: return MPI_Allreduce(x, y, odd ? 7 : 5, MPI_INT, MPI_SUM, comm);
    case ROOT: return MPI_Bcast(x, 4, MPI_INT, odd ? 1 : 0, comm);
    case OPERATOR: return MPI_Allreduce(x, y, 5, MPI_INT, odd ? MPI_MAX : MPI_SUM, comm);
    case OTHER_SORT: {
        MPI_Request request;
        int code = odd ? MPI_Ibcast(x, 4, MPI_INT, 0, comm, &request) : MPI_Bcast(x, 4, MPI_INT, 0, comm);
        return odd && code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
    }
    default: return odd ? MPI_Barrier(comm) : MPI_Allgather(x, 1, MPI_INT, y, 1, MPI_INT, comm);
    }
}

/* One member has made one more comm of this comm than the others, so its next comm would differ from theirs.
   */
static void uneven(int which)
{
    MPI_Comm comm, inter, extra, made = MPI_COMM_NULL;
    int odd = rank == size - 1, code = MPI_SUCCESS;
    MPI_Comm_split(MPI_COMM_WORLD, odd, rank, &extra);
    MPI_Intercomm_create(extra, 0, MPI_COMM_WORLD, odd ? 0 : size - 1, 5, &inter);
    MPI_Comm_free(&extra);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    if (odd) MPI_Comm_dup(which == 2 ? inter : comm, &extra);
    if (which == 0) code = MPI_Comm_split(comm, 0, rank, &made);
    if (which == 1) code = MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &made);
    if (which == 2) code = MPI_Intercomm_merge(inter, odd, &made);
    CHECK(code != MPI_SUCCESS && made == MPI_COMM_NULL, "case %d: members made different comms together", which);
    if (odd) MPI_Comm_free(&extra);
    MPI_Comm_free(&comm), MPI_Comm_free(&inter);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int which = 0; which < CASES; which++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        int code = call(which, comm), length = 0;
        char text[MPI_MAX_ERROR_STRING] = "";
        if (code != MPI_SUCCESS) MPI_Error_string(code, text, &length);
        CHECK(code != MPI_SUCCESS, "case %d: no error", which);
        CHECK(length > 20, "case %d: the sentence is only '%s'", which, text);
        MPI_Comm_free(&comm);
    }
    for (int which = 0; which < 3; which++) uneven(which);
    return end();
}
