/* The heat equation on a periodic box, explicit in time: the 7-point stencil on a grid of ranks in three dimensions. Each
   rank's part has one layer of its six neighbours' points around it, its halo. A step starts the exchange of halos, computes
   the points that need none, waits, and computes the rest. The exchange is six sends and six receives, or one neighborhood
   collective (--neighbor); a face is a datatype, so nothing is packed here.
   The start is a wave sin(a) sin(b) sin(c), which each step multiplies by a known number; so every point is checked to
   rounding. Read next: `step`. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "../table.h"
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

enum { FACES = 6 }; /* down and up in each dimension; face f ^ 1 is the opposite one */

typedef struct {
    int n[3], steps, neighbor, grid[3];
} options;

static const char usage[] =
    "usage: stencil3d [options]\n"
    "  -n, --points NX[,NY,NZ]  points of the box (64)\n"
    "  -g, --grid PX,PY,PZ      ranks in each dimension (MPI_Dims_create)\n"
    "  -s, --steps N            time steps (50)\n"
    "  -c, --neighbor           halos by MPI_Ineighbor_alltoallw instead of MPI_Isend and MPI_Irecv\n";

static int parse(int argc, char **argv, options *o)
{
    static const struct option names[] = {
        {"points", 1, 0, 'n'}, {"grid", 1, 0, 'g'}, {"steps", 1, 0, 's'}, {"neighbor", 0, 0, 'c'}, {0, 0, 0, 0}};
    *o = (options){.n = {64, 64, 64}, .steps = 50};
    for (int c, read; (c = getopt_long(argc, argv, "n:g:s:c", names, NULL)) != -1;) switch (c) {
        case 'n':
            read = sscanf(optarg, "%d,%d,%d", &o->n[0], &o->n[1], &o->n[2]);
            if (read == 1) o->n[1] = o->n[2] = o->n[0];
            if (read != 1 && read != 3) return 1;
            break;
        case 'g':
            if (sscanf(optarg, "%d,%d,%d", &o->grid[0], &o->grid[1], &o->grid[2]) != 3) return 1;
            break;
        case 's': o->steps = atoi(optarg); break;
        case 'c': o->neighbor = 1; break;
        default: return 1;
        }
    return optind < argc || o->n[0] < 1 || o->n[1] < 1 || o->n[2] < 1 || o->steps < 1;
}

typedef struct {
    MPI_Comm comm, graph; /* a periodic grid, and the same ranks with their neighbors in our order */
    int rank, whole[3], n[3], first[3]; /* points of the box, of this rank, and the first of these */
    double r;                           /* dt / h^2 */
    double *u, *next;                   /* [n0+2][n1+2][n2+2] */
    int neighbor, neighbors[FACES];
    MPI_Datatype inner[FACES], outer[FACES]; /* the outermost layer of own points, and the halo that it is at the neighbor */
    MPI_Request requests[2 * FACES];
} box;

static size_t at(const box *b, int i, int j, int k) { return ((size_t)i * (b->n[1] + 2) + j) * (b->n[2] + 2) + k; }

/* One face of the array: `layer` in its dimension, this rank's own points in the others. */
static MPI_Datatype face(const box *b, int dimension, int layer)
{
    int sizes[3], parts[3], starts[3];
    for (int d = 0; d < 3; d++) {
        sizes[d] = b->n[d] + 2;
        parts[d] = d == dimension ? 1 : b->n[d];
        starts[d] = d == dimension ? layer : 1;
    }
    MPI_Datatype type;
    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    return type;
}

/* The wave's angle at a point of the box. Each dimension has another wave length, so that no dimension can be mistaken
   for another. */
static double angle(const box *b, int dimension, int point)
{
    return 2 * M_PI * (dimension + 1) * point / b->whole[dimension] + 0.7 + dimension;
}

static double wave(const box *b, int i, int j, int k)
{
    return sin(angle(b, 0, b->first[0] + i - 1)) * sin(angle(b, 1, b->first[1] + j - 1)) *
           sin(angle(b, 2, b->first[2] + k - 1));
}

