/* crashes WAY: rank 1 ends in the named way (own: with a handler of the program's; fork: its child crashes), and the others
   wait. All of its 32 MiB of shared memory is in use. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static int deep(int level, volatile int *where)
{
    return level == 0 ? *where : deep(level - 1, where) + 1;
}

static int endless(volatile char *before)
{
    volatile char here[4096];
    here[0] = before ? before[0] : 1;
    if (here[0] == 0) return 0;
    return endless(here) + here[0];
}

static void *in_a_thread(void *unused)
{
    return (void *)(long)deep(3, unused);
}

static void own(int sent)
{
    _exit(sent == SIGSEGV ? 7 : 8);
}

int main(int argc, char **argv)
{
    int rank;
    char *shared;
    const char *way = argc > 1 ? argv[1] : "segv";
    if (strcmp(way, "own") == 0) signal(SIGSEGV, own);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Alloc_mem(32 << 20, MPI_INFO_NULL, &shared);
    memset(shared, 1, 32 << 20);
    if (rank == 1) {
        pthread_t thread;
        int child = strcmp(way, "fork") == 0 ? fork() : -1;
        if (strcmp(way, "segv") == 0 || strcmp(way, "own") == 0 || child == 0) return deep(3, NULL);
        if (child > 0) waitpid(child, NULL, 0);
        if (strcmp(way, "overflow") == 0) return endless(NULL);
        if (strcmp(way, "thread") == 0 && pthread_create(&thread, NULL, in_a_thread, NULL) == 0) pthread_join(thread, NULL);
        if (strcmp(way, "abort") == 0) abort();
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
