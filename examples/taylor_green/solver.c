/* SPDX-License-Identifier: BSD-3-Clause */
#include "solver.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
double seconds(void) { return now(CLOCK_MONOTONIC); }
double cpu_seconds(void) { return now(CLOCK_THREAD_CPUTIME_ID); }

/* ---- The transpose: x planes with all ky, to ky planes with all kx, or back ---- */

void transpose_start(solver *s, int flight)
{
    double wall = seconds(), cpu = cpu_seconds();
    MPI_Ialltoall(s->out[flight], pair_elements(s), MPI_C_DOUBLE_COMPLEX, s->in[flight], pair_elements(s),
                  MPI_C_DOUBLE_COMPLEX, s->comm, &s->requests[flight]);
    s->meter.cpu += cpu_seconds() - cpu;
    s->meter.wall += seconds() - wall;
    s->meter.calls++;
}

void transpose_wait(solver *s, int flight)
{
    double wall = seconds(), cpu = cpu_seconds();
    MPI_Wait(&s->requests[flight], MPI_STATUS_IGNORE);
    s->meter.cpu += cpu_seconds() - cpu;
    s->meter.wall += seconds() - wall;
}

/* A block, in `out` and `in`, is [x of one rank][ky of the other][kz], in both directions. */
static double complex *block_row(const solver *s, double complex *blocks, int peer, int x, int ky)
{
    return blocks + (((size_t)peer * s->slab + x) * s->slab + ky) * s->half;
}

enum direction { INTO_BLOCKS, OUT_OF_BLOCKS };

/* Between `planes`, [x of the slab][ky][kz], and blocks: the ky of one peer are adjacent. */
static void move_planes(solver *s, double complex *blocks, enum direction direction)
{
    size_t run = (size_t)s->slab * s->half;
    for (int peer = 0; peer < s->ranks; peer++)
        for (int x = 0; x < s->slab; x++) {
            double complex *here = s->planes + ((size_t)x * s->n + (size_t)peer * s->slab) * s->half;
            double complex *there = block_row(s, blocks, peer, x, 0);
            if (direction == INTO_BLOCKS)
                memcpy(there, here, run * sizeof *here);
            else
                memcpy(here, there, run * sizeof *here);
        }
}

/* Between `columns`, [ky of the slab][kx][kz], and blocks. */
static void move_columns(solver *s, double complex *columns, double complex *blocks, enum direction direction)
{
    for (int ky = 0; ky < s->slab; ky++)
        for (int x = 0; x < s->n; x++) {
            double complex *here = columns + ((size_t)ky * s->n + x) * s->half;
            double complex *there = block_row(s, blocks, x / s->slab, x % s->slab, ky);
            if (direction == INTO_BLOCKS)
                memcpy(there, here, s->half * sizeof *here);
            else
                memcpy(here, there, s->half * sizeof *here);
        }
}

/* ---- Wave numbers ---- */

static int wave(const solver *s, int index) { return index <= s->n / 2 ? index : index - s->n; }

/* A mode of this rank: its index and its wave numbers. */
typedef struct {
    size_t at;
    int k[3], i, j;
} mode;

static size_t modes(const solver *s) { return (size_t)s->slab * s->n * s->half; }

static mode first_mode(const solver *s) { return (mode){.k = {0, wave(s, s->rank * s->slab), 0}}; }

static void next_mode(const solver *s, mode *m)
{
    m->at++;
    if (++m->k[2] < s->half) return;
    m->k[2] = 0;
    if (++m->i == s->n) {
        m->i = 0;
        m->k[1] = wave(s, s->rank * s->slab + ++m->j);
    }
    m->k[0] = wave(s, m->i);
}

/* The 2/3 rule: modes onto which a product of two kept modes folds back are not kept. */
static int is_kept(const solver *s, int k) { return 3 * abs(k) < s->n; }

/* ---- The pipeline ---- */

/* Fields 0 to 2 are the velocity, 3 to 5 its curl. This is the first half of the way to space: the transform along x,
   and the start of the transpose. */
static void leave_spectrum(solver *s, int field)
{
    if (field < 3) {
        memcpy(s->columns, s->u[field], modes(s) * sizeof *s->columns);
    } else {
        int c = field - 3, a = (c + 1) % 3, b = (c + 2) % 3;
        const double complex *ua = s->u[a], *ub = s->u[b];
        for (mode m = first_mode(s); m.at < modes(s); next_mode(s, &m))
            s->columns[m.at] = I * (m.k[a] * ub[m.at] - m.k[b] * ua[m.at]);
    }
    fftw_execute(s->back_along_x);
    move_columns(s, s->columns, s->out[field % FLIGHTS], INTO_BLOCKS);
    transpose_start(s, field % FLIGHTS);
}

