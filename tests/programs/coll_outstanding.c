/* Many nonblocking collectives at once on many comms, completed in another order than they were started:
   before their comm's queue opens (crates/coll/src/queue.rs), while it opens, and too long for it.
   ways: plain proxy pulled no-cma */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <sched.h>
#include <stdatomic.h>

enum { COMMS = 6, ROUNDS = 36, KINDS = 12, COUNT = 600 };

typedef struct {
    MPI_Comm comm;
    int rank, size;
    int *members; /* their ranks in MPI_COMM_WORLD */
} team;

static team teams[COMMS];

/* Makes the blocking calls after which a comm has slots. */
static void hang(MPI_Comm comm)
{
    for (int i = 0; i < 10; i++) MPI_Barrier(comm);
}

static void make(team *t, MPI_Comm comm)
{
    t->comm = comm;
    MPI_Comm_rank(comm, &t->rank);
    MPI_Comm_size(comm, &t->size);
    t->members = grab(t->size * sizeof(int));
    MPI_Allgather(&rank, 1, MPI_INT, t->members, 1, MPI_INT, comm);
    if (t - teams != 3) hang(comm);
}

static int length(int round) { return round > 30 && round < 35 ? 60 * COUNT : round % 5 == 4 ? 20 * COUNT : COUNT; }

/* The number of elements from a to b in a collective with counts. */
static int between(int n, int a, int b) { return n - (a + b) % 3; }

/* Starts a collective. `tables` has space for four tables: counts to send, counts to receive, the counts of
   all ranks, and the displacements of blocks of n. */
static void start(team *t, int round, int *out, int *in, int *tables, MPI_Request *request)
{
    int n = length(round), root = round % t->size, here = t->rank == root;
    int *gives = tables, *takes = gives + t->size, *alike = takes + t->size, *places = alike + t->size;
    for (int i = 0; i < n * t->size; i++) out[i] = value(rank, i, round) % 1000, in[i] = -1;
    for (int r = 0; r < t->size; r++) {
        gives[r] = between(n, t->rank, r), takes[r] = between(n, r, t->rank);
        alike[r] = between(n, r, 0), places[r] = r * n;
    }
    switch (round % KINDS) {
    case 0: MPI_Iallreduce(out, in, n, MPI_INT, MPI_SUM, t->comm, request); break;
    case 1: MPI_Ialltoall(out, n, MPI_INT, in, n, MPI_INT, t->comm, request); break;
    case 2:
        memcpy(in, out, n * sizeof(int));
        MPI_Ibcast(in, n, MPI_INT, root, t->comm, request);
        break;
    case 3: MPI_Iallgather(out, n, MPI_INT, in, n, MPI_INT, t->comm, request); break;
    case 4:
        memcpy(in, out, n * sizeof(int));
        MPI_Iallreduce(MPI_IN_PLACE, in, n, MPI_INT, MPI_MAX, t->comm, request);
        break;
    case 5: MPI_Ireduce_scatter_block(out, in, n, MPI_INT, MPI_SUM, t->comm, request); break;
    case 6: MPI_Ibarrier(t->comm, request); break;
    case 7: MPI_Igatherv(out, alike[t->rank], MPI_INT, in, alike, places, MPI_INT, root, t->comm, request); break;
    case 8: MPI_Iscatterv(out, alike, places, MPI_INT, in, alike[t->rank], MPI_INT, root, t->comm, request); break;
    case 9: MPI_Iallgatherv(out, alike[t->rank], MPI_INT, in, alike, places, MPI_INT, t->comm, request); break;
    case 10:
        MPI_Ialltoallv(out, gives, places, MPI_INT, in, takes, places, MPI_INT, t->comm, request);
        break;
    default:
        if (here && root % 2) memcpy(in, out, n * sizeof(int));
        MPI_Ireduce(here && root % 2 ? MPI_IN_PLACE : out, in, n, MPI_INT, MPI_SUM, root, t->comm, request);
    }
}

/* The sum of all ranks' elements i. */
static int sum(const team *t, int round, int i)
{
    int all = 0;
    for (int r = 0; r < t->size; r++) all += value(t->members[r], i, round) % 1000;
    return all;
}

