/* One process loads both libraries, as plugins might: the second to be initialized must say no, and name both. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <stdio.h>

typedef int (*init_function)(int *, char ***);

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        void *library = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
        if (!library) { puts(dlerror()); return 2; }
        init_function init = (init_function)dlsym(library, "MPI_Init");
        printf("%s: %d\n", argv[i], init(&argc, &argv));
        fflush(stdout);
    }
    puts("both were initialized");
    return 3;
}
