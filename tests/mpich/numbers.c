/* The numbers in MPICH's mpi.h, checked through libmpi.so.12: handles, constants, statuses, callbacks,
   conversions. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "../programs/check.h"
#include <unistd.h>

#define HOLDS(condition) CHECK(condition, "%s", #condition)

/* Removed by MPI-3.0; the libraries still have them. */
int MPI_Address(void *location, MPI_Aint *address);
int MPI_Errhandler_create(MPI_Comm_errhandler_function *function, MPI_Errhandler *errhandler);
int MPI_Errhandler_set(MPI_Comm comm, MPI_Errhandler errhandler);
int MPI_Errhandler_get(MPI_Comm comm, MPI_Errhandler *errhandler);
int MPI_Type_struct(int count, int lengths[], MPI_Aint displacements[], MPI_Datatype types[], MPI_Datatype *newtype);
int MPI_Type_extent(MPI_Datatype datatype, MPI_Aint *extent);
int MPI_Type_ub(MPI_Datatype datatype, MPI_Aint *displacement);

static MPI_Comm seen_comm;
static int seen_code, seen_keyval, copied, deleted;
static MPI_Datatype seen_type;

static void on_error(MPI_Comm *comm, int *code, ...) { seen_comm = *comm; seen_code = *code; }

static int copy(MPI_Comm comm, int keyval, void *extra, void *value, void *out, int *flag) {
    seen_comm = comm; seen_keyval = keyval; copied += extra == &copied;
    *(void **)out = value; *flag = 1;
    return MPI_SUCCESS;
}
static int delete(MPI_Comm comm, int keyval, void *value, void *extra) {
    (void)comm; (void)value; (void)extra;
    deleted++;
    return keyval == seen_keyval ? MPI_SUCCESS : MPI_ERR_KEYVAL;
}
static int refuse(MPI_Comm comm, int keyval, void *value, void *extra) {
    (void)comm; (void)keyval; (void)value; (void)extra;
    return MPI_ERR_ARG;
}
static void add(void *in, void *inout, int *count, MPI_Datatype *type) {
    seen_type = *type;
    for (int i = 0; i < *count; i++) ((int *)inout)[i] += ((int *)in)[i];
}

static int class_of(int code) { int class; MPI_Error_class(code, &class); return class; }

static void errors(void) {
    char text[MPI_MAX_ERROR_STRING];
    int length, code, class, *last, flag;
    MPI_Errhandler handler, other;
    MPI_Comm_create_errhandler(on_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &other);
    HOLDS(other == handler);
    MPI_Errhandler_free(&other);
    HOLDS(other == MPI_ERRHANDLER_NULL);
    code = MPI_Send(NULL, 0, MPI_INT, 1 << 20, 0, MPI_COMM_WORLD);
    HOLDS(class_of(code) == MPI_ERR_RANK && seen_code == code && seen_comm == MPI_COMM_WORLD);
    HOLDS(class_of(MPI_Send(NULL, 0, MPI_INT, 0, -7, MPI_COMM_WORLD)) == MPI_ERR_TAG);
    HOLDS(class_of(MPI_Send(NULL, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD)) == MPI_ERR_TYPE);
    HOLDS(class_of(MPI_Bcast(NULL, 0, MPI_INT, -5, MPI_COMM_WORLD)) == MPI_ERR_ROOT);
    HOLDS(class_of(MPI_Send(NULL, -1, MPI_INT, 0, 0, MPI_COMM_WORLD)) == MPI_ERR_COUNT);
    MPI_Errhandler_set(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Errhandler_get(MPI_COMM_WORLD, &other);
    HOLDS(other == MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    HOLDS(class_of(MPI_Comm_rank(MPI_COMM_NULL, &flag)) == MPI_ERR_COMM);
    MPI_Errhandler_free(&handler);
    MPI_Error_string(MPI_ERR_TRUNCATE, text, &length);
    HOLDS(strstr(text, "MPI_ERR_TRUNCATE") && (int)strlen(text) == length);
    MPI_Add_error_class(&class);
    HOLDS(class > MPI_ERR_LASTCODE);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &last, &flag);
    HOLDS(flag && *last >= class);
    MPI_Add_error_code(MPI_ERR_IO, &code);
    HOLDS(class_of(code) == MPI_ERR_IO && class_of(class) == class);
    MPI_Add_error_string(class, "mine");
    MPI_Error_string(class, text, &length);
    HOLDS(strcmp(text, "mine") == 0);
}

static void attributes(void) {
    int keyval, *value, flag, mine = 5;
    MPI_Comm twin;
    MPI_Comm_create_keyval(copy, delete, &keyval, &copied);
    MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &mine);
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    HOLDS(copied == 1 && seen_comm == MPI_COMM_WORLD && seen_keyval == keyval);
    MPI_Attr_get(twin, keyval, &value, &flag);
    HOLDS(flag && value == &mine);
    MPI_Comm_free(&twin);
    HOLDS(deleted == 1 && twin == MPI_COMM_NULL);
    MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval);
    MPI_Comm_free_keyval(&keyval);
    HOLDS(deleted == 2 && keyval == MPI_KEYVAL_INVALID);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, refuse, &keyval, NULL);
    MPI_Comm_dup(MPI_COMM_SELF, &twin);
    MPI_Comm_set_attr(twin, keyval, &mine);
    HOLDS(class_of(MPI_Comm_delete_attr(twin, keyval)) == MPI_ERR_ARG);
    MPI_Comm again;
    MPI_Comm_dup(twin, &again);
    MPI_Comm_get_attr(again, keyval, &value, &flag);
    HOLDS(flag && value == &mine);
    HOLDS(class_of(MPI_Comm_set_attr(twin, 501, &mine)) == MPI_ERR_KEYVAL);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag);
    HOLDS(flag && *value >= 32767);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_HOST, &value, &flag);
    HOLDS(flag && *value == MPI_PROC_NULL);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, &value, &flag);
    HOLDS(flag && *value == MPI_ANY_SOURCE);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &value, &flag);
    HOLDS(!flag || *value >= size);
}

