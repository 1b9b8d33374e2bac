/* Waves carried by a steady wind, (1, 1, 1), on a periodic cube: Runge-Kutta in time, and compact finite differences of sixth
   order in space (Lele, J. Comput. Phys. 103, 1992), as in Xcompact3D. A compact difference couples all points of a line, so
   lines must be whole: each rank has a pencil of lines along x, which becomes one along y and one along z by transposes
   within a row and a column of the grid of ranks. A transpose is an MPI_Ialltoallv; while one field's travels, the next field
   is differentiated. A compact difference multiplies a wave by a known number, and so does a step; so every point is checked
   to rounding, and the derivative also against the true one. Read next: `advect`. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "../table.h"
#include <complex.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS_MAX = 8, X = 0, Y, Z };

typedef struct {
    int n[3], fields, steps, grid[2];
} options;

static const char usage[] =
    "usage: compact [options]\n"
    "  -n, --points NX[,NY,NZ]  points in each direction, 5 or more (48)\n"
    "  -f, --fields N           fields, up to 8 (3)\n"
    "  -s, --steps N            time steps (5)\n"
    "  -g, --grid P,Q           ranks that share y (then x), and z (then y), of a pencil (MPI_Dims_create)\n";

static int parse(int argc, char **argv, options *o)
{
    static const struct option names[] = {
        {"points", 1, 0, 'n'}, {"fields", 1, 0, 'f'}, {"steps", 1, 0, 's'}, {"grid", 1, 0, 'g'}, {0, 0, 0, 0}};
    *o = (options){.n = {48, 48, 48}, .fields = 3, .steps = 5};
    for (int c, read; (c = getopt_long(argc, argv, "n:f:s:g:", names, NULL)) != -1;) switch (c) {
        case 'n':
            read = sscanf(optarg, "%d,%d,%d", &o->n[0], &o->n[1], &o->n[2]);
            if (read == 1) o->n[1] = o->n[2] = o->n[0];
            if (read != 1 && read != 3) return 1;
            break;
        case 'f': o->fields = atoi(optarg); break;
        case 's': o->steps = atoi(optarg); break;
        case 'g':
            if (sscanf(optarg, "%d,%d", &o->grid[0], &o->grid[1]) != 2) return 1;
            break;
        default: return 1;
        }
    return optind < argc || o->n[0] < 5 || o->n[1] < 5 || o->n[2] < 5 || o->steps < 1 || o->fields < 1 ||
           o->fields > FIELDS_MAX;
}

/* ---- Transposes ---- */

/* Moves data from pencils [slow][mid][the whole line] to pencils [mid][line][the whole slow index], and back. The ranks of
   a comm divide `slow` before, and `line` after; `mid` stays. */
typedef struct {
    MPI_Comm comm;
    int ranks, slow, mid, line; /* of this rank: slow before, line after */
    int all_slow, all_line;
    int *slow_first, *line_first; /* of each rank, and the end */
    int *there[2], *back[2];      /* counts and displacements of blocks on the side before, and on the side after */
} transpose;

static int first_of(int all, int ranks, int rank) { return (int)((long)all * rank / ranks); }

static void make_transpose(transpose *t, MPI_Comm comm, int all_slow, int mid, int all_line)
{
    int rank;
    t->comm = comm;
    MPI_Comm_size(comm, &t->ranks);
    MPI_Comm_rank(comm, &rank);
    t->slow_first = malloc(6 * (t->ranks + 1) * sizeof(int));
    t->line_first = t->slow_first + t->ranks + 1;
    for (int side = 0; side < 2; side++) {
        t->there[side] = t->line_first + (side + 1) * (t->ranks + 1);
        t->back[side] = t->there[side] + 2 * (t->ranks + 1);
    }
    for (int r = 0; r <= t->ranks; r++) {
        t->slow_first[r] = first_of(all_slow, t->ranks, r);
        t->line_first[r] = first_of(all_line, t->ranks, r);
    }
    t->all_slow = all_slow;
    t->all_line = all_line;
    t->mid = mid;
    t->slow = t->slow_first[rank + 1] - t->slow_first[rank];
    t->line = t->line_first[rank + 1] - t->line_first[rank];
    for (int r = 0; r < t->ranks; r++) {
        t->there[0][r] = t->slow * mid * (t->line_first[r + 1] - t->line_first[r]);
        t->there[1][r] = t->slow * mid * t->line_first[r];
        t->back[0][r] = (t->slow_first[r + 1] - t->slow_first[r]) * mid * t->line;
        t->back[1][r] = t->slow_first[r] * mid * t->line;
    }
}

