/* Calls that MPICH, Open MPI and Intel MPI accept and the standard does not allow (docs/debugging.md); every
   operator on every predefined type.
   ways: plain proxy */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <limits.h>

enum { INTEGERS = 1, REALS = 2, COMPLEX = 4, LOGICALS = 8, BYTES = 16, PAIRS = 32, NONE = 64 };

static const struct { MPI_Datatype type; int sort; const char *name; } types[] = {
#define T(sort, name) {MPI_##name, sort, #name}
    T(INTEGERS, CHAR), T(INTEGERS, SIGNED_CHAR), T(INTEGERS, UNSIGNED_CHAR), T(INTEGERS, SHORT), T(INTEGERS, UNSIGNED_SHORT),
    T(INTEGERS, INT), T(INTEGERS, UNSIGNED), T(INTEGERS, LONG), T(INTEGERS, UNSIGNED_LONG), T(INTEGERS, LONG_LONG),
    T(INTEGERS, UNSIGNED_LONG_LONG), T(INTEGERS, INT8_T), T(INTEGERS, INT16_T), T(INTEGERS, INT32_T), T(INTEGERS, INT64_T),
    T(INTEGERS, UINT8_T), T(INTEGERS, UINT16_T), T(INTEGERS, UINT32_T), T(INTEGERS, UINT64_T), T(INTEGERS, AINT),
    T(INTEGERS, COUNT), T(INTEGERS, OFFSET), T(INTEGERS, INTEGER), T(INTEGERS, INTEGER1), T(INTEGERS, INTEGER2),
    T(INTEGERS, INTEGER4), T(INTEGERS, INTEGER8), T(REALS, FLOAT), T(REALS, DOUBLE), T(REALS, LONG_DOUBLE), T(REALS, REAL),
    T(REALS, DOUBLE_PRECISION), T(REALS, REAL4), T(REALS, REAL8), T(COMPLEX, C_COMPLEX), T(COMPLEX, C_DOUBLE_COMPLEX),
    T(COMPLEX, C_LONG_DOUBLE_COMPLEX), T(COMPLEX, COMPLEX), T(COMPLEX, DOUBLE_COMPLEX), T(COMPLEX, COMPLEX8), T(COMPLEX, COMPLEX16),
    T(LOGICALS, C_BOOL), T(LOGICALS, LOGICAL), T(BYTES, BYTE), T(PAIRS, FLOAT_INT), T(PAIRS, DOUBLE_INT), T(PAIRS, LONG_INT),
    T(PAIRS, 2INT), T(PAIRS, SHORT_INT), T(PAIRS, LONG_DOUBLE_INT), T(PAIRS, 2INTEGER), T(PAIRS, 2REAL), T(PAIRS, 2DOUBLE_PRECISION),
    T(NONE, WCHAR), T(NONE, PACKED)};

static const struct { MPI_Op op; int takes; const char *name; } ops[] = {
#define O(takes, name) {MPI_##name, takes, #name}
    O(INTEGERS | REALS, MAX), O(INTEGERS | REALS, MIN), O(INTEGERS | REALS | COMPLEX, SUM), O(INTEGERS | REALS | COMPLEX, PROD),
    O(INTEGERS | LOGICALS, LAND), O(INTEGERS | LOGICALS, LOR), O(INTEGERS | LOGICALS, LXOR), O(INTEGERS | BYTES, BAND),
    O(INTEGERS | BYTES, BOR), O(INTEGERS | BYTES, BXOR), O(PAIRS, MAXLOC), O(PAIRS, MINLOC)};

enum { ELEMENTS = 5, ROOM = ELEMENTS * 64 };

/* The allreduce of every operator on every type that it takes equals the fold of all ranks' operands by
   MPI_Reduce_local. */
