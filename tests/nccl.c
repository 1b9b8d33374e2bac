/* A library with NCCL's functions for tests (tests/run, ways `nccl` and `nccl-late`): the ranks of one host exchange bytes by
   files in /dev/shm. It takes sentinel memory, which it maps for itself as a driver would, and the host's. As NCCL's, its calls
   only begin an operation: the bytes are there when the stream of the call has come so far.

   Variables of the environment:
   TEST_NCCL_LATE=SEED    calls return ncclInProgress; a thread ends the work after a delay drawn from SEED
   TEST_NCCL_FAIL=N:CODE  the N-th operation of the process ends with CODE (6: ncclRemoteError), at once, or later with LATE */
/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SUCCESS = 0, INTERNAL = 3, ARGUMENT = 4, USAGE = 5, IN_PROGRESS = 7, MOST = 16, IN_GROUP = 64 };
typedef struct { char name[128]; } Id;

/* For each pair of ranks, the numbers of messages put and taken. */
typedef struct { _Atomic unsigned joined, put[MOST][MOST], taken[MOST][MOST]; } Shared;

typedef struct { int is_send, peer; char *at; size_t bytes; } Message;

typedef struct {
    enum { MESSAGES, ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER } what;
    char *from, *to;
    size_t count;
    int type, op, root, messages;
    Message message[IN_GROUP];
    void *stream;
} Work;

typedef struct {
    char name[128];
    Shared *shared;
    int rank, size;
    /* The work of the thread with TEST_NCCL_LATE. */
    _Atomic int state;
    Work work;
    unsigned seed;
} Comm;

static _Atomic int operations;
static int late(void) { return getenv("TEST_NCCL_LATE") != NULL; }

/* The bytes at an address; sentinel memory is read through a map of this library. */
static char *reach(const void *address)
{
    static struct { char *base, *end, *map; } known;
    if (!known.map) {
        FILE *maps = fopen("/proc/self/maps", "r");
        char line[512], link[300], target[256];
        while (maps && fgets(line, sizeof line, maps)) {
            unsigned long from, to;
            if (!strstr(line, "/memfd:outboard-sentinel") || sscanf(line, "%lx-%lx", &from, &to) != 2) continue;
            /* The program's map has several parts if some of it is open; it begins with the first part. */
            unsigned long offset = 0;
            sscanf(line, "%*s %*s %lx", &offset);
            if (strstr(line, "rw-s") && !known.base && offset == 0 && to - from == 1ul << 36) continue; /* the backend's own */
            if (offset == 0 && !known.base) known.base = (char *)from, known.end = (char *)from + (1ul << 36);
        }
        if (maps) fclose(maps);
        DIR *fds = known.base ? opendir("/proc/self/fd") : NULL;
        for (struct dirent *entry; fds && (entry = readdir(fds));) {
            snprintf(link, sizeof link, "/proc/self/fd/%s", entry->d_name);
            ssize_t length = readlink(link, target, sizeof target - 1);
            if (length < 0) continue;
            target[length] = 0;
            if (strncmp(target, "/memfd:outboard-sentinel", 24) == 0) {
                known.map = mmap(NULL, 1ul << 36, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, atoi(entry->d_name), 0);
                break;
            }
        }
        if (fds) closedir(fds);
    }
    char *at = (char *)address;
    return known.map && at >= known.base && at < known.end ? known.map + (at - known.base) : at;
}

static void file_of(Comm *comm, int from, int to, char *path) { sprintf(path, "/dev/shm/%.100s.%d.%d", comm->name, from, to); }

static void pause_for(unsigned *turns)
{
    if (++*turns < 1000) sched_yield(); else usleep(100);
}

/* Puts a message. Waits until the message before has been taken. */
static int put(Comm *comm, int peer, const char *data, size_t bytes)
{
    unsigned turns = 0;
    char path[200];
    while (comm->shared->put[comm->rank][peer] != comm->shared->taken[comm->rank][peer]) pause_for(&turns);
    file_of(comm, comm->rank, peer, path);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, data + done, bytes - done);
        if (n <= 0) return INTERNAL;
        done += n;
    }
    close(fd);
    comm->shared->put[comm->rank][peer]++;
    return SUCCESS;
}

/* Takes a message, which must have exactly this many bytes. */
static int take(Comm *comm, int peer, char *data, size_t bytes)
{
    unsigned turns = 0;
    char path[200];
    while (comm->shared->put[peer][comm->rank] == comm->shared->taken[peer][comm->rank]) pause_for(&turns);
    file_of(comm, peer, comm->rank, path);
    int fd = open(path, O_RDONLY);
    off_t length = lseek(fd, 0, SEEK_END);
    int code = (size_t)length == bytes ? SUCCESS : ARGUMENT;
    for (size_t done = 0; code == SUCCESS && done < bytes;) {
        ssize_t n = pread(fd, data + done, bytes - done, done);
        if (n <= 0) code = INTERNAL;
        done += n;
    }
    close(fd);
    comm->shared->taken[peer][comm->rank]++;
    return code;
}

