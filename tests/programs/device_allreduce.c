/* Long reductions among ranks of one host whose buffers are device memory: kernels make them, blocking or not; else the CPU.
   ranks: 2 3 5   ways: plain proxy no-cma   env: OUTBOARD_DEVICE=sentinel OUTBOARD_DEVICE_SEED=5 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "counter.h"
#include "on_device.h"

enum { N = 20011 };

static unsigned long long reductions(void) { return counter("device_reductions", MPI_T_PVAR_CLASS_COUNTER); }

/* Checks that this many kernels have run since `begun`, on each rank. */
static void kernels(unsigned long long begun, int expected, const char *what)
{
    EQUAL((int)(reductions() - begun), expected, what);
}

/* The element of rank `who` at `i` in round `round`, and the sum of all ranks. */
static int term(int who, int i, int round) { return (who + 1) * (i % 1000 + 1) + round; }
static int sum(int i, int round) { return size * (size + 1) / 2 * (i % 1000 + 1) + size * round; }

static int *operand(int count, int round)
{
    int *host = grab(count * sizeof(int)), *memory = device(count * sizeof(int));
    for (int i = 0; i < count; i++) host[i] = term(rank, i, round);
    MPIX_Device_copy(memory, host, count * sizeof(int));
    free(host);
    return memory;
}

/* Checks that `memory` has the sums from element `first` on. */
static void is_sum(int *memory, int first, int count, int round, const char *what)
{
    int *host = grab(count * sizeof(int) + 1), wrong = 0;
    MPIX_Device_copy(host, memory, count * sizeof(int));
    for (int i = 0; i < count; i++) wrong += host[i] != sum(first + i, round);
    EQUAL(wrong, 0, what);
    free(host);
}

static void is_operand(int *memory, int count, int round, const char *what)
{
    int *host = grab(count * sizeof(int)), wrong = 0;
    MPIX_Device_copy(host, memory, count * sizeof(int));
    for (int i = 0; i < count; i++) wrong += host[i] != term(rank, i, round);
    EQUAL(wrong, 0, what);
    free(host);
}

