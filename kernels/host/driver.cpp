// A stand-in for NVIDIA's driver that runs the kernels on the CPU: the part of its interface that
// src/subject/cuda/device.rs reaches through cudarc, so that everything up to the launch is executed
// where there is no device.
//
// Memory of the "device" is its own: copies and what a launch is told are held against the list of
// allocations, so that a host's address, a freed one or a wrong size ends the call with an error. A
// module must be machine code that NVRTC made, and hold the kernel that is asked for; what runs is the
// same source compiled for the host. It cannot show what a device does: no time here means anything.
// PP_EMULATED_FAIL names a call that fails, as on a device where something is wrong. PP_EMULATED_FAULT=N makes
// every kernel of a layer with N tokens fault: as on a device, the next call that waits says so, whosever it is,
// and every call after it. PP_EMULATED_FREE says how much memory is free, PP_EMULATED_CUDA which version the
// driver knows (12080 is 12.8), PP_EMULATED_SM which architecture the device has (90), PP_EMULATED_LOADS that of the
// machine code that it loads (the same).

#include "../params.h"
#include "launch.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace {

using Result = int;  // CUresult
constexpr Result OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_IMAGE = 200, NOT_FOUND = 500,
                 ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719;
constexpr size_t ALIGN = 256;

std::mutex lock;
std::map<uintptr_t, size_t> allocations;

// Whether `bytes` from `at` on lie in one allocation.
bool inside(uintptr_t at, size_t bytes)
{
    std::lock_guard<std::mutex> hold(lock);
    auto after = allocations.upper_bound(at);
    if (after == allocations.begin()) return false;
    auto of = std::prev(after);
    return at >= of->first && bytes <= of->second && at - of->first <= of->second - bytes;
}

bool broken(const char* call)
{
    const char* asked = getenv("PP_EMULATED_FAIL");
    return asked && strcmp(asked, call) == 0;
}

long long asked(const char* variable, long long otherwise)
{
    const char* text = getenv(variable);
    return text ? atoll(text) : otherwise;
}

// The fault that the context does not get past, once there is one.
std::atomic<Result> sticky{OK};

Result fail(Result code, const char* what)
{
    fprintf(stderr, "emulated driver: %s\n", what);
    return code;
}

Result allocate(uintptr_t* to, size_t bytes)
{
    if (bytes == 0) return INVALID_VALUE;
    void* at = aligned_alloc(ALIGN, (bytes + ALIGN - 1) / ALIGN * ALIGN);
    if (!at) return OUT_OF_MEMORY;
    memset(at, 0xab, bytes);
    std::lock_guard<std::mutex> hold(lock);
    allocations[*to = reinterpret_cast<uintptr_t>(at)] = bytes;
    return OK;
}

Result release(uintptr_t at)
{
    {
        std::lock_guard<std::mutex> hold(lock);
        if (allocations.erase(at) == 0) return INVALID_VALUE;
    }
    free(reinterpret_cast<void*>(at));
    return OK;
}

struct Module {
    std::string image;
};

struct Function {
    std::string name;
};

struct Event {
    std::chrono::steady_clock::time_point at;
};

// Everything that a kernel is pointed to lies on the "device".
const char* stray(const PpParams& p)
{
    const struct {
        const char* name;
        const void* at;
        size_t least;
    } all[] = {{"x", p.x, 1}, {"ids", p.ids, 4}, {"weights", p.weights, 4}, {"sorted", p.sorted, 4},
        {"block_expert", p.block_expert, 4}, {"blocks", p.blocks, 4}, {"needed", p.needed, 4},
        {"done", p.done, 4}, {"mid", p.mid, 0}, {"y", p.y, 4}, {"out", p.out, 4},
        {"w13", p.w13.weights, 0}, {"w13's scales", p.w13.scales, 0}, {"w13's globals", p.w13.globals, 0},
        {"w13's bias", p.w13.bias, 0}, {"w2", p.w2.weights, 0}, {"w2's scales", p.w2.scales, 0},
        {"w2's globals", p.w2.globals, 0}, {"w2's bias", p.w2.bias, 0}};
    for (const auto& one : all)
        if (one.at ? !inside(reinterpret_cast<uintptr_t>(one.at), one.least) : one.least > 0) return one.name;
    return nullptr;
}

}  // namespace

