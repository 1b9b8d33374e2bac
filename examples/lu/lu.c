/* Solves A x = b for a random matrix by LU with partial pivoting, as HPL does: blocks dealt out in turn to a grid of ranks,
   look-ahead of one panel, and the residual of HPL. A step factors a panel of columns within one column of ranks, sends it
   along the rows of the grid by MPI_Ibcast, swaps rows, solves for the panel's rows of U, and updates what remains. With
   look-ahead the next panel's columns are updated first; the ranks that hold them factor it and start its MPI_Ibcast, which
   travels while the long update of the rest goes on. b is the last column of A. Read next: `factor`. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "../table.h"
#include <cblas.h>
#include <float.h>
#include <getopt.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int n, block, grid[2];
} options;

static const char usage[] =
    "usage: lu [options]\n"
    "  -n, --size N         rows of the matrix (1000)\n"
    "  -b, --block N        rows and columns of a block (64)\n"
    "  -g, --grid PR,PC     rows and columns of the grid of ranks (as square as can be, not more rows than columns)\n";

static int parse(int argc, char **argv, options *o)
{
    static const struct option names[] = {{"size", 1, 0, 'n'}, {"block", 1, 0, 'b'}, {"grid", 1, 0, 'g'}, {0, 0, 0, 0}};
    *o = (options){.n = 1000, .block = 64};
    for (int c; (c = getopt_long(argc, argv, "n:b:g:", names, NULL)) != -1;) switch (c) {
        case 'n': o->n = atoi(optarg); break;
        case 'b': o->block = atoi(optarg); break;
        case 'g':
            if (sscanf(optarg, "%d,%d", &o->grid[0], &o->grid[1]) != 2) return 1;
            break;
        default: return 1;
        }
    return optind < argc || o->n < 1 || o->block < 1;
}

/* A panel under way along a row of the grid: the pivots, and this row's part of L. */
typedef struct {
    int *pivots;
    double *l; /* [columns of the panel][rows below and in it] */
    int rows;
    MPI_Request requests[2];
} panel;

typedef struct {
    MPI_Comm comm, along_row, down_column; /* of the grid */
    int n, block, panels;
    int grid[2], here[2]; /* ranks down and across; this rank's place */
    int rows, columns;    /* of this rank; the columns include b's, if it has it */
    double *a;            /* by columns, `rows` apart */
    panel panels_sent[2];
    double *u, *swapped;  /* the panel's rows of U; a row that is swapped */
} matrix;

/* ---- Blocks dealt out in turn ---- */

static int owner(const matrix *m, int global, int across) { return global / m->block % m->grid[across]; }

/* How many of the first `global` rows (or columns) this rank has. This is the local number of that row, or of the first
   row after it. */
static int local(const matrix *m, int global, int across)
{
    int block = global / m->block, ranks = m->grid[across], here = m->here[across];
    int before = block / ranks + (block % ranks > here);
    return before * m->block + (block % ranks == here ? global % m->block : 0);
}

static int global_of(const matrix *m, int local, int across)
{
    return (local / m->block * m->grid[across] + m->here[across]) * m->block + local % m->block;
}

static double *element(const matrix *m, int row, int column) { return m->a + (size_t)column * m->rows + row; }

/* An element of A, or of b in column n: a hash of its position, between -0.5 and 0.5 (splitmix64). Every rank
   can compute every element. */
static double value(uint64_t row, uint64_t column)
{
    uint64_t x = (row << 32 | column) + 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return (double)((x ^ x >> 31) >> 11) / (1ull << 53) - 0.5;
}

static void fill(matrix *m)
{
    for (int j = 0; j < m->columns; j++)
        for (int i = 0; i < m->rows; i++) *element(m, i, j) = value(global_of(m, i, 0), global_of(m, j, 1));
}

static void *allocate(size_t count, size_t size)
{
    void *memory;
    MPI_Alloc_mem((count ? count : 1) * size, MPI_INFO_NULL, &memory);
    return memory;
}

