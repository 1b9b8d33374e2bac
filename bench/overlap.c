/* Overlap of a nonblocking collective with fixed work, by message size.
 *
 * For each size, in the same process and minute: the operation alone (T_comm), the work alone (T_work), the operation with the
 * work between its start and its wait (T_both); medians over the iterations, each from the first rank's start to the last rank's end, on one machine.
 * The work makes no MPI call. overlap = (T_work + T_comm - T_both) / min(T_work, T_comm).
 * host: processor time of this thread inside the start and the wait, per operation, the largest rank's median, less what reading
 * that clock costs. */
#include <getopt.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef enum { ALLTOALL, ALLREDUCE, BCAST, OPERATIONS } operation;
static const char *const operation_names[] = {"ialltoall", "iallreduce", "ibcast"};

typedef struct {
    operation operation;
    size_t bytes_min, bytes_max;
    int iterations, warm_ups, from_malloc, json, idle_us;
    double ratios[8];
    int ratio_count;
} options;

static const char usage[] =
    "usage: overlap [options]      (under mpirun, 2 ranks or more)\n"
    "  -b, --operation NAME   ialltoall, iallreduce or ibcast (ialltoall)\n"
    "  -m, --bytes MIN:MAX    bytes per pair, or of the vector; by factors of 4 (1024:4194304)\n"
    "  -i, --iterations N     timed iterations (100)\n"
    "  -x, --warm-ups N       iterations before (10)\n"
    "  -w, --work-ratio LIST  work as multiples of T_comm (2,1)\n"
    "  -B, --buffers KIND     alloc_mem or malloc (alloc_mem)\n"
    "  -z, --idle US          sleep so long before each operation, so that a proxy falls asleep (0)\n"
    "  -j, --json             one JSON object per line\n";

static int rank, size;

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return 1e6 * t.tv_sec + 1e-3 * t.tv_nsec;
}
static double clock_us(void) { return now(CLOCK_MONOTONIC); }
static double cpu_us(void) { return now(CLOCK_THREAD_CPUTIME_ID); }

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

/* What one reading of the thread's clock adds to a span between two readings. */
static double clock_cost_us(void)
{
    double costs[101];
    for (int i = 0; i < 101; i++) {
        double before = cpu_us();
        costs[i] = cpu_us() - before;
    }
    return median(costs, 101);
}

/* Work that touches no memory and that no compiler removes; `units` of it always take the same instructions. */
static void work(long units)
{
    volatile double kept = 1;
    double x = kept;
    for (long i = 0; i < units; i++)
        for (int k = 0; k < 64; k++) x = x * 0.999999 + 1e-6;
    kept = x;
}

static void start(const options *o, void *out, void *in, size_t bytes, MPI_Request *request)
{
    switch (o->operation) {
    case ALLTOALL:
        MPI_Ialltoall(out, (int)bytes, MPI_BYTE, in, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, request);
        break;
    case ALLREDUCE:
        MPI_Iallreduce(out, in, (int)(bytes / sizeof(double)), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, request);
        break;
    default: MPI_Ibcast(in, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD, request);
    }
}

typedef struct {
    double time, host; /* microseconds: one iteration; processor time inside start and wait */
} measured;

