/* Data representations: native, internal, external32, and the program's own. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "io.h"

/* In the file every int has 3 bytes, the highest first. */
static int converted;
static int extent_of_3(MPI_Datatype type, MPI_Aint *extent, void *state)
{
    int bytes;
    MPI_Type_size(type, &bytes);
    if (*(int *)state != 77) return MPI_ERR_OTHER;
    *extent = bytes == 4 ? 3 : bytes;
    return MPI_SUCCESS;
}

static int read_3(void *user, MPI_Datatype type, int count, void *file, MPI_Offset position, void *state)
{
    int *ints = (int *)user + position;
    const unsigned char *bytes = file;
    (void)type, (void)state;
    for (int i = 0; i < count; i++) ints[i] = bytes[3 * i] << 16 | bytes[3 * i + 1] << 8 | bytes[3 * i + 2];
    converted += count;
    return MPI_SUCCESS;
}

static int write_3(void *user, MPI_Datatype type, MPI_Count count, void *file, MPI_Offset position, void *state)
{
    const int *ints = (const int *)user + position;
    unsigned char *bytes = file;
    int flag;
    (void)type, (void)state;
    /* The library's lock is not held, so the function may call MPI. */
    MPI_Initialized(&flag);
    for (int i = 0; i < count; i++) {
        bytes[3 * i] = (unsigned char)(ints[i] >> 16);
        bytes[3 * i + 1] = (unsigned char)(ints[i] >> 8);
        bytes[3 * i + 2] = (unsigned char)ints[i];
    }
    converted += (int)count;
    return flag ? MPI_SUCCESS : MPI_ERR_OTHER;
}

static int read_3_c(void *user, MPI_Datatype type, MPI_Count count, void *file, MPI_Offset position, void *state)
{
    return read_3(user, type, (int)count, file, position, state);
}

static int refuses(void *user, MPI_Datatype type, MPI_Count count, void *file, MPI_Offset position, void *state)
{
    (void)user, (void)type, (void)count, (void)file, (void)position, (void)state;
    return MPI_ERR_OTHER;
}

static void by_program(void)
{
    static int state = 77;
    MPI_File file;
    MPI_Status status;
    MPI_Aint extent;
    enum { MANY = 5 };
    int data[MANY], seen[MANY + 2];
    OK(MPI_Register_datarep_c("three", read_3_c, write_3, extent_of_3, &state));
    OK(MPI_Register_datarep_c("refusing", refuses, refuses, extent_of_3, &state));
    OK(MPI_Register_datarep("plain", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, extent_of_3, &state));
    FAILS(MPI_Register_datarep("three", read_3, MPI_CONVERSION_FN_NULL, extent_of_3, &state), MPI_ERR_DUP_DATAREP);
    FAILS(MPI_Register_datarep("native", read_3, MPI_CONVERSION_FN_NULL, extent_of_3, &state), MPI_ERR_DUP_DATAREP);
    file = open_fresh(MPI_INFO_NULL);
    MPI_Datatype filetype;
    MPI_Type_vector(1, 1, 1, MPI_INT, &filetype);
    MPI_Type_commit(&filetype);
    OK(MPI_File_set_view(file, 0, MPI_INT, filetype, "three", MPI_INFO_NULL));
    OK(MPI_File_get_type_extent(file, MPI_INT, &extent));
    EQUAL(extent, 3, "the extent of an int");
    OK(MPI_File_get_byte_offset(file, 7, &(MPI_Offset){0}));
    for (int i = 0; i < MANY; i++) data[i] = value(rank, i, 1) & 0xffffff;
    converted = 0;
    OK(MPI_File_write_at_all(file, rank * MANY, data, MANY, MPI_INT, &status));
    EQUAL(bytes_of(&status), 4 * MANY, "bytes of memory written");
    EQUAL(converted, MANY, "elements converted");
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    OK(MPI_File_read_ordered(file, seen, MANY, MPI_INT, &status));
    for (int i = 0; i < MANY; i++) EQUAL(seen[i], data[i], "an int of 3 bytes");
    MPI_Request request;
    OK(MPI_File_iread_at(file, (size - 1) * MANY, seen, MANY + 2, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    EQUAL(bytes_of(&status), 4 * MANY, "bytes of memory up to the end");
    MPI_Barrier(MPI_COMM_WORLD);
    unsigned char bytes[3 * MANY * 8 + 1];
    EQUAL(whole_file(bytes, sizeof bytes), 3 * MANY * size, "the file's length");
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "refusing", MPI_INFO_NULL));
    FAILS(MPI_File_write(file, data, 1, MPI_INT, &status), MPI_ERR_CONVERSION);
    OK(MPI_File_set_view(file, 0, MPI_DOUBLE, MPI_DOUBLE, "plain", MPI_INFO_NULL));
    double number = 1.5, again = 0;
    OK(MPI_File_write_at(file, rank, &number, 1, MPI_DOUBLE, &status));
    OK(MPI_File_read_at(file, rank, &again, 1, MPI_DOUBLE, &status));
    EQUAL(again == number, 1, "an unconverted double");
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_close(&file));
    MPI_Type_free(&filetype);
}

