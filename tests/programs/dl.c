/* The C library of training's collectives: every operation and type, callbacks without a caller in MPI, many
   operations under way, groups, time-outs and aborts.
   ranks: 1 2 4   ways: plain proxy   libs: outboard_dl */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <math.h>
#include <outboard_dl.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

static outboard_dl_group *all;

#define OK(call) \
    do { \
        int code_ = (call); \
        CHECK(code_ == 0, "%s returns %d: %s", #call, code_, outboard_dl_message()); \
    } while (0)

static void finish(outboard_dl_work *work)
{
    int done = 0;
    OK(outboard_dl_wait(work, 60));
    OK(outboard_dl_test(work, &done));
    EQUAL(done, 1, "done after a wait");
    outboard_dl_work_free(work);
}

/* Writes values of a type, by number. They are small, so that sums of 16-bit types are exact. */
static void put(void *data, int index, int type, int number)
{
    switch (type) {
    case OUTBOARD_DL_F16: ((_Float16 *)data)[index] = (_Float16)number; break;
    case OUTBOARD_DL_BF16: {
        float wide = (float)number;
        memcpy((char *)data + 2 * index, (char *)&wide + 2, 2);
        break;
    }
    case OUTBOARD_DL_F32: ((float *)data)[index] = (float)number; break;
    case OUTBOARD_DL_F64: ((double *)data)[index] = number; break;
    case OUTBOARD_DL_I8: case OUTBOARD_DL_U8: ((int8_t *)data)[index] = (int8_t)number; break;
    case OUTBOARD_DL_I16: case OUTBOARD_DL_U16: ((int16_t *)data)[index] = (int16_t)number; break;
    case OUTBOARD_DL_I32: case OUTBOARD_DL_U32: ((int32_t *)data)[index] = number; break;
    case OUTBOARD_DL_I64: case OUTBOARD_DL_U64: ((int64_t *)data)[index] = number; break;
    case OUTBOARD_DL_BOOL: ((uint8_t *)data)[index] = number != 0; break;
    }
}

static double get(const void *data, int index, int type)
{
    switch (type) {
    case OUTBOARD_DL_F16: return (double)((const _Float16 *)data)[index];
    case OUTBOARD_DL_BF16: {
        float wide = 0;
        memcpy((char *)&wide + 2, (const char *)data + 2 * index, 2);
        return wide;
    }
    case OUTBOARD_DL_F32: return ((const float *)data)[index];
    case OUTBOARD_DL_F64: return ((const double *)data)[index];
    case OUTBOARD_DL_I8: case OUTBOARD_DL_U8: return ((const int8_t *)data)[index];
    case OUTBOARD_DL_I16: case OUTBOARD_DL_U16: return ((const int16_t *)data)[index];
    case OUTBOARD_DL_I32: case OUTBOARD_DL_U32: return ((const int32_t *)data)[index];
    case OUTBOARD_DL_I64: case OUTBOARD_DL_U64: return (double)((const int64_t *)data)[index];
    default: return ((const uint8_t *)data)[index];
    }
}

static double reduced(int op, int index, int type)
{
    double value = 0;
    for (int who = 0; who < size; who++) {
        int one = 1 + (who + index) % 3;
        if (type == OUTBOARD_DL_BOOL) one = 1;
        if (who == 0) value = one;
        else if (op == OUTBOARD_DL_SUM || op == OUTBOARD_DL_AVERAGE) value += one;
        else if (op == OUTBOARD_DL_PRODUCT) value *= one;
        else if (op == OUTBOARD_DL_MIN) value = one < value ? one : value;
        else if (op == OUTBOARD_DL_MAX) value = one > value ? one : value;
        else if (op == OUTBOARD_DL_BAND) value = (int)value & one;
        else if (op == OUTBOARD_DL_BOR) value = (int)value | one;
        else value = (int)value ^ one;
    }
    if (op == OUTBOARD_DL_AVERAGE) value /= size;
    return type == OUTBOARD_DL_BOOL ? (op == OUTBOARD_DL_BXOR ? size % 2 : 1) : value;
}

static void reductions(void)
{
    enum { COUNT = 3000 };
    char *send = grab(COUNT * 8 * (size_t)size), *receive = grab(COUNT * 8);
    for (int type = OUTBOARD_DL_F16; type <= OUTBOARD_DL_BOOL; type++)
        for (int op = OUTBOARD_DL_SUM; op <= OUTBOARD_DL_BXOR; op++) {
            int is_float = type <= OUTBOARD_DL_F64;
            outboard_dl_work *work;
            if ((op == OUTBOARD_DL_AVERAGE && !is_float) || (op >= OUTBOARD_DL_BAND && is_float)) {
                EQUAL(outboard_dl_allreduce(all, NULL, receive, 1, type, op, NULL, &work), OUTBOARD_DL_ARGUMENT,
                      "an operator that is not defined");
                continue;
            }
            for (int i = 0; i < COUNT; i++) put(send, i, type, 1 + (rank + i) % 3);
            OK(outboard_dl_allreduce(all, send, receive, COUNT, type, op, NULL, &work));
            finish(work);
            double tolerance = op == OUTBOARD_DL_AVERAGE ? 0.01 : 0;
            for (int i = 0; i < COUNT; i++)
                if (fabs(get(receive, i, type) - reduced(op, i, type)) > tolerance) {
                    CHECK(0, "allreduce: type %d, op %d, element %d is %g, not %g", type, op, i, get(receive, i, type),
                          reduced(op, i, type));
                    break;
                }
            OK(outboard_dl_reduce(all, send, receive, COUNT, type, op, size - 1, NULL, &work));
            finish(work);
            if (rank == size - 1)
                CHECK(fabs(get(receive, 7, type) - reduced(op, 7, type)) <= tolerance, "reduce: type %d, op %d", type, op);
            for (int i = 0; i < COUNT * size; i++) put(send, i, type, 1 + (rank + i) % 3);
            OK(outboard_dl_reduce_scatter(all, send, receive, COUNT, type, op, NULL, &work));
            finish(work);
            CHECK(fabs(get(receive, 11, type) - reduced(op, rank * COUNT + 11, type)) <= tolerance,
                  "reduce_scatter: type %d, op %d: %g, not %g", type, op, get(receive, 11, type),
                  reduced(op, rank * COUNT + 11, type));
        }
    free(send), free(receive);
}

static void moves(int count)
{
    int *send = grab(4 * (size_t)count * (size_t)size), *receive = grab(4 * (size_t)count * (size_t)size);
    outboard_dl_work *work;
    int root = size / 2, type = OUTBOARD_DL_I32;
    fill(receive, count, rank, 1);
    OK(outboard_dl_broadcast(all, receive, count, type, root, NULL, &work));
    finish(work);
    FILLED(receive, count, root, 1);

    fill(send, count, rank, 2);
    OK(outboard_dl_allgather(all, send, receive, count, type, NULL, &work));
    finish(work);
    for (int who = 0; who < size; who++) FILLED(receive + who * count, count, who, 2);

    memset(receive, 0, 4 * (size_t)count * (size_t)size);
    OK(outboard_dl_gather(all, send, receive, count, type, root, NULL, &work));
    finish(work);
    for (int who = 0; who < size && rank == root; who++) FILLED(receive + who * count, count, who, 2);

    for (int who = 0; who < size; who++) fill(send + who * count, count, rank * 100 + who, 3);
    OK(outboard_dl_scatter(all, send, receive, count, type, root, NULL, &work));
    finish(work);
    FILLED(receive, count, root * 100 + rank, 3);

    OK(outboard_dl_alltoall(all, send, receive, count, type, NULL, &work));
    finish(work);
    for (int who = 0; who < size; who++) FILLED(receive + who * count, count, who * 100 + rank, 3);

    /* Each rank sends `rank + 1` parts to each other rank. */
    int part = count / size;
    int64_t counts[4][8];
    for (int who = 0, at = 0; who < size; who++) {
        counts[0][who] = part * (rank + 1), counts[1][who] = who * count;
        counts[2][who] = part * (who + 1), counts[3][who] = at;
        at += part * (who + 1);
    }
    int *tall = grab(4 * (size_t)part * (size_t)(size * (size + 1) / 2));
    OK(outboard_dl_alltoallv(all, send, counts[0], counts[1], tall, counts[2], counts[3], type, NULL, &work));
    memset(counts, 0x55, sizeof counts);
    finish(work);
    for (int who = 0, at = 0; who < size; at += part * (who + 1), who++)
        FILLED(tall + at, part * (who + 1), who * 100 + rank, 3);

    outboard_dl_work *other;
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    fill(send, count, rank, 4);
    OK(outboard_dl_receive(all, receive, count, type, -1, 5, NULL, &other));
    OK(outboard_dl_send(all, send, count, type, right, 5, NULL, &work));
    OK(outboard_dl_wait(other, 60));
    EQUAL(outboard_dl_source(other), left, "source");
    finish(work), finish(other);
    FILLED(receive, count, left, 4);
    free(send), free(receive), free(tall);
}

/* Counts below 0, and counts whose sum is 2^62 times the number of ranks, which is 0 in 64 bits if there are
   four ranks. */
static void wrong_lists(void)
{
    int64_t zeros[8] = {0}, below[8] = {0}, huge[8];
    char byte = 0;
    outboard_dl_work *work;
    for (int who = 0; who < size; who++) huge[who] = INT64_C(1) << 62;
    below[size - 1] = -1;
    EQUAL(outboard_dl_alltoallv(all, &byte, below, zeros, &byte, zeros, zeros, OUTBOARD_DL_U8, NULL, &work),
          OUTBOARD_DL_ARGUMENT, "a count below 0");
    if (size > 1)
        EQUAL(outboard_dl_alltoallv(all, &byte, zeros, zeros, &byte, huge, zeros, OUTBOARD_DL_U8, NULL, &work),
              OUTBOARD_DL_ARGUMENT, "a sum of counts beyond 64 bits");
}

static volatile int called;

static void count_call(void *state, int code, const char *message)
{
    CHECK(code == 0, "a callback gets %d: %s", code, message);
    __atomic_add_fetch((int *)state, 1, __ATOMIC_RELEASE);
}

/* Many operations are under way, and no thread is in MPI or in this library until the callbacks have come. */
static void outstanding(void)
{
    enum { EACH = 12, COUNT = 400000 };
    float *data[EACH];
    outboard_dl_options options = {.callback = count_call, .state = (void *)&called};
    for (int i = 0; i < EACH; i++) {
        data[i] = grab(4 * COUNT);
        for (int k = 0; k < COUNT; k++) data[i][k] = (float)(rank + i);
        /* The operations are long and in place; every third is an average. */
        int op = i % 3 ? OUTBOARD_DL_SUM : OUTBOARD_DL_AVERAGE;
        OK(outboard_dl_allreduce(all, NULL, data[i], COUNT, OUTBOARD_DL_F32, op, &options, NULL));
    }
    while (__atomic_load_n(&called, __ATOMIC_ACQUIRE) < EACH) sched_yield();
    for (int i = 0; i < EACH; i++) {
        float sum = (float)(size * (size - 1) / 2 + size * i);
        if (i % 3 == 0) sum /= (float)size;
        CHECK(data[i][0] == sum && data[i][COUNT - 1] == sum, "sum %d is %g, not %g", i, data[i][0], sum);
        free(data[i]);
    }
}

/* A short operation whose caller waits for it at once. */
static void waited(void)
{
    outboard_dl_options options = {.flags = OUTBOARD_DL_WAITED};
    for (int round = 0; round < 200; round++) {
        int64_t sum = rank + round;
        outboard_dl_work *work;
        OK(outboard_dl_allreduce(all, NULL, &sum, 1, OUTBOARD_DL_I64, OUTBOARD_DL_SUM, &options, &work));
        if (rank == 0 && round % 50 == 7) usleep(2000);
        finish(work);
        EQUAL(sum, size * (size - 1) / 2 + size * round, "sum");
    }
}

/* Each half of the ranks runs operations at the same time, with a barrier of all ranks between. */
static void halves(void)
{
    int ranks[8], members = 0, half = rank < (size + 1) / 2;
    for (int who = 0; who < size; who++)
        if ((who < (size + 1) / 2) == half) ranks[members++] = who;
    outboard_dl_group *group;
    outboard_dl_work *work;
    OK(outboard_dl_group_create(ranks, members, half ? "low" : "high", 60, &group));
    int32_t sum = rank, wanted = 0;
    for (int i = 0; i < members; i++) wanted += ranks[i];
    OK(outboard_dl_allreduce(group, NULL, &sum, 1, OUTBOARD_DL_I32, OUTBOARD_DL_SUM, NULL, &work));
    finish(work);
    EQUAL(sum, wanted, "sum of a half");
    OK(outboard_dl_barrier(all, NULL, &work));
    finish(work);
    OK(outboard_dl_group_free(group));
}

static void note(void *state, int code, const char *message)
{
    (void)message;
    *(int *)state = code;
}

/* A receive without a message ends in time and leaves its group as it was. */
static void late_receive(void)
{
    int code = -1, got = 0;
    outboard_dl_work *work;
    outboard_dl_options options = {.timeout = 0.1, .callback = note, .state = &code};
    OK(outboard_dl_receive(all, &got, 1, OUTBOARD_DL_I32, -1, 99, &options, &work));
    EQUAL(outboard_dl_wait(work, -1), OUTBOARD_DL_TIMEOUT, "a late receive");
    CHECK(strstr(outboard_dl_message(), "receive of 1 i32") != NULL, "its message is '%s'", outboard_dl_message());
    EQUAL(code, OUTBOARD_DL_TIMEOUT, "the callback's code");
    outboard_dl_work_free(work);
    OK(outboard_dl_barrier(all, NULL, &work));
    finish(work);
}

/* All but the last rank start a barrier of a group that is then aborted, or times out. Then the last rank joins, so that
   MPI has no operation left. */
static void broken(int by_timeout)
{
    int ranks[8];
    for (int who = 0; who < size; who++) ranks[who] = who;
    outboard_dl_group *group;
    outboard_dl_work *work;
    OK(outboard_dl_group_create(ranks, size, "broken", by_timeout ? 0.1 : 60, &group));
    if (rank < size - 1) {
        OK(outboard_dl_barrier(group, NULL, &work));
        if (!by_timeout) {
            EQUAL(outboard_dl_wait(work, 0.05), OUTBOARD_DL_TIMEOUT, "a short wait");
            OK(outboard_dl_group_abort(group, "the test says so"));
        }
        int wanted = by_timeout ? OUTBOARD_DL_TIMEOUT : OUTBOARD_DL_ABORTED;
        EQUAL(outboard_dl_wait(work, 60), wanted, "a broken barrier");
        outboard_dl_work_free(work);
        EQUAL(outboard_dl_barrier(group, NULL, &work), OUTBOARD_DL_ABORTED, "a start in a broken group");
    }
    OK(outboard_dl_barrier(all, NULL, &work));
    finish(work);
    outboard_dl_options none = {.timeout = -1};
    if (rank == size - 1) {
        OK(outboard_dl_barrier(group, &none, &work));
        finish(work);
    }
    OK(outboard_dl_group_free(group));
}

int main(int argc, char **argv)
{
    int provided, ranks[8];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    OK(outboard_dl_init());
    rank = outboard_dl_world_rank(), size = outboard_dl_world_size();
    EQUAL(outboard_dl_world_node(), 0, "the first rank of the only node");
    for (int who = 0; who < size; who++) ranks[who] = who;
    OK(outboard_dl_group_create(ranks, size, "all", 60, &all));
    outboard_dl_work *work;
    /* The call is refused by this rank alone, before it waits for others. */
    if (rank == 0) EQUAL(outboard_dl_group_create(ranks, size, "none", 60, NULL), OUTBOARD_DL_ARGUMENT, "no place for a group");
    EQUAL(outboard_dl_broadcast(all, ranks, 1, OUTBOARD_DL_I32, size, NULL, &work), OUTBOARD_DL_ARGUMENT, "a wrong root");
    EQUAL(outboard_dl_broadcast(all, ranks, 1, 77, 0, NULL, &work), OUTBOARD_DL_ARGUMENT, "a wrong type");
    EQUAL(outboard_dl_broadcast(all, ranks, -1, OUTBOARD_DL_I32, 0, NULL, &work), OUTBOARD_DL_ARGUMENT, "a wrong count");
    wrong_lists();
    reductions();
    moves(24), moves(60000);
    outstanding();
    waited();
    halves();
    late_receive();
    if (size > 1) broken(0), broken(1);
    OK(outboard_dl_group_free(all));
    OK(outboard_dl_finalize());
    return end();
}
