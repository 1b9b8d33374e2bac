/* Messages between two members, or of all. A tag is used once on a comm, so a wildcard for the source is determined, unless
   many send with one tag; a wildcard for the tag names the source, and is used only where nothing else is under way to that member
   (`exclusive`). Both at once are determined between two barriers only (`gather_any`). */
/* SPDX-License-Identifier: BSD-3-Clause */
enum { SEND, SSEND, BSEND, RSEND, ISEND, ISSEND, IBSEND, IRSEND, SEND_INIT, SSEND_INIT, BSEND_INIT, RSEND_INIT, SENDS };
enum { RECV, PROBE, IPROBE, MPROBE, IMPROBE, IRECV, RECV_INIT, RECVS };

/* Draws two members; in an intercommunicator one of each group. */
static int draw_pair(int at, int *from, int *to)
{
    struct comm *c = of(at);
    *from = draw(places(c));
    *to = !c->inter ? draw(c->n) : *from < c->n ? c->n + draw(c->m) : draw(c->n);
    return quiet_at(at);
}

/* Rank `a` sends to rank `b` in the way `c`; `b` receives in the way `d`. `e`: the receiver starts first. `f`: wildcards, 1 the
   source, 2 the tag. `g`: rounds. */
static int plan_message(struct op *op)
{
    op->on = any_comm(1, -1);
    if (op->on < 0 || !draw_pair(op->on, &op->a, &op->b)) return 0;
    op->c = draw(SENDS), op->e = draw(2), op->f = focus == 1 && draw(2) ? 1 : draw(3), op->h = draw(7);
    int ready = op->c == RSEND || op->c == IRSEND || op->c == RSEND_INIT;
    if (ready) op->e = 1;
    op->d = op->e ? IRECV + draw(2) : draw(RECVS);
    if (!op->e && (op->c == SEND || op->c == SSEND)) op->c += ISEND - SEND;
    op->g = op->d == RECV_INIT || op->c >= SEND_INIT ? 1 + draw(3) : 1;
    if (op->f & 2 && (of(op->on)->outstanding[op->b] || op->g > 1 || (places(of(op->on)) == 1 && COLLECTIVE_MEETS_RECEIVE_ALONE))) op->f &= 1;
    op->phases = 3 * op->g;
    of(op->on)->buffered |= op->c == BSEND || op->c == IBSEND || op->c == BSEND_INIT;
    op->tag = new_tag(op->on), of(op->on)->busy++, of(op->on)->pending++, of(op->on)->exclusive[op->b] += op->f >> 1, op->persistent = op->d == RECV_INIT || op->c >= SEND_INIT;
    return 1;
}
static void message_planned(struct op *op, int phase)
{
    struct comm *c = of(op->on);
    if (phase == 0) c->outstanding[op->b]++;
    if (phase == op->phases - 2) c->outstanding[op->b]--, c->exclusive[op->b] -= op->f >> 1, c->busy--;
    c->pending -= phase + 1 == op->phases;
}

static void start_send(struct op *op, int round)
{
    struct comm *c = of(op->on);
    int to = rank_at(c, op->b), tag = op->tag;
    MPI_Comm on = comm[op->on];
    MPI_Request *r = &request[op->id][0];
    if (op->c == RSEND || op->c == IRSEND || op->c == RSEND_INIT)
        CALL(MPI_Recv, NULL, 0, MPI_BYTE, world_at(c, op->b), op->id, quiet, MPI_STATUS_IGNORE);
    if (round > 0 && op->c >= SEND_INIT) {
        DO(fill, op->memory[1], op->data[1], key(op, 0, round));
        CALL(MPI_Start, r);
        return;
    }
    struct basic basic = basic_of(op->h);
    struct shape s = shape(op, basic, 1);
    int count = count_of(op, s.basics * basic.bytes, 1);
    void *data = buffer(op, s, count, key(op, 0, round));
    op->memory[1] = data, op->data[1] = span(s, count);
    switch (op->c) {
    case SEND: CALL(MPI_Send, data, count, s.type, to, tag, on); break;
    case SSEND: CALL(MPI_Ssend, data, count, s.type, to, tag, on); break;
    case BSEND: CALL(MPI_Bsend, data, count, s.type, to, tag, on); break;
    case RSEND: CALL(MPI_Rsend, data, count, s.type, to, tag, on); break;
    case ISEND: CALL(MPI_Isend, data, count, s.type, to, tag, on, r); break;
    case ISSEND: CALL(MPI_Issend, data, count, s.type, to, tag, on, r); break;
    case IBSEND: CALL(MPI_Ibsend, data, count, s.type, to, tag, on, r); break;
    case IRSEND: CALL(MPI_Irsend, data, count, s.type, to, tag, on, r); break;
    case SEND_INIT: CALL(MPI_Send_init, data, count, s.type, to, tag, on, r); break;
    case SSEND_INIT: CALL(MPI_Ssend_init, data, count, s.type, to, tag, on, r); break;
    case BSEND_INIT: CALL(MPI_Bsend_init, data, count, s.type, to, tag, on, r); break;
    default: CALL(MPI_Rsend_init, data, count, s.type, to, tag, on, r);
    }
    unmake(s);
    if (op->c >= SEND_INIT) CALL(MPI_Start, r);
    else if (op->c < ISEND) DO(fill, data, op->data[1], 1);
}

