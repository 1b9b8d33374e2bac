/* Comms and groups: dup, split, create, free, compare; messages of different comms never match; attributes
   and names. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

static int sum_of_ranks(MPI_Comm comm)
{
    int sum = -1;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
    return sum;
}

static void splits(void)
{
    for (int colours = 1; colours <= 3; colours++) {
        MPI_Comm part;
        /* Keys reverse the order of ranks. */
        MPI_Comm_split(MPI_COMM_WORLD, rank % colours, -rank, &part);
        int n, r, expected = 0, members = 0, above = 0;
        MPI_Comm_size(part, &n);
        MPI_Comm_rank(part, &r);
        for (int i = rank % colours; i < size; i += colours) {
            members++;
            expected += i;
            above += i > rank;
        }
        EQUAL(n, members, "size");
        EQUAL(r, above, "rank");
        EQUAL(sum_of_ranks(part), expected, "sum of ranks");
        MPI_Comm_free(&part);
        CHECK(part == MPI_COMM_NULL, "a freed comm is not null");
    }
    MPI_Comm none;
    MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? 4 : MPI_UNDEFINED, 0, &none);
    CHECK((none == MPI_COMM_NULL) == (rank != 0), "undefined colour");
    if (none != MPI_COMM_NULL) MPI_Comm_free(&none);
    MPI_Comm node;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    EQUAL(sum_of_ranks(node), size * (size - 1) / 2, "sum of ranks on the node");
    MPI_Comm_free(&node);
}

static void groups(void)
{
    MPI_Group world, even, odd, both, some;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    int range[1][3] = {{0, (size - 1) / 2 * 2, 2}};
    MPI_Group_range_incl(world, 1, range, &even);
    MPI_Group_difference(world, even, &odd);
    int n, m, result;
    MPI_Group_size(even, &n);
    MPI_Group_size(odd, &m);
    EQUAL(n, (size + 1) / 2, "even ranks");
    EQUAL(n + m, size, "even and odd ranks");
    MPI_Group_union(even, odd, &both);
    MPI_Group_compare(both, world, &result);
    EQUAL(result, size < 3 ? MPI_IDENT : MPI_SIMILAR, "even and odd, against world");
    MPI_Group_intersection(even, odd, &some);
    MPI_Group_compare(some, MPI_GROUP_EMPTY, &result);
    EQUAL(result, MPI_IDENT, "even ranks that are odd");
    int mine = rank, there;
    MPI_Group_translate_ranks(world, 1, &mine, even, &there);
    EQUAL(there, rank % 2 ? MPI_UNDEFINED : rank / 2, "translated rank");
    MPI_Comm comm;
    MPI_Comm_create(MPI_COMM_WORLD, even, &comm);
    CHECK((comm == MPI_COMM_NULL) == (rank % 2 == 1), "member of the even ranks' comm");
    if (comm != MPI_COMM_NULL) {
        EQUAL(sum_of_ranks(comm), (n - 1) * n, "sum of even ranks");
        MPI_Comm_free(&comm);
    }
    if (rank % 2 == 0) {
        MPI_Comm_create_group(MPI_COMM_WORLD, even, 9, &comm);
        EQUAL(sum_of_ranks(comm), (n - 1) * n, "sum of even ranks");
        MPI_Comm_free(&comm);
    }
    MPI_Group_free(&some);
    MPI_Group_free(&both);
    MPI_Group_free(&odd);
    MPI_Group_free(&even);
    MPI_Group_free(&world);
}

/* Very many comms, made and freed; the messages of each match only there. */
static void many(void)
{
    enum { N = 200 };
    MPI_Comm comms[N];
    for (int i = 0; i < N; i++) MPI_Comm_dup(i ? comms[i / 2] : MPI_COMM_WORLD, &comms[i]);
    int to = (rank + 1) % size, from = (rank + size - 1) % size, in[N], out[N];
    MPI_Request requests[2 * N];
    for (int i = 0; i < N; i++) MPI_Irecv(&in[i], 1, MPI_INT, from, 0, comms[i], &requests[i]);
    for (int i = N - 1; i >= 0; i--) {
        out[i] = i * 100 + rank;
        MPI_Isend(&out[i], 1, MPI_INT, to, 0, comms[i], &requests[N + i]);
    }
    MPI_Waitall(2 * N, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < N; i++) EQUAL(in[i], i * 100 + from, "message of a comm");
    for (int i = 0; i < N; i++) MPI_Comm_free(&comms[i]);
    for (int i = 0; i < 2000; i++) {
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_free(&comm);
    }
    MPI_Comm later;
    MPI_Request request;
    MPI_Comm_idup(MPI_COMM_WORLD, &later, &request);
    CHECK(request != MPI_REQUEST_NULL, "the duplicate has no request");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EQUAL(sum_of_ranks(later), size * (size - 1) / 2, "sum of ranks");
    MPI_Comm_free(&later);
}

static int copies, deletes;

static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)key, (void)extra;
    copies++;
    *(void **)out = (char *)in + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int key, void *value_, void *extra)
{
    (void)comm, (void)key, (void)value_;
    deletes += *(int *)extra;
    return MPI_SUCCESS;
}

static void attributes(void)
{
    int key, flag, one = 1, data[4], *limit;
    void *got;
    MPI_Comm comm;
    MPI_Comm_create_keyval(copy, delete, &key, &one);
    MPI_Comm_set_attr(MPI_COMM_WORLD, key, data);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_get_attr(comm, key, &got, &flag);
    CHECK(flag && got == (char *)data + 1, "the copied attribute is %p, of %p", got, (void *)data);
    EQUAL(copies, 1, "copies");
    MPI_Comm_free(&comm);
    MPI_Comm_delete_attr(MPI_COMM_WORLD, key);
    EQUAL(deletes, 2, "deletes");
    MPI_Comm_free_keyval(&key);
    EQUAL(key, MPI_KEYVAL_INVALID, "freed key");
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &flag);
    CHECK(flag && *limit >= 32767, "tag limit %d", flag ? *limit : -1);
    char name[MPI_MAX_OBJECT_NAME];
    int length;
    MPI_Comm_get_name(MPI_COMM_WORLD, name, &length);
    CHECK(strcmp(name, "MPI_COMM_WORLD") == 0, "world is called %s", name);
}

static void compares(void)
{
    MPI_Comm same, turned;
    int result;
    MPI_Comm_dup(MPI_COMM_WORLD, &same);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned);
    MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_WORLD, &result);
    EQUAL(result, MPI_IDENT, "world and world");
    MPI_Comm_compare(MPI_COMM_WORLD, same, &result);
    EQUAL(result, MPI_CONGRUENT, "world and its duplicate");
    MPI_Comm_compare(MPI_COMM_WORLD, turned, &result);
    EQUAL(result, size == 1 ? MPI_CONGRUENT : MPI_SIMILAR, "world and world turned around");
    MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_SELF, &result);
    EQUAL(result, size == 1 ? MPI_CONGRUENT : MPI_UNEQUAL, "world and self");
    MPI_Comm_free(&turned);
    MPI_Comm_free(&same);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    splits();
    groups();
    many();
    attributes();
    compares();
    return end();
}
