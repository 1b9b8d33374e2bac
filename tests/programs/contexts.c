/* Messages of communicators that share a process never match, however the communicators were made.
   ranks: 3 8   env: OUTBOARD_SPAWN_RANKS_MAX=4 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

/* Each rank has sent its number on its own comm of `comms`, all with the same tag. Rank 0 receives from any source on each in
   turn. */
static void apart(const MPI_Comm *comms, int place, const char *what)
{
    if (rank > 0) MPI_Send(&rank, 1, MPI_INT, place, 7, comms[0]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int from = 1; rank == 0 && from < size; from++) {
        int got = -1, extra = 0;
        MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 7, comms[from], MPI_STATUS_IGNORE);
        CHECK(got == from, "on the %s with rank %d came the message of rank %d", what, from, got);
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comms[from], &extra, MPI_STATUS_IGNORE);
        EQUAL(extra, 0, "a second message");
    }
}

/* Rank 0 makes an intercommunicator with every other rank, each from MPI_COMM_SELF. Its n-th child of
   MPI_COMM_SELF goes with the (size - n)-th of rank n. So any two of these would have one context if
   MPI_COMM_SELF had the same context in every process. */
static void from_self(void)
{
    MPI_Comm *inter = grab(size * sizeof *inter), *merged = grab(size * sizeof *merged);
    MPI_Comm *spare = grab(size * sizeof *spare);
    int spares = rank ? size - 1 - rank : 0, sum, many;
    for (int i = 0; i < spares; i++) MPI_Comm_dup(MPI_COMM_SELF, &spare[i]);
    int first = rank ? 0 : 1, last = rank ? 0 : size - 1;
    for (int i = first; i <= last; i++) {
        MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, i, 3, &inter[i]);
        MPI_Intercomm_merge(inter[i], rank > 0, &merged[i]);
    }
    apart(inter, 0, "intercommunicator");
    apart(merged, 0, "merged comm");
    for (int i = first; i <= last; i++) {
        MPI_Comm_size(merged[i], &many);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, merged[i]);
        EQUAL(many, 2, "the merged comm's size");
        EQUAL(sum, rank ? rank : i, "the sum over the merged comm");
        MPI_Comm_free(&inter[i]), MPI_Comm_free(&merged[i]);
    }
    for (int i = 0; i < spares; i++) MPI_Comm_free(&spare[i]);
    free(inter), free(merged), free(spare);
}

/* The first comm of a split of MPI_COMM_WORLD, whatever the color, and the intercommunicator with the first world
   that is spawned. */
static void spawned(char *program)
{
    MPI_Comm colored, child;
    int flag, got = -1;
    MPI_Comm_split(MPI_COMM_WORLD, 2, rank, &colored);
    MPI_Comm_spawn(program, MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &child, MPI_ERRCODES_IGNORE);
    if (rank == 0) {
        MPI_Probe(0, 7, child, MPI_STATUS_IGNORE);
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, colored, &flag, MPI_STATUS_IGNORE);
        EQUAL(flag, 0, "the child's message on another comm");
        MPI_Recv(&got, 1, MPI_INT, 0, 7, child, MPI_STATUS_IGNORE);
        EQUAL(got, 77, "what the child sent");
    }
    MPI_Comm_disconnect(&child);
    MPI_Comm_free(&colored);
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    begin(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        int sent = 77;
        MPI_Send(&sent, 1, MPI_INT, 0, 7, parent);
        MPI_Comm_disconnect(&parent);
        MPI_Finalize();
        return 0;
    }
    spawned(argv[0]);
    from_self();
    return end();
}
