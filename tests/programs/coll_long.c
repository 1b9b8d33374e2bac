/* Collectives whose scratch and staging are longer than the first extent of an arena (8 MiB), blocking, nonblocking and in
   place, of contiguous memory, of memory with gaps, and of memory of MPI_Alloc_mem.
   ranks: 2 3  ways: plain proxy no-cma refused nodes nodes-proxy */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <stdlib.h>
#include <string.h>

enum { LONG = 20 * 1000 * 1000 + 3 };

/* The sum over all ranks of `data[i] = rank + 1`. */
static int sum_of_ranks(void)
{
    return size * (size + 1) / 2;
}

static void check_bytes(const unsigned char *data, int value, const char *what)
{
    for (int i = 0; i < LONG; i += 4093) CHECK(data[i] == value, "%s: byte %d is %d, not %d", what, i, data[i], value);
    CHECK(data[LONG - 1] == value, "%s: the last byte is %d, not %d", what, data[LONG - 1], value);
}

static void sums(unsigned char *data, unsigned char *result)
{
    memset(data, rank + 1, LONG);
    MPI_Allreduce(MPI_IN_PLACE, data, LONG, MPI_UINT8_T, MPI_SUM, MPI_COMM_WORLD);
    check_bytes(data, sum_of_ranks(), "MPI_Allreduce in place");
    memset(data, rank + 1, LONG);
    MPI_Allreduce(data, result, LONG, MPI_UINT8_T, MPI_SUM, MPI_COMM_WORLD);
    check_bytes(result, sum_of_ranks(), "MPI_Allreduce");
    MPI_Request request;
    MPI_Iallreduce(MPI_IN_PLACE, data, LONG, MPI_UINT8_T, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_bytes(data, sum_of_ranks(), "MPI_Iallreduce in place");
    memset(data, rank + 1, LONG);
    MPI_Reduce(data, result, LONG, MPI_UINT8_T, MPI_SUM, size - 1, MPI_COMM_WORLD);
    if (rank == size - 1) check_bytes(result, sum_of_ranks(), "MPI_Reduce");
    memset(data, rank + 1, LONG);
    MPI_Scan(MPI_IN_PLACE, data, LONG, MPI_UINT8_T, MPI_SUM, MPI_COMM_WORLD);
    check_bytes(data, (rank + 1) * (rank + 2) / 2, "MPI_Scan in place");
}

/* Blocks of 1000 bytes with gaps of the same length between them, so the bytes are packed. */
static void gaps(void)
{
    enum { BLOCK = 1000, BLOCKS = LONG / BLOCK };
    const size_t extent = 2 * (size_t)BLOCK * BLOCKS, bytes = (size_t)BLOCK * BLOCKS;
    MPI_Datatype column;
    MPI_Type_vector(BLOCKS, BLOCK, 2 * BLOCK, MPI_UINT8_T, &column);
    MPI_Type_commit(&column);
    unsigned char *data = malloc(extent), *all = malloc(size * bytes);
    memset(data, rank == 0 ? 7 : 0, extent);
    MPI_Bcast(data, 1, column, 0, MPI_COMM_WORLD);
    for (size_t i = 0; i < extent - BLOCK; i += 409) {
        int want = rank == 0 || i / BLOCK % 2 == 0 ? 7 : 0;
        CHECK(data[i] == want, "MPI_Bcast: byte %zu is %d, not %d", i, data[i], want);
    }
    memset(data, rank + 1, extent);
    MPI_Gather(data, 1, column, all, (int)bytes, MPI_UINT8_T, 0, MPI_COMM_WORLD);
    for (size_t i = 0; rank == 0 && i < size * bytes; i += 4093)
        CHECK(all[i] == i / bytes + 1, "MPI_Gather: byte %zu is %d, not %d", i, all[i], (int)(i / bytes + 1));
    free(all);
    free(data);
    MPI_Type_free(&column);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    unsigned char *data = malloc(LONG), *result = malloc(LONG), *shared, *other;
    sums(data, result);
    gaps();
    MPI_Alloc_mem(LONG, MPI_INFO_NULL, &shared);
    MPI_Alloc_mem(LONG, MPI_INFO_NULL, &other);
    sums(shared, other);
    MPI_Free_mem(other);
    MPI_Free_mem(shared);
    free(result);
    free(data);
    return end();
}
