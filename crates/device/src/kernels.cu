/* Packing and unpacking of datatypes on a device. NVRTC compiles it at run time (kernel.rs); a test compiles it for the host, as C
   with `__global__` and the like defined away. It includes nothing. */
typedef unsigned long long u64;

#ifdef __cplusplus
#define C_NAMES extern "C"
/* One load and one store of 16 bytes. */
typedef uint4 Sixteen;
#else
#define C_NAMES
typedef struct { u64 low, high; } Sixteen;
#endif

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
