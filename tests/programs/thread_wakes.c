/* A thread that sleeps in a wait is woken by what another thread of its process does, before its sleep times
   out.
   ranks: 1 2   ways: plain   env: OUTBOARD_SPIN_US=0 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include <pthread.h>
#include <unistd.h>

enum { ROUNDS = 40 };

/* Sleeps in receives of messages from its own process. */
static void *receiver(void *comm)
{
    long sum = 0;
    for (int i = 0, got; i < ROUNDS; i++) {
        MPI_Recv(&got, 1, MPI_INT, 0, 0, *(MPI_Comm *)comm, MPI_STATUS_IGNORE);
        sum += got;
    }
    return (void *)sum;
}

int main(int argc, char **argv)
{
    int provided, index = -1, count;
    unsigned long long before, after;
    pthread_t thread;
    void *sum;
    MPI_T_pvar_session session;
    MPI_T_pvar_handle rung;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided);
    MPI_T_pvar_get_index("bells_rung", MPI_T_PVAR_CLASS_COUNTER, &index);
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_handle_alloc(session, index, NULL, &rung, &count);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_SELF, &comm);
    MPI_T_pvar_start(session, rung);
    MPI_T_pvar_read(session, rung, &before);
    pthread_create(&thread, NULL, receiver, &comm);
    for (int i = 0; i < ROUNDS; i++) {
        usleep(3000);
        MPI_Send(&i, 1, MPI_INT, 0, 0, comm);
    }
    pthread_join(thread, &sum);
    MPI_T_pvar_read(session, rung, &after);
    EQUAL((long)sum, ROUNDS * (ROUNDS - 1) / 2, "the sum of the messages");
    /* The thread may happen to be awake, but hardly ever. */
    CHECK(after - before >= ROUNDS / 4, "%d sleeping receives were rung %llu times", ROUNDS, after - before);
    MPI_Comm_free(&comm);
    MPI_T_pvar_handle_free(session, &rung);
    MPI_T_pvar_session_free(&session);
    MPI_T_finalize();
    return end();
}
