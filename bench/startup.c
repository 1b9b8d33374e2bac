/* The cost of starting: time in MPI_Init and MPI_Finalize, time of the first messages, memory per rank. It
   does not use bench.h, because it measures what happens before MPI_Init returns and after MPI_Finalize
   begins. `outboard bench`, which starts it, takes the job's wall time with the launcher. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static double clock_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * t.tv_sec + 1e-6 * t.tv_nsec;
}

/* A line of /proc/self/smaps_rollup in KiB. Pss divides a shared page among its users, so the sum over the ranks is the
   memory of the job. */
static double memory_kib(const char *line)
{
    char text[256];
    double kib = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(text, sizeof text, file))
        if (strncmp(text, line, strlen(line)) == 0) sscanf(text + strlen(line), " %lf", &kib);
    if (file) fclose(file);
    return kib;
}

int main(int argc, char **argv)
{
    int json = argc > 1 && strcmp(argv[1], "--json") == 0;
    if (argc > 1 && !json) {
        printf("usage: %s [--json]      (under mpirun)\n", argv[0]);
        return strcmp(argv[1], "--help") != 0;
    }
    double before_kib = memory_kib("Pss:"), began = clock_ms();
    MPI_Init(&argc, &argv);
    double init = clock_ms() - began, init_kib = memory_kib("Pss:") - before_kib;
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* A message from each rank to each other rank, which makes all connections. */
    char token[64] = {0}, tokens[64];
    began = clock_ms();
    for (int shift = 0; shift < size; shift++)
        MPI_Sendrecv(token, sizeof token, MPI_CHAR, (rank + shift) % size, 0, tokens, sizeof tokens, MPI_CHAR,
                     (rank + size - shift) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double all = clock_ms() - began, all_kib = memory_kib("Pss:") - before_kib;
    double mine[4] = {init, all, init_kib, all_kib}, most[4];
    MPI_Reduce(mine, most, 4, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    began = clock_ms();
    MPI_Finalize();
    double finalize = clock_ms() - began;
    if (rank == 0 && json)
        printf("{\"test\": \"startup\", \"ranks\": %d, \"init_ms\": %.3f, \"all_to_all_ms\": %.3f, \"finalize_ms\": %.3f, "
               "\"init_kib\": %.0f, \"all_to_all_kib\": %.0f}\n",
               size, most[0], most[1], finalize, most[2], most[3]);
    else if (rank == 0)
        printf("# startup, %d ranks\nMPI_Init %.2f ms, a message to every rank %.2f ms, MPI_Finalize %.2f ms\n"
               "memory per rank (Pss, the largest): %.0f KiB after MPI_Init, %.0f KiB after a message to every rank\n",
               size, most[0], most[1], finalize, most[2], most[3]);
    return 0;
}
