/* Makes a legal MPI program from a seed, runs it and prints a hash of all that its ranks saw:

       differential FIRST COUNT STEP [--only IDS] [--trace FOLDER] [--hashes FOLDER] [--list] [--intel]

   runs the seeds FIRST, FIRST + STEP, ... and prints `seed HASH` for each. The program of a seed is a list of operations; each has one or
   more steps (start and wait, say), and the steps of different operations are interleaved in one order, which all ranks go through.
   A step may block only until others have come as far as that very step, so nothing can wait for ever. What a program may see is determined: that
   is each operation's own business. `--only 3,7` leaves all other operations out, and what depends on them. `--trace` writes each rank's
   calls as C into FOLDER/RANK, `--hashes` each operation's hash. tests/differential/run does the rest. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "program.h"
#include "trace.h"
#include "exceptions.h"
#include "model.h"

static struct op *current;

static void note(const char *what, uint64_t number)
{
    (void) what;
    if (current) current->hash = mix(current->hash, number);
}

static void must(int code, const char *call)
{
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "differential: seed %llu, operation %d, rank %d: %s: %s\n", (unsigned long long) seed, current ? current->id : -1, rank, call, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void *grab(struct op *op, size_t bytes)
{
    struct block *block = &op->block[op->blocks];
    if (op->blocks++ == (int) (sizeof op->block / sizeof *op->block)) abort();
    block->bytes = bytes;
    block->start = (char *) aligned_alloc(64, (bytes + 2 * GUARD + 63) / 64 * 64) + GUARD;
    memset((char *) block->start - GUARD, 0x5a, bytes + 2 * GUARD);
    if (tracing) fprintf(tracing, "#block b%d_%d %zu\n", op->id, op->blocks - 1, bytes);
    return block->start;
}

static void drop(struct op *op)
{
    for (int i = 0; i < op->blocks; i++) {
        const unsigned char *start = op->block[i].start;
        for (size_t k = 0; k < GUARD; k++)
            if (start[-1 - (long) k] != 0x5a || start[op->block[i].bytes + k] != 0x5a) {
                fprintf(stderr, "differential: seed %llu, operation %d, rank %d: bytes beside block %d were written\n", (unsigned long long) seed, op->id, rank, i);
                op->hash = mix(op->hash, 666);
                break;
            }
        free((char *) op->block[i].start - GUARD);
    }
    op->blocks = 0;
}

/* While declaring, writes an array of numbers with its contents. Otherwise writes its name, or memory as an offset
   in its block. */
static void write_memory(const void *pointer, const char *element)
{
    static int arrays_declared;
    static struct { const void *start; int number; } declared[16];
    static int last;
    if (element && !declaring)
        for (int i = 0; i < 16; i++) {
            int at = (last + 16 - i) % 16;
            if (declared[at].start == pointer) {
                fprintf(tracing, "a%d", declared[at].number);
                return;
            }
        }
    for (int o = 0; o < op_count; o++)
        for (int i = 0; i < ops[o].blocks; i++) {
            struct block *block = &ops[o].block[i];
            size_t at = (size_t) ((const char *) pointer - ((const char *) block->start - GUARD));
            if (at > block->bytes + GUARD) continue;
            if (!element) {
                if (!declaring) fprintf(tracing, at == GUARD ? "b%d_%d" : "b%d_%d + %ld", o, i, (long) at - GUARD);
                return;
            }
            last = (last + 1) % 16;
            declared[last].start = pointer, declared[last].number = arrays_declared;
            fprintf(tracing, "    static %s a%d[] = {", element, arrays_declared++);
            size_t wide = *element == 'i' ? sizeof(int) : sizeof(long), count = (block->bytes + GUARD - at) / wide;
            for (size_t k = 0; k < count; k++)
                if (wide == sizeof(int)) fprintf(tracing, "%s%d", k ? ", " : " ", ((const int *) pointer)[k]);
                else if (*element == 'l') fprintf(tracing, "%s%ld", k ? ", " : " ", ((const long *) pointer)[k]);
                else fputs(k ? ", 0" : " 0", tracing);
            fputs(" };\n", tracing);
            for (size_t k = 0; *element == 'M' && k < count; k++) {
                fprintf(tracing, "    a%d[%zu] = ", arrays_declared - 1, k);
                declaring = 0, write_handle(((MPI_Datatype *) pointer)[k]), declaring = 1;
                fputs(";\n", tracing);
            }
            return;
        }
    if (!declaring) fprintf(tracing, "(void *) %p", pointer);
}