static void arrive_in_space(solver *s, int field)
{
    transpose_wait(s, field % FLIGHTS);
    move_planes(s, s->in[field % FLIGHTS], OUT_OF_BLOCKS);
    fftw_execute_dft_c2r(s->from_planes, s->planes, s->field[field]);
}

static void leave_space(solver *s, int field)
{
    fftw_execute_dft_r2c(s->to_planes, s->field[field], s->planes);
    move_planes(s, s->out[field], INTO_BLOCKS);
    transpose_start(s, field);
}

static void arrive_in_spectrum(solver *s, int field)
{
    transpose_wait(s, field);
    move_columns(s, s->slope[field], s->in[field], OUT_OF_BLOCKS);
    fftw_execute_dft(s->along_x, s->slope[field], s->slope[field]);
}

/* While one field is transposed, the next is transformed: up to FLIGHTS - 1 transposes are under way meanwhile.
   */
static void pipeline(solver *s, int fields, void (*leave)(solver *, int), void (*arrive)(solver *, int))
{
    enum { AHEAD = FLIGHTS - 1 };
    for (int field = 0; field < fields + AHEAD; field++) {
        if (field < fields) leave(s, field);
        if (field >= AHEAD) arrive(s, field - AHEAD);
    }
}

void solver_to_space(solver *s) { pipeline(s, 6, leave_spectrum, arrive_in_space); }

/* slope = projection of (u x curl u) - viscosity k^2 u, in the spectrum. */
static void compute_slope(solver *s)
{
    solver_to_space(s);
    size_t points = (size_t)s->slab * s->n * s->n;
    double **f = s->field;
    for (size_t i = 0; i < points; i++) {
        double x = f[1][i] * f[5][i] - f[2][i] * f[4][i];
        double y = f[2][i] * f[3][i] - f[0][i] * f[5][i];
        double z = f[0][i] * f[4][i] - f[1][i] * f[3][i];
        f[0][i] = x, f[1][i] = y, f[2][i] = z;
    }
    pipeline(s, 3, leave_space, arrive_in_spectrum);
    double scale = 1.0 / ((double)s->n * s->n * s->n);
    for (mode m = first_mode(s); m.at < modes(s); next_mode(s, &m)) {
        int *k = m.k, square = k[0] * k[0] + k[1] * k[1] + k[2] * k[2];
        if (!is_kept(s, k[0]) || !is_kept(s, k[1]) || !is_kept(s, k[2]) || square == 0) {
            for (int c = 0; c < 3; c++) s->slope[c][m.at] = 0;
            continue;
        }
        double complex along = 0;
        for (int c = 0; c < 3; c++) along += k[c] * s->slope[c][m.at];
        /* The pressure removes the part that would make the flow diverge. */
        for (int c = 0; c < 3; c++)
            s->slope[c][m.at] =
                scale * (s->slope[c][m.at] - k[c] * along / square) - s->viscosity * square * s->u[c][m.at];
    }
}

void solver_step(solver *s, double dt)
{
    static const double ahead[] = {0.5, 0.5, 1, 0}, weight[] = {1. / 6, 1. / 3, 1. / 3, 1. / 6};
    size_t count = modes(s);
    for (int c = 0; c < 3; c++) {
        memcpy(s->start[c], s->u[c], count * sizeof *s->u[c]);
        memcpy(s->sum[c], s->u[c], count * sizeof *s->u[c]);
    }
    for (int stage = 0; stage < 4; stage++) {
        compute_slope(s);
        for (int c = 0; c < 3; c++)
            for (size_t i = 0; i < count; i++) {
                s->sum[c][i] += weight[stage] * dt * s->slope[c][i];
                s->u[c][i] = stage < 3 ? s->start[c][i] + ahead[stage] * dt * s->slope[c][i] : s->sum[c][i];
            }
    }
}

void solver_measure(solver *s, double *energy, double *enstrophy)
{
    double here[2] = {0, 0}, all[2];
    for (mode m = first_mode(s); m.at < modes(s); next_mode(s, &m)) {
        /* A real field's modes with kz < 0 are the conjugates of those that are stored. */
        double twice = m.k[2] == 0 || 2 * m.k[2] == s->n ? 1 : 2, square = 0;
        for (int c = 0; c < 3; c++)
            square += creal(s->u[c][m.at]) * creal(s->u[c][m.at]) + cimag(s->u[c][m.at]) * cimag(s->u[c][m.at]);
        here[0] += 0.5 * twice * square;
        here[1] += 0.5 * twice * square * (m.k[0] * m.k[0] + m.k[1] * m.k[1] + m.k[2] * m.k[2]);
    }
    MPI_Allreduce(here, all, 2, MPI_DOUBLE, MPI_SUM, s->comm);
    *energy = all[0];
    *enstrophy = all[1];
}

