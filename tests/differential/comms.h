/* Comms are made, compared and freed. */
/* SPDX-License-Identifier: BSD-3-Clause */

#define SEE_COMM(handle) DO(see_comm, handle, !of(op->on)->session && !op->session)

/* A comm of all members of another, in the same order. */
static int same_members(struct op *op, int from)
{
    int made = new_comm(op);
    if (made >= 0) {
        struct comm of_old = comms[from];
        of_old.alive = of_old.busy = of_old.pending = of_old.buffered = of_old.tags = 0, of_old.maker = op->id;
        memset(of_old.outstanding, 0, sizeof of_old.outstanding), memset(of_old.exclusive, 0, sizeof of_old.exclusive);
        comms[made] = of_old;
    }
    return op->d = made;
}

/* `d` is the first comm that an operation makes, `e` is their number. */
static void comms_made(struct op *op, int phase)
{
    if (phase == 0) comms[op->on].pending++;
    if (phase + 1 < op->phases) return;
    comms[op->on].pending--;
    for (int i = 0; i < op->e; i++) comms[op->d + i].alive = comms[op->d + i].n > 0;
}

static int plan_dup(struct op *op)
{
    op->on = one_in(3) || (focus == 1 && draw(3)) ? 1 + draw(size) : any_comm(1, -1), op->e = 1, op->a = draw(4);
    if (op->on < 0 || same_members(op, op->on) < 0) return 0;
    op->phases = op->a < 2 ? 1 : 2;
    return 1;
}
static void run_dup(struct op *op, int phase)
{
    if (mine(op->on) < 0) return;
    MPI_Comm *made = &comm[op->d];
    if (phase == 1) {
        wait_for(op, 1);
        SEE_COMM(*made);
        return;
    }
    switch (op->a) {
    case 0: CALL(MPI_Comm_dup, comm[op->on], made); break;
    case 1: CALL(MPI_Comm_dup_with_info, comm[op->on], MPI_INFO_NULL, made); break;
    case 2: CALL(MPI_Comm_idup, comm[op->on], made, &request[op->id][0]); break;
    default: CALL(MPI_Comm_idup_with_info, comm[op->on], MPI_INFO_NULL, made, &request[op->id][0]);
    }
    if (op->phases == 1) SEE_COMM(*made);
}

/* Split: there are `a` colors; one member in `b` is in no part. */
static int color_of(struct op *op, int place) { return ANY_OF(place, 6) == 0 ? MPI_UNDEFINED : ANY_OF(place, op->a); }
static int key_of(struct op *op, int place) { return ANY_OF(place, 4) - 1; }
static int plan_split(struct op *op)
{
    op->on = any_comm(1, 0), op->a = 1 + draw(3), op->e = op->a;
    if (op->on < 0 || comm_count + op->a > COMMS_MAX) return 0;
    struct comm *from = of(op->on);
    op->d = comm_count;
    for (int color = 0; color < op->a; color++) {
        struct comm *made = of(new_comm(op));
        for (int k = -1; k < 3; k++)
            for (int i = 0; i < from->n; i++)
                if (color_of(op, i) == color && key_of(op, i) == k) made->world[made->n++] = from->world[i];
    }
    return 1;
}
static void run_split(struct op *op, int phase)
{
    int at = mine(op->on), color;
    (void) phase;
    if (at < 0) return;
    color = color_of(op, at);
    MPI_Comm *made = &comm[op->d + (color == MPI_UNDEFINED ? 0 : color)];
    CALL(MPI_Comm_split, comm[op->on], color, key_of(op, at), made);
    SEE_COMM(*made);
}

static int plan_split_type(struct op *op)
{
    op->on = any_comm(1, 0), op->e = 1;
    if (op->on < 0 || same_members(op, op->on) < 0) return 0;
    of(op->d)->topology = 0;
    return 1;
}
static void run_split_type(struct op *op, int phase)
{
    (void) phase;
    if (mine(op->on) < 0) return;
    CALL(MPI_Comm_split_type, comm[op->on], MPI_COMM_TYPE_SHARED, mine(op->on), MPI_INFO_NULL, &comm[op->d]);
    SEE_COMM(comm[op->d]);
}

