/* SPDX-License-Identifier: BSD-3-Clause */
/* How programs end: by a return from main, which completes what is pending, by an error, and by an exit for all.  argument: which */
#include <mpi.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int me, n;
static long word = -1;

/* This function runs after the end of OpenSHMEM, since it is registered before. */
static void look(void) {
    int is = -1;
    shmem_query_initialized(&is);
    if (is != 0 || word != (me + n - 1) % n) fprintf(stderr, "PE %d: %ld, %d\n", me, word, is), _exit(9);
}

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "return";
    int is_old = !strncmp(which, "old", 3);
    if (strstr(which, "return")) atexit(look);
    if (!strcmp(which, "mpi return")) MPI_Init(NULL, NULL);
    if (is_old) start_pes(0);
    else shmem_init();
    me = shmem_my_pe(), n = shmem_n_pes();
    if (strstr(which, "return")) {
        static long mine;
        mine = me;
        shmem_long_put_nbi(&word, &mine, 1, (me + 1) % n);
        if (!strcmp(which, "mpi return")) MPI_Finalize();
        return 0;
    }
    if (!strcmp(which, "child")) {
        int status = -1;
        pid_t child = fork();
        if (child == 0) exit(0);
        return waitpid(child, &status, 0) != child || status != 0;
    }
    /* One PE ends while the others wait for it. */
    if (me == 0) {
        if (!strcmp(which, "error")) exit(3);
        shmem_global_exit(strstr(which, "0") ? 0 : 5);
    }
    shmem_barrier_all();
    fprintf(stderr, "PE %d: a barrier without PE 0\n", me);
    return 0;
}
