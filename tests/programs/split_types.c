/* MPI_Comm_split_type with every type, hints of comms, kinds of hardware (MPI 5.0, sections 7.4.2, 7.4.4 and
   11.2.2).
   ranks: 1 2 3 5   ways: plain */
/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "check.h"
#include <sched.h>

static int size_of(MPI_Comm comm)
{
    int many = 0;
    if (comm != MPI_COMM_NULL) MPI_Comm_size(comm, &many);
    return many;
}

static int split_size(MPI_Comm from, int type, const char *key, const char *value)
{
    MPI_Comm comm;
    MPI_Info info;
    MPI_Info_create(&info);
    if (key) MPI_Info_set(info, key, value);
    MPI_Comm_split_type(from, type, -rank, info, &comm);
    MPI_Info_free(&info);
    int many = size_of(comm);
    if (many) {
        int place;
        MPI_Comm_rank(comm, &place);
        if (many == size) EQUAL(place, size - 1 - rank, "the rank by falling keys");
        MPI_Comm_free(&comm);
    }
    return many;
}

static void types(void)
{
    EQUAL(split_size(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, NULL, NULL), size, "the comm that shares memory");
    EQUAL(split_size(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, "mpi_hw_resource_type", "mpi_shared_memory"), size, "the same, guided");
    EQUAL(split_size(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, "mpi_hw_resource_type", "hwloc://Machine"), size, "the machine's comm");
    EQUAL(split_size(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, "mpi_hw_resource_type", "hwloc://Teapot"), 0, "the teapot's comm");
    EQUAL(split_size(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, NULL, NULL), 0, "the comm of no kind");
    EQUAL(split_size(MPI_COMM_WORLD, MPI_COMM_TYPE_RESOURCE_GUIDED, "mpi_pset_name", "mpi://WORLD"), size, "the comm of mpi://WORLD");
    EQUAL(split_size(MPI_COMM_WORLD, MPI_COMM_TYPE_RESOURCE_GUIDED, "mpi_pset_name", "mpi://SELF"), 1, "the comm of mpi://SELF");
    EQUAL(split_size(MPI_COMM_WORLD, rank ? MPI_COMM_TYPE_SHARED : MPI_UNDEFINED, NULL, NULL), rank ? size - 1 : 0, "the comm without rank 0");
    EQUAL(split_size(MPI_COMM_WORLD, rank ? MPI_COMM_TYPE_HW_UNGUIDED : MPI_UNDEFINED, NULL, NULL), rank ? size - 1 : 0,
          "what parts those from the one that passes MPI_UNDEFINED");
    MPI_Comm comm;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    EQUAL(error_class(MPI_Comm_split_type(MPI_COMM_WORLD, 12345, 0, MPI_INFO_NULL, &comm)), MPI_ERR_ARG, "the class of no type");
    if (size > 1) {
        MPI_Comm half, inter;
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, !(rank % 2), 0, &inter);
        MPI_Comm_split_type(inter, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm);
        int is_inter = 0, result;
        MPI_Comm_test_inter(comm, &is_inter);
        EQUAL(is_inter, 1, "whether a split intercommunicator is one");
        MPI_Comm_compare(inter, comm, &result);
        EQUAL(result, MPI_CONGRUENT, "the comparison with what was split");
        MPI_Comm_free(&comm), MPI_Comm_free(&inter), MPI_Comm_free(&half);
    }
}

/* Each rank stays on one cpu, so that hardware separates ranks on different cpus. */
static void unguided(void)
{
    cpu_set_t before, one;
    int mine = -1, *cpus = grab(size * sizeof(int)), different = 0;
    sched_getaffinity(0, sizeof before, &before);
    for (int turn = 0, cpu = 0; turn <= rank % CPU_COUNT(&before); cpu++)
        if (CPU_ISSET(cpu, &before)) mine = cpu, turn++;
    CPU_ZERO(&one);
    CPU_SET(mine, &one);
    sched_setaffinity(0, sizeof one, &one);
    MPI_Allgather(&mine, 1, MPI_INT, cpus, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) different += cpus[i] != cpus[0];
    MPI_Comm comm;
    MPI_Info info;
    char kind[64] = "";
    int flag, length = sizeof kind, together = 0;
    MPI_Info_create(&info);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_UNGUIDED, 0, info, &comm);
    MPI_Info_get_string(info, "mpi_hw_resource_type", &length, kind, &flag);
    if (different) {
        for (int i = 0; i < size; i++) together += cpus[i] == mine;
        CHECK(size_of(comm) >= together && size_of(comm) < size, "%d of %d ranks are together, %d on the same cpu", size_of(comm), size, together);
        CHECK(flag && strstr(kind, "://"), "the kind of hardware is \"%s\"", kind);
        MPI_Comm again;
        int result;
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, info, &again);
        MPI_Comm_compare(comm, again, &result);
        EQUAL(result, MPI_CONGRUENT, "the comparison with the split that is guided by the kind found");
        MPI_Comm_free(&again), MPI_Comm_free(&comm);
    } else {
        CHECK(comm == MPI_COMM_NULL, "nothing parts the ranks, but there is a comm of %d", size_of(comm));
        EQUAL(flag, 0, "whether a kind of hardware is told");
    }
    MPI_Info_free(&info);
    MPI_Get_hw_resource_info(&info);
    int keys;
    MPI_Info_get_nkeys(info, &keys);
    CHECK(keys > 1, "%d kinds of hardware are known", keys);
    for (int i = 0; i < keys; i++) {
        char key[MPI_MAX_INFO_KEY], value[16];
        length = sizeof value;
        MPI_Info_get_nthkey(info, i, key);
        MPI_Info_get_string(info, key, &length, value, &flag);
        /* This process is on one cpu, so it is inside one instance of each kind that has cpus. */
        CHECK(strstr(key, "://") && !strcmp(value, "true"), "%s is %s", key, value);
    }
    MPI_Info_free(&info);
    sched_setaffinity(0, sizeof before, &before);
    free(cpus);
}

static int has(MPI_Comm comm, const char *key)
{
    MPI_Info used;
    char value[64];
    int flag, length = sizeof value;
    MPI_Comm_get_info(comm, &used);
    MPI_Info_get_string(used, key, &length, value, &flag);
    MPI_Info_free(&used);
    return flag;
}

static void hints(void)
{
    MPI_Comm with, copy;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_assert_no_any_tag", "true");
    MPI_Info_set(info, "nobody_knows_this", "true");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &with);
    EQUAL(has(with, "mpi_assert_no_any_tag"), 1, "whether a hint is kept");
    EQUAL(has(with, "nobody_knows_this"), 0, "whether nonsense is kept");
    EQUAL(has(with, "mpi_memory_alloc_kinds"), 1, "whether memory kinds are told");
    MPI_Comm_dup(with, &copy);
    EQUAL(has(copy, "mpi_assert_no_any_tag"), 0, "whether a hint is duplicated");
    MPI_Comm_set_info(copy, info);
    EQUAL(has(copy, "mpi_assert_no_any_tag"), 1, "whether a hint can be set");
    MPI_Comm_free(&copy), MPI_Comm_free(&with);
    MPI_Info_free(&info);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    types();
    unguided();
    hints();
    return end();
}
