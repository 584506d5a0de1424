// Memory of the devices cuda:0, cuda:1 ...: CUDA's stream-ordered pools, which keep memory that they got from the
// driver. Buffers are allocated and freed in order of the compute stream, so that nobody waits.
#include "core/cuda/memory.h"

#include <array>
#include <atomic>
#include <limits>
#include <mutex>
#include <unordered_map>

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/cuda/pool.h"

namespace ringtape::cuda {

static thread_local GraphMemory* recorder = nullptr;

struct GraphBlock {
  GraphMemory* owner;  // null: the graph is destroyed, but a tensor still uses it
  size_t bytes;
  bool held;  // by a tensor
};

struct DeviceMemory {
  std::mutex mutex;
  cudaMemPool_t pool = nullptr;
  MemoryStats stats;
  int64_t pool_reserved = 0, graph_reserved = 0;
  int64_t most_used = 0;                // bytes in use so far, whatever reset_peak() says
  std::atomic<bool> has_graphs{false};  // ever; without graphs, graph_blocks is not searched
  using Blocks = std::unordered_map<void*, GraphBlock>;
  Blocks graph_blocks;

  void prepare(int index);
  void count_reserved();
  void* from_pool(size_t bytes, int index);
  void* from_graph(size_t bytes);
  bool to_graph(void* data, int index);
  void to_system(Blocks::iterator block);
  void served(size_t bytes);
  [[noreturn]] void out_of_memory(size_t bytes, int index);
  void end_of(GraphMemory& graph);
};

// Never destroyed: tensors with static lifetime may outlive any order of destruction.
static DeviceMemory& memory(int index) {
  static auto* memories = new std::array<DeviceMemory, kMaxDevices>;
  return (*memories)[size_t(index)];
}

static std::string units(size_t bytes) {
  const char* names[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  double value = double(bytes);
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return concat(double(int64_t(value * 10 + 0.5)) / 10, ' ', names[unit]);
}

void DeviceMemory::prepare(int index) {
  use(index);
  const std::lock_guard lock(mutex);
  if (pool) return;
  cudaMemPool_t made = nullptr;
  RT_GPU_CHECK(cudaDeviceGetDefaultMemPool(&made, index));
  uint64_t keep = std::numeric_limits<uint64_t>::max();
  RT_GPU_CHECK(cudaMemPoolSetAttribute(made, cudaMemPoolAttrReleaseThreshold, &keep));
  pool = made;
}

void DeviceMemory::count_reserved() {
  uint64_t reserved = 0;
  RT_GPU_CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
  stats.system_allocations += int64_t(reserved) > pool_reserved;
  pool_reserved = int64_t(reserved);
  stats.reserved = pool_reserved + graph_reserved;
}

void DeviceMemory::served(size_t bytes) {
  stats.current += int64_t(bytes);
  stats.peak = std::max(stats.peak, stats.current);
  ++stats.allocations;
}

void* DeviceMemory::from_pool(size_t bytes, int index) {
  const cudaStream_t stream = compute_stream(index);
  void* data = nullptr;
  cudaError_t status = cudaMallocFromPoolAsync(&data, std::max<size_t>(bytes, 1), pool, stream);
  if (status == cudaErrorMemoryAllocation) {  // free memory may be fragmented
    cudaGetLastError();
    release_cached(index);
    status = cudaMallocFromPoolAsync(&data, std::max<size_t>(bytes, 1), pool, stream);
    if (status == cudaErrorMemoryAllocation) out_of_memory(bytes, index);
  }
  check(status, "cudaMallocFromPoolAsync(bytes, pool, stream)", __FILE__, __LINE__);
  const std::lock_guard lock(mutex);
  served(bytes);
  if (stats.current > most_used) {  // else the pool has hardly grown; stats() looks again
    most_used = stats.current;
    count_reserved();
  }
  return data;
}

void DeviceMemory::out_of_memory(size_t bytes, int index) {
  cudaGetLastError();
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  const std::lock_guard lock(mutex);
  detail::fail<OutOfMemory>({"out of memory on cuda:", index, ": asked for ", units(bytes), " with ",
                             units(size_t(stats.current)), " held by tensors (peak ", units(size_t(stats.peak)), "), ",
                             units(free), " of ", units(total), " free; use a smaller batch"});
}

// For a thread that records. Reuses a free block of up to twice the size, in order of the recorded stream.
void* DeviceMemory::from_graph(size_t bytes) {
  constexpr size_t kGranule = 512;
  const size_t block = (std::max<size_t>(bytes, 1) + kGranule - 1) / kGranule * kGranule;
  GraphMemory& graph = *recorder;
  const std::unique_lock lock(mutex);
  void* data = nullptr;
  if (const auto found = graph.free_.lower_bound(block); found != graph.free_.end() && found->first <= 2 * block) {
    data = found->second;
    graph.free_.erase(found);
  } else {
    const AllowWhileRecording allow;
    cudaError_t status = cudaMalloc(&data, block);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      RT_GPU_CHECK(cudaMemPoolTrimTo(pool, 0));
      status = cudaMalloc(&data, block);
      if (status == cudaErrorMemoryAllocation) return nullptr;
    }
    check(status, "cudaMalloc(bytes)", __FILE__, __LINE__);
    graph.blocks_.push_back(data);
    graph_blocks[data] = {&graph, block, true};
    graph_reserved += int64_t(block);
    stats.reserved += int64_t(block);
    ++stats.system_allocations;
    has_graphs = true;
  }
  graph_blocks[data].held = true;
  served(bytes);
  return data;
}

// Whether a graph has taken the memory that a tensor frees.
bool DeviceMemory::to_graph(void* data, int index) {
  const auto found = graph_blocks.find(data);
  if (found == graph_blocks.end()) {
    if (!recording(index)) return false;
    recorder->adopted_.push_back(data);
    return true;
  }
  GraphBlock& block = found->second;
  block.held = false;
  if (block.owner && block.owner == recorder) {
    recorder->free_.emplace(block.bytes, data);
  } else if (!block.owner) {
    to_system(found);
  }
  return true;
}

void DeviceMemory::to_system(Blocks::iterator block) {
  const AllowWhileRecording allow;
  if (cudaFree(block->first) != cudaSuccess) cudaGetLastError();
  graph_reserved -= int64_t(block->second.bytes);
  stats.reserved -= int64_t(block->second.bytes);
  graph_blocks.erase(block);
}

void DeviceMemory::end_of(GraphMemory& graph) {
  for (void* data : graph.adopted_)
    if (cudaFreeAsync(data, compute_stream(graph.index_)) != cudaSuccess) cudaGetLastError();
  const std::lock_guard lock(mutex);
  for (void* data : graph.blocks_) {
    const auto found = graph_blocks.find(data);
    found->second.owner = nullptr;
    if (!found->second.held) to_system(found);
  }
}

GraphMemory::~GraphMemory() {
  stop_recording();
  memory(index_).end_of(*this);
}
void GraphMemory::start_recording() {
  memory(index_).prepare(index_);
  memory(index_).has_graphs = true;
  recorder = this;
}
void GraphMemory::stop_recording() noexcept {
  if (recorder == this) recorder = nullptr;
  free_.clear();
}
bool recording(int index) { return recorder && recorder->index_ == index; }

void* allocate(size_t bytes, int index) {
  DeviceMemory& device = memory(index);
  device.prepare(index);
  if (!recording(index)) return device.from_pool(bytes, index);
  if (void* data = device.from_graph(bytes)) return data;
  device.out_of_memory(bytes, index);
}

void deallocate(void* data, size_t bytes, int index) noexcept {
  DeviceMemory& device = memory(index);
  const std::lock_guard lock(device.mutex);
  device.stats.current -= int64_t(bytes);
  if (device.has_graphs && device.to_graph(data, index)) return;
  if (cudaFreeAsync(data, compute_stream(index)) != cudaSuccess)
    cudaGetLastError();  // such as when the driver is already unloaded at exit
}

MemoryStats stats(int index) {
  DeviceMemory& device = memory(index);
  const std::lock_guard lock(device.mutex);
  if (device.pool) device.count_reserved();
  return device.stats;
}

int64_t free_bytes(int index) {
  memory(index).prepare(index);
  size_t free = 0, total = 0;
  RT_GPU_CHECK(cudaMemGetInfo(&free, &total));
  const MemoryStats held = stats(index);
  return int64_t(free) + held.reserved - held.current;
}

void reset_peak(int index) {
  DeviceMemory& device = memory(index);
  const std::lock_guard lock(device.mutex);
  device.stats.peak = device.stats.current;
}

void release_cached(int index) {
  DeviceMemory& device = memory(index);
  if (recording(index)) return;
  device.prepare(index);
  RT_GPU_CHECK(cudaStreamSynchronize(compute_stream(index)));
  RT_GPU_CHECK(cudaMemPoolTrimTo(device.pool, 0));
  const std::lock_guard lock(device.mutex);
  device.count_reserved();
}

}  // namespace ringtape::cuda
