/* One-sided communication: rank 0 is the origin, rank 1 the target. -w says how the window is made, -s how it is synchronised. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

typedef enum { PUT, GET, ACCUMULATE, GET_ACCUMULATE, FETCH_AND_OP, COMPARE_AND_SWAP } operation;

typedef struct {
    MPI_Win win;
    void *base;  /* the window's memory */
    char *local; /* the origin's buffer, and after it one for results */
    MPI_Aint displacement;
    size_t bytes;
    int made;
} place;

/* A window whose memory holds the pattern of `seed`, or zeros. */
static place open_window(const options *o, size_t bytes, int seed)
{
    place p = {.bytes = bytes};
    MPI_Aint at = 0;
    if (strcmp(o->window_kind, "allocate") == 0) {
        if (o->on_device[1]) stop("-w allocate makes memory of the host; -d goes with create and dynamic");
        MPI_Win_allocate((MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &p.base, &p.win);
    } else {
        p.base = buffer(o, bytes, 0);
        p.made = 1;
        if (strcmp(o->window_kind, "create") == 0) {
            MPI_Win_create(p.base, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &p.win);
        } else {
            MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &p.win);
            MPI_Win_attach(p.win, p.base, (MPI_Aint)bytes);
            MPI_Get_address(p.base, &at);
        }
    }
    MPI_Bcast(&at, 1, MPI_AINT, 1, MPI_COMM_WORLD);
    p.displacement = at;
    p.local = buffer(o, 2 * bytes, rank);
    char *zeros = calloc(1, bytes);
    if (seed) fill(p.base, bytes, seed);
    else transfer(p.base, zeros, bytes);
    free(zeros);
    MPI_Barrier(MPI_COMM_WORLD);
    return p;
}

static void close_window(const options *o, place *p)
{
    if (strcmp(o->window_kind, "dynamic") == 0) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_detach(p->win, p->base);
    }
    MPI_Win_free(&p->win);
    if (p->made) release(o, p->base);
    release(o, p->local);
}

static void issue(const place *p, operation op)
{
    static const long zero = 0;
    int bytes = (int)p->bytes, doubles = bytes / 8;
    char *out = p->local, *in = p->local + p->bytes;
    MPI_Aint at = p->displacement;
    switch (op) {
    case PUT: MPI_Put(out, bytes, MPI_CHAR, 1, at, bytes, MPI_CHAR, p->win); break;
    case GET: MPI_Get(out, bytes, MPI_CHAR, 1, at, bytes, MPI_CHAR, p->win); break;
    case ACCUMULATE: MPI_Accumulate(out, doubles, MPI_LONG, 1, at, doubles, MPI_LONG, MPI_SUM, p->win); break;
    case GET_ACCUMULATE:
        MPI_Get_accumulate(out, doubles, MPI_LONG, in, doubles, MPI_LONG, 1, at, doubles, MPI_LONG, MPI_SUM, p->win);
        break;
    case FETCH_AND_OP: MPI_Fetch_and_op(out, in, MPI_LONG, 1, at, MPI_SUM, p->win); break;
    case COMPARE_AND_SWAP: MPI_Compare_and_swap(out, &zero, in, MPI_LONG, 1, at, p->win); break;
    }
}

typedef enum { FENCE, PSCW, LOCK, LOCK_ALL, FLUSH, FLUSH_LOCAL, LOCK_ALL_FLUSH } synchronisation;

/* The value of -s, parsed once: comparing names takes as long as a short operation. */
static synchronisation named(const char *name)
{
    static const char *const names[] = {"fence", "pscw", "lock", "lock_all", "flush", "flush_local", "lock_all_flush"};
    int at = 0;
    while (strcmp(name, names[at])) at++;
    return (synchronisation)at;
}

/* The target's calls in active target synchronisation. */
static void attend(synchronisation s, const place *p, MPI_Group origin)
{
    if (s == PSCW) {
        MPI_Win_post(origin, 0, p->win);
        MPI_Win_wait(p->win);
    } else {
        MPI_Win_fence(0, p->win);
        MPI_Win_fence(0, p->win);
    }
}