static measured measure(const options *o, void *out, void *in, size_t bytes, long units, int communicate)
{
    double *times = malloc(3 * o->iterations * sizeof *times), *hosts = times + o->iterations,
           *begins = hosts + o->iterations;
    double clock_cost = clock_cost_us();
    for (int i = -o->warm_ups; i < 2 * o->iterations; i++) {
        MPI_Request request;
        if (o->idle_us) usleep(o->idle_us);
        MPI_Barrier(MPI_COMM_WORLD);
        /* Reading the thread's clock is a system call, so it is read in iterations of their own, which are not timed. */
        int metered = i >= o->iterations;
        double began = clock_us(), host = 0, cpu = metered ? cpu_us() : 0;
        if (communicate) {
            start(o, out, in, bytes, &request);
            if (metered) host += cpu_us() - cpu;
        }
        work(units);
        if (communicate) {
            if (metered) cpu = cpu_us();
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            if (metered) host += cpu_us() - cpu - 2 * clock_cost;
        }
        double ended = clock_us();
        if (metered) {
            hosts[i - o->iterations] = host;
        } else if (i >= 0) {
            begins[i] = began;
            times[i] = ended;
        }
    }
    /* From the first rank's start to the last rank's end: ranks that share a core may run one after the other, and one
     * machine has one clock. */
    MPI_Allreduce(MPI_IN_PLACE, begins, o->iterations, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, times, o->iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < o->iterations; i++) times[i] -= begins[i];
    measured m = {median(times, o->iterations), median(hosts, o->iterations)};
    MPI_Allreduce(MPI_IN_PLACE, &m.host, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    free(times);
    return m;
}

static void *buffer(const options *o, size_t bytes)
{
    void *memory = NULL;
    if (o->from_malloc)
        memory = malloc(bytes);
    else
        MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &memory);
    if (memory == NULL) {
        fprintf(stderr, "overlap: no memory for %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return memset(memory, 1, bytes);
}

static void release(const options *o, void *memory)
{
    if (o->from_malloc)
        free(memory);
    else
        MPI_Free_mem(memory);
}

static void row(const options *o, size_t bytes, double units_per_us)
{
    size_t total = bytes * (o->operation == ALLTOALL ? size : 1);
    void *out = buffer(o, total), *in = buffer(o, total);
    measured comm = measure(o, out, in, bytes, 0, 1);
    for (int i = 0; i < o->ratio_count; i++) {
        long units = lround(o->ratios[i] * comm.time * units_per_us) + 1;
        MPI_Bcast(&units, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        /* Clocks of cores change by the second, so the length of the work is set right before. */
        units = lround(units * o->ratios[i] * comm.time / measure(o, out, in, bytes, units, 0).time) + 1;
        MPI_Bcast(&units, 1, MPI_LONG, 0, MPI_COMM_WORLD);
        measured alone = measure(o, out, in, bytes, units, 0), both = measure(o, out, in, bytes, units, 1);
        double overlap = (alone.time + comm.time - both.time) / fmin(alone.time, comm.time);
        if (rank == 0)
            printf(o->json ? "{\"operation\": \"%s\", \"buffers\": \"%s\", \"ranks\": %d, \"idle_us\": %d, \"bytes\": "
                             "%zu, \"ratio\": %g, \"comm_us\": %.2f, \"work_us\": %.2f, \"both_us\": %.2f, \"overlap\": "
                             "%.3f, \"host_us\": %.2f, \"host_alone_us\": %.2f}\n"
                           : "%-10s %-9s %5d %7d %9zu %5g %10.1f %10.1f %10.1f %8.3f %8.2f %10.2f\n",
                   operation_names[o->operation], o->from_malloc ? "malloc" : "alloc_mem", size, o->idle_us, bytes,
                   o->ratios[i], comm.time, alone.time, both.time, overlap, both.host, comm.host);
        fflush(stdout);
    }
    release(o, in);
    release(o, out);
}

static int parse(int argc, char **argv, options *o)
{
    static const struct option names[] = {
        {"operation", 1, 0, 'b'}, {"bytes", 1, 0, 'm'}, {"iterations", 1, 0, 'i'}, {"warm-ups", 1, 0, 'x'},
        {"work-ratio", 1, 0, 'w'}, {"buffers", 1, 0, 'B'}, {"idle", 1, 0, 'z'}, {"json", 0, 0, 'j'}, {0, 0, 0, 0}};
    *o = (options){.bytes_min = 1024, .bytes_max = 4 << 20, .iterations = 100, .warm_ups = 10, .ratios = {2, 1},
                   .ratio_count = 2};
    for (int c; (c = getopt_long(argc, argv, "b:m:i:x:w:B:z:j", names, NULL)) != -1;) switch (c) {
        case 'b':
            for (o->operation = 0; o->operation < OPERATIONS; o->operation++)
                if (strcmp(optarg, operation_names[o->operation]) == 0) break;
            break;
        case 'm':
            if (sscanf(optarg, "%zu:%zu", &o->bytes_min, &o->bytes_max) == 1) o->bytes_max = o->bytes_min;
            break;
        case 'i': o->iterations = atoi(optarg); break;
        case 'x': o->warm_ups = atoi(optarg); break;
        case 'w':
            o->ratio_count = 0;
            for (char *word = strtok(optarg, ","); word && o->ratio_count < 8; word = strtok(NULL, ","))
                o->ratios[o->ratio_count++] = atof(word);
            break;
        case 'B': o->from_malloc = strcmp(optarg, "malloc") == 0; break;
        case 'z': o->idle_us = atoi(optarg); break;
        case 'j': o->json = 1; break;
        default: return 1;
        }
    return o->operation == OPERATIONS || o->iterations < 1 || o->bytes_min < 8 || o->bytes_max > 1u << 30;
}

int main(int argc, char **argv)
{
    options o;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (parse(argc, argv, &o)) {
        if (rank == 0) fputs(usage, stderr);
        MPI_Finalize();
        return 2;
    }
    /* All ranks work at once here, so that ranks which share a core are measured as they will run. */
    enum { UNITS = 20000 };
    options calibration = o;
    calibration.iterations = 15;
    calibration.idle_us = 0;
    double units_per_us = UNITS / measure(&calibration, NULL, NULL, 0, UNITS, 0).time;
    if (rank == 0 && !o.json)
        printf("%-10s %-9s %5s %7s %9s %5s %10s %10s %10s %8s %8s %10s\n", "operation", "buffers", "ranks", "idle_us",
               "bytes", "ratio", "comm_us", "work_us", "both_us", "overlap", "host_us", "host_alone");
    for (size_t bytes = o.bytes_min; bytes <= o.bytes_max; bytes *= 4) row(&o, bytes, units_per_us);
    MPI_Finalize();
    return 0;
}
