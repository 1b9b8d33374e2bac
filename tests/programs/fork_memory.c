/* What a forked child writes to memory of MPI_Alloc_mem and of windows stays its own; and MPI_Alloc_mem obeys
   mpi_minimum_memory_alignment (MPI 5.0, section 9.2).  ranks: 1 2  ways: plain proxy malloc */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void child_writes(volatile char *memory, size_t bytes, const char *what)
{
    memory[0] = memory[bytes - 1] = 1;
    pid_t child = fork();
    if (child == 0) {
        int saw = memory[0] == 1 && memory[bytes - 1] == 1;
        memory[0] = memory[bytes - 1] = 2;
        _exit(saw && memory[0] == 2 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(status == 0, "%s: the child ended with %d", what, status);
    CHECK(memory[0] == 1 && memory[bytes - 1] == 1, "%s: the parent sees the child's writes", what);
}

static void forks(void)
{
    const size_t sizes[] = {1000, 40 << 20};
    for (int i = 0; i < 2; i++) {
        char *memory;
        MPI_Alloc_mem((MPI_Aint)sizes[i], MPI_INFO_NULL, &memory);
        child_writes(memory, sizes[i], "MPI_Alloc_mem");
        MPI_Free_mem(memory);
        MPI_Win win;
        MPI_Win_allocate((MPI_Aint)sizes[i], 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
        child_writes(memory, sizes[i], "MPI_Win_allocate");
        MPI_Win_free(&win);
        memory = malloc(sizes[i]);
        child_writes(memory, sizes[i], "malloc");
        free(memory);
    }
}

static void alignment(void)
{
    for (long align = 1; align <= 1 << 21; align *= 4) {
        char text[32], *memory;
        MPI_Info info;
        snprintf(text, sizeof text, "%ld", align);
        MPI_Info_create(&info);
        MPI_Info_set(info, "mpi_minimum_memory_alignment", text);
        for (int bytes = 1; bytes < 100000; bytes *= 37) {
            MPI_Alloc_mem(bytes, info, &memory);
            CHECK((uintptr_t)memory % (uintptr_t)align == 0, "%d bytes at %p, not at a multiple of %ld", bytes, (void *)memory, align);
            memory[bytes - 1] = 1;
            MPI_Free_mem(memory);
        }
        MPI_Info_free(&info);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    forks();
    alignment();
    MPI_Finalize();
    return 0;
}
