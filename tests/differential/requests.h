/* Whether a request belongs to this operation. */
/* SPDX-License-Identifier: BSD-3-Clause */
static int which_too(struct op *op, int other) { return ANY_OF(other, 3) && of(ops[other].on)->session == of(op->on)->session; }

/* Waits for the first `count` requests of an operation, in a way that each rank draws for itself. */
static void wait_for(struct op *op, int count)
{
    int way = ANY_OF(rank * 16 + op->phase++, 14);
    op->requests = 0;
    if (way == 4 && op->persistent && GET_STATUS_OF_PERSISTENT) way = 0;
    if (way == 2 && op->collective && op->persistent && TESTALL_OF_PERSISTENT_COLLECTIVE) way = 0;
    switch (way) {
    case 0: DO(wait_each, op->id, count); break;
    case 1: DO(wait_backwards, op->id, count); break;
    case 2: DO(test_all, op->id, count); break;
    case 3: DO(test_each, op->id, count); break;
    case 4: DO(look_each, op->id, count); break;
    case 5: DO(wait_any, op->id, count); break;
    case 6: DO(test_any, op->id, count); break;
    case 7: DO(wait_some, op->id, count); break;
    case 8: DO(test_some, op->id, count); break;
    case 9:
    case 10:
    case 11: {
        /* Waits among all requests that are under way. */
        int many = 1;
        for (int i = 0; i < op_count; i++) many += ops[i].requests && i != op->id && which_too(op, i);
        int *which = ints(op, many), *counts = ints(op, many);
        many = 0, which[many] = op->id, counts[many++] = count;
        for (int i = 0; i < op_count; i++)
            if (ops[i].requests && i != op->id && which_too(op, i)) which[many] = i, counts[many++] = ops[i].requests;
        DO(wait_together, many, which, counts);
        break;
    }
    default: DO(wait_all, op->id, count);
    }
}
