/* Every datatype constructor: size, extent, the bytes that a send and a receive move, envelopes and contents,
   pack and unpack. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <stddef.h>

/* Sends one `type` to the next rank and checks that exactly the bytes of `map` arrived: offsets of 1-byte elements in order. */
static void moves(const char *what, MPI_Datatype type, const int *map, int bytes, int lowest, int highest)
{
    int span = highest - lowest, to = (rank + 1) % size, from = (rank + size - 1) % size, seen;
    unsigned char *out = grab(span), *in = grab(span), *plain = grab(bytes);
    MPI_Status status;
    MPI_Type_commit(&type);
    for (int i = 0; i < span; i++) {
        out[i] = (unsigned char)(i * 7 + rank);
        in[i] = 0xee;
    }
    /* From the datatype to bytes, which must be in the packed order. */
    MPI_Sendrecv(out - lowest, 1, type, to, 1, plain, bytes, MPI_BYTE, from, 1, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &seen);
    EQUAL(seen, bytes, what);
    for (int i = 0; i < bytes; i++)
        if (plain[i] != (unsigned char)((map[i] - lowest) * 7 + from)) {
            check_failed(__FILE__, __LINE__, "%s: packed byte %d of %d is %d, not byte %d of the buffer", what, i, bytes,
                         plain[i], map[i]);
            break;
        }
    /* From bytes to the datatype, whose gaps must stay as they were. */
    for (int i = 0; i < bytes; i++) plain[i] = (unsigned char)(i * 3 + rank);
    MPI_Sendrecv(plain, bytes, MPI_BYTE, to, 2, in - lowest, 1, type, from, 2, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, type, &seen);
    EQUAL(seen, 1, what);
    for (int i = 0; i < bytes; i++)
        CHECK(in[map[i] - lowest] == (unsigned char)(i * 3 + from), "%s: byte at %d is %d", what, map[i],
              in[map[i] - lowest]);
    for (int at = lowest; at < highest; at++) {
        int covered = 0;
        for (int i = 0; i < bytes; i++) covered |= map[i] == at;
        if (!covered) CHECK(in[at - lowest] == 0xee, "%s: the gap at %d was written", what, at);
    }
    free(plain);
    free(in);
    free(out);
}

static void shape(const char *what, MPI_Datatype type, int bytes, MPI_Aint low, MPI_Aint extent, MPI_Aint true_low,
                  MPI_Aint true_extent)
{
    int seen;
    MPI_Aint a, b;
    MPI_Type_size(type, &seen);
    EQUAL(seen, bytes, what);
    MPI_Type_get_extent(type, &a, &b);
    EQUAL(a, low, what);
    EQUAL(b, extent, what);
    MPI_Type_get_true_extent(type, &a, &b);
    EQUAL(a, true_low, what);
    EQUAL(b, true_extent, what);
}

static int ints_at(int *map, int n, const int *places)
{
    for (int i = 0; i < n; i++)
        for (int b = 0; b < 4; b++) map[4 * i + b] = places[i] + b;
    return 4 * n;
}

