/* Calls every MPI function with arguments drawn at random: fuzz SEED CALLS, or fuzz SEED before, or fuzz SEED after. As one process.

   Handles are live, freed, null, of another kind or nonsense; ranks, tags and roots anything; counts also negative or huge, pointers
   sometimes null, texts too long. What the API cannot know stays right: a buffer is longer than any count of any datatype that is
   used. What it can know is exact, for AddressSanitizer to watch: arrays and texts are as long as the length that is passed, or as the
   standard says.

   Odd seeds run with MPI_THREAD_SINGLE and leave out what may wait. Even ones run with MPI_THREAD_MULTIPLE: what may wait is called in
   a thread that is left behind if it does wait. When many are, the process ends (and tests/fuzz/run starts the next).
   `before` and `after` call each function once before MPI_Init and after MPI_Finalize, in a child that may end itself, but not crash. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum kind { COMM, TYPE, GROUP, OP, INFO, REQUEST, WIN, FILES, ERRHANDLER, SESSION, MESSAGE, TOOL, KINDS };
enum shape {
    HANDLE, HANDLES,                    /* a handle; a pointer to one or an array */
    SMALL, SIZE, WIDE,                  /* a number: a length of the caller's memory; bytes of a window; anything */
    INTS, WIDE_INTS, LONGS, WIDE_LONGS, /* a pointer to numbers, in or out */
    BUFFER, STATUS, TEXT, TEXT_OUT, TEXTS, FUNCTION, OUT
};
/* `extra` is the kind of a handle, whether a number is an MPI_Count, or how deep texts are nested. An array has `factor`
   elements, times the argument numbered `length` if that is not -1. */
struct argument { unsigned char shape, extra; signed char length; int factor; };
struct function { const char *name; void *address; int arguments, waits, rare, ends; struct argument argument[20]; };
#include "calls.h"

#define POOL 48
#define REGION (64 << 20)
#define LEFT_MAX 24
static uintptr_t pool[KINDS][POOL];
static char *region;
static uint64_t state, calls, at;
static const struct function *volatile running;
/* Whether nonsense is frequent in the present call. */
static int wild;

static uint64_t draw(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state * 0x2545f4914f6cdd1dull;
}
static int below(int n) { return (int) ((draw() >> 33) % (unsigned) n); }
static int one_in(int n) { return below(wild ? n : n * 16) == 0; }
/* Callbacks: they may fail, and set nothing. */
static int stub(void)
{
    static int called;
    return __atomic_add_fetch(&called, 1, __ATOMIC_RELAXED) % 16 == 0 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static void say(const char *what, int number)
{
    char line[200];
    int length = snprintf(line, sizeof line, "fuzz: %s %d in %s, call %llu\n", what, number, running ? running->name : "no function",
                          (unsigned long long) at);
    if (write(1, line, (size_t) length) < 0)
        _exit(3);
}

/* Set when the calls are over: MPI_Finalize may wait for operations of the program, which the test must not.
   */
static volatile int leaving;

static void died(int number)
{
    if (leaving && number == SIGALRM)
        _exit(0);
    say(number == SIGALRM ? "hang" : "signal", number);
    signal(number, SIG_DFL);
    raise(number);
}

#ifdef __SANITIZE_ADDRESS__
void __asan_set_death_callback(void (*)(void));
static void reported(void) { say("signal", 0); }
#endif

static void watch(void)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_set_death_callback(reported);
    const int signals[] = { SIGALRM, SIGABRT };
#else
    const int signals[] = { SIGALRM, SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE };
#endif
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], died);
}

static long small(void)
{
    int kind = below(20);
    return one_in(10) ? -1 - below(100) : one_in(20) ? INT_MIN : kind < 8 ? below(3) : below(17);
}

static long wide(void)
{
    static const long odd[] = { INT_MAX, INT_MIN, MPI_ANY_SOURCE, MPI_PROC_NULL, MPI_ROOT, MPI_UNDEFINED, LONG_MAX, LONG_MIN,
                                MPI_KEYVAL_INVALID, MPI_COMM_TYPE_SHARED, 1l << 31, 1l << 40, 501, 505, 2, 8 };
    if (!wild && below(3))
        return below(3);
    switch (below(4)) {
    case 0: return odd[below((int) (sizeof odd / sizeof *odd))];
    case 1: return (long) draw();
    default: return small();
    }
}

