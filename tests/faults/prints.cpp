// Prints two lines, waits for a line of input, and is killed.
// SPDX-License-Identifier: BSD-3-Clause
#include <csignal>
#include <cstdio>
#include <iostream>
#include <mpi.h>

int main(int argc, char **argv) {
    std::cout << "a line\n";
    MPI_Init(&argc, &argv);
    std::cout << "a line before the end\n";
    // std::cin is not used, because it flushes std::cout.
    std::getchar();
    std::raise(SIGKILL);
}
