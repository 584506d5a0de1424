#include "core/cuda/staging.h"

#include <algorithm>
#include <array>
#include <bit>
#include <list>
#include <map>
#include <mutex>

#include "core/cuda/event.h"
#include "core/cuda/pinned.h"
#include "core/device.h"

namespace ringtape::cuda {

struct StagingBuffer {
  PinnedBuffer memory;
  Event used;
  cudaStream_t stream = nullptr;  // of its last copy, and this one's number
  uint64_t copy = 0;
};

namespace {

struct Pool {
  std::mutex mutex;
  std::list<std::unique_ptr<StagingBuffer>> buffers;  // free ones; the one unused for longest first
  uint64_t copies = 0;                                // so far
  std::map<cudaStream_t, uint64_t> done;              // of each stream, the last copy that the host has waited for

  bool knows_done(const StagingBuffer& buffer) const {
    const auto last = done.find(buffer.stream);
    return buffer.copy == 0 || (last != done.end() && buffer.copy <= last->second);
  }
};

// Never destroyed: the driver may be unloaded earlier.
Pool& pool(int index) {
  static auto* pools = new std::array<Pool, kMaxDevices>;
  return (*pools)[size_t(index)];
}

// One whose last copy is done: if possible one of which that is known, else CUDA is asked.
std::unique_ptr<StagingBuffer> take(int index, size_t bytes) {
  Pool& kept = pool(index);
  const std::lock_guard lock(kept.mutex);
  for (const bool asks : {false, true})
    for (auto at = kept.buffers.begin(); at != kept.buffers.end(); ++at) {
      const size_t size = (*at)->memory.bytes();
      if (size < bytes || size > 4 * bytes + 4096) continue;
      if (asks ? !(*at)->used.done() : !kept.knows_done(**at)) continue;
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
void Staging::used_until_now(cudaStream_t stream) {
  buffer_->used.record(stream);
  Pool& all = pool(index_);
  const std::lock_guard lock(all.mutex);
  buffer_->stream = stream, buffer_->copy = ++all.copies;
}

void Staging::wait_on(cudaStream_t stream) const { buffer_->used.wait_on(stream); }

void Staging::wait() const {
  Pool& all = pool(index_);
  {
    const std::lock_guard lock(all.mutex);
    if (all.knows_done(*buffer_)) return;
  }
  buffer_->used.synchronize();
  const std::lock_guard lock(all.mutex);
  uint64_t& done = all.done[buffer_->stream];
  done = std::max(done, buffer_->copy);
}

}  // namespace ringtape::cuda
