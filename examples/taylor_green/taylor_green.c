/* Direct numerical simulation of the Taylor-Green vortex in three dimensions (Brachet et al., J. Fluid Mech.
   130, 1983). Large eddies break up into small ones until viscosity stops them. The flow is stored as Fourier
   modes; each product needs it in space. So every step takes nine fields four times through a 3D transform,
   each with one transpose over all ranks: an MPI_Ialltoall, started when one field is ready, awaited when the
   next two are under way. It is plain MPI, which any MPI compiles. Read next: `pipeline` in solver.c. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "picture.h"
#include "solver.h"
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int n, steps, check, from_malloc, calibrate, quiet;
    double reynolds, dt;
    const char *picture, *table;
} options;

static const char usage[] =
    "usage: taylor_green [options]\n"
    "  -n, --grid N         points along an edge; the number of ranks divides it (64)\n"
    "  -s, --steps N        time steps (100)\n"
    "  -r, --reynolds X     Reynolds number, the inverse of the viscosity (200)\n"
    "  -d, --dt X           time step (half a grid spacing)\n"
    "  -c, --check          compare the flow with a run of rank 0 alone, and energy with what viscosity took\n"
    "  -m, --malloc         transpose buffers by malloc instead of MPI_Alloc_mem\n"
    "  -o, --overlap        measure the overlap of transpose and work by fixed work\n"
    "  -p, --picture FILE   write the vorticity on the plane z = pi/4 as a PNG\n"
    "  -t, --table FILE     write time, energy, enstrophy and dissipation as CSV\n"
    "  -q, --quiet          no progress\n";

static int parse(int argc, char **argv, options *o)
{
    static const struct option names[] = {
        {"grid", 1, 0, 'n'},    {"steps", 1, 0, 's'},   {"reynolds", 1, 0, 'r'}, {"dt", 1, 0, 'd'},
        {"check", 0, 0, 'c'},   {"malloc", 0, 0, 'm'},  {"overlap", 0, 0, 'o'},  {"picture", 1, 0, 'p'},
        {"table", 1, 0, 't'},   {"quiet", 0, 0, 'q'},   {0, 0, 0, 0}};
    *o = (options){.n = 64, .steps = 100, .reynolds = 200};
    for (int c; (c = getopt_long(argc, argv, "n:s:r:d:cmop:t:q", names, NULL)) != -1;) switch (c) {
        case 'n': o->n = atoi(optarg); break;
        case 's': o->steps = atoi(optarg); break;
        case 'r': o->reynolds = atof(optarg); break;
        case 'd': o->dt = atof(optarg); break;
        case 'c': o->check = 1; break;
        case 'm': o->from_malloc = 1; break;
        case 'o': o->calibrate = 1; break;
        case 'p': o->picture = optarg; break;
        case 't': o->table = optarg; break;
        case 'q': o->quiet = 1; break;
        default: return 1;
        }
    if (o->dt == 0) o->dt = M_PI / o->n;
    return optind < argc || o->n < 4 || o->n % 2 || o->steps < 1 || !(o->reynolds > 0) || !(o->dt > 0);
}

/* One row of the table: the state after a number of steps. */
typedef struct {
    double energy, enstrophy;
} state;

/* Energy is lost to viscosity alone: E(b) - E(a) is the integral of -2 viscosity Z, here by Simpson's rule over pairs of
 * steps. Returns the greatest departure, relative to what was lost in the pair. */
static double energy_departure(const state *states, int steps, double viscosity, double dt)
{
    double worst = 0;
    for (int i = 0; i + 2 <= steps; i += 2) {
        double lost = states[i].energy - states[i + 2].energy;
        double taken = 2 * viscosity * dt / 3 *
                       (states[i].enstrophy + 4 * states[i + 1].enstrophy + states[i + 2].enstrophy);
        worst = fmax(worst, fabs(lost - taken) / fabs(taken));
    }
    return worst;
}

/* Gathers one component of the flow in space on rank 0: [x][y][z]. */
static double *gather_component(solver *s, int component)
{
    int points = s->slab * s->n * s->n;
    double *whole = s->rank == 0 ? malloc((size_t)s->ranks * points * sizeof *whole) : NULL;
    MPI_Gather(s->field[component], points, MPI_DOUBLE, whole, points, MPI_DOUBLE, 0, s->comm);
    return whole;
}

