/* Filled integers in device memory, or in the host's memory if no device is in use. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi-ext.h>

static inline int is_device(void)
{
    const char *device = getenv("OUTBOARD_DEVICE");
    return device && strcmp(device, "sentinel") == 0;
}

static inline void *device(size_t bytes)
{
    void *memory = NULL;
    if (!is_device()) return grab(bytes);
    MPIX_Device_alloc(bytes, &memory);
    return memory;
}

static inline void drop(void *memory)
{
    if (is_device()) MPIX_Device_free(memory);
    else free(memory);
}

static inline int *filled(int count, int who, int round)
{
    int *host = grab(count * sizeof(int)), *memory = device(count * sizeof(int));
    fill(host, count, who, round);
    MPIX_Device_copy(memory, host, count * sizeof(int));
    free(host);
    return memory;
}

static inline int *read_back(const int *memory, int count)
{
    int *host = grab(count * sizeof(int));
    MPIX_Device_copy(host, memory, count * sizeof(int));
    return host;
}

#define HOLDS(memory, count, who, round) \
    do { \
        int *host_ = read_back(memory, count); \
        FILLED(host_, count, who, round); \
        free(host_); \
    } while (0)
