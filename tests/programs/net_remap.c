/* Memory that is unmapped and mapped anew between long messages: each message has the bytes that are there when it is sent, and lands
   in the memory that is there when it is received, whatever a network has registered before.
   ranks: 2   ways: nodes */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <sys/mman.h>

enum { BYTES = 512 << 10, ROUNDS = 40 };

/* Fresh memory, at the address `at` unless it is null. */
static unsigned char *map(unsigned char *at)
{
    int fixed = at ? MAP_FIXED : 0;
    unsigned char *made = mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
    CHECK(made != MAP_FAILED && (!at || made == at), "no memory at %p", (void *)at);
    return made;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    unsigned char *out = map(NULL), *in = map(NULL);
    int other = 1 - rank, wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BYTES; i++) out[i] = (unsigned char)(i / 4096 + 3 * round + rank);
        MPI_Sendrecv(out, BYTES, MPI_BYTE, other, 0, in, BYTES, MPI_BYTE, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < BYTES; i++) wrong += in[i] != (unsigned char)(i / 4096 + 3 * round + other);
        EQUAL(wrong, 0, "bytes that are wrong");
        if (round % 3 == 0) munmap(out, BYTES), out = map(out);
        if (round % 2 == 0) munmap(in, BYTES), in = map(in);
    }
    return end();
}
