/* Messages that proxies may move beside work, at random: whoever comes first, receives with and without
   wildcards, posted early and late, too short ones, probes, cancelled ones, datatypes with gaps, every kind of
   send. What arrives is right, and messages do not overtake each other (MPI 5.0, section 3.5).
   ranks: 2 3   ways: plain proxy two-proxies refused-proxy nodes-proxy   env: OUTBOARD_EAGER_BYTES_MAX=1KiB */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

enum { ROUNDS = 8, MESSAGES = 12, TAGS = 3, INTS = 20000, RECEIVES_MAX = 4 * MESSAGES * 4 };

/* Draws the same numbers on all ranks. */
static uint64_t plan_state;
static unsigned next_of(uint64_t *state, unsigned below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33) % below;
}
static unsigned planned(unsigned below) { return next_of(&plan_state, below); }
static uint64_t own_state;
static unsigned own(unsigned below) { return next_of(&own_state, below); }

static void work(void)
{
    volatile double x = 1;
    for (unsigned n = own(4) * 20000; n > 0; n--) x = x * 0.999 + 1;
}

typedef struct {
    int tag, ints, how;
} message;

/* The messages from every rank to every other in a round, in order. */
static message plan[4][4][MESSAGES];

/* How the receives of a tag are made in this round. */
enum { EXACT, EXACT_THEN_ANY, ANY_SOURCE, MODES };
static int modes[TAGS], any_tag;

/* A rank may be a round ahead of the others, so the tag tells the two rounds apart for receives from any
   source. */
static void make_plan(int round)
{
    int first_tag = round % 2 * TAGS;
    static const int lengths[] = {1, 5, 200, 300, 2000, 6000, 19000};
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            for (int i = 0; i < MESSAGES; i++)
                plan[from][to][i] = (message){first_tag + (int)planned(TAGS), lengths[planned(7)], planned(6)};
    any_tag = planned(4) == 0;
    for (int t = 0; t < TAGS; t++) modes[t] = planned(MODES);
}

typedef struct {
    int source, tag, capacity, gaps;
    int *data;
    MPI_Request request;
    MPI_Status status;
    int code;
} receive;

static MPI_Comm comm;
static MPI_Datatype thirds;

/* A message begins with its number among the messages of its pair. */
static void fill_message(int *data, int ints, int to, int i, int round)
{
    fill(data, ints, rank * 4 + to, round * 100 + i);
    data[0] = i;
}

static void check_received(const receive *r, int round)
{
    int from = r->status.MPI_SOURCE, i = r->data[0], seen;
    if (from < 0 || from >= size || i < 0 || i >= MESSAGES) {
        CHECK(0, "a message of rank %d has number %d", from, i);
        return;
    }
    const message *m = &plan[from][rank][i];
    EQUAL(r->status.MPI_TAG, m->tag, "tag");
    int taken = m->ints < r->capacity ? m->ints : r->capacity;
    EQUAL(error_class(r->code), m->ints > r->capacity ? MPI_ERR_TRUNCATE : MPI_SUCCESS, "class");
    MPI_Get_count(&r->status, MPI_INT, &seen);
    EQUAL(seen, taken, "count");
    int step = r->gaps ? 3 : 1;
    for (int at = 1; at < taken; at++)
        if (r->data[at * step] != value(from * 4 + rank, at, round * 100 + i)) {
            CHECK(0, "int %d of %d from rank %d, message %d, round %d", at, taken, from, i, round);
            break;
        }
    int end = taken * step;
    if (end < INTS) EQUAL(r->data[end], -7, "what lies behind the message");
    checked++;
}

static void check_order(const receive *rs, int many)
{
    for (int a = 0; a < many; a++)
        for (int b = a + 1; b < many; b++) {
            if (rs[a].status.MPI_SOURCE != rs[b].status.MPI_SOURCE) continue;
            int fits = (rs[a].tag == MPI_ANY_TAG || rs[a].tag == rs[b].status.MPI_TAG);
            if (fits) CHECK(rs[a].data[0] < rs[b].data[0], "message %d overtook %d", rs[b].data[0], rs[a].data[0]);
        }
}

/* Makes the receives of a round, in the order in which they are posted: exact receives of a tag come before
   wildcards of it, so that the wildcards take no message for which another receive waits. */
static int make_receives(receive *rs)
{
    int many = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < MESSAGES; i++)
            for (int from = 0; from < size; from++) {
                if (from == rank) continue;
                const message *m = &plan[from][rank][i];
                int exact = modes[m->tag % TAGS] == EXACT || (modes[m->tag % TAGS] == EXACT_THEN_ANY && i % 2 == 0);
                if (any_tag ? pass == 1 : exact != (pass == 0)) continue;
                receive *r = &rs[many++];
                r->source = exact || any_tag ? from : MPI_ANY_SOURCE;
                r->tag = any_tag ? MPI_ANY_TAG : m->tag;
                r->capacity = own(8) == 0 ? 150 : INTS / 3;
                r->gaps = own(4) == 0;
                if (!r->gaps && r->capacity > 150) r->capacity = INTS;
            }
    return many;
}

