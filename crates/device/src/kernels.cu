// SPDX-License-Identifier: BSD-3-Clause
/* Kernels of a device: packing and unpacking of datatypes, and reductions. NVRTC or hipRTC compiles them at run time (kernel.rs); a test
   compiles them for the host, as C with `__global__` and the like defined away. The file includes nothing. */
typedef unsigned long long u64;

#ifdef __cplusplus
#define C_NAMES extern "C"
#else
#define C_NAMES
#endif

/* What one load or store moves at most. */
typedef struct { u64 low, high; } __attribute__((aligned(16))) Sixteen;

/* Pieces of equal length at equal distances, and where the first lies among the packed bytes. kernel.rs has the same. */
typedef struct { u64 address, stride, bytes, repeat, at; } Strip;

/* `lanes` threads, of which this is number `lane`, copy words of the longest kind that both addresses and the length allow. */
#define COPY_AS(Word) \
    for (u64 i = lane; i < bytes / sizeof(Word); i += lanes) ((Word *)to)[i] = ((const Word *)from)[i]

static __device__ void copy(u64 to, u64 from, u64 bytes, u64 lane, u64 lanes)
{
    u64 bits = to | from | bytes;
    if (bits % 16 == 0) COPY_AS(Sixteen);
    else if (bits % 8 == 0) COPY_AS(u64);
    else if (bits % 4 == 0) COPY_AS(unsigned);
    else if (bits % 2 == 0) COPY_AS(unsigned short);
    else COPY_AS(unsigned char);
}

/* Strips are divided among the blocks' y, the pieces of a strip among groups of `lanes` threads. `is_pack`: from the strips to
   `packed`, else the other way. */
C_NAMES __global__ void outboard_move(u64 packed, const Strip *strips, u64 count, u64 lanes, u64 is_pack)
{
    u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, groups = (u64)gridDim.x * blockDim.x / lanes;
    for (u64 i = blockIdx.y; i < count; i += gridDim.y) {
        Strip strip = strips[i];
        for (u64 piece = thread / lanes; piece < strip.repeat; piece += groups) {
            u64 there = packed + strip.at + piece * strip.bytes, here = strip.address + piece * strip.stride;
            copy(is_pack ? there : here, is_pack ? here : there, strip.bytes, thread % lanes, lanes);
        }
    }
}

/* Reductions: into[i] = left[i] op into[i]. Elements lie `stride` bytes apart. Where they are dense and aligned, 16 bytes are loaded
   at a time. */
#define REDUCTION(name, T, expression) \
    static __device__ T combine_##name(T a, T b) { return expression; } \
    C_NAMES __global__ void outboard_##name(u64 left, u64 into, u64 count, u64 stride) \
    { \
        enum { EACH = 16 / sizeof(T) }; \
        typedef union { Sixteen all; T each[EACH]; } Words; \
        u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x; \
        u64 dense = (left | into) % 16 == 0 && stride == sizeof(T) ? count / EACH : 0; \
        for (u64 i = thread; i < dense; i += threads) { \
            Words a, b; \
            a.all = ((const Sixteen *)left)[i]; \
            b.all = ((const Sixteen *)into)[i]; \
            for (int j = 0; j < EACH; j++) b.each[j] = combine_##name(a.each[j], b.each[j]); \
            ((Sixteen *)into)[i] = b.all; \
        } \
        for (u64 i = dense * EACH + thread; i < count; i += threads) { \
            T *to = (T *)(into + i * stride); \
            *to = combine_##name(*(const T *)(left + i * stride), *to); \
        } \
    }

/* Of types without a sign, also for those with one where the bits are the same; and for logicals. 1u keeps the product of two short
   numbers from becoming a signed one that overflows. */
