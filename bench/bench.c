/* See bench.h. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int rank, size, takes_devices;

/* Buffers are filled and read in pieces of this many bytes. */
enum { PIECE = 1 << 16 };

static const char usage[] =
    "  -m, --message-size MIN:MAX  bytes, by factors of 2 (1:4194304); -m MAX starts at the least\n"
    "  -i, --iterations N[:LARGE]  timed iterations, and those beyond 8 KiB (1000, and a tenth)\n"
    "  -x, --warmup N              iterations before (a tenth of -i)\n"
    "  -c, --validation            check the data that arrive\n"
    "  -f, --full                  minimum, maximum and number of iterations too\n"
    "  -T, --type NAME             mpi_char, mpi_int, mpi_float or mpi_double (mpi_char; mpi_float of reductions)\n"
    "  -W, --window-size N         messages in flight of bandwidth tests (64)\n"
    "      --reuse                 these messages arrive in one buffer, as in OSU's programs, not in one each\n"
    "  -t, --num-threads N         threads of multi-threaded tests (2)\n"
    "  -w, --win-option KIND       allocate, create or dynamic (allocate; create with -d)\n"
    "  -s, --sync-option SYNC      lock, lock_all, lock_all_flush, flush, flush_local, pscw or fence (flush)\n"
    "  -B, --buffers KIND          malloc or alloc_mem (malloc)\n"
    "  -d, --device KIND           where buffers lie: host, cuda, managed (CUDA's), rocm, sentinel (host); then D D, D H or H D\n"
    "                              among the tests: D for device buffers at the first ranks, and at the second (D D)\n"
    "      --form FORM             blocking or persistent collectives (blocking)\n"
    "      --skew US               ranks arrive up to so much later than each other (0)\n"
    "      --idle US               sleep so long before each nonblocking operation (0)\n"
    "      --work-ratio X          work beside a nonblocking operation, as a multiple of T_comm (2)\n"
    "      --json                  one JSON object per line\n"
    "  -h, --help\n";

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
double clock_us(void) { return 1e6 * seconds(CLOCK_MONOTONIC); }
double cpu_us(void) { return 1e6 * seconds(CLOCK_THREAD_CPUTIME_ID); }

void stop(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "bench: rank %d: ", rank);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

unsigned char pattern(int seed, size_t at) { return (unsigned char)(seed * 31 + at * 7 + (at >> 8)); }

void fill(void *memory, size_t bytes, int seed)
{
    unsigned char piece[PIECE];
    for (size_t at = 0, many; at < bytes; at += many) {
        many = bytes - at < PIECE ? bytes - at : PIECE;
        for (size_t i = 0; i < many; i++) piece[i] = pattern(seed, at + i);
        transfer((char *)memory + at, piece, many);
    }
}

size_t wrong(const void *memory, size_t bytes, int seed)
{
    unsigned char piece[PIECE];
    size_t count = 0;
    for (size_t at = 0, many; at < bytes; at += many) {
        many = bytes - at < PIECE ? bytes - at : PIECE;
        transfer(piece, (const char *)memory + at, many);
        for (size_t i = 0; i < many; i++) count += piece[i] != pattern(seed, at + i);
    }
    return count;
}

void *buffer(const options *o, size_t bytes, int seed)
{
    void *memory = NULL;
    if (bytes == 0) bytes = 1;
    if (o->on_device[side])
        memory = device_buffer(bytes);
    else if (!o->from_malloc)
        MPI_Alloc_mem((MPI_Aint)bytes, MPI_INFO_NULL, &memory);
    else if (posix_memalign(&memory, 4096, bytes))
        memory = NULL;
    if (memory == NULL) stop("no memory for %zu bytes", bytes);
    fill(memory, bytes, seed);
    return memory;
}

void release(const options *o, void *memory)
{
    if (o->on_device[side])
        release_device_buffer(memory);
    else if (o->from_malloc)
        free(memory);
    else
        MPI_Free_mem(memory);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, int count)
{
    qsort(values, count, sizeof *values, ascending);
    return values[count / 2];
}

result over_ranks(double value)
{
    double sum, min, max;
    MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&value, &min, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&value, &max, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return (result){sum / size, min, max, 0, {0}};
}

