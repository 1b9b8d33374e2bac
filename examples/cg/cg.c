/* Conjugate gradients on the 27-point Laplacian, the matrix of HPCG: 26 on the diagonal, -1 for each neighbour in a box of
   3 x 3 x 3 points, zero outside. Each rank has a slab of planes, and a plane of each neighbour's below and above it.
   Classic: two sums over all ranks per step, and everybody waits for each. Pipelined (Ghysels and Vanroose, Parallel
   Computing 40, 2014): one MPI_Iallreduce for both sums, which travels while the matrix is applied, for three more vectors
   to update. The right side is made from a known solution without any MPI; so halos and sums are checked by it.
   Read next: `pipelined`. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "../table.h"
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int n[3], most;
    double tolerance;
} options;

static const char usage[] =
    "usage: cg [options]\n"
    "  -n, --points NX[,NY,NZ]  points of the box; at least as many planes NX as ranks (48)\n"
    "  -t, --tolerance X        ends when the residual is so small, relative to the right side (1e-8)\n"
    "  -s, --steps N            steps that it may take (1000)\n";

static int parse(int argc, char **argv, options *o)
{
    static const struct option names[] = {{"points", 1, 0, 'n'}, {"tolerance", 1, 0, 't'}, {"steps", 1, 0, 's'}, {0, 0, 0, 0}};
    *o = (options){.n = {48, 48, 48}, .most = 1000, .tolerance = 1e-8};
    for (int c, read; (c = getopt_long(argc, argv, "n:t:s:", names, NULL)) != -1;) switch (c) {
        case 'n':
            read = sscanf(optarg, "%d,%d,%d", &o->n[0], &o->n[1], &o->n[2]);
            if (read == 1) o->n[1] = o->n[2] = o->n[0];
            if (read != 1 && read != 3) return 1;
            break;
        case 't': o->tolerance = atof(optarg); break;
        case 's': o->most = atoi(optarg); break;
        default: return 1;
        }
    return optind < argc || o->n[0] < 1 || o->n[1] < 1 || o->n[2] < 1 || o->most < 1 || !(o->tolerance > 1e-12);
}

/* Vectors are [planes + 2][n1 + 2][n2 + 2]; the border is zero, or a neighbour's plane. */
enum { X, B, R, W, P, S, Z, Q, VECTORS };

typedef struct {
    int rank, below, above;
    int whole[3], planes, first; /* points; planes of this rank, and the first of these */
    size_t plane;                /* elements of a plane, border included */
    double *v[VECTORS];
    MPI_Request halo[4];
} slab;

static int make_slab(slab *s, const options *o)
{
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &s->rank);
    memcpy(s->whole, o->n, sizeof s->whole);
    s->first = (int)((long)s->rank * o->n[0] / ranks);
    s->planes = (int)((s->rank + 1L) * o->n[0] / ranks) - s->first;
    s->below = s->rank > 0 ? s->rank - 1 : MPI_PROC_NULL;
    s->above = s->rank + 1 < ranks ? s->rank + 1 : MPI_PROC_NULL;
    s->plane = (o->n[1] + 2ul) * (o->n[2] + 2ul);
    if (o->n[0] < ranks) return 0;
    for (int v = 0; v < VECTORS; v++)
        MPI_Alloc_mem((s->planes + 2) * s->plane * sizeof(double), MPI_INFO_NULL, &s->v[v]);
    return 1;
}

static void free_slab(slab *s)
{
    for (int v = 0; v < VECTORS; v++) MPI_Free_mem(s->v[v]);
}

/* ---- The problem ---- */

/* The solution at a point of the box, by its number from 1; zero outside. */
static double solution(const slab *s, int i, int j, int k)
{
    if (i < 1 || j < 1 || k < 1 || i > s->whole[0] || j > s->whole[1] || k > s->whole[2]) return 0;
    return sin(0.13 * i * j + 0.31 * k) + cos(0.7 * i + 0.05 * j * k);
}

