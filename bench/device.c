/* Memory of devices for buffers (-d). MPIX_Device_alloc makes it on each backend that the MPI has; managed memory is CUDA's own.
   Both are found at run time, so that any MPI's mpicc can compile this. */
/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "bench.h"

#include <dlfcn.h>
#include <string.h>

/* Constants of mpi-ext.h, which other MPIs lack: MPIX_GPU_SUPPORT_CUDA and MPIX_GPU_SUPPORT_HIP; and a number for
   neither. */
enum { CUDA = 0, HIP = 2, NO_VENDOR = -1 };

const char *const devices[] = {"host", "cuda", "managed", "rocm", "sentinel", NULL};
static const int vendors[] = {NO_VENDOR, CUDA, CUDA, HIP, NO_VENDOR};

int side;

static int (*device_alloc)(size_t, void **), (*device_free)(void *), (*device_copy)(void *, const void *, size_t);
static int (*cuda_alloc_managed)(void **, size_t, unsigned), (*cuda_free)(void *);

/* Finds a function; the pointer may be of any function pointer's type. */
#define FIND(pointer, library, name) (*(void **)&(pointer) = dlsym(library, name))

/* Whether MPI calls accept memory of a vendor's devices. */
static int has(int vendor)
{
    int (*query)(int, int *), found = 0;
    return FIND(query, RTLD_DEFAULT, "MPIX_GPU_query_support") && query(vendor, &found) == MPI_SUCCESS && found;
}

static void open_managed(void)
{
    int (*init)(unsigned), (*get)(int *, int), (*retain)(void **, int), (*set)(void *), device;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int found = driver && FIND(init, driver, "cuInit") && FIND(get, driver, "cuDeviceGet") &&
                FIND(retain, driver, "cuDevicePrimaryCtxRetain") && FIND(set, driver, "cuCtxSetCurrent") &&
                FIND(cuda_alloc_managed, driver, "cuMemAllocManaged") && FIND(cuda_free, driver, "cuMemFree_v2");
    if (!found || init(0) || get(&device, 0) || retain(&context, device) || set(context))
        stop("-d managed: CUDA's driver has no managed memory");
}

void open_device(int kind)
{
    void *memory;
    if (kind == 0) return;
    int found = FIND(device_alloc, RTLD_DEFAULT, "MPIX_Device_alloc") && FIND(device_free, RTLD_DEFAULT, "MPIX_Device_free") &&
                FIND(device_copy, RTLD_DEFAULT, "MPIX_Device_copy");
    if (!found) stop("-d %s: this MPI has no MPIX_Device_alloc", devices[kind]);
    int one = vendors[kind] == NO_VENDOR ? !has(CUDA) && !has(HIP) : has(vendors[kind]);
    if (!one || device_alloc(1, &memory) != MPI_SUCCESS)
        stop("-d %s: this MPI takes no such memory here (OUTBOARD_DEVICE, docs/gpu.md)", devices[kind]);
    device_free(memory);
    if (strcmp(devices[kind], "managed") == 0) open_managed();
}

void *device_buffer(size_t bytes)
{
    void *memory = NULL;
    int code = cuda_alloc_managed ? cuda_alloc_managed(&memory, bytes, 1) : device_alloc(bytes, &memory);
    return code ? NULL : memory;
}

void release_device_buffer(void *memory) { cuda_free ? cuda_free(memory) : device_free(memory); }

void transfer(void *to, const void *from, size_t bytes)
{
    if (device_copy == NULL)
        memcpy(to, from, bytes);
    else if (device_copy(to, from, bytes) != MPI_SUCCESS)
        stop("a copy of %zu bytes from or to the device failed", bytes);
}