/* `many` operations, each in an epoch or flushed. Returns microseconds per operation at the origin. */
static double epochs(const options *o, const place *p, operation op, int many, int per_epoch)
{
    MPI_Group world, other;
    int peer = 1 - rank;
    synchronisation s = named(o->sync);
    int active = s == PSCW || s == FENCE, locked = s == FLUSH || s == FLUSH_LOCAL, all = s == LOCK_ALL_FLUSH;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    if (rank < 2) MPI_Group_incl(world, 1, &peer, &other);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0 && locked) MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, p->win);
    if (rank == 0 && all) MPI_Win_lock_all(0, p->win);
    double began = clock_us();
    for (int i = 0; i < many; i++) {
        if (rank > 0) {
            if (rank == 1 && active) attend(s, p, other);
            else if (s == FENCE) attend(s, p, MPI_GROUP_NULL);
            continue;
        }
        if (s == FENCE) MPI_Win_fence(0, p->win);
        if (s == PSCW) MPI_Win_start(other, 0, p->win);
        if (s == LOCK) MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, p->win);
        if (s == LOCK_ALL) MPI_Win_lock_all(0, p->win);
        for (int k = 0; k < per_epoch; k++) issue(p, op);
        if (s == FENCE) MPI_Win_fence(0, p->win);
        if (s == PSCW) MPI_Win_complete(p->win);
        if (s == LOCK) MPI_Win_unlock(1, p->win);
        if (s == LOCK_ALL) MPI_Win_unlock_all(p->win);
        if (s == FLUSH || s == LOCK_ALL_FLUSH) MPI_Win_flush(1, p->win);
        if (s == FLUSH_LOCAL) MPI_Win_flush_local(1, p->win);
    }
    double time = (clock_us() - began) / many;
    if (rank == 0 && locked) MPI_Win_unlock(1, p->win);
    if (rank == 0 && all) MPI_Win_unlock_all(p->win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank < 2) MPI_Group_free(&other);
    MPI_Group_free(&world);
    return time;
}

typedef struct {
    operation op;
    int bandwidth;
} kind;

/* Whether the target's memory, and the data that the origin got from it, are right after `many` operations.
   */
static int is_right(const place *p, operation op, unsigned long many)
{
    unsigned long one, target, got;
    unsigned char first[8];
    if (op == PUT) return rank != 1 || wrong(p->base, p->bytes, 0) == 0;
    if (op == GET) return rank != 0 || wrong(p->local, p->bytes, 1) == 0;
    char *base = malloc(2 * p->bytes), *results = base + p->bytes;
    transfer(base, p->base, p->bytes);
    transfer(results, p->local + p->bytes, p->bytes);
    int right = 1;
    /* Rank 0 sent its pattern as longs: expected are their sums, or the first one swapped for zero. */
    for (size_t at = 0; at < p->bytes && right; at += 8) {
        for (int i = 0; i < 8; i++) first[i] = pattern(0, at + i);
        memcpy(&one, first, 8);
        memcpy(&target, base + at, 8);
        memcpy(&got, results + at, 8);
        if (rank == 1 && target != (op == COMPARE_AND_SWAP ? one : one * many)) right = 0;
        if (rank == 0 && op == COMPARE_AND_SWAP && many > 1 && got != one) right = 0;
        if (rank == 0 && (op == GET_ACCUMULATE || op == FETCH_AND_OP) && got != one * (many - 1)) right = 0;
        if (op == FETCH_AND_OP || op == COMPARE_AND_SWAP) break;
    }
    free(base);
    return right;
}

static result measure(const options *o, const test *t, size_t bytes)
{
    const kind *k = t->what;
    size_t granted = t->bytes_least == 8 ? bytes / 8 * 8 : bytes;
    side = rank != 0;
    place p = open_window(o, granted, k->op == GET);
    int many = iterations_of(o, granted), failed = 0, per_epoch = k->bandwidth ? o->window : 1;
    epochs(o, &p, k->op, o->warm_ups, per_epoch);
    double time = epochs(o, &p, k->op, many, per_epoch);
    if (o->validate) failed = !is_right(&p, k->op, (unsigned long)(many + o->warm_ups) * per_epoch);
    failed = anywhere(failed);
    close_window(o, &p);
    double value = k->bandwidth ? (double)granted * per_epoch / time : time;
    return (result){value, -1, -1, failed, {0}};
}

int main(int argc, char **argv)
{
    static const kind put = {PUT, 0}, get = {GET, 0}, put_bw = {PUT, 1}, get_bw = {GET, 1}, acc = {ACCUMULATE, 0},
                      get_acc = {GET_ACCUMULATE, 0}, fop = {FETCH_AND_OP, 0}, cas = {COMPARE_AND_SWAP, 0};
    static const test tests[] = {
        {"put_latency", "Latency (us)", 2, 1, measure, 0, &put, NULL},
        {"get_latency", "Latency (us)", 2, 1, measure, 0, &get, NULL},
        {"put_bw", "Bandwidth (MB/s)", 2, 1, measure, 0, &put_bw, NULL},
        {"get_bw", "Bandwidth (MB/s)", 2, 1, measure, 0, &get_bw, NULL},
        {"acc_latency", "Latency (us)", 2, 8, measure, 0, &acc, NULL},
        {"get_acc_latency", "Latency (us)", 2, 8, measure, 0, &get_acc, NULL},
        {"fop_latency", "Latency (us)", 2, 8, measure, 1, &fop, NULL},
        {"cas_latency", "Latency (us)", 2, 8, measure, 1, &cas, NULL},
        {0},
    };
    takes_devices = 1;
    return bench_main(argc, argv, "One-sided communication from rank 0 to rank 1.", tests, MPI_THREAD_SINGLE);
}
