/* A rank that writes a long block to a file by itself makes progress for its peers meanwhile.
   ranks: 2   ways: plain no-cma */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "io.h"
#include <sys/syscall.h>
#include <unistd.h>

enum { LONG = 1 << 20, BLOCK = 8 << 20 };
/* Set by rank 1 once its message has been received. */
static volatile int *sent;
static int late;

/* This function replaces the C library's, so the device is as slow as rank 1. */
ssize_t pwrite(int file, const void *data, size_t bytes, off_t offset)
{
    int waits = 0;
    while (sent && !__atomic_load_n(sent, __ATOMIC_ACQUIRE) && waits++ < 20000) usleep(1000);
    late |= waits > 20000;
    return syscall(SYS_pwrite64, file, data, bytes, offset);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_File file = open_fresh(MPI_INFO_NULL);
    char *data = grab(LONG), *block = calloc(1, BLOCK);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Win window;
    MPI_Aint bytes;
    int unit, *flag;
    MPI_Win_allocate_shared(rank == 0 ? sizeof(int) : 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &flag, &window);
    MPI_Win_shared_query(window, 0, &bytes, &unit, &flag);
    if (rank == 0) *flag = 0;
    if (rank == 0) MPI_Irecv(data, LONG, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        sent = flag;
        OK(MPI_File_write_at(file, 0, block, BLOCK, MPI_CHAR, MPI_STATUS_IGNORE));
        sent = NULL;
        EQUAL(late, 0, "whether the message was stuck while the file was written");
    } else {
        memset(data, 'x', LONG);
        MPI_Ssend(data, LONG, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(data[0] == 'x' && data[LONG - 1] == 'x', "the message is wrong");
    MPI_Win_free(&window);
    OK(MPI_File_close(&file));
    return end();
}