static long size(void)
{
    static const long sizes[] = { 0, 1, 8, 64, 4096, 100000, 1 << 20 };
    return one_in(8) ? -1 - below(3) : sizes[below((int) (sizeof sizes / sizeof *sizes))];
}

static uintptr_t handle(int kind)
{
    uintptr_t drawn = pool[kind][below(POOL)];
    if (one_in(5))
        switch (below(4)) {
        case 0: drawn = pool[below(KINDS)][below(POOL)]; break;
        case 1: drawn = (uintptr_t) draw() & 0xffffffff; break;
        case 2: drawn = (uintptr_t) below(2000); break;
        default: drawn = pool[kind][0] + (uintptr_t) below(1 << 24);
        }
    /* A process that an error ends, as it should, prints no message. */
    if (drawn == (uintptr_t) MPI_ERRORS_ARE_FATAL || drawn == (uintptr_t) MPI_ERRORS_ABORT)
        drawn = (uintptr_t) MPI_ERRORS_RETURN;
    return drawn;
}

/* In arrays most handles of the MPICH ABI take four bytes. */
static size_t width(int kind)
{
#ifdef MPICH
    return kind == FILES || kind == TOOL ? sizeof(void *) : sizeof(int);
#else
    return (void) kind, sizeof(void *);
#endif
}

static uintptr_t element(const void *array, int kind, size_t at)
{
    uintptr_t found = 0;
    memcpy(&found, (const char *) array + at * width(kind), width(kind));
    return found;
}

/* Takes a handle that a call returned in place of another into the pool. */
static void keep(int kind, uintptr_t old, uintptr_t new)
{
    if (new == pool[kind][0] || new == 0) {
        /* A handle that was freed is kept now and then. */
        for (int i = 4; i < POOL && below(8); i++)
            if (pool[kind][i] == old)
                pool[kind][i] = pool[kind][i % 4];
        return;
    }
    if (kind == TYPE) {
        /* Only types whose data stay in the region, however large the count. */
        MPI_Count lb, extent, true_lb, true_extent, bytes;
        MPI_Datatype type = (MPI_Datatype) new;
        if (MPI_Type_get_extent_c(type, &lb, &extent) || MPI_Type_get_true_extent_c(type, &true_lb, &true_extent)
            || MPI_Type_size_c(type, &bytes))
            return;
        const MPI_Count most = 2048;
        const MPI_Count all[] = { lb, extent, true_lb, true_extent, bytes };
        int far = bytes < 0;
        for (int i = 0; i < 5; i++)
            far |= all[i] > most || all[i] < -most;
        if (far) {
            MPI_Type_free(&type);
            return;
        }
        if (below(4))
            MPI_Type_commit(&type);
    }
    if (kind == WIN)
        MPI_Win_set_errhandler((MPI_Win) new, MPI_ERRORS_RETURN);
    if (kind == FILES)
        MPI_File_set_errhandler((MPI_File) new, MPI_ERRORS_RETURN);
    if (kind == COMM)
        MPI_Comm_set_errhandler((MPI_Comm) new, MPI_ERRORS_RETURN);
    if (kind == SESSION)
        MPI_Session_set_errhandler((MPI_Session) new, MPI_ERRORS_RETURN);
    pool[kind][4 + below(POOL - 4)] = new;
}

/* The arguments of a call, and the memory that they point to. */
struct call { const struct function *function; long value[20]; void *memory[20], *before[20]; size_t elements[20], bytes[20]; volatile long answer; };

static const char *const texts[] = { "mpi://WORLD", "mpi://SELF", "fuzz-1", "fuzz-2", "", "native", "external32", "internal", "a b", "0",
                                     "true", "no_locks", "host", "wdir", "access_style", "\xff\xfe", SETTINGS };

/* Behind all memory that a call gets stand guard bytes which the call must not change; AddressSanitizer puts its own
   there. */
#ifdef __SANITIZE_ADDRESS__
enum { FENCE = 0 };
#else
enum { FENCE = 64 };
#endif

