/* The MPI objects of one process: handles, groups, infos, attributes, error handlers, datatypes, packing, operators.
 * Runs alone and as any rank of a job; prints "ok" or the line that failed. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { printf("%s:%d: %s\n", __FILE__, __LINE__, #condition); exit(1); } \
    } while (0)
#define CLASS(call, class) CHECK((call) == (class))

static int copies, deletes, errors, last_code;

static int copy(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    int size;
    (void)keyval;
    copies++;
    /* Callbacks may call MPI. */
    MPI_Comm_size(comm, &size);
    *(void **)out = (char *)in + *(int *)extra;
    *flag = 1;
    return MPI_SUCCESS;
}

static int copy_type(MPI_Datatype type, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)type; (void)keyval; (void)extra;
    copies++;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm; (void)keyval; (void)value; (void)extra;
    deletes++;
    return MPI_SUCCESS;
}

static int refuse(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm; (void)keyval; (void)value; (void)extra;
    return MPI_ERR_OTHER;
}

static void handler(MPI_Comm *comm, int *code, ...)
{
    int rank;
    errors++;
    last_code = *code;
    MPI_Comm_rank(*comm, &rank);
}

static void multiply(void *in, void *inout, int *len, MPI_Datatype *type)
{
    int i;
    CHECK(*type == MPI_INT);
    for (i = 0; i < *len; i++) ((int *)inout)[i] *= ((int *)in)[i];
}

static void multiply_c(void *in, void *inout, MPI_Count *len, MPI_Datatype *type)
{
    int n = (int)*len;
    multiply(in, inout, &n, type);
}

static void attributes(void)
{
    int keyval, type_keyval, step = 4, flag, *value, stubborn;
    MPI_Comm dup;
    MPI_Datatype type, again;
    CHECK(!MPI_Comm_create_keyval(copy, delete, &keyval, &step));
    CHECK(!MPI_Comm_set_attr(MPI_COMM_SELF, keyval, (void *)100));
    CHECK(!MPI_Comm_dup(MPI_COMM_SELF, &dup));
    CHECK(!MPI_Comm_get_attr(dup, keyval, &value, &flag));
    CHECK(flag && value == (int *)104 && copies == 1);
    CHECK(!MPI_Comm_free(&dup) && dup == MPI_COMM_NULL && deletes == 1);
    CHECK(!MPI_Comm_delete_attr(MPI_COMM_SELF, keyval) && deletes == 2);
    CLASS(MPI_Comm_delete_attr(MPI_COMM_SELF, keyval), MPI_ERR_KEYVAL);
    CHECK(!MPI_Comm_free_keyval(&keyval) && keyval == MPI_KEYVAL_INVALID);
    CHECK(!MPI_Comm_create_keyval(MPI_COMM_DUP_FN, refuse, &stubborn, NULL));
    CHECK(!MPI_Comm_dup(MPI_COMM_SELF, &dup) && !MPI_Comm_set_attr(dup, stubborn, NULL));
    CLASS(MPI_Comm_free(&dup), MPI_ERR_OTHER);
    CHECK(dup != MPI_COMM_NULL);
    CLASS(MPI_Type_get_attr(MPI_INT, stubborn, &value, &flag), MPI_ERR_KEYVAL);
    CLASS(MPI_Comm_set_attr(MPI_COMM_SELF, MPI_TAG_UB, NULL), MPI_ERR_KEYVAL);
    CHECK(!MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &flag) && flag && *value >= 32767);
    CHECK(!MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_WTIME_IS_GLOBAL, &value, &flag) && flag && *value == 1);
    CHECK(!MPI_Type_create_keyval(copy_type, MPI_TYPE_NULL_DELETE_FN, &type_keyval, NULL));
    CHECK(!MPI_Type_contiguous(2, MPI_INT, &type) && !MPI_Type_set_attr(type, type_keyval, &step));
    CHECK(!MPI_Type_dup(type, &again) && !MPI_Type_get_attr(again, type_keyval, &value, &flag));
    CHECK(flag && value == &step);
    CHECK(!MPI_Type_free(&type) && !MPI_Type_free(&again) && !MPI_Type_free_keyval(&type_keyval));
}

