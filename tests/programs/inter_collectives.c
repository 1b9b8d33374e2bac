/* Every collective on intercommunicators against its definition (MPI 5.0, sections 6.2.2 and 6.2.3):
   blocking, nonblocking and persistent, every cut of the processes into two groups, every root on either
   side, commuting and ordered operators.
   ranks: 2 3 5 8 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

#include <stddef.h>

static MPI_Comm inter;
static int way;               /* blocking, nonblocking, persistent */
static int me, own, others;   /* my rank, my group's size, the other's */
static int side;              /* 0 or 1 */
static int base[2], members[2]; /* world ranks: where a side begins, how many it has */

static const int counts[] = {0, 1, 3, 64, 1001, 20011};

#define EACH(Name, name, ...) \
    do { \
        MPI_Request request_; \
        if (way == 0) { \
            MPI_##Name(__VA_ARGS__); \
        } else if (way == 1) { \
            MPI_I##name(__VA_ARGS__, &request_); \
            MPI_Wait(&request_, MPI_STATUS_IGNORE); \
        } else { \
            MPI_##Name##_init(__VA_ARGS__, MPI_INFO_NULL, &request_); \
            for (int start_ = 0; start_ < 2; start_++) { \
                MPI_Start(&request_); \
                MPI_Wait(&request_, MPI_STATUS_IGNORE); \
            } \
            MPI_Request_free(&request_); \
        } \
    } while (0)

static int world_of(int of_side, int of_rank) { return base[of_side] + of_rank; }
static int far(int of_rank) { return world_of(!side, of_rank); }
static int mine(void) { return world_of(side, me); }

/* The root that this process passes if the root is rank `root` of side `on`. */
static int root_for(int on, int root)
{
    if (on != side) return root;
    return root == me ? MPI_ROOT : MPI_PROC_NULL;
}

static int *ints(size_t many)
{
    int *data = grab(many * sizeof(int));
    memset(data, 255, many * sizeof(int));
    return data;
}

static void bcast(int on, int root, int count)
{
    int *data = ints(count), as = root_for(on, root);
    if (as == MPI_ROOT) fill(data, count, mine(), 1);
    if (as == MPI_PROC_NULL) /* Only root and comm are significant here. */
        EACH(Bcast, bcast, NULL, -1, MPI_DATATYPE_NULL, as, inter);
    else
        EACH(Bcast, bcast, data, count, MPI_INT, as, inter);
    if (as >= 0) FILLED(data, count, world_of(on, root), 1);
    free(data);
}

/* The length of a vector collective's block for the process with this world rank. */
static int long_as(int world, int count) { return count + world % 3 * 5; }

static void gathers(int on, int root, int count)
{
    int as = root_for(on, root), at = 0;
    int *out = ints(count), *in = ints((size_t)count * others);
    fill(out, count, mine(), 2);
    EACH(Gather, gather, as == MPI_ROOT ? NULL : out, count, MPI_INT, as == MPI_ROOT ? in : NULL, count, MPI_INT, as, inter);
    for (int i = 0; as == MPI_ROOT && i < others; i++) FILLED(in + (size_t)i * count, count, far(i), 2);
    free(in);
    free(out);
    int *lengths = ints(others), *places = ints(others), length = long_as(mine(), count);
    for (int i = others - 1; i >= 0; i--) lengths[i] = long_as(far(i), count), places[i] = at, at += lengths[i] + 1;
    out = ints(length), in = ints(at);
    fill(out, length, mine(), 3);
    EACH(Gatherv, gatherv, out, length, MPI_INT, in, lengths, places, MPI_INT, as, inter);
    for (int i = 0; as == MPI_ROOT && i < others; i++) {
        FILLED(in + places[i], lengths[i], far(i), 3);
        EQUAL(in[places[i] + lengths[i]], -1, "the element after a block");
    }
    free(in), free(out), free(lengths), free(places);
}

