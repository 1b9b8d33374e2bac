/* Functions of Outboard beside the standard's, for programs with device memory (docs/gpu.md). Include mpi.h first.
   All but the first return MPI_SUCCESS or an error class's code. */
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

#ifdef __cplusplus
}
#endif

#endif