static void begin_receive(receive *r)
{
    for (int at = 0; at < INTS; at++) r->data[at] = -7;
    MPI_Datatype type = r->gaps ? thirds : MPI_INT;
    int how = own(10);
    if (how == 0) {
        MPI_Message found;
        MPI_Status probed;
        int flag;
        MPI_Improbe(r->source, r->tag, comm, &flag, &found, &probed);
        if (flag) {
            MPI_Imrecv(r->data, r->capacity, type, &found, &r->request);
            return;
        }
    }
    MPI_Irecv(r->data, r->capacity, type, r->source, r->tag, comm, &r->request);
    if (how == 1 && r->source != MPI_ANY_SOURCE) {
        /* A message comes to this receive, or to the next one if this one was cancelled. */
        int flag;
        MPI_Cancel(&r->request);
        work();
        r->code = MPI_Wait(&r->request, &r->status);
        MPI_Test_cancelled(&r->status, &flag);
        if (!flag) return;
        MPI_Irecv(r->data, r->capacity, type, r->source, r->tag, comm, &r->request);
    }
}

/* Receives are posted late only for messages whose sends do not block until then. */
static void round_of(int round, receive *rs)
{
    static int *bufs[4 * MESSAGES];
    static MPI_Request sends[4 * MESSAGES];
    int many = make_receives(rs), early = own(3) == 0 ? many : (int)own(many + 1), sent = 0;
    MPI_Request never = MPI_REQUEST_NULL;
    static int nothing[5000];
    if (own(3) == 0) MPI_Irecv(nothing, 5000, MPI_INT, (rank + 1) % size, 99, comm, &never);
    for (int n = 0; n < early; n++) begin_receive(&rs[n]);
    work();
    for (int i = 0; i < MESSAGES; i++)
        for (int hop = 1; hop < size; hop++) {
            int to = (rank + hop) % size;
            const message *m = &plan[rank][to][i];
            if (!bufs[sent]) bufs[sent] = grab(3 * INTS * sizeof(int));
            int *data = bufs[sent];
            fill_message(data, m->ints, to, i, round);
            switch (m->how) {
            case 0: MPI_Issend(data, m->ints, MPI_INT, to, m->tag, comm, &sends[sent]); break;
            case 1: {
                /* Spreads the ints three times as far apart. */
                for (int at = m->ints - 1; at > 0; at--) data[3 * at] = data[at];
                MPI_Isend(data, m->ints, thirds, to, m->tag, comm, &sends[sent]);
                break;
            }
            case 2:
                MPI_Send_init(data, m->ints, MPI_INT, to, m->tag, comm, &sends[sent]);
                MPI_Start(&sends[sent]);
                break;
            default: MPI_Isend(data, m->ints, MPI_INT, to, m->tag, comm, &sends[sent]); break;
            }
            sent++;
            if (own(6) == 0) work();
        }
    for (int n = early; n < many; n++) begin_receive(&rs[n]);
    work();
    for (int n = 0; n < many; n++) {
        if (rs[n].request != MPI_REQUEST_NULL) rs[n].code = MPI_Wait(&rs[n].request, &rs[n].status);
        check_received(&rs[n], round);
    }
    check_order(rs, many);
    EQUAL(MPI_Waitall(sent, sends, MPI_STATUSES_IGNORE), MPI_SUCCESS, "the code of the sends");
    for (int n = 0; n < sent; n++)
        if (sends[n] != MPI_REQUEST_NULL) MPI_Request_free(&sends[n]);
    if (never != MPI_REQUEST_NULL) {
        MPI_Status status;
        int flag;
        MPI_Cancel(&never);
        MPI_Wait(&never, &status);
        MPI_Test_cancelled(&status, &flag);
        CHECK(flag, "a receive without a message was not cancelled");
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int rounds = argc > 1 ? atoi(argv[1]) : ROUNDS;
    uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    plan_state = seed * 7919, own_state = seed * 104729 + (uint64_t)rank * 15485863;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Type_create_resized(MPI_INT, 0, 3 * sizeof(int), &thirds);
    MPI_Type_commit(&thirds);
    receive *rs = calloc(RECEIVES_MAX, sizeof *rs);
    for (int n = 0; n < RECEIVES_MAX; n++) rs[n].data = grab((INTS + 3) * sizeof(int));
    for (int round = 0; round < rounds; round++) {
        make_plan(round);
        round_of(round, rs);
        if (planned(3) == 0) MPI_Barrier(comm);
    }
    MPI_Type_free(&thirds);
    MPI_Comm_free(&comm);
    return end();
}