static void all_operators(void)
{
    static char out[ROOM], in[ROOM], all[16 * ROOM], fold[ROOM];
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        if (types[t].type == MPI_DATATYPE_NULL) continue; /* An MPICH without Fortran. */
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
            /* Real numbers are 0 here; coll_operators.c tests other numbers. */
            for (int i = 0; i < ROOM; i++) out[i] = types[t].sort == LOGICALS ? i % 4 == 0 && (rank + i) % 3 : (rank + i) % 3;
            if (types[t].sort & (REALS | COMPLEX)) memset(out, 0, sizeof out);
            memset(in, 0, sizeof in);
            int code = MPI_Allreduce(out, in, ELEMENTS, types[t].type, ops[o].op, MPI_COMM_WORLD), want = ops[o].takes & types[t].sort;
            CHECK(error_class(code) == (want ? MPI_SUCCESS : MPI_ERR_OP), "MPI_%s on MPI_%s: class %d", ops[o].name, types[t].name, error_class(code));
            if (!want || size > 16) continue;
            MPI_Allgather(out, ROOM, MPI_BYTE, all, ROOM, MPI_BYTE, MPI_COMM_WORLD);
            memcpy(fold, all + (size - 1) * ROOM, ROOM);
            for (int r = size - 2; r >= 0; r--) MPI_Reduce_local(all + r * ROOM, fold, ELEMENTS, types[t].type, ops[o].op);
            MPI_Aint lb, extent;
            int bytes, differ = 0;
            MPI_Type_get_extent(types[t].type, &lb, &extent);
            MPI_Type_size(types[t].type, &bytes);
            /* The padding in pairs and in long doubles is not compared. */
            for (int i = 0; i < (bytes == extent && bytes < 16 ? ELEMENTS : 0); i++) differ |= memcmp(in + i * bytes, fold + i * bytes, bytes);
            CHECK(!differ, "MPI_%s on MPI_%s is not its fold", ops[o].name, types[t].name);
        }
    }
}

/* MPI_CHAR is treated as the integer that C's char is: in collectives, in local reductions, in windows. */
static void characters(void)
{
    MPI_Datatype integer = CHAR_MIN < 0 ? MPI_SIGNED_CHAR : MPI_UNSIGNED_CHAR;
    static char out[3000], chars[3000], integers[3000];
    for (int i = 0; i < 3000; i++) out[i] = (char)value(rank, i, 1);
    for (size_t o = 0; o < 10; o++)
        for (int count = 3; count <= 3000; count *= 1000) {
            for (int twice = 0; twice < 6; twice++) { /* Some calls, until it uses flat slots. */
                MPI_Allreduce(out, chars, count, MPI_CHAR, ops[o].op, MPI_COMM_WORLD);
                MPI_Allreduce(out, integers, count, integer, ops[o].op, MPI_COMM_WORLD);
            }
            CHECK(memcmp(chars, integers, count) == 0, "allreduce of characters, MPI_%s", ops[o].name);
            MPI_Scan(out, chars, count, MPI_CHAR, ops[o].op, MPI_COMM_WORLD);
            MPI_Scan(out, integers, count, integer, ops[o].op, MPI_COMM_WORLD);
            CHECK(memcmp(chars, integers, count) == 0, "scan of characters, MPI_%s", ops[o].name);
            MPI_Reduce_local(out, chars, count, MPI_CHAR, ops[o].op);
            MPI_Reduce_local(out, integers, count, integer, ops[o].op);
            CHECK(memcmp(chars, integers, count) == 0, "MPI_Reduce_local of characters, MPI_%s", ops[o].name);
        }
    char *memory, one = 1, before, zero = 0;
    MPI_Win win;
    MPI_Win_allocate(4, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memset(memory, 0, 4);
    MPI_Win_fence(0, win);
    EQUAL(MPI_Accumulate(&one, 1, MPI_CHAR, 0, 0, 1, MPI_CHAR, MPI_SUM, win), MPI_SUCCESS, "MPI_Accumulate");
    MPI_Win_fence(0, win);
    MPI_Win_lock_all(0, win);
    EQUAL(MPI_Fetch_and_op(&one, &before, MPI_CHAR, 0, 1, MPI_SUM, win), MPI_SUCCESS, "MPI_Fetch_and_op");
    EQUAL(MPI_Compare_and_swap(&one, &zero, &before, MPI_CHAR, 0, 2, win), MPI_SUCCESS, "MPI_Compare_and_swap");
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) CHECK(memory[0] == size && memory[1] == size && memory[2] == 1, "window: %d %d %d", memory[0], memory[1], memory[2]);
    MPI_Win_free(&win);
}