static void error_handlers(void)
{
    MPI_Errhandler mine, found;
    MPI_Comm dup;
    MPI_Group group;
    char text[MPI_MAX_ERROR_STRING];
    int length, class, code, size;
    CHECK(!MPI_Comm_dup(MPI_COMM_SELF, &dup));
    CHECK(!MPI_Comm_create_errhandler(handler, &mine) && !MPI_Comm_set_errhandler(dup, mine));
    CHECK(!MPI_Comm_get_errhandler(dup, &found) && found == mine);
    CHECK(!MPI_Errhandler_free(&mine) && !MPI_Errhandler_free(&found));
    CLASS(MPI_Comm_size(dup, NULL), MPI_ERR_ARG);
    CHECK(errors == 1 && last_code == MPI_ERR_ARG);
    CHECK(!MPI_Comm_call_errhandler(dup, MPI_ERR_TAG) && errors == 2 && last_code == MPI_ERR_TAG);
    CHECK(!MPI_Comm_free(&dup));
    CLASS(MPI_Comm_size(dup, &size), MPI_ERR_COMM);
    CHECK(!MPI_Comm_group(MPI_COMM_WORLD, &group));
    CLASS(MPI_Comm_size((MPI_Comm)group, &size), MPI_ERR_COMM);
    CHECK(!MPI_Error_string(MPI_ERR_COMM, text, &length) && strstr(text, "is not a communicator (it is a group)"));
    CLASS(MPI_Comm_size((MPI_Comm)text, &size), MPI_ERR_COMM);
    CLASS(MPI_Group_size((MPI_Group)MPI_COMM_WORLD, &size), MPI_ERR_GROUP);
    CHECK(!MPI_Group_free(&group));
    CLASS(MPI_Win_fence(0, MPI_WIN_NULL), MPI_ERR_WIN);
    CHECK(!MPI_Add_error_class(&class) && !MPI_Add_error_code(class, &code) && !MPI_Add_error_string(code, "dry"));
    CHECK(!MPI_Error_string(code, text, &length) && !strcmp(text, "dry") && length == 3);
    CHECK(!MPI_Error_class(code, &length) && length == class);
}

static void infos(void)
{
    MPI_Info info, copy;
    char key[MPI_MAX_INFO_KEY], value[16];
    int n, flag, room = 3;
    CHECK(!MPI_Info_create(&info) && !MPI_Info_set(info, "a", "alpha") && !MPI_Info_set(info, "b", ""));
    CHECK(!MPI_Info_dup(info, &copy) && !MPI_Info_delete(info, "a"));
    CLASS(MPI_Info_delete(info, "a"), MPI_ERR_INFO_NOKEY);
    CHECK(!MPI_Info_get_nkeys(copy, &n) && n == 2 && !MPI_Info_get_nthkey(copy, 1, key) && !strcmp(key, "b"));
    CHECK(!MPI_Info_get_string(copy, "a", &room, value, &flag) && flag && room == 6 && !strcmp(value, "al"));
    CHECK(!MPI_Info_get(copy, "a", 5, value, &flag) && flag && !strcmp(value, "alpha"));
    CHECK(!MPI_Info_get(copy, "c", 5, value, &flag) && !flag);
    CHECK(!MPI_Info_free(&info) && !MPI_Info_free(&copy) && copy == MPI_INFO_NULL);
    CLASS(MPI_Info_set(info, "a", "b"), MPI_ERR_INFO);
    CHECK(!MPI_Info_get_nkeys(MPI_INFO_ENV, &n) && n > 0);
}