static void scatters(int on, int root, int count)
{
    int as = root_for(on, root), at = 0;
    int *out = ints((size_t)count * others), *in = ints(count);
    for (int i = 0; i < others; i++) fill(out + (size_t)i * count, count, far(i), 4);
    EACH(Scatter, scatter, as == MPI_ROOT ? out : NULL, count, MPI_INT, in, count, MPI_INT, as, inter);
    if (as >= 0) FILLED(in, count, mine(), 4);
    free(in), free(out);
    int *lengths = ints(others), *places = ints(others), length = long_as(mine(), count);
    for (int i = others - 1; i >= 0; i--) lengths[i] = long_as(far(i), count), places[i] = at, at += lengths[i] + 1;
    out = ints(at), in = ints(length);
    for (int i = 0; i < others; i++) fill(out + places[i], lengths[i], far(i), 5);
    EACH(Scatterv, scatterv, out, lengths, places, MPI_INT, in, length, MPI_INT, as, inter);
    if (as >= 0) FILLED(in, length, mine(), 5);
    free(in), free(out), free(lengths), free(places);
}

/* The sides send blocks of different lengths, `here` and `there`, which may be 0. */
static void allgathers(int here, int there)
{
    int *out = ints(here), *in = ints((size_t)there * others), at = 0;
    fill(out, here, mine(), 6);
    EACH(Allgather, allgather, out, here, MPI_INT, in, there, MPI_INT, inter);
    for (int i = 0; i < others; i++) FILLED(in + (size_t)i * there, there, far(i), 6);
    free(in), free(out);
    int *lengths = ints(others), *places = ints(others), length = long_as(mine(), here);
    for (int i = others - 1; i >= 0; i--) lengths[i] = long_as(far(i), there), places[i] = at, at += lengths[i] + 1;
    out = ints(length), in = ints(at);
    fill(out, length, mine(), 7);
    EACH(Allgatherv, allgatherv, out, length, MPI_INT, in, lengths, places, MPI_INT, inter);
    for (int i = 0; i < others; i++) FILLED(in + places[i], lengths[i], far(i), 7);
    free(in), free(out), free(lengths), free(places);
}

/* The element that `from` sends to `to`, as a round of `value`. */
static int pair(int from, int to) { return 100 + from * size + to; }
static int pair_long(int from, int to, int count) { return count + (from * 3 + to) % 4; }

static void alltoalls(int here, int there)
{
    int *out = ints((size_t)here * others), *in = ints((size_t)there * others);
    for (int i = 0; i < others; i++) fill(out + (size_t)i * here, here, mine(), pair(mine(), far(i)));
    EACH(Alltoall, alltoall, out, here, MPI_INT, in, there, MPI_INT, inter);
    for (int i = 0; i < others; i++) FILLED(in + (size_t)i * there, there, far(i), pair(far(i), mine()));
    free(in), free(out);
    int *sent = ints(others), *sent_at = ints(others), *got = ints(others), *got_at = ints(others), all_sent = 0, all_got = 0;
    for (int i = 0; i < others; i++) {
        sent[i] = pair_long(mine(), far(i), here), sent_at[i] = all_sent, all_sent += sent[i] + 2;
        got[i] = pair_long(far(i), mine(), there), got_at[i] = all_got, all_got += got[i] + 1;
    }
    out = ints(all_sent), in = ints(all_got);
    for (int i = 0; i < others; i++) fill(out + sent_at[i], sent[i], mine(), pair(mine(), far(i)));
    EACH(Alltoallv, alltoallv, out, sent, sent_at, MPI_INT, in, got, got_at, MPI_INT, inter);
    for (int i = 0; i < others; i++) FILLED(in + got_at[i], got[i], far(i), pair(far(i), mine()));
    memset(in, 255, all_got * sizeof(int));
    MPI_Datatype *types = grab(others * sizeof *types);
    for (int i = 0; i < others; i++) types[i] = MPI_INT, sent_at[i] *= sizeof(int), got_at[i] *= sizeof(int);
    EACH(Alltoallw, alltoallw, out, sent, sent_at, types, in, got, got_at, types, inter);
    for (int i = 0; i < others; i++) FILLED(in + got_at[i] / sizeof(int), got[i], far(i), pair(far(i), mine()));
    free(in), free(out), free(sent), free(sent_at), free(got), free(got_at), free(types);
}

