/* CALL(MPI_Send, buffer, 1, MPI_INT, ...) makes the call; while tracing it first writes the call down as C. So a program that `run`
   prints consists of the very calls that were made. An argument is written by its type: handles by the variable that holds them, memory by
   the block that it lies in (`grab`). FAILS is the same for a call that must return an error, whose class is seen. DO runs a statement. */
/* SPDX-License-Identifier: BSD-3-Clause */
static FILE *tracing;

/* Arrays among the arguments are declared first. They are static, since a call that does not block reads them
   later. */
static int declaring;

static void must(int code, const char *call);
static void write_memory(const void *pointer, const char *element);

struct named { void *handle; const char *name; };
#define NAMED(x) { (void *) x, #x }
static const struct named named[] = {
    NAMED(MPI_COMM_WORLD), NAMED(MPI_COMM_SELF), NAMED(MPI_COMM_NULL), NAMED(MPI_GROUP_EMPTY), NAMED(MPI_GROUP_NULL), NAMED(MPI_WIN_NULL),
    NAMED(MPI_INFO_NULL), NAMED(MPI_REQUEST_NULL), NAMED(MPI_SESSION_NULL), NAMED(MPI_DATATYPE_NULL), NAMED(MPI_OP_NULL),
    NAMED(MPI_BYTE), NAMED(MPI_CHAR), NAMED(MPI_SIGNED_CHAR), NAMED(MPI_SHORT), NAMED(MPI_INT), NAMED(MPI_UNSIGNED), NAMED(MPI_LONG),
    NAMED(MPI_FLOAT), NAMED(MPI_DOUBLE), NAMED(MPI_2INT), NAMED(MPI_DOUBLE_INT), NAMED(MPI_PACKED), NAMED(MPI_INT64_T), NAMED(MPI_UINT8_T),
    NAMED(MPI_SUM), NAMED(MPI_PROD), NAMED(MPI_MAX), NAMED(MPI_MIN), NAMED(MPI_BAND), NAMED(MPI_BOR), NAMED(MPI_BXOR), NAMED(MPI_LAND),
    NAMED(MPI_LOR), NAMED(MPI_LXOR), NAMED(MPI_MINLOC), NAMED(MPI_MAXLOC), NAMED(MPI_REPLACE), NAMED(MPI_NO_OP), NAMED(MPI_ERRORS_RETURN),
    NAMED(MPI_ERRORS_ARE_FATAL), NAMED(MPI_ERRHANDLER_NULL),
    NAMED(MPI_MESSAGE_NULL), NAMED(MPI_MESSAGE_NO_PROC),
    { (void *) compose, "compose" }, { (void *) copied, "copied" }, { (void *) deleted, "deleted" }, { (void *) handler, "handler" },
    { (void *) MPI_COMM_NULL_COPY_FN, "MPI_COMM_NULL_COPY_FN" }, { (void *) MPI_COMM_DUP_FN, "MPI_COMM_DUP_FN" },
};
struct array { const char *name; void *start; size_t bytes, element; };
#define ARRAY(a) { #a, a, sizeof a, sizeof *a }
static const struct array arrays[] = {
    ARRAY(comm), ARRAY(several), ARRAY(win), { "request", request, sizeof request, sizeof(MPI_Request) }, { "done", done, sizeof done, sizeof(MPI_Status) }, ARRAY(status), ARRAY(group), ARRAY(type),
    ARRAY(message), ARRAY(info), ARRAY(session), ARRAY(errhandler), ARRAY(operator), ARRAY(out), ARRAY(keyval), ARRAY(wide), ARRAY(address),
};

static void write_element(const struct array *a, size_t at)
{
    if (a->start == (void *) request || a->start == (void *) done)
        fprintf(tracing, "%s[%zu][%zu]", a->name, at / REQUESTS, at % REQUESTS);
    else
        fprintf(tracing, "%s[%zu]", a->name, at);
}

/* A handle: a predefined one, or the variable that holds it. */
static void write_handle(void *handle)
{
    if (declaring) return;
    if (handle == (void *) quiet) {
        fputs("quiet", tracing);
        return;
    }
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (named[i].handle == handle) {
            fputs(named[i].name, tracing);
            return;
        }
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        if (arrays[i].element == sizeof(void *) && strcmp(arrays[i].name, "wide") && strcmp(arrays[i].name, "address"))
            for (size_t at = 0; at < arrays[i].bytes / sizeof(void *); at++)
                if (((void **) arrays[i].start)[at] == handle) {
                    write_element(&arrays[i], at);
                    return;
                }
    fprintf(tracing, "(void *) %p", handle);
}

/* Writes a variable of program.h. Returns whether it is one. */
static int write_variable(const void *pointer)
{
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        size_t from = (size_t) ((const char *) pointer - (const char *) arrays[i].start);
        if (from < arrays[i].bytes) {
            if (!declaring) fputc('&', tracing), write_element(&arrays[i], from / arrays[i].element);
            return 1;
        }
    }
    return 0;
}

