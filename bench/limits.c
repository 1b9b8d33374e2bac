/* The time that the machine itself needs: bare loops on memory that the ranks share, as bounds for the other
   numbers. MPI starts the ranks and gives them the memory; no MPI call is timed. A rank has a page of flags,
   which the others read, and a buffer. "One copy": the receiver copies out of the sender's buffer. "Two
   copies": the bytes go through a ring of cells of 32 KiB (short cells: 8 KiB), and both ends copy at the
   same time. A rank that sends back what it has received, or exchanges, writes where it has read last,
   because its core has those lines already. If there are more ranks than cores, a rank that waits yields. */
/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "bench.h"

#include <sched.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { LINE = 64, SLOTS = 64, INLINE = 48, BUFFER_OFFSET = 1 << 20 };
enum { CELL = 32 << 10, SHORT_CELL = 8 << 10, CELLS_BYTES = 256 << 10 };

/* A short message, or the flag of a full cell. */
typedef struct {
    _Alignas(LINE) atomic_ulong turn;
    char bytes[INLINE];
} slot;

/* A rank's flag in a collective, with a value. */
typedef struct {
    _Alignas(2 * LINE) atomic_ulong flag;
    double value;
} place;

/* A rank's shared page: a flag for every other turn, the numbers of messages sent and received, and the ring
   into which the rank sends. */
typedef struct {
    place places[2];
    _Alignas(LINE) atomic_ulong flag;
    _Alignas(LINE) atomic_ulong taken;
    _Alignas(LINE) pid_t process;
    char *local; /* the address of `buffer` in its own rank */
    slot slots[SLOTS];
    _Alignas(LINE) char cells[CELLS_BYTES];
} page;
_Static_assert(sizeof(page) <= BUFFER_OFFSET, "the buffer begins after the page");

typedef struct {
    MPI_Win win;
    page **pages;   /* one per rank */
    char **buffers; /* one per rank, shared */
    int crowded;
    int by_turns;       /* Messages go to and fro, all through rank 0's cells. */
    unsigned long turn; /* of `meet` */
} shared;

static void pause_briefly(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

static void wait_for(const shared *s, atomic_ulong *word, unsigned long value)
{
    while ((long)(atomic_load_explicit(word, memory_order_acquire) - value) < 0)
        if (s->crowded) sched_yield();
        else pause_briefly();
}
static void show(atomic_ulong *word, unsigned long value) { atomic_store_explicit(word, value, memory_order_release); }

static shared open_shared(size_t bytes)
{
    shared s = {.pages = malloc(size * sizeof *s.pages), .buffers = malloc(size * sizeof *s.buffers)};
    void *mine;
    MPI_Win_allocate_shared((MPI_Aint)(BUFFER_OFFSET + bytes), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &s.win);
    for (int at = 0; at < size; at++) {
        MPI_Aint length;
        int unit;
        MPI_Win_shared_query(s.win, at, &length, &unit, &s.pages[at]);
        s.buffers[at] = (char *)s.pages[at] + BUFFER_OFFSET;
    }
    memset(mine, 0, sizeof(page));
    fill(s.buffers[rank], bytes, rank);
    s.pages[rank]->process = getpid();
    s.pages[rank]->local = s.buffers[rank];
    s.crowded = size > sysconf(_SC_NPROCESSORS_ONLN);
    MPI_Barrier(MPI_COMM_WORLD);
    return s;
}

static void close_shared(shared *s)
{
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&s->win);
    free(s->pages);
    free(s->buffers);
}

/* Copies like memcpy, but with vector instructions where these are faster: the C library copies long blocks
   by `rep movsb`, which on Intel's processors is slower while the nearest caches hold everything. */
