/* Many nonblocking collectives at once, on many comms, finished in another order than they were started; short ones go over boards
   (crates/coll/src/queue.rs) where there were some blocking ones before. */
#include "check.h"

enum { COMMS = 6, ROUNDS = 20, KINDS = 7, COUNT = 600 };

typedef struct {
    MPI_Comm comm;
    int rank, size;
    int *members; /* their ranks in MPI_COMM_WORLD */
} team;

static team teams[COMMS];

/* Blocking calls after which a comm has boards. */
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

static int length(int round) { return round % 5 == 4 ? 20 * COUNT : COUNT; }

static void start(team *t, int round, int *out, int *in, MPI_Request *request)
{
    int n = length(round), root = round % t->size;
    for (int i = 0; i < n * t->size; i++) out[i] = value(rank, i, round) % 1000;
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
    default: MPI_Ibarrier(t->comm, request);
    }
}

static int expected(const team *t, int round, int i)
{
    int n = length(round), all = 0;
    switch (round % KINDS) {
    case 0:
        for (int r = 0; r < t->size; r++) all += value(t->members[r], i, round) % 1000;
        return all;
    case 1: return value(t->members[i / n], t->rank * n + i % n, round) % 1000;
    case 2: return value(t->members[round % t->size], i, round) % 1000;
    case 3: return value(t->members[i / n], i % n, round) % 1000;
    case 5:
        for (int r = 0; r < t->size; r++) all += value(t->members[r], t->rank * n + i, round) % 1000;
        return all;
    default:
        for (int r = 0; r < t->size; r++) {
            int x = value(t->members[r], i, round) % 1000;
            all = x > all ? x : all;
        }
        return all;
    }
}

static void check(const team *t, int which, int round, const int *in)
{
    int kind = round % KINDS, n = length(round) * (kind == 1 || kind == 3 ? t->size : 1);
    checked++;
    for (int i = 0; kind != 6 && i < n; i++)
        if (in[i] != expected(t, round, i)) {
            check_failed(__FILE__, __LINE__, "comm %d of %d ranks, round %d, kind %d: element %d of %d is %d, not %d",
                         which, t->size, round, kind, i, n, in[i], expected(t, round, i));
            return;
        }
}

/* A nonblocking collective never matches a blocking one (MPI 5.0, section 6.12). A program whose ranks call the two in different
   orders is wrong, but other libraries carry it out, and mpi4py's stand-in for MPI_Comm_iagree counts on that. */
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

int main(int argc, char **argv)
{
    begin(&argc, &argv);
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
    int *out[ALL], *in[ALL];
    MPI_Request requests[ALL];
    for (int i = 0; i < ALL; i++) {
        size_t bytes = sizeof(int) * (size_t)length(i / COMMS) * teams[i % COMMS].size;
        out[i] = grab(bytes);
        in[i] = grab(bytes);
    }
    /* Within a comm all ranks start in the same order; between comms each rank has its own. */
    for (int round = 0; round < ROUNDS; round++)
        for (int k = 0; k < COMMS; k++) {
            int which = (k + rank) % COMMS, i = round * COMMS + which;
            start(&teams[which], round, out[i], in[i], &requests[i]);
        }
    for (int left = ALL; left > ALL / 2; left--) {
        int i;
        MPI_Waitany(ALL, requests, &i, MPI_STATUS_IGNORE);
        check(&teams[i % COMMS], i % COMMS, i / COMMS, in[i]);
    }
    /* Freed with operations under way: the comm goes when they are done (MPI 5.0, section 7.4.3). */
    for (int i = 0; i < COMMS; i++) MPI_Comm_free(&teams[i].comm);
    MPI_Waitall(ALL, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < ALL; i++) {
        check(&teams[i % COMMS], i % COMMS, i / COMMS, in[i]);
        free(in[i]);
        free(out[i]);
    }
    return end();
}
