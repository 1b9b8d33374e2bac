/* Errors of files: their classes, that calls fail on all ranks alike, and which handler is called; hints and
   queries. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "io.h"

static int heard, heard_code;
static MPI_File heard_file;
static void hear(MPI_File *file, int *code, ...)
{
    heard++;
    heard_code = error_class(*code);
    heard_file = *file;
}

static void opening(void)
{
    MPI_File file = MPI_FILE_NULL;
    const char *name = fresh_name();
    int create = MPI_MODE_CREATE | MPI_MODE_RDWR;
#define OPEN(name, mode) MPI_File_open(MPI_COMM_WORLD, name, mode, MPI_INFO_NULL, &file)
    FAILS(OPEN(name, MPI_MODE_RDWR), MPI_ERR_NO_SUCH_FILE);
    FAILS(OPEN(name, MPI_MODE_RDONLY | MPI_MODE_CREATE), MPI_ERR_AMODE);
    FAILS(OPEN(name, MPI_MODE_RDONLY | MPI_MODE_EXCL), MPI_ERR_AMODE);
    FAILS(OPEN(name, MPI_MODE_RDWR | MPI_MODE_SEQUENTIAL), MPI_ERR_AMODE);
    FAILS(OPEN(name, MPI_MODE_RDWR | MPI_MODE_WRONLY), MPI_ERR_AMODE);
    FAILS(OPEN(name, MPI_MODE_CREATE), MPI_ERR_AMODE);
    FAILS(OPEN("/nowhere/at/all", create), MPI_ERR_NO_SUCH_FILE);
    FAILS(OPEN("/tmp", MPI_MODE_RDONLY), MPI_ERR_BAD_FILE);
    FAILS(OPEN("/proc/self/nothing/x", create), MPI_ERR_NO_SUCH_FILE);
    if (size > 1) {
        /* Only one rank passes a wrong argument, and all ranks fail. */
        FAILS(OPEN(rank == size - 1 ? "/nowhere/x" : name, create), MPI_ERR_NO_SUCH_FILE);
        FAILS(OPEN(name, rank == 0 ? create : create | MPI_MODE_APPEND), MPI_ERR_NOT_SAME);
        FAILS(OPEN(name, rank == 1 ? MPI_MODE_CREATE : create), MPI_ERR_AMODE);
        FAILS(OPEN(rank == 1 ? "/dev/null" : name, create), MPI_ERR_NOT_SAME);
    }
    OK(OPEN(name, create));
    OK(MPI_File_close(&file));
    FAILS(OPEN(name, create | MPI_MODE_EXCL), MPI_ERR_FILE_EXISTS);
    if (geteuid() != 0) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) EQUAL(system("true"), 0, "a shell");
        FAILS(OPEN("/etc/shadow", MPI_MODE_RDWR), MPI_ERR_ACCESS);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        char prefixed[1100];
        snprintf(prefixed, sizeof prefixed, "ufs:%s", name);
        OK(MPI_File_delete(prefixed, MPI_INFO_NULL));
        FAILS(MPI_File_delete(name, MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE);
    }
    EQUAL(file == MPI_FILE_NULL, 1, "the handle after a failed open");
    MPI_Barrier(MPI_COMM_WORLD);
}

static void using(void)
{
    MPI_File file;
    MPI_Status status;
    const char *name = fresh_name();
    char data[16] = "0123456789abcde";
    MPI_Errhandler handler, own;
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file));
    MPI_File_create_errhandler(hear, &handler);
    OK(MPI_File_set_errhandler(file, handler));
    OK(MPI_File_get_errhandler(file, &own));
    EQUAL(own == handler, 1, "the handler is the one that was set");
    MPI_Errhandler_free(&own);
    MPI_Errhandler_free(&handler);
    FAILS(MPI_File_read(file, data, 1, MPI_CHAR, &status), MPI_ERR_ACCESS);
    EQUAL(heard, 1, "calls of the handler");
    EQUAL(heard_code, MPI_ERR_ACCESS, "what it heard");
    EQUAL(heard_file == file, 1, "of which file");
    FAILS(MPI_File_write(file, data, -1, MPI_CHAR, &status), MPI_ERR_COUNT);
    FAILS(MPI_File_write(file, data, 1, MPI_DATATYPE_NULL, &status), MPI_ERR_TYPE);
    FAILS(MPI_File_set_view(file, -5, MPI_INT, MPI_INT, "native", MPI_INFO_NULL), MPI_ERR_ARG);
    FAILS(MPI_File_set_view(file, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native", MPI_INFO_NULL), MPI_ERR_ARG);
    FAILS(MPI_File_set_view(file, 0, MPI_INT, MPI_SHORT, "native", MPI_INFO_NULL), MPI_ERR_ARG);
    FAILS(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "unheard of", MPI_INFO_NULL), MPI_ERR_UNSUPPORTED_DATAREP);
    if (size > 1)
        FAILS(MPI_File_set_view(file, 0, rank ? MPI_INT : MPI_SHORT, rank ? MPI_INT : MPI_SHORT, "native", MPI_INFO_NULL),
              MPI_ERR_NOT_SAME);
    FAILS(MPI_File_set_size(file, -1), MPI_ERR_ARG);
    if (size > 1) FAILS(MPI_File_set_size(file, rank), MPI_ERR_NOT_SAME);
    if (size > 1) FAILS(MPI_File_set_atomicity(file, rank == 0), MPI_ERR_NOT_SAME);
    OK(MPI_File_write_at(file, 16 * rank, data, 16, MPI_CHAR, &status));
    heard = 0;
    OK(MPI_File_call_errhandler(file, MPI_ERR_QUOTA));
    EQUAL(heard, 1, "a call by hand");
    OK(MPI_File_close(&file));

    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file));
    FAILS(MPI_File_write_at_all(file, 0, data, 1, MPI_CHAR, &status), MPI_ERR_READ_ONLY);
    FAILS(MPI_File_set_size(file, 0), MPI_ERR_READ_ONLY);
    MPI_Request request;
    FAILS(MPI_File_iwrite(file, data, 1, MPI_CHAR, &request), MPI_ERR_READ_ONLY);
    /* There is nothing to read behind the end of the file. */
    OK(MPI_File_iread_at(file, 1 << 20, data, 16, MPI_CHAR, &request));
    OK(MPI_Wait(&request, &status));
    EQUAL(bytes_of(&status), 0, "bytes behind the end");
    OK(MPI_File_read_at_all(file, 16 * size - 10, data, 16, MPI_CHAR, &status));
    EQUAL(bytes_of(&status), 10, "bytes up to the end");
    OK(MPI_File_close(&file));
    FAILS(MPI_File_close(&file), MPI_ERR_FILE);
    FAILS(MPI_File_sync(MPI_FILE_NULL), MPI_ERR_FILE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) MPI_File_delete(name, MPI_INFO_NULL);
}

