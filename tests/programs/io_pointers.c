/* Individual and shared file pointers, the order of ranks, split accesses, sequential and append modes, and
   progress of collective accesses while their ranks wait for something else. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "io.h"

static void individual(void)
{
    MPI_File file = open_fresh(MPI_INFO_NULL);
    MPI_Offset at = -1;
    int data[8], seen[8];
    MPI_Status status;
    MPI_Datatype filetype, two;
    /* Rank r sees every size-th int. */
    MPI_Type_vector(1, 1, size, MPI_INT, &two);
    MPI_Type_create_resized(two, 0, 4 * size, &filetype);
    MPI_Type_commit(&filetype);
    OK(MPI_File_set_view(file, 4 * rank, MPI_INT, filetype, "native", MPI_INFO_NULL));
    fill(data, 8, rank, 1);
    OK(MPI_File_write(file, data, 3, MPI_INT, &status));
    OK(MPI_File_get_position(file, &at));
    EQUAL(at, 3, "position after a write");
    MPI_Request requests[2];
    OK(MPI_File_iwrite(file, data + 3, 3, MPI_INT, &requests[0]));
    OK(MPI_File_iwrite(file, data + 6, 2, MPI_INT, &requests[1]));
    OK(MPI_File_get_position(file, &at));
    EQUAL(at, 8, "position after nonblocking writes have begun");
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    OK(MPI_File_get_byte_offset(file, 5, &at));
    EQUAL(at, 4 * rank + 5 * 4 * size, "byte offset");
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_seek(file, -8, MPI_SEEK_END));
    OK(MPI_File_get_position(file, &at));
    EQUAL(at, 0, "position by MPI_SEEK_END");
    OK(MPI_File_read(file, seen, 8, MPI_INT, &status));
    EQUAL(bytes_of(&status), 32, "bytes read");
    FILLED(seen, 8, rank, 1);
    OK(MPI_File_seek(file, -2, MPI_SEEK_CUR));
    OK(MPI_File_read(file, seen, 8, MPI_INT, &status));
    EQUAL(bytes_of(&status), 8, "bytes up to the end");
    EQUAL(seen[1], data[7], "the last int");
    OK(MPI_File_get_position(file, &at));
    EQUAL(at, 14, "position after what was asked for");
    FAILS(MPI_File_seek(file, -100, MPI_SEEK_CUR), MPI_ERR_ARG);
    FAILS(MPI_File_seek(file, 0, 12345), MPI_ERR_ARG);
    FAILS(MPI_File_read(file, seen, 3, MPI_BYTE, &status), MPI_ERR_ARG);
    FAILS(MPI_File_read_at(file, -1, seen, 1, MPI_INT, &status), MPI_ERR_ARG);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_close(&file));
    EQUAL(file == MPI_FILE_NULL, 1, "the handle is null");
    EQUAL(access(file_name, F_OK), -1, "the file is gone");
    MPI_Type_free(&two);
    MPI_Type_free(&filetype);
}

