#pragma once
#include <cuda_runtime_api.h>

namespace ringtape::cuda {

// A point in a stream. Movable; destroyed without waiting.
class Event {
 public:
  explicit Event(int index, bool timed = false);       // for streams of that device
  ~Event();
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;

  void record(cudaStream_t stream);
  void wait_on(cudaStream_t stream) const;             // work put on `stream` from now on starts after the point
  void synchronize() const;                            // the host waits
  bool done() const;                                   // true also of one never recorded
  double milliseconds_since(const Event& begin) const; // both timed and done

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace ringtape::cuda
