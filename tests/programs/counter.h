/* A counter of this process, by MPI_T: what was counted since the first call. A program looks at one. */
/* SPDX-License-Identifier: BSD-3-Clause */
static unsigned long long counter(const char *name, int class)
{
    static MPI_T_pvar_session session;
    static MPI_T_pvar_handle handle;
    unsigned long long value = 0;
    if (!session) {
        int provided, index, count;
        MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
        MPI_T_pvar_session_create(&session);
        CHECK(MPI_T_pvar_get_index(name, class, &index) == MPI_SUCCESS, "no counter %s", name);
        MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count);
        MPI_T_pvar_start(session, handle);
    }
    MPI_T_pvar_read(session, handle, &value);
    return value;
}