static void shared(void)
{
    MPI_File file = open_fresh(MPI_INFO_NULL);
    enum { MANY = 40 };
    int *owners = grab(sizeof(int) * MANY * size), mine[2] = {rank, rank};
    MPI_Status status;
    MPI_Offset at;
    OK(MPI_File_set_view(file, 8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    for (int i = 0; i < MANY / 2; i++) {
        if (i % 2) OK(MPI_File_write_shared(file, mine, 2, MPI_INT, &status));
        else {
            MPI_Request request;
            OK(MPI_File_iwrite_shared(file, mine, 2, MPI_INT, &request));
            OK(MPI_Wait(&request, &status));
        }
        EQUAL(bytes_of(&status), 8, "bytes written by the shared pointer");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_get_position_shared(file, &at));
    EQUAL(at, MANY * size, "the shared position");
    OK(MPI_File_read_at(file, 0, owners, MANY * size, MPI_INT, &status));
    int counts[64] = {0};
    for (int i = 0; i < MANY * size; i += 2) {
        EQUAL(owners[i], owners[i + 1], "the second int of a pair");
        if (owners[i] >= 0 && owners[i] < size) counts[owners[i]] += 2;
    }
    for (int i = 0; i < size; i++) EQUAL(counts[i], MANY, "ints of one rank");
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    /* Accesses in the order of ranks, of different lengths, in both forms. */
    int *data = grab(4 * (size + 1)), *seen = grab(4 * (size + 1));
    for (int round = 0; round < 4; round++) {
        fill(data, rank + 1, rank, round);
        if (round % 2) {
            OK(MPI_File_write_ordered_begin(file, data, rank + 1, MPI_INT));
            OK(MPI_File_write_ordered_end(file, data, &status));
        } else OK(MPI_File_write_ordered(file, data, rank + 1, MPI_INT, &status));
        EQUAL(bytes_of(&status), 4 * (rank + 1), "bytes written in order");
    }
    OK(MPI_File_seek_shared(file, -size * (size + 1) / 2, MPI_SEEK_CUR));
    OK(MPI_File_read_ordered_begin(file, seen, rank + 1, MPI_INT));
    OK(MPI_File_read_ordered_end(file, seen, &status));
    FILLED(seen, rank + 1, rank, 3);
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    for (int round = 0; round < 4; round++) {
        OK(MPI_File_read_ordered(file, seen, rank + 1, MPI_INT, &status));
        FILLED(seen, rank + 1, rank, round);
    }
    if (size > 1) FAILS(MPI_File_seek_shared(file, rank, MPI_SEEK_SET), MPI_ERR_NOT_SAME);
    OK(MPI_File_close(&file));
    free(owners), free(data), free(seen);
}

/* One file written in sequential and append mode. */
static void modes(void)
{
    MPI_File file;
    const char *name = fresh_name();
    MPI_Offset at;
    MPI_Status status;
    int seen;
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &file));
    FAILS(MPI_File_write(file, &rank, 1, MPI_INT, &status), MPI_ERR_UNSUPPORTED_OPERATION);
    FAILS(MPI_File_seek(file, 0, MPI_SEEK_SET), MPI_ERR_UNSUPPORTED_OPERATION);
    OK(MPI_File_write_ordered(file, &rank, 1, MPI_INT, &status));
    FAILS(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL), MPI_ERR_ARG);
    OK(MPI_File_set_view(file, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_write_ordered(file, &rank, 1, MPI_INT, &status));
    OK(MPI_File_close(&file));
    OK(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_APPEND, MPI_INFO_NULL, &file));
    OK(MPI_File_get_position(file, &at));
    EQUAL(at, 8 * size, "position in append mode");
    OK(MPI_File_get_position_shared(file, &at));
    EQUAL(at, 8 * size, "shared position in append mode");
    OK(MPI_File_read_at(file, 4 * (size + rank), &seen, 1, MPI_INT, &status));
    EQUAL(seen, rank, "what was written behind the displacement");
    OK(MPI_File_set_size(file, 12));
    OK(MPI_File_get_size(file, &at));
    EQUAL(at, 12, "the size");
    OK(MPI_File_preallocate(file, 5000));
    OK(MPI_File_get_size(file, &at));
    EQUAL(at, 5000, "the size after more was allocated");
    OK(MPI_File_preallocate(file, 12));
    OK(MPI_File_get_size(file, &at));
    EQUAL(at, 5000, "the size after less was allocated");
    OK(MPI_File_close(&file));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) OK(MPI_File_delete(name, MPI_INFO_NULL));
}

