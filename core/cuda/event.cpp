#include "core/cuda/event.h"

#include <array>
#include <mutex>
#include <utility>
#include <vector>

#include "core/cuda/check.h"
#include "core/cuda/device.h"
#include "core/device.h"

namespace ringtape::cuda {
namespace {

struct Kept {
  std::mutex mutex;
  std::vector<cudaEvent_t> events;
};

// Never destroyed: the driver may be unloaded earlier.
Kept& kept(int index) {
  static auto* all = new std::array<Kept, kMaxDevices>;
  return (*all)[size_t(index)];
}

cudaEvent_t take(int index) {
  Kept& from = kept(index);
  const std::lock_guard lock(from.mutex);
  if (from.events.empty()) return nullptr;
  const cudaEvent_t out = from.events.back();
  from.events.pop_back();
  return out;
}

}  // namespace

Event::Event(int index, bool timed) : event_(timed ? nullptr : take(index)), kept_for_(timed ? -1 : index) {
  use(index);
  if (!event_) RT_GPU_CHECK(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming));
}

Event::~Event() {
  if (!event_) return;
  if (kept_for_ < 0) {
    cudaEventDestroy(event_);
    return;
  }
  Kept& to = kept(kept_for_);
  const std::lock_guard lock(to.mutex);
  to.events.push_back(event_);
}

Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)), kept_for_(other.kept_for_) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(event_, other.event_);
  std::swap(kept_for_, other.kept_for_);
  return *this;
}

void Event::record(cudaStream_t stream) { RT_GPU_CHECK(cudaEventRecord(event_, stream)); }

void Event::wait_on(cudaStream_t stream) const {
  RT_GPU_CHECK(cudaStreamWaitEvent(stream, event_, cudaEventWaitDefault));
}

void Event::synchronize() const { RT_GPU_CHECK(cudaEventSynchronize(event_)); }

bool Event::done() const {
  const cudaError_t status = cudaEventQuery(event_);
  if (status == cudaErrorNotReady) cudaGetLastError();
  else check(status, "cudaEventQuery(event)", __FILE__, __LINE__);
  return status == cudaSuccess;
}

double Event::milliseconds_since(const Event& begin) const {
  float milliseconds = 0;
  RT_GPU_CHECK(cudaEventElapsedTime(&milliseconds, begin.event_, event_));
  return milliseconds;
}

}  // namespace ringtape::cuda