static void start_recv(struct op *op, int round)
{
    struct comm *c = of(op->on);
    int from = op->f & 1 ? MPI_ANY_SOURCE : rank_at(c, op->a), tag = op->f & 2 ? MPI_ANY_TAG : op->tag;
    MPI_Comm on = comm[op->on];
    MPI_Request *r = &request[op->id][1];
    MPI_Status *stat = &done[op->id][1];
    if (round > 0 && op->d == RECV_INIT) {
        DO(fill, op->memory[0], op->data[0], key(op, 1, round));
        CALL(MPI_Start, r);
    } else {
        struct basic basic = basic_of(op->h);
        struct shape s = shape(op, basic, 1);
        int count = count_of(op, s.basics * basic.bytes, 1);
        if (ANY(2)) {
            count = count * s.basics + ANY(3);
            unmake(s), s = plain(basic);
        } else {
            count += ANY(2);
        }
        void *data = buffer(op, s, count, key(op, 1, round));
        op->memory[0] = data, op->data[0] = span(s, count);
        switch (op->d) {
        case PROBE:
            CALL(MPI_Probe, from, tag, on, &status[0]);
            DO(see_status, &status[0], basic.type);
            /* Falls through. */
        case RECV: CALL(MPI_Recv, data, count, s.type, from, tag, on, stat); break;
        case IPROBE:
            UNTIL(out[0], MPI_Iprobe, from, tag, on, &out[0], &status[0]);
            DO(see_status, &status[0], basic.type);
            CALL(MPI_Irecv, data, count, s.type, from, tag, on, r);
            break;
        case MPROBE:
            CALL(MPI_Mprobe, from, tag, on, &message[0], &status[0]);
            DO(see_status, &status[0], basic.type);
            CALL(MPI_Mrecv, data, count, s.type, &message[0], stat);
            break;
        case IMPROBE:
            UNTIL(out[0], MPI_Improbe, from, tag, on, &out[0], &message[0], &status[0]);
            CALL(MPI_Imrecv, data, count, s.type, &message[0], r);
            break;
        case IRECV: CALL(MPI_Irecv, data, count, s.type, from, tag, on, r); break;
        default: CALL(MPI_Recv_init, data, count, s.type, from, tag, on, r), CALL(MPI_Start, r);
        }
        unmake(s);
    }
    if (op->c == RSEND || op->c == IRSEND || op->c == RSEND_INIT) CALL(MPI_Send, NULL, 0, MPI_BYTE, world_at(c, op->a), op->id, quiet);
}

static void run_message(struct op *op, int phase)
{
    int at = mine(op->on), sends = at == op->a, receives = at == op->b, round = phase / 3, last = phase + 1 == op->phases;
    if (!sends && !receives) return;
    int persistent = (sends && op->c >= SEND_INIT) || (receives && op->d == RECV_INIT);
    if (phase % 3 < 2) {
        if (phase % 3 == op->e && sends) start_send(op, round);
        if (phase % 3 != op->e && receives) start_recv(op, round);
        op->requests = persistent ? 0 : 2;
        return;
    }
    wait_for(op, 2);
    if (receives) {
        DO(see_status, &done[op->id][1], basic_of(op->h).type);
        DO(see, "received", op->memory[0], op->data[0]);
    }
    if (last && sends && op->c >= SEND_INIT) CALL(MPI_Request_free, &request[op->id][0]);
    if (last && receives && op->d == RECV_INIT) CALL(MPI_Request_free, &request[op->id][1]);
}

