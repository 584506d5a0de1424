// The stand-in for libcudart: device memory, pooled or not, and page-locked host memory.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>

#include "core/device.h"
#include "core/text.h"
#include "emulation/cudart.h"
#include "emulation/memory.h"
#include "emulation/report.h"

using namespace ringtape;
using namespace ringtape::emulation;

namespace ringtape::emulation {
namespace {

constexpr uint64_t kPoolGrowth = uint64_t{2} << 20;              // pools take multiples of this from the system
constexpr size_t kHostAlignment = 4096, kPlainAlignment = 4096;  // cudaMalloc's, since its buffers can be shared

struct Buffer {
  size_t bytes;
  int device;
  CUmemPoolHandle_st* pool = nullptr;  // null: from cudaMalloc, or a graph's
  bool of_graph = false;
  bool freed = false;   // by a call; the stream may not have reached it
  int file = -1;        // of a buffer that other processes may open
  bool opened = false;  // belongs to another process
};

struct State {
  std::map<char*, Buffer> buffers;
  std::map<char*, size_t> host;  // page-locked
  std::array<CUmemPoolHandle_st, kMaxDevices> default_pools;
  std::vector<std::unique_ptr<CUmemPoolHandle_st>> own_pools;
  std::array<uint64_t, kMaxDevices> plain = {};  // bytes from cudaMalloc
};
State& state() {
  static State& s = *new State;
  return s;
}

uint64_t in_granules(uint64_t bytes) { return (bytes + kPoolGrowth - 1) / kPoolGrowth * kPoolGrowth; }

uint64_t taken(int device) {
  uint64_t sum = state().plain[size_t(device)] + state().default_pools[size_t(device)].reserved;
  for (const auto& p : state().own_pools) sum += p->device == device ? p->reserved : 0;
  return sum;
}

bool fits(uint64_t more, int device) { return taken(device) + more <= gpu().memory_bytes; }

void* address(size_t bytes, size_t alignment = kRedzone) {
  void* p = reserve(bytes, alignment);
  if (p) return p;
  wait_for_all();  // this may free memory
  return reserve(bytes, alignment);
}

// The content of a cudaIpcMemHandle_t here.
struct Exported {
  pid_t pid;
  int file;
  size_t bytes;
};
static_assert(sizeof(Exported) <= sizeof(cudaIpcMemHandle_t));

void trim(CUmemPoolHandle_st& pool, uint64_t keep) {
  pool.reserved = std::min(pool.reserved, std::max(in_granules(pool.used), in_granules(std::min(keep, pool.reserved))));
}

template <class Map> auto holder(Map& map, const void* p) {
  auto it = map.upper_bound(static_cast<char*>(const_cast<void*>(p)));
  return it == map.begin() ? map.end() : std::prev(it);
}

cudaError_t allocate(void** out, size_t bytes, CUmemPoolHandle_st& pool, cudaStream_t handle) {
  const auto stream = stream_of(handle);
  if (!stream || stream->device != pool.device) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaErrorInvalidValue;
  const uint64_t wanted = in_granules(pool.used + bytes);
  const uint64_t growth = wanted > pool.reserved ? wanted - pool.reserved : 0;
  if (growth && !fits(growth, pool.device)) return cudaErrorMemoryAllocation;
  void* const p = address(bytes);
  if (!p) return cudaErrorMemoryAllocation;
  Buffer buffer{bytes, pool.device};
  if (stream->capture) {
    buffer.of_graph = true;
    stream->capture->allocated.push_back(p);
  } else {
    buffer.pool = &pool;
    pool.used += bytes;
    pool.reserved += growth;
    pool.used_high = std::max(pool.used_high, pool.used);
    pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
  }
  state().buffers[static_cast<char*>(p)] = buffer;
  put(*stream, [p] {
    kill(p);  // for a graph whose previous launch left it allocated
    make_live(p);
  });
  *out = p;
  return cudaSuccess;
}

// The buffer that starts at p and may be freed; reports an error otherwise.
Buffer* freeable(void* p) {
  const auto it = state().buffers.find(static_cast<char*>(p));
  if (it == state().buffers.end()) {
    report("invalid-free", {}, concat("a free of what is not allocated: ", describe(p)));
    return nullptr;
  }
  if (it->second.freed) {
    report("double-free", {}, concat("a second free of a buffer of ", it->second.bytes, " bytes"));
    return nullptr;
  }
  return &it->second;
}

void forget(void* p) {
  release(p);
  state().buffers.erase(static_cast<char*>(p));
}

void count_freed(Buffer& buffer) {
  buffer.freed = !buffer.of_graph;  // a graph allocates it again
  if (buffer.pool) buffer.pool->used -= buffer.bytes;
  else if (!buffer.of_graph) state().plain[size_t(buffer.device)] -= buffer.bytes;
}

uint64_t* field(CUmemPoolHandle_st& pool, cudaMemPoolAttr which) {
  switch (which) {
    case cudaMemPoolAttrReleaseThreshold: return &pool.threshold;
    case cudaMemPoolAttrReservedMemCurrent: return &pool.reserved;
    case cudaMemPoolAttrReservedMemHigh: return &pool.reserved_high;
    case cudaMemPoolAttrUsedMemCurrent: return &pool.used;
    case cudaMemPoolAttrUsedMemHigh: return &pool.used_high;
    default: return nullptr;
  }
}

CUmemPoolHandle_st* default_pool(int device) {
  CUmemPoolHandle_st& pool = state().default_pools[size_t(device)];
  pool.device = device;
  return &pool;
}

}  // namespace

Capture::~Capture() {
  for (void* p : allocated) forget(p);
}

bool owned_by(const void* p, size_t bytes, int device) {
  const auto it = holder(state().buffers, p);
  if (it == state().buffers.end() || it->second.device != device || it->second.freed) return false;
  const size_t offset = size_t(static_cast<const char*>(p) - it->first);
  return offset <= it->second.bytes && bytes <= it->second.bytes - offset;
}

bool page_locked(const void* p, size_t bytes) {
  const auto it = holder(state().host, p);
  if (it == state().host.end()) return false;
  const size_t offset = size_t(static_cast<const char*>(p) - it->first);
  return offset < it->second && bytes <= it->second - offset;
}

void trim_pools(int device) {
  trim(*default_pool(device), default_pool(device)->threshold);
  for (const auto& p : state().own_pools)
    if (p->device == device) trim(*p, p->threshold);
}

size_t buffers_in_use() {
  const auto& buffers = state().buffers;
  return state().host.size() +
         size_t(std::count_if(buffers.begin(), buffers.end(), [](const auto& b) { return !b.second.freed; }));
}

}  // namespace ringtape::emulation