int anywhere(int here)
{
    MPI_Allreduce(MPI_IN_PLACE, &here, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return here;
}

int iterations_of(const options *o, size_t bytes)
{
    return bytes > LARGE_BYTES ? o->iterations_large : o->iterations;
}

MPI_Datatype type_or(const options *o, MPI_Datatype otherwise)
{
    return o->type == MPI_DATATYPE_NULL ? otherwise : o->type;
}

int count_of(MPI_Datatype type, size_t bytes)
{
    int element;
    MPI_Type_size(type, &element);
    return (int)(bytes / element);
}

static void print_heading(const options *o, const test *t)
{
    if (rank != 0 || o->json) return;
    printf("# %s, %d ranks\n", t->name, size);
    if (!t->once) printf("%-12s", "# Size");
    printf("%18s", t->column);
    if (o->full) printf("%14s%14s%12s", "Min", "Max", "Iterations");
    for (int at = 0; t->more && t->more[at]; at++) printf("%16s", t->more[at]);
    if (o->validate) printf("%12s", "Validation");
    putchar('\n');
}

static void print_row(const options *o, const test *t, size_t bytes, result r)
{
    if (rank != 0) return;
    if (o->json) {
        printf("{\"test\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"unit\": \"%s\", \"value\": %.4f", t->name, size, bytes,
               t->column, r.value);
        if (r.min >= 0) printf(", \"min\": %.4f, \"max\": %.4f", r.min, r.max);
        for (int at = 0; t->more && t->more[at]; at++) printf(", \"%s\": %.4f", t->more[at], r.more[at]);
        if (o->validate) printf(", \"valid\": %s", r.failed ? "false" : "true");
        puts("}");
    } else {
        if (!t->once) printf("%-12zu", bytes);
        printf("%18.2f", r.value);
        if (o->full && r.min >= 0) printf("%14.2f%14.2f", r.min, r.max);
        if (o->full && r.min < 0) printf("%14s%14s", "-", "-");
        if (o->full) printf("%12d", iterations_of(o, bytes));
        for (int at = 0; t->more && t->more[at]; at++) printf("%16.2f", r.more[at]);
        if (o->validate) printf("%12s", r.failed ? "Fail" : "Pass");
        putchar('\n');
    }
    fflush(stdout);
}

/* Runs one test over the sizes. Returns whether it failed. */
static int run(const options *o, const test *t)
{
    if (size < t->ranks_min) stop("%s needs %d ranks", t->name, t->ranks_min);
    int failed = 0;
    print_heading(o, t);
    size_t least = o->bytes_min > t->bytes_least ? o->bytes_min : t->bytes_least;
    for (size_t bytes = least; bytes <= o->bytes_max; bytes = bytes ? 2 * bytes : 1) {
        if (bytes && count_of(type_or(o, MPI_CHAR), bytes) == 0) continue;
        result r = t->measure(o, t, bytes);
        failed |= r.failed;
        print_row(o, t, bytes, r);
        if (t->once) break;
    }
    return failed;
}

static void help(const char *program, const char *about, const test *tests)
{
    if (rank != 0) return;
    printf("usage: %s TEST... [options]      (under mpirun)\n%s\ntests:", program, about);
    for (const test *t = tests; t->name; t++) printf(" %s", t->name);
    printf("\noptions:\n%s", usage);
}

static int choose(const char *text, const char *const *names)
{
    for (int at = 0; names[at]; at++)
        if (strcmp(text, names[at]) == 0) return at;
    stop("%s is not known; see --help", text);
    return 0;
}

static void parse_type(options *o, const char *text)
{
    static const char *const names[] = {"mpi_char", "mpi_int", "mpi_float", "mpi_double", NULL};
    const MPI_Datatype types[] = {MPI_CHAR, MPI_INT, MPI_FLOAT, MPI_DOUBLE};
    int at = choose(text, names);
    o->type_name = names[at];
    o->type = types[at];
}

static void parse_sizes(options *o, const char *text)
{
    const char *colon = strchr(text, ':');
    o->bytes_max = strtoull(colon ? colon + 1 : text, NULL, 10);
    if (colon) o->bytes_min = strtoull(text, NULL, 10);
    if (o->bytes_max < o->bytes_min) stop("-m %s: the greatest size is below the least", text);
}

static void parse_iterations(options *o, const char *text)
{
    const char *colon = strchr(text, ':');
    o->iterations = atoi(text);
    o->iterations_large = colon ? atoi(colon + 1) : o->iterations < 10 ? o->iterations : o->iterations / 10;
    if (o->iterations < 1 || o->iterations_large < 1) stop("-i %s: no iterations", text);
}

/* Parses the options: 0 to go on, 1 to stop after --help, 2 after an unknown option. */
static int parse(int argc, char **argv, options *o)
{
    enum { FORM = 256, SKEW, IDLE, RATIO, JSON, REUSE };
    static const struct option names[] = {
        {"message-size", 1, 0, 'm'}, {"iterations", 1, 0, 'i'}, {"warmup", 1, 0, 'x'},  {"validation", 0, 0, 'c'},
        {"full", 0, 0, 'f'},         {"type", 1, 0, 'T'},       {"window-size", 1, 0, 'W'}, {"num-threads", 1, 0, 't'},
        {"win-option", 1, 0, 'w'},   {"sync-option", 1, 0, 's'}, {"buffers", 1, 0, 'B'}, {"device", 1, 0, 'd'},
        {"form", 1, 0, FORM},        {"skew", 1, 0, SKEW},      {"idle", 1, 0, IDLE},
        {"work-ratio", 1, 0, RATIO}, {"json", 0, 0, JSON},   {"reuse", 0, 0, REUSE},
        {"help", 0, 0, 'h'},         {0, 0, 0, 0}};
    static const char *const kinds[] = {"allocate", "create", "dynamic", NULL};
    static const char *const syncs[] = {"lock", "lock_all", "lock_all_flush", "flush", "flush_local", "pscw", "fence", NULL};
    static const char *const memory[] = {"alloc_mem", "malloc", NULL};
    static const char *const forms[] = {"blocking", "persistent", NULL};
    int warm_ups = -1;
    for (int c; (c = getopt_long(argc, argv, "m:i:x:cfT:W:t:w:s:B:d:h", names, NULL)) != -1;) switch (c) {
        case 'm': parse_sizes(o, optarg); break;
        case 'i': parse_iterations(o, optarg); break;
        case 'x': warm_ups = atoi(optarg); break;
        case 'c': o->validate = 1; break;
        case 'f': o->full = 1; break;
        case 'T': parse_type(o, optarg); break;
        case 'W': o->window = atoi(optarg); break;
        case 't': o->threads = atoi(optarg); break;
        case 'w': o->window_kind = kinds[choose(optarg, kinds)]; break;
        case 's': o->sync = syncs[choose(optarg, syncs)]; break;
        case 'B': o->from_malloc = choose(optarg, memory); break;
        case 'd': o->device = choose(optarg, devices); break;
        case FORM: o->form = forms[choose(optarg, forms)]; break;
        case SKEW: o->skew_us = atoi(optarg); break;
        case IDLE: o->idle_us = atoi(optarg); break;
        case RATIO: o->work_ratio = atof(optarg); break;
        case JSON: o->json = 1; break;
        case REUSE: o->reuse = 1; break;
        default: return c == 'h' ? 1 : 2;
        }
    o->warm_ups = warm_ups >= 0 ? warm_ups : o->iterations_large;
    if (o->window_kind == NULL) o->window_kind = kinds[o->device != 0];
    if (o->window < 1 || o->threads < 1) stop("-W and -t are at least 1");
    return 0;
}

/* Maps the word D or H to its number; other words to -1. */
static int letter(const char *word) { return word[0] && !word[1] && strchr("DH", word[0]) ? word[0] == 'D' : -1; }

/* Decides where buffers lie, by -d and by the letters among the tests. */
static void place_buffers(options *o, int argc, char **argv)
{
    int letters = 0;
    for (int at = optind; at < argc; at++)
        if (letter(argv[at]) >= 0) o->on_device[letters++ % 2] = letter(argv[at]);
    if (letters != 0 && (letters != 2 || o->device == 0)) stop("D and H are two letters, with -d; see --help");
    if (letters == 0) o->on_device[0] = o->on_device[1] = o->device != 0;
    if (o->device && !takes_devices) stop("-d %s: this program works on the memory of the host only", devices[o->device]);
    side = rank >= size / 2;
    open_device(o->device);
}

int bench_main(int argc, char **argv, const char *about, const test *tests, int thread_level)
{
    int provided;
    MPI_Init_thread(&argc, &argv, thread_level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (provided < thread_level) stop("this MPI grants thread level %d, not %d", provided, thread_level);
    options o = {.bytes_min = 0, .bytes_max = 4 << 20, .iterations = 1000, .iterations_large = 100, .window = 64, .threads = 2,
                 .type = MPI_DATATYPE_NULL, .sync = "flush", .from_malloc = 1,
                 .form = "blocking", .work_ratio = 2};
    int failed = 0;
    opterr = rank == 0;
    int stopped = parse(argc, argv, &o);
    if (stopped || optind == argc) {
        help(argv[0], about, tests);
        MPI_Finalize();
        return stopped == 1 ? 0 : 2;
    }
    place_buffers(&o, argc, argv);
    for (int at = optind; at < argc; at++) {
        int ran = letter(argv[at]) >= 0;
        for (const test *t = tests; t->name; t++)
            if (strcmp(argv[at], t->name) == 0 || strcmp(argv[at], "all") == 0) {
                failed |= run(&o, t);
                ran++;
            }
        if (ran == 0) stop("there is no test %s; see --help", argv[at]);
    }
    MPI_Finalize();
    return failed;
}
