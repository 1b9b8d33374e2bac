/* Persistent collectives: each of them started many times, in another order on every rank, after the
   arguments of its initialisation were changed or freed. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

enum { COUNT = 300, ROUNDS = 15, KINDS = 17 };

static int *out[KINDS], *in[KINDS];
static MPI_Request requests[KINDS];

static void add(void *left, void *into, int *count, MPI_Datatype *datatype)
{
    (void)datatype;
    for (int i = 0; i < *count; i++) ((int *)into)[i] += ((int *)left)[i];
}

/* Pairs with a gap between them: (a, b) op (c, d) = (a + c, d), which depends on the order. */
static void last(void *left, void *into, int *count, MPI_Datatype *datatype)
{
    MPI_Aint lb, extent;
    MPI_Type_get_extent(*datatype, &lb, &extent);
    for (int i = 0; i < *count; i++) *(int *)((char *)into + i * extent) += *(int *)((char *)left + i * extent);
}

static int small(int who, int i, int round) { return value(who, i, round) % 10000; }

static void refill(int round)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < COUNT * size; i++) out[kind][i] = small(rank, i, round + kind), in[kind][i] = -1;
}

static int sum(int i, int round, int ranks)
{
    int all = 0;
    for (int r = 0; r < ranks; r++) all += small(r, i, round);
    return all;
}

static void initialise(void)
{
    int *counts = grab(size * sizeof(int)), *places = grab(size * sizeof(int));
    MPI_Datatype *types = grab(size * sizeof(*types)), contiguous;
    int *bytes = grab(size * sizeof(int));
    MPI_Type_contiguous(COUNT, MPI_INT, &contiguous);
    MPI_Type_commit(&contiguous);
    MPI_Op op;
    MPI_Op_create(add, 1, &op);
    for (int r = 0; r < size; r++)
        counts[r] = COUNT, places[r] = r * COUNT, types[r] = contiguous, bytes[r] = places[r] * (int)sizeof(int);
    int *ones = grab(size * sizeof(int));
    for (int r = 0; r < size; r++) ones[r] = 1;
    int root = size - 1;
    MPI_Comm w = MPI_COMM_WORLD;
    MPI_Info no = MPI_INFO_NULL;
    MPI_Request *r = requests;
    MPI_Barrier_init(w, no, &r[0]);
    MPI_Bcast_init(rank == root ? out[1] : in[1], COUNT, MPI_INT, root, w, no, &r[1]);
    MPI_Gather_init(out[2], COUNT, MPI_INT, in[2], COUNT, MPI_INT, root, w, no, &r[2]);
    MPI_Gatherv_init(out[3], COUNT, MPI_INT, in[3], counts, places, MPI_INT, root, w, no, &r[3]);
    MPI_Scatter_init(out[4], COUNT, MPI_INT, in[4], COUNT, MPI_INT, root, w, no, &r[4]);
    MPI_Scatterv_init(out[5], counts, places, MPI_INT, in[5], COUNT, MPI_INT, root, w, no, &r[5]);
    MPI_Allgather_init(out[6], COUNT, MPI_INT, in[6], 1, contiguous, w, no, &r[6]);
    MPI_Allgatherv_init(out[7], COUNT, MPI_INT, in[7], counts, places, MPI_INT, w, no, &r[7]);
    MPI_Alltoall_init(out[8], COUNT, MPI_INT, in[8], COUNT, MPI_INT, w, no, &r[8]);
    MPI_Alltoallv_init(out[9], counts, places, MPI_INT, in[9], counts, places, MPI_INT, w, no, &r[9]);
    MPI_Alltoallw_init(out[10], ones, bytes, types, in[10], ones, bytes, types, w, no, &r[10]);
    MPI_Reduce_init(out[11], in[11], COUNT, MPI_INT, MPI_SUM, root, w, no, &r[11]);
    MPI_Allreduce_init(out[12], in[12], COUNT, MPI_INT, op, w, no, &r[12]);
    MPI_Reduce_scatter_block_init(out[13], in[13], COUNT, MPI_INT, MPI_SUM, w, no, &r[13]);
    MPI_Reduce_scatter_init(out[14], in[14], counts, MPI_INT, op, w, no, &r[14]);
    MPI_Scan_init(out[15], in[15], COUNT, MPI_INT, MPI_SUM, w, no, &r[15]);
    MPI_Exscan_init_c(out[16], in[16], COUNT, MPI_INT, MPI_SUM, w, no, &r[16]);
    /* The initialisation has read the arguments, which are not needed any more. */
    for (int i = 0; i < size; i++) counts[i] = places[i] = ones[i] = bytes[i] = -1, types[i] = MPI_DATATYPE_NULL;
    MPI_Op_free(&op);
    MPI_Type_free(&contiguous);
    free(counts), free(places), free(types), free(bytes), free(ones);
}

