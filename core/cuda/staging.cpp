#include "core/cuda/staging.h"

#include <array>
#include <bit>
#include <list>
#include <mutex>

#include "core/cuda/event.h"
#include "core/cuda/pinned.h"
#include "core/device.h"

namespace ringtape::cuda {

struct StagingBuffer {
  PinnedBuffer memory;
  Event used;
};

namespace {

// Free buffers; the one unused for longest first.
struct Pool {
  std::mutex mutex;
  std::list<std::unique_ptr<StagingBuffer>> buffers;
};

// Never destroyed: the driver may be unloaded earlier.
Pool& pool(int index) {
  static auto* pools = new std::array<Pool, kMaxDevices>;
  return (*pools)[size_t(index)];
}

std::unique_ptr<StagingBuffer> take(int index, size_t bytes) {
  Pool& kept = pool(index);
  const std::lock_guard lock(kept.mutex);
  for (auto at = kept.buffers.begin(); at != kept.buffers.end(); ++at) {
    const size_t size = (*at)->memory.bytes();
    if (size < bytes || size > 4 * bytes + 4096 || !(*at)->used.done()) continue;
    auto found = std::move(*at);
    kept.buffers.erase(at);
    return found;
  }
  return nullptr;
}

}  // namespace

Staging::Staging(int index, size_t bytes) : index_(index), buffer_(take(index, bytes)) {
  if (buffer_) return;
  const size_t size = std::bit_ceil(bytes < 256 ? size_t{256} : bytes);
  buffer_ = std::make_unique<StagingBuffer>(StagingBuffer{PinnedBuffer(size), Event(index)});
}

Staging::~Staging() {
  Pool& kept = pool(index_);
  const std::lock_guard lock(kept.mutex);
  kept.buffers.push_back(std::move(buffer_));
}

void* Staging::data() const { return buffer_->memory.data(); }
void Staging::used_until_now(cudaStream_t stream) { buffer_->used.record(stream); }
void Staging::wait() const { buffer_->used.synchronize(); }

}  // namespace ringtape::cuda
