#pragma once
#include <cuda_runtime_api.h>

#include <map>
#include <vector>

// Memory of recorded graphs (graph.h). The recorded work keeps the addresses that it was recorded with, so what it uses may go
// to nobody else while the graph lives: not to the pool of the device, though tensors come and go.
namespace ringtape::cuda {

class GraphMemory {
 public:
  explicit GraphMemory(int index) : index_(index) {}
  ~GraphMemory();                    // the graph's work must be done. What tensors still hold lives until they let go
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  void start_recording();            // what the calling thread allocates and frees on the device from now on belongs to the graph
  void stop_recording() noexcept;

 private:
  friend struct DeviceMemory;
  friend bool recording(int index);
  int index_;
  std::vector<void*> blocks_;        // from the device
  std::multimap<size_t, void*> free_;  // those of them, by size, that tensors have left while recording: used again
  std::vector<void*> adopted_;       // tensors' memory from before, freed while recording: still read by each launch
};

bool recording(int index);           // whether the calling thread records a graph on the device

// While it lives, the calling thread may make calls that CUDA otherwise forbids beside a recording, such as cudaMalloc.
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
