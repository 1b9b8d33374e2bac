/* Attributes: their callbacks are called at the right moments and in the right order, and their error codes
   have the right effect.
   ways: plain   ranks: 1 2 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

static int copies, deletes, refuse, order[8], last;

static int copy(MPI_Comm comm, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)comm, (void)keyval;
    copies++;
    if (refuse) return refuse;
    *(void **)out = (char *)in + 1;
    *flag = extra != NULL;
    return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)extra;
    deletes++;
    if (refuse) return refuse;
    order[last++ & 7] = (int)(intptr_t)value;
    return MPI_SUCCESS;
}

static int copy_type(MPI_Datatype type, int keyval, void *extra, void *in, void *out, int *flag)
{
    (void)type;
    return copy(MPI_COMM_NULL, keyval, extra, in, out, flag);
}

static int delete_type(MPI_Datatype type, int keyval, void *value, void *extra)
{
    (void)type;
    return delete(MPI_COMM_NULL, keyval, value, extra);
}

/* The call returns the callback's code (MPI 5.0, section 7.7.2) and changes nothing. */
static void codes(void)
{
    int key, class, code, flag;
    void *value;
    MPI_Comm self, other = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_SELF, &self);
    MPI_Comm_set_errhandler(self, MPI_ERRORS_RETURN);
    MPI_Comm_create_keyval(copy, delete, &key, &key);
    MPI_Comm_set_attr(self, key, (void *)10);
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &code);
    MPI_Add_error_string(code, "no such luck");
    refuse = code;
    EQUAL(MPI_Comm_dup(self, &other), code, "dup's code");
    EQUAL(MPI_Comm_set_attr(self, key, (void *)11), code, "set_attr's code");
    EQUAL(MPI_Comm_delete_attr(self, key), code, "delete_attr's code");
    EQUAL(MPI_Comm_free(&self), code, "free's code");
    CHECK(self != MPI_COMM_NULL, "a comm whose attribute stays was freed");
    refuse = 0;
    MPI_Comm_get_attr(self, key, &value, &flag);
    CHECK(flag && value == (void *)10, "the value is %p", value);
    MPI_Remove_error_string(code);
    MPI_Remove_error_code(code);
    MPI_Remove_error_class(class);
    MPI_Comm_free_keyval(&key);
    MPI_Comm_free(&self);
    CHECK(self == MPI_COMM_NULL, "the comm was not freed");
}

/* Copies get the value of the callback; attributes keep a freed keyval; the latest one set is deleted first.
   */
static void lives(void)
{
    int keys[3], flag;
    void *value;
    MPI_Comm one, two;
    MPI_Comm_dup(MPI_COMM_WORLD, &one);
    MPI_Comm_create_keyval(copy, delete, &keys[0], &keys);
    MPI_Comm_create_keyval(copy, delete, &keys[1], NULL);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, delete, &keys[2], NULL);
    for (int i = 0; i < 3; i++) MPI_Comm_set_attr(one, keys[i], (void *)(intptr_t)(20 + i));
    copies = deletes = last = 0;
    MPI_Comm_dup(one, &two);
    EQUAL(copies, 2, "copy callbacks");
    MPI_Comm_get_attr(two, keys[0], &value, &flag);
    CHECK(flag && value == (void *)21, "copied as %p, flag %d", value, flag);
    MPI_Comm_get_attr(two, keys[1], &value, &flag);
    EQUAL(flag, 0, "an attribute that is not copied");
    MPI_Comm_get_attr(two, keys[2], &value, &flag);
    CHECK(flag && value == (void *)22, "duplicated as %p, flag %d", value, flag);
    for (int i = 0; i < 3; i++) MPI_Comm_free_keyval(&keys[i]);
    EQUAL(keys[0], MPI_KEYVAL_INVALID, "a freed keyval");
    MPI_Comm_free(&two);
    MPI_Comm_free(&one);
    EQUAL(deletes, 5, "delete callbacks");
    EQUAL(order[0], 22, "deleted first");
    EQUAL(order[1], 21, "deleted second");
    EQUAL(order[4], 20, "deleted last");
}

static void types(void)
{
    int key, flag;
    void *value;
    MPI_Datatype one, two;
    MPI_Type_contiguous(3, MPI_INT, &one);
    MPI_Type_create_keyval(copy_type, delete_type, &key, &key);
    MPI_Type_set_attr(one, key, (void *)30);
    copies = deletes = 0;
    MPI_Type_dup(one, &two);
    MPI_Type_get_attr(two, key, &value, &flag);
    CHECK(flag && value == (void *)31 && copies == 1, "copied as %p, flag %d, by %d calls", value, flag, copies);
    MPI_Type_free(&one);
    EQUAL(deletes, 1, "delete callbacks of one datatype");
    MPI_Type_delete_attr(two, key);
    MPI_Type_free(&two);
    EQUAL(deletes, 2, "delete callbacks of both datatypes");
    MPI_Type_free_keyval(&key);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    codes();
    lives();
    types();
    return end();
}
