/* The part that all benchmarks share: options with the names of OSU's, buffers, the clock, and results as
   columns or as JSON. A benchmark is a table of tests. `bench_main` parses the command line, runs the named
   tests over the message sizes and prints. The code uses standard MPI only, so any MPI's mpicc can compile
   it. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_H
#define BENCH_H

#include <mpi.h>
#include <stddef.h>

typedef struct {
    size_t bytes_min, bytes_max;      /* -m */
    int iterations, iterations_large; /* -i; for messages longer than LARGE_BYTES */
    int warm_ups;                     /* -x */
    int validate;                     /* -c */
    int full;                         /* -f: also minimum, maximum and iterations */
    int json;                         /* --json */
    int window;                       /* -W: messages in flight of bandwidth tests */
    int reuse;                        /* --reuse: all messages of a window arrive in one buffer, as in OSU's programs */
    int threads;                      /* -t */
    const char *type_name;            /* -T */
    MPI_Datatype type;                /* MPI_DATATYPE_NULL unless -T */
    const char *window_kind;          /* -w: allocate, create or dynamic */
    const char *sync;                 /* -s: synchronisation of one-sided tests */
    int from_malloc;                  /* -B malloc; else MPI_Alloc_mem */
    int device;                       /* -d: a number in `devices` */
    int on_device[2];                 /* D or H: buffers of the first ranks, and of the second */
    int skew_us;                      /* --skew: the greatest delay between the arrivals of ranks */
    int idle_us;                      /* --idle: sleep before each operation, so that a proxy falls asleep */
    double work_ratio;                /* --work-ratio: fixed work as a multiple of T_comm */
    const char *form;                 /* --form: blocking, persistent (collectives) */
} options;

enum { LARGE_BYTES = 8192 };

enum { MORE_MAX = 8 };

/* One line of results. `value` is in the unit of the test's column. `min` and `max` are over the ranks, and negative if they have
   no meaning. */
typedef struct {
    double value, min, max;
    int failed;            /* -c has found wrong bytes */
    double more[MORE_MAX]; /* the test's further columns */
} result;

typedef struct test {
    const char *name;
    const char *column; /* heading of the value, with its unit */
    int ranks_min;
    size_t bytes_least; /* the shortest message that makes sense */
    /* Measures messages of `bytes`. All ranks call it; the result of rank 0 is used. */
    result (*measure)(const options *, const struct test *, size_t bytes);
    int once;         /* not a function of the message size */
    const void *what; /* for `measure` */
    const char *const *more; /* headings of further columns, with their units; null-terminated */
} test;

extern int rank, size;
/* The letter of `D H` that counts here: 0 (the first) in the first half of the ranks, else 1. A program that pairs ranks
   in another way sets it again. */
extern int side;
/* Whether the program takes -d. It is set before bench_main. */
extern int takes_devices;

int bench_main(int argc, char **argv, const char *about, const test *tests, int thread_level);

/* The number of iterations for messages of `bytes`. */
int iterations_of(const options *o, size_t bytes);

/* The type of -T, or `otherwise`; and the number of elements of a type in `bytes`. */
MPI_Datatype type_or(const options *o, MPI_Datatype otherwise);
int count_of(MPI_Datatype type, size_t bytes);

double clock_us(void);
/* Processor time of this thread in microseconds. */
double cpu_us(void);

/* Memory of the kind that -d or -B names, filled with a pattern that depends on `seed`. */
void *buffer(const options *o, size_t bytes, int seed);
void release(const options *o, void *memory);
/* Copies between any two of buffers and the program's memory, since a buffer may lie where the CPU cannot touch
   it. */
void transfer(void *to, const void *from, size_t bytes);

/* The kinds of -d; the first is the host's memory. `open_device` stops with a sentence if there is no device
   of the kind. */
extern const char *const devices[];
void open_device(int kind);
void *device_buffer(size_t bytes);
void release_device_buffer(void *memory);

/* Byte `at` of the pattern; `fill` writes it, `wrong` counts bytes that differ from it. */
unsigned char pattern(int seed, size_t at);
void fill(void *memory, size_t bytes, int seed);
size_t wrong(const void *memory, size_t bytes, int seed);

double median(double *values, int count);
/* The average, minimum and maximum of one number per rank, on all ranks. */
result over_ranks(double value);
/* Whether `here` is true on any rank. */
int anywhere(int here);
/* Stops all ranks with a sentence. */
void stop(const char *format, ...);

#endif
