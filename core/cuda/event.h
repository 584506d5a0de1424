#pragma once
#include <cuda_runtime_api.h>

namespace ringtape::cuda {

// A point in a stream, once it is recorded. Movable; destroyed without waiting. CUDA's events are kept for later ones,
// unless they are timed: whoever waits on a stream for an earlier record still does.
class Event {
 public:
  explicit Event(int index, bool timed = false);  // for streams of device `index`
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  void record(cudaStream_t stream);
  void wait_on(cudaStream_t stream) const;  // later work on `stream` starts after the point
  void synchronize() const;                 // the host waits
  bool done() const;
  double milliseconds_since(const Event& begin) const;  // both must be timed and done

 private:
  cudaEvent_t event_ = nullptr;
  int kept_for_ = -1;  // the device; -1: timed
};

}  // namespace ringtape::cuda
