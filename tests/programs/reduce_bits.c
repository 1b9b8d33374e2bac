/* A sum of doubles has the same bits in all calls, forms and carriers: those of additions from left to right in the order of ranks.
   ranks: 2 4 5 16   ways: plain proxy no-cma sentinel nodes nodes-proxy   env: OUTBOARD_REPRODUCIBLE=placement */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "on_device.h"

/* More calls than a comm makes before its members share slots. */
enum { CALLS = 11, COUNTS = 5 };

/* The element of rank `who` at `i`: numbers of very different sizes, whose sums are rounded. */
static double term(int who, int i)
{
    return value(who, i, 1) / 7.0 * (1 + value(who, i, 2) % 1000 * 1e5);
}

static MPI_Comm comm;
static double *in, *out;
static int count;

/* The sums over the first `ranks` ranks. */
static double *sums_of(int ranks)
{
    double *sums = grab(count * sizeof(double));
    for (int i = 0; i < count; i++) sums[i] = term(0, i);
    for (int who = 1; who < ranks; who++)
        for (int i = 0; i < count; i++) sums[i] += term(who, i);
    return sums;
}

/* Checks that `memory` has this many of the sums, then overwrites it. */
static void is(double *memory, const double *sums, int many, const char *what)
{
    double *host = grab(many * sizeof(double));
    int wrong = 0;
    MPIX_Device_copy(host, memory, many * sizeof(double));
    for (int i = 0; i < many; i++) wrong += memcmp(host + i, sums + i, sizeof(double)) != 0;
    CHECK(wrong == 0, "%s of %d doubles: %d have other bits", what, count, wrong);
    memset(host, 0, many * sizeof(double));
    MPIX_Device_copy(memory, host, many * sizeof(double));
    free(host);
}

static void again(double *memory)
{
    double *host = grab(count * sizeof(double));
    for (int i = 0; i < count; i++) host[i] = term(rank, i);
    MPIX_Device_copy(memory, host, count * sizeof(double));
    free(host);
}

static void finish(MPI_Request request) { MPI_Wait(&request, MPI_STATUS_IGNORE); }

static void whole_vectors(int call, const double *sums)
{
    int root = call % size;
    MPI_Request request;
    MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, comm);
    is(out, sums, count, "MPI_Allreduce");
    MPI_Iallreduce(in, out, count, MPI_DOUBLE, MPI_SUM, comm, &request), finish(request);
    is(out, sums, count, "MPI_Iallreduce");
    again(out);
    MPI_Allreduce(MPI_IN_PLACE, out, count, MPI_DOUBLE, MPI_SUM, comm);
    is(out, sums, count, "MPI_Allreduce in place");
    MPI_Reduce(in, out, count, MPI_DOUBLE, MPI_SUM, root, comm);
    if (rank == root) is(out, sums, count, "MPI_Reduce");
    MPI_Ireduce(in, out, count, MPI_DOUBLE, MPI_SUM, root, comm, &request), finish(request);
    if (rank == root) is(out, sums, count, "MPI_Ireduce");
    again(out);
    MPI_Reduce(rank == root ? MPI_IN_PLACE : out, out, count, MPI_DOUBLE, MPI_SUM, root, comm);
    if (rank == root) is(out, sums, count, "MPI_Reduce in place");
}

static void blocks(const double *sums)
{
    int each = count / size, counts[size], first = 0;
    MPI_Request request;
    MPI_Reduce_scatter_block(in, out, each, MPI_DOUBLE, MPI_SUM, comm);
    is(out, sums + rank * each, each, "MPI_Reduce_scatter_block");
    MPI_Ireduce_scatter_block(in, out, each, MPI_DOUBLE, MPI_SUM, comm, &request), finish(request);
    is(out, sums + rank * each, each, "MPI_Ireduce_scatter_block");
    /* The first rank gets the remainder. */
    for (int i = 0; i < size; i++) counts[i] = i == 0 ? count - (size - 1) * each : each;
    for (int i = 0; i < rank; i++) first += counts[i];
    MPI_Reduce_scatter(in, out, counts, MPI_DOUBLE, MPI_SUM, comm);
    is(out, sums + first, counts[rank], "MPI_Reduce_scatter");
    again(out);
    MPI_Reduce_scatter(MPI_IN_PLACE, out, counts, MPI_DOUBLE, MPI_SUM, comm);
    is(out, sums + first, counts[rank], "MPI_Reduce_scatter in place");
}

static void prefixes(const double *with_mine, const double *before_me)
{
    MPI_Request request;
    MPI_Scan(in, out, count, MPI_DOUBLE, MPI_SUM, comm);
    is(out, with_mine, count, "MPI_Scan");
    MPI_Iscan(in, out, count, MPI_DOUBLE, MPI_SUM, comm, &request), finish(request);
    is(out, with_mine, count, "MPI_Iscan");
    MPI_Exscan(in, out, count, MPI_DOUBLE, MPI_SUM, comm);
    if (rank > 0) is(out, before_me, count, "MPI_Exscan");
    again(out);
    MPI_Exscan(MPI_IN_PLACE, out, count, MPI_DOUBLE, MPI_SUM, comm);
    if (rank > 0) is(out, before_me, count, "MPI_Exscan in place");
}

static void persistent(const double *sums)
{
    MPI_Request request;
    MPI_Allreduce_init(in, out, count, MPI_DOUBLE, MPI_SUM, comm, MPI_INFO_NULL, &request);
    for (int call = 0; call < CALLS; call++) {
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        is(out, sums, count, "a persistent MPI_Allreduce");
    }
    MPI_Request_free(&request);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    /* The last count is longer than slots take. */
    const int counts[COUNTS] = {1, 33, 700, 9000, (1 << 17) + 5};
    for (int at = 0; at < COUNTS; at++) {
        count = counts[at];
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        in = device(count * sizeof(double)), out = device(count * sizeof(double));
        again(in);
        double *sums = sums_of(size), *with_mine = sums_of(rank + 1), *before_me = sums_of(rank ? rank : 1);
        for (int call = 0; call < (at + 1 < COUNTS ? CALLS : 1); call++) {
            whole_vectors(call, sums);
            blocks(sums);
            prefixes(with_mine, before_me);
        }
        persistent(sums);
        free(sums), free(with_mine), free(before_me);
        drop(in), drop(out);
        MPI_Comm_free(&comm);
    }
    return end();
}
