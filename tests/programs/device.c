/* Device memory as buffers, which no program touches but by copies: messages of all modes and lengths, derived
   datatypes, persistent and nonblocking calls, collectives with mixed host and device buffers, packing, windows'
   origins and memory, partitions, files; and what is wrong with an address is said.
   ranks: 1 2 3   env: OUTBOARD_DEVICE=sentinel */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "on_device.h"
#include <unistd.h>

static void messages(int count)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    int *out = filled(count, rank, count), *in = filled(count, 99, 0);
    MPI_Request requests[2];
    MPI_Status status;
    int got;

    MPI_Sendrecv(out, count, MPI_INT, next, 1, in, count, MPI_INT, before, 1, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_INT, &got);
    EQUAL(got, count, "elements received");
    HOLDS(in, count, before, count);

    MPIX_Device_free(in);
    in = filled(count, 99, 0);
    MPI_Irecv(in, count, MPI_INT, before, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Issend(out, count, MPI_INT, next, 2, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    HOLDS(in, count, before, count);

    /* The persistent send sends the bytes that are in the memory at each start. */
    MPI_Send_init(out, count, MPI_INT, next, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(in, count, MPI_INT, before, 3, MPI_COMM_WORLD, &requests[1]);
    for (int round = 0; round < 3; round++) {
        int *now = filled(count, rank, round);
        MPIX_Device_copy(out, now, count * sizeof(int));
        MPIX_Device_free(now);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        HOLDS(in, count, before, round);
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPIX_Device_free(in);
    MPIX_Device_free(out);
}

/* A receive writes nothing between the pieces of its datatype, nor behind a short message. */
static void gaps(void)
{
    int next = (rank + 1) % size, before = (rank + size - 1) % size, count = 1000, host[1000];
    int *out = filled(count, rank, 5), *in = filled(count, 77, 6);
    MPI_Datatype every_third;
    MPI_Type_vector(count / 4, 1, 3, MPI_INT, &every_third);
    MPI_Type_commit(&every_third);
    MPI_Sendrecv(out, 100, MPI_INT, next, 1, in, 1, every_third, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPIX_Device_copy(host, in, sizeof(host));
    for (int i = 0; i < count; i++) {
        int hit = i % 3 == 0 && i / 3 < 100;
        EQUAL(host[i], hit ? value(before, i / 3, 5) : value(77, i, 6), "an element after a receive with gaps");
    }
    MPI_Type_free(&every_third);
    MPIX_Device_free(in);
    MPIX_Device_free(out);
}

static void collectives(int count)
{
    int *data = filled(count, 0, count), *sum = device(count * sizeof(int)), *host = grab(count * sizeof(int));
    int *ones = grab(count * sizeof(int)), *all = device((size_t)count * size * sizeof(int));
    MPI_Request request;
    for (int i = 0; i < count; i++) ones[i] = i + rank;

    if (rank != 0) MPIX_Device_copy(data, ones, count * sizeof(int));
    MPI_Bcast(data, count, MPI_INT, 0, MPI_COMM_WORLD);
    HOLDS(data, count, 0, count);

    MPIX_Device_copy(data, ones, count * sizeof(int));
    for (int round = 0; round < 4; round++) {
        /* device to device, host to device, device to host, in place */
        if (round == 3) MPIX_Device_copy(sum, ones, count * sizeof(int));
        MPI_Iallreduce(round == 3 ? MPI_IN_PLACE : round == 1 ? (void *)ones : data, round == 2 ? host : sum, count, MPI_INT,
                       MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (round != 2) MPIX_Device_copy(host, sum, count * sizeof(int));
        for (int i = 0; i < count; i++) EQUAL(host[i], i * size + size * (size - 1) / 2, "an element of the sum");
    }
    MPIX_Device_free(data);
    data = filled(count, rank, 9);
    MPI_Allgather(data, count, MPI_INT, all, count, MPI_INT, MPI_COMM_WORLD);
    for (int from = 0; from < size; from++) HOLDS(all + (size_t)from * count, count, from, 9);
    MPIX_Device_free(data);
    MPIX_Device_free(sum);
    MPIX_Device_free(all);
    free(host);
    free(ones);
}

static void neighbours(void)
{
    int count = 100, periodic = 1, dims = size, from, to;
    int *out = filled(2 * count, rank, 3), *in = device(2 * count * sizeof(int)), *host = grab(2 * count * sizeof(int));
    MPI_Comm ring;
    MPI_Request request;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &dims, &periodic, 0, &ring);
    MPI_Cart_shift(ring, 0, 1, &from, &to);
    for (int round = 0; round < 2; round++) {
        if (round) {
            MPI_Ineighbor_alltoall(out, count, MPI_INT, in, count, MPI_INT, ring, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else {
            MPI_Neighbor_alltoall(out, count, MPI_INT, in, count, MPI_INT, ring);
        }
        MPIX_Device_copy(host, in, 2 * count * sizeof(int));
        /* The block from below is the second of the two that this rank sent up. */
        EQUAL(host[7], value(from, count + 7, 3), "an element from below");
        EQUAL(host[count + 7], value(to, 7, 3), "an element from above");
    }
    MPI_Comm_free(&ring);
    MPIX_Device_free(in);
    MPIX_Device_free(out);
    free(host);
}

static void matched(void)
{
    int count = 50, host[50];
    int *out = filled(count, rank, 4), *in = filled(count, 1, 1);
    MPI_Request request;
    MPI_Message message;
    MPI_Isend(out, count, MPI_INT, rank, 8, MPI_COMM_WORLD, &request);
    MPI_Mprobe(rank, 8, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(in, count, MPI_INT, &message, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    HOLDS(in, count, rank, 4);
    MPI_Reduce_local(out, in, count, MPI_INT, MPI_SUM);
    MPIX_Device_copy(host, in, sizeof(host));
    for (int i = 0; i < count; i++) EQUAL(host[i], (int)(2u * (unsigned)value(rank, i, 4)), "an element of MPI_Reduce_local");
    MPIX_Device_free(in);
    MPIX_Device_free(out);
}

static void others(void)
{
    int count = 300, bytes, at = 0, target[300];
    int *data = filled(count, rank, 1), *back = device(count * sizeof(int));
    char *packed, name[] = "/tmp/outboard-device-XXXXXX";
    MPI_Win win;
    MPI_File file;

    MPI_Pack_size(count, MPI_INT, MPI_COMM_WORLD, &bytes);
    packed = device(bytes);
    MPI_Pack(data, count, MPI_INT, packed, bytes, &at, MPI_COMM_WORLD);
    at = 0;
    MPI_Unpack(packed, bytes, &at, back, count, MPI_INT, MPI_COMM_WORLD);
    HOLDS(back, count, rank, 1);

    MPI_Win_create(target, sizeof(target), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    MPI_Put(data, count, MPI_INT, (rank + 1) % size, 0, count, MPI_INT, win);
    MPI_Win_fence(0, win);
    FILLED(target, count, (rank + size - 1) % size, 1);
    MPI_Get(back, count, MPI_INT, rank, 0, count, MPI_INT, win);
    MPI_Win_fence(0, win);
    HOLDS(back, count, (rank + size - 1) % size, 1);
    MPI_Win_free(&win);

    close(mkstemp(name));
    MPI_File_open(MPI_COMM_SELF, name, MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file);
    MPI_File_write_at(file, 0, data, count, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_read_at_all_begin(file, 0, back, count, MPI_INT);
    MPI_File_read_at_all_end(file, back, MPI_STATUS_IGNORE);
    HOLDS(back, count, rank, 1);
    MPI_File_close(&file);
    MPIX_Device_free(packed);
    MPIX_Device_free(back);
    MPIX_Device_free(data);
}

/* The memory of windows, whose owners need not call MPI for it to be read and written. */
static void windows(int dynamic)
{
    int count = 2000, next = (rank + 1) % size, last = (rank + size - 1) % size, one = 1, old = -1, seen = -1, host[2000];
    int *memory = filled(count, rank, 3), *data = filled(count, rank, 4);
    MPI_Aint base = 0, bases[16];
    MPI_Datatype every_second;
    MPI_Win win;
    if (dynamic) {
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        MPI_Win_attach(win, memory, count * sizeof(int));
        MPI_Get_address(memory, &base);
    } else {
        MPI_Win_create(memory, count * sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    }
    MPI_Allgather(&base, 1, MPI_AINT, bases, 1, MPI_AINT, MPI_COMM_WORLD);
    MPI_Win_fence(0, win);
    MPI_Get(host, count, MPI_INT, next, bases[next], count, MPI_INT, win);
    MPI_Win_fence(0, win);
    FILLED(host, count, next, 3);
    MPI_Put(data, count, MPI_INT, next, bases[next], count, MPI_INT, win);
    MPI_Win_fence(0, win);
    HOLDS(memory, count, last, 4);

    /* Each rank adds to rank 0's first element, and to its own. */
    int zero = 0;
    MPIX_Device_copy(memory, &zero, sizeof zero);
    MPI_Win_fence(0, win);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Accumulate(&one, 1, MPI_INT, 0, bases[0], 1, MPI_INT, MPI_SUM, win);
    MPI_Fetch_and_op(&one, &old, MPI_INT, 0, bases[0], MPI_SUM, win);
    MPI_Win_unlock(0, win);
    CHECK(old >= 1 && old < 2 * size, "the value before is %d", old);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPIX_Device_copy(&seen, memory, sizeof seen);
        EQUAL(seen, 2 * size, "the sum");
    }
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    int expected = rank == 0 ? 2 * size : 0, nine = 9;
    MPI_Compare_and_swap(&nine, &expected, &old, MPI_INT, rank, bases[rank], win);
    MPI_Win_unlock(rank, win);
    EQUAL(old, expected, "the value before a swap");
    MPIX_Device_copy(&seen, memory, sizeof seen);
    EQUAL(seen, 9, "the value after it");

    /* Between the pieces of a datatype nothing is written. */
    MPI_Type_vector(count / 2, 1, 2, MPI_INT, &every_second);
    MPI_Type_commit(&every_second);
    int *blank = filled(count, 7, 7);
    MPIX_Device_copy(memory, blank, count * sizeof(int));
    MPI_Win_fence(0, win);
    MPI_Put(data, count / 2, MPI_INT, next, bases[next], 1, every_second, win);
    MPI_Win_fence(0, win);
    MPIX_Device_copy(host, memory, sizeof host);
    int wrong = 0;
    for (int i = 0; i < count - 1; i++) wrong += host[i] != (i % 2 ? value(7, i, 7) : value(last, i / 2, 4));
    CHECK(wrong == 0, "%d elements of a window are wrong", wrong);
    MPI_Type_free(&every_second);
    if (dynamic) MPI_Win_detach(win, memory);
    MPI_Win_free(&win);
    MPIX_Device_free(blank), MPIX_Device_free(memory), MPIX_Device_free(data);
}

/* A partition is read once it is ready, and has arrived in the memory when MPI_Parrived says so. */
static void partitioned(void)
{
    enum { PARTS = 8, LONG = 1000 };
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    int *out = filled(PARTS * LONG, 99, 9), *in = filled(PARTS * LONG, 98, 9), mark = -5;
    MPI_Request requests[2];
    MPI_Precv_init(in, PARTS, LONG, MPI_INT, last, 4, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
    MPI_Psend_init(out, PARTS, LONG, MPI_INT, next, 4, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
    for (int round = 0; round < 3; round++) {
        MPI_Startall(2, requests);
        for (int part = 0; part < PARTS; part++) {
            int *made = filled(LONG, rank, round * PARTS + part), flag = 0;
            MPIX_Device_copy(out + part * LONG, made, LONG * sizeof(int));
            MPIX_Device_free(made);
            MPI_Pready(part, requests[1]);
            if (part % 2) continue;
            while (!flag) MPI_Parrived(requests[0], part, &flag);
            HOLDS(in + part * LONG, LONG, last, round * PARTS + part);
            /* The memory is the program's now: the end of the receive leaves it alone. */
            MPIX_Device_copy(in + part * LONG, &mark, sizeof mark);
        }
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        for (int part = 0; part < PARTS; part++) {
            int first;
            MPIX_Device_copy(&first, in + part * LONG, sizeof first);
            EQUAL(first, part % 2 ? value(last, 0, round * PARTS + part) : mark, "the first element of a partition");
        }
    }
    MPI_Request_free(&requests[0]);
    MPI_Request_free(&requests[1]);
    MPIX_Device_free(out), MPIX_Device_free(in);
}

#define SAYS(call, words) \
    do { \
        char text_[MPI_MAX_ERROR_STRING] = ""; \
        int length_, code_ = call; \
        if (code_) MPI_Error_string(code_, text_, &length_); \
        EQUAL(error_class(code_), MPI_ERR_BUFFER, "the class of " #call); \
        CHECK(strstr(text_, words), "%s says \"%s\", not \"%s\"", #call, text_, words); \
    } while (0)

static void wrong(void)
{
    int *data = device(100);
    MPI_Win win;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    SAYS(MPI_Send(data, 1000, MPI_INT, 0, 0, MPI_COMM_WORLD), "more than its allocation");
    SAYS(MPI_Allreduce(data, data, 10, MPI_INT, MPI_SUM, MPI_COMM_WORLD), "overlap");
    SAYS(MPI_Win_create(data, 1000, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win), "more than its allocation");
    /* The memory is freed while a window has it. An access gets an error, and the target goes on. */
    MPI_Win_create(data, 100, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPIX_Device_free(data);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, (rank + 1) % size, 0, win);
    EQUAL(error_class(MPI_Put(&size, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, win)), MPI_ERR_RMA_RANGE, "a put into freed memory");
    MPI_Win_unlock((rank + 1) % size, win);
    MPI_Win_free(&win);
    SAYS(MPI_Send(data, 1, MPI_INT, 0, 0, MPI_COMM_WORLD), "has been freed");
}

/* A kind of memory that the program requests is reported where it is supported. */
static void kinds(void)
{
    MPI_Info hints, used;
    MPI_Session session;
    char text[200] = "";
    int length = sizeof text, flag;
    MPI_Info_create(&hints);
    MPI_Info_set(hints, "mpi_memory_alloc_kinds", "system,sentinel:device,cuda:device,mpi:alloc_mem");
    MPI_Session_init(hints, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Session_get_info(session, &used);
    MPI_Info_get_string(used, "mpi_memory_alloc_kinds", &length, text, &flag);
    CHECK(flag && strcmp(text, "mpi,system,sentinel,sentinel:device,mpi:alloc_mem") == 0, "the memory kinds are %s", text);
    MPI_Info_free(&used);
    MPI_Info_free(&hints);
    MPI_Session_finalize(&session);
    length = sizeof text;
    MPI_Comm_get_info(MPI_COMM_WORLD, &used);
    MPI_Info_get_string(used, "mpi_memory_alloc_kinds", &length, text, &flag);
    CHECK(flag && strcmp(text, "mpi,system,sentinel") == 0, "the memory kinds of MPI_COMM_WORLD are %s", text);
    MPI_Info_free(&used);
}

int main(int argc, char **argv)
{
    int supported = 1;
    begin(&argc, &argv);
    EQUAL(MPIX_Query_cuda_support(), 0, "MPIX_Query_cuda_support without CUDA");
    EQUAL(MPIX_Query_hip_support(), 0, "MPIX_Query_hip_support without HIP");
    MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &supported);
    EQUAL(supported, 0, "MPIX_GPU_query_support without CUDA");
    for (int count = 1; count <= 1000000; count *= 100) messages(count);
    gaps();
    for (int count = 2; count <= 200000; count *= 100) collectives(count);
    neighbours();
    matched();
    others();
    windows(0);
    windows(1);
    partitioned();
    kinds();
    wrong();
    return end();
}
