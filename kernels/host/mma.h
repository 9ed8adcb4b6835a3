// How mma.sync adds the products of its sixteen columns: a chain of fused multiply-adds, or as tensor
// cores were found to.
//
// Found: products are exact; each addend, the accumulator among them, is cut to a multiple of the
// 2^-fraction-th part of the largest exponent, which a product has as the sum of its factors' (a zero's is that
// of the subnormals); the sum of `terms` products is exact, and is rounded to f32 toward zero. fraction and terms
// are 24 and 8 for sm_80 to sm_89, 25 and 16 from sm_90 on. Sources: Fasi et al., Numerical behavior of NVIDIA
// tensor cores, PeerJ CS 7:e330; Xie et al., MMA-Sim, arXiv 2511.10909, with its tables for mma.sync of bfloat16
// (github.com/microsoft/MMA-Sim); Khattak and Mikaitis, Accurate models of NVIDIA tensor cores, arXiv 2512.07004.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace pp_host {

// A bfloat16, or a float, as a whole significand of 8 or 24 bits and the exponent of its highest bit, which for
// zero and subnormals is the least.
struct Parts {
    int64_t significand;
    int exponent;
};

inline Parts pp_parts(float x, int bits)
{
    uint32_t code;
    memcpy(&code, &x, 4);
    const int biased = (int)(code >> 23 & 0xff);
    const int64_t whole = ((code & 0x7fffffu) | (biased ? 0x800000u : 0u)) >> (24 - bits);
    return Parts{code >> 31 ? -whole : whole, (biased ? biased : 1) - 127};
}

// n / 2^-shift or n 2^shift, cut toward zero.
inline int64_t pp_shifted(int64_t n, int shift)
{
    if (shift >= 0) return n * ((int64_t)1 << shift);
    return shift < -40 ? 0 : n / ((int64_t)1 << -shift);
}

// Toward zero, as tensor cores round their sums.
inline float pp_toward_zero(double x)
{
    if (fabs(x) >= 0x1p128) return x < 0 ? -INFINITY : INFINITY;
    float near = (float)x;
    return fabs((double)near) > fabs(x) ? nextafterf(near, 0.0f) : near;
}

// c and n products of bfloat16, `step` apart in b, with addends cut below the largest.
inline float pp_add_aligned(const float* a, const float* b, int step, int n, float c, int fraction)
{
    int64_t product[16];
    int exponent[16];
    const Parts of_c = pp_parts(c, 24);
    int most = of_c.exponent;
    float plain = c;
    for (int k = 0; k < n; ++k) {
        const Parts of_a = pp_parts(a[k], 8), of_b = pp_parts(b[k * step], 8);
        product[k] = of_a.significand * of_b.significand;
        exponent[k] = of_a.exponent + of_b.exponent;
        if (exponent[k] > most) most = exponent[k];
        plain += a[k] * b[k * step];
    }
    if (!std::isfinite(plain)) {
        // Not what overflowed on this way alone.
        double sum = c;
        for (int k = 0; k < n; ++k) sum += (double)a[k] * (double)b[k * step];
        if (!std::isfinite(sum)) return (float)sum;
    }
    int64_t sum = pp_shifted(of_c.significand, fraction - 23 + of_c.exponent - most);
    for (int k = 0; k < n; ++k) sum += pp_shifted(product[k], fraction - 14 + exponent[k] - most);
    return pp_toward_zero(ldexp((double)sum, most - fraction));
}

// d += a b over sixteen columns, `terms` at a time.
inline float pp_sum_of_mma(const float* a, const float* b, int step, float d, int fraction, int terms)
{
    for (int k = 0; k < 16; k += terms) {
        const int n = k + terms < 16 ? terms : 16 - k;
        d = pp_add_aligned(a + k, b + k * step, step, n, d, fraction);
    }
    return d;
}

}  // namespace pp_host
