// The fused, padded MoE layer of one rank: alignment, then two launches.
//
// pp_align sorts the routed slots by expert into blocks of 16 rows. pp_gemm1 multiplies gathered
// rows of x by w13, dequantising on the way, and applies bias and activation. pp_gemm2 multiplies
// the intermediate by w2, applies bias and routing weight, and the last block that finishes a token
// adds its choices in their order: no atomics on floats, so that neither batch nor grid moves a bit.
//
// Order of summation, in both paths and both engines: K in groups of 16 from k = 0, each group's sum
// from zero, times the group's scale, added to the accumulator. A group is one mma.sync where every
// code is a bfloat16 (and x or the intermediate is stored so), else sixteen fused multiply-adds.
// Elements beyond K are zeros within the last group. Padding appends groups of zeros: the tree of the
// real ones stays as it is (Schedule::Blocked(16)).
//
// Two paths, chosen on the Rust side: FAST loads 16 bytes at a time by cp.async into the next of two
// stages; the general one takes any width with predicated loads of `unit` bytes.
//
// Rows past a block's slots, columns past N and bytes past a row are neither read nor written. How many
// columns and channels there are is told at run time; where a plan leaves padding out of them, it is not
// read either.
#pragma once
#ifdef PP_HOST
#include "host/cuda_host.h"
#else
#include "device.cuh"
#endif
#include "numeric.cuh"
#include "params.h"

// Faults that tests plant, one at a time; compiled in for the host only.
#ifdef PP_FAULTS
#define PP_FAULT(n) (p.fault == (n))
#else
#define PP_FAULT(n) (false)
#endif
enum PpFault : int {
    PP_TAIL_READ = 1,          // the general path reads whole groups of K
    PP_NO_BARRIER_BEFORE = 2,  // no barrier between loading a stage and computing from it
    PP_NO_BARRIER_AFTER = 3,   // no barrier between computing from a stage and loading it again
    PP_WRONG_HALF = 4,         // the second half is sought one row early
    PP_SCALE_OVER_READ = 5,    // scales are read a whole stage at a time (facts/reports.md B87)
    PP_SENTINEL_AS_ADDRESS = 6,// sentinel rows are stored like others
    PP_NO_WAIT = 7,            // cp.async is not waited for
    PP_DIRTY_SHARED = 8,       // shared memory beyond a row is left as it was
    PP_NEGATIVE_ID = 9,        // an id of -1 counts for the first expert (facts/reports.md B91)
    PP_ORDER_FROM_K = 10,      // groups backwards where K is a multiple of 32: padding moves bits
    PP_COUNT_EARLY = 11,       // a block counts its choices before all of its threads have stored them
    PP_COMBINE_EARLY = 12,     // a block adds a token's choices though it was not the last to store one
    PP_TURN_FORGOTTEN = 13,    // alignment does not count what a warp placed in the turn before
    PP_SCAN_NO_CARRY = 14,     // alignment counts blocks anew for every 32 experts
    PP_NO_WARP_SYNC = 15,      // a lane's count of placed slots is read by its warp without a barrier
    PP_CHOICES_REVERSED = 16,  // a token's choices are added last to first
};

constexpr int PP_THREADS = 128;
constexpr int PP_BLOCKS_PER_SM = 4;     // leaves 128 registers a thread; left open, ptxas spills on sm_100a
constexpr int PP_ALIGN_THREADS = 256;
constexpr int PP_ALIGN_INTS = PP_ALIGN_THREADS / 32 + 2;  // of shared memory, an expert
constexpr int PP_BM = 16;               // rows of a block
constexpr int PP_BN = 64;               // weight rows of a block
constexpr int PP_BK = 64;               // columns of a stage
constexpr int PP_GROUP = 16;            // columns of a group
constexpr int PP_GROUPS = PP_BK / PP_GROUP;
constexpr int PP_SKEW = 16;             // bytes between rows in shared memory, against bank conflicts

// Bytes of one stage.
__host__ __device__ constexpr int pp_stage_bytes(int a, int w)
{
    return PP_BM * (PP_BK * pp_bits(a) / 8 + PP_SKEW) + PP_BN * (PP_BK * pp_bits(w) / 8 + PP_SKEW)
        + PP_BN * PP_GROUPS * 4;
}

