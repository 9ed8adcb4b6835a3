// The CUDA that the kernels use, for a host compiler: one fiber a CUDA thread (fibers.cpp).
//
// A thread runs until it waits: for its block at a barrier, for its warp at a collective, and where blocks are
// interleaved also after each word that they have with others: a count, a fence, a read past the caches. Shared
// memory starts as NaN in every float type, cp.async's bytes land only when they are waited for, and
// what a device leaves undefined (a barrier that some threads miss, a lane outside its own mask) ends
// the launch with a sentence instead of an answer.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ inline
#define __launch_bounds__(...)
#define PP_PARAM(type) const type&
#define PP_UNROLL(times)
#define PP_SHARED(name) unsigned char* name = pp_host::shared()

namespace pp_host {

struct Index {
    unsigned x, y, z;
};

// A place in the source, one object for each.
struct Site {
    const char* file;
    int line;
};

// What a running thread knows of itself.
struct Self {
    Index thread, block, grid;
    int lane;
};

extern constinit thread_local Self* self;

unsigned char* shared();
void pause();
void barrier(const Site* site);
void warp_sync(unsigned mask, const Site* site);
unsigned ballot(unsigned mask, bool vote, const Site* site);
unsigned match(unsigned mask, uint32_t value, const Site* site);
uint32_t shuffle(unsigned mask, uint32_t value, int source, const Site* site);
void mma_bf16(float* d, const uint32_t* a, const uint32_t* b, const Site* site);
void copy_async(void* to, const void* from, int bytes);
void commit_async();
void wait_async(int newest);

}  // namespace pp_host

#define PP_SITE \
    ([]() -> const pp_host::Site* { \
        static const pp_host::Site site{__FILE__, __LINE__}; \
        return &site; \
    }())

#define threadIdx (pp_host::self->thread)
#define blockIdx (pp_host::self->block)
#define gridDim (pp_host::self->grid)

#define __syncthreads() pp_host::barrier(PP_SITE)
#define __syncwarp(mask) pp_host::warp_sync(mask, PP_SITE)
#define __ballot_sync(mask, vote) pp_host::ballot(mask, vote, PP_SITE)
#define __match_any_sync(mask, value) pp_host::match(mask, (uint32_t)(value), PP_SITE)
#define __shfl_sync(mask, value, source) \
    ((int)pp_host::shuffle(mask, (uint32_t)(value), source, PP_SITE))
// A lane without a lane below it keeps its own value.
#define __shfl_up_sync(mask, value, step) \
    ((int)pp_host::shuffle(mask, (uint32_t)(value), \
        pp_host::self->lane >= (step) ? pp_host::self->lane - (step) : pp_host::self->lane, PP_SITE))
#define pp_mma(d, a, b) pp_host::mma_bf16(d, a, b, PP_SITE)

// Where blocks speak with each other, another one may go on in between.
inline void __threadfence() { pp_host::pause(); }

inline int __ffs(unsigned x) { return __builtin_ffs((int)x); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }

inline float __uint_as_float(unsigned x)
{
    float f;
    memcpy(&f, &x, 4);
    return f;
}

inline unsigned __float_as_uint(float f)
{
    unsigned x;
    memcpy(&x, &f, 4);
    return x;
}

inline float __ldcg(const float* p)
{
    float value = *p;
    pp_host::pause();
    return value;
}

inline unsigned atomicInc(unsigned* p, unsigned limit)
{
    unsigned old = *p;
    *p = old >= limit ? 0 : old + 1;
    pp_host::pause();
    return old;
}

inline void pp_copy_async(void* to, const void* from, int bytes)
{
    pp_host::copy_async(to, from, bytes);
}

inline void pp_commit_async() { pp_host::commit_async(); }

template <int N>
inline void pp_wait_async()
{
    pp_host::wait_async(N);
}

// As prmt.b32 with zeros for its second word.
template <unsigned SELECTOR>
inline unsigned pp_permute(unsigned word)
{
    unsigned to = 0;
    for (int n = 0; n < 4; ++n) {
        const unsigned selector = SELECTOR >> 4 * n & 15u, of = selector & 7u;
        const unsigned byte = of < 4 ? word >> 8 * of & 255u : 0u;
        to |= (selector & 8u ? (byte >> 7) * 255u : byte) << 8 * n;
    }
    return to;
}

// As fma.rn.bf16x2 where the exact result is a bfloat16, as all are that the kernels ask for; NaN is 0x7fff there.
inline unsigned pp_fma_bf16x2(unsigned a, unsigned b, unsigned c)
{
    unsigned to = 0;
    for (int half = 0; half < 2; ++half) {
        const int low = 16 * half;
        const float exact = fmaf(__uint_as_float(a >> low << 16), __uint_as_float(b >> low << 16), __uint_as_float(c >> low << 16));
        to |= (exact != exact ? 0x7fffu : __float_as_uint(exact) >> 16) << low;
    }
    return to;
}
