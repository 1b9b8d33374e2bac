/* Windows as objects: attributes, keyvals, names, hints, groups, error handlers, shared memory, attached
   memory, and their errors.
   ways: plain no-cma */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

#define CLASS(call, expected) \
    do { \
        int class_ = MPI_SUCCESS, code_ = (call); \
        MPI_Error_class(code_, &class_); \
        EQUAL(class_, expected, #call); \
    } while (0)

static void attributes(MPI_Win win, void *base, MPI_Aint bytes, int unit, int flavor)
{
    void *value;
    int flag;
    MPI_Win_get_attr(win, MPI_WIN_BASE, &value, &flag);
    CHECK(flag && value == base, "MPI_WIN_BASE is %p, not %p", value, base);
    MPI_Win_get_attr(win, MPI_WIN_SIZE, &value, &flag);
    EQUAL(*(MPI_Aint *)value, bytes, "MPI_WIN_SIZE");
    MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &value, &flag);
    EQUAL(*(int *)value, unit, "MPI_WIN_DISP_UNIT");
    MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &value, &flag);
    EQUAL(*(int *)value, flavor, "MPI_WIN_CREATE_FLAVOR");
    MPI_Win_get_attr(win, MPI_WIN_MODEL, &value, &flag);
    EQUAL(*(int *)value, MPI_WIN_UNIFIED, "MPI_WIN_MODEL");
}

static int deleted;
static int on_delete(MPI_Win win, int keyval, void *value, void *extra)
{
    (void)win, (void)keyval;
    deleted += *(int *)value + *(int *)extra;
    return MPI_SUCCESS;
}

static int handled;
static MPI_Win handled_win;
static void on_error(MPI_Win *win, int *code, ...)
{
    handled_win = *win;
    MPI_Error_class(*code, &handled);
}

static void objects(void)
{
    char name[MPI_MAX_OBJECT_NAME], text[64], *base;
    int length, flag, keyval, value = 3, extra = 4, relation, class;
    void *found;
    MPI_Win win;
    MPI_Group group, world;
    MPI_Info info;
    MPI_Errhandler handler, other;
    MPI_Info_create(&info);
    MPI_Info_set(info, "same_size", "true");
    MPI_Win_allocate(100, 4, info, MPI_COMM_WORLD, &base, &win);
    MPI_Info_free(&info);
    attributes(win, base, 100, 4, MPI_WIN_FLAVOR_ALLOCATE);
    MPI_Win_get_name(win, name, &length);
    EQUAL(length, 0, "the length of a new window's name");
    MPI_Win_set_name(win, "counters");
    MPI_Win_get_name(win, name, &length);
    CHECK(!strcmp(name, "counters"), "the name is %s", name);
    MPI_Win_get_info(win, &info);
    MPI_Info_get(info, "same_size", 63, text, &flag);
    CHECK(flag && !strcmp(text, "true"), "the hint is lost");
    MPI_Info_get(info, "accumulate_ordering", 63, text, &flag);
    CHECK(flag && !strcmp(text, "rar,raw,war,waw"), "the default ordering is lost");
    MPI_Info_free(&info);
    MPI_Win_get_group(win, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_compare(group, world, &relation);
    EQUAL(relation, MPI_IDENT, "the window's group");
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, on_delete, &keyval, &extra);
    MPI_Win_set_attr(win, keyval, &value);
    MPI_Win_get_attr(win, keyval, &found, &flag);
    CHECK(flag && found == &value, "the attribute is lost");
    MPI_Win_delete_attr(win, keyval);
    EQUAL(deleted, 7, "deletions");
    MPI_Win_set_attr(win, keyval, &value);
    MPI_Win_free_keyval(&keyval);

    MPI_Win_get_errhandler(win, &handler);
    CHECK(handler == MPI_ERRORS_ARE_FATAL, "a new window's error handler");
    MPI_Win_create_errhandler(on_error, &handler);
    MPI_Win_set_errhandler(win, handler);
    MPI_Win_get_errhandler(win, &other);
    CHECK(handler == other, "the error handler is another");
    MPI_Errhandler_free(&other);
    MPI_Errhandler_free(&handler);
    MPI_Win_call_errhandler(win, MPI_ERR_ARG);
    EQUAL(handled, MPI_ERR_ARG, "the class that the handler was called with");
    MPI_Error_class(MPI_Put(base, 1, MPI_INT, 0, 0, 1, MPI_INT, win), &class);
    EQUAL(class, MPI_ERR_RMA_SYNC, "an operation outside an epoch");
    EQUAL(handled, MPI_ERR_RMA_SYNC, "the class that the handler was called with");
    CHECK(handled_win == win, "the handler was called for another window");
    MPI_Win_free(&win);
    CHECK(win == MPI_WIN_NULL, "a freed window is not null");
    EQUAL(deleted, 14, "deletions");
}

