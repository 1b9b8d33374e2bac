/* Random views of all ranks, interleaved with holes, written and read by every kind of access with many
   hints. The model is an array of bytes that every rank fills for all ranks. */
/* SPDX-License-Identifier: BSD-3-Clause */
#include "io.h"

enum { FILE_BYTES = 40000, ROUNDS = 24 };

static unsigned seed;
static int below(int limit)
{
    seed = seed * 1103515245u + 12345u;
    return (int)((seed >> 16) % (unsigned)limit);
}

/* The file is dealt out to the ranks in stripes of random lengths, and some stripes to no rank. A tile is one
   deal. */
struct deal {
    int stripes, extent, displacement, owner[64], at[64], length[64];
};

static void make_deal(struct deal *deal)
{
    deal->stripes = 1 + below(40);
    deal->displacement = below(100);
    int at = 0;
    for (int i = 0; i < deal->stripes; i++) {
        deal->owner[i] = below(size + 1);
        deal->at[i] = at;
        deal->length[i] = 1 + below(30);
        at += deal->length[i];
    }
    deal->extent = at;
}

static MPI_Datatype filetype_of(const struct deal *deal, int who, int *bytes)
{
    int lengths[64], many = 0;
    MPI_Aint at[64];
    MPI_Datatype plain, type;
    *bytes = 0;
    for (int i = 0; i < deal->stripes; i++)
        if (deal->owner[i] == who) {
            lengths[many] = deal->length[i];
            at[many++] = deal->at[i];
            *bytes += deal->length[i];
        }
    MPI_Type_create_hindexed(many, lengths, at, MPI_BYTE, &plain);
    MPI_Type_create_resized(plain, 0, deal->extent, &type);
    MPI_Type_commit(&type);
    MPI_Type_free(&plain);
    return type;
}

/* The offset in the file of byte `k` of a rank's view, counted without gaps. */
static long place(const struct deal *deal, int who, int tile_bytes, long k)
{
    long tile = k / tile_bytes, rest = k % tile_bytes;
    for (int i = 0; i < deal->stripes; i++)
        if (deal->owner[i] == who) {
            if (rest < deal->length[i]) return deal->displacement + tile * deal->extent + deal->at[i] + rest;
            rest -= deal->length[i];
        }
    return -1;
}

static unsigned char byte_of(int who, long k, int round) { return (unsigned char)(value(who, (int)k, round) >> 7); }

enum kind { AT, AT_ALL, IAT, IAT_ALL, SPLIT, POINTER, ALL, IALL, KINDS };

