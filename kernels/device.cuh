// What the kernels need of a device: asynchronous copies, the tensor-core instruction and bfloat16 in pairs (sm_80 on).
#pragma once

#define PP_PARAM(type) const __grid_constant__ type
#define PP_PRAGMA(text) _Pragma(#text)
#define PP_UNROLL(times) PP_PRAGMA(unroll times)
#define PP_SHARED(name) extern __shared__ __align__(16) unsigned char name[]

// Copies 16 bytes from global to shared memory, or writes zeros where `bytes` is 0.
__device__ __forceinline__ void pp_copy_async(void* to, const void* from, int bytes)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes)
                 : "memory");
}

__device__ __forceinline__ void pp_commit_async()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most N of the newest groups are under way.
template <int N>
__device__ __forceinline__ void pp_wait_async()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// d += a b for one 16x8 tile over 16 columns: bfloat16 in, f32 out.
__device__ __forceinline__ void pp_mma(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Bytes of a word in another order: each four bits of SELECTOR name one, those from 4 on being zero and, with 8 added, its top
// bit eight times.
template <unsigned SELECTOR>
__device__ __forceinline__ unsigned pp_permute(unsigned word)
{
    unsigned to;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(to) : "r"(word), "n"(SELECTOR));
    return to;
}

// a b + c in each half, rounded once; subnormal numbers are not flushed.
__device__ __forceinline__ unsigned pp_fma_bf16x2(unsigned a, unsigned b, unsigned c)
{
    unsigned to;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(to) : "r"(a), "r"(b), "r"(c));
    return to;
}
