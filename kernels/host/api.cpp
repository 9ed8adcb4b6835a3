// The kernels for a host: what src/subject/cuda/host.rs calls.

#define PP_HOST 1
#include "../moe.cu"
#include "fibers.h"
#include "launch.h"

#include <cstdio>

namespace {

template <void (*KERNEL)(const PpParams&)>
void call(const void* params)
{
    KERNEL(*static_cast<const PpParams*>(params));
}

void align(const PpParams& p)
{
    pp_align_body(p);
}

// A warp's registers for one mma.sync.
struct Fragments {
    const unsigned *a, *b;
    float* d;
};

void multiply_fragments(const void* params)
{
    const Fragments& of = *static_cast<const Fragments*>(params);
    const int lane = threadIdx.x;
    unsigned a[4], b[2];
    float d[4];
    for (int n = 0; n < 4; ++n) {
        a[n] = of.a[lane * 4 + n];
        d[n] = of.d[lane * 4 + n];
    }
    for (int n = 0; n < 2; ++n) b[n] = of.b[lane * 2 + n];
    pp_mma(d, a, b);
    for (int n = 0; n < 4; ++n) of.d[lane * 4 + n] = d[n];
}

using Kernel = void (*)(const void*);

template <int A, bool FAST, bool FIRST>
Kernel of_weights(int w)
{
    switch (w) {
#define PP_CASE(W) \
    case W: \
        if constexpr (FIRST) \
            return call<pp_gemm1<A, W, FAST>>; \
        else \
            return call<pp_gemm2<A, W, FAST>>;
        PP_CASE(PP_F32)
        PP_CASE(PP_F16)
        PP_CASE(PP_BF16)
        PP_CASE(PP_E4M3)
        PP_CASE(PP_E2M1)
        PP_CASE(PP_INT8)
        PP_CASE(PP_INT4)
#undef PP_CASE
    default: return nullptr;
    }
}

template <bool FAST, bool FIRST>
Kernel of_inputs(int a, int w)
{
    switch (a) {
    case PP_F32: return of_weights<PP_F32, FAST, FIRST>(w);
    case PP_BF16: return of_weights<PP_BF16, FAST, FIRST>(w);
    case PP_F16:
        if constexpr (FIRST) return of_weights<PP_F16, FAST, FIRST>(w);
        return nullptr;
    default: return nullptr;
    }
}

// Of two pairs that lie in a row as pp_pairs expects them, the value of one of four.
template <int E>
float of_pairs(unsigned first, unsigned second, int high_first, int at)
{
    alignas(16) unsigned char row[32] = {};
    memcpy(row, &first, 4);
    memcpy(row + pp_bits(E), &second, 4);
    unsigned out[2];
    pp_pairs<E>(row, 0, pp_spread(high_first), out);
    return pp_bf16(out[at / 2] >> 16 * (at % 2) & 0xffffu);
}

}  // namespace