#if defined __x86_64__ && defined __GNUC__
typedef long vector __attribute__((vector_size(32), aligned(1), may_alias));
__attribute__((target("avx2"))) static void copy_by_vectors(char *to, const char *from, size_t bytes)
{
    vector *out = (vector *)to;
    const vector *in = (const vector *)from;
    size_t many = bytes / sizeof *in, i = 0;
    for (; i + 4 <= many; i += 4) {
        vector a = in[i], b = in[i + 1], c = in[i + 2], d = in[i + 3];
        out[i] = a, out[i + 1] = b, out[i + 2] = c, out[i + 3] = d;
    }
    memcpy(out + i, in + i, bytes - i * sizeof *in);
}
static int vectors_suit(void) { return __builtin_cpu_is("intel") && __builtin_cpu_supports("avx2"); }
#else
static void copy_by_vectors(char *to, const char *from, size_t bytes) { memcpy(to, from, bytes); }
static int vectors_suit(void) { return 0; }
#endif
static void copy(char *to, const char *from, size_t bytes)
{
    enum { LEAST = 4 << 10, UNKNOWN = 1 };
    static size_t most = UNKNOWN;
    /* Ranks that share a core also share its caches. */
    if (most == UNKNOWN)
        most = !vectors_suit() ? 0 : size > sysconf(_SC_NPROCESSORS_ONLN) ? 32 << 10 : 128 << 10;
    if (bytes >= LEAST && bytes <= most) copy_by_vectors(to, from, bytes);
    else memcpy(to, from, bytes);
}

