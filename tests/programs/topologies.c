/* Virtual topologies: grids, graphs, distributed graphs; what queries return; parts, duplicates, and errors. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

static void grids(void)
{
    MPI_Comm cart, dup, part;
    int dims[3] = {0, 0, 0}, periods[3] = {1, 0, 1}, back[3], periodic[3], here[3], kind, n;
    MPI_Dims_create(size, 3, dims);
    for (int reorder = 0; reorder < 2; reorder++) {
        MPI_Cart_create(MPI_COMM_WORLD, 3, dims, periods, reorder, &cart);
        MPI_Comm_dup(cart, &dup);
        MPI_Comm_free(&cart);
        MPI_Topo_test(dup, &kind);
        EQUAL(kind, MPI_CART, "the topology of a duplicate");
        MPI_Cartdim_get(dup, &n);
        EQUAL(n, 3, "ndims");
        MPI_Cart_get(dup, 3, back, periodic, here);
        int me, at;
        MPI_Comm_rank(dup, &me);
        if (!reorder) EQUAL(me, rank, "the rank without reordering");
        MPI_Cart_rank(dup, here, &at);
        EQUAL(at, me, "the rank of my coordinates");
        for (int d = 0; d < 3; d++) {
            EQUAL(back[d], dims[d], "an extent");
            EQUAL(periodic[d], periods[d], "a period");
        }
        for (int r = 0; r < size; r++) {
            int c[3];
            MPI_Cart_coords(dup, r, 3, c);
            EQUAL((c[0] * dims[1] + c[1]) * dims[2] + c[2], r, "row-major order");
        }
        for (int d = 0; d < 3; d++)
            for (int by = -4; by <= 4; by++) {
                int from, to, want[2];
                MPI_Cart_shift(dup, d, by, &from, &to);
                for (int k = 0; k < 2; k++) {
                    int c[3] = {here[0], here[1], here[2]};
                    c[d] += k ? by : -by;
                    if (!periods[d] && (c[d] < 0 || c[d] >= dims[d]))
                        want[k] = MPI_PROC_NULL;
                    else
                        MPI_Cart_rank(dup, c, &want[k]);
                }
                EQUAL(from, want[0], "the source of a shift");
                EQUAL(to, want[1], "the destination of a shift");
            }
        for (int remain = 0; remain < 8; remain++) {
            int keep[3] = {remain & 1, remain & 2, remain & 4}, all = 1, sum, mine = me, expected = 0;
            MPI_Cart_sub(dup, keep, &part);
            MPI_Cartdim_get(part, &n);
            EQUAL(n, !!keep[0] + !!keep[1] + !!keep[2], "the dimensions of a part");
            for (int d = 0; d < 3; d++) all *= keep[d] ? dims[d] : 1;
            MPI_Comm_size(part, &sum);
            EQUAL(sum, all, "the size of a part");
            MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, part);
            for (int r = 0; r < size; r++) {
                int c[3], in = 1;
                MPI_Cart_coords(dup, r, 3, c);
                for (int d = 0; d < 3; d++) in &= keep[d] || c[d] == here[d];
                expected += in ? r : 0;
            }
            EQUAL(sum, expected, "the sum over a part");
            MPI_Comm_free(&part);
        }
        MPI_Comm_free(&dup);
    }
    /* A grid with fewer places than processes, and a grid with one place. */
    int one[1] = {size > 1 ? size - 1 : 1}, no[1] = {0}, me;
    MPI_Cart_create(MPI_COMM_WORLD, 1, one, no, 0, &cart);
    EQUAL(cart == MPI_COMM_NULL, rank >= one[0], "being left out");
    MPI_Cart_map(MPI_COMM_WORLD, 1, one, no, &me);
    EQUAL(me, rank < one[0] ? rank : MPI_UNDEFINED, "the mapped rank");
    if (cart != MPI_COMM_NULL) MPI_Comm_free(&cart);
    MPI_Cart_create(MPI_COMM_WORLD, 0, NULL, NULL, 1, &cart);
    EQUAL(cart == MPI_COMM_NULL, rank > 0, "being left out of a point");
    if (cart != MPI_COMM_NULL) {
        MPI_Cartdim_get(cart, &n);
        EQUAL(n, 0, "the dimensions of a point");
        MPI_Cart_rank(cart, NULL, &me);
        EQUAL(me, 0, "the rank in a point");
        MPI_Comm_free(&cart);
    }
}

