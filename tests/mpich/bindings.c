/* What libmpichfort.so.12 and other bindings of Debian's MPICH ask of libmpich.so.12 (which is ours here), played by C: attributes as
   integers, proxies of callbacks, Fortran's generalized requests; and MPICH's extensions. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "../programs/check.h"
#include <dlfcn.h>

#define HOLDS(condition) CHECK(condition, "%s", #condition)

enum { POINTER = 0, ADDRESS = 1, INTEGER = 3 };
typedef int copy_proxy(void *function, int handle, int keyval, void *extra, int language, void *value, void **copy, int *flag);
typedef int delete_proxy(void *function, int handle, int keyval, int language, void *value, void *extra);
int MPII_Comm_set_attr(MPI_Comm, int keyval, void *value, int language);
int MPII_Comm_get_attr(MPI_Comm, int keyval, void *value, int *flag, int language);
int MPII_Type_set_attr(MPI_Datatype, int keyval, void *value, int language);
int MPII_Type_get_attr(MPI_Datatype, int keyval, void *value, int *flag, int language);
int MPII_Win_set_attr(MPI_Win, int keyval, void *value, int language);
int MPII_Win_get_attr(MPI_Win, int keyval, void *value, int *flag, int language);
void MPII_Keyval_set_proxy(int keyval, copy_proxy *, delete_proxy *);
void MPII_Grequest_set_lang_f77(MPI_Request);

static int copies, deletions, language_seen;

/* A subroutine of Fortran, with all arguments by reference. */
static void add_one(int *comm, int *keyval, MPI_Aint *extra, MPI_Aint *in, MPI_Aint *out, int *flag, int *code)
{
    (void)comm, (void)keyval;
    *out = *in + *extra;
    *flag = 1;
    *code = MPI_SUCCESS;
}

static int on_copy(void *function, int handle, int keyval, void *extra, int language, void *value, void **copy, int *flag)
{
    MPI_Aint in = (MPI_Aint)value, out = 0;
    int code = MPI_ERR_OTHER;
    copies++;
    language_seen = language;
    ((void (*)(int *, int *, MPI_Aint *, MPI_Aint *, MPI_Aint *, int *, int *))function)(&handle, &keyval, extra, &in, &out, flag, &code);
    *copy = (void *)out;
    return code;
}

static int on_delete(void *function, int handle, int keyval, int language, void *value, void *extra)
{
    (void)function, (void)handle, (void)keyval, (void)language, (void)value, (void)extra;
    deletions++;
    return MPI_SUCCESS;
}

static void attributes(void)
{
    static MPI_Aint one = 1;
    int keyval, flag, *integer;
    MPI_Aint value = 0, *address;
    MPI_Comm comm, twin;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_keyval((MPI_Comm_copy_attr_function *)add_one, (MPI_Comm_delete_attr_function *)add_one, &keyval, &one);
    MPII_Keyval_set_proxy(keyval, on_copy, on_delete);
    HOLDS(MPII_Comm_set_attr(comm, keyval, (void *)-7, INTEGER) == MPI_SUCCESS);
    HOLDS(MPII_Comm_get_attr(comm, keyval, &value, &flag, INTEGER) == MPI_SUCCESS && flag && value == -7);
    HOLDS(MPII_Comm_get_attr(comm, keyval, &value, &flag, ADDRESS) == MPI_SUCCESS && flag && value == -7);
    HOLDS(MPI_Comm_get_attr(comm, keyval, &integer, &flag) == MPI_SUCCESS && flag && *integer == -7);
    HOLDS(MPI_Comm_dup(comm, &twin) == MPI_SUCCESS && copies == 1 && language_seen == INTEGER);
    HOLDS(MPII_Comm_get_attr(twin, keyval, &value, &flag, INTEGER) == MPI_SUCCESS && flag && value == -6);
    HOLDS(MPII_Comm_set_attr(comm, keyval, (void *)(1ll << 40), ADDRESS) == MPI_SUCCESS && deletions == 1);
    HOLDS(MPI_Comm_get_attr(comm, keyval, &address, &flag) == MPI_SUCCESS && flag && *address == 1ll << 40);
    HOLDS(MPI_Comm_set_attr(comm, keyval, &one) == MPI_SUCCESS && deletions == 2);
    HOLDS(MPII_Comm_get_attr(comm, keyval, &value, &flag, ADDRESS) == MPI_SUCCESS && flag && value == (MPI_Aint)&one);
    MPI_Comm_free(&twin);
    MPI_Comm_free(&comm);
    HOLDS(deletions == 4);
    HOLDS(MPII_Comm_get_attr(MPI_COMM_WORLD, keyval, &value, &flag, INTEGER) == MPI_SUCCESS && !flag);
    MPI_Comm_free_keyval(&keyval);
    HOLDS(MPII_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag, INTEGER) == MPI_SUCCESS && flag && value == 0x7fffffff);
    MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &keyval, NULL);
    HOLDS(MPII_Type_set_attr(MPI_INT, keyval, (void *)5, INTEGER) == MPI_SUCCESS);
    HOLDS(MPII_Type_get_attr(MPI_INT, keyval, &value, &flag, INTEGER) == MPI_SUCCESS && flag && value == 5);
    MPI_Type_delete_attr(MPI_INT, keyval);
    MPI_Type_free_keyval(&keyval);
    MPI_Win win;
    int memory[4];
    MPI_Win_create(memory, sizeof memory, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    HOLDS(MPII_Win_get_attr(win, MPI_WIN_BASE, &value, &flag, ADDRESS) == MPI_SUCCESS && flag && value == (MPI_Aint)memory);
    HOLDS(MPII_Win_get_attr(win, MPI_WIN_SIZE, &value, &flag, ADDRESS) == MPI_SUCCESS && flag && value == sizeof memory);
    HOLDS(MPII_Win_get_attr(win, MPI_WIN_DISP_UNIT, &value, &flag, ADDRESS) == MPI_SUCCESS && flag && value == 4);
    MPI_Win_create_keyval(MPI_WIN_DUP_FN, MPI_WIN_NULL_DELETE_FN, &keyval, NULL);
    HOLDS(MPII_Win_set_attr(win, keyval, (void *)9, ADDRESS) == MPI_SUCCESS);
    HOLDS(MPII_Win_get_attr(win, keyval, &value, &flag, ADDRESS) == MPI_SUCCESS && flag && value == 9);
    MPI_Win_free(&win);
    MPI_Win_free_keyval(&keyval);
}