static void constructors(void)
{
    int map[4096], n;
    MPI_Datatype t, u;

    MPI_Type_contiguous(5, MPI_INT, &t);
    shape("contiguous", t, 20, 0, 20, 0, 20);
    moves("contiguous", t, map, ints_at(map, 5, (int[]){0, 4, 8, 12, 16}), 0, 20);
    MPI_Type_free(&t);

    MPI_Type_vector(3, 2, 4, MPI_INT, &t);
    shape("vector", t, 24, 0, 40, 0, 40);
    moves("vector", t, map, ints_at(map, 6, (int[]){0, 4, 16, 20, 32, 36}), 0, 40);
    MPI_Type_free(&t);

    MPI_Type_vector(3, 1, -2, MPI_INT, &t);
    shape("vector backwards", t, 12, -16, 20, -16, 20);
    moves("vector backwards", t, map, ints_at(map, 3, (int[]){0, -8, -16}), -16, 4);
    MPI_Type_free(&t);

    MPI_Type_create_hvector(3, 1, 12, MPI_INT, &t);
    shape("hvector", t, 12, 0, 28, 0, 28);
    moves("hvector", t, map, ints_at(map, 3, (int[]){0, 12, 24}), 0, 28);
    MPI_Type_free(&t);

    MPI_Type_indexed(4, (int[]){2, 0, 1, 1}, (int[]){5, 1, 0, 9}, MPI_INT, &t);
    shape("indexed", t, 16, 0, 40, 0, 40);
    moves("indexed", t, map, ints_at(map, 4, (int[]){20, 24, 0, 36}), 0, 40);
    MPI_Type_free(&t);

    MPI_Type_create_hindexed(2, (int[]){1, 2}, (MPI_Aint[]){13, 1}, MPI_INT, &t);
    shape("hindexed", t, 12, 1, 16, 1, 16);
    moves("hindexed", t, map, ints_at(map, 3, (int[]){13, 1, 5}), 1, 17);
    MPI_Type_free(&t);

    MPI_Type_create_indexed_block(3, 2, (int[]){6, 0, 3}, MPI_INT, &t);
    shape("indexed_block", t, 24, 0, 32, 0, 32);
    moves("indexed_block", t, map, ints_at(map, 6, (int[]){24, 28, 0, 4, 12, 16}), 0, 32);
    MPI_Type_free(&t);

    MPI_Type_create_hindexed_block(2, 1, (MPI_Aint[]){-8, 4}, MPI_INT, &t);
    shape("hindexed_block", t, 8, -8, 16, -8, 16);
    moves("hindexed_block", t, map, ints_at(map, 2, (int[]){-8, 4}), -8, 8);
    MPI_Type_free(&t);

    struct record {
        char c;
        double d;
        int i[2];
    };
    MPI_Type_create_struct(3, (int[]){1, 1, 2},
                           (MPI_Aint[]){offsetof(struct record, c), offsetof(struct record, d), offsetof(struct record, i)},
                           (MPI_Datatype[]){MPI_CHAR, MPI_DOUBLE, MPI_INT}, &t);
    shape("struct", t, 17, 0, sizeof(struct record), 0, sizeof(struct record));
    n = 0;
    map[n++] = 0;
    for (int b = 8; b < 24; b++) map[n++] = b;
    moves("struct", t, map, n, 0, sizeof(struct record));

    MPI_Type_create_resized(t, -8, 64, &u);
    shape("resized", u, 17, -8, 64, 0, 24);
    moves("resized", u, map, n, 0, 24);
    MPI_Type_free(&t);
    /* Types that were made of a freed type stay valid. */
    MPI_Type_contiguous(3, u, &t);
    MPI_Type_free(&u);
    shape("contiguous of resized", t, 51, -8, 192, 0, 152);
    for (int k = 0; k < 3; k++)
        for (int b = 0; b < 17; b++) map[17 * k + b] = 64 * k + (b ? b + 7 : 0);
    moves("contiguous of resized", t, map, 51, 0, 152);
    MPI_Type_free(&t);

    MPI_Type_create_subarray(3, (int[]){4, 5, 6}, (int[]){2, 3, 2}, (int[]){1, 1, 3}, MPI_ORDER_C, MPI_BYTE, &t);
    shape("subarray", t, 12, 0, 120, 39, 30 + 12 + 2);
    n = 0;
    for (int i = 1; i < 3; i++)
        for (int j = 1; j < 4; j++)
            for (int k = 3; k < 5; k++) map[n++] = (i * 5 + j) * 6 + k;
    moves("subarray", t, map, n, 0, 120);
    MPI_Type_free(&t);

    MPI_Type_create_subarray(2, (int[]){4, 5}, (int[]){2, 3}, (int[]){1, 2}, MPI_ORDER_FORTRAN, MPI_BYTE, &t);
    n = 0;
    for (int j = 2; j < 5; j++)
        for (int i = 1; i < 3; i++) map[n++] = j * 4 + i;
    moves("subarray, Fortran order", t, map, n, 0, 20);
    MPI_Type_free(&t);

    /* The distribution is rows in blocks over two processes, and columns cyclically by two over two. This is
       the part of position (1, 0). */
    MPI_Type_create_darray(4, 2, 2, (int[]){5, 7}, (int[]){MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC},
                           (int[]){MPI_DISTRIBUTE_DFLT_DARG, 2}, (int[]){2, 2}, MPI_ORDER_C, MPI_BYTE, &t);
    n = 0;
    for (int i = 3; i < 5; i++)
        for (int j = 0; j < 7; j++)
            if (j / 2 % 2 == 0) map[n++] = i * 7 + j;
    moves("darray", t, map, n, 0, 35);
    MPI_Type_free(&t);

    MPI_Type_dup(MPI_DOUBLE, &t);
    shape("dup", t, 8, 0, 8, 0, 8);
    MPI_Type_free(&t);
}

static void contents(void)
{
    MPI_Datatype t, inside[1];
    int integers, addresses, types, combiner, n[3];
    MPI_Type_vector(3, 2, 5, MPI_DOUBLE, &t);
    MPI_Type_get_envelope(t, &integers, &addresses, &types, &combiner);
    EQUAL(combiner, MPI_COMBINER_VECTOR, "combiner");
    EQUAL(integers * 100 + addresses * 10 + types, 301, "numbers of contents");
    MPI_Aint none[1];
    MPI_Type_get_contents(t, 3, 0, 1, n, none, inside);
    CHECK(n[0] == 3 && n[1] == 2 && n[2] == 5, "contents %d %d %d", n[0], n[1], n[2]);
    CHECK(inside[0] == MPI_DOUBLE, "the inner type is not MPI_DOUBLE");
    MPI_Type_free(&t);
    MPI_Type_get_envelope(MPI_INT, &integers, &addresses, &types, &combiner);
    EQUAL(combiner, MPI_COMBINER_NAMED, "combiner");
}