static void set_problem(slab *s)
{
    for (int v = 0; v < VECTORS; v++) memset(s->v[v], 0, (s->planes + 2) * s->plane * sizeof(double));
    for (int i = 1; i <= s->planes; i++)
        for (int j = 1; j <= s->whole[1]; j++)
            for (int k = 1; k <= s->whole[2]; k++) {
                double sum = 0;
                for (int n = 0; n < 27; n++)
                    sum += solution(s, s->first + i + n / 9 - 1, j + n / 3 % 3 - 1, k + n % 3 - 1);
                s->v[B][i * s->plane + j * (s->whole[2] + 2ul) + k] = 27 * solution(s, s->first + i, j, k) - sum;
            }
}

static double error_of(const slab *s)
{
    double worst = 0;
    for (int i = 1; i <= s->planes; i++)
        for (int j = 1; j <= s->whole[1]; j++)
            for (int k = 1; k <= s->whole[2]; k++)
                worst = fmax(worst, fabs(s->v[X][i * s->plane + j * (s->whole[2] + 2ul) + k] -
                                         solution(s, s->first + i, j, k)));
    MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return worst;
}

/* ---- Vectors ---- */

/* This rank's part of the scalar product. */
static double dot(const slab *s, int a, int b)
{
    const double *x = s->v[a] + s->plane, *y = s->v[b] + s->plane;
    double sums[4] = {0, 0, 0, 0};
    size_t count = s->planes * s->plane, i = 0;
    for (; i + 4 <= count; i += 4)
        for (int k = 0; k < 4; k++) sums[k] += x[i + k] * y[i + k];
    for (; i < count; i++) sums[0] += x[i] * y[i];
    return sums[0] + sums[1] + sums[2] + sums[3];
}

/* y += factor x. */
static void add(slab *s, int to, double factor, int from)
{
    double *restrict y = s->v[to] + s->plane;
    const double *restrict x = s->v[from] + s->plane;
    for (size_t i = 0; i < s->planes * s->plane; i++) y[i] += factor * x[i];
}

/* y = x + factor y. */
static void turn(slab *s, int to, double factor, int from)
{
    double *restrict y = s->v[to] + s->plane;
    const double *restrict x = s->v[from] + s->plane;
    for (size_t i = 0; i < s->planes * s->plane; i++) y[i] = x[i] + factor * y[i];
}

/* Planes `from` to `to`, both included, of the matrix times u. */
static void multiply_planes(slab *s, int to_vector, const double *vector, int from, int to)
{
    size_t line = s->whole[2] + 2ul;
    for (int i = from; i <= to; i++)
        for (int j = 1; j <= s->whole[1]; j++) {
            const double *u = vector + i * s->plane + j * line;
            double *restrict y = s->v[to_vector] + i * s->plane + j * line;
            for (int k = 1; k <= s->whole[2]; k++) {
                double sum = 0;
                for (int a = -1; a <= 1; a++)
                    for (int b = -1; b <= 1; b++) {
                        const double *near = u + a * (long)s->plane + b * (long)line + k;
                        sum += near[-1] + near[0] + near[1];
                    }
                y[k] = 27 * u[k] - sum;
            }
        }
}

static void wait_halo(slab *s)
{
    clock_in();
    MPI_Waitall(4, s->halo, MPI_STATUSES_IGNORE);
    clock_out();
}

/* y = A u. The inner planes are computed while the outer ones of the neighbours travel. */
static void multiply(slab *s, int y, int u, int overlapped)
{
    double *v = s->v[u];
    int plane = (int)s->plane, top = s->planes;
    clock_in();
    MPI_Irecv(v, plane, MPI_DOUBLE, s->below, 1, MPI_COMM_WORLD, &s->halo[0]);
    MPI_Irecv(v + (top + 1) * s->plane, plane, MPI_DOUBLE, s->above, 0, MPI_COMM_WORLD, &s->halo[1]);
    MPI_Isend(v + s->plane, plane, MPI_DOUBLE, s->below, 0, MPI_COMM_WORLD, &s->halo[2]);
    MPI_Isend(v + top * s->plane, plane, MPI_DOUBLE, s->above, 1, MPI_COMM_WORLD, &s->halo[3]);
    clock_out();
    if (!overlapped) wait_halo(s);
    multiply_planes(s, y, v, 2, top - 1);
    if (overlapped) wait_halo(s);
    multiply_planes(s, y, v, 1, 1);
    if (top > 1) multiply_planes(s, y, v, top, top);
}

/* ---- The two methods; both return the number of steps ---- */

