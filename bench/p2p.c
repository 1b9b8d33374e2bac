/* Point-to-point: latency, bandwidth, message rate, threads, derived datatypes, partitioned, a token ring.
 *
 * Ranks are paired: rank i of the first half with rank i of the second; most tests use the first pair only. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 1, ACK_TAG = 2 };

static result one(double value, int failed) { return (result){value, -1, -1, anywhere(failed), {0}}; }

/* Rank of the partner in a pair, or -1 for ranks that take no part. */
static int partner(int pairs)
{
    int half = size / 2;
    if (rank < half) return rank < pairs ? rank + half : -1;
    return rank - half < pairs && rank < 2 * half ? rank - half : -1;
}
static int is_first(void) { return side == 0; }

/* Half a round trip of `count` elements in microseconds: the median of some batches, since one interrupt spoils a mean.
   */
static double ping_pong(const options *o, size_t bytes, void *out, void *in, int count, MPI_Datatype type, int other)
{
    enum { BATCHES = 10 };
    int batch = iterations_of(o, bytes) / BATCHES + 1;
    double times[BATCHES];
    for (int b = -1; b < BATCHES; b++) {
        int many = b < 0 ? o->warm_ups : batch;
        double began = clock_us();
        for (int i = 0; i < many; i++)
            if (is_first()) {
                MPI_Send(out, count, type, other, TAG, MPI_COMM_WORLD);
                MPI_Recv(in, count, type, other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            } else {
                MPI_Recv(in, count, type, other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Send(out, count, type, other, TAG, MPI_COMM_WORLD);
            }
        if (b >= 0) times[b] = (clock_us() - began) / many / 2;
    }
    return median(times, BATCHES);
}

static result latency(const options *o, const test *t, size_t bytes)
{
    MPI_Datatype type = type_or(o, MPI_CHAR);
    void *out = buffer(o, bytes, rank), *in = buffer(o, bytes, -1);
    int other = partner(1), failed = 0;
    double time = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (other >= 0) {
        time = ping_pong(o, bytes, out, in, count_of(type, bytes), type, other);
        failed = o->validate && wrong(in, bytes, other) > 0;
    }
    release(o, out);
    release(o, in);
    return one(time, failed);
}

/* Windows of messages from each first rank to its second (and back, if `both`). Returns MB/s of all pairs
   together. */
static double stream(const options *o, size_t bytes, int pairs, int both, int *failed)
{
    int windows = iterations_of(o, bytes) / 10 + 1, other = partner(pairs);
    size_t apart = o->reuse ? 0 : bytes;
    char *out = buffer(o, bytes, rank), *in = buffer(o, o->reuse ? bytes : bytes * o->window, -1);
    MPI_Request *requests = malloc(2 * o->window * sizeof *requests);
    MPI_Datatype type = type_or(o, MPI_CHAR);
    int count = count_of(type, bytes);
    char ack = 0;
    double began = 0;
    for (int w = -(o->warm_ups / 10 + 1); w < windows; w++) {
        if (w == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            began = clock_us();
        }
        if (other < 0) continue;
        int many = 0;
        if (!is_first() || both)
            for (int i = 0; i < o->window; i++)
                MPI_Irecv(in + i * apart, count, type, other, TAG, MPI_COMM_WORLD, &requests[many++]);
        if (is_first() || both)
            for (int i = 0; i < o->window; i++)
                MPI_Isend(out, count, type, other, TAG, MPI_COMM_WORLD, &requests[many++]);
        MPI_Waitall(many, requests, MPI_STATUSES_IGNORE);
        if (is_first())
            MPI_Recv(&ack, 1, MPI_CHAR, other, ACK_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else
            MPI_Send(&ack, 1, MPI_CHAR, other, ACK_TAG, MPI_COMM_WORLD);
    }
    double slowest = over_ranks(clock_us() - began).max;
    if (o->validate && other >= 0 && (!is_first() || both))
        for (int i = 0; i < o->window; i++) *failed |= wrong(in + i * apart, bytes, other) > 0;
    free(requests);
    release(o, in);
    release(o, out);
    return (double)bytes * o->window * windows * pairs * (both ? 2 : 1) / slowest;
}

static result bandwidth(const options *o, const test *t, size_t bytes)
{
    int failed = 0;
    double rate = stream(o, bytes, 1, 0, &failed);
    return one(rate, failed);
}

static result bidirectional(const options *o, const test *t, size_t bytes)
{
    int failed = 0;
    double rate = stream(o, bytes, 1, 1, &failed);
    return one(rate, failed);
}

static result message_rate(const options *o, const test *t, size_t bytes)
{
    int failed = 0;
    double rate = stream(o, bytes, size / 2, 0, &failed);
    result r = one(rate, failed);
    r.more[0] = 1e6 * rate / bytes;
    return r;
}

static result multi_latency(const options *o, const test *t, size_t bytes)
{
    MPI_Datatype type = type_or(o, MPI_CHAR);
    void *out = buffer(o, bytes, rank), *in = buffer(o, bytes, -1);
    int other = partner(size / 2), failed = 0;
    double time = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (other >= 0) {
        time = ping_pong(o, bytes, out, in, count_of(type, bytes), type, other);
        failed = o->validate && wrong(in, bytes, other) > 0;
    }
    release(o, out);
    release(o, in);
    result r = over_ranks(time);
    r.failed = anywhere(failed);
    return r;
}

/* Latency if each message is a persistent request that is started again (MPI 5.0, section 3.9). */
static result persistent_latency(const options *o, const test *t, size_t bytes)
{
    MPI_Datatype type = type_or(o, MPI_CHAR);
    void *out = buffer(o, bytes, rank), *in = buffer(o, bytes, -1);
    int other = partner(1), failed = 0, many = iterations_of(o, bytes), count = count_of(type, bytes);
    double time = 0;
    if (other >= 0) {
        MPI_Request send, recv;
        MPI_Send_init(out, count, type, other, TAG, MPI_COMM_WORLD, &send);
        MPI_Recv_init(in, count, type, other, TAG, MPI_COMM_WORLD, &recv);
        for (int i = -o->warm_ups; i < many; i++) {
            if (i == 0) time = clock_us();
            MPI_Start(is_first() ? &send : &recv);
            MPI_Wait(is_first() ? &send : &recv, MPI_STATUS_IGNORE);
            MPI_Start(is_first() ? &recv : &send);
            MPI_Wait(is_first() ? &recv : &send, MPI_STATUS_IGNORE);
        }
        time = (clock_us() - time) / many / 2;
        MPI_Request_free(&send);
        MPI_Request_free(&recv);
        failed = o->validate && wrong(in, bytes, other) > 0;
    }
    release(o, out);
    release(o, in);
    return one(time, failed);
}

/* One thread of the first rank for each thread of the second; each pair has a tag of its own. */
typedef struct {
    const options *o;
    size_t bytes;
    int thread, other, failed;
    double time;
} strand;

static void *exchange(void *argument)
{
    strand *s = argument;
    MPI_Datatype type = type_or(s->o, MPI_CHAR);
    int many = iterations_of(s->o, s->bytes), count = count_of(type, s->bytes), tag = TAG + s->thread;
    char *out = buffer(s->o, s->bytes, rank + 100 * s->thread), *in = buffer(s->o, s->bytes, -1);
    double began = 0;
    for (int i = -s->o->warm_ups; i < many; i++) {
        if (i == 0) began = clock_us();
        if (is_first()) MPI_Send(out, count, type, s->other, tag, MPI_COMM_WORLD);
        MPI_Recv(in, count, type, s->other, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (!is_first()) MPI_Send(out, count, type, s->other, tag, MPI_COMM_WORLD);
    }
    s->time = (clock_us() - began) / many / 2;
    s->failed = s->o->validate && wrong(in, s->bytes, s->other + 100 * s->thread) > 0;
    release(s->o, in);
    release(s->o, out);
    return NULL;
}

static result thread_latency(const options *o, const test *t, size_t bytes)
{
    int other = partner(1), failed = 0;
    pthread_t threads[o->threads];
    strand strands[o->threads];
    double sum = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int t = 0; other >= 0 && t < o->threads; t++) {
        strands[t] = (strand){o, bytes, t, other, 0, 0};
        if (pthread_create(&threads[t], NULL, exchange, &strands[t])) stop("no thread %d", t);
    }
    for (int t = 0; other >= 0 && t < o->threads; t++) {
        pthread_join(threads[t], NULL);
        sum += strands[t].time;
        failed |= strands[t].failed;
    }
    return one(sum / o->threads, failed);
}

/* The layout of the pieces of a derived datatype. */
typedef struct {
    MPI_Datatype (*make)(int doubles);
} layout;

/* Latency of `bytes` bytes of data in pieces that are spread over twice the memory. */
static result pieces(const options *o, const test *t, size_t bytes)
{
    int doubles = (int)(bytes / sizeof(double)), other = partner(1), failed = 0;
    MPI_Datatype type = ((const layout *)t->what)->make(doubles);
    MPI_Type_commit(&type);
    size_t spread = 2 * doubles * sizeof(double);
    void *out = buffer(o, 2 * bytes + 64, 0), *in = buffer(o, 2 * bytes + 64, -1);
    double *host = malloc(spread);
    for (int i = 0; i < 2 * doubles; i++) host[i] = rank + i;
    transfer(out, host, spread);
    double time = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (other >= 0) {
        time = ping_pong(o, bytes, out, in, 1, type, other);
        if (o->validate) {
            /* The received data, packed, must equal the partner's buffer, packed. */
            int here = 0, there = 0;
            char *got = malloc(bytes), *sent = malloc(bytes);
            MPI_Pack(in, 1, type, got, (int)bytes, &here, MPI_COMM_SELF);
            for (int i = 0; i < 2 * doubles; i++) host[i] = other + i;
            MPI_Pack(host, 1, type, sent, (int)bytes, &there, MPI_COMM_SELF);
            failed = here != there || memcmp(got, sent, here) != 0;
            free(got);
            free(sent);
        }
    }
    MPI_Type_free(&type);
    free(host);
    release(o, out);
    release(o, in);
    return one(time, failed);
}

static MPI_Datatype make_vector(int doubles)
{
    MPI_Datatype type;
    MPI_Type_vector(doubles, 1, 2, MPI_DOUBLE, &type);
    return type;
}
static MPI_Datatype make_subarray(int doubles)
{
    int columns = doubles < 16 ? doubles : 16, rows = doubles / columns;
    int sizes[2] = {rows, 2 * columns}, part[2] = {rows, columns}, starts[2] = {0, columns / 2};
    MPI_Datatype type;
    MPI_Type_create_subarray(2, sizes, part, starts, MPI_ORDER_C, MPI_DOUBLE, &type);
    return type;
}
static MPI_Datatype make_indexed(int doubles)
{
    int *displacements = malloc(doubles * sizeof *displacements);
    for (int i = 0; i < doubles; i++) displacements[i] = 2 * i + i % 2;
    MPI_Datatype type;
    MPI_Type_create_indexed_block(doubles, 1, displacements, MPI_DOUBLE, &type);
    free(displacements);
    return type;
}
static MPI_Datatype make_struct(int doubles)
{
    /* {int, 4 bytes of padding, double}: half of the data are ints. */
    int lengths[2] = {2, 1};
    MPI_Aint displacements[2] = {0, 16};
    MPI_Datatype parts[2] = {MPI_INT, MPI_DOUBLE}, piece, spaced, type;
    MPI_Type_create_struct(2, lengths, displacements, parts, &piece);
    MPI_Type_create_resized(piece, 0, 32, &spaced);
    MPI_Type_contiguous(doubles / 2, spaced, &type);
    MPI_Type_free(&piece);
    MPI_Type_free(&spaced);
    return type;
}

static const layout vector = {make_vector}, subarray = {make_subarray}, indexed = {make_indexed}, structure = {make_struct};

/* A message of 8 partitions, marked ready one after the other (MPI 5.0, section 4.2): the time from start to complete on both
   sides. */
static result partitioned(const options *o, const test *t, size_t bytes)
{
    enum { PARTS = 8 };
    int other = partner(1), failed = 0, many = iterations_of(o, bytes);
    void *memory = buffer(o, bytes, rank);
    double time = 0;
    if (other >= 0) {
        MPI_Request request;
        if (is_first())
            MPI_Psend_init(memory, PARTS, (MPI_Count)(bytes / PARTS), MPI_CHAR, other, TAG, MPI_COMM_WORLD, MPI_INFO_NULL,
                           &request);
        else
            MPI_Precv_init(memory, PARTS, (MPI_Count)(bytes / PARTS), MPI_CHAR, other, TAG, MPI_COMM_WORLD, MPI_INFO_NULL,
                           &request);
        double began = 0;
        for (int i = -o->warm_ups; i < many; i++) {
            if (i == 0) began = clock_us();
            MPI_Start(&request);
            for (int part = 0; is_first() && part < PARTS; part++) MPI_Pready(part, request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        time = (clock_us() - began) / many;
        MPI_Request_free(&request);
        failed = o->validate && wrong(memory, bytes, is_first() ? rank : other) > 0;
    }
    release(o, memory);
    return one(time, failed);
}

/* How a rank waits for the token of a ring. */
typedef struct {
    void (*take)(void *memory, int count, MPI_Datatype type, int from);
} taking;

static void by_recv(void *memory, int count, MPI_Datatype type, int from)
{
    MPI_Recv(memory, count, type, from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static void by_iprobe(void *memory, int count, MPI_Datatype type, int from)
{
    for (int flag = 0; !flag;) MPI_Iprobe(from, TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    by_recv(memory, count, type, from);
}
static void by_test(void *memory, int count, MPI_Datatype type, int from)
{
    MPI_Request request;
    MPI_Irecv(memory, count, type, from, TAG, MPI_COMM_WORLD, &request);
    for (int flag = 0; !flag;) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
}

static const taking receiving = {by_recv}, probing = {by_iprobe}, testing = {by_test};

/* One token goes round all ranks. Returns microseconds per hop. */
static result ring(const options *o, const test *t, size_t bytes)
{
    MPI_Datatype type = type_or(o, MPI_CHAR);
    void *out = buffer(o, bytes, 0), *in = buffer(o, bytes, -1);
    int laps = iterations_of(o, bytes), count = count_of(type, bytes), up = (rank + 1) % size, down = (rank + size - 1) % size;
    double began = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int lap = -o->warm_ups; lap < laps; lap++) {
        if (lap == 0) began = clock_us();
        if (rank == 0) MPI_Send(out, count, type, up, TAG, MPI_COMM_WORLD);
        ((const taking *)t->what)->take(in, count, type, down);
        if (rank != 0) MPI_Send(out, count, type, up, TAG, MPI_COMM_WORLD);
    }
    double time = (clock_us() - began) / laps / size;
    int failed = o->validate && wrong(in, bytes, 0) > 0;
    release(o, out);
    release(o, in);
    return one(time, failed);
}

static const char *const rate_column[] = {"Messages/s", NULL};

static const test tests[] = {
    {"latency", "Latency (us)", 2, 0, latency, 0, NULL, NULL},
    {"multi_latency", "Avg Latency(us)", 2, 0, multi_latency, 0, NULL, NULL},
    {"bw", "Bandwidth (MB/s)", 2, 1, bandwidth, 0, NULL, NULL},
    {"bibw", "Bandwidth (MB/s)", 2, 1, bidirectional, 0, NULL, NULL},
    {"mbw_mr", "MB/s", 2, 1, message_rate, 0, NULL, rate_column},
    {"latency_persistent", "Latency (us)", 2, 0, persistent_latency, 0, NULL, NULL},
    {"latency_mt", "Latency (us)", 2, 0, thread_latency, 0, NULL, NULL},
    {"latency_vector", "Latency (us)", 2, 16, pieces, 0, &vector, NULL},
    {"latency_subarray", "Latency (us)", 2, 16, pieces, 0, &subarray, NULL},
    {"latency_indexed", "Latency (us)", 2, 16, pieces, 0, &indexed, NULL},
    {"latency_struct", "Latency (us)", 2, 16, pieces, 0, &structure, NULL},
    {"partitioned", "Latency (us)", 2, 8, partitioned, 0, NULL, NULL},
    {"ring", "Time per hop (us)", 2, 0, ring, 0, &receiving, NULL},
    {"ring_iprobe", "Time per hop (us)", 2, 0, ring, 0, &probing, NULL},
    {"ring_test", "Time per hop (us)", 2, 0, ring, 0, &testing, NULL},
    {0},
};

int main(int argc, char **argv)
{
    /* Only the threaded test asks for threads, because an MPI may be slower with them. */
    int level = MPI_THREAD_SINGLE;
    for (int at = 1; at < argc; at++)
        if (strcmp(argv[at], "latency_mt") == 0 || strcmp(argv[at], "all") == 0) level = MPI_THREAD_MULTIPLE;
    takes_devices = 1;
    return bench_main(argc, argv, "Point-to-point communication between pairs of ranks.", tests, level);
}