/* A message ends within an element: get_count returns MPI_UNDEFINED, get_elements returns the number. */
static void partial(void)
{
    struct pair {
        int a;
        double b;
    } one = {1, 2}, in[2];
    MPI_Datatype t;
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){MPI_INT, MPI_DOUBLE}, &t);
    MPI_Type_commit(&t);
    MPI_Status status;
    int count, elements;
    MPI_Sendrecv(&one.a, 1, MPI_INT, 0, 1, in, 2, t, 0, 1, MPI_COMM_SELF, &status);
    MPI_Get_count(&status, t, &count);
    MPI_Get_elements(&status, t, &elements);
    EQUAL(count, MPI_UNDEFINED, "count of a third of a pair");
    EQUAL(elements, 1, "elements");
    MPI_Type_free(&t);
}

static void packing(void)
{
    char packed[256];
    int at = 0, number = 0, bytes;
    double reals[3] = {rank, 2, 3}, back[3];
    MPI_Datatype every_other;
    MPI_Type_vector(2, 1, 2, MPI_DOUBLE, &every_other);
    MPI_Type_commit(&every_other);
    MPI_Pack_size(1, every_other, MPI_COMM_WORLD, &bytes);
    CHECK(bytes >= 16, "pack size %d", bytes);
    MPI_Pack(&rank, 1, MPI_INT, packed, sizeof packed, &at, MPI_COMM_WORLD);
    MPI_Pack(reals, 1, every_other, packed, sizeof packed, &at, MPI_COMM_WORLD);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    char got[256];
    MPI_Sendrecv(packed, at, MPI_PACKED, to, 1, got, sizeof got, MPI_PACKED, from, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    int end = 0;
    MPI_Unpack(got, sizeof got, &end, &number, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Unpack(got, sizeof got, &end, back, 2, MPI_DOUBLE, MPI_COMM_WORLD);
    EQUAL(number, from, "unpacked rank");
    CHECK(back[0] == from && back[1] == 3, "unpacked %g %g", back[0], back[1]);
    EQUAL(end, at, "position");
    MPI_Type_free(&every_other);
}

/* Long strided messages, so that both the eager protocol and the long ones meet gaps; many small runs and few
   large ones. */
static void long_strides(void)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int run = 1; run <= 4096; run *= 16) {
        int runs = 262144 / run, total = runs * run;
        MPI_Datatype t;
        MPI_Type_vector(runs, run, 2 * run, MPI_INT, &t);
        MPI_Type_commit(&t);
        int *out = grab(2 * total * sizeof(int)), *in = grab(2 * total * sizeof(int));
        for (int i = 0; i < total; i++) out[i / run * 2 * run + i % run] = value(rank, i, run);
        MPI_Sendrecv(out, 1, t, to, 1, in, 1, t, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < total; i++)
            if (in[i / run * 2 * run + i % run] != value(from, i, run)) {
                check_failed(__FILE__, __LINE__, "runs of %d ints: element %d is wrong", run, i);
                break;
            }
        free(in);
        free(out);
        MPI_Type_free(&t);
    }
}

/* Two nests of loops become one list of runs, and no iteration is lost. */
static void struct_of_subarrays(void)
{
    enum { WORDS = 32 };
    int sizes[4] = {3, 3, 3, 3}, parts[4] = {2, 2, 2, 2}, starts[4] = {1, 1, 1, 1}, ones[2] = {1, 1}, bytes, at = 0, n = 0;
    int data[500], packed[WORDS];
    MPI_Aint places[2] = {8, 1304};
    MPI_Datatype cube, both;
    MPI_Type_create_subarray(4, sizes, parts, starts, MPI_ORDER_FORTRAN, MPI_INT, &cube);
    MPI_Type_create_struct(2, ones, places, (MPI_Datatype[]){cube, cube}, &both);
    MPI_Type_commit(&both);
    MPI_Type_size(both, &bytes);
    EQUAL(bytes, WORDS * 4, "the size of two 4-dimensional subarrays");
    for (int i = 0; i < 500; i++) data[i] = i;
    memset(packed, 0, sizeof packed);
    MPI_Pack(data, 1, both, packed, sizeof packed, &at, MPI_COMM_WORLD);
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < 16; i++, n++) {
            int l = 1 + i / 8, k = 1 + i / 4 % 2, j = 1 + i / 2 % 2;
            EQUAL(packed[n], places[b] / 4 + 27 * l + 9 * k + 3 * j + 1 + i % 2, "a word of two subarrays");
        }
    MPI_Type_free(&cube);
    MPI_Type_free(&both);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    constructors();
    contents();
    partial();
    packing();
    long_strides();
    struct_of_subarrays();
    return end();
}