static void write_array(const void *pointer, const char *element)
{
    if ((uintptr_t) pointer < 64) {
        if (!declaring) fprintf(tracing, "(void *) %zu", (size_t) pointer);
    } else if (!write_variable(pointer)) {
        write_memory(pointer, element);
    }
}
static void write_pointer(const void *pointer) { write_array(pointer, NULL); }
static void write_ints(const int *pointer) { write_array(pointer, "int"); }
static void write_longs(const long *pointer) { write_array(pointer, "long"); }
static void write_types(const MPI_Datatype *pointer) { write_array(pointer, "MPI_Datatype"); }
static void write_status(MPI_Status *pointer) { write_array(pointer, NULL); }
static void write_int(int number)
{
    if (!declaring) fprintf(tracing, "%d", number);
}
static void write_long(long number)
{
    if (!declaring) fprintf(tracing, "%ld", number);
}
static void write_text(const char *text)
{
    if (!declaring) fprintf(tracing, "\"%s\"", text);
}
static void write_triples(int (*pointer)[3])
{
    if (!declaring) fprintf(tracing, "(int[][3]) { { %d, %d, %d } }", pointer[0][0], pointer[0][1], pointer[0][2]);
}
static void comma(void)
{
    if (!declaring) fputs(", ", tracing);
}

#define WRITE(x) _Generic((x), int: write_int, long: write_long, unsigned: write_int, unsigned long: write_long, \
    char *: write_text, const char *: write_text, int *: write_ints, const int *: write_ints, long *: write_longs, const long *: write_longs, \
    int (*)[3]: write_triples, MPI_Status *: write_status, MPI_Datatype *: write_types, const MPI_Datatype *: write_types, \
    MPI_Comm: write_handle, MPI_Group: write_handle, MPI_Win: write_handle, MPI_Datatype: write_handle, MPI_Op: write_handle, \
    MPI_Info: write_handle, MPI_Request: write_handle, MPI_Session: write_handle, MPI_Errhandler: write_handle, MPI_Message: write_handle, \
    MPI_User_function *: write_handle, MPI_Comm_copy_attr_function *: write_handle, MPI_Comm_delete_attr_function *: write_handle, \
    MPI_Comm_errhandler_function *: write_handle, default: write_pointer)(x)

#define W1(a) WRITE(a)
#define W2(a, ...) WRITE(a), comma(), W1(__VA_ARGS__)
#define W3(a, ...) WRITE(a), comma(), W2(__VA_ARGS__)
#define W4(a, ...) WRITE(a), comma(), W3(__VA_ARGS__)
#define W5(a, ...) WRITE(a), comma(), W4(__VA_ARGS__)
#define W6(a, ...) WRITE(a), comma(), W5(__VA_ARGS__)
#define W7(a, ...) WRITE(a), comma(), W6(__VA_ARGS__)
#define W8(a, ...) WRITE(a), comma(), W7(__VA_ARGS__)
#define W9(a, ...) WRITE(a), comma(), W8(__VA_ARGS__)
#define W10(a, ...) WRITE(a), comma(), W9(__VA_ARGS__)
#define W11(a, ...) WRITE(a), comma(), W10(__VA_ARGS__)
#define W12(a, ...) WRITE(a), comma(), W11(__VA_ARGS__)
#define W13(a, ...) WRITE(a), comma(), W12(__VA_ARGS__)
#define PICK(a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, W, ...) W
#define WRITE_ALL(...) PICK(__VA_ARGS__, W13, W12, W11, W10, W9, W8, W7, W6, W5, W4, W3, W2, W1)(__VA_ARGS__)

#define WRITTEN(before, f, after, ...) \
    (tracing ? (void) (declaring = 1, WRITE_ALL(__VA_ARGS__), declaring = 0, fputs("    " before #f "(", tracing), WRITE_ALL(__VA_ARGS__), fputs(after "\n", tracing), fflush(tracing)) : (void) 0)
#define CALL(f, ...) (WRITTEN("", f, ");", __VA_ARGS__), must(f(__VA_ARGS__), #f))
#define FAILS(f, ...) (WRITTEN("see_error(", f, "));", __VA_ARGS__), see_error(f(__VA_ARGS__)))
/* Calls that a printed program does not need. */
#define SILENTLY(f, ...) must(f(__VA_ARGS__), #f)
/* A call that must fail, and whose error goes to a handler. */
#define HANDLED(f, ...) (WRITTEN("", f, ");", __VA_ARGS__), (void) f(__VA_ARGS__))
/* Functions that return nothing, such as fill and see. */
#define DO(f, ...) (WRITTEN("", f, ");", __VA_ARGS__), f(__VA_ARGS__))
/* Calls until a flag of out[] is set; written as a loop. */
#define UNTIL(flag, f, ...) \
    do { \
        FILE *to = tracing; \
        WRITTEN("do ", f, ");", __VA_ARGS__); \
        if (to) fprintf(to, "    while (!out[%d]);\n", (int) (&(flag) - out)); \
        tracing = NULL; \
        do must(f(__VA_ARGS__), #f); while (!(flag)); \
        tracing = to; \
    } while (0)
/* Sets a variable to the value of another. */
#define SET(to, from) (tracing ? (void) (fputs("    *(", tracing), WRITE(&(to)), fputs(") = ", tracing), WRITE(from), fputs(";\n", tracing)) : (void) 0, (to) = (from))
