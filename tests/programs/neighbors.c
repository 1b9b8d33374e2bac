/* Neighborhood collectives in all forms, blocking, nonblocking and persistent: on grids with few places,
   where both neighbours may be the same process or the caller itself, on a graph, and on distributed graphs
   with repeated edges and loops. Checked against point-to-point messages, as the definition says. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

enum { MOST = 64, COUNT = 5, FORMS = 3, KINDS = 5 };

static MPI_Comm comm;
static int ins, outs, in[MOST], out[MOST], tag_in[MOST], tag_out[MOST];

/* The content of block k, which goes to neighbour k. */
static int held(int k, int i, int round) { return value(rank, k * 1000 + i, round); }

static int length(int k) { return (k * 3 + 1) % 7; }

/* The definition: one message for every edge, with a tag that both ends compute in the same way. */
static void by_messages(int *into, const int *data, const int *counts_in, const int *at_in, const int *counts_out,
                        const int *at_out)
{
    MPI_Request requests[2 * MOST];
    int n = 0;
    for (int k = 0; k < ins; k++)
        MPI_Irecv(into + at_in[k], counts_in[k], MPI_INT, in[k], tag_in[k], comm, &requests[n++]);
    for (int k = 0; k < outs; k++)
        MPI_Isend(data + at_out[k], counts_out[k], MPI_INT, out[k], tag_out[k], comm, &requests[n++]);
    MPI_Waitall(n, requests, MPI_STATUSES_IGNORE);
}

static void finish(int form, MPI_Request *request)
{
    if (form == 2) MPI_Start(request);
    if (form) MPI_Wait(request, MPI_STATUS_IGNORE);
}

static void all_kinds(int round)
{
    static int data[MOST * 1000], got[MOST * 1000], want[MOST * 1000];
    int sent[MOST], at_out[MOST], received[MOST], at_in[MOST], bytes_in[MOST];
    MPI_Aint places_out[MOST], places_in[MOST];
    MPI_Datatype types_out[MOST], types_in[MOST], every_other;
    MPI_Type_vector(2, 1, 2, MPI_INT, &every_other);
    MPI_Type_commit(&every_other);
    for (int kind = 0; kind < KINDS; kind++) {
        int same = kind < 2, uneven = kind == 1 || kind >= 3;
        for (int k = 0; k < outs; k++) {
            sent[k] = same ? (uneven ? length(rank) : COUNT) : uneven ? length(k + rank) : COUNT;
            at_out[k] = same ? 0 : uneven ? 20 * k : COUNT * k;
        }
        /* The lengths are sent along the edges, too. */
        int ones[MOST], firsts[MOST];
        for (int k = 0; k < MOST; k++) ones[k] = 1, firsts[k] = k;
        by_messages(received, sent, ones, firsts, ones, firsts);
        for (int k = 0; k < ins; k++) {
            if (in[k] == MPI_PROC_NULL) received[k] = uneven ? 3 : COUNT;
            at_in[k] = uneven ? 20 * (ins - 1 - k) : COUNT * k;
        }
        int all_sent = same ? (uneven ? length(rank) : COUNT) : 0;
        for (int form = 0; form < FORMS; form++) {
            MPI_Request r = MPI_REQUEST_NULL;
            for (int i = 0; i < 20 * MOST; i++) got[i] = want[i] = -1, data[i] = held(i / 20, i % 20, round + form);
            by_messages(want, data, received, at_in, sent, at_out);
            switch (3 * kind + form) {
            case 0: MPI_Neighbor_allgather(data, COUNT, MPI_INT, got, COUNT, MPI_INT, comm); break;
            case 1: MPI_Ineighbor_allgather(data, COUNT, MPI_INT, got, COUNT, MPI_INT, comm, &r); break;
            case 2: MPI_Neighbor_allgather_init(data, COUNT, MPI_INT, got, COUNT, MPI_INT, comm, MPI_INFO_NULL, &r); break;
            case 3: MPI_Neighbor_allgatherv(data, all_sent, MPI_INT, got, received, at_in, MPI_INT, comm); break;
            case 4: MPI_Ineighbor_allgatherv(data, all_sent, MPI_INT, got, received, at_in, MPI_INT, comm, &r); break;
            case 5:
                MPI_Neighbor_allgatherv_init(data, all_sent, MPI_INT, got, received, at_in, MPI_INT, comm, MPI_INFO_NULL, &r);
                break;
            case 6: MPI_Neighbor_alltoall(data, COUNT, MPI_INT, got, COUNT, MPI_INT, comm); break;
            case 7: MPI_Ineighbor_alltoall(data, COUNT, MPI_INT, got, COUNT, MPI_INT, comm, &r); break;
            case 8: MPI_Neighbor_alltoall_init(data, COUNT, MPI_INT, got, COUNT, MPI_INT, comm, MPI_INFO_NULL, &r); break;
            case 9: MPI_Neighbor_alltoallv(data, sent, at_out, MPI_INT, got, received, at_in, MPI_INT, comm); break;
            case 10: MPI_Ineighbor_alltoallv(data, sent, at_out, MPI_INT, got, received, at_in, MPI_INT, comm, &r); break;
            case 11:
                MPI_Neighbor_alltoallv_init(data, sent, at_out, MPI_INT, got, received, at_in, MPI_INT, comm, MPI_INFO_NULL, &r);
                break;
            default:
                /* The datatypes of the two ends differ: two elements of every_other are four ints. */
                for (int k = 0; k < outs; k++) types_out[k] = MPI_INT, places_out[k] = at_out[k] * (MPI_Aint)sizeof(int);
                for (int k = 0; k < ins; k++) {
                    types_in[k] = received[k] == 2 ? every_other : MPI_INT;
                    bytes_in[k] = received[k] == 2 ? 1 : received[k];
                    places_in[k] = at_in[k] * (MPI_Aint)sizeof(int);
                    if (received[k] == 2 && in[k] != MPI_PROC_NULL)
                        want[at_in[k] + 2] = want[at_in[k] + 1], want[at_in[k] + 1] = -1;
                }
                if (form == 0)
                    MPI_Neighbor_alltoallw(data, sent, places_out, types_out, got, bytes_in, places_in, types_in, comm);
                else if (form == 1)
                    MPI_Ineighbor_alltoallw(data, sent, places_out, types_out, got, bytes_in, places_in, types_in, comm, &r);
                else
                    MPI_Neighbor_alltoallw_init(data, sent, places_out, types_out, got, bytes_in, places_in, types_in, comm,
                                                MPI_INFO_NULL, &r);
            }
            finish(form, &r);
            for (int i = 0; i < 20 * MOST; i++)
                CHECK(got[i] == want[i], "kind %d, form %d, round %d: element %d is %d, not %d", kind, form, round, i, got[i],
                      want[i]);
            if (form == 2) {
                /* The exchange is repeated with other data in the same memory. */
                for (int i = 0; i < 20 * MOST; i++) data[i] ^= 1;
                MPI_Start(&r);
                MPI_Wait(&r, MPI_STATUS_IGNORE);
                for (int i = 0; i < 20 * MOST; i++)
                    CHECK(want[i] == -1 ? got[i] == -1 : got[i] == (want[i] ^ 1), "kind %d, started again: element %d", kind, i);
                MPI_Request_free(&r);
            }
        }
    }
    MPI_Type_free(&every_other);
}

