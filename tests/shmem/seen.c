/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that counters, traces and `outboard top` are to see: PE 0 moves bytes, and PE 1 waits.  argument: for how many milliseconds */
#include <shmem.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    long wait = argc > 1 ? atol(argv[1]) : 100;
    shmem_init();
    long *there = shmem_calloc(16, sizeof *there), here[8] = {0};
    if (shmem_my_pe() == 0) {
        struct timespec pause = {wait / 1000, wait % 1000 * 1000000};
        nanosleep(&pause, NULL);
        for (int i = 0; i < 3; i++) shmem_long_p(there + i, i, 1);
        shmem_long_put(there + 8, here, 4, 1);
        shmem_long_iput(there + 8, here, 2, 1, 4, 1);
        shmem_long_get(here, there, 8, 1);
        for (int i = 0; i < 5; i++) shmem_long_atomic_inc(there + 4, 1);
        shmem_long_put_signal(there + 8, here, 2, (uint64_t *)(there + 7), 1, SHMEM_SIGNAL_SET, 1);
    } else if (shmem_my_pe() == 1) {
        shmem_signal_wait_until((uint64_t *)(there + 7), SHMEM_CMP_EQ, 1);
    }
    shmem_finalize();
    return 0;
}
