/* Calls whose instructions tests/budgets counts: each in a function of its own, on rank 0, after rank 1 has done its part.
 *
 * The ranks synchronize by flags in shared memory, not by MPI, so each call starts from the same state: the partner of a
 * send is outside of MPI, the message of a receive has arrived, the partner of an allreduce waits in it. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { REPEATS = 40, MESSAGES = 16 };

static long out = 1, in, outs[2], ins[2];
static MPI_Win window;
static MPI_Request request, requests[MESSAGES];

/* `tests/budgets` finds these by their names. */
#define COUNTED __attribute__((noinline, noclone, used))
COUNTED void budget_send(void) { MPI_Send(&out, 8, MPI_CHAR, 1, 7, MPI_COMM_WORLD); }
COUNTED void budget_recv(void) { MPI_Recv(&in, 8, MPI_CHAR, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }
static void post_window(void)
{
    for (int i = 0; i < MESSAGES; i++) MPI_Irecv(&in, 8, MPI_CHAR, 1, 7, MPI_COMM_WORLD, &requests[i]);
}
/* Messages that have come after their receives, and the receives of the next window. */
COUNTED void budget_window(void)
{
    MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
    post_window();
}
COUNTED void budget_put(void)
{
    MPI_Put(&out, 8, MPI_CHAR, 1, 0, 8, MPI_CHAR, window);
    MPI_Win_flush(1, window);
}
COUNTED void budget_accumulate(void)
{
    MPI_Accumulate(&out, 1, MPI_LONG, 1, 0, 1, MPI_LONG, MPI_SUM, window);
    MPI_Win_flush(1, window);
}
COUNTED void budget_fetch_and_op(void)
{
    MPI_Fetch_and_op(&out, &in, MPI_LONG, 1, 0, MPI_SUM, window);
    MPI_Win_flush(1, window);
}
COUNTED void budget_allreduce(void) { MPI_Allreduce(&out, &in, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD); }
COUNTED void budget_barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }
COUNTED void budget_bcast(void) { MPI_Bcast(&in, 1, MPI_LONG, 1, MPI_COMM_WORLD); }
COUNTED void budget_reduce(void) { MPI_Reduce(&out, &in, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD); }
COUNTED void budget_allgather(void) { MPI_Allgather(&out, 1, MPI_LONG, ins, 1, MPI_LONG, MPI_COMM_WORLD); }
COUNTED void budget_alltoall(void) { MPI_Alltoall(outs, 1, MPI_LONG, ins, 1, MPI_LONG, MPI_COMM_WORLD); }
COUNTED void budget_ibarrier(void) { MPI_Ibarrier(MPI_COMM_WORLD, &request); }
COUNTED void budget_launch(void) { MPI_Ialltoall(outs, 1, MPI_LONG, ins, 1, MPI_LONG, MPI_COMM_WORLD, &request); }

/* The work of rank 1 beside each call, before rank 0's part (or after it, for a send). */
static void send_here(void) { MPI_Send(&out, 8, MPI_CHAR, 0, 7, MPI_COMM_WORLD); }
static void recv_here(void) { MPI_Recv(&in, 8, MPI_CHAR, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }
static void send_window(void)
{
    for (int i = 0; i < MESSAGES; i++) send_here();
}
static void nothing(void) {}
static void finish(void) { MPI_Wait(&request, MPI_STATUS_IGNORE); }
static void cancel_window(void)
{
    for (int i = 0; i < MESSAGES; i++) {
        MPI_Cancel(&requests[i]);
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    }
}

typedef struct {
    const char *name;
    void (*before)(void); /* rank 1, first */
    int blocks;           /* whether `before` ends only with what rank 0 does */
    void (*counted)(void);
    void (*after)(void); /* rank 1, then */
    void (*mine)(void);  /* rank 0, at last */
    void (*first)(void), (*last)(void); /* rank 0, around all repetitions */
} call;

static const call calls[] = {
    {"send", nothing, 0, budget_send, recv_here, nothing},
    {"recv", send_here, 0, budget_recv, nothing, nothing},
    {"window", send_window, 0, budget_window, nothing, nothing, post_window, cancel_window},
    {"put", nothing, 0, budget_put, nothing, nothing},
    {"accumulate", nothing, 0, budget_accumulate, nothing, nothing},
    {"fetch_and_op", nothing, 0, budget_fetch_and_op, nothing, nothing},
    {"allreduce", budget_allreduce, 1, budget_allreduce, nothing, nothing},
    {"barrier", budget_barrier, 1, budget_barrier, nothing, nothing},
    {"bcast", budget_bcast, 1, budget_bcast, nothing, nothing},
    {"reduce", budget_reduce, 1, budget_reduce, nothing, nothing},
    {"allgather", budget_allgather, 1, budget_allgather, nothing, nothing},
    {"alltoall", budget_alltoall, 1, budget_alltoall, nothing, nothing},
    {"ibarrier", budget_ibarrier, 0, budget_ibarrier, finish, finish},
    {"launch", budget_launch, 0, budget_launch, finish, finish},
    {0},
};

/* Each rank writes how far it is, and reads the other's flag. */
static atomic_long *flags[2];
static int rank;
static void reach(long step) { atomic_store(flags[rank], step); }
static void wait_for(long step)
{
    while (atomic_load(flags[1 - rank]) < step) usleep(50);
}

static void repeat(const call *c, long *step)
{
    if (rank == 0 && c->first) c->first();
    for (int at = 0; at < REPEATS; at++) {
        if (rank == 1) {
            wait_for(++*step);
            if (c->blocks) reach(*step);
            c->before();
            reach(*step);
            wait_for(++*step);
            c->after();
            reach(*step);
        } else {
            reach(++*step);
            wait_for(*step);
            /* Wait until the other rank is certainly inside its call. */
            if (c->blocks) usleep(2000);
            c->counted();
            reach(++*step);
            c->mine();
            wait_for(*step);
        }
    }
    if (rank == 0 && c->last) c->last();
}

int main(int argc, char **argv)
{
    MPI_Win shared;
    MPI_Aint bytes;
    void *mine, *base;
    int unit;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win_allocate_shared(4096, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &shared);
    for (int at = 0; at < 2; at++) MPI_Win_shared_query(shared, at, &bytes, &unit, &flags[at]);
    MPI_Win_allocate(64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    MPI_Win_lock_all(0, window);
    reach(0);
    MPI_Barrier(MPI_COMM_WORLD);
    long step = 0;
    for (const call *c = calls; c->name; c++)
        for (int at = 1; at < argc; at++)
            if (strcmp(argv[at], c->name) == 0) repeat(c, &step);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Win_free(&shared);
    MPI_Finalize();
    return 0;
}