static void datatypes(void)
{
    MPI_Datatype column, parts[2], made, types[2], small;
    int sizes[2] = {1, 2}, ni, na, nd, combiner, integers[8], data[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8] = {0};
    int position = 0, size, count, blocks[2] = {1, 1};
    char packed[64], name[MPI_MAX_OBJECT_NAME];
    MPI_Aint offsets[2] = {0, 16}, addresses[4], lb, extent, place = 0;
    MPI_Count big, large_counts;
    MPI_Count na_c, nd_c, ni_c;
    MPI_Status status;
    CHECK(!MPI_Type_vector(2, 1, 4, MPI_INT, &column));
    CLASS(MPI_Pack(data, 1, column, packed, 64, &position, MPI_COMM_SELF), MPI_ERR_TYPE);
    CHECK(!MPI_Type_commit(&column) && !MPI_Pack(data, 1, column, packed, 64, &position, MPI_COMM_SELF));
    CHECK(position == 8);
    position = 0;
    CHECK(!MPI_Unpack(packed, 8, &position, out, 1, column, MPI_COMM_SELF) && out[0] == 1 && out[4] == 5);
    CLASS(MPI_Unpack(packed, 8, &position, out, 1, column, MPI_COMM_SELF), MPI_ERR_TRUNCATE);
    parts[0] = MPI_DOUBLE;
    parts[1] = column;
    CHECK(!MPI_Type_create_struct(2, sizes, offsets, parts, &made) && !MPI_Type_free(&column));
    CHECK(!MPI_Type_get_envelope(made, &ni, &na, &nd, &combiner));
    CHECK(ni == 3 && na == 2 && nd == 2 && combiner == MPI_COMBINER_STRUCT);
    CLASS(MPI_Type_get_contents(made, 2, 2, 2, integers, addresses, types), MPI_ERR_ARG);
    CHECK(!MPI_Type_get_contents(made, 3, 2, 2, integers, addresses, types));
    CHECK(integers[0] == 2 && integers[2] == 2 && addresses[1] == 16 && types[0] == MPI_DOUBLE);
    CHECK(!MPI_Type_get_extent(types[1], &lb, &extent) && lb == 0 && extent == 20);
    CHECK(!MPI_Type_size(made, &size) && size == 24 && !MPI_Type_size_c(made, &big) && big == 24);
    CHECK(!MPI_Type_free(&types[1]) && !MPI_Type_free(&made) && made == MPI_DATATYPE_NULL);
    CLASS(MPI_Type_size(made, &size), MPI_ERR_TYPE);
    CHECK(!MPI_Type_contiguous_c(1LL << 40, MPI_BYTE, &made) && !MPI_Type_size(made, &size));
    CHECK(size == MPI_UNDEFINED && !MPI_Type_size_x(made, &big) && big == 1LL << 40);
    CLASS(MPI_Type_get_envelope(made, &ni, &na, &nd, &combiner), MPI_ERR_TYPE);
    CHECK(!MPI_Type_get_envelope_c(made, &ni_c, &na_c, &large_counts, &nd_c, &combiner) && large_counts == 1);
    CHECK(!MPI_Type_free(&made));
    types[0] = types[1] = MPI_INT;
    offsets[1] = -4;
    CHECK(!MPI_Type_create_struct(2, blocks, offsets, types, &small) && !MPI_Type_free(&small));
    CLASS(MPI_Type_contiguous(-1, MPI_INT, &made), MPI_ERR_COUNT);
    CLASS(MPI_Type_free(types), MPI_ERR_TYPE);
    CHECK(!MPI_Type_get_name(MPI_INT, name, &size) && !strcmp(name, "MPI_INT"));
    CHECK(!MPI_Pack_external("external32", data, 2, MPI_INT, packed, 64, &place) && place == 8 && packed[3] == 1);
    CHECK(!MPI_Status_set_elements(&status, MPI_INT, 3) && !MPI_Get_count(&status, MPI_INT, &count) && count == 3);
    CHECK(!MPI_Get_count(&status, MPI_DOUBLE, &count) && count == MPI_UNDEFINED);
    CHECK(!MPI_Status_set_cancelled(&status, 1) && !MPI_Test_cancelled(&status, &count) && count);
    CHECK(!MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, &made) && made == MPI_REAL8);
    CHECK(MPI_Type_fromint(MPI_Type_toint(MPI_INT)) == MPI_INT);
    CHECK(MPI_Type_f2c(MPI_Type_c2f(MPI_INT)) == MPI_INT);
    CHECK(_Generic((MPI_Comm_errhandler_fn *)0, MPI_Comm_errhandler_function *: 1, default: 0));
}

