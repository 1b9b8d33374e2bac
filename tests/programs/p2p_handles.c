/* Handles that get another meaning: a datatype or a comm is freed, and others are made until one has its
   handle. Data that the library keeps for the old object must not be used for the new one. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

/* A handle is given out again after at most this many others. */
enum { LONGEST = 40, TAG = 3, MANY = 100 };
static char out[LONGEST], in[LONGEST];

/* Sends `count` of a datatype around the ring of a comm, twice, and checks how much arrives. */
static void around(int count, MPI_Datatype datatype, MPI_Comm comm, int bytes, const char *what)
{
    int place, places;
    MPI_Comm_rank(comm, &place);
    MPI_Comm_size(comm, &places);
    for (int turn = 0; turn < 2; turn++) {
        MPI_Request request;
        MPI_Status status;
        int came = -1;
        memset(in, -1, sizeof in);
        MPI_Irecv(in, count, datatype, (place + places - 1) % places, TAG, comm, &request);
        MPI_Send(out, count, datatype, (place + 1) % places, TAG, comm);
        MPI_Wait(&request, &status);
        MPI_Get_count(&status, MPI_BYTE, &came);
        EQUAL(came, bytes, what);
        for (int at = 0; at < LONGEST; at++) EQUAL(in[at], at < bytes ? at : -1, what);
    }
}

/* The handle now belongs to a datatype of another length. */
static void datatypes(void)
{
    MPI_Datatype before = MPI_DATATYPE_NULL, type;
    for (int bytes = 1; bytes <= 4; bytes++) {
        for (int made = 0;; made++) {
            MPI_Type_contiguous(bytes, MPI_BYTE, &type);
            if (before == MPI_DATATYPE_NULL || type == before || made == MANY) break;
            MPI_Type_free(&type);
        }
        CHECK(bytes == 1 || type == before, "the handle was not used again: the test tells nothing");
        MPI_Type_commit(&type);
        around(1, type, MPI_COMM_WORLD, bytes, "bytes of a datatype");
        before = type;
        MPI_Type_free(&type);
    }
}

/* The handle now belongs to a comm with the ranks in the opposite order: the same rank is another process. */
static void comms(void)
{
    MPI_Comm before = MPI_COMM_NULL, comm;
    for (int turn = 0; turn < 4; turn++) {
        for (int made = 0;; made++) {
            MPI_Comm_split(MPI_COMM_WORLD, 0, turn % 2 ? -rank : rank, &comm);
            if (before == MPI_COMM_NULL || comm == before || made == MANY) break;
            MPI_Comm_free(&comm);
        }
        CHECK(turn == 0 || comm == before, "the handle was not used again: the test tells nothing");
        around(8, MPI_BYTE, comm, 8, "bytes over a comm");
        before = comm;
        MPI_Comm_free(&comm);
    }
}

/* Arguments that were right once are wrong after a free, or with another rank or count. */
static void wrong(void)
{
    MPI_Comm comm, freed;
    MPI_Datatype type, gone;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Type_contiguous(4, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    freed = comm, gone = type;
    around(2, type, comm, 8, "bytes before");
    int class, next = (rank + 1) % size;
    MPI_Error_class(MPI_Send(out, -2, type, next, TAG, MPI_COMM_WORLD), &class);
    EQUAL(class, MPI_ERR_COUNT, "class of a negative count");
    MPI_Error_class(MPI_Send(NULL, 2, type, next, TAG, MPI_COMM_WORLD), &class);
    EQUAL(class, MPI_ERR_BUFFER, "class of a null buffer");
    MPI_Error_class(MPI_Send(out, 2, type, next + 8 * size, TAG, MPI_COMM_WORLD), &class);
    EQUAL(class, MPI_ERR_RANK, "class of a rank that is not there");
    MPI_Type_free(&type);
    MPI_Error_class(MPI_Send(out, 2, gone, next, TAG, MPI_COMM_WORLD), &class);
    EQUAL(class, MPI_ERR_TYPE, "class of a freed datatype");
    MPI_Comm_free(&comm);
    MPI_Error_class(MPI_Send(out, 2, MPI_INT, next, TAG, freed), &class);
    EQUAL(class, MPI_ERR_COMM, "class of a freed comm");
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int at = 0; at < LONGEST; at++) out[at] = at;
    datatypes();
    comms();
    wrong();
    return end();
}