extern "C" {

// Sizes of the structs that both sides write down, to be compared.
unsigned long long pp_host_sizes(int which)
{
    return which == 0 ? sizeof(PpParams) : which == 1 ? sizeof(PpMatrix) : sizeof(PpHostLaunch);
}

// Runs one kernel; 0 when it ended as it should, else `error` says why it did not.
int pp_host_launch(const PpHostLaunch* of, const PpParams* params, char* error, unsigned long long room)
{
    pp_host::Launch launch{};
    launch.params = params;
    launch.grid_x = of->grid_x;
    launch.grid_y = of->grid_y;
    launch.shared = of->shared;
    launch.order = of->order;
    launch.mma_fraction = of->mma_fraction;
    launch.mma_terms = of->mma_terms;
    launch.seed = of->seed;
    launch.threads = of->kernel == 0 ? PP_ALIGN_THREADS : PP_THREADS;
    unsigned long long needed = pp_shared_bytes(of->inputs, of->weights);
    switch (of->kernel) {
    case 0:
        launch.name = "pp_align";
        launch.kernel = call<align>;
        needed = (unsigned long long)PP_ALIGN_INTS * (unsigned)params->experts * 4;
        break;
    case 1:
        launch.name = "pp_gemm1";
        launch.kernel = of->fast ? of_inputs<true, true>(of->inputs, of->weights)
                                 : of_inputs<false, true>(of->inputs, of->weights);
        break;
    default:
        launch.name = "pp_gemm2";
        launch.kernel = of->fast ? of_inputs<true, false>(of->inputs, of->weights)
                                 : of_inputs<false, false>(of->inputs, of->weights);
        break;
    }
    if (of->mma_fraction != 0 && (of->mma_terms < 1 || of->mma_terms > 16)) {
        snprintf(error, room, "%s: mma.sync of %d columns at a time", launch.name, of->mma_terms);
        return 1;
    }
    if (!launch.kernel || needed != of->shared) {
        snprintf(error, room, "%s: %s", launch.name,
            launch.kernel ? "another size of shared memory than it uses" : "no kernel for these elements");
        return 1;
    }
    return pp_host::run(launch, error, room) ? 0 : 1;
}

// One mma.sync, for tests: the registers of a warp, lane by lane, and how its products are added (mma.h).
int pp_host_mma(int fraction, int terms, const unsigned* a, const unsigned* b, float* d)
{
    if (fraction != 0 && (terms < 1 || terms > 16)) return 1;
    const Fragments fragments{a, b, d};
    pp_host::Launch launch{};
    launch.name = "mma.sync";
    launch.kernel = multiply_fragments;
    launch.params = &fragments;
    launch.grid_x = launch.grid_y = 1;
    launch.threads = 32;
    launch.shared = 16;
    launch.mma_fraction = fraction;
    launch.mma_terms = terms;
    char error[512] = "";
    return pp_host::run(launch, error, sizeof error) ? 0 : 1;
}

// The kernels' numbers, for tests: what 0 decodes `bits` as element `arg`, what 1 gives the activation
// `arg` of the floats in `bits` and `more`, what 2 rounds to bfloat16, and what 4 + 2 n + h gives the n-th of two pairs of
// elements `arg` in `bits` and `more`, with the high nibble first for h 1.
float pp_host_number(int what, int arg, unsigned bits, unsigned more)
{
    float x = __uint_as_float(bits), y = __uint_as_float(more);
    alignas(16) unsigned char row[16] = {};
    memcpy(row, &bits, 4);
    if (what == 1) return pp_activate(arg, x, y);
    if (what == 2) return pp_bf16(pp_to_bf16(x));
    if (what >= 4) {
        const int at = (what - 4) / 2, high_first = what & 1;
        switch (arg) {
        case PP_BF16: return of_pairs<PP_BF16>(bits, more, high_first, at);
        case PP_E4M3: return of_pairs<PP_E4M3>(bits, more, high_first, at);
        case PP_E2M1: return of_pairs<PP_E2M1>(bits, more, high_first, at);
        case PP_INT8: return of_pairs<PP_INT8>(bits, more, high_first, at);
        default: return of_pairs<PP_INT4>(bits, more, high_first, at);
        }
    }
    switch (arg) {
    case PP_F32: return pp_element<PP_F32>(row, 0, 0);
    case PP_F16: return pp_element<PP_F16>(row, 0, 0);
    case PP_BF16: return pp_element<PP_BF16>(row, 0, 0);
    case PP_E4M3: return pp_element<PP_E4M3>(row, 0, 0);
    case PP_E2M1: return pp_element<PP_E2M1>(row, 0, 0);
    case PP_INT8: return pp_element<PP_INT8>(row, 0, 0);
    case PP_INT4: return pp_element<PP_INT4>(row, 0, 0);
    default: return pp_element<PP_E8M0>(row, 0, 0);
    }
}

}  // extern "C"
