/* For programs that use files: a name that no other run uses, and the whole file as this rank sees it. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef IO_H
#define IO_H

#include "check.h"
#include <unistd.h>

static char file_name[1024];

/* The same new name on all ranks; the file does not exist. */
static inline const char *fresh_name(void)
{
    static int made;
    const char *folder = getenv("TMPDIR");
    snprintf(file_name, sizeof file_name, "%s/outboard-%d-%d", folder ? folder : "/tmp", (int)getpid(), made++);
    MPI_Bcast(file_name, sizeof file_name, MPI_CHAR, 0, MPI_COMM_WORLD);
    return file_name;
}

#define OK(call) EQUAL(call, MPI_SUCCESS, #call)
#define FAILS(call, class) EQUAL(error_class(call), class, #call)

static inline MPI_File open_fresh(MPI_Info info)
{
    MPI_File file = MPI_FILE_NULL;
    int mode = MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE;
    OK(MPI_File_open(MPI_COMM_WORLD, fresh_name(), mode, info, &file));
    return file;
}

static inline int bytes_of(MPI_Status *status)
{
    int bytes = -1;
    MPI_Get_count(status, MPI_BYTE, &bytes);
    return bytes;
}

/* Reads the file by POSIX; returns its length. */
static inline long whole_file(unsigned char *to, long room)
{
    FILE *stream = fopen(file_name, "rb");
    long bytes = stream ? (long)fread(to, 1, room, stream) : -1;
    if (stream) fclose(stream);
    return bytes;
}

#endif