static int make_matrix(matrix *m, const options *o)
{
    int ranks, whole[2] = {o->grid[1], o->grid[0]}, periods[2] = {0, 0};
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (whole[0] && whole[0] * whole[1] != ranks) return 0;
    MPI_Dims_create(ranks, 2, whole);
    m->grid[0] = whole[1];
    m->grid[1] = whole[0];
    MPI_Cart_create(MPI_COMM_WORLD, 2, m->grid, periods, 0, &m->comm);
    int rank;
    MPI_Comm_rank(m->comm, &rank);
    MPI_Cart_coords(m->comm, rank, 2, m->here);
    MPI_Cart_sub(m->comm, (int[]){0, 1}, &m->along_row);
    MPI_Cart_sub(m->comm, (int[]){1, 0}, &m->down_column);
    m->n = o->n;
    m->block = o->block;
    m->panels = (o->n + o->block - 1) / o->block;
    m->rows = local(m, o->n, 0);
    m->columns = local(m, o->n + 1, 1);
    m->a = allocate((size_t)m->rows * m->columns, sizeof(double));
    for (int p = 0; p < 2; p++) {
        m->panels_sent[p].pivots = allocate(o->block, sizeof(int));
        m->panels_sent[p].l = allocate((size_t)m->rows * o->block, sizeof(double));
    }
    m->u = allocate((size_t)o->block * m->columns, sizeof(double));
    m->swapped = allocate(m->columns + (size_t)o->block, sizeof(double));
    return 1;
}

static void free_matrix(matrix *m)
{
    for (int p = 0; p < 2; p++) {
        MPI_Free_mem(m->panels_sent[p].pivots);
        MPI_Free_mem(m->panels_sent[p].l);
    }
    MPI_Free_mem(m->a);
    MPI_Free_mem(m->u);
    MPI_Free_mem(m->swapped);
    MPI_Comm_free(&m->along_row);
    MPI_Comm_free(&m->down_column);
    MPI_Comm_free(&m->comm);
}

static int width(const matrix *m, int k) { return k + 1 < m->panels ? m->block : m->n - k * m->block; }

/* ---- The panel ---- */

/* Exchanges two rows of A in this rank's columns `from` to `to`; the ranks of the two rows both call it. */
static void swap_rows(matrix *m, int one, int other, int from, int to)
{
    int mine = m->here[0], first = owner(m, one, 0), second = owner(m, other, 0), count = to - from;
    if (one == other || count <= 0 || (mine != first && mine != second)) return;
    int row = local(m, mine == first ? one : other, 0);
    if (first == second) {
        cblas_dswap(count, element(m, row, from), m->rows, element(m, local(m, other, 0), from), m->rows);
        return;
    }
    cblas_dcopy(count, element(m, row, from), m->rows, m->swapped, 1);
    clock_in();
    MPI_Sendrecv_replace(m->swapped, count, MPI_DOUBLE, mine == first ? second : first, 0,
                         mine == first ? second : first, 0, m->down_column, MPI_STATUS_IGNORE);
    clock_out();
    cblas_dcopy(count, m->swapped, 1, element(m, row, from), m->rows);
}

/* The row at or below `column` with the largest element there. */
static int find_pivot(matrix *m, int column, int at)
{
    struct {
        double size;
        int row;
    } best = {-1, column};
    int from = local(m, column, 0);
    if (from < m->rows) {
        int i = from + (int)cblas_idamax(m->rows - from, element(m, from, at), 1);
        best.size = fabs(*element(m, i, at));
        best.row = global_of(m, i, 0);
    }
    clock_in();
    MPI_Allreduce(MPI_IN_PLACE, &best, 1, MPI_DOUBLE_INT, MPI_MAXLOC, m->down_column);
    clock_out();
    return best.row;
}

