/* one_way [refuse]: collectives on private memory that one rank cannot read: from the 12th round on if rank 1 is to
   `refuse` itself cross-memory attach, as a sandbox does; else if this program is started so (unshare --user). */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { LONG = 1500000, SHORT = 40000, ROUNDS = 24 };

static void refuse(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("one_way");
        exit(3);
    }
}

static int me, size, bad;
static char *from, *into;

static char value(int rank, int to, int round) { return (char)(1 + rank * 31 + to * 7 + round); }

/* Fills the blocks for each rank, and overwrites those that were received. */
static void fill(int bytes, int round, int per_rank)
{
    for (int to = 0; to < size; to++)
        memset(from + (size_t)to * bytes, value(me, per_rank ? to : 0, round), bytes);
    memset(into, 0, (size_t)size * bytes);
}

/* Checks every rank's block at its two ends and its middle. */
static void check(int bytes, int round, int per_rank, const char *what)
{
    for (int rank = 0; rank < size; rank++) {
        const char *block = into + (size_t)rank * bytes, wanted = value(rank, per_rank ? me : 0, round);
        if (block[0] != wanted || block[bytes / 2] != wanted || block[bytes - 1] != wanted) {
            printf("rank %d, round %d, %s of %d bytes: the block of rank %d is wrong\n", me, round, what, bytes, rank);
            bad = 1;
        }
    }
}

static void some(int bytes, int round)
{
    MPI_Request request;
    fill(bytes, round, 1);
    MPI_Alltoall(from, bytes, MPI_CHAR, into, bytes, MPI_CHAR, MPI_COMM_WORLD);
    check(bytes, round, 1, "alltoall");
    fill(bytes, round, 1);
    MPI_Ialltoall(from, bytes, MPI_CHAR, into, bytes, MPI_CHAR, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(bytes, round, 1, "ialltoall");
    fill(bytes, round, 0);
    MPI_Allgather(from, bytes, MPI_CHAR, into, bytes, MPI_CHAR, MPI_COMM_WORLD);
    check(bytes, round, 0, "allgather");
    for (int root = 0; root < size; root++) {
        char *block = into + (size_t)root * bytes;
        memset(block, root == me ? value(me, 0, round) : 0, bytes);
        MPI_Bcast(block, bytes, MPI_CHAR, root, MPI_COMM_WORLD);
    }
    check(bytes, round, 0, "bcast");
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    from = malloc((size_t)size * LONG);
    into = malloc((size_t)size * LONG);
    MPI_Request again;
    MPI_Alltoall_init(from, LONG, MPI_CHAR, into, LONG, MPI_CHAR, MPI_COMM_WORLD, MPI_INFO_NULL, &again);
    for (int round = 0; round < ROUNDS; round++) {
        if (round == ROUNDS / 2 && me == 1 && argc > 1)
            refuse();
        some(LONG, round);
        some(SHORT, round);
        fill(LONG, round, 1);
        MPI_Start(&again);
        MPI_Wait(&again, MPI_STATUS_IGNORE);
        check(LONG, round, 1, "persistent alltoall");
    }
    MPI_Request_free(&again);
    MPI_Finalize();
    return bad;
}