#define APPLY(T) \
    for (size_t i = 0; i < count; i++) { \
        T x = ((T *)into)[i], y = ((const T *)with)[i]; \
        ((T *)into)[i] = op == 0 ? x + y : op == 1 ? x * y : op == 2 ? (x > y ? x : y) : (x < y ? x : y); \
    }

static size_t size_of(int type)
{
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8};
    return type < 0 || type > 8 ? 0 : sizes[type];
}

static void reduce(char *into, const char *with, size_t count, int type, int op)
{
    switch (type) {
    case 0: APPLY(signed char) break;
    case 1: APPLY(unsigned char) break;
    case 2: APPLY(int) break;
    case 3: APPLY(unsigned) break;
    case 4: APPLY(long long) break;
    case 5: APPLY(unsigned long long) break;
    case 6: APPLY(_Float16) break;
    case 7: APPLY(float) break;
    case 8: APPLY(double) break;
    }
}

/* The message that each rank sends to `peer`, and whether it sends one. */
static int all_put(Comm *comm, const Work *work, size_t bytes)
{
    for (int peer = 0; peer < comm->size; peer++) {
        int sends = work->what == REDUCE ? peer == work->root : work->what == BROADCAST ? comm->rank == work->root : 1;
        const char *from = work->from + (work->what == REDUCE_SCATTER ? bytes * peer : 0);
        if (sends && put(comm, peer, from, bytes)) return INTERNAL;
    }
    return SUCCESS;
}

int MPIX_Device_stream_copy(void *to, const void *from, size_t bytes, void *stream);

/* Copies the result aside until the stream comes to this operation. */
static int give(char *to, size_t bytes, void *stream)
{
    char *result = malloc(bytes + 1), *at = reach(to);
    memcpy(result, at, bytes);
    memset(at, 0x5a, bytes);
    return MPIX_Device_stream_copy(to, result, bytes, stream) == 0 ? SUCCESS : INTERNAL;
}

/* Copies all results aside. */
static int give_all(const Comm *comm, const Work *work)
{
    int code = SUCCESS;
    for (int i = 0; i < work->messages; i++) {
        const Message *message = &work->message[i];
        if (!message->is_send) code |= give(message->at, message->bytes, work->stream);
    }
    size_t bytes = work->count * size_of(work->type) * (work->what == ALL_GATHER ? comm->size : 1);
    if (work->what == MESSAGES || (work->what == REDUCE && comm->rank != work->root)) return code;
    return give(work->to, bytes, work->stream);
}

static int carry_out(Comm *comm, Work *work)
{
    size_t bytes = work->count * size_of(work->type);
    int code = SUCCESS;
    if (work->what == MESSAGES) {
        for (int i = 0; i < work->messages; i++) {
            Message *message = &work->message[i];
            if (message->is_send) code |= put(comm, message->peer, reach(message->at), message->bytes);
        }
        for (int i = 0; i < work->messages; i++) {
            Message *message = &work->message[i];
            if (!message->is_send) code |= take(comm, message->peer, reach(message->at), message->bytes);
        }
        return code;
    }
    work->from = reach(work->from), work->to = reach(work->to);
    code = all_put(comm, work, bytes);
    if (work->what == REDUCE && comm->rank != work->root) return code;
    if (work->what == BROADCAST) return code | take(comm, work->root, work->to, bytes);
    char *other = malloc(bytes + 1);
    for (int peer = 0; peer < comm->size; peer++) {
        if (work->what == ALL_GATHER) {
            code |= take(comm, peer, work->to + bytes * peer, bytes);
            continue;
        }
        code |= take(comm, peer, peer ? other : work->to, bytes);
        if (peer) reduce(work->to, other, work->count, work->type, work->op);
    }
    free(other);
    return code;
}

static void *serve(void *argument)
{
    Comm *comm = argument;
    usleep(rand_r(&comm->seed) % 3000);
    comm->state = carry_out(comm, &comm->work);
    return NULL;
}

static int start(Comm *comm, const Work *work)
{
    if (!comm || size_of(work->type) == 0 || work->op < 0 || work->op > 3) return ARGUMENT;
    int number = ++operations, at = 0, code = 0;
    char *fail = getenv("TEST_NCCL_FAIL");
    if (fail && sscanf(fail, "%d:%d", &at, &code) == 2 && at == number) {
        if (!late()) return code;
        comm->state = code;
        return SUCCESS;
    }
    if (comm->state == IN_PROGRESS) return USAGE;
    comm->work = *work;
    if (!late()) {
        code = carry_out(comm, &comm->work);
        return code ? code : give_all(comm, work);
    }
    comm->state = IN_PROGRESS;
    pthread_t thread;
    pthread_create(&thread, NULL, serve, comm);
    pthread_detach(thread);
    return IN_PROGRESS;
}

