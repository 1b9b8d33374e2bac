/* Collectives by a collective library: every one that it takes, blocking, nonblocking and persistent, in place, with gaps, of
   types and operators that it lacks, over several comms at once, and beside messages; buffers are the device's if
   there is one. The library must have carried out what it should, and nothing else.
   ranks: 2 3 4   ways: oneccl nccl nccl-late */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "counter.h"
#include "on_device.h"

enum { N = 600 };

static int carried(void) { return (int)counter("ccl_calls", MPI_T_PVAR_CLASS_COUNTER); }

static int sum_at(int index, int round)
{
    unsigned sum = 0;
    for (int who = 0; who < size; who++) sum += value(who, index, round);
    return (int)sum;
}

#define SUMS(at, count, from, round) \
    do { \
        int *host_ = read_back(at, count), wrong_ = 0; \
        for (int i = 0; i < (count); i++) wrong_ += host_[i] != sum_at((from) + i, round); \
        CHECK(wrong_ == 0, "%d of %d sums are wrong", wrong_, count); \
        free(host_); \
    } while (0)


static void reductions(MPI_Comm comm, int root, int round)
{
    int *in = filled(N, rank, round), *out = device(N * sizeof(int));
    MPI_Request request;
    MPI_Allreduce(in, out, N, MPI_INT, MPI_SUM, comm);
    SUMS(out, N, 0, round);
    MPI_Iallreduce(MPI_IN_PLACE, in, N, MPI_INT, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    SUMS(in, N, 0, round);
    drop(in), in = filled(N, rank, round);

    MPI_Reduce(in, rank == root ? out : NULL, N, MPI_INT, MPI_SUM, root, comm);
    if (rank == root) SUMS(out, N, 0, round);
    MPI_Ireduce(rank == root ? MPI_IN_PLACE : in, in, N, MPI_INT, MPI_SUM, root, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == root) SUMS(in, N, 0, round);
    else HOLDS(in, N, rank, round);
    drop(in), drop(out);

    int *blocks = filled(N * size, rank, round), mine = N * rank;
    out = device(N * sizeof(int));
    MPI_Reduce_scatter_block(blocks, out, N, MPI_INT, MPI_SUM, comm);
    SUMS(out, N, mine, round);
    MPI_Ireduce_scatter_block(MPI_IN_PLACE, blocks, N, MPI_INT, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    SUMS(blocks, N, mine, round);
    drop(blocks), drop(out);

    int counts[16], all = 0, before = 0;
    for (int who = 0; who < size; who++) {
        counts[who] = who == 1 ? 0 : N + who;
        before += who < rank ? counts[who] : 0;
        all += counts[who];
    }
    blocks = filled(all, rank, round), out = device((N + rank) * sizeof(int));
    MPI_Reduce_scatter(blocks, out, counts, MPI_INT, MPI_SUM, comm);
    SUMS(out, counts[rank], before, round);
    MPI_Ireduce_scatter(MPI_IN_PLACE, blocks, counts, MPI_INT, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    SUMS(blocks, counts[rank], before, round);
    drop(blocks), drop(out);
}

static void equal_blocks(MPI_Comm comm, int root, int round)
{
    int *in = filled(N, rank, round), *all = device(N * size * sizeof(int));
    int *data = filled(N, rank == root ? root : 99, round);
    MPI_Request request;
    MPI_Bcast(data, N, MPI_INT, root, comm);
    HOLDS(data, N, root, round);
    MPI_Ibcast(in, N, MPI_INT, root, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    HOLDS(in, N, root, round);
    drop(data), drop(in), in = filled(N, rank, round);

    MPI_Allgather(in, N, MPI_INT, all, N, MPI_INT, comm);
    for (int who = 0; who < size; who++) HOLDS(all + N * who, N, who, round);
    drop(all), all = filled(N * size, 99, 0);
    MPIX_Device_copy(all + N * rank, in, N * sizeof(int));
    MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, N, MPI_INT, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int who = 0; who < size; who++) HOLDS(all + N * who, N, who, round);
    drop(all), all = filled(N * size, 99, 0);

    MPI_Gather(in, N, MPI_INT, rank == root ? all : NULL, N, MPI_INT, root, comm);
    for (int who = 0; rank == root && who < size; who++) HOLDS(all + N * who, N, who, round);
    drop(all), all = filled(N * size, 99, 0);
    MPIX_Device_copy(all + N * rank, in, N * sizeof(int));
    MPI_Igather(rank == root ? MPI_IN_PLACE : in, N, MPI_INT, all, N, MPI_INT, root, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int who = 0; rank == root && who < size; who++) HOLDS(all + N * who, N, who, round);
    drop(all), drop(in);

    all = filled(N * size, root, round), in = filled(N, 99, 0);
    int *whole = grab(N * size * sizeof(int)), *part = NULL;
    fill(whole, N * size, root, round);
    for (int in_place = 0; in_place < 2; in_place++) {
        if (in_place && rank == root)
            MPI_Scatter(all, N, MPI_INT, MPI_IN_PLACE, N, MPI_INT, root, comm);
        else
            MPI_Scatter(all, N, MPI_INT, in, N, MPI_INT, root, comm);
        part = read_back(in, N);
        CHECK(memcmp(part, whole + N * rank, N * sizeof(int)) == 0, "the scattered block is wrong");
        free(part);
    }
    free(whole), drop(all), drop(in);

    /* Block p of rank r: value(r, p * N + i). */
    int *out = filled(N * size, rank, round);
    all = filled(N * size, 99, 0);
    for (int in_place = 0; in_place < 2; in_place++) {
        if (in_place)
            MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, N, MPI_INT, comm);
        else
            MPI_Alltoall(out, N, MPI_INT, all, N, MPI_INT, comm);
        int *got = read_back(in_place ? out : all, N * size), wrong = 0;
        for (int who = 0; who < size; who++)
            for (int i = 0; i < N; i++) wrong += got[N * who + i] != value(who, N * rank + i, round);
        CHECK(wrong == 0, "%d elements of an all-to-all (in place: %d) are wrong", wrong, in_place);
        free(got);
    }
    drop(out), drop(all);
}

/* Rank r sends 3 r elements, or 3 r to each; none for r = 0. */
static void unequal_blocks(MPI_Comm comm, int root, int round)
{
    int counts[16], displs[16], mine = 3 * rank, all = 0;
    for (int who = 0; who < size; who++) counts[who] = 3 * who, displs[who] = all + who, all += counts[who];
    int *in = filled(mine + 1, rank, round), *out = filled(all + size, 99, 0);
    MPI_Request request;
    MPI_Allgatherv(in, mine, MPI_INT, out, counts, displs, MPI_INT, comm);
    for (int who = 0; who < size; who++) HOLDS(out + displs[who], counts[who], who, round);
    drop(out), out = filled(all + size, 99, 0);
    MPI_Igatherv(in, mine, MPI_INT, out, counts, displs, MPI_INT, root, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int who = 0; rank == root && who < size; who++) HOLDS(out + displs[who], counts[who], who, round);
    drop(out), out = filled(all + size, root, round);
    drop(in), in = filled(mine + 1, 99, 0);
    MPI_Scatterv(out, counts, displs, MPI_INT, in, mine, MPI_INT, root, comm);
    int *got = read_back(in, mine + 1), wrong = 0;
    for (int i = 0; i < mine; i++) wrong += got[i] != value(root, displs[rank] + i, round);
    CHECK(wrong == 0, "%d of %d scattered elements are wrong", wrong, mine);
    free(got), drop(in), drop(out);

    /* Rank p gets 2 p elements, from the beginning of the buffer. */
    int sent[16], zero[16] = {0}, from[16], to[16];
    for (int who = 0; who < size; who++) sent[who] = 2 * who, from[who] = 2 * rank, to[who] = 2 * rank * who;
    in = filled(2 * size, rank, round), out = filled(2 * size * size + 1, 99, 0);
    MPI_Alltoallv(in, sent, zero, MPI_INT, out, from, to, MPI_INT, comm);
    for (int who = 0; who < size; who++) HOLDS(out + to[who], from[who], who, round);
    drop(in), drop(out);
}

/* A buffer with gaps at one rank, none at the others: the bytes between stay. */
static void gaps(MPI_Comm comm, int root)
{
    MPI_Datatype every_second;
    MPI_Type_vector(N, 1, 2, MPI_INT, &every_second);
    MPI_Type_commit(&every_second);
    int *data = filled(2 * N, 7, 1), *packed = filled(N, root, 2);
    if (rank == root)
        MPI_Bcast(packed, N, MPI_INT, root, comm);
    else
        MPI_Bcast(data, 1, every_second, root, comm);
    int *got = read_back(data, 2 * N), wrong = 0;
    for (int i = 0; rank != root && i < 2 * N - 1; i++) wrong += got[i] != (i % 2 ? value(7, i, 1) : value(root, i / 2, 2));
    CHECK(wrong == 0, "%d elements in a buffer with gaps are wrong", wrong);
    free(got), drop(data), drop(packed);
    MPI_Type_free(&every_second);
}

/* Collectives that a library lacks use the other carriers. */
static void lacking(MPI_Comm comm)
{
    int before = carried(), *in = filled(N, rank, 1), *out = device(N * sizeof(int)), expected = 0;
    MPI_Allreduce(in, out, N, MPI_INT, MPI_BXOR, comm);
    for (int who = 0; who < size; who++) expected ^= value(who, 5, 1);
    int *got = read_back(out, N);
    EQUAL(got[5], expected, "an exclusive or");
    free(got);
    MPI_Scan(in, out, N, MPI_INT, MPI_SUM, comm);
    MPI_Barrier(comm);
    MPI_Allreduce(in, out, N * 2, MPI_SHORT, MPI_MAX, comm);
    EQUAL(carried(), before, "calls of the library");
    drop(in), drop(out);
}

/* The root's own block is already in place, in the host's memory; a device library gets other memory for it. */
static void in_place(MPI_Comm comm, int root)
{
    int counts[8], displs[8], *part = filled(N, rank, 6), *whole = grab(size * N * sizeof(int));
    for (int i = 0; i < size; i++) counts[i] = N, displs[i] = (size - 1 - i) * N;
    const void *out = rank == root ? MPI_IN_PLACE : part;
    fill(whole + displs[rank], N, rank, 6);
    MPI_Gatherv(out, N, MPI_INT, whole, counts, displs, MPI_INT, root, comm);
    for (int i = 0; rank == root && i < size; i++) FILLED(whole + displs[i], N, i, 6);
    fill(whole + rank * N, N, rank, 6);
    MPI_Gather(out, N, MPI_INT, whole, N, MPI_INT, root, comm);
    for (int i = 0; rank == root && i < size; i++) FILLED(whole + i * N, N, i, 6);
    drop(part), free(whole);
}

/* Each rank starts the collectives of its comms in another order, while a message needs this rank. */
static void at_once(void)
{
    MPI_Comm comms[2];
    MPI_Request requests[3];
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comms[1]);
    int next = (rank + 1) % size, last = (rank + size - 1) % size, many = 1 << 18;
    int *out = filled(many, rank, 3), *in = device(many * sizeof(int)), *sums[2] = {filled(N, rank, 4), filled(N, rank, 5)};
    /* Some libraries make a communicator in blocking calls only, which have one order. */
    for (int i = 0; i < 2; i++) MPI_Bcast(in, N, MPI_INT, 0, comms[i]);
    MPI_Isend(out, many, MPI_INT, next, 1, MPI_COMM_WORLD, &requests[0]);
    for (int i = 0; i < 2; i++) {
        int which = (i + rank) % 2;
        MPI_Iallreduce(MPI_IN_PLACE, sums[which], N, MPI_INT, MPI_SUM, comms[which], &requests[1 + which]);
    }
    if (rank % 2) MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    MPI_Recv(in, many, MPI_INT, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    HOLDS(in, many, last, 3);
    SUMS(sums[0], N, 0, 4);
    SUMS(sums[1], N, 0, 5);
    MPI_Comm_free(&comms[0]);
    MPI_Comm_free(&comms[1]);
    drop(out), drop(in), drop(sums[0]), drop(sums[1]);
}

/* Persistent collectives: the ranks start them in different orders, twice with other values; one ends where it
   started. */
static void persistent(void)
{
    int *in = device(N * sizeof(int)), *sum = device(N * sizeof(int)), *all = device(N * size * sizeof(int)), before = carried();
    int *host = grab(N * sizeof(int));
    MPI_Request requests[3], unused;
    MPI_Allreduce_init(in, sum, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Allgather_init(in, N, MPI_INT, all, N, MPI_INT, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    MPI_Bcast_init(host, N, MPI_INT, size - 1, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[2]);
    MPI_Bcast_init(host, N, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &unused);
    MPI_Request_free(&unused);
    EQUAL(carried(), before, "calls of the library before a start");
    for (int round = 3; round < 5; round++) {
        int *now = filled(N, rank, round);
        MPIX_Device_copy(in, now, N * sizeof(int));
        drop(now);
        fill(host, N, rank == size - 1 ? rank : 99, round);
        for (int i = 0; i < 3; i++) MPI_Start(&requests[(i + rank) % 3]);
        MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
        SUMS(sum, N, 0, round);
        for (int who = 0; who < size; who++) HOLDS(all + N * who, N, who, round);
        FILLED(host, N, size - 1, round);
    }
    EQUAL(carried() - before, 6, "starts by the library");
    for (int i = 0; i < 3; i++) MPI_Request_free(&requests[i]);
    drop(in), drop(sum), drop(all), free(host);
}

/* Collectives among neighbours use the other carriers. */
static void neighbours(void)
{
    int period = 1, before = carried(), *in = filled(N, rank, 7), *all = filled(2 * N, 99, 0);
    MPI_Comm ring;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &period, 0, &ring);
    MPI_Neighbor_allgather(in, N, MPI_INT, all, N, MPI_INT, ring);
    HOLDS(all, N, (rank + size - 1) % size, 7);
    HOLDS(all + N, N, (rank + 1) % size, 7);
    EQUAL(carried(), before, "calls of the library for neighbours");
    MPI_Comm_free(&ring);
    drop(in), drop(all);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int before = carried();
    for (int round = 0; round < 2; round++) {
        int root = (round + 1) % size, at = carried();
        reductions(MPI_COMM_WORLD, root, round);
        EQUAL(carried() - at, 8, "reductions by the library");
        equal_blocks(MPI_COMM_WORLD, root, round);
        EQUAL(carried() - at, 18, "collectives by the library");
        unequal_blocks(MPI_COMM_WORLD, root, round);
        EQUAL(carried() - at, 22, "collectives by the library");
        gaps(MPI_COMM_WORLD, root);
        in_place(MPI_COMM_WORLD, root);
    }
    lacking(MPI_COMM_WORLD);
    persistent();
    neighbours();
    at_once();
    CHECK(carried() > before, "the library carried out nothing");
    return end();
}