/* The element from the block that `from` has for this rank, or a filler behind that block's end. */
static int given(const team *t, int round, int from, int begin, int i, int count)
{
    return i < count ? value(t->members[from], begin + i, round) % 1000 : -1;
}

static int expected(const team *t, int round, int i)
{
    int n = length(round), root = round % t->size, here = t->rank == root, from = i / n, at = i % n, most = 0;
    switch (round % KINDS) {
    case 0: return sum(t, round, i);
    case 1: return given(t, round, from, t->rank * n, at, n);
    case 2: return given(t, round, root, 0, i, n);
    case 3: return given(t, round, from, 0, at, n);
    case 4:
        for (int r = 0; r < t->size; r++) {
            int x = value(t->members[r], i, round) % 1000;
            most = x > most ? x : most;
        }
        return most;
    case 5: return sum(t, round, t->rank * n + i);
    case 7: return here ? given(t, round, from, 0, at, between(n, from, 0)) : -1;
    case 8: return given(t, round, root, t->rank * n, i, between(n, t->rank, 0));
    case 9: return given(t, round, from, 0, at, between(n, from, 0));
    case 10: return given(t, round, from, t->rank * n, at, between(n, from, t->rank));
    case 11: return here ? sum(t, round, i) : -1;
    default: return -1;
    }
}

static void check(const team *t, int which, int round, const int *in)
{
    int kind = round % KINDS, blocks = kind == 1 || kind == 3 || kind == 7 || kind == 9 || kind == 10;
    int n = length(round) * (blocks ? t->size : 1);
    checked++;
    for (int i = 0; i < n; i++)
        if (in[i] != expected(t, round, i)) {
            check_failed(__FILE__, __LINE__, "comm %d of %d ranks, round %d, kind %d: element %d of %d is %d, not %d",
                         which, t->size, round, kind, i, n, in[i], expected(t, round, i));
            return;
        }
}

/* A comm and a persistent request are freed at every point of their queue's opening. */
static void freed(void)
{
    enum { MOST = 12 };
    for (int many = 6; many <= MOST; many++) {
        MPI_Comm comm;
        MPI_Request under_way[MOST], again;
        int mine[MOST], sums[MOST], sum = -1;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Allreduce_init(&many, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &again);
        for (int i = 1; i < many; i++) {
            MPI_Start(&again);
            MPI_Wait(&again, MPI_STATUS_IGNORE);
            EQUAL(sum, size * many, "what all add to a persistent sum");
            sum = -1;
        }
        MPI_Start(&again);
        MPI_Request_free(&again);
        for (int i = 0; i < many; i++) {
            mine[i] = rank + i;
            MPI_Iallreduce(&mine[i], &sums[i], 1, MPI_INT, MPI_SUM, comm, &under_way[i]);
        }
        MPI_Comm_free(&comm);
        MPI_Waitall(many, under_way, MPI_STATUSES_IGNORE);
        for (int i = 0; i < many; i++) EQUAL(sums[i], size * (size - 1) / 2 + i * size, "a sum on a freed comm");
        /* The persistent sum is complete when all ranks are here. */
        MPI_Barrier(MPI_COMM_WORLD);
        while (sum != size * many) MPI_Test(&again, &mine[0], MPI_STATUS_IGNORE);
    }
}

/* A nonblocking collective never matches a blocking one (MPI 5.0, section 6.12). A program whose ranks call
   the two in different orders is wrong, but other libraries carry it out, and mpi4py's replacement for
   MPI_Comm_iagree relies on that. */
static void orders(void)
{
    for (int root = 0; root < size; root++) {
        int mine = rank == root ? 11 : 13, both = 0;
        MPI_Request request;
        if (rank != root) MPI_Barrier(MPI_COMM_WORLD);
        MPI_Iallreduce(&mine, &both, 1, MPI_INT, MPI_BAND, MPI_COMM_WORLD, &request);
        if (rank == root) MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        EQUAL(both, size == 1 ? 11 : 9, "the bits that all have");
    }
}

static void add(void *left, void *into, int *count, MPI_Datatype *datatype)
{
    (void)datatype;
    for (int i = 0; i < *count; i++) ((int *)into)[i] += ((int *)left)[i];
}

