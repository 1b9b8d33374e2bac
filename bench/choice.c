/* Which way long messages take between two ranks after so many of them: through cells, or read by cross-memory attach.
 *
 * For each pattern and length, MANY messages to each receiver, then MORE messages whose way the counter cma_bytes tells
 * and whose times count. Outboard only (it asks for a counter by MPI_T). One line of JSON each:
 * {"pattern": ..., "bytes": ..., "read": the part of the bytes that was read, "us": the median time of a message}. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 1, MANY = 64, MORE = 64, WINDOW = 16, EXCHANGED = 4, STEPS_MAX = 1024 };

static int rank, other;
static char *out, *in;
static MPI_Request requests[2 * WINDOW];

static unsigned long long cma_bytes(void)
{
    static MPI_T_pvar_session session;
    static MPI_T_pvar_handle handle;
    unsigned long long mine = 0, all = 0;
    if (!session) {
        int provided, index, count;
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
        MPI_T_pvar_session_create(&session);
        if (MPI_T_pvar_get_index("cma_bytes", MPI_T_PVAR_CLASS_AGGREGATE, &index) != MPI_SUCCESS) {
            fprintf(stderr, "choice: this MPI has no counter cma_bytes\n");
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count);
        MPI_T_pvar_start(session, handle);
    }
    MPI_T_pvar_read(session, handle, &mine);
    MPI_Allreduce(&mine, &all, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

/* One step of each pattern. Returns the number of messages that a receiver gets. */
static int latency(int bytes)
{
    if (rank == 0) MPI_Send(out, bytes, MPI_CHAR, other, TAG, MPI_COMM_WORLD);
    MPI_Recv(in, bytes, MPI_CHAR, other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(out, bytes, MPI_CHAR, other, TAG, MPI_COMM_WORLD);
    return 1;
}
static int bandwidth(int bytes)
{
    char ack = 0;
    for (int i = 0; i < WINDOW; i++)
        if (rank == 0) MPI_Isend(out, bytes, MPI_CHAR, other, TAG, MPI_COMM_WORLD, &requests[i]);
        else MPI_Irecv(in, bytes, MPI_CHAR, other, TAG, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
    if (rank == 0) MPI_Recv(&ack, 1, MPI_CHAR, other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else MPI_Send(&ack, 1, MPI_CHAR, other, TAG, MPI_COMM_WORLD);
    return WINDOW;
}
static int exchange(int bytes)
{
    for (int i = 0; i < EXCHANGED; i++) MPI_Irecv(in, bytes, MPI_CHAR, other, TAG, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < EXCHANGED; i++) MPI_Isend(out, bytes, MPI_CHAR, other, TAG, MPI_COMM_WORLD, &requests[EXCHANGED + i]);
    MPI_Waitall(2 * EXCHANGED, requests, MPI_STATUSES_IGNORE);
    return EXCHANGED;
}

static const struct pattern {
    const char *name;
    int (*step)(int bytes);
    int received; /* ranks that receive */
} patterns[] = {{"latency", latency, 2}, {"bandwidth", bandwidth, 1}, {"exchange", exchange, 2}};

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const struct pattern *p, int bytes, int many)
{
    double times[STEPS_MAX];
    int steps = 0, count = 0;
    /* Fresh memory, whose first touches take as long as they do in programs. */
    out = malloc(bytes);
    in = malloc(bytes);
    memset(out, rank, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int done = 0; done < many; done += count) count = p->step(bytes);
    unsigned long long before = cma_bytes();
    int received = 0;
    for (; received < MORE || steps < 8; received += count) {
        double began = MPI_Wtime();
        count = p->step(bytes);
        times[steps++] = (MPI_Wtime() - began) * 1e6 / count / (p->step == latency ? 2 : 1);
    }
    double read = (double)(cma_bytes() - before) / ((double)bytes * received * p->received);
    qsort(times, steps, sizeof *times, ascending);
    if (rank == 0) printf("{\"pattern\": \"%s\", \"bytes\": %d, \"read\": %.3f, \"us\": %.3f}\n", p->name, bytes, read, times[steps / 2]);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    static const int lengths[] = {16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20};
    int many = MANY, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2) {
        if (rank == 0) fprintf(stderr, "choice: needs 2 ranks\nusage: choice [MESSAGES-BEFORE [PATTERN...]]\n");
        MPI_Finalize();
        return 2;
    }
    other = 1 - rank;
    if (argc > 1) many = atoi(argv[1]);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        int wanted = argc < 3;
        for (int at = 2; at < argc; at++) wanted |= strcmp(argv[at], patterns[i].name) == 0;
        for (size_t j = 0; wanted && j < sizeof lengths / sizeof *lengths; j++) measure(&patterns[i], lengths[j], many);
    }
    MPI_Finalize();
    return 0;
}