/* Each rank r of a host has r numbers, one rank's after the other's, unless the memory is not contiguous. */
static void shared(int contiguous)
{
    int rank, size, world_size;
    MPI_Comm host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_size(host, &size);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    long *mine, *theirs, *lowest;
    MPI_Aint bytes;
    int unit;
    MPI_Win win;
    MPI_Info info;
    MPI_Info_create(&info);
    if (!contiguous) MPI_Info_set(info, "alloc_shared_noncontig", "true");
    MPI_Win_allocate_shared(rank * 8, 8, info, host, &mine, &win);
    MPI_Info_free(&info);
    attributes(win, mine, rank * 8, 8, MPI_WIN_FLAVOR_SHARED);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    for (int i = 0; i < rank; i++) mine[i] = rank * 100 + i;
    MPI_Win_sync(win);
    MPI_Barrier(host);
    MPI_Win_sync(win);
    long *end = NULL;
    for (int r = 0; r < size; r++) {
        MPI_Win_shared_query(win, r, &bytes, &unit, &theirs);
        EQUAL(bytes, r * 8, "the size of a shared segment");
        EQUAL(unit, 8, "the displacement unit of a shared segment");
        for (int i = 0; i < r; i++) EQUAL(theirs[i], r * 100 + i, "what a neighbor stored");
        if (contiguous && r > 1) CHECK(theirs == end, "segment %d begins at %p, not %p", r, (void *)theirs, (void *)end);
        CHECK(r > 0 || theirs == NULL, "an empty segment is at %p", (void *)theirs);
        end = theirs + r;
    }
    MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &lowest);
    EQUAL(bytes, size > 1 ? 8 : 0, "the size of the first segment that is not empty");
    if (size > 1) EQUAL(lowest[0], 100, "the first segment that is not empty");
    MPI_Barrier(host);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (size < world_size) CLASS(MPI_Win_allocate_shared(8, 8, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win), MPI_ERR_RMA_SHARED);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_free(&host);
}

/* The lowest rank with memory is shown, or no memory where that rank is on another host (MPI 5.0, section 12.2.3). */
static void lowest(void)
{
    char *mine, *seen;
    MPI_Aint bytes;
    int unit;
    MPI_Win win;
    MPI_Win_allocate(10 * rank, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &win);
    MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &seen);
    CHECK(bytes == 0 || bytes == 10, "the memory of rank 1 has %ld bytes", (long)bytes);
    MPI_Win_free(&win);
}

/* The error code of an operation. For a target on another host the flush returns it. */
static int told(int code, int target, MPI_Win win)
{
    return code == MPI_SUCCESS ? MPI_Win_flush(target, win) : code;
}

/* Memory is attached while other ranks access it, in many regions, and one datatype covers several of them.
   */
