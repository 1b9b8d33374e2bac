/* Functions of Outboard beside the standard's, for programs with device memory (docs/gpu.md) and for bindings of other languages.
   Include mpi.h first. All but the first return MPI_SUCCESS or an error class's code. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef OUTBOARD_MPI_EXT_H
#define OUTBOARD_MPI_EXT_H

#include <stddef.h>

#define MPIX_GPU_SUPPORT_CUDA 0
#define MPIX_GPU_SUPPORT_ZE 1
#define MPIX_GPU_SUPPORT_HIP 2

#ifdef __cplusplus
extern "C" {
#endif

/* 1 if MPI calls of this process take CUDA memory, else 0. It may be called at any time. */
int MPIX_Query_cuda_support(void);
int MPIX_Query_hip_support(void);
int MPIX_GPU_query_support(int gpu_type, int *is_supported);

/* Memory of the current device; copies between any two of host and device memory. */
int MPIX_Device_alloc(size_t bytes, void **memory);
int MPIX_Device_free(void *memory);
int MPIX_Device_copy(void *to, const void *from, size_t bytes);

/* MPIX streams, as MPICH's. The info has `type` (cudaStream_t, or sentinel) and `value`, set by MPIX_Info_set_hex from the
   stream's handle. An enqueued operation happens when the stream comes to it, and the stream goes on when it is over. Its
   error is returned by the next call on the same stream. Status and buffers must stay until then. */
#ifndef MPIX_STREAM_NULL
typedef int MPIX_Stream;
#define MPIX_STREAM_NULL ((MPIX_Stream)0x3c000000)
int MPIX_Info_set_hex(MPI_Info info, const char *key, const void *value, int value_size);
int MPIX_Stream_create(MPI_Info info, MPIX_Stream *stream);
int MPIX_Stream_free(MPIX_Stream *stream);
int MPIX_Stream_comm_create(MPI_Comm comm, MPIX_Stream stream, MPI_Comm *newcomm);
int MPIX_Stream_comm_create_multiplex(MPI_Comm comm, int count, MPIX_Stream array_of_streams[], MPI_Comm *newcomm);
int MPIX_Comm_get_stream(MPI_Comm comm, int idx, MPIX_Stream *stream);
int MPIX_Stream_progress(MPIX_Stream stream);
int MPIX_Send_enqueue(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm);
int MPIX_Send_enqueue_c(const void *buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm);
int MPIX_Recv_enqueue(void *buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm, MPI_Status *status);
int MPIX_Recv_enqueue_c(void *buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                        MPI_Status *status);
int MPIX_Isend_enqueue(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                       MPI_Request *request);
int MPIX_Isend_enqueue_c(const void *buf, MPI_Count count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm,
                         MPI_Request *request);
int MPIX_Irecv_enqueue(void *buf, int count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm, MPI_Request *request);
int MPIX_Irecv_enqueue_c(void *buf, MPI_Count count, MPI_Datatype datatype, int source, int tag, MPI_Comm comm,
                         MPI_Request *request);
int MPIX_Wait_enqueue(MPI_Request *request, MPI_Status *status);
int MPIX_Waitall_enqueue(int count, MPI_Request array_of_requests[], MPI_Status array_of_statuses[]);
int MPIX_Allreduce_enqueue(const void *sendbuf, void *recvbuf, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm);
int MPIX_Allreduce_enqueue_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op,
                             MPI_Comm comm);
#endif

/* Not MPICH's. */
int MPIX_Bcast_enqueue(void *buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm);
int MPIX_Bcast_enqueue_c(void *buffer, MPI_Count count, MPI_Datatype datatype, int root, MPI_Comm comm);

/* For a binding that passes a copy of the program's memory to a nonblocking or persistent call. `start` is called before a
   persistent request starts, `end` when the operation is over, `release` when nothing uses the copy any more; each may be null,
   and none may call MPI. It is called once per copy, right after the call that made the request. If it fails, none is called. */
int MPIX_Request_attach(MPI_Request request, void (*start)(void *), void (*end)(void *), void (*release)(void *), void *state);

#ifdef __cplusplus
}
#endif

#endif