#define UNSIGNED(bits, T) \
    REDUCTION(sum_u##bits, T, a + b) \
    REDUCTION(prod_u##bits, T, 1u * a * b) \
    REDUCTION(land_u##bits, T, a && b) \
    REDUCTION(lor_u##bits, T, a || b) \
    REDUCTION(lxor_u##bits, T, !a != !b) \
    REDUCTION(band_u##bits, T, a & b) \
    REDUCTION(bor_u##bits, T, a | b) \
    REDUCTION(bxor_u##bits, T, a ^ b) \
    ORDERED(u##bits, T)
#define ORDERED(kind, T) \
    REDUCTION(max_##kind, T, a > b ? a : b) \
    REDUCTION(min_##kind, T, a < b ? a : b)
#define FLOATS(kind, T) \
    REDUCTION(sum_##kind, T, a + b) \
    REDUCTION(prod_##kind, T, a * b) \
    ORDERED(kind, T)

UNSIGNED(8, unsigned char)
UNSIGNED(16, unsigned short)
UNSIGNED(32, unsigned)
UNSIGNED(64, u64)
UNSIGNED(128, unsigned __int128)
ORDERED(i8, signed char)
ORDERED(i16, short)
ORDERED(i32, int)
ORDERED(i64, long long)
ORDERED(i128, __int128)
FLOATS(f32, float)
FLOATS(f64, double)

typedef struct { unsigned short bits; } Half;
typedef union { float number; unsigned bits; } Float;

static __device__ float wide(Half half)
{
    unsigned sign = (half.bits & 0x8000u) << 16, exponent = half.bits >> 10 & 31, rest = half.bits & 0x3ff;
    Float wide, scale;
    if (exponent == 31) {
        wide.bits = sign | 0x7f800000 | rest << 13;
        return wide.number;
    }
    /* As if exponents had the same zero; then multiplied by 2^112, which is exact also for subnormal numbers. */
    wide.bits = sign | exponent << 23 | rest << 13;
    scale.bits = (127 + 112) << 23;
    return wide.number * scale.number;
}

/* To the nearest, of two the even one. */
static __device__ Half narrow(float number)
{
    Float wide, magic;
    Half half;
    wide.number = number;
    unsigned sign = wide.bits >> 16 & 0x8000, size = wide.bits & 0x7fffffff, bits;
    if (size > 0x7f800000) bits = 0x7e00 | (size >> 13 & 0x3ff);
    else if (size >= 0x477ff000) bits = 0x7c00;
    else if (size < 0x38800000) {
        /* Subnormal: the addition rounds to multiples of 2^-24. */
        wide.bits = size;
        magic.bits = 126 << 23;
        wide.number += magic.number;
        bits = wide.bits - magic.bits;
    } else bits = (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13;
    half.bits = (unsigned short)(sign | bits);
    return half;
}

REDUCTION(sum_f16, Half, narrow(wide(a) + wide(b)))
REDUCTION(prod_f16, Half, narrow(wide(a) * wide(b)))
REDUCTION(max_f16, Half, wide(a) > wide(b) ? a : b)
REDUCTION(min_f16, Half, wide(a) < wide(b) ? a : b)

/* Parts of type `Stored` in memory, computed with as `Part`. */
#define COMPLEX(kind, Stored, Part, FROM, TO) \
    typedef struct { Stored real, imaginary; } Complex_##kind; \
    static __device__ Complex_##kind complex_##kind(Part real, Part imaginary) \
    { \
        Complex_##kind made; \
        made.real = TO(real), made.imaginary = TO(imaginary); \
        return made; \
    } \
    REDUCTION(sum_##kind, Complex_##kind, complex_##kind(FROM(a.real) + FROM(b.real), FROM(a.imaginary) + FROM(b.imaginary))) \
    REDUCTION(prod_##kind, Complex_##kind, complex_##kind(FROM(a.real) * FROM(b.real) - FROM(a.imaginary) * FROM(b.imaginary), \
                                                          FROM(a.real) * FROM(b.imaginary) + FROM(a.imaginary) * FROM(b.real)))

COMPLEX(c16, Half, float, wide, narrow)
COMPLEX(c32, float, float, , )
COMPLEX(c64, double, double, , )

/* A value and its index, in the form of the program's memory: some have padding, which stays as it is. Of equal values the lowest
   index counts. */
#define PAIR(kind, V, I) \
    typedef struct { V value; I index; } Pair_##kind; \
    LOCATION(maxloc_##kind, Pair_##kind, >) \
    LOCATION(minloc_##kind, Pair_##kind, <)
#define LOCATION(name, T, better) \
    C_NAMES __global__ void outboard_##name(u64 left, u64 into, u64 count, u64 stride) \
    { \
        u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x, threads = (u64)gridDim.x * blockDim.x; \
        for (u64 i = thread; i < count; i += threads) { \
            const T *a = (const T *)(left + i * stride); \
            T *b = (T *)(into + i * stride); \
            if (a->value better b->value || (a->value == b->value && a->index <= b->index)) \
                b->value = a->value, b->index = a->index; \
        } \
    }

PAIR(f32i32, float, int)
PAIR(f64i32, double, int)
PAIR(i64i32, long long, int)
PAIR(i32i32, int, int)
PAIR(i16i32, short, int)
PAIR(f32f32, float, float)
PAIR(f64f64, double, double)
