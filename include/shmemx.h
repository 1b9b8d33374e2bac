/* SPDX-License-Identifier: BSD-3-Clause */
/* Extensions of OpenSHMEM: Outboard has none. */
#include "shmem.h"