/* Factors panel k. All ranks of the column that has it take part. */
static void factor_panel(matrix *m, int k, panel *p)
{
    int first = k * m->block, count = width(m, k), from = local(m, first, 1);
    for (int j = 0; j < count; j++) {
        int column = first + j, pivot = find_pivot(m, column, from + j), rest = count - j - 1;
        p->pivots[j] = pivot;
        swap_rows(m, column, pivot, from, from + count);
        /* The row of the pivot goes to all ranks, and each subtracts its multiples from the rows below. */
        int has = owner(m, column, 0), row = local(m, column, 0);
        if (m->here[0] == has) cblas_dcopy(rest + 1, element(m, row, from + j), m->rows, m->swapped, 1);
        clock_in();
        MPI_Bcast(m->swapped, rest + 1, MPI_DOUBLE, has, m->down_column);
        clock_out();
        int below = local(m, column + 1, 0), rows = m->rows - below;
        cblas_dscal(rows, 1 / m->swapped[0], element(m, below, from + j), 1);
        cblas_dger(CblasColMajor, rows, rest, -1, element(m, below, from + j), 1, m->swapped + 1, 1,
                   element(m, below, from + j + 1), m->rows);
    }
}

/* Factors panel k where it is, and starts to send it along the rows of the grid. */
static void start_panel(matrix *m, int k, panel *p)
{
    int root = owner(m, k * m->block, 1), top = local(m, k * m->block, 0), from = local(m, k * m->block, 1);
    p->rows = m->rows - top;
    if (m->here[1] == root) {
        factor_panel(m, k, p);
        for (int j = 0; j < width(m, k); j++)
            memcpy(p->l + (size_t)j * p->rows, element(m, top, from + j), p->rows * sizeof(double));
    }
    clock_in();
    MPI_Ibcast(p->pivots, width(m, k), MPI_INT, root, m->along_row, &p->requests[0]);
    MPI_Ibcast(p->l, p->rows * width(m, k), MPI_DOUBLE, root, m->along_row, &p->requests[1]);
    clock_out();
}

static void wait_panel(panel *p)
{
    clock_in();
    MPI_Waitall(2, p->requests, MPI_STATUSES_IGNORE);
    clock_out();
}

/* ---- The update ---- */

/* Applies panel k to this rank's columns `from` to `to`: swaps rows, finds the rows of U, and subtracts L U below. */
static void update(matrix *m, int k, const panel *p, int from, int to)
{
    int first = k * m->block, count = width(m, k), columns = to - from, has = owner(m, first, 0);
    int top = local(m, first, 0), below = local(m, first + count, 0);
    if (columns <= 0) return;
    for (int j = 0; j < count; j++) swap_rows(m, first + j, p->pivots[j], from, to);
    if (m->here[0] == has) {
        cblas_dtrsm(CblasColMajor, CblasLeft, CblasLower, CblasNoTrans, CblasUnit, count, columns, 1, p->l, p->rows,
                    element(m, top, from), m->rows);
        for (int j = 0; j < columns; j++)
            memcpy(m->u + (size_t)j * count, element(m, top, from + j), count * sizeof(double));
    }
    clock_in();
    MPI_Bcast(m->u, count * columns, MPI_DOUBLE, has, m->down_column);
    clock_out();
    if (m->rows > below)
        cblas_dgemm(CblasColMajor, CblasNoTrans, CblasNoTrans, m->rows - below, columns, count, -1, p->l + below - top,
                    p->rows, m->u, count, 1, element(m, below, from), m->rows);
}

/* Factors the matrix. With look-ahead, panel k + 1 is under way while the columns right of it are updated
   with panel k. */
static void factor(matrix *m, int overlapped)
{
    panel *current = &m->panels_sent[0], *next = &m->panels_sent[1];
    start_panel(m, 0, current);
    for (int k = 0; k < m->panels; k++) {
        wait_panel(current);
        int from = local(m, k * m->block + width(m, k), 1), more = k + 1 < m->panels;
        if (overlapped && more) {
            int after = local(m, (k + 1) * m->block + width(m, k + 1), 1);
            update(m, k, current, from, after);
            start_panel(m, k + 1, next);
            from = after;
        }
        update(m, k, current, from, m->columns);
        if (!overlapped && more) start_panel(m, k + 1, next);
        panel *done = current;
        current = next;
        next = done;
    }
}

/* ---- Solution and residual ---- */

