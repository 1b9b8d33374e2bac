/* Plain receives, of which the library keeps as little as it can: completed in every way when their messages
   have been sent, when the messages were taken along with another's, and when another call has posted the
   receives; cancelled; very many of them; and reported when they are complete. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

enum { MANY = 3, TAG = 10, LATER = 99, WINDOW = 300 };
enum stage { SENT, TAKEN, POSTED, STAGES };
enum way { WAIT, TEST, WAITANY, TESTANY, WAITSOME, TESTSOME, WAITALL, TESTALL, LOOK, LOOK_ANY, LOOK_ALL, LOOK_SOME, FREE, WAYS };

static int to, from;
static volatile int in[MANY];
static MPI_Request receives[MANY], last;

/* Starts the receives, and lets their messages be sent. */
static void start(enum stage stage)
{
    int flag;
    for (int at = 0; at < MANY; at++) {
        in[at] = -1;
        MPI_Irecv((int *)&in[at], 1, MPI_INT, from, TAG + at, MPI_COMM_WORLD, &receives[at]);
    }
    MPI_Irecv(NULL, 0, MPI_INT, from, LATER, MPI_COMM_WORLD, &last);
    if (stage == POSTED) MPI_Iprobe(MPI_ANY_SOURCE, LATER + 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    for (int at = 0; at < MANY; at++) {
        MPI_Request_get_status(receives[at], &flag, MPI_STATUS_IGNORE);
        EQUAL(flag, 0, "whether a receive is over before its message is sent");
    }
    /* No rank sends before all have checked. */
    MPI_Barrier(MPI_COMM_WORLD);
    for (int at = 0; at < MANY; at++) {
        int out = value(rank, at, 0);
        MPI_Send(&out, 1, MPI_INT, to, TAG + at, MPI_COMM_WORLD);
    }
    MPI_Send(NULL, 0, MPI_INT, to, LATER, MPI_COMM_WORLD);
    if (stage == TAKEN) MPI_Wait(&last, MPI_STATUS_IGNORE);
}

static void check_status(const MPI_Status *status, int at)
{
    int count;
    MPI_Get_count(status, MPI_INT, &count);
    EQUAL(status->MPI_SOURCE, from, "source");
    EQUAL(status->MPI_TAG, TAG + at, "tag");
    EQUAL(count, 1, "count");
}

/* One step of a way that needs several. Checks the receives that it has completed, and returns their number.
   */
static int step(enum way way)
{
    MPI_Status statuses[MANY];
    int indices[MANY] = {0}, count = 0, flag = 0;
    switch (way) {
    case WAITANY: MPI_Waitany(MANY, receives, indices, statuses), count = 1; break;
    case TESTANY: MPI_Testany(MANY, receives, indices, &count, statuses); break;
    case WAITSOME: MPI_Waitsome(MANY, receives, &count, indices, statuses); break;
    case TESTSOME: MPI_Testsome(MANY, receives, &count, indices, statuses); break;
    case LOOK_ANY:
        MPI_Request_get_status_any(MANY, receives, indices, &count, statuses);
        if (count) MPI_Wait(&receives[indices[0]], MPI_STATUS_IGNORE);
        break;
    case LOOK_SOME:
        MPI_Request_get_status_some(MANY, receives, &count, indices, statuses);
        for (int at = 0; at < count; at++) MPI_Wait(&receives[indices[at]], MPI_STATUS_IGNORE);
        break;
    case LOOK_ALL:
        MPI_Request_get_status_all(MANY, receives, &flag, statuses);
        if (!flag) return 0;
        for (int at = 0; at < MANY; at++) check_status(&statuses[at], at);
        MPI_Waitall(MANY, receives, statuses), flag = 0;
        count = -1;
        break;
    case TESTALL: MPI_Testall(MANY, receives, &flag, statuses), count = flag ? -1 : 0; break;
    default: MPI_Waitall(MANY, receives, statuses), count = -1;
    }
    for (int at = 0; count < 0 && at < MANY; at++) check_status(&statuses[at], at);
    for (int at = 0; at < count; at++) check_status(&statuses[at], indices[at]);
    return count < 0 ? MANY : count;
}

static void finish(enum way way)
{
    MPI_Status status;
    switch (way) {
    case WAIT:
    case TEST:
    case LOOK:
        /* The requests are tested backwards; the receives before a complete one complete with it. */
        for (int at = MANY - 1; at >= 0; at--) {
            int flag = way == WAIT;
            if (way == LOOK) {
                while (!flag) MPI_Request_get_status(receives[at], &flag, &status);
                check_status(&status, at);
                flag = 0;
            }
            while (!flag) MPI_Test(&receives[at], &flag, &status);
            if (way == WAIT) MPI_Wait(&receives[at], &status);
            check_status(&status, at);
        }
        break;
    case FREE:
        for (int at = 0; at < MANY; at++) MPI_Request_free(&receives[at]);
        for (int at = 0, flag; at < MANY; at++)
            while (in[at] == -1) MPI_Iprobe(MPI_ANY_SOURCE, LATER + 1, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        break;
    default:
        for (int done = 0; done < MANY;) done += step(way);
    }
    for (int at = 0; at < MANY; at++) {
        EQUAL(in[at], value(from, at, 0), "received");
        CHECK(receives[at] == MPI_REQUEST_NULL, "request %d is not null", at);
    }
    MPI_Wait(&last, MPI_STATUS_IGNORE);
}

/* A receive that is cancelled before its message is sent, and one whose cancel comes too late. */
static void cancel(enum stage stage)
{
    MPI_Request early;
    MPI_Status status;
    int flag, none = -1;
    MPI_Irecv(&none, 1, MPI_INT, from, TAG, MPI_COMM_WORLD, &early);
    MPI_Cancel(&early);
    MPI_Wait(&early, &status);
    MPI_Test_cancelled(&status, &flag);
    EQUAL(flag, 1, "whether it was taken back");
    start(stage);
    if (stage == TAKEN) {
        MPI_Cancel(&receives[0]);
        MPI_Request_get_status(receives[0], &flag, &status);
        MPI_Test_cancelled(&status, &flag);
        EQUAL(flag, 0, "whether one that was over was taken back");
    }
    finish(WAITALL);
    EQUAL(none, -1, "received by one that was taken back");
}

/* More receives than the table of deferred receives holds; some complete long after the others. */
static void windows(void)
{
    static int got[WINDOW], sent[WINDOW];
    static MPI_Request requests[WINDOW];
    for (int turn = 0; turn < 4; turn++) {
        for (int at = 0; at < WINDOW; at++) MPI_Irecv(&got[at], 1, MPI_INT, from, at, MPI_COMM_WORLD, &requests[at]);
        MPI_Barrier(MPI_COMM_WORLD);
        fill(sent, WINDOW, rank, turn);
        for (int at = WINDOW - 1; at >= 0; at--) MPI_Send(&sent[at], 1, MPI_INT, to, at, MPI_COMM_WORLD);
        for (int at = turn % 2; at < WINDOW; at += 2) MPI_Wait(&requests[at], MPI_STATUS_IGNORE);
        MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
        check_filled(__FILE__, __LINE__, got, WINDOW, from, turn);
    }
}

/* Calls with a request that is complete, also while later requests are active, or with one of another kind.
   */
static void wrong(void)
{
    int class, flag, index, word;
    MPI_Status status;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    start(SENT);
    MPI_Request gone = receives[0], copy;
#define REFUSED(call) \
    do { \
        copy = gone; \
        MPI_Error_class(call, &class); \
        EQUAL(class, MPI_ERR_REQUEST, #call); \
        CHECK(copy == gone, #call " has changed the handle"); \
    } while (0)
    REFUSED(MPI_Start(&copy));
    REFUSED(MPI_Pready(0, copy));
    REFUSED(MPI_Parrived(copy, 0, &flag));
    REFUSED(MPI_Grequest_complete(copy));
    finish(WAITALL);
    for (int after = 0; after < 3; after++) {
        REFUSED(MPI_Wait(&copy, &status));
        REFUSED(MPI_Test(&copy, &flag, &status));
        REFUSED(MPI_Waitany(1, &copy, &index, &status));
        REFUSED(MPI_Waitall(1, &copy, &status));
        REFUSED(MPI_Request_get_status(copy, &flag, &status));
        REFUSED(MPI_Request_free(&copy));
        REFUSED(MPI_Cancel(&copy));
        for (int made = 0; made < 64; made++) {
            MPI_Request request;
            MPI_Irecv(&word, 1, MPI_INT, from, TAG, MPI_COMM_WORLD, &request);
            CHECK(request != gone, "an old handle comes again");
            MPI_Send(&made, 1, MPI_INT, to, TAG, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            EQUAL(word, made, "received after");
        }
    }
    start(SENT);
    gone = receives[0];
    finish(FREE);
    REFUSED(MPI_Test(&copy, &flag, &status));
    REFUSED(MPI_Request_free(&copy));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    to = (rank + 1) % size, from = (rank + size - 1) % size;
    for (int round = 0; round < 5; round++)
        for (int stage = SENT; stage < STAGES; stage++) {
            for (int way = WAIT; way < WAYS; way++) {
                start(stage);
                finish(way);
            }
            cancel(stage);
        }
    windows();
    wrong();
    return end();
}
