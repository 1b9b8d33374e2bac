/* Buffers that the kernel lets no other process read or write, as a device's memory: here memory of
   memfd_secret. On a kernel without it only results are checked.
   ranks: 1 2 3   ways: plain proxy pulled */
/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "check.h"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { COUNT = 300000, PART = COUNT / 3, TARGET = 20000 };

static int *hidden(int count)
{
    size_t bytes = (size_t)count * sizeof(int);
    int fd = (int)syscall(447, 0);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0) {
        int *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (memory != MAP_FAILED) return memory;
    }
    return malloc(bytes);
}

static int at(int of, int i) { return of * 1000003 + i; }

static void set(int *buffer) { for (int i = 0; i < COUNT; i++) buffer[i] = at(rank, i); }

static void messages(int *out, int *in)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    set(out);
    MPI_Sendrecv(out, COUNT, MPI_INT, next, 1, in, COUNT, MPI_INT, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < COUNT; i += 77) EQUAL(in[i], at(before, i), "a message");
}

static void collectives(int *out, int *in, int blocking)
{
    MPI_Request request[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    int sum = size * (size - 1) / 2 * 1000003, part = size <= 3 ? PART : COUNT / size;
    set(out);
    if (blocking) MPI_Allreduce(out, in, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    else MPI_Iallreduce(out, in, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request[0]);
    MPI_Waitall(3, request, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COUNT; i += 77) EQUAL(in[i], sum + size * i, "a sum");
    if (blocking) MPI_Alltoall(out, part, MPI_INT, in, part, MPI_INT, MPI_COMM_WORLD);
    else MPI_Ialltoall(out, part, MPI_INT, in, part, MPI_INT, MPI_COMM_WORLD, &request[1]);
    MPI_Waitall(3, request, MPI_STATUSES_IGNORE);
    for (int from = 0; from < size; from++)
        for (int i = 0; i < part; i += 77) EQUAL(in[from * part + i], at(from, rank * part + i), "a block");
    if (blocking) MPI_Bcast(out, COUNT, MPI_INT, 0, MPI_COMM_WORLD);
    else MPI_Ibcast(out, COUNT, MPI_INT, 0, MPI_COMM_WORLD, &request[2]);
    MPI_Waitall(3, request, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COUNT; i += 77) EQUAL(out[i], at(0, i), "a broadcast");
}

static void window(int dynamic)
{
    MPI_Win win;
    MPI_Aint place = 0, all[64];
    int *memory = hidden(TARGET), *back = hidden(TARGET), *out = hidden(TARGET), target = (rank + 1) % size, one = 1, old;
    if (dynamic) {
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        MPI_Win_attach(win, memory, TARGET * sizeof(int));
        MPI_Get_address(memory, &place);
    } else {
        MPI_Win_create(memory, TARGET * sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    }
    MPI_Allgather(&place, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD);
    memset(memory, 0, TARGET * sizeof(int));
    for (int i = 0; i < TARGET; i++) out[i] = at(rank, i);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    MPI_Put(out, TARGET, MPI_INT, target, all[target], TARGET, MPI_INT, win);
    MPI_Win_flush(target, win);
    MPI_Accumulate(out, TARGET, MPI_INT, target, all[target], TARGET, MPI_INT, MPI_SUM, win);
    MPI_Win_flush(target, win);
    MPI_Fetch_and_op(&one, &old, MPI_INT, target, all[target], MPI_SUM, win);
    MPI_Get(back, TARGET, MPI_INT, target, all[target], TARGET, MPI_INT, win);
    MPI_Win_unlock_all(win);
    EQUAL(old, 2 * out[0], "what was there");
    for (int i = 1; i < TARGET; i++) EQUAL(back[i], 2 * out[i], "an element of a window");
    if (dynamic) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_detach(win, memory);
    }
    MPI_Win_free(&win);
}

static void file(int *out, int *in)
{
    char name[64] = "";
    if (rank == 0) snprintf(name, sizeof name, "/tmp/outboard-hidden-%d", (int)getpid());
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_File handle;
    MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &handle);
    set(out);
    MPI_File_write_at_all(handle, rank * (MPI_Offset)COUNT * 4, out, COUNT, MPI_INT, MPI_STATUS_IGNORE);
    int from = (rank + 1) % size;
    MPI_File_sync(handle);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_read_at_all(handle, from * (MPI_Offset)COUNT * 4, in, COUNT, MPI_INT, MPI_STATUS_IGNORE);
    for (int i = 0; i < COUNT; i += 77) EQUAL(in[i], at(from, i), "an element of a file");
    MPI_File_close(&handle);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int *out = hidden(COUNT), *in = hidden(COUNT);
    collectives(out, in, 1);
    collectives(out, in, 0);
    window(0);
    window(1);
    file(out, in);
    messages(out, in);
    collectives(out, in, 1);
    return end();
}
