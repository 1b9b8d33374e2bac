/* What generated programs share: the objects, data made from numbers, and results that are seen. It stands before every program that
   `run` prints; there `note` prints a result, here (differential.c) it goes into the hash of the operation under way. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANKS_MAX = 8, OPS_MAX = 160, COMMS_MAX = 96, WINS_MAX = 8, REQUESTS = 16 };
static int rank, size;
/* Comms are numbered by the operations that make them. Groups, types and the other objects live only within
   one step. */
static MPI_Comm comm[COMMS_MAX], several[2], quiet; /* `quiet` is for what is no part of the test */
static MPI_Win win[WINS_MAX];
static MPI_Request request[OPS_MAX][REQUESTS];
static MPI_Status done[OPS_MAX][REQUESTS], status[8];
static MPI_Group group[16];
static MPI_Datatype type[64];
static MPI_Message message[4];
static MPI_Info info[4];
static MPI_Session session[16];
static MPI_Errhandler errhandler[2];
static MPI_Op operator[2];
static int out[64], keyval[4];
static long wide[16];
static void *address[8];

static void note(const char *what, uint64_t number);

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a * 0xd6e8feb86659fd93ull ^ (b + 0x9e3779b97f4a7c15ull)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* Fills memory with arbitrary bytes. */
static inline void fill(void *data, long bytes, long key)
{
    for (long i = 0; i < bytes; i += 8) {
        uint64_t word = mix((uint64_t) key, (uint64_t) i);
        memcpy((char *) data + i, &word, bytes - i < 8 ? (size_t) (bytes - i) : 8);
    }
}

/* Fills memory with numbers that can be summed and multiplied in any order without rounding or overflow. */
#define NUMBERS(name, ctype, most) \
    static inline void name(ctype *data, long count, long key) \
    { \
        for (long i = 0; i < count; i++) data[i] = (ctype) (1 + mix((uint64_t) key, (uint64_t) i) % (most)); \
    }
NUMBERS(fill_chars, signed char, 2)
NUMBERS(fill_shorts, short, 6)
NUMBERS(fill_ints, int, 50)
NUMBERS(fill_longs, long, 1000)
NUMBERS(fill_unsigneds, unsigned, 50)
NUMBERS(fill_floats, float, 20)
NUMBERS(fill_doubles, double, 1000)

static inline void see(const char *what, const void *data, long bytes)
{
    uint64_t sum = (uint64_t) bytes, word;
    for (long i = 0; i < bytes; i += 8) {
        word = 0;
        memcpy(&word, (const char *) data + i, bytes - i < 8 ? (size_t) (bytes - i) : 8);
        sum = mix(sum, word);
    }
    note(what, sum);
}

static inline void see_number(const char *what, long number) { note(what, (uint64_t) number); }

static inline void see_status(MPI_Status *one, MPI_Datatype of)
{
    int count, elements;
    MPI_Get_count(one, of, &count);
    MPI_Get_elements(one, of, &elements);
    note("source", (uint64_t) one->MPI_SOURCE);
    note("tag", (uint64_t) one->MPI_TAG);
    note("count", (uint64_t) count);
    note("elements", (uint64_t) elements);
}

/* Notes the class of an error that was expected. */
static inline void see_error(int code)
{
    int class = -1;
    MPI_Error_class(code, &class);
    note("error class", (uint64_t) class);
}

/* Notes the ranks in MPI_COMM_WORLD of a group's members, unless the group is a session's: objects of different sessions never
   meet. */
static inline void see_group(MPI_Group of, int world)
{
    int count = -1, mine = -1;
    MPI_Group all;
    MPI_Group_size(of, &count), MPI_Group_rank(of, &mine);
    note("group size", (uint64_t) count), note("group rank", (uint64_t) mine);
    if (!world) return;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    for (int i = 0; i < count; i++) {
        int there = -7;
        MPI_Group_translate_ranks(of, 1, &i, all, &there);
        note("member", (uint64_t) there);
    }
    MPI_Group_free(&all);
}

static inline void see_comm(MPI_Comm of, int world)
{
    MPI_Group members;
    int inter = 0;
    if (of == MPI_COMM_NULL) {
        note("no comm", 0);
        return;
    }
    MPI_Comm_test_inter(of, &inter), note("inter", (uint64_t) inter);
    MPI_Comm_group(of, &members), see_group(members, world), MPI_Group_free(&members);
    if (inter) MPI_Comm_remote_group(of, &members), see_group(members, world), MPI_Group_free(&members);
}

