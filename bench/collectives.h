/* Every collective in its forms: blocking, nonblocking, persistent. coll.c and overlap.c run them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef COLLECTIVES_H
#define COLLECTIVES_H

#include "bench.h"

/* The arguments of one call. A block has `bytes`: the data from one rank to one other, or the whole vector of
   a reduction or broadcast. */
typedef struct {
    void *send, *recv;
    int count; /* elements in a block */
    MPI_Datatype type;
    MPI_Comm comm;
    int *counts, *displs, *byte_displs; /* one per rank, all blocks alike */
    MPI_Aint *aint_displs; /* byte_displs, of the type that neighborhood collectives take */
    MPI_Datatype *types;
} arguments;

typedef struct {
    const char *name;
    int send_per_rank, recv_per_rank; /* whether a buffer has a block for each rank, or only one */
    int reduces, neighbor, no_data;
    void (*block)(const arguments *);
    void (*start)(const arguments *, MPI_Request *);
    void (*prepare)(const arguments *, MPI_Request *);
} collective;

extern const collective collectives[]; /* ends with a null name */

/* Makes arguments and buffers for blocks of `bytes`. */
arguments prepare_arguments(const options *o, const collective *c, size_t bytes);
void release_arguments(const options *o, arguments *a);
/* Whether the received data are right by the definition, after a call on fresh buffers. */
int check_collective(const collective *c, const arguments *a);

#endif