static size_t lines(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

/* Two copies: one message through the sender's ring, in cells of `cell` bytes. `sent` counts cells on both
   sides. */
static void put_in(const shared *s, const char *from, size_t bytes, size_t cell, unsigned long *sent)
{
    page *ring = s->pages[rank], *other = s->pages[1 - rank], *area = s->by_turns ? s->pages[0] : ring;
    size_t cells = CELLS_BYTES / cell;
    int is_long = bytes > INLINE;
    do {
        size_t part = bytes < cell ? bytes : cell;
        wait_for(s, &other->taken, *sent + 1 - (is_long ? cells : SLOTS));
        slot *to = &ring->slots[*sent % SLOTS];
        copy(is_long ? area->cells + *sent % cells * cell : to->bytes, from, part);
        show(&to->turn, ++*sent);
        from += part;
        bytes -= part;
    } while (bytes);
}

static void take_out(const shared *s, char *to, size_t bytes, size_t cell, unsigned long *got)
{
    page *ring = s->pages[1 - rank], *me = s->pages[rank], *area = s->by_turns ? s->pages[0] : ring;
    size_t cells = CELLS_BYTES / cell;
    int is_long = bytes > INLINE;
    /* With many cells the flag is written rarely, because a line that both ranks touch costs a round trip. */
    unsigned long often = is_long ? 1 : SLOTS / 4;
    do {
        size_t part = bytes < cell ? bytes : cell;
        slot *from = &ring->slots[*got % SLOTS];
        wait_for(s, &from->turn, *got + 1);
        copy(to, is_long ? area->cells + *got % cells * cell : from->bytes, part);
        if (++*got % often == 0) show(&me->taken, *got);
        to += part;
        bytes -= part;
    } while (bytes);
}

/* One copy: the receiver reads the sender's buffer, whose flag says how many messages it holds. */
static void show_message(const shared *s, unsigned long *sent) { show(&s->pages[rank]->flag, ++*sent); }
static void copy_message(const shared *s, char *to, size_t bytes, unsigned long *got)
{
    wait_for(s, &s->pages[1 - rank]->flag, ++*got);
    memcpy(to, s->buffers[1 - rank], bytes);
}
static void strided_message(const shared *s, char *to, size_t bytes, unsigned long *got)
{
    wait_for(s, &s->pages[1 - rank]->flag, ++*got);
    const double *in = (const double *)s->buffers[1 - rank];
    double *out = (double *)to;
    for (size_t i = 0; i < bytes / 8; i++) out[2 * i] = in[2 * i];
}

typedef enum { ONE, TWO, TWO_SHORT, STRIDED } way;

static void send_by(way w, const shared *s, char *out, size_t bytes, unsigned long *sent)
{
    if (w == TWO) put_in(s, out, bytes, CELL, sent);
    else if (w == TWO_SHORT) put_in(s, out, bytes, SHORT_CELL, sent);
    else show_message(s, sent);
}
static void receive_by(way w, const shared *s, char *in, size_t bytes, unsigned long *got)
{
    if (w == TWO) take_out(s, in, bytes, CELL, got);
    else if (w == TWO_SHORT) take_out(s, in, bytes, SHORT_CELL, got);
    else if (w == ONE) copy_message(s, in, bytes, got);
    else strided_message(s, in, bytes, got);
}

static result latency(const options *o, const test *t, size_t bytes)
{
    enum { BATCHES = 10 };
    way w = *(const way *)t->what;
    size_t spread = w == STRIDED ? 2 * bytes : bytes;
    shared s = open_shared(lines(spread));
    s.by_turns = 1;
    char *in = buffer(o, spread, -1), *out = buffer(o, spread, rank);
    unsigned long sent = 0, got = 0;
    double times[BATCHES];
    for (int b = -1; b < BATCHES && rank < 2; b++) {
        int many = b < 0 ? o->warm_ups : iterations_of(o, bytes) / BATCHES + 1;
        double began = clock_us();
        for (int i = 0; i < many; i++) {
            if (rank == 0) send_by(w, &s, out, bytes, &sent);
            receive_by(w, &s, in, bytes, &got);
            if (rank == 1) send_by(w, &s, out, bytes, &sent);
        }
        if (b >= 0) times[b] = (clock_us() - began) / many / 2;
    }
    double time = rank < 2 ? median(times, BATCHES) : 0;
    int failed = o->validate && rank < 2 && w != STRIDED && wrong(in, bytes, 1 - rank) > 0;
    release(o, in);
    release(o, out);
    close_shared(&s);
    return (result){time, -1, -1, anywhere(failed), {0}};
}

/* Windows of messages from rank 0 to rank 1, as in `p2p bw`. */
static result bandwidth(const options *o, const test *t, size_t bytes)
{
    way w = *(const way *)t->what;
    shared s = open_shared(lines(bytes));
    size_t apart = o->reuse ? 0 : bytes;
    char *in = buffer(o, o->reuse ? bytes : bytes * o->window, -1), *out = buffer(o, bytes, rank);
    unsigned long sent = 0, got = 0, acks = 0;
    int windows = iterations_of(o, bytes) / 10 + 1;
    double began = 0;
    for (int i = -(o->warm_ups / 10 + 1); i < windows && rank < 2; i++) {
        if (i == 0) began = clock_us();
        for (int k = 0; k < o->window; k++)
            if (rank == 0) send_by(w, &s, out, bytes, &sent);
            else receive_by(w, &s, in + k * apart, bytes, &got);
        if (rank == 0) wait_for(&s, &s.pages[1]->flag, ++acks);
        else show(&s.pages[1]->flag, ++acks);
    }
    double time = clock_us() - began;
    int failed = 0;
    for (int k = 0; k < o->window && o->validate && rank == 1; k++) failed |= wrong(in + k * apart, bytes, 0) > 0;
    release(o, in);
    release(o, out);
    close_shared(&s);
    return (result){(double)bytes * o->window * windows / time, -1, -1, anywhere(failed), {0}};
}

/* Rank 0 accesses rank 1's memory, each time by a call, and fences as a flush must. */
typedef enum { STORE, LOAD, ADD } act;
static __attribute__((noinline)) void reach(act a, char *there, char *here, size_t bytes)
{
    if (a == STORE) memcpy(there, here, bytes);
    else if (a == LOAD) memcpy(here, there, bytes);
    else *(long *)here = atomic_fetch_add((_Atomic long *)there, 1);
}
static result one_sided(const options *o, const test *t, size_t bytes)
{
    act a = *(const act *)t->what;
    shared s = open_shared(lines(bytes));
    char *mine = buffer(o, bytes, rank);
    int many = iterations_of(o, bytes);
    double began = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = -o->warm_ups; i < many && rank == 0; i++) {
        if (i == 0) began = clock_us();
        reach(a, s.buffers[1], mine, bytes);
        atomic_thread_fence(memory_order_seq_cst);
    }
    double time = (clock_us() - began) / many;
    MPI_Barrier(MPI_COMM_WORLD);
    int failed = o->validate && a == STORE && rank == 1 && wrong(s.buffers[1], bytes, 0) > 0;
    release(o, mine);
    close_shared(&s);
    return (result){time, -1, -1, anywhere(failed), {0}};
}