/* Runs the same steps on rank 0 alone and returns the greatest difference of the velocity, which is of order 1. */
static double difference_from_one_rank(solver *s, const options *o)
{
    solver_to_space(s);
    double *whole[3], worst = 0;
    for (int c = 0; c < 3; c++) whole[c] = gather_component(s, c);
    if (s->rank == 0) {
        solver alone;
        solver_create(&alone, MPI_COMM_SELF, o->n, 1 / o->reynolds, o->from_malloc);
        for (int i = 0; i < o->steps; i++) solver_step(&alone, o->dt);
        solver_to_space(&alone);
        for (int c = 0; c < 3; c++) {
            for (size_t i = 0; i < (size_t)o->n * o->n * o->n; i++)
                worst = fmax(worst, fabs(whole[c][i] - alone.field[c][i]));
            free(whole[c]);
        }
        solver_free(&alone);
    }
    MPI_Bcast(&worst, 1, MPI_DOUBLE, 0, s->comm);
    return worst;
}

static void write_picture(solver *s, const char *path, double time)
{
    solver_to_space(s);
    int n = s->n, z = n / 8;
    double *slice = malloc((size_t)s->slab * n * sizeof *slice);
    double *whole = s->rank == 0 ? malloc((size_t)n * n * sizeof *whole) : NULL;
    for (int i = 0; i < s->slab * n; i++) {
        size_t at = (size_t)i * n + z;
        slice[i] = sqrt(s->field[3][at] * s->field[3][at] + s->field[4][at] * s->field[4][at] +
                        s->field[5][at] * s->field[5][at]);
    }
    MPI_Gather(slice, s->slab * n, MPI_DOUBLE, whole, s->slab * n, MPI_DOUBLE, 0, s->comm);
    char title[80];
    snprintf(title, sizeof title, "Vorticity |ω| on the plane z = π/4 at t = %.4g", time);
    if (s->rank == 0 && picture_write(path, title, whole, n) != 0)
        fprintf(stderr, "taylor_green: cannot write %s\n", path);
    free(whole);
    free(slice);
}

static void write_table(const options *o, const state *states)
{
    FILE *file = fopen(o->table, "w");
    if (file == NULL) {
        fprintf(stderr, "taylor_green: cannot write %s\n", o->table);
        return;
    }
    fprintf(file, "time,energy,enstrophy,dissipation\n");
    for (int i = 0; i <= o->steps; i++)
        fprintf(file, "%.6f,%.12f,%.12f,%.12f\n", i * o->dt, states[i].energy, states[i].enstrophy,
                2 * states[i].enstrophy / o->reynolds);
    fclose(file);
}

/* ---- Overlap by fixed work: the same work with and without a transpose under way ---- */

typedef struct {
    double comm, work, both; /* seconds: medians over the rounds */
} overlap;

