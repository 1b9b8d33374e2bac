/* What a program may free while a reduction goes on: the datatype, whose handle another one then gets, and
   the operator.
   ranks: 2 3 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

enum { COUNT = 300, MADE = 200 };
static long calls, wrong;

/* Adds pairs of ints that are 12 bytes apart, as its datatype argument must say. */
static void add(void *in, void *into, int *count, MPI_Datatype *datatype)
{
    MPI_Aint lb, extent;
    int bytes;
    calls++;
    MPI_Type_get_extent(*datatype, &lb, &extent);
    MPI_Type_size(*datatype, &bytes);
    wrong += lb != 0 || extent != 12 || bytes != 8;
    for (int i = 0; i < *count; i++)
        for (int j = 0; j < 2; j++) ((int *)into)[3 * i + j] += ((int *)in)[3 * i + j];
}

static MPI_Datatype pair(void)
{
    MPI_Datatype two, made;
    MPI_Type_contiguous(2, MPI_INT, &two);
    MPI_Type_create_resized(two, 0, 12, &made);
    MPI_Type_commit(&made);
    MPI_Type_free(&two);
    return made;
}

static void reduce(int persistent)
{
    int in[3 * COUNT], out[3 * COUNT];
    MPI_Datatype freed = pair(), others[MADE];
    MPI_Request request;
    MPI_Op op;
    fill(in, 3 * COUNT, rank, persistent);
    for (int i = 0; i < 3 * COUNT; i++) in[i] %= 1000, out[i] = -1;
    MPI_Op_create(add, 1, &op);
    if (persistent)
        MPI_Allreduce_init(in, out, COUNT, freed, op, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    else
        MPI_Iallreduce(in, out, COUNT, freed, op, MPI_COMM_WORLD, &request);
    MPI_Type_free(&freed);
    MPI_Op_free(&op);
    /* Repeated until the handles are given out again. */
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < MADE; i++) MPI_Type_contiguous(5, MPI_CHAR, &others[i]), MPI_Type_commit(&others[i]);
        if (round < 39)
            for (int i = 0; i < MADE; i++) MPI_Type_free(&others[i]);
    }
    if (persistent) MPI_Start(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (persistent) MPI_Request_free(&request);
    for (int i = 0; i < 3 * COUNT; i++) {
        int sum = 0;
        for (int r = 0; r < size; r++) sum += value(r, i, persistent) % 1000;
        EQUAL(out[i], i % 3 == 2 ? -1 : sum, "an element");
    }
    for (int i = 0; i < MADE; i++) MPI_Type_free(&others[i]);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    reduce(0);
    reduce(1);
    MPI_Allreduce(MPI_IN_PLACE, &calls, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    CHECK(calls > 0, "the operator was never called");
    EQUAL(wrong, 0, "calls with another datatype");
    return end();
}