// Dynamic shared memory of a product: two stages, then the blocks' slots, factors, flags and rows.
__host__ __device__ constexpr int pp_shared_bytes(int a, int w)
{
    return 2 * pp_stage_bytes(a, w) + 3 * PP_BM * 4 + 2 * PP_BN * 4;
}

// An expert id as this rank counts its own; -1 for those of others and for none.
__device__ __forceinline__ int pp_local(const PpParams& p, int id)
{
    if (PP_FAULT(PP_NEGATIVE_ID) && id < 0) id = p.expert_first;
    int own = id - p.expert_first;
    return id >= 0 && own >= 0 && own < p.experts ? own : -1;
}

// Sorts slots by expert into blocks of PP_BM; one block of threads. Each warp takes a run of slots, once to count
// and once to place them, so that an expert's slots keep their order: 2 slots / 256 turns of a warp.
__device__ __forceinline__ void pp_align_body(const PpParams& p)
{
    PP_SHARED(shared);
    constexpr int WARPS = PP_ALIGN_THREADS / 32;
    static_assert(PP_ALIGN_INTS == WARPS + 2, "next, count and start");
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int slots = p.tokens * p.top_k;
    const unsigned all = 0xffffffffu, below = (1u << lane) - 1u;
    // Of each expert: how many slots each warp has, then where its next one goes; how many there are; its first block.
    int* next = reinterpret_cast<int*>(shared);
    int* own = next + warp * p.experts;
    int* count = next + WARPS * p.experts;
    int* start = count + p.experts;
    const int share = (slots + PP_ALIGN_THREADS - 1) / PP_ALIGN_THREADS * 32;
    const int first = warp * share, end = first + share < slots ? first + share : slots;

    auto local = [&](int slot) { return slot < end ? pp_local(p, p.ids[slot]) : -1; };
    for (int n = threadIdx.x; n < WARPS * p.experts; n += PP_ALIGN_THREADS) next[n] = 0;
    __syncthreads();
    int ahead = local(first + lane);
    for (int base = first; base < end; base += 32) {
        const int e = ahead;
        ahead = local(base + 32 + lane);
        unsigned same = __match_any_sync(all, e);
        if (e >= 0 && (same & below) == 0) own[e] += __popc(same);
        __syncwarp(all);
    }
    __syncthreads();
    for (int e = threadIdx.x; e < p.experts; e += PP_ALIGN_THREADS) {
        int running = 0;
        for (int w = 0; w < WARPS; ++w) {
            int n = next[w * p.experts + e];
            next[w * p.experts + e] = running;
            running += n;
        }
        count[e] = running;
    }
    __syncthreads();
    if (warp == 0) {
        int running = 0;
        for (int base = 0; base < p.experts; base += 32) {
            int e = base + lane;
            int blocks = e < p.experts ? (count[e] + PP_BM - 1) / PP_BM : 0;
            int sum = blocks;
            for (int step = 1; step < 32; step *= 2) {
                int before = __shfl_up_sync(all, sum, step);
                if (lane >= step) sum += before;
            }
            if (e < p.experts) start[e] = running + sum - blocks;
            const int last = __shfl_sync(all, sum, 31);
            if (!PP_FAULT(PP_SCAN_NO_CARRY)) running += last;
        }
        if (lane == 0) *p.blocks = running;
    }
    __syncthreads();
    ahead = local(first + lane);
    for (int base = first; base < end; base += 32) {
        const int e = ahead;
        ahead = local(base + 32 + lane);
        unsigned same = __match_any_sync(all, e);
        if (e >= 0) p.sorted[start[e] * PP_BM + own[e] + __popc(same & below)] = base + lane;
        __syncwarp(all);
        if (e >= 0 && (same & below) == 0 && !PP_FAULT(PP_TURN_FORGOTTEN)) own[e] += __popc(same);
        if (!PP_FAULT(PP_NO_WARP_SYNC)) __syncwarp(all);
    }
    for (int e = warp; e < p.experts; e += WARPS) {
        int blocks = (count[e] + PP_BM - 1) / PP_BM;
        for (int tail = count[e] + lane; tail < blocks * PP_BM; tail += 32)
            p.sorted[start[e] * PP_BM + tail] = slots;
        for (int b = lane; b < blocks; b += 32) p.block_expert[start[e] + b] = e;
    }
    // A thread counts a token's choices; rows that nobody will write are zeroed by the whole warp.
    for (int base = warp * 32; base < p.tokens; base += PP_ALIGN_THREADS) {
        const int t = base + lane;
        unsigned needed = 0;
        if (t < p.tokens) {
            for (int j = 0; j < p.top_k; ++j) needed += pp_local(p, p.ids[t * p.top_k + j]) >= 0;
            p.needed[t] = needed;
        }
        unsigned idle = __ballot_sync(all, t < p.tokens && needed == 0);
        for (; idle; idle &= idle - 1) {
            float* row = p.out + (long long)(base + __ffs(idle) - 1) * p.hidden;
            for (int n = lane; n < p.hidden; n += 32) row[n] = 0.0f;
        }
    }
}