static void access_file(MPI_File file, enum kind kind, int writes, MPI_Offset at, void *data, int count,
                        MPI_Datatype type, MPI_Status *status)
{
    MPI_Request request = MPI_REQUEST_NULL;
    switch (kind) {
#define BOTH(name, ...) \
    if (writes) OK(MPI_File_write##name(__VA_ARGS__)); \
    else OK(MPI_File_read##name(__VA_ARGS__));
#define IBOTH(name, ...) \
    if (writes) OK(MPI_File_iwrite##name(__VA_ARGS__)); \
    else OK(MPI_File_iread##name(__VA_ARGS__));
    case AT: BOTH(_at, file, at, data, count, type, status) return;
    case AT_ALL: BOTH(_at_all, file, at, data, count, type, status) return;
    case IAT: IBOTH(_at, file, at, data, count, type, &request) break;
    case IAT_ALL: IBOTH(_at_all, file, at, data, count, type, &request) break;
    case SPLIT:
        BOTH(_at_all_begin, file, at, data, count, type)
        BOTH(_at_all_end, file, data, status)
        return;
    case POINTER:
        OK(MPI_File_seek(file, at, MPI_SEEK_SET));
        BOTH(, file, data, count, type, status)
        return;
    case ALL:
        OK(MPI_File_seek(file, at, MPI_SEEK_SET));
        BOTH(_all, file, data, count, type, status)
        return;
    default:
        OK(MPI_File_seek(file, at, MPI_SEEK_SET));
        IBOTH(_all, file, data, count, type, &request)
    }
    OK(MPI_Wait(&request, status));
}

static void one_round(int round, const char *hints[][2])
{
    struct deal deal;
    MPI_Info info;
    MPI_Info_create(&info);
    for (int i = 0; hints[i][0]; i++) MPI_Info_set(info, hints[i][0], hints[i][1]);
    MPI_File file = open_fresh(info);
    MPI_Info_free(&info);
    make_deal(&deal);
    unsigned char *model = calloc(FILE_BYTES, 1), *seen = grab(FILE_BYTES), *data = grab(2 * FILE_BYTES);
    long model_bytes = 0, own_from = 0, own_bytes = 0;
    int tile_bytes;
    MPI_Datatype filetype = filetype_of(&deal, rank, &tile_bytes), spaced;
    /* Memory with a gap after each byte in every second round. */
    int step = 1 + round % 2;
    MPI_Type_create_resized(MPI_BYTE, 0, step, &spaced);
    MPI_Type_commit(&spaced);
    OK(MPI_File_set_view(file, deal.displacement, MPI_BYTE, filetype, "native", MPI_INFO_NULL));
    for (int who = 0; who < size; who++) {
        int bytes;
        MPI_Datatype type = filetype_of(&deal, who, &bytes);
        MPI_Type_free(&type);
        long from = below(50), many = bytes ? below(20) * (long)bytes + below(bytes + 1) : 0;
        for (long k = from; k < from + many; k++) {
            long at = place(&deal, who, bytes, k);
            model[at] = byte_of(who, k, round);
            if (at >= model_bytes) model_bytes = at + 1;
        }
        if (who == rank) own_from = from, own_bytes = many;
    }
    for (long k = 0; k < own_bytes; k++) data[k * step] = byte_of(rank, own_from + k, round);
    MPI_Status status;
    access_file(file, below(KINDS), 1, own_from, data, (int)own_bytes, spaced, &status);
    EQUAL(bytes_of(&status), own_bytes, "bytes written");
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    EQUAL(whole_file(seen, FILE_BYTES), model_bytes, "the file's length");
    long wrong = 0;
    while (wrong < model_bytes && seen[wrong] == model[wrong]) wrong++;
    EQUAL(wrong, model_bytes, "the first wrong byte of the file");
    /* Reads more than the file has. The rest of the memory stays as it was. */
    memset(data, 0xee, 2 * FILE_BYTES);
    /* All ranks draw the same numbers. */
    long more = below(200), wanted = tile_bytes ? own_bytes + more : 0, expected = 0;
    while (expected < wanted && place(&deal, rank, tile_bytes, own_from + expected) < model_bytes) expected++;
    access_file(file, below(KINDS), 0, own_from, data, (int)wanted, spaced, &status);
    EQUAL(bytes_of(&status), expected, "bytes read");
    long good = 0;
    while (good < expected && data[good * step] == model[place(&deal, rank, tile_bytes, own_from + good)]) good++;
    EQUAL(good, expected, "the first wrong byte that was read");
    while (good < FILE_BYTES && data[good * step] == 0xee) good++;
    EQUAL(good, FILE_BYTES, "the first byte changed behind what was read");
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_close(&file));
    MPI_Type_free(&filetype);
    MPI_Type_free(&spaced);
    free(model), free(seen), free(data);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    const char *plain[][2] = {{NULL, NULL}};
    const char *two_phase[][2] = {{"romio_cb_write", "enable"}, {"romio_cb_read", "enable"}, {NULL, NULL}};
    const char *small[][2] = {{"romio_cb_write", "enable"}, {"romio_cb_read", "enable"}, {"cb_buffer_size", "700"},
                              {"cb_nodes", "8"}, {"striping_unit", "1000"}, {NULL, NULL}};
    const char *sieving[][2] = {{"romio_ds_write", "enable"}, {"romio_ds_read", "enable"}, {"ind_wr_buffer_size", "333"},
                                {"ind_rd_buffer_size", "99"}, {"cb_nodes", "2"}, {"striping_unit", "512"}, {NULL, NULL}};
    const char *alone[][2] = {{"romio_cb_write", "disable"}, {"romio_cb_read", "disable"}, {"romio_ds_read", "disable"},
                              {NULL, NULL}};
    for (int round = 0; round < ROUNDS; round++) {
        seed = (unsigned)round * 77u + 1u;
        one_round(round, plain);
        one_round(round, two_phase);
        one_round(round, small);
        one_round(round, sieving);
        one_round(round, alone);
    }
    return end();
}
