/* Large allocations in the rank's arena (OUTBOARD_MALLOC=arena): C's functions keep their promises, threads and forked
   children included, and what was allocated is there after MPI_Finalize.
   ranks: 1 2 4   ways: proxy   env: OUTBOARD_MALLOC=arena OUTBOARD_MALLOC_BYTES_MIN=4KiB */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDS(condition) CHECK(condition, "not so: %s", #condition)

enum { LEAST = 4096, THREADS = 4 };

/* Whether an address lies in the job's shared memory. */
static int is_in_arena(const void *memory)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int found = 0;
    while (fgets(line, sizeof line, maps)) {
        uintptr_t start, end;
        if (sscanf(line, "%lx-%lx", &start, &end) == 2 && (uintptr_t)memory - start < end - start)
            found = strstr(line, "outboard-job") != NULL;
    }
    fclose(maps);
    return found;
}

static unsigned next(unsigned *state)
{
    return *state = *state * 1103515245u + 12345;
}

/* Allocates, grows and frees at random. Each allocation is filled with a byte of its own. */
static void *churn(void *argument)
{
    enum { LIVE = 16 };
    unsigned state = (unsigned)(uintptr_t)argument;
    unsigned char *memory[LIVE] = {0};
    size_t bytes[LIVE] = {0};
    for (int i = 0; i < 2000; i++) {
        int at = next(&state) / 65536 % LIVE;
        size_t wanted = next(&state) / 64 % (1 << (next(&state) / 65536 % 19)) + 1;
        if (memory[at]) {
            HOLDS(memory[at][0] == at + 1 && memory[at][bytes[at] - 1] == at + 1);
            HOLDS(malloc_usable_size(memory[at]) >= bytes[at]);
        }
        if (next(&state) / 65536 % 2) {
            memory[at] = realloc(memory[at], wanted);
            size_t kept = bytes[at] < wanted ? bytes[at] : wanted;
            HOLDS(!kept || (memory[at][0] == at + 1 && memory[at][kept - 1] == at + 1));
        } else {
            free(memory[at]);
            memory[at] = calloc(1, wanted);
            HOLDS(memory[at][0] == 0 && memory[at][wanted / 2] == 0 && memory[at][wanted - 1] == 0);
        }
        memset(memory[at], at + 1, bytes[at] = wanted);
    }
    for (int at = 0; at < LIVE; at++) {
        HOLDS(bytes[at] < LEAST || is_in_arena(memory[at]));
        free(memory[at]);
    }
    return NULL;
}

static void functions(void)
{
    /* The compiler knows what these functions promise, and would remove the calls. */
    void (*volatile release)(void *) = free;
    void *(*volatile allocate)(size_t, size_t) = aligned_alloc;
    void *aligned = NULL;
    char *memory = malloc(LEAST), *small = malloc(LEAST - 1);
    HOLDS(is_in_arena(memory) && !is_in_arena(small));
    memset(small, 5, LEAST - 1);
    small = realloc(small, 4 * LEAST);
    HOLDS(is_in_arena(small) && small[LEAST - 2] == 5);
    small = realloc(small, 100);
    HOLDS(!is_in_arena(small) && small[99] == 5);
    free(small);
    errno = 77;
    release(memory);
    HOLDS(errno == 77);
    HOLDS(posix_memalign(&aligned, 4, LEAST) == EINVAL && posix_memalign(&aligned, 24, LEAST) == EINVAL);
    HOLDS(posix_memalign(&aligned, 4096, LEAST) == 0 && is_in_arena(aligned) && (uintptr_t)aligned % 4096 == 0);
    free(aligned);
    enum { MANY = 2000 };
    static void *many[MANY];
    for (int i = 0; i < MANY; i++) {
        many[i] = i % 100 ? malloc(LEAST) : allocate(1 << 16, 1 << 16);
        HOLDS(i % 100 || (uintptr_t)many[i] % (1 << 16) == 0);
    }
    for (int i = 0; i < MANY; i++) free(many[i]);
    HOLDS(realloc(malloc(LEAST), 0) == NULL);
    volatile size_t too_much = SIZE_MAX / 2;
    HOLDS(malloc(too_much) == NULL && calloc(too_much, 4) == NULL);
}

/* The writes of a child, and its frees, do not reach the rank. */
static void forks(void)
{
    char *memory = calloc(1, 64 * LEAST);
    pid_t child = fork();
    if (child == 0) {
        memset(memory, 9, 64 * LEAST);
        char *more = malloc(64 * LEAST), *grown = realloc(memory, 128 * LEAST);
        memset(more, 8, 64 * LEAST);
        _exit(is_in_arena(more) || is_in_arena(grown) || grown[64 * LEAST - 1] != 9);
    }
    int status;
    HOLDS(waitpid(child, &status, 0) == child && status == 0);
    char *after = malloc(64 * LEAST);
    HOLDS(after != memory && memory[0] == 0 && memory[64 * LEAST - 1] == 0);
    free(memory);
    free(after);
}

int main(int argc, char **argv)
{
    enum { COUNT = 1 << 16 };
    pthread_t threads[THREADS];
    char *early = malloc(4 * LEAST);
    begin(&argc, &argv);
    HOLDS(!is_in_arena(early));
    free(early);
    functions();
    for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, churn, (void *)(17 * rank + i));
    /* Some forks happen while a thread is in an allocation. */
    for (int i = 0; i < 20; i++) forks();
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);

    int *out = malloc(sizeof(int) * COUNT * size), *in = malloc(sizeof(int) * COUNT * size);
    MPI_Request request;
    for (int i = 0; i < COUNT * size; i++) out[i] = rank * COUNT * size + i;
    MPI_Ialltoall(out, COUNT, MPI_INT, in, COUNT, MPI_INT, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < COUNT * size; i++) HOLDS(in[i] == i / COUNT * COUNT * size + rank * COUNT + i % COUNT);
    free(out);
    int code = end();
    in[0]++;
    in = realloc(in, 2 * sizeof(int) * COUNT * size);
    HOLDS(in[0] == rank * COUNT + 1 && in[COUNT * size - 1] == (size - 1) * COUNT * size + rank * COUNT + COUNT - 1);
    free(in);
    return code || failed;
}
