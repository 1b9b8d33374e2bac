/* Below MPI_THREAD_MULTIPLE: functions that are always thread-safe beside a main thread that waits, two
   sessions with a thread each, and a session at MPI_THREAD_MULTIPLE that begins while another thread waits.
   ranks: 2 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <pthread.h>

enum { ROUNDS = 200 };
static volatile int stop;
static pthread_barrier_t gate;

/* Calls that any thread may make at any time (MPI 5.0, section 11.4.1). */
static void *anytime(void *none)
{
    int flag, class, length, code;
    char text[MPI_MAX_ERROR_STRING];
    do {
        MPI_Info info, copy;
        MPI_Info_create(&info);
        MPI_Info_set(info, "key", "value");
        MPI_Info_dup(info, &copy);
        MPI_Info_get_nkeys(copy, &length);
        MPI_Info_free(&info), MPI_Info_free(&copy);
        MPI_Error_class(MPI_ERR_RANK, &class);
        MPI_Error_string(MPI_ERR_RANK, text, &length);
        MPI_Add_error_code(MPI_ERR_OTHER, &code);
        MPI_Add_error_string(code, "of a thread");
        MPI_Initialized(&flag), MPI_Finalized(&flag);
    } while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE));
    return none;
}

static MPI_Session session_at(const char *level)
{
    MPI_Session session;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "thread_level", level);
    MPI_Session_init(info, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Info_free(&info);
    return session;
}

/* A token goes to and fro, and infos and error codes are made meanwhile. Returns how many were wrong. */
static long play(MPI_Comm comm, int rounds)
{
    long wrong = 0;
    int me;
    MPI_Comm_rank(comm, &me);
    for (int i = 0; i < rounds; i++) {
        int token = i, got = -1;
        MPI_Info info;
        if (me == 0) MPI_Send(&token, 1, MPI_INT, 1, 0, comm);
        MPI_Recv(&got, 1, MPI_INT, !me, 0, comm, MPI_STATUS_IGNORE);
        if (me == 1) MPI_Send(&got, 1, MPI_INT, 0, 0, comm);
        wrong += got != i;
        MPI_Info_create(&info);
        MPI_Comm_set_info(comm, info);
        MPI_Info_free(&info);
    }
    return wrong;
}

/* Exchanges messages on a comm of a session of its own, whose name is its level and a tag. */
static void *in_a_session(void *level)
{
    MPI_Session session = session_at(level);
    MPI_Group group;
    MPI_Comm comm;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, level, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    long wrong = play(comm, ROUNDS);
    pthread_barrier_wait(&gate);
    MPI_Comm_free(&comm);
    MPI_Session_finalize(&session);
    return (void *)wrong;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    void *wrong;
    int provided;
    pthread_barrier_init(&gate, NULL, 2);
    pthread_create(&thread, NULL, in_a_session, "MPI_THREAD_FUNNELED");
    CHECK(in_a_session("MPI_THREAD_SERIALIZED") == NULL, "a token of the first session is wrong");
    pthread_join(thread, &wrong);
    CHECK(wrong == NULL, "a token of the second session is wrong");

    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    EQUAL(provided, MPI_THREAD_FUNNELED, "the level");
    pthread_create(&thread, NULL, anytime, NULL);
    EQUAL(play(MPI_COMM_WORLD, ROUNDS), 0, "wrong tokens beside infos");
    __atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);

    pthread_create(&thread, NULL, in_a_session, "MPI_THREAD_MULTIPLE");
    EQUAL(play(MPI_COMM_WORLD, ROUNDS), 0, "wrong tokens beside a session that begins");
    pthread_barrier_wait(&gate);
    pthread_join(thread, &wrong);
    CHECK(wrong == NULL, "a token of the third session is wrong");
    return end();
}
