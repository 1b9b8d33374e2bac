/* Calls every MPI function with arguments drawn at random: fuzz [seed [calls [first]]]. It runs alone, as one process.

   Handles are live, freed, null, of another kind or nonsense; ranks, tags and roots anything; pointers sometimes null. What the API
   cannot know stays right: a buffer is longer than any count of any datatype that is used, an array longer than any length given. Left
   out (see `calls.h`, which tests/fuzz/run generates) is what blocks by definition, starts processes, or ends this one. */
#include <limits.h>
#include <mpi.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum kind { COMM, TYPE, GROUP, OP, INFO, REQUEST, WIN, FILES, ERRHANDLER, SESSION, MESSAGE, TOOL, KINDS };
enum shape {
    HANDLE, HANDLES,            /* a handle; a pointer to one or an array */
    SMALL, WIDE,                /* a number: a length of something; anything */
    INTS, WIDE_INTS, LONGS, WIDE_LONGS, /* a pointer to numbers, in or out */
    BUFFER, STATUS, TEXT, TEXT_OUT, TEXTS, FUNCTION, OUT
};
struct argument { unsigned char shape, kind; };
struct function { const char *name; void *address; int arguments; struct argument argument[24]; };
#include "calls.h"

#define SLOTS 4096
#define POOL 48
#define REGION (64 << 20)
static uintptr_t pool[KINDS][POOL];
static char *region;
static uint64_t state;
static volatile uint64_t at;
static const struct function *volatile running;
/* With FUZZ_SURVEY in the environment it goes on after a crash, to name many of them at once. */
static int surveying;
static sigjmp_buf back;

static uint64_t draw(void)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state * 0x2545f4914f6cdd1dull;
}
static int below(int n) { return (int) (draw() >> 33) % n; }
static int stub(void) { return 0; }

static void died(int number)
{
    static char line[200];
    int length = snprintf(line, sizeof line, "fuzz: signal %d in %s, call %llu\n", number, running ? running->name : "?",
                          (unsigned long long) at);
    write(1, line, (size_t) length);
    if (running && surveying)
        siglongjmp(back, 1);
    signal(number, SIG_DFL);
    raise(number);
}

static long small(void)
{
    int kind = below(20);
    return kind == 0 ? -1 : kind == 1 ? -below(100) : kind == 2 ? INT_MIN : kind < 8 ? below(3) : below(17);
}

static long wide(void)
{
    static const long odd[] = { INT_MAX, INT_MIN, MPI_ANY_SOURCE, MPI_PROC_NULL, MPI_ROOT, MPI_UNDEFINED, LONG_MAX, LONG_MIN,
                                MPI_KEYVAL_INVALID, MPI_COMM_TYPE_SHARED, 1l << 31, 1l << 40, 501, 505, 2, 8 };
    switch (below(4)) {
    case 0: return odd[below((int) (sizeof odd / sizeof *odd))];
    case 1: return (long) draw();
    default: return small();
    }
}

static uintptr_t handle(int kind)
{
    switch (below(24)) {
    case 0: return pool[below(KINDS)][below(POOL)];
    case 1: return (uintptr_t) draw() & 0xffffffff;
    case 2: return (uintptr_t) below(2000);
    case 3: return pool[kind][0] + (uintptr_t) below(1 << 24);
    default: return pool[kind][below(POOL)];
    }
}

