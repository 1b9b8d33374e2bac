/* MPI_Comm_connect: an attempt ends with an accept, with its time-out, or when the port is closed (11.9.3).
   ranks: 2   ways: plain nodes   env: OUTBOARD_CHECK=2 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

static int connect_class(const char *port, MPI_Info info, MPI_Comm *comm)
{
    int class;
    MPI_Error_class(MPI_Comm_connect(port, info, 0, MPI_COMM_SELF, comm), &class);
    return class;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    char port[MPI_MAX_PORT_NAME] = "";
    if (rank == 0) MPI_Open_port(MPI_INFO_NULL, port);
    MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);

    MPI_Comm other;
    if (rank == 1) {
        MPI_Info info;
        MPI_Info_create(&info);
        MPI_Info_set(info, "timeout", "0");
        EQUAL(connect_class(port, info, &other), MPI_ERR_PORT, "the class of a connect that nobody accepts in time");
        MPI_Info_free(&info);
    }
    MPI_Barrier(MPI_COMM_WORLD);

    /* Two attempts were sent to the port, and only the second is still open. */
    if (rank == 0) MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &other);
    if (rank == 1) EQUAL(connect_class(port, MPI_INFO_NULL, &other), MPI_SUCCESS, "the class of a connect that is accepted");
    if (rank < 2) {
        int remote = 0;
        MPI_Comm_remote_size(other, &remote);
        EQUAL(remote, 1, "the size of the other side");
        MPI_Comm_disconnect(&other);
    }

    if (rank == 0) {
        int started;
        MPI_Recv(&started, 0, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Close_port(port);
    } else if (rank == 1) {
        MPI_Send(NULL, 0, MPI_INT, 0, 0, MPI_COMM_WORLD);
        EQUAL(connect_class(port, MPI_INFO_NULL, &other), MPI_ERR_PORT, "the class of a connect to a port that is closed");
    }
    return end();
}