static void *allot(size_t bytes)
{
    char *new = malloc(bytes + FENCE);
    memset(new, 0, bytes);
    memset(new + bytes, 0xa5, FENCE);
    return new;
}

static int fence_holds(const unsigned char *fence)
{
    for (int i = 0; i < FENCE; i++)
        if (fence[i] != 0xa5)
            return 0;
    return 1;
}

static char *text(void)
{
    size_t length = one_in(6) ? 3000 : 0;
    const char *from = texts[below((int) (sizeof texts / sizeof *texts))];
    char *new = length ? malloc(length + 1) : strdup(from);
    if (length)
        memset(new, 'x', length), new[length] = 0;
    return new;
}

static void **list(int depth)
{
    void **new = calloc(18, sizeof *new);
    for (int i = 0; i < 17; i++)
        new[i] = depth > 1 ? (void *) list(depth - 1) : (void *) text();
    return new;
}

/* Draws a number or an address that does not depend on other arguments. */
static long scalar(struct argument wanted)
{
    switch (wanted.shape) {
    case HANDLE: return (long) handle(wanted.extra);
    case SMALL:  return wanted.extra && one_in(20) ? LONG_MAX >> below(2) : small();
    case SIZE:   return size();
    case WIDE:   return wide();
    case FUNCTION: return below(8) ? (long) (uintptr_t) stub : 0;
    case BUFFER:
        switch (below(24)) {
        case 0: return (long) MPI_BOTTOM;
        case 1: return (long) MPI_IN_PLACE;
        default: return (long) (region + REGION / 2 + (long) below(1 << 16) * 16);
        }
    default: return 0;
    }
}

/* The number of elements of argument `i`. Another argument that gives it is reduced if no machine could have so much
   memory. */
static size_t elements(struct call *call, int i)
{
    struct argument wanted = call->function->argument[i];
    if (wanted.length < 0)
        return (size_t) wanted.factor;
    struct argument by = call->function->argument[(int) wanted.length];
    long *value = &call->value[(int) wanted.length];
    if (by.shape == INTS || by.shape == WIDE_INTS) {
        int *behind = call->memory[(int) wanted.length];
        *behind = *behind > 4096 ? 64 : *behind;
        return *value && *behind > 0 ? (size_t) *behind : 0;
    }
    if (*value > 4096 || (int) *value != *value)
        *value = 64;
    return *value > 0 ? (size_t) *value * (size_t) wanted.factor : 0;
}

static void memory(struct call *call, int i)
{
    struct argument wanted = call->function->argument[i];
    static const size_t each[] = {
        [INTS] = sizeof(int), [WIDE_INTS] = sizeof(int), [LONGS] = sizeof(long), [WIDE_LONGS] = sizeof(long),
        [STATUS] = sizeof(MPI_Status), [TEXT_OUT] = 1, [OUT] = 32
    };
    size_t n = elements(call, i), bytes = n * (wanted.shape == BUFFER ? wanted.length >= 0 : wanted.shape == HANDLES ? width(wanted.extra) : wanted.shape <= OUT ? each[wanted.shape] : 0);
    /* `valuelen` of MPI_Info_get does not count the terminator. */
    bytes += wanted.shape == TEXT_OUT && strcmp(call->function->name, "MPI_Info_get") == 0;
    /* A graph's lists are as long as elements of other arrays say. */
    const int short_lists = strstr(call->function->name, "raph_") != 0;
    void *new = wanted.shape >= INTS || wanted.shape == HANDLES ? allot(bytes) : 0;
    switch (wanted.shape) {
    case HANDLES:
        for (size_t k = 0; k < n; k++)
            memcpy((char *) new + k * width(wanted.extra), (uintptr_t[]){ handle(wanted.extra) }, width(wanted.extra));
        break;
    case INTS:
    case WIDE_INTS:
        for (size_t k = 0; k < n; k++)
            ((int *) new)[k] = wanted.shape == INTS || short_lists || below(8) ? below(8) - one_in(8) : (int) wide();
        break;
    case LONGS:
    case WIDE_LONGS:
        for (size_t k = 0; k < n; k++)
            ((long *) new)[k] = wanted.shape == LONGS || below(8) ? below(8) - one_in(8) : wide();
        break;
    case STATUS:
        for (size_t k = 0; k < bytes / sizeof(int) && below(2); k++)
            ((int *) new)[k] = (int) wide();
        break;
    case OUT: *(uintptr_t *) new = handle(below(KINDS)); break;
    case TEXT: new = text(); break;
    case TEXTS: new = list(wanted.extra); break;
    case FUNCTION: new = 0; break;
    case BUFFER:
        if (wanted.length < 0)
            new = 0;
    }
    call->bytes[i] = bytes;
    call->memory[i] = new;
    call->elements[i] = n;
    if (wanted.shape == HANDLES)
        call->before[i] = memcpy(malloc(bytes), new, bytes);
    if (new)
        call->value[i] = one_in(16) ? 0 : (long) new;
    if (wanted.shape == INTS && one_in(12) && strstr(call->function->name, "Dist_graph"))
        call->value[i] = (long) (below(2) ? MPI_UNWEIGHTED : MPI_WEIGHTS_EMPTY);
}