static void attached(void)
{
    enum { REGIONS = 40 };
    MPI_Win win;
    MPI_Aint mine[REGIONS], *all = malloc(size * REGIONS * sizeof(MPI_Aint));
    int *parts[REGIONS], next = (rank + 1) % size, values[REGIONS], lengths[REGIONS], back[REGIONS];
    char *room = malloc(8256), *both = room + 4096; /* nothing attached is near */
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    attributes(win, MPI_BOTTOM, 0, 1, MPI_WIN_FLAVOR_DYNAMIC);
    for (int i = 0; i < REGIONS; i++) {
        if (i % 2) MPI_Alloc_mem(8, MPI_INFO_NULL, &parts[i]);
        else parts[i] = malloc(8);
        parts[i][0] = -1;
        EQUAL(MPI_Win_attach(win, parts[i], 8), MPI_SUCCESS, "attach");
        MPI_Get_address(parts[i], &mine[i]);
        values[i] = rank * 1000 + i;
        lengths[i] = 1;
    }
    CLASS(MPI_Win_attach(win, (char *)parts[3] + 4, 2), MPI_ERR_RMA_ATTACH);
    MPI_Allgather(mine, REGIONS, MPI_AINT, all, REGIONS, MPI_AINT, MPI_COMM_WORLD);
    MPI_Datatype spread;
    MPI_Type_create_hindexed(REGIONS, lengths, all + next * REGIONS, MPI_INT, &spread);
    MPI_Type_commit(&spread);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, next, 0, win);
    EQUAL(MPI_Put(values, REGIONS, MPI_INT, next, 0, 1, spread, win), MPI_SUCCESS, "a put to many regions");
    EQUAL(MPI_Accumulate(values, REGIONS, MPI_INT, next, 0, 1, spread, MPI_SUM, win), MPI_SUCCESS, "a sum in many regions");
    EQUAL(MPI_Get(back, REGIONS, MPI_INT, next, 0, 1, spread, win), MPI_SUCCESS, "a get from many regions");
    MPI_Win_unlock(next, win);
    for (int i = 0; i < REGIONS; i++) EQUAL(back[i], 2 * values[i], "what came back");
    MPI_Barrier(MPI_COMM_WORLD);
    int last = (rank + size - 1) % size;
    for (int i = 0; i < REGIONS; i++) EQUAL(parts[i][0], 2 * (last * 1000 + i), "what was put");
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win);
    CLASS(told(MPI_Put(values, 3, MPI_INT, next, all[next * REGIONS], 3, MPI_INT, win), next, win), MPI_ERR_RMA_RANGE);
    CLASS(told(MPI_Get(values, 1, MPI_INT, next, 8, 1, MPI_INT, win), next, win), MPI_ERR_RMA_RANGE);
    MPI_Win_unlock(next, win);
    MPI_Barrier(MPI_COMM_WORLD);
    /* Detached memory is not accessible, even to ranks that have accessed it. */
    EQUAL(MPI_Win_detach(win, parts[0]), MPI_SUCCESS, "detach");
    CLASS(MPI_Win_detach(win, parts[0]), MPI_ERR_RMA_ATTACH);
    /* Two regions that touch each other. */
    MPI_Win_attach(win, both, 32);
    MPI_Win_attach(win, both + 32, 32);
    MPI_Aint place;
    MPI_Get_address(both, &place);
    MPI_Allgather(&place, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    CLASS(told(MPI_Put(values, 1, MPI_INT, next, all[next] - 64, 1, MPI_INT, win), next, win), MPI_ERR_RMA_RANGE);
    EQUAL(MPI_Put(values, 10, MPI_INT, next, all[next], 10, MPI_INT, win), MPI_SUCCESS, "a put over two regions");
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    EQUAL(((int *)both)[9], last * 1000 + 9, "the end of a put over two regions");
    MPI_Type_free(&spread);
    MPI_Win_free(&win);
    for (int i = 0; i < REGIONS; i++) {
        if (i % 2) MPI_Free_mem(parts[i]);
        else free(parts[i]);
    }
    free(room);
    free(all);
}

