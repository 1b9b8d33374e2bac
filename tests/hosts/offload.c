/* Nonblocking and persistent collectives that somebody else may carry out while the ranks make no MPI call, for some
 * seconds: `offload SECONDS [PAUSE_MS]`, a pause between start and wait. All data are checked. Says "offloading" after the
 * first round, and at last how often MPI_Test found an operation complete that had not been waited for. Wrong data end the
 * job with code 3. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCK = 40000, SUMS = 30000, OUTSTANDING = 6, GAPS = 700 };

static int rank, size, round_number;

static unsigned char byte(int from, int to, int place)
{
    return (unsigned char)(from * 31 + to * 17 + round_number * 7 + place + place / 251);
}

static void check(int right, const char *what, int from)
{
    if (right)
        return;
    printf("rank %d, round %d: wrong data, %s from %d\n", rank, round_number, what, from);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void pause_ms(int ms)
{
    struct timespec time = { ms / 1000, ms % 1000 * 1000000L };
    nanosleep(&time, NULL);
}

/* An all-to-all of blocks, in memory of malloc or of MPI_Alloc_mem. */
struct blocks {
    unsigned char *out, *in;
};

static void fill(struct blocks *blocks)
{
    memset(blocks->in, 0, (size_t)BLOCK * size);
    for (int to = 0; to < size; to++)
        for (int i = 0; i < BLOCK; i++)
            blocks->out[to * BLOCK + i] = byte(rank, to, i);
}

static void check_blocks(struct blocks *blocks, const char *what)
{
    for (int from = 0; from < size; from++)
        for (int i = 0; i < BLOCK; i++)
            check(blocks->in[from * BLOCK + i] == byte(from, rank, i), what, from);
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    int ms = argc > 2 ? atoi(argv[2]) : 20, early = 0, all = 0;
    struct blocks heap, mapped;
    MPI_Comm comms[OUTSTANDING];
    MPI_Request requests[4 + OUTSTANDING];
    MPI_Datatype thirds;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    heap.out = malloc((size_t)BLOCK * size);
    heap.in = malloc((size_t)BLOCK * size);
    MPI_Alloc_mem((MPI_Aint)BLOCK * size, MPI_INFO_NULL, &mapped.out);
    MPI_Alloc_mem((MPI_Aint)BLOCK * size, MPI_INFO_NULL, &mapped.in);
    double *mine = malloc(SUMS * sizeof *mine), *sums = malloc(SUMS * sizeof *sums);
    static int gaps[3 * GAPS], small[OUTSTANDING][2];
    MPI_Type_create_resized(MPI_INT, 0, 3 * sizeof(int), &thirds);
    MPI_Type_commit(&thirds);
    for (int i = 0; i < OUTSTANDING; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    MPI_Allreduce_init(mine, sums, SUMS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    double until = MPI_Wtime() + seconds;
    for (int goes_on = 1; goes_on; round_number++) {
        int root = round_number % size, next = (rank + 1) % size, before = (rank + size - 1) % size, told = -1;
        fill(&heap);
        fill(&mapped);
        for (int i = 0; i < SUMS; i++)
            mine[i] = rank * i + round_number;
        for (int i = 0; i < GAPS; i++)
            gaps[3 * i] = rank == root ? root + i + round_number : -1, gaps[3 * i + 1] = 7;
        MPI_Start(&requests[0]);
        MPI_Ialltoall(heap.out, BLOCK, MPI_BYTE, heap.in, BLOCK, MPI_BYTE, MPI_COMM_WORLD, &requests[1]);
        MPI_Ialltoall(mapped.out, BLOCK, MPI_BYTE, mapped.in, BLOCK, MPI_BYTE, MPI_COMM_WORLD, &requests[2]);
        MPI_Ibcast(gaps, GAPS, thirds, root, MPI_COMM_WORLD, &requests[3]);
        for (int i = 0; i < OUTSTANDING; i++) {
            small[i][0] = rank + i;
            MPI_Iallreduce(&small[i][0], &small[i][1], 1, MPI_INT, MPI_MAX, comms[i], &requests[4 + i]);
        }
        /* The ranks' own messages go their own way. */
        MPI_Sendrecv(&rank, 1, MPI_INT, next, 5, &told, 1, MPI_INT, before, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check(told == before, "message", before);
        pause_ms(ms);
        for (int i = 0; i < 4 + OUTSTANDING; i++, all++) {
            int flag;
            MPI_Request_get_status(requests[i], &flag, MPI_STATUS_IGNORE);
            early += flag;
        }
        MPI_Waitall(4 + OUTSTANDING, requests, MPI_STATUSES_IGNORE);
        check_blocks(&heap, "all-to-all of malloc");
        check_blocks(&mapped, "all-to-all of MPI_Alloc_mem");
        for (int i = 0; i < SUMS; i++)
            check(sums[i] == size * (size - 1) / 2 * (double)i + (double)size * round_number, "sum", -1);
        for (int i = 0; i < GAPS; i++)
            check(gaps[3 * i] == root + i + round_number && gaps[3 * i + 1] == 7, "gaps", root);
        for (int i = 0; i < OUTSTANDING; i++)
            check(small[i][1] == size - 1 + i, "maximum", -1);
        if (rank == 0 && round_number == 0) {
            printf("offloading\n");
            fflush(stdout);
        }
        goes_on = MPI_Wtime() < until;
        MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("%d ranks, all right in %d rounds, early %d of %d\n", size, round_number, early, all);
    MPI_Request_free(&requests[0]);
    for (int i = 0; i < OUTSTANDING; i++)
        MPI_Comm_free(&comms[i]);
    MPI_Type_free(&thirds);
    MPI_Free_mem(mapped.out);
    MPI_Free_mem(mapped.in);
    free(heap.out);
    free(heap.in);
    free(mine);
    free(sums);
    MPI_Finalize();
    return 0;
}
