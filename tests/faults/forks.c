/* forks: rank 0 forks after its first session has ended; the child exits at once, and the job goes on. Rank 0 then begins
   another session and sends rank 1 the message that it waits for. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static MPI_Session begin(void)
{
    MPI_Session session;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    return session;
}

int main(void)
{
    int rank = atoi(getenv("OUTBOARD_RANK")), token = 7, status = -1;
    if (rank == 0) {
        MPI_Session first = begin();
        MPI_Session_finalize(&first);
        pid_t child = fork();
        if (child == 0) exit(0);
        waitpid(child, &status, 0);
    }
    MPI_Session session = begin();
    MPI_Group group;
    MPI_Comm comm;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "forks", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    if (rank == 0) MPI_Send(&token, 1, MPI_INT, 1, 0, comm);
    if (rank == 1) MPI_Recv(&status, 1, MPI_INT, 0, 0, comm, MPI_STATUS_IGNORE);
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
    printf("rank %d: %d\n", rank, status);
    return 0;
}
