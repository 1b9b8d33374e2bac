/* Accumulates, fetch-and-ops and compare-and-swaps from all ranks at once, on every kind of window: no update
   is lost, whatever the type's length.
   ranks: 1 2 3 8   ways: plain no-cma */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "window.h"
#include <complex.h>

#define ROUNDS 60
/* Several elements at once are updated under the latch, a single one by an atomic instruction. */
#define PLACES 48

static unsigned seed;
static unsigned dice(unsigned n)
{
    seed = seed * 1103515245u + 12345u;
    return (seed >> 8) % n;
}

/* All ranks add known amounts at known offsets of all ranks. Afterwards every offset has the sum. Whole
   numbers keep floats exact. */
#define SUMS(T, TYPE) \
    do { \
        T *mine = (T *)memory; \
        long expected[PLACES] = {0}; \
        memset(memory, 0, PLACES * sizeof(T)); \
        MPI_Barrier(MPI_COMM_WORLD); \
        MPI_Win_lock_all(0, win); \
        for (int from = 0; from < size; from++) { \
            seed = 1000 + from; \
            for (int i = 0; i < ROUNDS; i++) { \
                int target = dice(size), at = dice(PLACES - 1), how = dice(5); \
                T one[PLACES], old[PLACES]; \
                for (int k = 0; k < PLACES; k++) one[k] = (T)1; \
                for (int k = 0; k < PLACES && target == rank; k++) \
                    expected[k] += how >= 3 || k == at || (how == 1 && k == at + 1); \
                if (from != rank) continue; \
                MPI_Aint disp = origins[target] + at * sizeof(T); \
                if (how == 0) MPI_Accumulate(one, 1, TYPE, target, disp, 1, TYPE, MPI_SUM, win); \
                if (how == 1) MPI_Get_accumulate(one, 2, TYPE, old, 2, TYPE, target, disp, 2, TYPE, MPI_SUM, win); \
                if (how == 2) MPI_Fetch_and_op(one, old, TYPE, target, disp, MPI_SUM, win); \
                disp = origins[target]; \
                if (how == 3) MPI_Accumulate(one, PLACES, TYPE, target, disp, PLACES, TYPE, MPI_SUM, win); \
                if (how == 4) MPI_Get_accumulate(one, PLACES, TYPE, old, PLACES, TYPE, target, disp, PLACES, TYPE, MPI_SUM, win); \
                MPI_Win_flush_local(target, win); \
            } \
        } \
        MPI_Win_unlock_all(win); \
        MPI_Barrier(MPI_COMM_WORLD); \
        /* Types of one byte wrap. */ \
        for (int i = 0; i < PLACES; i++) \
            CHECK(mine[i] == (T)expected[i], "%s: a sum of %s is not %ld", kind_names[kind], #TYPE, expected[i]); \
        MPI_Barrier(MPI_COMM_WORLD); \
    } while (0)

/* Every ticket of a counter is given out once. */
static void tickets(void)
{
    enum { EACH = 200 };
    long *got = malloc(EACH * sizeof(long)), *all = malloc(size * EACH * sizeof(long)), one = 1;
    memset(memory, 0, 64);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, size - 1, 0, win);
    for (int i = 0; i < EACH; i++) {
        MPI_Fetch_and_op(&one, &got[i], MPI_LONG, size - 1, origins[size - 1], MPI_SUM, win);
        MPI_Win_flush(size - 1, win);
        if (i > 0) CHECK(got[i] > got[i - 1], "%s: ticket %ld after %ld", kind_names[kind], got[i], got[i - 1]);
    }
    MPI_Win_unlock(size - 1, win);
    MPI_Allgather(got, EACH, MPI_LONG, all, EACH, MPI_LONG, MPI_COMM_WORLD);
    char *seen = calloc(size, EACH);
    for (int i = 0; i < size * EACH; i++) {
        CHECK(all[i] >= 0 && all[i] < size * EACH, "ticket %ld", all[i]);
        if (all[i] >= 0 && all[i] < size * EACH) seen[all[i]]++;
    }
    for (int i = 0; i < size * EACH; i++) EQUAL(seen[i], 1, "tickets of one number");
    free(got);
    free(all);
    free(seen);
}

