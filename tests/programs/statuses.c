/* A status of C is converted to one of mpif.h and of mpi_f08, and back: no part of it is lost, and MPI_STATUS_IGNORE
   is refused. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

static void check_status(const MPI_Status *status, const char *what)
{
    MPI_Count bytes;
    int flag;
    EQUAL(status->MPI_SOURCE, rank, what);
    EQUAL(status->MPI_TAG, 17, what);
    EQUAL(status->MPI_ERROR, MPI_ERR_TRUNCATE, what);
    MPI_Get_elements_x(status, MPI_BYTE, &bytes);
    EQUAL(bytes, (MPI_Count)3 << 40, what);
    MPI_Test_cancelled(status, &flag);
    EQUAL(flag, 1, what);
}

static int class_of(int code)
{
    int class;
    MPI_Error_class(code, &class);
    return class;
}

int main(int argc, char **argv)
{
    MPI_Status status, back;
    MPI_Fint f[MPI_F_STATUS_SIZE], f2[MPI_F_STATUS_SIZE];
    MPI_F08_status f08, f082;
    int sent = 4, got;
    begin(&argc, &argv);
    MPI_Sendrecv(&sent, 1, MPI_INT, rank, 17, &got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    MPI_Status_set_elements_x(&status, MPI_BYTE, (MPI_Count)3 << 40);
    MPI_Status_set_cancelled(&status, 1);
    status.MPI_ERROR = MPI_ERR_TRUNCATE;

    EQUAL(MPI_Status_c2f(&status, f), MPI_SUCCESS, "MPI_Status_c2f");
    EQUAL(f[MPI_F_SOURCE], rank, "the source in mpif.h");
    EQUAL(f[MPI_F_TAG], 17, "the tag in mpif.h");
    EQUAL(f[MPI_F_ERROR], MPI_ERR_TRUNCATE, "the error in mpif.h");
    EQUAL(MPI_Status_f2c(f, &back), MPI_SUCCESS, "MPI_Status_f2c");
    check_status(&back, "from mpif.h");

    EQUAL(MPI_Status_c2f08(&status, &f08), MPI_SUCCESS, "MPI_Status_c2f08");
    EQUAL(f08.MPI_SOURCE, rank, "the source in mpi_f08");
    EQUAL(f08.MPI_TAG, 17, "the tag in mpi_f08");
    memset(&back, 0, sizeof back);
    EQUAL(MPI_Status_f082c(&f08, &back), MPI_SUCCESS, "MPI_Status_f082c");
    check_status(&back, "from mpi_f08");

    EQUAL(MPI_Status_f2f08(f, &f082), MPI_SUCCESS, "MPI_Status_f2f08");
    EQUAL(MPI_Status_f082f(&f082, f2), MPI_SUCCESS, "MPI_Status_f082f");
    memset(&back, 0, sizeof back);
    PMPI_Status_f2c(f2, &back);
    check_status(&back, "by way of both");

    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    EQUAL(class_of(MPI_Status_c2f(MPI_STATUS_IGNORE, f)), MPI_ERR_ARG, "from MPI_STATUS_IGNORE");
    EQUAL(class_of(MPI_Status_f2c(f, MPI_STATUS_IGNORE)), MPI_ERR_ARG, "to MPI_STATUS_IGNORE");
#ifndef MPICH /* Its library returns MPI_ERR_OTHER, or copies, and its variables are null until Fortran starts MPI. */
    EQUAL(class_of(MPI_Status_f2c(MPI_F_STATUS_IGNORE, &back)), MPI_ERR_ARG, "from MPI_F_STATUS_IGNORE");
    EQUAL(class_of(MPI_Status_f082f(MPI_F08_STATUSES_IGNORE, f)), MPI_ERR_ARG, "from MPI_F08_STATUSES_IGNORE");
#endif
    return end();
}