enum direction { INTO_BLOCKS, OUT_OF_BLOCKS };

/* A block is [slow][mid][line], with the parts of one rank in slow and line. On the side before, its lines lie
   together. */
static void move_before(const transpose *t, double *pencil, double *blocks, enum direction direction)
{
    for (int r = 0; r < t->ranks; r++) {
        size_t line = t->line_first[r + 1] - t->line_first[r];
        for (int at = 0; at < t->slow * t->mid; at++) {
            double *here = pencil + (size_t)at * t->all_line + t->line_first[r];
            double *there = blocks + t->there[1][r] + at * line;
            if (direction == INTO_BLOCKS)
                memcpy(there, here, line * sizeof *here);
            else
                memcpy(here, there, line * sizeof *here);
        }
    }
}

static void move_after(const transpose *t, double *pencil, double *blocks, enum direction direction)
{
    double *there = blocks;
    for (int slow = 0; slow < t->all_slow; slow++)
        for (int mid = 0; mid < t->mid; mid++)
            for (int line = 0; line < t->line; line++, there++) {
                double *here = pencil + ((size_t)mid * t->line + line) * t->all_slow + slow;
                if (direction == INTO_BLOCKS)
                    *there = *here;
                else
                    *here = *there;
            }
}

/* ---- The flow ---- */

/* Compact differences along one direction, periodic: alpha d[i-1] + d[i] + alpha d[i+1] = a (f[i+1] - f[i-1]) + b (f[i+2] -
   f[i-2]), with alpha = 1/3, a = 14/9 / 2h, b = 1/9 / 4h. */
typedef struct {
    int n;
    double h, *inverse, *corner; /* the pivots' inverses, and T^-1 v: see eliminate() */
} line;

typedef struct {
    int rank, fields;
    int whole[3], first[3], count[3]; /* points; in an x pencil, the first of this rank and how many */
    line along[3];
    transpose xy, yz;
    size_t elements[3]; /* of a pencil in each direction */
    double *u[FIELDS_MAX], *start[FIELDS_MAX], *sum[FIELDS_MAX];
    double *derived[3][FIELDS_MAX]; /* derivatives, in pencils of their direction */
    double *turned;                 /* a field in pencils of another direction */
    double *out[FIELDS_MAX], *in[FIELDS_MAX];
    MPI_Request requests[FIELDS_MAX];
} flow;

static void *allocate(size_t count)
{
    void *memory;
    MPI_Alloc_mem((count ? count : 1) * sizeof(double), MPI_INFO_NULL, &memory);
    return memory;
}

static const double alpha = 1. / 3;

/* The matrix of a line is T + alpha v v', with T tridiagonal and v = (1, 0 ... 0, 1): f = T^-1 f, by elimination. */
static void eliminate(const line *l, double *f)
{
    int n = l->n;
    f[0] *= l->inverse[0];
    for (int i = 1; i < n; i++) f[i] = (f[i] - alpha * f[i - 1]) * l->inverse[i];
    for (int i = n - 2; i >= 0; i--) f[i] -= alpha * l->inverse[i] * f[i + 1];
}

static void make_line(line *l, int n)
{
    l->n = n;
    l->h = 2 * M_PI / n;
    l->inverse = malloc(2 * n * sizeof(double));
    l->corner = l->inverse + n;
    for (int i = 0; i < n; i++) {
        double diagonal = i == 0 || i == n - 1 ? 1 - alpha : 1;
        l->inverse[i] = 1 / (i == 0 ? diagonal : diagonal - alpha * alpha * l->inverse[i - 1]);
        l->corner[i] = i == 0 || i == n - 1;
    }
    eliminate(l, l->corner);
}

