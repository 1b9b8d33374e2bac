/* Every kind of operation that proxies carry, once each on many ranks, with data that differ by place: `large [ROUNDS]`. Rank 0 says what
 * is done and how long it took. Wrong data end the job with code 3. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 96, VARIED_MAX = 200, VECTOR = 100000, SUMS = 12000, MESSAGE = 70000, NEIGHBOURS = 6 };

static int rank, size, round_number;
static double begun;

/* The byte at a place of what one rank gives another. */
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

static void told(const char *what)
{
    double now = MPI_Wtime();
    if (rank == 0)
        printf("%s: %.1f s\n", what, now - begun);
    fflush(stdout);
    begun = now;
}

static void all_to_all(unsigned char *out, unsigned char *in)
{
    MPI_Request request;
    for (int to = 0; to < size; to++)
        for (int i = 0; i < BLOCK; i++)
            out[to * BLOCK + i] = byte(rank, to, i);
    MPI_Ialltoall(out, BLOCK, MPI_BYTE, in, BLOCK, MPI_BYTE, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int from = 0; from < size; from++)
        for (int i = 0; i < BLOCK; i++)
            check(in[from * BLOCK + i] == byte(from, rank, i), "all-to-all", from);
    told("alltoall");
}

/* How much one rank gives another; nothing, sometimes. */
static int length(int from, int to)
{
    return (from * 7 + to * 13 + round_number) % VARIED_MAX;
}

static void all_to_all_varied(unsigned char *out, unsigned char *in)
{
    MPI_Request request;
    int *counts = malloc(4 * size * sizeof *counts);
    int *places = counts + size, *counts_in = counts + 2 * size, *places_in = counts + 3 * size;
    for (int other = 0, at = 0, at_in = 0; other < size; other++) {
        counts[other] = length(rank, other), counts_in[other] = length(other, rank);
        places[other] = at, places_in[other] = at_in;
        for (int i = 0; i < counts[other]; i++)
            out[at + i] = byte(rank, other, i);
        at += counts[other], at_in += counts_in[other];
    }
    MPI_Ialltoallv(out, counts, places, MPI_BYTE, in, counts_in, places_in, MPI_BYTE, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int from = 0; from < size; from++)
        for (int i = 0; i < counts_in[from]; i++)
            check(in[places_in[from] + i] == byte(from, rank, i), "all-to-all of several lengths", from);
    free(counts);
    told("alltoallv");
}

static void broadcast(unsigned char *in)
{
    MPI_Request request;
    int root = (round_number * 37 + 5) % size;
    for (int i = 0; i < VECTOR; i++)
        in[i] = rank == root ? byte(root, 0, i) : 0;
    MPI_Ibcast(in, VECTOR, MPI_BYTE, root, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < VECTOR; i++)
        check(in[i] == byte(root, 0, i), "broadcast", root);
    told("bcast");
}

static void sums(double *mine, double *all)
{
    MPI_Request request;
    for (int i = 0; i < SUMS; i++)
        mine[i] = (double)rank * i + round_number;
    MPI_Iallreduce(mine, all, SUMS, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < SUMS; i++)
        check(all[i] == (double)size * (size - 1) / 2 * i + (double)size * round_number, "sum", -1);
    told("allreduce");
}

/* As a stencil in three dimensions: neighbours at three distances, both ways. */
static void neighbours(unsigned char *out, unsigned char *in)
{
    int by = 1, distances[NEIGHBOURS];
    MPI_Request requests[2 * NEIGHBOURS];
    while ((by + 1) * (by + 1) * (by + 1) <= size)
        by++;
    for (int i = 0; i < 3; i++) {
        int distance = (i == 0 ? 1 : i == 1 ? by : by * by) % size;
        distances[2 * i] = distance, distances[2 * i + 1] = (size - distance) % size;
    }
    for (int i = 0; i < NEIGHBOURS; i++)
        MPI_Irecv(in + i * MESSAGE, MESSAGE, MPI_BYTE, (rank + size - distances[i]) % size, i, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < NEIGHBOURS; i++) {
        int to = (rank + distances[i]) % size;
        for (int place = 0; place < MESSAGE; place++)
            out[i * MESSAGE + place] = byte(rank, to + i, place);
        MPI_Isend(out + i * MESSAGE, MESSAGE, MPI_BYTE, to, i, MPI_COMM_WORLD, &requests[NEIGHBOURS + i]);
    }
    MPI_Waitall(2 * NEIGHBOURS, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < NEIGHBOURS; i++) {
        int from = (rank + size - distances[i]) % size;
        for (int place = 0; place < MESSAGE; place++)
            check(in[i * MESSAGE + place] == byte(from, rank + i, place), "message", from);
    }
    told("isend and irecv");
}

/* The largest memory of a rank, in MB (PSS: a shared page counts in part). */
static double memory(void)
{
    char line[256];
    double kib = 0, most = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "Pss: %lf", &kib);
    if (file)
        fclose(file);
    MPI_Reduce(&kib, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return most * 1024 / 1e6;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    begun = MPI_Wtime();
    size_t most = NEIGHBOURS * MESSAGE > size * VARIED_MAX ? NEIGHBOURS * MESSAGE : (size_t)size * VARIED_MAX;
    unsigned char *out = malloc(most), *in = malloc(most);
    double *mine = malloc(2 * SUMS * sizeof *mine);
    told("started");
    for (; round_number < rounds; round_number++) {
        broadcast(in);
        sums(mine, mine + SUMS);
        neighbours(out, in);
        all_to_all_varied(out, in);
        all_to_all(out, in);
    }
    double mb = memory();
    if (rank == 0)
        printf("%d ranks, all right in %d rounds, at most %.1f MB a rank\n", size, rounds, mb);
    free(out);
    free(in);
    free(mine);
    MPI_Finalize();
    return 0;
}