/* The edges of a grid: a message that leaves in direction s arrives from the opposite one (MPI 5.0, section
   8.6). */
static void grid(int ndims, const int *dims, int periodic)
{
    int periods[3] = {0, 0, 0};
    for (int d = 0; d < ndims; d++) periods[d] = periodic >> d & 1;
    MPI_Cart_create(MPI_COMM_WORLD, ndims, dims, periods, 0, &comm);
    if (comm == MPI_COMM_NULL) return;
    ins = outs = 2 * ndims;
    for (int d = 0; d < ndims; d++) {
        MPI_Cart_shift(comm, d, 1, &in[2 * d], &in[2 * d + 1]);
        for (int k = 2 * d; k < 2 * d + 2; k++) out[k] = in[k], tag_out[k] = k, tag_in[k] = k ^ 1;
    }
    all_kinds(periodic);
    MPI_Comm_free(&comm);
}

static void grids(void)
{
    for (int a = 1; a <= 3; a++)
        for (int b = 1; b <= 3; b++)
            for (int c = 1; c <= 2; c++) {
                int dims[3] = {a, b, c}, ndims = c > 1 ? 3 : b > 1 ? 2 : 1;
                if (a * b * c > size) continue;
                for (int periodic = 0; periodic < 1 << ndims; periodic++) grid(ndims, dims, periodic);
            }
    int ones[3] = {1, 1, 1};
    grid(3, ones, 5);
}

/* Edges that all processes draw alike. The order of each process's own edges is rotated by its rank. */
static void drawn(int round, int adjacent)
{
    int from[MOST / 2], to[MOST / 2], edges = 0;
    unsigned seed = 77 + round;
    for (int k = 0; k < MOST / 2; k++) {
        seed = seed * 1103515245 + 12345, from[k] = (seed >> 16) % size;
        seed = seed * 1103515245 + 12345, to[k] = (seed >> 16) % size;
    }
    edges = round % 4 * 9;
    ins = outs = 0;
    if (adjacent) {
        for (int k = 0; k < edges; k++) {
            int back = edges - 1 - k;
            if (to[k] == rank) in[ins++] = from[k];
            if (from[back] == rank) out[outs++] = to[back];
        }
        MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, ins, in, MPI_UNWEIGHTED, outs, out, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                                       &comm);
    } else {
        int mine = 0, sources[MOST], degrees[MOST], destinations[MOST];
        for (int k = 0; k < edges; k++)
            if (k % size == rank) sources[mine] = from[k], degrees[mine] = 1, destinations[mine++] = to[k];
        MPI_Dist_graph_create(MPI_COMM_WORLD, mine, sources, degrees, destinations, MPI_UNWEIGHTED, MPI_INFO_NULL, 1, &comm);
        int flag;
        MPI_Dist_graph_neighbors_count(comm, &ins, &outs, &flag);
        MPI_Dist_graph_neighbors(comm, ins, in, MPI_UNWEIGHTED, outs, out, MPI_UNWEIGHTED);
    }
    /* The k-th edge from this process to another is the other's k-th edge from this one. One tag is enough,
       because messages do not overtake. */
    for (int k = 0; k < MOST; k++) tag_in[k] = tag_out[k] = 0;
    all_kinds(round);
    MPI_Comm_free(&comm);
}

/* A ring as a graph; with two processes each is the other's neighbour twice. */
static void ring(void)
{
    int index[MOST], edges[2 * MOST];
    for (int r = 0; r < size; r++) {
        index[r] = 2 * r + 2;
        edges[2 * r] = (r + size - 1) % size, edges[2 * r + 1] = (r + 1) % size;
    }
    MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &comm);
    ins = outs = 2;
    for (int k = 0; k < 2; k++) in[k] = out[k] = edges[2 * rank + k], tag_in[k] = tag_out[k] = 0;
    all_kinds(3);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    grids();
    ring();
    for (int round = 0; round < 8; round++) drawn(round, round & 1);
    checked++;
    return end();
}
