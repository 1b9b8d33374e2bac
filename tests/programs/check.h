/* Checks for whole programs. A program runs to its end and counts errors; its exit code says whether there
   were any. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;
static long checked, failed;

__attribute__((format(printf, 3, 4))) static inline void check_failed(const char *file, int line, const char *facts,
                                                                      ...)
{
    /* Only the first few are printed; a wrong megabyte would bury them. */
    if (failed++ >= 8) return;
    va_list list;
    va_start(list, facts);
    fprintf(stderr, "%s:%d: rank %d of %d: ", file, line, rank, size);
    vfprintf(stderr, facts, list);
    fputc('\n', stderr);
    va_end(list);
}

/* CHECK(condition, "facts %d", ...): the facts are the value seen and the value expected. */
#define CHECK(condition, ...) \
    do { \
        checked++; \
        if (!(condition)) check_failed(__FILE__, __LINE__, __VA_ARGS__); \
    } while (0)

#define EQUAL(seen, expected, what) \
    do { \
        long long seen_ = (long long)(seen), expected_ = (long long)(expected); \
        CHECK(seen_ == expected_, "%s is %lld, not %lld", what, seen_, expected_); \
    } while (0)

static inline void begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

/* Ends the program. It returns 0 only if every check of every rank held. */
static inline int end(void)
{
    long here = failed, total = failed;
    MPI_Allreduce(&here, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (checked == 0) {
        fprintf(stderr, "rank %d: no check ran\n", rank);
        total++;
    }
    MPI_Finalize();
    return total != 0 || failed != 0;
}

/* A value that differs between ranks, indices and rounds. */
static inline int value(int who, int index, int round)
{
    return (int)((uint32_t)who * 1000003u + (uint32_t)index * 7919u + (uint32_t)round * 104729u) & 0x3fffffff;
}

static inline void fill(int *data, int count, int who, int round)
{
    for (int i = 0; i < count; i++) data[i] = value(who, i, round);
}

static inline void check_filled(const char *file, int line, const int *data, int count, int who, int round)
{
    checked++;
    for (int i = 0; i < count; i++)
        if (data[i] != value(who, i, round)) {
            check_failed(file, line, "element %d of %d from rank %d, round %d, is %d, not %d", i, count, who, round,
                         data[i], value(who, i, round));
            return;
        }
}
#define FILLED(data, count, who, round) check_filled(__FILE__, __LINE__, data, count, who, round)

static inline void *grab(size_t bytes)
{
    void *data = malloc(bytes ? bytes : 1);
    if (!data) {
        fprintf(stderr, "no memory\n");
        exit(2);
    }
    return data;
}

static inline int error_class(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

#endif
