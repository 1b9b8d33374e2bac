/* Pseudo-spectral Navier-Stokes on the periodic cube [0, 2 pi)^3, cut into slabs over the ranks of a comm. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef SOLVER_H
#define SOLVER_H

#include <complex.h>
#include <fftw3.h>
#include <mpi.h>

enum { FLIGHTS = 3 }; /* transposes under way at once: as many as a velocity has components */

typedef struct {
    double wall, cpu; /* seconds of this rank inside MPI calls: by the clock, and of the processor */
    long calls;       /* transposes */
} meter;

typedef struct {
    MPI_Comm comm;
    int rank, ranks;
    int n, half, slab; /* points along an edge; n/2+1; planes of this rank, in x (space) and in ky (spectrum) */
    double viscosity;
    int from_malloc; /* transpose buffers by malloc instead of MPI_Alloc_mem */

    /* Velocity in the spectrum, [component][ky of the slab][kx][kz], and the Runge-Kutta method's other states. */
    double complex *u[3], *start[3], *sum[3], *slope[3];
    /* Velocity and vorticity in space, [x of the slab][y][z]. */
    double *field[6];
    double complex *planes, *columns; /* one field between the two halves of a transform */
    double complex *out[FLIGHTS], *in[FLIGHTS];
    MPI_Request requests[FLIGHTS];
    fftw_plan to_planes, from_planes, along_x, back_along_x;
    meter meter;
} solver;

/* Sets the Taylor-Green vortex at time 0. The number of ranks must divide n. */
void solver_create(solver *s, MPI_Comm comm, int n, double viscosity, int from_malloc);
void solver_free(solver *s);

/* One step of the classical Runge-Kutta method. */
void solver_step(solver *s, double dt);

/* Energy <u.u>/2 and enstrophy <w.w>/2 of the whole flow; collective. */
void solver_measure(solver *s, double *energy, double *enstrophy);

/* Brings velocity and vorticity to space, into `field`; collective. */
void solver_to_space(solver *s);

/* Starts and ends a transpose by itself, for the calibration. */
void transpose_start(solver *s, int flight);
void transpose_wait(solver *s, int flight);

/* The number of elements that one rank sends to each rank in one transpose. */
static inline int pair_elements(const solver *s) { return s->slab * s->slab * s->half; }

double seconds(void);     /* by the clock */
double cpu_seconds(void); /* of this thread */

#endif
