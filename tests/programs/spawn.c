/* MPI_Comm_spawn and MPI_Comm_spawn_multiple: worlds, arguments, error codes, traffic, ranks that are used
   again.
   ranks: 1 2 3   ways: plain proxy no-cma   env: OUTBOARD_SPAWN_RANKS_MAX=16 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

static void talk(MPI_Comm other, int is_child)
{
    int remote, mine = rank, sum = 0;
    MPI_Comm_remote_size(other, &remote);
    /* Every rank sends its rank to every rank on the other side, and a long message to one. */
    static int big[100000];
    MPI_Request requests[2];
    for (int to = 0; to < remote; to++) MPI_Send(&mine, 1, MPI_INT, to, 1, other);
    for (int from = 0; from < remote; from++) {
        int got;
        MPI_Recv(&got, 1, MPI_INT, from, 1, other, MPI_STATUS_IGNORE);
        sum += got;
    }
    EQUAL(sum, remote * (remote - 1) / 2, "the sum of the other side's ranks");
    if (rank == 0) {
        static int back[100000];
        for (int i = 0; i < 100000; i++) big[i] = i + is_child;
        MPI_Irecv(back, 100000, MPI_INT, 0, 2, other, &requests[0]);
        MPI_Isend(big, 100000, MPI_INT, 0, 2, other, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        long wrong = 0;
        for (int i = 0; i < 100000; i++) wrong += back[i] != i + !is_child;
        EQUAL(wrong, 0, "wrong elements of a long message");
    }
    MPI_Comm all;
    MPI_Intercomm_merge(other, is_child, &all);
    int place, total;
    MPI_Comm_rank(all, &place);
    MPI_Comm_size(all, &total);
    EQUAL(total, size + remote, "the size of the merged comm");
    MPI_Allreduce(&place, &sum, 1, MPI_INT, MPI_SUM, all);
    EQUAL(sum, total * (total - 1) / 2, "the sum over the merged comm");
    MPI_Comm_free(&all);
}

static int child(int argc, char **argv, MPI_Comm parent)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length, *number, found;
    MPI_Comm_get_name(parent, name, &length);
    CHECK(!strcmp(name, "MPI_COMM_PARENT"), "the parent comm's name is %s", name);
    CHECK(argc == 3 && !strcmp(argv[1], "child") && !strcmp(argv[2], "two words"), "%d arguments: %s", argc, argv[1]);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &found);
    EQUAL(*number, rank >= 2, "MPI_APPNUM");
    talk(parent, 1);
    MPI_Comm_disconnect(&parent);
    MPI_Comm_get_parent(&parent);
    CHECK(parent == MPI_COMM_NULL, "a disconnected parent is still there");
    return end();
}

int main(int argc, char **argv)
{
    MPI_Comm parent, children;
    begin(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) return child(argc, argv, parent);

    char *arguments[] = {"child", "two words", NULL}, **both[] = {arguments, arguments};
    char *commands[] = {argv[0], argv[0]};
    int counts[] = {2, 1};
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    /* More worlds, one after the other, than can live at the same time. */
    for (int round = 0; round < 12; round++) {
        int codes[3] = {7, 7, 7}, remote;
        MPI_Comm_spawn_multiple(2, commands, both, counts, infos, size - 1, MPI_COMM_WORLD, &children, codes);
        for (int i = 0; i < 3; i++) EQUAL(codes[i], MPI_SUCCESS, "an error code");
        MPI_Comm_remote_size(children, &remote);
        EQUAL(remote, 3, "the number of children");
        talk(children, 0);
        MPI_Comm_disconnect(&children);
    }

    int codes[2] = {0, 0}, error, class;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    error = MPI_Comm_spawn("/no/such/program", MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, codes);
    MPI_Error_class(error, &class);
    EQUAL(class, MPI_ERR_SPAWN, "the class where there is no program");
    EQUAL(codes[1], MPI_ERR_SPAWN, "an error code where there is no program");
    /* The spawned program ends without MPI_Init. */
    error = MPI_Comm_spawn("true", MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, codes);
    MPI_Error_class(error, &class);
    EQUAL(class, MPI_ERR_SPAWN, "the class of a program without MPI");
    error = MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 5000, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
    MPI_Error_class(error, &class);
    EQUAL(class, MPI_ERR_SPAWN, "the class where there is no room");
    return end();
}