#include "types.h"
#include "requests.h"
#include "comms.h"
#include "messages.h"
#include "collectives.h"
#include "windows.h"
#include "objects.h"

static const struct kind kinds[] = { COMM_KINDS MESSAGE_KINDS COLLECTIVE_KINDS WINDOW_KINDS OBJECT_KINDS };
enum { KINDS = sizeof kinds / sizeof *kinds };

struct event { int op, phase; };
static struct event events[OPS_MAX * 10];
static int event_count;
static int listing;

static void step(struct op *op)
{
    if (kinds[op->kind].planned) kinds[op->kind].planned(op, op->phase);
    events[event_count].op = op->id, events[event_count++].phase = op->phase++;
}

/* Plans the operations of a seed, and the order of their steps. */
static void plan(void)
{
    int open[OPS_MAX], many = 0, weights = 0, wanted;
    sessions = window_count = 0;
    memset(ops, 0, sizeof ops), memset(comms, 0, sizeof comms), memset(wins, 0, sizeof wins);
    drawn = mix(seed, (uint64_t) size), event_count = op_count = 0;
    comm_count = 1 + size;
    for (int i = 0; i <= size; i++) {
        /* MPI_COMM_WORLD and each rank's MPI_COMM_SELF. */
        comms[i].alive = 1, comms[i].maker = -1, comms[i].n = i ? 1 : size;
        for (int k = 0; k < comms[i].n; k++) comms[i].world[k] = i ? i - 1 : k;
        comm[i] = !i ? MPI_COMM_WORLD : i == rank + 1 ? MPI_COMM_SELF : MPI_COMM_NULL;
    }
    /* Each program has only some kinds of operations, so that it has more of each. */
    int weight[KINDS];
    focus = draw(4);
    for (int i = 0; i < KINDS; i++) weights += weight[i] = draw(3) ? kinds[i].weight : kinds[i].weight > 20;
    for (int i = 0; focus == 1 && i < KINDS; i++)
        if (kinds[i].plan == plan_dup || kinds[i].plan == plan_inter || kinds[i].plan == plan_merge) weights += 30, weight[i] += 30;
    wanted = 10 + draw(50) + (focus == 1 ? 40 : 0);
    int most = 1 + draw(12);
    while (op_count < wanted || many) {
        if (op_count < wanted && many < most && draw(3)) {
            struct op *op = &ops[op_count];
            int at = draw(weights), kind = 0;
            while (at >= weight[kind]) at -= weight[kind++];
            memset(op, 0, sizeof *op);
            op->id = op_count, op->kind = kind, op->phases = 1, op->on = op->peer = op->third = op->window = -1;
            if (!kinds[kind].plan(op)) continue;
            op_count++, step(op);
            if (op->phase < op->phases) open[many++] = op->id;
        } else if (many) {
            int at = draw(many);
            struct op *op = &ops[open[at]];
            step(op);
            if (op->phase == op->phases) open[at] = open[--many];
        }
    }
    /* An operation that needs a comm or window of an operation that was left out is left out, too. */
    for (int i = 0; i < op_count; i++) ops[i].kept = 1;
}

static int there(int at) { return at < 0 || comms[at].maker < 0 || ops[comms[at].maker].kept; }

/* Leaves out all operations but `only`, and those that depend on them. A window's comm may come from a list that was left
   out. */
