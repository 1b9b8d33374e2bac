/* Attributes, info, datatypes by themselves, names, errors that are returned, and delays. */
/* SPDX-License-Identifier: BSD-3-Clause */

/* An attribute on a comm and its duplicates; its copy function changes the value or refuses. */
static int plan_attribute(struct op *op)
{
    op->on = any_comm(1, -1), op->a = draw(3), op->b = 1 + draw(40), op->c = draw(2);
    return op->on >= 0;
}
static void run_attribute(struct op *op, int phase)
{
    MPI_Comm on = comm[op->on], *other = &several[0];
    (void) phase;
    if (mine(op->on) < 0) return;
    if (op->a == 0) CALL(MPI_Comm_create_keyval, MPI_COMM_DUP_FN, deleted, &keyval[0], (void *) 0);
    else if (op->a == 1) CALL(MPI_Comm_create_keyval, MPI_COMM_NULL_COPY_FN, deleted, &keyval[0], (void *) 0);
    else CALL(MPI_Comm_create_keyval, copied, deleted, &keyval[0], (void *) 3);
    CALL(MPI_Comm_set_attr, on, keyval[0], (void *) (intptr_t) op->b);
    if (op->c) CALL(MPI_Comm_set_attr, on, keyval[0], (void *) (intptr_t) (op->b + 1));
    CALL(MPI_Comm_dup, on, other);
    for (int i = 0; i < 2; i++) {
        CALL(MPI_Comm_get_attr, i ? *other : on, keyval[0], &address[7], &out[0]);
        DO(see_attribute, &out[0]);
    }
    if (op->c) CALL(MPI_Comm_delete_attr, on, keyval[0]);
    CALL(MPI_Comm_free, other);
    if (!op->c) CALL(MPI_Comm_delete_attr, on, keyval[0]);
    CALL(MPI_Comm_free_keyval, &keyval[0]);
    DO(see_counts, 0);
}

static int plan_info(struct op *op)
{
    op->a = draw(size), op->on = 0;
    return 1;
}
static void run_info(struct op *op, int phase)
{
    static const char *const keys[] = { "alpha", "beta", "gamma", "delta" };
    (void) phase;
    if (rank != op->a) return;
    CALL(MPI_Info_create, &info[0]);
    for (int i = 0; i < 6; i++) {
        const char *one = keys[ANY_OF(i, 4)];
        CALL(MPI_Info_set, info[0], one, keys[ANY_OF(i, 4)]);
        if (ANY_OF(i, 4) == 0) CALL(MPI_Info_delete, info[0], one);
    }
    CALL(MPI_Info_dup, info[0], &info[1]);
    DO(see_info, 1);
    CALL(MPI_Info_free, &info[0]), CALL(MPI_Info_free, &info[1]);
}

/* A datatype by itself: its bounds, its constructor, and data that are packed and unpacked. */
static int plan_type(struct op *op)
{
    op->a = draw(size), op->b = draw(7), op->on = 0;
    return 1;
}
static void run_type(struct op *op, int phase)
{
    (void) phase;
    if (rank != op->a) return;
    struct basic basic = basic_of(op->b);
    struct shape s = shape(op, basic, 1);
    int count = 1 + ANY(3), bytes = count * s.basics * basic.bytes;
    void *data = buffer(op, s, count, key(op, 0, 0)), *packed = grab(op, (size_t) bytes), *back = buffer(op, s, count, key(op, 0, 1));
    CALL(MPI_Type_size, s.type, &out[0]);
    CALL(MPI_Type_get_extent, s.type, &wide[0], &wide[1]);
    CALL(MPI_Type_get_true_extent, s.type, &wide[2], &wide[3]);
    CALL(MPI_Type_get_envelope, s.type, &out[1], &out[2], &out[3], &out[4]);
    DO(see, "size and envelope", out, 20), DO(see, "bounds", wide, TRUE_EXTENT_OF_EMPTY_PARTS ? 16l : 32l);
    DO(start_at, 5);
    CALL(MPI_Pack, data, count, s.type, packed, bytes, &out[5], MPI_COMM_WORLD);
    DO(see, "packed", packed, bytes), DO(see_number, "position", out[5]);
    DO(start_at, 5);
    CALL(MPI_Unpack, packed, bytes, &out[5], back, count, s.type, MPI_COMM_WORLD);
    DO(see, "unpacked", back, span(s, count));
    unmake(s);
}

/* One member makes a call that must return an error and does nothing to the others. Codes are compared by
   class. */
