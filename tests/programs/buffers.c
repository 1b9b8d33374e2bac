/* Buffers for MPI_Bsend: those of the process and of a comm, the program's and automatic ones; flush, iflush
   and detach wait for the messages in them. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

enum { N = 30000, BYTES = N * (int)sizeof(int) };

static int to, from, *out, *in;

static void receive(MPI_Comm comm, int round)
{
    memset(in, -1, BYTES);
    MPI_Recv(in, N, MPI_INT, from, 2, comm, MPI_STATUS_IGNORE);
    FILLED(in, N, from, round);
}

static void send(MPI_Comm comm, int round)
{
    fill(out, N, rank, round);
    EQUAL(MPI_Bsend(out, N, MPI_INT, to, 2, comm), MPI_SUCCESS, "bsend");
    memset(out, 0, BYTES);
}

static void use(MPI_Comm comm, int automatic, int own)
{
    int room = 2 * (BYTES + MPI_BSEND_OVERHEAD), flag, size_out = -1;
    MPI_Count large = -1;
    char *buffer = automatic ? MPI_BUFFER_AUTOMATIC : grab(room), *back = NULL;
    MPI_Request request;
    EQUAL(own ? MPI_Comm_attach_buffer(comm, buffer, room) : MPI_Buffer_attach(buffer, room), MPI_SUCCESS, "attach");
    EQUAL(error_class(own ? MPI_Comm_attach_buffer(comm, buffer, room) : MPI_Buffer_attach(buffer, room)), MPI_ERR_BUFFER,
          "attach twice");
    send(comm, 1);
    own ? MPI_Comm_iflush_buffer(comm, &request) : MPI_Buffer_iflush(&request);
    /* A message that is sent after a flush began does not delay it: it is received only when the flush is
       over. */
    send(comm, 2);
    receive(comm, 1);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    receive(comm, 2);
    own ? MPI_Comm_flush_buffer(comm) : MPI_Buffer_flush();
    own ? MPI_Comm_iflush_buffer(comm, &request) : MPI_Buffer_iflush(&request);
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    EQUAL(!!flag, 1, "a flush of nothing");
    send(comm, 3);
    MPI_Request other;
    MPI_Irecv(in, N, MPI_INT, from, 2, comm, &other);
    if (own)
        MPI_Comm_detach_buffer(comm, &back, &size_out);
    else
        MPI_Buffer_detach_c(&back, &large), size_out = (int)large;
    CHECK(back == buffer, "detached %p, not %p", (void *)back, (void *)buffer);
    EQUAL(size_out, automatic ? 0 : room, "the size detached");
    MPI_Wait(&other, MPI_STATUS_IGNORE);
    FILLED(in, N, from, 3);
    if (!automatic) free(buffer);
}

/* The comm's buffer is used even if only the process's buffer has space. */
static void specific(MPI_Comm comm)
{
    char small[64], *back;
    int bytes;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0);
    MPI_Comm_attach_buffer(comm, small, sizeof small);
    fill(out, N, rank, 4);
    EQUAL(error_class(MPI_Ibsend(out, N, MPI_INT, to, 9, comm, &request)), MPI_ERR_BUFFER, "a message too long for the comm's buffer");
    MPI_Comm_detach_buffer(comm, &back, &bytes);
    CHECK(back == small && bytes == sizeof small, "detached %p, %d bytes", (void *)back, bytes);
    EQUAL(error_class(MPI_Comm_detach_buffer(comm, &back, &bytes)), MPI_ERR_BUFFER, "detached twice");
    EQUAL(MPI_Ibsend(out, N, MPI_INT, to, 2, comm, &request), MPI_SUCCESS, "ibsend");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    receive(comm, 4);
    MPI_Buffer_detach(&back, &bytes);
    CHECK(back == MPI_BUFFER_AUTOMATIC, "detached %p", (void *)back);
}

/* Every comm made from a session uses the session's buffer; the world's comms do not. */
static void session(void)
{
    MPI_Session session;
    MPI_Group all, part;
    MPI_Comm first, comm;
    MPI_Request request;
    char small[64], *back;
    int bytes, flag;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &all);
    MPI_Group_excl(all, 0, NULL, &part);
    MPI_Comm_create_from_group(part, "buffers", MPI_INFO_NULL, MPI_ERRORS_RETURN, &first);
    MPI_Comm_split(first, 0, 0, &comm);
    MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0);
    MPI_Session_attach_buffer(session, small, sizeof small);
    EQUAL(error_class(MPI_Session_attach_buffer(session, small, sizeof small)), MPI_ERR_BUFFER, "attach twice");
    fill(out, N, rank, 6);
    EQUAL(error_class(MPI_Bsend(out, N, MPI_INT, to, 9, comm)), MPI_ERR_BUFFER, "a message too long for the session's buffer");
    EQUAL(MPI_Bsend(out, N, MPI_INT, to, 2, MPI_COMM_WORLD), MPI_SUCCESS, "bsend in the world");
    receive(MPI_COMM_WORLD, 6);
    MPI_Session_detach_buffer(session, &back, &bytes);
    CHECK(back == small && bytes == sizeof small, "detached %p, %d bytes", (void *)back, bytes);
    MPI_Session_attach_buffer(session, MPI_BUFFER_AUTOMATIC, 0);
    send(comm, 7);
    MPI_Session_iflush_buffer(session, &request);
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    receive(comm, 7);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Session_flush_buffer(session);
    MPI_Buffer_detach(&back, &bytes);
    MPI_Group_free(&all);
    MPI_Group_free(&part);
    MPI_Comm_free(&comm);
    MPI_Comm_free(&first);
    MPI_Session_finalize(&session);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    to = (rank + 1) % size, from = (rank + size - 1) % size;
    out = grab(BYTES), in = grab(BYTES);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int form = 0; form < 4; form++) use(comm, form & 1, form >> 1);
    specific(comm);
    session();
    /* Freeing a comm with an attached buffer waits for the messages in it. */
    MPI_Request request;
    MPI_Comm_attach_buffer(comm, MPI_BUFFER_AUTOMATIC, 0);
    memset(in, -1, BYTES);
    MPI_Irecv(in, N, MPI_INT, from, 2, comm, &request);
    send(comm, 5);
    MPI_Comm_free(&comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    FILLED(in, N, from, 5);
    free(out);
    free(in);
    return end();
}
