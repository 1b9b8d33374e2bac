/* See collectives.h. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives.h"

#include <stdlib.h>
#include <string.h>

/* MPI_Xxx, MPI_Ixxx and MPI_Xxx_init take the same arguments except those after the comm. */
#define FORMS(name, blocking, nonblocking, ...)                                                                         \
    static void name##_block(const arguments *a) { MPI_##blocking(__VA_ARGS__, a->comm); }                              \
    static void name##_start(const arguments *a, MPI_Request *r) { MPI_##nonblocking(__VA_ARGS__, a->comm, r); }        \
    static void name##_prepare(const arguments *a, MPI_Request *r)                                                      \
    {                                                                                                                   \
        MPI_##blocking##_init(__VA_ARGS__, a->comm, MPI_INFO_NULL, r);                                                  \
    }
#define SEND a->send, a->count, a->type
#define RECV a->recv, a->count, a->type
#define SEND_V a->send, a->counts, a->displs, a->type
#define RECV_V a->recv, a->counts, a->displs, a->type
#define SEND_W a->send, a->counts, a->byte_displs, a->types
#define RECV_W a->recv, a->counts, a->byte_displs, a->types
#define SEND_NW a->send, a->counts, a->aint_displs, a->types
#define RECV_NW a->recv, a->counts, a->aint_displs, a->types

FORMS(bcast, Bcast, Ibcast, a->recv, a->count, a->type, 0)
FORMS(gather, Gather, Igather, SEND, RECV, 0)
FORMS(gatherv, Gatherv, Igatherv, SEND, RECV_V, 0)
FORMS(scatter, Scatter, Iscatter, SEND, RECV, 0)
FORMS(scatterv, Scatterv, Iscatterv, SEND_V, RECV, 0)
FORMS(allgather, Allgather, Iallgather, SEND, RECV)
FORMS(allgatherv, Allgatherv, Iallgatherv, SEND, RECV_V)
FORMS(alltoall, Alltoall, Ialltoall, SEND, RECV)
FORMS(alltoallv, Alltoallv, Ialltoallv, SEND_V, RECV_V)
FORMS(alltoallw, Alltoallw, Ialltoallw, SEND_W, RECV_W)
FORMS(reduce, Reduce, Ireduce, a->send, a->recv, a->count, a->type, MPI_SUM, 0)
FORMS(allreduce, Allreduce, Iallreduce, a->send, a->recv, a->count, a->type, MPI_SUM)
FORMS(reduce_scatter, Reduce_scatter, Ireduce_scatter, a->send, a->recv, a->counts, a->type, MPI_SUM)
FORMS(reduce_scatter_block, Reduce_scatter_block, Ireduce_scatter_block, a->send, a->recv, a->count, a->type, MPI_SUM)
FORMS(scan, Scan, Iscan, a->send, a->recv, a->count, a->type, MPI_SUM)
FORMS(exscan, Exscan, Iexscan, a->send, a->recv, a->count, a->type, MPI_SUM)
FORMS(neighbor_allgather, Neighbor_allgather, Ineighbor_allgather, SEND, RECV)
FORMS(neighbor_allgatherv, Neighbor_allgatherv, Ineighbor_allgatherv, SEND, RECV_V)
FORMS(neighbor_alltoall, Neighbor_alltoall, Ineighbor_alltoall, SEND, RECV)
FORMS(neighbor_alltoallv, Neighbor_alltoallv, Ineighbor_alltoallv, SEND_V, RECV_V)
FORMS(neighbor_alltoallw, Neighbor_alltoallw, Ineighbor_alltoallw, SEND_NW, RECV_NW)

static void barrier_block(const arguments *a) { MPI_Barrier(a->comm); }
static void barrier_start(const arguments *a, MPI_Request *r) { MPI_Ibarrier(a->comm, r); }
static void barrier_prepare(const arguments *a, MPI_Request *r) { MPI_Barrier_init(a->comm, MPI_INFO_NULL, r); }

#define ENTRY(name, send, recv, reduces, neighbor, none) \
    {#name, send, recv, reduces, neighbor, none, name##_block, name##_start, name##_prepare}

const collective collectives[] = {
    ENTRY(barrier, 0, 0, 0, 0, 1),
    ENTRY(bcast, 0, 0, 0, 0, 0),
    ENTRY(gather, 0, 1, 0, 0, 0),
    ENTRY(gatherv, 0, 1, 0, 0, 0),
    ENTRY(scatter, 1, 0, 0, 0, 0),
    ENTRY(scatterv, 1, 0, 0, 0, 0),
    ENTRY(allgather, 0, 1, 0, 0, 0),
    ENTRY(allgatherv, 0, 1, 0, 0, 0),
    ENTRY(alltoall, 1, 1, 0, 0, 0),
    ENTRY(alltoallv, 1, 1, 0, 0, 0),
    ENTRY(alltoallw, 1, 1, 0, 0, 0),
    ENTRY(reduce, 0, 0, 1, 0, 0),
    ENTRY(allreduce, 0, 0, 1, 0, 0),
    ENTRY(reduce_scatter, 1, 0, 1, 0, 0),
    ENTRY(reduce_scatter_block, 1, 0, 1, 0, 0),
    ENTRY(scan, 0, 0, 1, 0, 0),
    ENTRY(exscan, 0, 0, 1, 0, 0),
    ENTRY(neighbor_allgather, 0, 1, 0, 1, 0),
    ENTRY(neighbor_allgatherv, 0, 1, 0, 1, 0),
    ENTRY(neighbor_alltoall, 1, 1, 0, 1, 0),
    ENTRY(neighbor_alltoallv, 1, 1, 0, 1, 0),
    ENTRY(neighbor_alltoallw, 1, 1, 0, 1, 0),
    {0},
};

/* Neighborhood collectives run on a ring: a neighbour to the left and one to the right. */
static int blocks(const collective *c) { return c->neighbor ? 2 : size; }

arguments prepare_arguments(const options *o, const collective *c, size_t bytes)
{
    arguments a = {.type = o->type, .comm = MPI_COMM_WORLD};
    if (a.type == MPI_DATATYPE_NULL) a.type = c->reduces ? MPI_FLOAT : MPI_CHAR;
    int element, many = blocks(c);
    MPI_Type_size(a.type, &element);
    a.count = count_of(a.type, bytes);
    a.send = buffer(o, bytes * (c->send_per_rank ? many : 1), 0);
    a.recv = buffer(o, bytes * (c->recv_per_rank ? many : 1), 0);
    a.counts = malloc(3 * many * sizeof *a.counts);
    a.displs = a.counts + many;
    a.byte_displs = a.displs + many;
    a.aint_displs = malloc(many * sizeof *a.aint_displs);
    a.types = malloc(many * sizeof *a.types);
    for (int at = 0; at < many; at++) {
        a.counts[at] = a.count;
        a.displs[at] = at * a.count;
        a.aint_displs[at] = a.byte_displs[at] = at * a.count * element;
        a.types[at] = a.type;
    }
    if (c->neighbor) {
        int periodic = 1;
        MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &a.comm);
    }
    return a;
}