extern "C" {

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return api_call([&] {
    if (device < 0 || device >= gpu().devices) return cudaErrorInvalidDevice;
    *pool = default_pool(device);
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* props) {
  return api_call([&] {
    const cudaMemLocation& at = props->location;
    if (props->allocType != cudaMemAllocationTypePinned || at.type != cudaMemLocationTypeDevice)
      return cudaErrorInvalidValue;
    if (at.id < 0 || at.id >= gpu().devices) return cudaErrorInvalidDevice;
    state().own_pools.push_back(std::make_unique<CUmemPoolHandle_st>());
    *pool = state().own_pools.back().get();
    (*pool)->device = at.id;
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return api_call([&] {
    const bool own = std::erase_if(state().own_pools, [&](const auto& p) { return p.get() == pool && p->used == 0; });
    return own ? cudaSuccess : cudaErrorInvalidValue;
  });
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) {
  return api_call([&] {
    if (which <= cudaMemPoolReuseAllowInternalDependencies) return cudaSuccess;
    uint64_t* const at = field(*pool, which);
    const bool high = which == cudaMemPoolAttrReservedMemHigh || which == cudaMemPoolAttrUsedMemHigh;
    if (!at || (!high && which != cudaMemPoolAttrReleaseThreshold)) return cudaErrorInvalidValue;
    if (high && *static_cast<uint64_t*>(value) != 0) return cudaErrorInvalidValue;
    if (which == cudaMemPoolAttrReleaseThreshold) *at = *static_cast<uint64_t*>(value);
    else *at = which == cudaMemPoolAttrReservedMemHigh ? pool->reserved : pool->used;
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void* value) {
  return api_call([&] {
    const uint64_t* const at = field(*pool, which);
    if (!at) return cudaErrorInvalidValue;
    *static_cast<uint64_t*>(value) = *at;
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
  return api_call([&] {
    trim(*pool, keep);
    return cudaSuccess;
  });
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) {
  return api_call([] { return cudaSuccess; });
}

cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t stream) {
  return api_call([&] { return allocate(out, bytes, *default_pool(current_device()), stream); });
}
cudaError_t cudaMallocFromPoolAsync(void** out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return api_call([&] { return allocate(out, bytes, *pool, stream); });
}

cudaError_t cudaFreeAsync(void* p, cudaStream_t handle) {
  return api_call([&] {
    const auto stream = stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    Buffer* const buffer = freeable(p);
    if (!buffer) return cudaErrorInvalidValue;
    if (stream->capture && !buffer->of_graph) return cudaErrorInvalidValue;
    count_freed(*buffer);
    put(*stream, [p, keep = buffer->of_graph] { keep ? kill(p) : forget(p); });
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** out, size_t bytes) {
  return api_call([&] {
    *out = nullptr;
    if (const cudaError_t refused = refused_while_capturing()) return refused;
    if (bytes == 0) return cudaSuccess;
    if (!fits(bytes, current_device())) return cudaErrorMemoryAllocation;
    *out = address(bytes, kPlainAlignment);
    if (!*out) return cudaErrorMemoryAllocation;
    make_live(*out);
    state().plain[size_t(current_device())] += bytes;
    state().buffers[static_cast<char*>(*out)] = {bytes, current_device()};
    return cudaSuccess;
  });
}

// Waits for all work, as CUDA may.
cudaError_t cudaFree(void* p) {
  return api_call([&] {
    if (const cudaError_t refused = refused_while_capturing()) return refused;
    if (!p) return cudaSuccess;
    Buffer* const buffer = freeable(p);
    if (!buffer || buffer->opened) return cudaErrorInvalidValue;
    wait_for_all();
    if (buffer->file >= 0) ::close(buffer->file);
    count_freed(*buffer);
    buffer->of_graph ? kill(p) : forget(p);
    return cudaSuccess;
  });
}

// As in CUDA: p must be the start of a cudaMalloc buffer that belongs to this process.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* p) {
  return api_call([&] {
    const auto it = state().buffers.find(static_cast<char*>(p));
    if (it == state().buffers.end() || it->second.pool || it->second.of_graph || it->second.opened)
      return cudaErrorInvalidValue;
    wait_for_all();
    if (it->second.file < 0) it->second.file = share(p);
    if (it->second.file < 0) return cudaErrorMapBufferObjectFailed;
    const Exported out{::getpid(), it->second.file, it->second.bytes};
    *handle = {};
    std::memcpy(handle, &out, sizeof out);
    return cudaSuccess;
  });
}

cudaError_t cudaIpcOpenMemHandle(void** out, cudaIpcMemHandle_t handle, unsigned) {
  return api_call([&] {
    Exported in;
    std::memcpy(&in, &handle, sizeof in);
    if (in.pid == ::getpid()) return cudaErrorInvalidResourceHandle;
    const int file = ::open(concat("/proc/", in.pid, "/fd/", in.file).c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return cudaErrorMapBufferObjectFailed;
    *out = adopt(file, in.bytes);
    ::close(file);
    if (!*out) return cudaErrorMapBufferObjectFailed;
    Buffer buffer{in.bytes, current_device()};
    buffer.opened = true;
    state().buffers[static_cast<char*>(*out)] = buffer;
    return cudaSuccess;
  });
}

cudaError_t cudaIpcCloseMemHandle(void* p) {
  return api_call([&] {
    const auto it = state().buffers.find(static_cast<char*>(p));
    if (it == state().buffers.end() || !it->second.opened) return cudaErrorInvalidValue;
    wait_for_all();
    disown(p);
    state().buffers.erase(it);
    return cudaSuccess;
  });
}

cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) {
  return api_call([&] {
    *out = nullptr;
    if (const cudaError_t refused = refused_while_capturing()) return refused;
    if (bytes == 0) return cudaErrorInvalidValue;
    if (bytes > gpu().memory_bytes) return cudaErrorMemoryAllocation;  // the host has as much memory as a GPU
    *out = std::aligned_alloc(kHostAlignment, (bytes + kHostAlignment - 1) / kHostAlignment * kHostAlignment);
    if (!*out) return cudaErrorMemoryAllocation;
    state().host[static_cast<char*>(*out)] = bytes;
    return cudaSuccess;
  });
}

cudaError_t cudaFreeHost(void* p) {
  return api_call([&] {
    if (const cudaError_t refused = refused_while_capturing()) return refused;
    if (!p) return cudaSuccess;
    wait_for_all();
    if (!state().host.erase(static_cast<char*>(p))) return cudaErrorInvalidValue;
    std::free(p);
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
  return api_call([&] {
    *out = {};
    const auto it = holder(state().buffers, p);
    if (it != state().buffers.end() && owned_by(p, 0, it->second.device)) {
      out->type = cudaMemoryTypeDevice;
      out->device = it->second.device;
      out->devicePointer = const_cast<void*>(p);
    } else if (page_locked(p, 0)) {
      out->type = cudaMemoryTypeHost;
      out->hostPointer = out->devicePointer = const_cast<void*>(p);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return api_call([&] {
    *total = gpu().memory_bytes;
    *free = *total - std::min<size_t>(*total, taken(current_device()));
    return cudaSuccess;
  });
}

}  // extern "C"