/* Some members of a comm in another order. Either all members call, or only the members of the new comm. */
static int plan_subset(struct op *op)
{
    op->on = any_comm(1, 0), op->e = 1, op->a = draw(2);
    if (op->on < 0 || (op->d = new_comm(op)) < 0) return 0;
    struct comm *from = of(op->on), *made = of(op->d);
    op->tag = new_tag(op->on);
    int shift = draw(from->n), back = draw(2);
    for (int i = 0; i < from->n; i++)
        if (draw(4)) made->world[made->n++] = from->world[(back ? from->n - 1 - i + shift : i + shift) % from->n];
    if (!made->n) made->world[made->n++] = from->world[shift];
    return 1;
}
/* Sets group[0] to the members of a comm of the model, from the group of another. */
static void group_made(struct op *op, int at, int from)
{
    struct comm *c = of(at);
    int *ranks = ints(op, c->n);
    for (int i = 0; i < c->n; i++) ranks[i] = rank_at(of(from), place_of(of(from), c->world[i]));
    CALL(MPI_Comm_group, comm[from], &group[1]);
    CALL(MPI_Group_incl, group[1], c->n, ranks, &group[0]);
    CALL(MPI_Group_free, &group[1]);
}
static void run_subset(struct op *op, int phase)
{
    (void) phase;
    if (mine(op->on) < 0 || (op->a && mine(op->d) < 0)) return;
    group_made(op, op->d, op->on);
    if (op->a) CALL(MPI_Comm_create_group, comm[op->on], group[0], op->tag, &comm[op->d]);
    else CALL(MPI_Comm_create, comm[op->on], group[0], &comm[op->d]);
    CALL(MPI_Group_free, &group[0]);
    SEE_COMM(comm[op->d]);
}

/* An intercommunicator of two comms without a common member; a third comm has both leaders. Most often the comms have one member.
   */
static int plan_inter(struct op *op)
{
    for (int tries = 0; tries < 60; tries++) {
        int alone = focus == 1 ? draw(8) : draw(2);
        op->on = alone ? 1 + draw(size) : any_comm(1, 0), op->peer = alone ? 1 + draw(size) : any_comm(1, 0), op->third = any_comm(2, 0);
        if (op->on < 0 || op->peer < 0 || op->third < 0) continue;
        struct comm *one = of(op->on), *other = of(op->peer);
        op->a = draw(one->n), op->b = draw(other->n), op->e = 1;
        int disjoint = one->session == other->session && one->session == of(op->third)->session && quiet_at(op->third) &&
            place_of(of(op->third), one->world[op->a]) >= 0 && place_of(of(op->third), other->world[op->b]) >= 0;
        for (int i = 0; i < one->n; i++) disjoint = disjoint && place_of(other, one->world[i]) < 0;
        if (!disjoint) continue;
        if ((op->d = new_comm(op)) < 0) return 0;
        struct comm *made = of(op->d);
        op->tag = new_tag(op->third), made->inter = 1, made->n = one->n, made->m = other->n;
        memcpy(made->world, one->world, sizeof made->world), memcpy(made->other, other->world, sizeof made->other);
        return 1;
    }
    return 0;
}
static void run_inter(struct op *op, int phase)
{
    (void) phase;
    int first = mine(op->on) >= 0, local = first ? op->on : op->peer, remote = first ? op->peer : op->on;
    if (LITTLE_PROGRESS_IN_INTERCOMM_CREATE) CALL(MPI_Barrier, quiet);
    if (mine(local) < 0) return;
    int leader = first ? op->a : op->b, far = first ? op->b : op->a, leads = mine(local) == leader;
    int there = leads ? place_of(of(op->third), of(remote)->world[far]) : 0;
    CALL(MPI_Intercomm_create, comm[local], leader, leads ? comm[op->third] : MPI_COMM_NULL, there, op->tag, &comm[op->d]);
    SEE_COMM(comm[op->d]);
}