// Copies PITCH-strided rows of BYTES bytes into shared memory, from byte `first` of each source row
// on, `row_bytes` long; what lies beyond is zero. `row(r)` is null where there is no row.
template <int ROWS, int BYTES, typename Unit, typename Row>
__device__ __forceinline__ void pp_copy_units(
    const PpParams& p, unsigned char* to, int first, int row_bytes, Row row)
{
    constexpr int UNITS = BYTES / (int)sizeof(Unit);
    for (int n = threadIdx.x; n < ROWS * UNITS; n += PP_THREADS) {
        int r = n / UNITS, at = n % UNITS * (int)sizeof(Unit);
        const unsigned char* from = row(r);
        Unit value = Unit();
        bool inside = from && first + at < row_bytes;
        if (inside) value = *reinterpret_cast<const Unit*>(from + first + at);
        if (PP_FAULT(PP_DIRTY_SHARED) && !inside) continue;
        *reinterpret_cast<Unit*>(to + r * (BYTES + PP_SKEW) + at) = value;
    }
}

template <int ROWS, int BYTES, bool FAST, typename Row>
__device__ __forceinline__ void pp_copy(
    const PpParams& p, unsigned char* to, int first, int row_bytes, int unit, const void* any, Row row)
{
    if constexpr (FAST) {
        constexpr int CHUNKS = BYTES / 16;
        for (int n = threadIdx.x; n < ROWS * CHUNKS; n += PP_THREADS) {
            int r = n / CHUNKS, at = n % CHUNKS * 16;
            const unsigned char* from = row(r);
            bool inside = from && first + at < row_bytes;
            const void* source = inside ? from + first + at : any;
            pp_copy_async(to + r * (BYTES + PP_SKEW) + at, source, inside ? 16 : 0);
        }
    } else if (unit >= 8) {
        pp_copy_units<ROWS, BYTES, unsigned long long>(p, to, first, row_bytes, row);
    } else if (unit == 4) {
        pp_copy_units<ROWS, BYTES, unsigned>(p, to, first, row_bytes, row);
    } else if (unit == 2) {
        pp_copy_units<ROWS, BYTES, unsigned short>(p, to, first, row_bytes, row);
    } else {
        pp_copy_units<ROWS, BYTES, unsigned char>(p, to, first, row_bytes, row);
    }
}

// The scale of one weight row and one group of columns.
__device__ __forceinline__ float pp_scale(
    const PpMatrix& w, int halves, int expert, int half, int row, int k)
{
    float scale = 1.0f;
    if (w.scales) {
        const unsigned char* of = w.scales + expert * w.expert_scale_bytes;
        int col = w.col_block ? k / w.col_block : 0;
        long long at = (long long)row * w.scale_cols + col;
        if (w.tiled)
            at = (long long)(row / 128) * (w.scale_cols / 4) * 512 + col / 4 * 512 + row % 32 * 16
                + row % 128 / 32 * 4 + col % 4;
        switch (w.scale_element) {
        case PP_F32: scale = reinterpret_cast<const float*>(of)[at]; break;
        case PP_BF16: scale = pp_bf16(reinterpret_cast<const unsigned short*>(of)[at]); break;
        case PP_E4M3: scale = pp_e4m3(of[at]); break;
        default: scale = pp_e8m0(of[at]); break;
        }
    }
    if (w.globals) scale *= w.globals[expert * halves + half];
    return scale;
}