/* Compositions of x -> a x + b, for which the order matters. `gap` is no part of the operation. */
struct line {
    uint32_t a, gap, b;
};
static MPI_Datatype line_type;
static MPI_Op then;

static struct line joined(struct line left, struct line right)
{
    return (struct line){left.a * right.a, 0, left.a * right.b + left.b};
}

static void then_function(void *in, void *inout, int *len, MPI_Datatype *type)
{
    (void)type;
    struct line *left = in, *right = inout;
    for (int i = 0; i < *len; i++) {
        struct line both = joined(left[i], right[i]);
        right[i].a = both.a, right[i].b = both.b;
    }
}

static struct line line_of(int world, int at) { return (struct line){2 * value(world, at, 8) + 1, 7, value(world, at, 9)}; }

static struct line *lines(int many)
{
    struct line *data = grab(many * sizeof *data);
    for (int i = 0; i < many; i++) data[i] = line_of(mine(), i);
    return data;
}

/* Checks the other side's elements from `first` on, combined, and that the gaps are unchanged. */
static void check_lines(const struct line *seen, int count, int first, const char *what)
{
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        struct line right = line_of(far(0), first + i);
        for (int k = 1; k < others; k++) right = joined(right, line_of(far(k), first + i));
        wrong += seen[i].a != right.a || seen[i].b != right.b || seen[i].gap != 99;
    }
    CHECK(wrong == 0, "%s: %d of %d elements are wrong", what, wrong, count);
}

static struct line *blank(int many)
{
    struct line *data = grab(many * sizeof *data);
    for (int i = 0; i < many; i++) data[i] = (struct line){0, 99, 0};
    return data;
}

static void reduce(int on, int root, int count)
{
    int as = root_for(on, root);
    struct line *out = lines(count), *in = blank(count);
    EACH(Reduce, reduce, as == MPI_ROOT ? NULL : out, as == MPI_ROOT ? in : NULL, count, line_type, then, as, inter);
    if (as == MPI_ROOT) check_lines(in, count, 0, "reduce");
    free(in), free(out);
    int *sums = ints(count), *data = ints(count);
    for (int i = 0; i < count; i++) data[i] = mine() + i;
    EACH(Reduce, reduce, data, sums, count, MPI_INT, MPI_SUM, as, inter);
    for (int i = 0; as == MPI_ROOT && i < count; i++) {
        int right = 0;
        for (int k = 0; k < others; k++) right += far(k) + i;
        if (sums[i] != right) EQUAL(sums[i], right, "a sum");
    }
    free(sums), free(data);
}

static void reduce_all(int count)
{
    struct line *out = lines(count), *in = blank(count);
    EACH(Allreduce, allreduce, out, in, count, line_type, then, inter);
    check_lines(in, count, 0, "allreduce");
    free(in), free(out);
    /* Both vectors have own * others * count elements. */
    int all = own * others * count, first = me * others * count;
    out = lines(all), in = blank(others * count);
    EACH(Reduce_scatter_block, reduce_scatter_block, out, in, others * count, line_type, then, inter);
    check_lines(in, others * count, first, "reduce_scatter_block");
    free(in), free(out);
    int *lengths = ints(own), left = all;
    for (int i = 0; i < own; i++) lengths[i] = i + 1 == own ? left : i % 2 ? 0 : left / 2, left -= lengths[i];
    first = 0;
    for (int i = 0; i < me; i++) first += lengths[i];
    out = lines(all), in = blank(lengths[me]);
    EACH(Reduce_scatter, reduce_scatter, out, in, lengths, line_type, then, inter);
    check_lines(in, lengths[me], first, "reduce_scatter");
    free(in), free(out), free(lengths);
}

