/* outboard_dl: collectives for training, over the public functions of MPI (liboutboard_dl.so.1, libmpi_abi.so.1).

   A call starts an operation on a group and returns at once. It goes on by itself: a thread of this library, or a
   proxy of the job, carries it out while the caller computes. At its end a function of the caller is called, and the
   operation's handle says so. All functions may be called from several threads, but for init and finalize.

   Order: each member of a group starts the group's collectives in the same order. Groups are apart from each other.
   Memory: buffers belong to the operation from its start to its end. After OUTBOARD_DL_TIMEOUT or
   OUTBOARD_DL_ABORTED they must stay valid until the process ends, because a peer may still write there.
   A function returns OUTBOARD_DL_OK or an error; outboard_dl_message() then has a sentence for this thread. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef OUTBOARD_DL_H
#define OUTBOARD_DL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum outboard_dl_code {
    OUTBOARD_DL_OK = 0,
    OUTBOARD_DL_ARGUMENT = 1, /* an argument is wrong; nothing was started */
    OUTBOARD_DL_TIMEOUT = 2,
    OUTBOARD_DL_ABORTED = 3, /* the group was aborted, or an operation of it timed out before */
    OUTBOARD_DL_MPI = 4,     /* MPI returned an error */
    OUTBOARD_DL_STATE = 5    /* not initialised, finalized, a fork of the process that was, or MPI lacks MPI_THREAD_MULTIPLE */
};

enum outboard_dl_type {
    OUTBOARD_DL_F16 = 1,
    OUTBOARD_DL_BF16,
    OUTBOARD_DL_F32,
    OUTBOARD_DL_F64,
    OUTBOARD_DL_I8,
    OUTBOARD_DL_U8,
    OUTBOARD_DL_I16,
    OUTBOARD_DL_U16,
    OUTBOARD_DL_I32,
    OUTBOARD_DL_U32,
    OUTBOARD_DL_I64,
    OUTBOARD_DL_U64,
    OUTBOARD_DL_BOOL /* one byte; a sum is a logical or, a product a logical and */
};

enum outboard_dl_op {
    OUTBOARD_DL_SUM = 1,
    OUTBOARD_DL_AVERAGE, /* of floating-point types: the sum, divided by the size of the group */
    OUTBOARD_DL_PRODUCT,
    OUTBOARD_DL_MIN,
    OUTBOARD_DL_MAX,
    OUTBOARD_DL_BAND, /* bitwise, of integers */
    OUTBOARD_DL_BOR,
    OUTBOARD_DL_BXOR
};

typedef struct outboard_dl_group outboard_dl_group;
typedef struct outboard_dl_work outboard_dl_work;

/* Called once, at the end of an operation: in a thread of the library, or in outboard_dl_test or outboard_dl_wait.
   Test and wait say that the operation has ended only after it has returned. It may start operations, and wait for
   others than its own; calls for several operations may overlap. */
typedef void (*outboard_dl_callback)(void *state, int code, const char *message);

enum { OUTBOARD_DL_WAITED = 1 }; /* flag: the caller will wait for this operation at once, and so may carry it out itself */

typedef struct outboard_dl_options {
    double timeout;                /* seconds; 0: the group's; less than 0: none */
    outboard_dl_callback callback; /* may be NULL */
    void *state;
    int flags;
} outboard_dl_options;

/* Initialises MPI with MPI_THREAD_MULTIPLE, if that has not been done, and starts the library's threads. */
int outboard_dl_init(void);
/* Collective over the ranks. Waits for all operations, frees the groups, and finalizes MPI if init initialised it. OUTBOARD_DL_ABORTED: this
   process has given up operations (a time-out, an abort), and within the longest time-out of these not all ranks have called this; so MPI
   is left as it is, and the job's launcher will see a process that failed. In a fork it does nothing. */
int outboard_dl_finalize(void);
int outboard_dl_world_rank(void);
int outboard_dl_world_size(void);
/* The lowest rank of MPI_COMM_WORLD on this process's node (MPI_COMM_TYPE_SHARED): the same at all ranks there. */
int outboard_dl_world_node(void);
/* The sentence of this thread's last error. Valid until the thread's next call. */
const char *outboard_dl_message(void);

