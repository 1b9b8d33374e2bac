/* Partitioned messages, epochs of windows, rooted collectives, and those of parts of MPI_COMM_WORLD, for the trace. Rank 0 is late everywhere. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

enum { PARTITIONS = 4, BYTES = 1 << 15, ROUNDS = 3, LATE_US = 20000 };

static int rank, size;

static void late(void)
{
    if (rank == 0) usleep(LATE_US);
}

static void partitions(void)
{
    char *out = calloc(PARTITIONS, BYTES), *in = calloc(PARTITIONS, BYTES);
    MPI_Request requests[2];
    int flag;
    MPI_Psend_init(out, PARTITIONS, BYTES, MPI_CHAR, (rank + 1) % size, 7, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Precv_init(in, PARTITIONS, BYTES, MPI_CHAR, (rank + size - 1) % size, 7, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Startall(2, requests);
        for (int at = PARTITIONS - 1; at > 0; at--) MPI_Pready(at, requests[0]);
        late();
        MPI_Pready(0, requests[0]);
        MPI_Parrived(requests[1], 2, &flag);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    free(out), free(in);
}

static void windows(void)
{
    int *memory, one = 1, first = 0, second = 1;
    MPI_Win win;
    MPI_Group world, other;
    MPI_Win_allocate(sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_set_name(win, "table");
    *memory = 0;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, rank == 0 ? &second : &first, &other);
    for (int round = 0; round < ROUNDS; round++) {
        late();
        MPI_Win_fence(0, win);
        MPI_Put(&one, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, win);
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
        late();
        if (rank == 0) {
            MPI_Win_post(other, 0, win);
            MPI_Win_wait(win);
        } else if (rank == 1) {
            MPI_Win_start(other, 0, win);
            MPI_Put(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
            MPI_Win_complete(win);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank > 0) usleep(LATE_US / 4);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
        late();
        MPI_Win_unlock(1, win);
        MPI_Win_lock_all(0, win);
        MPI_Win_unlock_all(win);
    }
    MPI_Group_free(&world);
    MPI_Group_free(&other);
    MPI_Win_free(&win);
}

static void rooted(void)
{
    int one = 1, sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        late();
        MPI_Bcast(&one, 1, MPI_INT, 0, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        late();
        MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, 1, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        late();
        MPI_Scan(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
}

/* Ranks 0 and 1 have a comm, and rank 2 has one alone, whose calls have the same names. Then rank r needs only rank
   r - 1. */
static void parts(void)
{
    int one = 1, sum = 0, below = rank - 1, above = rank + 1;
    MPI_Comm part, line;
    MPI_Request requests[2];
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &part);
    for (int call = 0; call < 30; call++) {
        if (rank % 2 == 0) usleep(rank == 0 ? LATE_US / 10 : LATE_US / 9);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, part);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, rank > 0, &below, MPI_UNWEIGHTED, rank < size - 1, &above, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &line);
    late();
    MPI_Neighbor_allgather(&one, 1, MPI_INT, &sum, 1, MPI_INT, line);
    /* Each rank starts the two in another order. */
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    MPI_Start(&requests[rank % 2]);
    late();
    MPI_Start(&requests[1 - rank % 2]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPI_Comm_free(&line);
    MPI_Comm_free(&part);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    partitions();
    windows();
    rooted();
    parts();
    MPI_Finalize();
    return 0;
}
