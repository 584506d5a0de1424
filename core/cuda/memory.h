#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <vector>

// Memory of recorded graphs (graph.h). Recorded work keeps its addresses. So its memory is not returned to the device's
// pool while the graph lives, although tensors come and go.
namespace ringtape::cuda {

class GraphMemory {
 public:
  explicit GraphMemory(int index) : index_(index) {}
  ~GraphMemory();  // the graph's work must be done; tensors keep the memory they still hold
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  void start_recording();  // this thread's allocations on the device now belong to the graph
  void stop_recording() noexcept;

 private:
  friend struct DeviceMemory;
  friend bool recording(int index);
  int index_;
  std::vector<void*> blocks_;          // from the device
  std::multimap<size_t, void*> free_;  // by size: released by tensors while recording, reused
  std::vector<void*> adopted_;         // allocated before, freed while recording: each launch still uses it
};

bool recording(int index);  // whether the calling thread records a graph on the device

// While it lives, the calling thread may make calls that CUDA forbids during a recording, such as cudaMalloc.
class AllowWhileRecording {
 public:
  AllowWhileRecording() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~AllowWhileRecording() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  AllowWhileRecording(const AllowWhileRecording&) = delete;
  AllowWhileRecording& operator=(const AllowWhileRecording&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace ringtape::cuda