/* Makes a group of ranks of MPI_COMM_WORLD; the ranks of the group are the places in the list. All members call it, with the same
   name. timeout: seconds of an operation without one of its own; 0 or less: none. */
int outboard_dl_group_create(const int *ranks, int size, const char *name, double timeout, outboard_dl_group **group);
/* The handle becomes invalid. The group's communicator is freed after its last operation. Collective, but does not wait. */
int outboard_dl_group_free(outboard_dl_group *group);
/* Ends all operations of the group with OUTBOARD_DL_ABORTED, here only, and refuses new ones. */
int outboard_dl_group_abort(outboard_dl_group *group, const char *reason);

/* Whether the operation has ended. Returns its error if it has one. */
int outboard_dl_test(outboard_dl_work *work, int *done);
/* Waits for the end, at most `timeout` seconds (less than 0: no limit of its own). OUTBOARD_DL_TIMEOUT: it has not ended, or
   it has ended by its own time-out. Returns the operation's error if it has one. */
int outboard_dl_wait(outboard_dl_work *work, double timeout);
/* Of an ended receive: the rank that sent; else -1. */
int outboard_dl_source(outboard_dl_work *work);
/* Gives the handle back, at any time. The operation goes on. */
void outboard_dl_work_free(outboard_dl_work *work);

/* Operations. Counts are elements, per rank where ranks have blocks. A send buffer of NULL means: in place, in the receive buffer (as
   MPI_IN_PLACE). options and work may be NULL. */
int outboard_dl_allreduce(outboard_dl_group *group, const void *send, void *receive, int64_t count, int type, int op,
                          const outboard_dl_options *options, outboard_dl_work **work);
int outboard_dl_reduce(outboard_dl_group *group, const void *send, void *receive, int64_t count, int type, int op, int root,
                       const outboard_dl_options *options, outboard_dl_work **work);
int outboard_dl_reduce_scatter(outboard_dl_group *group, const void *send, void *receive, int64_t count, int type, int op,
                               const outboard_dl_options *options, outboard_dl_work **work);
int outboard_dl_broadcast(outboard_dl_group *group, void *buffer, int64_t count, int type, int root,
                          const outboard_dl_options *options, outboard_dl_work **work);
int outboard_dl_allgather(outboard_dl_group *group, const void *send, void *receive, int64_t count, int type,
                          const outboard_dl_options *options, outboard_dl_work **work);
int outboard_dl_gather(outboard_dl_group *group, const void *send, void *receive, int64_t count, int type, int root,
                       const outboard_dl_options *options, outboard_dl_work **work);
int outboard_dl_scatter(outboard_dl_group *group, const void *send, void *receive, int64_t count, int type, int root,
                        const outboard_dl_options *options, outboard_dl_work **work);
int outboard_dl_alltoall(outboard_dl_group *group, const void *send, void *receive, int64_t count, int type,
                         const outboard_dl_options *options, outboard_dl_work **work);
/* The arrays have an element per member and are copied. */
int outboard_dl_alltoallv(outboard_dl_group *group, const void *send, const int64_t *send_counts,
                          const int64_t *send_places, void *receive, const int64_t *receive_counts,
                          const int64_t *receive_places, int type, const outboard_dl_options *options,
                          outboard_dl_work **work);
int outboard_dl_send(outboard_dl_group *group, const void *buffer, int64_t count, int type, int to, int tag,
                     const outboard_dl_options *options, outboard_dl_work **work);
/* from: -1 for any rank. */
int outboard_dl_receive(outboard_dl_group *group, void *buffer, int64_t count, int type, int from, int tag,
                        const outboard_dl_options *options, outboard_dl_work **work);
int outboard_dl_barrier(outboard_dl_group *group, const outboard_dl_options *options, outboard_dl_work **work);

#ifdef __cplusplus
}
#endif
#endif
