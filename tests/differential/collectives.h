/* Collectives of comms, of intercommunicators and among neighbors: blocking, nonblocking, and persistent ones that are started twice. */
/* SPDX-License-Identifier: BSD-3-Clause */
enum {
    BARRIER, BCAST, GATHER, GATHERV, SCATTER, SCATTERV, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, ALLTOALLW,
    REDUCE, ALLREDUCE, REDUCE_SCATTER_BLOCK, REDUCE_SCATTER, SCAN, EXSCAN, COLLECTIVES
};

/* Numbers that can be reduced: `kind` selects the type, 7 is pairs of ints, 8 is maps. */
struct numbers { MPI_Datatype type; int bytes; MPI_Op op; };
static struct numbers numbers(struct op *op, int kind)
{
    const MPI_Op whole[] = { MPI_SUM, MPI_MAX, MPI_MIN, MPI_PROD, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR };
    MPI_Op integer = whole[ANY(10)], real = whole[ANY(4)];
    switch (kind) {
    case 0: return (struct numbers) { MPI_SIGNED_CHAR, 1, integer };
    case 1: return (struct numbers) { MPI_SHORT, 2, integer };
    case 2: return (struct numbers) { MPI_INT, 4, integer };
    case 3: return (struct numbers) { MPI_LONG, 8, integer };
    case 4: return (struct numbers) { MPI_UNSIGNED, 4, integer };
    case 5: return (struct numbers) { MPI_FLOAT, 4, real };
    case 6: return (struct numbers) { MPI_DOUBLE, 8, real };
    case 7: return (struct numbers) { MPI_2INT, 8, ANY(2) ? MPI_MINLOC : MPI_MAXLOC };
    default: return (struct numbers) { MPI_DATATYPE_NULL, 12, MPI_OP_NULL };
    }
}
static void fill_numbers(void *data, int kind, long bytes, long with)
{
    switch (kind) {
    case 0: DO(fill_chars, data, bytes, with); break;
    case 1: DO(fill_shorts, data, bytes / 2, with); break;
    case 3: DO(fill_longs, data, bytes / 8, with); break;
    case 4:
    case 8: DO(fill_unsigneds, data, bytes / 4, with); break;
    case 5: DO(fill_floats, data, bytes / 4, with); break;
    case 6: DO(fill_doubles, data, bytes / 8, with); break;
    default: DO(fill_ints, data, bytes / 4, with);
    }
}

/* `a`: which; `b`: 0 blocking, 1 nonblocking, 2 persistent; `c`: the root's place; `d`: in place; `e`: the kind of numbers. */
static int plan_collective(struct op *op)
{
    op->on = any_comm(1, -1);
    if (op->on < 0) return 0;
    op->a = draw(COLLECTIVES), op->b = draw(3 - intel), op->c = draw(places(of(op->on))), op->d = draw(3) == 0, op->e = draw(9);
    if (of(op->on)->inter && (op->a >= SCAN || op->d)) return 0;
    if (op->b == 2 && places(of(op->on)) == 1 && PERSISTENT_COLLECTIVE_ALONE) return 0;
    op->phases = op->b == 2 ? 5 : 1 + op->b, op->collective = 1, op->persistent = op->b == 2;
    of(op->on)->pending++, of(op->on)->busy += op->b == 2;
    return 1;
}
static void collective_planned(struct op *op, int phase)
{
    of(op->on)->busy -= op->b == 2 && phase == 3;
    of(op->on)->pending -= phase + 1 == op->phases;
}

/* The number of blocks from one place to another, in the two shapes. */
static int blocks(struct op *op, int from, int to) { return ANY_OF(from * RANKS_MAX + to, 4); }

struct side { struct shape shape; int count; void *data; int *counts, *displacements; MPI_Datatype *types; };

/* Lays out a buffer for `n` partners: memory, and counts and displacements for the forms that have them.
   `outwards` says that this process sends. */
