/* Every file of MPICH's suite includes this first, since the suite is written for MPI 4.0 and MPICH's own
   mpi.h. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>

/* The standard has these since MPI-3.0 (MPI 5.0, 5.1.2 and 8.6), but the suite takes them for MPICH's own. */
#define TEST_HINDEXED_BLOCK 1
#define TEST_NEIGHB_COLL 1

/* Names that MPI-3.0 removed (17.1), and that the suite uses to generate datatypes. */
#define MPI_Type_hvector MPI_Type_create_hvector
#define MPI_Type_hindexed MPI_Type_create_hindexed

/* The standard ABI has these conversions under other names (20.4). */
#define MPI_Message_c2f MPI_Message_toint
#define MPI_Message_f2c MPI_Message_fromint
#define PMPI_Message_c2f PMPI_Message_toint
#define PMPI_Message_f2c PMPI_Message_fromint

/* MPI-4.1 has these under other names (9.5). */
#define MPIX_Delete_error_class MPI_Remove_error_class
#define MPIX_Delete_error_code MPI_Remove_error_code
#define MPIX_Delete_error_string MPI_Remove_error_string

/* The suite's own barrier among threads spins, so that a test with more threads than cores takes minutes. The suite has another
   barrier, which its configure script does not look for. */
#define HAVE_PTHREAD_BARRIER_INIT 1