/* The derivatives of `lines` lines. */
static void differentiate(const line *l, const double *f, double *d, size_t lines)
{
    int n = l->n;
    double a = 14. / 9 / (2 * l->h), b = 1. / 9 / (4 * l->h);
    for (size_t at = 0; at < lines; at++, f += n, d += n) {
        for (int i = 2; i < n - 2; i++) d[i] = a * (f[i + 1] - f[i - 1]) + b * (f[i + 2] - f[i - 2]);
        for (int k = 0; k < 4; k++) {
            int i = (n - 2 + k) % n;
            d[i] = a * (f[(i + 1) % n] - f[(i + n - 1) % n]) + b * (f[(i + 2) % n] - f[(i + n - 2) % n]);
        }
        eliminate(l, d);
        /* By Sherman and Morrison, (T + alpha v v')^-1 d = T^-1 d - factor T^-1 v. */
        double factor = alpha * (d[0] + d[n - 1]) / (1 + alpha * (l->corner[0] + l->corner[n - 1]));
        for (int i = 0; i < n; i++) d[i] -= factor * l->corner[i];
    }
}

static int make_flow(flow *w, const options *o)
{
    int ranks, grid[2] = {o->grid[0], o->grid[1]}, here[2], periods[2] = {0, 0};
    MPI_Comm comm, along[2];
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (grid[0] && grid[0] * grid[1] != ranks) return 0;
    MPI_Dims_create(ranks, 2, grid);
    if (grid[0] > o->n[X] || grid[0] > o->n[Y] || grid[1] > o->n[Y] || grid[1] > o->n[Z]) return 0;
    MPI_Cart_create(MPI_COMM_WORLD, 2, grid, periods, 0, &comm);
    MPI_Comm_rank(comm, &w->rank);
    MPI_Cart_coords(comm, w->rank, 2, here);
    MPI_Cart_sub(comm, (int[]){1, 0}, &along[0]);
    MPI_Cart_sub(comm, (int[]){0, 1}, &along[1]);
    MPI_Comm_free(&comm);
    w->fields = o->fields;
    for (int d = 0; d < 3; d++) {
        int cut = d == X ? 1 : grid[d - 1], part = d == X ? 0 : here[d - 1];
        w->whole[d] = o->n[d];
        w->first[d] = first_of(o->n[d], cut, part);
        w->count[d] = first_of(o->n[d], cut, part + 1) - w->first[d];
        make_line(&w->along[d], o->n[d]);
    }
    make_transpose(&w->xy, along[0], o->n[Y], w->count[Z], o->n[X]);
    make_transpose(&w->yz, along[1], o->n[Z], w->xy.line, o->n[Y]);
    w->elements[X] = (size_t)w->count[Y] * w->count[Z] * o->n[X];
    w->elements[Y] = (size_t)w->count[Z] * w->xy.line * o->n[Y];
    w->elements[Z] = (size_t)w->xy.line * w->yz.line * o->n[Z];
    size_t most = fmax(w->elements[X], fmax(w->elements[Y], w->elements[Z]));
    w->turned = malloc(most * sizeof(double));
    for (int f = 0; f < w->fields; f++) {
        for (int d = 0; d < 3; d++) w->derived[d][f] = malloc(w->elements[d] * sizeof(double));
        w->u[f] = malloc(3 * w->elements[X] * sizeof(double));
        w->start[f] = w->u[f] + w->elements[X];
        w->sum[f] = w->start[f] + w->elements[X];
        w->out[f] = allocate(most);
        w->in[f] = allocate(most);
    }
    return 1;
}

static void free_flow(flow *w)
{
    for (int f = 0; f < w->fields; f++) {
        for (int d = 0; d < 3; d++) free(w->derived[d][f]);
        free(w->u[f]);
        MPI_Free_mem(w->out[f]);
        MPI_Free_mem(w->in[f]);
    }
    for (int d = 0; d < 3; d++) free(w->along[d].inverse);
    free(w->turned);
    free(w->xy.slow_first);
    free(w->yz.slow_first);
    MPI_Comm_free(&w->xy.comm);
    MPI_Comm_free(&w->yz.comm);
}

/* ---- One step ---- */

enum way { THERE, BACK };

