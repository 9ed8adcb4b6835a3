// Runs the blocks of a launch on the calling thread, one after the other or a few at a time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pp_host {

// In which order blocks, and the threads of a block, take their turns. Only INTERLEAVED begins a block before the last
// one has ended: warps of several take turns as drawn from the seed, and wait wherever blocks speak with each other (pause).
enum Order { FORWARD = 0, REVERSE = 1, SEEDED = 2, INTERLEAVED = 3 };

struct Launch {
    const char* name;
    void (*kernel)(const void* params);
    const void* params;
    unsigned grid_x, grid_y;
    unsigned threads;  // a multiple of 32
    size_t shared;     // bytes
    int order;
    int mma_fraction;  // how mma.sync adds (mma.h); 0: a chain of fused multiply-adds
    int mma_terms;     // 1 to 16
    uint64_t seed;
};

// False when the kernel did what no kernel may; `error` then says it, cut to `room` bytes.
bool run(const Launch& launch, char* error, size_t room);

}  // namespace pp_host
