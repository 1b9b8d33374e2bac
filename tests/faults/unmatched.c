/* Rank 0 finalizes while its message waits for a receive that rank 1, which waits for another, never comes to. */
#include <mpi.h>

int main(int argc, char **argv)
{
    static char big[200000];
    int rank;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        MPI_Isend(big, sizeof big, MPI_BYTE, 1, 7, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
    } else {
        MPI_Recv(big, sizeof big, MPI_BYTE, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