/* Each rank begins its next turn and waits until the others have begun it. */
static void come(shared *s)
{
    s->turn++;
    show(&s->pages[rank]->places[s->turn % 2].flag, s->turn);
}
static void await(const shared *s, int at) { wait_for(s, &s->pages[at]->places[s->turn % 2].flag, s->turn); }
static void meet(shared *s)
{
    come(s);
    for (int at = 1; at < size; at++) await(s, (rank + at) % size);
}

/* A value of 8 bytes beside each flag. */
static void flat(shared *s, char *in, size_t bytes)
{
    double sum = 0;
    s->pages[rank]->places[(s->turn + 1) % 2].value = rank;
    meet(s);
    for (int at = 0; at < size; at++) sum += s->pages[at]->places[s->turn % 2].value;
    memcpy(in, &sum, sizeof sum);
}
static void alltoall(shared *s, char *in, size_t bytes)
{
    meet(s);
    for (int at = 0; at < size; at++) {
        int from = (rank + at) % size;
        memcpy(in + from * bytes, s->buffers[from] + rank * bytes, bytes);
    }
    meet(s);
}
/* Work in the middle of a collective, which touches no memory. */
static double work_us;
static void work(void)
{
    if (work_us > 0)
        for (double began = clock_us(); clock_us() - began < work_us;) continue;
}
/* The same from private memory through the shared buffers, which no rank reads any more when `collective`
   starts. In every other call each block goes through the buffer of the rank that receives it. */
static char *passage(const shared *s, int crosses, int from, int to, size_t bytes)
{
    return crosses ? s->buffers[to] + from * bytes : s->buffers[from] + to * bytes;
}
static void alltoall_two_copies(shared *s, char *in, size_t bytes)
{
    char *out = in + (size + 2) * bytes;
    int crosses = s->turn / 2 % 2;
    for (int at = 1; at < size; at++) {
        int to = (rank + at) % size;
        copy(passage(s, crosses, rank, to, bytes), out + to * bytes, bytes);
    }
    copy(in + rank * bytes, out + rank * bytes, bytes);
    come(s);
    work();
    for (int at = 1; at < size; at++) {
        int from = (rank + at) % size;
        await(s, from);
        copy(in + from * bytes, passage(s, crosses, from, rank, bytes), bytes);
    }
}
/* The same through the kernel, which copies from one process's memory into another's. */
static void alltoall_by_kernel(shared *s, char *in, size_t bytes)
{
    char *out = in + (size + 2) * bytes;
    s->pages[rank]->local = out;
    come(s);
    copy(in + rank * bytes, out + rank * bytes, bytes);
    work();
    for (int at = 1; at < size; at++) {
        int from = (rank + at) % size;
        await(s, from);
        struct iovec here = {in + from * bytes, bytes}, there = {s->pages[from]->local + rank * bytes, bytes};
        if (process_vm_readv(s->pages[from]->process, &here, 1, &there, 1, 0) != (ssize_t)bytes)
            stop("a process may not read another's memory here (process_vm_readv)");
    }
    meet(s);
}
static void add(float *sums, const float *mine, const float *other, size_t many)
{
    for (size_t i = 0; i < many; i++) sums[i] = mine[i] + other[i];
}
/* Each rank publishes its vector except its own part. In that part it adds up all vectors, in steps that stay
   in the cache, and stores the sum where the others published theirs. */
