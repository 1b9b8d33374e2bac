/* Epochs of every kind: fences, post-start-complete-wait in rings and stars, locks that exclude, flushes, and
   targets that never call MPI, on one host.
   ranks: 1 2 3 5 8   ways: plain proxy no-cma */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"
#include "window.h"

/* In each round every rank puts to its right; the fence makes it visible. */
static void fences(void)
{
    long *slots = (long *)memory;
    MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
    for (long round = 0; round < 30; round++) {
        long value = round * 1000 + rank;
        int right = (rank + 1) % size;
        MPI_Put(&value, 1, MPI_LONG, right, origins[right], 1, MPI_LONG, win);
        MPI_Win_fence(0, win);
        EQUAL(slots[0], round * 1000 + (rank + size - 1) % size, "what the left put");
        MPI_Win_fence(0, win);
    }
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
}

/* Every rank is exposed to its left neighbour and accesses its right one, several times; some ranks are
   slower. */
static void ring(void)
{
    MPI_Group all, left, right;
    int l = (rank + size - 1) % size, r = (rank + 1) % size, flag = 0;
    long *slots = (long *)memory;
    MPI_Win_get_group(win, &all);
    MPI_Group_incl(all, 1, &l, &left);
    MPI_Group_incl(all, 1, &r, &right);
    for (long round = 0; round < 20; round++) {
        MPI_Win_post(left, round % 2 ? MPI_MODE_NOSTORE : 0, win);
        MPI_Win_start(right, 0, win);
        long value = round * 1000 + rank;
        MPI_Put(&value, 1, MPI_LONG, r, origins[r] + 8, 1, MPI_LONG, win);
        MPI_Win_complete(win);
        if (round % 2)
            MPI_Win_wait(win);
        else
            for (flag = 0; !flag;) MPI_Win_test(win, &flag);
        EQUAL(slots[1], round * 1000 + l, "what the left put between start and complete");
    }
    MPI_Group_free(&left);
    MPI_Group_free(&right);
    MPI_Group_free(&all);
}

/* Rank 0 is exposed to all ranks, also to itself; then all are exposed to rank 0. An epoch with an empty
   group waits for no rank. */
static void star(void)
{
    MPI_Group all, center;
    int zero = 0;
    long one = 1, *slots = (long *)memory;
    MPI_Win_get_group(win, &all);
    MPI_Group_incl(all, 1, &zero, &center);
    slots[2] = 0;
    for (int round = 1; round <= 10; round++) {
        if (rank == 0) MPI_Win_post(all, 0, win);
        MPI_Win_start(center, 0, win);
        MPI_Accumulate(&one, 1, MPI_LONG, 0, origins[0] + 16, 1, MPI_LONG, MPI_SUM, win);
        MPI_Win_complete(win);
        if (rank == 0) {
            MPI_Win_wait(win);
            EQUAL(slots[2], (long)round * size, "what all have added");
        }
        MPI_Win_post(center, 0, win);
        if (rank == 0) {
            MPI_Win_start(all, 0, win);
            for (int i = 0; i < size; i++) {
                long value = round * 100 + i;
                MPI_Put(&value, 1, MPI_LONG, i, origins[i] + 24, 1, MPI_LONG, win);
            }
            MPI_Win_complete(win);
        }
        MPI_Win_wait(win);
        EQUAL(slots[3], round * 100 + rank, "what the center put");
    }
    MPI_Win_post(MPI_GROUP_EMPTY, 0, win);
    MPI_Win_start(MPI_GROUP_EMPTY, 0, win);
    MPI_Win_complete(win);
    MPI_Win_wait(win);
    MPI_Group_free(&center);
    MPI_Group_free(&all);
}