static void errors(void)
{
    int *base, value = 0, flag, keyval;
    double number = 0, old;
    MPI_Win win, none = MPI_WIN_NULL;
    MPI_Datatype mixed;
    MPI_Request request;
    MPI_Group group;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    CLASS(MPI_Win_create(&value, -1, 1, MPI_INFO_NULL, comm, &win), MPI_ERR_SIZE);
    CLASS(MPI_Win_create(&value, 4, 0, MPI_INFO_NULL, comm, &win), MPI_ERR_DISP);
    CLASS(MPI_Win_create(NULL, 4, 1, MPI_INFO_NULL, comm, &win), MPI_ERR_BASE);
    /* Only rank 0 passes a wrong argument, and all ranks get an error. */
    CLASS(MPI_Win_create(&value, rank == 0 ? -1 : 4, 1, MPI_INFO_NULL, comm, &win), rank == 0 ? MPI_ERR_SIZE : MPI_ERR_OTHER);
    CLASS(MPI_Win_fence(0, none), MPI_ERR_WIN);
    MPI_Win_allocate(16, 4, MPI_INFO_NULL, comm, &base, &win);
    MPI_Comm_free(&comm);
    memset(base, 0, 16);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    CLASS(MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_complete(win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_wait(win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_test(win, &flag), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_unlock(0, win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_unlock_all(win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_flush(0, win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_flush_local_all(win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_lock(12345, 0, 0, win), MPI_ERR_LOCKTYPE);
    CLASS(MPI_Win_lock(MPI_LOCK_SHARED, size, 0, win), MPI_ERR_RANK);
    CLASS(MPI_Win_lock(MPI_LOCK_SHARED, 0, 1 << 30, win), MPI_ERR_ASSERT);
    CLASS(MPI_Win_fence(1 << 30, win), MPI_ERR_ASSERT);
    CLASS(MPI_Win_attach(win, &value, 4), MPI_ERR_RMA_FLAVOR);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    CLASS(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_lock_all(0, win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_fence(0, win), MPI_ERR_RMA_SYNC);
    MPI_Win win_copy = win;
    /* The window's own handler is called. */
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    CLASS(MPI_Win_free(&win_copy), MPI_ERR_RMA_SYNC);
    CHECK(win_copy == win, "a window that was not freed has no handle");
    if (size > 1) CLASS(MPI_Put(&value, 1, MPI_INT, 1, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Put(&value, 1, MPI_INT, size, 0, 1, MPI_INT, win), MPI_ERR_RANK);
    CLASS(MPI_Put(&value, 1, MPI_INT, 0, 4, 1, MPI_INT, win), MPI_ERR_RMA_RANGE);
    CLASS(MPI_Get(&value, 1, MPI_INT, 0, -1, 1, MPI_INT, win), MPI_ERR_RMA_RANGE);
    CLASS(MPI_Get(&value, 1, MPI_INT, 0, (MPI_Aint)1 << 62, 1, MPI_INT, win), MPI_ERR_RMA_RANGE);
    CLASS(MPI_Put(&value, 1, MPI_INT, 0, 0, 0, MPI_INT, win), MPI_ERR_TRUNCATE);
    CLASS(MPI_Get(&value, 1, MPI_INT, 0, 0, 2, MPI_INT, win), MPI_ERR_TRUNCATE);
    CLASS(MPI_Put(&value, -1, MPI_INT, 0, 0, 1, MPI_INT, win), MPI_ERR_COUNT);
    CLASS(MPI_Put(NULL, 1, MPI_INT, 0, 0, 1, MPI_INT, win), MPI_ERR_BUFFER);
    CLASS(MPI_Put(&value, 1, MPI_DATATYPE_NULL, 0, 0, 1, MPI_INT, win), MPI_ERR_TYPE);
    CLASS(MPI_Accumulate(&value, 1, MPI_INT, 0, 0, 1, MPI_FLOAT, MPI_SUM, win), MPI_ERR_TYPE);
    CLASS(MPI_Accumulate(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_MAXLOC, win), MPI_ERR_OP);
    CLASS(MPI_Accumulate(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_NO_OP, win), MPI_ERR_OP);
    CLASS(MPI_Fetch_and_op(&number, &old, MPI_DOUBLE, 0, 0, MPI_BAND, win), MPI_ERR_OP);
    CLASS(MPI_Compare_and_swap(&number, &number, &old, MPI_DOUBLE, 0, 0, win), MPI_ERR_TYPE);
    MPI_Aint offsets[2] = {0, 8};
    int lengths[2] = {1, 1};
    MPI_Datatype parts[2] = {MPI_INT, MPI_DOUBLE};
    MPI_Type_create_struct(2, lengths, offsets, parts, &mixed);
    CLASS(MPI_Put(&number, 1, mixed, 0, 0, 1, mixed, win), MPI_ERR_TYPE);
    MPI_Type_commit(&mixed);
    CLASS(MPI_Accumulate(base, 1, mixed, 0, 0, 1, mixed, MPI_SUM, win), MPI_ERR_TYPE);
    MPI_Type_free(&mixed);
    MPI_Win_unlock(0, win);
    MPI_Win_fence(0, win);
    CLASS(MPI_Rput(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win, &request), MPI_ERR_RMA_SYNC);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    CLASS(MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
    MPI_Win_get_group(win, &group);
    MPI_Win_post(group, 0, win);
    CLASS(MPI_Win_post(group, 0, win), MPI_ERR_RMA_SYNC);
    CLASS(MPI_Win_fence(0, win), MPI_ERR_RMA_SYNC);
    MPI_Win_start(group, 0, win);
    CLASS(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win), MPI_ERR_RMA_SYNC);
    MPI_Win_complete(win);
    MPI_Win_wait(win);
    MPI_Group_free(&group);
    EQUAL(base[0], 0, "memory that no right operation reached");
    keyval = MPI_WIN_BASE;
    CLASS(MPI_Win_set_attr(win, keyval, base), MPI_ERR_KEYVAL);
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    objects();
    shared(1);
    shared(0);
    lowest();
    attached();
    errors();
    return end();
}
