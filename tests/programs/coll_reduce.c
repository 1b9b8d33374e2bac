/* Reductions: reduce, allreduce, reduce_scatter(_block), scan, exscan; many counts, in place, every kind of
   operator. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "both.h"

/* A 2x2 matrix over the integers modulo a prime: products do not commute, so the order of ranks shows. */
typedef struct {
    int a, b, c, d;
} matrix;
enum { PRIME = 10007 };

static matrix product(matrix x, matrix y)
{
    matrix z = {(x.a * y.a + x.b * y.c) % PRIME, (x.a * y.b + x.b * y.d) % PRIME, (x.c * y.a + x.d * y.c) % PRIME,
                (x.c * y.b + x.d * y.d) % PRIME};
    return z;
}

static void multiply(void *left, void *right, int *count, MPI_Datatype *type)
{
    (void)type;
    matrix *x = left, *y = right;
    for (int i = 0; i < *count; i++) y[i] = product(x[i], y[i]);
}

static void add_modulo(void *left, void *right, int *count, MPI_Datatype *type)
{
    (void)type;
    int *x = left, *y = right;
    for (int i = 0; i < 4 * *count; i++) y[i] = (x[i] + y[i]) % PRIME;
}

/* The operators under test all work on matrices, so that one set of checks serves them. */
static MPI_Datatype type;
static MPI_Op operators[3];
enum { PRODUCT, SUM_USER, OPERATORS };

static matrix element(int who, int index)
{
    matrix m = {value(who, index, 0) % PRIME, value(who, index, 1) % PRIME, value(who, index, 2) % PRIME,
                value(who, index, 3) % PRIME};
    return m;
}

/* The definition: ranks first to last-1, in their order. */
static matrix expected(int op, int first, int last, int index)
{
    matrix all = element(first, index);
    for (int i = first + 1; i < last; i++) {
        matrix m = element(i, index);
        if (op == PRODUCT) {
            all = product(all, m);
        } else {
            matrix s = {(all.a + m.a) % PRIME, (all.b + m.b) % PRIME, (all.c + m.c) % PRIME, (all.d + m.d) % PRIME};
            all = s;
        }
    }
    return all;
}

static void check_result(const char *name, const matrix *seen, int op, int ranks, int start, int count)
{
    checked++;
    for (int i = 0; i < count; i++) {
        matrix want = expected(op, 0, ranks, start + i);
        if (memcmp(&seen[i], &want, sizeof want)) {
            check_failed(__FILE__, __LINE__, "%s, operator %d: element %d of %d is (%d %d %d %d), not (%d %d %d %d)",
                         name, op, i, count, seen[i].a, seen[i].b, seen[i].c, seen[i].d, want.a, want.b, want.c,
                         want.d);
            return;
        }
    }
}

static matrix *operands(int count)
{
    matrix *m = grab(count * sizeof *m);
    for (int i = 0; i < count; i++) m[i] = element(rank, i);
    return m;
}

static void to_one(int op, int count, int root, int in_place)
{
    matrix *out = operands(count), *in = grab(count * sizeof *in);
    int here = rank == root && in_place;
    if (here) memcpy(in, out, count * sizeof *in);
    BOTH(Reduce, reduce, here ? MPI_IN_PLACE : out, rank == root ? in : NULL, count, type, operators[op], root,
         MPI_COMM_WORLD);
    if (rank == root) check_result("reduce", in, op, size, 0, count);
    free(in);
    free(out);
}

static void to_all(int op, int count, int in_place)
{
    matrix *out = operands(count), *in = grab(count * sizeof *in);
#define SEND (in_place ? (memcpy(in, out, count * sizeof *in), MPI_IN_PLACE) : (void *)out)
    BOTH(Allreduce, allreduce, SEND, in, count, type, operators[op], MPI_COMM_WORLD);
    check_result("allreduce", in, op, size, 0, count);
    BOTH(Scan, scan, SEND, in, count, type, operators[op], MPI_COMM_WORLD);
    check_result("scan", in, op, rank + 1, 0, count);
    BOTH(Exscan, exscan, SEND, in, count, type, operators[op], MPI_COMM_WORLD);
    if (rank > 0) check_result("exscan", in, op, rank, 0, count);
    free(in);
    free(out);
}

static void scattered(int op, int count, int in_place)
{
    int *counts = grab(size * sizeof(int)), total = 0, start = 0;
    for (int i = 0; i < size; i++) {
        counts[i] = i % 3 == 1 ? 0 : count + i;
        start += i < rank ? counts[i] : 0;
        total += counts[i];
    }
    matrix *out = operands(total), *in = grab(total * sizeof *in);
    if (in_place) memcpy(in, out, total * sizeof *in);
    BOTH(Reduce_scatter, reduce_scatter, in_place ? MPI_IN_PLACE : (void *)out, in, counts, type, operators[op],
         MPI_COMM_WORLD);
    check_result("reduce_scatter", in, op, size, start, counts[rank]);
    free(in);
    free(out);
    out = operands(count * size);
    in = grab(count * size * sizeof *in);
    if (in_place) memcpy(in, out, count * size * sizeof *in);
    BOTH(Reduce_scatter_block, reduce_scatter_block, in_place ? MPI_IN_PLACE : (void *)out, in, count, type,
         operators[op], MPI_COMM_WORLD);
    check_result("reduce_scatter_block", in, op, size, rank * count, count);
    free(in);
    free(out);
    free(counts);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Type_contiguous(4, MPI_INT, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(multiply, 0, &operators[PRODUCT]);
    MPI_Op_create(add_modulo, 1, &operators[SUM_USER]);
    int commutes = -1;
    MPI_Op_commutative(operators[PRODUCT], &commutes);
    EQUAL(commutes, 0, "commutative");
    static const int counts[] = {0, 1, 2, 5, 33, 700, 9001};
    for (nonblocking = 0; nonblocking < 2; nonblocking++)
        for (int op = 0; op < OPERATORS; op++)
            for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++)
                for (int in_place = 0; in_place < 2; in_place++) {
                    for (int root = 0; root < size; root += counts[i] < 100 ? 1 : 3)
                        to_one(op, counts[i], root, in_place);
                    to_all(op, counts[i], in_place);
                    scattered(op, counts[i] < 1000 ? counts[i] : 1500, in_place);
                }
    for (int op = 0; op < OPERATORS; op++) MPI_Op_free(&operators[op]);
    MPI_Type_free(&type);
    return end();
}