/* A star with rank 0 in the middle, its edges twice. */
static void graphs(void)
{
    int *index = grab(size * sizeof(int)), *edges = grab(4 * size * sizeof(int)), *back = grab(4 * size * sizeof(int));
    int n = 0, nodes, all, kind;
    for (int r = 0; r < size; r++) {
        for (int k = 1; k < size; k++)
            if (r == 0 || k < 3) edges[n++] = r == 0 ? k : 0;
        index[r] = n;
    }
    MPI_Comm graph;
    MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 1, &graph);
    MPI_Topo_test(graph, &kind);
    EQUAL(kind, MPI_GRAPH, "the topology");
    MPI_Graphdims_get(graph, &nodes, &all);
    EQUAL(nodes, size, "nnodes");
    EQUAL(all, n, "nedges");
    int *index_back = grab(size * sizeof(int));
    MPI_Graph_get(graph, size, n, index_back, back);
    CHECK(!memcmp(index, index_back, size * sizeof(int)) && !memcmp(edges, back, n * sizeof(int)), "the graph changed");
    for (int r = 0; r < size; r++) {
        int many, first = r ? index[r - 1] : 0;
        MPI_Graph_neighbors_count(graph, r, &many);
        EQUAL(many, index[r] - first, "nneighbors");
        MPI_Graph_neighbors(graph, r, many, back);
        CHECK(!memcmp(back, edges + first, many * sizeof(int)), "the neighbours of %d", r);
    }
    int me;
    MPI_Graph_map(MPI_COMM_WORLD, 1, (int[]){1}, (int[]){0}, &me);
    EQUAL(me, rank ? MPI_UNDEFINED : 0, "the mapped rank");
    MPI_Comm_free(&graph);
    MPI_Graph_create(MPI_COMM_WORLD, 0, index, edges, 0, &graph);
    CHECK(graph == MPI_COMM_NULL, "a graph without nodes has a comm");
    free(index), free(edges), free(back), free(index_back);
}

static int compare(const void *a, const void *b) { return memcmp(a, b, 2 * sizeof(int)); }

/* Rank r specifies the edges that start at r + 1: to r + 1 + k for k of 0 to 2, with the weights 10 * start + k. */
static void dist_graphs(void)
{
    for (int weighted = 0; weighted < 2; weighted++)
        for (int reorder = 0; reorder < 2; reorder++) {
            int from = (rank + 1) % size, degree = 3, to[3], weights[3], kind, in, out, flag;
            for (int k = 0; k < 3; k++) to[k] = (from + k) % size, weights[k] = 10 * from + k;
            MPI_Comm graph;
            MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &from, &degree, to, weighted ? weights : MPI_UNWEIGHTED,
                                  MPI_INFO_NULL, reorder, &graph);
            MPI_Topo_test(graph, &kind);
            EQUAL(kind, MPI_DIST_GRAPH, "the topology");
            MPI_Dist_graph_neighbors_count(graph, &in, &out, &flag);
            EQUAL(in, 3, "indegree");
            EQUAL(out, 3, "outdegree");
            EQUAL(!!flag, weighted, "weighted");
            int sources[3], of_sources[3] = {-1, -1, -1}, targets[3], of_targets[3] = {-1, -1, -1}, me;
            MPI_Dist_graph_neighbors(graph, 3, sources, of_sources, 3, targets, of_targets);
            MPI_Comm_rank(graph, &me);
            int seen[3][2], want[3][2], seen_in[3][2], want_in[3][2];
            for (int k = 0; k < 3; k++) {
                int source = ((me - k) % size + size) % size;
                seen[k][0] = targets[k], seen[k][1] = of_targets[k];
                want[k][0] = (me + k) % size, want[k][1] = weighted ? 10 * me + k : -1;
                seen_in[k][0] = sources[k], seen_in[k][1] = of_sources[k];
                want_in[k][0] = source, want_in[k][1] = weighted ? 10 * source + k : -1;
            }
            qsort(seen, 3, sizeof seen[0], compare), qsort(want, 3, sizeof want[0], compare);
            qsort(seen_in, 3, sizeof seen[0], compare), qsort(want_in, 3, sizeof want[0], compare);
            CHECK(!memcmp(seen, want, sizeof seen), "the outgoing edges");
            CHECK(!memcmp(seen_in, want_in, sizeof seen_in), "the incoming edges");
            /* A list that is too long for the array is cut. */
            int first[1] = {-1}, none[1] = {-1};
            MPI_Dist_graph_neighbors(graph, 1, first, MPI_UNWEIGHTED, 0, none, MPI_UNWEIGHTED);
            EQUAL(first[0], sources[0], "the first source");
            EQUAL(none[0], -1, "no destination");
            MPI_Comm_free(&graph);
            /* The same graph, with the edges that each process has itself; their order is kept. */
            int ins[2] = {(rank + size - 1) % size, rank}, outs[2] = {rank, (rank + 1) % size};
            int wi[2] = {5, 6}, wo[2] = {7, 5};
            MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, ins, weighted ? wi : MPI_UNWEIGHTED, 2, outs,
                                           weighted ? wo : MPI_UNWEIGHTED, MPI_INFO_NULL, reorder, &graph);
            MPI_Dist_graph_neighbors(graph, 2, sources, of_sources, 2, targets, of_targets);
            MPI_Comm_rank(graph, &me);
            EQUAL(sources[0], (me + size - 1) % size, "a source");
            EQUAL(sources[1], me, "a source");
            EQUAL(targets[0], me, "a destination");
            EQUAL(targets[1], (me + 1) % size, "a destination");
            if (weighted) EQUAL(of_sources[0] * 100 + of_sources[1] * 10 + of_targets[0], 567, "the weights");
            MPI_Comm_free(&graph);
        }
    /* One process specifies all edges; the others specify none. */
    int n = rank == 0 ? 2 : 0, sources[2] = {0, size - 1}, degrees[2] = {1, 1}, to[2] = {size - 1, 0}, in, out, flag;
    MPI_Comm graph;
    MPI_Dist_graph_create(MPI_COMM_WORLD, n, sources, degrees, to, n ? (int[]){3, 4} : MPI_WEIGHTS_EMPTY, MPI_INFO_NULL,
                          0, &graph);
    MPI_Dist_graph_neighbors_count(graph, &in, &out, &flag);
    EQUAL(in, (rank == 0) + (rank == size - 1), "indegree");
    EQUAL(out, in, "outdegree");
    CHECK(flag, "not weighted");
    MPI_Comm_free(&graph);
}

