/* Windows: made in every way, and epochs of every kind, one at a time on each window. In an epoch, each origin has a part of every target's memory
   for itself, and another part is accumulated into by all, with one operator that commutes; so the end is determined. */
/* SPDX-License-Identifier: BSD-3-Clause */
enum { CREATE, ALLOCATE, SHARED, DYNAMIC, FLAVORS };
enum { FENCE, POST_START, LOCK, LOCK_ALL, EPOCHS };
enum { PART = 96 }; /* longs of each origin; as many are shared by all */

static int window_count;
static long window_longs(const struct comm *c) { return PART * (c->n + 1); }

static int plan_window(struct op *op)
{
    op->on = any_comm(1, 0), op->a = draw(FLAVORS), op->window = window_count;
    if (op->on < 0 || window_count == WINS_MAX || of(op->on)->session) return 0;
    wins[window_count++] = (struct window) { .alive = 1, .comm = op->on, .maker = op->id, .flavor = op->a };
    of(op->on)->busy++;
    return 1;
}
static void run_window(struct op *op, int phase)
{
    struct comm *c = of(op->on);
    int at = mine(op->on), w = op->window;
    MPI_Aint bytes = window_longs(c) * 8;
    (void) phase;
    if (at < 0) return;
    MPI_Comm on = comm[op->on];
    switch (op->a) {
    case CREATE:
        CALL(MPI_Alloc_mem, bytes, MPI_INFO_NULL, &address[w]);
        CALL(MPI_Win_create, address[w], bytes, 8, MPI_INFO_NULL, on, &win[w]);
        break;
    case ALLOCATE: CALL(MPI_Win_allocate, bytes, 8, MPI_INFO_NULL, on, &address[w], &win[w]); break;
    case SHARED: CALL(MPI_Win_allocate_shared, bytes, 8, MPI_INFO_NULL, on, &address[w], &win[w]); break;
    default:
        CALL(MPI_Win_create_dynamic, MPI_INFO_NULL, on, &win[w]);
        DO(fixed_memory, w, (long) bytes);
        CALL(MPI_Win_attach, win[w], address[w], bytes);
    }
    CALL(MPI_Win_lock, MPI_LOCK_EXCLUSIVE, at, 0, win[w]);
    DO(fill_window, w, (long) bytes, key(op, at, 0));
    CALL(MPI_Win_unlock, at, win[w]);
    CALL(MPI_Barrier, on);
}

/* `a`: the kind of epoch; `b`: the operator; `c`: the number of accesses; `d`: the target (post and start,
   lock). */
static int plan_epoch(struct op *op)
{
    if (!window_count) return 0;
    op->window = draw(window_count);
    struct window *w = &wins[op->window];
    if (!w->alive || w->busy) return 0;
    op->on = w->comm, op->a = draw(EPOCHS), op->b = draw(6), op->c = 1 + draw(6), op->phases = op->a == LOCK ? 1 : 2;
    w->busy++;
    return 1;
}
static void epoch_planned(struct op *op, int phase) { wins[op->window].busy -= phase + 1 == op->phases; }

static int is_target(struct op *op, int place) { return ANY_OF(place, 3) > 0; }
static int is_origin(struct op *op, int place) { return ANY_OF(place, 3) > 0; }

/* The position of longs of a target: a displacement in longs, or the address, which is the same everywhere.
   */
static MPI_Aint place_in(const struct op *op, long index)
{
    return wins[op->window].flavor == DYNAMIC ? (MPI_Aint) FIXED(op->window) + index * 8 : index;
}

static void accesses(struct op *op, int target, int passive)
{
    const MPI_Op commuting[] = { MPI_SUM, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_MAX, MPI_MIN };
    int at = mine(op->on), r = 0;
    MPI_Op with = commuting[op->b];
    MPI_Win on = win[op->window];
    void *before = grab(op, 8);
    DO(fill_longs, before, 1l, key(op, 0, 3));
    for (int i = 0; i < op->c; i++) {
        /* Each access has its own eighth of the origin's part: PART / 8 longs. */
        int salt = (target * RANKS_MAX + at) * 8 + i, count = 1 + ANY_OF(salt, PART / 8 - 1), way = ANY_OF(salt, passive ? 10 : 7);
        long own = PART * (at + 1) + i * (PART / 8), shared = ANY_OF(salt, 8) * (PART / 8);
        MPI_Aint there = place_in(op, own), common = place_in(op, shared);
        void *data = grab(op, (size_t) count * 8), *result = grab(op, (size_t) count * 8);
        DO(fill_longs, data, (long) count, key(op, salt, 1)), DO(fill_longs, result, (long) count, key(op, salt, 2));
        switch (way) {
        case 0: {
            /* Every second long, from a vector. */
            int slot = free_slot(), half = (count + 1) / 2;
            CALL(MPI_Type_vector, half, 1, 2, MPI_LONG, &type[slot]);
            CALL(MPI_Type_commit, &type[slot]);
            CALL(MPI_Put, data, half, MPI_LONG, target, there, 1, type[slot], on);
            CALL(MPI_Type_free, &type[slot]);
            break;
        }
        case 1: CALL(MPI_Put, data, count, MPI_LONG, target, there, count, MPI_LONG, on); break;
        case 2: CALL(MPI_Get, result, count, MPI_LONG, target, there, count, MPI_LONG, on); break;
        case 3: CALL(MPI_Accumulate, data, count, MPI_LONG, target, common, count, MPI_LONG, with, on); break;
        case 4: CALL(MPI_Get_accumulate, data, count, MPI_LONG, result, count, MPI_LONG, target, there, count, MPI_LONG, with, on); break;
        case 5: CALL(MPI_Fetch_and_op, data, result, MPI_LONG, target, there, ANY_OF(salt, 2) ? with : MPI_REPLACE, on); break;
        case 6: CALL(MPI_Compare_and_swap, data, before, result, MPI_LONG, target, there, on); break;
        case 7: CALL(MPI_Rput, data, count, MPI_LONG, target, there, count, MPI_LONG, on, &request[op->id][r++]); break;
        case 8: CALL(MPI_Rget, result, count, MPI_LONG, target, there, count, MPI_LONG, on, &request[op->id][r++]); break;
        default: CALL(MPI_Raccumulate, data, count, MPI_LONG, target, common, count, MPI_LONG, with, on, &request[op->id][r++]);
        }
        op->memory[i] = result, op->data[i] = count * 8;
        if (passive && ANY_OF(salt, 3) == 0) {
            if (ANY_OF(salt, 2)) CALL(MPI_Win_flush, target, on);
            else CALL(MPI_Win_flush_local_all, on);
        }
    }
    if (r) wait_for(op, r);
}
/* Notes the results of the last target only, since all targets share the memory for results. */
static void see_results(struct op *op)
{
    for (int i = 0; i < op->c; i++)
        if (op->memory[i]) DO(see, "fetched", op->memory[i], op->data[i]);
}