static void leave_out(const char *only)
{
    char listed[OPS_MAX] = { 0 };
    for (const char *at = only; at && *at; at += *at == ',') listed[strtol(at, (char **) &at, 10) % OPS_MAX] = 1;
    for (int i = 0; i < op_count; i++) {
        struct op *op = &ops[i];
        op->kept = (!only || listed[i]) && there(op->on) && there(op->peer) && there(op->third) && (op->window < 0 || wins[op->window].maker == i || ops[wins[op->window].maker].kept);
    }
}

static void run(const char *only, const char *hashes)
{
    plan();
    leave_out(only);
    for (int i = 0; i < OPS_MAX; i++)
        for (int k = 0; k < REQUESTS; k++) request[i][k] = MPI_REQUEST_NULL;
    for (int i = 1 + size; i < COMMS_MAX; i++) comm[i] = MPI_COMM_NULL;
    for (int i = 0; i < WINS_MAX; i++) win[i] = MPI_WIN_NULL;
    for (int i = 0; i < op_count; i++) ops[i].phase = 0;
    copies = deletions = handled = 0;
    if (tracing) fprintf(tracing, "#step -1 0 the beginning\n");
    DO(attach, 16 << 20);
    for (int i = 0; i < event_count; i++) {
        struct op *op = current = &ops[events[i].op];
        if (!op->kept) continue;
        if (tracing) fprintf(tracing, "#step %d %d operation %d (%s), step %d of %d\n", op->id, events[i].phase, op->id, kinds[op->kind].name, events[i].phase + 1, op->phases);
        kinds[op->kind].run(op, events[i].phase);
        if (events[i].phase + 1 == op->phases) drop(op);
    }
    if (tracing) fprintf(tracing, "#step %d 0 the end: what is left is freed\n", op_count);
    current = NULL;
    windows_dropped();
    DO(detach, 0);
    comms_dropped();
    if (hashes) {
        char path[512];
        snprintf(path, sizeof path, "%s/%d", hashes, rank);
        FILE *to = fopen(path, "w");
        for (int i = 0; i < op_count; i++)
            if (ops[i].kept) fprintf(to, "%d %s %016llx\n", i, kinds[ops[i].kind].name, (unsigned long long) ops[i].hash);
        fclose(to);
    }
}

int main(int argc, char **argv)
{
    const char *only = NULL, *trace = NULL, *hashes = NULL;
    if (argc < 4) return 2;
    for (int i = 4; i < argc; i++) {
        if (!strcmp(argv[i], "--only")) only = argv[++i];
        else if (!strcmp(argv[i], "--trace")) trace = argv[++i];
        else if (!strcmp(argv[i], "--hashes")) hashes = argv[++i];
        else if (!strcmp(argv[i], "--list")) listing = 1;
        else if (!strcmp(argv[i], "--intel")) intel = 1;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &quiet);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > RANKS_MAX) MPI_Abort(MPI_COMM_WORLD, 2);
    if (trace) {
        char path[512];
        snprintf(path, sizeof path, "%s/%d", trace, rank);
        tracing = fopen(path, "w");
    }
    uint64_t first = strtoull(argv[1], NULL, 10), count = strtoull(argv[2], NULL, 10), by = strtoull(argv[3], NULL, 10);
    for (seed = first; seed < first + count * by; seed += by) {
        run(only, hashes);
        uint64_t own = (uint64_t) rank, all[RANKS_MAX], sum = seed;
        for (int i = 0; i < op_count; i++)
            if (ops[i].kept) own = mix(own, ops[i].hash);
        /* No rank begins with the next seed before all have ended this one. */
        MPI_Allgather(&own, 8, MPI_BYTE, all, 8, MPI_BYTE, quiet);
        if (rank) continue;
        for (int i = 0; i < size; i++) sum = mix(sum, all[i]);
        printf("%llu %016llx\n", (unsigned long long) seed, (unsigned long long) sum);
        for (int i = 0; listing && i < op_count; i++)
            if (ops[i].kept) printf("operation %d %s\n", i, kinds[ops[i].kind].name);
        fflush(stdout);
    }
    MPI_Comm_free(&quiet);
    MPI_Finalize();
    return 0;
}