static int expected(int kind, int i, int round)
{
    int root = size - 1, block = i / COUNT, at = i % COUNT, k = round + kind;
    switch (kind) {
    case 1: return rank == root || block ? -1 : small(root, at, k);
    case 2:
    case 3: return rank == root ? small(block, at, k) : -1;
    case 4:
    case 5: return block ? -1 : small(root, rank * COUNT + at, k);
    case 6:
    case 7: return small(block, at, k);
    case 8:
    case 9:
    case 10: return small(block, rank * COUNT + at, k);
    case 11: return rank == root && !block ? sum(at, k, size) : -1;
    case 12: return block ? -1 : sum(at, k, size);
    case 13:
    case 14: return block ? -1 : sum(rank * COUNT + at, k, size);
    case 15: return block ? -1 : sum(at, k, rank + 1);
    case 16: return block || rank == 0 ? -1 : sum(at, k, rank);
    default: return -1;
    }
}

static void all_kinds(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        out[kind] = grab(COUNT * size * sizeof(int)), in[kind] = grab(COUNT * size * sizeof(int));
    initialise();
    MPI_Status status;
    int flag = 0;
    MPI_Test(&requests[8], &flag, &status);
    CHECK(flag, "an inactive request is not complete");
    for (int round = 0; round < ROUNDS; round++) {
        refill(round);
        /* The order differs on every rank and in every round; 7 and 17 have no common divisor. */
        MPI_Request mine[KINDS];
        for (int k = 0; k < KINDS; k++) mine[k] = requests[(k * 7 + rank * 5 + round) % KINDS];
        if (round % 2)
            MPI_Startall(KINDS, mine);
        else
            for (int k = 0; k < KINDS; k++) MPI_Start(&mine[k]);
        if (round % 3 == 0)
            MPI_Waitall(KINDS, requests, MPI_STATUSES_IGNORE);
        else if (round % 3 == 1)
            for (int k = KINDS - 1; k >= 0; k--)
                for (flag = 0; !flag;) MPI_Test(&requests[k], &flag, MPI_STATUS_IGNORE);
        else
            for (int k = 0, at; k < KINDS; k++) MPI_Waitany(KINDS, requests, &at, MPI_STATUS_IGNORE);
        for (int kind = 0; kind < KINDS; kind++)
            for (int i = 0; i < COUNT * size; i++) {
                CHECK(requests[kind] != MPI_REQUEST_NULL, "a request is gone");
                int want = expected(kind, i, round);
                CHECK(in[kind][i] == want, "kind %d, round %d: element %d is %d, not %d", kind, round, i, in[kind][i], want);
            }
    }
    for (int kind = 0; kind < KINDS; kind++) {
        MPI_Request_free(&requests[kind]);
        CHECK(requests[kind] == MPI_REQUEST_NULL, "a freed request still has a name");
        free(out[kind]), free(in[kind]);
    }
}

/* Images are made anew at every start: for a datatype with gaps, in place and not, and an operator that does not commute.
   */