static void lay_out(struct op *op, struct side *side, int n, const int *partner, int at, int outwards, int in_bytes, int equal)
{
    side->counts = ints(op, n), side->displacements = ints(op, n), side->types = grab(op, (size_t) (n ? n : 1) * sizeof(MPI_Datatype));
    long end = 0;
    for (int i = 0; i < n; i++) {
        int many = equal ? 1 : outwards ? blocks(op, at, partner[i]) : blocks(op, partner[i], at);
        side->counts[i] = many * side->count;
        side->displacements[i] = (int) (end * (in_bytes ? side->shape.extent : 1));
        side->types[i] = side->shape.type;
        end += side->counts[i] + (equal ? 0 : ANY_OF(i, 2));
    }
    side->data = buffer(op, side->shape, end, key(op, at, outwards));
    op->memory[!outwards] = side->data, op->data[!outwards] = span(side->shape, end);
}

/* Frees a type now that the call has returned or, for the sake of other MPIs, when the operation is complete
   (`freed_now`). */
static void freed_later(struct op *op, struct shape shape)
{
    op->data[7] = 0;
    if (op->b && TYPE_FREED_DURING_COLLECTIVE) op->data[7] = shape.slot + 1;
    else unmake(shape);
}
static void freed_now(struct op *op, int phase)
{
    if (phase + 1 == op->phases && op->data[7]) CALL(MPI_Type_free, &type[op->data[7] - 1]);
}

