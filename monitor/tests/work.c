/* A job to be watched: each rank joins an allreduce and sends 64 KiB around a ring, over and over for a number of seconds, or
 * until a file is there. The last rank computes longest, so that the others wait for it. Prints how many bytes it has sent, and
 * leaves MPI once the third argument, too, is there. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { COMMS = 8 };

int main(int argc, char **argv)
{
    static char out[65536], in[65536];
    int rank, size, goes_on = 1;
    double seconds = argc > 1 ? atof(argv[1]) : 10;
    long long sent = 0;
    MPI_Comm comms[COMMS];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    /* Some comms of the ring get the handles of comms of one rank that were freed. */
    for (int i = 0; i < COMMS; i++) {
        MPI_Comm_dup(MPI_COMM_SELF, &comms[i]);
        MPI_Sendrecv(out, 0, MPI_BYTE, 0, 0, in, 0, MPI_BYTE, 0, 0, comms[i], MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < COMMS; i++) MPI_Comm_disconnect(&comms[i]);
    for (int i = 0; i < COMMS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (double start = MPI_Wtime(); goes_on;) {
        int mine = MPI_Wtime() - start < seconds && (argc < 3 || access(argv[2], F_OK));
        usleep(rank == size - 1 ? 100000 : 1000);
        MPI_Allreduce(&mine, &goes_on, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
        MPI_Sendrecv(out, sizeof out, MPI_BYTE, (rank + 1) % size, 0, in, sizeof in, MPI_BYTE, (rank + size - 1) % size, 0,
                     comms[sent / sizeof out % COMMS], MPI_STATUS_IGNORE);
        sent += sizeof out;
    }
    printf("%d %lld\n", rank, sent);
    fflush(stdout);
    /* The rest of a send that the network has taken may proceed only in calls of MPI. */
    while (argc > 3 && access(argv[3], F_OK)) {
        int has_message;
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &has_message, MPI_STATUS_IGNORE);
        usleep(10000);
    }
    for (int i = 0; i < COMMS; i++) MPI_Comm_free(&comms[i]);
    MPI_Finalize();
    return 0;
}
