/* Filled integers in device memory. */
#include <mpi-ext.h>

static void *device(size_t bytes)
{
    void *memory;
    MPIX_Device_alloc(bytes, &memory);
    return memory;
}

static inline int *filled(int count, int who, int round)
{
    int *host = grab(count * sizeof(int)), *memory = device(count * sizeof(int));
    fill(host, count, who, round);
    MPIX_Device_copy(memory, host, count * sizeof(int));
    free(host);
    return memory;
}

#define HOLDS(memory, count, who, round) \
    do { \
        int *host_ = grab((count) * sizeof(int)); \
        MPIX_Device_copy(host_, memory, (count) * sizeof(int)); \
        FILLED(host_, count, who, round); \
        free(host_); \
    } while (0)