/* Takes a handle that a call returned into the pool. */
static void keep(int kind, uintptr_t new)
{
    if (kind == TYPE) {
        /* Only what stays in the region, however often it is counted. */
        MPI_Count lb, extent, true_lb, true_extent, size;
        MPI_Datatype type = (MPI_Datatype) new;
        if (MPI_Type_get_extent_c(type, &lb, &extent) || MPI_Type_get_true_extent_c(type, &true_lb, &true_extent)
            || MPI_Type_size_c(type, &size))
            return;
        const MPI_Count most = 2048;
        const MPI_Count all[] = { lb, extent, true_lb, true_extent, size };
        int far = size < 0;
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
    if (kind == ERRHANDLER && ((MPI_Errhandler) new == MPI_ERRORS_ARE_FATAL || (MPI_Errhandler) new == MPI_ERRORS_ABORT))
        return;
    pool[kind][4 + below(POOL - 4)] = new;
}

/* An argument's value; what it points to lies in `scratch`. */
static long argument(struct argument wanted, char *scratch)
{
    static char *texts[] = { "mpi://WORLD", "mpi://SELF", "fuzz-1", "fuzz-2", "", "native", "external32", "internal", "a b", "0", "true" };
    int *ints = (int *) scratch;
    long *longs = (long *) scratch;
    if (wanted.shape >= INTS && wanted.shape != BUFFER && wanted.shape != FUNCTION && wanted.shape != HANDLES && below(24) == 0)
        return 0;
    switch (wanted.shape) {
    case HANDLE:
        return (long) handle(wanted.kind);
    case HANDLES:
        for (int i = 0; i < 64; i++)
            longs[i] = (long) handle(wanted.kind);
        return below(24) ? (long) scratch : 0;
    case SMALL:
        return small();
    case WIDE:
        return wide();
    case INTS:
    case WIDE_INTS:
        for (int i = 0; i < 256; i++)
            ints[i] = wanted.shape == INTS || below(8) ? below(8) - (below(8) == 0) : (int) wide();
        return (long) scratch;
    case LONGS:
    case WIDE_LONGS:
        for (int i = 0; i < 256; i++)
            longs[i] = wanted.shape == LONGS || below(8) ? below(8) - (below(8) == 0) : wide();
        return (long) scratch;
    case BUFFER:
        switch (below(16)) {
        case 0: return (long) MPI_BOTTOM;
        case 1: return (long) MPI_IN_PLACE;
        default: return (long) (region + REGION / 2 + (long) below(1 << 16) * 16);
        }
    case STATUS:
        for (int i = 0; i < 64; i++)
            ints[i] = (int) wide();
        return (long) scratch;
    case TEXT:
        if (below(12) == 0) {
            memset(scratch, 'x', 3000);
            scratch[3000] = 0;
        } else
            strcpy(scratch, texts[below((int) (sizeof texts / sizeof *texts))]);
        return (long) scratch;
    case TEXTS:
        return 0;
    case FUNCTION:
        return below(8) ? (long) (uintptr_t) stub : 0;
    default:
        memset(scratch, 0, 64);
        return (long) scratch;
    }
}

static long call(void *address, const long *a, int n)
{
    /* All arguments are ints and pointers, which the ABI passes alike. */
    typedef long any(long, long, long, long, long, long, long, long, long, long, long, long, long, long, long, long, long, long);
    any *function = (any *) (uintptr_t) address;
    (void) n;
    return function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14], a[15], a[16], a[17]);
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], 0, 0) : 1, calls = argc > 2 ? strtoull(argv[2], 0, 0) : 10000;
    static uint64_t answered;
    static char scratch[24][SLOTS * 2];
    surveying = getenv("FUZZ_SURVEY") != 0;
    state = seed * 0x9e3779b97f4a7c15ull + 1;
    region = mmap(0, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int level;
    MPI_Init_thread(0, 0, MPI_THREAD_SINGLE, &level);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &level);
    static const uintptr_t first[KINDS][4] = {
        [COMM] = { (uintptr_t) MPI_COMM_WORLD, (uintptr_t) MPI_COMM_SELF, (uintptr_t) MPI_COMM_NULL, (uintptr_t) MPI_COMM_WORLD },
        [TYPE] = { (uintptr_t) MPI_INT, (uintptr_t) MPI_DOUBLE, (uintptr_t) MPI_DATATYPE_NULL, (uintptr_t) MPI_DOUBLE_INT },
        [GROUP] = { (uintptr_t) MPI_GROUP_EMPTY, (uintptr_t) MPI_GROUP_NULL, (uintptr_t) MPI_GROUP_EMPTY, (uintptr_t) MPI_GROUP_EMPTY },
        [OP] = { (uintptr_t) MPI_SUM, (uintptr_t) MPI_OP_NULL, (uintptr_t) MPI_REPLACE, (uintptr_t) MPI_MINLOC },
        [INFO] = { (uintptr_t) MPI_INFO_NULL, (uintptr_t) MPI_INFO_ENV, (uintptr_t) MPI_INFO_NULL, (uintptr_t) MPI_INFO_NULL },
        [ERRHANDLER] = { (uintptr_t) MPI_ERRORS_RETURN, (uintptr_t) MPI_ERRHANDLER_NULL, (uintptr_t) MPI_ERRORS_RETURN, (uintptr_t) MPI_ERRORS_RETURN },
        [WIN] = { (uintptr_t) MPI_WIN_NULL }, [FILES] = { (uintptr_t) MPI_FILE_NULL }, [REQUEST] = { (uintptr_t) MPI_REQUEST_NULL },
        [SESSION] = { (uintptr_t) MPI_SESSION_NULL }, [MESSAGE] = { (uintptr_t) MPI_MESSAGE_NULL, (uintptr_t) MPI_MESSAGE_NO_PROC },
    };
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < POOL; i++)
            pool[kind][i] = first[kind][i % 4];
    const int signals[] = { SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGALRM };
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], died);

    const int functions = (int) (sizeof function / sizeof *function);
    for (at = 0; at < calls; at++) {
        alarm(60);
        const struct function *f = &function[below(functions)];
        long a[24] = { 0 };
        for (int i = 0; i < f->arguments; i++)
            a[i] = argument(f->argument[i], scratch[i]);
        uintptr_t before[24] = { 0 };
        for (int i = 0; i < f->arguments; i++)
            memcpy(&before[i], scratch[i], sizeof before[i]);
        running = f;
        if (sigsetjmp(back, 1)) {
            running = 0;
            continue;
        }
        answered += call(f->address, a, f->arguments) == MPI_SUCCESS;
        running = 0;
        for (int i = 0; i < f->arguments; i++) {
            uintptr_t after;
            memcpy(&after, scratch[i], sizeof after);
            if (f->argument[i].shape == HANDLES && a[i] && after != before[i])
                keep(f->argument[i].kind, after);
        }
    }
    printf("fuzz: seed %llu, %llu calls of %d functions, %llu succeeded\n", (unsigned long long) seed, (unsigned long long) calls,
           functions, (unsigned long long) answered);
    fflush(stdout);
    _exit(0);
}
