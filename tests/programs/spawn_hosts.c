/* MPI_Comm_spawn over several hosts: where children are placed, the info keys, a port of a child's world, what
   a wrong host does. The second host has no process at first.
   ranks: 1   ways: nodes */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

/* The number of processes of a comm on the host of its rank 0. */
static int on_first_host(MPI_Comm comm)
{
    MPI_Comm host;
    int place, members, head, all;
    MPI_Comm_rank(comm, &place);
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &members);
    head = place == 0 ? members : 0;
    MPI_Allreduce(&head, &all, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_free(&host);
    return all;
}

static void meet(MPI_Comm other, int is_child, int wanted_here)
{
    MPI_Comm all;
    MPI_Intercomm_merge(other, is_child, &all);
    EQUAL(on_first_host(all), wanted_here, "processes on the host of the parent");
    MPI_Comm_free(&all);
}

int main(int argc, char **argv)
{
    MPI_Comm parent, children, friend;
    MPI_Info info;
    char port[MPI_MAX_PORT_NAME];
    int *number, found, error, class, codes[2];
    begin(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &number, &found);
    CHECK(found && *number == 2, "MPI_UNIVERSE_SIZE is %d", found ? *number : -1);
    if (parent != MPI_COMM_NULL) {
        meet(parent, 1, atoi(argv[1]));
        if (rank == 0) MPI_Open_port(MPI_INFO_NULL, port);
        if (rank == 0) MPI_Publish_name("of a child", MPI_INFO_NULL, port);
        MPI_Barrier(parent);
        MPI_Comm_disconnect(&parent);
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &friend);
        meet(friend, 1, atoi(argv[1]));
        MPI_Comm_disconnect(&friend);
        if (rank == 0) MPI_Unpublish_name("of a child", MPI_INFO_NULL, port);
        return end();
    }

    /* The first process is on the first of two hosts with a slot each, so the next one is placed on the second.
       Then all are requested on the second. */
    for (int round = 0; round < 4; round++) {
        char *arguments[] = {round % 2 ? "1" : "2", NULL};
        MPI_Info_create(&info);
        if (round % 2) MPI_Info_set(info, "host", "localhost:2");
        MPI_Comm_spawn(argv[0], arguments, 2, info, 0, MPI_COMM_WORLD, &children, codes);
        MPI_Info_free(&info);
        EQUAL(codes[0] + codes[1], 2 * MPI_SUCCESS, "the error codes");
        meet(children, 0, round % 2 ? 1 : 2);
        MPI_Barrier(children);
        MPI_Comm_disconnect(&children);
        MPI_Lookup_name("of a child", MPI_INFO_NULL, port);
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &friend);
        meet(friend, 0, round % 2 ? 1 : 2);
        MPI_Comm_disconnect(&friend);
    }

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const char *keys[] = {"host", "host", "hostfile", "wdir"};
    const char *values[] = {"no-such-host.invalid", "-oProxyCommand=x", "/no/such/file", "/no/such/folder"};
    for (int at = 0; at < 4; at++) {
        MPI_Info_create(&info);
        MPI_Info_set(info, keys[at], values[at]);
        error = MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, info, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
        MPI_Error_class(error, &class);
        EQUAL(class, MPI_ERR_SPAWN, "the class of a wrong value");
        MPI_Info_free(&info);
    }
    return end();
}