/* Rank 0 waits for its access first. The others wait for a barrier that rank 0 enters afterwards. */
static void progress(void)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", "enable");
    MPI_Info_set(info, "romio_cb_read", "enable");
    MPI_Info_set(info, "cb_buffer_size", "100000");
    MPI_File file = open_fresh(info);
    MPI_Info_free(&info);
    enum { INTS = 100000, OPERATIONS = 3 };
    MPI_Datatype filetype, one;
    MPI_Type_create_resized(MPI_INT, 0, 4 * size, &one);
    MPI_Type_contiguous(100, one, &filetype);
    MPI_Type_commit(&filetype);
    OK(MPI_File_set_view(file, 4 * rank, MPI_INT, filetype, "native", MPI_INFO_NULL));
    int *data[OPERATIONS], *seen = grab(4 * INTS);
    MPI_Request requests[OPERATIONS];
    for (int i = 0; i < OPERATIONS; i++) {
        fill(data[i] = grab(4 * INTS), INTS, rank, i);
        OK(MPI_File_iwrite_at_all(file, (MPI_Offset)i * INTS, data[i], INTS, MPI_INT, &requests[i]));
    }
    if (rank == 0) OK(MPI_Waitall(OPERATIONS, requests, MPI_STATUSES_IGNORE));
    MPI_Barrier(MPI_COMM_WORLD);
    /* The other ranks wait in another order. */
    for (int i = OPERATIONS - 1; i >= 0 && rank > 0; i--) OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < OPERATIONS; i++) {
        MPI_Status status;
        memset(seen, 0xee, 4 * INTS);
        OK(MPI_File_read_at_all_begin(file, (MPI_Offset)i * INTS, seen, INTS, MPI_INT));
        FAILS(MPI_File_read_at_all_begin(file, 0, seen, 0, MPI_INT), MPI_ERR_OTHER);
        FAILS(MPI_File_write_all_end(file, seen, &status), MPI_ERR_OTHER);
        MPI_Barrier(MPI_COMM_WORLD);
        OK(MPI_File_read_at_all_end(file, seen, &status));
        EQUAL(bytes_of(&status), 4 * INTS, "bytes read in a split access");
        FILLED(seen, INTS, rank, i);
        free(data[i]);
    }
    FAILS(MPI_File_read_at_all_end(file, seen, MPI_STATUS_IGNORE), MPI_ERR_OTHER);
    OK(MPI_File_close(&file));
    MPI_Type_free(&one);
    MPI_Type_free(&filetype);
    free(seen);
}

/* In atomic mode a read sees all of a write or none of it. */
static void atomic(void)
{
    MPI_File file = open_fresh(MPI_INFO_NULL);
    enum { BLOCKS = 50, BYTES = 300 };
    unsigned char data[BLOCKS * BYTES];
    MPI_Datatype filetype, block;
    MPI_Status status;
    int flag = -1, mixed = 0;
    MPI_Type_contiguous(BYTES, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, BYTES + 100, &filetype);
    MPI_Type_commit(&filetype);
    OK(MPI_File_set_view(file, 0, MPI_BYTE, filetype, "native", MPI_INFO_NULL));
    OK(MPI_File_set_atomicity(file, 1));
    OK(MPI_File_get_atomicity(file, &flag));
    EQUAL(flag, 1, "atomicity");
    memset(data, 0, sizeof data);
    if (rank == 0) OK(MPI_File_write_at(file, 0, data, sizeof data, MPI_BYTE, &status));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < 30; round++) {
        memset(data, rank * 30 + round, sizeof data);
        if (round % 2) OK(MPI_File_write_at_all(file, 0, data, sizeof data, MPI_BYTE, &status));
        else OK(MPI_File_write_at(file, 0, data, sizeof data, MPI_BYTE, &status));
        OK(MPI_File_read_at(file, 0, data, sizeof data, MPI_BYTE, &status));
        for (size_t i = 1; i < sizeof data; i++) mixed += data[i] != data[0];
    }
    EQUAL(mixed, 0, "bytes of another write");
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_close(&file));
    MPI_Type_free(&block);
    MPI_Type_free(&filetype);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    individual();
    shared();
    modes();
    progress();
    atomic();
    return end();
}