/* ---- Making and freeing ---- */

static void *need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "taylor_green: not enough memory for this grid\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return memory;
}

static void make_transpose_buffer(solver *s, double complex **buffer)
{
    MPI_Aint bytes = (MPI_Aint)sizeof **buffer * s->ranks * pair_elements(s);
    if (s->from_malloc)
        *buffer = malloc(bytes);
    else
        MPI_Alloc_mem(bytes, MPI_INFO_NULL, buffer);
    /* The memory is touched now, so that no step includes its first use. */
    memset(need(*buffer), 0, bytes);
}

/* u = (sin x cos y cos z, -cos x sin y cos z, 0), set by its eight modes: exact on any grid and with any
   slabs. */
static void set_vortex(solver *s)
{
    for (int c = 0; c < 3; c++) memset(s->u[c], 0, modes(s) * sizeof *s->u[c]);
    for (mode m = first_mode(s); m.at < modes(s); next_mode(s, &m))
        if (abs(m.k[0]) == 1 && abs(m.k[1]) == 1 && m.k[2] == 1) {
            s->u[0][m.at] = -I * m.k[0] / 8;
            s->u[1][m.at] = I * m.k[1] / 8;
        }
}

static void plan(solver *s)
{
    int edge[2] = {s->n, s->n}, points = s->n * s->n, spectrum = s->n * s->half;
    s->to_planes = fftw_plan_many_dft_r2c(2, edge, s->slab, s->field[0], NULL, 1, points, s->planes, NULL, 1, spectrum,
                                          FFTW_MEASURE);
    s->from_planes = fftw_plan_many_dft_c2r(2, edge, s->slab, s->planes, NULL, 1, spectrum, s->field[0], NULL, 1,
                                            points, FFTW_MEASURE);
    fftw_iodim64 along = {s->n, s->half, s->half}, others[2] = {{s->slab, spectrum, spectrum}, {s->half, 1, 1}};
    s->along_x =
        fftw_plan_guru64_dft(1, &along, 2, others, s->columns, s->columns, FFTW_FORWARD, FFTW_MEASURE);
    s->back_along_x =
        fftw_plan_guru64_dft(1, &along, 2, others, s->columns, s->columns, FFTW_BACKWARD, FFTW_MEASURE);
}

void solver_create(solver *s, MPI_Comm comm, int n, double viscosity, int from_malloc)
{
    memset(s, 0, sizeof *s);
    s->comm = comm;
    MPI_Comm_rank(comm, &s->rank);
    MPI_Comm_size(comm, &s->ranks);
    s->n = n;
    s->half = n / 2 + 1;
    s->slab = n / s->ranks;
    s->viscosity = viscosity;
    s->from_malloc = from_malloc;
    for (int c = 0; c < 3; c++) {
        s->u[c] = need(fftw_alloc_complex(modes(s)));
        s->start[c] = need(fftw_alloc_complex(modes(s)));
        s->sum[c] = need(fftw_alloc_complex(modes(s)));
        s->slope[c] = need(fftw_alloc_complex(modes(s)));
    }
    for (int f = 0; f < 6; f++) s->field[f] = need(fftw_alloc_real((size_t)s->slab * n * n));
    s->planes = need(fftw_alloc_complex(modes(s)));
    s->columns = need(fftw_alloc_complex(modes(s)));
    for (int f = 0; f < FLIGHTS; f++) {
        make_transpose_buffer(s, &s->out[f]);
        make_transpose_buffer(s, &s->in[f]);
        s->requests[f] = MPI_REQUEST_NULL;
    }
    plan(s);
    set_vortex(s);
}

void solver_free(solver *s)
{
    for (int c = 0; c < 3; c++) {
        fftw_free(s->u[c]);
        fftw_free(s->start[c]);
        fftw_free(s->sum[c]);
        fftw_free(s->slope[c]);
    }
    for (int f = 0; f < 6; f++) fftw_free(s->field[f]);
    fftw_free(s->planes);
    fftw_free(s->columns);
    for (int f = 0; f < FLIGHTS; f++) {
        if (s->from_malloc) {
            free(s->out[f]);
            free(s->in[f]);
        } else {
            MPI_Free_mem(s->out[f]);
            MPI_Free_mem(s->in[f]);
        }
    }
    fftw_destroy_plan(s->to_planes);
    fftw_destroy_plan(s->from_planes);
    fftw_destroy_plan(s->along_x);
    fftw_destroy_plan(s->back_along_x);
}