// One product of a block: PP_BM gathered rows of type A times PP_BN weight rows of type W.
template <int A, int W, bool FIRST, bool FAST>
__device__ __forceinline__ void pp_product(const PpParams& p)
{
    constexpr bool MMA = A == PP_BF16 && pp_is_bf16(W);
    constexpr int A_BYTES = PP_BK * pp_bits(A) / 8, A_PITCH = A_BYTES + PP_SKEW;
    constexpr int B_BYTES = PP_BK * pp_bits(W) / 8, B_PITCH = B_BYTES + PP_SKEW;
    constexpr int STAGE = pp_stage_bytes(A, W);
    const int block = blockIdx.y;
    if (block >= *p.blocks) return;

    PP_SHARED(shared);
    int* slots = reinterpret_cast<int*>(shared + 2 * STAGE);
    float* factors = reinterpret_cast<float*>(slots + PP_BM);
    int* flags = slots + 2 * PP_BM;
    int* rows = slots + 3 * PP_BM;
    int* scale_rows = rows + PP_BN;

    const PpMatrix& w = FIRST ? p.w13 : p.w2;
    const int expert = p.block_expert[block], sentinel = p.tokens * p.top_k;
    const int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5;
    const bool gated = FIRST && p.halves == 2;
    const int channels = FIRST ? p.width : p.hidden;
    const int n0 = blockIdx.x * (gated ? PP_BN / 2 : PP_BN);

    if (tid < PP_BM) {
        int slot = p.sorted[block * PP_BM + tid];
        slots[tid] = slot;
        factors[tid] = p.weights_input && slot < sentinel ? p.weights[slot] : 1.0f;
    }
    if (tid < PP_BN) {
        // The first 32 rows of the tile are gate's channels and the others up's, where gated.
        int half = gated ? tid / 32 : 0, channel = n0 + (gated ? tid % 32 : tid);
        int place = p.up_first && gated ? 1 - half : half;
        int run = p.group && gated ? p.group : p.half_rows;
        int row = gated ? channel / run * run * 2 + place * run + channel % run : channel;
        if (PP_FAULT(PP_WRONG_HALF) && gated && place == 1) row -= 1;
        bool there = channel < channels;
        rows[tid] = there ? row : -1;
        scale_rows[tid] = w.row_block == 0 ? half
            : w.row_block == 1             ? row
                                           : place * ((p.half_rows + w.row_block - 1) / w.row_block)
                + channel / w.row_block;
    }
    __syncthreads();

    const unsigned char* weights = w.weights + expert * w.expert_bytes;
    const unsigned char* inputs = FIRST ? p.x : p.mid;
    const int a_row = FIRST ? p.x_pitch : p.mid_pitch;
    // Bytes of a row that may be read.
    int a_limit = w.cols * pp_bits(A) / 8, b_limit = (w.cols * pp_bits(W) + 7) / 8;
    if (PP_FAULT(PP_TAIL_READ) && !FAST) {
        int whole = (w.cols + PP_GROUP - 1) / PP_GROUP * PP_GROUP;
        a_limit = whole * pp_bits(A) / 8;
        b_limit = whole * pp_bits(W) / 8;
    }
    auto a_source = [&](int r) -> const unsigned char* {
        int slot = slots[r];
        if (slot >= sentinel) return nullptr;
        return inputs + (long long)(FIRST ? slot / p.top_k : slot) * a_row;
    };
    auto b_source = [&](int r) -> const unsigned char* {
        return rows[r] < 0 ? nullptr : weights + (long long)rows[r] * w.row_bytes;
    };
    auto load = [&](int tile) {
        unsigned char* a = shared + (tile & 1) * STAGE;
        unsigned char* b = a + PP_BM * A_PITCH;
        float* scales = reinterpret_cast<float*>(b + PP_BN * B_PITCH);
        pp_copy<PP_BM, A_BYTES, FAST>(
            p, a, tile * A_BYTES, a_limit, FIRST ? p.x_unit : p.mid_unit, inputs, a_source);
        pp_copy<PP_BN, B_BYTES, FAST>(p, b, tile * B_BYTES, b_limit, w.unit, weights, b_source);
        for (int n = tid; n < PP_BN * PP_GROUPS; n += PP_THREADS) {
            int r = n / PP_GROUPS, k = tile * PP_BK + n % PP_GROUPS * PP_GROUP;
            bool there = rows[r] >= 0 && (k < w.cols || PP_FAULT(PP_SCALE_OVER_READ));
            int half = gated ? r / 32 : 0;
            scales[n] = there ? pp_scale(w, FIRST ? p.halves : 1, expert, half, scale_rows[r], k) : 0.0f;
        }
        if constexpr (FAST) pp_commit_async();
    };

    // This thread's part of a fragment: rows g and g + 8, columns 2 t and 2 t + 1 of each tile of 8.
    const int g = lane >> 2, t = lane & 3;
    const bool live[2] = {slots[g] < sentinel, slots[g + 8] < sentinel};
    const unsigned spread = pp_spread(p.high_first);
    float sum[2][4] = {};
    auto compute = [&](int tile) {
        const unsigned char* a = shared + (tile & 1) * STAGE;
        const unsigned char* b = a + PP_BM * A_PITCH;
        const float* scales = reinterpret_cast<const float*>(b + PP_BN * B_PITCH);
        int left = (w.cols - tile * PP_BK + PP_GROUP - 1) / PP_GROUP;
        int groups = left < PP_GROUPS && !PP_FAULT(PP_SCALE_OVER_READ) ? left : PP_GROUPS;
        PP_UNROLL(1)
        for (int n = 0; n < groups; ++n) {
            const int group = PP_FAULT(PP_ORDER_FROM_K) && w.cols % 32 == 0 ? groups - 1 - n : n;
            float part[2][4] = {};
            int k0 = group * PP_GROUP;
            if constexpr (MMA) {
                unsigned of_a[4];
                for (int i = 0; i < 4; ++i)
                    of_a[i] = *reinterpret_cast<const unsigned*>(
                        a + (g + (i & 1) * 8) * A_PITCH + (k0 + 2 * t + (i >> 1) * 8) * 2);
                for (int j = 0; j < 2; ++j) {
                    const unsigned char* row = b + (j * 32 + warp * 8 + g) * B_PITCH;
                    unsigned of_b[2];
                    pp_pairs<W>(row, k0 + 2 * t, spread, of_b);
                    pp_mma(part[j], of_a, of_b);
                }
            } else {
                for (int i = 0; i < 2; ++i) {
                    if (!live[i]) continue;
                    const unsigned char* a_at = a + (g + i * 8) * A_PITCH;
                    const float factor = factors[g + i * 8];
                    PP_UNROLL(4)
                    for (int k = k0; k < k0 + PP_GROUP; ++k) {
                        float x = pp_element<A>(a_at, k, 0);
                        if (FIRST) x *= factor;
                        for (int j = 0; j < 2; ++j) {
                            const unsigned char* b_at = b + (j * 32 + warp * 8 + 2 * t) * B_PITCH;
                            float low = pp_element<W>(b_at, k, p.high_first);
                            float high = pp_element<W>(b_at + B_PITCH, k, p.high_first);
                            part[j][i * 2] = fmaf(x, low, part[j][i * 2]);
                            part[j][i * 2 + 1] = fmaf(x, high, part[j][i * 2 + 1]);
                        }
                    }
                }
            }
            for (int j = 0; j < 2; ++j)
                for (int i = 0; i < 4; ++i) {
                    int row = j * 32 + warp * 8 + 2 * t + (i & 1);
                    sum[j][i] = fmaf(part[j][i], scales[row * PP_GROUPS + group], sum[j][i]);
                }
        }
    };

    const int tiles = (w.cols + PP_BK - 1) / PP_BK;
    if (tiles > 0) load(0);
    for (int tile = 0; tile < tiles; ++tile) {
        bool more = tile + 1 < tiles;
        if (more) load(tile + 1);
        if (FAST && !PP_FAULT(PP_NO_WAIT)) {
            if (more)
                pp_wait_async<1>();
            else
                pp_wait_async<0>();
        }
        if (!PP_FAULT(PP_NO_BARRIER_BEFORE)) __syncthreads();
        compute(tile);
        if (!PP_FAULT(PP_NO_BARRIER_AFTER)) __syncthreads();
    }

    const long long bias_at = (long long)expert * w.rows;
    for (int i = 0; i < 4; ++i) {
        const int slot = slots[g + (i >> 1) * 8];
        if (slot >= sentinel && !PP_FAULT(PP_SENTINEL_AS_ADDRESS)) continue;
        const int at[2] = {warp * 8 + 2 * t + (i & 1), 32 + warp * 8 + 2 * t + (i & 1)};
        float v[2];
        for (int j = 0; j < 2; ++j) {
            v[j] = sum[j][i];
            if (w.bias && rows[at[j]] >= 0) v[j] += w.bias[bias_at + rows[at[j]]];
        }
        for (int j = 0; j < (gated ? 1 : 2); ++j) {
            const int channel = n0 + at[j];
            if (channel >= channels) continue;
            if constexpr (FIRST) {
                float h = pp_activate(p.act, v[j], v[1]);
                unsigned char* to = p.mid + (long long)slot * p.mid_pitch;
                if (p.mid_bf16)
                    reinterpret_cast<unsigned short*>(to)[channel] = pp_to_bf16(h);
                else
                    reinterpret_cast<float*>(to)[channel] = h;
            } else {
                float weight = p.weights_input || slot >= sentinel ? 1.0f : p.weights[slot];
                p.y[(long long)slot * p.hidden + channel] = weight * v[j];
            }
        }
    }
    if constexpr (!FIRST) {
        // Whoever completes a token adds its choices, in their order. What a block's threads stored comes before the
        // barrier, and so before the fence of the thread that counts for them; what others stored comes before their
        // counts, and so before the fence after this one's, and the barrier after that.
        if (!PP_FAULT(PP_COUNT_EARLY)) __syncthreads();
        if (tid < PP_BM) {
            int slot = slots[tid], last = 0;
            __threadfence();
            if (slot < sentinel) {
                int token = slot / p.top_k;
                unsigned before = p.needed[token] - 1;
                unsigned* done = p.done + (long long)token * gridDim.x + blockIdx.x;
                last = atomicInc(done, before) == before || PP_FAULT(PP_COMBINE_EARLY);
            }
            __threadfence();
            flags[tid] = last;
        }
        __syncthreads();
        for (int n = tid; n < PP_BM * PP_BN; n += PP_THREADS) {
            int r = n / PP_BN, channel = n0 + n % PP_BN;
            if (!flags[r] || channel >= p.hidden) continue;
            int token = slots[r] / p.top_k;
            float total = 0.0f;
            for (int j = 0; j < p.top_k; ++j) {
                int slot = token * p.top_k + (PP_FAULT(PP_CHOICES_REVERSED) ? p.top_k - 1 - j : j);
                if (pp_local(p, p.ids[slot]) >= 0)
                    total += __ldcg(p.y + (long long)slot * p.hidden + channel);
            }
            p.out[(long long)token * p.hidden + channel] = total;
        }
    }
}

