/* SPDX-License-Identifier: BSD-3-Clause */
/* The edges of the specification: what is nothing, what comes several times, and what nobody destroys. */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "PE %d: %s:%d: %s\n", me, __FILE__, __LINE__, #what); exit(1); } } while (0)

static int me, n, next, before;
static long words[8];

/* OpenSHMEM is initialised several times, ends with the last finalize, and begins again. */
static void several_times(void) {
    int is = -1, level = -1;
    shmem_query_initialized(&is);
    CHECK(is == 0);
    shmem_init();
    CHECK(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &level) == 0 && level == SHMEM_THREAD_SINGLE);
    me = shmem_my_pe(), n = shmem_n_pes(), next = (me + 1) % n, before = (me + n - 1) % n;
    long *kept = shmem_malloc(sizeof *kept);
    shmem_long_p(kept, me + 5, next);
    shmem_finalize();
    shmem_query_initialized(&is);
    CHECK(is == 1 && *kept == before + 5);
    /* Teams and contexts that the program does not destroy end with OpenSHMEM. */
    shmem_team_t team;
    shmem_ctx_t ctx;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, n, NULL, 0, &team) == 0 && shmem_team_create_ctx(team, 0, &ctx) == 0);
    shmem_finalize();
    shmem_query_initialized(&is);
    CHECK(is == 0);
}

/* A call that has nothing to do is no barrier: one PE may make it alone. */
static void nothing(void) {
    if (me == 0) {
        shmem_free(NULL);
        CHECK(shmem_malloc(0) == NULL && shmem_calloc(0, 8) == NULL && shmem_realloc(NULL, 0) == NULL && shmem_align(64, 0) == NULL);
        shmem_putmem(NULL, NULL, 0, next), shmem_getmem(NULL, NULL, 0, next), shmem_putmem_nbi(NULL, NULL, 0, next);
        shmem_long_iput(NULL, NULL, 1, 1, 0, next), shmem_long_ibget(NULL, NULL, 1, 1, 4, 0, next), shmem_long_ibput(NULL, NULL, 4, 4, 0, 4, next);
        shmem_pe_quiet(NULL, 0), shmem_ctx_quiet(SHMEM_CTX_INVALID), shmem_ctx_fence(SHMEM_CTX_INVALID);
        shmem_ctx_destroy(SHMEM_CTX_INVALID), shmem_team_destroy(SHMEM_TEAM_INVALID);
        shmem_ctx_session_start(SHMEM_CTX_DEFAULT, 0, NULL, SHMEM_CTX_SESSION_TOTAL_OPS), shmem_ctx_session_stop(SHMEM_CTX_DEFAULT);
        shmem_ctx_session_start(SHMEM_CTX_INVALID, 0, NULL, 0), shmem_ctx_session_stop(SHMEM_CTX_INVALID);
        CHECK(shmem_team_get_config(SHMEM_TEAM_WORLD, 0, NULL) == 0 && shmem_team_get_config(SHMEM_TEAM_WORLD, SHMEM_TEAM_NUM_CONTEXTS, NULL) != 0);
        CHECK(shmem_long_test_all(words, 0, NULL, SHMEM_CMP_EQ, 1) == 1 && shmem_long_test_any(words, 0, NULL, SHMEM_CMP_EQ, 1) == SIZE_MAX);
        CHECK(shmem_long_wait_until_some(words, 0, NULL, NULL, SHMEM_CMP_EQ, 1) == 0 && shmem_long_wait_until_any(words, 0, NULL, SHMEM_CMP_EQ, 1) == SIZE_MAX);
        shmem_long_wait_until_all(words, 0, NULL, SHMEM_CMP_EQ, 1);
    }
    static long lock;
    if (me == n - 1) {
        shmem_clear_lock(&lock);
        CHECK(shmem_test_lock(&lock) == 0 && shmem_test_lock(&lock) == 1);
        shmem_clear_lock(&lock);
    }
    shmem_barrier_all();
    CHECK(lock == 0);
    uint64_t *sig = shmem_calloc(1, sizeof *sig);
    shmem_putmem_signal(NULL, NULL, 0, sig, 3, SHMEM_SIGNAL_ADD, next);
    CHECK(shmem_signal_wait_until(sig, SHMEM_CMP_NE, 0) == 3);
    int to[2] = {7, 7};
    CHECK(shmem_broadcastmem(SHMEM_TEAM_WORLD, NULL, NULL, 0, n - 1) == 0 && shmem_int_sum_reduce(SHMEM_TEAM_WORLD, to, to, 0) == 0);
    CHECK(shmem_int_sum_exscan(SHMEM_TEAM_WORLD, to, to, 0) == 0 && shmem_fcollectmem(SHMEM_TEAM_WORLD, NULL, NULL, 0) == 0);
    CHECK(shmem_int_alltoalls(SHMEM_TEAM_WORLD, NULL, NULL, 3, 3, 0) == 0 && shmem_alltoallmem(SHMEM_TEAM_WORLD, NULL, NULL, 0) == 0);
    /* Only the last PE contributes elements. */
    long *all = shmem_calloc(2, sizeof *all), *mine = shmem_calloc(2, sizeof *mine);
    mine[0] = mine[1] = me + 1;
    CHECK(shmem_long_collect(SHMEM_TEAM_WORLD, all, mine, me == n - 1 ? 2 : 0) == 0 && all[0] == n && all[1] == n);
    CHECK(to[0] == 7 && to[1] == 7);
    shmem_barrier_all();
    shmem_free(mine), shmem_free(all), shmem_free(sig);
}