/* /dev/full refuses every write: of one rank, nonblocking, and in two phases, where only one rank writes. */
static void full(void)
{
    MPI_File file;
    MPI_Info info;
    MPI_Request request;
    MPI_Datatype filetype;
    char data[64] = {0};
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", "enable");
    OK(MPI_File_open(MPI_COMM_WORLD, "/dev/full", MPI_MODE_WRONLY, info, &file));
    FAILS(MPI_File_write_at(file, 0, data, 64, MPI_CHAR, MPI_STATUS_IGNORE), MPI_ERR_NO_SPACE);
    MPI_Errhandler handler;
    MPI_File_create_errhandler(hear, &handler);
    MPI_File_set_errhandler(file, handler);
    MPI_Errhandler_free(&handler);
    heard = 0;
    OK(MPI_File_iwrite_at(file, 0, data, 64, MPI_CHAR, &request));
    FAILS(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_NO_SPACE);
    EQUAL(heard, 1, "calls of the file's handler by MPI_Wait");
    MPI_Type_create_resized(MPI_CHAR, 0, size, &filetype);
    MPI_Type_commit(&filetype);
    OK(MPI_File_set_view(file, rank, MPI_CHAR, filetype, "native", MPI_INFO_NULL));
    FAILS(MPI_File_write_all(file, data, 64, MPI_CHAR, MPI_STATUS_IGNORE), MPI_ERR_NO_SPACE);
    OK(MPI_File_close(&file));
    MPI_Type_free(&filetype);
    MPI_Info_free(&info);
}

static void hints(void)
{
    MPI_Info info, used;
    char text[MPI_MAX_INFO_VAL];
    int flag = -1, amode = 0, length = sizeof text;
    MPI_Info_create(&info);
    MPI_Info_set(info, "cb_nodes", "1");
    MPI_Info_set(info, "cb_buffer_size", "12345");
    MPI_Info_set(info, "striping_factor", "4");
    MPI_Info_set(info, "no_such_hint", "1");
    MPI_File file = open_fresh(info);
    OK(MPI_File_get_info(file, &used));
    MPI_Info_get_string(used, "cb_buffer_size", &length, text, &flag);
    EQUAL(flag, 1, "cb_buffer_size is told");
    EQUAL(atoi(text), 12345, "cb_buffer_size");
    length = sizeof text;
    MPI_Info_get_string(used, "no_such_hint", &length, text, &flag);
    EQUAL(flag, 0, "an unknown hint is told");
    MPI_Info_free(&used);
    MPI_Info_set(info, "cb_buffer_size", "999");
    OK(MPI_File_set_info(file, info));
    OK(MPI_File_get_info(file, &used));
    length = sizeof text;
    MPI_Info_get_string(used, "cb_buffer_size", &length, text, &flag);
    EQUAL(atoi(text), 999, "cb_buffer_size after MPI_File_set_info");
    MPI_Info_free(&used);
    MPI_Info_free(&info);
    MPI_Group group, world;
    int relation;
    OK(MPI_File_get_group(file, &group));
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_compare(group, world, &relation);
    EQUAL(relation, MPI_IDENT, "the group");
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    OK(MPI_File_get_amode(file, &amode));
    EQUAL(amode, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, "amode");
    OK(MPI_File_close(&file));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    opening();
    using();
    full();
    hints();
    return end();
}