static void query(MPI_Aint *extra, MPI_Status *status, int *code)
{
    MPI_Status_set_elements(status, MPI_INT, (int)*extra);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = status->MPI_TAG = 3;
    *code = MPI_SUCCESS;
}
static void release(MPI_Aint *extra, int *code) { *extra = -1, *code = MPI_SUCCESS; }
static void cancel(MPI_Aint *extra, int *complete, int *code) { *extra += 100 + *complete, *code = MPI_SUCCESS; }

static void requests(void)
{
    MPI_Aint extra = 17;
    MPI_Request request;
    MPI_Status status;
    int count;
    MPI_Grequest_start((MPI_Grequest_query_function *)query, (MPI_Grequest_free_function *)release,
                       (MPI_Grequest_cancel_function *)cancel, &extra, &request);
    MPII_Grequest_set_lang_f77(request);
    MPI_Cancel(&request);
    HOLDS(extra == 117 && MPIX_Request_is_complete(request) == 0);
    MPI_Grequest_complete(request);
    HOLDS(MPIX_Request_is_complete(request) != 0);
    MPI_Wait(&request, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    HOLDS(count == 117 && extra == -1 && status.MPI_TAG == 3);
}

static void extensions(void)
{
    int flag = 7, class;
    char text[MPI_MAX_INFO_VAL + 1] = "", sentence[MPI_MAX_ERROR_STRING];
    MPI_Info info;
    MPI_Comm comm;
    HOLDS(MPIX_Query_cuda_support() == 0 && MPIX_Query_hip_support() == 0 && MPIX_Query_ze_support() == 0);
    HOLDS(MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &flag) == MPI_SUCCESS && flag == 0);
    flag = 7;
    HOLDS(MPIX_Comm_test_threadcomm(MPI_COMM_WORLD, &flag) == MPI_SUCCESS && flag == 0);
    HOLDS(MPIX_Stream_progress(MPIX_STREAM_NULL) == MPI_SUCCESS);
    MPI_Info_create(&info);
    HOLDS(MPIX_Info_set_hex(info, "key", "\x01\xff", 2) == MPI_SUCCESS);
    MPI_Info_get(info, "key", 16, text, &flag);
    HOLDS(flag && strcmp(text, "01ff") == 0);
    MPI_Info_free(&info);
    MPI_Add_error_class(&class);
    int (*forget)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "PMPIX_Delete_error_class");
    HOLDS(forget && forget(class) == MPI_SUCCESS);
    int code = MPIX_Comm_shrink(MPI_COMM_WORLD, &comm), length;
    HOLDS(error_class(code) == MPI_ERR_UNSUPPORTED_OPERATION);
    MPI_Error_string(code, sentence, &length);
    HOLDS(strstr(sentence, "MPIX_Comm_shrink is an extension of MPICH") != NULL);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    attributes();
    requests();
    extensions();
    return end();
}
