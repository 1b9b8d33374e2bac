/* late never|late|traffic FILE: rank 0 uses a session while the others have not called MPI. They never do, or only after
   rank 0 has made FILE. In `traffic`, rank 0 waits in MPI_Init for rank 1, and receives its long message on a session's
   comm meanwhile. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONG = 1 << 20 };
static char sent[LONG], got[LONG];

static MPI_Comm of(MPI_Session session, const char *set)
{
    MPI_Group group;
    MPI_Comm comm;
    MPI_Group_from_session_pset(session, set, &group);
    MPI_Comm_create_from_group(group, "late", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    return comm;
}

int main(int argc, char **argv)
{
    int rank = atoi(getenv("OUTBOARD_RANK")), sum = -1;
    const char *what = argv[1];
    if (argc != 3 || (rank > 0 && !strcmp(what, "never"))) return 0;
    while (rank > 0 && access(argv[2], F_OK)) usleep(1000);
    MPI_Session session;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Comm alone = of(session, "mpi://SELF");
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, alone);
    MPI_Comm_free(&alone);
    if (!strcmp(what, "traffic")) {
        MPI_Comm all = of(session, "mpi://WORLD");
        MPI_Request request = MPI_REQUEST_NULL;
        memset(sent, 'x', LONG);
        if (rank == 0) MPI_Irecv(got, LONG, MPI_CHAR, 1, 0, all, &request);
        if (rank == 0) fclose(fopen(argv[2], "w"));
        if (rank == 1) MPI_Send(sent, LONG, MPI_CHAR, 0, 0, all);
        MPI_Init(&argc, &argv);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (rank == 0 && memcmp(sent, got, LONG)) sum = -1;
        MPI_Comm_free(&all);
        MPI_Finalize();
    }
    MPI_Session_finalize(&session);
    if (rank == 0 && strcmp(what, "traffic")) fclose(fopen(argv[2], "w"));
    printf("rank %d: %s\n", rank, sum == rank ? "right" : "wrong");
    return sum != rank;
}
