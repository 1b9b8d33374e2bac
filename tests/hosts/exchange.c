/* Exchanges messages of all lengths among all ranks for some seconds, and checks every byte: `exchange SECONDS`. Says
 * "exchanging" after the first round. Wrong data end the job with code 3. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_MAX = 300000 };

static int rank, size;
static unsigned char *out, *in;

/* The byte at a place of the message from one rank to another in a round. */
static unsigned char byte(int from, int to, int round, int place)
{
    return (unsigned char)(from * 31 + to * 17 + round * 7 + place + place / 251);
}

static void check(int right, const char *what, int round, int from)
{
    if (right)
        return;
    printf("rank %d, round %d: wrong data, %s from %d\n", rank, round, what, from);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void fill(unsigned char *to, int length, int receiver, int round)
{
    for (int i = 0; i < length; i++)
        to[i] = byte(rank, receiver, round, i);
}

static void check_bytes(const unsigned char *got, int length, int from, const char *what, int round)
{
    for (int i = 0; i < length; i++)
        check(got[i] == byte(from, rank, round, i), what, round, from);
}

/* A message to the rank at a distance, and one from the rank that far the other way. */
static void ring(int length, int distance, int round)
{
    int to = (rank + distance) % size, from = (rank + size - distance) % size, count;
    MPI_Status status;
    fill(out, length, to, round);
    memset(in, 0, (size_t)length);
    MPI_Sendrecv(out, length, MPI_BYTE, to, round, in, LENGTH_MAX, MPI_BYTE, from, round, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    check(count == length, "length", round, from);
    check_bytes(in, length, from, "message", round);
}

static void all_to_all(int length, int round)
{
    for (int to = 0; to < size; to++)
        fill(out + to * length, length, to, round);
    MPI_Alltoall(out, length, MPI_BYTE, in, length, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < size; from++)
        check_bytes(in + from * length, length, from, "all-to-all", round);
}

static void sum(int round)
{
    double mine[64], all[64];
    for (int i = 0; i < 64; i++)
        mine[i] = rank * i + round;
    MPI_Allreduce(mine, all, 64, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < 64; i++)
        check(all[i] == size * (size - 1) / 2 * i + (double)size * round, "sum", round, -1);
}

int main(int argc, char **argv)
{
    static const int lengths[] = { 0, 1, 8, 1000, 8192, 20000, 70000, LENGTH_MAX };
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    int rounds = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    out = malloc((size_t)LENGTH_MAX * size);
    in = malloc((size_t)LENGTH_MAX * size);
    double until = MPI_Wtime() + seconds;
    for (int goes_on = 1; goes_on; rounds++) {
        ring(lengths[rounds % 8], 1 + rounds % size, rounds);
        all_to_all(lengths[rounds / 3 % 6], rounds);
        sum(rounds);
        if (rank == 0 && rounds == 0) {
            printf("exchanging\n");
            fflush(stdout);
        }
        goes_on = MPI_Wtime() < until;
        MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("%d ranks, all right in %d rounds\n", size, rounds);
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