/* Draws the arguments for a call of `function`: first those that are independent, then those whose length
   depends on them. */
static struct call *prepare(const struct function *function)
{
    struct call *call = calloc(1, sizeof *call);
    call->function = function;
    wild = below(3) == 0;
    for (int i = 0; i < function->arguments; i++)
        call->value[i] = scalar(function->argument[i]);
    if (strstr(function->name, "ttach") && below(2))
        for (int i = 0; i < function->arguments; i++)
            if (function->argument[i].shape == BUFFER)
                call->value[i] = (long) MPI_BUFFER_AUTOMATIC;
    for (int late = 0; late < 2; late++)
        for (int i = 0; i < function->arguments; i++)
            if ((function->argument[i].length >= 0) == late)
                memory(call, i);
    if (getenv("FUZZ_TRACE")) {
        fprintf(stderr, "%llu %s", (unsigned long long) at, function->name);
        for (int i = 0; i < function->arguments; i++)
            fprintf(stderr, " %#lx", (unsigned long) call->value[i]);
        fprintf(stderr, "\n");
    }
    return call;
}

static void *make(void *argument)
{
    /* All arguments are ints and pointers, which the ABI passes alike. */
    typedef long any(long, long, long, long, long, long, long, long, long, long, long, long, long, long, long, long, long, long);
    struct call *call = argument;
    any *function = (any *) (uintptr_t) call->function->address;
    const long *a = call->value;
    call->answer = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16], a[17]);
    return 0;
}

/* Makes the call in a thread. Returns whether it came back in time. */
static int make_aside(struct call *call, long milliseconds)
{
    pthread_t thread;
    struct timespec until;
    if (pthread_create(&thread, 0, make, call))
        exit(3);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += milliseconds * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000, until.tv_nsec %= 1000000000;
    if (pthread_timedjoin_np(thread, 0, &until) == 0)
        return 1;
    pthread_detach(thread);
    return 0;
}

/* Checks the results of a call, and frees its memory. */
static void finish(struct call *call)
{
    int pending = 0;
    for (int i = 0; i < call->function->arguments; i++)
        pending |= call->function->argument[i].shape == HANDLES && call->function->argument[i].extra == REQUEST;
    for (int i = 0; i < call->function->arguments; i++) {
        struct argument wanted = call->function->argument[i];
        for (size_t k = 0; call->before[i] && call->value[i] && k < call->elements[i]; k++) {
            uintptr_t old = element(call->before[i], wanted.extra, k), new = element(call->memory[i], wanted.extra, k);
            if (new != old)
                keep(wanted.extra, old, new);
        }
        free(call->before[i]);
        if (call->memory[i] && wanted.shape != TEXT && wanted.shape != TEXTS
            && !fence_holds((unsigned char *) call->memory[i] + call->bytes[i]))
            running = call->function, say("signal for a write behind argument", i), exit(1);
        if (wanted.shape == OUT && strstr(call->function->name, "lloc"))
            continue;
        if (wanted.shape == TEXTS)
            continue;
        /* Memory that an operation under way may still write (MPI_Comm_idup: its comm) or read stays. */
        if (!pending)
            free(call->memory[i]);
    }
    free(call);
}

