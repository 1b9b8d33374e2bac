/* Wrong arguments give the right class and a sentence, and the library works on afterwards.   ways: plain */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <unistd.h>

#define FAILS(call, class) \
    do { \
        int code_ = (call), length_ = 0; \
        char text_[MPI_MAX_ERROR_STRING] = ""; \
        if (code_ != MPI_SUCCESS) MPI_Error_string(code_, text_, &length_); \
        CHECK(error_class(code_) == (class), "%s: class %d, not %s: %s", #call, error_class(code_), #class, text_); \
        CHECK(code_ == MPI_SUCCESS || length_ > 20, "%s: the sentence is only '%s'", #call, text_); \
    } while (0)

static int calls, seen;

static void note(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    calls++;
    seen = error_class(*code);
}

static void forgive(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    *code = MPI_SUCCESS;
}

static void arguments(void)
{
    int x[4] = {0};
    MPI_Request request;
    MPI_Comm comm = MPI_COMM_WORLD;
    FAILS(MPI_Send(x, -1, MPI_INT, 0, 0, comm), MPI_ERR_COUNT);
    FAILS(MPI_Send(NULL, 4, MPI_INT, 0, 0, comm), MPI_ERR_BUFFER);
    FAILS(MPI_Send(x, 1, MPI_DATATYPE_NULL, 0, 0, comm), MPI_ERR_TYPE);
    FAILS(MPI_Send(x, 1, MPI_INT, size, 0, comm), MPI_ERR_RANK);
    FAILS(MPI_Send(x, 1, MPI_INT, -77, 0, comm), MPI_ERR_RANK);
    FAILS(MPI_Send(x, 1, MPI_INT, 0, -5, comm), MPI_ERR_TAG);
    FAILS(MPI_Send(x, 1, MPI_INT, 0, MPI_ANY_TAG, comm), MPI_ERR_TAG);
    FAILS(MPI_Send(x, 1, MPI_INT, 0, 0, MPI_COMM_NULL), MPI_ERR_COMM);
    FAILS(MPI_Irecv(x, -2, MPI_INT, 0, 0, comm, &request), MPI_ERR_COUNT);
    FAILS(MPI_Irecv(x, 1, MPI_INT, size + 3, 0, comm, &request), MPI_ERR_RANK);
    FAILS(MPI_Bcast(x, 1, MPI_INT, size, comm), MPI_ERR_ROOT);
    FAILS(MPI_Bcast(x, -1, MPI_INT, 0, comm), MPI_ERR_COUNT);
    FAILS(MPI_Bcast(NULL, 3, MPI_INT, 0, comm), MPI_ERR_BUFFER);
    FAILS(MPI_Allreduce(x, x + 1, 1, MPI_INT, MPI_OP_NULL, comm), MPI_ERR_OP);
    FAILS(MPI_Allreduce(x, x + 1, 1, MPI_FLOAT, MPI_BAND, comm), MPI_ERR_OP);
    FAILS(MPI_Allreduce(x, x + 1, 1, MPI_WCHAR, MPI_SUM, comm), MPI_ERR_OP);
    FAILS(MPI_Type_contiguous(-1, MPI_INT, &(MPI_Datatype){0}), MPI_ERR_COUNT);
    FAILS(MPI_Op_free(&(MPI_Op){MPI_SUM}), MPI_ERR_OP);
    FAILS(MPI_Group_incl(MPI_GROUP_EMPTY, 1, x, &(MPI_Group){0}), MPI_ERR_RANK);
    FAILS(MPI_Comm_rank(comm, NULL), MPI_ERR_ARG);
}

/* Found by tests/fuzz: impossible buffers, a datatype without a short form, descriptors that are no sockets.
   */
static void fuzzed(void)
{
    int x[64] = {0}, ends[2], one[64], zero[64] = {0}, below[64], above[64];
    const MPI_Count lengths[2] = {1, 1ll << 40}, places[2] = {0, 1 << 30};
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Datatype gaps, spread, type;
    for (int i = 0; i < 64; i++) one[i] = 1, below[i] = -3, above[i] = 2000;
    FAILS(MPI_Allgatherv(x, 1, MPI_INT, MPI_IN_PLACE, one, below, MPI_INT, comm), MPI_ERR_BUFFER);
    FAILS(MPI_Allgatherv(x, 1, MPI_INT, MPI_BOTTOM, one, below, MPI_INT, comm), MPI_ERR_BUFFER);
    FAILS(MPI_Allgatherv(x, 1, MPI_INT, NULL, one, above, MPI_INT, comm), MPI_ERR_BUFFER);
    FAILS(MPI_Allgatherv(x, 1, MPI_INT, MPI_BOTTOM, one, zero, MPI_INT, comm), MPI_ERR_BUFFER);
    FAILS(MPI_Comm_rank(comm, MPI_IN_PLACE), MPI_ERR_ARG);
    FAILS(MPI_Send_c(x, 1ll << 61, MPI_BYTE, rank, 0, comm), MPI_ERR_COUNT);
    FAILS(MPI_Sendrecv_replace_c(x, 1ll << 50, MPI_BYTE, rank, 0, rank, 0, comm, MPI_STATUS_IGNORE), MPI_ERR_NO_MEM);
    FAILS(MPI_Bcast_c(x, 1ll << 61, MPI_BYTE, 0, comm), MPI_ERR_COUNT);
    FAILS(MPI_Reduce_local_c(x, one, 1ll << 61, MPI_BYTE, MPI_BOR), MPI_ERR_COUNT);
    FAILS(MPI_Pack_c(x, 1ll << 61, MPI_BYTE, one, 1ll << 61, &(MPI_Count){0}, comm), MPI_ERR_COUNT);
    MPI_Type_contiguous(0, MPI_INT, &type);
    MPI_Type_commit(&type);
    CHECK(MPI_Pack_external_c("external32", x, 1ll << 62, type, one, 64, &(MPI_Count){0}) == MPI_SUCCESS, "2^62 times nothing");
    MPI_Type_free(&type);
    MPI_Type_create_hvector(3, 1, 5, MPI_INT, &gaps);
    MPI_Type_create_resized(gaps, 0, 100, &spread);
    FAILS(MPI_Type_create_hindexed_c(2, lengths, places, spread, &type), MPI_ERR_NO_MEM);
    MPI_Type_free(&gaps);
    MPI_Type_free(&spread);
    CHECK(pipe(ends) == 0, "no pipe");
    FAILS(MPI_Comm_join(ends[1], &(MPI_Comm){0}), MPI_ERR_ARG);
    FAILS(MPI_Comm_join(-1, &(MPI_Comm){0}), MPI_ERR_ARG);
    close(ends[0]);
    close(ends[1]);
}

/* One wrong argument of each kind, in calls of all chapters. */
static void kinds(void)
{
    int x[8] = {0}, flag, ranges[1][3] = {{0, 0, 0}}, periods[1] = {0}, dims[1] = {-1};
    char name[MPI_MAX_OBJECT_NAME], key[MPI_MAX_INFO_KEY + 2];
    MPI_Comm comm = MPI_COMM_WORLD, made;
    MPI_Group group, other;
    MPI_Info info;
    MPI_Request request;
    MPI_Datatype type;
    MPI_Status status;
    MPI_Win win;
    MPI_Op op;
    MPI_Aint where;
    void *pointer;
    MPI_Comm_group(comm, &group);
    MPI_Info_create(&info);
    memset(key, 'k', sizeof key);
    key[MPI_MAX_INFO_KEY + 1] = 0;
    /* Handles: null ones, and ones of another kind. */
    FAILS(MPI_Comm_dup(MPI_COMM_NULL, &made), MPI_ERR_COMM);
    FAILS(MPI_Comm_create(comm, MPI_GROUP_NULL, &made), MPI_ERR_GROUP);
    FAILS(MPI_Group_size(MPI_GROUP_NULL, x), MPI_ERR_GROUP);
    FAILS(MPI_Group_free(&(MPI_Group){MPI_GROUP_NULL}), MPI_ERR_GROUP);
    FAILS(MPI_Info_get_nkeys(MPI_INFO_NULL, x), MPI_ERR_INFO);
    FAILS(MPI_Comm_dup_with_info(comm, (MPI_Info)(intptr_t)MPI_INT, &made), MPI_ERR_INFO);
    FAILS(MPI_Type_size(MPI_DATATYPE_NULL, x), MPI_ERR_TYPE);
    FAILS(MPI_Type_free(&(MPI_Datatype){MPI_INT}), MPI_ERR_TYPE);
    FAILS(MPI_Type_commit(&(MPI_Datatype){MPI_DATATYPE_NULL}), MPI_ERR_TYPE);
    FAILS(MPI_Request_free(&(MPI_Request){MPI_REQUEST_NULL}), MPI_ERR_REQUEST);
    FAILS(MPI_Cancel(&(MPI_Request){MPI_REQUEST_NULL}), MPI_ERR_REQUEST);
    FAILS(MPI_Errhandler_free(&(MPI_Errhandler){MPI_ERRHANDLER_NULL}), MPI_ERR_ERRHANDLER);
    FAILS(MPI_Comm_set_errhandler(comm, (MPI_Errhandler)(intptr_t)MPI_SUM), MPI_ERR_ERRHANDLER);
    FAILS(MPI_Op_free(&(MPI_Op){MPI_OP_NULL}), MPI_ERR_OP);
    FAILS(MPI_Win_fence(0, MPI_WIN_NULL), MPI_ERR_WIN);
    FAILS(MPI_Win_free(&(MPI_Win){MPI_WIN_NULL}), MPI_ERR_WIN);
    FAILS(MPI_Session_finalize(&(MPI_Session){MPI_SESSION_NULL}), MPI_ERR_SESSION);
    FAILS(MPI_Comm_free(&(MPI_Comm){MPI_COMM_WORLD}), MPI_ERR_COMM);
    FAILS(MPI_Grequest_complete(MPI_REQUEST_NULL), MPI_ERR_REQUEST);
    /* Numbers. */
    FAILS(MPI_Comm_split(comm, -5, 0, &made), MPI_ERR_ARG);
    FAILS(MPI_Comm_create_group(comm, group, -1, &made), MPI_ERR_TAG);
    FAILS(MPI_Group_incl(group, -1, x, &other), MPI_ERR_ARG);
    FAILS(MPI_Group_incl(group, 1, &(int){size}, &other), MPI_ERR_RANK);
    FAILS(MPI_Group_range_incl(group, 1, ranges, &other), MPI_ERR_ARG);
    FAILS(MPI_Waitall(-1, &request, MPI_STATUSES_IGNORE), MPI_ERR_COUNT);
    FAILS(MPI_Type_vector(-1, 1, 1, MPI_INT, &type), MPI_ERR_COUNT);
    FAILS(MPI_Type_vector(1, -1, 1, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Pack(x, -1, MPI_INT, x, 4, &(int){0}, comm), MPI_ERR_COUNT);
    FAILS(MPI_Cart_create(comm, 1, dims, periods, 0, &made), MPI_ERR_DIMS);
    FAILS(MPI_Dims_create(4, 1, &(int){3}), MPI_ERR_DIMS);
    FAILS(MPI_Buffer_attach(x, -1), MPI_ERR_COUNT);
    FAILS(MPI_Reduce(x, x + 4, 1, MPI_INT, MPI_SUM, -1, comm), MPI_ERR_ROOT);
    FAILS(MPI_Gather(x, 1, MPI_INT, x + 4, 1, MPI_INT, size, comm), MPI_ERR_ROOT);
    FAILS(MPI_Alloc_mem(-1, MPI_INFO_NULL, &pointer), MPI_ERR_ARG);
    FAILS(MPI_Error_class(1 << 30, x), MPI_ERR_ARG);
    FAILS(MPI_Remove_error_class(MPI_ERR_OTHER), MPI_ERR_ARG);
    FAILS(MPI_Comm_get_attr(comm, 99999, &pointer, &flag), MPI_ERR_KEYVAL);
    FAILS(MPI_Comm_free_keyval(&(int){MPI_TAG_UB}), MPI_ERR_KEYVAL);
    FAILS(MPI_Info_set(info, key, "value"), MPI_ERR_INFO_KEY);
    FAILS(MPI_Info_delete(info, "nokey"), MPI_ERR_INFO_NOKEY);
    FAILS(MPI_Bsend(x, 1 << 20, MPI_INT, MPI_PROC_NULL, -3, comm), MPI_ERR_TAG);
    FAILS(MPI_Probe(size, 0, comm, &status), MPI_ERR_RANK);
    FAILS(MPI_Start(&(MPI_Request){(MPI_Request)(intptr_t)MPI_INT}), MPI_ERR_REQUEST);
    /* Pointers. */
    FAILS(MPI_Comm_size(comm, NULL), MPI_ERR_ARG);
    FAILS(MPI_Comm_dup(comm, NULL), MPI_ERR_ARG);
    FAILS(MPI_Isend(x, 1, MPI_INT, MPI_PROC_NULL, 0, comm, NULL), MPI_ERR_ARG);
    FAILS(MPI_Iallreduce(x, x + 4, 1, MPI_INT, MPI_SUM, comm, NULL), MPI_ERR_ARG);
    FAILS(MPI_Test(NULL, &flag, &status), MPI_ERR_ARG);
    FAILS(MPI_Get_count(NULL, MPI_INT, x), MPI_ERR_ARG);
    FAILS(MPI_Get_address(x, NULL), MPI_ERR_ARG);
    FAILS(MPI_Comm_set_name(comm, NULL), MPI_ERR_ARG);
    FAILS(MPI_Comm_get_name(comm, NULL, x), MPI_ERR_ARG);
    FAILS(MPI_Type_indexed(2, NULL, x, MPI_INT, &type), MPI_ERR_ARG);
    FAILS(MPI_Op_create(NULL, 1, &op), MPI_ERR_ARG);
    FAILS(MPI_Comm_create_errhandler(NULL, &(MPI_Errhandler){0}), MPI_ERR_ARG);
    FAILS(MPI_Grequest_start(NULL, NULL, NULL, NULL, &request), MPI_ERR_ARG);
    FAILS(MPI_Win_create(x, sizeof x, 0, MPI_INFO_NULL, MPI_COMM_SELF, &win), MPI_ERR_DISP);
    FAILS(MPI_Type_get_extent(MPI_INT, NULL, &where), MPI_ERR_ARG);
    FAILS(MPI_Gatherv(x, 1, MPI_INT, x, NULL, x, MPI_INT, 0, MPI_COMM_SELF), MPI_ERR_ARG);
    FAILS(MPI_Comm_get_name(comm, name, NULL), MPI_ERR_ARG);
    MPI_Info_free(&info);
    MPI_Group_free(&group);
}

static void handles(void)
{
    int x = 0;
    MPI_Comm comm, kept;
    MPI_Datatype type, old, raw;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    kept = comm;
    MPI_Comm_free(&comm);
    FAILS(MPI_Send(&x, 1, MPI_INT, 0, 0, kept), MPI_ERR_COMM);
    MPI_Type_contiguous(2, MPI_INT, &type);
    old = type;
    MPI_Type_commit(&type);
    MPI_Type_free(&type);
    FAILS(MPI_Send(&x, 1, old, 0, 0, MPI_COMM_WORLD), MPI_ERR_TYPE);
    /* A new object may use the entry of the table by now. The old handle is still not its handle. */
    MPI_Type_contiguous(2, MPI_INT, &raw);
    FAILS(MPI_Send(&x, 1, old, 0, 0, MPI_COMM_WORLD), MPI_ERR_TYPE);
    FAILS(MPI_Send(&x, 1, raw, 0, 0, MPI_COMM_WORLD), MPI_ERR_TYPE);
    MPI_Type_free(&raw);
    FAILS(MPI_Send(&x, 1, (MPI_Datatype)(intptr_t)0x12345678, 0, 0, MPI_COMM_WORLD), MPI_ERR_TYPE);
    FAILS(MPI_Send(&x, 1, MPI_INT, 0, 0, (MPI_Comm)(intptr_t)MPI_INT), MPI_ERR_COMM);
    FAILS(MPI_Send(&x, 1, MPI_INT, 0, 0, (MPI_Comm)(intptr_t)0x7fffffffffff), MPI_ERR_COMM);
    FAILS(MPI_Wait(&(MPI_Request){(MPI_Request)(intptr_t)0x41414141}, MPI_STATUS_IGNORE), MPI_ERR_REQUEST);
    FAILS(MPI_Start(&(MPI_Request){MPI_REQUEST_NULL}), MPI_ERR_REQUEST);
}

static void truncation(void)
{
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    static int out[100000], in[100000];
    for (int count = 20; count <= 100000; count *= 5000) {
        MPI_Request request;
        MPI_Status status;
        in[5] = -1;
        MPI_Isend(out, count, MPI_INT, to, 1, MPI_COMM_WORLD, &request);
        FAILS(MPI_Recv(in, 5, MPI_INT, from, 1, MPI_COMM_WORLD, &status), MPI_ERR_TRUNCATE);
        EQUAL(in[5], -1, "the element after the buffer");
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    /* For an array the class is in the status, and the call returns MPI_ERR_IN_STATUS. */
    MPI_Request both[2];
    MPI_Status statuses[2];
    MPI_Irecv(in, 1, MPI_INT, from, 2, MPI_COMM_WORLD, &both[0]);
    MPI_Irecv(in + 10, 4, MPI_INT, from, 3, MPI_COMM_WORLD, &both[1]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(out, 4, MPI_INT, to, 2, MPI_COMM_WORLD);
    MPI_Send(out, 4, MPI_INT, to, 3, MPI_COMM_WORLD);
    FAILS(MPI_Waitall(2, both, statuses), MPI_ERR_IN_STATUS);
    EQUAL(error_class(statuses[0].MPI_ERROR), MPI_ERR_TRUNCATE, "class in the status");
    EQUAL(statuses[1].MPI_ERROR, MPI_SUCCESS, "code in the other status");
}

static void handlers(void)
{
    MPI_Errhandler handler, got;
    MPI_Comm comm;
    int x = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(note, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Comm_get_errhandler(comm, &got);
    CHECK(got == handler, "another error handler came back");
    MPI_Errhandler_free(&got);
    EQUAL(MPI_Send(&x, 1, MPI_INT, size, 0, comm), MPI_ERR_RANK, "what the call returns");
    EQUAL(calls, 1, "calls of the handler");
    EQUAL(seen, MPI_ERR_RANK, "class in the handler");
    MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    EQUAL(calls, 2, "calls of the handler");
    MPI_Errhandler_free(&handler);
    MPI_Comm_create_errhandler(forgive, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
    EQUAL(MPI_Send(&x, 1, MPI_INT, size, 0, comm), MPI_SUCCESS, "what the call returns when the handler changes its code");
    MPI_Comm_free(&comm);
    int class, code;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &code);
    MPI_Add_error_string(code, "the well is dry");
    MPI_Error_string(code, text, &x);
    CHECK(strcmp(text, "the well is dry") == 0, "string of a new code: %s", text);
    EQUAL(error_class(code), class, "class of a new code");
}

static MPI_Comm noted;

static void note_comm(MPI_Comm *comm, int *code, ...)
{
    (void)code;
    noted = *comm;
}

static MPI_Comm whose(int code)
{
    MPI_Comm comm = noted;
    CHECK(code != MPI_SUCCESS, "no error");
    noted = MPI_COMM_NULL;
    return comm;
}

/* Errors of calls on no object go to the handler of MPI_COMM_SELF, or to that of MPI_COMM_WORLD as long as
   the program has set only the latter. */
static void of_no_object(void)
{
    int x;
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(note_comm, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    FAILS(MPI_Type_size(MPI_DATATYPE_NULL, &x), MPI_ERR_TYPE);
    FAILS(MPI_Comm_size(MPI_COMM_NULL, &x), MPI_ERR_COMM);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    CHECK(whose(MPI_Type_size(MPI_DATATYPE_NULL, &x)) == MPI_COMM_WORLD, "not MPI_COMM_WORLD's handler");
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    CHECK(whose(MPI_Type_size(MPI_DATATYPE_NULL, &x)) == MPI_COMM_SELF, "not MPI_COMM_SELF's handler");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(whose(MPI_Win_fence(0, MPI_WIN_NULL)) == MPI_COMM_SELF, "not MPI_COMM_SELF's handler");
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&handler);
}

/* Errors of matched receives and of calls on requests belong to the comm of the message, or of the request. */
static void of_messages_and_requests(void)
{
    int x[2] = {0};
    MPI_Comm comm;
    MPI_Errhandler handler;
    MPI_Message message;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(note_comm, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
    for (int round = 0; round < 3; round++) {
        MPI_Isend(x, 2, MPI_INT, rank, 7, comm, &request);
        MPI_Mprobe(rank, 7, comm, &message, MPI_STATUS_IGNORE);
        if (round == 0) {
            CHECK(whose(MPI_Mrecv(x, -1, MPI_INT, &message, MPI_STATUS_IGNORE)) == comm, "another comm's handler for MPI_Mrecv");
            CHECK(whose(MPI_Mrecv(x, 1, MPI_INT, &message, MPI_STATUS_IGNORE)) == comm, "another comm's handler for MPI_Mrecv");
        } else {
            MPI_Request receive;
            if (round == 1) CHECK(whose(MPI_Imrecv(x, -1, MPI_INT, &message, &receive)) == comm, "another comm's handler for MPI_Imrecv");
            MPI_Imrecv(x, 1, MPI_INT, &message, &receive);
            CHECK(whose(MPI_Wait(&receive, MPI_STATUS_IGNORE)) == comm, "another comm's handler for MPI_Wait");
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Recv_init(x, 1, MPI_INT, rank, 8, comm, &request);
    CHECK(whose(MPI_Cancel(&request)) == comm, "another comm's handler for MPI_Cancel");
    MPI_Start(&request);
    CHECK(whose(MPI_Start(&request)) == comm, "another comm's handler for MPI_Start");
    CHECK(whose(MPI_Startall(1, &request)) == comm, "another comm's handler for MPI_Startall");
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(whose(MPI_Pready(0, request)) == comm, "another comm's handler for MPI_Pready");
    MPI_Request_free(&request);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    of_no_object();
    of_messages_and_requests();
    arguments();
    fuzzed();
    kinds();
    handles();
    truncation();
    handlers();
    /* The library still works. */
    int one = 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EQUAL(sum, size, "sum after all the errors");
    return end();
}
