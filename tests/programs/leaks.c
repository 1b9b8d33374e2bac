/* With OUTBOARD_CHECK=2 MPI_Finalize lists what was not received or freed, one line each. Without it, a
   message that is never received delays no rank.
   ranks: 1 2 3   ways: plain no-cma   env: OUTBOARD_CHECK=2 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <unistd.h>

static char text[1 << 16];

static void expect(int times, const char *format, ...)
{
    char words[256];
    va_list list;
    va_start(list, format);
    vsnprintf(words, sizeof words, format, list);
    va_end(list);
    int found = 0;
    for (char *at = text; (at = strstr(at, words)); at++) found++;
    CHECK(found == times, "'%s' is there %d times, not %d, in:\n%s", words, found, times, text);
}

int main(int argc, char **argv)
{
    enum { LONG = 300000 };
    static int data[4], big[LONG], never[8], plain[4];
    begin(&argc, &argv);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Request send[3], recv, ended, persistent, receives[4];
    MPI_Message message;
    MPI_Comm comm;
    MPI_Datatype type;
    MPI_Win win;
    MPI_Info info;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_name(comm, "forgotten");
    MPI_Type_contiguous(3, MPI_INT, &type);
    MPI_Type_set_name(type, "triple");
    MPI_Info_create(&info);
    /* Receives on the fast path: one that completes when the last one does, one that is freed and goes on to
       its end, and one for which no message comes. */
    for (int at = 0; at < 4; at++) MPI_Irecv(&plain[at], 1, MPI_INT, from, 17 + at, MPI_COMM_WORLD, &receives[at]);
    MPI_Request_free(&receives[1]);
    for (int at = 0; at < 4; at++)
        if (at != 2) MPI_Send(data, 1, MPI_INT, to, 17 + at, MPI_COMM_WORLD);
    MPI_Wait(&receives[3], MPI_STATUS_IGNORE);
    MPI_Win_create(data, sizeof data, 1, MPI_INFO_NULL, MPI_COMM_SELF, &win);
    /* Messages that are never received: short, long, and one that a matched probe has taken. */
    MPI_Isend(data, 4, MPI_INT, to, 11, MPI_COMM_WORLD, &send[0]);
    MPI_Isend(big, LONG, MPI_INT, to, 12, comm, &send[1]);
    MPI_Isend(big, LONG, MPI_INT, to, 13, comm, &send[2]);
    MPI_Mprobe(from, 13, comm, &message, MPI_STATUS_IGNORE);
    MPI_Irecv(never, 8, MPI_INT, MPI_ANY_SOURCE, 14, MPI_COMM_WORLD, &recv);
    MPI_Irecv(never, 8, MPI_INT, MPI_PROC_NULL, 15, MPI_COMM_WORLD, &ended);
    MPI_Send_init(data, 1, MPI_INT, to, 16, MPI_COMM_WORLD, &persistent);
    char path[] = "/tmp/outboard-leaks-XXXXXX";
    int file = mkstemp(path), kept = dup(2);
    dup2(file, 2);
    MPI_Finalize();
    dup2(kept, 2);
    ssize_t bytes = pread(file, text, sizeof text - 1, 0);
    close(file);
    unlink(path);
    CHECK(bytes > 0, "nothing was said");
    expect(1, "rank %d, MPI_Finalize: message of 16 bytes from rank %d, tag 11, on MPI_COMM_WORLD, was never received", rank, from);
    expect(1, "message of %d bytes from rank %d, tag 12, on 0x", LONG * 4, from);
    expect(1, "message of %d bytes from rank %d, tag 13, on ", LONG * 4, from);
    expect(1, "receive of up to 32 bytes from any rank, tag 14, on MPI_COMM_WORLD, was never matched");
    expect(1, ", a persistent send, was never freed");
    expect(1, "receive of up to 4 bytes from rank %d, tag 19, on MPI_COMM_WORLD, was never matched", from);
    /* The three sends have ended by now, and so have the receive from MPI_PROC_NULL and the first plain one.
       */
    expect(5, ", an operation that has ended, was never completed");
    expect(1, ", named forgotten, of %d processes, was never freed", size);
    expect(1, ", named triple, of 12 bytes, was never freed");
    expect(1, "window ");
    expect(1, "info ");
    return failed != 0;
}