static void set_wave(box *b)
{
    for (int i = 1; i <= b->n[0]; i++)
        for (int j = 1; j <= b->n[1]; j++)
            for (int k = 1; k <= b->n[2]; k++) b->u[at(b, i, j, k)] = wave(b, i, j, k);
}

static int make_box(box *b, const options *o)
{
    int ranks, grid[3], here[3], periods[3] = {1, 1, 1}, fits = 1;
    memcpy(grid, o->grid, sizeof grid);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (grid[0] && grid[0] * grid[1] * grid[2] != ranks) return 0;
    MPI_Dims_create(ranks, 3, grid);
    MPI_Cart_create(MPI_COMM_WORLD, 3, grid, periods, 0, &b->comm);
    MPI_Comm_rank(b->comm, &b->rank);
    MPI_Cart_coords(b->comm, b->rank, 3, here);
    for (int d = 0; d < 3; d++) {
        b->whole[d] = o->n[d];
        b->first[d] = (int)((long)here[d] * o->n[d] / grid[d]);
        b->n[d] = (int)((here[d] + 1L) * o->n[d] / grid[d]) - b->first[d];
        fits &= o->n[d] >= grid[d];
        MPI_Cart_shift(b->comm, d, 1, &b->neighbors[2 * d], &b->neighbors[2 * d + 1]);
    }
    if (!fits) return 0;
    /* The data sent through face f arrive from the opposite neighbor. With one or two ranks in a dimension both neighbors
       are the same rank, and the order of both lists tells its two messages apart. */
    int sources[FACES], weights[FACES] = {1, 1, 1, 1, 1, 1};
    for (int f = 0; f < FACES; f++) sources[f] = b->neighbors[f ^ 1];
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, FACES, sources, weights, FACES, b->neighbors, weights, MPI_INFO_NULL, 0,
                                   &b->graph);
    b->r = 0.1;
    b->neighbor = o->neighbor;
    size_t points = at(b, b->n[0] + 1, b->n[1] + 1, b->n[2] + 1) + 1;
    MPI_Alloc_mem(points * sizeof *b->u, MPI_INFO_NULL, &b->u);
    MPI_Alloc_mem(points * sizeof *b->next, MPI_INFO_NULL, &b->next);
    memset(b->u, 0, points * sizeof *b->u);
    memset(b->next, 0, points * sizeof *b->next);
    for (int d = 0; d < 3; d++) {
        b->inner[2 * d] = face(b, d, 1);
        b->inner[2 * d + 1] = face(b, d, b->n[d]);
        b->outer[2 * d] = face(b, d, b->n[d] + 1);
        b->outer[2 * d + 1] = face(b, d, 0);
    }
    return 1;
}

static void free_box(box *b)
{
    for (int f = 0; f < FACES; f++) {
        MPI_Type_free(&b->inner[f]);
        MPI_Type_free(&b->outer[f]);
    }
    MPI_Free_mem(b->u);
    MPI_Free_mem(b->next);
    MPI_Comm_free(&b->graph);
    MPI_Comm_free(&b->comm);
}

/* ---- One step ---- */

static void start_halo(box *b)
{
    static const int ones[FACES] = {1, 1, 1, 1, 1, 1};
    static const MPI_Aint zeros[FACES];
    clock_in();
    if (b->neighbor) {
        MPI_Ineighbor_alltoallw(b->u, ones, zeros, b->inner, b->u, ones, zeros, b->outer, b->graph, b->requests);
    } else {
        for (int f = 0; f < FACES; f++) MPI_Irecv(b->u, 1, b->outer[f], b->neighbors[f ^ 1], f, b->comm, &b->requests[f]);
        for (int f = 0; f < FACES; f++)
            MPI_Isend(b->u, 1, b->inner[f], b->neighbors[f], f, b->comm, &b->requests[FACES + f]);
    }
    clock_out();
}

static void wait_halo(box *b)
{
    clock_in();
    MPI_Waitall(b->neighbor ? 1 : 2 * FACES, b->requests, MPI_STATUSES_IGNORE);
    clock_out();
}

