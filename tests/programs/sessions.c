/* Sessions before, around and after MPI_Init and MPI_Finalize, several at once, a different number in each
   process (MPI 5.0, section 11.3).
   ranks: 1 2 3 5 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

static MPI_Session open_session(const char *level)
{
    MPI_Session session;
    MPI_Info info;
    MPI_Info_create(&info);
    if (level) MPI_Info_set(info, "thread_level", level);
    EQUAL(MPI_Session_init(info, MPI_ERRORS_RETURN, &session), MPI_SUCCESS, "MPI_Session_init");
    MPI_Info_free(&info);
    return session;
}

static MPI_Comm comm_of(MPI_Session session, const char *set, const char *tag)
{
    MPI_Group group;
    MPI_Comm comm = MPI_COMM_NULL;
    EQUAL(MPI_Group_from_session_pset(session, set, &group), MPI_SUCCESS, "MPI_Group_from_session_pset");
    EQUAL(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm), MPI_SUCCESS,
          "MPI_Comm_create_from_group");
    MPI_Group_free(&group);
    return comm;
}

/* Messages around a ring and a sum: the comm works, and messages of comms made with the same tag do not
   match. */
static void use(MPI_Comm comm, int round)
{
    int me, many, got = -1, sum = -1;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &many);
    int mine = me + round;
    MPI_Sendrecv(&mine, 1, MPI_INT, (me + 1) % many, 0, &got, 1, MPI_INT, (me + many - 1) % many, 0, comm, MPI_STATUS_IGNORE);
    EQUAL(got, (me + many - 1) % many + round, "what came around");
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm);
    EQUAL(sum, many * (many - 1) / 2 + many * round, "the sum");
}

static void sets(MPI_Session session)
{
    int many, found = 0;
    MPI_Session_get_num_psets(session, MPI_INFO_NULL, &many);
    for (int n = 0; n < many; n++) {
        char name[MPI_MAX_PSET_NAME_LEN] = "", shorter[4];
        int length = 0, room = sizeof shorter;
        MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, name);
        EQUAL(name[0], 0, "the name where only its length is asked for");
        int wanted = length;
        MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, name);
        EQUAL(length, wanted, "the length");
        EQUAL(strlen(name) + 1, length, "the length with its zero");
        MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &room, shorter);
        EQUAL(strlen(shorter), sizeof shorter - 1, "the length of the cut name");
        int is_world = !strcmp(name, "mpi://WORLD"), is_self = !strcmp(name, "mpi://SELF");
        found += is_world + is_self;
        MPI_Info facts;
        char size_text[16] = "";
        int flag = 0, bytes = sizeof size_text;
        MPI_Session_get_pset_info(session, name, &facts);
        MPI_Info_get_string(facts, "mpi_size", &bytes, size_text, &flag);
        EQUAL(flag, 1, "whether mpi_size is there");
        if (is_self) EQUAL(atoi(size_text), 1, "the size of mpi://SELF");
        MPI_Info_free(&facts);
    }
    EQUAL(found, 2, "how many of the standard's sets there are");
    int length = 0;
    EQUAL(error_class(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, many, &length, NULL)), MPI_ERR_ARG, "the class beyond the last set");
    MPI_Group group;
    EQUAL(error_class(MPI_Group_from_session_pset(session, "mpi://NONE", &group)), MPI_ERR_ARG, "the class of no set");
}

static int handled;
static void handler(MPI_Session *session, int *code, ...)
{
    (void)session;
    handled = *code;
}

static void errors(MPI_Session session)
{
    MPI_Errhandler own, seen;
    MPI_Session_create_errhandler(handler, &own);
    MPI_Session_set_errhandler(session, own);
    MPI_Session_get_errhandler(session, &seen);
    CHECK(seen == own, "the error handler is not the one that was set");
    MPI_Errhandler_free(&seen);
    MPI_Errhandler_free(&own);
    MPI_Session_call_errhandler(session, MPI_ERR_OTHER);
    EQUAL(handled, MPI_ERR_OTHER, "what the handler was called with");
    MPI_Group group;
    MPI_Group_from_session_pset(session, "no set", &group);
    EQUAL(error_class(handled), MPI_ERR_ARG, "what the handler was called with");
    MPI_Session_set_errhandler(session, MPI_ERRORS_RETURN);
    MPI_Session none = MPI_SESSION_NULL;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "thread_level", "as many as you like");
    EQUAL(error_class(MPI_Session_init(info, MPI_ERRORS_RETURN, &none)), MPI_ERR_INFO_VALUE, "the class of a bad hint");
    MPI_Info_free(&info);
}