static int plan_merge(struct op *op)
{
    op->on = any_comm(2, 1), op->e = 1, op->a = draw(2);
    if (op->on < 0 || (op->d = new_comm(op)) < 0) return 0;
    struct comm *from = of(op->on), *made = of(op->d);
    for (int i = 0; i < places(from); i++) made->world[made->n++] = world_at(from, (i + (op->a ? from->n : 0)) % places(from));
    return 1;
}
static void run_merge(struct op *op, int phase)
{
    int at = mine(op->on);
    (void) phase;
    if (at < 0) return;
    CALL(MPI_Intercomm_merge, comm[op->on], (at >= of(op->on)->n) ^ op->a, &comm[op->d]);
    SEE_COMM(comm[op->d]);
}

/* Cartesian grids, also fewer than all members. */
static int plan_cart(struct op *op)
{
    op->on = any_comm(1, 0), op->e = 1;
    if (op->on < 0 || (op->d = new_comm(op)) < 0) return 0;
    struct comm *from = of(op->on), *made = of(op->d);
    int left = from->n, all = 1;
    made->topology = MPI_CART, made->dimensions = 1 + draw(3);
    for (int d = 0; d < made->dimensions; d++) {
        made->dims[d] = 1 + draw(left), made->periods[d] = draw(2);
        /* A grid of all members. */
        while (SMALL_GRID && left % made->dims[d]) made->dims[d]--;
        if (SMALL_GRID && d + 1 == made->dimensions) made->dims[d] = left;
        left /= made->dims[d], all *= made->dims[d];
    }
    for (int i = 0; i < all; i++) made->world[made->n++] = from->world[i];
    return 1;
}
static void run_cart(struct op *op, int phase)
{
    struct comm *made = of(op->d);
    (void) phase;
    if (mine(op->on) < 0) return;
    int n = made->dimensions, *dims = ints(op, n), *periods = ints(op, n);
    memcpy(dims, made->dims, (size_t) n * sizeof(int)), memcpy(periods, made->periods, (size_t) n * sizeof(int));
    CALL(MPI_Cart_create, comm[op->on], n, dims, periods, 0, &comm[op->d]);
    SEE_COMM(comm[op->d]);
    if (mine(op->d) < 0) return;
    CALL(MPI_Cart_get, comm[op->d], n, &out[0], &out[8], &out[16]);
    for (int d = 0; d < n; d++) {
        CALL(MPI_Cart_shift, comm[op->d], d, 1 + ANY_OF(d, 2), &out[24 + 2 * d], &out[25 + 2 * d]);
        DO(see, "shift", &out[24 + 2 * d], 8);
    }
    DO(see, "cart", out, n * 4), DO(see, "cart", out + 8, n * 4), DO(see, "cart", out + 16, n * 4);
    CALL(MPI_Cart_rank, comm[op->d], &out[16], &out[30]);
    DO(see_number, "rank", out[30]);
}

/* One slice of a grid per value of the dimensions that are left out. */
static int plan_cart_sub(struct op *op)
{
    op->on = any_comm(1, 0);
    if (op->on < 0 || of(op->on)->topology != MPI_CART) return 0;
    struct comm *from = of(op->on);
    op->a = draw(1 << from->dimensions), op->e = 1;
    int stride[3], inner = 1;
    for (int d = from->dimensions - 1; d >= 0; d--) {
        stride[d] = inner, inner *= from->dims[d];
        if (!(op->a >> d & 1)) op->e *= from->dims[d];
    }
    if (comm_count + op->e > COMMS_MAX) return 0;
    op->d = comm_count;
    for (int s = 0; s < op->e; s++) {
        struct comm *made = of(new_comm(op));
        made->topology = MPI_CART;
        for (int d = 0; d < from->dimensions; d++)
            if (op->a >> d & 1) made->dims[made->dimensions] = from->dims[d], made->periods[made->dimensions++] = from->periods[d];
        for (int i = 0; i < from->n; i++) {
            int slice = 0;
            for (int d = 0; d < from->dimensions; d++)
                if (!(op->a >> d & 1)) slice = slice * from->dims[d] + i / stride[d] % from->dims[d];
            if (slice == s) made->world[made->n++] = from->world[i];
        }
    }
    return 1;
}
static void run_cart_sub(struct op *op, int phase)
{
    (void) phase;
    if (mine(op->on) < 0) return;
    int n = of(op->on)->dimensions, *remain = ints(op, n);
    for (int d = 0; d < n; d++) remain[d] = op->a >> d & 1;
    for (int s = 0; s < op->e; s++)
        if (mine(op->d + s) >= 0) {
            CALL(MPI_Cart_sub, comm[op->on], remain, &comm[op->d + s]);
            SEE_COMM(comm[op->d + s]);
            CALL(MPI_Cartdim_get, comm[op->d + s], &out[0]);
            DO(see_number, "dimensions", out[0]);
        }
}

