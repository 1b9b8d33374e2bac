/* Reductions of device memory by kernels, with the host's results; what kernels cannot is done by the host; bad memory is refused.
   ranks: 1   ways: plain   env: OUTBOARD_DEVICE=sentinel OUTBOARD_DEVICE_SEED=5 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "counter.h"
#include <mpi-ext.h>

enum { N = 3000 };

static unsigned long long reductions(void) { return counter("device_reductions", MPI_T_PVAR_CLASS_COUNTER); }

static void *device(const void *host, size_t bytes)
{
    void *memory;
    MPIX_Device_alloc(bytes, &memory);
    MPIX_Device_copy(memory, host, bytes);
    return memory;
}

/* Reduces `count` elements of `extent` bytes, which `left` and `into` hold, on a device and on the host. */
static void both(MPI_Datatype type, MPI_Op op, const void *left, const void *into, int count, int extent, int by_kernel, const char *name)
{
    size_t bytes = (size_t)count * extent;
    char *host = grab(bytes), *back = grab(bytes);
    void *from = device(left, bytes), *to = device(into, bytes);
    unsigned long long begun = reductions();
    memcpy(host, into, bytes);
    MPI_Reduce_local(left, host, count, type, op);
    MPI_Reduce_local(from, to, count, type, op);
    EQUAL((int)(reductions() - begun), by_kernel, name);
    MPIX_Device_copy(back, to, bytes);
    CHECK(memcmp(host, back, bytes) == 0, "%s: other results than the host's", name);
    MPIX_Device_copy(back, from, bytes);
    CHECK(memcmp(left, back, bytes) == 0, "%s: the operand has changed", name);
    MPIX_Device_free(from), MPIX_Device_free(to), free(host), free(back);
}

static void types(void)
{
    static double reals[2][N];
    static int numbers[2][N];
    static struct { double value; int index, rest; } located[2][N];
    static struct { short value, rest; int index; } short_located[2][N];
    static long double long_reals[2][N];
    for (int who = 0; who < 2; who++)
        for (int i = 0; i < N; i++) {
            reals[who][i] = (i * 37 + who * 11) % 101 / 7.0 - 5;
            numbers[who][i] = i * 2654435761u >> (3 + who);
            located[who][i].value = (i + who) % 3, located[who][i].index = (i * 7 + who * 3) % 5, located[who][i].rest = 77 + who;
            short_located[who][i].value = (i + who) % 3, short_located[who][i].index = (i * 5 + who) % 4, short_located[who][i].rest = who;
            long_reals[who][i] = i / 3.0L;
        }
    both(MPI_DOUBLE, MPI_SUM, reals[0], reals[1], N, 8, 1, "a sum of double");
    both(MPI_FLOAT, MPI_MAX, reals[0], reals[1], N, 4, 1, "a maximum of float");
    both(MPI_C_DOUBLE_COMPLEX, MPI_PROD, reals[0], reals[1], N / 2, 16, 1, "a product of complex numbers");
    both(MPI_INT, MPI_PROD, numbers[0], numbers[1], N, 4, 1, "a product of int");
    both(MPI_UINT8_T, MPI_BXOR, numbers[0], numbers[1], N, 1, 1, "exclusive or of bytes");
    both(MPI_INT, MPI_LAND, numbers[0], numbers[1], N, 4, 1, "and of int");
    both(MPI_DOUBLE_INT, MPI_MINLOC, located[0], located[1], N, 16, 1, "places of double minima");
    both(MPI_SHORT_INT, MPI_MAXLOC, short_located[0], short_located[1], N, 8, 1, "places of short maxima");
    both(MPI_2INT, MPI_MAXLOC, numbers[0], numbers[1], N / 2, 8, 1, "places of int maxima");
    /* Devices have no long double, and need aligned elements. */
    both(MPI_LONG_DOUBLE, MPI_SUM, long_reals[0], long_reals[1], N, 16, 0, "a sum of long double");
}

static void places(void)
{
    int *host = grab(N * sizeof(int)), *sum = grab(N * sizeof(int));
    unsigned long long begun = reductions();
    fill(host, N, 1, 1);
    int *there = device(host, N * sizeof(int)), *other = device(host, N * sizeof(int));
    char *odd = (char *)device(host, N * sizeof(int)) + 1;

    MPI_Reduce_local(host, there, N, MPI_INT, MPI_SUM);
    memcpy(sum, host, N * sizeof(int));
    MPI_Reduce_local(other, sum, N, MPI_INT, MPI_SUM);
    EQUAL((int)(reductions() - begun), 0, "reductions of the host's memory");
    int *back = grab(N * sizeof(int));
    MPIX_Device_copy(back, there, N * sizeof(int));
    CHECK(memcmp(back, sum, N * sizeof(int)) == 0, "host and device differ");
    for (int i = 0; i < N; i++) CHECK(sum[i] == 2 * host[i], "a wrong sum at %d", i);
    MPI_Reduce_local(odd, other, N - 1, MPI_INT, MPI_SUM);
    EQUAL((int)(reductions() - begun), 0, "reductions of misaligned memory");
    MPI_Reduce_local(there, other, 0, MPI_INT, MPI_SUM);

    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    int code = MPI_Reduce_local(there, other, N + 1, MPI_INT, MPI_SUM), class;
    MPI_Error_class(code, &class);
    EQUAL(class, MPI_ERR_BUFFER, "more elements than were allocated");
    MPIX_Device_free(there);
    code = MPI_Reduce_local(there, other, N, MPI_INT, MPI_SUM);
    MPI_Error_class(code, &class);
    EQUAL(class, MPI_ERR_BUFFER, "an operand that was freed");
    code = MPI_Reduce_local(other, there, N, MPI_INT, MPI_SUM);
    MPI_Error_class(code, &class);
    EQUAL(class, MPI_ERR_BUFFER, "a result that was freed");
    MPIX_Device_free(other), MPIX_Device_free(odd - 1);
    free(host), free(sum), free(back);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    types();
    places();
    return end();
}
