/* Datatypes nested at random over one basic type. Elements never overlap, and displacements are never negative. Inner types are freed at
   once. A shape is used within one step; what needs its length later keeps the count of basic elements. */
/* SPDX-License-Identifier: BSD-3-Clause */
struct basic { MPI_Datatype type; int bytes; };
#define BASICS \
    { { MPI_INT, 4 }, { MPI_BYTE, 1 }, { MPI_DOUBLE, 8 }, { MPI_SHORT, 2 }, { MPI_LONG, 8 }, { MPI_FLOAT, 4 }, { MPI_CHAR, 1 } }
static struct basic basic_of(int number)
{
    const struct basic all[] = BASICS;
    return all[number % (int) (sizeof all / sizeof *all)];
}

struct shape {
    MPI_Datatype type;
    int slot;   /* in type[], or -1 for a basic type */
    int basics; /* elements of the basic type in one */
    long extent, low, bytes; /* all that one touches lies within `bytes`; `low`: the lower bound */
};

static int free_slot(void)
{
    static int last;
    for (int i = 0; i < 64; i++) {
        int at = (last + i) % 64;
        if (!type[at] || type[at] == MPI_DATATYPE_NULL) return last = at;
    }
    abort();
}

static struct shape plain(struct basic basic) { return (struct shape) { basic.type, -1, 1, basic.bytes, 0, basic.bytes }; }

static void unmake(struct shape shape)
{
    if (shape.slot >= 0) CALL(MPI_Type_free, &type[shape.slot]);
}

/* A shape around the elements of a slot's type. `beyond` is how far data may lie above the upper bound. */
static struct shape around(int slot, int basics, long beyond)
{
    SILENTLY(MPI_Type_get_extent, type[slot], &wide[0], &wide[1]);
    return (struct shape) { type[slot], slot, basics, wide[1], wide[0], wide[0] + wide[1] + beyond };
}

/* Numbers in memory of the operation, so that a printed program has them, too. */
static int *ints(struct op *op, int count) { return grab(op, (size_t) (count ? count : 1) * sizeof(int)); }
static long *longs(struct op *op, int count) { return grab(op, (size_t) (count ? count : 1) * sizeof(long)); }