/* Graphs: whether there is an edge from `i` to `k`. In MPI's old graphs both ends name it. */
static int edge(struct op *op, int i, int k) { return ANY_OF(i * RANKS_MAX + k, 3) == 0; }
static int plan_graph(struct op *op)
{
    op->on = any_comm(1, 0), op->e = 1, op->a = draw(4);
    if (op->on < 0 || same_members(op, op->on) < 0) return 0;
    of(op->d)->topology = op->a ? MPI_DIST_GRAPH : MPI_GRAPH;
    return 1;
}
static void run_graph(struct op *op, int phase)
{
    int at = mine(op->on), n = of(op->on)->n, in = 0, out_degree = 0;
    (void) phase;
    if (at < 0) return;
    int *first = ints(op, n), *second = ints(op, n * n), *weights = ints(op, n);
    if (!op->a) {
        for (int i = 0, ends = 0; i < n; i++) {
            for (int k = 0; k < n; k++)
                if (i != k && (edge(op, i, k) || edge(op, k, i))) second[ends++] = k;
            first[i] = ends;
        }
        CALL(MPI_Graph_create, comm[op->on], n, first, second, 0, &comm[op->d]);
        CALL(MPI_Graphdims_get, comm[op->d], &out[0], &out[1]);
        DO(see, "dims", out, 8);
    } else {
        for (int k = 0; k < n; k++) {
            weights[k] = 1;
            if (edge(op, k, at)) first[in++] = k;
            if (edge(op, at, k)) second[out_degree++] = k;
        }
        CALL(MPI_Dist_graph_create_adjacent, comm[op->on], in, first, op->a == 1 ? MPI_UNWEIGHTED : weights, out_degree, second,
             op->a == 1 ? MPI_UNWEIGHTED : weights, MPI_INFO_NULL, 0, &comm[op->d]);
        CALL(MPI_Dist_graph_neighbors_count, comm[op->d], &out[0], &out[1], &out[2]);
        DO(see, "degrees", out, 12);
    }
    SEE_COMM(comm[op->d]);
}

static int sessions;
static int plan_session(struct op *op)
{
    op->on = 0, op->e = 1, op->a = draw(2);
    if ((op->d = new_comm(op)) < 0) return 0;
    struct comm *made = of(op->d);
    made->session = op->session = op->id + 1;
    for (int i = 0; i < size; i++)
        if (draw(4)) made->world[made->n++] = i;
    if (!made->n) made->world[made->n++] = 0;
    return 1;
}
static void run_session(struct op *op, int phase)
{
    (void) phase;
    if (mine(op->d) < 0 || sessions == 16) return;
    struct comm *c = of(op->d);
    int *ranks = ints(op, c->n);
    char tag[40];
    snprintf(tag, sizeof tag, "differential %d", op->id);
    for (int i = 0; i < c->n; i++) ranks[i] = c->world[i];
    CALL(MPI_Session_init, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session[sessions]);
    CALL(MPI_Group_from_session_pset, session[sessions], "mpi://WORLD", &group[1]);
    CALL(MPI_Group_incl, group[1], c->n, ranks, &group[0]);
    DO(see_group, group[0], 0);
    CALL(MPI_Comm_create_from_group, group[0], tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm[op->d]);
    CALL(MPI_Group_free, &group[0]), CALL(MPI_Group_free, &group[1]);
    sessions++;
    SEE_COMM(comm[op->d]);
}

