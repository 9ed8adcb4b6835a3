// What measures a device: the tensor-core instruction of moe.cu on registers alone, so that a kernel's share of what it
// can do at most can be said, and a read of more than its caches hold. It must not know layers.
#pragma once
#include "device.cuh"

constexpr int PP_RATE_PRODUCTS = 8;  // of a turn, none waiting for another; src/subject/cuda/device.rs counts them

extern "C" __global__ void __launch_bounds__(256) pp_rate(float* out, int turns)
{
    unsigned a[4], b[2];
    for (int n = 0; n < 4; ++n) a[n] = threadIdx.x * 4 + n;
    for (int n = 0; n < 2; ++n) b[n] = threadIdx.x * 2 + n;
    float d[PP_RATE_PRODUCTS][4] = {};
    for (int turn = 0; turn < turns; ++turn)
        for (int n = 0; n < PP_RATE_PRODUCTS; ++n) pp_mma(d[n], a, b);
    float sum = 0.0f;
    for (int n = 0; n < PP_RATE_PRODUCTS; ++n)
        for (int i = 0; i < 4; ++i) sum += d[n][i];
    out[blockIdx.x * 256 + threadIdx.x] = sum;
}

// Reads `count` times 16 bytes, so that nothing else is left in caches, and no line in them waits to be written back.
extern "C" __global__ void __launch_bounds__(256) pp_sweep(uint4* all, int count)
{
    unsigned any = 0;
    for (int n = blockIdx.x * 256 + threadIdx.x; n < count; n += gridDim.x * 256) {
        uint4 read = all[n];
        any |= read.x | read.y | read.z | read.w;
    }
    // It holds zeros: nothing is written, which a compiler cannot know.
    if (any) all[count].x = any;
}