static void allreduce(shared *s, char *in, size_t bytes)
{
    enum { STEP = 32 << 10 };
    size_t part = bytes / 4 / size, begin = rank * part;
    const char *out = in + (size + 2) * bytes;
    copy(s->buffers[rank], out, begin * 4);
    copy(s->buffers[rank] + (begin + part) * 4, out + (begin + part) * 4, (size - 1 - rank) * part * 4);
    meet(s);
    for (size_t i = begin; i < begin + part; i += STEP) {
        size_t many = begin + part - i < STEP ? begin + part - i : STEP;
        float *sums = (float *)in + i;
        for (int at = 1; at < size; at++)
            add(sums, at == 1 ? (const float *)out + i : sums, (float *)s->buffers[(rank + at) % size] + i, many);
        for (int at = 1; at < size; at++) copy(s->buffers[(rank + at) % size] + i * 4, (char *)sums, many * 4);
    }
    meet(s);
    for (int at = 1; at < size; at++) {
        size_t from = (rank + at) % size * part * 4;
        copy(in + from, s->buffers[rank] + from, part * 4);
    }
}

/* Whether one more exchange gives any rank wrong bytes. The other tests have no vectors of their own to
   check. */
static int is_wrong(shared *s, void (*body)(shared *, char *, size_t), char *in, size_t bytes)
{
    char *out = in + (size + 2) * bytes;
    float *sums = (float *)in, *mine = (float *)out;
    int wrongs = 0, ranks = size * (size - 1) / 2;
    meet(s);
    if (body == allreduce) {
        for (size_t i = 0; i < bytes / 4; i++) mine[i] = rank + i % 5;
        body(s, in, bytes);
        /* A remainder that the ranks cannot divide belongs to no part. */
        for (size_t i = 0; i < bytes / 4 / size * size; i++) wrongs += sums[i] != ranks + size * (float)(i % 5);
    } else if (body == alltoall_two_copies || body == alltoall_by_kernel) {
        for (size_t i = 0; i < size * bytes; i++) out[i] = (char)(rank * 7 + i / bytes * 3 + i % bytes);
        body(s, in, bytes);
        for (size_t i = 0; i < size * bytes; i++) wrongs += in[i] != (char)(i / bytes * 7 + rank * 3 + i % bytes);
    } else if (body == flat) {
        double sum;
        body(s, in, bytes);
        memcpy(&sum, in, sizeof sum);
        wrongs = sum != ranks;
    }
    return wrongs > 0;
}

static result collective(const options *o, const test *t, size_t bytes)
{
    void (*body)(shared *, char *, size_t) = *(void (*const *)(shared *, char *, size_t))t->what;
    shared s = open_shared(lines((size + 2) * bytes));
    char *in = buffer(o, (2 * size + 2) * bytes, -1);
    int many = iterations_of(o, bytes);
    double sum = 0;
    for (int i = -o->warm_ups; i < many; i++) {
        meet(&s);
        double began = clock_us();
        body(&s, in, bytes);
        if (i >= 0) sum += clock_us() - began;
    }
    result r = over_ranks(sum / many);
    /* The check runs twice, because blocks have two routes. */
    r.failed = o->validate && (anywhere(is_wrong(&s, body, in, bytes)) | anywhere(is_wrong(&s, body, in, bytes)));
    release(o, in);
    close_shared(&s);
    return r;
}

/* The same beside work that takes as long as the collective alone, as in `overlap`. */
static result beside_work(const options *o, const test *t, size_t bytes)
{
    work_us = collective(o, t, bytes).value;
    result r = collective(o, t, bytes);
    work_us = 0;
    return r;
}

