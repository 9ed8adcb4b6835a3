// Numbers of the kernels: decoding of stored codes, rounding, and the activations.
//
// Compiled by NVRTC for devices and by a host compiler for tests, with the same bits wherever only
// +, -, *, / and fused multiply-adds are used: contraction is off (--fmad=false, -ffp-contract=off)
// and every fused operation is written. tanhf, erfcf and powf are the platform's: some ulp apart.
// It must not know shapes.
#pragma once

// Element types; the numbers are those of src/subject/cuda/params.rs.
enum PpElement : int {
    PP_F32 = 0,
    PP_F16 = 1,
    PP_BF16 = 2,
    PP_E4M3 = 3,
    PP_E2M1 = 4,
    PP_INT8 = 5,
    PP_INT4 = 6,
    PP_E8M0 = 7,
};

__device__ constexpr int pp_bits(int element)
{
    return element == PP_F32                         ? 32
        : element == PP_F16 || element == PP_BF16    ? 16
        : element == PP_E2M1 || element == PP_INT4   ? 4
                                                     : 8;
}

// Whether every code of the type is a bfloat16, so that a tensor core multiplies it exactly.
__device__ constexpr bool pp_is_bf16(int element)
{
    return element != PP_F32 && element != PP_F16 && element != PP_E8M0;
}

// E4M3FN: bias 7, step 2^-9 below 2^-6, NaN at 0x7f and 0xff.
__device__ __forceinline__ float pp_e4m3(unsigned code)
{
    unsigned magnitude = code & 0x7fu;
    unsigned bits = (magnitude << 20) + (120u << 23);
    if (magnitude < 8u) bits = __float_as_uint((float)(int)magnitude * (1.0f / 512.0f));
    if (magnitude == 0x7fu) bits = 0x7fc00000u;
    return __uint_as_float(bits | (code & 0x80u) << 24);
}

// E2M1 in the low four bits: bias 1, 0 and 0.5 below 1.
__device__ __forceinline__ float pp_e2m1(unsigned code)
{
    unsigned magnitude = code & 7u;
    unsigned bits = (magnitude << 22) + (126u << 23);
    if (magnitude < 2u) bits = magnitude * 0x3f000000u;
    return __uint_as_float(bits | (code & 8u) << 28);
}

// 2^(code - 127); 0 is 2^-127, 255 is NaN.
__device__ __forceinline__ float pp_e8m0(unsigned code)
{
    unsigned bits = code == 0u ? 0x00400000u : code << 23;
    return __uint_as_float(code == 255u ? 0x7fc00000u : bits);
}

__device__ __forceinline__ float pp_bf16(unsigned code)
{
    return __uint_as_float(code << 16);
}

__device__ __forceinline__ float pp_f16(unsigned code)
{
    unsigned magnitude = code & 0x7fffu;
    unsigned bits = (magnitude << 13) + (112u << 23);
    if (magnitude < 0x400u) bits = __float_as_uint((float)(int)magnitude * (1.0f / 16777216.0f));
    if (magnitude >= 0x7c00u) bits = magnitude << 13 | 0x7f800000u;
    return __uint_as_float(bits | (code & 0x8000u) << 16);
}

// Element k of a row of codes that starts at an address of 16 bytes.
template <int E>
__device__ __forceinline__ float pp_element(const unsigned char* row, int k, int high_first)
{
    if constexpr (E == PP_F32) return reinterpret_cast<const float*>(row)[k];
    if constexpr (E == PP_F16) return pp_f16(reinterpret_cast<const unsigned short*>(row)[k]);
    if constexpr (E == PP_BF16) return pp_bf16(reinterpret_cast<const unsigned short*>(row)[k]);
    if constexpr (E == PP_E4M3) return pp_e4m3(row[k]);
    if constexpr (E == PP_E8M0) return pp_e8m0(row[k]);
    if constexpr (E == PP_INT8) return (float)(int)(signed char)row[k];
    if constexpr (E == PP_E2M1 || E == PP_INT4) {
        unsigned nibble = row[k >> 1] >> (((k ^ high_first) & 1) * 4) & 15u;
        return E == PP_E2M1 ? pp_e2m1(nibble) : (float)((int)nibble - 8);
    }
    return 0.0f;
}

// By what a byte of two nibbles is multiplied, so that the element of the even column is in bits 12 to 15 and the other in
// bits 28 to 31.
__device__ __forceinline__ unsigned pp_spread(int high_first)
{
    return high_first ? 0x10000100u : 0x01001000u;
}

