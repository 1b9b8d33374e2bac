/* Messages and collectives of more than 2^31 bytes and elements on two ranks, if the machine has the memory.
   ranks: 2   ways: plain   when: more */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

static const MPI_Count N = ((MPI_Count)3 << 30) + 5;

/* A byte that depends on its index, computed cheaply. */
static unsigned char at(MPI_Count place)
{
    return (unsigned char)(place >> 20 ^ place * 7);
}

static void mark(unsigned char *data, MPI_Count bytes)
{
    for (MPI_Count i = 0; i < bytes; i += 4093) data[i] = at(i);
    data[bytes - 1] = at(bytes - 1);
}

static void check(const unsigned char *data, MPI_Count bytes, const char *what)
{
    checked++;
    for (MPI_Count i = 0; i < bytes; i += 4093)
        if (data[i] != at(i)) {
            check_failed(__FILE__, __LINE__, "%s: byte %lld is %d, not %d", what, (long long)i, data[i], at(i));
            return;
        }
    if (bytes == N) CHECK(data[N - 1] == at(N - 1), "%s: the last byte is %d", what, data[N - 1]);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    /* Both ranks have a buffer, and the same amount of memory must be left to the machine. */
    long kilobytes = 0;
    char line[128];
    FILE *facts = fopen("/proc/meminfo", "r");
    while (facts && fgets(line, sizeof line, facts) && sscanf(line, "MemAvailable: %ld", &kilobytes) != 1) continue;
    if (facts) fclose(facts);
    int enough = size == 2 && kilobytes > (3 * N >> 10);
    MPI_Bcast(&enough, 1, MPI_INT, 0, MPI_COMM_WORLD);
    CHECK(1, "%s", "");
    if (!enough) {
        if (rank == 0) fprintf(stderr, "large: %ld kB of free memory are too few\n", kilobytes);
        return end();
    }
    unsigned char *data = grab(N);
    MPI_Status status;
    MPI_Count count;
    int small;
    if (rank == 0) mark(data, N);
    /* Point to point: by MPI_Send_c, and with a datatype whose count fits an int. */
    if (rank == 0) {
        MPI_Send_c(data, N, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
    } else {
        MPI_Recv_c(data, N, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &status);
        MPI_Get_count_c(&status, MPI_BYTE, &count);
        EQUAL(count, N, "bytes received");
        MPI_Get_count(&status, MPI_BYTE, &small);
        EQUAL(small, MPI_UNDEFINED, "a count that an int cannot hold");
        MPI_Get_elements_c(&status, MPI_BYTE, &count);
        EQUAL(count, N, "elements received");
        check(data, N, "send");
        memset(data, 0, N);
    }
    MPI_Datatype mega, column;
    MPI_Type_contiguous(1 << 20, MPI_BYTE, &mega);
    MPI_Type_commit(&mega);
    int blocks = (int)(N >> 20);
    if (rank == 0) {
        MPI_Send(data, blocks, mega, 1, 2, MPI_COMM_WORLD);
    } else {
        MPI_Request request;
        MPI_Irecv(data, blocks, mega, 0, 2, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, &status);
        MPI_Get_count(&status, mega, &small);
        EQUAL(small, blocks, "blocks received");
        check(data, (MPI_Count)blocks << 20, "blocks");
    }
    /* A datatype that spans more than 2^31 bytes: a byte of every 4093. */
    MPI_Count places = N / 4093;
    MPI_Type_create_hvector_c(places, 1, 4093, MPI_BYTE, &column);
    MPI_Type_commit(&column);
    MPI_Count lb, extent;
    MPI_Type_get_extent_c(column, &lb, &extent);
    EQUAL(extent, (places - 1) * 4093 + 1, "extent");
    if (rank == 0) {
        MPI_Send_c(data, 1, column, 1, 3, MPI_COMM_WORLD);
    } else {
        memset(data, 0, N);
        MPI_Recv_c(data, 1, column, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(data[1] == 0 && data[4094] == 0, "gaps were written");
        data[N - 1] = at(N - 1);
        for (MPI_Count i = places * 4093; i < N; i += 4093) data[i] = at(i);
        check(data, N, "column");
    }
    /* Collectives. */
    if (rank == 1) memset(data, 0, N);
    MPI_Bcast_c(data, N, MPI_BYTE, 0, MPI_COMM_WORLD);
    check(data, N, "bcast");
    MPI_Count half = N / 2;
    memset(data + (rank == 0 ? half : 0), 0, half);
    MPI_Allgather_c(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, half, MPI_BYTE, MPI_COMM_WORLD);
    check(data, 2 * half, "allgather");
    /* More than 2^31 elements in a reduction. */
    memset(data, rank + 1, N);
    MPI_Allreduce_c(MPI_IN_PLACE, data, ((MPI_Count)1 << 31) + 3, MPI_UINT8_T, MPI_SUM, MPI_COMM_WORLD);
    EQUAL(data[0], 3, "the first sum");
    EQUAL(data[((MPI_Count)1 << 31) + 2], 3, "the last sum");
    EQUAL(data[((MPI_Count)1 << 31) + 3], rank + 1, "what lies behind");
    MPI_Type_free(&column);
    MPI_Type_free(&mega);
    free(data);
    return end();
}