static void datatypes(void) {
    MPI_Datatype all[] = { MPI_CHAR, MPI_INT, MPI_DOUBLE, MPI_C_DOUBLE_COMPLEX, MPI_2INT, MPI_DOUBLE_INT, MPI_LONG_DOUBLE, MPI_BYTE };
    int sizes[] = { 1, 4, 8, 16, 8, 12, sizeof(long double), 1 }, bytes, ints[32], addresses, types, many, combiner;
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        MPI_Type_size(all[i], &bytes);
        HOLDS(bytes == sizes[i]);
        MPI_Type_get_envelope(all[i], &many, &addresses, &types, &combiner);
        HOLDS(combiner == MPI_COMBINER_NAMED);
    }
    int two[] = { 4, 6 }, part[] = { 2, 2 }, start[] = { 1, 1 };
    MPI_Datatype made, olds[4];
    MPI_Aint places[4], extent;
    MPI_Type_create_subarray(2, two, part, start, MPI_ORDER_FORTRAN, MPI_FLOAT, &made);
    MPI_Type_get_envelope(made, &many, &addresses, &types, &combiner);
    HOLDS(combiner == MPI_COMBINER_SUBARRAY && many == 8 && types == 1);
    MPI_Type_get_contents(made, many, addresses, types, ints, places, olds);
    HOLDS(ints[0] == 2 && ints[1] == 4 && ints[7] == MPI_ORDER_FORTRAN && olds[0] == MPI_FLOAT);
    MPI_Type_free(&made);
    HOLDS(made == MPI_DATATYPE_NULL);
    int kinds[] = { MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC }, lengths[] = { MPI_DISTRIBUTE_DFLT_DARG, 2 }, grid[] = { 2, 2 };
    MPI_Type_create_darray(4, 1, 2, two, kinds, lengths, grid, MPI_ORDER_C, MPI_INT, &made);
    MPI_Type_size(made, &bytes);
    HOLDS(bytes == 2 * 2 * 4);
    MPI_Type_get_envelope(made, &many, &addresses, &types, &combiner);
    HOLDS(combiner == MPI_COMBINER_DARRAY && many == 12);
    MPI_Type_get_contents(made, many, addresses, types, ints, places, olds);
    HOLDS(ints[5] == MPI_DISTRIBUTE_BLOCK && ints[6] == MPI_DISTRIBUTE_CYCLIC);
    HOLDS(ints[7] == MPI_DISTRIBUTE_DFLT_DARG && ints[8] == 2 && ints[11] == MPI_ORDER_C && olds[0] == MPI_INT);
    MPI_Type_free(&made);
    struct pair { int first; double second; } pair;
    int ones[] = { 1, 1 };
    MPI_Datatype members[] = { MPI_INT, MPI_DOUBLE };
    MPI_Address(&pair.first, &places[0]);
    MPI_Address(&pair.second, &places[1]);
    places[1] -= places[0]; places[0] = 0;
    MPI_Type_struct(2, ones, places, members, &made);
    MPI_Type_extent(made, &extent);
    HOLDS(extent == sizeof pair);
    MPI_Type_ub(made, &extent);
    HOLDS(extent == sizeof pair);
    MPI_Type_get_envelope(made, &many, &addresses, &types, &combiner);
    HOLDS(combiner == MPI_COMBINER_STRUCT && types == 2);
    MPI_Type_free(&made);
    MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &made);
    MPI_Type_size(made, &bytes);
    HOLDS(bytes == 8);
}