template <int A, int W, bool FAST>
__global__ void __launch_bounds__(PP_THREADS, PP_BLOCKS_PER_SM) pp_gemm1(PP_PARAM(PpParams) p)
{
    pp_product<A, W, true, FAST>(p);
}

template <int A, int W, bool FAST>
__global__ void __launch_bounds__(PP_THREADS, PP_BLOCKS_PER_SM) pp_gemm2(PP_PARAM(PpParams) p)
{
    pp_product<A, W, false, FAST>(p);
}

// What NVRTC compiles: one element type of the inputs (PP_A) and of the weights (PP_W) to a module,
// under names that end with both and are not mangled. x may be f16, the intermediate not.
#ifdef PP_W
#define PP_JOIN(name, a, w) name##_##a##_##w
#define PP_JOINED(name, a, w) PP_JOIN(name, a, w)
#define PP_NAME(name) PP_JOINED(name, PP_A, PP_W)
extern "C" __global__ void __launch_bounds__(PP_ALIGN_THREADS) PP_NAME(pp_align)(PP_PARAM(PpParams) p)
{
    pp_align_body(p);
}
extern "C" __global__ void __launch_bounds__(PP_THREADS, PP_BLOCKS_PER_SM) PP_NAME(pp_gemm1_fast)(PP_PARAM(PpParams) p)
{
    pp_product<PP_A, PP_W, true, true>(p);
}
extern "C" __global__ void __launch_bounds__(PP_THREADS, PP_BLOCKS_PER_SM) PP_NAME(pp_gemm1_general)(PP_PARAM(PpParams) p)
{
    pp_product<PP_A, PP_W, true, false>(p);
}
#if PP_A != 1
extern "C" __global__ void __launch_bounds__(PP_THREADS, PP_BLOCKS_PER_SM) PP_NAME(pp_gemm2_fast)(PP_PARAM(PpParams) p)
{
    pp_product<PP_A, PP_W, false, true>(p);
}
extern "C" __global__ void __launch_bounds__(PP_THREADS, PP_BLOCKS_PER_SM) PP_NAME(pp_gemm2_general)(PP_PARAM(PpParams) p)
{
    pp_product<PP_A, PP_W, false, false>(p);
}
#endif
#endif