/* One of two members sees that their queue is open and makes a call in it. The other makes that call without
   having looked since. Both must count the call alike. Otherwise the next call that does not use the queue,
   with an operator of the program's, would not match. */
static void numbers(void)
{
    enum { LEAST = 6, MOST = 12, LOOKS = 1000 };
    MPI_Comm pair, comm;
    MPI_Win window;
    MPI_Aint bytes;
    MPI_Op op;
    int first, members, unit, flag, one = 1, sums[MOST + 2];
    _Atomic int *told;
    MPI_Request requests[MOST + 2];
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, rank, &pair);
    MPI_Comm_size(pair, &members);
    MPI_Comm_rank(pair, &first);
    first = !first;
    MPI_Op_create(add, 1, &op);
    MPI_Win_allocate_shared(first ? 2 * sizeof(*told) : 0, sizeof(*told), MPI_INFO_NULL, pair, &told, &window);
    MPI_Win_shared_query(window, 0, &bytes, &unit, &told);
    for (int who = 0; first && who < 2; who++) atomic_store(&told[who], 0);
    MPI_Barrier(pair);
    for (int many = LEAST; members == 2 && many <= MOST; many++) {
        MPI_Comm_dup(pair, &comm);
        for (int i = 0; i < many; i++) MPI_Iallreduce(&one, &sums[i], 1, MPI_INT, MPI_SUM, comm, &requests[i]);
        atomic_store(&told[first], many);
        while (atomic_load(&told[!first]) < many) sched_yield();
        for (int i = 0; first && i < LOOKS; i++) MPI_Testall(many, requests, &flag, MPI_STATUSES_IGNORE);
        MPI_Iallreduce(&one, &sums[many], 1, MPI_INT, MPI_SUM, comm, &requests[many]);
        MPI_Iallreduce(&one, &sums[many + 1], 1, MPI_INT, op, comm, &requests[many + 1]);
        MPI_Waitall(many + 2, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < many + 2; i++) EQUAL(sums[i], 2, "a sum of two members");
        MPI_Comm_free(&comm);
    }
    MPI_Win_free(&window);
    MPI_Op_free(&op);
    MPI_Comm_free(&pair);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    freed();
    numbers();
    orders();
    hang(MPI_COMM_WORLD);
    orders();
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    make(&teams[0], comm);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comm);
    make(&teams[1], comm);
    MPI_Comm_split(MPI_COMM_WORLD, rank / 2, -rank, &comm);
    make(&teams[2], comm);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comm);
    make(&teams[3], comm);
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    make(&teams[4], comm);
    MPI_Comm_dup(teams[1].comm, &comm);
    make(&teams[5], comm);

    enum { ALL = COMMS * ROUNDS };
    int *out[ALL], *in[ALL], *tables[ALL];
    MPI_Request requests[ALL];
    for (int i = 0; i < ALL; i++) {
        size_t bytes = sizeof(int) * (size_t)length(i / COMMS) * teams[i % COMMS].size;
        out[i] = grab(bytes);
        in[i] = grab(bytes);
        tables[i] = grab(4 * sizeof(int) * teams[i % COMMS].size);
    }
    /* Within a comm all ranks start in the same order; between comms each rank has its own. */
    for (int round = 0; round < ROUNDS; round++)
        for (int k = 0; k < COMMS; k++) {
            int which = (k + rank) % COMMS, i = round * COMMS + which;
            start(&teams[which], round, out[i], in[i], tables[i], &requests[i]);
        }
    for (int left = ALL; left > ALL / 2; left--) {
        int i;
        MPI_Waitany(ALL, requests, &i, MPI_STATUS_IGNORE);
        check(&teams[i % COMMS], i % COMMS, i / COMMS, in[i]);
    }
    /* The comms are freed with operations under way, and end when these are complete (MPI 5.0, section
       7.4.3). */
    for (int i = 0; i < COMMS; i++) MPI_Comm_free(&teams[i].comm);
    MPI_Waitall(ALL, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < ALL; i++) {
        check(&teams[i % COMMS], i % COMMS, i / COMMS, in[i]);
        free(in[i]);
        free(out[i]);
        free(tables[i]);
    }
    return end();
}
