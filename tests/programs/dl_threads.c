/* The C library of training's collectives by several threads: a wait beside a test, functions of operations that wait for
   other operations, and a fork that ends as any process does.
   ranks: 1 2 3   ways: plain proxy   libs: outboard_dl */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <outboard_dl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static outboard_dl_group *all;

#define OK(call) \
    do { \
        int code_ = (call); \
        CHECK(code_ == 0, "%s returns %d: %s", #call, code_, outboard_dl_message()); \
    } while (0)

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static outboard_dl_work *tested;

static void *test_a_while(void *unused)
{
    int done = 0;
    (void)unused;
    for (double begun = now(); now() - begun < 0.0006 && !done;) OK(outboard_dl_test(tested, &done));
    return NULL;
}

/* One thread waits, another tests the same operation and stops. */
static void wait_and_test(void)
{
    for (int round = 0; round < 60; round++) {
        float one = 1, sum = 0;
        if (rank != 0) usleep(4000);
        outboard_dl_options options = {.timeout = -1, .flags = OUTBOARD_DL_WAITED};
        OK(outboard_dl_allreduce(all, &one, &sum, 1, OUTBOARD_DL_F32, OUTBOARD_DL_SUM, &options, &tested));
        if (rank == 0) {
            pthread_t tester;
            pthread_create(&tester, NULL, test_a_while, NULL);
            int code = outboard_dl_wait(tested, 20);
            CHECK(code == 0, "round %d: a wait beside a test returns %d: %s", round, code, outboard_dl_message());
            if (code != 0) _exit(1);
            pthread_join(tester, NULL);
        } else {
            OK(outboard_dl_wait(tested, -1));
        }
        EQUAL((int)sum, size, "the sum");
        outboard_dl_work_free(tested);
    }
}

struct chain {
    int depth, done;
    int64_t sum;
    outboard_dl_work *before;
};

/* Waits for an operation that started before this one, and for one that starts here, whose function does the same.
   */
static void go_on(void *state, int code, const char *message)
{
    struct chain *chain = state;
    CHECK(code == 0, "a callback gets %d: %s", code, message);
    if (chain->before) OK(outboard_dl_wait(chain->before, 60));
    if (chain->depth > 0) {
        struct chain next = {.depth = chain->depth - 1, .sum = chain->depth};
        outboard_dl_options options = {.callback = go_on, .state = &next};
        outboard_dl_work *work;
        OK(outboard_dl_allreduce(all, NULL, &next.sum, 1, OUTBOARD_DL_I64, OUTBOARD_DL_SUM, &options, &work));
        OK(outboard_dl_wait(work, 60));
        outboard_dl_work_free(work);
        EQUAL(next.sum, chain->depth * size, "the sum of an operation that began in a callback");
    }
    __atomic_store_n(&chain->done, 1, __ATOMIC_RELEASE);
}

static void waits_in_callbacks(void)
{
    int token = 0, right = (rank + 1) % size, left = (rank + size - 1) % size;
    struct chain chain = {.depth = 4};
    outboard_dl_options options = {.callback = go_on, .state = &chain};
    outboard_dl_work *send, *work;
    OK(outboard_dl_receive(all, &token, 1, OUTBOARD_DL_I32, left, 8, NULL, &chain.before));
    OK(outboard_dl_allreduce(all, NULL, &chain.sum, 1, OUTBOARD_DL_I64, OUTBOARD_DL_SUM, &options, &work));
    usleep(20000);
    OK(outboard_dl_send(all, &rank, 1, OUTBOARD_DL_I32, right, 8, NULL, &send));
    OK(outboard_dl_wait(work, 60));
    EQUAL(chain.done, 1, "the callback has returned");
    OK(outboard_dl_wait(send, 60));
    EQUAL(token, left, "what a callback waited for");
    outboard_dl_work_free(send), outboard_dl_work_free(work), outboard_dl_work_free(chain.before);
}

static void wait_in_vain(void *state, int code, const char *message)
{
    int got = 0, tag = 9;
    outboard_dl_work *work;
    (void)message;
    EQUAL(code, 0, "a callback's code");
    OK(outboard_dl_receive(state, &got, 1, OUTBOARD_DL_I32, -1, tag, NULL, &work));
    EQUAL(outboard_dl_wait(work, -1), OUTBOARD_DL_TIMEOUT, "a wait in a callback ends at the group's time-out");
    outboard_dl_work_free(work);
}

static void waits_in_vain(void)
{
    int ranks[8];
    for (int who = 0; who < size; who++) ranks[who] = who;
    outboard_dl_group *group;
    outboard_dl_work *work;
    OK(outboard_dl_group_create(ranks, size, "hurried", 5, &group));
    outboard_dl_options options = {.timeout = 60, .callback = wait_in_vain, .state = group};
    OK(outboard_dl_barrier(group, NULL, &work));
    OK(outboard_dl_wait(work, -1));
    outboard_dl_work_free(work);
    OK(outboard_dl_group_free(group));
    OK(outboard_dl_group_create(ranks, size, "late", 0.2, &group));
    options.state = group;
    OK(outboard_dl_barrier(group, &options, &work));
    OK(outboard_dl_wait(work, -1));
    outboard_dl_work_free(work);
    OK(outboard_dl_group_free(group));
}

/* A fork has no threads of the library and no MPI: calls return an error, and an exit ends the process. */
static void forked(void)
{
    int token = 0, done = 0;
    outboard_dl_work *work;
    OK(outboard_dl_receive(all, &token, 1, OUTBOARD_DL_I32, rank, 10, NULL, &work));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int good = outboard_dl_test(work, &done) == OUTBOARD_DL_STATE && strstr(outboard_dl_message(), "fork") &&
                   outboard_dl_wait(work, -1) == OUTBOARD_DL_STATE && outboard_dl_init() == OUTBOARD_DL_STATE &&
                   outboard_dl_barrier(all, NULL, NULL) == OUTBOARD_DL_STATE;
        outboard_dl_work_free(work);
        exit(good && outboard_dl_finalize() == OUTBOARD_DL_OK ? 0 : 3);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a fork ends with status %#x", status);
    outboard_dl_work *send;
    OK(outboard_dl_send(all, &rank, 1, OUTBOARD_DL_I32, rank, 10, NULL, &send));
    OK(outboard_dl_wait(send, 60));
    OK(outboard_dl_wait(work, 60));
    EQUAL(token, rank, "what came after the fork");
    outboard_dl_work_free(send), outboard_dl_work_free(work);
}

int main(int argc, char **argv)
{
    int provided, ranks[8];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    OK(outboard_dl_init());
    rank = outboard_dl_world_rank(), size = outboard_dl_world_size();
    for (int who = 0; who < size; who++) ranks[who] = who;
    OK(outboard_dl_group_create(ranks, size, "all", 60, &all));
    wait_and_test();
    waits_in_callbacks();
    waits_in_vain();
    forked();
    OK(outboard_dl_group_free(all));
    OK(outboard_dl_finalize());
    return end();
}
