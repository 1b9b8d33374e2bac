/* The times that the examples take and the table that they print at the end. Each example runs its steps twice: first
   waiting for each operation as soon as it has started, then with work in between. Both runs have the same work and the same
   communication, so the time that the second saves was hidden behind work. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TABLE_H
#define TABLE_H

#include <math.h>
#include <mpi.h>
#include <stdio.h>

/* Seconds of this rank inside the MPI calls between clock_in() and clock_out(). */
static double in_mpi, entered;
static inline void clock_in(void) { entered = MPI_Wtime(); }
static inline void clock_out(void) { in_mpi += MPI_Wtime() - entered; }

typedef struct {
    const char *title;
    double step, mpi; /* seconds per step: of the slowest rank; inside MPI, the mean over ranks */
} row;

/* Begins a timed run; collective. */
static inline double begin_run(MPI_Comm comm)
{
    MPI_Barrier(comm);
    in_mpi = 0;
    return MPI_Wtime();
}

/* Ends a timed run; collective. */
static inline row end_run(const char *title, double began, int steps, MPI_Comm comm)
{
    double step = (MPI_Wtime() - began) / steps, mpi = in_mpi / steps;
    int ranks;
    MPI_Comm_size(comm, &ranks);
    MPI_Allreduce(MPI_IN_PLACE, &step, 1, MPI_DOUBLE, MPI_MAX, comm);
    MPI_Allreduce(MPI_IN_PLACE, &mpi, 1, MPI_DOUBLE, MPI_SUM, comm);
    return (row){title, step, mpi / ranks};
}

/* The part of the shorter of work and communication that the second run hid, from 0 to 1. Values outside, which come
   from noise, are cut off. */
static inline double overlap_of(row apart, row overlapped)
{
    double shorter = fmin(apart.mpi, apart.step - apart.mpi);
    return shorter > 0 ? fmin(1, fmax(0, (apart.step - overlapped.step) / shorter)) : 0;
}

/* Prints the table, and one line for programs that read it. `wrong` is the number of checks that failed. One rank calls
   it. */
static inline void print_table(const char *name, const row *rows, int count, row apart, row overlapped, int wrong)
{
    printf("  %-44s %14s %12s\n", "", "time per step", "in MPI");
    for (int i = 0; i < count; i++)
        printf("  %-44s %11.3f ms %9.3f ms\n", rows[i].title, 1e3 * rows[i].step, 1e3 * rows[i].mpi);
    printf("  overlap %.2f: the part of the shorter of work and communication that the other hid\n",
           overlap_of(apart, overlapped));
    printf("result name=%s apart_ms=%.4f apart_mpi_ms=%.4f step_ms=%.4f mpi_ms=%.4f overlap=%.3f wrong=%d\n", name,
           1e3 * apart.step, 1e3 * apart.mpi, 1e3 * overlapped.step, 1e3 * overlapped.mpi,
           overlap_of(apart, overlapped), wrong);
}

#endif