/* MPI_DATATYPE_NULL where no data are moved, also on one side only. */
static void no_datatype(void)
{
    MPI_Datatype null = MPI_DATATYPE_NULL, mine = rank % 2 ? MPI_DATATYPE_NULL : MPI_INT;
    int x = 0, none[8] = {0}, to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Datatype nulls[8] = {null, null, null, null, null, null, null, null};
    MPI_Request request;
    MPI_Status status;
    MPI_Comm comm = MPI_COMM_WORLD;
#define TAKES(call) CHECK((call) == MPI_SUCCESS, "%s is refused", #call)
    TAKES(MPI_Sendrecv(&x, 0, mine, to, 1, &x, 0, mine, from, 1, comm, &status));
    TAKES(MPI_Irecv(&x, 0, null, from, 2, comm, &request));
    TAKES(MPI_Send(NULL, 0, null, to, 2, comm));
    TAKES(MPI_Wait(&request, &status));
    EQUAL(status.MPI_SOURCE, from, "source of nothing");
    TAKES(MPI_Send(&x, 0, null, MPI_PROC_NULL, 1, comm));
    TAKES(MPI_Send(&x, 7, null, MPI_PROC_NULL, 1, comm));
    TAKES(MPI_Recv(&x, 7, null, MPI_PROC_NULL, 1, comm, &status));
    EQUAL(status.MPI_SOURCE, MPI_PROC_NULL, "source");
    TAKES(MPI_Sendrecv_replace(&x, 0, null, to, 1, from, 1, comm, &status));
    TAKES(MPI_Send_init(&x, 1, null, MPI_PROC_NULL, 1, comm, &request));
    MPI_Request_free(&request);
    for (int round = 0; round < 8; round++) TAKES(MPI_Bcast(&x, 0, mine, 0, comm));
    if (size <= 8) TAKES(MPI_Alltoallw(&x, none, none, nulls, &x, none, none, nulls, comm));
    CHECK(error_class(MPI_Send(&x, 1, null, to, 1, comm)) == MPI_ERR_TYPE, "an element of no datatype is sent");
    CHECK(error_class(MPI_Recv(&x, 1, null, from, 1, comm, &status)) == MPI_ERR_TYPE, "an element of no datatype is received");
    CHECK(error_class(MPI_Bcast(&x, 1, null, 0, comm)) == MPI_ERR_TYPE, "an element of no datatype is broadcast");
}

static int heard;

static void hear(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    heard = *code;
}

/* Bits that are no access mode, and a number that is no error code. */
static void numbers(void)
{
    MPI_File file;
    MPI_Errhandler handler;
    MPI_Comm comm;
    CHECK(MPI_File_open(MPI_COMM_SELF, "/dev/null", MPI_MODE_RDONLY | 1 << 20, MPI_INFO_NULL, &file) == MPI_SUCCESS, "an unknown bit");
    int amode = 0;
    MPI_File_get_amode(file, &amode);
    EQUAL(amode, MPI_MODE_RDONLY, "amode");
    MPI_File_close(&file);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(hear, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
    EQUAL(MPI_Comm_call_errhandler(comm, 12345), MPI_SUCCESS, "MPI_Comm_call_errhandler");
    EQUAL(heard, 12345, "what the handler hears");
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
    all_operators();
    characters();
    no_datatype();
    numbers();
    return end();
}