/* Several messages with one tag, which must arrive in the order sent. */
static int plan_burst(struct op *op)
{
    op->on = any_comm(1, -1), op->c = 2 + draw(6), op->e = draw(2), op->f = draw(3), op->phases = 3;
    if (op->on < 0 || !draw_pair(op->on, &op->a, &op->b)) return 0;
    if (of(op->on)->outstanding[op->b] || (places(of(op->on)) == 1 && COLLECTIVE_MEETS_RECEIVE_ALONE)) op->f &= 1;
    op->tag = new_tag(op->on), of(op->on)->busy++, of(op->on)->pending++, of(op->on)->exclusive[op->b] += op->f >> 1;
    return 1;
}
static void run_burst(struct op *op, int phase)
{
    struct comm *c = of(op->on);
    int at = mine(op->on), sends = at == op->a, receives = at == op->b;
    if (!sends && !receives) return;
    for (int i = 0; i < op->c && phase < 2; i++) {
        int count = count_of(op, 4, i);
        if (phase == op->e && sends) {
            int *data = buffer(op, plain(basic_of(0)), count, key(op, 0, i));
            if (ANY_OF(i, 4)) CALL(MPI_Isend, data, count, MPI_INT, rank_at(c, op->b), op->tag, comm[op->on], &request[op->id][i]);
            else CALL(MPI_Issend, data, count, MPI_INT, rank_at(c, op->b), op->tag, comm[op->on], &request[op->id][i]);
        }
        if (phase != op->e && receives) {
            int from = op->f & 1 && ANY_OF(i, 2) ? MPI_ANY_SOURCE : rank_at(c, op->a), tag = op->f & 2 && ANY_OF(i, 2) ? MPI_ANY_TAG : op->tag;
            op->memory[i] = buffer(op, plain(basic_of(0)), count, key(op, 1, i));
            if (!op->e && ANY_OF(i, 2)) CALL(MPI_Recv, op->memory[i], count, MPI_INT, from, tag, comm[op->on], &done[op->id][8 + i]);
            else CALL(MPI_Irecv, op->memory[i], count, MPI_INT, from, tag, comm[op->on], &request[op->id][8 + i]);
        }
    }
    op->requests = REQUESTS;
    if (phase < 2) return;
    wait_for(op, REQUESTS);
    for (int i = 0; i < op->c && receives; i++) {
        DO(see_status, &done[op->id][8 + i], MPI_INT);
        DO(see, "burst", op->memory[i], 4l * count_of(op, 4, i));
    }
}

/* All members send to one, which receives from any source; between barriers also with any tag. */
static int plan_gather_any(struct op *op)
{
    int to;
    op->on = any_comm(2, -1), op->c = draw(4), op->e = draw(3) == 0, op->phases = op->e ? 1 : 3;
    if (op->on < 0 || !draw_pair(op->on, &to, &op->b)) return 0;
    if (op->e && of(op->on)->outstanding[op->b]) return 0;
    op->tag = new_tag(op->on), of(op->on)->busy++;
    return 1;
}
static void gather_any_planned(struct op *op, int phase)
{
    struct comm *c = of(op->on);
    if (phase == 0) c->outstanding[op->b]++;
    if (phase == (op->e ? 0 : 1)) c->outstanding[op->b]--;
    if (phase + 1 == op->phases) c->busy--;
}
static void run_gather_any(struct op *op, int phase)
{
    struct comm *c = of(op->on);
    int at = mine(op->on), root = op->b, sends = at != root && (!c->inter || (at < c->n) != (root < c->n));
    int many = !c->inter ? c->n - 1 : root < c->n ? c->m : c->n, bytes = count_of(op, 1, 1) % 60000 + 1;
    if (at < 0) return;
    if (phase == 0) {
        if (op->e) CALL(MPI_Barrier, comm[op->on]);
        if (sends) {
            void *data = buffer(op, plain(basic_of(1)), bytes, key(op, at, 0));
            CALL(MPI_Isend, data, bytes, MPI_BYTE, rank_at(c, root), op->e ? 10000 + op->id * 16 + ANY_OF(at, 9) : op->tag, comm[op->on], &request[op->id][0]);
            op->requests = 1;
        }
    }
    if (at == root && phase == (op->e ? 0 : 1)) DO(gather_any, comm[op->on], many, op->e ? MPI_ANY_TAG : op->tag, op->c, bytes);
    if (phase + 1 == op->phases && sends) wait_for(op, 1);
    if (op->e) CALL(MPI_Barrier, comm[op->on]);
}

