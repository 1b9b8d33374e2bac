/* Intercommunicators: made, merged, duplicated, split and compared; messages between their groups (MPI 5.0,
   section 7.6).
   ranks: 2 3 5 8 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

static int cut, side, me, own, others;

static int comparison(MPI_Comm one, MPI_Comm other)
{
    int result = -1;
    MPI_Comm_compare(one, other, &result);
    return result;
}

/* The world rank of rank `r` of the other side. */
static int far(int r) { return side ? r : cut + r; }

static void groups(MPI_Comm inter)
{
    MPI_Group world, local, remote;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_group(inter, &local);
    MPI_Comm_remote_group(inter, &remote);
    int many, flag = 0;
    MPI_Comm_test_inter(inter, &flag);
    EQUAL(flag, 1, "whether it is an intercommunicator");
    MPI_Group_size(local, &many);
    EQUAL(many, own, "the local group's size");
    MPI_Group_size(remote, &many);
    EQUAL(many, others, "the remote group's size");
    for (int i = 0; i < others; i++) {
        int there;
        MPI_Group_translate_ranks(remote, 1, &i, world, &there);
        EQUAL(there, far(i), "a remote process");
    }
    MPI_Group_free(&world), MPI_Group_free(&local), MPI_Group_free(&remote);
}

/* Every rank sends to every rank of the other side; a message holds its sender's rank. */
static void messages(MPI_Comm inter, int round)
{
    MPI_Request *sends = grab(others * sizeof *sends);
    int mine = 100 * rank + round, *seen = calloc(others, sizeof(int));
    for (int i = 0; i < others; i++) MPI_Isend(&mine, 1, MPI_INT, i, round, inter, &sends[i]);
    for (int i = 0; i < others; i++) {
        MPI_Status status, probed;
        int got = -1;
        if (round % 3 == 0) {
            MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, round, inter, &status);
        } else if (round % 3 == 1) {
            MPI_Probe(MPI_ANY_SOURCE, round, inter, &probed);
            MPI_Recv(&got, 1, MPI_INT, probed.MPI_SOURCE, MPI_ANY_TAG, inter, &status);
            EQUAL(status.MPI_SOURCE, probed.MPI_SOURCE, "the source, received and probed");
        } else {
            MPI_Message message;
            MPI_Mprobe(i, round, inter, &message, &probed);
            MPI_Mrecv(&got, 1, MPI_INT, &message, &status);
            EQUAL(status.MPI_SOURCE, i, "the source of a matched message");
        }
        int from = status.MPI_SOURCE;
        CHECK(from >= 0 && from < others && !seen[from]++, "a message from rank %d of %d", from, others);
        EQUAL(got, 100 * far(from) + round, "what came");
    }
    MPI_Waitall(others, sends, MPI_STATUSES_IGNORE);
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    EQUAL(error_class(MPI_Send(&mine, 1, MPI_INT, others, 0, inter)), MPI_ERR_RANK, "the class of a rank beyond the remote group");
    MPI_Send(&mine, 1, MPI_INT, MPI_PROC_NULL, 0, inter);
    free(seen), free(sends);
}

static void merged(MPI_Comm inter)
{
    for (int highs = 0; highs < 4; highs++) {
        MPI_Comm all;
        int high = side ? highs & 1 : highs & 2, place, first, right;
        MPI_Intercomm_merge(inter, high, &all);
        EQUAL(comparison(all, MPI_COMM_WORLD), highs == 2 ? MPI_SIMILAR : highs == 1 ? MPI_CONGRUENT : comparison(all, MPI_COMM_WORLD), "the merged comm");
        MPI_Comm_rank(all, &place);
        /* If the values of `high` differ, they determine which side is first. Otherwise all agree on one. */
        first = side;
        MPI_Bcast(&first, 1, MPI_INT, 0, all);
        if (highs == 1 || highs == 2) EQUAL(first, highs == 2, "the side that comes first");
        right = me + (first == side ? 0 : others);
        EQUAL(place, right, "the rank in the merged comm");
        MPI_Comm_free(&all);
    }
}

