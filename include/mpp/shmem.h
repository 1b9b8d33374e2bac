/* SPDX-License-Identifier: BSD-3-Clause */
/* The old place of the header. */
#include "../shmem.h"