/* All members shift data along a ring or a line. */
static int plan_shift(struct op *op)
{
    op->on = any_comm(1, 0), op->a = draw(4), op->b = 1 + draw(3), op->c = draw(2), op->phases = op->a < 2 ? 1 : 2;
    if (op->on < 0) return 0;
    for (int i = 0; i < of(op->on)->n; i++)
        if (of(op->on)->exclusive[i]) return 0;
    for (int i = 0; i < of(op->on)->n && op->phases == 2; i++) of(op->on)->outstanding[i]++;
    op->tag = new_tag(op->on), of(op->on)->pending += op->phases == 2;
    return 1;
}
static void shift_planned(struct op *op, int phase)
{
    of(op->on)->pending -= phase == 1;
    for (int i = 0; i < of(op->on)->n && phase == 1; i++) of(op->on)->outstanding[i]--;
}
static void run_shift(struct op *op, int phase)
{
    int at = mine(op->on), n = of(op->on)->n, to = at + op->b, from = at - op->b;
    if (at < 0) return;
    if (phase == 0) {
        to = op->c ? to % n : to < n ? to : MPI_PROC_NULL, from = op->c ? (from % n + n) % n : from >= 0 ? from : MPI_PROC_NULL;
        struct basic basic = basic_of(ANY(7));
        struct shape s = op->a == 3 && ISENDRECV_REPLACE_OF_DERIVED ? plain(basic) : shape(op, basic, 1);
        int count = count_of(op, s.basics * basic.bytes, 1);
        void *data = buffer(op, s, count, key(op, at, 0)), *there = buffer(op, s, count, key(op, at, 1));
        MPI_Comm on = comm[op->on];
        op->memory[0] = op->a & 1 ? data : there, op->data[0] = span(s, count);
        switch (op->a) {
        case 0: CALL(MPI_Sendrecv, data, count, s.type, to, op->tag, there, count, s.type, from, op->tag, on, &done[op->id][0]); break;
        case 1: CALL(MPI_Sendrecv_replace, data, count, s.type, to, op->tag, from, op->tag, on, &done[op->id][0]); break;
        case 2: CALL(MPI_Isendrecv, data, count, s.type, to, op->tag, there, count, s.type, from, op->tag, on, &request[op->id][0]); break;
        default: CALL(MPI_Isendrecv_replace, data, count, s.type, to, op->tag, from, op->tag, on, &request[op->id][0]);
        }
        unmake(s), op->requests = 1;
    }
    if (phase + 1 < op->phases) return;
    if (op->phases == 2) wait_for(op, 1);
    if (op->a < 2 || !STATUS_OF_ISENDRECV) DO(see_status, &done[op->id][0], MPI_BYTE);
    DO(see, "shifted", op->memory[0], op->data[0]);
}