static void whole_vectors(void)
{
    int *in = operand(N, 1), *out = device(N * sizeof(int));
    unsigned long long begun = reductions();
    MPI_Allreduce(in, out, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    is_sum(out, 0, N, 1, "wrong sums of MPI_Allreduce");
    is_operand(in, N, 1, "what MPI_Allreduce changed of its input");
    MPI_Allreduce(MPI_IN_PLACE, in, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    is_sum(in, 0, N, 1, "wrong sums in place");
    kernels(begun, 2 * (size - 1), "kernels of two MPI_Allreduce");
    MPIX_Device_free(in), MPIX_Device_free(out);
    for (int root = 0; root < size; root++) {
        in = operand(N, root), out = device(N * sizeof(int)), begun = reductions();
        MPI_Reduce(in, rank == root ? out : NULL, N, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
        is_operand(in, N, root, "what MPI_Reduce changed of its input");
        if (rank == root) is_sum(out, 0, N, root, "wrong sums of MPI_Reduce");
        MPI_Reduce(rank == root ? MPI_IN_PLACE : in, in, N, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
        if (rank == root) is_sum(in, 0, N, root, "wrong sums of MPI_Reduce in place");
        else is_operand(in, N, root, "what MPI_Reduce in place changed of its input");
        kernels(begun, rank == root ? 2 * (size - 1) : 0, "kernels of two MPI_Reduce");
        MPIX_Device_free(in), MPIX_Device_free(out);
    }
}

static void blocks(void)
{
    /* The last rank gets nothing. */
    int counts[size], first = 0, *in, *out = device(N * size * sizeof(int));
    for (int i = 0; i < size; i++) counts[i] = i == size - 1 ? 0 : N - 100 * i;
    for (int i = 0; i < rank; i++) first += counts[i];
    unsigned long long begun = reductions();
    in = operand(N * size, 2);
    MPI_Reduce_scatter(in, counts[rank] ? out : NULL, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    is_sum(out, first, counts[rank], 2, "wrong sums of MPI_Reduce_scatter");
    kernels(begun, counts[rank] ? size - 1 : 0, "kernels of MPI_Reduce_scatter");
    begun = reductions();
    MPI_Reduce_scatter_block(in, out, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    is_sum(out, rank * N, N, 2, "wrong sums of MPI_Reduce_scatter_block");
    is_operand(in, N * size, 2, "what MPI_Reduce_scatter_block changed of its input");
    kernels(begun, size - 1, "kernels of MPI_Reduce_scatter_block");
    begun = reductions();
    MPI_Reduce_scatter_block(MPI_IN_PLACE, in, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    is_sum(in, rank * N, N, 2, "wrong sums of MPI_Reduce_scatter_block in place");
    kernels(begun, 0, "kernels of MPI_Reduce_scatter_block in place");
    MPIX_Device_free(in), MPIX_Device_free(out);
}

/* A rank changes its memory after a call. The change must not reach the others, which may still be in their
   calls. */
static void reused(void)
{
    int *in = operand(N, 1), *out = device(N * sizeof(int)), *host = grab(N * sizeof(int)), *junk = grab(N * sizeof(int));
    MPIX_Device_copy(host, in, N * sizeof(int));
    memset(junk, 7, N * sizeof(int));
    for (int round = 0; round < 20; round++) {
        int who = round % size;
        MPI_Allreduce(in, out, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (rank == who) MPIX_Device_copy(out, junk, N * sizeof(int));
        else is_sum(out, 0, N, 1, "wrong sums beside a rank that writes its result");
        MPI_Reduce(in, out, N, MPI_INT, MPI_SUM, who, MPI_COMM_WORLD);
        if (rank == who) is_sum(out, 0, N, 1, "wrong sums beside ranks that write their input");
        else MPIX_Device_copy(in, junk, N * sizeof(int)), MPIX_Device_copy(in, host, N * sizeof(int));
    }
    MPIX_Device_free(in), MPIX_Device_free(out), free(host), free(junk);
}

/* Two at a time on two comms, started and ended in different orders, with a short one between. */
static void nonblocking(void)
{
    MPI_Comm other;
    MPI_Request requests[3];
    int *in[3], *out[3], odd = rank % 2, flag = 0, lengths[] = {N, N, 100};
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int i = 0; i < 3; i++) in[i] = operand(N, i), out[i] = device(N * sizeof(int));
    unsigned long long begun = reductions();
    for (int i = 0; i < 2; i++) {
        int which = i ^ odd;
        MPI_Iallreduce(in[which], out[which], N, MPI_INT, MPI_SUM, which ? other : MPI_COMM_WORLD, &requests[which]);
        if (i == 0) CHECK(MPIX_Device_free(in[which]) != MPI_SUCCESS, "a buffer in use could be freed");
    }
    MPI_Iallreduce(in[2], out[2], lengths[2], MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[2]);
    MPI_Wait(&requests[odd], MPI_STATUS_IGNORE);
    MPI_Wait(&requests[2], MPI_STATUS_IGNORE);
    while (!flag) MPI_Test(&requests[!odd], &flag, MPI_STATUS_IGNORE);
    for (int i = 0; i < 3; i++) is_sum(out[i], 0, lengths[i], i, "wrong sums of MPI_Iallreduce");
    kernels(begun, 2 * (size - 1), "kernels of MPI_Iallreduce");
    for (int i = 0; i < 3; i++) MPIX_Device_free(in[i]), MPIX_Device_free(out[i]);
    MPI_Comm_free(&other);
}

/* The last rank's memory is in the host's memory, or not aligned as kernels need it, or the type is one that no
   device has. */
static void usual_way(void)
{
    int *in = operand(N, 3), *out = device(N * sizeof(int)), *host = grab(N * sizeof(int)), is_host = rank == size - 1;
    unsigned long long begun = reductions();
    MPI_Allreduce(in, is_host ? host : out, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (is_host) MPIX_Device_copy(out, host, N * sizeof(int));
    is_sum(out, 0, N, 3, "wrong sums with host memory");
    if (is_host) MPIX_Device_copy(host, in, N * sizeof(int));
    MPI_Allreduce(MPI_IN_PLACE, is_host ? host : in, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (is_host) MPIX_Device_copy(in, host, N * sizeof(int));
    is_sum(in, 0, N, 3, "wrong sums in place with host memory");
    long double *long_in = device(N * sizeof(long double)), *long_out = device(N * sizeof(long double)), *back = grab(N * sizeof(long double));
    for (int i = 0; i < N; i++) back[i] = term(rank, i, 1);
    MPIX_Device_copy(long_in, back, N * sizeof(long double));
    MPI_Allreduce(long_in, long_out, N, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPIX_Device_copy(back, long_out, N * sizeof(long double));
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += back[i] != sum(i, 1);
    EQUAL(wrong, 0, "wrong sums of long double");
    char *odd = device((N + 1) * sizeof(int));
    MPI_Allreduce(MPI_IN_PLACE, in, N, MPI_INT, MPI_MAX, MPI_COMM_WORLD); /* As it was: all have the same. */
    kernels(begun, size - 1, "kernels of all that are aligned");
    MPI_Allreduce(in, is_host ? odd + 1 : (char *)out, N, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (is_host) MPIX_Device_copy(out, odd + 1, N * sizeof(int));
    is_sum(out, 0, N, 3, "wrong maxima with memory that is not aligned");
    MPIX_Device_free(odd);
    kernels(begun, size - 1, "kernels where there should be none");
    MPIX_Device_free(in), MPIX_Device_free(out), MPIX_Device_free(long_in), MPIX_Device_free(long_out);
    free(host), free(back);
}

/* Memory that all ranks have freed, and memory that is too short, is refused before any data are exchanged.
   */
static void bad_memory(void)
{
    int *in = operand(N, 1), *out = device(N * sizeof(int)), class;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Error_class(MPI_Allreduce(in, out, N + 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), &class);
    EQUAL(class, MPI_ERR_BUFFER, "the error of memory that is too short");
    MPIX_Device_free(out);
    MPI_Error_class(MPI_Allreduce(in, out, N, MPI_INT, MPI_SUM, MPI_COMM_WORLD), &class);
    EQUAL(class, MPI_ERR_BUFFER, "the error of memory that was freed");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPIX_Device_free(in);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    whole_vectors();
    blocks();
    reused();
    nonblocking();
    usual_way();
    bad_memory();
    return end();
}
