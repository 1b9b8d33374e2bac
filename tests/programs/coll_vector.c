/* Collectives with a count for each rank: gatherv, scatterv, allgatherv, alltoallv, alltoallw; zero counts
   and gaps. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "both.h"

static int *counts, *places, total;

/* Counts that differ, some of them zero, with a gap of one element after each block. */
static void lay_out(int scale)
{
    total = 0;
    for (int i = 0; i < size; i++) {
        counts[i] = (i * 5 + 3) % 4 * scale;
        places[i] = total;
        total += counts[i] + 1;
    }
}

static void check_blocks(const int *in, int round)
{
    for (int i = 0; i < size; i++) {
        FILLED(in + places[i], counts[i], i, round);
        EQUAL(in[places[i] + counts[i]], -1, "the gap after a block");
    }
}

static void rooted(int root, int in_place)
{
    int mine = counts[rank], here = rank == root;
    int *part = grab(mine * sizeof(int)), *whole = here ? grab(total * sizeof(int)) : NULL;
    fill(part, mine, rank, 1);
    if (here) memset(whole, 255, total * sizeof(int));
    if (here && in_place) fill(whole + places[rank], mine, rank, 1);
    BOTH(Gatherv, gatherv, here && in_place ? MPI_IN_PLACE : part, mine, MPI_INT, whole, counts, places, MPI_INT,
         root, MPI_COMM_WORLD);
    if (here) check_blocks(whole, 1);
    for (int i = 0; here && i < size; i++) fill(whole + places[i], counts[i], i, 2);
    memset(part, 255, mine * sizeof(int));
    BOTH(Scatterv, scatterv, whole, counts, places, MPI_INT, here && in_place ? MPI_IN_PLACE : part, mine, MPI_INT,
         root, MPI_COMM_WORLD);
    if (!(here && in_place)) FILLED(part, mine, rank, 2);
    if (here) check_blocks(whole, 2);
    free(whole);
    free(part);
}

static void allgatherv(int in_place)
{
    int mine = counts[rank], *part = grab(mine * sizeof(int)), *whole = grab(total * sizeof(int));
    fill(part, mine, rank, 3);
    memset(whole, 255, total * sizeof(int));
    if (in_place) fill(whole + places[rank], mine, rank, 3);
    BOTH(Allgatherv, allgatherv, in_place ? MPI_IN_PLACE : part, mine, MPI_INT, whole, counts, places, MPI_INT,
         MPI_COMM_WORLD);
    check_blocks(whole, 3);
    free(whole);
    free(part);
}

/* The number of elements from a to b: different in the two directions, sometimes 0. */
static int between(int a, int b, int scale) { return (a * 3 + b * 7) % 5 * scale; }