/* Messages in partitions. The two sides have different numbers of partitions. */
static int plan_partitioned(struct op *op)
{
    op->on = any_comm(1, 0);
    if (op->on < 0 || !draw_pair(op->on, &op->a, &op->b) || op->a == op->b) return 0;
    op->phases = 4, op->tag = new_tag(op->on), of(op->on)->busy++;
    return 1;
}
static void partitioned_planned(struct op *op, int phase) { of(op->on)->busy -= phase == 3; }
static void run_partitioned(struct op *op, int phase)
{
    int at = mine(op->on), parts = 1 << ANY(4), others = 1 << ANY(4), each = 16 * (1 + ANY(20)) * (ANY(5) ? 1 : 100);
    MPI_Request *r = &request[op->id][0];
    if (at != op->a && at != op->b) return;
    if (phase == 0) {
        op->data[0] = (long) parts * each;
        op->memory[0] = buffer(op, plain(basic_of(1)), op->data[0], key(op, at, 0));
        if (at == op->a) CALL(MPI_Psend_init, op->memory[0], parts, (MPI_Count) each, MPI_BYTE, op->b, op->tag, comm[op->on], MPI_INFO_NULL, r);
        else CALL(MPI_Precv_init, op->memory[0], others, (MPI_Count) (parts * each / others), MPI_BYTE, op->a, op->tag, comm[op->on], MPI_INFO_NULL, r);
    }
    if (phase == 1 || phase == 2) {
        if (at == op->b) DO(fill, op->memory[0], op->data[0], key(op, at, phase));
        CALL(MPI_Start, r);
        int shift = ANY_OF(phase, parts);
        for (int i = 0; i < parts && at == op->a; i++) CALL(MPI_Pready, (i + shift) % parts, *r);
        if (at == op->b && ANY(2)) UNTIL(out[0], MPI_Parrived, *r, ANY_OF(phase, others), &out[0]);
        if (phase == 1 || ANY(2)) CALL(MPI_Wait, r, MPI_STATUS_IGNORE);
    }
    if (phase == 2) op->data[1] = 1;
    if (phase < 3) return;
    CALL(MPI_Wait, r, MPI_STATUS_IGNORE);
    DO(see, "partitions", op->memory[0], op->data[0]);
    CALL(MPI_Request_free, r);
}

/* One member alone: a receive that is cancelled, and messages to MPI_PROC_NULL. */
static int plan_nobody(struct op *op)
{
    op->on = any_comm(1, -1);
    if (op->on < 0 || !quiet_at(op->on)) return 0;
    op->a = draw(places(of(op->on))), op->b = draw(3), op->tag = new_tag(op->on);
    return 1;
}
static void run_nobody(struct op *op, int phase)
{
    MPI_Comm on = comm[op->on];
    (void) phase;
    if (mine(op->on) != op->a) return;
    if (op->b == 0) {
        void *data = grab(op, 64);
        CALL(MPI_Irecv, data, 64, MPI_BYTE, ANY(2) ? MPI_ANY_SOURCE : 0, op->tag, on, &request[op->id][0]);
        CALL(MPI_Cancel, &request[op->id][0]);
        CALL(MPI_Wait, &request[op->id][0], &status[0]);
        CALL(MPI_Test_cancelled, &status[0], &out[0]);
        DO(see_number, "cancelled", out[0]);
    } else if (op->b == 1) {
        CALL(MPI_Send, NULL, 0, MPI_INT, MPI_PROC_NULL, op->tag, on);
        CALL(MPI_Recv, NULL, 0, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, on, &status[0]);
        DO(see_status, &status[0], MPI_INT);
        CALL(MPI_Mprobe, MPI_PROC_NULL, op->tag, on, &message[0], &status[0]);
        DO(see_status, &status[0], MPI_INT);
        CALL(MPI_Mrecv, NULL, 0, MPI_INT, &message[0], &status[0]);
        DO(see_status, &status[0], MPI_INT);
    } else {
        CALL(MPI_Iprobe, MPI_ANY_SOURCE, op->tag, on, &out[0], &status[0]);
        DO(see_number, "nothing came", out[0]);
        CALL(MPI_Iprobe, MPI_PROC_NULL, op->tag, on, &out[0], &status[0]);
        DO(see_number, "nobody", out[0]);
        DO(see_status, &status[0], MPI_INT);
    }
}

#define MESSAGE_KINDS \
    { "message", 40, plan_message, run_message, message_planned }, { "burst", 5, plan_burst, run_burst, message_planned }, \
    { "gather_any", 4, plan_gather_any, run_gather_any, gather_any_planned }, { "shift", 4, plan_shift, run_shift, shift_planned }, \
    { "partitioned", 2, plan_partitioned, run_partitioned, partitioned_planned }, { "nobody", 2, plan_nobody, run_nobody, NULL },