static void copies(MPI_Comm inter)
{
    MPI_Comm copy, second, third;
    MPI_Request request;
    MPI_Comm_dup(inter, &copy);
    EQUAL(comparison(inter, copy), MPI_CONGRUENT, "the comparison with the duplicate");
    EQUAL(comparison(inter, inter), MPI_IDENT, "the comparison with itself");
    EQUAL(comparison(inter, MPI_COMM_WORLD), MPI_UNEQUAL, "the comparison with an intracommunicator");
    MPI_Comm_idup(copy, &second, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_dup_with_info(second, MPI_INFO_NULL, &third);
    groups(third);
    /* No comm gets the messages of another. */
    int mine[3] = {1, 2, 3}, got[3] = {0, 0, 0};
    MPI_Comm comms[3] = {inter, second, third};
    MPI_Request requests[6];
    if (me < others) {
        for (int i = 0; i < 3; i++) MPI_Irecv(&got[i], 1, MPI_INT, me, 7, comms[i], &requests[i]);
        for (int i = 0; i < 3; i++) MPI_Isend(&mine[2 - i], 1, MPI_INT, me, 7, comms[2 - i], &requests[3 + i]);
        MPI_Waitall(6, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < 3; i++) EQUAL(got[i], i + 1, "what came over a duplicate");
    }
    messages(third, 4);
    MPI_Comm_free(&copy), MPI_Comm_free(&second), MPI_Comm_free(&third);
}

static void parts(MPI_Comm inter)
{
    /* Split by the parity of the rank in the group, in falling order. If a side has no member of a color, the others of
       this color get no comm. */
    MPI_Comm part;
    MPI_Comm_split(inter, me % 2, -me, &part);
    int with = me % 2 ? others / 2 : (others + 1) / 2, many, place;
    if (with == 0) {
        CHECK(part == MPI_COMM_NULL, "there is a comm without remote group");
    } else {
        MPI_Comm_remote_size(part, &many);
    EQUAL(many, with, "the remote group of a part");
        MPI_Comm_size(part, &many);
    EQUAL(many, me % 2 ? own / 2 : (own + 1) / 2, "the local group of a part");
        MPI_Comm_rank(part, &place);
    EQUAL(place, many - 1 - me / 2, "the rank by falling keys");
        int sum = 0, mine = rank, right = 0;
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, part);
        for (int i = me % 2; i < others; i += 2) right += far(i);
        EQUAL(sum, right, "the sum over a part");
        MPI_Comm_free(&part);
    }
    MPI_Comm_split(inter, side ? MPI_UNDEFINED : 0, 0, &part);
    CHECK(part == MPI_COMM_NULL, "one side alone has a comm");
    /* All ranks of this side but the last, in falling order. */
    MPI_Group local, chosen;
    MPI_Comm_group(inter, &local);
    int range[1][3] = {{own - 2, 0, -1}}, all_sides_have = own > 1 && others > 1;
    if (own > 1) MPI_Group_range_incl(local, 1, range, &chosen);
    MPI_Comm_create(inter, own > 1 ? chosen : MPI_GROUP_EMPTY, &part);
    if (!all_sides_have || me == own - 1) {
        CHECK(part == MPI_COMM_NULL, "a comm of a process outside of its groups");
    } else {
        MPI_Comm_rank(part, &place);
    EQUAL(place, own - 2 - me, "the rank in the chosen group");
        MPI_Comm_remote_size(part, &many);
    EQUAL(many, others - 1, "the remote group that was chosen");
        if (place < many) {
            int mine = rank, got = -1;
            MPI_Sendrecv(&mine, 1, MPI_INT, place, 1, &got, 1, MPI_INT, place, 1, part, MPI_STATUS_IGNORE);
            EQUAL(got, far(many - 1 - place), "the partner in the chosen groups");
        }
        MPI_Comm_free(&part);
    }
    if (own > 1) MPI_Group_free(&chosen);
    MPI_Group_free(&local);
}

static void refused(MPI_Comm inter)
{
    MPI_Comm comm, half;
    MPI_Group group;
    int many;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    EQUAL(error_class(MPI_Comm_remote_size(MPI_COMM_WORLD, &many)), MPI_ERR_COMM, "the class of a remote size of one group");
    EQUAL(error_class(MPI_Comm_remote_group(MPI_COMM_WORLD, &group)), MPI_ERR_COMM, "the class of a remote group of one group");
    EQUAL(error_class(MPI_Intercomm_merge(MPI_COMM_WORLD, 0, &comm)), MPI_ERR_COMM, "the class of a merge of one group");
    EQUAL(error_class(MPI_Intercomm_create(inter, 0, MPI_COMM_WORLD, 0, 0, &comm)), MPI_ERR_COMM, "the class of an intercommunicator as local comm");
    MPI_Comm_group(inter, &group);
    EQUAL(error_class(MPI_Comm_create_group(inter, group, 0, &comm)), MPI_ERR_COMM, "the class of MPI_Comm_create_group between groups");
    MPI_Group_free(&group);
    /* All members of a group get an error that only the leader can find. */
    MPI_Comm_split(MPI_COMM_WORLD, side, 0, &half);
    MPI_Comm_set_errhandler(half, MPI_ERRORS_RETURN);
    EQUAL(error_class(MPI_Intercomm_create(half, own - 1, me == own - 1 ? MPI_COMM_WORLD : MPI_COMM_NULL, size, 0, &comm)), MPI_ERR_RANK,
          "the class of a remote leader beyond the comm");
    EQUAL(error_class(MPI_Intercomm_create(half, own, MPI_COMM_WORLD, 0, 0, &comm)), MPI_ERR_RANK, "the class of a local leader beyond the comm");
    MPI_Comm_free(&half);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (cut = 1; cut < size; cut += size > 5 ? 3 : 1) {
        MPI_Comm local, inter, again;
        side = rank >= cut;
        own = side ? size - cut : cut, others = size - own;
        MPI_Comm_split(MPI_COMM_WORLD, side, rank, &local);
        MPI_Comm_rank(local, &me);
        MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, side ? 0 : cut, 5, &inter);
        groups(inter);
        for (int round = 0; round < 3; round++) messages(inter, round);
        merged(inter);
        copies(inter);
        parts(inter);
        refused(inter);
        /* The peer comm may be an intercommunicator, too. */
        MPI_Intercomm_create(local, own - 1, inter, others - 1, 6, &again);
        EQUAL(comparison(inter, again), MPI_CONGRUENT, "the comparison with one made by way of the other");
        messages(again, 5);
        MPI_Comm_free(&again), MPI_Comm_free(&inter), MPI_Comm_free(&local);
    }
    return end();
}
