/* extents: collectives, a window, a shared window and a file, in a job whose arenas together are longer than a
   processor's addresses. With "lock" all memory is locked first. Rank 0 prints how many KiB of address space it has, and how many
   are locked. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BYTES = 1000 };

static long kib_of(const char *name)
{
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (strncmp(line, name, strlen(name)) == 0) kib = atol(line + strlen(name) + 1);
    fclose(status);
    return kib;
}

static void require(int holds, const char *what)
{
    if (holds) return;
    printf("%s: wrong data\n", what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void alltoallv(int rank, int size)
{
    int *counts = malloc(size * sizeof *counts), *places = malloc(size * sizeof *places);
    int *out = malloc(size * sizeof *out), *in = malloc(size * sizeof *in);
    for (int i = 0; i < size; i++) {
        counts[i] = 1;
        places[i] = i;
        out[i] = rank * size + i;
    }
    MPI_Alltoallv(out, counts, places, MPI_INT, in, counts, places, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) require(in[i] == i * size + rank, "MPI_Alltoallv");
    free(counts);
    free(places);
    free(out);
    free(in);
}

static void window(int rank, int size)
{
    char *memory, mark = (char)rank;
    MPI_Win win;
    MPI_Win_allocate(BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_fence(0, win);
    MPI_Put(&mark, 1, MPI_CHAR, (rank + 1) % size, BYTES - 1, 1, MPI_CHAR, win);
    MPI_Win_fence(0, win);
    require(memory[BYTES - 1] == (char)((rank + size - 1) % size), "MPI_Put");
    MPI_Win_free(&win);
}

static void shared_window(int rank, int size)
{
    char *mine, *first;
    MPI_Win win;
    MPI_Aint bytes;
    int unit;
    MPI_Win_allocate_shared(20 << 20, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    MPI_Win_fence(0, win);
    mine[7] = (char)rank;
    MPI_Win_fence(0, win);
    MPI_Win_shared_query(win, size - 1, &bytes, &unit, &first);
    require(first[7] == (char)(size - 1), "MPI_Win_shared_query");
    MPI_Win_free(&win);
}

static void file(int rank, const char *name)
{
    char mark = (char)rank, seen;
    MPI_File file;
    MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file);
    MPI_File_write_ordered(file, &mark, 1, MPI_CHAR, MPI_STATUS_IGNORE);
    MPI_File_read_at_all(file, rank, &seen, 1, MPI_CHAR, MPI_STATUS_IGNORE);
    require(seen == mark, "MPI_File_read_at_all");
    MPI_File_close(&file);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size, one = 1, sum = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 2) mlockall(MCL_CURRENT | MCL_FUTURE);
    for (int i = 0; i < 20; i++) MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    require(sum == size, "MPI_Allreduce");
    alltoallv(rank, size);
    window(rank, size);
    if (argc < 3) shared_window(rank, size);
    file(rank, argv[1]);
    if (rank == 0) printf("address space %ld KiB, locked %ld KiB\n", kib_of("VmSize:"), kib_of("VmLck:"));
    MPI_Finalize();
    return 0;
}
