/* Many short blocking collectives in a row, which use flat slots (crates/coll/src/flat.rs) from the eighth
   on: on comms that are made and freed, with slow members, beside nonblocking ones.
   ranks: 1 2 3 5 8   ways: plain pulled no-cma */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <unistd.h>

enum { ROUNDS = 60, COMMS = 40, LONGEST = 40 };

/* One collective of each kind, with a length and a root that change. */
static void round_of(MPI_Comm comm, int round)
{
    int me, members, n = round % LONGEST;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &members);
    int root = round % members;
    int out[LONGEST], in[LONGEST * 8], expected;
    for (int i = 0; i < n; i++) out[i] = value(me, i, round) % 1000;
    if (round % 7 == me) usleep(200);

    memset(in, 0xff, sizeof in);
    MPI_Allreduce(out, in, n, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < n; i++) {
        expected = 0;
        for (int r = 0; r < members; r++) expected += value(r, i, round) % 1000;
        EQUAL(in[i], expected, "a reduced element");
    }
    memcpy(in, out, n * sizeof(int));
    MPI_Allreduce(MPI_IN_PLACE, in, n, MPI_INT, MPI_MAX, comm);
    for (int i = 0; i < n; i++) {
        expected = value(0, i, round) % 1000;
        for (int r = 1; r < members; r++)
            if (value(r, i, round) % 1000 > expected) expected = value(r, i, round) % 1000;
        EQUAL(in[i], expected, "a reduced element");
    }
    memcpy(in, out, n * sizeof(int));
    MPI_Bcast(in, n, MPI_INT, root, comm);
    for (int i = 0; i < n; i++) EQUAL(in[i], value(root, i, round) % 1000, "an element of the root");

    memset(in, 0xff, sizeof in);
    MPI_Reduce(out, in, n, MPI_INT, MPI_SUM, root, comm);
    for (int i = 0; i < n; i++) {
        expected = 0;
        for (int r = 0; r < members; r++) expected += value(r, i, round) % 1000;
        EQUAL(in[i], me == root ? expected : -1, "an element of the reduction");
    }
    MPI_Allgather(out, n, MPI_INT, in, n, MPI_INT, comm);
    for (int r = 0; r < members; r++)
        for (int i = 0; i < n; i++) EQUAL(in[r * n + i], value(r, i, round) % 1000, "a gathered element");
    memset(in, 0xff, sizeof in);
    memcpy(in + me * n, out, n * sizeof(int));
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, in, n, MPI_INT, comm);
    for (int r = 0; r < members; r++)
        for (int i = 0; i < n; i++) EQUAL(in[r * n + i], value(r, i, round) % 1000, "a gathered element");
    MPI_Barrier(comm);
}

/* A block of `n` elements from every member to every other, in place or not, of all lengths that use flat
   slots and some that do not. */
static void blocks(MPI_Comm comm, int n, int in_place)
{
    int me, members;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &members);
    int all = n * members, root = n % members;
    int *out = malloc((all + 1) * sizeof *out), *in = malloc((all + 1) * sizeof *in), *counts = malloc(members * sizeof *counts);
#define VALUE(r, i) (value(r, i, n) % 1000)
#define FILL(buffer, many) \
    for (int i = 0; i < (many); i++) (buffer)[i] = VALUE(me, i)
