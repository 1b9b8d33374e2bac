/* SPDX-License-Identifier: BSD-3-Clause */
/* Breadth-first search of a graph like Graph500's (R-MAT), with MPI and OpenSHMEM in one program: MPI deals the edges to the owners of
   their vertices; then each level of the search travels by puts with signals, and PE 0 compares with a search of its own.
   Any OpenSHMEM 1.5 beside any MPI runs it, if PE numbers are ranks. */
#include <mpi.h>
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A block of vertices that one PE has reached and another owns. Each PE has SLOTS of them from each other PE.
   */
#define PAIRS 510
#define SLOTS 4
struct block { int64_t count, is_last; struct { int32_t vertex, parent; } pairs[PAIRS]; };

static int me, n, scale = 14, factor = 16;
static int64_t vertices, edges;
static struct block *inbox;         /* by source and slot */
static uint64_t *arrived, *taken;   /* signals: blocks that came from each PE; blocks that each PE has read */
static int64_t *found;              /* vertices that all have found in a level */

static void die(const char *why) {
    fprintf(stderr, "bfs: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static uint64_t random_of(uint64_t x) { /* splitmix64 */
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Edge number i of the graph, the same on all PEs. In each bit it is in one of four quadrants, with the probabilities
   0.57, 0.19, 0.19, 0.05. */
static void edge(int64_t i, int32_t ends[2]) {
    ends[0] = ends[1] = 0;
    for (int bit = 0; bit < scale; bit++) {
        unsigned dice = random_of((uint64_t)i * 64 + bit) % 100;
        ends[0] = ends[0] << 1 | (dice >= 76);
        ends[1] = ends[1] << 1 | ((dice >= 57 && dice < 76) || dice >= 95);
    }
}

/* The neighbours of vertices, one list after the other. */
struct graph { int64_t *begin; int32_t *neighbours; };

/* A graph from pairs (vertex, neighbour); `step` is the distance between the vertices that are kept. */
static struct graph graph_of(const int32_t *pairs, int64_t count, int64_t local, int step) {
    struct graph graph = {calloc(local + 2, sizeof(int64_t)), malloc((count + 1) * sizeof(int32_t))};
    if (!graph.begin || !graph.neighbours) die("no memory for the graph");
    for (int64_t i = 0; i < count; i++) graph.begin[pairs[2 * i] / step + 2]++;
    for (int64_t v = 0; v < local; v++) graph.begin[v + 2] += graph.begin[v + 1];
    for (int64_t i = 0; i < count; i++) graph.neighbours[graph.begin[pairs[2 * i] / step + 1]++] = pairs[2 * i + 1];
    return graph;
}

/* Each PE makes its share of the edges and sends each edge to the owners of both ends. */
static struct graph deal(void) {
    int64_t first = edges * me / n, last = edges * (me + 1) / n;
    int *counts = calloc(4 * n + 1, sizeof *counts), *to = counts + n, *from = to + n, *come = from + n;
    int32_t *send = malloc((4 * (last - first) + 1) * sizeof *send), ends[2];
    if (!counts || !send) die("no memory for the edges");
    for (int64_t i = first; i < last; i++) {
        edge(i, ends);
        counts[ends[0] % n] += 2, counts[ends[1] % n] += 2;
    }
    for (int pe = 1; pe < n; pe++) to[pe] = to[pe - 1] + counts[pe - 1];
    for (int64_t i = first; i < last; i++) {
        edge(i, ends);
        for (int way = 0; way < 2; way++) {
            int *at = &to[ends[way] % n];
            send[(*at)++] = ends[way], send[(*at)++] = ends[!way];
        }
    }
    for (int pe = 0; pe < n; pe++) to[pe] -= counts[pe];
    MPI_Alltoall(counts, 1, MPI_INT, come, 1, MPI_INT, MPI_COMM_WORLD);
    for (int pe = 1; pe < n; pe++) from[pe] = from[pe - 1] + come[pe - 1];
    int64_t all = from[n - 1] + come[n - 1];
    int32_t *pairs = malloc((all + 1) * sizeof *pairs);
    if (!pairs) die("no memory for the edges");
    MPI_Alltoallv(send, counts, to, MPI_INT32_T, pairs, come, from, MPI_INT32_T, MPI_COMM_WORLD);
    struct graph graph = graph_of(pairs, all / 2, vertices / n + 1, n);
    free(pairs), free(send), free(counts);
    return graph;
}

/* The search of this PE: its vertices by v / n. */
static struct { struct graph graph; int32_t *parents, *levels, *frontier, *next; int64_t next_count; uint64_t *read, *sent; int ended; } own;

static void reach(int32_t vertex, int32_t parent, int level) {
    if (own.levels[vertex / n] >= 0) return;
    own.levels[vertex / n] = level, own.parents[vertex / n] = parent;
    own.next[own.next_count++] = vertex;
}

/* Takes the blocks that have arrived. */
static void take(int level) {
    for (int pe = 0; pe < n; pe++) {
        while (shmem_signal_fetch(&arrived[pe]) > own.read[pe]) {
            struct block *block = &inbox[pe * SLOTS + own.read[pe] % SLOTS];
            for (int64_t i = 0; i < block->count; i++) reach(block->pairs[i].vertex, block->pairs[i].parent, level);
            own.ended += block->is_last;
            own.read[pe]++;
            shmem_atomic_inc(&taken[me], pe);
        }
    }
}

static void give(struct block *block, int pe, int level) {
    while (own.sent[pe] - shmem_signal_fetch(&taken[pe]) == SLOTS) take(level);
    size_t bytes = offsetof(struct block, pairs) + block->count * sizeof block->pairs[0];
    shmem_putmem_signal(&inbox[me * SLOTS + own.sent[pe] % SLOTS], block, bytes, &arrived[me], 1, SHMEM_SIGNAL_ADD, pe);
    own.sent[pe]++;
    block->count = 0;
}

/* Runs the search. Returns the number of levels. */
static int search(int32_t root) {
    struct block *out = calloc(n, sizeof *out);
    if (!out) die("no memory for blocks");
    own.next_count = 0;
    if (root % n == me) reach(root, root, 0);
    for (int level = 1;; level++) {
        int64_t count = own.next_count;
        int32_t *frontier = own.next;
        own.next = own.frontier, own.frontier = frontier, own.next_count = 0, own.ended = 0;
        for (int64_t i = 0; i < count; i++) {
            int32_t u = frontier[i];
            for (int64_t at = own.graph.begin[u / n]; at < own.graph.begin[u / n + 1]; at++) {
                int32_t v = own.graph.neighbours[at];
                struct block *block = &out[v % n];
                if (v % n == me) { reach(v, u, level); continue; }
                block->pairs[block->count].vertex = v, block->pairs[block->count++].parent = u;
                if (block->count == PAIRS) give(block, v % n, level);
            }
        }
        for (int step = 0; step < n; step++) {
            struct block *block = &out[(me + step) % n];
            block->is_last = 1;
            give(block, (me + step) % n, level);
            block->is_last = 0;
        }
        while (own.ended < n) take(level);
        found[0] = own.next_count;
        shmem_sum_reduce(SHMEM_TEAM_WORLD, found + 1, found, 1);
        if (found[1] == 0) { free(out); return level; }
    }
}

/* PE 0 searches the whole graph by itself. Each level must be the same, and each parent must be one level
   before its child. */
static int64_t check(int32_t root) {
    int most = (int)(vertices / n + 1);
    int32_t *levels = NULL, *parents = NULL;
    if (me == 0 && (!(levels = malloc(4l * n * most)) || !(parents = malloc(4l * n * most)))) die("no memory to check");
    MPI_Gather(own.levels, most, MPI_INT32_T, levels, most, MPI_INT32_T, 0, MPI_COMM_WORLD);
    MPI_Gather(own.parents, most, MPI_INT32_T, parents, most, MPI_INT32_T, 0, MPI_COMM_WORLD);
    if (me != 0) return 0;
    int32_t *pairs = malloc(4 * edges * sizeof *pairs), *queue = malloc(vertices * sizeof *queue), *serial = malloc(vertices * sizeof *serial);
    if (!pairs || !queue || !serial) die("no memory to check");
    for (int64_t i = 0; i < edges; i++) edge(i, pairs + 4 * i), pairs[4 * i + 2] = pairs[4 * i + 1], pairs[4 * i + 3] = pairs[4 * i];
    struct graph graph = graph_of(pairs, 2 * edges, vertices, 1);
    memset(serial, -1, vertices * sizeof *serial);
    int64_t head = 0, tail = 0, wrong = 0, traversed = 0;
    serial[root] = 0, queue[tail++] = root;
    while (head < tail) {
        int32_t u = queue[head++];
        traversed += graph.begin[u + 1] - graph.begin[u];
        for (int64_t at = graph.begin[u]; at < graph.begin[u + 1]; at++)
            if (serial[graph.neighbours[at]] < 0) serial[graph.neighbours[at]] = serial[u] + 1, queue[tail++] = graph.neighbours[at];
    }
    for (int64_t v = 0; v < vertices; v++) {
        int64_t at = v % n * most + v / n;
        if (levels[at] != serial[v]) wrong++;
        else if (serial[v] > 0 && serial[parents[at]] != serial[v] - 1) wrong++;
    }
    if (wrong) fprintf(stderr, "bfs: %lld of %lld vertices are wrong\n", (long long)wrong, (long long)vertices), MPI_Abort(MPI_COMM_WORLD, 1);
    return traversed / 2;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    shmem_init();
    me = shmem_my_pe(), n = shmem_n_pes();
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-s") && i + 1 < argc) scale = atoi(argv[++i]);
        else if (!strcmp(argv[i], "-e") && i + 1 < argc) factor = atoi(argv[++i]);
        else {
            if (me == 0) puts("bfs [-s SCALE] [-e FACTOR]: 2^SCALE vertices (14), FACTOR edges for each (16)");
            shmem_finalize(), MPI_Finalize();
            return strcmp(argv[i], "--help") != 0;
        }
    }
    if (scale < 1 || scale > 26 || factor < 1 || factor > 64) die("SCALE is 1 to 26, FACTOR 1 to 64");
    vertices = 1l << scale, edges = vertices * factor;
    inbox = shmem_malloc((size_t)n * SLOTS * sizeof *inbox);
    arrived = shmem_calloc(n, sizeof *arrived), taken = shmem_calloc(n, sizeof *taken), found = shmem_malloc(2 * sizeof *found);
    if (!inbox || !arrived || !taken || !found) die("the symmetric heap is too small: raise SHMEM_SYMMETRIC_SIZE");
    own.graph = deal();
    size_t local = vertices / n + 1;
    own.parents = malloc(4 * local), own.levels = malloc(4 * local), own.frontier = malloc(4 * local), own.next = malloc(4 * local);
    own.read = calloc(n, sizeof *own.read), own.sent = calloc(n, sizeof *own.sent);
    if (!own.parents || !own.levels || !own.frontier || !own.next || !own.read || !own.sent) die("no memory for the search");
    memset(own.levels, -1, 4 * local), memset(own.parents, -1, 4 * local);
    int32_t ends[2];
    edge(0, ends);
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    int levels = search(ends[0]);
    double seconds = MPI_Wtime() - begun;
    int64_t traversed = check(ends[0]);
    if (me == 0) printf("bfs: %lld vertices, %lld edges, %d levels, %.3g edges/s; equal to the serial search\n", (long long)vertices, (long long)edges, levels, traversed / seconds);
    shmem_finalize();
    MPI_Finalize();
    return 0;
}
