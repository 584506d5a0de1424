#pragma once
#include <cuda_runtime_api.h>

namespace ringtape::cuda {

// A point in a stream. Movable; destroyed without waiting.
class Event {
 public:
  explicit Event(int index, bool timed = false);  // for streams of device `index`
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  void record(cudaStream_t stream);
  void wait_on(cudaStream_t stream) const;              // later work on `stream` starts after the point
  void synchronize() const;                             // the host waits
  bool done() const;                                    // also true if never recorded
  double milliseconds_since(const Event& begin) const;  // both must be timed and done

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace ringtape::cuda
