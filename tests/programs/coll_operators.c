/* Predefined operators on predefined types, short and long, against the definition. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "both.h"
#include <complex.h>
#include <math.h>
#include <stdbool.h>

/* Small whole numbers: sums and products of floating point are exact in any order. */
static int small(int who, int i) { return (who * 7 + i * 3) % 5 - 1; }

#define NUMBERS(T, mpi_type, count) \
    do { \
        T *out = grab((count) * sizeof(T)), *in = grab((count) * sizeof(T)); \
        for (int i = 0; i < (count); i++) out[i] = (T)small(rank, i); \
        MPI_Op ops[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX}; \
        for (int o = 0; o < 4; o++) { \
            memset(in, 255, (count) * sizeof(T)); \
            BOTH(Allreduce, allreduce, out, in, count, mpi_type, ops[o], MPI_COMM_WORLD); \
            checked++; \
            for (int i = 0; i < (count); i++) { \
                T want = (T)small(0, i); \
                for (int r = 1; r < size; r++) { \
                    T x = (T)small(r, i); \
                    want = (T)(o == 0 ? want + x : o == 1 ? want * x : o == 2 ? (x < want ? x : want) \
                                                                            : (x > want ? x : want)); \
                } \
                if (in[i] != want) { \
                    check_failed(__FILE__, __LINE__, "%s, operator %d, element %d of %d: %Lg, not %Lg", #mpi_type, o, \
                                 i, count, (long double)in[i], (long double)want); \
                    break; \
                } \
            } \
        } \
        free(in); \
        free(out); \
    } while (0)

#define BITS(T, mpi_type, count) \
    do { \
        T *out = grab((count) * sizeof(T)), *in = grab((count) * sizeof(T)); \
        for (int i = 0; i < (count); i++) out[i] = (T)value(rank, i, 0); \
        MPI_Op ops[] = {MPI_BAND, MPI_BOR, MPI_BXOR}; \
        for (int o = 0; o < 3; o++) { \
            BOTH(Allreduce, allreduce, out, in, count, mpi_type, ops[o], MPI_COMM_WORLD); \
            checked++; \
            for (int i = 0; i < (count); i++) { \
                T want = (T)value(0, i, 0); \
                for (int r = 1; r < size; r++) { \
                    T x = (T)value(r, i, 0); \
                    want = (T)(o == 0 ? want & x : o == 1 ? want | x : want ^ x); \
                } \
                if (in[i] != want) { \
                    check_failed(__FILE__, __LINE__, "%s, bits %d, element %d of %d", #mpi_type, o, i, count); \
                    break; \
                } \
            } \
        } \
        free(in); \
        free(out); \
    } while (0)

static void logical(int count)
{
    int *out = grab(count * sizeof(int)), *in = grab(count * sizeof(int));
    MPI_Op ops[] = {MPI_LAND, MPI_LOR, MPI_LXOR};
    for (int i = 0; i < count; i++) out[i] = value(rank, i, 0) % 3;
    for (int o = 0; o < 3; o++) {
        BOTH(Allreduce, allreduce, out, in, count, MPI_INT, ops[o], MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) {
            bool want = value(0, i, 0) % 3;
            for (int r = 1; r < size; r++) {
                bool x = value(r, i, 0) % 3;
                want = o == 0 ? want && x : o == 1 ? want || x : want != x;
            }
            /* With one rank the result is its operand, unchanged, whichever value means true. */
            if (size > 1 ? in[i] != want : (in[i] != 0) != want) {
                check_failed(__FILE__, __LINE__, "logical %d, element %d of %d: %d, not %d", o, i, count, in[i], want);
                break;
            }
        }
    }
    free(in);
    free(out);
}

/* MINLOC and MAXLOC: of equal values the lowest index wins (MPI 5.0, section 6.9.4). */
static void locations(int count)
{
    struct pair {
        double x;
        int at;
    } *out = grab(count * sizeof *out), *in = grab(count * sizeof *in);
    for (int i = 0; i < count; i++) out[i] = (struct pair){small(rank, i), rank};
    for (int max = 0; max < 2; max++) {
        BOTH(Allreduce, allreduce, out, in, count, MPI_DOUBLE_INT, max ? MPI_MAXLOC : MPI_MINLOC, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) {
            int best = 0;
            for (int r = 1; r < size; r++)
                if (max ? small(r, i) > small(best, i) : small(r, i) < small(best, i)) best = r;
            if (in[i].at != best || in[i].x != small(best, i)) {
                check_failed(__FILE__, __LINE__, "%s, element %d: (%g, %d), not (%d, %d)", max ? "maxloc" : "minloc",
                             i, in[i].x, in[i].at, small(best, i), best);
                break;
            }
        }
    }
    free(in);
    free(out);
}

static void complex_numbers(int count)
{
    double complex *out = grab(count * sizeof *out), *in = grab(count * sizeof *in);
    for (int i = 0; i < count; i++) out[i] = small(rank, i) + small(rank, i + 1) * I;
    for (int o = 0; o < 2; o++) {
        BOTH(Allreduce, allreduce, out, in, count, MPI_C_DOUBLE_COMPLEX, o ? MPI_PROD : MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) {
            double complex want = small(0, i) + small(0, i + 1) * I;
            for (int r = 1; r < size; r++) {
                double complex x = small(r, i) + small(r, i + 1) * I;
                want = o ? want * x : want + x;
            }
            if (cabs(in[i] - want) > 1e-9 * (1 + cabs(want))) {
                check_failed(__FILE__, __LINE__, "complex %d, element %d", o, i);
                break;
            }
        }
    }
    free(in);
    free(out);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    static const int counts[] = {1, 5, 1000, 9001};
    for (nonblocking = 0; nonblocking < 2; nonblocking++)
        for (int c = 0; c < 4; c++) {
            int n = counts[c];
            /* The long vectors take turns, because all of them would take most of the time of all tests. */
            if (n > 5000 && nonblocking) continue;
            NUMBERS(signed char, MPI_SIGNED_CHAR, n);
            NUMBERS(short, MPI_SHORT, n);
            NUMBERS(int, MPI_INT, n);
            NUMBERS(long, MPI_LONG, n);
            NUMBERS(long long, MPI_LONG_LONG, n);
            NUMBERS(uint8_t, MPI_UINT8_T, n);
            NUMBERS(uint16_t, MPI_UINT16_T, n);
            NUMBERS(unsigned, MPI_UNSIGNED, n);
            NUMBERS(unsigned long, MPI_UNSIGNED_LONG, n);
            NUMBERS(float, MPI_FLOAT, n);
            NUMBERS(double, MPI_DOUBLE, n);
            NUMBERS(long double, MPI_LONG_DOUBLE, n);
            NUMBERS(MPI_Aint, MPI_AINT, n);
            BITS(uint8_t, MPI_BYTE, n);
            BITS(int, MPI_INT, n);
            BITS(uint64_t, MPI_UINT64_T, n);
            logical(n);
            locations(n);
            complex_numbers(n);
        }
    return end();
}
