/* Rank 0 sends a message that rank 1 never receives, because rank 1 waits for another. Then rank 0 finalizes, ends its
   session, or disconnects, as the argument says. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <string.h>

int main(int argc, char **argv)
{
    static char big[200000];
    const char *end = argc > 1 ? argv[1] : "";
    int rank;
    MPI_Request request;
    MPI_Session session = MPI_SESSION_NULL;
    MPI_Comm comm;
    if (strcmp(end, "MPI_Session_finalize") == 0) {
        MPI_Group group;
        MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
        MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
        MPI_Comm_create_from_group(group, "unmatched", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
        MPI_Group_free(&group);
    } else {
        MPI_Init(&argc, &argv);
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    }
    MPI_Comm_rank(comm, &rank);
    if (rank == 0) {
        MPI_Isend(big, sizeof big, MPI_BYTE, 1, 7, comm, &request);
        MPI_Request_free(&request);
    } else {
        MPI_Recv(big, sizeof big, MPI_BYTE, 0, 8, comm, MPI_STATUS_IGNORE);
    }
    if (strcmp(end, "MPI_Comm_disconnect") == 0)
        MPI_Comm_disconnect(&comm);
    else
        MPI_Comm_free(&comm);
    if (session == MPI_SESSION_NULL)
        MPI_Finalize();
    else
        MPI_Session_finalize(&session);
    return 0;
}