/* Solves U x = y, from the last block up; y is the last column. `x` becomes complete on every rank. */
static void solve(matrix *m, double *x)
{
    double *sums = calloc(m->rows + 1, sizeof *sums), *part = malloc(m->block * sizeof *part);
    int has_y = owner(m, m->n, 1), y = local(m, m->n, 1);
    memset(x, 0, m->n * sizeof *x);
    for (int k = m->panels - 1; k >= 0; k--) {
        int first = k * m->block, count = width(m, k), row = local(m, first, 0), column = local(m, first, 1);
        int down = owner(m, first, 0), across = owner(m, first, 1);
        if (m->here[0] == down) {
            for (int i = 0; i < count; i++)
                part[i] = (m->here[1] == has_y ? *element(m, row + i, y) : 0) - sums[row + i];
            MPI_Reduce(m->here[1] == across ? MPI_IN_PLACE : part, part, count, MPI_DOUBLE, MPI_SUM, across, m->along_row);
            if (m->here[1] == across)
                cblas_dtrsv(CblasColMajor, CblasUpper, CblasNoTrans, CblasNonUnit, count, element(m, row, column), m->rows,
                            part, 1);
        }
        if (m->here[1] != across) continue;
        MPI_Bcast(part, count, MPI_DOUBLE, down, m->down_column);
        cblas_dgemv(CblasColMajor, CblasNoTrans, row, count, 1, element(m, 0, column), m->rows, part, 1, 1, sums, 1);
        if (m->here[0] == down) memcpy(x + first, part, count * sizeof *x);
    }
    MPI_Allreduce(MPI_IN_PLACE, x, m->n, MPI_DOUBLE, MPI_SUM, m->comm);
    free(sums);
    free(part);
}

/* HPL's residual: |A x - b| / (eps (|A| |x| + |b|) n), with the largest element or row sum as the norm. Each rank takes its
   share of the rows. */
static double residual(const matrix *m, const double *x)
{
    double worst[4] = {0, 0, 0, 0}; /* of A x - b, A, x, b */
    int rank, ranks;
    MPI_Comm_rank(m->comm, &rank);
    MPI_Comm_size(m->comm, &ranks);
    for (int i = rank; i < m->n; i += ranks) {
        double b = value(i, m->n), sum = -b, size = 0;
        for (int j = 0; j < m->n; j++) {
            sum += value(i, j) * x[j];
            size += fabs(value(i, j));
        }
        worst[0] = fmax(worst[0], isnan(sum) ? INFINITY : fabs(sum));
        worst[1] = fmax(worst[1], size);
        worst[2] = fmax(worst[2], fabs(x[i]));
        worst[3] = fmax(worst[3], fabs(b));
    }
    MPI_Allreduce(MPI_IN_PLACE, worst, 4, MPI_DOUBLE, MPI_MAX, m->comm);
    return worst[0] / (DBL_EPSILON * (worst[1] * worst[2] + worst[3]) * m->n);
}

int main(int argc, char **argv)
{
    options o;
    matrix m;
    int rank, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (parse(argc, argv, &o) || !make_matrix(&m, &o)) {
        if (rank == 0) fputs(usage, stderr);
        MPI_Finalize();
        return 2;
    }
    static const char *const titles[] = {"panel, then update", "look-ahead: panel behind the update"};
    row rows[2];
    double left[2], *x = malloc(o.n * sizeof *x);
    fill(&m);
    factor(&m, 1); /* warms up */
    for (int overlapped = 0; overlapped < 2; overlapped++) {
        fill(&m);
        double began = begin_run(m.comm);
        factor(&m, overlapped);
        rows[overlapped] = end_run(titles[overlapped], began, m.panels, m.comm);
        solve(&m, x);
        left[overlapped] = residual(&m, x);
        wrong += !(left[overlapped] < 16);
    }
    if (rank == 0) {
        double flops = 2. / 3 * o.n * o.n * (double)o.n;
        printf("lu: %d rows, blocks of %d, %d x %d ranks, %d panels, %.2f GFlop/s\n", o.n, o.block, m.grid[0], m.grid[1],
               m.panels, 1e-9 * flops / (rows[1].step * m.panels));
        printf("  check: |A x - b| / (eps (|A| |x| + |b|) n) = %.2e and %.2e (allowed 16): %s\n", left[0], left[1],
               wrong ? "WRONG" : "ok");
        print_table("lu", rows, 2, rows[0], rows[1], wrong);
    }
    free(x);
    free_matrix(&m);
    MPI_Finalize();
    return wrong != 0;
}