static void images(void)
{
    enum { PAIRS = 50 };
    int send[3 * PAIRS], recv[3 * PAIRS], place[3 * PAIRS];
    MPI_Datatype vector, pair;
    MPI_Type_vector(2, 1, 1, MPI_INT, &vector);
    MPI_Type_create_resized(vector, 0, 3 * sizeof(int), &pair);
    MPI_Type_commit(&pair);
    MPI_Op op;
    MPI_Op_create(last, 0, &op);
    MPI_Request r[2];
    MPI_Allreduce_init(send, recv, PAIRS, pair, op, MPI_COMM_WORLD, MPI_INFO_NULL, &r[0]);
    MPI_Allreduce_init(MPI_IN_PLACE, place, PAIRS, pair, op, MPI_COMM_WORLD, MPI_INFO_NULL, &r[1]);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < PAIRS; i++)
            for (int at = 0; at < 3; at++) {
                send[3 * i + at] = place[3 * i + at] = at == 2 ? -7 : small(rank, 2 * i + at, round);
                recv[3 * i + at] = -7;
            }
        MPI_Start(&r[(round + rank) % 2]);
        MPI_Start(&r[(round + rank + 1) % 2]);
        MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
        for (int i = 0; i < PAIRS; i++) {
            EQUAL(recv[3 * i], sum(2 * i, round, size), "a sum");
            EQUAL(place[3 * i], sum(2 * i, round, size), "a sum in place");
            EQUAL(recv[3 * i + 1], small(size - 1, 2 * i + 1, round), "the last");
            EQUAL(recv[3 * i + 2], -7, "a gap");
            EQUAL(place[3 * i + 2], -7, "a gap in place");
        }
    }
    MPI_Request_free(&r[0]), MPI_Request_free(&r[1]);
    MPI_Op_free(&op);
    MPI_Type_free(&vector), MPI_Type_free(&pair);
}

/* Persistent collectives among others: some stay active for long, ordinary collectives run meanwhile, and the
   comm is freed before the last start. */
static void among_others(void)
{
    MPI_Comm dup;
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    int mine[2], all[2] = {0, 0};
    MPI_Request r[2];
    MPI_Allreduce_init(&mine[0], &all[0], 1, MPI_INT, MPI_SUM, dup, MPI_INFO_NULL, &r[0]);
    MPI_Allreduce_init(&mine[1], &all[1], 1, MPI_INT, MPI_MAX, dup, MPI_INFO_NULL, &r[1]);
    for (int round = 0; round < 20; round++) {
        mine[0] = rank + round, mine[1] = rank * 2 + round;
        MPI_Start(&r[rank % 2]);
        if (round == 19) MPI_Comm_free(&dup);
        else MPI_Barrier(dup);
        MPI_Start(&r[1 - rank % 2]);
        MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
        EQUAL(all[0], size * (size - 1) / 2 + size * round, "the sum");
        EQUAL(all[1], (size - 1) * 2 + round, "the largest");
    }
    MPI_Request_free(&r[0]), MPI_Request_free(&r[1]);
}

static void errors(void)
{
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Request r = MPI_REQUEST_NULL;
    EQUAL(error_class(MPI_Bcast_init(&rank, 1, MPI_INT, size, MPI_COMM_WORLD, MPI_INFO_NULL, &r)), MPI_ERR_ROOT, "the class");
    EQUAL(error_class(MPI_Barrier_init(MPI_COMM_NULL, MPI_INFO_NULL, &r)), MPI_ERR_COMM, "the class");
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &r);
    MPI_Start(&r);
    EQUAL(error_class(MPI_Start(&r)), MPI_ERR_REQUEST, "the class of a second start");
    EQUAL(error_class(MPI_Cancel(&r)), MPI_ERR_REQUEST, "the class of a cancel");
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    MPI_Request_free(&r);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    all_kinds();
    images();
    among_others();
    errors();
    return end();
}