/* The points from `lo` to `hi`, both included. */
static void compute(box *b, const int lo[3], const int hi[3])
{
    size_t di = at(b, 1, 0, 0), dj = at(b, 0, 1, 0);
    double r = b->r;
    for (int i = lo[0]; i <= hi[0]; i++)
        for (int j = lo[1]; j <= hi[1]; j++) {
            const double *u = b->u + at(b, i, j, 0);
            double *restrict next = b->next + at(b, i, j, 0);
            for (int k = lo[2]; k <= hi[2]; k++)
                next[k] = u[k] + r * (u[k - di] + u[k + di] + u[k - dj] + u[k + dj] + u[k - 1] + u[k + 1] - 6 * u[k]);
        }
}

/* The outermost layer of own points. Each dimension takes the points that the dimensions before it have left.
   */
static void compute_shell(box *b)
{
    int lo[3] = {1, 1, 1}, hi[3] = {b->n[0], b->n[1], b->n[2]};
    for (int d = 0; d < 3; d++) {
        int from = lo[d], to = hi[d];
        hi[d] = from;
        compute(b, lo, hi);
        lo[d] = hi[d] = to;
        if (to > from) compute(b, lo, hi);
        lo[d] = from + 1;
        hi[d] = to - 1;
    }
}

static void step(box *b, int overlapped)
{
    int lo[3] = {2, 2, 2}, hi[3] = {b->n[0] - 1, b->n[1] - 1, b->n[2] - 1};
    start_halo(b);
    if (!overlapped) wait_halo(b);
    compute(b, lo, hi);
    if (overlapped) wait_halo(b);
    compute_shell(b);
    double *u = b->u;
    b->u = b->next;
    b->next = u;
}

/* The greatest error after this many steps from the start; the wave was 1 high. */
static double error_after(const box *b, int steps)
{
    double factor = 1, worst = 0;
    for (int d = 0; d < 3; d++) factor += 2 * b->r * (cos(2 * M_PI * (d + 1) / b->whole[d]) - 1);
    factor = pow(factor, steps);
    for (int i = 1; i <= b->n[0]; i++)
        for (int j = 1; j <= b->n[1]; j++)
            for (int k = 1; k <= b->n[2]; k++)
                worst = fmax(worst, fabs(b->u[at(b, i, j, k)] - factor * wave(b, i, j, k)));
    MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_DOUBLE, MPI_MAX, b->comm);
    return worst;
}

int main(int argc, char **argv)
{
    options o;
    box b;
    int rank, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (parse(argc, argv, &o) || !make_box(&b, &o)) {
        if (rank == 0) fputs(usage, stderr);
        MPI_Finalize();
        return 2;
    }
    static const char *const titles[] = {"halo, then work", "interior while the halo travels"};
    row rows[2];
    double error[2];
    for (int overlapped = 0; overlapped < 2; overlapped++) {
        set_wave(&b);
        step(&b, overlapped); /* warms up */
        double began = begin_run(b.comm);
        for (int i = 0; i < o.steps; i++) step(&b, overlapped);
        rows[overlapped] = end_run(titles[overlapped], began, o.steps, b.comm);
        error[overlapped] = error_after(&b, o.steps + 1);
        wrong += !(error[overlapped] < 1e-12);
    }
    if (b.rank == 0) {
        printf("stencil3d: %d x %d x %d points, %d steps, halos by %s\n", o.n[0], o.n[1], o.n[2], o.steps,
               o.neighbor ? "MPI_Ineighbor_alltoallw" : "MPI_Isend and MPI_Irecv");
        printf("  check: each step multiplies the wave by a known number: to %.1e and %.1e: %s\n", error[0], error[1],
               wrong ? "WRONG" : "ok");
        print_table(o.neighbor ? "stencil3d-neighbor" : "stencil3d", rows, 2, rows[0], rows[1], wrong);
    }
    free_box(&b);
    MPI_Finalize();
    return wrong != 0;
}
