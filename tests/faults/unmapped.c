/* unmapped WHY CALL FOLDER: after MPI_Init no rank (`descriptor`: only rank 1) can map its peers' memory, which the first
   collective needs: the program has closed all descriptors (`descriptors`), or has no address space (`space`) or no
   maps (`maps`) left. `window`: what a collective needs is mapped before, and the memory that rank 1 lacks is the window's. Each rank prints the error's class and text, and waits in FOLDER for the others. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <malloc.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static void use_up(const char *why, int me)
{
    /* The heap has enough memory, so only maps fail. */
    mallopt(M_MMAP_THRESHOLD, 8 << 20);
    mallopt(M_TOP_PAD, 16 << 20);
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    void *volatile room = malloc(1 << 20);
    free(room);
    if (strcmp(why, "descriptors") == 0 || (strcmp(why, "descriptor") == 0 && me == 1))
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
    if (strcmp(why, "space") == 0) {
        long pages = 0;
        FILE *file = fopen("/proc/self/statm", "r");
        if (file == NULL || fscanf(file, "%ld", &pages) != 1)
            exit(3);
        fclose(file);
        struct rlimit limit = {(rlim_t)pages * 4096 + 1000000, RLIM_INFINITY};
        setrlimit(RLIMIT_AS, &limit);
    }
    if (strcmp(why, "maps") == 0)
        for (long at = 0; at < 2000000; at++)
            if (mmap(NULL, 4096, at % 2 ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
                break;
}

int main(int argc, char **argv)
{
    static char in[4000000], out[4000000], text[MPI_MAX_ERROR_STRING], name[4096];
    int me, size, one = 1, sum = 0, class = MPI_SUCCESS, length, code = MPI_SUCCESS;
    MPI_Request request;
    MPI_Win win;
    void *memory;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (argc != 4)
        return 2;
    const char *call = argv[2];
    for (int i = 0; strcmp(call, "window") == 0 && i < 20; i++)
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    use_up(argv[1], me);
    if (strcmp(call, "window") == 0)
        code = MPI_Win_allocate(me == 1 ? 0 : 64 << 20, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    if (strcmp(call, "allreduce") == 0)
        code = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (strcmp(call, "iallreduce") == 0) {
        code = MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        code = code != MPI_SUCCESS ? code : MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    if (strcmp(call, "barrier") == 0)
        code = MPI_Barrier(MPI_COMM_WORLD);
    if (strcmp(call, "bcast") == 0)
        code = MPI_Bcast(in, sizeof in, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (strcmp(call, "alltoall") == 0)
        code = MPI_Alltoall(in, 10000, MPI_CHAR, out, 10000, MPI_CHAR, MPI_COMM_WORLD);
    if (code != MPI_SUCCESS) {
        MPI_Error_class(code, &class);
        MPI_Error_string(code, text, &length);
    }
    printf("rank %d: %s: %s\n", me, class == MPI_ERR_NO_MEM ? "NO_MEM" : class == MPI_ERR_OTHER ? "OTHER" : "none", text);
    fflush(stdout);
    for (int rank = 0; rank < size; rank++) {
        snprintf(name, sizeof name, "%s/%d", argv[3], rank == 0 ? me : (me + rank) % size);
        if (rank == 0)
            fclose(fopen(name, "w"));
        while (access(name, F_OK) != 0)
            usleep(1000);
    }
    _exit(9);
}
