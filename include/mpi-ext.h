/* Functions of Outboard beside the standard's, for programs with device memory (docs/gpu.md) and for bindings of other languages.
   Include mpi.h first. All but the first return MPI_SUCCESS or an error class's code. */
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
int MPIX_GPU_query_support(int gpu_type, int *is_supported);

/* Memory of the current device; copies between any two of host and device memory. */
int MPIX_Device_alloc(size_t bytes, void **memory);
int MPIX_Device_free(void *memory);
int MPIX_Device_copy(void *to, const void *from, size_t bytes);

/* For tests: lets the CPU touch an allocation of sentinel memory, which is then the host's (open 1), or no longer (0). */
int MPIX_Device_open(void *memory, int open);

/* For a binding that passes a copy of the program's memory to a nonblocking or persistent call. `start` is called before a
   persistent request starts, `end` when the operation is over, `release` when nothing uses the copy any more; each may be null,
   and none may call MPI. It is called once per copy, right after the call that made the request. If it fails, none is called. */
int MPIX_Request_attach(MPI_Request request, void (*start)(void *), void (*end)(void *), void (*release)(void *), void *state);

#ifdef __cplusplus
}
#endif

#endif
