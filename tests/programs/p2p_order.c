/* Messages of one envelope arrive in the order sent, whatever their size, their mode and the receiver's
   wildcards. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

enum { MESSAGES = 300 };

static int length(int i)
{
    /* Short, eager and rendezvous messages alternate, so a short one has every chance to overtake. */
    static const int lengths[] = {1, 20000, 3, 500, 40000, 0, 9, 2500};
    return lengths[i % 8];
}

static void many_to_one(int any_source, int any_tag)
{
    int *data = grab(40000 * sizeof(int));
    if (rank == 0) {
        int *next = calloc(size, sizeof *next);
        for (int n = 0; n < (size - 1) * MESSAGES; n++) {
            MPI_Status status;
            int source = any_source ? MPI_ANY_SOURCE : 1 + n % (size - 1);
            MPI_Recv(data, 40000, MPI_INT, source, any_tag ? MPI_ANY_TAG : 5, MPI_COMM_WORLD, &status);
            int i = next[status.MPI_SOURCE]++, seen;
            MPI_Get_count(&status, MPI_INT, &seen);
            EQUAL(status.MPI_TAG, 5, "tag");
            EQUAL(seen, length(i), "count");
            FILLED(data, seen, status.MPI_SOURCE, i);
        }
        free(next);
    } else {
        for (int i = 0; i < MESSAGES; i++) {
            fill(data, length(i), rank, i);
            if (i % 7 == 3)
                MPI_Ssend(data, length(i), MPI_INT, 0, 5, MPI_COMM_WORLD);
            else
                MPI_Send(data, length(i), MPI_INT, 0, 5, MPI_COMM_WORLD);
        }
    }
    free(data);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Two receives match one message: the one that was posted first takes it. */
static void posted_first_wins(void)
{
    int a = -1, b = -1, c = -1;
    if (rank == 0) {
        MPI_Request r[3];
        MPI_Status s[3];
        MPI_Irecv(&a, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &r[0]);
        MPI_Irecv(&b, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, &r[1]);
        MPI_Irecv(&c, 1, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, &r[2]);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Waitall(3, r, s);
        EQUAL(a, 1, "the wildcard's message");
        EQUAL(b, 2, "the message of tag 8");
        EQUAL(c, 3, "the message of tag 9");
        EQUAL(s[2].MPI_TAG, 9, "tag");
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 1)
            for (int i = 1; i <= 3; i++) MPI_Send(&i, 1, MPI_INT, 0, i == 3 ? 9 : 8, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A receive with a tag takes the oldest message of its tag; messages of different comms never mix. */
static void tags_and_comms(void)
{
    MPI_Comm other;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    enum { N = 64 };
    int in[N];
    if (rank == 1) {
        for (int i = 0; i < N; i++) MPI_Send(&i, 1, MPI_INT, 0, i % 4, i % 8 < 4 ? MPI_COMM_WORLD : other);
    } else if (rank == 0) {
        int seen = 0;
        for (int tag = 3; tag >= 0; tag--)
            for (int which = 1; which >= 0; which--)
                for (int i = 0; i < N / 8; i++, seen++) {
                    MPI_Recv(&in[seen], 1, MPI_INT, MPI_ANY_SOURCE, tag, which ? other : MPI_COMM_WORLD,
                             MPI_STATUS_IGNORE);
                    EQUAL(in[seen], i * 8 + which * 4 + tag, "message");
                }
    }
    MPI_Comm_free(&other);
}

/* Very many sends before any receive is posted: memory and credits must suffice, and the order must hold. */
static void flood(void)
{
    enum { N = 5000 };
    if (rank == 1) {
        for (int i = 0; i < N; i++) MPI_Send(&i, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        MPI_Send(NULL, 0, MPI_INT, 0, 2, MPI_COMM_WORLD);
    } else if (rank == 0) {
        MPI_Recv(NULL, 0, MPI_INT, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0, x; i < N; i++) {
            MPI_Recv(&x, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            EQUAL(x, i, "message");
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    CHECK(1, "one rank has nothing to order");
    if (size > 1) {
        for (int i = 0; i < 4; i++) many_to_one(i & 1, i & 2);
        posted_first_wins();
        tags_and_comms();
        flood();
    }
    return end();
}