/* Compare-and-swap as an increment, for integers of all lengths. */
#define SWAPS(T, TYPE) \
    do { \
        enum { EACH = 12 }; \
        memset(memory, 0, 64); \
        MPI_Barrier(MPI_COMM_WORLD); \
        MPI_Win_lock_all(MPI_MODE_NOCHECK, win); \
        for (int i = 0; i < EACH; i++) { \
            T old = 0, now, new; \
            for (;;) { \
                new = old + 1; \
                MPI_Compare_and_swap(&new, &old, &now, TYPE, 0, origins[0] + 8, win); \
                MPI_Win_flush(0, win); \
                if (now == old) break; \
                old = now; \
            } \
        } \
        MPI_Win_unlock_all(win); \
        MPI_Barrier(MPI_COMM_WORLD); \
        if (rank == 0) CHECK(*(T *)(memory + 8) == (T)(EACH * size), "%s: swaps of %s were lost", kind_names[kind], #TYPE); \
        MPI_Barrier(MPI_COMM_WORLD); \
    } while (0)

/* The largest value and its rank, as pairs with a gap. */
#define LOCATIONS(T, TYPE) \
    do { \
        struct { T value; int index; } mine = {(T)((rank * 7 + 3) % size), rank}, *first = (void *)memory, old; \
        memset(memory, 0, 64); \
        if (rank == 0) first->value = (T)-1; \
        MPI_Barrier(MPI_COMM_WORLD); \
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win); \
        MPI_Accumulate(&mine, 1, TYPE, 0, origins[0], 1, TYPE, MPI_MAXLOC, win); \
        MPI_Get_accumulate(NULL, 0, MPI_INT, &old, 1, TYPE, 0, origins[0], 1, TYPE, MPI_NO_OP, win); \
        MPI_Win_flush(0, win); \
        CHECK(old.value >= mine.value, "%s: the largest of %s is less than mine", kind_names[kind], #TYPE); \
        MPI_Win_unlock(0, win); \
        MPI_Barrier(MPI_COMM_WORLD); \
        T best = -1; \
        int index = -1; \
        for (int i = 0; i < size; i++) { \
            if ((T)((i * 7 + 3) % size) > best) best = (T)((i * 7 + 3) % size), index = i; \
        } \
        if (rank == 0) CHECK(first->value == best && first->index == index, "%s: %s has index %d, not %d", \
                             kind_names[kind], #TYPE, first->index, index); \
        MPI_Barrier(MPI_COMM_WORLD); \
    } while (0)

/* Accumulates with datatypes that have gaps, at offsets that are not aligned to a word. */
static void shapes(void)
{
    MPI_Datatype column;
    int ones[10], old[10];
    MPI_Type_vector(10, 1, 3, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < 10; i++) ones[i] = i;
    for (int skew = 0; skew < 4; skew++) {
        memset(memory, 0, 256);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock_all(0, win);
        for (int target = 0; target < size; target++) {
            MPI_Aint disp = origins[target] + skew;
            MPI_Accumulate(ones, 10, MPI_INT, target, disp, 1, column, MPI_SUM, win);
            MPI_Get_accumulate(ones, 10, MPI_INT, old, 10, MPI_INT, target, disp, 1, column, MPI_SUM, win);
            MPI_Win_flush_local(target, win);
            for (int i = 1; i < 10; i++) CHECK(old[i] >= i && old[i] % i == 0, "%s: fetched %d", kind_names[kind], old[i]);
        }
        MPI_Win_unlock_all(win);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; i < 10; i++) {
            int sum, gap = 0;
            memcpy(&sum, memory + skew + i * 12, 4);
            for (int b = 4; b < 12; b++) gap |= memory[skew + i * 12 + b];
            EQUAL(sum, 2 * i * size, "a sum in a column");
            EQUAL(gap, 0, "a gap of a column");
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Type_free(&column);
}

/* Small structs that are moved as bytes are seen as a whole, which is more than the standard requires. */
static void structs(void)
{
    struct { long a, b, c, d; } mine = {rank, rank, rank, rank}, seen;
    memset(memory, 0, sizeof mine);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    for (int i = 0; i < 100; i++) {
        MPI_Aint disp = origins[0];
        if ((i + rank) % 2) MPI_Accumulate(&mine, sizeof mine, MPI_BYTE, 0, disp, sizeof mine, MPI_BYTE, MPI_REPLACE, win);
        MPI_Get_accumulate(NULL, 0, MPI_BYTE, &seen, sizeof seen, MPI_BYTE, 0, disp, sizeof seen, MPI_BYTE, MPI_NO_OP, win);
        MPI_Win_flush_local(0, win);
        CHECK(seen.a == seen.b && seen.b == seen.c && seen.c == seen.d, "%s: a struct torn", kind_names[kind]);
    }
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* MPI_REPLACE of long vectors: every element is the whole value of one rank. */
static void replaces(void)
{
    enum { N = 20000 };
    double *mine = malloc(N * sizeof(double)), *seen = malloc(N * sizeof(double));
    for (int i = 0; i < N; i++) mine[i] = rank + 1;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Accumulate(mine, N, MPI_DOUBLE, 0, origins[0], N, MPI_DOUBLE, MPI_REPLACE, win);
    MPI_Get_accumulate(NULL, 0, MPI_DOUBLE, seen, N, MPI_DOUBLE, 0, origins[0], N, MPI_DOUBLE, MPI_NO_OP, win);
    MPI_Win_unlock(0, win);
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += !(seen[i] >= 1 && seen[i] <= size && seen[i] == (int)seen[i]);
    EQUAL(wrong, 0, "elements that nobody wrote");
    MPI_Barrier(MPI_COMM_WORLD);
    free(mine);
    free(seen);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int which = 0; which < KINDS; which++) {
        if (which == SHARED && !on_one_host()) continue;
        make_window(which, 20000 * sizeof(double));
        SUMS(int8_t, MPI_INT8_T);
        SUMS(uint16_t, MPI_UINT16_T);
        SUMS(int, MPI_INT);
        SUMS(long, MPI_LONG);
        SUMS(float, MPI_FLOAT);
        SUMS(double, MPI_DOUBLE);
        SUMS(long double, MPI_LONG_DOUBLE);
        SUMS(float complex, MPI_C_FLOAT_COMPLEX);
        SUMS(double complex, MPI_C_DOUBLE_COMPLEX);
        SWAPS(int8_t, MPI_INT8_T);
        SWAPS(short, MPI_SHORT);
        SWAPS(unsigned, MPI_UNSIGNED);
        SWAPS(long, MPI_LONG);
        LOCATIONS(short, MPI_SHORT_INT);
        LOCATIONS(int, MPI_2INT);
        LOCATIONS(float, MPI_FLOAT_INT);
        LOCATIONS(double, MPI_DOUBLE_INT);
        LOCATIONS(long double, MPI_LONG_DOUBLE_INT);
        tickets();
        shapes();
        structs();
        replaces();
        free_window();
    }
    return end();
}