static void groups(void) {
    MPI_Group world, mine;
    int from[] = { 0, MPI_PROC_NULL, rank }, to[3], result;
    MPI_Comm twin;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_group(MPI_COMM_SELF, &mine);
    MPI_Group_translate_ranks(world, 3, from, mine, to);
    HOLDS(to[0] == (rank == 0 ? 0 : MPI_UNDEFINED) && to[1] == MPI_PROC_NULL && to[2] == 0);
    MPI_Group_compare(world, mine, &result);
    HOLDS(result == (size == 1 ? MPI_IDENT : MPI_UNEQUAL));
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    MPI_Comm_compare(MPI_COMM_WORLD, twin, &result);
    HOLDS(result == MPI_CONGRUENT);
    MPI_Comm_free(&twin);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &twin);
    HOLDS(twin != MPI_COMM_NULL);
    MPI_Comm_free(&twin);
    MPI_Comm_split(MPI_COMM_WORLD, MPI_UNDEFINED, 0, &twin);
    HOLDS(twin == MPI_COMM_NULL);
    MPI_Topo_test(MPI_COMM_WORLD, &result);
    HOLDS(result == MPI_UNDEFINED);
    int dims[] = { size }, open[] = { 0 }, back, ahead;
    if (MPI_Cart_create(MPI_COMM_WORLD, 1, dims, open, 0, &twin) == MPI_SUCCESS) {
        MPI_Topo_test(twin, &result);
        HOLDS(result == MPI_CART);
        MPI_Cart_shift(twin, 0, 1, &back, &ahead);
        HOLDS(back == (rank ? rank - 1 : MPI_PROC_NULL) && ahead == (rank + 1 < size ? rank + 1 : MPI_PROC_NULL));
        MPI_Comm_free(&twin);
        int neighbor[] = { rank }, in, out, weighted;
        MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, neighbor, MPI_UNWEIGHTED, 0, NULL, MPI_WEIGHTS_EMPTY, MPI_INFO_NULL, 0, &twin);
        if (twin != MPI_COMM_NULL) MPI_Comm_free(&twin);
        MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, neighbor, MPI_UNWEIGHTED, 1, neighbor, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &twin);
        MPI_Dist_graph_neighbors_count(twin, &in, &out, &weighted);
        HOLDS(in == 1 && out == 1 && !weighted);
        MPI_Comm_free(&twin);
    }
}