/* System calls: an empty one, a yield, a read of the other rank's memory, starting programs. */
static result nothing(const options *o, const test *t, size_t bytes)
{
    double began = clock_us();
    for (int i = 0; i < o->iterations; i++) getppid();
    return over_ranks((clock_us() - began) / o->iterations);
}
static result give_way(const options *o, const test *t, size_t bytes)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double began = clock_us();
    for (int i = 0; i < o->iterations; i++) sched_yield();
    return over_ranks((clock_us() - began) / o->iterations);
}
static result read_other(const options *o, const test *t, size_t bytes)
{
    shared s = open_shared(lines(bytes));
    char *in = buffer(o, bytes, -1);
    int many = iterations_of(o, bytes), failed = 0;
    double began = clock_us();
    for (int i = 0; i < many && rank == 0 && !failed; i++) {
        struct iovec local = {in, bytes}, remote = {s.pages[1]->local, bytes};
        failed = process_vm_readv(s.pages[1]->process, &local, 1, &remote, 1, 0) != (ssize_t)bytes;
    }
    double time = (clock_us() - began) / many;
    if (anywhere(failed)) stop("a process may not read another's memory here (process_vm_readv)");
    release(o, in);
    close_shared(&s);
    return (result){time, -1, -1, 0, {0}};
}
/* Starts as many empty programs as there are ranks at once, and waits for them. */
static result start(const options *o, const test *t, size_t bytes)
{
    static char *arguments[] = {"true", NULL};
    double began = clock_us();
    pid_t child;
    for (int at = 0; at < size && rank == 0; at++)
        if (posix_spawnp(&child, "true", NULL, NULL, arguments, environ)) stop("cannot start `true`");
    while (rank == 0 && wait(NULL) > 0) continue;
    return (result){(clock_us() - began) / 1e3, -1, -1, 0, {0}};
}

int main(int argc, char **argv)
{
    static const way one = ONE, two = TWO, two_short = TWO_SHORT, strided = STRIDED;
    static const act store = STORE, load = LOAD, add = ADD;
    static void (*const flat_body)(shared *, char *, size_t) = flat;
    static void (*const to_all)(shared *, char *, size_t) = alltoall;
    static void (*const to_all_twice)(shared *, char *, size_t) = alltoall_two_copies;
    static void (*const to_all_by_kernel)(shared *, char *, size_t) = alltoall_by_kernel;
    static void (*const sum)(shared *, char *, size_t) = allreduce;
    static const test tests[] = {
        {"latency_one_copy", "Latency (us)", 2, 1, latency, 0, &one, NULL},
        {"latency_two_copies", "Latency (us)", 2, 1, latency, 0, &two, NULL},
        {"latency_short_cells", "Latency (us)", 2, 1, latency, 0, &two_short, NULL},
        {"latency_strided", "Latency (us)", 2, 16, latency, 0, &strided, NULL},
        {"bw_one_copy", "Bandwidth (MB/s)", 2, 1, bandwidth, 0, &one, NULL},
        {"bw_two_copies", "Bandwidth (MB/s)", 2, 1, bandwidth, 0, &two, NULL},
        {"bw_short_cells", "Bandwidth (MB/s)", 2, 1, bandwidth, 0, &two_short, NULL},
        {"put", "Latency (us)", 2, 1, one_sided, 0, &store, NULL},
        {"get", "Latency (us)", 2, 1, one_sided, 0, &load, NULL},
        {"fetch_and_add", "Latency (us)", 2, 8, one_sided, 1, &add, NULL},
        {"flat", "Avg Latency(us)", 2, 8, collective, 0, &flat_body, NULL},
        {"alltoall", "Avg Latency(us)", 2, 1, collective, 0, &to_all, NULL},
        {"alltoall_two_copies", "Avg Latency(us)", 2, 1, collective, 0, &to_all_twice, NULL},
        {"alltoall_by_kernel", "Avg Latency(us)", 2, 1, collective, 0, &to_all_by_kernel, NULL},
        {"ialltoall_by_kernel", "Overall(us)", 2, 1, beside_work, 0, &to_all_by_kernel, NULL},
        {"ialltoall_two_copies", "Overall(us)", 2, 1, beside_work, 0, &to_all_twice, NULL},
        {"allreduce", "Avg Latency(us)", 2, 64, collective, 0, &sum, NULL},
        {"syscall", "Latency (us)", 1, 0, nothing, 1, NULL, NULL},
        {"yield", "Latency (us)", 1, 0, give_way, 1, NULL, NULL},
        {"read_other", "Latency (us)", 2, 1, read_other, 0, NULL, NULL},
        {"start", "Time (ms)", 1, 0, start, 1, NULL, NULL},
        {0},
    };
    return bench_main(argc, argv, "What the machine itself needs: bare loops and system calls.", tests, MPI_THREAD_SINGLE);
}
