/* Puts and gets of every datatype into every kind of window, against a model in plain memory; all lengths, no
   overlap, MPI_PROC_NULL.
   ways: plain no-cma */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "window.h"

#define BYTES (1 << 18)

static unsigned seed = 7;
static unsigned dice(unsigned n)
{
    seed = seed * 1103515245u + 12345u;
    return (seed >> 8) % n;
}

/* A datatype over at most `room` bytes with some gaps. Ranks that call in the same order get the same one. */
static MPI_Datatype random_type(int *count)
{
    MPI_Datatype type;
    int lengths[5], places[5], n = 1 + dice(5);
    *count = 1 + dice(6);
    switch (dice(5)) {
    case 0:
        MPI_Type_vector(1 + dice(20), 1 + dice(5), 5 + dice(9), MPI_INT, &type);
        break;
    case 1:
        for (int i = 0, at = 0; i < n; i++) {
            lengths[i] = 1 + dice(7);
            places[i] = at;
            at += lengths[i] + dice(3);
        }
        MPI_Type_indexed(n, lengths, places, MPI_SHORT, &type);
        break;
    case 2: {
        MPI_Aint offsets[2] = {4, 24};
        MPI_Datatype parts[2] = {MPI_INT, MPI_DOUBLE};
        int blocks[2] = {3, 2};
        MPI_Type_create_struct(2, blocks, offsets, parts, &type);
        break;
    }
    case 3:
        MPI_Type_contiguous(1 + dice(30000), MPI_CHAR, &type);
        *count = 1 + dice(2);
        break;
    default:
        MPI_Type_create_hvector(3, 2, -40, MPI_FLOAT, &type);
        *count = 1;
    }
    MPI_Type_commit(&type);
    return type;
}

/* Rank `origin` moves data, and all ranks check: pack and unpack do the same to the model of the window. */
static void one(int origin, int target, int is_put)
{
    static char model[BYTES], user[BYTES], before[BYTES], packed[BYTES];
    int count, place = 0;
    MPI_Aint at = 4096 + dice(1000) * 8, lb, extent;
    MPI_Datatype type = random_type(&count);
    MPI_Type_get_true_extent(type, &lb, &extent);
    MPI_Type_size(type, &place);
    int bytes = place * count;
    for (int i = 0; i < BYTES; i++) {
        memory[i] = (char)(i * 5 + rank + at);
        model[i] = (char)(i * 5 + target + at);
        user[i] = before[i] = (char)(i * 3 + origin * 7 + bytes);
    }
    int far_is_packed = dice(2);
    MPI_Win_fence(0, win);
    if (rank == origin) {
        MPI_Datatype there = far_is_packed ? MPI_BYTE : type, here = far_is_packed ? type : MPI_BYTE;
        int there_count = far_is_packed ? bytes : count, here_count = far_is_packed ? count : bytes;
        if (is_put)
            MPI_Put(user + 512, here_count, here, target, origins[target] + at, there_count, there, win);
        else
            MPI_Get(user + 512, here_count, here, target, origins[target] + at, there_count, there, win);
    }
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    int to = 0, from = 0;
    char *source = is_put ? before + 512 : model + at, *sink = is_put ? model + at : before + 512;
    int source_is_typed = is_put == far_is_packed;
    if (source_is_typed) {
        MPI_Pack(source, count, type, packed, BYTES, &to, MPI_COMM_WORLD);
        memcpy(sink, packed, bytes);
    } else {
        memcpy(packed, source, bytes);
        MPI_Unpack(packed, bytes, &from, sink, count, type, MPI_COMM_WORLD);
    }
    if (rank == target) CHECK(memcmp(memory, model, BYTES) == 0, "%s: the window differs after a %s", kind_names[kind],
                              is_put ? "put" : "get");
    if (rank == origin) CHECK(memcmp(user, before, BYTES) == 0, "%s: the origin differs after a %s", kind_names[kind],
                              is_put ? "put" : "get");
    MPI_Type_free(&type);
    MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
}

/* Every length from 0 on, and a target that holds more than is sent. */
static void lengths(void)
{
    static const int list[] = {0, 1, 7, 8, 9, 64, 4095, 4096, 70000, BYTES / 2};
    static char user[BYTES];
    int next = (rank + 1) % size;
    for (unsigned i = 0; i < sizeof list / sizeof *list; i++) {
        int n = list[i];
        memset(memory, 1, BYTES);
        memset(user, 2 + rank % 100, BYTES);
        MPI_Win_fence(0, win);
        MPI_Put(user, n, MPI_BYTE, next, origins[next] + 3, n + 5, MPI_BYTE, win);
        MPI_Put(user, n, MPI_BYTE, MPI_PROC_NULL, 0, n, MPI_BYTE, win);
        MPI_Win_fence(0, win);
        int last = (rank + size - 1) % size, wrong = 0;
        for (int b = 0; b < BYTES; b++) wrong += memory[b] != (b >= 3 && b < n + 3 ? 2 + last % 100 : 1);
        EQUAL(wrong, 0, "bytes that differ after a put");
        MPI_Win_fence(0, win);
        memset(user, 0, BYTES);
        MPI_Get(user, n, MPI_BYTE, next, origins[next] + 3, n, MPI_BYTE, win);
        MPI_Get(user, n, MPI_BYTE, MPI_PROC_NULL, 0, n, MPI_BYTE, win);
        MPI_Win_fence(0, win);
        wrong = 0;
        for (int b = 0; b < BYTES; b++) wrong += user[b] != (b < n ? 2 + rank % 100 : 0);
        EQUAL(wrong, 0, "bytes that differ after a get");
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int which = 0; which < KINDS; which++) {
        if (which == SHARED && !on_one_host()) continue;
        make_window(which, BYTES);
        lengths();
        for (int round = 0; round < 30; round++) {
            int origin = dice(size), target = dice(size), is_put = dice(2);
            one(origin, target, is_put);
        }
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
        free_window();
    }
    return end();
}