/* Reallocating changes the size in place if there is room, so nearly all of the heap can be used. */
static void sizes(void) {
    char *most = shmem_malloc(40 << 20), *kept = most;
    CHECK(most);
    most[0] = (char)me, most[(20 << 20) - 1] = (char)(me + 1);
    CHECK(shmem_realloc(most, 20 << 20) == kept);
    char *behind = shmem_malloc(30 << 20);
    CHECK(behind && most[0] == (char)me && most[(20 << 20) - 1] == (char)(me + 1));
    CHECK(shmem_realloc(most, 60 << 20) == NULL);
    shmem_free(behind);
    CHECK(shmem_realloc(most, 60 << 20) == kept && most[(20 << 20) - 1] == (char)(me + 1) && !shmem_malloc(8 << 20));
    shmem_free(most);
}

/* Splits with strides of all kinds, and of teams of teams. */
static void splits(void) {
    shmem_team_t back, one, two, x, y;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n, NULL, 0, &back) == 0);
    CHECK(shmem_team_my_pe(back) == n - 1 - me && shmem_team_translate_pe(back, 0, SHMEM_TEAM_WORLD) == n - 1);
    CHECK(shmem_team_split_strided(back, n - 1, 0, 1, NULL, 0, &one) == 0 && (one != SHMEM_TEAM_INVALID) == (me == 0));
    CHECK(shmem_team_split_strided(back, 0, 1000000, 1, NULL, 0, &two) == 0 && (two != SHMEM_TEAM_INVALID) == (me == n - 1));
    int wrong[][3] = {{0, 1, 0}, {0, 1, -1}, {-1, 1, 1}, {n, 1, 1}, {0, 1, n + 1}, {0, -1, 2}, {0, 0, 2}, {0, 0x7fffffff, 3}, {n - 1, 1, 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        shmem_team_t none = SHMEM_TEAM_WORLD;
        CHECK(shmem_team_split_strided(back, wrong[i][0], wrong[i][1], wrong[i][2], NULL, 0, &none) != 0 && none == SHMEM_TEAM_INVALID);
    }
    CHECK(shmem_team_split_2d(back, 1000, NULL, 0, &x, NULL, 0, &y) == 0);
    CHECK(shmem_team_n_pes(x) == n && shmem_team_my_pe(x) == n - 1 - me && shmem_team_n_pes(y) == 1 && shmem_team_my_pe(y) == 0);
    shmem_team_destroy(x), shmem_team_destroy(y), shmem_team_destroy(one), shmem_team_destroy(two), shmem_team_destroy(back);
}

