/* Windows of every kind over memory of every kind, so that one program tests them all. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef WINDOW_H
#define WINDOW_H

enum { FROM_HEAP, FROM_ALLOC_MEM, ALLOCATED, SHARED, ATTACHED, ATTACHED_ALLOC_MEM, KINDS };
static const char *const kind_names[] = {"create", "create over MPI_Alloc_mem", "allocate", "allocate_shared",
                                         "dynamic", "dynamic over MPI_Alloc_mem"};

static int kind;
static MPI_Win win;
/* This process's memory, and the base of target displacements at each rank. */
static char *memory;
static MPI_Aint *origins;

/* Whether all ranks are on one host, as shared memory needs. Collective. */
static int on_one_host(void)
{
    MPI_Comm host;
    int together;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &together);
    MPI_Comm_free(&host);
    return together == size;
}

/* Makes a window with `bytes` bytes at every rank and displacements in bytes. Collective. */
static void make_window(int which, MPI_Aint bytes)
{
    MPI_Aint origin = 0;
    kind = which;
    if (kind == FROM_HEAP || kind == ATTACHED) memory = malloc(bytes);
    if (kind == FROM_ALLOC_MEM || kind == ATTACHED_ALLOC_MEM) MPI_Alloc_mem(bytes, MPI_INFO_NULL, &memory);
    if (kind == FROM_HEAP || kind == FROM_ALLOC_MEM)
        MPI_Win_create(memory, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    if (kind == ALLOCATED) MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    if (kind == SHARED) MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    if (kind == ATTACHED || kind == ATTACHED_ALLOC_MEM) {
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        MPI_Win_attach(win, memory, bytes);
        MPI_Get_address(memory, &origin);
    }
    memset(memory, 0, bytes);
    origins = malloc(size * sizeof(MPI_Aint));
    MPI_Allgather(&origin, 1, MPI_AINT, origins, 1, MPI_AINT, MPI_COMM_WORLD);
}

static void free_window(void)
{
    if (kind == ATTACHED || kind == ATTACHED_ALLOC_MEM) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_detach(win, memory);
    }
    MPI_Win_free(&win);
    if (kind == FROM_HEAP || kind == ATTACHED) free(memory);
    if (kind == FROM_ALLOC_MEM || kind == ATTACHED_ALLOC_MEM) MPI_Free_mem(memory);
    free(origins);
}

#endif