#define INPUT(buffer) (in_place ? MPI_IN_PLACE : (buffer))

    FILL(out, all);
    FILL(in, all);
    MPI_Alltoall(INPUT(out), n, MPI_INT, in, n, MPI_INT, comm);
    for (int r = 0; r < members; r++)
        for (int i = 0; i < n; i++) EQUAL(in[r * n + i], VALUE(r, me * n + i), "an exchanged element");

    FILL(in + me * n, n);
    MPI_Gather(me == root ? INPUT(out) : out, n, MPI_INT, in, n, MPI_INT, root, comm);
    for (int r = 0; r < members && me == root; r++)
        for (int i = 0; i < n; i++) EQUAL(in[r * n + i], VALUE(r, i), "a gathered element");

    memset(in, 0xff, all * sizeof *in);
    MPI_Scatter(out, n, MPI_INT, me == root ? INPUT(in) : in, n, MPI_INT, root, comm);
    for (int i = 0; i < n; i++)
        EQUAL(in[i], in_place && me == root ? -1 : VALUE(root, me * n + i), "a scattered element");

    FILL(in, all);
    MPI_Allreduce(INPUT(out), in, all, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < all; i++) {
        int sum = 0;
        for (int r = 0; r < members; r++) sum += VALUE(r, i);
        EQUAL(in[i], sum, "an element of the sum");
    }
    for (int even = 0; even < 2; even++) {
        FILL(in, all);
        for (int r = 0; r < members; r++) counts[r] = n;
        /* The first member gives half of its block to the last. */
        if (!even) counts[0] -= n / 2, counts[members - 1] += n / 2;
        if (even) MPI_Reduce_scatter_block(INPUT(out), in, n, MPI_INT, MPI_SUM, comm);
        else MPI_Reduce_scatter(INPUT(out), in, counts, MPI_INT, MPI_SUM, comm);
        int from = 0;
        for (int r = 0; r < me; r++) from += counts[r];
        for (int i = 0; i < counts[me]; i++) {
            int sum = 0;
            for (int r = 0; r < members; r++) sum += VALUE(r, from + i);
            EQUAL(in[i], sum, "an element of the member's part of the sum");
        }
    }
    for (int with = 0; with < 2; with++) {
        FILL(in, n);
        if (with) MPI_Scan(INPUT(out), in, n, MPI_INT, MPI_SUM, comm);
        else MPI_Exscan(INPUT(out), in, n, MPI_INT, MPI_SUM, comm);
        for (int i = 0; i < n && me + with > 0; i++) {
            int sum = 0;
            for (int r = 0; r < me + with; r++) sum += VALUE(r, i);
            EQUAL(in[i], sum, "an element of the prefix");
        }
    }
    free(out);
    free(in);
    free(counts);
}

/* Broadcasts in a row do not wait for their readers: no slot may be overwritten too early. */
static void broadcasts(MPI_Comm comm)
{
    int me, word;
    MPI_Comm_rank(comm, &me);
    for (int i = 0; i < 500; i++) {
        word = me == 0 ? i : -1;
        if (i % 50 == me) usleep(100);
        MPI_Bcast(&word, 1, MPI_INT, 0, comm);
        EQUAL(word, i, "the word");
    }
}

/* Every second int on one side, all of them on the other. */
static void gaps(MPI_Comm comm)
{
    int me, sparse[8], dense[4];
    MPI_Datatype every_second;
    MPI_Comm_rank(comm, &me);
    MPI_Type_vector(4, 1, 2, MPI_INT, &every_second);
    MPI_Type_commit(&every_second);
    for (int i = 0; i < 4; i++) sparse[2 * i] = dense[i] = me == 0 ? 10 + i : 0, sparse[2 * i + 1] = -5;
    if (me % 2)
        MPI_Bcast(dense, 4, MPI_INT, 0, comm);
    else
        MPI_Bcast(sparse, 1, every_second, 0, comm);
    for (int i = 0; i < 4; i++) {
        EQUAL(me % 2 ? dense[i] : sparse[2 * i], 10 + i, "an element with gaps");
        EQUAL(sparse[2 * i + 1], -5, "a gap");
    }
    MPI_Type_free(&every_second);
}

/* Blocks of every second int are sent by the even members and received by the odd ones. */
static void blocks_with_gaps(MPI_Comm comm, int blocking)
{
    enum { INTS = 6 };
    int me, members, out[2 * INTS * 8], in[2 * INTS * 8];
    MPI_Datatype every_second, sparse;
    MPI_Request requests[2];
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &members);
    MPI_Type_vector(INTS, 1, 2, MPI_INT, &every_second);
    MPI_Type_create_resized(every_second, 0, 2 * INTS * sizeof(int), &sparse);
    MPI_Type_commit(&sparse);
    int odd = me % 2, from = odd ? 1 : 2, to = odd ? 2 : 1;
    int sent = odd ? INTS : 1, got = odd ? 1 : INTS;
    MPI_Datatype send = odd ? MPI_INT : sparse, recv = odd ? sparse : MPI_INT;
    for (int gather = 0; gather < 2; gather++) {
        memset(in, 0xff, sizeof in);
        for (int i = 0; i < members * INTS; i++) out[from * i] = value(me, i, gather);
        if (blocking && gather) MPI_Allgather(out, sent, send, in, got, recv, comm);
        else if (blocking) MPI_Alltoall(out, sent, send, in, got, recv, comm);
        else if (gather) MPI_Iallgather(out, sent, send, in, got, recv, comm, &requests[0]);
        else MPI_Ialltoall(out, sent, send, in, got, recv, comm, &requests[0]);
        if (!blocking) MPI_Ibarrier(comm, &requests[1]), MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        for (int r = 0; r < members; r++)
            for (int i = 0; i < INTS; i++) {
                EQUAL(in[to * (r * INTS + i)], value(r, gather ? i : me * INTS + i, gather), "an element with gaps");
                if (odd) EQUAL(in[2 * (r * INTS + i) + 1], -1, "a gap");
            }
    }
    MPI_Type_free(&every_second);
    MPI_Type_free(&sparse);
}

