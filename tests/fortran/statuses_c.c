/* The part of statuses.f90 in C. Each function returns 0, or the line of what was wrong. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stddef.h>

#define CHECK(condition) do { if (!(condition)) return __LINE__; } while (0)

static int holds(const MPI_Status *status, int source, int count) {
    int elements;
    CHECK(status->MPI_SOURCE == source && status->MPI_TAG == 17);
    CHECK(MPI_Get_count(status, MPI_INT, &elements) == MPI_SUCCESS && elements == count);
    return 0;
}

int c_reads(MPI_Fint *f, MPI_F08_status *f08, int source, int count) {
    MPI_Status status;
    MPI_F08_status other;
    int wrong;
    CHECK(f != MPI_F_STATUS_IGNORE && f08 != MPI_F08_STATUS_IGNORE);
    CHECK(MPI_Status_f2c(f, &status) == MPI_SUCCESS);
    if ((wrong = holds(&status, source, count))) return wrong;
    CHECK(MPI_Status_f082c(f08, &status) == MPI_SUCCESS);
    if ((wrong = holds(&status, source, count))) return wrong;
    CHECK(MPI_Status_c2f08(&status, &other) == MPI_SUCCESS);
    CHECK(other.MPI_SOURCE == source && other.MPI_TAG == 17);
    return 0;
}

int c_writes(MPI_Fint *f, MPI_F08_status *f08, int count) {
    MPI_Status status = {0};
    status.MPI_SOURCE = 5;
    status.MPI_TAG = 6;
    CHECK(MPI_Status_set_elements(&status, MPI_INT, count) == MPI_SUCCESS);
    CHECK(MPI_Status_c2f(&status, f) == MPI_SUCCESS);
    CHECK(MPI_Status_c2f08(&status, f08) == MPI_SUCCESS);
    return 0;
}

int c_sees_ignored(MPI_F08_status *status, MPI_F08_status *statuses) {
    MPI_Status c;
    CHECK(status == MPI_F08_STATUS_IGNORE);
    CHECK(statuses == MPI_F08_STATUSES_IGNORE);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPI_Status_f082c(status, &c) != MPI_SUCCESS);
    CHECK(MPI_Status_c2f08(&c, statuses) != MPI_SUCCESS);
    return 0;
}
