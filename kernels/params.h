// What a launch is told. The Rust side (src/subject/cuda/params.rs) has the same structs and checks
// every number before a launch; the kernels trust them.
#pragma once

// A weight tensor of one rank, [experts, rows, row_bytes], with its scales. Only the first `cols`
// columns of a row are multiplied: what a plan pads beyond them is not read.
struct PpMatrix {
    const unsigned char* weights;
    const unsigned char* scales;  // null: none
    const float* globals;         // second-level scales [experts, halves]; null: none
    const float* bias;            // [experts, rows]; null: none
    long long expert_bytes;       // of weights
    long long expert_scale_bytes;
    int rows;           // stored
    int cols;           // multiplied
    int row_bytes;      // stored
    int unit;           // bytes that a general load takes at a time: divides rows, their `cols` and addresses
    int scale_element;  // PP_F32, PP_BF16, PP_E4M3 or PP_E8M0
    int scale_cols;     // columns as stored
    int row_block;      // rows that share a scale; 0: each half by itself
    int col_block;      // columns that share a scale, a multiple of 16; 0: all
    int tiled;          // 1: scales in tiles of 128x4, else row-major
    int reserved;
};

// A whole layer on one rank.
struct PpParams {
    PpMatrix w13;
    PpMatrix w2;
    const unsigned char* x;  // [tokens, x_pitch bytes], elements of type A
    const int* ids;          // [tokens, top_k], global expert ids; -1: nothing
    const float* weights;    // [tokens, top_k]
    // Workspace.
    int* sorted;          // [max_blocks * 16]: slot (token * top_k + choice), or the sentinel
    int* block_expert;    // [max_blocks]
    int* blocks;          // [1]: how many blocks there are
    unsigned* needed;     // [tokens]: choices that this rank serves
    unsigned* done;       // [tokens, tiles of hidden]: zero before and after a launch
    unsigned char* mid;   // [slots, mid_pitch bytes]
    float* y;             // [slots, hidden]
    float* out;           // [tokens, hidden]
    int tokens;
    int top_k;
    int experts;       // held by this rank
    int expert_first;  // the first of them
    int hidden;        // channels of the output that are computed
    int width;         // channels of the intermediate that are computed
    int half_rows;     // rows of a half of w13, stored
    int halves;
    int up_first;      // 1: the up half's rows come first
    int group;         // rows of a half that stand together; 0: the whole half
    int act;
    int high_first;    // 1: the even element of a byte is in the high nibble
    int weights_input; // 1: the routing weight multiplies the input, not the output
    int mid_bf16;      // 1: the intermediate is bfloat16, else f32
    int x_pitch;       // bytes
    int mid_pitch;     // bytes
    int x_unit;        // as PpMatrix::unit, for rows of x
    int mid_unit;      // the same for rows of mid
    int fault;         // a planted fault, where they are compiled in (PP_FAULTS)
};