static double sum_of(double part)
{
    clock_in();
    MPI_Allreduce(MPI_IN_PLACE, &part, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    clock_out();
    return part;
}

static int classic(slab *s, const options *o)
{
    double enough = o->tolerance * o->tolerance * sum_of(dot(s, B, B));
    add(s, R, 1, B);
    double beta = 0, gamma = sum_of(dot(s, R, R));
    int steps = 0;
    for (; steps < o->most && gamma > enough; steps++) {
        turn(s, P, beta, R);
        multiply(s, S, P, 1);
        double alpha = gamma / sum_of(dot(s, P, S));
        add(s, X, alpha, P);
        add(s, R, -alpha, S);
        double next = sum_of(dot(s, R, R));
        beta = next / gamma;
        gamma = next;
    }
    return steps;
}

static int pipelined(slab *s, const options *o, int overlapped)
{
    double enough = o->tolerance * o->tolerance * sum_of(dot(s, B, B));
    double alpha = 0, beta = 0, gamma = 0;
    int steps = 0;
    add(s, R, 1, B);
    multiply(s, W, R, overlapped);
    for (; steps < o->most; steps++) {
        double parts[2] = {dot(s, R, R), dot(s, W, R)}, sums[2];
        MPI_Request request;
        clock_in();
        MPI_Iallreduce(parts, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
        if (!overlapped) MPI_Wait(&request, MPI_STATUS_IGNORE);
        clock_out();
        multiply(s, Q, W, overlapped);
        clock_in();
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        clock_out();
        if (sums[0] <= enough) break;
        beta = steps ? sums[0] / gamma : 0;
        alpha = steps ? sums[0] / (sums[1] - beta * sums[0] / alpha) : sums[0] / sums[1];
        gamma = sums[0];
        turn(s, Z, beta, Q);
        turn(s, S, beta, W);
        turn(s, P, beta, R);
        add(s, X, alpha, P);
        add(s, R, -alpha, S);
        add(s, W, -alpha, Z);
    }
    return steps;
}

/* ---- */

/* |b - A x| / |b|, computed from x alone. */
static double residual(slab *s)
{
    multiply(s, Q, X, 0);
    memcpy(s->v[R], s->v[B], (s->planes + 2) * s->plane * sizeof(double));
    add(s, R, -1, Q);
    return sqrt(sum_of(dot(s, R, R)) / sum_of(dot(s, B, B)));
}

int main(int argc, char **argv)
{
    options o;
    slab s;
    int rank, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (parse(argc, argv, &o) || !make_slab(&s, &o)) {
        if (rank == 0) fputs(usage, stderr);
        MPI_Finalize();
        return 2;
    }
    if (rank == 0) printf("cg: %d x %d x %d points\n", o.n[0], o.n[1], o.n[2]);
    enum { CLASSIC, APART, OVERLAPPED, WAYS };
    static const char *const titles[WAYS] = {"classic", "pipelined, each wait at once", "pipelined, sums behind the matrix"};
    row rows[WAYS];
    options warm_up = o;
    warm_up.most = 5;
    for (int way = 0; way < WAYS; way++) {
        set_problem(&s);
        way == CLASSIC ? classic(&s, &warm_up) : pipelined(&s, &warm_up, way == OVERLAPPED);
        set_problem(&s);
        double began = begin_run(MPI_COMM_WORLD);
        int steps = way == CLASSIC ? classic(&s, &o) : pipelined(&s, &o, way == OVERLAPPED);
        rows[way] = end_run(titles[way], began, steps > 0 ? steps : 1, MPI_COMM_WORLD);
        double left = residual(&s), error = error_of(&s);
        /* The least eigenvalue of a box of n points along its edges is about 27 (pi / n)^2 / 3. */
        int bad = !(left < 2 * o.tolerance) || !(error < 1e4 * o.tolerance);
        wrong += bad;
        if (rank == 0)
            printf("  check: %s: %d steps, residual %.1e (allowed %.1e), error %.1e (allowed %.1e): %s\n", titles[way],
                   steps, left, 2 * o.tolerance, error, 1e4 * o.tolerance, bad ? "WRONG" : "ok");
    }
    if (rank == 0) print_table("cg", rows, WAYS, rows[APART], rows[OVERLAPPED], wrong);
    free_slab(&s);
    MPI_Finalize();
    return wrong != 0;
}
