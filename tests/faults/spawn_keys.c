/* MPI_Comm_spawn of one copy of itself with an info key; says whether that was done, or why not. KEY VALUE */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int rank, length;
    MPI_Info info;
    MPI_Comm other;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&other);
    if (other == MPI_COMM_NULL && argc == 3) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Info_create(&info);
        MPI_Info_set(info, argv[1], argv[2]);
        int error = MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, info, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE);
        MPI_Info_free(&info);
        if (error) MPI_Error_string(error, text, &length);
        if (error) other = MPI_COMM_NULL;
        if (rank == 0) printf("%s=%s: %s %s\n", argv[1], argv[2], error ? "refused:" : "spawned", text);
    }
    if (other != MPI_COMM_NULL) MPI_Comm_disconnect(&other);
    MPI_Finalize();
    return 0;
}
