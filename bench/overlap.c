/* Nonblocking collectives and messages beside work that makes no MPI call: how much of the communication costs the program no time.
 *
 * OSU's way: each rank's average time of start, work as long as the communication, and wait ("Overall"), of the work in it
 * ("Compute") and of start and wait alone ("Pure Comm."); overlap = 100 - 100 (overall - compute) / pure.
 * By fixed work: the operation alone (T_comm), the work alone (T_work), the two together (T_both); medians over the iterations,
 * each from the first rank's start to the last rank's end, on one machine; overlap = (T_work + T_comm - T_both) / min(T_work, T_comm).
 * Host: processor time of this thread inside start and wait, per operation, the largest rank's median, less what reading that
 * clock costs. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "collectives.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ranks 0 and 1, 2 and 3, ... exchange a message each way. */
static int partner(void) { return (rank ^ 1) < size ? rank ^ 1 : MPI_PROC_NULL; }

static void isend_start(const arguments *a, MPI_Request *r)
{
    MPI_Irecv(a->recv, a->count, a->type, partner(), 7, a->comm, &r[1]);
    MPI_Isend(a->send, a->count, a->type, partner(), 7, a->comm, &r[0]);
}

/* The messages of `partitioned`, each of one partition. */
static MPI_Request parts[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};

static void partitioned_start(const arguments *a, MPI_Request *r)
{
    if (parts[0] == MPI_REQUEST_NULL) {
        MPI_Psend_init(a->send, 1, a->count, a->type, partner(), 7, a->comm, MPI_INFO_NULL, &parts[0]);
        MPI_Precv_init(a->recv, 1, a->count, a->type, partner(), 7, a->comm, MPI_INFO_NULL, &parts[1]);
    }
    MPI_Startall(2, parts);
    MPI_Pready(0, parts[0]);
    r[0] = parts[0], r[1] = parts[1];
}

static const collective pairs[] = {{.name = "isend", .start = isend_start}, {.name = "partitioned", .start = partitioned_start}};

