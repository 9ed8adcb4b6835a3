// The scheduler behind cuda_host.h. It knows no kernel.
//
// Compiled without -fsanitize=thread even where the kernels are compiled with it (PP_TSAN says so):
// it tells the sanitizer which fiber runs and which of them a barrier orders.

#include "fibers.h"
#include "cuda_host.h"
#include "mma.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <sys/mman.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define PP_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PP_ASAN 1
#endif
#endif

#ifdef PP_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef PP_TSAN
extern "C" {
void* __tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void*);
void __tsan_switch_to_fiber(void*, unsigned);
void* __tsan_get_current_fiber();
void __tsan_acquire(void*);
void __tsan_release(void*);
void __tsan_read_range(void*, unsigned long);
void __tsan_write_range(void*, unsigned long);
}
#endif

#if defined(__x86_64__)
// Saves what a call must keep on the old stack, and returns on the new one.
extern "C" void pp_switch(void** from, void* to);
asm(R"(
.text
.globl pp_switch
.hidden pp_switch
.type pp_switch, @function
pp_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size pp_switch, .-pp_switch
)");
#else
#include <ucontext.h>
#endif

namespace pp_host {

constinit thread_local Self* self = nullptr;

namespace {

constexpr size_t PAGE = 4096;
// Blocks under way at a time where they run interleaved.
constexpr unsigned PLACES = 4;
#if defined(PP_ASAN) || defined(PP_TSAN)
constexpr size_t STACK = 128 << 10;
#else
constexpr size_t STACK = 32 << 10;
#endif

enum State { READY, AT_BARRIER, AT_WARP, DONE };

enum Kind { SYNC, BALLOT, MATCH, SHUFFLE, MMA };

struct Copy {
    void* to;
    const void* from;
    int bytes;
    unsigned group;
};

struct Block;

struct Fiber {
    Self self{};
    Block* block = nullptr;
    State state = DONE;
    const Site* site = nullptr;
#if defined(__x86_64__)
    void* sp = nullptr;
#else
    ucontext_t context{};
#endif
    char* memory = nullptr;
    std::vector<Copy> copies;
    unsigned committed = 0;
#ifdef PP_ASAN
    void* fake = nullptr;
#endif
#ifdef PP_TSAN
    void* tsan = nullptr;
#endif
    ~Fiber()
    {
        if (!memory) return;
#ifdef PP_ASAN
        __asan_unpoison_memory_region(memory, STACK + PAGE);
#endif
        munmap(memory, STACK + PAGE);
    }
    char* stack() const { return memory + PAGE; }
};

// What the lanes of one warp have brought to a collective.
struct Warp {
    unsigned mask = 0, arrived = 0;
    unsigned generation = 0;
    char turn[2] = {};  // what a sanitizer orders lanes by: one __syncwarp's, then the other's
    int kind = 0;
    const Site* site = nullptr;
    void* args[32] = {};
};

// A block that has begun, or the place of one.
struct Block {
    std::vector<std::unique_ptr<Fiber>> fibers;
    std::vector<Warp> warps;
    unsigned at_barrier = 0, done = 0;
    unsigned generation = 0;
    char turn[2] = {};  // as in Warp: a thread that leaves one barrier is not behind those at the next
    unsigned char* shared = nullptr;
    size_t shared_size = 0;
    bool begun = false;