int ncclGetVersion(int *version) { *version = 23203; return SUCCESS; }

int ncclGetUniqueId(Id *id)
{
    static int made;
    memset(id, 0, sizeof *id);
    snprintf(id->name, sizeof id->name, "test-nccl-%d-%d", getpid(), made++);
    return SUCCESS;
}

int ncclCommInitRank(Comm **out, int size, Id id, int rank)
{
    char path[200];
    if (size > MOST || rank >= size) return ARGUMENT;
    Comm *comm = calloc(1, sizeof *comm);
    memcpy(comm->name, id.name, sizeof id.name);
    comm->rank = rank, comm->size = size;
    comm->seed = late() ? atoi(getenv("TEST_NCCL_LATE")) * 131 + rank : 0;
    snprintf(path, sizeof path, "/dev/shm/%.100s", id.name);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0) return INTERNAL;
    comm->shared = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    unsigned turns = 0;
    comm->shared->joined++;
    while ((int)comm->shared->joined < size) pause_for(&turns);
    *out = comm;
    return SUCCESS;
}

int ncclCommDestroy(Comm *comm)
{
    char path[200];
    for (int peer = 0; peer < comm->size; peer++) {
        file_of(comm, peer, comm->rank, path);
        unlink(path);
    }
    snprintf(path, sizeof path, "/dev/shm/%.100s", comm->name);
    unlink(path);
    munmap(comm->shared, sizeof(Shared));
    free(comm);
    return SUCCESS;
}

/* The communicator's thread may still be working. */
int ncclCommAbort(Comm *comm)
{
    char path[200];
    snprintf(path, sizeof path, "/dev/shm/%.100s", comm->name);
    unlink(path);
    return SUCCESS;
}

int ncclCommGetAsyncError(Comm *comm, int *state) { *state = comm->state; return SUCCESS; }

const char *ncclGetErrorString(int code)
{
    static const char *const text[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error",
                                       "invalid argument", "invalid usage", "remote process exited", "in progress"};
    return code < 0 || code > 7 ? "unknown" : text[code];
}

const char *ncclGetLastError(Comm *comm) { (void)comm; return "said by tests/nccl.c"; }

static __thread Work group;
static __thread int in_group;
static __thread Comm *grouped;

int ncclGroupStart(void) { in_group++; return SUCCESS; }

int ncclGroupEnd(void)
{
    if (--in_group || !group.messages) return SUCCESS;
    Work work = group;
    group.messages = 0;
    return start(grouped, &work);
}

static int message(int is_send, const void *at, size_t count, int type, int peer, Comm *comm, void *stream)
{
    if (!in_group) return USAGE;
    if (peer < 0 || peer >= comm->size || group.messages == IN_GROUP) return ARGUMENT;
    grouped = comm, group.stream = stream;
    group.message[group.messages++] = (Message){is_send, peer, (char *)at, count * size_of(type)};
    return SUCCESS;
}

int ncclSend(const void *at, size_t count, int type, int peer, Comm *comm, void *stream)
{
    return message(1, at, count, type, peer, comm, stream);
}

int ncclRecv(void *at, size_t count, int type, int peer, Comm *comm, void *stream)
{
    return message(0, at, count, type, peer, comm, stream);
}

int ncclAllReduce(char *from, char *to, size_t count, int type, int op, Comm *comm, void *stream)
{
    return start(comm, &(Work){.stream = stream, .what = ALL_REDUCE, .from = from, .to = to, .count = count, .type = type, .op = op});
}

int ncclReduce(char *from, char *to, size_t count, int type, int op, int root, Comm *comm, void *stream)
{
    return start(comm, &(Work){.stream = stream, .what = REDUCE, .from = from, .to = to, .count = count, .type = type, .op = op, .root = root});
}

int ncclReduceScatter(char *from, char *to, size_t count, int type, int op, Comm *comm, void *stream)
{
    return start(comm, &(Work){.stream = stream, .what = REDUCE_SCATTER, .from = from, .to = to, .count = count, .type = type, .op = op});
}

int ncclBroadcast(char *from, char *to, size_t count, int type, int root, Comm *comm, void *stream)
{
    return start(comm, &(Work){.stream = stream, .what = BROADCAST, .from = from, .to = to, .count = count, .type = type, .root = root});
}

int ncclAllGather(char *from, char *to, size_t count, int type, Comm *comm, void *stream)
{
    return start(comm, &(Work){.stream = stream, .what = ALL_GATHER, .from = from, .to = to, .count = count, .type = type});
}