static void start_transpose(flow *w, const transpose *t, int f, enum way way, int overlapped)
{
    int *const *from = way == THERE ? t->there : t->back, *const *to = way == THERE ? t->back : t->there;
    clock_in();
    MPI_Ialltoallv(w->out[f], from[0], from[1], MPI_DOUBLE, w->in[f], to[0], to[1], MPI_DOUBLE, t->comm, &w->requests[f]);
    if (!overlapped) MPI_Wait(&w->requests[f], MPI_STATUS_IGNORE);
    clock_out();
}

static void wait_transpose(flow *w, int f)
{
    clock_in();
    MPI_Wait(&w->requests[f], MPI_STATUS_IGNORE);
    clock_out();
}

static void derive(flow *w, int d, const double *from, double *to)
{
    differentiate(&w->along[d], from, to, w->elements[d] / w->whole[d]);
}

static void add(double *restrict to, const double *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++) to[i] += from[i];
}

/* The sum of the derivatives in all directions, into derived[X]. In each loop the transpose of one field travels while other
   fields are computed. */
static void advect(flow *w, int overlapped)
{
    for (int f = 0; f < w->fields; f++) {
        move_before(&w->xy, w->u[f], w->out[f], INTO_BLOCKS);
        start_transpose(w, &w->xy, f, THERE, overlapped);
        derive(w, X, w->u[f], w->derived[X][f]);
    }
    for (int f = 0; f < w->fields; f++) {
        wait_transpose(w, f);
        move_after(&w->xy, w->turned, w->in[f], OUT_OF_BLOCKS);
        move_before(&w->yz, w->turned, w->out[f], INTO_BLOCKS);
        start_transpose(w, &w->yz, f, THERE, overlapped);
        derive(w, Y, w->turned, w->derived[Y][f]);
    }
    for (int f = 0; f < w->fields; f++) {
        wait_transpose(w, f);
        move_after(&w->yz, w->turned, w->in[f], OUT_OF_BLOCKS);
        derive(w, Z, w->turned, w->derived[Z][f]);
        move_after(&w->yz, w->derived[Z][f], w->out[f], INTO_BLOCKS);
        start_transpose(w, &w->yz, f, BACK, overlapped);
    }
    for (int f = 0; f < w->fields; f++) {
        wait_transpose(w, f);
        move_before(&w->yz, w->turned, w->in[f], OUT_OF_BLOCKS);
        add(w->derived[Y][f], w->turned, w->elements[Y]);
        move_after(&w->xy, w->derived[Y][f], w->out[f], INTO_BLOCKS);
        start_transpose(w, &w->xy, f, BACK, overlapped);
    }
    for (int f = 0; f < w->fields; f++) {
        wait_transpose(w, f);
        move_before(&w->xy, w->turned, w->in[f], OUT_OF_BLOCKS);
        add(w->derived[X][f], w->turned, w->elements[X]);
    }
}

/* The classical Runge-Kutta method for du/dt = -(du/dx + du/dy + du/dz). */
static void step(flow *w, double dt, int overlapped)
{
    static const double weight[] = {1. / 6, 1. / 3, 1. / 3, 1. / 6}, ahead[] = {0.5, 0.5, 1};
    for (int f = 0; f < w->fields; f++) {
        memcpy(w->start[f], w->u[f], w->elements[X] * sizeof(double));
        memcpy(w->sum[f], w->u[f], w->elements[X] * sizeof(double));
    }
    for (int stage = 0; stage < 4; stage++) {
        advect(w, overlapped);
        for (int f = 0; f < w->fields; f++)
            for (size_t i = 0; i < w->elements[X]; i++) {
                w->sum[f][i] -= weight[stage] * dt * w->derived[X][f][i];
                w->u[f][i] = stage < 3 ? w->start[f][i] - ahead[stage] * dt * w->derived[X][f][i] : w->sum[f][i];
            }
    }
}

/* ---- What is known ---- */

/* Field f is sin(kx x + ky y + kz z + f); its wave numbers differ, so that no direction can stand for another. */
static int wave_number(int f, int d) { return d == X ? 1 + f % 2 : d == Y ? 1 + f / 2 % 2 : 2 - f % 2; }

/* Sums over the directions: of the true wave numbers, and of the numbers that the scheme takes for them. */
static double true_sum(int f) { return wave_number(f, X) + wave_number(f, Y) + wave_number(f, Z); }

