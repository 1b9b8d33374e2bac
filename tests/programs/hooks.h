/* Functions that the library has for its tests only: no installed header has them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <stddef.h>

/* Streams of the current device, which do their work in order. A copy happens when its stream comes to it. */
int MPIX_Device_stream_create(void **stream);
int MPIX_Device_stream_free(void *stream);
int MPIX_Device_stream_copy(void *to, const void *from, size_t bytes, void *stream);
int MPIX_Device_stream_synchronize(void *stream);

/* Lets the CPU touch an allocation of sentinel memory, which then counts as the host's (open 1), or not any
   more (0). */
int MPIX_Device_open(void *memory, int open);