static void messages(void) {
    int next = (rank + 1) % size, value = rank, got[2] = { -1, -1 }, count, flag, which[2];
    MPI_Request requests[3];
    MPI_Status status, statuses[3];
    MPI_Message message;
    memset(&status, 0x55, sizeof status);
    MPI_Recv(got, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
    HOLDS(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
    MPI_Irecv(got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]);
    requests[1] = MPI_REQUEST_NULL;
    MPI_Isend(&value, 1, MPI_INT, next, 11, MPI_COMM_WORLD, &requests[2]);
    MPI_Waitall(3, requests, statuses);
    HOLDS(got[0] == (rank + size - 1) % size && statuses[0].MPI_SOURCE == got[0] && statuses[0].MPI_TAG == 11);
    HOLDS(requests[0] == MPI_REQUEST_NULL && requests[2] == MPI_REQUEST_NULL && statuses[1].MPI_SOURCE == MPI_ANY_SOURCE);
    MPI_Get_count(&statuses[0], MPI_INT, &count);
    HOLDS(count == 1);
    MPI_Waitsome(3, requests, &count, which, MPI_STATUSES_IGNORE);
    HOLDS(count == MPI_UNDEFINED);
    MPI_Irecv(got, 1, MPI_INT, MPI_ANY_SOURCE, 99, MPI_COMM_SELF, &requests[0]);
    MPI_Cancel(&requests[0]);
    MPI_Wait(&requests[0], &status);
    MPI_Test_cancelled(&status, &flag);
    HOLDS(flag);
    MPI_Isend(&value, 1, MPI_INT, 0, 3, MPI_COMM_SELF, &requests[0]);
    MPI_Mprobe(MPI_ANY_SOURCE, 3, MPI_COMM_SELF, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(got, 1, MPI_INT, &message, &status);
    HOLDS(message == MPI_MESSAGE_NULL && status.MPI_TAG == 3);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Mprobe(MPI_PROC_NULL, 3, MPI_COMM_SELF, &message, MPI_STATUS_IGNORE);
    HOLDS(message == MPI_MESSAGE_NO_PROC);
    MPI_Mrecv(got, 1, MPI_INT, &message, &status);
    HOLDS(status.MPI_SOURCE == MPI_PROC_NULL);
    /* The members of a status as a whole: 63 bits of count. */
    MPI_Count large = 0;
    memset(&status, 0, sizeof status);
    MPI_Status_set_elements_x(&status, MPI_BYTE, (MPI_Count)1 << 40);
    MPI_Status_set_cancelled(&status, 1);
    MPI_Get_elements_x(&status, MPI_BYTE, &large);
    MPI_Test_cancelled(&status, &flag);
    HOLDS(large == (MPI_Count)1 << 40 && flag);
    MPI_Fint fortran[MPI_F_STATUS_SIZE];
    MPI_Status back;
    status.MPI_SOURCE = 7; status.MPI_TAG = 8; status.MPI_ERROR = MPI_ERR_TRUNCATE;
    MPI_Status_c2f(&status, fortran);
    HOLDS(fortran[MPI_F_SOURCE] == 7 && fortran[MPI_F_TAG] == 8 && fortran[MPI_F_ERROR] == MPI_ERR_TRUNCATE);
    MPI_Status_f2c(fortran, &back);
    HOLDS(memcmp(&back, &status, sizeof back) == 0);
    HOLDS(MPI_F_STATUS_IGNORE != NULL && MPI_F_STATUSES_IGNORE != NULL);
    HOLDS(MPI_Status_c2f(MPI_STATUS_IGNORE, fortran) != MPI_SUCCESS);
    HOLDS((PMPI_Comm_f2c)(MPI_Comm_c2f(MPI_COMM_WORLD)) == MPI_COMM_WORLD);
    HOLDS(MPI_File_f2c(MPI_File_c2f(MPI_FILE_NULL)) == MPI_FILE_NULL);
}

static void reductions(void) {
    MPI_Op op;
    int mine = rank, sum = 0, all[64];
    MPI_Op_create(add, 1, &op);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, op, MPI_COMM_WORLD);
    HOLDS(sum == size * (size - 1) / 2);
    sum = 3;
    MPI_Reduce_local(&mine, &sum, 1, MPI_INT, op);
    HOLDS(sum == 3 + rank && seen_type == MPI_INT);
    MPI_Op_free(&op);
    HOLDS(op == MPI_OP_NULL);
    sum = rank;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    HOLDS(sum == size * (size - 1) / 2);
    all[rank] = rank;
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, 1, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) HOLDS(all[i] == i);
    MPI_Datatype types[64];
    int counts[64], displs[64], got[64];
    for (int i = 0; i < size; i++) { types[i] = MPI_INT; counts[i] = 1; displs[i] = 4 * i; }
    MPI_Alltoallw(all, counts, displs, types, got, counts, displs, types, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) HOLDS(got[i] == rank);
}