static double scheme_sum(const flow *w, int f)
{
    double sum = 0;
    for (int d = 0; d < 3; d++) {
        double h = w->along[d].h, angle = wave_number(f, d) * h;
        sum += (14. / 9 * sin(angle) + 1. / 18 * sin(2 * angle)) / (h * (1 + 2 * alpha * cos(angle)));
    }
    return sum;
}

/* Sets the waves, or compares `of` with the waves times a complex number, factor[f]. Returns the greatest
   difference. */
static double with_waves(const flow *w, double *const *of, const double complex *factor, int set)
{
    double worst = 0;
    for (int f = 0; f < w->fields; f++) {
        double *at = of[f];
        for (int j = 0; j < w->count[Y]; j++)
            for (int k = 0; k < w->count[Z]; k++)
                for (int i = 0; i < w->count[X]; i++, at++) {
                    double angle = wave_number(f, X) * w->along[X].h * i + f +
                                   wave_number(f, Y) * w->along[Y].h * (w->first[Y] + j) +
                                   wave_number(f, Z) * w->along[Z].h * (w->first[Z] + k);
                    double wave = cimag(factor[f] * cexp(I * angle));
                    if (set)
                        *at = wave;
                    else
                        worst = fmax(worst, fabs(*at - wave));
                }
    }
    MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return worst;
}

static void set_waves(flow *w)
{
    double complex ones[FIELDS_MAX] = {1, 1, 1, 1, 1, 1, 1, 1};
    with_waves(w, w->u, ones, 1);
}

/* The error after this many steps, beside the factors by which the two schemes multiply a wave. */
static double error_after(flow *w, double dt, int steps)
{
    double complex factor[FIELDS_MAX];
    for (int f = 0; f < w->fields; f++) {
        double complex z = -I * dt * scheme_sum(w, f);
        factor[f] = cpow(1 + z * (1 + z / 2 * (1 + z / 3 * (1 + z / 4))), steps);
    }
    return with_waves(w, w->u, factor, 0);
}

/* The error of the derivatives; `allowed` is the error of the method. */
static double derivative_error(flow *w, double *allowed)
{
    double complex factor[FIELDS_MAX];
    *allowed = 1e-12;
    for (int f = 0; f < w->fields; f++) {
        factor[f] = I * true_sum(f);
        *allowed = fmax(*allowed, 1e-12 + fabs(scheme_sum(w, f) - true_sum(f)));
    }
    set_waves(w);
    advect(w, 1);
    return with_waves(w, w->derived[X], factor, 0);
}

int main(int argc, char **argv)
{
    options o;
    flow w;
    int rank, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (parse(argc, argv, &o) || !make_flow(&w, &o)) {
        if (rank == 0) fputs(usage, stderr);
        MPI_Finalize();
        return 2;
    }
    static const char *const titles[] = {"transpose, then work", "each transpose behind another field's work"};
    double error[2], allowed, derivative = derivative_error(&w, &allowed);
    double dt = 0.3 * fmin(w.along[X].h, fmin(w.along[Y].h, w.along[Z].h));
    row rows[2];
    wrong += !(derivative <= allowed);
    for (int overlapped = 0; overlapped < 2; overlapped++) {
        set_waves(&w);
        step(&w, dt, overlapped); /* warms up */
        double began = begin_run(MPI_COMM_WORLD);
        for (int i = 0; i < o.steps; i++) step(&w, dt, overlapped);
        rows[overlapped] = end_run(titles[overlapped], began, o.steps, MPI_COMM_WORLD);
        error[overlapped] = error_after(&w, dt, o.steps + 1);
        wrong += !(error[overlapped] < 1e-13 * (o.steps + 10));
    }
    if (rank == 0) {
        printf("compact: %d x %d x %d points, %d fields, %d steps, %d x %d ranks\n", o.n[0], o.n[1], o.n[2], o.fields,
               o.steps, w.xy.ranks, w.yz.ranks);
        printf("  check: the derivative is the true one to %.1e (allowed %.1e), the waves after all steps to %.1e and %.1e: %s\n",
               derivative, allowed, error[0], error[1], wrong ? "WRONG" : "ok");
        print_table("compact", rows, 2, rows[0], rows[1], wrong);
    }
    free_flow(&w);
    MPI_Finalize();
    return wrong != 0;
}