static void operators(void)
{
    int a[3] = {2, 3, 4}, b[3] = {5, 6, 7}, commutes;
    MPI_Op op;
    CHECK(!MPI_Reduce_local(a, b, 3, MPI_INT, MPI_SUM) && b[2] == 11);
    CHECK(!MPI_Op_create(multiply, 1, &op) && !MPI_Reduce_local(a, b, 3, MPI_INT, op) && b[0] == 14);
    CHECK(!MPI_Op_commutative(op, &commutes) && commutes && !MPI_Op_free(&op) && op == MPI_OP_NULL);
    CHECK(!MPI_Op_create_c(multiply_c, 0, &op) && !MPI_Reduce_local_c(a, b, 3, MPI_INT, op) && b[0] == 28);
    CHECK(!MPI_Op_free(&op));
    CLASS(MPI_Reduce_local(a, b, 3, MPI_FLOAT, MPI_BAND), MPI_ERR_OP);
    CLASS(MPI_Op_free(&op), MPI_ERR_OP);
    op = MPI_SUM;
    CLASS(MPI_Op_free(&op), MPI_ERR_OP);
}

static void groups(void)
{
    MPI_Group world, none, same;
    MPI_Comm comm;
    int size, rank, ranges[1][3] = {{0, 0, 1}}, zero = 0, relation;
    CHECK(!MPI_Comm_group(MPI_COMM_WORLD, &world) && !MPI_Group_size(world, &size));
    CHECK(!MPI_Group_excl(world, 0, NULL, &same) && !MPI_Group_compare(world, same, &relation));
    CHECK(relation == MPI_IDENT && !MPI_Group_free(&same));
    CHECK(!MPI_Group_difference(world, world, &none) && none == MPI_GROUP_EMPTY && !MPI_Group_free(&none));
    CHECK(!MPI_Group_range_incl(world, 1, ranges, &same) && !MPI_Comm_create(MPI_COMM_WORLD, same, &comm));
    CHECK(!MPI_Group_rank(same, &rank) && (rank == MPI_UNDEFINED) == (comm == MPI_COMM_NULL));
    if (comm != MPI_COMM_NULL) CHECK(!MPI_Comm_free(&comm));
    CLASS(MPI_Group_incl(world, 1, &size, &none), MPI_ERR_RANK);
    CLASS(MPI_Group_incl(world, 1, NULL, &none), MPI_ERR_ARG);
    CHECK(!MPI_Group_translate_ranks(same, 1, &zero, world, &rank) && rank == 0);
    CHECK(!MPI_Group_free(&same) && !MPI_Group_free(&world));
    CHECK(!MPI_Comm_dup(MPI_COMM_WORLD, &comm) && !MPI_Comm_compare(comm, MPI_COMM_WORLD, &relation));
    CHECK(relation == MPI_CONGRUENT && !MPI_Comm_free(&comm));
}

int main(int argc, char **argv)
{
    int provided, flag, rank;
    MPI_Info early;
    CHECK(!MPI_Info_create(&early) && !MPI_Initialized(&flag) && !flag);
    CHECK(!MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided) && provided == MPI_THREAD_MULTIPLE);
    CHECK(!MPI_Info_free(&early) && !MPI_Is_thread_main(&flag) && flag);
    CHECK(!MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    CHECK(!MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    attributes();
    error_handlers();
    infos();
    datatypes();
    operators();
    groups();
    CHECK(!MPI_Comm_rank(MPI_COMM_WORLD, &rank) && !MPI_Finalize() && !MPI_Finalized(&flag) && flag);
    if (rank == 0) printf("ok\n");
    return 0;
}