/* A comm is freed although collectives may be under way on it, or disconnected if none is. */
static int plan_free(struct op *op)
{
    op->on = any_comm(1, -1);
    if (op->on <= size || of(op->on)->busy) return 0;
    op->a = !of(op->on)->pending && !(of(op->on)->buffered && DISCONNECT_AFTER_BUFFERED) && one_in(3);
    of(op->on)->alive = 0;
    return 1;
}
static void run_free(struct op *op, int phase)
{
    (void) phase;
    if (mine(op->on) < 0) return;
    if (op->a) CALL(MPI_Comm_disconnect, &comm[op->on]);
    else CALL(MPI_Comm_free, &comm[op->on]);
    SEE_COMM(comm[op->on]);
}

/* Comms compared, and groups joined, cut and compared. */
static int plan_compare(struct op *op)
{
    op->on = any_comm(1, -1), op->peer = any_comm(1, -1);
    return op->on >= 0 && op->peer >= 0 && of(op->on)->session == of(op->peer)->session;
}
static void run_compare(struct op *op, int phase)
{
    (void) phase;
    if (mine(op->on) < 0 || mine(op->peer) < 0) return;
    if (of(op->on)->inter == of(op->peer)->inter) {
        CALL(MPI_Comm_compare, comm[op->on], comm[op->peer], &out[0]);
        DO(see_number, "compared", out[0]);
    }
    CALL(MPI_Comm_group, comm[op->on], &group[0]);
    CALL(MPI_Comm_group, comm[op->peer], &group[1]);
    CALL(MPI_Group_union, group[0], group[1], &group[2]);
    CALL(MPI_Group_intersection, group[0], group[1], &group[3]);
    CALL(MPI_Group_difference, group[0], group[1], &group[4]);
    CALL(MPI_Group_compare, group[0], group[1], &out[0]);
    CALL(MPI_Group_size, group[2], &out[1]);
    int (*range)[3] = grab(op, sizeof *range);
    range[0][0] = out[1] - 1, range[0][1] = 0, range[0][2] = -1 - ANY(2);
    CALL(MPI_Group_range_incl, group[2], 1, range, &group[5]);
    CALL(MPI_Group_range_excl, group[2], 1, range, &group[6]);
    DO(see_number, "compared", out[0]);
    for (int i = 0; i < 7; i++) {
        if (group[i] != MPI_GROUP_EMPTY || i < 2) DO(see_group, group[i], !of(op->on)->session), CALL(MPI_Group_free, &group[i]);
        else DO(see_number, "empty", 0);
    }
}

static void comms_dropped(void)
{
    for (int i = 1 + size; i < comm_count; i++)
        if (comm[i] != MPI_COMM_NULL) CALL(MPI_Comm_free, &comm[i]);
    while (sessions) sessions--, CALL(MPI_Session_finalize, &session[sessions]);
}

#define COMM_KINDS \
    { "dup", 6, plan_dup, run_dup, comms_made }, { "split", 4, plan_split, run_split, comms_made }, \
    { "split_type", 1, plan_split_type, run_split_type, comms_made }, { "subset", 4, plan_subset, run_subset, comms_made }, \
    { "inter", 6, plan_inter, run_inter, comms_made }, { "merge", 4, plan_merge, run_merge, comms_made }, \
    { "cart", 3, plan_cart, run_cart, comms_made }, { "cart_sub", 2, plan_cart_sub, run_cart_sub, comms_made }, \
    { "graph", 4, plan_graph, run_graph, comms_made }, { "session", 1, plan_session, run_session, comms_made }, \
    { "free", 3, plan_free, run_free, NULL }, { "compare", 3, plan_compare, run_compare, NULL },