void release_arguments(const options *o, arguments *a)
{
    release(o, a->send);
    release(o, a->recv);
    free(a->counts);
    free(a->aint_displs);
    free(a->types);
    if (a->comm != MPI_COMM_WORLD) MPI_Comm_free(&a->comm);
}

static double value_at(const void *memory, MPI_Datatype type, size_t at)
{
    if (type == MPI_INT) return ((const int *)memory)[at];
    if (type == MPI_FLOAT) return ((const float *)memory)[at];
    if (type == MPI_DOUBLE) return ((const double *)memory)[at];
    return ((const signed char *)memory)[at];
}
static void put_at(void *memory, MPI_Datatype type, size_t at, double value)
{
    if (type == MPI_INT) ((int *)memory)[at] = (int)value;
    else if (type == MPI_FLOAT) ((float *)memory)[at] = (float)value;
    else if (type == MPI_DOUBLE) ((double *)memory)[at] = value;
    else ((signed char *)memory)[at] = (signed char)value;
}

/* Element `at` of block `block` of rank `from`: small, so that sums of any type are exact. */
static double given(int from, int block, size_t at) { return (double)((from + 2 * block + at) % 5); }

static double sum_up_to(int end, int block, size_t at)
{
    double sum = 0;
    for (int from = 0; from < end; from++) sum += given(from, block, at);
    return sum;
}

/* Element `at` of block `block` that this rank receives, by the definition; -1 if it receives nothing. */
static double expected(const collective *c, int block, size_t at)
{
    const char *name = c->name;
    if (c->neighbor) {
        if (size < 3) return -1; /* both neighbours are the same process, and MPIs differ in the order of its blocks */
        /* The left neighbour sends its right block, which is number 1; the right neighbour sends its left
           block. */
        int from = block == 0 ? (rank + size - 1) % size : (rank + 1) % size;
        return given(from, c->send_per_rank ? 1 - block : 0, at);
    }
    if (strcmp(name, "bcast") == 0) return given(0, 0, at);
    if (strncmp(name, "gather", 6) == 0) return rank == 0 ? given(block, 0, at) : -1;
    if (strncmp(name, "scatter", 7) == 0) return given(0, rank, at);
    if (strncmp(name, "allgather", 9) == 0) return given(block, 0, at);
    if (strncmp(name, "alltoall", 8) == 0) return given(block, rank, at);
    if (strcmp(name, "reduce") == 0) return rank == 0 ? sum_up_to(size, 0, at) : -1;
    if (strcmp(name, "allreduce") == 0) return sum_up_to(size, 0, at);
    if (strncmp(name, "reduce_scatter", 14) == 0) return sum_up_to(size, rank, at);
    if (strcmp(name, "scan") == 0) return sum_up_to(rank + 1, 0, at);
    if (strcmp(name, "exscan") == 0) return rank ? sum_up_to(rank, 0, at) : -1;
    return -1;
}

int check_collective(const collective *c, const arguments *a)
{
    if (c->no_data) return 1;
    int send = c->send_per_rank ? blocks(c) : 1, recv = c->recv_per_rank ? blocks(c) : 1, right = 1, element;
    MPI_Type_size(a->type, &element);
    size_t sent = (size_t)send * a->count * element, received = (size_t)recv * a->count * element;
    char *host = malloc(sent > received ? sent : received);
    for (int block = 0; block < send; block++)
        for (int at = 0; at < a->count; at++) put_at(host, a->type, (size_t)block * a->count + at, given(rank, block, at));
    transfer(a->send, host, sent);
    for (int at = 0; at < recv * a->count; at++) put_at(host, a->type, at, 99);
    if (strcmp(c->name, "bcast") == 0 && rank == 0)
        for (int at = 0; at < a->count; at++) put_at(host, a->type, at, given(0, 0, at));
    transfer(a->recv, host, received);
    c->block(a);
    transfer(host, a->recv, received);
    for (int block = 0; block < recv; block++)
        for (int at = 0; at < a->count; at++) {
            double want = expected(c, block, at), got = value_at(host, a->type, (size_t)block * a->count + at);
            right &= want < 0 || want == got;
        }
    free(host);
    return right;
}