/* External32 with a filetype of mixed elements, ints that are interleaved between the ranks, in two phases. */
static void external(void)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", "enable");
    MPI_Info_set(info, "romio_cb_read", "enable");
    MPI_File file = open_fresh(info);
    MPI_Info_free(&info);
    MPI_Datatype filetype, one;
    MPI_Status status;
    MPI_Aint extent;
    enum { MANY = 11 };
    long data[MANY], seen[MANY + 3];
    /* In external32 a long has 4 bytes, and so have the strides of a vector of longs. */
    OK(MPI_File_set_view(file, 0, MPI_LONG, MPI_LONG, "external32", MPI_INFO_NULL));
    OK(MPI_File_get_type_extent(file, MPI_LONG, &extent));
    EQUAL(extent, 4, "the extent of a long");
    MPI_Type_vector(MANY, 1, size, MPI_LONG, &one);
    MPI_Type_create_resized(one, 0, 4 * MANY * size, &filetype);
    MPI_Type_commit(&filetype);
    OK(MPI_File_set_view(file, 4 * rank, MPI_LONG, filetype, "external32", MPI_INFO_NULL));
    for (int i = 0; i < MANY; i++) data[i] = i % 2 ? -value(rank, i, 2) : value(rank, i, 2);
    OK(MPI_File_write_all(file, data, MANY, MPI_LONG, &status));
    EQUAL(bytes_of(&status), 8 * MANY, "bytes of memory written");
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    unsigned char bytes[4 * MANY * 64];
    EQUAL(whole_file(bytes, sizeof bytes), 4 * MANY * size, "the file's length");
    for (int i = 0; i < MANY && size <= 64; i++) {
        const unsigned char *at = bytes + 4 * (i * size + rank);
        EQUAL((int)((unsigned)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]), data[i], "a big-endian int");
    }
    OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    OK(MPI_File_read_all(file, seen, MANY + 3, MPI_LONG, &status));
    EQUAL(bytes_of(&status), 8 * MANY, "bytes of memory read");
    for (int i = 0; i < MANY; i++) EQUAL(seen[i], data[i], "a long");
    long huge = 1L << 40;
    FAILS(MPI_File_write_at(file, 0, &huge, 1, MPI_LONG, &status), MPI_ERR_OTHER);
    char name[MPI_MAX_DATAREP_STRING];
    MPI_Offset displacement;
    MPI_Datatype etype, told;
    OK(MPI_File_get_view(file, &displacement, &etype, &told, name));
    EQUAL(strcmp(name, "external32"), 0, "the representation's name");
    EQUAL(displacement, 4 * rank, "the displacement");
    EQUAL(etype == MPI_LONG, 1, "the etype");
    int length;
    MPI_Type_size(told, &length);
    EQUAL(length, 8 * MANY, "the filetype's size");
    MPI_Type_free(&told);
    OK(MPI_File_set_view(file, 0, MPI_LONG, MPI_LONG, "internal", MPI_INFO_NULL));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_close(&file));
    MPI_Type_free(&one);
    MPI_Type_free(&filetype);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    by_program();
    external();
    return end();
}
