/* Collectives with one count for all, blocking and nonblocking, against their definitions, in place too. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "both.h"

static const int counts[] = {0, 1, 2, 3, 7, 17, 64, 255, 1000, 4099, 30011, 100003};

static void barrier(void)
{
    for (int i = 0; i < 20; i++) BOTH(Barrier, barrier, MPI_COMM_WORLD);
}

static void bcast(int count, int root)
{
    int *data = grab((count + 1) * sizeof(int));
    fill(data, count, rank, 0);
    data[count] = -3;
    BOTH(Bcast, bcast, data, count, MPI_INT, root, MPI_COMM_WORLD);
    FILLED(data, count, root, 0);
    EQUAL(data[count], -3, "the element after the message");
    free(data);
}

static void gather(int count, int root, int in_place)
{
    int *out = grab(count * sizeof(int)), *in = rank == root ? grab((size_t)size * count * sizeof(int)) : NULL;
    fill(out, count, rank, 1);
    if (in) memset(in, 255, (size_t)size * count * sizeof(int));
    if (in_place && rank == root) fill(in + (size_t)rank * count, count, rank, 1);
    BOTH(Gather, gather, in_place && rank == root ? MPI_IN_PLACE : out, count, MPI_INT, in, count, MPI_INT, root,
         MPI_COMM_WORLD);
    for (int i = 0; in && i < size; i++) FILLED(in + (size_t)i * count, count, i, 1);
    free(in);
    free(out);
}

static void scatter(int count, int root, int in_place)
{
    int *in = grab(count * sizeof(int)), *out = rank == root ? grab((size_t)size * count * sizeof(int)) : NULL;
    memset(in, 255, count * sizeof(int));
    for (int i = 0; out && i < size; i++) fill(out + (size_t)i * count, count, i, 2);
    BOTH(Scatter, scatter, out, count, MPI_INT, in_place && rank == root ? MPI_IN_PLACE : in, count, MPI_INT, root,
         MPI_COMM_WORLD);
    if (!(in_place && rank == root)) FILLED(in, count, rank, 2);
    for (int i = 0; out && i < size; i++) FILLED(out + (size_t)i * count, count, i, 2);
    free(out);
    free(in);
}

static void allgather(int count, int in_place)
{
    int *out = grab(count * sizeof(int)), *in = grab((size_t)size * count * sizeof(int));
    fill(out, count, rank, 3);
    memset(in, 255, (size_t)size * count * sizeof(int));
    if (in_place) fill(in + (size_t)rank * count, count, rank, 3);
    BOTH(Allgather, allgather, in_place ? MPI_IN_PLACE : out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) FILLED(in + (size_t)i * count, count, i, 3);
    free(in);
    free(out);
}

static void alltoall(int count, int in_place)
{
    int *out = grab((size_t)size * count * sizeof(int)), *in = grab((size_t)size * count * sizeof(int));
    memset(in, 255, (size_t)size * count * sizeof(int));
    for (int i = 0; i < size; i++) fill((in_place ? in : out) + (size_t)i * count, count, rank, i);
    BOTH(Alltoall, alltoall, in_place ? MPI_IN_PLACE : out, count, MPI_INT, in, count, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) FILLED(in + (size_t)i * count, count, i, rank);
    free(in);
    free(out);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (nonblocking = 0; nonblocking < 2; nonblocking++) {
        barrier();
        for (unsigned i = 0; i < sizeof counts / sizeof *counts; i++) {
            int count = counts[i];
            /* Long messages have only a few roots; the short ones test every root. */
            for (int root = 0; root < size; root += count < 1000 ? 1 : 3) {
                bcast(count, root);
                gather(count, root, root & 1);
                scatter(count, root, root & 1);
            }
            gather(count, 0, 1);
            scatter(count, size - 1, 1);
            for (int in_place = 0; in_place < 2; in_place++) {
                allgather(count, in_place);
                alltoall(count, in_place);
            }
        }
    }
    return end();
}