static int plan_error(struct op *op)
{
    op->on = any_comm(1, -1), op->b = draw(12);
    if (op->on < 0 || intel || !quiet_at(op->on) || (op->b == 10 && of(op->on)->topology == MPI_CART)) return 0;
    op->a = draw(places(of(op->on))), op->tag = new_tag(op->on);
    return 1;
}
/* If an error handler returns, MPICH lets the call succeed, so its code is compared only without a handler.
   */
#define FAILED(...) \
    do { \
        if (returned) FAILS(__VA_ARGS__); \
        else HANDLED(__VA_ARGS__); \
    } while (0)
static void run_error(struct op *op, int phase)
{
    struct comm *c = of(op->on);
    int far = !c->inter ? c->n : op->a < c->n ? c->m : c->n, self = !c->inter;
    (void) phase;
    if (mine(op->on) != op->a) return;
    MPI_Comm on = comm[op->on];
    void *data = grab(op, 64);
    CALL(MPI_Comm_get_errhandler, on, &errhandler[1]);
    CALL(MPI_Comm_create_errhandler, handler, &errhandler[0]);
    int returned = ANY(2);
    CALL(MPI_Comm_set_errhandler, on, returned ? MPI_ERRORS_RETURN : errhandler[0]);
    switch (op->b) {
    case 0: FAILED(MPI_Send, data, 1, MPI_INT, far, 1, on); break;
    case 1: FAILED(MPI_Send, data, 1, MPI_INT, 0, -5, on); break;
    case 2: FAILED(MPI_Send, data, -1, MPI_INT, 0, 1, on); break;
    case 3: FAILED(MPI_Recv, data, 1, MPI_INT, far + 3, 1, on, MPI_STATUS_IGNORE); break;
    case 4: FAILED(MPI_Irecv, data, -2, MPI_INT, 0, 1, on, &request[op->id][0]); break;
    case 5: FAILED(MPI_Send, data, 1, MPI_DATATYPE_NULL, 0, 1, on); break;
    case 6: FAILED(MPI_Bcast, data, 1, MPI_INT, far + 7, on); break;
    case 7: FAILED(MPI_Allreduce, data, (void *) ((char *) data + 32), 1, MPI_INT, MPI_OP_NULL, on); break;
    case 8:
        if (!self) break;
        /* A message that is longer than the receiver's buffer. */
        CALL(MPI_Isend, data, 8, MPI_INT, op->a, op->tag, on, &request[op->id][0]);
        FAILED(MPI_Recv, (void *) ((char *) data + 32), 4, MPI_INT, op->a, op->tag, on, MPI_STATUS_IGNORE);
        CALL(MPI_Wait, &request[op->id][0], MPI_STATUS_IGNORE);
        break;
    case 9: FAILED(MPI_Probe, far, 1, on, &status[0]); break;
    case 10: FAILED(MPI_Cart_shift, on, 7, 1, &out[0], &out[1]); break;
    default: FAILED(MPI_Comm_set_attr, on, MPI_KEYVAL_INVALID, (void *) 0);
    }
    CALL(MPI_Comm_set_errhandler, on, errhandler[1]);
    CALL(MPI_Errhandler_free, &errhandler[0]);
    CALL(MPI_Errhandler_free, &errhandler[1]);
    DO(see_counts, 1);
}

static int plan_name(struct op *op)
{
    op->on = any_comm(1, -1);
    return op->on > size;
}
static void run_name(struct op *op, int phase)
{
    char name[40];
    (void) phase;
    if (mine(op->on) < 0) return;
    snprintf(name, sizeof name, "comm of %d", op->id);
    DO(see_name, comm[op->on]);
    CALL(MPI_Comm_set_name, comm[op->on], name);
    DO(see_name, comm[op->on]);
}

/* Some ranks arrive later than others. */
static int plan_delay(struct op *op)
{
    op->on = 0, op->a = 1 + draw(300);
    return 1;
}
static void run_delay(struct op *op, int phase)
{
    (void) phase;
    if (ANY_OF(rank, 2)) DO(delay, op->a);
}

#define OBJECT_KINDS \
    { "attribute", 2, plan_attribute, run_attribute, NULL }, { "info", 1, plan_info, run_info, NULL }, { "type", 4, plan_type, run_type, NULL }, \
    { "error", 3, plan_error, run_error, NULL }, { "name", 1, plan_name, run_name, NULL }, { "delay", 6, plan_delay, run_delay, NULL },