/* An operator that does not commute: each triple of ints is a map x -> a x + b and a last number that is
   summed. */
static inline void compose(void *in, void *inout, int *count, MPI_Datatype *of)
{
    unsigned *left = in, *right = inout;
    (void) of;
    for (int i = 0; i < *count; i++, left += 3, right += 3) {
        right[1] = left[1] * right[0] + right[1];
        right[0] = left[0] * right[0];
        right[2] += left[2];
    }
}

static int copies, deletions;
static inline int copied(MPI_Comm from, int key, void *extra, void *value, void *to, int *flag)
{
    (void) from, (void) key;
    copies++;
    *(void **) to = (char *) value + (intptr_t) extra;
    *flag = (intptr_t) value % 5 != 0;
    return MPI_SUCCESS;
}
static inline int deleted(MPI_Comm from, int key, void *value, void *extra)
{
    (void) from, (void) key, (void) extra;
    deletions += (int) (intptr_t) value;
    return MPI_SUCCESS;
}
static int handled;
static inline void handler(MPI_Comm *of, int *code, ...)
{
    int class = -1;
    (void) of;
    MPI_Error_class(*code, &class);
    handled += class;
}

/* Ways to wait for the requests of one operation. A null request has left its status before (`wait_together`). */
static inline void wait_each(int op, int count)
{
    for (int i = 0; i < count; i++)
        if (request[op][i] != MPI_REQUEST_NULL) MPI_Wait(&request[op][i], &done[op][i]);
}
static inline void wait_backwards(int op, int count)
{
    while (count-- > 0)
        if (request[op][count] != MPI_REQUEST_NULL) MPI_Wait(&request[op][count], &done[op][count]);
}
static inline void leave(int op, int count, const MPI_Request *before, const MPI_Status *all)
{
    for (int i = 0; i < count; i++)
        if (before[i] != MPI_REQUEST_NULL) done[op][i] = all[i];
}
static inline void wait_all(int op, int count)
{
    MPI_Request before[REQUESTS];
    MPI_Status all[REQUESTS];
    memcpy(before, request[op], sizeof before);
    MPI_Waitall(count, request[op], all);
    leave(op, count, before, all);
}
static inline void test_all(int op, int count)
{
    MPI_Request before[REQUESTS];
    MPI_Status all[REQUESTS];
    memcpy(before, request[op], sizeof before);
    for (int flag = 0; !flag;) MPI_Testall(count, request[op], &flag, all);
    leave(op, count, before, all);
}
static inline void test_each(int op, int count)
{
    for (int i = 0; i < count; i++)
        for (int flag = request[op][i] == MPI_REQUEST_NULL; !flag;) MPI_Test(&request[op][i], &flag, &done[op][i]);
}
static inline void look_each(int op, int count)
{
    MPI_Status seen;
    for (int i = 0; i < count; i++)
        for (int flag = request[op][i] == MPI_REQUEST_NULL; !flag;) MPI_Request_get_status(request[op][i], &flag, &seen);
    wait_each(op, count);
}
static inline void wait_any(int op, int count)
{
    for (int index = 0;;) {
        MPI_Status one;
        MPI_Waitany(count, request[op], &index, &one);
        if (index == MPI_UNDEFINED) return;
        done[op][index] = one;
    }
}
static inline void test_any(int op, int count)
{
    for (int index = 0, flag;;) {
        MPI_Status one;
        MPI_Testany(count, request[op], &index, &flag, &one);
        if (flag && index == MPI_UNDEFINED) return;
        if (flag) done[op][index] = one;
    }
}
static inline void wait_some(int op, int count)
{
    for (int many, index[REQUESTS];;) {
        MPI_Status some[REQUESTS];
        MPI_Waitsome(count, request[op], &many, index, some);
        if (many == MPI_UNDEFINED) return;
        for (int i = 0; i < many; i++) done[op][index[i]] = some[i];
    }
}
static inline void test_some(int op, int count)
{
    for (int many, index[REQUESTS];;) {
        MPI_Status some[REQUESTS];
        MPI_Testsome(count, request[op], &many, index, some);
        if (many == MPI_UNDEFINED) return;
        for (int i = 0; i < many; i++) done[op][index[i]] = some[i];
    }
}
/* Waits for the requests of the first of these operations among those of all. Requests of the others may complete, too.
   */
