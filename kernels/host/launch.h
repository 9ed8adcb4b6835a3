// What one launch on the CPU is told.

#pragma once

#include "../params.h"

extern "C" {

// What src/subject/cuda/host.rs launches one kernel with.
struct PpHostLaunch {
    int kernel;  // 0 align, 1 gemm1, 2 gemm2
    int inputs;  // element type of x or of the intermediate
    int weights;
    int fast;
    unsigned grid_x, grid_y;
    unsigned long long shared;
    int order;
    int mma_fraction;  // how mma.sync adds (mma.h); 0: a chain of fused multiply-adds
    int mma_terms;     // 1 to 16
    int reserved;
    unsigned long long seed;
};

int pp_host_launch(
    const PpHostLaunch* of, const PpParams* params, char* error, unsigned long long room);

}  // extern "C"