static void alltoallv(int scale, int words)
{
    int *out_counts = grab(4 * size * sizeof(int)), *out_places = out_counts + size, *in_counts = out_places + size,
        *in_places = in_counts + size, out_total = 0, in_total = 0;
    for (int i = 0; i < size; i++) {
        out_counts[i] = between(rank, i, scale);
        in_counts[i] = between(i, rank, scale);
        out_places[i] = out_total;
        in_places[i] = in_total;
        out_total += out_counts[i] + 1;
        in_total += in_counts[i] + 1;
    }
    int *out = grab(out_total * sizeof(int)), *in = grab(in_total * sizeof(int));
    memset(in, 255, in_total * sizeof(int));
    for (int i = 0; i < size; i++) fill(out + out_places[i], out_counts[i], rank, i);
    if (words) {
        /* Displacements in bytes; the type is in turns an int or a pair of ints. */
        MPI_Datatype pair, *out_types = grab(2 * size * sizeof(MPI_Datatype)), *in_types = out_types + size;
        MPI_Type_contiguous(2, MPI_INT, &pair);
        MPI_Type_commit(&pair);
        int *bytes = grab(4 * size * sizeof(int)), *n = bytes + 2 * size;
        for (int i = 0; i < size; i++) {
            bytes[i] = out_places[i] * (int)sizeof(int);
            bytes[size + i] = in_places[i] * (int)sizeof(int);
            out_types[i] = out_counts[i] % 2 ? MPI_INT : pair;
            in_types[i] = in_counts[i] % 2 || i % 2 ? MPI_INT : pair;
            n[i] = out_types[i] == pair ? out_counts[i] / 2 : out_counts[i];
            n[size + i] = in_types[i] == pair ? in_counts[i] / 2 : in_counts[i];
        }
        BOTH(Alltoallw, alltoallw, out, n, bytes, out_types, in, n + size, bytes + size, in_types, MPI_COMM_WORLD);
        MPI_Type_free(&pair);
        free(bytes);
        free(out_types);
    } else {
        BOTH(Alltoallv, alltoallv, out, out_counts, out_places, MPI_INT, in, in_counts, in_places, MPI_INT,
             MPI_COMM_WORLD);
    }
    for (int i = 0; i < size; i++) {
        FILLED(in + in_places[i], in_counts[i], i, rank);
        EQUAL(in[in_places[i] + in_counts[i]], -1, "the gap after a block");
    }
    free(in);
    free(out);
    free(out_counts);
}

/* In place: the counts between two ranks are the same both ways. */
static void alltoallv_in_place(int scale)
{
    int *n = grab(2 * size * sizeof(int)), *at = n + size, sum = 0;
    for (int i = 0; i < size; i++) {
        n[i] = (rank + i) % 3 * scale;
        at[i] = sum;
        sum += n[i];
    }
    int *data = grab(sum * sizeof(int));
    for (int i = 0; i < size; i++) fill(data + at[i], n[i], rank, i);
    BOTH(Alltoallv, alltoallv, MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, data, n, at, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) FILLED(data + at[i], n[i], i, rank);
    free(data);
    free(n);
}

/* A rank that receives another length than it expects gets an error, on the fast path and on the general one.
   The others do not. */
static void other_lengths(int length)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    int *out = grab(size * (length + 1) * sizeof(int)), *in = grab(size * (length + 1) * sizeof(int));
    for (int call = 0; call < 20; call++) {
        int wrong = call > 10 && size > 1, giver = size - 1;
        for (int i = 0; i < size; i++) counts[i] = length, places[i] = i * length;
        int sent = length + (wrong && rank == giver);
        int code = MPI_Gatherv(out, sent, MPI_INT, in, counts, places, MPI_INT, 0, comm);
        int class = MPI_SUCCESS;
        if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
        EQUAL(class, wrong && rank == 0 ? MPI_ERR_TRUNCATE : MPI_SUCCESS, "the class of a gatherv");
        if (wrong && rank == giver) counts[0]++;
        code = MPI_Alltoallv(out, counts, places, MPI_INT, in, counts, places, MPI_INT, comm);
        CHECK(wrong || code == MPI_SUCCESS, "alltoallv failed");
        CHECK(code != MPI_SUCCESS || !wrong || (rank != 0 && rank != giver), "rank %d was not told", rank);
    }
    MPI_Comm_free(&comm);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    counts = grab(2 * size * sizeof(int));
    places = counts + size;
    static const int scales[] = {0, 1, 3, 100, 5003, 40009};
    for (nonblocking = 0; nonblocking < 2; nonblocking++)
        for (unsigned i = 0; i < sizeof scales / sizeof *scales; i++) {
            lay_out(scales[i]);
            for (int root = 0; root < size; root += scales[i] < 5000 ? 1 : 3) rooted(root, root & 1);
            rooted(0, 1);
            allgatherv(0);
            allgatherv(1);
            alltoallv(scales[i], 0);
            alltoallv(scales[i], 1);
            alltoallv_in_place(scales[i]);
        }
    other_lengths(5);
    other_lengths(40000);
    return end();
}
