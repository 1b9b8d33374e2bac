/* What every rank knows of the program that a seed makes: its operations, the order of their steps, and who belongs to which comm.
   All ranks compute the same. An operation draws what it needs when it is planned (`draw`, one stream for a whole program) or when it runs
   (`ANY`, which depends on the seed, the operation and the place in the source only), so that leaving others out changes nothing in it. */
/* SPDX-License-Identifier: BSD-3-Clause */
struct comm {
    int alive, inter;
    int buffered;                     /* buffered sends were made on it */
    int busy, pending;                /* operations that still need the handle; that are under way on it */
    int topology, dims[3], periods[3], dimensions; /* MPI_CART, MPI_GRAPH, MPI_DIST_GRAPH or 0 */
    int n, world[RANKS_MAX];          /* the members, or the first group */
    int m, other[RANKS_MAX];          /* the second group */
    int maker;                        /* the operation that makes it, or -1 */
    int session;                      /* the operation that makes the session it comes from, or 0 */
    int tags;                         /* how many tags were used on it: each is used once, but the same ones on all comms */
    int outstanding[RANKS_MAX];       /* messages to each member that not both sides have started; of an intercommunicator, n + place */
    int exclusive[RANKS_MAX];         /* the member that waits for any message there */
};
struct window { int alive, busy, comm, maker, flavor; long bytes; };

struct op {
    int id, kind, kept, phases, phase;
    int on, peer, third, window; /* the comms and the window it works on, or -1 */
    int tag;
    int a, b, c, d, e, f, g, h;  /* what was drawn, each kind for itself */
    int collective, persistent;  /* what its requests are */
    int requests;                /* how many of request[id] are under way and may complete at any wait */
    struct block { void *start; size_t bytes; } block[400];
    int blocks;
    int session;                 /* it makes a session */
    uint64_t hash;
    long data[8];                /* what one step leaves for the next */
    void *memory[8];
};

struct kind {
    const char *name;
    int weight;
    int (*plan)(struct op *);          /* 0: impossible now */
    void (*run)(struct op *, int phase);
    void (*planned)(struct op *, int phase); /* what changes in the model at each step; may be null */
};

static struct comm comms[COMMS_MAX];
static struct window wins[WINS_MAX];
static struct op ops[OPS_MAX];
static int comm_count, op_count;
/* Programs of focus 1 have many intercommunicators, made of comms of one process, and use mainly these. */
static int focus;
static uint64_t seed, drawn;

static int draw(int n)
{
    drawn = mix(drawn, 77);
    return (int) ((drawn >> 33) % (unsigned) n);
}
static int one_in(int n) { return draw(n) == 0; }
static int any(const struct op *op, int place, int index, int n)
{
    return (int) ((mix(mix(mix(seed, (uint64_t) op->id), (uint64_t) place), (uint64_t) index) >> 33) % (unsigned) n);
}
/* A number of 0 .. n - 1, the same on all ranks. ANY_OF also depends on an index. */
#define ANY(n) any(op, __COUNTER__, 0, n)
#define ANY_OF(index, n) any(op, __COUNTER__, index, n)
/* The number from which an operation's data are made. */
static long key(const struct op *op, int who, int what)
{
    return (long) (mix(mix(seed, (uint64_t) op->id), (uint64_t) (who * 1000 + what)) >> 2);
}

/* My place in the comm's groups; the second group of an intercommunicator has the places from n on. -1 if
   this process is not a member. */
static int place_of(const struct comm *c, int who)
{
    for (int i = 0; i < c->n; i++)
        if (c->world[i] == who) return i;
    for (int i = 0; i < c->m; i++)
        if (c->other[i] == who) return c->n + i;
    return -1;
}
static int places(const struct comm *c) { return c->n + c->m; }
/* My rank in my group. */
static int rank_at(const struct comm *c, int place) { return place < c->n ? place : place - c->n; }
static int world_at(const struct comm *c, int place) { return place < c->n ? c->world[place] : c->other[place - c->n]; }

/* Whether no member of the comm waits for any message. */
static int quiet_at(int at)
{
    for (int i = 0; i < places(&comms[at]); i++)
        if (comms[at].exclusive[i]) return 0;
    return 1;
}

static int new_comm(struct op *op)
{
    if (comm_count == COMMS_MAX) return -1;
    memset(&comms[comm_count], 0, sizeof *comms);
    comms[comm_count].maker = op->id;
    if (op->on > 0) comms[comm_count].session = comms[op->on].session;
    return comm_count++;
}
/* Draws a living comm of at least `least` places, recent ones more often. `inter` is 0 or 1, or -1 if it does not matter. Returns
   -1 if there is none. */
static int any_comm(int least, int inter)
{
    for (int tries = 0; tries < 40; tries++) {
        int wanted = inter < 0 && focus == 1 && tries < 20 && draw(4) ? 1 : inter;
        int at = one_in(3) || (focus == 1 && tries < 10) ? comm_count - 1 - draw(comm_count < 6 ? comm_count : 6) : draw(comm_count);
        struct comm *c = &comms[at];
        if (c->alive && places(c) >= least && (wanted < 0 || c->inter == wanted)) return at;
    }
    return -1;
}
static struct comm *of(int at) { return &comms[at]; }
static int new_tag(int at) { return comms[at].tags++ + (places(&comms[at]) == 1 && COLLECTIVE_MEETS_RECEIVE_ALONE ? 1000 : 0); }
static int mine(int at) { return place_of(&comms[at], rank); }

/* Memory that an operation has until its end, with guard bytes on both sides (`check_guards`). */
enum { GUARD = 64 };
static void *grab(struct op *op, size_t bytes);