static void begin(int level)
{
    int given;
    MPI_Init_thread(0, 0, level, &given);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
    MPI_T_init_thread(level, &given);
}

static void fill(void)
{
#define U(x) (uintptr_t) MPI_##x
    static const uintptr_t first[KINDS][4] = {
        [COMM] = { U(COMM_NULL), U(COMM_SELF), U(COMM_WORLD), U(COMM_WORLD) },
        [TYPE] = { U(DATATYPE_NULL), U(INT), U(DOUBLE), U(DOUBLE_INT) },
        [GROUP] = { U(GROUP_NULL), U(GROUP_EMPTY), U(GROUP_EMPTY), U(GROUP_EMPTY) },
        [OP] = { U(OP_NULL), U(SUM), U(REPLACE), U(MINLOC) },
        [INFO] = { U(INFO_NULL), U(INFO_ENV), U(INFO_NULL), U(INFO_NULL) },
        [ERRHANDLER] = { U(ERRHANDLER_NULL), U(ERRORS_RETURN), U(ERRORS_RETURN), U(ERRORS_RETURN) },
        [WIN] = { U(WIN_NULL) }, [FILES] = { U(FILE_NULL) }, [REQUEST] = { U(REQUEST_NULL) },
        [SESSION] = { U(SESSION_NULL) }, [MESSAGE] = { U(MESSAGE_NULL), U(MESSAGE_NO_PROC), U(MESSAGE_NO_PROC), U(MESSAGE_NO_PROC) },
    };
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < POOL; i++)
            pool[kind][i] = first[kind][i % 4] ? first[kind][i % 4] : first[kind][0];
}

enum { FUNCTIONS = sizeof function / sizeof *function };

/* Calls each function in a child of its own, which may end with a code. */
static int each_alone(void)
{
    for (int i = 0; i < FUNCTIONS; i++) {
        running = &function[i];
        at = (uint64_t) i;
        struct call *call = prepare(running);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            if (dup2(open("/dev/null", 1), 2) < 0)
                _exit(3);
            alarm(20);
            make(call);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status))
            say("signal", WTERMSIG(status));
        for (int k = 0; k < running->arguments; k++)
            free(call->memory[k]);
        free(call);
    }
    printf("fuzz: made 0 calls inside MPI's time, %d functions\n", FUNCTIONS);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    uint64_t seed = strtoull(argv[1], 0, 0), answered = 0;
    int alone = seed % 2, left = 0;
    calls = strtoull(argv[2], 0, 0);
    state = seed * 0x9e3779b97f4a7c15ull + 1;
    region = mmap(0, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    fill();
    watch();
    if (strcmp(argv[2], "before") == 0)
        return each_alone();
    begin(alone ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE);
    if (strcmp(argv[2], "after") == 0) {
        MPI_Finalize();
        return each_alone();
    }
    for (at = 0; at < calls && left < LEFT_MAX;) {
        const struct function *f = &function[below(FUNCTIONS)];
        if ((f->ends || (alone && f->waits) || (f->rare && below(20))) && FUNCTIONS > 1)
            continue;
        running = f;
        struct call *call = prepare(f);
        alarm(120);
        if (alone)
            make(call);
        else if (!make_aside(call, f->waits ? 40 : 100000)) {
            left++;
            at++;
            if (!f->waits)
                say("hang", left);
            continue;
        }
        running = 0;
        answered += call->answer == MPI_SUCCESS;
        finish(call);
        at++;
    }
    printf("\nfuzz: seed %llu made %llu calls of %d functions, %llu succeeded, %d wait\n", (unsigned long long) seed, (unsigned long long) at,
           FUNCTIONS, (unsigned long long) answered, left);
    fflush(stdout);
    /* Operations may be under way. */
    running = 0;
    leaving = 1;
    alarm(5);
    if (alone && seed % 3 == 0)
        MPI_Finalize();
    if (alone && seed % 3 == 1)
        MPI_Abort((MPI_Comm) handle(COMM), below(50));
    _exit(0);
}