/* Whether a message of fresh bytes arrives. */
static int check_pair(const collective *c, const arguments *a)
{
    MPI_Request requests[2];
    int element;
    MPI_Type_size(a->type, &element);
    size_t bytes = (size_t)a->count * element;
    fill(a->send, bytes, rank + 1);
    fill(a->recv, bytes, -1);
    c->start(a, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    return partner() < 0 || wrong(a->recv, bytes, partner() + 1) == 0;
}

/* Work that touches no memory and that no compiler removes. `units` of it always take the same number of
   instructions. */
static void work(long units)
{
    volatile double kept = 1;
    double x = kept;
    for (long i = 0; i < units; i++)
        for (int k = 0; k < 64; k++) x = x * 0.999999 + 1e-6;
    kept = x;
}

typedef struct {
    double span;          /* first start to last end, median */
    double overall, inside; /* averages over ranks: one iteration, the work in it */
    double host;
} times;

/* The time that reading the thread's clock adds to a span between two readings. */
static double clock_cost_us(void)
{
    double costs[101];
    for (int i = 0; i < 101; i++) {
        double before = cpu_us();
        costs[i] = cpu_us() - before;
    }
    return median(costs, 101);
}

/* Iterations of start, work and wait; without an operation, iterations of the work alone. */
static times measure(const options *o, const collective *c, const arguments *a, size_t bytes, long units)
{
    int many = iterations_of(o, bytes);
    double *begins = malloc(3 * many * sizeof *begins), *ends = begins + many, *hosts = ends + many;
    double overall = 0, inside = 0, clock_cost = clock_cost_us();
    for (int i = -o->warm_ups; i < 2 * many; i++) {
        MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        if (o->idle_us) usleep(o->idle_us);
        MPI_Barrier(MPI_COMM_WORLD);
        /* Reading the thread's clock is a system call, so separate iterations read it, which are not timed.
           */
        int metered = i >= many;
        double began = clock_us(), host = 0, cpu = metered ? cpu_us() : 0;
        if (c) c->start(a, requests);
        if (metered) host += cpu_us() - cpu;
        double work_began = clock_us();
        work(units);
        double work_ended = clock_us();
        if (metered) cpu = cpu_us();
        if (c) MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        if (metered) host += cpu_us() - cpu - 2 * clock_cost;
        double ended = clock_us();
        if (metered) {
            hosts[i - many] = host;
        } else if (i >= 0) {
            begins[i] = began;
            ends[i] = ended;
            overall += (ended - began) / many;
            inside += (work_ended - work_began) / many;
        }
    }
    times t = {.overall = over_ranks(overall).value, .inside = over_ranks(inside).value,
               .host = over_ranks(median(hosts, many)).max};
    /* Ranks that share a core may run one after the other. The ranks of one machine have one clock. */
    MPI_Allreduce(MPI_IN_PLACE, begins, many, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, ends, many, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < many; i++) ends[i] -= begins[i];
    t.span = median(ends, many);
    free(begins);
    return t;
}

/* The units of work that take `wanted` microseconds by the clock `of`. The number is the same on all ranks.
   */
static long units_for(const options *o, size_t bytes, double wanted, int by_span)
{
    long units = 1000;
    /* The clock rates of cores change by the second, so the length of the work is corrected before it is
       used. */
    for (int pass = 0; pass < 2; pass++) {
        times t = measure(o, NULL, NULL, bytes, units);
        units = lround(units * wanted / (by_span ? t.span : t.inside)) + 1;
        MPI_Bcast(&units, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    }
    return units;
}

static const char *const more[] = {"Compute(us)", "Pure Comm.(us)", "Overlap(%)", "T_comm(us)",
                                   "T_work(us)",  "T_both(us)",     "Fixed(%)",   "Host(us)", NULL};

static result row(const options *o, const test *test, size_t bytes)
{
    const collective *c = test->what;
    arguments a = prepare_arguments(o, c, bytes);
    times alone = measure(o, c, &a, bytes, 0);
    times beside = measure(o, c, &a, bytes, units_for(o, bytes, alone.overall, 0));
    double hidden = 100 - 100 * (beside.overall - beside.inside) / alone.overall;
    long units = units_for(o, bytes, o->work_ratio * alone.span, 1);
    times only = measure(o, NULL, NULL, bytes, units), both = measure(o, c, &a, bytes, units);
    double fixed = 100 * (only.span + alone.span - both.span) / fmin(only.span, alone.span);
    int failed = o->validate && anywhere(!(c->block ? check_collective(c, &a) : check_pair(c, &a)));
    for (int i = 0; i < 2; i++)
        if (parts[i] != MPI_REQUEST_NULL) MPI_Request_free(&parts[i]);
    release_arguments(o, &a);
    return (result){beside.overall, -1, -1, failed,
                    {beside.inside, alone.overall, fmax(hidden, 0), alone.span, only.span, both.span, fixed, both.host}};
}

int main(int argc, char **argv)
{
    enum { TESTS_MAX = 64 };
    static char names[TESTS_MAX][32];
    test tests[TESTS_MAX] = {{0}};
    for (int at = 0; collectives[at].name && at < TESTS_MAX - 3; at++) {
        const collective *c = &collectives[at];
        names[at][0] = 'i';
        for (int k = 0; c->name[k]; k++) names[at][k + 1] = c->name[k];
        tests[at] = (test){names[at], "Overall(us)", 1, c->reduces ? 4 : 1, row, c->no_data, c, more};
    }
    int many = 0;
    while (tests[many].name) many++;
    for (size_t at = 0; at < sizeof pairs / sizeof *pairs; at++)
        tests[many++] = (test){pairs[at].name, "Overall(us)", 2, 1, row, 0, &pairs[at], more};
    takes_devices = 1;
    return bench_main(argc, argv, "Nonblocking collectives and messages beside work: overlap by OSU's formula and by fixed work.\n"
                      "Overlap(%) is OSU's: from averages, so a few slow iterations pull it down, and it ends at 0. Fixed(%) is from\n"
                      "medians of fixed work; where the two contradict each other, the machine was not quiet, and Fixed(%) is right.", tests,
                      MPI_THREAD_SINGLE);
}