    ~Block() { free(shared); }
};

struct Machine {
    const Launch* launch = nullptr;
    std::vector<std::unique_ptr<Block>> blocks;
    std::vector<unsigned> order;
    Fiber* running = nullptr;
#if defined(__x86_64__)
    void* sp = nullptr;
#else
    ucontext_t context{};
#endif
#ifdef PP_ASAN
    void* fake = nullptr;
    const void* bottom = nullptr;
    size_t size = 0;
#endif
#ifdef PP_TSAN
    void* tsan = nullptr;
#endif
    bool paused = false;  // whether a thread has waited at a word with other blocks since the last draw
    bool failed = false;
    char* error = nullptr;
    size_t room = 0;
};

thread_local Machine machine;

void to_scheduler(Fiber& f, bool dying)
{
#ifdef PP_ASAN
    __sanitizer_start_switch_fiber(dying ? nullptr : &f.fake, machine.bottom, machine.size);
#endif
#ifdef PP_TSAN
    __tsan_switch_to_fiber(machine.tsan, 1);
#endif
    (void)dying;
#if defined(__x86_64__)
    pp_switch(&f.sp, machine.sp);
#else
    swapcontext(&f.context, &machine.context);
#endif
#ifdef PP_ASAN
    __sanitizer_finish_switch_fiber(f.fake, &machine.bottom, &machine.size);
#endif
}

void to_fiber(Fiber& f)
{
    machine.running = &f;
    self = &f.self;
#ifdef PP_ASAN
    __sanitizer_start_switch_fiber(&machine.fake, f.stack(), STACK);
#endif
#ifdef PP_TSAN
    __tsan_switch_to_fiber(f.tsan, 1);
#endif
#if defined(__x86_64__)
    pp_switch(&machine.sp, f.sp);
#else
    swapcontext(&machine.context, &f.context);
#endif
#ifdef PP_ASAN
    __sanitizer_finish_switch_fiber(machine.fake, nullptr, nullptr);
#endif
    self = nullptr;
}

void say(const char* format, ...)
{
    machine.failed = true;
    if (machine.room == 0) return;
    va_list args;
    va_start(args, format);
    vsnprintf(machine.error, machine.room, format, args);
    va_end(args);
}

const char* base_name(const char* path)
{
    const char* slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// Ends the launch from inside a thread; its stack is left as it is.
[[noreturn]] void give_up(const char* what, const Site* site)
{
    Fiber& f = *machine.running;
    say("%s: block (%u, %u), thread %u%s%s%s%d: %s", machine.launch->name, f.self.block.x,
        f.self.block.y, f.self.thread.x, site ? ", " : "", site ? base_name(site->file) : "",
        site ? ":" : "", site ? site->line : 0, what);
    for (;;) to_scheduler(f, false);
}

void body()
{
#ifdef PP_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &machine.bottom, &machine.size);
#endif
    Fiber& f = *machine.running;
#ifdef PP_TSAN
    __tsan_acquire(&machine.launch);
#endif
    machine.launch->kernel(machine.launch->params);
    if (!f.copies.empty()) give_up("ends with cp.async under way", nullptr);
#ifdef PP_TSAN
    __tsan_release(&machine.launch);
#endif
    f.state = DONE;
    ++f.block->done;
    for (;;) to_scheduler(f, true);
}

bool prepare(Fiber& f)
{
    if (!f.memory) {
        void* m = mmap(nullptr, STACK + PAGE, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED) return false;
        f.memory = static_cast<char*>(m);
        // An overflow runs into this page.
        if (mprotect(m, PAGE, PROT_NONE) != 0) return false;
    }
#ifdef PP_ASAN
    // The last thread on this stack never returned from its frames.
    __asan_unpoison_memory_region(f.stack(), STACK);
#endif
    f.state = READY;
    f.site = nullptr;
    f.copies.clear();
    f.committed = 0;
#if defined(__x86_64__)
    // As pp_switch expects it: six registers, where to return, and a place that keeps 16 bytes.
    void** top = reinterpret_cast<void**>(f.stack() + STACK);
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(&body);
    for (int n = 0; n < 6; ++n) *--top = nullptr;
    f.sp = top;
#else
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack();
    f.context.uc_stack.ss_size = STACK;
    f.context.uc_link = nullptr;
    makecontext(&f.context, &body, 0);
#endif
#ifdef PP_TSAN
    if (!f.tsan) f.tsan = __tsan_create_fiber(0);
#endif
    return true;
}

uint64_t next(uint64_t& state)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void arrange(std::vector<unsigned>& order, unsigned count, int how, uint64_t& state)
{
    const bool drawn = how == SEEDED || how == INTERLEAVED;
    if (order.size() != count || drawn) {
        order.resize(count);
        std::iota(order.begin(), order.end(), 0u);
        if (how == REVERSE)
            for (unsigned n = 0; n < count; ++n) order[n] = count - 1 - n;
        if (drawn)
            for (unsigned n = count; n > 1; --n) std::swap(order[n - 1], order[next(state) % n]);
    }
}

// Why no thread of a block can go on.
void explain_standstill(const Block& block)
{
    unsigned barrier = 0, warp = 0;
    const Site *at_barrier = nullptr, *at_warp = nullptr;
    Fiber* first = nullptr;
    for (unsigned n = 0; n < machine.launch->threads; ++n) {
        Fiber* f = block.fibers[n].get();
        if (f->state == AT_BARRIER) ++barrier, at_barrier = f->site, first = first ? first : f;
        if (f->state == AT_WARP) ++warp, at_warp = f->site, first = first ? first : f;
    }
    say("%s: block (%u, %u) stands still: %u threads wait at a barrier (line %d), %u in a warp (line "
        "%d), %u have ended",
        machine.launch->name, first ? first->self.block.x : 0, first ? first->self.block.y : 0, barrier,
        at_barrier ? at_barrier->line : 0, warp, at_warp ? at_warp->line : 0, block.done);
}

// Stacks and shared memory for a block of the launch; those of the launch before are kept.
bool make_room(Block& block)
{
    const Launch& launch = *machine.launch;
    block.begun = false;
    while (block.fibers.size() < launch.threads) {
        block.fibers.push_back(std::make_unique<Fiber>());
        block.fibers.back()->block = &block;
    }
    block.warps.resize(launch.threads / 32);
    if (block.shared_size != launch.shared || !block.shared) {
        // Of the exact size, so that an address sanitizer sees its end.
        free(block.shared);
        block.shared = static_cast<unsigned char*>(aligned_alloc(16, (launch.shared + 15) / 16 * 16));
        block.shared_size = launch.shared;
    }
    if (!block.shared) say("%s: no memory for shared memory", launch.name);
    return block.shared != nullptr;
}

bool begin(Block& block, unsigned number)
{
    const Launch& launch = *machine.launch;
    memset(block.shared, 0xff, block.shared_size);
    for (Warp& warp : block.warps) warp = Warp();
    block.at_barrier = block.done = 0;
    block.begun = true;
    for (unsigned n = 0; n < launch.threads; ++n) {
        Fiber& f = *block.fibers[n];
        f.self = Self{{n, 0, 0}, {number % launch.grid_x, number / launch.grid_x, 0},
            {launch.grid_x, launch.grid_y, 1}, (int)(n % 32)};
        if (!prepare(f)) {
            say("%s: no memory for the stack of a thread", launch.name);
            return false;
        }
    }
#ifdef PP_TSAN
    // Threads start after everything before their block.
    __tsan_release(&machine.launch);
#endif
    return true;
}

bool has_ready(const Block& block, unsigned first, unsigned count)
{
    for (unsigned n = first; n < first + count; ++n)
        if (block.fibers[n]->state == READY) return true;
    return false;
}

// A turn for every thread of the one block that is under way, each up to where it waits.
bool turn(const Block& block, uint64_t& state)
{
    const unsigned threads = machine.launch->threads;
    if (!has_ready(block, 0, threads)) return explain_standstill(block), false;
    arrange(machine.order, threads, machine.launch->order, state);
    for (unsigned n : machine.order) {
        Fiber& f = *block.fibers[n];
        if (f.state != READY) continue;
        to_fiber(f);
        if (machine.failed) return false;
    }
    return true;
}

// A turn for one warp of one of the blocks that are under way. They are drawn with chances of 64 to 16 to 4 to 1, so
// that some fall far behind, and which of them do changes most where blocks speak with each other.
bool turn_of_warp(unsigned places, uint64_t& state)
{
    const unsigned warps = machine.launch->threads / 32;
    if (machine.order.size() != places || next(state) % (machine.paused ? 4 : 32) == 0)
        arrange(machine.order, places, INTERLEAVED, state);
    machine.paused = false;
    const uint64_t chance = next(state) % 85;
    unsigned rank = chance < 64 ? 0 : chance < 80 ? 1 : chance < 84 ? 2 : 3;
    while (!machine.blocks[machine.order[rank % places]]->begun) ++rank;
    const Block& block = *machine.blocks[machine.order[rank % places]];
    const unsigned start = (unsigned)(next(state) % warps), lane = (unsigned)(next(state) % 32);
    for (unsigned w = 0; w < warps; ++w) {
        const unsigned first = (start + w) % warps * 32;
        if (!has_ready(block, first, 32)) continue;
        for (unsigned n = 0; n < 32; ++n) {
            Fiber& f = *block.fibers[first + (lane + n) % 32];
            if (f.state != READY) continue;
            to_fiber(f);
            if (machine.failed) return false;
        }
        return true;
    }
    explain_standstill(block);
    return false;
}

// Runs the blocks in the order given, as many at a time as there are places for.
bool run_blocks(const std::vector<unsigned>& order, unsigned places, uint64_t& state)
{
    size_t begun = 0, ended = 0;
    while (ended < order.size()) {
        for (unsigned place = 0; place < places; ++place) {
            Block& block = *machine.blocks[place];
            if (block.begun || begun == order.size()) continue;
            if (!begin(block, order[begun++])) return false;
        }
        const bool interleaved = machine.launch->order == INTERLEAVED;
        if (!(interleaved ? turn_of_warp(places, state) : turn(*machine.blocks[0], state))) return false;
        for (unsigned place = 0; place < places; ++place) {
            Block& block = *machine.blocks[place];
            if (!block.begun || block.done < machine.launch->threads) continue;
            block.begun = false;
            ++ended;
#ifdef PP_TSAN
            // Blocks are ordered: what races is looked for within one.
            __tsan_acquire(&machine.launch);
#endif
        }
    }
    return true;
}

// Brings this lane to a collective; true for the lane that completes it, which then does the work
// and calls `leave`.
bool arrive(int kind, unsigned mask, void* arg, const Site* site)
{
    Fiber& f = *machine.running;
    Warp& warp = f.block->warps[f.self.thread.x / 32];
    const unsigned own = 1u << f.self.lane;
    if (!(mask & own)) give_up("a lane outside its own mask", site);
    if (warp.arrived == 0) {
        warp.mask = mask;
        warp.kind = kind;
        warp.site = site;
    } else if (warp.mask != mask || warp.kind != kind || warp.site != site) {
        give_up("lanes of a warp meet in different collectives", site);
    }
    warp.args[f.self.lane] = arg;
    warp.arrived |= own;
#ifdef PP_TSAN
    // Of the collectives only __syncwarp orders memory: what lanes exchange in the others, they do not write.
    char* turn = kind == SYNC ? &warp.turn[warp.generation & 1] : nullptr;
    if (turn) __tsan_release(turn);
#endif
    if (warp.arrived == mask) {
#ifdef PP_TSAN
        if (turn) __tsan_acquire(turn);
#endif
        return true;
    }
    f.state = AT_WARP;
    f.site = site;
    to_scheduler(f, false);
#ifdef PP_TSAN
    if (turn) __tsan_acquire(turn);
#endif
    return false;
}

void leave()
{
    const unsigned first = machine.running->self.thread.x / 32 * 32;
    Block& block = *machine.running->block;
    Warp& warp = block.warps[first / 32];
    for (unsigned lane = 0; lane < 32; ++lane)
        if (warp.mask >> lane & 1) block.fibers[first + lane]->state = READY;
    warp.arrived = 0;
    ++warp.generation;
}

Warp& own_warp()
{
    return machine.running->block->warps[machine.running->self.thread.x / 32];
}

struct Vote {
    bool vote;
    unsigned votes;
};

struct Match {
    uint32_t value;
    unsigned equals;
};

struct Shuffle {
    uint32_t value, result;
    int source;
};

struct Mma {
    float* d;
    const uint32_t *a, *b;
};

float bf16(uint32_t pair, int half)
{
    return __uint_as_float(half ? pair & 0xffff0000u : pair << 16);
}

// The fragment layout of the PTX manual for mma.m16n8k16 with .bf16: lane 4 g + t holds rows g and
// g + 8 of a and d, columns 2 t and 2 t + 1 (and 8 more) of a, and column g of b.
// How the sixteen products are added is in mma.h.
void multiply(Warp& warp)
{
    alignas(64) float a[16][16], b[16][8], d[16][8];
    for (int lane = 0; lane < 32; ++lane) {
        const Mma& m = *static_cast<Mma*>(warp.args[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int n = 0; n < 4; ++n)
            for (int half = 0; half < 2; ++half)
                a[g + (n & 1) * 8][2 * t + (n >> 1) * 8 + half] = bf16(m.a[n], half);
        for (int n = 0; n < 2; ++n)
            for (int half = 0; half < 2; ++half) b[2 * t + n * 8 + half][g] = bf16(m.b[n], half);
        for (int n = 0; n < 4; ++n) d[g + (n >> 1) * 8][2 * t + (n & 1)] = m.d[n];
    }
    const Launch& launch = *machine.launch;
    if (launch.mma_fraction == 0) {
        // The chain, with columns side by side so that they vectorise.
        for (int row = 0; row < 16; ++row)
            for (int k = 0; k < 16; ++k)
                for (int col = 0; col < 8; ++col)
                    d[row][col] = fmaf(a[row][k], b[k][col], d[row][col]);
    } else {
        for (int row = 0; row < 16; ++row)
            for (int col = 0; col < 8; ++col)
                d[row][col] = pp_sum_of_mma(
                    a[row], &b[0][col], 8, d[row][col], launch.mma_fraction, launch.mma_terms);
    }
    for (int lane = 0; lane < 32; ++lane) {
        const Mma& m = *static_cast<Mma*>(warp.args[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int n = 0; n < 4; ++n) m.d[n] = d[g + (n >> 1) * 8][2 * t + (n & 1)];
    }
}

}  // namespace

unsigned char* shared()
{
    return machine.running->block->shared;
}

void pause()
{
    if (machine.launch->order != INTERLEAVED) return;
    machine.paused = true;
    to_scheduler(*machine.running, false);
}

void barrier(const Site* site)
{
    Fiber& f = *machine.running;
    Block& block = *f.block;
    f.site = site;
    [[maybe_unused]] char* turn = &block.turn[block.generation & 1];
#ifdef PP_TSAN
    __tsan_release(turn);
#endif
    if (++block.at_barrier < machine.launch->threads) {
        f.state = AT_BARRIER;
        to_scheduler(f, false);
    } else {
        block.at_barrier = 0;
        ++block.generation;
        for (unsigned n = 0; n < machine.launch->threads; ++n) {
            Fiber& other = *block.fibers[n];
            if (other.site != site) give_up("threads of a block meet at different barriers", site);
            other.state = READY;
        }
    }
#ifdef PP_TSAN
    __tsan_acquire(turn);
#endif
}

void warp_sync(unsigned mask, const Site* site)
{
    if (arrive(SYNC, mask, nullptr, site)) leave();
}

unsigned ballot(unsigned mask, bool vote, const Site* site)
{
    Vote own{vote, 0};
    if (arrive(BALLOT, mask, &own, site)) {
        Warp& warp = own_warp();
        unsigned votes = 0;
        for (int lane = 0; lane < 32; ++lane)
            if (mask >> lane & 1) votes |= (unsigned)static_cast<Vote*>(warp.args[lane])->vote << lane;
        for (int lane = 0; lane < 32; ++lane)
            if (mask >> lane & 1) static_cast<Vote*>(warp.args[lane])->votes = votes;
        leave();
    }
    return own.votes;
}

unsigned match(unsigned mask, uint32_t value, const Site* site)
{
    Match own{value, 0};
    if (arrive(MATCH, mask, &own, site)) {
        Warp& warp = own_warp();
        for (int lane = 0; lane < 32; ++lane) {
            if (!(mask >> lane & 1)) continue;
            Match& of = *static_cast<Match*>(warp.args[lane]);
            for (int other = 0; other < 32; ++other)
                if (mask >> other & 1)
                    of.equals |= (unsigned)(static_cast<Match*>(warp.args[other])->value == of.value) << other;
        }
        leave();
    }
    return own.equals;
}

uint32_t shuffle(unsigned mask, uint32_t value, int source, const Site* site)
{
    Shuffle own{value, 0, source};
    if (arrive(SHUFFLE, mask, &own, site)) {
        Warp& warp = own_warp();
        for (int lane = 0; lane < 32; ++lane) {
            if (!(mask >> lane & 1)) continue;
            Shuffle& of = *static_cast<Shuffle*>(warp.args[lane]);
            if (of.source < 0 || of.source > 31 || !(mask >> of.source & 1))
                give_up("a shuffle from a lane outside the mask", site);
            of.result = static_cast<Shuffle*>(warp.args[of.source])->value;
        }
        leave();
    }
    return own.result;
}

void mma_bf16(float* d, const uint32_t* a, const uint32_t* b, const Site* site)
{
    Mma own{d, a, b};
    if (arrive(MMA, 0xffffffffu, &own, site)) {
        multiply(own_warp());
        leave();
    }
}

void copy_async(void* to, const void* from, int bytes)
{
    Fiber& f = *machine.running;
    if (((uintptr_t)to | (uintptr_t)from) % 16 != 0) give_up("cp.async of an address off 16", nullptr);
#ifdef PP_TSAN
    __tsan_write_range(to, 16);
#endif
    // What lies there until the bytes land is nothing that anyone may read.
    memset(to, 0xff, 16);
    f.copies.push_back(Copy{to, from, bytes, f.committed});
}

void commit_async()
{
    ++machine.running->committed;
}

void wait_async(int newest)
{
    Fiber& f = *machine.running;
    size_t kept = 0;
    for (const Copy& copy : f.copies) {
        if (copy.group + (unsigned)newest >= f.committed) {
            f.copies[kept++] = copy;
            continue;
        }
#ifdef PP_TSAN
        __tsan_read_range(const_cast<void*>(copy.from), (unsigned long)copy.bytes);
        __tsan_write_range(copy.to, 16);
#endif
        memset(copy.to, 0, 16);
        memcpy(copy.to, copy.from, (size_t)copy.bytes);
    }
    f.copies.resize(kept);
}

bool run(const Launch& launch, char* error, size_t room)
try {
    machine.launch = &launch;
    machine.error = error;
    machine.room = room;
    machine.failed = false;
    machine.order.clear();
    const unsigned count = launch.grid_x * launch.grid_y;
    const unsigned places = launch.order == INTERLEAVED ? std::min(count, PLACES) : 1;
    while (machine.blocks.size() < places) machine.blocks.push_back(std::make_unique<Block>());
    for (unsigned n = 0; n < places; ++n)
        if (!make_room(*machine.blocks[n])) return false;
#ifdef PP_TSAN
    machine.tsan = __tsan_get_current_fiber();
    __tsan_release(&machine.launch);
#endif
    uint64_t state = launch.seed;
    std::vector<unsigned> blocks;
    arrange(blocks, count, launch.order, state);
    run_blocks(blocks, places, state);
#ifdef PP_TSAN
    __tsan_acquire(&machine.launch);
#endif
    machine.launch = nullptr;
    return !machine.failed;
} catch (const std::bad_alloc&) {
    machine.launch = nullptr;
    say("%s: no memory for its launch", launch.name);
    return false;
}

}  // namespace pp_host