static void work(solver *s, int passes)
{
    for (int i = 0; i < passes; i++) fftw_execute(s->along_x);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One round, from the first rank's start to the last one's end: ranks that share a core may run one after the other, and one
 * machine has one clock. */
static double round_of(solver *s, int passes, int communicate)
{
    MPI_Barrier(s->comm);
    double start = seconds(), first, last;
    if (communicate) transpose_start(s, 0);
    work(s, passes);
    if (communicate) transpose_wait(s, 0);
    double end = seconds();
    MPI_Allreduce(&start, &first, 1, MPI_DOUBLE, MPI_MIN, s->comm);
    MPI_Allreduce(&end, &last, 1, MPI_DOUBLE, MPI_MAX, s->comm);
    return last - first;
}

enum { ROUNDS = 101 };

static double median(double *times)
{
    qsort(times, ROUNDS, sizeof *times, ascending);
    return times[ROUNDS / 2];
}

/* Work is set to twice the communication, in whole passes. The three kinds of rounds take turns, so that a slow moment of the
 * machine falls on all of them. */
static overlap measure_overlap(solver *s)
{
    static double comm[ROUNDS], pass[ROUNDS], alone[ROUNDS], both[ROUNDS];
    memset(s->columns, 0, (size_t)s->slab * s->n * s->half * sizeof *s->columns);
    for (int i = 0; i < ROUNDS; i++) {
        comm[i] = round_of(s, 0, 1);
        pass[i] = round_of(s, 1, 0);
    }
    int passes = (int)ceil(2 * median(comm) / median(pass));
    MPI_Bcast(&passes, 1, MPI_INT, 0, s->comm);
    for (int i = 0; i < ROUNDS; i++) {
        comm[i] = round_of(s, 0, 1);
        alone[i] = round_of(s, passes, 0);
        both[i] = round_of(s, passes, 1);
    }
    return (overlap){median(comm), median(alone), median(both)};
}

/* ---- */

static double slowest(double x)
{
    double all;
    MPI_Allreduce(&x, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

/* Prints a line for people who watch the job from outside. */
static void say(int rank, const char *line)
{
    if (rank != 0) return;
    puts(line);
    fflush(stdout);
}

static double simulate(solver *s, const options *o, state *states)
{
    double elapsed = 0;
    solver_measure(s, &states[0].energy, &states[0].enstrophy);
    for (int i = 1; i <= o->steps; i++) {
        MPI_Barrier(s->comm);
        double start = seconds();
        solver_step(s, o->dt);
        elapsed += seconds() - start;
        solver_measure(s, &states[i].energy, &states[i].enstrophy);
        if (s->rank == 0 && !o->quiet && (i % ((o->steps + 9) / 10) == 0 || i == o->steps)) {
            printf("  step %4d of %d   time %6.3f   energy %.6f   dissipation %.6f\n", i, o->steps, i * o->dt,
                   states[i].energy, 2 * states[i].enstrophy / o->reynolds);
            fflush(stdout);
        }
    }
    return elapsed;
}

/* Prints the results of the checks. Returns how many failed. */
static int check(solver *s, const options *o, const state *states)
{
    double departure = energy_departure(states, o->steps, 1 / o->reynolds, o->dt);
    double difference = difference_from_one_rank(s, o);
    /* Simpson and Runge-Kutta err by dt^4; a wrong element in one transpose shows at any step size. */
    double allowed = fmax(1e-9, 0.1 * pow(o->dt, 4));
    int energy_wrong = !(departure < allowed), field_wrong = !(difference < 1e-10);
    int start_wrong = !(fabs(states[0].energy - 0.125) < 1e-12 && fabs(states[0].enstrophy - 0.375) < 1e-12);
    if (s->rank == 0) {
        printf("  check: at time 0 energy 1/8 and enstrophy 3/8: %s\n", start_wrong ? "WRONG" : "ok");
        printf("  check: dE/dt = -2 nu Z to %.1e (allowed %.1e): %s\n", departure, allowed,
               energy_wrong ? "WRONG" : "ok");
        printf("  check: equal to a one-rank run to %.1e (allowed 1e-10): %s\n", difference,
               field_wrong ? "WRONG" : "ok");
    }
    return start_wrong + energy_wrong + field_wrong;
}

int main(int argc, char **argv)
{
    options o;
    solver s;
    int rank, ranks, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (parse(argc, argv, &o) || o.n % ranks) {
        if (rank == 0) fputs(usage, stderr);
        MPI_Finalize();
        return 2;
    }
    solver_create(&s, MPI_COMM_WORLD, o.n, 1 / o.reynolds, o.from_malloc);
    state *states = malloc((o.steps + 1) * sizeof *states);
    say(rank, "steps begin");
    double elapsed = slowest(simulate(&s, &o, states));
    say(rank, "steps end");
    double wall = slowest(s.meter.wall), cpu = slowest(s.meter.cpu);
    long transposes = s.meter.calls;
    if (o.table && rank == 0) write_table(&o, states);
    if (o.picture) write_picture(&s, o.picture, o.steps * o.dt);
    if (o.check) wrong = check(&s, &o, states);
    overlap fixed = {0, 0, 0};
    if (o.calibrate) fixed = measure_overlap(&s);
    if (rank == 0) {
        printf("result grid=%d ranks=%d steps=%d pair_bytes=%zu transposes=%ld step_ms=%.3f mpi_wall_ms=%.3f "
               "mpi_cpu_ms=%.3f",
               o.n, ranks, o.steps, pair_elements(&s) * sizeof(double complex), transposes, 1e3 * elapsed / o.steps,
               1e3 * wall / o.steps, 1e3 * cpu / o.steps);
        if (o.calibrate)
            printf(" comm_us=%.1f work_us=%.1f both_us=%.1f overlap=%.3f", 1e6 * fixed.comm, 1e6 * fixed.work,
                   1e6 * fixed.both, (fixed.work + fixed.comm - fixed.both) / fmin(fixed.work, fixed.comm));
        printf(" wrong=%d\n", wrong);
    }
    free(states);
    solver_free(&s);
    MPI_Finalize();
    return wrong != 0;
}
