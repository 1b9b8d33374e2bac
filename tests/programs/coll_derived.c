/* Collectives on derived types: gaps, different types on the two sides, reductions of derived types with an
   operator of the program's. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "both.h"

/* Every second int of `count` pairs. */
static MPI_Datatype gapped(int count)
{
    MPI_Datatype vector, type;
    MPI_Type_vector(count, 1, 2, MPI_INT, &vector);
    MPI_Type_create_resized(vector, 0, 2 * count * (MPI_Aint)sizeof(int), &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&vector);
    return type;
}

static void spread(int *data, int count, int who, int round)
{
    for (int i = 0; i < count; i++) {
        data[2 * i] = value(who, i, round);
        data[2 * i + 1] = -9;
    }
}

static void check_spread(const char *what, const int *data, int count, int who, int round)
{
    checked++;
    for (int i = 0; i < count; i++)
        if (data[2 * i] != value(who, i, round) || data[2 * i + 1] != -9) {
            check_failed(__FILE__, __LINE__, "%s: pair %d of %d from rank %d: %d %d, not %d -9", what, i, count, who,
                         data[2 * i], data[2 * i + 1], value(who, i, round));
            return;
        }
}

/* One side has gaps, the other has none: only the type signature must agree. */
static void moves(int count)
{
    MPI_Datatype type = gapped(count);
    size_t all = (size_t)size * count;
    int *plain = grab(all * sizeof(int)), *wide = grab(2 * all * sizeof(int)), root = size / 2;
    spread(wide, count, rank, 0);
    BOTH(Bcast, bcast, wide, 1, type, root, MPI_COMM_WORLD);
    check_spread("bcast", wide, count, root, 0);

    fill(plain, count, rank, 1);
    for (size_t i = 0; i < 2 * all; i++) wide[i] = -9;
    BOTH(Allgather, allgather, plain, count, MPI_INT, wide, 1, type, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) check_spread("allgather", wide + (size_t)2 * count * i, count, i, 1);

    for (int i = 0; i < size; i++) spread(wide + (size_t)2 * count * i, count, rank, i);
    BOTH(Alltoall, alltoall, wide, 1, type, plain, count, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) FILLED(plain + (size_t)count * i, count, i, rank);

    spread(wide, count, rank, 4);
    BOTH(Gather, gather, wide, 1, type, plain, count, MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; rank == root && i < size; i++) FILLED(plain + (size_t)count * i, count, i, 4);

    for (int i = 0; i < size; i++) fill(plain + (size_t)count * i, count, i, 5);
    for (size_t i = 0; i < 2 * all; i++) wide[i] = -9;
    BOTH(Scatter, scatter, plain, count, MPI_INT, wide, 1, type, root, MPI_COMM_WORLD);
    check_spread("scatter", wide, count, rank, 5);
    free(wide);
    free(plain);
    MPI_Type_free(&type);
}

/* Rows are sent, columns are received: the transpose of a matrix cut into slabs. */
static void transpose(void)
{
    int n = 6 * size, rows = 6;
    double *a = grab(n * rows * sizeof *a), *b = grab(n * rows * sizeof *b);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < n; j++) a[i * n + j] = (rank * rows + i) * 1000 + j;
    MPI_Datatype column, block, sent;
    MPI_Type_vector(rows, 1, n, MPI_DOUBLE, &column);
    MPI_Type_create_hvector(rows, 1, sizeof(double), column, &block);
    MPI_Type_create_resized(block, 0, rows * sizeof(double), &sent);
    MPI_Type_commit(&sent);
    MPI_Datatype rowed, got;
    MPI_Type_vector(rows, rows, n, MPI_DOUBLE, &rowed);
    MPI_Type_create_resized(rowed, 0, rows * sizeof(double), &got);
    MPI_Type_commit(&got);
    BOTH(Alltoall, alltoall, a, 1, sent, b, 1, got, MPI_COMM_WORLD);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < n; j++)
            CHECK(b[i * n + j] == j * 1000 + rank * rows + i, "element %d %d is %g, not %d", i, j, b[i * n + j],
                  j * 1000 + rank * rows + i);
    MPI_Type_free(&column);
    MPI_Type_free(&block);
    MPI_Type_free(&sent);
    MPI_Type_free(&rowed);
    MPI_Type_free(&got);
    free(b);
    free(a);
}

static void add_gapped(void *left, void *right, int *count, MPI_Datatype *type)
{
    MPI_Aint low, extent;
    MPI_Type_get_extent(*type, &low, &extent);
    EQUAL(extent, 2 * sizeof(int), "extent inside the operator");
    int *x = left, *y = right;
    for (int i = 0; i < *count; i++) y[2 * i] += x[2 * i];
}

static void add_pairs(void *left, void *right, int *count, MPI_Datatype *type)
{
    MPI_Aint low, extent;
    MPI_Type_get_extent(*type, &low, &extent);
    int *x = left, *y = right, step = (int)(extent / (MPI_Aint)sizeof(int));
    for (int i = 0; i < *count; i++)
        for (int part = 0; part < 3; part += 2) y[step * i + part] += x[step * i + part];
}

/* An operator sees elements with their gaps, laid out as the datatype says. */
static void reduces(int count)
{
    MPI_Datatype type;
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &type);
    MPI_Type_commit(&type);
    MPI_Op op;
    MPI_Op_create(add_gapped, 1, &op);
    int *out = grab(2 * count * sizeof(int)), *in = grab(2 * count * sizeof(int));
    for (int i = 0; i < count; i++) {
        out[2 * i] = rank + i;
        out[2 * i + 1] = in[2 * i + 1] = -9;
    }
    BOTH(Allreduce, allreduce, out, in, count, type, op, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) {
        EQUAL(in[2 * i], size * (size - 1) / 2 + size * i, "sum");
        EQUAL(in[2 * i + 1], -9, "gap");
    }
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    free(in);
    free(out);
}

/* A step of the schedule may reduce several blocks, each of which is a vector of its own. */
static void scatters(int count)
{
    const int extent = 4;
    MPI_Datatype pair, type;
    MPI_Type_vector(2, 1, 2, MPI_INT, &pair);
    MPI_Type_create_resized(pair, 0, extent * sizeof(int), &type);
    MPI_Type_commit(&type);
    MPI_Op op;
    MPI_Op_create(add_pairs, 1, &op);
    int *counts = grab(size * sizeof(int)), total = 0;
    for (int i = 0; i < size; i++) total += counts[i] = count + i % 3;
    int before = 0;
    for (int i = 0; i < rank; i++) before += counts[i];
    const size_t ints = extent * (total - 1) + 3;
    int *out = grab(ints * sizeof(int)), *in = grab(ints * sizeof(int));
    for (size_t i = 0; i < ints; i++) {
        out[i] = rank + (int)i;
        in[i] = -9;
    }
    BOTH(Reduce_scatter, reduce_scatter, out, in, counts, type, op, MPI_COMM_WORLD);
    for (int i = 0; i < counts[rank]; i++)
        for (int part = 0; part < 3; part += 2)
            EQUAL(in[extent * i + part], size * (size - 1) / 2 + size * (extent * (before + i) + part), "sum");
    MPI_Op_free(&op);
    MPI_Type_free(&type);
    MPI_Type_free(&pair);
    free(in);
    free(out);
    free(counts);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (nonblocking = 0; nonblocking < 2; nonblocking++) {
        static const int counts[] = {1, 7, 500, 20000};
        for (int i = 0; i < 4; i++) {
            moves(counts[i]);
            reduces(counts[i]);
            scatters(counts[i]);
        }
        transpose();
    }
    return end();
}
