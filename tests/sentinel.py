# SPDX-License-Identifier: BSD-3-Clause
"""Makes the library that tests/run preloads for the way `sentinel`: each program's buffers then lie in sentinel memory.

The program's malloc gives sentinel memory, which is open between MPI calls and closed (PROT_NONE) within them. So a
library that touches a buffer itself, instead of copying by the device, dies at once. What is no buffer to MPI (lists of
requests, counts, the memory of windows, ...) is opened for good when it is first passed.
"""
import os, re, subprocess

# Parameters that point to data that may lie on a device.
BUFFERS = {"buf", "buffer", "sendbuf", "recvbuf", "inbuf", "outbuf", "inoutbuf", "origin_addr", "result_addr", "compare_addr"}
# Calls whose buffer must be in the host's memory.
HOST = re.compile(r"MPI_(\w+_)?(Buffer_attach|attach_buffer|P(send|recv)_init)")
# Calls before the memory exists, or after it is gone.
BARE = {"MPI_Init", "MPI_Init_thread", "MPI_Finalize", "MPI_Pcontrol", "MPI_Wtime", "MPI_Wtick"}

SOURCE = r'''
#define _GNU_SOURCE
#include <link.h>
#include <mpi.h>
#include <mpi-ext.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

int MPIX_Device_open(void *memory, int open); /* tests/programs/hooks.h */

#define MOST 65536
#define PAGE 4096
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

static struct { char *at; size_t bytes; int host; } blocks[MOST];
static int used, active, inside;
static char *first, *end, *text, *text_end;

static int find_text(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size, (void)data;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
            text = (char *)info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            text_end = text + info->dlpi_phdr[i].p_memsz;
        }
    return 1; /* The program is the first. */
}

static int find(const void *address)
{
    if ((char *)address < first || (char *)address >= end) return -1;
    for (int i = used - 1; i >= 0; i--)
        if (blocks[i].at && (char *)address >= blocks[i].at && (char *)address < blocks[i].at + blocks[i].bytes) return i;
    return -1;
}

static void set_open(int i, int open) { MPIX_Device_open(blocks[i].at, open); }

static void *grab(size_t bytes, void *caller)
{
    void *memory;
    if (!active || inside || used == MOST || (char *)caller < text || (char *)caller >= text_end) return NULL;
    inside++;
    MPIX_Device_alloc(bytes ? bytes : 1, &memory);
    blocks[used].at = memory, blocks[used].bytes = bytes ? bytes : 1, blocks[used].host = 0;
    if (!first) first = memory;
    end = (char *)memory + blocks[used].bytes;
    set_open(used++, 1);
    inside--;
    return memory;
}

void *malloc(size_t bytes)
{
    void *memory = grab(bytes, __builtin_return_address(0));
    return memory ? memory : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    void *memory = grab(count * bytes, __builtin_return_address(0)); /* fresh, so it is zero */
    return memory ? memory : __libc_calloc(count, bytes);
}

void free(void *memory)
{
    int i = find(memory);
    if (i < 0) {
        __libc_free(memory);
        return;
    }
    blocks[i].at = NULL;
    inside++;
    MPIX_Device_free(memory);
    inside--;
}

void *realloc(void *memory, size_t bytes)
{
    int i = find(memory);
    if (i < 0) return __libc_realloc(memory, bytes);
    void *other = __libc_malloc(bytes);
    memcpy(other, memory, bytes < blocks[i].bytes ? bytes : blocks[i].bytes);
    free(memory);
    return other;
}

/* Memory that MPI takes for no buffer. */
static void host(const void *address)
{
    int i = find(address);
    if (i >= 0) blocks[i].host = 1;
}

static void enter(void)
{
    if (inside++ || !active) return;
    for (int i = 0; i < used; i++)
        if (blocks[i].at && !blocks[i].host) set_open(i, 0);
}

static void leave(void)
{
    if (--inside || !active) return;
    for (int i = 0; i < used; i++)
        if (blocks[i].at && !blocks[i].host) set_open(i, 1);
}

int MPI_Init(int *argc, char ***argv)
{
    int code = PMPI_Init(argc, argv);
    dl_iterate_phdr(find_text, NULL);
    active = 1;
    return code;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int code = PMPI_Init_thread(argc, argv, required, provided);
    dl_iterate_phdr(find_text, NULL);
    active = *provided < MPI_THREAD_MULTIPLE; /* Another thread may touch its memory while this one calls. */
    return code;
}

int MPI_Finalize(void)
{
    active = 0;
    return PMPI_Finalize();
}
'''


def wrapper(returns, name, parameters):
    """The C text of the function `name`, which closes the memory while the call runs; None for a function that needs no
    wrapper."""
    if name in BARE or "..." in parameters:
        return ""
    pieces = [] if parameters.strip() == "void" else [piece.strip() for piece in parameters.split(",")]
    names, opened = [], []
    for piece in pieces:
        found = re.search(r"(\w+)(\[\])*(\[\d+\])?$", piece)
        names.append(found[1])
        pointer = "*" in piece or "[" in piece
        is_buffer = found[1] in BUFFERS and re.match(r"(const )?void \*\w+$", piece) and not HOST.match(name)
        if pointer and not is_buffer:
            opened.append(f"host((const void *){found[1]});")
    arguments = ", ".join(names)
    return (f"{returns} {name}({parameters}) {{ {' '.join(opened)} enter(); "
            f"{returns} result_ = P{name}({arguments}); leave(); return result_; }}\n")


def library(tree, target):
    """Makes the library for the installed `tree` beside the programs in `target`, if it is older than the header."""
    made = target / "sentinel.so"
    header = tree / "include/mpi.h"
    if made.exists() and made.stat().st_mtime > max(header.stat().st_mtime, os.path.getmtime(__file__)):
        return made
    text = re.sub(r"/\*.*?\*/", " ", header.read_text(), flags=re.S)
    functions = re.findall(r"\b(int|double|MPI_Aint|MPI_Fint) (MPI_[A-Z]\w*)\(([^()]*)\);", text)
    source = target / "sentinel.c"
    source.write_text(SOURCE + "".join(wrapper(*function) for function in functions))
    subprocess.run([tree / "bin/mpicc", "-std=gnu11", "-O1", "-g", "-w", "-shared", "-fPIC", "-o", made, source], check=True)
    return made
