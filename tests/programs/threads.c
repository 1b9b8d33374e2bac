/* MPI_THREAD_MULTIPLE: threads that send, receive, probe, run collectives on comms of their own, duplicate
   comms, set attributes on them, and wait for requests that other threads started.
   ranks: 1 2 3   ways: plain proxy no-cma */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 60, LONG = 30000 };

static MPI_Comm comms[THREADS];
static int to, from, key;
static pthread_barrier_t gate;
static MPI_Request shared[THREADS];
static int shared_in[THREADS];
/* CHECK counts without a lock, so each thread has its own counter. */
static long wrong[THREADS], copied[THREADS];
#define HOLDS(condition, what) \
    do { \
        if (!(condition)) { \
            if (!wrong[me]++) fprintf(stderr, "rank %d, thread %d, round %d: %s\n", rank, me, round, what); \
        } \
    } while (0)

static void messages(int me, int round)
{
    int count = round % 3 ? 10 : LONG, *out = grab(LONG * sizeof(int)), *in = grab(LONG * sizeof(int));
    MPI_Request requests[2];
    fill(out, count, rank * THREADS + me, round);
    /* The tag belongs to the thread, so all threads use one comm and one matcher. */
    MPI_Irecv(in, count, MPI_INT, from, me, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, count, MPI_INT, to, me, MPI_COMM_WORLD, &requests[1]);
    if (round % 2) {
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    } else {
        int done = 0;
        while (!done) MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
    }
    for (int i = 0; i < count; i++)
        if (in[i] != value(from * THREADS + me, i, round)) {
            HOLDS(0, "a message is wrong");
            break;
        }
    free(out);
    free(in);
}

/* A matched probe gives a message to one thread only: all threads look for the same messages. */
static void probes(int me, int round)
{
    int out = value(rank, me, round), in = -1, bytes;
    MPI_Message message;
    MPI_Status status;
    MPI_Send(&out, 1, MPI_INT, to, 100, MPI_COMM_WORLD);
    MPI_Mprobe(from, 100, MPI_COMM_WORLD, &message, &status);
    MPI_Get_count(&status, MPI_INT, &bytes);
    MPI_Mrecv(&in, 1, MPI_INT, &message, &status);
    int known = 0;
    for (int who = 0; who < THREADS; who++)
        for (int when = 0; when <= ROUNDS; when++) known |= in == value(from, who, when);
    HOLDS(bytes == 1 && known, "a probed message is wrong");
}

static void collectives(int me, int round)
{
    int one = rank + me + round, sum = -1, expected = 0;
    for (int i = 0; i < size; i++) expected += i + me + round;
    if (round % 2) {
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comms[me]);
    } else {
        MPI_Request request;
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comms[me], &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    HOLDS(sum == expected, "a sum is wrong");
}

static int copy(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    int answer;
    (void)extra, (void)keyval;
    /* A callback may call MPI. */
    MPI_Comm_compare(comm, comm, &answer);
    ++*(long *)in;
    *(void **)out = in;
    *flag = answer == MPI_IDENT;
    return MPI_SUCCESS;
}

static void duplicates(int me, int round)
{
    MPI_Comm twin;
    void *found;
    int flag, mine = -1;
    MPI_Comm_set_attr(comms[me], key, &copied[me]);
    MPI_Comm_dup(comms[me], &twin);
    MPI_Comm_get_attr(twin, key, &found, &flag);
    HOLDS(flag && found == &copied[me], "an attribute is lost");
    MPI_Comm_rank(twin, &mine);
    MPI_Barrier(twin);
    HOLDS(mine == rank, "a twin's rank is wrong");
    MPI_Comm_free(&twin);
}

/* Each thread starts a receive and its neighbour waits for it, asleep until a message is sent. */
static void handed_over(int me, int round)
{
    int next = (me + 1) % THREADS, out = value(rank, me, round);
    MPI_Irecv(&shared_in[me], 1, MPI_INT, from, 200 + me, MPI_COMM_WORLD, &shared[me]);
    pthread_barrier_wait(&gate);
    if (me % 2) MPI_Send(&out, 1, MPI_INT, to, 200 + me, MPI_COMM_WORLD);
    if (me % 2) MPI_Wait(&shared[next], MPI_STATUS_IGNORE);
    if (!(me % 2)) MPI_Send(&out, 1, MPI_INT, to, 200 + me, MPI_COMM_WORLD);
    if (!(me % 2)) MPI_Wait(&shared[next], MPI_STATUS_IGNORE);
    HOLDS(shared_in[next] == value(from, next, round), "a message of another thread is wrong");
    pthread_barrier_wait(&gate);
}

static int nothing(void *extra)
{
    (void)extra;
    return MPI_SUCCESS;
}
static int none(void *extra, MPI_Status *status)
{
    (void)extra;
    MPI_Status_set_elements(status, MPI_BYTE, 0);
    return MPI_SUCCESS;
}
static int never(void *extra, int complete)
{
    (void)complete;
    return nothing(extra);
}

/* A wait ends when another thread completes the request. */
static void generalized(int me, int round)
{
    (void)round;
    int next = (me + 1) % THREADS;
    MPI_Grequest_start(none, nothing, never, NULL, &shared[me]);
    pthread_barrier_wait(&gate);
    MPI_Request mine = shared[me];
    MPI_Grequest_complete(shared[next]);
    MPI_Wait(&mine, MPI_STATUS_IGNORE);
    pthread_barrier_wait(&gate);
}

static void *work(void *argument)
{
    int me = (int)(intptr_t)argument;
    for (int round = 0; round < ROUNDS; round++) {
        messages(me, round);
        probes(me, round);
        collectives(me, round);
        if (round % 4 == me % 4) duplicates(me, round);
        if (round % 8 == 0) handed_over(me, round);
        if (round % 8 == 4) generalized(me, round);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    EQUAL(provided, MPI_THREAD_MULTIPLE, "level");
    to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Comm_create_keyval(copy, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    for (int i = 0; i < THREADS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    pthread_barrier_init(&gate, NULL, THREADS);
    pthread_t threads[THREADS];
    for (intptr_t i = 1; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    work(0);
    for (int i = 1; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        EQUAL(wrong[i], 0, "wrong");
        EQUAL(copied[i], ROUNDS / 4, "copies of attributes");
        MPI_Comm_free(&comms[i]);
    }
    MPI_Comm_free_keyval(&key);
    return end();
}