/* An exclusive lock makes get, add, put one step; shared locks see complete pairs. */
static void locks(void)
{
    enum { EACH = 100 };
    long pair[2], *slots = (long *)memory;
    slots[4] = slots[5] = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < EACH; i++) {
        int target = (i + rank) % size, write = i % 3 != 2;
        MPI_Win_lock(write ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED, target, 0, win);
        MPI_Get(pair, 2, MPI_LONG, target, origins[target] + 32, 2, MPI_LONG, win);
        MPI_Win_flush(target, win);
        EQUAL(pair[0] + pair[1], 0, "the sum of a pair");
        if (write) {
            pair[0]++;
            pair[1]--;
            MPI_Put(&pair[0], 1, MPI_LONG, target, origins[target] + 32, 1, MPI_LONG, win);
            MPI_Win_flush_local(target, win);
            MPI_Put(&pair[1], 1, MPI_LONG, target, origins[target] + 40, 1, MPI_LONG, win);
        }
        MPI_Win_unlock(target, win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    long all = 0, mine;
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    mine = slots[4];
    MPI_Win_unlock(rank, win);
    MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    EQUAL(all, (long)size * (EACH - EACH / 3), "steps under exclusive locks");
}

/* The target reads its memory until all have written, and calls no MPI function. */
static void deaf_target(void)
{
    volatile long *slots = (volatile long *)memory;
    long value = 77, seen = 0, one = 1;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    slots[6] = slots[7] = 0;
    MPI_Win_unlock(rank, win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        while (slots[7] != 5 * (size - 1)) __sync_synchronize();
        for (int i = 1; i < size; i++) EQUAL(slots[8 + i], 77 + i, "what a deaf target was given");
        return;
    }
    for (int i = 0; i < 5; i++) {
        value = 77 + rank;
        MPI_Win_lock(i % 2 ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Put(&value, 1, MPI_LONG, 0, origins[0] + 8 * (8 + rank), 1, MPI_LONG, win);
        MPI_Get(&seen, 1, MPI_LONG, 0, origins[0] + 8 * (8 + rank), 1, MPI_LONG, win);
        MPI_Win_flush(0, win);
        EQUAL(seen, value, "what a deaf target gives back");
        MPI_Win_unlock(0, win);
        MPI_Win_lock_all(0, win);
        MPI_Accumulate(&one, 1, MPI_LONG, 0, origins[0] + 56, 1, MPI_LONG, MPI_SUM, win);
        MPI_Win_unlock_all(win);
    }
}

/* Operations with requests, completed in all ways. */
static void requests(void)
{
    enum { N = 8 };
    long out[N], in[N], old[N], sums[N];
    MPI_Request all[4];
    MPI_Status status;
    int next = (rank + 1) % size;
    for (int i = 0; i < N; i++) out[i] = rank * 10 + i, sums[i] = 1;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    MPI_Aint disp = origins[next] + 256;
    MPI_Rput(out, N, MPI_LONG, next, disp, N, MPI_LONG, win, &all[0]);
    MPI_Wait(&all[0], &status);
    MPI_Win_flush(next, win);
    MPI_Raccumulate(sums, N, MPI_LONG, next, disp, N, MPI_LONG, MPI_SUM, win, &all[1]);
    MPI_Rget_accumulate(sums, N, MPI_LONG, old, N, MPI_LONG, next, disp, N, MPI_LONG, MPI_SUM, win, &all[2]);
    MPI_Rput(out, N, MPI_LONG, MPI_PROC_NULL, 0, N, MPI_LONG, win, &all[0]);
    MPI_Rget(out, 0, MPI_LONG, next, disp, 0, MPI_LONG, win, &all[3]);
    MPI_Waitall(4, all, MPI_STATUSES_IGNORE);
    MPI_Rget(in, N, MPI_LONG, next, disp, N, MPI_LONG, win, &all[0]);
    for (int flag = 0; !flag;) MPI_Test(&all[0], &flag, &status);
    CHECK(all[0] == MPI_REQUEST_NULL, "a finished request is not null");
    for (int i = 0; i < N; i++) {
        EQUAL(old[i], out[i] + 1, "fetched with a request");
        EQUAL(in[i], out[i] + 2, "got with a request");
    }
    MPI_Win_flush_all(win);
    MPI_Win_flush_local_all(win);
    MPI_Win_sync(win);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int which = 0; which < KINDS; which++) {
        if (which == SHARED && !on_one_host()) continue;
        make_window(which, 4096);
        MPI_Barrier(MPI_COMM_WORLD);
        fences();
        ring();
        star();
        locks();
        if (on_one_host()) deaf_target();
        requests();
        free_window();
    }
    return end();
}
