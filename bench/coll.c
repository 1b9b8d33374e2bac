/* Collectives, blocking or persistent: the average over the ranks of the time inside the call, as OSU's
   programs report it. With --skew US every rank arrives at a random moment within US microseconds. The result
   is then the time from the last arrival to the last end, for which all ranks must share a clock (one
   machine). */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives.h"

#include <stdlib.h>
#include <string.h>

static void wait_until(double time)
{
    while (clock_us() < time) continue;
}

/* One call: its time on this rank, and when it started and ended. */
static double timed(const collective *c, const arguments *a, MPI_Request *persistent, double *began, double *ended)
{
    *began = clock_us();
    if (persistent) {
        MPI_Start(persistent);
        MPI_Wait(persistent, MPI_STATUS_IGNORE);
    } else {
        c->block(a);
    }
    *ended = clock_us();
    return *ended - *began;
}

static result measure(const options *o, const test *t, size_t bytes)
{
    const collective *c = t->what;
    arguments a = prepare_arguments(o, c, bytes);
    int many = iterations_of(o, bytes);
    MPI_Request request, *persistent = strcmp(o->form, "persistent") == 0 ? &request : NULL;
    if (persistent) c->prepare(&a, persistent);
    double *begins = malloc(2 * many * sizeof *begins), *ends = begins + many, sum = 0;
    unsigned seed = 12345u + 977u * (unsigned)rank;
    for (int i = -o->warm_ups; i < many; i++) {
        double began, ended;
        MPI_Barrier(MPI_COMM_WORLD);
        if (o->skew_us) wait_until(clock_us() + (double)(rand_r(&seed) % 10000) * o->skew_us / 1e4);
        double time = timed(c, &a, persistent, &began, &ended);
        if (i < 0) continue;
        sum += time;
        begins[i] = began;
        ends[i] = ended;
    }
    result r = over_ranks(sum / many);
    if (o->skew_us) {
        MPI_Allreduce(MPI_IN_PLACE, begins, many, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        MPI_Allreduce(MPI_IN_PLACE, ends, many, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        for (int i = 0; i < many; i++) ends[i] -= begins[i];
        r.value = median(ends, many);
    }
    if (persistent) MPI_Request_free(persistent);
    r.failed = o->validate && anywhere(!check_collective(c, &a));
    free(begins);
    release_arguments(o, &a);
    return r;
}

int main(int argc, char **argv)
{
    enum { TESTS_MAX = 64 };
    test tests[TESTS_MAX] = {{0}};
    for (int at = 0; collectives[at].name && at < TESTS_MAX - 1; at++) {
        const collective *c = &collectives[at];
        tests[at] = (test){c->name, "Avg Latency(us)", 1, c->reduces ? 4 : 1, measure, c->no_data, c, NULL};
    }
    takes_devices = 1;
    return bench_main(argc, argv, "Collectives over all ranks.", tests, MPI_THREAD_SINGLE);
}