/* A wait for some elements of an array returns what it saw, even if that has changed since. */
static volatile int goes_on;

static void *flip(void *word) {
    for (long i = 0; goes_on; i++) shmem_long_p(word, i & 1, me);
    return NULL;
}

static void some(void) {
    pthread_t thread;
    size_t at = 9;
    long *word = shmem_calloc(1, sizeof *word), one = 1;
    goes_on = 1;
    CHECK(pthread_create(&thread, NULL, flip, word) == 0);
    for (int i = 0; i < 20000; i++) {
        CHECK(shmem_long_wait_until_some(word, 1, &at, NULL, SHMEM_CMP_EQ, 1) == 1 && at == 0);
        CHECK(shmem_long_wait_until_some_vector(word, 1, &at, NULL, SHMEM_CMP_EQ, &one) == 1 && at == 0);
    }
    goes_on = 0;
    pthread_join(thread, NULL);
    shmem_barrier_all();
    shmem_free(word);
}

/* The data that a PE has put have arrived when its quiet returns, even if another thread's quiet is under way. So PE 2 finds
   them in PE 1. */
#define MANY (1 << 18)

static void *quiet(void *unused) {
    (void)unused;
    while (goes_on) shmem_quiet();
    return NULL;
}

static void quiets(void) {
    if (n < 3) return;
    pthread_t thread;
    static long mine[MANY];
    long *block = shmem_calloc(MANY, sizeof *block), *told = shmem_calloc(1, sizeof *told), *seen = shmem_calloc(1, sizeof *seen);
    goes_on = 1;
    if (me == 0) CHECK(pthread_create(&thread, NULL, quiet, NULL) == 0);
    for (long round = 1; round <= 40; round++) {
        if (me == 0) {
            for (int i = 0; i < MANY; i++) mine[i] = round;
            shmem_long_put_nbi(block, mine, MANY, 1);
            sched_yield();
            if (round % 2) shmem_quiet();
            else shmem_pe_quiet((int[]){2, 1}, 2);
            shmem_long_p(told, round, 2);
            shmem_long_wait_until(seen, SHMEM_CMP_GE, round);
        } else if (me == 2) {
            shmem_long_wait_until(told, SHMEM_CMP_GE, round);
            CHECK(shmem_long_g(&block[MANY - 1], 1) == round);
            shmem_long_p(seen, round, 0);
        }
    }
    goes_on = 0;
    if (me == 0) pthread_join(thread, NULL);
    shmem_barrier_all();
    shmem_free(seen), shmem_free(told), shmem_free(block);
}

/* A session of MPI beside OpenSHMEM, and the world model after it. */
static void sessions(void) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    int sum = 0, one = 1, size;
    CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session) == MPI_SUCCESS);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "edges", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    MPI_Comm_size(comm, &size);
    CHECK(sum == n && size == n);
    shmem_barrier_all();
    MPI_Comm_free(&comm);
    MPI_Group_free(&group);
    MPI_Session_finalize(&session);
    shmem_long_p(words, me + 1, next);
    shmem_barrier_all();
    CHECK(words[0] == before + 1);
    MPI_Init(NULL, NULL);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == n);
}

int main(void) {
    int level = -1;
    several_times();
    CHECK(shmem_init_thread(SHMEM_THREAD_MULTIPLE, &level) == 0 && level == SHMEM_THREAD_MULTIPLE);
    nothing();
    sizes();
    splits();
    some();
    quiets();
    sessions();
    shmem_finalize();
    MPI_Finalize();
    /* OpenSHMEM may begin again after the end of MPI. */
    shmem_init();
    words[1] = 0;
    shmem_barrier_all();
    shmem_long_atomic_add(&words[1], me + 1, next);
    shmem_barrier_all();
    CHECK(words[1] == before + 1);
    shmem_finalize();
    return 0;
}
