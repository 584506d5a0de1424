#include "core/cuda/live.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/cuda/pool.h"
#include "core/cuda/staging.h"

namespace ringtape::cuda {

static constexpr size_t kMaxLive = size_t{1} << 16;  // bytes
static thread_local LiveArguments* live_recorder = nullptr;

LiveArguments::LiveArguments(int index) : index_(index), data_(allocate(kMaxLive, index)) {}

LiveArguments::~LiveArguments() {
  stop_recording();
  deallocate(data_, kMaxLive, index_);
}

LiveArguments* LiveArguments::recorded(int index) {
  return live_recorder && live_recorder->index_ == index ? live_recorder : nullptr;
}
void LiveArguments::start_recording() { live_recorder = this; }
void LiveArguments::stop_recording() noexcept {
  if (live_recorder == this) live_recorder = nullptr;
}

const void* LiveArguments::add(size_t bytes, std::function<void(void* to)> write) {
  constexpr size_t kAligned = 16;
  const size_t at = bytes_;
  bytes_ += (bytes + kAligned - 1) / kAligned * kAligned;
  RT_CHECK_AS(DeviceError, bytes_ <= kMaxLive, "a recorded graph on cuda:", index_, " has more than ", kMaxLive,
              " bytes of arguments that change");
  arguments_.push_back({at, std::move(write)});
  return static_cast<char*>(data_) + at;
}

void LiveArguments::send() const {
  if (arguments_.empty()) return;
  Staging staging(index_, bytes_);
  for (const Argument& a : arguments_) a.write(static_cast<char*>(staging.data()) + a.at);
  const cudaStream_t stream = compute_stream(index_);
  RT_GPU_CHECK(cudaMemcpyAsync(data_, staging.data(), bytes_, cudaMemcpyHostToDevice, stream));
  staging.used_until_now(stream);
}

}  // namespace ringtape::cuda
