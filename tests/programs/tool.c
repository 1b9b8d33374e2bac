/* The tool interface before MPI_Init and after MPI_Finalize: settings as control variables, counters as
   performance variables, categories, the source of timestamps, and the errors of each call.
   ranks: 1 3   env: OUTBOARD_EAGER_BYTES_MAX=16KiB OUTBOARD_BARRIER=tree */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

static void strings(void)
{
    char name[4], whole[200];
    int length = 0, full;
    EQUAL(MPI_T_cvar_get_info(0, NULL, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL), MPI_SUCCESS, "no buffer");
    full = length, length = sizeof whole;
    MPI_T_cvar_get_info(0, whole, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    EQUAL(length, full, "the length");
    EQUAL(strlen(whole) + 1, full, "the name's length");
    length = sizeof name;
    MPI_T_cvar_get_info(0, name, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
    CHECK(!strncmp(name, whole, 3) && !name[3], "a name cut to %s", name);
}

static void settings(void)
{
    int index, n, count, bind, scope, kinds = 0;
    MPI_Datatype type;
    MPI_T_enum choices;
    MPI_T_cvar_handle handle;
    MPI_T_cvar_get_num(&n);
    CHECK(n > 10, "only %d control variables", n);
    strings();
    for (int at = 0; at < n; at++) {
        char name[100], text[1000];
        int length = sizeof name, back;
        MPI_T_cvar_get_info(at, name, &length, NULL, &type, &choices, NULL, NULL, &bind, &scope);
        EQUAL(MPI_T_cvar_get_index(name, &back), MPI_SUCCESS, "the search");
        EQUAL(back, at, "the index of a name");
        EQUAL(bind, MPI_T_BIND_NO_OBJECT, "bind");
        EQUAL(MPI_T_cvar_handle_alloc(at, NULL, &handle, &count), MPI_SUCCESS, "a handle");
        if (type == MPI_CHAR) {
            MPI_T_cvar_read(handle, text);
            EQUAL(strlen(text) + 1, count, "the length of a text");
            kinds |= 1;
        } else if (type == MPI_INT) {
            int value, items, same;
            MPI_T_cvar_read(handle, &value);
            length = sizeof name;
            MPI_T_enum_get_info(choices, &items, name, &length);
            CHECK(value >= 0 && value < items, "choice %d of %d", value, items);
            length = sizeof text;
            EQUAL(MPI_T_enum_get_item(choices, value, &same, text, &length), MPI_SUCCESS, "an item");
            EQUAL(same, value, "an item's value");
            EQUAL(MPI_T_enum_get_item(choices, items, &same, text, &length), MPI_T_ERR_INVALID_ITEM, "no item");
            kinds |= 2;
        } else
            kinds |= 4;
        EQUAL(MPI_T_cvar_write(handle, text), MPI_T_ERR_CVAR_SET_NEVER, "a write");
        MPI_T_cvar_handle_free(&handle);
        CHECK(handle == MPI_T_CVAR_HANDLE_NULL, "a freed handle still has a name");
    }
    EQUAL(kinds, 7, "the kinds of values");
    unsigned long long bytes = 0;
    EQUAL(MPI_T_cvar_get_index("eager_bytes_max", &index), MPI_SUCCESS, "the search");
    MPI_T_cvar_handle_alloc(index, NULL, &handle, &count);
    MPI_T_cvar_read(handle, &bytes);
    EQUAL(bytes, 16384, "eager_bytes_max");
    MPI_T_cvar_handle_free(&handle);
    char text[20] = "";
    MPI_T_cvar_get_index("barrier", &index);
    MPI_T_cvar_handle_alloc(index, NULL, &handle, &count);
    MPI_T_cvar_read(handle, text);
    CHECK(!strcmp(text, "tree"), "barrier is %s", text);
    MPI_T_cvar_handle_free(&handle);
    EQUAL(MPI_T_cvar_get_index("nonsense", &index), MPI_T_ERR_INVALID_NAME, "no name");
    EQUAL(MPI_T_cvar_get_info(n, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), MPI_T_ERR_INVALID_INDEX, "no index");
    EQUAL(MPI_T_cvar_read(MPI_T_CVAR_HANDLE_NULL, text), MPI_T_ERR_INVALID_HANDLE, "no handle");
}

static void categories(void)
{
    int n, number, total_c = 0, total_p = 0, cvars, pvars, events;
    MPI_T_category_get_num(&n);
    for (int at = 0; at < n; at++) {
        char name[100];
        int length = sizeof name, c, p, within, back, list[500];
        MPI_T_category_get_info(at, name, &length, NULL, NULL, &c, &p, &within);
        MPI_T_category_get_index(name, &back);
        EQUAL(back, at, "the index of a category");
        MPI_T_category_get_cvars(at, 500, list);
        MPI_T_category_get_pvars(at, 500, list);
        if (p) CHECK(list[0] >= 0, "a member");
        MPI_T_category_get_categories(at, 500, list);
        if (within) CHECK(list[0] > 0 && list[0] < n, "a category within");
        EQUAL(MPI_T_category_get_num_events(at, &events), MPI_SUCCESS, "events");
        EQUAL(events, 0, "events");
        total_c += c, total_p += p;
    }
    MPI_T_cvar_get_num(&cvars);
    MPI_T_pvar_get_num(&pvars);
    EQUAL(total_c, cvars, "control variables in categories");
    EQUAL(total_p, pvars, "performance variables in categories");
    EQUAL(MPI_T_category_changed(&number), MPI_SUCCESS, "changes");
    EQUAL(MPI_T_category_get_index("nonsense", &n), MPI_T_ERR_INVALID_NAME, "no category");
}

static void sources(void)
{
    int n, index;
    MPI_Count first, second, ticks;
    MPI_T_source_get_num(&n);
    EQUAL(n, 1, "sources");
    MPI_T_source_get_info(0, NULL, NULL, NULL, NULL, NULL, &ticks, NULL, NULL);
    EQUAL(ticks, 1000000000, "ticks");
    MPI_T_source_get_timestamp(0, &first);
    MPI_T_source_get_timestamp(0, &second);
    CHECK(first > 0 && second >= first, "the clock went from %lld to %lld", (long long)first, (long long)second);
    EQUAL(MPI_T_source_get_timestamp(1, &first), MPI_T_ERR_INVALID_INDEX, "no source");
    EQUAL(MPI_T_event_get_num(&n), MPI_SUCCESS, "events");
    EQUAL(MPI_T_event_get_index("nonsense", &index), MPI_T_ERR_INVALID_NAME, "no event");
}

static void counters(void)
{
    MPI_T_pvar_session session, other;
    MPI_T_pvar_handle calls, live, foreign;
    int index, count, level;
    unsigned long long value = 77;
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_session_create(&other);
    EQUAL(MPI_T_pvar_get_index("barrier_calls", MPI_T_PVAR_CLASS_TIMER, &index), MPI_T_ERR_INVALID_NAME, "another class");
    EQUAL(MPI_T_pvar_get_index("barrier_calls", MPI_T_PVAR_CLASS_COUNTER, &index), MPI_SUCCESS, "the search");
    EQUAL(MPI_T_pvar_get_index("instances_live", MPI_T_PVAR_CLASS_LEVEL, &level), MPI_SUCCESS, "the search");
    MPI_T_pvar_handle_alloc(session, index, NULL, &calls, &count);
    EQUAL(count, 1, "count");
    MPI_T_pvar_handle_alloc(session, level, NULL, &live, &count);
    MPI_T_pvar_handle_alloc(other, index, NULL, &foreign, &count);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_T_pvar_read(session, calls, &value);
    EQUAL(value, 0, "before the start");
    MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_T_pvar_read(session, calls, &value);
    EQUAL(value, 2, "two barriers");
    MPI_T_pvar_stop(session, calls);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_T_pvar_read(session, calls, &value);
    EQUAL(value, 2, "after the stop");
    MPI_T_pvar_start(session, calls);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_T_pvar_readreset(session, calls, &value);
    EQUAL(value, 3, "after another start");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_T_pvar_read(session, calls, &value);
    EQUAL(value, 1, "after a reset");
    value = 100;
    MPI_T_pvar_write(session, calls, &value);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_T_pvar_read(session, calls, &value);
    EQUAL(value, 101, "after a write");
    MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES);
    MPI_T_pvar_read(session, calls, &value);
    EQUAL(value, 0, "after a reset of all");
    MPI_T_pvar_read(other, foreign, &value);
    EQUAL(value, 0, "in another session, never started");
    EQUAL(MPI_T_pvar_read(session, live, &value), MPI_SUCCESS, "a level");
    EQUAL(MPI_T_pvar_start(session, live), MPI_T_ERR_PVAR_NO_STARTSTOP, "a level's start");
    EQUAL(MPI_T_pvar_reset(session, live), MPI_T_ERR_PVAR_NO_WRITE, "a level's reset");
    EQUAL(MPI_T_pvar_readreset(session, live, &value), MPI_T_ERR_PVAR_NO_ATOMIC, "a level's reset");
    EQUAL(MPI_T_pvar_read(session, MPI_T_PVAR_HANDLE_NULL, &value), MPI_T_ERR_INVALID_HANDLE, "no handle");
    EQUAL(MPI_T_pvar_read(MPI_T_PVAR_SESSION_NULL, calls, &value), MPI_T_ERR_INVALID_SESSION, "no session");
    MPI_T_pvar_handle_free(session, &calls);
    CHECK(calls == MPI_T_PVAR_HANDLE_NULL, "a freed handle still has a name");
    MPI_T_pvar_session_free(&session);
    MPI_T_pvar_session_free(&other);
    CHECK(session == MPI_T_PVAR_SESSION_NULL, "a freed session still has a name");
}

int main(int argc, char **argv)
{
    int n, provided;
    EQUAL(MPI_T_cvar_get_num(&n), MPI_T_ERR_NOT_INITIALIZED, "before the beginning");
    EQUAL(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided), MPI_SUCCESS, "the beginning");
    EQUAL(provided, MPI_THREAD_MULTIPLE, "provided");
    settings();
    begin(&argc, &argv);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    categories();
    sources();
    counters();
    MPI_T_finalize();
    int result = end();
    settings();
    categories();
    EQUAL(MPI_T_finalize(), MPI_SUCCESS, "the end");
    EQUAL(MPI_T_finalize(), MPI_T_ERR_NOT_INITIALIZED, "a second end");
    return result || failed;
}