// For types whose codes are bfloat16. Two pairs of neighbours of a row, from the even columns k and k + 8 on, as bfloat16: the register of the lower column's
// element in its low half. The same values as pp_element's, two to an operation: the bits of a small format, put where bfloat16
// has its own, are the number times a power of two, subnormal ones too, and the factor makes it right again exactly.
template <int E>
__device__ __forceinline__ void pp_pairs(const unsigned char* row, int k, unsigned spread, unsigned (&out)[2])
{
    constexpr unsigned SIGNS = 0x80008000u, ONES = 0x3f803f80u;
    if constexpr (E == PP_E4M3 || E == PP_INT8) {
        // Bytes 0 and 1 are of the first pair.
        unsigned codes = *reinterpret_cast<const unsigned short*>(row + k);
        codes |= (unsigned)*reinterpret_cast<const unsigned short*>(row + k + 8) << 16;
        // The top bit of each byte: whether its magnitude is 127, which is NaN.
        const unsigned nans = (codes & 0x7f7f7f7fu) + 0x01010101u;
        for (int i = 0; i < 2; ++i) {
            if (E == PP_E4M3) {
                // Codes in the upper bytes; a NaN becomes a half of ones. 2^120 is 0x7b80.
                unsigned upper = i == 0 ? pp_permute<0x1404>(codes) : pp_permute<0x3424>(codes);
                unsigned ones = i == 0 ? pp_permute<0x9988>(nans) : pp_permute<0xbbaa>(nans);
                unsigned small = (upper & SIGNS) | (upper >> 4 & 0x07f007f0u) | ones;
                out[i] = pp_fma_bf16x2(small, 0x7b807b80u, SIGNS);
            } else {
                // 128 plus the low seven bits, less 128 or, for a negative code, 256.
                unsigned lower = i == 0 ? pp_permute<0x4140>(codes) : pp_permute<0x4342>(codes);
                unsigned less = (lower & 0x00800080u) | 0xc300c300u;
                out[i] = pp_fma_bf16x2((lower & 0x007f007fu) | 0x43004300u, ONES, less);
            }
        }
    } else {
        for (int i = 0; i < 2; ++i) {
            const int at = k + 8 * i;
            if (E == PP_BF16) {
                out[i] = *reinterpret_cast<const unsigned*>(row + 2 * at);
                continue;
            }
            const unsigned upper = row[at >> 1] * spread;
            if (E == PP_E2M1)  // 2^126 is 0x7e80
                out[i] = pp_fma_bf16x2((upper & SIGNS) | (upper >> 6 & 0x01c001c0u), 0x7e807e80u, SIGNS);
            else  // INT4: 128 plus the code, less 136
                out[i] = pp_fma_bf16x2((upper >> 12 & 0x000f000fu) | 0x43004300u, ONES, 0xc308c308u);
        }
    }
}

