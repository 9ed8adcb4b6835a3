// Runs recorded layers from standard input, every buffer of its exact size on the heap: for sanitizers.
//
// A record is what src/subject/cuda/record.rs writes: sizes, buffers, and the output that the same
// kernels gave elsewhere. Ends with 0 when every output has the same bits and no launch went wrong, and
// says how many there were. What a sanitizer finds, it says itself.

#include "../params.h"
#include "launch.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace {

[[noreturn]] void fail(const char* what)
{
    fprintf(stderr, "record: %s\n", what);
    exit(2);
}

bool read_all(void* to, size_t bytes)
{
    size_t got = fread(to, 1, bytes, stdin);
    if (got != 0 && got != bytes) fail("ends early");
    return bytes == 0 || got == bytes;
}

long long number()
{
    long long n = 0;
    if (!read_all(&n, sizeof n)) fail("ends early");
    return n;
}

int whole() { return (int)number(); }

// A buffer on the heap, freed with the record.
struct Blob {
    unsigned char* at = nullptr;
    size_t bytes = 0;
    explicit Blob(size_t size, int fill) : bytes(size)
    {
        at = static_cast<unsigned char*>(malloc(size));
        if (!at && size) fail("no memory");
        if (size) memset(at, fill, size);
    }
    Blob() : Blob((size_t)number(), 0)
    {
        if (bytes && !read_all(at, bytes)) fail("ends early");
    }
    Blob(const Blob&) = delete;
    ~Blob() { free(at); }
    template <typename T> T* as() { return bytes ? reinterpret_cast<T*>(at) : nullptr; }
};

void sizes(PpMatrix& m)
{
    m.expert_bytes = number();
    m.expert_scale_bytes = number();
    m.rows = whole();
    m.cols = whole();
    m.row_bytes = whole();
    m.unit = whole();
    m.scale_element = whole();
    m.scale_cols = whole();
    m.row_block = whole();
    m.col_block = whole();
    m.tiled = whole();
}

struct Tensors {
    Blob weights, scales, globals, bias;
    void put(PpMatrix& m)
    {
        m.weights = weights.as<unsigned char>();
        m.scales = scales.as<unsigned char>();
        m.globals = globals.as<float>();
        m.bias = bias.as<float>();
    }
};

bool one(long long records)
{
    long long magic = 0;
    if (!read_all(&magic, sizeof magic)) return false;
    if (magic != 0x70616470726f6f66) fail("does not start with its mark");
    PpParams p{};
    sizes(p.w13);
    sizes(p.w2);
    for (int* n : {&p.tokens, &p.top_k, &p.experts, &p.expert_first, &p.hidden, &p.width,
             &p.half_rows, &p.halves, &p.up_first, &p.group, &p.act, &p.high_first, &p.weights_input,
             &p.mid_bf16, &p.x_pitch, &p.mid_pitch, &p.x_unit, &p.mid_unit, &p.fault})
        *n = whole();
    const size_t slots = (size_t)p.tokens * p.top_k;
    const size_t blocks = (size_t)number();
    const int order = whole();
    const unsigned long long seed = (unsigned long long)number();
    PpHostLaunch launches[3];
    for (PpHostLaunch& l : launches) {
        l = PpHostLaunch{};
        l.kernel = whole();
        l.inputs = whole();
        l.weights = whole();
        l.fast = whole();
        l.grid_x = (unsigned)number();
        l.grid_y = (unsigned)number();
        l.shared = (unsigned long long)number();
        l.order = order;
        l.seed = seed;
    }
    Tensors w13, w2;
    Blob x, ids, weights, wanted;
    w13.put(p.w13);
    w2.put(p.w2);
    Blob sorted(blocks * 16 * 4, 0xff), block_expert(blocks * 4, 0xff), count(4, 0xff);
    Blob needed((size_t)p.tokens * 4, 0xff);
    Blob done((size_t)p.tokens * launches[2].grid_x * 4, 0);
    Blob mid(slots * p.mid_pitch, 0xff), y(slots * p.hidden * 4, 0xff);
    Blob out((size_t)p.tokens * p.hidden * 4, 0xff);
    p.x = x.as<unsigned char>();
    p.ids = ids.as<int>();
    p.weights = weights.as<float>();
    p.sorted = sorted.as<int>();
    p.block_expert = block_expert.as<int>();
    p.blocks = count.as<int>();
    p.needed = needed.as<unsigned>();
    p.done = done.as<unsigned>();
    p.mid = mid.as<unsigned char>();
    p.y = y.as<float>();
    p.out = out.as<float>();
    for (const PpHostLaunch& l : launches) {
        char error[512] = "";
        if (l.grid_x && l.grid_y && pp_host_launch(&l, &p, error, sizeof error) != 0) {
            fprintf(stderr, "record %lld: %s\n", records, error);
            exit(3);
        }
    }
    const size_t count_out = out.bytes / 4;
    bool same = out.bytes == wanted.bytes;
    for (size_t n = 0; same && n < count_out; ++n) {
        const float a = p.out[n], b = wanted.as<float>()[n];
        same = memcmp(&a, &b, 4) == 0 || (a != a && b != b);
    }
    if (!same) {
        fprintf(stderr, "record %lld: other bits\n", records);
        exit(4);
    }
    return true;
}

}  // namespace

int main()
{
    long long records = 0;
    while (one(records)) ++records;
    printf("%lld records\n", records);
    return 0;
}