static inline void wait_together(int many, const int *op, const int *count)
{
    MPI_Request all[256];
    MPI_Status some[256];
    int from[256][2], index[256], total = 0, left = 0, ended;
    for (int i = 0; i < many; i++)
        for (int k = 0; k < count[i] && total < 256; k++)
            if (request[op[i]][k] != MPI_REQUEST_NULL) from[total][0] = op[i], from[total][1] = k, left += i == 0, all[total++] = request[op[i]][k];
    while (left) {
        MPI_Waitsome(total, all, &ended, index, some);
        for (int i = 0; i < ended; i++) {
            int *where = from[index[i]];
            done[where[0]][where[1]] = some[i], request[where[0]][where[1]] = all[index[i]];
            left -= where[0] == op[0];
        }
    }
}

/* Receives `many` messages from any source: their sum does not depend on their order. */
static inline void gather_any(MPI_Comm on, int many, int tag, int way, int bytes)
{
    uint64_t sum = 0, all = 0;
    MPI_Status one;
    MPI_Message matched;
    MPI_Request *requests = malloc((size_t) many * sizeof *requests);
    char *data = calloc((size_t) many + 1, (size_t) bytes);
    for (int i = 0; i < many; i++) {
        char *at = data + (size_t) i * (size_t) bytes;
        if (way == 0) MPI_Irecv(at, bytes, MPI_BYTE, MPI_ANY_SOURCE, tag, on, &requests[i]);
        else if (way == 1) MPI_Recv(at, bytes, MPI_BYTE, MPI_ANY_SOURCE, tag, on, &one);
        else if (way == 2) MPI_Probe(MPI_ANY_SOURCE, tag, on, &one), MPI_Recv(at, bytes, MPI_BYTE, one.MPI_SOURCE, one.MPI_TAG, on, &one);
        else MPI_Mprobe(MPI_ANY_SOURCE, tag, on, &matched, &one), MPI_Mrecv(at, bytes, MPI_BYTE, &matched, &one);
        if (way == 0) continue;
        for (int k = 0; k < bytes; k++) all = mix(all, (uint64_t) at[k]);
        sum += mix(mix((uint64_t) one.MPI_SOURCE, (uint64_t) one.MPI_TAG), all), all = 0;
    }
    for (int i = 0; way == 0 && i < many; i++) {
        int index;
        MPI_Waitany(many, requests, &index, &one);
        char *at = data + (size_t) index * (size_t) bytes;
        for (int k = 0; k < bytes; k++) all = mix(all, (uint64_t) at[k]);
        sum += mix(mix((uint64_t) one.MPI_SOURCE, (uint64_t) one.MPI_TAG), all), all = 0;
    }
    free(requests), free(data);
    note("gathered", sum);
}

/* Attaches a buffer for buffered sends, which stays as long as the program runs. */
static inline void attach(int bytes) { MPI_Buffer_attach(malloc((size_t) bytes), bytes); }
static inline void detach(int bytes)
{
    void *data;
    MPI_Buffer_detach(&data, &bytes), free(data);
}

/* A window's memory. For a dynamic window it lies at one address in all processes, so that a printed program can name it. */
#define FIXED(w) ((char *) 0x200000000000 + ((long) (w) << 20))
static inline void fixed_memory(int w, long bytes)
{
    address[w] = mmap(FIXED(w), (size_t) bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
static inline void fill_window(int w, long bytes, long key) { fill(address[w], bytes, key); }
static inline void see_window(int w, long bytes) { see("window", address[w], bytes); }

static inline void see_attribute(const int *found)
{
    note("attribute found", (uint64_t) *found);
    if (*found) note("attribute", (uint64_t) (uintptr_t) address[7]);
}
/* Notes how often callbacks have run since the previous call. */
static inline void see_counts(int errors)
{
    if (errors) note("errors handled", (uint64_t) handled);
    else note("copies", (uint64_t) copies), note("deletions", (uint64_t) deletions);
    if (errors) handled = 0;
    else copies = deletions = 0;
}
static inline void see_info(int which)
{
    int keys = -1, flag, length;
    char key[MPI_MAX_INFO_KEY + 1], value[64];
    MPI_Info_get_nkeys(info[which], &keys), note("keys", (uint64_t) keys);
    for (int i = 0; i < keys; i++) {
        length = sizeof value;
        MPI_Info_get_nthkey(info[which], i, key), see("key", key, (long) strlen(key));
        MPI_Info_get_string(info[which], key, &length, value, &flag), see("value", value, (long) strlen(value));
    }
}
static inline void see_name(MPI_Comm of)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length = 0;
    MPI_Comm_get_name(of, name, &length), see("name", name, length);
}
static inline void start_at(int which) { out[which] = 0; }
static inline void delay(int us) { usleep((useconds_t) us); }
