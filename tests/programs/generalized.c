/* Generalized requests: wait, test, free and cancel, in all forms, call their functions at the right moments.
   ways: plain   ranks: 1 2 */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

struct facts {
    int queries, frees, cancels, complete, source;
    int query_code, free_code;
};

static int query(void *extra, MPI_Status *status)
{
    struct facts *facts = extra;
    facts->queries++;
    EQUAL(facts->frees, 0, "frees before a query");
    MPI_Status_set_elements(status, MPI_INT, 3);
    MPI_Status_set_cancelled(status, facts->cancels > 0);
    MPI_Status_set_source(status, facts->source);
    status->MPI_TAG = 9;
    status->MPI_ERROR = 77;
    return facts->query_code;
}

static int release(void *extra)
{
    struct facts *facts = extra;
    facts->frees++;
    return facts->free_code;
}

static int cancel(void *extra, int complete)
{
    struct facts *facts = extra;
    facts->cancels++;
    facts->complete = complete;
    return MPI_SUCCESS;
}

static MPI_Request start(struct facts *facts)
{
    MPI_Request request;
    *facts = (struct facts){.source = 5};
    EQUAL(MPI_Grequest_start(query, release, cancel, facts, &request), MPI_SUCCESS, "start");
    return request;
}

static void check_status(const MPI_Status *status, int cancelled)
{
    int count, flag;
    MPI_Get_count(status, MPI_INT, &count);
    EQUAL(count, 3, "count");
    EQUAL(status->MPI_SOURCE, 5, "source");
    EQUAL(status->MPI_TAG, 9, "tag");
    MPI_Test_cancelled(status, &flag);
    EQUAL(!!flag, cancelled, "cancelled");
}

static void one(void)
{
    struct facts facts;
    MPI_Status status;
    int flag;
    MPI_Request request = start(&facts), kept = request;
    MPI_Test(&request, &flag, &status);
    EQUAL(flag, 0, "test before completion");
    MPI_Cancel(&request);
    EQUAL(facts.complete, 0, "cancelled before completion");
    EQUAL(MPI_Grequest_complete(request), MPI_SUCCESS, "complete");
    EQUAL(error_class(MPI_Grequest_complete(request)), MPI_ERR_REQUEST, "completed twice");
    MPI_Cancel(&request);
    CHECK(facts.complete && facts.cancels == 2, "complete %d, %d cancels", facts.complete, facts.cancels);
    MPI_Request_get_status(request, &flag, &status);
    CHECK(flag && facts.queries == 1 && !facts.frees, "flag %d, %d queries, %d frees", flag, facts.queries, facts.frees);
    check_status(&status, 1);
    status.MPI_ERROR = 33;
    MPI_Wait(&request, &status);
    EQUAL(status.MPI_ERROR, 33, "the error of a status of MPI_Wait");
    check_status(&status, 1);
    CHECK(request == MPI_REQUEST_NULL && facts.queries == 2 && facts.frees == 1, "%d queries, %d frees", facts.queries,
          facts.frees);
    EQUAL(error_class(MPI_Grequest_complete(kept)), MPI_ERR_REQUEST, "completed after the end");

    request = start(&facts);
    MPI_Grequest_complete(request);
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    CHECK(flag && facts.queries == 1 && facts.frees == 1, "%d queries, %d frees", facts.queries, facts.frees);
}

/* The request is freed without a wait. The later one of free and complete calls the free function; the query
   function is not called. */
static void freed(void)
{
    struct facts facts;
    MPI_Request request = start(&facts), kept = request;
    MPI_Request_free(&request);
    CHECK(request == MPI_REQUEST_NULL && facts.frees == 0, "%d frees before completion", facts.frees);
    MPI_Grequest_complete(kept);
    CHECK(facts.frees == 1 && facts.queries == 0, "%d frees, %d queries", facts.frees, facts.queries);
    request = start(&facts);
    MPI_Grequest_complete(request);
    MPI_Request_free(&request);
    CHECK(facts.frees == 1 && facts.queries == 0, "%d frees, %d queries", facts.frees, facts.queries);
}

static void many(void)
{
    enum { N = 4 };
    struct facts facts[N];
    MPI_Request requests[N + 1];
    MPI_Status statuses[N + 1];
    int index, flag, count, indices[N + 1], in = 0, out = 4;
    for (int form = 0; form < 6; form++) {
        for (int i = 0; i < N; i++) requests[i] = start(&facts[i]);
        MPI_Irecv(&in, 1, MPI_INT, rank, form, MPI_COMM_WORLD, &requests[N]);
        MPI_Testall(N + 1, requests, &flag, statuses);
        EQUAL(flag, 0, "testall");
        MPI_Testany(N, requests, &index, &flag, statuses);
        EQUAL(flag, 0, "testany");
        MPI_Testsome(N, requests, &count, indices, statuses);
        EQUAL(count, 0, "testsome");
        for (int i = N - 1; i >= 0; i--) MPI_Grequest_complete(requests[i]);
        MPI_Send(&out, 1, MPI_INT, rank, form, MPI_COMM_WORLD);
        switch (form) {
        case 0: MPI_Waitall(N + 1, requests, statuses); break;
        case 1: MPI_Waitall(N + 1, requests, MPI_STATUSES_IGNORE); break;
        case 2: do MPI_Testall(N + 1, requests, &flag, statuses); while (!flag); break;
        case 3: for (int i = 0; i <= N; i++) MPI_Waitany(N + 1, requests, &index, &statuses[0]); break;
        case 4: for (int done = 0; done <= N; done += count) MPI_Waitsome(N + 1, requests, &count, indices, statuses); break;
        case 5: for (int done = 0; done <= N; done += count) MPI_Testsome(N + 1, requests, &count, indices, statuses); break;
        }
        if (form == 0 || form == 2)
            for (int i = 0; i < N; i++) check_status(&statuses[i], 0);
        for (int i = 0; i <= N; i++) CHECK(requests[i] == MPI_REQUEST_NULL, "request %d of form %d is not null", i, form);
        for (int i = 0; i < N; i++)
            CHECK(facts[i].queries == 1 && facts[i].frees == 1, "form %d: %d queries, %d frees", form, facts[i].queries,
                  facts[i].frees);
    }
}

/* Codes are passed on; for several requests, in their statuses. */
static void codes(void)
{
    struct facts facts[2];
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int class, code;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &code);
    requests[0] = start(&facts[0]);
    facts[0].query_code = code;
    MPI_Grequest_complete(requests[0]);
    EQUAL(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), code, "the query's code");
    EQUAL(facts[0].frees, 1, "frees");
    requests[0] = start(&facts[0]);
    facts[0].query_code = code;
    facts[0].free_code = class;
    MPI_Grequest_complete(requests[0]);
    EQUAL(MPI_Wait(&requests[0], MPI_STATUS_IGNORE), class, "the free's code");
    for (int i = 0; i < 2; i++) requests[i] = start(&facts[i]), MPI_Grequest_complete(requests[i]);
    facts[1].free_code = code;
    EQUAL(MPI_Waitall(2, requests, statuses), MPI_ERR_IN_STATUS, "waitall");
    EQUAL(statuses[0].MPI_ERROR, MPI_SUCCESS, "the first's error");
    EQUAL(statuses[1].MPI_ERROR, code, "the second's error");
    EQUAL(error_class(MPI_Grequest_complete(MPI_REQUEST_NULL)), MPI_ERR_REQUEST, "a null request");
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    one();
    freed();
    many();
    codes();
    return end();
}