#define FORM(form, r, name, nonblocking, ...) \
    do { \
        if ((form) == 0) CALL(MPI_##name, __VA_ARGS__); \
        else if ((form) == 1) CALL(MPI_I##nonblocking, __VA_ARGS__, r); \
        else CALL(MPI_##name##_init, __VA_ARGS__, MPI_INFO_NULL, r); \
    } while (0)

static void start_moves(struct op *op)
{
    struct comm *c = of(op->on);
    int at = mine(op->on), first = at < c->n, n = c->inter ? (first ? c->m : c->n) : c->n, w = op->a == ALLTOALLW, is_root = at == op->c;
    int partner[RANKS_MAX], same_group = !c->inter || (op->c < c->n) == first;
    int root = !c->inter ? op->c : is_root ? MPI_ROOT : same_group ? MPI_PROC_NULL : rank_at(c, op->c);
    for (int i = 0; i < n; i++) partner[i] = c->inter && first ? c->n + i : i;
    struct basic basic = basic_of(ANY(7));
    struct side out = { .shape = shape(op, basic, 1) }, in = out;
    MPI_Request *r = &request[op->id][0];
    MPI_Comm on = comm[op->on];
    out.count = in.count = count_of(op, out.shape.basics * basic.bytes * (op->a >= ALLGATHER ? 4 : 1), 1);
    int other = ANY(3);
    if (other == 1) in.shape = plain(basic), in.count *= out.shape.basics;
    if (other == 2) out.shape = plain(basic), out.count *= in.shape.basics;
    int form = op->b, place = op->d, one = at;
    switch (op->a) {
    case BARRIER: FORM(form, r, Barrier, barrier, on); break;
    case BCAST:
        lay_out(op, &in, 1, &one, at, 0, 0, 1);
        if (is_root || (c->inter && same_group)) FORM(form, r, Bcast, bcast, in.data, in.count, in.shape.type, root, on);
        else FORM(form, r, Bcast, bcast, in.data, in.count, in.shape.type, root, on);
        break;
    case GATHER:
    case GATHERV: {
        int equal = op->a == GATHER, sends = !c->inter || !same_group, many = equal ? 1 : blocks(op, at, op->c);
        out.count *= many;
        if (sends) lay_out(op, &out, 1, &one, at, 1, 0, 1);
        if (is_root) lay_out(op, &in, n, partner, at, 0, 0, equal);
        void *from = is_root && place ? MPI_IN_PLACE : sends ? out.data : NULL;
        if (equal) FORM(form, r, Gather, gather, from, sends ? out.count : 0, out.shape.type, is_root ? in.data : NULL, in.count, in.shape.type, root, on);
        else FORM(form, r, Gatherv, gatherv, from, sends ? out.count : 0, out.shape.type, is_root ? in.data : NULL, in.counts, in.displacements, in.shape.type, root, on);
        break;
    }
    case SCATTER:
    case SCATTERV: {
        int equal = op->a == SCATTER, receives = !c->inter || !same_group, many = equal ? 1 : blocks(op, op->c, at);
        in.count *= many;
        if (is_root) lay_out(op, &out, n, partner, at, 1, 0, equal);
        if (receives) lay_out(op, &in, 1, &one, at, 0, 0, 1);
        void *to = is_root && place ? MPI_IN_PLACE : receives ? in.data : NULL;
        if (equal) FORM(form, r, Scatter, scatter, is_root ? out.data : NULL, out.count, out.shape.type, to, receives ? in.count : 0, in.shape.type, root, on);
        else FORM(form, r, Scatterv, scatterv, is_root ? out.data : NULL, out.counts, out.displacements, out.shape.type, to, receives ? in.count : 0, in.shape.type, root, on);
        break;
    }
    case ALLGATHER:
        if (place) out = in;
        else lay_out(op, &out, 1, &one, at, 1, 0, 1);
        lay_out(op, &in, n, partner, at, 0, 0, 1);
        FORM(form, r, Allgather, allgather, place ? MPI_IN_PLACE : out.data, out.count, out.shape.type, in.data, in.count, in.shape.type, on);
        break;
    case ALLGATHERV: {
        /* A block has the same length for every receiver, as if the sender sent to itself. */
        long end = 0;
        out.count *= blocks(op, at, at);
        lay_out(op, &out, 1, &one, at, 1, 0, 1);
        in.counts = ints(op, n), in.displacements = ints(op, n);
        for (int i = 0; i < n; i++) {
            in.counts[i] = in.count * blocks(op, partner[i], partner[i]), in.displacements[i] = (int) end;
            end += in.counts[i] + ANY_OF(i, 2);
        }
        in.data = op->memory[1] = buffer(op, in.shape, end, key(op, at, 0)), op->data[1] = span(in.shape, end);
        FORM(form, r, Allgatherv, allgatherv, place ? MPI_IN_PLACE : out.data, out.count, out.shape.type, in.data, in.counts, in.displacements, in.shape.type, on);
        break;
    }
    default: {
        int equal = op->a == ALLTOALL;
        if (!place) lay_out(op, &out, n, partner, at, 1, w, equal);
        /* In place both directions have the same length. */
        lay_out(op, &in, n, partner, at, 0, w, equal || place);
        void *from = place ? MPI_IN_PLACE : out.data;
        if (equal) FORM(form, r, Alltoall, alltoall, from, out.count, out.shape.type, in.data, in.count, in.shape.type, on);
        else if (w) FORM(form, r, Alltoallw, alltoallw, from, out.counts, out.displacements, out.types, in.data, in.counts, in.displacements, in.types, on);
        else FORM(form, r, Alltoallv, alltoallv, from, out.counts, out.displacements, out.shape.type, in.data, in.counts, in.displacements, in.shape.type, on);
    }
    }
    freed_later(op, other == 1 ? out.shape : in.shape);
}

static void start_reduction(struct op *op)
{
    struct comm *c = of(op->on);
    int at = mine(op->on), first = at < c->n, near = first ? c->n : c->m, far = c->inter ? places(c) - near : near, is_root = at == op->c;
    int same_group = !c->inter || (op->c < c->n) == first, form = op->b, place = op->d && (op->a != REDUCE || is_root);
    int root = !c->inter ? op->c : is_root ? MPI_ROOT : same_group ? MPI_PROC_NULL : rank_at(c, op->c);
    struct numbers number = numbers(op, op->e);
    int count = count_of(op, number.bytes, 1), sent = count, got = count, *counts = NULL, slot = -1;
    if (op->a == REDUCE_SCATTER_BLOCK || op->a == REDUCE_SCATTER) {
        /* Both groups of an intercommunicator reduce as many elements. */
        count = count / near + 1, got = c->inter ? count / far * far / far * far : count, sent = got * near;
        if (c->inter) got = (1 + ANY(40)) * far, sent = got * near;
    }
    if (op->a == REDUCE_SCATTER) {
        counts = ints(op, near), sent = 0;
        for (int i = 0; i < near; i++) sent += counts[i] = c->inter ? got : got * ANY_OF(i, 3) + ANY_OF(i, 3);
        got = counts[rank_at(c, at)];
    }
    if (op->e == 8) {
        slot = free_slot();
        CALL(MPI_Type_contiguous, 3, MPI_UNSIGNED, &type[slot]);
        CALL(MPI_Type_commit, &type[slot]);
        CALL(MPI_Op_create, compose, 0, &operator[0]);
        number.type = type[slot], number.op = operator[0];
    }
    long in_bytes = (long) (place ? (sent > got ? sent : got) : got) * number.bytes;
    void *from = grab(op, (size_t) (sent * number.bytes)), *to = grab(op, (size_t) in_bytes);
    fill_numbers(from, op->e, (long) sent * number.bytes, key(op, at, 1)), fill_numbers(to, op->e, in_bytes, key(op, at, 0));
    op->memory[0] = from, op->data[0] = (long) sent * number.bytes, op->memory[1] = to, op->data[1] = in_bytes;
    MPI_Request *r = &request[op->id][0];
    MPI_Comm on = comm[op->on];
    if (place) from = MPI_IN_PLACE;
    switch (op->a) {
    case REDUCE:
        if (!is_root && ANY(2)) to = NULL;
        FORM(form, r, Reduce, reduce, from, to, count, number.type, number.op, root, on);
        break;
    case ALLREDUCE: FORM(form, r, Allreduce, allreduce, from, to, count, number.type, number.op, on); break;
    case REDUCE_SCATTER_BLOCK: FORM(form, r, Reduce_scatter_block, reduce_scatter_block, from, to, got, number.type, number.op, on); break;
    case REDUCE_SCATTER: FORM(form, r, Reduce_scatter, reduce_scatter, from, to, counts, number.type, number.op, on); break;
    case SCAN: FORM(form, r, Scan, scan, from, to, count, number.type, number.op, on); break;
    default: FORM(form, r, Exscan, exscan, from, to, count, number.type, number.op, on);
    }
    /* In place only the result's part is determined; the first member's part of an exclusive scan is not. */
    op->data[2] = op->a == EXSCAN && at == 0 ? 0 : (long) got * number.bytes;
    freed_later(op, (struct shape) { .slot = slot });
}

static void see_collective(struct op *op)
{
    if (op->a < REDUCE) DO(see, "received", op->memory[1] ? op->memory[1] : (void *) out, op->data[1]);
    else DO(see, "reduced", op->memory[1], op->data[2]);
}

static void run_collective(struct op *op, int phase)
{
    int at = mine(op->on), reduces = op->a >= REDUCE;
    if (at < 0) return;
    if (phase == 0) {
        if (reduces) start_reduction(op);
        else start_moves(op);
        op->requests = op->b == 1;
    }
    if (op->b == 2 && (phase == 1 || phase == 3)) {
        for (int i = 0; i < 2 && phase == 3; i++)
            if (op->memory[i] && reduces) fill_numbers(op->memory[i], op->e, op->data[i], key(op, at, 2 + i));
            else if (op->memory[i]) DO(fill, op->memory[i], op->data[i], key(op, at, 2 + i));
        CALL(MPI_Start, &request[op->id][0]);
    }
    if ((op->b == 1 && phase == 1) || (op->b == 2 && (phase == 2 || phase == 4))) wait_for(op, 1);
    if (op->b == 0 || (op->b == 1 && phase == 1) || (op->b == 2 && (phase == 2 || phase == 4))) see_collective(op);
    if (op->b == 2 && phase == 4) CALL(MPI_Request_free, &request[op->id][0]);
    freed_now(op, phase);
    /* An operator is kept while the collective is under way, because the standard does not say that it may be
       freed before. */
    if (reduces && op->e == 8 && phase == 0) {
        if (op->b == 0) CALL(MPI_Op_free, &operator[0]);
        else op->memory[7] = (void *) operator[0];
    }
    if (reduces && op->e == 8 && op->b && phase + 1 == op->phases) {
        operator[1] = (MPI_Op) op->memory[7];
        CALL(MPI_Op_free, &operator[1]);
    }
}

/* Collectives among neighbors. `a`: 0 allgather, 1 allgatherv, 2 alltoall, 3 alltoallv, 4 alltoallw. */
static int same_neighbor_twice(const struct comm *c)
{
    for (int d = 0; d < c->dimensions; d++)
        if (c->periods[d] && c->dims[d] < 3) return 1;
    return 0;
}
static int plan_neighbor(struct op *op)
{
    for (int tries = 0; tries < 20; tries++) {
        op->on = any_comm(1, 0), op->a = draw(5), op->b = draw(3 - intel);
        if (op->on < 0 || !of(op->on)->topology || (op->b == 2 && of(op->on)->n == 1 && PERSISTENT_COLLECTIVE_ALONE) || (SAME_NEIGHBOR_TWICE && op->a > 1 && same_neighbor_twice(of(op->on)))) continue;
        op->phases = op->b == 2 ? 5 : 1 + op->b, op->collective = 1, op->persistent = op->b == 2;
        of(op->on)->pending++, of(op->on)->busy += op->b == 2;
        return 1;
    }
    return 0;
}
static void neighbors(struct op *op, int *in, int *from, int *outs, int *to)
{
    struct comm *c = of(op->on);
    MPI_Comm on = comm[op->on];
    *in = *outs = 0;
    if (c->topology == MPI_CART) {
        for (int d = 0; d < c->dimensions; d++) {
            CALL(MPI_Cart_shift, on, d, 1, &out[0], &out[1]);
            for (int i = 0; i < 2; i++) from[(*in)++] = to[(*outs)++] = out[i];
        }
    } else if (c->topology == MPI_GRAPH) {
        CALL(MPI_Graph_neighbors_count, on, mine(op->on), &out[0]);
        *in = *outs = out[0];
        CALL(MPI_Graph_neighbors, on, mine(op->on), *in, &out[0]);
        memcpy(from, out, (size_t) *in * sizeof(int)), memcpy(to, out, (size_t) *in * sizeof(int));
    } else {
        CALL(MPI_Dist_graph_neighbors_count, on, &out[0], &out[1], &out[2]);
        *in = out[0], *outs = out[1];
        CALL(MPI_Dist_graph_neighbors, on, *in, &out[0], &out[16], *outs, &out[32], &out[48]);
        memcpy(from, out, (size_t) *in * sizeof(int)), memcpy(to, out + 32, (size_t) *outs * sizeof(int));
    }
    DO(see_number, "sources", *in), DO(see_number, "destinations", *outs);
}
static void start_neighbor(struct op *op)
{
    int at = mine(op->on), ins, outs, from[16], to[16], form = op->b, one = at, equal = op->a == 0 || op->a == 2, all = op->a < 2, w = op->a == 4;
    neighbors(op, &ins, from, &outs, to);
    /* A block from MPI_PROC_NULL has some length, too. */
    for (int i = 0; i < ins; i++) from[i] = from[i] < 0 ? 0 : from[i];
    for (int i = 0; i < outs; i++) to[i] = to[i] < 0 ? 0 : to[i];
    struct basic basic = basic_of(ANY(7));
    struct side send = { .shape = shape(op, basic, 1) }, recv = send;
    MPI_Request *r = &request[op->id][0];
    MPI_Comm on = comm[op->on];
    send.count = recv.count = count_of(op, send.shape.basics * basic.bytes * 4, 1);
    int other = ANY(3);
    if (other == 1) recv.shape = plain(basic), recv.count *= send.shape.basics;
    if (other == 2) send.shape = plain(basic), send.count *= recv.shape.basics;
    if (all) {
        int length = op->a == 1 ? blocks(op, at, at) : 1;
        send.count *= length;
        lay_out(op, &send, 1, &one, at, 1, 0, 1);
    } else {
        lay_out(op, &send, outs, to, at, 1, w, equal);
    }
    if (op->a == 1) {
        long end = 0;
        recv.counts = ints(op, ins), recv.displacements = ints(op, ins);
        for (int i = 0; i < ins; i++) {
            recv.counts[i] = recv.count * blocks(op, from[i], from[i]), recv.displacements[i] = (int) end;
            end += recv.counts[i] + ANY_OF(i, 2);
        }
        recv.data = op->memory[1] = buffer(op, recv.shape, end, key(op, at, 0)), op->data[1] = span(recv.shape, end);
    } else {
        lay_out(op, &recv, ins, from, at, 0, w, equal);
    }
    long *send_bytes = longs(op, outs), *recv_bytes = longs(op, ins);
    for (int i = 0; i < outs && w; i++) send_bytes[i] = send.displacements[i];
    for (int i = 0; i < ins && w; i++) recv_bytes[i] = recv.displacements[i];
    switch (op->a) {
    case 0: FORM(form, r, Neighbor_allgather, neighbor_allgather, send.data, send.count, send.shape.type, recv.data, recv.count, recv.shape.type, on); break;
    case 1: FORM(form, r, Neighbor_allgatherv, neighbor_allgatherv, send.data, send.count, send.shape.type, recv.data, recv.counts, recv.displacements, recv.shape.type, on); break;
    case 2: FORM(form, r, Neighbor_alltoall, neighbor_alltoall, send.data, send.count, send.shape.type, recv.data, recv.count, recv.shape.type, on); break;
    case 3: FORM(form, r, Neighbor_alltoallv, neighbor_alltoallv, send.data, send.counts, send.displacements, send.shape.type, recv.data, recv.counts, recv.displacements, recv.shape.type, on); break;
    default: FORM(form, r, Neighbor_alltoallw, neighbor_alltoallw, send.data, send.counts, send_bytes, send.types, recv.data, recv.counts, recv_bytes, recv.types, on);
    }
    freed_later(op, other == 1 ? send.shape : recv.shape);
}
static void run_neighbor(struct op *op, int phase)
{
    int at = mine(op->on);
    if (at < 0) return;
    if (phase == 0) start_neighbor(op), op->requests = op->b == 1;
    if (op->b == 2 && (phase == 1 || phase == 3)) {
        for (int i = 0; i < 2 && phase == 3; i++) DO(fill, op->memory[i], op->data[i], key(op, at, 2 + i));
        CALL(MPI_Start, &request[op->id][0]);
    }
    if ((op->b == 1 && phase == 1) || (op->b == 2 && (phase == 2 || phase == 4))) wait_for(op, 1);
    if (op->b == 0 || (op->b == 1 && phase == 1) || (op->b == 2 && (phase == 2 || phase == 4))) DO(see, "received", op->memory[1], op->data[1]);
    if (op->b == 2 && phase == 4) CALL(MPI_Request_free, &request[op->id][0]);
    freed_now(op, phase);
}

#define COLLECTIVE_KINDS \
    { "collective", 45, plan_collective, run_collective, collective_planned }, { "neighbor", 8, plan_neighbor, run_neighbor, collective_planned },