// Rounds to bfloat16, ties to even; NaN stays NaN.
__device__ __forceinline__ float pp_round_bf16(float x)
{
    if (x != x) return x;
    unsigned bits = __float_as_uint(x);
    return __uint_as_float((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);
}

// The bits of the nearest bfloat16; a NaN keeps its quiet bit.
__device__ __forceinline__ unsigned short pp_to_bf16(float x)
{
    unsigned bits = __float_as_uint(pp_round_bf16(x)) >> 16;
    return (unsigned short)(x != x ? bits | 0x40u : bits);
}

// e^x with an error below 1 ulp for normal results; overflow gives infinity, NaN stays NaN.
__device__ __forceinline__ float pp_exp(float x)
{
    const float rounder = 12582912.0f;
    x = x < -105.0f ? -105.0f : x;
    x = x > 90.0f ? 90.0f : x;
    float shifted = fmaf(x, 1.44269504088896340736f, rounder);
    float n = shifted - rounder;
    // ln 2 cut to 15 bits, so that n times it is exact, and what is left of it.
    float r = fmaf(n, -22713.0f / 32768.0f, x);
    r = fmaf(n, -(float)(0.693147180559945309417 - 22713.0 / 32768.0), r);
    float p = 1.0f / 5040.0f;
    p = fmaf(p, r, 1.0f / 720.0f);
    p = fmaf(p, r, 1.0f / 120.0f);
    p = fmaf(p, r, 1.0f / 24.0f);
    p = fmaf(p, r, 1.0f / 6.0f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    // 2^n in two factors: n reaches beyond one normal exponent.
    int whole = (int)(__float_as_uint(shifted) - __float_as_uint(rounder));
    int half = whole >> 1;
    float a = __uint_as_float((unsigned)(half + 127) << 23);
    float b = __uint_as_float((unsigned)(whole - half + 127) << 23);
    return p * a * b;
}

__device__ __forceinline__ float pp_sigmoid(float x)
{
    return 1.0f / (1.0f + pp_exp(-x));
}

__device__ __forceinline__ float pp_silu(float x)
{
    return x / (1.0f + pp_exp(-x));
}

// x Phi(x), by erfc, so that no digits cancel for negative x.
__device__ __forceinline__ float pp_gelu(float x)
{
    return 0.5f * x * erfcf(-x * 0.70710678118654752440f);
}

// 0.5 x (1 + tanh z) = x sigmoid(2 z): the same function without cancellation.
__device__ __forceinline__ float pp_gelu_tanh(float x)
{
    float cubic = fmaf(0.044715f * x * x, x, x);
    return x * pp_sigmoid(2.0f * 0.79788456080286536f * cubic);
}

__device__ __forceinline__ float pp_powlu(float x)
{
    float base = x;
    if (x > 0.0f) base = powf(x, 2.5f / (sqrtf(x) + 1.0f));
    return base * pp_sigmoid(x);
}

// Comparisons let NaN pass, so that poison reaches the output.
__device__ __forceinline__ float pp_at_most(float x, float limit)
{
    return x > limit ? limit : x;
}

__device__ __forceinline__ float pp_clamp(float x, float limit)
{
    x = x > limit ? limit : x;
    return x < -limit ? -limit : x;
}

__device__ __forceinline__ float pp_positive(float x)
{
    return x < 0.0f ? 0.0f : x;
}

// Activations; the numbers are those of src/subject/cuda/params.rs. Formulas and constants:
// facts/upstream-padding.md 2.1 and 2.2.
enum PpActivation : int {
    PP_SWIGLU = 0,
    PP_SWIGLU_ROUNDED = 1,
    PP_GEGLU = 2,
    PP_GEGLU_TANH = 3,
    PP_SWIGLUOAI = 4,
    PP_SWIGLU_CLAMP = 5,
    PP_SWIGLUSTEP = 6,
    PP_SITU = 7,
    PP_POWLU = 8,
    PP_RELU2 = 9,
    PP_RELU2_CLAMPED = 10,
    PP_SILU = 11,
    PP_GELU = 12,
    PP_GELU_TANH = 13,
    PP_RELU = 14,
    PP_IDENTITY = 15,
};

// The activation of a channel; `up` counts only for the gated ones. Not inlined: sixteen formulas
// would cost the products registers.
__device__ __noinline__ float pp_activate(int act, float gate, float up)
{
    switch (act) {
    case PP_SWIGLU: return pp_silu(gate) * up;
    case PP_SWIGLU_ROUNDED: return pp_round_bf16(pp_silu(gate)) * up;
    case PP_GEGLU: return pp_gelu(gate) * up;
    case PP_GEGLU_TANH: return pp_gelu_tanh(gate) * up;
    case PP_SWIGLUOAI: {
        float g = pp_at_most(gate, 7.0f);
        return g * pp_sigmoid(1.702f * g) * (pp_clamp(up, 7.0f) + 1.0f);
    }
    case PP_SWIGLU_CLAMP: return pp_silu(pp_at_most(gate, 10.0f)) * pp_clamp(up, 10.0f);
    case PP_SWIGLUSTEP: return pp_at_most(pp_silu(gate), 7.0f) * pp_clamp(up, 7.0f);
    case PP_SITU: {
        float g = 4.0f * tanhf(gate / 4.0f) * pp_sigmoid(gate);
        return g * (25.0f * tanhf(up / 25.0f));
    }
    case PP_POWLU: return pp_powlu(gate) * up;
    case PP_RELU2: return pp_positive(gate) * pp_positive(gate);
    case PP_RELU2_CLAMPED: {
        float v = 7.0f * tanhf(pp_positive(gate) / 7.0f);
        return v * v;
    }
    case PP_SILU: return pp_silu(gate);
    case PP_GELU: return pp_gelu(gate);
    case PP_GELU_TANH: return pp_gelu_tanh(gate);
    case PP_RELU: return pp_positive(gate);
    default: return gate;
    }
}
