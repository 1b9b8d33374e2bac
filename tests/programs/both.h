/* One name for the blocking and the nonblocking form of a collective. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef BOTH_H
#define BOTH_H

static int nonblocking;

/* Completes a request, in turns by each of the ways in which a program may wait. */
static inline void complete(MPI_Request *request)
{
    static int turn;
    int flag = 0;
    if (turn++ % 2)
        MPI_Wait(request, MPI_STATUS_IGNORE);
    else
        while (!flag) MPI_Test(request, &flag, MPI_STATUS_IGNORE);
    CHECK(*request == MPI_REQUEST_NULL, "the request of a finished collective is not null");
}

/* BOTH(Bcast, bcast, arguments): MPI_Bcast, or MPI_Ibcast and its completion. */
#define BOTH(Name, name, ...) \
    do { \
        if (nonblocking) { \
            MPI_Request request_; \
            MPI_I##name(__VA_ARGS__, &request_); \
            complete(&request_); \
        } else { \
            MPI_##Name(__VA_ARGS__); \
        } \
    } while (0)

#endif
