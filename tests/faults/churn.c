/* churn MILLISECONDS|FILE: collectives of many kinds and lengths, a partitioned message and others, several outstanding, each
 * result checked, until the time is over or the file is there. Among them are in-place reductions, whose operand a wrong recovery would add twice. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "../programs/check.h"
#include <time.h>
#include <unistd.h>

enum { LONG = 60000, SHORT = 40 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * t.tv_sec + 1e-6 * t.tv_nsec;
}

static int *sum, *sum_short, *all_out, *all_in, *seen, *part_out, *part_in, *next_out, *next_in;
/* Sends to the next rank in 4 partitions, and receives from the one before in 3. */
static MPI_Request parts[2];

static void round_of(int round)
{
    MPI_Request requests[8], never;
    int next = (rank + 1) % size, before = (rank + size - 1) % size, sent = round % 5 == 4 ? SHORT : LONG, flag;
    MPI_Status status;
    int root = round % size, count = LONG - round % 7 * 1000;
    for (int i = 0; i < count; i++) sum[i] = rank + i + round;
    for (int i = 0; i < SHORT; i++) sum_short[i] = rank * i + round;
    fill(all_out, size * count / 4, rank, round);
    fill(seen, count, rank, round);
    fill(part_out, LONG, rank, round);
    fill(next_out, sent, rank, round + 7);
    memset(part_in, -1, LONG * sizeof(int));
    memset(next_in, -1, LONG * sizeof(int));
    /* In some rounds the message comes first, in some the receive; some messages are short. */
    if (round % 3) MPI_Irecv(next_in, LONG, MPI_INT, before, 5, MPI_COMM_WORLD, &requests[6]);
    MPI_Irecv(part_in, LONG, MPI_INT, before, 6, MPI_COMM_WORLD, &never);
    MPI_Iallreduce(MPI_IN_PLACE, sum, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    MPI_Ialltoall(all_out, count / 4, MPI_INT, all_in, count / 4, MPI_INT, MPI_COMM_WORLD, &requests[1]);
    MPI_Iallreduce(MPI_IN_PLACE, sum_short, SHORT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[2]);
    MPI_Ibcast(seen, count, MPI_INT, root, MPI_COMM_WORLD, &requests[3]);
    MPI_Startall(2, parts);
    MPI_Pready_range(0, 3, parts[0]);
    requests[4] = parts[0], requests[5] = parts[1];
    MPI_Isend(next_out, sent, MPI_INT, next, 5, MPI_COMM_WORLD, &requests[7]);
    if (!(round % 3)) MPI_Irecv(next_in, LONG, MPI_INT, before, 5, MPI_COMM_WORLD, &requests[6]);
    MPI_Cancel(&never);
    MPI_Wait(&never, &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag, "round %d: a receive without a message was not cancelled", round);
    MPI_Waitall(8, requests, MPI_STATUSES_IGNORE);
    int ranks = size * (size - 1) / 2;
    for (int i = 0; i < count; i++)
        if (sum[i] != ranks + size * (i + round)) {
            check_failed(__FILE__, __LINE__, "round %d: sum of element %d is %d, not %d", round, i, sum[i],
                         ranks + size * (i + round));
            break;
        }
    for (int i = 0; i < SHORT; i++) EQUAL(sum_short[i], ranks * i + size * round, "short sum");
    for (int r = 0; r < size; r++)
        for (int i = 0; i < count / 4; i++)
            if (all_in[r * (count / 4) + i] != value(r, rank * (count / 4) + i, round)) {
                check_failed(__FILE__, __LINE__, "round %d: element %d from rank %d is wrong", round, i, r);
                break;
            }
    FILLED(seen, count, root, round);
    FILLED(part_in, LONG, before, round);
    FILLED(next_in, sent, before, round + 7);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    const char *end_of_it = argc > 1 ? argv[1] : "1000";
    double until = now_ms() + atof(end_of_it);
    /* The in-place vector lies in shared memory, the others do not: a proxy reaches them in different ways. */
    MPI_Alloc_mem(LONG * sizeof(int), MPI_INFO_NULL, &sum);
    sum_short = grab(SHORT * sizeof(int));
    all_out = grab((size_t)size * LONG * sizeof(int));
    all_in = grab((size_t)size * LONG * sizeof(int));
    seen = grab(LONG * sizeof(int));
    part_out = grab(LONG * sizeof(int));
    part_in = grab(LONG * sizeof(int));
    next_out = grab(LONG * sizeof(int));
    next_in = grab(LONG * sizeof(int));
    MPI_Psend_init(part_out, 4, LONG / 4, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &parts[0]);
    MPI_Precv_init(part_in, 3, LONG / 3, MPI_INT, (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &parts[1]);
    int round = 0, more = 1;
    while (more) {
        round_of(round++);
        if (round == 1 && rank == 0) {
            printf("ready\n");
            fflush(stdout);
        }
        more = end_of_it[0] == '/' ? access(end_of_it, F_OK) != 0 : now_ms() < until;
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (rank == 0) printf("rounds %d\n", round);
    MPI_Free_mem(sum);
    MPI_Request_free(&parts[0]);
    MPI_Request_free(&parts[1]);
    return end();
}
