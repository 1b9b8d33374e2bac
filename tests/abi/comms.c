/* Making comms: split, split_type, create, create_group, dup, on any number of ranks. Prints "ok" at rank 0. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); exit(1); } \
    } while (0)

/* Sends a message round the ring of a comm, which shows that contexts do not mix. */
static void ring(MPI_Comm comm, int mark)
{
    int rank, size, got = -1;
    MPI_Status status;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    CHECK(!MPI_Sendrecv(&mark, 1, MPI_INT, (rank + 1) % size, 3, &got, 1, MPI_INT, (rank + size - 1) % size, 3, comm, &status));
    CHECK(got == mark && status.MPI_SOURCE == (rank + size - 1) % size);
}

int main(int argc, char **argv)
{
    int rank, size, n, r, i, sum, *ranks;
    MPI_Comm halves, back, some, dup, shared;
    MPI_Group world, group;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);

    CHECK(!MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &halves));
    MPI_Comm_rank(halves, &r);
    MPI_Comm_size(halves, &n);
    CHECK(n == (size + 1 - rank % 2) / 2 && r == n - 1 - rank / 2);
    CHECK(!MPI_Comm_dup(MPI_COMM_WORLD, &dup));
    ring(halves, 1 + rank % 2);
    ring(dup, 7);
    CHECK(!MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 5, 0, &back));
    CHECK((back == MPI_COMM_NULL) == (rank == 0));
    CHECK(MPI_Comm_split(MPI_COMM_WORLD, -5, 0, &some) == MPI_ERR_ARG);
    CHECK(!MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared));
    MPI_Comm_compare(shared, MPI_COMM_WORLD, &r);
    CHECK(r == MPI_CONGRUENT);

    /* A comm of every second process in reverse order, made in both ways. With create_group no other process
       calls. */
    ranks = malloc(size * sizeof *ranks);
    for (n = 0, i = size - 1; i >= 0; i--) if (i % 2 == 0) ranks[n++] = i;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    CHECK(!MPI_Group_incl(world, n, ranks, &group));
    CHECK(!MPI_Comm_create(MPI_COMM_WORLD, group, &some));
    CHECK((some == MPI_COMM_NULL) == (rank % 2 == 1));
    if (some != MPI_COMM_NULL) {
        MPI_Comm same, again;
        CHECK(!MPI_Comm_create_group(MPI_COMM_WORLD, group, 9, &same));
        CHECK(!MPI_Comm_create_group(MPI_COMM_WORLD, group, 9, &again));
        MPI_Comm_compare(some, same, &r);
        CHECK(r == MPI_CONGRUENT);
        ring(same, 4);
        ring(again, 5);
        ring(some, 6);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, same);
        CHECK(sum == (n - 1) * n);
        MPI_Comm_free(&same);
        MPI_Comm_free(&again);
        MPI_Comm_free(&some);
    }
    CHECK(!MPI_Comm_free(&dup) && !MPI_Comm_idup(MPI_COMM_WORLD, &dup, &request) && !MPI_Wait(&request, MPI_STATUS_IGNORE));
    ring(dup, 8);
    for (i = 0; i < 100; i++) {
        CHECK(!MPI_Comm_split(dup, (rank + i) % 3, i % 2 ? rank : -rank, &some));
        ring(some, 100 + 3 * i + (rank + i) % 3);
        MPI_Comm_free(&some);
    }
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    MPI_Comm_free(&dup);
    MPI_Comm_free(&halves);
    MPI_Comm_free(&shared);
    if (back != MPI_COMM_NULL) MPI_Comm_free(&back);
    free(ranks);
    MPI_Finalize();
    if (rank == 0) printf("ok\n");
    return 0;
}
