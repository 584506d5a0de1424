#include "core/cuda/event.h"

#include <utility>

#include "core/cuda/check.h"
#include "core/cuda/device.h"

namespace ringtape::cuda {

Event::Event(int index, bool timed) {
  use(index);
  RT_GPU_CHECK(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming));
}

Event::~Event() {
  if (event_) cudaEventDestroy(event_);
}

Event::Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(event_, other.event_);
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