/* Sums of one element, until the last ones use flat slots. */
static void sums(MPI_Datatype type, MPI_Comm comm, int is_long)
{
    int members;
    MPI_Comm_size(comm, &members);
    for (int round = 0; round < 12; round++) {
        long out = 1L << 40 | (rank + round), in = -1, expected = 0;
        int out_int = rank + round, in_int = -1;
        MPI_Allreduce(is_long ? (void *)&out : &out_int, is_long ? (void *)&in : &in_int, 1, type, MPI_SUM, comm);
        out = is_long ? in - ((long)members << 40) : in_int;
        in = rank + round;
        MPI_Reduce(&in, &expected, 1, MPI_LONG, MPI_SUM, 0, comm);
        MPI_Bcast(&expected, 1, MPI_LONG, 0, comm);
        EQUAL(out, expected, "a sum");
    }
}

/* Handles that get another meaning: data that the library keeps for the old object must not be used for the
   new one. */
static void handles(void)
{
    enum { MANY = 100 };
    MPI_Datatype before = MPI_DATATYPE_NULL, type, gone;
    MPI_Comm first = MPI_COMM_NULL, comm;
    for (int turn = 0; turn < 4; turn++) {
        for (int made = 0;; made++) {
            MPI_Type_dup(turn % 2 ? MPI_LONG : MPI_INT, &type);
            if (before == MPI_DATATYPE_NULL || type == before || made == MANY) break;
            MPI_Type_free(&type);
        }
        CHECK(turn == 0 || type == before, "the datatype's handle was not used again: the test tells nothing");
        sums(type, MPI_COMM_WORLD, turn % 2);
        before = gone = type;
        MPI_Type_free(&type);
    }
    for (int turn = 0; turn < 4; turn++) {
        for (int made = 0;; made++) {
            MPI_Comm_split(MPI_COMM_WORLD, turn % 2 ? 0 : rank % 2, 0, &comm);
            if (first == MPI_COMM_NULL || comm == first || made == MANY) break;
            MPI_Comm_free(&comm);
        }
        CHECK(turn == 0 || comm == first, "the comm's handle was not used again: the test tells nothing");
        sums(MPI_INT, comm, 0);
        first = comm;
        MPI_Comm_free(&comm);
    }
    int in, out = 1, class;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Error_class(MPI_Allreduce(&out, &in, 1, MPI_INT, MPI_SUM, first), &class);
    EQUAL(class, MPI_ERR_COMM, "class of a freed comm");
    MPI_Error_class(MPI_Allreduce(&out, &in, 1, gone, MPI_SUM, MPI_COMM_WORLD), &class);
    EQUAL(class, MPI_ERR_TYPE, "class of a freed datatype");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    sums(MPI_INT, MPI_COMM_WORLD, 0);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int round = 0; round < ROUNDS; round++) round_of(MPI_COMM_WORLD, round);
    broadcasts(MPI_COMM_WORLD);
    gaps(MPI_COMM_WORLD);
    for (int round = 0; round < 20; round++) blocks_with_gaps(MPI_COMM_WORLD, round % 2);
    for (int n = 0; n < 40000; n += 1 + n / 2)
        for (int in_place = 0; in_place < 2; in_place++) blocks(MPI_COMM_WORLD, n, in_place);

    /* With nonblocking collectives on the same comm, which other members start at other moments. */
    for (int round = 0; round < 20; round++) {
        int one = 1, sum = 0;
        MPI_Request request;
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        round_of(MPI_COMM_WORLD, round);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        EQUAL(sum, size, "the sum");
    }

    /* Comms that are made and freed, whose slots are used again. */
    for (int i = 0; i < COMMS; i++) {
        MPI_Comm half, reversed;
        MPI_Comm_split(MPI_COMM_WORLD, (rank + i) % 2, 0, &half);
        MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
        for (int round = 0; round < 4; round++) round_of(half, round + i);
        for (int round = 0; round < 4; round++) round_of(reversed, round + i);
        MPI_Comm_free(&half);
        MPI_Comm_free(&reversed);
    }
    handles();
    return end();
}