static void errors(void)
{
    MPI_Comm cart = MPI_COMM_NULL, graph;
    int n, many[1] = {size + 1}, zero[1] = {0}, line[1] = {size}, coords[1] = {size};
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    EQUAL(error_class(MPI_Cartdim_get(MPI_COMM_WORLD, &n)), MPI_ERR_TOPOLOGY, "the class without a topology");
    EQUAL(error_class(MPI_Cart_create(MPI_COMM_WORLD, 1, many, zero, 0, &cart)), MPI_ERR_TOPOLOGY, "too many");
    CHECK(cart == MPI_COMM_NULL, "a comm came of a grid that is too large");
    EQUAL(error_class(MPI_Cart_create(MPI_COMM_WORLD, 1, zero, zero, 0, &cart)), MPI_ERR_DIMS, "no extent");
    EQUAL(error_class(MPI_Neighbor_allgather(&n, 1, MPI_INT, many, 1, MPI_INT, MPI_COMM_WORLD)), MPI_ERR_TOPOLOGY,
          "neighbours without a topology");
    MPI_Cart_create(MPI_COMM_WORLD, 1, line, zero, 0, &cart);
    EQUAL(error_class(MPI_Cart_rank(cart, coords, &n)), MPI_ERR_ARG, "outside");
    EQUAL(error_class(MPI_Cart_shift(cart, 1, 1, &n, &n)), MPI_ERR_DIMS, "no such direction");
    EQUAL(error_class(MPI_Cart_coords(cart, size, 1, coords)), MPI_ERR_RANK, "no such rank");
    EQUAL(error_class(MPI_Cart_coords(cart, 0, 0, coords)), MPI_ERR_ARG, "too short");
    EQUAL(error_class(MPI_Graphdims_get(cart, &n, &n)), MPI_ERR_TOPOLOGY, "a grid as graph");
    MPI_Comm_free(&cart);
    EQUAL(error_class(MPI_Graph_create(MPI_COMM_WORLD, 1, (int[]){1}, (int[]){7}, 0, &graph)), MPI_ERR_ARG, "an edge");
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    grids();
    graphs();
    dist_graphs();
    errors();
    return end();
}