static void info(MPI_Session session, const char *level)
{
    MPI_Info used;
    char text[MPI_MAX_INFO_VAL];
    int flag = 0, length = sizeof text;
    MPI_Session_get_info(session, &used);
    MPI_Info_get_string(used, "thread_level", &length, text, &flag);
    CHECK(flag && !strcmp(text, level), "thread_level is %s, not %s", flag ? text : "not there", level);
    length = sizeof text;
    MPI_Info_get_string(used, "mpi_memory_alloc_kinds", &length, text, &flag);
    CHECK(flag && strstr(text, "mpi") && strstr(text, "system"), "mpi_memory_alloc_kinds is %s", flag ? text : "not there");
    MPI_Info_free(&used);
}

/* Messages between even and odd ranks, on a comm that is not derived from another. */
static void between_groups(MPI_Session session)
{
    MPI_Group world, mine, theirs;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &world);
    MPI_Group_size(world, &size), MPI_Group_rank(world, &rank);
    if (size > 1) {
        int even[1][3] = {{0, size - 1, 2}}, odd[1][3] = {{1, size - 1, 2}}, parity = rank % 2, me, others, got = -1, sum = 0;
        MPI_Group_range_incl(world, 1, parity ? odd : even, &mine);
        MPI_Group_range_incl(world, 1, parity ? even : odd, &theirs);
        MPI_Group_rank(mine, &me);
        MPI_Comm inter;
        /* Only the leader, the last of its group, passes the remote group. */
        int last = (size - 1 - parity) / 2;
        EQUAL(MPI_Intercomm_create_from_groups(mine, last, me == last ? theirs : MPI_GROUP_NULL, 0, "between", MPI_INFO_NULL,
                                               MPI_ERRORS_RETURN, &inter), MPI_SUCCESS, "MPI_Intercomm_create_from_groups");
        MPI_Comm_remote_size(inter, &others);
        EQUAL(others, parity ? (size + 1) / 2 : size / 2, "the remote size");
        int one = rank + 1, right = 0;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter);
        for (int i = !parity; i < size; i += 2) right += i + 1;
        EQUAL(sum, right, "the other group's sum");
        if (me < others) {
            MPI_Status status;
            MPI_Sendrecv(&rank, 1, MPI_INT, me, 3, &got, 1, MPI_INT, MPI_ANY_SOURCE, 3, inter, &status);
            EQUAL(got, 2 * me + !parity, "the partner's rank");
            EQUAL(status.MPI_SOURCE, me, "the partner's rank in its group");
        }
        MPI_Comm_free(&inter);
        MPI_Group_free(&mine);
        MPI_Group_free(&theirs);
    }
    MPI_Group_free(&world);
}

int main(int argc, char **argv)
{
    int flag = 1;
    MPI_Session one = open_session("MPI_THREAD_FUNNELED");
    info(one, "MPI_THREAD_FUNNELED");
    MPI_Initialized(&flag);
    EQUAL(flag, 0, "MPI_Initialized in a session");
    sets(one);
    errors(one);
    between_groups(one);
    MPI_Comm first = comm_of(one, "mpi://WORLD", "first"), self = comm_of(one, "mpi://SELF", "self");
    use(first, 1), use(self, 2);
    MPI_Session two = open_session(NULL);
    info(two, "MPI_THREAD_MULTIPLE");
    MPI_Comm second = comm_of(two, "mpi://WORLD", "first");
    use(second, 3), use(first, 4);
    MPI_Comm_free(&first), MPI_Comm_free(&self);
    MPI_Session_finalize(&one);
    CHECK(one == MPI_SESSION_NULL, "the finalized session is not null");
    use(second, 5);
    MPI_Comm_free(&second);
    MPI_Session_finalize(&two);
    /* The processes begin and end sessions different numbers of times. */
    for (int i = 0; i < rank; i++) {
        MPI_Session alone = open_session("MPI_THREAD_SINGLE");
        MPI_Comm comm = comm_of(alone, "mpi://SELF", "alone");
        use(comm, i);
        MPI_Comm_free(&comm);
        MPI_Session_finalize(&alone);
    }
    one = open_session(NULL);
    MPI_Init(&argc, &argv);
    use(MPI_COMM_WORLD, 6);
    first = comm_of(one, "mpi://WORLD", "around");
    use(first, 7);
    MPI_Finalize();
    MPI_Finalized(&flag);
    EQUAL(flag, 1, "MPI_Finalized in a session");
    use(first, 8);
    MPI_Comm_free(&first);
    MPI_Session_finalize(&one);
    two = open_session(NULL);
    first = comm_of(two, "mpi://WORLD", "around");
    use(first, 9);
    MPI_Comm_free(&first);
    MPI_Session_finalize(&two);
    CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &two) == MPI_SUCCESS, "a session left open at the end");
    MPI_Session_finalize(&two);
    return failed != 0;
}
