/* A rank that polls makes progress for its other operations. Rank 0 has a receive under way and polls, in
   each of the ways in which a program can poll, until rank 1 has passed its send, which is too long for the
   eager protocol.
   ranks: 2   ways: plain no-cma */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "io.h"

enum { BYTES = 1 << 20, TAG = 5, GO = 6 };

static MPI_Win win, epoch;
static int *memory, zero, one = 1;
static MPI_File file;
static MPI_Request go, parts;
static MPI_Group others;

typedef struct {
    const char *name;
    int (*asks)(void);   /* rank 0: whether rank 1 has said so */
    void (*begins)(void); /* both, before */
    void (*says)(void);  /* rank 1, when its send is over */
    void (*ends)(void);  /* both */
} way;

static void nothing(void) {}

static void lock_all(void) { MPI_Win_lock_all(0, win); }
static void unlock_all(void) { MPI_Win_unlock_all(win); }
static void set_word(void)
{
    MPI_Accumulate(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_REPLACE, win);
    MPI_Win_flush(0, win);
}
static void lock_and_set(void)
{
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
    MPI_Put(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
    MPI_Win_unlock(0, win);
}
static int fetch(void)
{
    int value = 0;
    MPI_Fetch_and_op(&zero, &value, MPI_INT, 0, 0, MPI_NO_OP, win);
    MPI_Win_flush(0, win);
    return value;
}
static int fetch_all(void)
{
    int value = 0;
    MPI_Get_accumulate(&zero, 0, MPI_INT, &value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_NO_OP, win);
    MPI_Win_flush_local_all(win);
    return value;
}
static int swap(void)
{
    int value = 0;
    MPI_Compare_and_swap(&one, &one, &value, MPI_INT, 0, 0, win);
    MPI_Win_flush_local(0, win);
    return value;
}
static int requested(void)
{
    int value = 0;
    MPI_Request request;
    MPI_Rget_accumulate(&zero, 0, MPI_INT, &value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_NO_OP, win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return value;
}
static int flushed(void)
{
    MPI_Win_flush_all(win);
    return *(volatile int *)memory;
}
static int synced(void)
{
    MPI_Win_sync(win);
    return *(volatile int *)memory;
}
static int locked(void)
{
    int value = 0;
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Get(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
    MPI_Win_unlock(0, win);
    return value;
}
static int all_locked(void)
{
    int value = 0;
    MPI_Win_lock_all(0, win);
    MPI_Get(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
    MPI_Win_unlock_all(win);
    return value;
}

static void expose(void)
{
    if (rank == 0) MPI_Win_post(others, 0, epoch);
    if (rank == 1) MPI_Win_start(others, 0, epoch);
}
static void complete(void) { MPI_Win_complete(epoch); }
static int exposed(void)
{
    int flag;
    MPI_Win_test(epoch, &flag);
    return flag;
}

static void send_go(void) { MPI_Send(&one, 1, MPI_INT, 0, GO, MPI_COMM_WORLD); }
static void recv_go(void)
{
    if (rank == 0) MPI_Irecv(&zero, 1, MPI_INT, 1, GO, MPI_COMM_WORLD, &go);
}
static void take_go(void)
{
    if (rank == 0) MPI_Recv(&zero, 1, MPI_INT, 1, GO, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static void end_go(void)
{
    if (rank == 0) MPI_Wait(&go, MPI_STATUS_IGNORE);
}
static int probed(void)
{
    int flag;
    MPI_Iprobe(1, GO, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    return flag;
}
static int taken(void)
{
    int flag;
    MPI_Message message;
    MPI_Improbe(1, GO, MPI_COMM_WORLD, &flag, &message, MPI_STATUS_IGNORE);
    if (flag) MPI_Mrecv(&zero, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
    return flag;
}
static int tested(void)
{
    int flag;
    MPI_Test(&go, &flag, MPI_STATUS_IGNORE);
    return flag;
}
static int any_tested(void)
{
    int flag, index;
    MPI_Testany(1, &go, &index, &flag, MPI_STATUS_IGNORE);
    return flag;
}
static int all_tested(void)
{
    int flag;
    MPI_Testall(1, &go, &flag, MPI_STATUSES_IGNORE);
    return flag;
}
static int some_tested(void)
{
    int many, index;
    MPI_Testsome(1, &go, &many, &index, MPI_STATUSES_IGNORE);
    return many == 1;
}
static int looked(void)
{
    int flag;
    MPI_Request_get_status(go, &flag, MPI_STATUS_IGNORE);
    return flag;
}
static int any_looked(void)
{
    int flag, index;
    MPI_Request_get_status_any(1, &go, &index, &flag, MPI_STATUS_IGNORE);
    return flag && index == 0;
}
static int all_looked(void)
{
    int flag;
    MPI_Request_get_status_all(1, &go, &flag, MPI_STATUSES_IGNORE);
    return flag;
}
static int some_looked(void)
{
    int many, index;
    MPI_Request_get_status_some(1, &go, &many, &index, MPI_STATUSES_IGNORE);
    return many == 1;
}

static void start_parts(void)
{
    if (rank == 0) MPI_Precv_init(&zero, 1, 1, MPI_INT, 1, GO, MPI_COMM_WORLD, MPI_INFO_NULL, &parts);
    if (rank == 1) MPI_Psend_init(&one, 1, 1, MPI_INT, 0, GO, MPI_COMM_WORLD, MPI_INFO_NULL, &parts);
    MPI_Start(&parts);
}
static void ready(void) { MPI_Pready(0, parts); }
static int arrived(void)
{
    int flag;
    MPI_Parrived(parts, 0, &flag);
    return flag;
}
static void end_parts(void)
{
    MPI_Wait(&parts, MPI_STATUS_IGNORE);
    MPI_Request_free(&parts);
}

static void open_file(void)
{
    file = open_fresh(MPI_INFO_NULL);
    MPI_File_set_atomicity(file, 1);
}
static void close_file(void) { MPI_File_close(&file); }
static void write_word(void) { MPI_File_write_shared(file, &one, 1, MPI_INT, MPI_STATUS_IGNORE); }
static int read_word(void)
{
    int value = 0;
    MPI_File_read_at(file, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE);
    return value;
}
static int sized(void)
{
    MPI_Offset bytes;
    MPI_File_get_size(file, &bytes);
    return bytes > 0;
}
static int positioned(void)
{
    MPI_Offset at;
    MPI_File_get_position_shared(file, &at);
    return at > 0;
}

static const way ways[] = {
    {"MPI_Fetch_and_op, MPI_Win_flush", fetch, lock_all, set_word, unlock_all},
    {"MPI_Get_accumulate, MPI_Win_flush_local_all", fetch_all, lock_all, set_word, unlock_all},
    {"MPI_Compare_and_swap, MPI_Win_flush_local", swap, lock_all, set_word, unlock_all},
    {"MPI_Rget_accumulate, MPI_Wait", requested, lock_all, set_word, unlock_all},
    {"MPI_Win_flush_all", flushed, lock_all, set_word, unlock_all},
    {"MPI_Win_sync", synced, lock_all, set_word, unlock_all},
    {"MPI_Win_lock, MPI_Get, MPI_Win_unlock", locked, nothing, lock_and_set, nothing},
    {"MPI_Win_lock_all, MPI_Get, MPI_Win_unlock_all", all_locked, nothing, lock_and_set, nothing},
    {"MPI_Win_test", exposed, expose, complete, nothing},
    {"MPI_Iprobe", probed, nothing, send_go, take_go},
    {"MPI_Improbe", taken, nothing, send_go, nothing},
    {"MPI_Test", tested, recv_go, send_go, nothing},
    {"MPI_Testany", any_tested, recv_go, send_go, nothing},
    {"MPI_Testall", all_tested, recv_go, send_go, nothing},
    {"MPI_Testsome", some_tested, recv_go, send_go, nothing},
    {"MPI_Request_get_status", looked, recv_go, send_go, end_go},
    {"MPI_Request_get_status_any", any_looked, recv_go, send_go, end_go},
    {"MPI_Request_get_status_all", all_looked, recv_go, send_go, end_go},
    {"MPI_Request_get_status_some", some_looked, recv_go, send_go, end_go},
    {"MPI_Parrived", arrived, start_parts, ready, end_parts},
    {"MPI_File_read_at", read_word, open_file, write_word, close_file},
    {"MPI_File_get_size", sized, open_file, write_word, close_file},
    {"MPI_File_get_position_shared", positioned, open_file, write_word, close_file},
};

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Group world;
    int other = 1 - rank, *data = calloc(1, BYTES);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &other, &others);
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    MPI_Win_create(NULL, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &epoch);
    for (int at = 0; at < (int)(sizeof ways / sizeof *ways); at++) {
        const way *w = &ways[at];
        *memory = zero = 0;
        w->begins();
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            MPI_Request request;
            MPI_Irecv(data, BYTES / sizeof(int), MPI_INT, 1, TAG, MPI_COMM_WORLD, &request);
            while (!w->asks());
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            FILLED(data, (int)(BYTES / sizeof(int)), 1, at);
        } else {
            fill(data, BYTES / sizeof(int), 1, at);
            MPI_Send(data, BYTES / sizeof(int), MPI_INT, 0, TAG, MPI_COMM_WORLD);
            w->says();
            checked++;
        }
        MPI_Barrier(MPI_COMM_WORLD);
        w->ends();
    }
    MPI_Group_free(&others);
    MPI_Group_free(&world);
    MPI_Win_free(&epoch);
    MPI_Win_free(&win);
    free(data);
    return end();
}