static void windows(void) {
    MPI_Win win;
    int *base, *value, flag, *model;
    if (MPI_Win_allocate(8, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win) != MPI_SUCCESS) return;
    MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &value, &flag);
    HOLDS(flag && *value == MPI_WIN_FLAVOR_ALLOCATE);
    MPI_Win_get_attr(win, MPI_WIN_MODEL, &model, &flag);
    HOLDS(flag && (*model == MPI_WIN_UNIFIED || *model == MPI_WIN_SEPARATE));
    base[0] = -1;
    MPI_Win_fence(MPI_MODE_NOPRECEDE | MPI_MODE_NOSTORE, win);
    MPI_Put(&rank, 1, MPI_INT, (rank + 1) % size, 0, 1, MPI_INT, win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    HOLDS(base[0] == (rank + size - 1) % size);
    int old, one = 1;
    base[1] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    MPI_Fetch_and_op(&one, &old, MPI_INT, 0, 1, MPI_SUM, win);
    MPI_Win_unlock(0, win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    HOLDS(rank || base[1] == size);
    MPI_Win_unlock(rank, win);
    MPI_Win_free(&win);
    HOLDS(win == MPI_WIN_NULL);
}

static void files(void) {
    char name[64] = "";
    MPI_File file;
    MPI_Offset at;
    int amode, bytes;
    if (rank == 0) { strcpy(name, "/tmp/outboard-mpich-XXXXXX"); close(mkstemp(name)); }
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    HOLDS(MPI_FILE_NULL == NULL);
    if (MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &file) == MPI_SUCCESS) {
        MPI_Status status;
        MPI_File_get_amode(file, &amode);
        HOLDS(amode == (MPI_MODE_RDWR | MPI_MODE_CREATE));
        HOLDS(MPI_File_f2c(MPI_File_c2f(file)) == file);
        MPI_File_write_at_all(file, 4 * rank, &rank, 1, MPI_INT, &status);
        MPI_Get_count(&status, MPI_INT, &bytes);
        HOLDS(bytes == 1);
        MPI_File_seek(file, 0, MPI_SEEK_END);
        MPI_File_get_position(file, &at);
        MPI_File_set_view(file, 4, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
        MPI_File_close(&file);
        HOLDS(file == MPI_FILE_NULL);
        HOLDS(class_of(MPI_File_open(MPI_COMM_SELF, "/nonexistent/x", MPI_MODE_RDONLY, MPI_INFO_NULL, &file)) == MPI_ERR_NO_SUCH_FILE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) unlink(name);
}

/* MPICH treats MPI_CHAR as an integer in operators and in MPI_Compare_and_swap; the standard does not (6.9.2, 12.3.4). */
static void characters(void) {
    char mine = (char)(-3 - rank), sum = 0, most = 0, *base, before, one = 1, zero = 0;
    char minus = (char)-3, plus = 2;
    const char greater = minus > plus ? minus : plus;
    signed char added = -5;
    MPI_Win win;
    HOLDS(MPI_Allreduce(&mine, &sum, 1, MPI_CHAR, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    EQUAL(sum, -3 * size - size * (size - 1) / 2, "the sum");
    HOLDS(MPI_Allreduce(&mine, &most, 1, MPI_CHAR, MPI_MAX, MPI_COMM_WORLD) == MPI_SUCCESS && most == -3);
    HOLDS(MPI_Reduce_local(&mine, &most, 1, MPI_CHAR, MPI_BAND) == MPI_SUCCESS && most == (char)(-3 & mine));
    /* C's char may have a sign or not. */
    HOLDS(MPI_Reduce_local(&minus, &plus, 1, MPI_CHAR, MPI_MAX) == MPI_SUCCESS && plus == greater);
    HOLDS(class_of(MPI_Reduce_local(&mine, &most, 1, MPI_CHAR, MPI_MAXLOC)) == MPI_ERR_OP);
    MPI_Win_allocate(4, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    memset(base, 0, 4);
    MPI_Win_fence(0, win);
    HOLDS(MPI_Accumulate(&one, 1, MPI_CHAR, 0, 0, 1, MPI_CHAR, MPI_SUM, win) == MPI_SUCCESS);
    HOLDS(MPI_Accumulate(&added, 1, MPI_SIGNED_CHAR, 0, 1, 1, MPI_SIGNED_CHAR, MPI_MIN, win) == MPI_SUCCESS);
    HOLDS(MPI_Fetch_and_op(&one, &before, MPI_CHAR, 0, 2, MPI_SUM, win) == MPI_SUCCESS && before < size);
    HOLDS(MPI_Compare_and_swap(&one, &zero, &before, MPI_CHAR, 0, 3, win) == MPI_SUCCESS);
    MPI_Win_fence(0, win);
    if (rank == 0) CHECK(base[0] == size && base[1] == -5 && base[2] == size && base[3] == 1, "%d %d %d %d", base[0], base[1], base[2], base[3]);
    MPI_Win_free(&win);
}

int main(int argc, char **argv) {
    int provided, level, version[2], flag;
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Query_thread(&level);
    HOLDS(provided == MPI_THREAD_SERIALIZED && level == provided);
    MPI_Get_library_version(text, &flag);
    HOLDS(strstr(text, "MPICH ABI"));
    MPI_Abi_get_version(&version[0], &version[1]);
    HOLDS(version[0] == -1 && version[1] == -1);
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
    errors();
    attributes();
    datatypes();
    groups();
    messages();
    reductions();
    windows();
    characters();
    files();
    return end();
}