/* Calls that are wrong on an intercommunicator fail. */
static void refused(void)
{
    int a = 1, b[64];
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    EQUAL(error_class(MPI_Scan(&a, b, 1, MPI_INT, MPI_SUM, inter)), MPI_ERR_COMM, "the class of a scan");
    EQUAL(error_class(MPI_Exscan(&a, b, 1, MPI_INT, MPI_SUM, inter)), MPI_ERR_COMM, "the class of an exscan");
    EQUAL(error_class(MPI_Allgather(MPI_IN_PLACE, 1, MPI_INT, b, 1, MPI_INT, inter)), MPI_ERR_BUFFER, "the class in place");
    EQUAL(error_class(MPI_Bcast(b, 1, MPI_INT, others, inter)), MPI_ERR_ROOT, "the class of a root beyond the other group");
    EQUAL(error_class(MPI_Bcast(b, 1, MPI_INT, MPI_ROOT, MPI_COMM_WORLD)), MPI_ERR_ROOT, "the class of MPI_ROOT in one group");
    if (own == 1) EQUAL(error_class(MPI_Bcast(b, 1, MPI_INT, MPI_PROC_NULL, inter)), MPI_ERR_ROOT, "the class of no root");
}

static void all_of(int cut, int swap)
{
    /* Side 0 has the lower ranks or, swapped, the higher ones. The comm has its own order of the groups. */
    int low = rank < cut;
    base[0] = swap ? cut : 0, members[0] = swap ? size - cut : cut;
    base[1] = swap ? 0 : cut, members[1] = size - members[0];
    side = low == swap;
    MPI_Comm local;
    MPI_Comm_split(MPI_COMM_WORLD, side, rank, &local);
    MPI_Intercomm_create(local, members[side] - 1, MPI_COMM_WORLD, world_of(!side, members[!side] - 1), cut, &inter);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(inter, &me), MPI_Comm_size(inter, &own), MPI_Comm_remote_size(inter, &others);
    EQUAL(others, members[!side], "the size of the remote group");
    refused();
    for (way = 0; way < 3; way++) {
        EACH(Barrier, barrier, inter);
        for (unsigned c = 0; c < sizeof counts / sizeof *counts; c++) {
            int count = counts[c], less = c ? counts[c - 1] : 0;
            for (int on = 0; on < 2; on++)
                for (int root = 0; root < members[on]; root++) {
                    if (count > 64 && root != members[on] / 2) continue;
                    bcast(on, root, count), gathers(on, root, count), scatters(on, root, count), reduce(on, root, count);
                }
            allgathers(side ? count : less, side ? less : count);
            alltoalls(side ? less : count, side ? count : less);
            allgathers(side ? count : 0, side ? 0 : count);
            if (count <= 1001) reduce_all(count);
        }
    }
    MPI_Comm_free(&inter);
    MPI_Comm_free(&local);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int lengths[] = {1, 1}, kinds = 2;
    MPI_Aint places[] = {offsetof(struct line, a), offsetof(struct line, b)};
    MPI_Datatype types[] = {MPI_UINT32_T, MPI_UINT32_T}, packed;
    MPI_Type_create_struct(kinds, lengths, places, types, &packed);
    MPI_Type_create_resized(packed, 0, sizeof(struct line), &line_type);
    MPI_Type_commit(&line_type);
    MPI_Op_create(then_function, 0, &then);
    for (int cut = 1; cut < size; cut++)
        if (size < 8 || cut == 1 || cut == 3) all_of(cut, cut % 2);
    MPI_Op_free(&then);
    MPI_Type_free(&packed);
    MPI_Type_free(&line_type);
    return end();
}
