/* Calls that no generated program makes, because MPICH or Intel MPI does them wrong: each with what happens
   there. All of Outboard's ways agree on them. Compiled with -DEXCEPTIONS=0 the generator makes them all
   (`run --ours`), and Outboard's ways are compared among themselves. */
/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef EXCEPTIONS
#define EXCEPTIONS 1
#endif
enum {
    /* MPICH 5.0.2, Intel MPI 2021.19: MPI_Testall of a started persistent collective returns MPI_ERR_IN_STATUS ("Invalid MPI_Request"). */
    TESTALL_OF_PERSISTENT_COLLECTIVE = EXCEPTIONS,
    /* MPICH, Intel MPI: after MPI_Request_get_status has seen that a persistent receive is complete, MPI_Wait gives an empty status. */
    GET_STATUS_OF_PERSISTENT = EXCEPTIONS,
    /* MPICH, Intel MPI: a status of MPI_Isendrecv and MPI_Isendrecv_replace is never set. */
    STATUS_OF_ISENDRECV = EXCEPTIONS,
    /* MPICH, Intel MPI: a segmentation fault if a datatype is freed while a nonblocking collective uses it (allowed: MPI 5.0, 5.1.9). */
    TYPE_FREED_DURING_COLLECTIVE = EXCEPTIONS,
    /* MPICH, Intel MPI: the true extent of a type counts parts of no elements, too. */
    TRUE_EXTENT_OF_EMPTY_PARTS = EXCEPTIONS,
    /* MPICH: the group of a grid that is smaller than the comm it was made from has the members of that comm. */
    SMALL_GRID = EXCEPTIONS,
    /* Intel MPI: where both neighbors along a dimension are one process, their blocks of an all-to-all are exchanged (MPI 5.0, 8.6). */
    SAME_NEIGHBOR_TWICE = EXCEPTIONS,
    /* MPICH, Intel MPI: wrong data from MPI_Isendrecv_replace of a derived datatype, its freeing aside. */
    ISENDRECV_REPLACE_OF_DERIVED = EXCEPTIONS,
    /* MPICH: a receive on a comm of one process takes what a collective sends there to itself, with a small tag. */
    COLLECTIVE_MEETS_RECEIVE_ALONE = EXCEPTIONS,
    /* Intel MPI: a persistent collective of one process does nothing when it is started again. */
    PERSISTENT_COLLECTIVE_ALONE = EXCEPTIONS,
    /* MPICH: a process that waits in MPI_Intercomm_create makes no progress for messages under way, so a peer
       that waits for them never calls it. */
    LITTLE_PROGRESS_IN_INTERCOMM_CREATE = EXCEPTIONS,
    /* MPICH: a count that is not 0 of a datatype without elements: MPI_Scatter and its like never end, a receive's status has any count. */
    EMPTY_TYPE = EXCEPTIONS,
    /* MPICH: MPI_Comm_disconnect never ends after a persistent buffered send on the comm. */
    DISCONNECT_AFTER_BUFFERED = EXCEPTIONS,
};
/* With `--intel` what Intel MPI 2021.19 does wrong besides is left out, too: persistent collectives (wrong data, MPI_ERR_IN_STATUS, segmentation
   faults), and errors that are to be returned (MPI_ERRORS_RETURN on a comm does not keep them from ending the program). */
static int intel;
