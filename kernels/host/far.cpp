// A first product whose rows, experts and tokens lie far apart in memory that is mostly never touched, for tests: an
// offset that is cut to 32 bits leads elsewhere.

#define PP_HOST 1
#include "../moe.cu"
#include "fibers.h"

#include <cstdlib>
#include <sys/mman.h>
#include <vector>

namespace {

constexpr int EXPERTS = 2, WIDTH = 40, TOKENS = 9, TOP_K = 2, HIDDEN = 64;

void align_few(const void* params)
{
    pp_align_body(*static_cast<const PpParams*>(params));
}

template <bool FAST>
void multiply_few(const void* params)
{
    pp_gemm1<PP_BF16, PP_E4M3, FAST>(*static_cast<const PpParams*>(params));
}

// Address space without memory behind what is not touched.
struct Sparse {
    size_t size;
    void* at;

    explicit Sparse(size_t bytes)
        : size(bytes)
        , at(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))
    {
    }
    ~Sparse()
    {
        if (at != MAP_FAILED) munmap(at, size);
    }
    unsigned char* bytes() const { return at == MAP_FAILED ? nullptr : static_cast<unsigned char*>(at); }
};

bool run(const char* name, void (*kernel)(const void*), const PpParams& p, unsigned x, unsigned y, unsigned threads, size_t shared)
{
    pp_host::Launch launch{};
    launch.name = name;
    launch.kernel = kernel;
    launch.params = &p;
    launch.grid_x = x;
    launch.grid_y = y;
    launch.threads = threads;
    launch.shared = shared;
    char error[512] = "";
    return pp_host::run(launch, error, sizeof error);
}

// Fills the intermediate [TOKENS TOP_K, WIDTH] of rows that are `pitch` bytes apart; false where a launch went wrong.
bool product(const Sparse& w, const Sparse& x, size_t pitch, bool fast, std::vector<float>& mid)
{
    for (int row = 0; row < WIDTH * EXPERTS; ++row)
        for (int k = 0; k < HIDDEN; ++k) w.bytes()[row * pitch + k] = (unsigned char)((row * 37 + k * 11) % 0x7f);
    for (int row = 0; row < TOKENS; ++row)
        for (int k = 0; k < HIDDEN; ++k)
            reinterpret_cast<unsigned short*>(x.bytes() + row * pitch)[k] = (unsigned short)(0x3f00 + (row * 53 + k * 7) % 200);
    std::vector<int> ids(TOKENS * TOP_K), sorted(TOKENS * TOP_K * PP_BM), block_expert(TOKENS * TOP_K);
    for (size_t n = 0; n < ids.size(); ++n) ids[n] = (int)(n % EXPERTS);
    std::vector<float> weights(ids.size(), 1.0f), out(TOKENS * HIDDEN);
    mid.assign(ids.size() * WIDTH, -1.0f);
    std::vector<unsigned> needed(TOKENS);
    int blocks = 0;

    PpParams p{};
    p.experts = EXPERTS, p.tokens = TOKENS, p.top_k = TOP_K, p.hidden = HIDDEN;
    p.width = p.half_rows = p.w13.rows = WIDTH;
    p.halves = 1;
    p.act = PP_RELU;
    p.w13.weights = w.bytes();
    p.w13.cols = HIDDEN;
    p.w13.row_bytes = (int)pitch;
    p.w13.expert_bytes = (long long)pitch * WIDTH;
    p.w13.unit = p.x_unit = 16;
    p.x = x.bytes();
    p.x_pitch = (int)pitch;
    p.mid = reinterpret_cast<unsigned char*>(mid.data());
    p.mid_pitch = WIDTH * (int)sizeof(float);
    p.ids = ids.data(), p.weights = weights.data(), p.sorted = sorted.data(), p.block_expert = block_expert.data();
    p.blocks = &blocks, p.needed = needed.data(), p.out = out.data();
    return run("pp_align", align_few, p, 1, 1, PP_ALIGN_THREADS, (size_t)PP_ALIGN_INTS * EXPERTS * 4)
        && run("pp_gemm1", fast ? multiply_few<true> : multiply_few<false>, p, (WIDTH + PP_BN - 1) / PP_BN,
            (unsigned)blocks, PP_THREADS, (size_t)pp_shared_bytes(PP_BF16, PP_E4M3));
}

}  // namespace

// 1 where rows that are 256 MiB apart give the bits of rows that are 128 bytes apart, 0 where they do not or a launch
// goes wrong, -1 without address space for them.
extern "C" int pp_host_far()
{
    for (bool fast : {false, true}) {
        std::vector<float> found[2];
        for (bool far : {false, true}) {
            const size_t pitch = far ? (size_t)256 << 20 : 128;
            const Sparse w(pitch * WIDTH * EXPERTS), x(pitch * TOKENS);
            if (!w.bytes() || !x.bytes()) return -1;
            if (!product(w, x, pitch, fast, found[far])) return 0;
        }
        if (memcmp(found[0].data(), found[1].data(), found[0].size() * sizeof(float)) != 0) return 0;
    }
    return 1;
}