extern "C" {

Result cuInit(unsigned) { return broken("cuInit") ? NO_DEVICE : OK; }
Result cuDriverGetVersion(int* version)
{
    return *version = broken("cuDriverGetVersion") ? 11080 : (int)asked("PP_EMULATED_CUDA", 13000), OK;
}
Result cuDeviceGetCount(int* count) { return *count = broken("cuDeviceGetCount") ? 0 : 1, OK; }
Result cuDeviceGet(int* device, int) { return *device = 0, OK; }
Result cuDevicePrimaryCtxRetain(void** context, int)
{
    static int only;
    return *context = &only, OK;
}
Result cuDevicePrimaryCtxRelease_v2(int) { return OK; }
Result cuCtxSetCurrent(void*) { return OK; }
Result cuCtxGetCurrent(void** context) { return cuDevicePrimaryCtxRetain(context, 0); }
Result cuCtxSynchronize() { return sticky; }
Result cuDeviceGetName(char* name, int room, int) { return snprintf(name, room, "emulated"), OK; }
Result cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = (size_t)8 << 30, OK; }
Result cuDeviceGetAttribute(int* value, int which, int)
{
    // The compute capability, and memory pools.
    const int sm = (int)asked("PP_EMULATED_SM", 90);
    *value = which == 75 ? sm / 10 : which == 76 ? sm % 10 : which == 115 ? 1 : 0;
    return OK;
}

Result cuStreamCreate(void** stream, unsigned) { return *stream = new int(0), OK; }
Result cuStreamDestroy_v2(void* stream) { return delete static_cast<int*>(stream), OK; }
Result cuStreamSynchronize(void*) { return broken("cuStreamSynchronize") ? ILLEGAL_ADDRESS : sticky.load(); }
Result cuMemGetInfo_v2(size_t* free, size_t* total)
{
    *total = (size_t)8 << 30;
    *free = (size_t)asked("PP_EMULATED_FREE", (long long)*total);
    return OK;
}
Result cuStreamWaitEvent(void*, void*, unsigned) { return OK; }
Result cuEventCreate(void** event, unsigned) { return *event = new Event(), OK; }
Result cuEventDestroy_v2(void* event) { return delete static_cast<Event*>(event), OK; }
Result cuEventRecord(void* event, void*)
{
    return static_cast<Event*>(event)->at = std::chrono::steady_clock::now(), OK;
}
Result cuEventSynchronize(void*) { return OK; }
Result cuEventElapsedTime(float* ms, void* start, void* end)
{
    auto took = static_cast<Event*>(end)->at - static_cast<Event*>(start)->at;
    return *ms = std::chrono::duration<float, std::milli>(took).count(), OK;
}

Result cuMemAlloc_v2(uintptr_t* to, size_t bytes) { return allocate(to, bytes); }
Result cuMemAllocAsync(uintptr_t* to, size_t bytes, void*)
{
    return broken("cuMemAllocAsync") ? OUT_OF_MEMORY : allocate(to, bytes);
}
Result cuMemFree_v2(uintptr_t at) { return release(at); }
Result cuMemFreeAsync(uintptr_t at, void*) { return release(at); }
Result cuMemcpyHtoDAsync_v2(uintptr_t to, const void* from, size_t bytes, void*)
{
    if (!inside(to, bytes)) return fail(ILLEGAL_ADDRESS, "a copy to an address outside memory");
    return memcpy(reinterpret_cast<void*>(to), from, bytes), OK;
}
Result cuMemcpyDtoHAsync_v2(void* to, uintptr_t from, size_t bytes, void*)
{
    if (!inside(from, bytes)) return fail(ILLEGAL_ADDRESS, "a copy from an address outside memory");
    return memcpy(to, reinterpret_cast<void*>(from), bytes), OK;
}
Result cuMemcpyDtoDAsync_v2(uintptr_t to, uintptr_t from, size_t bytes, void*)
{
    if (!inside(to, bytes) || !inside(from, bytes)) return fail(ILLEGAL_ADDRESS, "a copy outside memory");
    return memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes), OK;
}
Result cuMemsetD8Async(uintptr_t to, unsigned char value, size_t bytes, void*)
{
    if (!inside(to, bytes)) return fail(ILLEGAL_ADDRESS, "a fill outside memory");
    return memset(reinterpret_cast<void*>(to), value, bytes), OK;
}