static struct shape nested(struct op *op, struct basic basic, int depth, int salt)
{
    if (depth == 0) return plain(basic);
    salt = salt * 4 + 1;
    struct shape inner = nested(op, basic, depth - 1, salt);
    int n = 1 + ANY_OF(salt, 4), block = 1 + ANY_OF(salt, 3), slot = free_slot(), basics, *i, *k, many;
    long *w, at, beyond = inner.bytes - inner.low - inner.extent;
    if (inner.basics * n * block > 200 || inner.extent * n * block > 4000) return inner;
    switch (ANY_OF(salt, 13)) {
    case 0:
        CALL(MPI_Type_contiguous, n, inner.type, &type[slot]);
        basics = n * inner.basics;
        break;
    case 1:
        CALL(MPI_Type_vector, n, block, block + ANY_OF(salt, 3), inner.type, &type[slot]);
        basics = n * block * inner.basics;
        break;
    case 2:
        CALL(MPI_Type_create_hvector, n, block, (MPI_Aint) (block * inner.extent + 8 * ANY_OF(salt, 3)), inner.type, &type[slot]);
        basics = n * block * inner.basics;
        break;
    case 3:
    case 4:
    case 5: {
        /* Blocks in any order, with gaps between them. */
        i = ints(op, n), k = ints(op, n), w = longs(op, n), at = ANY_OF(salt, 2), many = 0;
        int shift = ANY_OF(salt, n), bytes = ANY_OF(salt, 2), equal = ANY_OF(salt, 3) == 0;
        for (int b = 0; b < n; b++) {
            int where = (b + shift) % n;
            i[where] = equal ? block : ANY_OF(salt * 16 + b, 4), k[where] = (int) at, w[where] = at * inner.extent + (inner.slot < 0 ? 0 : 8 * b);
            at += i[where] + ANY_OF(salt * 16 + b, 3), many += i[where];
        }
        if (equal && bytes) CALL(MPI_Type_create_hindexed_block, n, block, w, inner.type, &type[slot]);
        else if (equal) CALL(MPI_Type_create_indexed_block, n, block, k, inner.type, &type[slot]);
        else if (bytes) CALL(MPI_Type_create_hindexed, n, i, w, inner.type, &type[slot]);
        else CALL(MPI_Type_indexed, n, i, k, inner.type, &type[slot]);
        basics = many * inner.basics;
        break;
    }
    case 6:
    case 7: {
        MPI_Datatype *parts = grab(op, 3 * sizeof *parts);
        struct shape second = nested(op, basic, ANY_OF(salt, depth), salt + 1);
        i = ints(op, 3), w = longs(op, 3);
        parts[0] = inner.type, parts[1] = basic.type, parts[2] = second.type;
        i[0] = block, i[1] = ANY_OF(salt, 3), i[2] = 1 + ANY_OF(salt, 2);
        w[0] = 0, w[1] = ((block - 1) * inner.extent + inner.bytes + 15) / 8 * 8, w[2] = w[1] + (i[1] * basic.bytes + 15) / 8 * 8;
        slot = free_slot();
        CALL(MPI_Type_create_struct, 3, i, w, parts, &type[slot]);
        basics = block * inner.basics + i[1] + i[2] * second.basics, beyond = 0;
        unmake(second);
        /* The upper bound of a resized type, subarray or darray holds for a struct around it, too (MPI 5.0, 5.1.7), as in Open MPI, but in MPICH
           and Intel MPI the largest bound of all parts does. So each struct gets its own. */
        int bare = slot;
        slot = free_slot();
        CALL(MPI_Type_create_resized, type[bare], 0, (MPI_Aint) (w[2] + (i[2] - 1) * second.extent + second.bytes + 8), &type[slot]);
        CALL(MPI_Type_free, &type[bare]);
        break;
    }
    case 8:
    case 9: {
        i = ints(op, 2), k = ints(op, 2);
        int *from = ints(op, 2);
        for (int d = 0; d < 2; d++) k[d] = 1 + ANY_OF(salt * 2 + d, 3), from[d] = ANY_OF(salt * 2 + d, 3), i[d] = from[d] + k[d] + ANY_OF(salt * 2 + d, 2);
        CALL(MPI_Type_create_subarray, 2, i, k, from, ANY_OF(salt, 2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, inner.type, &type[slot]);
        basics = k[0] * k[1] * inner.basics, beyond += inner.low > 0 ? inner.low : 0;
        break;
    }
    case 10:
        CALL(MPI_Type_create_resized, inner.type, (MPI_Aint) (-8 * ANY_OF(salt, 2)), (MPI_Aint) (inner.bytes + inner.extent + 8 * ANY_OF(salt, 3) + 8), &type[slot]);
        basics = inner.basics, beyond = 0;
        break;
    case 11: {
        i = ints(op, 2), k = ints(op, 2);
        int *parameters = ints(op, 2), *processes = ints(op, 2), where = ANY_OF(salt, 4), cyclic = ANY_OF(salt, 2);
        for (int d = 0; d < 2; d++) {
            i[d] = 2 + ANY_OF(salt * 2 + d, 4), k[d] = cyclic ? MPI_DISTRIBUTE_CYCLIC : MPI_DISTRIBUTE_BLOCK;
            parameters[d] = MPI_DISTRIBUTE_DFLT_DARG, processes[d] = 2;
        }
        CALL(MPI_Type_create_darray, 4, where, 2, i, k, parameters, processes, MPI_ORDER_C, inner.type, &type[slot]);
        CALL(MPI_Type_size, type[slot], &out[0]);
        basics = out[0] / basic.bytes, beyond += inner.low > 0 ? inner.low : 0;
        break;
    }
    default:
        CALL(MPI_Type_dup, inner.type, &type[slot]);
        basics = inner.basics;
    }
    unmake(inner);
    return around(slot, basics, beyond);
}

static struct shape shape(struct op *op, struct basic basic, int salt)
{
    struct shape made = nested(op, basic, ANY_OF(salt, 3) ? ANY_OF(salt, 4) : 0, salt);
    if (!made.basics && EMPTY_TYPE) unmake(made), made = plain(basic);
    if (made.slot >= 0) CALL(MPI_Type_commit, &type[made.slot]);
    return made;
}

/* The bytes from the beginning of a buffer to the last byte that `count` elements touch. */
static long span(struct shape shape, long count) { return count ? shape.bytes + (count - 1) * shape.extent : 0; }

static void *buffer(struct op *op, struct shape shape, long count, long with)
{
    long bytes = span(shape, count);
    void *data = grab(op, (size_t) bytes);
    DO(fill, data, bytes, with);
    return data;
}

/* A count: mostly small, sometimes large enough to leave every fast path. */
static int count_of(struct op *op, int bytes_each, int salt)
{
    static const int sizes[] = { 0, 40, 100, 1000, 5000, 9000, 20000, 70000, 150000, 300000 };
    if (ANY_OF(salt, 3)) return ANY_OF(salt, 5);
    int bytes = sizes[ANY_OF(salt, ANY_OF(salt, 3) ? 6 : 10)];
    if (bytes == 300000 && ANY_OF(salt, 3) == 0) bytes = 1500000;
    return bytes / (bytes_each ? bytes_each : 1) + ANY_OF(salt, 2);
}