static void run_epoch(struct op *op, int phase)
{
    struct comm *c = of(op->on);
    int at = mine(op->on), w = op->window, n = 0, ends = phase + 1 == op->phases;
    int far = ANY_OF(at, c->n), exclusive = ANY_OF(at, 2);
    if (at < 0) return;
    MPI_Win on = win[w];
    int *ranks = ints(op, c->n);
    if (op->a == FENCE) {
        CALL(MPI_Win_fence, phase == 0 ? MPI_MODE_NOPRECEDE : MPI_MODE_NOSUCCEED, on);
        if (!ends) accesses(op, far, 0);
    } else if (op->a == POST_START) {
        if (phase == 0) {
            /* Targets post for all origins; origins start to all targets. */
            for (int i = 0; i < c->n; i++)
                if (is_origin(op, i)) ranks[n++] = i;
            int *targets = ints(op, c->n), t = 0;
            for (int i = 0; i < c->n; i++)
                if (is_target(op, i)) targets[t++] = i;
            CALL(MPI_Win_get_group, on, &group[1]);
            if (is_target(op, at)) {
                CALL(MPI_Group_incl, group[1], n, ranks, &group[0]);
                CALL(MPI_Win_post, group[0], 0, on);
                if (n) CALL(MPI_Group_free, &group[0]);
            }
            if (is_origin(op, at)) {
                CALL(MPI_Group_incl, group[1], t, targets, &group[0]);
                CALL(MPI_Win_start, group[0], 0, on);
                if (t) CALL(MPI_Group_free, &group[0]);
                if (t) accesses(op, targets[ANY_OF(at, t)], 0);
            }
            CALL(MPI_Group_free, &group[1]);
        } else {
            if (is_origin(op, at)) CALL(MPI_Win_complete, on);
            if (is_target(op, at)) CALL(MPI_Win_wait, on);
        }
    } else if (op->a == LOCK) {
        CALL(MPI_Win_lock, exclusive ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, far, 0, on);
        accesses(op, far, 1);
        CALL(MPI_Win_unlock, far, on);
    } else if (phase == 0) {
        CALL(MPI_Win_lock_all, 0, on);
        accesses(op, far, 1);
        if (ANY_OF(at, 2)) CALL(MPI_Win_flush_all, on);
    } else {
        CALL(MPI_Win_unlock_all, on);
    }
    if (!ends) return;
    see_results(op);
    /* No rank reads its memory before all have finished with it, and none begins again before all have read.
       */
    CALL(MPI_Barrier, comm[op->on]);
    CALL(MPI_Win_lock, MPI_LOCK_SHARED, at, 0, on);
    DO(see_window, w, window_longs(c) * 8);
    CALL(MPI_Win_unlock, at, on);
    CALL(MPI_Barrier, comm[op->on]);
}

static int plan_window_free(struct op *op)
{
    if (!window_count) return 0;
    op->window = draw(window_count);
    if (!wins[op->window].alive || wins[op->window].busy) return 0;
    op->on = wins[op->window].comm, wins[op->window].alive = 0, of(op->on)->busy--;
    return 1;
}
static void window_freed(int w)
{
    if (win[w] == MPI_WIN_NULL) return;
    if (wins[w].flavor == DYNAMIC) CALL(MPI_Win_detach, win[w], address[w]);
    CALL(MPI_Win_free, &win[w]);
    if (wins[w].flavor == CREATE) CALL(MPI_Free_mem, address[w]);
}
static void windows_dropped(void)
{
    for (int i = 0; i < window_count; i++) window_freed(i);
}
static void run_window_free(struct op *op, int phase)
{
    (void) phase;
    if (mine(op->on) >= 0) window_freed(op->window);
}

#define WINDOW_KINDS \
    { "window", 4, plan_window, run_window, NULL }, { "epoch", 10, plan_epoch, run_epoch, epoch_planned }, \
    { "window_free", 1, plan_window_free, run_window_free, NULL },