Result cuModuleLoadData(void** module, const void* image)
{
    // An ELF file of 64 bits ends with its table of sections or of segments.
    const auto* at = static_cast<const unsigned char*>(image);
    if (broken("cuModuleLoadData")) return INVALID_IMAGE;
    if (memcmp(at, "\177ELF", 4) != 0 || at[4] != 2) return fail(INVALID_IMAGE, "no machine code");
    // The architecture lies in the flags: from the eighth version of the format on in their second byte.
    uint32_t flags;
    memcpy(&flags, at + 48, 4);
    const long long sm = at[8] >= 8 ? flags >> 8 & 0xff : flags & 0xff;
    if (sm != asked("PP_EMULATED_LOADS", asked("PP_EMULATED_SM", 90)))
        return fail(INVALID_IMAGE, "machine code of another architecture");
    uint64_t end = 0;
    for (int table = 0; table < 2; ++table) {
        uint64_t offset;
        uint16_t size, count;
        memcpy(&offset, at + (table ? 40 : 32), 8);
        memcpy(&size, at + (table ? 58 : 54), 2);
        memcpy(&count, at + (table ? 60 : 56), 2);
        if (offset + (uint64_t)size * count > end) end = offset + (uint64_t)size * count;
    }
    return *module = new Module{std::string(reinterpret_cast<const char*>(at), end)}, OK;
}
Result cuModuleUnload(void* module) { return delete static_cast<Module*>(module), OK; }
Result cuModuleGetFunction(void** function, void* module, const char* name)
{
    // As a name in its table of strings: between zero bytes.
    const std::string whole = std::string(1, '\0') + name + std::string(1, '\0');
    if (static_cast<Module*>(module)->image.find(whole) == std::string::npos)
        return fail(NOT_FOUND, "no kernel of that name in the machine code");
    // Kept for as long as the process: who asks again is few.
    return *function = new Function{name}, OK;
}

Result cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
    unsigned block_y, unsigned block_z, unsigned shared, void*, void** arguments, void** extra)
{
    if (broken("cuLaunchKernel")) return LAUNCH_FAILED;
    if (sticky != OK) return sticky;
    const std::string& name = static_cast<Function*>(function)->name;
    // What measures a device has nothing to measure here.
    if (name == "pp_rate" || name == "pp_sweep") return OK;
    PpHostLaunch launch{};
    char path[16] = "";
    int product = 0;
    if (sscanf(name.c_str(), "pp_align_%d_%d", &launch.inputs, &launch.weights) != 2) {
        if (sscanf(name.c_str(), "pp_gemm%d_%15[a-z]_%d_%d", &product, path, &launch.inputs, &launch.weights) != 4)
            return fail(INVALID_VALUE, "a kernel that nobody knows");
    }
    launch.kernel = product;
    launch.fast = strcmp(path, "fast") == 0;
    launch.grid_x = grid_x;
    launch.grid_y = grid_y;
    launch.shared = shared;
    // As the architecture that this driver claims (sm_90).
    launch.mma_fraction = 25;
    launch.mma_terms = 16;
    const unsigned threads = launch.kernel == 0 ? 256 : 128;
    if (grid_z != 1 || block_x != threads || block_y != 1 || block_z != 1 || extra)
        return fail(INVALID_VALUE, "a grid that no kernel asks for");
    // A device takes no more.
    if (grid_y > 65535 || shared > 48 << 10) return fail(INVALID_VALUE, "a grid that no device takes");
    const auto* params = static_cast<const PpParams*>(arguments[0]);
    if (const char* what = stray(*params)) return fail(ILLEGAL_ADDRESS, what);
    char error[512] = "";
    if (params->tokens == asked("PP_EMULATED_FAULT", -1)) return sticky = ILLEGAL_ADDRESS, OK;
    // What a kernel does wrong is found by who waits for it.
    if (pp_host_launch(&launch, params, error, sizeof error) != 0)
        return fail(LAUNCH_FAILED, error), sticky = LAUNCH_FAILED, OK;
    return OK;
}

Result cuGetErrorName(Result code, const char** name)
{
    switch (code) {
    case INVALID_VALUE: return *name = "CUDA_ERROR_INVALID_VALUE", OK;
    case OUT_OF_MEMORY: return *name = "CUDA_ERROR_OUT_OF_MEMORY", OK;
    case NO_DEVICE: return *name = "CUDA_ERROR_NO_DEVICE", OK;
    case INVALID_IMAGE: return *name = "CUDA_ERROR_INVALID_IMAGE", OK;
    case NOT_FOUND: return *name = "CUDA_ERROR_NOT_FOUND", OK;
    case ILLEGAL_ADDRESS: return *name = "CUDA_ERROR_ILLEGAL_ADDRESS", OK;
    case LAUNCH_FAILED: return *name = "CUDA_ERROR_LAUNCH_FAILED", OK;
    default: return INVALID_VALUE;
    }
}
Result cuGetErrorString(Result, const char** text) { return *text = "see above", OK; }

}  // extern "C"
