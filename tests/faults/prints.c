/* Prints what its argument says. crash: two lines, then it waits for a line of input and is killed. full: with a buffer
   that it has set itself. universe: the value of MPI_UNIVERSE_SIZE. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "full") == 0)
        setvbuf(stdout, NULL, _IOFBF, 0);
    if (strcmp(what, "universe") == 0) {
        int *size, flag;
        MPI_Init(&argc, &argv);
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &size, &flag);
        printf("%d\n", flag ? *size : 0);
        return MPI_Finalize();
    }
    printf("a line\n");
    MPI_Init(&argc, &argv);
    printf("a line before the end\n");
    if (strcmp(what, "crash") == 0 && getchar() == EOF)
        return 1;
    raise(SIGKILL);
    return 0;
}
